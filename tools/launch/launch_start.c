/* launch_start.c: draws a port and a secret, sets a rank's environment, and starts the rank.
 *
 * Invariant: that of launch_start.h. */
#define _GNU_SOURCE /* pipe2 */
#include "tools/launch/launch_start.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/launch/launch_options.h"

enum {
    /* the system itself assigns no port of this range */
    PORT_FIRST = 20000,
    PORT_LAST = 31998,
    PORT_TRIES = 200,
    STARTED_MS = 10000
};

/* ---- The job ------------------------------------------------------------------------------- */

static int is_free(int32_t port) {
    const int one = 1;
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) return 0;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const int out =
        bind(listener, (const struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0;
    close(listener);
    return out;
}

/* Draws MASTER_PORT, for the program's own rendezvous. The next port is for the library's
 * rendezvous. */
static int32_t draw_port(void) {
    for (int i = 0; i < PORT_TRIES; i++) {
        uint32_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random) return 0;
        const int32_t port = PORT_FIRST + (int32_t)(random % (PORT_LAST - PORT_FIRST));
        if (is_free(port) && is_free(port + 1)) return port;
    }
    return 0;
}

static int read_port(const char *text, int32_t *port) {
    char *end;
    const long number = strtol(text, &end, 10);
    *port = (int32_t)number;
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && number >= 1 && number <= 65534)
        return 0;
    return fig_launch_options_refuse(FIG_LAUNCH_USAGE,
                                     "MASTER_PORT is %.40s: it is a number from 1 to 65534", text);
}

int fig_launch_start_draw(fig_launch_job *job, int32_t count) {
    const char *secret = getenv("FIG_SECRET"), *port = getenv("MASTER_PORT");
    uint8_t drawn[16];
    *job = (fig_launch_job){.count = count};
    if (port != NULL && port[0] != '\0') {
        const int code = read_port(port, &job->port);
        if (code != 0) return code;
    } else {
        job->port = draw_port();
    }
    if (job->port == 0) return fig_launch_options_refuse(1, "no free port was found");
    if (secret != NULL && secret[0] != '\0') return 0;
    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
        return fig_launch_options_refuse(1, "the system has no random numbers");
    for (size_t i = 0; i < sizeof drawn; i++)
        snprintf(job->secret + 2 * i, 3, "%02x", drawn[i]);
    return 0;
}

void fig_launch_start_describe(const fig_launch_job *job, int32_t rank,
                               fig_launch_variables *variables) {
    char(*text)[FIG_LAUNCH_START_TEXT] = variables->text;
    snprintf(text[0], sizeof text[0], "RANK=%" PRId32, rank);
    snprintf(text[1], sizeof text[1], "LOCAL_RANK=%" PRId32, rank);
    snprintf(text[2], sizeof text[2], "WORLD_SIZE=%" PRId32, job->count);
    snprintf(text[3], sizeof text[3], "LOCAL_WORLD_SIZE=%" PRId32, job->count);
    snprintf(text[4], sizeof text[4], "MASTER_ADDR=127.0.0.1");
    snprintf(text[5], sizeof text[5], "MASTER_PORT=%" PRId32, job->port);
    snprintf(text[6], sizeof text[6], "FIG_SECRET=%s", job->secret);
}

/* ---- A rank -------------------------------------------------------------------------------- */

static void set_variables(const fig_launch_start *start, fig_launch_variables *variables) {
    fig_launch_start_describe(start->job, start->rank, variables);
    for (int i = 0; i < FIG_LAUNCH_START_VARIABLES; i++) {
        char *text = variables->text[i], *value = strchr(text, '=');
        *value++ = '\0';
        if (value[0] != '\0') setenv(text, value, 1);
    }
}

/* Turns the child process into the program, or tells the launcher why it cannot. */
static void become(const fig_launch_start *start, pid_t launcher, const fig_launch_pipes *ends,
                   int report) {
    fig_launch_variables variables;
    const int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fig_launch_keep_add(start->keep);
    /* the launcher died before it could wait for this child */
    if (getppid() != launcher) _exit(127);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(ends->out, STDOUT_FILENO);
    dup2(ends->err, STDERR_FILENO);
    fig_launch_place_bind(start->places, start->rank);
    set_variables(start, &variables);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, start->signals, NULL);
    execvp(start->program[0], start->program);
    const int error = errno;
    (void)!write(report, &error, sizeof error);
    _exit(127);
}

/* Returns the error number that the child reports, or 0 if the child closed its end, which means
 * that it has become the program. */
static int hear_report(int report) {
    struct pollfd wait = {.fd = report, .events = POLLIN};
    int error = 0;
    while (poll(&wait, 1, STARTED_MS) < 0 && errno == EINTR) {
    }
    if (read(report, &error, sizeof error) != sizeof error) error = 0;
    return error;
}

int fig_launch_start_rank(const fig_launch_start *start, pid_t *rank, fig_launch_pipes *pipes) {
    int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
    const pid_t launcher = getpid();
    int error = 0;
    *rank = -1;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
        pipe2(report, O_CLOEXEC | O_NONBLOCK) != 0 || (*rank = fork()) < 0) {
        error = errno;
    } else if (*rank == 0) {
        become(start, launcher, &(fig_launch_pipes){out[1], err[1]}, report[1]);
    }
    /* parent and child both set the group, so that it is set before either process goes on */
    if (error == 0) setpgid(*rank, *rank);
    const int writing[] = {out[1], err[1], report[1]};
    for (int i = 0; i < 3; i++)
        if (writing[i] >= 0) close(writing[i]);
    if (error == 0) error = hear_report(report[0]);
    if (report[0] >= 0) close(report[0]);
    *pipes = (fig_launch_pipes){out[0], err[0]};
    return error;
}

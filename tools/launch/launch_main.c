/* launch_main.c: figraph-launch starts ranks of a program on this machine, and ends them together.
 *
 * One loop waits for signals, for the output of ranks and for deadlines. Nothing else waits, and no
 * signal has a handler. Invariant: when the launcher ends, no process of any rank's group is left.
 * If the launcher is killed, the keeper ends them. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/launch/launch_options.h"
#include "tools/launch/launch_output.h"
#include "tools/launch/launch_place.h"
#include "tools/launch/launch_start.h"

enum {
    /* wait after the first failure: the launcher may see a failure before the failure that caused
     * it */
    JUDGE_MS = 100,
    KILL_MS = 1500,  /* time from asking ranks to end until killing them */
    DRAIN_MS = 200,  /* time for the output of children that a rank left behind */
    READER_MS = 5000 /* time for the reader of the launcher's output */
};
enum { EXIT_TIME = 124, EXIT_NOT_RUN = 127, EXIT_SIGNAL = 128 };

static const int forwarded[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

typedef struct rank {
    pid_t process; /* 0: not started */
    int has_ended;
    int code;   /* its exit code, or 128 plus the signal */
    int signal; /* the signal that ended it; 0: none */
} rank;

typedef struct launch {
    const fig_launch_options *options;
    fig_launch_output *output;
    rank ranks[FIG_LAUNCH_LIMIT];
    int32_t started, running;
    fig_launch_keep keep;
    int signals;      /* a signalfd */
    int64_t start_ns; /* start_ns, judge_ns and kill_ns: times; 0: not set */
    int64_t judge_ns, kill_ns;
    int32_t failed; /* the first rank that was seen to fail; -1: none */
    int asked;      /* the last signal received that asks a program to end */
    int code;       /* the launcher's exit code */
    int is_ending;  /* 1: the launcher is ending the ranks, so their failures no longer count */
} launch;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t in_ms(int64_t ms) {
    return now_ns() + ms * 1000000;
}

/* ---- Ending -------------------------------------------------------------------------------- */

/* Sends a signal to each rank's group. The launcher reaps the leader of a group only at the end, so
 * the leader's number still names the group. */
static void signal_all(const launch *of, int signal) {
    for (int32_t i = 0; i < of->started; i++)
        kill(-of->ranks[i].process, signal);
}

static void end_all(launch *of, int code, const char *why) {
    if (of->is_ending) return;
    of->is_ending = 1;
    of->code = code;
    fig_launch_output_say(of->output, why);
    signal_all(of, SIGTERM);
    signal_all(of, SIGCONT);
    of->kill_ns = in_ms(KILL_MS);
}

/* Ends the ranks if a write to stdout has failed. error: its errno; 0: none has. */
static void end_unheard(launch *of, int error) {
    char why[160];
    if (error == 0) return;
    if (error == EPIPE) {
        end_all(of, EXIT_SIGNAL + SIGPIPE, "nobody reads stdout; the ranks are ended");
        return;
    }
    snprintf(why, sizeof why, "stdout: %s; the ranks are ended", strerror(error));
    end_all(of, FIG_LAUNCH_USAGE, why);
}

/* Finds the rank that failed first. A rank that a signal ended counts as earlier than ranks that
 * exited with a code, because those may have failed when that rank was gone. */
static void judge(launch *of) {
    char why[160], how[80];
    const rank *first = &of->ranks[of->failed];
    of->judge_ns = 0;
    for (int32_t i = 0; i < of->started && first->signal == 0; i++)
        if (of->ranks[i].has_ended && of->ranks[i].signal != 0) first = &of->ranks[i];
    if (of->asked != 0) {
        snprintf(why, sizeof why, "signal %d (%s) was passed on to the ranks", of->asked,
                 strsignal(of->asked));
        end_all(of, EXIT_SIGNAL + of->asked, why);
        return;
    }
    if (first->signal != 0)
        snprintf(how, sizeof how, "was ended by signal %d (%s)", first->signal,
                 strsignal(first->signal));
    else
        snprintf(how, sizeof how, "ended with %d", first->code);
    snprintf(why, sizeof why, "rank %d %s%s", (int)(first - of->ranks), how,
             of->running > 0 ? "; the others are ended" : "");
    end_all(of, first->code, why);
}

/* ---- Events -------------------------------------------------------------------------------- */

static void note_end(launch *of, int32_t index, const siginfo_t *how) {
    rank *each = &of->ranks[index];
    each->has_ended = 1;
    of->running--;
    each->signal = how->si_code == CLD_EXITED ? 0 : how->si_status;
    each->code = each->signal == 0 ? how->si_status : EXIT_SIGNAL + each->signal;
    if (each->code == 0 || of->failed >= 0 || of->is_ending) return;
    of->failed = index;
    of->judge_ns = in_ms(JUDGE_MS);
}

static void note_ends(launch *of) {
    for (int32_t i = 0; i < of->started; i++) {
        siginfo_t how = {.si_pid = 0};
        if (of->ranks[i].has_ended) continue;
        if (waitid(P_PID, (id_t)of->ranks[i].process, &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            how.si_pid != 0)
            note_end(of, i, &how);
    }
}

static void pass_on(launch *of, int number) {
    const int ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    if (ends && of->asked != 0) {
        end_all(of, EXIT_SIGNAL + number, "asked twice to end; the ranks are killed");
        of->kill_ns = now_ns();
        return;
    }
    if (ends) of->asked = number;
    signal_all(of, number);
    /* a stopped process handles no signal until it is continued */
    if (ends) signal_all(of, SIGCONT);
    if (number == SIGTSTP) raise(SIGSTOP);
}

static void read_signals(launch *of) {
    struct signalfd_siginfo each;
    while (read(of->signals, &each, sizeof each) == sizeof each)
        if (each.ssi_signo != SIGCHLD) pass_on(of, (int)each.ssi_signo);
    note_ends(of);
}

static void look_at_time(launch *of) {
    const int64_t now = now_ns();
    const int64_t limit = (int64_t)of->options->timeout_s * 1000000000;
    if (limit > 0 && now - of->start_ns >= limit && !of->is_ending) {
        char why[80];
        snprintf(why, sizeof why, "the time limit of %" PRId32 " s is over; the ranks are ended",
                 of->options->timeout_s);
        end_all(of, EXIT_TIME, why);
    }
    if (of->judge_ns != 0 && (now >= of->judge_ns || of->running == 0)) judge(of);
    if (of->kill_ns != 0 && now >= of->kill_ns) {
        signal_all(of, SIGKILL);
        of->kill_ns = 0;
    }
    end_unheard(of, fig_launch_output_error(of->output));
}

/* Returns the milliseconds until the next deadline, or -1 if none is set. */
static int next_ms(const launch *of) {
    const int64_t limit = (int64_t)of->options->timeout_s * 1000000000;
    int64_t first = limit > 0 && !of->is_ending ? of->start_ns + limit : INT64_MAX;
    if (of->judge_ns != 0 && of->judge_ns < first) first = of->judge_ns;
    if (of->kill_ns != 0 && of->kill_ns < first) first = of->kill_ns;
    if (first == INT64_MAX) return -1;
    const int64_t left = (first - now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : left > 1000000 ? 1000000 : (int)left;
}

/* ---- The loop ------------------------------------------------------------------------------ */

static void wait_for_any(const launch *of, int ms) {
    struct pollfd waits[2 * FIG_LAUNCH_LIMIT + 3];
    const int count = fig_launch_output_waits(of->output, waits);
    waits[count] = (struct pollfd){.fd = of->signals, .events = POLLIN};
    (void)poll(waits, (nfds_t)count + 1, ms);
}

/* Moves the last output of ranks, in bounded time, because children of ranks may keep the pipes
 * open. */
static void drain(launch *of) {
    int64_t end = in_ms(DRAIN_MS);
    while (fig_launch_output_is_open(of->output) && now_ns() < end) {
        wait_for_any(of, DRAIN_MS / 4);
        (void)fig_launch_output_move(of->output);
    }
    fig_launch_output_end(of->output);
    end = in_ms(READER_MS);
    while (fig_launch_output_is_pending(of->output) && now_ns() < end) {
        wait_for_any(of, DRAIN_MS / 4);
        if (fig_launch_output_move(of->output)) end = in_ms(READER_MS);
    }
}

static void serve(launch *of) {
    while (of->running > 0 || of->judge_ns != 0) {
        wait_for_any(of, next_ms(of));
        (void)fig_launch_output_move(of->output);
        read_signals(of);
        look_at_time(of);
    }
    signal_all(of, SIGKILL); /* processes that ranks left behind */
    fig_launch_keep_close(&of->keep);
    for (int32_t i = 0; i < of->started; i++)
        (void)waitpid(of->ranks[i].process, NULL, 0);
    of->started = 0;
    drain(of);
    end_unheard(of, fig_launch_output_error(of->output)); /* the last lines may be lost, too */
    drain(of);
}

static void start_all(launch *of, fig_launch_start *start) {
    for (int32_t i = 0; i < of->options->count && !of->is_ending; i++) {
        fig_launch_pipes pipes;
        char why[160];
        start->rank = i;
        const int error = fig_launch_start_rank(start, &of->ranks[i].process, &pipes);
        if (of->ranks[i].process > 0) {
            of->started++;
            of->running++;
        }
        if (pipes.err >= 0) fig_launch_output_take(of->output, i, pipes);
        if (error == 0) continue;
        snprintf(why, sizeof why, "%.80s: %s", start->program[0], strerror(error));
        end_all(of, EXIT_NOT_RUN, why);
    }
}

/* ---- Start --------------------------------------------------------------------------------- */

/* Blocks signals, so that they arrive only through the descriptor. *before becomes the signal mask
 * that programs get. */
static int block_signals(sigset_t *before) {
    sigset_t all;
    sigemptyset(&all);
    sigaddset(&all, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++)
        sigaddset(&all, forwarded[i]);
    sigprocmask(SIG_BLOCK, &all, before);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void print_plan(const fig_launch_options *options, const fig_launch_job *job,
                       const fig_launch_places *places) {
    fig_launch_variables variables;
    char where[400];
    printf("%s\n\n", options->program[0]);
    fig_launch_start_describe(job, 0, &variables);
    for (int i = 2; i < FIG_LAUNCH_START_VARIABLES - 1; i++)
        printf("  %s\n", variables.text[i]);
    printf("  FIG_SECRET=%s\n\n", job->secret[0] != '\0' ? "(drawn for each run)" : "(as set)");
    for (int32_t i = 0; i < options->count; i++) {
        fig_launch_start_describe(job, i, &variables);
        fig_launch_place_tell(places, i, where, sizeof where);
        printf("  %-8s %-14s %s\n", variables.text[0], variables.text[1], where);
    }
}

int main(int count, char **words) {
    static launch of = {.failed = -1};
    fig_launch_options options;
    fig_launch_job job;
    sigset_t before;
    int code = fig_launch_options_parse(&options, count, words);
    if (code != 0) return code < 0 ? fig_launch_options_close() : code;
    code = fig_launch_start_draw(&job, options.count);
    if (code != 0) return code;
    fig_launch_places *places = fig_launch_place_open(options.count);
    if (options.dry_run) {
        print_plan(&options, &job, places);
        fig_launch_place_close(places);
        return fig_launch_options_close();
    }
    code = fig_launch_keep_open(&of.keep);
    if (code != 0)
        return fig_launch_options_refuse(1, "cannot start a process: %s", strerror(code));
    of.options = &options;
    of.output = fig_launch_output_open(options.count, options.plain);
    of.signals = block_signals(&before);
    of.start_ns = now_ns();
    if (of.output == NULL || of.signals < 0)
        return fig_launch_options_refuse(1, "no memory: %s", strerror(errno));
    fig_launch_start start = {.job = &job,
                              .places = places,
                              .program = options.program,
                              .signals = &before,
                              .keep = &of.keep};
    start_all(&of, &start);
    serve(&of);
    fig_launch_output_close(of.output);
    fig_launch_place_close(places);
    return of.code;
}

/* launch_keep.c: runs the keeper, a process that reads a pipe until the pipe ends, and then kills.
 *
 * Invariant: that of launch_keep.h. */
#define _GNU_SOURCE /* pipe2, syscall */
#include "tools/launch/launch_keep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/launch/launch_options.h"

enum { ALL_IS_WELL = 0 }; /* sent instead of a group: the launcher itself has ended the groups */

/* Detaches the keeper from the launcher. Signals to the launcher's group or terminal then do not
 * reach the keeper, and it holds no descriptor that a reader of the launcher's output waits for. */
static void come_apart(int pipe) {
    sigset_t all;
    const int nothing = open("/dev/null", O_RDWR);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "figraph-keep");
    for (int i = STDIN_FILENO; i <= STDERR_FILENO && nothing >= 0; i++)
        dup2(nothing, i);
    dup2(pipe, STDIN_FILENO);
    (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
}

/* Collects the numbers of groups, and kills the groups when the pipe ends. No number can by then
 * belong to a stranger: until the launcher is gone, a leader that has ended keeps its number as the
 * launcher's child, and a group keeps its number as long as it has a process. The keeper does not
 * find a process that has left its rank's group. */
static void keep(void) {
    pid_t groups[FIG_LAUNCH_LIMIT], next;
    int count = 0;
    for (;;) {
        const ssize_t got = read(STDIN_FILENO, &next, sizeof next);
        if (got < 0 && errno == EINTR) continue;
        if (got != sizeof next) break;
        if (next == ALL_IS_WELL) return;
        if (count < FIG_LAUNCH_LIMIT) groups[count++] = next;
    }
    for (int i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
}

int fig_launch_keep_open(fig_launch_keep *of) {
    int ends[2];
    *of = (fig_launch_keep){.keeper = -1, .pipe = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    of->keeper = fork();
    if (of->keeper == 0) {
        close(ends[1]);
        come_apart(ends[0]);
        keep();
        _exit(0);
    }
    const int error = of->keeper < 0 ? errno : 0;
    close(ends[0]);
    if (error != 0) close(ends[1]);
    if (error == 0) of->pipe = ends[1];
    return error;
}

static void tell(const fig_launch_keep *of, pid_t number) {
    while (write(of->pipe, &number, sizeof number) < 0 && errno == EINTR) {
    }
}

void fig_launch_keep_add(const fig_launch_keep *of) {
    tell(of, getpid());
}

void fig_launch_keep_close(fig_launch_keep *of) {
    if (of->pipe < 0) return;
    tell(of, ALL_IS_WELL);
    close(of->pipe);
    (void)waitpid(of->keeper, NULL, 0);
    of->pipe = -1;
}

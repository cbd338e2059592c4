/* fork_check.c: maps a page that the system clears in a forked child.
 *
 * Invariant: see fork_check.h. */
#define _DEFAULT_SOURCE /* madvise, which POSIX lacks */
#include "engine/seam/fork_check.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "planner/status.h"

fig_status fig_fork_check_open(fig_fork_check *check) {
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    *check = (fig_fork_check){0};
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return fig_fail(FIG_NOMEM, "engine: a page of %zu bytes: %s", bytes, strerror(errno));
    /* Linux before 4.14 refuses this, and children then stay undetected */
    madvise(page, bytes, MADV_WIPEONFORK);
    *check = (fig_fork_check){page, bytes};
    *check->word = 1;
    return FIG_OK;
}

void fig_fork_check_close(fig_fork_check *check) {
    if (check->word != NULL) munmap((void *)(uintptr_t)check->word, check->bytes);
    *check = (fig_fork_check){0};
}

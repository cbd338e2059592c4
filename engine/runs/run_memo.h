/* run_memo.h: keeps the launches of a runner's latest runs, so that an equal run can repeat them.
 *
 * The launches of a run follow from the runner and the caller's arguments. Callers in a loop repeat
 * their arguments, and preparing launches costs more than launching them. The memo owns its memory,
 * which is allocated when the runner opens, and a lock. No thread waits for the lock: a thread that
 * finds it taken prepares its run without the memo. Invariant: all launches of each run in the memo
 * succeeded once, with equal arguments. */
#ifndef FIG_ENGINE_RUN_MEMO_H
#define FIG_ENGINE_RUN_MEMO_H

#include "engine/seam/run_device.h"
#include "graphs/graphs.h"

typedef struct fig_run_memo fig_run_memo;

/* binding_count: the number of tensors that a caller of the graphs binds. */
fig_status fig_run_memo_create(fig_run_memo **memo, const fig_lower_common *common,
                               int32_t binding_count);
void fig_run_memo_destroy(fig_run_memo *memo); /* accepts NULL */

typedef enum fig_run_kind { FIG_RUN_NODES = 1, FIG_RUN_PLAN } fig_run_kind;

typedef struct fig_run_entry {
    int32_t is_known; /* 1: the entry has the run's launches; 0: the entry is empty */
    int32_t launch_count;
    fig_run_launch *launches; /* [launch_count] they fit any stream */
} fig_run_entry;

/* fig_run_memo_take() takes the lock and returns the entry of an equal run, or an empty entry. It
 * returns NULL if the lock is taken or the memo does not keep such runs. fig_run_memo_add() adds
 * the next launch to an entry that was empty. fig_run_memo_give() releases the lock and, if
 * is_whole is 1, keeps the launches that were added. */
const fig_run_entry *fig_run_memo_take(fig_run_memo *memo, fig_run_kind kind, const fig_run *run);
fig_status fig_run_memo_add(fig_run_memo *memo, const fig_run_launch *launch);
void fig_run_memo_give(fig_run_memo *memo, fig_run_kind kind, int is_whole);

#endif

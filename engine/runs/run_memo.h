/* run_memo.h: the launches of a runner's latest runs, so that the same run again is launches alone.
 *
 * What a run launches follows from the runner and from what the caller says, and callers in a loop
 * say the same again: making it anew costs more than launching it. Owns memory that is there when
 * the runner is opened, and a lock that nobody waits for: who finds it taken makes his run anew.
 * Invariant: a run that is known was launched once, whole, and for a caller who said the same,
 * byte for byte. */
#ifndef FIG_ENGINE_RUN_MEMO_H
#define FIG_ENGINE_RUN_MEMO_H

#include "engine/runs/run_device.h"
#include "graphs/graphs.h"

typedef struct fig_run_memo fig_run_memo;

/* Of the runs of graphs with so many tensors that a caller binds. */
fig_status fig_run_memo_create(fig_run_memo **memo, const fig_lower_common *common,
                               int32_t binding_count);
void fig_run_memo_destroy(fig_run_memo *memo); /* NULL is nothing */

typedef enum fig_run_kind { FIG_RUN_NODES = 1, FIG_RUN_PLAN } fig_run_kind;

typedef struct fig_run_entry {
    int32_t is_known; /* 1: the launches are what they were; 0: there are none yet */
    int32_t launch_count;
    fig_run_launch *launches; /* [launch_count] of no stream */
} fig_run_entry;

/* Takes the lock, and finds the run, or room for it. NULL: the lock is taken, or such a run is not
 * kept. add: the next launch of a run that was not known. give lets go of the
 * lock, and keeps what was added where the run is whole. */
const fig_run_entry *fig_run_memo_take(fig_run_memo *memo, fig_run_kind kind, const fig_run *run);
void fig_run_memo_add(fig_run_memo *memo, const fig_run_launch *launch);
void fig_run_memo_give(fig_run_memo *memo, fig_run_kind kind, int is_whole);

#endif

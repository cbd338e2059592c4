/* ranks.c: the public calls on a group of ranks.
 *
 * Invariant: every call refuses, as long as nothing here makes a group. */
#include "engine/ranks/group.h"

#include "engine/ranks/carrier.h"
#include "planner/status.h"

static fig_status refuse(void) {
    return fig_fail(FIG_UNSUPPORTED, "ranks: nothing in this library makes a group of them");
}

fig_status fig_ranks_open(fig_ranks **ranks, const fig_ranks_options *options) {
    (void)options;
    *ranks = NULL;
    return refuse();
}

fig_status fig_ranks_open_local(fig_ranks **ranks, int32_t count,
                                const fig_ranks_options *options) {
    (void)options;
    for (int32_t i = 0; i < count; i++)
        ranks[i] = NULL;
    return refuse();
}

void fig_ranks_close(fig_ranks *ranks) {
    (void)ranks;
}

fig_status fig_ranks_read_info(const fig_ranks *ranks, fig_ranks_info *info) {
    (void)ranks;
    (void)info;
    return refuse();
}

fig_status fig_ranks_all_gather(fig_ranks *ranks, const void *mine, size_t bytes, void *all) {
    (void)ranks;
    (void)mine;
    (void)bytes;
    (void)all;
    return refuse();
}

fig_status fig_ranks_barrier(fig_ranks *ranks) {
    (void)ranks;
    return refuse();
}

fig_status fig_ranks_agree(fig_ranks *ranks, const fig_ranks_field *fields, int32_t field_count) {
    (void)ranks;
    (void)fields;
    (void)field_count;
    return refuse();
}

void fig_ranks_abort(fig_ranks *ranks, const char *reason) {
    (void)ranks;
    (void)reason;
}

fig_status fig_ranks_check(const fig_ranks *ranks) {
    (void)ranks;
    return refuse();
}

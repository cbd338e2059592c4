/* meeting.c: checks that the engines of all ranks agree before they exchange messages in a step.
 *
 * The ranks compare several fields. The most specific field comes first and the content of the
 * whole file last, so that the error message names a difference as precisely as possible.
 * Invariant: no engine opens if the ranks differ in anything that affects the content of
 * messages. */
#include "engine/meeting.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ranks/group.h"
#include "planner/status.h"

/* Checks that each gather was recorded for `count` ranks. The recorded number is the width of `out`
 * divided by the width of `in`. */
static fig_status check_gathers(const fig_program_view *view, int32_t count) {
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        if (!fig_program_view_meets(node) || fig_kernel_table[node->op].meets != FIG_MEETING_GATHER)
            continue;
        const int64_t ranks = fig_program_view_tensor(view, node, 1)->dims[1] /
                              fig_program_view_tensor(view, node, 0)->dims[1];
        if (ranks == count) continue;
        return fig_fail(FIG_INVALID,
                        "engine: node %u (%s) is for %" PRId64 " rank%s, but the group has "
                        "%" PRId32,
                        n, fig_table_op_name(node->op), ranks, FIG_PLURAL(ranks), count);
    }
    return FIG_OK;
}

static fig_status check_share(const fig_graphs *graphs, int32_t count) {
    if (graphs->ranks == 1 || graphs->ranks == count) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "engine: the graphs are for one of %" PRId32 " ranks, but the group has "
                    "%" PRId32,
                    graphs->ranks, count);
}

static fig_status agree(const fig_graphs *graphs, struct fig_ranks *ranks) {
    const fig_spec *spec = &fig_program_view_of(graphs->program)->spec;
    /* [bucket_count][3] */
    int32_t *ladder = calloc(graphs->bucket_count, 3 * sizeof *ladder);
    if (ladder == NULL) return fig_fail(FIG_NOMEM, "engine: %u buckets", graphs->bucket_count);
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        memcpy(ladder + (size_t)i * 3,
               (int32_t[3]){graphs->buckets[i].caps.batch, graphs->buckets[i].caps.kv,
                            graphs->buckets[i].queries},
               3 * sizeof *ladder);
    const fig_ranks_field fields[] = {
        {.name = "spec", .bytes = spec, .count = sizeof *spec},
        {.name = "bucket ladder",
         .bytes = ladder,
         .count = graphs->bucket_count * 3 * sizeof *ladder},
        {.name = "file", .bytes = graphs->content_id, .count = sizeof graphs->content_id}};
    const fig_status status = fig_ranks_agree(ranks, fields, sizeof fields / sizeof fields[0]);
    free(ladder);
    return status;
}

fig_status fig_meeting_open(const fig_engine *engine, struct fig_ranks *ranks, fig_dev_met *met) {
    const fig_graphs *graphs = engine->graphs;
    const fig_dev_meeting meeting = {.ranks = ranks,
                                     .byte_limit = fig_program_view_message_bytes(engine->program),
                                     .exec_buckets = graphs->exec_buckets,
                                     .exec_count = graphs->exec_count};
    fig_ranks_info info = {.size = sizeof info, .count = 1};
    *met = (fig_dev_met){0};
    if (ranks != NULL) FIG_TRY(fig_ranks_read_info(ranks, &info));
    FIG_TRY(check_share(graphs, info.count));
    FIG_TRY(check_gathers(engine->program, info.count));
    if (ranks != NULL) FIG_TRY(agree(graphs, ranks));
    if (meeting.byte_limit == 0) return FIG_OK;
    return engine->api->meet(engine->dev, &meeting, met);
}

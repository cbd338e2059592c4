/* meeting.c: what an engine and those of the other ranks agree on before they meet in a step.
 *
 * The file, by its content, is agreed on by field, the narrowest first, so that the sentence says
 * as closely as can be what two ranks have unlike. Invariant: a group that differs in anything that
 * decides what a message holds has no engine. */
#include "engine/meeting.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/ranks/group.h"
#include "planner/status.h"

/* How often `in` goes into `out` is how many ranks a program was recorded for. */
static fig_status check_gathers(const fig_program_view *view, int32_t count) {
    for (uint32_t n = 0; n < view->node_count; n++) {
        if (view->nodes[n].op != FIG_OP_ALL_GATHER) continue;
        const uint32_t *ids = view->operands + view->nodes[n].operand;
        const int64_t ranks = view->tensors[ids[FIG_ALL_GATHER_OUT] - 1].dims[1] /
                              view->tensors[ids[FIG_ALL_GATHER_IN] - 1].dims[1];
        if (ranks == count) continue;
        return fig_fail(FIG_INVALID,
                        "engine: node %u (all_gather) is for %" PRId64 " rank%s, and the group has "
                        "%" PRId32,
                        n, ranks, FIG_PLURAL(ranks), count);
    }
    return FIG_OK;
}

static fig_status check_share(const fig_graphs *graphs, int32_t count) {
    if (graphs->ranks == 1 || graphs->ranks == count) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "engine: the graphs are the share of one of %" PRId32 " ranks, and the group "
                    "has %" PRId32,
                    graphs->ranks, count);
}

static fig_status agree(const fig_graphs *graphs, struct fig_ranks *ranks) {
    const fig_spec *spec = &fig_program_view_of(graphs->program)->spec;
    fig_bucket *ladder = calloc(graphs->bucket_count, sizeof *ladder);
    if (ladder == NULL) return fig_fail(FIG_NOMEM, "engine: %u buckets", graphs->bucket_count);
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        ladder[i] = graphs->buckets[i].caps;
    const fig_ranks_field fields[] = {
        {.name = "spec", .bytes = spec, .count = sizeof *spec},
        {.name = "bucket ladder", .bytes = ladder, .count = graphs->bucket_count * sizeof *ladder},
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

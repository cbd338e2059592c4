/* prefix_groups.c: computes the costs of strips in finer units, and converts groups to kv tokens.
 *
 * Invariant: a group comes directly before the groups inside it, and they are left out together
 * with it. */
#include "planner/prefixes/prefix_groups.h"

/* Costs are in sixteenths of the units of strips.c. PARTIAL is the cost of one more partial result
 * of a query vector, written and merged: 45 ns, if a full tile takes 1.9 us. */
enum { FINE = 16, PARTIAL = 6 };
/* SPLIT_TILE is the cost of a tile of pages that other rows read too, in units of strips.c.
 * STEP_PERCENT is the time that a step with groups takes before it saves any, 7 us, in percent of
 * the `once` of a full strip: it appends in a launch of its own, and steps without groups mostly do
 * not. Both follow from tools/bench/results/h200_share.csv: there groups save -2, 1, 6, 41, 42, 197
 * and 232 us for 4 rows of 2048 and of 8192 tokens, 16 and 64 of 2048, 16 of 8192, 256 of 2048 and
 * 16 of 32768; the costs say -5, 1, 3, 32, 33, 148 and 154. */
enum { SPLIT_TILE = 7, STEP_PERCENT = 85 };
/* Units of strips, by which the figures above were fitted. Those of strips.c divide the work among
 * workers, and count what a strip costs while all others are under way. */
enum { FULL_ONCE = 80, LONE_ONCE = 9, LONE_TILE = 8 };

fig_prefixes_costs fig_prefix_groups_costs(const fig_strips_shape *shape, int32_t page_tokens) {
    const int32_t half = fig_strips_half(shape->ratio);
    const fig_strips_cost lone = fig_strips_cost_scaled(shape, LONE_ONCE, LONE_TILE);
    const fig_strips_cost full = fig_strips_cost_scaled(shape, FULL_ONCE, FIG_STRIPS_PAIR_TILE);
    return (fig_prefixes_costs){.page_tokens = page_tokens,
                                .query_limit = half,
                                .tile_tokens = shape->tile_tokens,
                                .tile = FINE * (int32_t)fig_strips_cost_of(shape, 1).tile,
                                .strip_queries = 2 * half,
                                .strip_tile_tokens = shape->tile_tokens,
                                .strip_once = FINE * (int32_t)full.once,
                                .strip_tile = FINE * (int32_t)full.tile,
                                .lone_once = FINE * (int32_t)lone.once,
                                .lone_tile = FINE * (int32_t)lone.tile,
                                .partial = PARTIAL * shape->ratio};
}

fig_prefixes_costs fig_prefix_groups_split_costs(const fig_strips_shape *shape,
                                                 int32_t page_tokens) {
    fig_prefixes_costs costs = fig_prefix_groups_costs(shape, page_tokens);
    costs.tile = FINE * SPLIT_TILE;
    costs.step = costs.strip_once * STEP_PERCENT / 100 * shape->workers / shape->kv_heads;
    return costs;
}

int32_t fig_prefix_groups_take(const fig_prefixes *prefixes, int32_t limit,
                               fig_strip_group *groups) {
    const int32_t page_tokens = prefixes->costs.page_tokens;
    int32_t queries = 0, count = 0, is_taken = 0;
    for (int32_t g = 0; g < prefixes->group_count; g++) {
        const fig_prefixes_group *found = &prefixes->groups[g];
        if (found->level == 0) {
            is_taken = found->queries <= limit - queries;
            if (is_taken) queries += found->queries;
        }
        if (!is_taken) continue;
        groups[count++] = (fig_strip_group){.first = found->first,
                                            .rows = found->rows,
                                            .from = found->from * page_tokens,
                                            .to = found->to * page_tokens};
    }
    return count;
}

void fig_prefix_groups_count(const fig_strips_shape *shape, const fig_strip_group *group,
                             int64_t queries, fig_prefix_reads *reads) {
    const int32_t strip = 2 * fig_strips_half(shape->ratio);
    const int64_t strips = (queries + strip - 1) / strip, tokens = group->to - group->from;
    reads->read += tokens * strips;
    reads->saved += tokens * (group->rows - strips);
}

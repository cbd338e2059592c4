/* seen_tiles.h: tells attention which tiles of a row are on its line if the planner knows the mask.
 *
 * Every kernel that serves attention with a score reads this file, because the numbers of tiles on
 * a masked line do not follow from the length alone. planner/scores/mask_line.h computes the tiles.
 * Invariant: the answer is the planner's, who made the plan from the same numbers. Read by nvcc. */
#ifndef FIG_KERNELS_SEEN_TILES_H
#define FIG_KERNELS_SEEN_TILES_H

#include "kernels/common/params.h"
#include "planner/scores/mask_line.h"

#ifdef __CUDACC__
#define FIG_SEEN static __device__ __forceinline__
#else
#define FIG_SEEN static inline
#endif

/* Returns 1 if hidden tiles are not on the launch's line: the planner knows the mask, and it was
 * the host that made the plan. */
FIG_SEEN int fig_seen_tiles_are_masked(const fig_scored_attention_params *p) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)p->attention.plan;
    return p->score.line != 0 && (head->sections & FIG_PLAN_BY_MASKS) != 0;
}

/* Returns the tiles of a row on the launch's line, which is masked; in all lanes of a warp. length:
 * at this launch; queries: those of the row. */
FIG_SEEN fig_mask_tiles fig_seen_tiles_of(const fig_scored_attention_params *p, int32_t row,
                                          int32_t length, int32_t queries) {
    const fig_attention_params *attention = &p->attention;
    const fig_plan_head *head = (const fig_plan_head *)(const void *)attention->plan;
    fig_mask_row of;
    of.row = row;
    of.queries = queries;
    of.length = fig_plan_length_before(head, length);
    of.launches = head->row_tokens > 0 ? head->horizon : 1;
    of.growth = head->row_tokens;
    of.heads = attention->q_heads;
    of.ratio = attention->q_heads / attention->kv_heads;
    of.arrays = p->arrays;
    return fig_mask_line_of(&p->score, &attention->split, &of);
}

#endif

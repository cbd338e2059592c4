/* planning.c: the plan of a step whose lengths lie on the device, made where they lie.
 *
 * The head and the sequences are there, fetched; lengths, positions and every class's split are
 * written by planner/plan.c, as for a step that the host plans. A length that no sequence can have
 * makes its row idle, and a line longer than its bucket's makes the step one of zero rows, which is
 * counted as missed. One block. Where there are no rows nothing is written: a launch that found no
 * plan of its own leaves there what another bucket's next plan leaves out. Invariant: the plan is
 * what the host would have made of the same lengths, byte for byte. */
#include "kernels/fetch.h"
#include "kernels/twins.h"

enum { THREADS = 256 };

void fig_planning_shape(const void *params, fig_launch_shape *shape) {
    (void)params;
    *shape = (fig_launch_shape){.grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
}

/* 1: every line is as long as its bucket allows, or shorter. Counted in 64 bits, since lengths that
 * nobody checked may add up to anything. */
static int is_within_bounds(const fig_plan_params *p, const int32_t *lengths) {
    const fig_plan_head *head = (const fig_plan_head *)p->plan;
    for (int32_t i = 0; i < p->shape.class_count; i++) {
        const fig_split_shape *split = &p->shape.splits[i];
        int64_t tiles = 0;
        for (int32_t row = 0; row < head->rows; row++)
            tiles += fig_split_tiles(split, lengths[row]);
        if (tiles * split->groups > head->tile_limits[i]) return 0;
    }
    return 1;
}

/* Each length is read once, so that all that follows from it agrees whatever happens to it. */
void fig_planning_twin(const void *params, const uint32_t block[3]) {
    (void)block;
    const fig_plan_params *p = params;
    fig_plan_head *head = (fig_plan_head *)p->plan;
    int32_t *lengths = (int32_t *)(p->plan + p->shape.layout.lengths);
    if (head->rows == 0) return;
    for (int32_t row = 0; row < head->rows; row++)
        lengths[row] = fig_plan_length(&p->shape, p->kv_limit, p->lengths[row]);
    if (!is_within_bounds(p, lengths)) {
        head->rows = 0;
        fig_fetch_miss(p->words);
    }
    fig_plan_step step = {.rows = head->rows, .lengths = lengths, .positions = p->positions};
    fig_plan_write_lengths(&p->shape, &step, p->plan);
}

/* planning.c: the plan of a step whose lengths lie on the device, made where they lie.
 *
 * Of an engine's step the head and the sequences are there, fetched; of a run they are written
 * here. Lengths, positions and every class's split are written by planner/plan.c, as for a step
 * that the host plans. A length that no sequence can have makes its row idle, and a line longer
 * than its bucket's makes the step one of zero rows, which is counted as missed. Where an engine's
 * step has no rows nothing is written: a launch that found no plan of its own leaves there what
 * another bucket's next plan leaves out. Invariant: the plan is what the host would have made of
 * the same lengths, byte for byte. */
#include "kernels/planning.h"

#include <string.h>

#include "kernels/fetch.h"
#include "kernels/twins.h"

enum { THREADS = 256, PIECE_BYTES = 16 };

void fig_planning_shape(const void *params, fig_launch_shape *shape) {
    const fig_plan_params *p = params;
    const uint32_t full = p->zero_pieces / FIG_PLANNING_PIECES;
    const uint32_t rest = p->zero_pieces % FIG_PLANNING_PIECES > 0;
    *shape = (fig_launch_shape){.grid = {1 + full + rest, 1, 1}, .block = {THREADS, 1, 1}};
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

static void begin_run(const fig_plan_params *p, fig_plan_head *head) {
    int32_t *sequences = (int32_t *)(p->plan + p->shape.layout.sequences);
    *head = fig_planning_head(p);
    for (int32_t row = 0; row < p->rows; row++)
        sequences[row] = row;
}

/* Each length is read once, so that all that follows from it agrees whatever happens to it. */
static void plan(const fig_plan_params *p) {
    fig_plan_head *head = (fig_plan_head *)p->plan;
    int32_t *lengths = (int32_t *)(p->plan + p->shape.layout.lengths);
    if (p->rows > 0) begin_run(p, head);
    if (head->rows == 0) return;
    for (int32_t row = 0; row < head->rows; row++)
        lengths[row] = fig_plan_length(&p->shape, p->kv_limit, fig_planning_length(p, row));
    if (p->rows == 0 && !is_within_bounds(p, lengths)) {
        head->rows = 0;
        fig_fetch_miss(p->words);
    }
    fig_plan_step step = {.rows = head->rows, .lengths = lengths, .positions = p->positions};
    fig_plan_write_lengths(&p->shape, &step, p->plan);
}

static void clear(const fig_plan_params *p, uint32_t block) {
    const uint32_t first = (block - 1) * FIG_PLANNING_PIECES, left = p->zero_pieces - first;
    const uint32_t count = left < FIG_PLANNING_PIECES ? left : FIG_PLANNING_PIECES;
    memset((uint8_t *)p->zeros + (size_t)first * PIECE_BYTES, 0, (size_t)count * PIECE_BYTES);
}

void fig_planning_twin(const void *params, const uint32_t block[3]) {
    const fig_plan_params *p = params;
    if (block[0] > 0) {
        clear(p, block[0]);
    } else if (p->plan != NULL) {
        plan(p);
    }
}

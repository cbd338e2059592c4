/* planning.c: makes the plan of a step on the device, where its lengths are.
 *
 * In an engine's step the fetch has written the head and the sequences; in a run this kernel writes
 * them. planner/plans/plan.c writes lengths, positions, query tokens, and every class's split and
 * strips, as for a step that the host plans. A row with an impossible length becomes idle. If a
 * line is longer than its bucket allows, the step gets zero rows and counts as missed. If an
 * engine's step has no rows, nothing is written: its launch found no plan of its own, and the next
 * plan of another bucket may leave out sections that are still there. Invariant: the plan equals,
 * byte for byte, the host's plan for the same lengths. */
#include "kernels/step/planning.h"

#include <string.h>

#include "kernels/step/fetch.h"
#include "kernels/table/entry.h"
#include "kernels/table/reference_kernels.h"
#include "planner/spec/spec.h"

enum { THREADS = 256, PIECE_BYTES = 16 };

void fig_planning_shape(const void *params, fig_launch_shape *shape) {
    const fig_plan_params *p = params;
    const uint32_t full = p->zero_pieces / FIG_PLANNING_PIECES;
    const uint32_t rest = p->zero_pieces % FIG_PLANNING_PIECES > 0;
    *shape = (fig_launch_shape){.grid = {1 + full + rest, 1, 1}, .block = {THREADS, 1, 1}};
}

void fig_planning_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_plan_params *p = params;
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_plan_");
    fig_entry_put(&entry, fig_plan_strips_room(&p->shape) > 0 ? "strips" : "rows");
}

/* Returns 1 if there are not too many query tokens. */
static int holds_queries(const fig_plan_params *p, int32_t rows, const int32_t *queries) {
    int64_t count = 0;
    for (int32_t row = 0; row < rows && queries != NULL; row++)
        count += queries[row];
    return count <= p->shape.query_limit;
}

/* Returns 1 if no line is longer than its bucket allows. The function counts in 64 bits, because
 * the sum of unchecked lengths may be any number. */
static int is_within_bounds(const fig_plan_params *p, const int32_t *lengths,
                            const int32_t *queries) {
    const fig_plan_head *head = (const fig_plan_head *)p->plan;
    for (int32_t i = 0; i < p->shape.class_count; i++) {
        const fig_split_shape *split = &p->shape.splits[i];
        int64_t tiles = 0;
        for (int32_t row = 0; row < head->rows; row++)
            tiles += queries != NULL ? fig_split_tiles_of(split, lengths[row], queries[row])
                                     : fig_split_tiles(split, lengths[row]);
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

/* Writes the strips. In a function of its own, so that only programs whose rows may be chunks need
 * its stack. */
static void write_strips(const fig_plan_params *p, int32_t rows) {
    fig_strips_segment chunks[FIG_BATCH_LIMIT];
    fig_plan_write_strips(&p->shape, p->strips.of, FIG_NARROW_TOKENS_LIMIT + 1, rows, chunks,
                          p->plan);
}

/* Makes the plan. Each length is read only once, so all results agree even if the length changes
 * meanwhile. */
static void plan(const fig_plan_params *p) {
    fig_plan_head *head = (fig_plan_head *)p->plan;
    int32_t *lengths = (int32_t *)(p->plan + p->shape.layout.lengths);
    int32_t counts[FIG_BATCH_LIMIT], *queries = p->shape.query_limit > 0 ? counts : NULL;
    if (p->rows > 0) begin_run(p, head);
    if (head->rows == 0) return;
    assert(queries == NULL || head->rows <= FIG_BATCH_LIMIT);
    for (int32_t row = 0; row < head->rows && queries != NULL; row++)
        queries[row] = fig_planning_queries(p, row);
    for (int32_t row = 0; row < head->rows; row++)
        lengths[row] = fig_plan_length(&p->shape, p->kv_limit, fig_planning_length(p, row),
                                       queries != NULL ? queries[row] : 0);
    if (!holds_queries(p, head->rows, queries) ||
        (p->rows == 0 && !is_within_bounds(p, lengths, queries))) {
        head->rows = 0;
        if (p->rows == 0) fig_fetch_miss(p->words);
    }
    fig_plan_step step = {
        .rows = head->rows, .lengths = lengths, .positions = p->positions, .queries = queries};
    fig_plan_write_lengths(&p->shape, &step, p->plan);
    if (fig_plan_strips_room(&p->shape) > 0) write_strips(p, head->rows);
}

static void clear(const fig_plan_params *p, uint32_t block) {
    const uint32_t first = (block - 1) * FIG_PLANNING_PIECES, left = p->zero_pieces - first;
    const uint32_t count = left < FIG_PLANNING_PIECES ? left : FIG_PLANNING_PIECES;
    memset((uint8_t *)p->zeros + (size_t)first * PIECE_BYTES, 0, (size_t)count * PIECE_BYTES);
}

void fig_planning_reference(const void *params, const uint32_t block[3]) {
    const fig_plan_params *p = params;
    if (block[0] > 0) {
        clear(p, block[0]);
    } else if (p->plan != NULL) {
        plan(p);
    }
}

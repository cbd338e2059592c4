/* planning_block.cpp: runs the block of kernels/step/planning.cu on a CPU, thread by thread, and
 * compares its plans with the reference kernel's. block.hpp emulates the block. */
#include <cstdio>
#include <cstdlib>

#include "include/figraph.h"
extern "C" {
#include "planner/plans/plan.h"
#include "planner/spec/spec.h"
}

#define BLOCK_THREADS 256
#include "tests/support/kernels/block.hpp"

/* These lines replace kernels/step/fetch.cuh, whose loads need a GPU. */
#define FIG_KERNELS_FETCH_CUH
#include "kernels/step/planning.h"
static inline void fig_fetch_miss(fig_fetch_words *words) {
    words->missed++;
}

#include "kernels/step/planning.cu"

static void run_kernel(const void *params) {
    const fig_plan_params *p = (const fig_plan_params *)params;
    if (fig_plan_strips_room(&p->shape) > 0) {
        fig_kernel_plan_strips(*p);
    } else {
        fig_kernel_plan_rows(*p);
    }
}

/* ---- Cases ----------------------------------------------------------------------------------- */

extern "C" void fig_planning_reference(const void *params, const uint32_t block[3]);

#include "tests/support/random.h"

enum { ROW_LIMIT = 600, PLAN_BYTES = 1 << 22 };
static int32_t lengths[ROW_LIMIT], positions[ROW_LIMIT], starts[ROW_LIMIT + 1];
alignas(16) static uint8_t plans[2][PLAN_BYTES];
static fig_fetch_words words[2];
static fig_strips_shape strips[FIG_CLASS_LIMIT];

/* Draws how each class cuts chunks, and makes room for their strips. */
static void draw_strips(fig_random *random, fig_plan_shape *shape) {
    shape->row_tokens = fig_random_range(random, FIG_ROW_TOKENS_LIMIT + 1, 900);
    shape->query_limit = fig_random_range(random, 1, 4000);
    for (int32_t i = 0; i < shape->class_count; i++) {
        strips[i] = {};
        strips[i].ratio = fig_random_range(random, 1, 16);
        strips[i].kv_heads = shape->splits[i].groups;
        strips[i].head_dim = 64 << fig_random_range(random, 0, 2);
        strips[i].tile_tokens = 1 << fig_random_range(random, 4, 7);
        strips[i].window = shape->splits[i].window;
        strips[i].workers = fig_random_range(random, 1, fig_random_range(random, 0, 3) ? 140 : 600);
        strips[i].whole = fig_random_range(random, 0, 6) == 0;
        strips[i].visible = fig_random_range(random, 0, 3) ? FIG_STRIPS_CAUSAL : FIG_STRIPS_ALL;
        shape->splits[i].row_tokens = FIG_NARROW_TOKENS_LIMIT;
    }
}

static fig_plan_shape draw_shape(fig_random *random) {
    fig_plan_shape shape = {};
    const int many = fig_random_range(random, 0, 3) == 0;
    shape.row_limit = fig_random_range(random, many ? 300 : 1, many ? ROW_LIMIT : 40);
    shape.class_count = fig_random_range(random, 1, 3);
    for (int32_t i = 0; i < shape.class_count; i++) {
        fig_split_shape *split = &shape.splits[i];
        split->row_limit = shape.row_limit;
        split->groups = fig_random_range(random, 1, 8);
        split->tile_tokens = 1 << fig_random_range(random, 0, 6);
        split->workers = fig_random_range(random, 1, many ? 300 : 140);
        split->row_tokens = fig_random_range(random, 0, 2) ? 1 : 3;
        split->window = fig_random_range(random, 0, 3) ? 0 : fig_random_range(random, 1, 300);
        split->fixed = fig_random_range(random, 0, 7) == 0;
        split->tile_limit = INT32_MAX;
        shape.once[i] = fig_random_range(random, 0, 5) ? fig_random_range(random, 1, 60) : 0;
    }
    shape.row_tokens = fig_random_range(random, 1, 16);
    if (fig_random_range(random, 0, 1)) shape.query_limit = fig_random_range(random, 1, 2000);
    for (int32_t i = 0; i < shape.class_count && shape.query_limit > 0; i++)
        shape.splits[i].row_tokens = shape.row_tokens;
    const int has_chunks = fig_random_range(random, 0, 1);
    if (has_chunks) draw_strips(random, &shape);
    fig_plan_lay_out(&shape);
    if (has_chunks) fig_plan_add_strips(&shape, strips, FIG_NARROW_TOKENS_LIMIT + 1);
    return shape;
}

/* Draws a number of query tokens: few, or in some rows of programs with chunks any number. */
static int32_t draw_queries(fig_random *random, int32_t rows, int32_t most) {
    if (most <= FIG_ROW_TOKENS_LIMIT || fig_random_range(random, 0, rows / 4))
        return fig_random_range(random, 0, 5);
    return fig_random_range(random, 9, most);
}

static void draw_rows(fig_random *random, int32_t rows, int32_t kv_limit, int32_t most) {
    const int32_t mix = fig_random_range(random, 0, 3);
    for (int32_t row = 0; row < rows; row++) {
        int32_t length = fig_random_range(random, -1, kv_limit + 1);
        if (mix == 1 && fig_random_range(random, 0, 5)) length = fig_random_range(random, 0, 5);
        if (mix == 2 && fig_random_range(random, 0, 3)) length = 0;
        if (mix == 3) length = 77;
        lengths[row] = length;
        positions[row] = fig_random_range(random, 0, 9999);
        starts[row + 1] = starts[row] + draw_queries(random, rows, most);
        if (fig_random_range(random, 0, 50) == 0) starts[row + 1] = INT32_MAX - row;
        if (fig_random_range(random, 0, 50) == 0) starts[row + 1] = -5;
    }
}

/* Plans a random step with the reference kernel and with the block; returns 0 if the plans
 * differ. */
static int try_case(uint64_t seed, int *by_units, int *items) {
    fig_random random = fig_random_seed(seed);
    const fig_plan_shape shape = draw_shape(&random);
    const int32_t kv_limit = fig_random_range(&random, 100, 6000);
    const int32_t least = shape.row_limit > 40 ? shape.row_limit - 40 : 0;
    const int32_t rows = fig_random_range(&random, least, shape.row_limit);
    const int is_run = fig_random_range(&random, 0, 1), breaks = !fig_random_range(&random, 0, 7);
    draw_rows(&random, rows, kv_limit, shape.row_tokens);
    memset(words, 0, sizeof words);
    for (int which = 0; which < 2; which++) {
        fig_plan_head head = {};
        memset(plans[which], 0xa5, sizeof plans[which]);
        head.rows = rows;
        head.sections = FIG_PLAN_HAS_SEQUENCES | (seed % 3 ? 0 : (uint32_t)FIG_PLAN_BY_UNITS);
        for (int32_t i = 0; i < FIG_CLASS_LIMIT; i++)
            head.tile_limits[i] = breaks ? 3 : INT32_MAX;
        memcpy(plans[which], &head, sizeof head);
        fig_plan_params params = {};
        params.lengths = lengths;
        params.positions = seed % 2 ? positions : NULL;
        params.query_starts = seed % 5 ? starts : NULL;
        params.plan = plans[which];
        params.words = &words[which];
        params.shape = shape;
        memcpy(params.strips.of, strips, sizeof params.strips);
        params.kv_limit = kv_limit;
        params.rows = is_run ? rows : 0;
        const uint32_t block[3] = {0, 0, 0};
        if (which == 0) {
            fig_planning_reference(&params, block);
        } else if (!block_runs(run_kernel, &params, 0, (int)(seed / 2 % 2))) {
            printf("seed %llu: the block does not end\n", (unsigned long long)seed);
            return 0;
        }
    }
    *by_units += (((const fig_plan_head *)plans[0])->sections & FIG_PLAN_BY_UNITS) != 0 && rows > 0;
    const fig_plan_head *planned = (const fig_plan_head *)plans[0];
    if (fig_plan_strips_room(&shape) > 0 && rows > 0 && planned->rows > 0) {
        const uint8_t *first = fig_plan_strips_of(plans[0], fig_plan_strips_place(&shape), 0);
        *items += ((const fig_strips_head *)first)->items > 0;
    }
    for (uint32_t i = 0; i < PLAN_BYTES; i++)
        if (plans[0][i] != plans[1][i]) {
            printf("seed %llu: byte %u of the plan is %u, the twin's %u\n",
                   (unsigned long long)seed, i, plans[1][i], plans[0][i]);
            return 0;
        }
    return words[0].missed == words[1].missed;
}

int main(int argc, char **argv) {
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    int by_units = 0, items = 0;
    for (uint64_t seed = 1; seed <= cases; seed++)
        if (!try_case(seed, &by_units, &items)) return 1;
    printf("%llu plans are the twin's, %d of them cut by units, %d with strips\n",
           (unsigned long long)cases, by_units, items);
    return by_units > (int)(cases / 10) && items > (int)(cases / 10) ? 0 : 1;
}

/* scored_prompt_block.cpp: runs the blocks of kernels/wide/scored_prompt.cu on a CPU, thread by
 * thread, and compares what they leave with the reference kernel's. block.hpp emulates a block.
 *
 * Tokens that no query sees are NaN. Sums are taken in another order than the reference kernel's,
 * so results may be off by a rounding; counters must be zeros again. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "include/figraph.h"
#include "include/figraph_scores.h"
extern "C" {
#include "planner/plans/plan.h"
#include "planner/scores/score.h"
}

#define BLOCK_THREADS 256
#include "tests/support/kernels/block.hpp"

namespace {
float __int_as_float(int32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
int __syncthreads_or(int is) {
    const uint64_t *words = meet(&whole, THREAD_LIMIT, is != 0);
    int any = 0;
    for (uint32_t i = 0; i < THREAD_LIMIT; i++)
        any |= words[i] != 0;
    return any;
}
uint32_t atomicAdd(uint32_t *counter, uint32_t more) {
    const uint32_t before = *counter;
    *counter += more;
    return before;
}
} // namespace

#define __noinline__
#define __host__
/* numeric.h keeps its loops over rows, which are C, from nvcc. */
#define __CUDACC__
#include "kernels/wide/scored_prompt.cu"

extern "C" void fig_prompt_attention_reference(const void *params, const uint32_t block[3]);

#include "tests/support/random.h"

enum { ROW_LIMIT = 4, LENGTH_LIMIT = 300, PLAN_BYTES = 1 << 18, ARRAY = 512, WORKER_LIMIT = 9 };

static const char thirds[] = "select(kv_pos % 3 == 0, score, -inf)";
static const char *const texts[] = {
    "score * 0.5 + 0.01 * (kv_pos - q_pos)",
    "f32 a[512]; score + a[kv_pos] - 0.125 * (row + kv_head)",
    thirds,
    "select(kv_pos % 3 == q_pos % 3, score, -inf)",
    "weights sigmoid; score - log2(kv_length) * 0.6931472",
    "see 0:q_pos + 1; score",
    "see q_pos:kv_length; score",
    "see q_pos - 29:q_pos + 1, 0:4; score",
    "i32 b[512]; see b[q_pos]:q_pos + 9; tanh(score)",
    "i32 b[512]; n = q_pos % 256 * 2; bits b[n] * 7919, b[n + 1] * 104729; see 0:kv_length; score",
    "see 250:kv_length; score + head",
    "weights sigmoid; see 5:5; score",
};
enum { TEXTS = sizeof texts / sizeof texts[0] };

/* A case and what one side of it leaves. */
struct prompt_case {
    fig_score *score;
    fig_plan_shape shape;
    fig_strips_shape strips;
    fig_scored_prompt_params params;
    int32_t rows, lengths[ROW_LIMIT], counts[ROW_LIMIT], sequences[ROW_LIMIT];
    std::vector<uint8_t> q, k, v, out[2];
    std::vector<float> lse[2], sinks, scales, partials, sums, reals;
    std::vector<uint32_t> counters;
    std::vector<int32_t> table, wholes;
};

alignas(16) static uint8_t slot[PLAN_BYTES], plan[PLAN_BYTES];

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

static void draw_rows(prompt_case *c, fig_random *random) {
    c->rows = draw(random, 1, ROW_LIMIT);
    for (int32_t row = 0; row < c->rows; row++) {
        c->counts[row] = draw(random, 0, 2) ? draw(random, 9, 40) : draw(random, 0, 10);
        c->lengths[row] = draw(random, 0, 5) ? c->counts[row] + draw(random, 0, 250) : 0;
        c->sequences[row] = (row + 1) % ROW_LIMIT;
    }
}

static void make_plan(prompt_case *c) {
    fig_prompt_attention_params *p = &c->params.attention;
    fig_plan_held held;
    c->shape.row_limit = ROW_LIMIT;
    c->shape.row_tokens = 40;
    c->shape.query_limit = 40 * ROW_LIMIT;
    c->shape.class_count = 1;
    c->shape.splits[0].row_limit = ROW_LIMIT;
    c->shape.splits[0].groups = p->kv_heads;
    c->shape.splits[0].tile_tokens = 64;
    c->shape.splits[0].workers = 3;
    c->shape.splits[0].row_tokens = 8;
    fig_plan_lay_out(&c->shape);
    if (fig_plan_add_strips(&c->shape, &c->strips, 9) != FIG_OK) abort();
    fig_plan_held_limits limits = {};
    limits.row_limit = ROW_LIMIT;
    limits.chunk_classes = 1;
    limits.chunk_least = 9;
    limits.chunk_shapes = &c->strips;
    limits.strips_bytes = fig_plan_strips_room(&c->shape);
    if (fig_plan_held_init(&held, &limits) != FIG_OK) abort();
    fig_plan_step step = {};
    step.rows = c->rows;
    step.lengths = c->lengths;
    step.sequences = c->sequences;
    step.queries = c->counts;
    step.horizon = 1;
    const uint32_t sections = fig_plan_settle(&c->shape, &step, &held);
    fig_plan_write(&c->shape, &step, sections, &held, slot);
    fig_plan_unpack(&c->shape, slot, plan);
    fig_plan_held_finish(&held);
    p->plan = plan;
    p->strips_offset = fig_plan_strips_place(&c->shape);
    p->rows.queries_offset = c->shape.layout.queries;
    p->rows.multiple = 1;
    p->rows.row_limit = c->shape.query_limit;
}

static void draw_params(prompt_case *c, fig_random *random) {
    static const int32_t dims[] = {64, 80, 96, 128, 256}, pages[] = {1, 16, 48, 512};
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    fig_prompt_attention_params *p = &c->params.attention;
    p->head_dim = dims[draw(random, 0, 4)];
    p->page_size = pages[draw(random, 0, 3)];
    p->kv_heads = draw(random, 1, 2);
    p->ratio = draw(random, 1, 5);
    p->q_heads = p->kv_heads * p->ratio;
    p->half = fig_strips_half(p->ratio);
    p->dtype = p->kv_dtype = dtypes[draw(random, 0, 2)];
    if (p->dtype != FIG_F32 && draw(random, 0, 2) == 0) p->kv_dtype = FIG_E4M3;
    p->window = draw(random, 0, 2) ? 0 : draw(random, 1, 90);
    p->sm_scale = 0.125f;
    p->workers = draw(random, 1, WORKER_LIMIT);
    p->tile_tokens = p->head_dim > 128 ? 64 : 128;
    p->flags = FIG_ATTENTION_SCORED;
    c->strips.ratio = p->ratio;
    c->strips.kv_heads = p->kv_heads;
    c->strips.head_dim = p->head_dim;
    c->strips.tile_tokens = p->tile_tokens;
    c->strips.window = p->window;
    c->strips.workers = p->workers;
    c->strips.whole = draw(random, 0, 4) == 0;
    const int has_mask = c->score->code.mask_node_count > 0;
    c->strips.visible = has_mask ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL;
}

static std::vector<uint8_t> make_array(fig_random *random, int32_t dtype, int64_t count) {
    std::vector<uint8_t> array((size_t)count * (size_t)fig_numeric_bytes(dtype) + 16);
    for (int64_t i = 0; i < count; i++)
        fig_numeric_store(array.data(), dtype, i, fig_random_float(random));
    return array;
}

static void draw_arrays(prompt_case *c, fig_random *random) {
    fig_prompt_attention_params *p = &c->params.attention;
    const int32_t columns = (LENGTH_LIMIT + p->page_size - 1) / p->page_size;
    const int64_t width = (int64_t)p->kv_heads * p->head_dim, pages = columns * ROW_LIMIT;
    const int64_t vectors = (int64_t)c->shape.query_limit * p->q_heads;
    c->q = make_array(random, p->dtype, vectors * p->head_dim);
    c->k = make_array(random, p->kv_dtype, pages * p->page_size * width);
    c->v = make_array(random, p->kv_dtype, pages * p->page_size * width);
    for (int64_t i = 0; i < pages; i++)
        c->table.push_back((int32_t)((i * 7 + 3) % pages));
    if (pages % 7 == 0)
        for (int64_t i = 0; i < pages; i++)
            c->table[(size_t)i] = (int32_t)i;
    for (int32_t i = 0; i < ARRAY; i++) {
        c->reals.push_back(fig_random_float(random));
        c->wholes.push_back(draw(random, 0, LENGTH_LIMIT));
        c->sinks.push_back(fig_random_float(random));
        c->scales.push_back(0.5f + fig_random_float(random));
    }
    p->q = c->q.data();
    p->k_cache = c->k.data();
    p->v_cache = c->v.data();
    p->page_table = c->table.data();
    p->table_stride = columns;
    p->k_pages = p->v_pages = pages;
    p->k_cache_strides = p->v_cache_strides = {p->page_size * width, width, p->head_dim};
    p->q_strides = p->out_strides = {(int64_t)p->q_heads * p->head_dim, p->head_dim};
    p->lse_stride = p->q_heads;
    if (c->score->code.weights == FIG_SCORE_SOFTMAX && draw(random, 0, 1))
        p->sinks = c->sinks.data();
    if (p->kv_dtype == FIG_E4M3) p->k_scale = p->v_scale = c->scales.data();
    p->k_scales = p->v_scales = p->k_scale != NULL ? p->kv_heads : 0;
    c->params.score = c->score->code;
    for (int32_t i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++) {
        const fig_score_extent *extent = &c->params.score.arrays[i];
        if (extent->dtype == FIG_F32) c->params.arrays[i] = c->reals.data();
        if (extent->dtype == FIG_I32) c->params.arrays[i] = c->wholes.data();
    }
    const fig_strips_limits limits = fig_plan_strips_limits(&c->shape, &c->strips, 9);
    const fig_strips_sizes sizes = fig_strip_sizes_bound(&c->strips, &limits);
    c->partials.assign((size_t)(sizes.partial_vectors * p->head_dim) + 4, NAN);
    c->sums.assign((size_t)sizes.partial_vectors * 2 + 4, NAN);
    c->counters.assign((size_t)sizes.counters + 1, 0);
    for (int side = 0; side < 2; side++) {
        c->out[side].assign((size_t)(vectors * p->head_dim) * 4, 0xa5);
        c->lse[side].assign((size_t)vectors, -7);
    }
    p->partials = c->partials.data();
    p->sums = c->sums.data();
    p->counters = c->counters.data();
}

/* Makes the tokens behind the end of each row, before its window, and hidden by the score `thirds`
 * NaN: no query sees them. */
static void spoil(prompt_case *c, const char *text) {
    const fig_prompt_attention_params *p = &c->params.attention;
    for (int32_t row = 0; row < c->rows; row++) {
        const fig_cache_sequence sequence =
            fig_cache_sequence_of(p->page_table, p->table_stride, c->sequences[row], p->page_size);
        const int32_t low = p->window > 0 ? c->lengths[row] - c->counts[row] + 1 - p->window : 0;
        for (int32_t token = 0; token < LENGTH_LIMIT; token++) {
            const int is_hidden = text == thirds && token % 3 != 0;
            if (token >= low && token < c->lengths[row] && !is_hidden) continue;
            const int64_t at = fig_cache_offset(&p->k_cache_strides, &sequence,
                                                fig_cache_page(&sequence, token), token);
            const size_t bytes = (size_t)fig_numeric_bytes(p->kv_dtype);
            memset(&c->k[(size_t)at * bytes], 0xff, p->k_cache_strides.token * bytes);
            memset(&c->v[(size_t)at * bytes], 0xff, p->k_cache_strides.token * bytes);
        }
    }
}

template <void (*KERNEL)(fig_scored_prompt_params)> static void run_kernel(const void *params) {
    KERNEL(*(const fig_scored_prompt_params *)params);
}

/* Runs all blocks of one side, in an order that differs from side to side. */
static int run(prompt_case *c, int side, int is_backwards) {
    fig_prompt_attention_params *p = &c->params.attention;
    p->out = c->out[side].data();
    p->lse = c->lse[side].data();
    for (int32_t i = 0; i < p->workers; i++) {
        const uint32_t number = (uint32_t)(is_backwards ? p->workers - 1 - i : i);
        const uint32_t block[3] = {number, 0, 0};
        if (side == 0) {
            fig_prompt_attention_reference(&c->params, block);
        } else if (!block_runs(p->head_dim > 128 ? run_kernel<fig_kernel_scored_prompt_256>
                                                 : run_kernel<fig_kernel_scored_prompt_128>,
                               &c->params, number, is_backwards)) {
            printf("block %u does not end\n", number);
            return 0;
        }
    }
    for (uint32_t counter : c->counters)
        if (counter != 0) {
            printf("a counter is %u\n", counter);
            return 0;
        }
    return 1;
}

static int is_near(double a, double b, double tolerance) {
    return a == b || (std::isnan(a) && std::isnan(b)) || fabs(a - b) <= tolerance;
}

static int compare(const prompt_case *c) {
    const fig_prompt_attention_params *p = &c->params.attention;
    const double unit = p->dtype == FIG_BF16 ? 0x1p-7 : p->dtype == FIG_F16 ? 0x1p-10 : 1e-5;
    const int64_t vectors = (int64_t)c->shape.query_limit * p->q_heads;
    for (int64_t i = 0; i < vectors * p->head_dim; i++) {
        const double want = fig_numeric_load(c->out[0].data(), p->dtype, i);
        const double found = fig_numeric_load(c->out[1].data(), p->dtype, i);
        if (is_near(found, want, unit * fabs(want) + 1e-5)) continue;
        printf("out %lld: %g, the twin's %g\n", (long long)i, found, want);
        return 0;
    }
    for (int64_t i = 0; i < vectors; i++) {
        if (is_near(c->lse[1][(size_t)i], c->lse[0][(size_t)i], 1e-4)) continue;
        printf("lse %lld: %g, the twin's %g\n", (long long)i, c->lse[1][(size_t)i],
               c->lse[0][(size_t)i]);
        return 0;
    }
    return 1;
}

static int try_case(uint64_t seed, int *cut) {
    fig_random random = fig_random_seed(seed);
    prompt_case c = {};
    if (fig_score_parse(&c.score, texts[seed % TEXTS]) != FIG_OK) abort();
    draw_params(&c, &random);
    draw_rows(&c, &random);
    make_plan(&c);
    draw_arrays(&c, &random);
    spoil(&c, texts[seed % TEXTS]);
    const int is_right = run(&c, 0, 0) && run(&c, 1, (int)(seed / TEXTS % 2)) && compare(&c);
    const uint8_t *strips = fig_params_strips(&c.params.attention);
    *cut += ((const fig_strips_head *)(const void *)strips)->partial_vectors > 0;
    if (!is_right)
        printf("seed %llu: %s, head_dim %d\n", (unsigned long long)seed, texts[seed % TEXTS],
               c.params.attention.head_dim);
    fig_score_destroy(c.score);
    return is_right;
}

int main(int argc, char **argv) {
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 48;
    int cut = 0;
    for (uint64_t seed = 1; seed <= cases; seed++)
        if (!try_case(seed, &cut)) return 1;
    printf("%llu launches agree with the reference kernel, %d of them with cut strips\n",
           (unsigned long long)cases, cut);
    return cut > (int)(cases / 5) ? 0 : 1;
}

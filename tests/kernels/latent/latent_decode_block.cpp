/* latent_decode_block.cpp: runs the blocks of kernels/latent/latent_decode.cu on a CPU, thread by
 * thread, and compares q and the cache with those that the reference kernel leaves. block.hpp
 * emulates a block; the functions below replace those that are written in PTX. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "include/figraph.h"
extern "C" {
#include "planner/plans/plan.h"
}

#define BLOCK_THREADS 128
#include "tests/support/kernels/block.hpp"

#undef __shared__
#define __shared__ static
#define __align__(bytes)
#define __noinline__

namespace {
float __fdividef(float a, float b) {
    return a / b;
}
float __fmul_rn(float a, float b) {
    volatile float product = a * b; /* rounded, and not fused with a sum */
    return product;
}
int32_t __double2loint(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int32_t)(uint32_t)bits;
}
} // namespace

/* PTX becomes nothing. numeric.h keeps its loops over rows, which are C, from nvcc. */
#define __CUDACC__
#define asm(...) ((void)0)
#define volatile(...) ("")
#include "kernels/common/norm.cuh"

static int32_t fetch_number(const int32_t *from) {
    return *from;
}
static float norm_factor(double sum, int32_t count, float epsilon) {
    return (float)(1 / std::sqrt(sum / count + (double)epsilon));
}
#define fig_vector_fetch_number fetch_number
#define fig_vector_fetch_common fetch_number
#define fig_norm_factor norm_factor
#include "kernels/common/heads.cuh"

static double frequency_of(const fig_rope_params *p, const fig_rope_table *table, int32_t pair) {
    return p->cos_sin != NULL || pair >= 32 ? 0 : table->frequencies[pair];
}
#define fig_heads_frequency frequency_of
#include "kernels/latent/latent_decode.cu"
#undef volatile
#undef asm

extern "C" void fig_planning_reference(const void *params, const uint32_t block[3]);
extern "C" void fig_latent_decode_reference(const void *params, const uint32_t block[3]);

#include "tests/support/random.h"

enum { ROW_LIMIT = 5, LENGTH_LIMIT = 90, PLAN_BYTES = 1 << 16, PAGE = 16 };

struct decode_case {
    fig_plan_shape shape;
    fig_latent_decode_params params;
    int32_t rows, tokens, lengths[ROW_LIMIT], starts[ROW_LIMIT + 1];
    std::vector<uint8_t> plan, latent, norm, q[2], q_rope[2], cache[2];
    std::vector<float> cos_sin;
    std::vector<int32_t> table;
};

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

static void draw_plan(decode_case *c, fig_random *random) {
    fig_latent_decode_params *p = &c->params;
    const int is_packed = draw(random, 0, 1);
    c->shape.row_limit = ROW_LIMIT;
    c->shape.row_tokens = c->tokens = draw(random, 1, 3);
    c->shape.query_limit = is_packed ? ROW_LIMIT * c->tokens : 0;
    fig_plan_lay_out(&c->shape);
    c->rows = draw(random, 1, ROW_LIMIT);
    for (int32_t row = 0; row < c->rows; row++) {
        const int32_t count = is_packed ? draw(random, 0, c->tokens) : c->tokens;
        c->lengths[row] = draw(random, 0, 4) == 0 ? 0 : draw(random, c->tokens, LENGTH_LIMIT);
        if (count == 0) c->lengths[row] = 0;
        c->starts[row + 1] = c->starts[row] + (c->lengths[row] == 0 && is_packed ? 0 : count);
    }
    c->plan.assign(PLAN_BYTES, 0x7f);
    fig_plan_params plan = {};
    fig_fetch_words words = {};
    plan.lengths = c->lengths;
    plan.query_starts = is_packed ? c->starts : NULL;
    plan.plan = c->plan.data();
    plan.words = &words;
    plan.shape = c->shape;
    plan.kv_limit = LENGTH_LIMIT;
    plan.rows = c->rows;
    const uint32_t block[3] = {0, 0, 0};
    fig_planning_reference(&plan, block);
    p->plan = c->plan.data();
    p->rows.row_limit = ROW_LIMIT * c->tokens;
    p->rows.multiple = is_packed ? 1 : c->tokens;
    p->rows.queries_offset = c->shape.layout.queries;
    p->lengths_offset = c->shape.layout.lengths;
    p->sequences_offset = c->shape.layout.sequences;
    p->positions_offset = c->shape.layout.positions;
}

static std::vector<uint8_t> draw_numbers(fig_random *random, int32_t dtype, int64_t count) {
    std::vector<uint8_t> numbers((size_t)(count * fig_numeric_bytes(dtype)));
    for (int64_t i = 0; i < count; i++)
        fig_numeric_store(numbers.data(), dtype, i, 2 * fig_random_float(random));
    return numbers;
}

static void draw_case(decode_case *c, fig_random *random) {
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    fig_latent_decode_params *p = &c->params;
    p->dtype = p->kv_dtype = dtypes[draw(random, 0, 2)];
    if (p->dtype != FIG_F32 && draw(random, 0, 1)) p->kv_dtype = FIG_E4M3;
    p->q_heads = 8 * draw(random, 1, 5);
    draw_plan(c, random);
    const int32_t count = p->rows.row_limit, pages = LENGTH_LIMIT / PAGE + 1;
    p->q_strides.head = FIG_LATENT_KEY_DIM;
    p->q_strides.row = p->q_heads * FIG_LATENT_KEY_DIM;
    c->q[0] = c->q[1] = draw_numbers(random, p->dtype, count * p->q_strides.row);
    if (draw(random, 0, 1)) {
        p->q_rope_strides.head = FIG_LATENT_ROPE_DIM + 5;
        p->q_rope_strides.row = p->q_heads * p->q_rope_strides.head;
        c->q_rope[0] = c->q_rope[1] = draw_numbers(random, p->dtype, count * p->q_rope_strides.row);
    }
    p->latent_stride = FIG_LATENT_KEY_DIM + 8;
    c->latent = draw_numbers(random, p->dtype, count * p->latent_stride);
    p->latent = c->latent.data();
    c->norm = draw_numbers(random, p->dtype, FIG_LATENT_DIM);
    p->norm = draw(random, 0, 2) ? c->norm.data() : NULL;
    p->norm_epsilon = 1e-6f;
    p->rope.interleaved = draw(random, 0, 1);
    p->rope.rotary_dim = FIG_LATENT_ROPE_DIM;
    for (int32_t i = 0; i < FIG_LATENT_ROPE_DIM / 2; i++)
        p->angles.frequencies[i] = std::pow(10000.0, -i / 32.0);
    p->angles.factor = 1.25;
    for (int32_t i = 0; i < 100 * FIG_LATENT_ROPE_DIM; i++)
        c->cos_sin.push_back(fig_random_float(random));
    if (draw(random, 0, 2) == 0) p->cos_sin = c->cos_sin.data();
    p->cos_sin_rows = 100;
    p->cos_sin_stride = FIG_LATENT_ROPE_DIM;
    p->page_size = PAGE;
    p->k_pages = ROW_LIMIT * pages - 6; /* six pages of the table lie outside */
    p->table_stride = pages;
    for (int32_t i = 0; i < ROW_LIMIT * pages; i++)
        c->table.push_back(i * 7 % (ROW_LIMIT * pages));
    p->page_table = c->table.data();
    p->k_cache_strides.token = fig_latent_width(p->kv_dtype);
    p->k_cache_strides.page = PAGE * p->k_cache_strides.token;
    c->cache[0].assign(
        (size_t)(ROW_LIMIT * pages * p->k_cache_strides.page * fig_numeric_bytes(p->kv_dtype)), 1);
    c->cache[1] = c->cache[0];
}

static void run_kernel(const void *params) {
    const fig_latent_decode_params *p = (const fig_latent_decode_params *)params;
    if (p->rows.queries_offset != 0) {
        fig_kernel_latent_decode_packed(*p);
    } else {
        fig_kernel_latent_decode(*p);
    }
}

static int is_near(float a, float b, int32_t dtype) {
    const float tolerance = dtype == FIG_F32 ? 1e-6f : dtype == FIG_F16 ? 1e-3f : 8e-3f;
    return a == b || std::fabs(a - b) <= tolerance * (1 + std::fabs(a));
}

/* Compares what both sides leave of an array of the dtype. */
static int has_same_numbers(const char *name, uint64_t seed, const std::vector<uint8_t> sides[2],
                            int32_t dtype) {
    for (int64_t i = 0; i < (int64_t)sides[0].size() / fig_numeric_bytes(dtype); i++) {
        const float due = fig_numeric_load(sides[0].data(), dtype, i);
        const float got = fig_numeric_load(sides[1].data(), dtype, i);
        if (is_near(due, got, dtype)) continue;
        printf("seed %llu: %s %lld is %g, the twin's %g\n", (unsigned long long)seed, name,
               (long long)i, got, due);
        return 0;
    }
    return 1;
}

/* Compares the caches, token by token. */
static int has_same_cache(const decode_case *c, int64_t tokens) {
    const fig_latent_decode_params *p = &c->params;
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t at = t * p->k_cache_strides.token * fig_numeric_bytes(p->kv_dtype);
        const uint8_t *a = &c->cache[0][(size_t)at], *b = &c->cache[1][(size_t)at];
        for (int32_t i = 0; i < FIG_LATENT_KEY_DIM; i++) {
            const int is_codes = p->kv_dtype == FIG_E4M3;
            const float due =
                is_codes ? fig_latent_of_codes(a, i) : fig_numeric_load(a, p->kv_dtype, i);
            const float got =
                is_codes ? fig_latent_of_codes(b, i) : fig_numeric_load(b, p->kv_dtype, i);
            /* A last bit of the norm may turn a code into its neighbour. */
            if (is_near(due, got, p->dtype)) continue;
            if (is_codes && std::fabs(due - got) <= 0.13f * std::fabs(due)) continue;
            printf("token %lld, value %d is %g, the twin's %g\n", (long long)t, i, got, due);
            return 0;
        }
    }
    return 1;
}

/* Returns 0 if the two sides differ. */
static int try_case(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    decode_case c = {};
    draw_case(&c, &random);
    fig_latent_decode_params *p = &c.params;
    const uint32_t blocks = (uint32_t)(p->rows.row_limit * fig_latent_decode_blocks(p->q_heads));
    for (int side = 0; side < 2; side++) {
        p->q = c.q[side].data();
        p->q_rope = c.q_rope[side].empty() ? NULL : c.q_rope[side].data();
        p->k_cache = c.cache[side].data();
        for (uint32_t n = 0; n < blocks; n++) {
            const uint32_t block[3] = {n, 0, 0};
            if (side == 0) {
                fig_latent_decode_reference(p, block);
            } else if (!block_runs(run_kernel, p, n, (int)(seed % 2))) {
                printf("seed %llu: block %u does not end\n", (unsigned long long)seed, n);
                return 0;
            }
        }
    }
    if (!has_same_numbers("q", seed, c.q, p->dtype)) return 0;
    if (!has_same_numbers("q_rope", seed, c.q_rope, p->dtype)) return 0;
    if (has_same_cache(&c, (int64_t)c.table.size() * PAGE)) return 1;
    printf("seed %llu\n", (unsigned long long)seed);
    return 0;
}

int main(int argc, char **argv) {
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 40;
    for (uint64_t seed = 1; seed <= cases; seed++)
        if (!try_case(seed)) return 1;
    printf("%llu steps are the twin's\n", (unsigned long long)cases);
    return 0;
}

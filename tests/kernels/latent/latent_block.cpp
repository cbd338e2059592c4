/* latent_block.cpp: runs the blocks of kernels/latent/latent_attention.cu on a CPU, thread by
 * thread, and compares what they leave with the reference kernel's. block.hpp emulates a block.
 *
 * Tokens that no query sees are NaN. Sums are taken in another order than the reference kernel's,
 * so results may be off by a rounding; partials, sums and counters must be zeros again. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "include/figraph.h"
extern "C" {
#include "planner/plans/plan.h"
}

#define BLOCK_THREADS 256
#include "tests/support/kernels/block.hpp"

#undef __shared__
#define __shared__
#define __align__(bytes)

namespace {
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
float2 make_float2(float x, float y) {
    return {x, y};
}
float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
template <class T> T __ldcg(const T *from) {
    return *from;
}
void __syncwarp() {
    meet_warp(0);
}
void __threadfence() {
}
uint32_t atomicInc(uint32_t *counter, uint32_t last) {
    const uint32_t before = *counter;
    *counter = before >= last ? 0 : before + 1;
    return before;
}
} // namespace

alignas(16) uint8_t dynamic[80000]; /* the dynamic shared memory */

/* numeric.h keeps its loops over rows, which are C, from nvcc. */
#define __CUDACC__
#include "kernels/latent/latent_attention.cu"

static_assert(sizeof dynamic >= FIG_LATENT_PLAIN_BYTES, "a block's shared memory");

extern "C" void fig_planning_reference(const void *params, const uint32_t block[3]);
extern "C" void fig_latent_attention_reference(const void *params, const uint32_t block[3]);

#include "tests/support/random.h"

enum { ROW_LIMIT = 4, LENGTH_LIMIT = 90, PLAN_BYTES = 1 << 16 };

/* A case and what one side of it leaves. */
struct latent_case {
    fig_plan_shape shape;
    fig_latent_attention_params params;
    int32_t rows, lengths[ROW_LIMIT], starts[ROW_LIMIT + 1];
    std::vector<uint8_t> plan, q, q_rope, cache, out[2];
    std::vector<float> lse[2], sinks, partials, sums;
    std::vector<uint32_t> counters;
    std::vector<int32_t> table;
};

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

static void draw_rows(latent_case *c, fig_random *random, int is_packed) {
    const int32_t tokens = c->shape.row_tokens;
    c->rows = draw(random, 1, ROW_LIMIT);
    c->starts[0] = 0;
    for (int32_t row = 0; row < c->rows; row++) {
        const int32_t count = is_packed ? draw(random, 0, tokens) : tokens;
        c->lengths[row] = draw(random, 0, 4) == 0 ? 0 : draw(random, tokens, LENGTH_LIMIT);
        if (count == 0) c->lengths[row] = 0;
        c->starts[row + 1] = c->starts[row] + (c->lengths[row] == 0 && is_packed ? 0 : count);
    }
}

static void draw_plan(latent_case *c, fig_random *random) {
    fig_latent_attention_params *p = &c->params;
    const int is_packed = draw(random, 0, 2) == 0;
    fig_split_shape *split = &c->shape.splits[0];
    c->shape.row_limit = ROW_LIMIT;
    c->shape.row_tokens = draw(random, 0, 1)   ? 1
                          : draw(random, 0, 1) ? draw(random, 2, 4)
                                               : draw(random, 9, 16);
    c->shape.class_count = 1;
    c->shape.once[0] = 40;
    c->shape.query_limit = is_packed ? ROW_LIMIT * c->shape.row_tokens : 0;
    split->row_limit = ROW_LIMIT;
    split->groups = p->q_heads / fig_latent_group_heads(p->q_heads, c->shape.row_tokens);
    split->tile_tokens = draw(random, 0, 1) ? 16 : 64;
    split->workers = draw(random, 1, 9);
    split->row_tokens = c->shape.row_tokens;
    split->window = draw(random, 0, 2) ? 0 : draw(random, 1, 60);
    split->fixed = draw(random, 0, 3) == 0;
    split->tile_limit = INT32_MAX;
    fig_plan_lay_out(&c->shape);
    draw_rows(c, random, is_packed);
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
    p->split = *split;
    p->plan = c->plan.data();
    p->lengths_offset = c->shape.layout.lengths;
    p->sequences_offset = c->shape.layout.sequences;
    p->prefix_offset = c->shape.layout.prefix[0];
    p->starts_offset = c->shape.layout.starts[0];
    p->queries_offset = c->shape.layout.queries;
}

static void fill_token(const latent_case *c, fig_random *random, uint8_t *token) {
    const fig_latent_attention_params *p = &c->params;
    for (int32_t i = 0; i < FIG_LATENT_KEY_DIM && p->kv_dtype != FIG_E4M3; i++)
        fig_numeric_store(token, p->kv_dtype, i, fig_random_float(random));
    if (p->kv_dtype != FIG_E4M3) return;
    for (int32_t i = 0; i < FIG_LATENT_DIM; i++)
        token[i] = fig_numeric_e4m3(100 * fig_random_float(random));
    for (int32_t i = 0; i < FIG_LATENT_SCALES; i++) {
        const float scale = 0.01f + 0.01f * (float)i;
        memcpy(token + FIG_LATENT_SCALES_AT + 4 * i, &scale, sizeof scale);
    }
    for (int32_t i = 0; i < FIG_LATENT_ROPE_DIM; i++) {
        const uint16_t code = fig_numeric_bf16(fig_random_float(random));
        memcpy(token + FIG_LATENT_ROPE_AT + 2 * i, &code, sizeof code);
    }
}

static void draw_cache(latent_case *c, fig_random *random) {
    fig_latent_attention_params *p = &c->params;
    const int32_t unit = fig_numeric_bytes(p->kv_dtype), width = fig_latent_width(p->kv_dtype);
    const int is_dense = draw(random, 0, 3) == 0;
    p->page_size = is_dense ? LENGTH_LIMIT : draw(random, 0, 1) ? 1 : 16;
    const int32_t row_pages = (LENGTH_LIMIT - 1) / p->page_size + 1;
    p->k_cache_strides.token = width + 8 * draw(random, 0, 1);
    p->k_cache_strides.page = p->page_size * p->k_cache_strides.token;
    p->k_pages = ROW_LIMIT * row_pages;
    p->table_stride = row_pages;
    for (int32_t i = 0; i < ROW_LIMIT * row_pages; i++)
        c->table.push_back(i * 7 % (ROW_LIMIT * row_pages));
    p->page_table = is_dense ? NULL : c->table.data();
    c->cache.assign((size_t)(p->k_pages * p->k_cache_strides.page * unit), 0xff);
    p->k_cache = c->cache.data();
    for (int32_t row = 0; row < c->rows; row++) {
        for (int32_t t = 0; t < c->lengths[row]; t++) {
            const int32_t page = is_dense ? row : c->table[row * row_pages + t / p->page_size];
            fill_token(c, random,
                       &c->cache[(size_t)((page * p->k_cache_strides.page +
                                           t % p->page_size * p->k_cache_strides.token) *
                                          unit)]);
        }
    }
}

static std::vector<uint8_t> draw_numbers(fig_random *random, int32_t dtype, int64_t count) {
    std::vector<uint8_t> numbers((size_t)(count * fig_numeric_bytes(dtype)));
    for (int64_t i = 0; i < count; i++)
        fig_numeric_store(numbers.data(), dtype, i, fig_random_float(random));
    return numbers;
}

/* Draws q in one tensor, or in two of which the first has its heads outermost. */
static void draw_q(latent_case *c, fig_random *random, int32_t rows) {
    fig_latent_attention_params *p = &c->params;
    const int is_apart = draw(random, 0, 1);
    const int32_t width = is_apart ? FIG_LATENT_DIM : FIG_LATENT_KEY_DIM;
    p->q_strides.head = is_apart ? rows * width : width;
    p->q_strides.row = is_apart ? width : p->q_heads * width;
    c->q = draw_numbers(random, p->dtype, (int64_t)rows * p->q_heads * width);
    p->q = c->q.data();
    if (!is_apart) return;
    p->q_rope_strides.head = FIG_LATENT_ROPE_DIM + 3;
    p->q_rope_strides.row = p->q_heads * p->q_rope_strides.head;
    c->q_rope = draw_numbers(random, p->dtype, rows * p->q_rope_strides.row);
    p->q_rope = c->q_rope.data();
}

static void draw_case(latent_case *c, fig_random *random) {
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16}, heads[] = {8, 16, 24, 72};
    fig_latent_attention_params *p = &c->params;
    p->dtype = p->kv_dtype = dtypes[draw(random, 0, 2)];
    if (p->dtype != FIG_F32 && draw(random, 0, 1)) p->kv_dtype = FIG_E4M3;
    p->q_heads = heads[draw(random, 0, 3)];
    p->sm_scale = 0.05f;
    draw_plan(c, random);
    draw_cache(c, random);
    const int32_t unit = fig_numeric_bytes(p->dtype),
                  vectors = ROW_LIMIT * c->shape.row_tokens * p->q_heads;
    p->out_strides.head = FIG_LATENT_DIM;
    p->out_strides.row = p->q_heads * FIG_LATENT_DIM;
    p->lse_stride = p->q_heads;
    draw_q(c, random, ROW_LIMIT * c->shape.row_tokens);
    for (int side = 0; side < 2; side++) {
        c->out[side].assign((size_t)(vectors * FIG_LATENT_DIM * unit), 0x55);
        c->lse[side].assign((size_t)vectors, 5.0f);
    }
    for (int32_t i = 0; i < p->q_heads; i++)
        c->sinks.push_back(fig_random_float(random));
    p->sinks = draw(random, 0, 1) ? c->sinks.data() : NULL;
    const size_t partials = 64u * FIG_LATENT_VECTORS;
    c->partials.assign(partials * FIG_LATENT_DIM, 0);
    c->sums.assign(partials * 2, 0);
    c->counters.assign((size_t)(ROW_LIMIT * p->split.groups), 0);
    p->partials = c->partials.data();
    p->sums = c->sums.data();
    p->counters = c->counters.data();
}

static void run_kernel(const void *params) {
    fig_kernel_latent_attention(*(const fig_latent_attention_params *)params);
}

static int is_clean(const latent_case *c) {
    for (float x : c->partials)
        if (x != 0) return 0;
    for (float x : c->sums)
        if (x != 0) return 0;
    for (uint32_t x : c->counters)
        if (x != 0) return 0;
    return 1;
}

static int is_near(float a, float b, float tolerance) {
    if (a == b) return 1;
    return std::fabs(a - b) <= tolerance * (1 + std::fabs(a));
}

/* Returns 0 if the two sides differ. */
static int try_case(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    latent_case c = {};
    draw_case(&c, &random);
    fig_latent_attention_params *p = &c.params;
    for (int side = 0; side < 2; side++) {
        p->out = c.out[side].data();
        p->lse = c.lse[side].data();
        for (uint32_t n = 0; n < (uint32_t)p->split.workers; n++) {
            const uint32_t block[3] = {seed % 2 ? n : (uint32_t)p->split.workers - 1 - n, 0, 0};
            if (side == 0) {
                fig_latent_attention_reference(p, block);
            } else if (!block_runs(run_kernel, p, block[0], (int)(seed / 2 % 2))) {
                printf("seed %llu: block %u does not end\n", (unsigned long long)seed, block[0]);
                return 0;
            }
        }
        if (is_clean(&c)) continue;
        printf("seed %llu: the workspace is not zeros\n", (unsigned long long)seed);
        return 0;
    }
    const float tolerance = p->dtype == FIG_F32 ? 1e-5f : p->dtype == FIG_F16 ? 2e-3f : 1e-2f;
    const int64_t count = (int64_t)c.lse[0].size() * FIG_LATENT_DIM;
    for (int64_t i = 0; i < count; i++) {
        const float due = fig_numeric_load(c.out[0].data(), p->dtype, i);
        const float got = fig_numeric_load(c.out[1].data(), p->dtype, i);
        const int64_t vector = i / FIG_LATENT_DIM;
        if (is_near(due, got, tolerance) &&
            is_near(c.lse[0][(size_t)vector], c.lse[1][(size_t)vector], 1e-4f))
            continue;
        printf("seed %llu: out[%lld][%lld] is %g, the twin's %g; lse %g, %g\n",
               (unsigned long long)seed, (long long)vector, (long long)(i % FIG_LATENT_DIM), got,
               due, c.lse[1][(size_t)vector], c.lse[0][(size_t)vector]);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 10;
    for (uint64_t seed = 1; seed <= cases; seed++)
        if (!try_case(seed)) return 1;
    printf("%llu steps are the twin's\n", (unsigned long long)cases);
    return 0;
}

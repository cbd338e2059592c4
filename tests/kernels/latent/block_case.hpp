/* block_case.hpp: random launches of attention over latents, for programs that run a kernel's blocks
 * on a CPU and compare them with the reference kernel.
 *
 * Tokens that no query sees are NaN. Results may be off by roundings; partials, sums and counters
 * must be zeros again. A program includes this file behind the kernel. */
#ifndef FIG_TESTS_LATENT_BLOCK_CASE_HPP
#define FIG_TESTS_LATENT_BLOCK_CASE_HPP

#include <cmath>
#include <cstdio>
#include <vector>

#include "tests/support/random.h"

extern "C" void fig_planning_reference(const void *params, const uint32_t block[3]);
extern "C" void fig_latent_attention_reference(const void *params, const uint32_t block[3]);

enum { ROW_LIMIT = 4, PLAN_BYTES = 1 << 16 };

/* Which kernel a case is for. */
enum latent_kind { FOR_PLAIN, FOR_NARROW, FOR_SHORT, FOR_CODES, FOR_WIDE, FOR_PAIR };

static int is_narrow(latent_kind kind) {
    return kind == FOR_NARROW || kind == FOR_SHORT;
}

static int is_wide(latent_kind kind) {
    return kind == FOR_WIDE || kind == FOR_PAIR;
}

/* A case and what one side of it leaves. */
struct latent_case {
    latent_kind kind;
    int32_t length_limit;
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
        c->lengths[row] = draw(random, 0, 4) == 0 ? 0 : draw(random, tokens, c->length_limit);
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
    if (is_narrow(c->kind) || c->kind == FOR_CODES)
        c->shape.row_tokens = draw(random, 1, 32 / p->q_heads);
    c->shape.class_count = 1;
    c->shape.once[0] = 40;
    c->shape.query_limit = is_packed ? ROW_LIMIT * c->shape.row_tokens : 0;
    split->row_limit = ROW_LIMIT;
    split->groups =
        p->q_heads / (draw(random, 0, 1) ? fig_latent_group_heads(p->q_heads, c->shape.row_tokens)
                                         : fig_latent_least_heads(p->q_heads, c->shape.row_tokens));
    if (c->kind == FOR_PAIR)
        split->groups = p->q_heads / fig_latent_pair_heads(p->q_heads, c->shape.row_tokens);
    split->tile_tokens = c->kind == FOR_PLAIN && draw(random, 0, 1) ? 16 : 64;
    split->workers = draw(random, 1, 9);
    p->is_short = c->kind == FOR_SHORT;
    if (p->is_short) split->workers = ROW_LIMIT * split->groups * (2 << draw(random, 0, 3));
    split->row_tokens = c->shape.row_tokens;
    split->window = draw(random, 0, 2) ? 0 : draw(random, 1, 60);
    split->fixed = c->kind == FOR_PLAIN && draw(random, 0, 3) == 0;
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
    plan.kv_limit = c->length_limit;
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
    static const int32_t pages[] = {1, 8, 16, 64};
    const int is_dense = c->kind == FOR_PLAIN && draw(random, 0, 3) == 0;
    p->page_size = is_dense
                       ? c->length_limit
                       : pages[draw(random, is_narrow(c->kind) || is_wide(c->kind) ? 2 : 0, 3)];
    const int32_t row_pages = (c->length_limit - 1) / p->page_size + 1;
    p->k_cache_strides.token = width + (c->kind == FOR_CODES ? 16 : 8) * draw(random, 0, 1);
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
    p->q_rope_strides.head = FIG_LATENT_ROPE_DIM + (c->kind == FOR_PLAIN ? 3 : 8);
    p->q_rope_strides.row = p->q_heads * p->q_rope_strides.head;
    c->q_rope = draw_numbers(random, p->dtype, rows * p->q_rope_strides.row);
    p->q_rope = c->q_rope.data();
}

static void draw_case(latent_case *c, fig_random *random, latent_kind kind) {
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16},
                         heads[] = {8, 16, 24, 72, 40, 64, 128};
    fig_latent_attention_params *p = &c->params;
    c->kind = kind;
    c->length_limit = kind == FOR_PLAIN ? 90 : 520;
    p->dtype = p->kv_dtype = dtypes[draw(random,
                                         kind == FOR_PLAIN   ? 0
                                         : kind == FOR_CODES ? 2
                                                             : 1,
                                         2)];
    if (kind == FOR_CODES || (kind == FOR_PLAIN && p->dtype != FIG_F32 && draw(random, 0, 1)))
        p->kv_dtype = FIG_E4M3;
    if (kind != FOR_PLAIN)
        p->flags = FIG_ATTENTION_APART | (draw(random, 0, 1) ? FIG_ATTENTION_EARLY : 0);
    p->q_heads = heads[draw(random, 0, kind == FOR_PLAIN ? 3 : is_wide(kind) ? 6 : 2)];
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
    const int32_t tiles = ROW_LIMIT * (c->length_limit / p->split.tile_tokens + 2);
    const size_t partials =
        2 * FIG_LATENT_VECTORS *
        (size_t)(p->split.fixed ? tiles * p->split.groups : fig_split_partial_limit(&p->split));
    c->partials.assign(partials * FIG_LATENT_DIM, 0);
    c->sums.assign(partials * 2, 0);
    c->counters.assign((size_t)(ROW_LIMIT * p->split.groups), 0);
    p->partials = c->partials.data();
    p->sums = c->sums.data();
    p->counters = c->counters.data();
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

/* Compares what both sides left. Returns 0 and says where they differ. */
static int compare(const latent_case *c, uint64_t seed, float tolerance) {
    const fig_latent_attention_params *p = &c->params;
    const int64_t count = (int64_t)c->lse[0].size() * FIG_LATENT_DIM;
    for (int64_t i = 0; i < count; i++) {
        const float due = fig_numeric_load(c->out[0].data(), p->dtype, i);
        const float got = fig_numeric_load(c->out[1].data(), p->dtype, i);
        const size_t vector = (size_t)(i / FIG_LATENT_DIM);
        if (is_near(due, got, tolerance) &&
            is_near(c->lse[0][vector], c->lse[1][vector], c->kind == FOR_CODES ? 1e-2f : 1e-4f))
            continue;
        printf("seed %llu: out[%zu][%lld] is %g, the twin's %g; lse %g, %g\n",
               (unsigned long long)seed, vector, (long long)(i % FIG_LATENT_DIM), got, due,
               c->lse[1][vector], c->lse[0][vector]);
        return 0;
    }
    return 1;
}

#endif

/* many_block.cpp: runs the blocks of kernels/many/attention_many.cu on a CPU, thread by thread, and
 * compares what they leave with the reference kernel's. hopper.hpp stands for the machine.
 *
 * Steps have few workers, so that a worker has many pieces, and rows of unequal numbers of query
 * tokens, of which some fit one warpgroup and some do not. Tokens that no query sees are NaN. V of
 * some that only the last query sees is NaN, infinite or the greatest number; sums that have the
 * greatest number may overflow, and are not compared. Both sides keep full precision, so other
 * results may differ by less than two roundings; partials, sums and counters must be zeros again. */
#include <algorithm>

#define BLOCK_THREADS 384
#include "tests/support/kernels/hopper_strips.hpp"
#include "tests/support/kernels/hopper_steps.hpp"

extern "C" {
#include "planner/plans/plan.h"
#include "planner/split/split.h"
void fig_planning_reference(const void *params, const uint32_t block[3]);
}

#include "kernels/many/attention_many.cu"

enum { ROW_LIMIT = 5, PLAN_BYTES = 1 << 16, LENGTH_LIMIT = 400 };

/* A case and what one side of it leaves. */
struct many_case {
    fig_random random;
    fig_plan_shape shape;
    fig_attention_params params;
    int32_t rows, lengths[ROW_LIMIT], starts[ROW_LIMIT + 1];
    std::vector<uint8_t> plan;
    std::vector<uint16_t> q, k, v, out[2];
    std::vector<float> lse[2], sinks, partials, sums;
    std::vector<uint32_t> counters;
    std::vector<int32_t> table;
};

static int32_t draw(many_case *c, int32_t low, int32_t high) {
    return fig_random_range(&c->random, low, high);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void draw_form(many_case *c) {
    static const int32_t pages[] = {16, 48, 64};
    fig_attention_params *p = &c->params;
    p->head_dim = draw(c, 0, 1) ? 64 : 128;
    p->dtype = p->kv_dtype = draw(c, 0, 1) ? FIG_BF16 : FIG_F16;
    do {
        p->q_heads = draw(c, 1, 16);
        c->shape.row_tokens = draw(c, 1, 16);
    } while (!fig_many_serves(2, p->head_dim, p->q_heads * c->shape.row_tokens));
    p->kv_heads = draw(c, 1, 2);
    p->q_heads *= p->kv_heads;
    p->heads_per_worker = 1;
    const int is_dense = draw(c, 0, 3) == 0;
    p->page_size = is_dense ? LENGTH_LIMIT + 3 : pages[draw(c, 0, 2)];
    p->flags = FIG_ATTENTION_APART | (is_dense ? FIG_ATTENTION_DENSE : 0) |
               (draw(c, 0, 1) ? FIG_ATTENTION_EARLY : 0);
    p->soft_cap = draw(c, 0, 4) == 0 ? 5.0f : 0.0f;
    /* Of some steps, logits are so far apart that references grow. */
    p->sm_scale = draw(c, 0, 1) ? 0.1f : 2.0f;
}

static void draw_rows(many_case *c, int is_packed) {
    const int32_t tokens = c->shape.row_tokens;
    c->rows = draw(c, 1, ROW_LIMIT);
    c->starts[0] = 0;
    for (int32_t row = 0; row < c->rows; row++) {
        const int32_t count = is_packed ? draw(c, 0, tokens) : tokens;
        c->lengths[row] = draw(c, 0, 4) == 0 ? 0 : draw(c, tokens, LENGTH_LIMIT);
        if (count == 0) c->lengths[row] = 0;
        c->starts[row + 1] = c->starts[row] + (c->lengths[row] == 0 && is_packed ? 0 : count);
    }
}

/* Makes the plan of the rows, as the device does. */
static void make_plan(many_case *c) {
    fig_plan_params plan = {};
    fig_fetch_words words = {};
    const uint32_t block[3] = {0, 0, 0};
    c->plan.assign(PLAN_BYTES, 0x7f);
    plan.lengths = c->lengths;
    plan.query_starts = c->params.is_packed ? c->starts : NULL;
    plan.plan = c->plan.data();
    plan.words = &words;
    plan.shape = c->shape;
    plan.kv_limit = LENGTH_LIMIT;
    plan.rows = c->rows;
    fig_planning_reference(&plan, block);
    c->params.plan = c->plan.data();
}

static void draw_plan(many_case *c) {
    fig_attention_params *p = &c->params;
    static const int32_t tiles[] = {16, 64, 256};
    const int is_packed = draw(c, 0, 1);
    fig_split_shape *split = &c->shape.splits[0];
    c->shape.row_limit = ROW_LIMIT;
    c->shape.class_count = 1;
    c->shape.once[0] = 20;
    c->shape.query_limit = is_packed ? ROW_LIMIT * c->shape.row_tokens : 0;
    split->row_limit = ROW_LIMIT;
    split->groups = p->kv_heads;
    split->tile_tokens = tiles[draw(c, 0, 2)];
    split->workers = draw(c, 1, 9);
    split->row_tokens = c->shape.row_tokens;
    split->window = draw(c, 0, 2) ? 0 : draw(c, 1, 200);
    split->fixed = draw(c, 0, 3) == 0;
    split->tile_limit = INT32_MAX;
    fig_plan_lay_out(&c->shape);
    draw_rows(c, is_packed);
    p->is_packed = (uint32_t)is_packed;
    make_plan(c);
    p->split = *split;
    p->lengths_offset = c->shape.layout.lengths;
    p->sequences_offset = c->shape.layout.sequences;
    p->prefix_offset = c->shape.layout.prefix[0];
    p->starts_offset = c->shape.layout.starts[0];
    p->queries_offset = c->shape.layout.queries;
}

/* ---- Contents -------------------------------------------------------------------------------- */

static void fill(many_case *c, uint16_t *to, int64_t count, float scale) {
    for (int64_t i = 0; i < count; i++)
        fig_numeric_store(to, c->params.dtype, i, scale * fig_random_float(&c->random));
}

/* Fills the tokens of a row that some query sees. */
static void fill_row(many_case *c, int32_t row, int32_t row_pages) {
    const fig_attention_params *p = &c->params;
    const int32_t queries = c->starts[row + 1] - c->starts[row], window = p->split.window;
    const int32_t length = c->lengths[row];
    const uint16_t infinite = p->dtype == FIG_BF16 ? 0x7f80 : 0x7c00;
    const uint16_t greatest = infinite - 1;
    const int32_t first = window > 0 ? std::max(length - queries + 1 - window, 0) : 0;
    for (int32_t t = first; t < length; t++) {
        const int32_t page =
            p->page_table == NULL ? row : c->table[(size_t)(row * row_pages + t / p->page_size)];
        const int64_t at =
            page * p->k_cache_strides.page + t % p->page_size * p->k_cache_strides.token;
        fill(c, &c->k[(size_t)at], p->kv_heads * p->head_dim, 1);
        fill(c, &c->v[(size_t)at], p->kv_heads * p->head_dim, 1);
        /* Not infinite where a weight may be too small for the type: 0 times infinity is NaN. */
        const int32_t kinds = p->sm_scale < 1 ? 3 : 2;
        const uint16_t special[] = {0x7fff /* NaN */, greatest, infinite};
        uint16_t *v = &c->v[(size_t)at + (size_t)draw(c, 0, p->head_dim - 1)];
        if (queries > 1 && t == length - 1 && draw(c, 0, 1)) *v = special[draw(c, 0, kinds - 1)];
        if (kinds == 3 && draw(c, 0, 99) == 0) *v = infinite;
    }
}

static void draw_cache(many_case *c) {
    fig_attention_params *p = &c->params;
    const int is_dense = (p->flags & FIG_ATTENTION_DENSE) != 0;
    const int32_t row_pages = is_dense ? 1 : (LENGTH_LIMIT - 1) / p->page_size + 1;
    p->k_cache_strides.head = p->head_dim;
    p->k_cache_strides.token = p->kv_heads * p->head_dim;
    p->k_cache_strides.page = p->page_size * p->k_cache_strides.token;
    p->v_cache_strides = p->k_cache_strides;
    p->k_pages = p->v_pages = ROW_LIMIT * row_pages;
    p->table_stride = row_pages;
    for (int32_t i = 0; i < ROW_LIMIT * row_pages; i++)
        c->table.push_back(i * 7 % (ROW_LIMIT * row_pages));
    p->page_table = is_dense ? NULL : c->table.data();
    c->k.assign((size_t)(p->k_pages * p->k_cache_strides.page), 0x7fff); /* NaN */
    c->v = c->k;
    for (int32_t row = 0; row < c->rows; row++)
        fill_row(c, row, row_pages);
    p->k_cache = c->k.data();
    p->v_cache = c->v.data();
}

static void draw_case(many_case *c) {
    fig_attention_params *p = &c->params;
    draw_form(c);
    draw_plan(c);
    draw_cache(c);
    const size_t vectors = (size_t)(ROW_LIMIT * c->shape.row_tokens * p->q_heads);
    p->q_strides.head = p->head_dim + 2 * draw(c, 0, 1);
    p->q_strides.row = p->q_heads * p->q_strides.head;
    p->out_strides.head = p->head_dim;
    p->out_strides.row = p->q_heads * p->head_dim;
    p->lse_stride = p->q_heads;
    c->q.resize(vectors * (size_t)p->q_strides.head);
    fill(c, c->q.data(), (int64_t)c->q.size(), 1);
    p->q = c->q.data();
    for (int side = 0; side < 2; side++) {
        c->out[side].assign(vectors * (size_t)p->head_dim, 0x5555);
        c->lse[side].assign(vectors, 5.0f);
    }
    for (int32_t i = 0; i < p->q_heads; i++)
        c->sinks.push_back(fig_random_float(&c->random));
    p->sinks = draw(c, 0, 2) == 0 ? c->sinks.data() : NULL;
    const int32_t tiles = ROW_LIMIT * (LENGTH_LIMIT / p->split.tile_tokens + 2);
    const size_t partials =
        (size_t)(p->q_heads / p->kv_heads * c->shape.row_tokens) *
        (size_t)(p->split.fixed ? tiles * p->split.groups : fig_split_partial_limit(&p->split));
    c->partials.assign(partials * (size_t)p->head_dim, 0);
    c->sums.assign(partials * 2, 0);
    c->counters.assign((size_t)(ROW_LIMIT * p->split.groups), 0);
    p->partials = c->partials.data();
    p->sums = c->sums.data();
    p->counters = c->counters.data();
}

/* ---- Running --------------------------------------------------------------------------------- */

static void run_kernel(const void *params) {
    const fig_attention_params &p = *(const fig_attention_params *)params;
    if (p.dtype == FIG_BF16)
        p.head_dim == 64 ? fig_kernel_attention_many_bf16_64(p)
                         : fig_kernel_attention_many_bf16_128(p);
    else
        p.head_dim == 64 ? fig_kernel_attention_many_f16_64(p)
                         : fig_kernel_attention_many_f16_128(p);
}

/* Runs a side of the case. Returns NULL, or what it did wrong. */
static const char *run_side(many_case *c, int is_kernel) {
    fig_attention_params *p = &c->params;
    gridDim.x = (uint32_t)p->split.workers;
    const char *wrong = steps_launch(is_kernel ? run_kernel : NULL, fig_attention_reference, p,
                                     p->split.workers, &c->random);
    if (wrong != NULL) return wrong;
    if (steps_are_zeros(c->partials) && steps_are_zeros(c->sums) && steps_are_zeros(c->counters))
        return NULL;
    return "the workspace is not zeros";
}

static void fill_maps(many_case *c) {
    fig_attention_params *p = &c->params;
    fig_attention_family_many_map(p, FIG_ATTENTION_K_MAP, &maps[0]);
    fig_attention_family_many_map(p, FIG_ATTENTION_V_MAP, &maps[1]);
    p->k_map.bytes[0] = 0;
    p->v_map.bytes[0] = 1;
}

static int is_same(float due, float got, float tolerance) {
    return due == got || (std::isnan(due) && std::isnan(got)) ||
           std::fabs(due - got) <= tolerance * (1 + std::fabs(due));
}

/* Returns 0 and says why if the two sides differ. */
static int compare(const many_case *c, uint64_t seed) {
    const fig_attention_params *p = &c->params;
    const float unit = p->dtype == FIG_BF16 ? 0x1p-8f : 0x1p-11f;
    for (size_t i = 0; i < c->out[0].size(); i++) {
        const size_t vector = i / (size_t)p->head_dim;
        const float due = fig_numeric_load(c->out[0].data(), p->dtype, (int64_t)i);
        const float got = fig_numeric_load(c->out[1].data(), p->dtype, (int64_t)i);
        const float lse = c->lse[0][vector], other = c->lse[1][vector];
        if (std::isfinite(due) && std::fabs(due) > 0x1p100f) continue;
        if (is_same(due, got, 2 * unit) && is_same(lse, other, 1e-5f)) continue;
        printf("seed %llu: out[%zu][%zu] is %g, the twin's %g; lse %g, %g\n",
               (unsigned long long)seed, vector, i % (size_t)p->head_dim, got, due, other, lse);
        return 0;
    }
    return 1;
}

/* Runs the kernel once more, for the last query token of each row alone. Where every tile is a
 * piece, the bits of a vector may not depend on the number of the row's query tokens, except that
 * with a window strips begin where the first query begins to see. Returns 0 and says why if they
 * do. */
static int keeps_bits(many_case *c, uint64_t seed) {
    fig_attention_params *p = &c->params;
    if (!p->split.fixed || !p->is_packed || p->split.window > 0) return 1;
    std::vector<int32_t> tokens; /* [token of the second run] its number in the first */
    for (int32_t row = 0, first = 0; row < c->rows; row++) {
        const int32_t end = c->starts[row + 1];
        if (first < end) tokens.push_back(end - 1);
        first = end;
        c->starts[row + 1] = (int32_t)tokens.size();
    }
    for (size_t i = 0; i < tokens.size(); i++)
        memmove(&c->q[i * (size_t)p->q_strides.row],
                &c->q[(size_t)tokens[i] * (size_t)p->q_strides.row], (size_t)p->q_strides.row * 2);
    make_plan(c);
    p->out = c->out[0].data();
    if (run_side(c, 1) != NULL) return 0;
    for (size_t i = 0; i < tokens.size(); i++) {
        const size_t row = (size_t)p->out_strides.row, from = (size_t)tokens[i] * row;
        if (memcmp(&c->out[0][i * row], &c->out[1][from], row * 2) == 0) continue;
        printf("seed %llu: token %d has other bits alone\n", (unsigned long long)seed, tokens[i]);
        return 0;
    }
    return 1;
}

/* Returns 0 if the kernel does something wrong. */
static int try_case(uint64_t seed) {
    many_case c = {};
    c.random = fig_random_seed(seed);
    draw_case(&c);
    fill_maps(&c);
    for (int side = 0; side < 2; side++) {
        c.params.out = c.out[side].data();
        c.params.lse = c.lse[side].data();
        const char *wrong = run_side(&c, side);
        if (wrong == NULL) continue;
        printf("seed %llu, head_dim %d, %d vectors, %d workers: %s\n", (unsigned long long)seed,
               c.params.head_dim, c.params.q_heads / c.params.kv_heads * c.shape.row_tokens,
               c.params.split.workers, wrong);
        return 0;
    }
    return compare(&c, seed) && keeps_bits(&c, seed);
}

int main(int argc, char **argv) {
    return steps_try(argc, argv, try_case);
}

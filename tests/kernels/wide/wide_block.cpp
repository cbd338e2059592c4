/* wide_block.cpp: runs the blocks of kernels/wide/wide_attention.cu on a CPU, thread by thread, and
 * compares what they leave with the reference kernel's. hopper.hpp stands for the machine.
 *
 * Steps have chunks, single tokens and shared prefixes, and few workers, so that a worker has many
 * items of all kinds. Seeds from LONG on have prefixes of more pieces than a warp has lanes, and
 * those from CROWDED on more rows than a warpgroup's list. Tokens that no query may see are NaN. The kernel rounds weights to the
 * cache's type and takes sums in another order than the reference kernel, so results may differ by
 * some roundings; counters must be zeros again. */
#include <algorithm>

#define BLOCK_THREADS 384
#include "tests/support/kernels/hopper.hpp"
#include "tests/support/kernels/hopper_steps.hpp"

#include "kernels/wide/wide_attention.cu"

enum { ROW_LIMIT = 24, GROUP_LIMIT = 12, MEMBER_LIMIT = 4096, PLAN_BYTES = 1 << 18 };
enum { TILE_LIMIT = 90 }; /* tiles of a step: emulating one takes some 10 ms */
enum { LONG = 1000, CROWDED = 2000 };

/* A case and what one side of it leaves. */
struct wide_case {
    fig_random random;
    fig_strips_shape shape;
    fig_prompt_attention_params params;
    int32_t is_long, is_crowded;
    int32_t rows, group_count, columns;
    int32_t starts[ROW_LIMIT + 1], lengths[ROW_LIMIT];
    fig_strip_group groups[GROUP_LIMIT];
    std::vector<uint8_t> plan;
    std::vector<uint16_t> q, k, v, out[2];
    std::vector<float> lse[2], sinks, partials, sums;
    std::vector<uint32_t> counters;
    std::vector<int32_t> table;
};

static int32_t draw(wide_case *c, int32_t low, int32_t high) {
    return fig_random_range(&c->random, low, high);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void draw_form(wide_case *c) {
    static const int32_t dims[] = {64, 64, 64, 96, 128, 256}, pages[] = {1, 4, 8, 16, 16, 64};
    fig_prompt_attention_params *p = &c->params;
    p->head_dim = dims[draw(c, 0, 5)];
    p->ratio = draw(c, 1, draw(c, 0, 1) ? 4 : 16);
    p->kv_heads = draw(c, 1, 3);
    p->tile_tokens = fig_wide_tile(p->head_dim);
    p->workers = draw(c, 1, draw(c, 0, 1) ? 3 : 9);
    p->dtype = p->kv_dtype = draw(c, 0, 1) ? FIG_BF16 : FIG_F16;
    p->page_size = pages[draw(c, p->head_dim == 96, 5)];
    p->window = draw(c, 0, 4) == 0 ? draw(c, 1, 300) : 0;
    p->soft_cap = draw(c, 0, 4) == 0 ? 5.0f : 0.0f;
    p->sm_scale = 0.1f;
    p->flags = draw(c, 0, 1) ? FIG_ATTENTION_EARLY : 0;
    if (c->is_long || c->is_crowded) {
        p->ratio = c->is_long ? draw(c, 1, 6) : 16;
        p->kv_heads = c->is_long ? 1 : 3;
        p->workers = c->is_long ? 40 : 1;
        p->window = 0;
    }
    p->q_heads = p->ratio * p->kv_heads;
    p->half = fig_strips_half(p->ratio);
    c->shape.ratio = p->ratio;
    c->shape.kv_heads = p->kv_heads;
    c->shape.head_dim = p->head_dim;
    c->shape.tile_tokens = p->tile_tokens;
    c->shape.window = p->window;
    c->shape.workers = p->workers;
    c->shape.whole = draw(c, 0, 6) == 0 && !c->is_long;
    c->shape.shares = 1;
}

/* Lets rows [first, first + rows) share their first tokens, and some of them more. */
static void draw_group(wide_case *c, int32_t first, int32_t rows, int32_t page) {
    int32_t from = 0;
    while (rows > 1 && c->group_count < GROUP_LIMIT && from < 2 * page) {
        int32_t common = INT32_MAX;
        for (int32_t r = first; r < first + rows; r++)
            common = fig_size_min(common, c->lengths[r] - c->starts[r + 1] + c->starts[r]);
        const int32_t to = fig_size_min(from + page * draw(c, 1, 500 / page + 1), common);
        if (to / page * page <= from) return;
        c->groups[c->group_count++] = {first, rows, from, to / page * page};
        from = to / page * page;
        rows -= draw(c, 1, rows);
        if (draw(c, 0, 1)) return;
    }
}

/* Draws rows of one query token. A long step has three rows. All of them share a prefix of 36 tiles,
 * and two share another prefix behind it. In steps with odd seeds, the planner cuts the strip of the
 * third row, because the row has many tokens of its own. A crowded step has many rows, which share a
 * prefix of one tile. */
static void draw_singles(wide_case *c) {
    const int32_t tile = c->params.tile_tokens, tiles = c->is_long ? 36 : 1;
    c->rows = c->is_long ? 3 : ROW_LIMIT;
    c->group_count = 0;
    c->starts[0] = 0;
    for (int32_t r = 0; r < c->rows; r++) {
        const int32_t shared = c->is_long && r < 2 ? 2 * tiles * tile : tiles * tile;
        c->lengths[r] = shared + draw(c, 1, tile) + (r == 2 && c->is_long == 2 ? 7 * tile : 0);
        c->starts[r + 1] = r + 1;
    }
    c->groups[c->group_count++] = {0, c->rows, 0, tiles * tile};
    if (c->is_long) c->groups[c->group_count++] = {0, 2, tiles * tile, 2 * tiles * tile};
}

/* Rows with one or few query tokens, most of which share tokens, and chunks. */
static void draw_rows(wide_case *c) {
    if (c->is_long || c->is_crowded) {
        draw_singles(c);
        return;
    }
    const int32_t has_groups = c->params.window == 0 && draw(c, 0, 3) > 0;
    c->rows = draw(c, 1, ROW_LIMIT);
    c->group_count = c->starts[0] = 0;
    for (int32_t r = 0; r < c->rows; r++) {
        const int32_t is_chunk = draw(c, 0, has_groups ? 5 : 1) == 0;
        const int32_t queries = is_chunk ? draw(c, 0, 100) : draw(c, 0, 2);
        c->lengths[r] = queries == 0 ? 0 : queries + draw(c, 0, draw(c, 0, 1) ? 300 : 800);
        c->starts[r + 1] = c->starts[r] + queries;
    }
    if (!has_groups) return;
    for (int32_t first = 0; first < c->rows;) {
        const int32_t rows = fig_size_min(draw(c, 1, c->rows), c->rows - first);
        draw_group(c, first, rows, c->params.page_size);
        first += rows;
    }
}

static int32_t tiles_of(const wide_case *c) {
    const fig_strips_item *items = fig_strips_items(c->plan.data(), c->shape.workers);
    int32_t tiles = 0;
    for (int32_t i = 0; i < fig_strips_ranges(c->plan.data())[c->shape.workers]; i++)
        tiles += items[i].tiles * items[i].heads;
    return tiles;
}

static void draw_plan(wide_case *c) {
    static fig_strip_groups_row rows[ROW_LIMIT];
    static fig_strips_segment segments[ROW_LIMIT + GROUP_LIMIT];
    static fig_strips_member members[MEMBER_LIMIT];
    fig_strips_sizes sizes;
    do {
        draw_rows(c);
        fig_strip_groups step = {};
        step.shape = &c->shape;
        step.rows = c->rows;
        step.count = c->group_count;
        step.starts = c->starts;
        step.lengths = c->lengths;
        step.groups = c->groups;
        fig_strip_groups_work work = {};
        work.rows = rows;
        work.segments = segments;
        work.members = members;
        c->plan.assign(PLAN_BYTES, 0);
        fig_strip_groups_list(&step, &work);
        fig_strips_make(&c->shape, segments, work.segment_count, c->plan.data());
        sizes = fig_strips_share(&work.shared, c->plan.data());
    } while (tiles_of(c) > TILE_LIMIT || tiles_of(c) == 0);
    fig_prompt_attention_params *p = &c->params;
    p->plan = c->plan.data();
    c->partials.assign((size_t)(sizes.partial_vectors * p->head_dim), NAN);
    c->sums.assign((size_t)sizes.partial_vectors * 2, NAN);
    c->counters.assign((size_t)sizes.counters + 1, 0);
    p->partials = c->partials.data();
    p->sums = c->sums.data();
    p->counters = c->counters.data();
}

/* ---- Contents -------------------------------------------------------------------------------- */

static void fill(wide_case *c, uint16_t *to, int64_t count, float scale) {
    for (int64_t i = 0; i < count; i++)
        fig_numeric_store(to, c->params.dtype, i, scale * fig_random_float(&c->random));
}

/* Returns the row whose page this row reads in a column: the first row of a group, or itself. */
static int32_t reader_of(const wide_case *c, int32_t row, int32_t column) {
    for (int32_t g = 0; g < c->group_count; g++) {
        const fig_strip_group *group = &c->groups[g];
        if (row >= group->first && row < group->first + group->rows &&
            column < group->to / c->params.page_size)
            for (int32_t r = group->first; r <= row; r++)
                if (c->lengths[r] > 0) return r;
    }
    return row;
}

static void draw_cache(wide_case *c) {
    fig_prompt_attention_params *p = &c->params;
    const int32_t page = p->page_size, dim = p->head_dim;
    c->columns = 1;
    for (int32_t r = 0; r < c->rows; r++)
        c->columns = std::max(c->columns, (c->lengths[r] + page - 1) / page);
    p->k_cache_strides.token = p->kv_heads * dim;
    p->k_cache_strides.head = dim;
    p->k_cache_strides.page = page * p->k_cache_strides.token;
    p->v_cache_strides = p->k_cache_strides;
    p->k_pages = p->v_pages = c->rows * c->columns + 1;
    p->table_stride = c->columns;
    const size_t elements = (size_t)(p->k_pages * p->k_cache_strides.page);
    c->k.assign(elements, 0x7fff); /* NaN */
    c->v.assign(elements, 0x7fff);
    c->table.resize((size_t)(c->rows * c->columns));
    for (int32_t r = 0; r < c->rows; r++) {
        for (int32_t column = 0; column < c->columns; column++)
            c->table[(size_t)(r * c->columns + column)] =
                1 + reader_of(c, r, column) + c->rows * column;
        for (int32_t t = 0; t < c->lengths[r]; t++) {
            if (reader_of(c, r, t / page) != r) continue;
            const int64_t at =
                c->table[(size_t)(r * c->columns + t / page)] * p->k_cache_strides.page +
                t % page * p->k_cache_strides.token;
            fill(c, &c->k[(size_t)at], p->kv_heads * dim, 2);
            fill(c, &c->v[(size_t)at], p->kv_heads * dim, 1);
        }
    }
    p->k_cache = c->k.data();
    p->v_cache = c->v.data();
    p->page_table = c->table.data();
}

static void draw_case(wide_case *c) {
    fig_prompt_attention_params *p = &c->params;
    draw_form(c);
    draw_plan(c);
    draw_cache(c);
    const int32_t tokens = c->starts[c->rows];
    const size_t vectors = (size_t)(tokens * p->q_heads);
    p->rows.row_limit = tokens;
    p->q_strides = p->out_strides = {p->q_heads * p->head_dim, p->head_dim};
    p->lse_stride = p->q_heads;
    c->q.resize(vectors * p->head_dim);
    fill(c, c->q.data(), (int64_t)c->q.size(), 3);
    p->q = c->q.data();
    for (int side = 0; side < 2; side++) {
        c->out[side].assign(vectors * p->head_dim, 0x5555);
        c->lse[side].assign(vectors, 5.0f);
    }
    for (int32_t i = 0; i < p->q_heads; i++)
        c->sinks.push_back(fig_random_float(&c->random));
    p->sinks = draw(c, 0, 2) == 0 ? c->sinks.data() : NULL;
    /* Of some steps, logits are so far apart that weights relative to another logit than a row's
     * greatest one would be 0 or infinite. */
    if ((p->window > 0 || p->head_dim == 64) && p->soft_cap == 0) p->sm_scale = 2;
}

/* ---- Running --------------------------------------------------------------------------------- */

static void run_kernel(const void *params) {
    const fig_prompt_attention_params &p = *(const fig_prompt_attention_params *)params;
    const int is_bf16 = p.dtype == FIG_BF16;
    switch (p.head_dim) {
    case 64:
        is_bf16 ? fig_kernel_wide_attention_bf16_64(p) : fig_kernel_wide_attention_f16_64(p);
        break;
    case 96:
        is_bf16 ? fig_kernel_wide_attention_bf16_96(p) : fig_kernel_wide_attention_f16_96(p);
        break;
    case 128:
        is_bf16 ? fig_kernel_wide_attention_bf16_128(p) : fig_kernel_wide_attention_f16_128(p);
        break;
    default: is_bf16 ? fig_kernel_wide_attention_bf16_256(p) : fig_kernel_wide_attention_f16_256(p);
    }
}

/* Runs a side of the case. Returns NULL, or what it did wrong. */
static const char *run_side(wide_case *c, int is_kernel) {
    fig_prompt_attention_params *p = &c->params;
    const char *wrong = steps_launch(is_kernel ? run_kernel : NULL, fig_prompt_attention_reference,
                                     p, p->workers, &c->random);
    if (wrong != NULL) return wrong;
    return steps_are_zeros(c->counters) ? NULL : "a counter is not 0";
}

static void fill_maps(wide_case *c) {
    fig_prompt_attention_params *p = &c->params;
    const uint32_t items[] = {FIG_PROMPT_ATTENTION_K_MAP, FIG_PROMPT_ATTENTION_V_MAP,
                              FIG_PROMPT_ATTENTION_Q_MAP};
    fig_tensor_map *const to[] = {&p->k_map, &p->v_map, &p->q_map};
    for (uint8_t i = 0; i < MAP_LIMIT; i++) {
        fig_prompt_attention_wide_map(p, items[i], &maps[i]);
        to[i]->bytes[0] = i;
    }
}

/* Returns 0 and says why if the two sides differ. */
static int compare(const wide_case *c, uint64_t seed) {
    const fig_prompt_attention_params *p = &c->params;
    const float unit = p->dtype == FIG_BF16 ? 0x1p-7f : 0x1p-10f;
    for (size_t i = 0; i < c->out[0].size(); i++) {
        const size_t vector = i / (size_t)p->head_dim;
        const float due = fig_numeric_load(c->out[0].data(), p->dtype, (int64_t)i);
        const float got = fig_numeric_load(c->out[1].data(), p->dtype, (int64_t)i);
        const float lse = c->lse[0][vector], other = c->lse[1][vector];
        if ((due == got || std::fabs(due - got) <= unit * (1 + std::fabs(due))) &&
            (lse == other || std::fabs(lse - other) <= 1e-4f * (1 + std::fabs(lse))))
            continue;
        printf("seed %llu: out[%zu][%zu] is %g, the twin's %g; lse %g, %g\n",
               (unsigned long long)seed, vector, i % (size_t)p->head_dim, got, due, other, lse);
        return 0;
    }
    return 1;
}

/* Returns 1 if the block's first item is no piece of a prefix. */
static int begins_with_row(const void *params, uint32_t block) {
    const uint8_t *plan = ((const fig_prompt_attention_params *)params)->plan;
    const int32_t workers = ((const fig_strips_head *)(const void *)plan)->workers;
    const fig_strips_item *item = fig_strips_items(plan, workers) + fig_strips_ranges(plan)[block];
    return !(item->flags & FIG_STRIPS_IS_PREFIX);
}

/* Returns 0 if the kernel does something wrong. */
static int try_case(uint64_t seed) {
    wide_case c = {};
    c.random = fig_random_seed(seed);
    c.is_crowded = seed >= CROWDED;
    c.is_long = seed >= LONG && !c.is_crowded ? 1 + seed % 2 : 0;
    steps_is_late = c.is_long ? begins_with_row : NULL;
    draw_case(&c);
    for (int side = 0; side < 2; side++) {
        c.params.out = c.out[side].data();
        c.params.lse = c.lse[side].data();
        fill_maps(&c);
        const char *wrong = run_side(&c, side);
        if (wrong == NULL) continue;
        printf("seed %llu, head_dim %d, %d workers: %s\n", (unsigned long long)seed,
               c.params.head_dim, c.params.workers, wrong);
        return 0;
    }
    return compare(&c, seed);
}

int main(int argc, char **argv) {
    return steps_try(argc, argv, try_case);
}

/* strips_step.hpp: draws random steps for strips_block.cpp: of a packed program or, with
 * FIG_TESTS_TURNS, of one whose attention applies RoPE and appends.
 *
 * Owns the params of the launch, the plan, the contents of the cache, and what a launch for strips
 * leaves in slots for rows with tails. In the cache, tokens are NaN if no query of this launch sees
 * them, as those in front of a tail, or if the launch appends them. V of some tokens that only the
 * last query sees is NaN, infinite or the greatest number. Invariant: a seed always gives the same
 * step. */
#ifndef FIG_TESTS_STRIPS_STEP_HPP
#define FIG_TESTS_STRIPS_STEP_HPP

#include <algorithm>

enum { ROW_LIMIT = 40, PLAN_BYTES = 1 << 16, SLOT_LIMIT = 12 };
#ifdef FIG_TESTS_TURNS
enum { TURNS = 1 };
#else
enum { TURNS = 0 };
#endif

/* When a prefix leaves its result in a slot. */
enum { BEFORE, DURING, NEVER };

/* The result of a prefix for a vector. */
struct arrival {
    int32_t row, q_head, slot, when;
};

struct strips_step {
    fig_random random;
    fig_plan_shape shape;
    fig_attention_params params;
    fig_traits traits;
    int32_t length_limit;
    int32_t rows, readers; /* readers: workers that may have tiles */
    int32_t is_single;     /* 1: no row of the launch has more than one query token */
    float apart;     /* of greatest logits in slots; so far in some steps that only one counts */
    int32_t is_near; /* 1: no weight is too small for a 16-bit type */
    int32_t lengths[ROW_LIMIT], queries[ROW_LIMIT], starts[ROW_LIMIT + 1];
    int32_t narrow[ROW_LIMIT];                    /* query tokens that this launch reads */
    int32_t before[ROW_LIMIT], hidden[ROW_LIMIT]; /* as in fig_plan_held */
    fig_plan_tail tails[ROW_LIMIT];
    int32_t has_tails, slot_vectors, slot_counters;
    int32_t is_padded; /* 1: the plan says how many query tokens are no padding */
    int32_t lost;      /* a row whose newest token has a page outside the cache; -1: none */
    std::vector<arrival> arrivals;
    std::vector<float> results, result_sums; /* of prefixes: [slot_vectors][head_dim], [..][2] */
    std::vector<uint8_t> plan;
    steps_array<uint8_t> q, k, v;
    steps_array<uint8_t> new_k, new_v; /* of the tokens that the launch appends */
    std::vector<uint8_t> norm;         /* of q, then of k */
    int32_t fresh[ROW_LIMIT];          /* tokens of each row that the launch appends */
    steps_array<int32_t> table;
    std::vector<float> sinks, slopes, k_scales, v_scales;
};

static int32_t draw(strips_step *c, int32_t low, int32_t high) {
    return fig_random_range(&c->random, low, high);
}

/* Returns 1 in `percent` of all draws. */
static int32_t draws(strips_step *c, int32_t percent) {
    return draw(c, 0, 99) < percent;
}

static std::vector<float> draw_floats(strips_step *c, int32_t count, float low) {
    std::vector<float> floats;
    for (int32_t i = 0; i < count; i++)
        floats.push_back(low + std::fabs(fig_random_float(&c->random)));
    return floats;
}

static int32_t value_bytes(const strips_step *c) {
    return fig_numeric_bytes(c->params.kv_dtype);
}

/* ---- The launch ------------------------------------------------------------------------------ */

/* Most steps have a few rows. Some have more rows than a warp has lanes, and some a row of more
 * blocks of 16 tokens. */
static void draw_size(strips_step *c) {
    const int32_t kind = draw(c, 0, 99);
    c->rows = kind < 3 ? 0 : kind < 15 ? draw(c, 33, ROW_LIMIT) : kind < 22 ? 1 : draw(c, 1, 5);
    c->length_limit = kind < 15 ? 60 : kind < 22 ? 1200 : 300;
}

/* Returns why there is no instance for a form, or NULL if there is one. Few instances of family turn
 * are compiled, because each takes half a second. */
static const char *refusal_of(const strips_step *c) {
    const fig_attention_params *p = &c->params;
    if (p->kv_dtype == FIG_E4M3 && p->head_dim != 128) return "codes of 128 dims";
    if (!TURNS) return fig_attention_family_packed_refuses(p, &c->traits);
    if ((p->kv_dtype == FIG_F16) != (p->head_dim == 64)) return "f16 of 64 dims, others of 128";
    return fig_attention_family_turn_refuses(p, &c->traits);
}

/* Draws a form until the family serves it. Its fixed split is one that the family refuses, but the
 * kernel has code for it. */
static void draw_form(strips_step *c) {
    static const int32_t pages[] = {16, 48, 64}, room[] = {40, 70, 110, 227};
    fig_attention_params *p = &c->params;
    c->traits = {sizeof c->traits, "", 90, 132, 0};
    const int is_dense = draws(c, 15);
    p->page_size = is_dense ? c->length_limit + 3 : pages[draw(c, 0, 2)];
    p->flags = (is_dense ? FIG_ATTENTION_DENSE : 0) | (draws(c, 50) ? FIG_ATTENTION_EARLY : 0) |
               (draws(c, 60) ? FIG_ATTENTION_APART : 0) |
               (draws(c, 20) ? FIG_ATTENTION_IN_ORDER : 0);
    c->is_single = draws(c, 55);
    p->is_packed = c->is_single ? FIG_ATTENTION_SINGLES : FIG_ATTENTION_PACKED;
    if (TURNS) p->is_packed = 0;
    do {
        p->head_dim = draws(c, 50) ? 64 : 128;
        p->dtype = p->kv_dtype = draws(c, 50) ? FIG_BF16 : FIG_F16;
        if (draws(c, c->is_single ? 10 : 60)) p->kv_dtype = FIG_E4M3;
        p->heads_per_worker = 1 << draw(c, 0, 3);
        p->kv_heads = p->heads_per_worker * draw(c, 1, 2);
        p->q_heads = p->kv_heads * draw(c, 1, 16);
        c->shape.row_tokens = c->is_single ? 1 : draw(c, 1, 16);
        p->split.row_tokens = c->shape.row_tokens;
        p->turn.rope.rotary_dim = TURNS ? p->head_dim : 0;
        c->traits.shared_bytes = room[draw(c, 0, 3)] << 10;
    } while (refusal_of(c) != NULL);
    p->soft_cap = draws(c, 20) ? 5.0f : 0.0f;
    /* Of some steps, logits are so far apart that references grow. */
    p->sm_scale = draws(c, 50) ? 0.1f : 2.0f;
    c->slopes = draw_floats(c, p->q_heads, -0.5f);
    p->alibi = draws(c, 12) ? c->slopes.data() : NULL;
    c->apart = draws(c, 25) ? 300.0f : 4.0f;
    c->is_near = p->sm_scale < 1 && p->alibi == NULL && c->apart < 100;
}

/* Draws rows that all have the same number of query tokens. A row may have fewer tokens than that.
 * If there are several query tokens, the first ones may be padding. */
static void draw_equal_rows(strips_step *c) {
    const int32_t tokens = c->shape.row_tokens;
    c->params.turn.tokens_offset = c->shape.layout.tokens;
    c->is_padded = c->shape.layout.tokens != 0 && draws(c, 40);
    for (int32_t row = 0; row < c->rows; row++) {
        c->lengths[row] = draws(c, c->rows <= 5 ? 10 : 70) ? 0 : draw(c, 1, c->length_limit);
        c->queries[row] = tokens;
        c->narrow[row] = c->lengths[row] == 0 ? 0 : tokens;
        c->fresh[row] = std::min(c->is_padded ? draw(c, 0, tokens) : tokens, c->lengths[row]);
        c->starts[row + 1] = c->starts[row] + tokens;
    }
}

static void draw_rows(strips_step *c) {
    const int32_t tokens = c->shape.row_tokens, is_long = c->rows <= 5;
    if (TURNS) return draw_equal_rows(c);
    for (int32_t row = 0; row < c->rows; row++) {
        /* A row with more query tokens than the launch serves is a chunk, which others read. */
        const int32_t count = draws(c, 8) ? tokens + draw(c, 1, 4) : draw(c, 0, tokens);
        const int32_t is_idle = draws(c, is_long ? 10 : 70);
        c->queries[row] = is_long && c->is_single && count == 0 && draws(c, 70) ? 1 : count;
        c->lengths[row] = is_idle ? 0 : draw(c, c->queries[row], c->length_limit);
        c->narrow[row] = c->lengths[row] == 0 || draws(c, 5) ? 0 : c->queries[row];
        c->starts[row + 1] = c->starts[row] + c->queries[row];
    }
}

/* Gives some rows of single query tokens tails. */
static void draw_tails(strips_step *c) {
    const fig_attention_params *p = &c->params;
    const int is_alone = p->kv_dtype != p->dtype || p->split.window > 0 ||
                         (p->flags & FIG_ATTENTION_DENSE) != 0 || draws(c, 20);
    int32_t vector = draw(c, 0, 9), counter = draw(c, 0, 9);
    for (int32_t row = 0; row < c->rows && !is_alone && !TURNS; row++) {
        const int32_t pages = (c->lengths[row] - 1) / p->page_size;
        if (c->narrow[row] != 1 || c->lengths[row] <= p->page_size || draws(c, 20)) continue;
        c->before[row] = p->page_size * draw(c, 1, pages);
        c->hidden[row] = c->before[row] / p->split.tile_tokens;
        c->tails[row] = {c->before[row], vector, counter, draw(c, 2, SLOT_LIMIT)};
        vector += c->tails[row].slots * p->q_heads + draw(c, 0, 3);
        counter += p->q_heads + draw(c, 0, 3);
        c->has_tails = 1;
    }
    c->slot_vectors = vector;
    c->slot_counters = counter;
}

/* Makes the plan as the host does. If some workers leave rows to others, the line counts as cut by
 * units; it may also count as such because of another class. */
static void make_plan(strips_step *c) {
    fig_attention_params *p = &c->params;
    const fig_plan_layout *layout = &c->shape.layout;
    const fig_plan_step step = {
        .rows = c->rows, .lengths = c->lengths, .queries = TURNS ? NULL : c->queries};
    const fig_split_rows rows = {c->lengths, c->rows, 0, TURNS ? NULL : c->narrow,
                                 TURNS ? NULL : c->hidden};
    fig_split_shape split = c->shape.splits[0];
    c->plan.assign(PLAN_BYTES, 0x7f);
    uint8_t *plan = c->plan.data();
    fig_plan_head *head = (fig_plan_head *)plan;
    fig_split_start *starts = (fig_split_start *)(plan + layout->starts[0]);
    int32_t *prefix = (int32_t *)(plan + layout->prefix[0]);
    *head = {};
    head->rows = c->rows;
    head->bytes = layout->bytes;
    for (int32_t row = 0; row < c->rows; row++)
        ((int32_t *)(plan + layout->sequences))[row] = c->rows - 1 - row;
    p->plan = plan;
    if (c->rows == 0) return; /* The rest belongs to an older plan. */
    fig_plan_write_lengths(&c->shape, &step, plan);
    fig_split_prefix(&split, &rows, prefix);
    memset(starts, 0, (size_t)split.workers * sizeof *starts);
    split.workers = c->readers;
    int by_units = fig_split_starts(&split, c->shape.once[0], prefix, c->rows, starts);
    by_units |= c->readers < p->split.workers || draws(c, 15);
    p->slots.tails_offset = draws(c, 80) || c->has_tails ? layout->bytes : 0;
    memcpy(plan + layout->bytes, c->tails, (size_t)c->rows * sizeof *c->tails);
    if (!c->has_tails) memset(plan + layout->bytes, 0x01, (size_t)c->rows * sizeof *c->tails);
    /* Rows may have tails in another launch of the step. */
    const int has_tails = c->has_tails || (p->slots.tails_offset == 0 && draws(c, 50));
    head->sections = (by_units ? FIG_PLAN_BY_UNITS : 0) | (has_tails ? FIG_PLAN_BY_TAILS : 0);
    if (!TURNS) return;
    head->sections &= ~(uint32_t)FIG_PLAN_BY_TAILS;
    if (!c->is_padded) return;
    head->sections |= FIG_PLAN_HAS_TOKENS;
    memcpy(plan + layout->tokens, c->fresh, (size_t)c->rows * sizeof *c->fresh);
}

static void draw_plan(strips_step *c) {
    fig_attention_params *p = &c->params;
    static const int32_t tiles[] = {16, 64, 256};
    fig_split_shape *split = &c->shape.splits[0];
    c->shape.row_limit = ROW_LIMIT;
    c->shape.class_count = 1;
    c->shape.once[0] = 20;
    c->shape.query_limit = TURNS ? 0 : ROW_LIMIT * (c->shape.row_tokens + 4);
    split->row_limit = ROW_LIMIT;
    split->groups = p->kv_heads / p->heads_per_worker;
    split->tile_tokens = tiles[draw(c, 0, 2)];
    split->workers = draw(c, 1, c->length_limit > 300 ? 2 : 9);
    split->row_tokens = c->shape.row_tokens;
    split->window = draws(c, 25) ? draw(c, 1, 200) : 0;
    split->fixed = draws(c, 12);
    split->tile_limit = INT32_MAX;
    p->split = *split;
    c->readers = split->workers > 1 && !split->fixed && draws(c, 20)
                     ? draw(c, 1, split->workers - 1)
                     : split->workers;
    fig_plan_lay_out(&c->shape);
    draw_rows(c);
    draw_tails(c);
    make_plan(c);
    p->lengths_offset = c->shape.layout.lengths;
    p->sequences_offset = c->shape.layout.sequences;
    p->prefix_offset = c->shape.layout.prefix[0];
    p->starts_offset = c->shape.layout.starts[0];
    p->queries_offset = TURNS ? 0 : c->shape.layout.queries;
    p->turn.positions_offset = c->shape.layout.positions;
}

/* ---- Contents -------------------------------------------------------------------------------- */

static void fill(strips_step *c, void *to, int32_t dtype, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; i++)
        fig_numeric_store(to, dtype, i, fig_random_float(&c->random));
}

/* Returns the index of a token's first value in the cache. */
static int64_t token_at(const strips_step *c, int32_t row, int32_t token) {
    const fig_attention_params *p = &c->params;
    const int32_t sequence = c->rows - 1 - row, page = token / p->page_size;
    const int32_t number =
        p->page_table == NULL ? sequence : c->table[(size_t)(sequence * p->table_stride + page)];
    return number * p->k_cache_strides.page + token % p->page_size * p->k_cache_strides.token;
}

/* Replaces a number of V by a special one. Not by an infinite one where a weight may be too small
 * for the type: 0 times infinity is NaN. */
static void spoil(strips_step *c, int64_t at, int32_t is_unseen_by_others) {
    const fig_attention_params *p = &c->params;
    const uint16_t infinite = p->dtype == FIG_BF16 ? 0x7f80 : 0x7c00;
    const uint16_t special[] = {0x7fff /* NaN */, (uint16_t)(infinite - 1), infinite};
    uint16_t *v = (uint16_t *)c->v.data() + at + draw(c, 0, p->head_dim - 1);
    if (value_bytes(c) == 1) return;
    if (is_unseen_by_others && draws(c, 50)) *v = special[draw(c, 0, c->is_near ? 2 : 1)];
    if (c->is_near && draws(c, 1)) *v = infinite;
}

/* Fills the tokens of a row that some query sees in this launch. */
static void fill_row(strips_step *c, int32_t row) {
    const fig_attention_params *p = &c->params;
    const int32_t queries = c->narrow[row], length = c->lengths[row], window = p->split.window;
    int32_t first = window > 0 ? std::max(length - queries + 1 - window, 0) : 0;
    first = std::max(first, c->before[row]);
    if (queries == 0 || queries > p->split.row_tokens) first = length;
    for (int32_t token = first; token < length - c->fresh[row]; token++) {
        const int64_t at = token_at(c, row, token);
        fill(c, c->k.data(), p->kv_dtype, at, p->k_cache_strides.token);
        fill(c, c->v.data(), p->kv_dtype, at, p->k_cache_strides.token);
        spoil(c, at, queries > 1 && token == length - 1);
    }
}

static void draw_cache(strips_step *c) {
    fig_attention_params *p = &c->params;
    const int is_dense = (p->flags & FIG_ATTENTION_DENSE) != 0;
    const int32_t row_pages = is_dense ? 1 : (c->length_limit - 1) / p->page_size + 1;
    const int32_t pages = c->rows * row_pages;
    int32_t used = 0;
    p->k_cache_strides.head = p->head_dim;
    p->k_cache_strides.token = p->kv_heads * p->head_dim;
    p->k_cache_strides.page = p->page_size * p->k_cache_strides.token;
    p->v_cache_strides = p->k_cache_strides;
    p->table_stride = row_pages;
    /* Pages that no row has are outside the cache. */
    c->table.assign((size_t)pages, -1);
    for (int32_t row = 0; row < c->rows; row++)
        for (int32_t page = 0; page * p->page_size < c->lengths[row]; page++)
            c->table[(size_t)((c->rows - 1 - row) * row_pages + page)] = used++;
    for (int32_t i = 0; i < pages; i++)
        if (c->table[(size_t)i] >= 0) c->table[(size_t)i] = used - 1 - c->table[(size_t)i];
    p->k_pages = p->v_pages = std::max(is_dense ? c->rows : used, 1);
    p->page_table = is_dense ? NULL : c->table.data();
    const size_t bytes = (size_t)(p->k_pages * p->k_cache_strides.page) * (size_t)value_bytes(c);
    c->k.assign(bytes, 0xff); /* NaN */
    c->v = c->k;
    for (int32_t row = 0; row < c->rows; row++)
        fill_row(c, row);
    p->k_cache = c->k.data();
    p->v_cache = c->v.data();
}

/* Returns how often the results of a vector come. Most rows have one kind of vectors. */
static int32_t draw_when(strips_step *c, int32_t kind) {
    const int32_t any = draw(c, 0, 99);
    if (kind == 0) return BEFORE;
    if (kind == 1) return any < 50 ? DURING : BEFORE;
    return any < 30 ? DURING : any < 80 ? BEFORE : NEVER;
}

/* Draws what prefixes leave in slots. */
static void draw_results(strips_step *c) {
    const fig_attention_params *p = &c->params;
    const float middle = p->sm_scale < 1 ? 0 : 20.0f;
    c->results.assign((size_t)(c->slot_vectors * p->head_dim), NAN);
    c->result_sums.assign((size_t)(c->slot_vectors * 2), NAN);
    for (int32_t row = 0; row < c->rows; row++) {
        const int32_t kind = draw(c, 0, 3), slots = c->tails[row].slots;
        for (int32_t n = 0; n < p->q_heads * (slots - 1); n++) {
            const arrival of = {row, n % p->q_heads, n / p->q_heads, draw_when(c, kind)};
            const int32_t at = c->tails[row].first + of.slot * p->q_heads + of.q_head;
            const float weights = 1 + 9 * std::fabs(fig_random_float(&c->random));
            c->result_sums[(size_t)(2 * at)] = middle + c->apart * fig_random_float(&c->random);
            c->result_sums[(size_t)(2 * at + 1)] = weights;
            for (int32_t i = 0; i < p->head_dim; i++)
                c->results[(size_t)(at * p->head_dim + i)] = weights * fig_random_float(&c->random);
            c->arrivals.insert(c->arrivals.begin() + draw(c, 0, (int32_t)c->arrivals.size()), of);
        }
    }
}

/* Draws what the launch appends, and how it turns q and k: not at all in some steps. */
static void draw_turn(strips_step *c) {
    fig_attention_turn *turn = &c->params.turn;
    const int32_t dims = c->params.head_dim, heads = c->params.kv_heads;
    const int32_t tokens = c->starts[c->rows];
    turn->k_strides.head = dims + 2 * draw(c, 0, 1);
    turn->k_strides.row = heads * turn->k_strides.head + 2 * draw(c, 0, 1);
    turn->v_strides.head = dims;
    turn->v_strides.row = heads * dims;
    c->new_k.resize((size_t)(tokens * turn->k_strides.row) * 2);
    c->new_v.resize((size_t)(tokens * turn->v_strides.row) * 2);
    fill(c, c->new_k.data(), c->params.dtype, 0, tokens * turn->k_strides.row);
    fill(c, c->new_v.data(), c->params.dtype, 0, tokens * turn->v_strides.row);
    turn->k = c->new_k.data();
    turn->v = c->new_v.data();
    turn->rope.rotary_dim = dims;
    turn->angles.table.factor = 1;
    for (int32_t i = 0; i < dims / 2 && draws(c, i > 0 ? 100 : 60); i++)
        turn->angles.table.frequencies[i] = std::pow(500.0, -2.0 * i / dims);
    c->norm.resize((size_t)dims * 4);
    fill(c, c->norm.data(), c->params.dtype, 0, 2 * dims);
    turn->norm_epsilon = 1e-5f;
    if (draws(c, 75)) return;
    turn->q_norm = c->norm.data();
    turn->k_norm = c->norm.data() + dims * 2;
}

/* Moves the last page of a row out of the cache. Nobody may append there. */
static void lose_page(strips_step *c) {
    const fig_attention_params *p = &c->params;
    const int32_t row = draw(c, 0, std::max(c->rows - 1, 0));
    if (p->page_table == NULL || c->rows == 0 || c->lengths[row] == 0) return;
    const int32_t page =
        (c->rows - 1 - row) * p->table_stride + (c->lengths[row] - 1) / p->page_size;
    c->table[(size_t)page] = draws(c, 30) ? -1 : (int32_t)p->k_pages + draw(c, 0, 3);
    c->lost = row;
}

static void draw_step(strips_step *c) {
    fig_attention_params *p = &c->params;
    draw_size(c);
    draw_form(c);
    draw_plan(c);
    draw_cache(c);
    draw_results(c);
    p->q_strides.head = p->head_dim + 2 * draw(c, 0, 1);
    p->q_strides.row = p->q_heads * p->q_strides.head;
    p->out_strides.head = p->head_dim + draw(c, 0, 1) * 2;
    p->out_strides.row = p->q_heads * p->out_strides.head;
    p->lse_stride = p->q_heads;
    const int64_t numbers = c->starts[c->rows] * p->q_strides.row;
    c->q.resize((size_t)numbers * 2);
    fill(c, c->q.data(), p->dtype, 0, numbers);
    p->q = c->q.data();
    c->lost = -1;
    if (TURNS) draw_turn(c);
    if (TURNS && draws(c, 15)) lose_page(c);
    c->sinks = draw_floats(c, p->q_heads, -0.5f);
    c->k_scales = draw_floats(c, p->kv_heads, 0.5f);
    c->v_scales = draw_floats(c, p->kv_heads, 0.5f);
    p->sinks = draws(c, 33) ? c->sinks.data() : NULL;
    p->k_scales = draws(c, 50) ? 1 : p->kv_heads;
    p->v_scales = draws(c, 50) ? 1 : p->kv_heads;
    p->k_scale = draws(c, 30) ? c->k_scales.data() : NULL;
    p->v_scale = draws(c, 30) ? c->v_scales.data() : NULL;
}

#endif

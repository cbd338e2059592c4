/* latent_case.c: see latent_case.h. */
#include "tests/support/kernels/latent_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/latent/latent.h"
#include "planner/split/bounds.h"
#include "tests/support/place.h"
#include "tests/support/worst.h"

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* ---- Forms */

static void draw_lengths(fig_latent_form *form, fig_random *random) {
    const int32_t limit = draw(random, 0, 4) == 0 ? form->length_limit : 3 * form->tile_tokens;
    for (int32_t r = 0; r < form->rows; r++) {
        int32_t *length = &form->lengths[r], *count = &form->counts[r];
        form->contents[r] = r;
        *count = draw(random, 0, form->row_tokens);
        if (draw(random, 0, 4) > 0)
            *length = draw(random, 1, fig_size_min(limit, form->length_limit));
        const int32_t least = form->counted ? *count : form->row_tokens;
        if (*length > 0 && *length < least) *length = least;
        if (form->counted && *count == 0) *length = 0;
    }
}

fig_latent_form fig_latent_form_draw(fig_random *random, uint64_t seed) {
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    static const int32_t page_sizes[] = {0, 1, 3, 16, 64}, tiles[] = {16, 64, 128};
    fig_latent_form form = {.seed = seed,
                            .dtype = dtypes[draw(random, 0, 2)],
                            .q_heads = 8 * draw(random, 1, 3),
                            .page_size = page_sizes[draw(random, 0, 4)],
                            .tile_tokens = tiles[draw(random, 0, 2)],
                            .workers = draw(random, 1, 16),
                            .row_limit = draw(random, 1, 5),
                            .row_tokens = draw(random, 0, 1) ? 1 : draw(random, 2, 16),
                            .fixed = draw(random, 0, 3) == 0,
                            .sinks = draw(random, 0, 2) == 0,
                            .length_limit = 200,
                            .outside = draw(random, 0, 3) == 0 ? 3 : 0,
                            .counted = draw(random, 0, 3) == 0};
    form.kv_dtype = form.dtype != FIG_F32 && draw(random, 0, 1) ? FIG_E4M3 : form.dtype;
    if (draw(random, 0, 2) == 0) form.window = draw(random, 1, 2 * form.tile_tokens + 2);
    form.rows = draw(random, 0, form.row_limit);
    draw_lengths(&form, random);
    form.apart = draw(random, 0, 2);
    return form;
}

fig_latent_form fig_latent_form_draw_wide(fig_random *random, uint64_t seed) {
    static const int32_t page_sizes[] = {16, 32, 48, 64, 192}, tokens[] = {1, 1, 2, 3, 8, 9, 16};
    static const int32_t heads[] = {8, 16, 24, 32, 40, 64, 128};
    fig_latent_form form = {.seed = seed,
                            .dtype = draw(random, 0, 1) ? FIG_BF16 : FIG_F16,
                            .q_heads = heads[draw(random, 0, 6)],
                            .page_size = page_sizes[draw(random, 0, 4)],
                            .tile_tokens = FIG_LATENT_TILE_TOKENS,
                            .workers = draw(random, 1, 40),
                            .row_limit = draw(random, 1, 6),
                            .row_tokens = tokens[draw(random, 0, 6)],
                            .sinks = draw(random, 0, 2) == 0,
                            .length_limit = draw(random, 0, 2) ? 200 : 900,
                            .outside = draw(random, 0, 3) == 0 ? 3 : 0,
                            .is_aligned = 1,
                            .counted = draw(random, 0, 2) == 0};
    form.kv_dtype = draw(random, 0, 2) == 0 ? FIG_E4M3 : form.dtype;
    if (draw(random, 0, 2) == 0) form.window = draw(random, 1, 200);
    form.rows = draw(random, 1, form.row_limit);
    draw_lengths(&form, random);
    form.apart = draw(random, 0, 2);
    form.groups = draw(random, 0, 2);
    form.blocks = draw(random, 0, 1) ? 2 << draw(random, 0, 3) : 0;
    return form;
}

fig_plan_queries fig_latent_form_queries(const fig_latent_form *form, int32_t row) {
    fig_plan_queries queries = {row * form->row_tokens, form->row_tokens};
    if (!form->counted) return queries;
    queries.first = 0;
    queries.count = row < form->rows ? form->counts[row] : 0;
    for (int32_t r = 0; r < row; r++)
        queries.first += form->counts[r];
    return queries;
}

/* ---- Memory */

static fig_random content_of(const fig_latent_case *c, int32_t content, int32_t index) {
    fig_random random = fig_random_seed(c->form.seed + 17);
    random.state += fig_random_bits(&random) * (uint64_t)(uint32_t)content;
    random.state += fig_random_bits(&random) * (uint64_t)(uint32_t)index;
    return random;
}

static int64_t stride_of(fig_latent_case *c, int64_t width) {
    return fig_reference_stride(&c->random, c->unit, width);
}

/* Fills a token with random codes, scales and values for RoPE, none of which is NaN. */
static void fill_codes(uint8_t *token, fig_random *content) {
    for (int32_t i = 0; i < FIG_LATENT_DIM; i++)
        token[i] = fig_numeric_e4m3(100 * fig_random_float(content));
    for (int32_t i = 0; i < FIG_LATENT_SCALES; i++) {
        const float scale = 0.005f + 0.005f * fabsf(fig_random_float(content));
        memcpy(token + FIG_LATENT_SCALES_AT + 4 * i, &scale, sizeof scale);
    }
    for (int32_t i = 0; i < FIG_LATENT_ROPE_DIM; i++) {
        const uint16_t code = fig_numeric_bf16(fig_random_float(content));
        memcpy(token + FIG_LATENT_ROPE_AT + 2 * i, &code, sizeof code);
    }
}

static void fill_token(fig_latent_case *c, int64_t offset, fig_random content) {
    if (c->form.kv_dtype == FIG_E4M3) {
        fill_codes((uint8_t *)c->cache.data + offset, &content);
    } else {
        fig_reference_array_fill(&c->cache, offset, FIG_LATENT_KEY_DIM, &content, 1);
    }
}

static truth_cache truth_cache_of(const fig_latent_case *c) {
    const fig_latent_attention_params *p = &c->params;
    return (truth_cache){.base = p->k_cache,
                         .dtype = (fig_dtype)p->kv_dtype,
                         .page_stride = p->k_cache_strides.page,
                         .token_stride = p->k_cache_strides.token,
                         .pages = p->k_pages,
                         .page_size = p->page_size,
                         .page_table = p->page_table,
                         .table_stride = p->table_stride};
}

/* Fills the tokens that a kernel reads: those that a query of their row sees and, if pages lie
 * outside the cache, those of page 0. */
static void fill_cache(fig_latent_case *c) {
    const fig_latent_form *f = &c->form;
    const truth_cache where = truth_cache_of(c);
    for (int32_t t = 0; t < where.page_size && f->outside > 0; t++)
        fill_token(c, t * where.token_stride, content_of(c, -1, t));
    for (int32_t r = 0; r < f->rows; r++) {
        const int32_t queries = fig_latent_form_queries(f, r).count;
        const int32_t first = f->window == 0 ? 0 : f->lengths[r] - queries + 1 - f->window;
        for (int32_t t = first < 0 ? 0 : first; t < f->lengths[r]; t++) {
            const int64_t offset = truth_cache_offset(&where, c->sequences[r], t);
            if (offset >= (f->outside > 0 ? where.page_stride : 0))
                fill_token(c, offset, content_of(c, f->contents[r], 1000000 + t));
        }
    }
}

/* Assigns pages in random order, except page 0, which stands for pages outside the cache. Returns
 * the number of pages. */
static int32_t draw_table(fig_latent_case *c, int32_t row_pages) {
    static const int32_t elsewhere[] = {-1, INT32_MIN, INT32_MAX};
    const fig_latent_form *f = &c->form;
    const int32_t stride = row_pages + 2, count = f->row_limit * row_pages;
    int32_t *pages = malloc((size_t)count * sizeof *pages);
    assert_non_null(pages);
    for (int32_t i = 0; i < count; i++)
        pages[i] = i + 1;
    c->table = fig_reference_array_make(FIG_I32, 2 * (f->row_limit + 1) * stride);
    for (int32_t i = 0; i < count; i++) {
        const int32_t other = draw(&c->random, i, count - 1);
        int32_t page = pages[other];
        pages[other] = pages[i];
        if (draw(&c->random, 0, 15) < f->outside) page = elsewhere[draw(&c->random, 0, 2)];
        const int32_t sequence = i / row_pages < f->rows ? c->sequences[i / row_pages] : 0;
        fig_reference_array_set(&c->table, sequence * stride + i % row_pages, page);
    }
    free(pages);
    c->params.page_table = c->table.data;
    c->params.table_stride = stride;
    return count + 1;
}

static void open_cache(fig_latent_case *c) {
    fig_latent_attention_params *p = &c->params;
    const fig_latent_form *f = &c->form;
    int32_t pages = 2 * f->row_limit + 2;
    p->page_size = f->page_size == 0 ? f->length_limit : f->page_size;
    if (f->page_size > 0) pages = draw_table(c, (f->length_limit - 1) / f->page_size + 1);
    p->k_pages = pages;
    const int64_t unit = f->is_aligned && p->kv_dtype == FIG_E4M3 ? 16 : c->unit;
    p->k_cache_strides.token =
        fig_reference_stride(&c->random, unit, fig_latent_width(p->kv_dtype));
    p->k_cache_strides.page = stride_of(c, p->page_size * p->k_cache_strides.token);
    c->cache = fig_reference_array_make(p->kv_dtype, p->k_pages * p->k_cache_strides.page);
    p->k_cache = c->cache.data;
    fill_cache(c);
}

int64_t fig_latent_case_out(const fig_latent_case *c, int32_t row, int32_t query, int32_t q_head) {
    const int64_t at = fig_latent_form_queries(&c->form, row).first + query;
    return at * c->params.out_strides.row + q_head * c->params.out_strides.head;
}

static int64_t lse_at(const fig_latent_case *c, int32_t row, int32_t query, int32_t q_head) {
    const int64_t at = fig_latent_form_queries(&c->form, row).first + query;
    return at * c->params.lse_stride + q_head;
}

/* Makes memory for q of this many rows, in one tensor or in two. */
static void open_q(fig_latent_case *c, int32_t rows) {
    fig_latent_attention_params *p = &c->params;
    fig_row_strides *latent = &p->q_strides, *rope = &p->q_rope_strides;
    const int64_t width = c->form.apart ? FIG_LATENT_DIM : FIG_LATENT_KEY_DIM;
    latent->head = stride_of(c, width);
    latent->row = stride_of(c, p->q_heads * latent->head);
    int64_t count = rows * latent->row;
    if (c->form.apart == 2) {
        latent->row = stride_of(c, width);
        latent->head = stride_of(c, rows * latent->row);
        count = p->q_heads * latent->head;
    }
    c->q = fig_reference_array_make(p->dtype, count);
    p->q = c->q.data;
    if (!c->form.apart) return;
    rope->head = stride_of(c, FIG_LATENT_ROPE_DIM);
    rope->row = stride_of(c, p->q_heads * rope->head);
    c->q_rope = fig_reference_array_make(p->dtype, rows * rope->row);
    p->q_rope = c->q_rope.data;
}

static void fill_q(fig_latent_case *c, int64_t row, int32_t head, fig_random content) {
    const fig_latent_attention_params *p = &c->params;
    const int64_t at = row * p->q_strides.row + head * p->q_strides.head;
    fig_reference_array_fill(&c->q, at, FIG_LATENT_DIM, &content, 1);
    if (c->form.apart) {
        fig_reference_array_fill(&c->q_rope,
                                 row * p->q_rope_strides.row + head * p->q_rope_strides.head,
                                 FIG_LATENT_ROPE_DIM, &content, 1);
    } else {
        fig_reference_array_fill(&c->q, at + FIG_LATENT_DIM, FIG_LATENT_ROPE_DIM, &content, 1);
    }
}

static void open_rows(fig_latent_case *c) {
    fig_latent_attention_params *p = &c->params;
    const fig_latent_form *f = &c->form;
    p->out_strides.head = stride_of(c, FIG_LATENT_DIM);
    p->out_strides.row = stride_of(c, p->q_heads * p->out_strides.head);
    p->lse_stride = p->q_heads + draw(&c->random, 0, 3);
    const int32_t all = fig_latent_form_queries(f, f->rows).first;
    const int32_t limit = f->counted ? all : f->row_limit * f->row_tokens;
    open_q(c, limit);
    c->out = fig_reference_array_make(p->dtype, limit * p->out_strides.row);
    c->lse = fig_reference_array_make(FIG_F32, limit * p->lse_stride);
    for (int32_t row = 0; row < f->rows; row++) {
        const fig_plan_queries queries = fig_latent_form_queries(f, row);
        for (int32_t n = 0; n < queries.count * p->q_heads; n++) {
            const int32_t query = n / p->q_heads, head = n % p->q_heads;
            fill_q(c, queries.first + query, head, content_of(c, f->contents[row], n));
            fig_reference_array_allow(&c->out, fig_latent_case_out(c, row, query, head),
                                      FIG_LATENT_DIM);
            fig_reference_array_allow(&c->lse, lse_at(c, row, query, head), 1);
        }
    }
    p->out = c->out.data;
    p->lse = c->lse.data;
}

/* ---- Split */

enum { WORKERS_MOST = 132 }; /* the SMs of an H200 */

static fig_reference_array make_zeros(int32_t dtype, int64_t count) {
    fig_reference_array array = fig_reference_array_make(dtype, count);
    memset(array.data, 0, (size_t)count * sizeof(uint32_t));
    fig_reference_array_keep(&array);
    return array;
}

/* Returns the tiles of exactly this step, so that a partial past them is past the end of its
 * array. */
static int32_t tiles_of(const fig_latent_form *f, const fig_split_shape *split) {
    int32_t tiles = 0;
    for (int32_t r = 0; r < f->rows; r++)
        tiles += (f->counted ? fig_split_tiles_of(split, f->lengths[r], f->counts[r])
                             : fig_split_tiles_ahead(split, f->lengths[r], 0)) *
                 split->groups;
    return tiles;
}

static int32_t heads_of_group(const fig_latent_form *f) {
    switch (f->groups) {
    case 1: return fig_latent_least_heads(f->q_heads, f->row_tokens);
    case 2: return fig_latent_pair_heads(f->q_heads, f->row_tokens);
    default: return fig_latent_group_heads(f->q_heads, f->row_tokens);
    }
}

static void open_split(fig_latent_case *c) {
    fig_latent_attention_params *p = &c->params;
    const fig_latent_form *f = &c->form;
    const int32_t heads = heads_of_group(f);
    const int32_t clustered = f->row_limit * f->q_heads / heads * f->blocks;
    p->is_short = clustered > 0 && clustered <= WORKERS_MOST;
    p->split = (fig_split_shape){.row_limit = f->row_limit,
                                 .groups = f->q_heads / heads,
                                 .tile_tokens = f->tile_tokens,
                                 .workers = p->is_short ? clustered : f->workers,
                                 .window = f->window,
                                 .row_tokens = f->row_tokens,
                                 .fixed = f->fixed};
    p->split.tile_limit = tiles_of(f, &p->split);
    c->shape = (fig_plan_shape){.row_limit = f->row_limit,
                                .row_tokens = f->row_tokens,
                                .class_count = 1,
                                .splits = {p->split},
                                .once = {40}};
    if (f->counted) c->shape.query_limit = f->row_limit * f->row_tokens;
    c->plan =
        fig_reference_plan(&c->shape, &(fig_plan_step){.rows = f->rows,
                                                       .lengths = f->lengths,
                                                       .sequences = c->sequences,
                                                       .queries = f->counted ? f->counts : NULL,
                                                       .row_tokens = f->row_tokens});
    const int64_t vectors = (int64_t)fig_split_partial_limit(&p->split) * f->row_tokens * heads;
    c->partials = make_zeros(FIG_F32, vectors * FIG_LATENT_DIM);
    c->sums = make_zeros(FIG_F32, vectors * 2);
    c->counters = make_zeros(FIG_I32, f->row_limit * p->split.groups);
    p->plan = c->plan;
    p->partials = c->partials.data;
    p->sums = c->sums.data;
    p->counters = c->counters.data;
    p->lengths_offset = c->shape.layout.lengths;
    p->sequences_offset = c->shape.layout.sequences;
    p->prefix_offset = c->shape.layout.prefix[0];
    p->starts_offset = c->shape.layout.starts[0];
    p->queries_offset = c->shape.layout.queries;
}

/* ---- Cases */

void fig_latent_case_open(fig_latent_case *c, const fig_latent_form *form, fig_random random) {
    *c = (fig_latent_case){.form = *form, .random = random};
    fig_latent_attention_params *p = &c->params;
    assert_true(form->rows <= form->row_limit && form->row_limit <= FIG_LATENT_CASE_ROWS);
    c->unit = form->is_aligned ? 8 : fig_reference_unit(&c->random, form->dtype);
    p->q_heads = form->q_heads;
    p->dtype = form->dtype;
    p->kv_dtype = form->kv_dtype;
    p->sm_scale = (float)(1 / sqrt(FIG_LATENT_KEY_DIM));
    for (int32_t r = 0; r < form->rows; r++)
        c->sequences[r] = 2 * r + 1 + draw(&c->random, 0, 1);
    open_cache(c);
    open_rows(c);
    if (form->sinks) {
        fig_random content = content_of(c, -2, 0);
        c->sinks = fig_reference_array_make(FIG_F32, p->q_heads);
        fig_reference_array_fill(&c->sinks, 0, p->q_heads, &content, 1);
        p->sinks = c->sinks.data;
    }
    open_split(c);
    fig_reference_array *inputs[] = {&c->q, &c->cache, &c->out, &c->lse, &c->q_rope};
    const size_t count = sizeof inputs / sizeof inputs[0] - (form->apart ? 0 : 1);
    for (size_t i = 0; i < count; i++)
        fig_reference_array_keep(inputs[i]);
}

void fig_latent_case_close(fig_latent_case *c) {
    fig_reference_array *arrays[] = {&c->q,   &c->q_rope, &c->cache,    &c->table, &c->out,
                                     &c->lse, &c->sinks,  &c->partials, &c->sums,  &c->counters};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fig_reference_array_free(arrays[i]);
    fig_place_free(c->plan);
}

void fig_latent_case_run(fig_latent_case *c, fig_random *order) {
    fig_reference_launch(FIG_OP_LATENT_ATTENTION, &c->params, order);
    fig_reference_array_check(&c->q, "q");
    fig_reference_array_check(&c->q_rope, "q_rope");
    fig_reference_array_check(&c->cache, "cache");
    fig_reference_array_check(&c->out, "out");
    fig_reference_array_check(&c->lse, "lse");
    fig_reference_array_check(&c->partials, "partials");
    fig_reference_array_check(&c->sums, "sums");
    fig_reference_array_check(&c->counters, "counters");
}

static void fail_at(const fig_latent_case *c, const char *what, int32_t row, int32_t query,
                    int32_t head, int32_t i, double got, double want) {
    const fig_latent_form *f = &c->form;
    fail_msg("%s[%d][%d][%d][%d] is %.9g, it must be %.9g: dtype %d cache %d heads %d page %d tile "
             "%d workers %d rows %d row_tokens %d window %d fixed %d sinks %d counted %d apart %d "
             "length %d, "
             "seed 0x%llx",
             what, row, query, head, i, got, want, f->dtype, f->kv_dtype, f->q_heads, f->page_size,
             f->tile_tokens, f->workers, f->rows, f->row_tokens, f->window, f->fixed, f->sinks,
             f->counted, f->apart, f->lengths[row], (unsigned long long)f->seed);
}

static void check_vector(const fig_latent_case *c, int32_t row, int32_t query, int32_t head) {
    const fig_latent_attention_params *p = &c->params;
    const fig_latent_form *f = &c->form;
    const fig_dtype dtype = (fig_dtype)p->dtype;
    const fig_plan_queries queries = fig_latent_form_queries(f, row);
    const double sink = f->sinks ? (double)p->sinks[head] : 0;
    truth_latent_args args = {
        .q = {p->q, dtype, p->q_strides.row, p->q_strides.head},
        .q_rope = {p->q_rope, dtype, p->q_rope_strides.row, p->q_rope_strides.head},
        .cache = truth_cache_of(c),
        .row = queries.first + query,
        .sequence = c->sequences[row],
        .length = f->lengths[row] == 0 ? 0 : f->lengths[row] - queries.count + 1 + query,
        .q_head = head,
        .window = f->window,
        .sm_scale = (double)p->sm_scale,
        .sink = f->sinks ? &sink : NULL};
    truth_latent_result want;
    truth_latent(&args, &want);
    for (int32_t i = 0; i < FIG_LATENT_DIM; i++) {
        const double got = truth_load(p->out, dtype, fig_latent_case_out(c, row, query, head) + i);
        const double m = want.magnitude[i], error = fabs(got - want.out[i]);
        const double rounded = fig_place_weight_error(dtype, (fig_dtype)f->kv_dtype) +
                               3 * fig_place_code_error(dtype, (fig_dtype)f->kv_dtype);
        double tolerance = dtype == FIG_F32 ? 2e-5 * m : truth_ulp(dtype, m) + rounded * m;
        if (f->lengths[row] == 0) tolerance = 0;
        fig_worst_note("latent_attention", dtype, error, tolerance);
        if (!(error <= tolerance)) fail_at(c, "out", row, query, head, i, got, want.out[i]);
    }
    if (p->lse == NULL) return;
    const double lse = (double)p->lse[lse_at(c, row, query, head)];
    const double of_codes = fig_place_code_error(dtype, (fig_dtype)f->kv_dtype);
    const double tolerance = isfinite(want.lse) ? (2e-5 + of_codes) * (1 + fabs(want.lse)) : 0;
    if (lse == want.lse || fabs(lse - want.lse) <= tolerance) return;
    fail_at(c, "lse", row, query, head, 0, lse, want.lse);
}

void fig_latent_case_check(fig_latent_case *c, int32_t most) {
    const fig_latent_form *f = &c->form;
    for (int32_t row = 0; row < f->rows; row++) {
        const int32_t vectors = fig_latent_form_queries(f, row).count * f->q_heads;
        const int32_t few = most / f->rows + 1;
        for (int32_t i = 0; i < fig_size_min(vectors, few); i++) {
            const int32_t n = vectors <= few ? i : draw(&c->random, 0, vectors - 1);
            check_vector(c, row, n / f->q_heads, n % f->q_heads);
        }
    }
}

/* attention_case.c: see attention_case.h. */
#include "tests/support/kernels/attention_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "planner/split/bounds.h"
#include "tests/support/place.h"
#include "tests/support/worst.h"

static const int32_t page_numbers_outside[] = {-1, INT32_MIN, INT32_MAX};

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* ---- Drawing the form */

fig_attention_form fig_attention_form_draw(fig_random *random, uint64_t seed) {
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    static const int32_t head_dims[] = {64, 80, 96, 128, 256};
    static const int32_t page_sizes[] = {0, 1, 3, 8, 16, 64}, tiles[] = {4, 16, 32, 64, 256};
    fig_attention_form form = {.seed = seed,
                               .dtype = dtypes[draw(random, 0, 2)],
                               .head_dim = head_dims[draw(random, 0, 4)],
                               .heads_per_worker = draw(random, 1, 2),
                               .ratio = draw(random, 1, 16),
                               .page_size = page_sizes[draw(random, 0, 5)],
                               .tile_tokens = tiles[draw(random, 0, 4)],
                               .workers = draw(random, 1, 24),
                               .row_limit = draw(random, 1, 7),
                               .row_tokens = 1,
                               .length_limit = 300,
                               .outside = draw(random, 0, 3) == 0};
    form.kv_dtype = form.dtype;
    form.kv_heads = form.heads_per_worker * draw(random, 1, 2);
    form.rows = draw(random, 0, form.row_limit);
    int32_t limit = draw(random, 0, 4) == 0 ? form.length_limit : 3 * form.tile_tokens;
    for (int32_t r = 0; r < form.rows; r++) {
        form.contents[r] = r;
        if (draw(random, 0, 4) > 0)
            form.lengths[r] = draw(random, 1, fig_size_min(limit, form.length_limit));
    }
    return form;
}

void fig_attention_form_draw_features(fig_attention_form *form, fig_random *random) {
    form->layout = draw(random, 0, 1);
    form->pool = draw(random, 0, 2);
    form->packed = draw(random, 0, 1);
    form->sinks = draw(random, 0, 2) == 0;
    form->alibi = draw(random, 0, 2) == 0;
    if (draw(random, 0, 2) == 0) form->soft_cap = 1.0f + 30.0f * fabsf(fig_random_float(random));
    if (draw(random, 0, 2) == 0) form->window = draw(random, 1, 2 * form->tile_tokens + 2);
    if (draw(random, 0, 1) == 0) form->row_tokens = draw(random, 2, 16);
    form->fixed = draw(random, 0, 3) == 0;
    if (form->dtype != FIG_F32 && draw(random, 0, 1)) {
        form->kv_dtype = draw(random, 0, 1) ? FIG_E4M3 : FIG_E5M2;
        form->scales = draw(random, 0, 2);
    }
    for (int32_t r = 0; r < form->rows; r++)
        if (form->lengths[r] > 0 && form->lengths[r] < form->row_tokens)
            form->lengths[r] = form->row_tokens;
}

void fig_attention_form_draw_counts(fig_attention_form *form, fig_random *random) {
    form->counted = 1;
    for (int32_t r = 0; r < form->rows; r++) {
        const int32_t count = draw(random, 0, form->row_tokens), length = form->lengths[r];
        form->counts[r] = count;
        /* The row has no tokens except its queries. */
        if (length > 0 && draw(random, 0, 4) == 0) form->lengths[r] = count;
        if (length > 0 && length < count) form->lengths[r] = count;
        if (count == 0) form->lengths[r] = 0;
    }
}

fig_plan_queries fig_attention_form_queries(const fig_attention_form *form, int32_t row) {
    fig_plan_queries queries = {row * form->row_tokens, form->row_tokens};
    if (!form->counted) return queries;
    queries.first = 0;
    queries.count = row < form->rows ? form->counts[row] : 0;
    for (int32_t r = 0; r < row; r++)
        queries.first += form->counts[r];
    return queries;
}

/* ---- Memory */

/* Returns the generator of one vector's contents. They do not depend on the vector's place. */
static fig_random content_of(const fig_attention_case *c, int32_t kind, int32_t content,
                             int32_t index) {
    fig_random random = fig_random_seed(c->form.seed ^ (uint64_t)kind << 60);
    random.state += fig_random_bits(&random) * (uint64_t)(uint32_t)content;
    random.state += fig_random_bits(&random) * (uint64_t)(uint32_t)index;
    return random;
}

static int64_t stride_of(fig_attention_case *c, int64_t width) {
    return fig_reference_stride(&c->random, c->unit, width);
}

static fig_row_strides row_strides(fig_attention_case *c, int32_t heads) {
    int64_t head = stride_of(c, c->form.head_dim);
    return (fig_row_strides){.row = stride_of(c, heads * head), .head = head};
}

/* Kernels demand of q's strides only that they keep pairs of elements together, so q may have any
 * such strides. */
static fig_row_strides q_strides(fig_attention_case *c, int32_t heads) {
    const int64_t unit = c->unit;
    if (unit > 2 && draw(&c->random, 0, 3) == 0) c->unit = 2;
    const fig_row_strides strides = row_strides(c, heads);
    c->unit = unit;
    return strides;
}

static fig_cache_strides cache_strides(fig_attention_case *c) {
    fig_cache_strides strides;
    if (c->form.layout == FIG_NHD) {
        strides.head = stride_of(c, c->form.head_dim);
        strides.token = stride_of(c, c->form.kv_heads * strides.head);
        strides.page = stride_of(c, c->params.page_size * strides.token);
    } else {
        strides.token = stride_of(c, c->form.head_dim);
        strides.head = stride_of(c, c->params.page_size * strides.token);
        strides.page = stride_of(c, c->form.kv_heads * strides.head);
    }
    return strides;
}

static truth_cache truth_cache_of(const fig_attention_case *c, int is_v) {
    const fig_attention_params *p = &c->params;
    const fig_cache_strides *strides = is_v ? &p->v_cache_strides : &p->k_cache_strides;
    return (truth_cache){.base = is_v ? p->v_cache : p->k_cache,
                         .dtype = (fig_dtype)p->kv_dtype,
                         .page_stride = strides->page,
                         .token_stride = strides->token,
                         .head_stride = strides->head,
                         .pages = is_v ? p->v_pages : p->k_pages,
                         .page_size = p->page_size,
                         .page_table = p->page_table,
                         .table_stride = p->table_stride};
}

/* Returns the array that holds K or V. Sets *base to the index of that cache's first element. */
static fig_reference_array *array_of(fig_attention_case *c, int is_v, int64_t *base) {
    fig_reference_array *array = is_v && c->form.pool == FIG_CASE_APART ? &c->v : &c->k;
    const char *first = is_v ? c->params.v_cache : c->params.k_cache;
    *base = (first - (const char *)array->data) / fig_numeric_bytes(c->form.kv_dtype);
    return array;
}

static void fill_token(fig_attention_case *c, int is_v, int64_t offset, fig_random content) {
    int64_t base;
    fig_reference_array *array = array_of(c, is_v, &base);
    int64_t stride = is_v ? c->params.v_cache_strides.head : c->params.k_cache_strides.head;
    for (int32_t h = 0; h < c->form.kv_heads; h++)
        fig_reference_array_fill(array, base + offset + h * stride, c->form.head_dim, &content, 1);
}

/* Returns 1 if the form's mask hides the token from every query and head of the row. */
static int is_hidden(const fig_attention_form *f, int32_t row, int32_t token) {
    const int32_t queries = fig_attention_form_queries(f, row).count, length = f->lengths[row];
    for (int32_t n = 0; n < queries * f->kv_heads * f->ratio && f->mask_truth != NULL; n++) {
        const int32_t heads = f->kv_heads * f->ratio, head = n % heads;
        const truth_score_place at = {
            length - queries + n / heads, token, length, head, head / f->ratio, row, NULL};
        if (f->mask_truth(&at)) return 0;
    }
    return f->mask_truth != NULL;
}

/* Fills the tokens that a kernel reads. Page 0 is read in place of pages outside the cache, so all
 * of it is filled. In other pages, the tokens that a query of their row sees are filled. */
static void fill_cache(fig_attention_case *c, int is_v) {
    const fig_attention_form *f = &c->form;
    truth_cache where = truth_cache_of(c, is_v);
    int32_t whole_pages = f->shared_pages > 0 ? f->shared_pages + 1 : f->outside > 0 ? 1 : 0;
    for (int32_t page = 0; page < whole_pages; page++)
        for (int32_t t = 0; t < where.page_size; t++)
            fill_token(c, is_v, page * where.page_stride + t * where.token_stride,
                       content_of(c, 1 + is_v, -1 - page, t));
    for (int32_t r = 0; r < f->rows && f->shared_pages == 0; r++) {
        const int32_t queries = fig_attention_form_queries(f, r).count;
        int32_t first = f->window == 0 ? 0 : f->lengths[r] - queries + 1 - f->window;
        for (int32_t t = first < 0 ? 0 : first; t < f->lengths[r]; t++) {
            int64_t offset = truth_cache_offset(&where, c->sequences[r], t);
            if (offset >= (f->outside > 0 ? where.page_stride : 0) && !is_hidden(f, r, t))
                fill_token(c, is_v, offset, content_of(c, 1 + is_v, f->contents[r], t));
        }
    }
}

/* Assigns pages in random order. Page 0 is not among them, since it stands for pages outside the
 * cache. The memory of the table ends with the entries of its last sequence, not with the stride.
 * Returns the number of pages. */
static int32_t draw_table(fig_attention_case *c, int32_t row_pages) {
    const fig_attention_form *f = &c->form;
    int32_t stride = row_pages + 2, count = f->row_limit * row_pages;
    int32_t *pages = malloc((size_t)count * sizeof *pages);
    assert_non_null(pages);
    for (int32_t i = 0; i < count; i++)
        pages[i] = f->shared_pages > 0 ? draw(&c->random, 1, f->shared_pages) : i + 1;
    c->table = fig_reference_array_make(FIG_I32, 2 * f->row_limit * stride + row_pages);
    for (int32_t i = 0; i < count; i++) {
        int32_t other = draw(&c->random, i, count - 1), page = pages[other];
        pages[other] = pages[i];
        if (draw(&c->random, 0, 15) < f->outside)
            page = page_numbers_outside[draw(&c->random, 0, 2)];
        int32_t sequence = i / row_pages < f->rows ? c->sequences[i / row_pages] : 0;
        fig_reference_array_set(&c->table, sequence * stride + i % row_pages, page);
    }
    free(pages);
    c->params.page_table = c->table.data;
    c->params.table_stride = stride;
    return (f->shared_pages > 0 ? f->shared_pages : count) + 1;
}

/* Puts both caches into c->k. Either each page's V follows its K, or all of V follows all of K. */
static void open_pool(fig_attention_case *c) {
    fig_attention_params *p = &c->params;
    int64_t page = p->k_cache_strides.page, offset = page;
    if (c->form.pool == FIG_CASE_PAIRS) {
        p->k_cache_strides.page = 2 * page;
    } else {
        offset = p->k_pages * page;
    }
    p->v_cache_strides = p->k_cache_strides;
    p->v_pages = p->k_pages;
    c->k = fig_reference_array_make(p->kv_dtype, 2 * p->k_pages * page);
    p->k_cache = c->k.data;
    p->v_cache = (const char *)c->k.data + offset * fig_numeric_bytes(p->kv_dtype);
}

/* A sequence past the last page of a dense cache is read as sequence 0, which is no row's. */
static void open_caches(fig_attention_case *c) {
    fig_attention_params *p = &c->params;
    const fig_attention_form *f = &c->form;
    int32_t pages = 2 * f->row_limit + 2;
    p->page_size = f->page_size == 0 ? f->length_limit : f->page_size;
    if (f->page_size == 0) p->flags |= FIG_ATTENTION_DENSE;
    if (f->page_size > 0) pages = draw_table(c, (f->length_limit - 1) / f->page_size + 1);
    p->k_pages = pages - (f->outside ? draw(&c->random, 0, pages / 4) : 0);
    p->v_pages = pages - (f->outside ? draw(&c->random, 0, pages / 4) : 0);
    p->k_cache_strides = cache_strides(c);
    p->v_cache_strides = cache_strides(c);
    if (f->pool == FIG_CASE_APART) {
        c->k = fig_reference_array_make(p->kv_dtype, p->k_pages * p->k_cache_strides.page);
        c->v = fig_reference_array_make(p->kv_dtype, p->v_pages * p->v_cache_strides.page);
        p->k_cache = c->k.data;
        p->v_cache = c->v.data;
    } else {
        open_pool(c);
    }
    fill_cache(c, 0);
    fill_cache(c, 1);
}

/* A query token, given by its row and its number in that row. */
typedef struct case_token {
    int32_t row, query;
} case_token;

static int32_t token_count(const fig_attention_form *f) {
    return fig_attention_form_queries(f, f->rows).first;
}

static case_token token_of(const fig_attention_form *f, int32_t number) {
    case_token token = {0, number};
    while (token.query >= fig_attention_form_queries(f, token.row).count)
        token.query -= fig_attention_form_queries(f, token.row++).count;
    return token;
}

static void open_rows(fig_attention_case *c) {
    fig_attention_params *p = &c->params;
    const fig_attention_form *f = &c->form;
    p->q_strides = q_strides(c, p->q_heads + (f->packed ? 2 * p->kv_heads : 0));
    p->out_strides = row_strides(c, p->q_heads);
    p->lse_stride = p->q_heads + draw(&c->random, 0, 3);
    const int32_t limit = f->counted ? token_count(f) : f->row_limit * f->row_tokens;
    c->q = fig_reference_array_make(p->dtype, limit * p->q_strides.row);
    c->out = fig_reference_array_make(p->dtype, limit * p->out_strides.row);
    c->lse = fig_reference_array_make(FIG_F32, limit * p->lse_stride);
    for (int32_t n = 0; n < token_count(f) * p->q_heads; n++) {
        const case_token token = token_of(f, n / p->q_heads);
        int32_t row = token.row, head = n % p->q_heads, query = token.query;
        int64_t from = (n / p->q_heads) * p->q_strides.row + head * p->q_strides.head;
        fig_random content = content_of(c, 3, f->contents[row], query * p->q_heads + head);
        fig_reference_array_fill(&c->q, from, p->head_dim, &content, 1);
        fig_reference_array_allow(&c->out, fig_attention_case_out(c, row, query, head),
                                  p->head_dim);
        fig_reference_array_allow(&c->lse, fig_attention_case_lse(c, row, query, head), 1);
    }
    p->q = c->q.data;
    p->out = c->out.data;
    p->lse = c->lse.data;
}

static const float *open_numbers(fig_attention_case *c, fig_reference_array *array, int32_t count,
                                 int32_t kind) {
    fig_random random = content_of(c, kind, 0, 0);
    *array = fig_reference_array_make(FIG_F32, count);
    fig_reference_array_fill(array, 0, count, &random, 1);
    return array->data;
}

/* Draws ALiBi's slopes, between 0 and 1 and a few of them negative, and scales from 1/16 to 3. */
static void open_features(fig_attention_case *c) {
    fig_attention_params *p = &c->params;
    const fig_attention_form *f = &c->form;
    if (f->sinks) p->sinks = open_numbers(c, &c->sinks, p->q_heads, 4);
    if (f->alibi) {
        p->alibi = open_numbers(c, &c->alibi, p->q_heads, 5);
        for (int32_t h = 0; h < p->q_heads; h++)
            fig_reference_array_set(&c->alibi, h,
                                    h % 5 == 4 ? -0.01 : exp2(-8.0 * (h + 1) / p->q_heads));
    }
    if (f->scales == FIG_CASE_UNSCALED) return;
    p->k_scales = p->v_scales = f->scales == FIG_CASE_PER_HEAD ? p->kv_heads : 1;
    p->k_scale = open_numbers(c, &c->k_scale, p->k_scales, 6);
    p->v_scale = open_numbers(c, &c->v_scale, p->v_scales, 7);
    for (int32_t h = 0; h < p->k_scales; h++) {
        fig_reference_array_set(&c->k_scale, h, 0.0625 + fabsf(p->k_scale[h]));
        fig_reference_array_set(&c->v_scale, h, 0.0625 + fabsf(p->v_scale[h]));
    }
}

/* ---- Split */

/* Returns the row's length at the time when the split was made. */
static int32_t length_before(const fig_attention_form *f, int32_t row) {
    return f->lengths[row] == 0 ? 0 : f->lengths[row] - f->launch * f->row_tokens;
}

static int32_t ahead_of(const fig_attention_form *f) {
    return f->horizon > 1 ? (f->horizon - 1) * f->row_tokens : 0;
}

/* Returns the tiles of this very step, so that arrays end with the step's last partial. */
static int32_t tiles_of(const fig_attention_form *f, const fig_split_shape *split) {
    int32_t tiles = 0;
    for (int32_t r = 0; r < f->rows; r++)
        tiles += f->counted ? fig_split_tiles_of(split, f->lengths[r], f->counts[r]) * split->groups
                            : fig_split_tiles_ahead(split, length_before(f, r), ahead_of(f)) *
                                  split->groups;
    return tiles;
}

/* Tells the planner the mask, if it may know it. */
static void open_lines(fig_attention_case *c) {
    const fig_attention_form *f = &c->form;
    fig_mask_lines_class own = {.heads = c->params.q_heads, .ratio = f->ratio};
    const int is_known = f->planned && fig_mask_lines_ranges(&f->score->code, &own.ranges) != 0;
    assert_int_equal(fig_mask_lines_init(&c->lines, is_known, f->row_limit), FIG_OK);
    if (is_known) *c->lines.of = own;
}

/* Makes the plan as it was when fetched, and then advances it by the launches before this one. */
static void open_plan(fig_attention_case *c) {
    const fig_attention_form *f = &c->form;
    int32_t lengths[FIG_CASE_ROW_LIMIT];
    for (int32_t r = 0; r < f->rows; r++) {
        lengths[r] = length_before(f, r);
        assert_true(lengths[r] == 0 || lengths[r] >= fig_attention_form_queries(f, r).count);
    }
    fig_plan_step step = {.rows = f->rows,
                          .lengths = lengths,
                          .sequences = c->sequences,
                          .queries = f->counted ? f->counts : NULL,
                          .horizon = f->horizon,
                          .row_tokens = f->row_tokens};
    step.hidden = fig_mask_lines_find(&c->lines, &c->shape, &step);
    c->plan = fig_reference_plan(&c->shape, &step);
    ((fig_plan_head *)(void *)c->plan)->advanced = f->launch * f->row_tokens;
    memcpy(c->plan + c->shape.layout.lengths, f->lengths, (size_t)f->rows * sizeof(int32_t));
}

/* Makes an array of zeros. After a launch it must hold zeros again. */
static fig_reference_array make_zeros(int32_t dtype, int64_t count) {
    fig_reference_array array = fig_reference_array_make(dtype, count);
    memset(array.data, 0, (size_t)count * sizeof(uint32_t));
    fig_reference_array_keep(&array);
    return array;
}

static void open_split(fig_attention_case *c, int32_t workers) {
    fig_attention_params *p = &c->params;
    const fig_attention_form *f = &c->form;
    p->split = (fig_split_shape){.row_limit = f->row_limit,
                                 .groups = p->kv_heads / p->heads_per_worker,
                                 .tile_tokens = f->tile_tokens,
                                 .workers = workers,
                                 .window = f->window,
                                 .row_tokens = f->row_tokens,
                                 .fixed = f->fixed};
    p->split.tile_limit = tiles_of(f, &p->split);
    /* 41 is the value for pairs of heads; with it, rows of unequal lengths may be cut by units */
    c->shape = (fig_plan_shape){
        .row_limit = f->row_limit, .class_count = 1, .splits = {p->split}, .once = {41}};
    if (f->counted) c->shape.query_limit = f->row_limit * f->row_tokens;
    c->shape.row_tokens = f->row_tokens;
    open_lines(c);
    open_plan(c);
    int64_t vectors = (int64_t)fig_split_partial_limit(&p->split) * f->row_tokens * f->ratio *
                      f->heads_per_worker;
    int64_t dims = (int64_t)fig_size_align((uint64_t)p->head_dim, FIG_BOUNDS_PARTIAL_DIMS);
    c->partials = make_zeros(FIG_F32, vectors * dims);
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

static void close_split(fig_attention_case *c) {
    fig_reference_array_free(&c->partials);
    fig_reference_array_free(&c->sums);
    fig_reference_array_free(&c->counters);
    fig_place_free(c->plan);
    fig_mask_lines_finish(&c->lines);
}

void fig_attention_case_split(fig_attention_case *c, int32_t workers) {
    close_split(c);
    open_split(c, workers);
}

/* ---- Cases */

void fig_attention_case_open(fig_attention_case *c, const fig_attention_form *form,
                             fig_random random) {
    memset(c, 0, sizeof *c);
    c->form = *form;
    c->random = random;
    c->unit = fig_reference_unit(&c->random, form->kv_dtype);
    if (form->unit > 0) c->unit = form->unit;
    assert_in_range(form->row_limit, 1, FIG_CASE_ROW_LIMIT);
    for (int32_t r = 0; r < form->rows; r++) {
        assert_in_range(form->lengths[r], 0, form->length_limit);
        c->sequences[r] = 1 + 2 * r + draw(&c->random, 0, 1);
    }
    float scale = form->sm_scale != 0 ? form->sm_scale : 1.0f / sqrtf((float)form->head_dim);
    c->params = (fig_attention_params){.q_heads = form->kv_heads * form->ratio,
                                       .kv_heads = form->kv_heads,
                                       .head_dim = form->head_dim,
                                       .heads_per_worker = form->heads_per_worker,
                                       .dtype = form->dtype,
                                       .kv_dtype = form->kv_dtype,
                                       .sm_scale = scale,
                                       .soft_cap = form->soft_cap};
    c->params.split.row_tokens = form->row_tokens;
    open_caches(c);
    open_rows(c);
    open_features(c);
    open_split(c, form->workers);
}

void fig_attention_case_close(fig_attention_case *c) {
    fig_reference_array *arrays[] = {&c->q,   &c->k,     &c->v,     &c->table,   &c->out,
                                     &c->lse, &c->sinks, &c->alibi, &c->k_scale, &c->v_scale};
    close_split(c);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fig_reference_array_free(arrays[i]);
}

static void launch_scored(const fig_attention_case *c, fig_random *order) {
    fig_scored_attention_params params = {.attention = c->params, .score = c->form.score->code};
    params.attention.flags |= FIG_ATTENTION_SCORED;
    if (c->lines.count > 0) params.score.line = c->lines.of->ranges.line;
    memcpy(params.arrays, c->form.arrays, sizeof params.arrays);
    fig_reference_launch(FIG_OP_SCORED_ATTENTION, &params, order);
}

void fig_attention_case_run(fig_attention_case *c, fig_random *order) {
    if (c->form.score == NULL) {
        fig_reference_launch(FIG_OP_ATTENTION, &c->params, order);
    } else {
        launch_scored(c, order);
    }
    fig_reference_array_check(&c->out, "attention out");
    fig_reference_array_check(&c->lse, "attention lse");
    fig_reference_array_check(&c->partials, "attention partials");
    fig_reference_array_check(&c->sums, "attention sums");
    fig_reference_array_check(&c->counters, "attention counters");
}

int64_t fig_attention_case_out(const fig_attention_case *c, int32_t row, int32_t query,
                               int32_t q_head) {
    const fig_row_strides *strides = &c->params.out_strides;
    const int64_t token = fig_attention_form_queries(&c->form, row).first + query;
    return token * strides->row + q_head * strides->head;
}

int64_t fig_attention_case_lse(const fig_attention_case *c, int32_t row, int32_t query,
                               int32_t q_head) {
    const int64_t token = fig_attention_form_queries(&c->form, row).first + query;
    return token * c->params.lse_stride + q_head;
}

void fig_attention_case_fail(const fig_attention_case *c, const char *what, int64_t index,
                             double got, double want, double tolerance) {
    const fig_attention_form *f = &c->form;
    fail_msg("%s, element %lld: got %.9g, want %.9g within %.3g; dtype %d over %d, head_dim %d, "
             "%d kv heads, %d q heads each, %d at once, page %d, layout %d, pool %d, tile %d, "
             "%d workers, %d rows of %d, %d queries, window %d, fixed %d, sinks %d, alibi %d, "
             "scales %d, cap %g, launch %d of %d; seed 0x%llx",
             what, (long long)index, got, want, tolerance, f->dtype, f->kv_dtype, f->head_dim,
             f->kv_heads, f->ratio, f->heads_per_worker, f->page_size, f->layout, f->pool,
             f->tile_tokens, c->params.split.workers, f->rows, f->row_limit, f->row_tokens,
             f->window, f->fixed, f->sinks, f->alibi, f->scales, (double)f->soft_cap, f->launch,
             f->horizon, (unsigned long long)f->seed);
}

void fig_attention_case_truth(const fig_attention_case *c, int32_t row, int32_t query,
                              int32_t q_head, truth_attention_result *result) {
    const fig_attention_params *p = &c->params;
    const fig_attention_form *f = &c->form;
    int32_t kv_head = q_head / f->ratio, scale = f->scales == FIG_CASE_PER_HEAD ? kv_head : 0;
    double sink = f->sinks ? (double)p->sinks[q_head] : 0;
    truth_attention_args args = {.k = truth_cache_of(c, 0), .v = truth_cache_of(c, 1)};
    args.q = (truth_rows){p->q, (fig_dtype)p->dtype, p->q_strides.row, p->q_strides.head};
    const fig_plan_queries queries = fig_attention_form_queries(f, row);
    args.row = (int64_t)queries.first + query;
    args.sequence = c->sequences[row];
    args.length = f->lengths[row] == 0 ? 0 : f->lengths[row] - queries.count + 1 + query;
    args.q_head = q_head;
    args.kv_head = kv_head;
    args.head_dim = p->head_dim;
    args.sm_scale = (double)p->sm_scale;
    args.window = f->window;
    args.soft_cap = (double)f->soft_cap;
    args.alibi = f->alibi ? (double)p->alibi[q_head] : 0;
    args.sink = f->sinks ? &sink : NULL;
    args.k_scale = f->scales ? (double)p->k_scale[scale] : 0;
    args.v_scale = f->scales ? (double)p->v_scale[scale] : 0;
    if (f->score != NULL) {
        args.score = f->score_truth;
        args.sees = f->mask_truth;
        args.is_sigmoid = f->score->code.weights == FIG_SCORE_SIGMOID_WEIGHTS;
        args.step_row = row;
        args.kv_length = f->lengths[row];
    }
    truth_attention(&args, result);
}

/* Notes the error under the type of out, or under the cache's type if it differs. */
static void note(const fig_attention_case *c, double error, double tolerance) {
    static const char *const names[] = {
        [FIG_E4M3] = "attention:e4m3", [FIG_E5M2] = "attention:e5m2"};
    const int is_same = c->form.kv_dtype == c->form.dtype;
    fig_worst_note(is_same ? "attention" : names[c->form.kv_dtype], (fig_dtype)c->form.dtype, error,
                   tolerance);
}

void fig_attention_case_check_vector(const fig_attention_case *c, int32_t row, int32_t query,
                                     int32_t q_head) {
    fig_dtype dtype = (fig_dtype)c->params.dtype;
    truth_attention_result want;
    fig_attention_case_truth(c, row, query, q_head, &want);
    int64_t at = fig_attention_case_out(c, row, query, q_head);
    for (int32_t i = 0; i < c->params.head_dim; i++) {
        double got = truth_load(c->params.out, dtype, at + i), m = want.magnitude[i];
        double tolerance = dtype == FIG_F32 ? 2e-5 * m : truth_ulp(dtype, m);
        if (c->form.lengths[row] == 0) tolerance = 0;
        note(c, fabs(got - want.out[i]), tolerance);
        if (!(fabs(got - want.out[i]) <= tolerance))
            fig_attention_case_fail(c, "out", at + i, got, want.out[i], tolerance);
    }
    at = fig_attention_case_lse(c, row, query, q_head);
    double lse = (double)c->params.lse[at];
    double tolerance = isfinite(want.lse) ? 2e-5 * (1 + fabs(want.lse)) : 0;
    if (lse == want.lse || fabs(lse - want.lse) <= tolerance) return;
    fig_attention_case_fail(c, "lse", at, lse, want.lse, tolerance);
}

void fig_attention_case_check(fig_attention_case *c, int32_t most) {
    const fig_attention_form *f = &c->form;
    int32_t heads = c->params.q_heads, count = token_count(f) * heads;
    for (int32_t i = 0; i < fig_size_min(count, most); i++) {
        int32_t n = count <= most ? i : draw(&c->random, 0, count - 1);
        const case_token token = token_of(f, n / heads);
        fig_attention_case_check_vector(c, token.row, token.query, n % heads);
    }
}

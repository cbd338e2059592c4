/* test_attention.c: split attention is unsplit attention, and both are float64's.
 *
 * Everything that nobody wrote is NaN: partials, sums, outputs, gaps between strides, and what lies
 * in the cache behind a row's tokens. So a result without NaN has read nothing it should not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/numeric.h"
#include "planner/spec.h"
#include "tests/support/twin.h"
#include "tools/figraph/truth.h"

enum { ROW_LIMIT = 7, LENGTH_LIMIT = 300 };

static uint64_t seed;
static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};

/* What a case is about; all else is drawn. */
typedef struct attention_form {
    int32_t dtype, head_dim, kv_heads, ratio, heads_per_worker;
    int32_t page_size; /* 0: dense */
    int32_t tile_tokens, workers, row_limit, rows;
    int32_t lengths[ROW_LIMIT];
    int32_t outside; /* of 16 page numbers, how many lie outside the cache */
} attention_form;

typedef struct attention_case {
    attention_form form;
    fig_random random;
    int32_t sequences[ROW_LIMIT];
    fig_plan_shape shape;
    uint8_t *plan;
    fig_twin_array q, k, v, table, out, lse, partials, sums, counters;
    fig_attention_params params;
} attention_case;

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

static attention_form draw_form(fig_random *random) {
    static const int32_t page_sizes[] = {0, 1, 3, 16, 64, 128}, tiles[] = {4, 16, 32, 64, 256};
    attention_form form = {.dtype = dtypes[draw(random, 0, 2)],
                           .head_dim = 64 * draw(random, 1, 2),
                           .heads_per_worker = draw(random, 1, 2),
                           .ratio = draw(random, 1, FIG_GROUP_LIMIT),
                           .page_size = page_sizes[draw(random, 0, 5)],
                           .tile_tokens = tiles[draw(random, 0, 4)],
                           .workers = draw(random, 1, 24),
                           .row_limit = draw(random, 1, ROW_LIMIT),
                           .outside = draw(random, 0, 1)};
    form.kv_heads = form.heads_per_worker * draw(random, 1, 2);
    form.rows = draw(random, 0, form.row_limit);
    int32_t limit = draw(random, 0, 4) == 0 ? LENGTH_LIMIT : 3 * form.tile_tokens;
    for (int32_t r = 0; r < form.rows; r++)
        if (draw(random, 0, 4) > 0)
            form.lengths[r] = draw(random, 1, fig_size_min(limit, LENGTH_LIMIT));
    return form;
}

/* ---- Memory */

static fig_row_strides row_strides(attention_case *c, int32_t heads) {
    int64_t head = c->form.head_dim + draw(&c->random, 0, 3);
    return (fig_row_strides){.row = heads * head + draw(&c->random, 0, 3), .head = head};
}

static fig_cache_strides cache_strides(attention_case *c) {
    fig_cache_strides strides = {.head = c->form.head_dim + draw(&c->random, 0, 3)};
    strides.token = c->form.kv_heads * strides.head + draw(&c->random, 0, 3);
    strides.page = c->params.page_size * strides.token + draw(&c->random, 0, 3);
    return strides;
}

static truth_cache truth_cache_of(const attention_case *c, int is_v) {
    const fig_attention_params *p = &c->params;
    const fig_cache_strides *strides = is_v ? &p->v_cache_strides : &p->k_cache_strides;
    return (truth_cache){.base = is_v ? p->v_cache : p->k_cache,
                         .dtype = (fig_dtype)p->dtype,
                         .page_stride = strides->page,
                         .token_stride = strides->token,
                         .head_stride = strides->head,
                         .pages = is_v ? p->v_pages : p->k_pages,
                         .page_size = p->page_size,
                         .page_table = p->page_table,
                         .table_stride = p->table_stride};
}

static void fill_token(attention_case *c, fig_twin_array *cache, const truth_cache *where,
                       int64_t offset) {
    for (int32_t h = 0; h < c->form.kv_heads; h++)
        fig_twin_array_fill(cache, offset + h * where->head_stride, c->form.head_dim, &c->random,
                            1);
}

/* Page 0 whole, since what is outside the cache reads as page 0, and of other pages what rows hold.
 *  */
static void fill_cache(attention_case *c, fig_twin_array *cache, int is_v) {
    truth_cache where = truth_cache_of(c, is_v);
    for (int32_t t = 0; t < where.page_size; t++)
        fill_token(c, cache, &where, t * where.token_stride);
    for (int32_t r = 0; r < c->form.rows; r++) {
        for (int32_t t = 0; t < c->form.lengths[r]; t++) {
            int64_t offset = truth_cache_offset(&where, c->sequences[r], t);
            if (offset >= where.page_stride) fill_token(c, cache, &where, offset);
        }
    }
}

/* Pages in random order, page 0 never: it stands for those outside. Returns how many there are. */
static int32_t draw_table(attention_case *c, int32_t row_pages) {
    static const int32_t outside[] = {-1, INT32_MIN, INT32_MAX};
    int32_t stride = row_pages + 2, count = ROW_LIMIT * row_pages;
    int32_t *pages = malloc((size_t)count * sizeof *pages);
    assert_non_null(pages);
    for (int32_t i = 0; i < count; i++)
        pages[i] = i + 1;
    c->table = fig_twin_array_make(FIG_I32, 2 * (ROW_LIMIT + 1) * stride);
    for (int32_t i = 0; i < count; i++) {
        int32_t other = draw(&c->random, i, count - 1), page = pages[other];
        pages[other] = pages[i];
        if (draw(&c->random, 0, 15) < c->form.outside) page = outside[draw(&c->random, 0, 2)];
        int32_t sequence = i / row_pages < c->form.rows ? c->sequences[i / row_pages] : 0;
        fig_twin_array_set(&c->table, sequence * stride + i % row_pages, page);
    }
    free(pages);
    c->params.page_table = c->table.data;
    c->params.table_stride = stride;
    return count + 1;
}

/* Dense, a sequence past the last page reads sequence 0, which no row is. */
static void open_caches(attention_case *c) {
    fig_attention_params *p = &c->params;
    int32_t pages = 2 * ROW_LIMIT + 2, page_size = c->form.page_size;
    p->page_size = page_size == 0 ? LENGTH_LIMIT : page_size;
    if (page_size > 0) pages = draw_table(c, (LENGTH_LIMIT - 1) / page_size + 1);
    p->k_pages = pages - (c->form.outside ? draw(&c->random, 0, pages / 4) : 0);
    p->v_pages = pages - (c->form.outside ? draw(&c->random, 0, pages / 4) : 0);
    p->k_cache_strides = cache_strides(c);
    p->v_cache_strides = cache_strides(c);
    c->k = fig_twin_array_make(p->dtype, p->k_pages * p->k_cache_strides.page);
    c->v = fig_twin_array_make(p->dtype, p->v_pages * p->v_cache_strides.page);
    p->k_cache = c->k.data;
    p->v_cache = c->v.data;
    fill_cache(c, &c->k, 0);
    fill_cache(c, &c->v, 1);
}

static void open_rows(attention_case *c) {
    fig_attention_params *p = &c->params;
    p->q_strides = row_strides(c, p->q_heads);
    p->out_strides = row_strides(c, p->q_heads);
    p->lse_stride = p->q_heads + draw(&c->random, 0, 3);
    c->q = fig_twin_array_make(p->dtype, c->form.row_limit * p->q_strides.row);
    c->out = fig_twin_array_make(p->dtype, c->form.row_limit * p->out_strides.row);
    c->lse = fig_twin_array_make(FIG_F32, c->form.row_limit * p->lse_stride);
    for (int32_t r = 0; r < c->form.rows; r++) {
        fig_twin_array_allow(&c->lse, r * p->lse_stride, p->q_heads);
        for (int32_t h = 0; h < p->q_heads; h++) {
            fig_twin_array_fill(&c->q, r * p->q_strides.row + h * p->q_strides.head, p->head_dim,
                                &c->random, 1);
            fig_twin_array_allow(&c->out, r * p->out_strides.row + h * p->out_strides.head,
                                 p->head_dim);
        }
    }
    p->q = c->q.data;
    p->out = c->out.data;
    p->lse = c->lse.data;
}

/* ---- Split */

/* Plan and workspace for this many workers, the workspace as poisoned memory of just its size. */
static void open_split(attention_case *c, int32_t workers) {
    fig_attention_params *p = &c->params;
    p->split = (fig_split_shape){.row_limit = c->form.row_limit,
                                 .groups = p->kv_heads / p->heads_per_worker,
                                 .tile_tokens = c->form.tile_tokens,
                                 .workers = workers};
    c->shape =
        (fig_plan_shape){.row_limit = c->form.row_limit, .class_count = 1, .splits = {p->split}};
    c->plan = fig_twin_plan(&c->shape, &(fig_plan_step){.rows = c->form.rows,
                                                        .lengths = c->form.lengths,
                                                        .sequences = c->sequences});
    int64_t vectors =
        (int64_t)fig_split_partial_limit(&p->split) * c->form.ratio * c->form.heads_per_worker;
    c->partials = fig_twin_array_make(FIG_F32, vectors * p->head_dim);
    c->sums = fig_twin_array_make(FIG_F32, vectors * 2);
    c->counters = fig_twin_array_make(FIG_I32, c->form.row_limit * p->split.groups);
    memset(c->counters.data, 0, (size_t)c->counters.count * sizeof(uint32_t));
    fig_twin_array_keep(&c->counters);
    p->plan = c->plan;
    p->partials = c->partials.data;
    p->sums = c->sums.data;
    p->counters = c->counters.data;
    p->lengths_offset = c->shape.layout.lengths;
    p->sequences_offset = c->shape.layout.sequences;
    p->prefix_offset = c->shape.layout.prefix[0];
    p->starts_offset = c->shape.layout.starts[0];
}

static void close_split(attention_case *c) {
    fig_twin_array_free(&c->partials);
    fig_twin_array_free(&c->sums);
    fig_twin_array_free(&c->counters);
    free(c->plan);
}

/* ---- Cases */

static void open_case(attention_case *c, const attention_form *form, fig_random random) {
    memset(c, 0, sizeof *c);
    c->form = *form;
    c->random = random;
    for (int32_t r = 0; r < form->rows; r++)
        c->sequences[r] = 1 + 2 * r + draw(&c->random, 0, 1);
    c->params = (fig_attention_params){.q_heads = form->kv_heads * form->ratio,
                                       .kv_heads = form->kv_heads,
                                       .head_dim = form->head_dim,
                                       .heads_per_worker = form->heads_per_worker,
                                       .dtype = form->dtype,
                                       .sm_scale = 1.0f / sqrtf((float)form->head_dim)};
    open_caches(c);
    open_rows(c);
    open_split(c, form->workers);
}

static void close_case(attention_case *c) {
    close_split(c);
    fig_twin_array_free(&c->q);
    fig_twin_array_free(&c->k);
    fig_twin_array_free(&c->v);
    fig_twin_array_free(&c->table);
    fig_twin_array_free(&c->out);
    fig_twin_array_free(&c->lse);
}

/* Runs it, and holds what holds of every run. */
static void run(attention_case *c, fig_random *order) {
    fig_twin_launch(FIG_OP_ATTENTION, &c->params, order);
    fig_twin_array_check(&c->out, "attention out");
    fig_twin_array_check(&c->lse, "attention lse");
    fig_twin_array_check(&c->counters, "attention counters");
}

static void fail_at(const attention_case *c, const char *name, int64_t at, double got, double want,
                    double tolerance) {
    const attention_form *f = &c->form;
    fail_msg("%s, element %lld: got %.9g, want %.9g within %.3g; dtype %d, head_dim %d, %d kv "
             "heads, %d q heads each, %d at once, page %d, tile %d, %d workers, %d rows of %d; "
             "seed 0x%llx",
             name, (long long)at, got, want, tolerance, f->dtype, f->head_dim, f->kv_heads,
             f->ratio, f->heads_per_worker, f->page_size, f->tile_tokens, f->workers, f->rows,
             f->row_limit, (unsigned long long)seed);
}

static void truth_of(const attention_case *c, int32_t row, int32_t q_head,
                     truth_attention_result *result) {
    const fig_attention_params *p = &c->params;
    truth_attention(&(truth_attention_args){.q = {p->q, (fig_dtype)p->dtype, p->q_strides.row,
                                                  p->q_strides.head},
                                            .k = truth_cache_of(c, 0),
                                            .v = truth_cache_of(c, 1),
                                            .row = row,
                                            .sequence = c->sequences[row],
                                            .length = c->form.lengths[row],
                                            .q_head = q_head,
                                            .kv_head = q_head / c->form.ratio,
                                            .head_dim = p->head_dim,
                                            .sm_scale = (double)p->sm_scale},
                    result);
}

/* One unit of a 16-bit dtype at the magnitude sum of p * |v|, half of which is the rounding of out;
 * in f32, whose unit is far below what its sums lose, 2e-5 of it. */
static void check_against_truth(const attention_case *c) {
    const fig_attention_params *p = &c->params;
    fig_dtype dtype = (fig_dtype)p->dtype;
    truth_attention_result want;
    for (int32_t r = 0; r < c->form.rows; r++) {
        for (int32_t h = 0; h < p->q_heads; h++) {
            truth_of(c, r, h, &want);
            for (int32_t i = 0; i < p->head_dim; i++) {
                int64_t at = r * p->out_strides.row + h * p->out_strides.head + i;
                double got = truth_load(p->out, dtype, at), m = want.magnitude[i];
                double tolerance = dtype == FIG_F32 ? 2e-5 * m : truth_ulp(dtype, m);
                if (c->form.lengths[r] == 0) tolerance = 0;
                if (!(fabs(got - want.out[i]) <= tolerance))
                    fail_at(c, "out", at, got, want.out[i], tolerance);
            }
            double lse = (double)p->lse[r * p->lse_stride + h];
            double tolerance = 2e-5 * (1 + fabs(want.lse));
            if (lse == want.lse || fabs(lse - want.lse) <= tolerance) continue;
            fail_at(c, "lse", r * p->lse_stride + h, lse, want.lse, tolerance);
        }
    }
}

/* ---- Tests */

static void split_attention_is_float64_s(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 160; n++) {
        fig_random random = fig_random_seed(seed + n);
        attention_form form = draw_form(&random);
        attention_case c;
        open_case(&c, &form, random);
        run(&c, &c.random);
        check_against_truth(&c);
        close_case(&c);
    }
}

/* A copy of what a run left in out. */
static double *values_of(const attention_case *c) {
    double *values = malloc((size_t)c->out.count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < c->out.count; i++)
        values[i] = truth_load(c->out.data, (fig_dtype)c->out.dtype, i);
    return values;
}

/* 2 units of a 16-bit dtype, and in f32 2e-5, at the magnitude. */
static void compare_with_unsplit(const attention_case *c, const double *split) {
    const fig_attention_params *p = &c->params;
    fig_dtype dtype = (fig_dtype)p->dtype;
    truth_attention_result truth;
    for (int32_t r = 0; r < c->form.rows; r++) {
        for (int32_t h = 0; h < p->q_heads; h++) {
            truth_of(c, r, h, &truth);
            for (int32_t i = 0; i < p->head_dim; i++) {
                int64_t at = r * p->out_strides.row + h * p->out_strides.head + i;
                double want = truth_load(p->out, dtype, at), m = truth.magnitude[i];
                double tolerance = dtype == FIG_F32 ? 2e-5 * m : 2 * truth_ulp(dtype, m);
                if (!(fabs(split[at] - want) <= tolerance))
                    fail_at(c, "split out", at, split[at], want, tolerance);
            }
        }
    }
}

static void split_attention_is_unsplit_attention_within_2_ulp(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 80; n++) {
        fig_random random = fig_random_seed(seed + 1000 + n);
        attention_form form = draw_form(&random);
        form.workers = draw(&random, 2, 40);
        attention_case c;
        open_case(&c, &form, random);
        run(&c, &c.random);
        double *split = values_of(&c);
        close_split(&c);
        open_split(&c, 1);
        run(&c, NULL);
        compare_with_unsplit(&c, split);
        free(split);
        close_case(&c);
    }
}

/* Also over a workspace as the last run left it: its partials stale, its counters at 0 by
 * themselves. */
static void the_order_of_blocks_changes_no_bit(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        fig_random random = fig_random_seed(seed + 2000 + n);
        attention_form form = draw_form(&random);
        form.workers = draw(&random, 8, 40);
        attention_case c;
        open_case(&c, &form, random);
        run(&c, NULL);
        fig_twin_array_keep(&c.out);
        fig_twin_array_keep(&c.lse);
        memset(c.out.free, 0, (size_t)c.out.count); /* from here on, not a bit may change */
        memset(c.lse.free, 0, (size_t)c.lse.count);
        for (int i = 0; i < 4; i++)
            run(&c, &c.random);
        close_case(&c);
    }
}

static void every_group_size_head_dim_dtype_and_head_count_agrees(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 3000);
    for (int32_t ratio = 1; ratio <= FIG_GROUP_LIMIT; ratio++) {
        for (int32_t i = 0; i < 12; i++) {
            attention_form form = {.dtype = dtypes[i % 3],
                                   .head_dim = 64 << (i / 3 % 2),
                                   .kv_heads = 2,
                                   .heads_per_worker = 1 + i / 6,
                                   .ratio = ratio,
                                   .page_size = 16,
                                   .tile_tokens = 16,
                                   .workers = 5,
                                   .row_limit = 3,
                                   .rows = 3,
                                   .lengths = {37, 0, 50}};
            attention_case c;
            open_case(&c, &form, random);
            run(&c, &c.random);
            check_against_truth(&c);
            random = c.random;
            close_case(&c);
        }
    }
}

/* Seven lengths at a time: around nothing, the tile and the page, and around a multiple of either.
 *  */
static void lengths_beside_tile_and_page_boundaries_agree(void **state) {
    (void)state;
    static const int32_t page_sizes[] = {0, 1, 3, 16, 64, 128};
    fig_random random = fig_random_seed(seed + 4000);
    for (int32_t i = 0; i < 6 * 3 * 2; i++) {
        attention_form form = {.dtype = dtypes[i % 3],
                               .head_dim = 64,
                               .kv_heads = 2,
                               .heads_per_worker = 1,
                               .ratio = 2,
                               .page_size = page_sizes[i / 6],
                               .tile_tokens = i % 2 ? 16 : 64,
                               .workers = draw(&random, 1, 30),
                               .row_limit = ROW_LIMIT,
                               .rows = ROW_LIMIT};
        int32_t edges[] = {form.tile_tokens, form.page_size, 2 * form.tile_tokens,
                           2 * form.page_size};
        for (int32_t edge = 0; edge < 4; edge++) {
            int32_t at = edges[edge];
            int32_t lengths[ROW_LIMIT] = {0, 1, at - 1, at, at + 1, 2, 0};
            for (int32_t r = 0; r < ROW_LIMIT; r++)
                form.lengths[r] = lengths[r] < 0 ? 0 : lengths[r];
            attention_case c;
            open_case(&c, &form, random);
            run(&c, &c.random);
            check_against_truth(&c);
            random = c.random;
            close_case(&c);
        }
    }
}

static void page_numbers_outside_the_cache_read_as_page_0(void **state) {
    (void)state;
    static const int32_t page_sizes[] = {0, 1, 3, 16};
    for (uint64_t n = 0; n < 24; n++) {
        fig_random random = fig_random_seed(seed + 5000 + n);
        attention_form form = draw_form(&random);
        form.page_size = page_sizes[n % 4];
        form.outside = 8;
        attention_case c;
        open_case(&c, &form, random);
        run(&c, &c.random);
        check_against_truth(&c);
        close_case(&c);
    }
}

static void idle_rows_get_zeros_and_minus_infinity_whoever_works(void **state) {
    (void)state;
    for (int32_t workers = 1; workers <= 9; workers++) {
        attention_form form = {.dtype = dtypes[workers % 3],
                               .head_dim = 64,
                               .kv_heads = 2,
                               .heads_per_worker = 1,
                               .ratio = 3,
                               .page_size = 16,
                               .tile_tokens = 16,
                               .workers = workers,
                               .row_limit = ROW_LIMIT,
                               .rows = ROW_LIMIT - 1};
        for (int32_t busy = -1; busy < form.rows; busy++) { /* -1: every row is idle */
            memset(form.lengths, 0, sizeof form.lengths);
            if (busy >= 0) form.lengths[busy] = 40;
            attention_case c;
            open_case(&c, &form, fig_random_seed(seed + 6000 + (uint64_t)workers));
            run(&c, &c.random);
            check_against_truth(&c);
            close_case(&c);
        }
    }
}

/* What a fetch leaves that found no plan: the head says no rows, and behind it lies the plan
 * before. */
static void no_rows_over_a_stale_plan_do_nothing(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 7500);
    attention_form form = draw_form(&random);
    form.rows = form.row_limit;
    form.lengths[0] = 50;
    attention_case c;
    open_case(&c, &form, random);
    memset(c.plan, 0, sizeof(fig_plan_head));
    memset(c.out.free, 0, (size_t)c.out.count);
    memset(c.lse.free, 0, (size_t)c.lse.count);
    run(&c, &c.random);
    fig_twin_array_check(&c.partials, "attention partials");
    close_case(&c);
}

static void without_lse_out_is_the_same(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 7000);
    attention_form form = draw_form(&random);
    attention_case c;
    form.rows = form.row_limit;
    open_case(&c, &form, random);
    run(&c, NULL);
    fig_twin_array_keep(&c.out);
    memset(c.out.free, 0, (size_t)c.out.count);
    memset(c.lse.free, 0, (size_t)c.lse.count);
    fig_twin_array_keep(&c.lse);
    c.params.lse = NULL;
    run(&c, NULL);
    close_case(&c);
}

/* q and k along one axis, so that token t's logit is exactly 5 t, and one pass up to 1500 shrinks
 * what was seen again and again. */
static void logits_of_a_thousand_neither_overflow_nor_drown_the_last_token(void **state) {
    (void)state;
    for (int32_t i = 0; i < 12; i++) {
        attention_form form = {.dtype = i % 2 ? FIG_F16 : FIG_BF16,
                               .head_dim = 64,
                               .kv_heads = 1,
                               .heads_per_worker = 1,
                               .ratio = 1,
                               .page_size = 16,
                               .tile_tokens = 16,
                               .workers = i + 1,
                               .row_limit = 1,
                               .rows = 1,
                               .lengths = {256}};
        attention_case c;
        open_case(&c, &form, fig_random_seed(seed + 8000));
        c.params.sm_scale = i % 3 == 0 ? -5.0f : 5.0f; /* negative: the first token is greatest */
        truth_cache where = truth_cache_of(&c, 0);
        for (int32_t d = 0; d < 64; d++)
            fig_twin_array_set(&c.q, d, d == 0);
        for (int32_t t = 0; t < 256; t++)
            fig_twin_array_set(&c.k, truth_cache_offset(&where, c.sequences[0], t), t);
        for (int32_t t = 0; t < 256; t++)
            for (int32_t d = 1; d < 64; d++)
                fig_twin_array_set(&c.k, truth_cache_offset(&where, c.sequences[0], t) + d, 1);
        run(&c, NULL);
        check_against_truth(&c);
        close_case(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_attention_is_float64_s),
        cmocka_unit_test(split_attention_is_unsplit_attention_within_2_ulp),
        cmocka_unit_test(the_order_of_blocks_changes_no_bit),
        cmocka_unit_test(every_group_size_head_dim_dtype_and_head_count_agrees),
        cmocka_unit_test(lengths_beside_tile_and_page_boundaries_agree),
        cmocka_unit_test(page_numbers_outside_the_cache_read_as_page_0),
        cmocka_unit_test(idle_rows_get_zeros_and_minus_infinity_whoever_works),
        cmocka_unit_test(no_rows_over_a_stale_plan_do_nothing),
        cmocka_unit_test(without_lse_out_is_the_same),
        cmocka_unit_test(logits_of_a_thousand_neither_overflow_nor_drown_the_last_token),
    };
    seed = fig_twin_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

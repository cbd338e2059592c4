/* section_merge.c: tests merging of attention results: alone, and for attention over a shared
 * prefix and over the tokens after it.
 *
 * Invariant: the merged result is compared with attention over all tokens at once. */
#include "tests/grid/grid_sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/inspect/inspect_names.h"
#include "tools/figraph/truth/truth_attention.h"

enum { TRUTH_PER_S = 4000000 };

typedef struct merge_form {
    fig_dtype dtype;
    int32_t rows, heads, head_dim;
} merge_form;

/* The results of both sides, and the merged result. */
typedef struct states {
    grid_array out[2], lse[2], joined, joined_lse;
} states;

static void states_make(states *s, const merge_form *form, grid_report *report) {
    const int64_t heads = (int64_t)form->rows * form->heads;
    for (int i = 0; i < 2; i++) {
        grid_array_make(report, &s->out[i], heads * form->head_dim, form->dtype);
        grid_array_make(report, &s->lse[i], heads, FIG_F32);
    }
    grid_array_make(report, &s->joined, heads * form->head_dim, form->dtype);
    grid_array_make(report, &s->joined_lse, heads, FIG_F32);
}

static void states_free(states *s) {
    for (int i = 0; i < 2; i++) {
        grid_array_free(&s->out[i]);
        grid_array_free(&s->lse[i]);
    }
    grid_array_free(&s->joined);
    grid_array_free(&s->joined_lse);
}

static fig_tensor heads(grid_bench *bench, const char *name, const merge_form *form,
                        const grid_array *array) {
    const fig_tensor_info info = {
        .name = name, .dtype = form->dtype, .dims = {FIG_DIM_BATCH, form->heads, form->head_dim}};
    return grid_bench_tensor(bench, &info, &(grid_place){.array = array});
}

static fig_tensor sums(grid_bench *bench, const char *name, const merge_form *form,
                       const grid_array *array) {
    const fig_tensor_info info = {
        .name = name, .dtype = FIG_F32, .dims = {FIG_DIM_BATCH, form->heads}};
    return grid_bench_tensor(bench, &info, &(grid_place){.array = array});
}

static void join(states *s, const merge_form *form, grid_report *report) {
    grid_bench bench;
    static const int32_t idle[GRID_ROW_LIMIT];
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = form->dtype,
                           .q_heads = form->heads,
                           .kv_heads = form->heads,
                           .head_dim = form->head_dim,
                           .batch_limit = form->rows,
                           .kv_limit = 16};
    fig_merge_states_op op = {.size = sizeof op};
    grid_bench_open(&bench, report, &spec);
    op.out_a = heads(&bench, "out_a", form, &s->out[0]);
    op.lse_a = sums(&bench, "lse_a", form, &s->lse[0]);
    op.out_b = heads(&bench, "out_b", form, &s->out[1]);
    op.lse_b = sums(&bench, "lse_b", form, &s->lse[1]);
    op.out = heads(&bench, "out", form, &s->joined);
    op.lse = sums(&bench, "lse", form, &s->joined_lse);
    if (!grid_failed(report)) fig_merge_states(bench.program, &op);
    grid_bench_ready(&bench, NULL);
    grid_bench_step(&bench, FIG_OPTIONS(fig_step, .rows = form->rows, .kv_lengths = idle));
    grid_bench_close(&bench);
}

static void check_join(const states *s, const merge_form *form, grid_report *report, int64_t row,
                       int32_t head) {
    const int64_t stride = (int64_t)form->heads * form->head_dim, at = row * form->heads + head;
    const truth_merge_args args = {.a = {s->out[0].bytes, form->dtype, stride, form->head_dim},
                                   .b = {s->out[1].bytes, form->dtype, stride, form->head_dim},
                                   .lse_a = truth_load(s->lse[0].bytes, FIG_F32, at),
                                   .lse_b = truth_load(s->lse[1].bytes, FIG_F32, at),
                                   .row = row,
                                   .head = head,
                                   .head_dim = form->head_dim};
    truth_merge_result want;
    char name[40];
    truth_merge_states(&args, &want);
    snprintf(name, sizeof name, "merge_states %s", fig_inspect_names_dtype(form->dtype));
    grid_compare(report, &(grid_output){name, s->joined.bytes, form->dtype, at * form->head_dim,
                                        form->head_dim, want.out, want.magnitude,
                                        grid_peer(form->dtype), 1});
    const double magnitude = isinf(want.lse) ? 1 : fmax(fabs(want.lse), 5);
    grid_compare(report, &(grid_output){"merge_states, lse", s->joined_lse.bytes, FIG_F32, at, 1,
                                        &want.lse, &magnitude, 1e-3, 1});
}

int64_t grid_run_merge(grid_cursor *cursor, grid_report *report) {
    merge_form form = {0};
    states s;
    form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16, FIG_F32);
    form.heads = GRID_PICK(cursor, 1, 8, 32);
    form.head_dim = GRID_PICK(cursor, 64, 80, 96, 128, 256);
    form.rows = GRID_PICK(cursor, 1, 33, 512);
    const int64_t count = (int64_t)form.rows * form.heads, work = count * form.head_dim * 16;
    if (report == NULL) return work;
    fig_random random = fig_random_seed((uint64_t)count);
    snprintf(report->shape, sizeof report->shape, "merge_states: %s, %d rows, %d heads of %d",
             fig_inspect_names_dtype(form.dtype), (int)form.rows, (int)form.heads,
             (int)form.head_dim);
    states_make(&s, &form, report);
    for (int i = 0; i < 2 && !grid_failed(report); i++) {
        grid_fill(&s.out[i], form.dtype, 0, count * form.head_dim, &random);
        for (int64_t at = 0; at < count; at++) /* at some places one side is empty, or both are */
            grid_store(&s.lse[i], FIG_F32, at,
                       fig_random_range(&random, 0, 7) == 0
                           ? -INFINITY
                           : 8 * (double)fig_random_normal(&random));
    }
    if (!grid_failed(report)) join(&s, &form, report);
    double left = report->truth_s * TRUTH_PER_S;
    for (int64_t at = 0; at < count && left > 0 && !grid_failed(report); at++) {
        check_join(&s, &form, report, at / form.heads, (int32_t)(at % form.heads));
        left -= form.head_dim;
    }
    states_free(&s);
    return work;
}

/* ---- A shared prefix ----------------------------------------------------------------------- */

typedef struct prefix_scene {
    merge_form form;
    grid_report *report;
    int32_t page_size, shared, unique; /* in tokens; shared: a multiple of the page size */
    int32_t shared_pages, unique_pages, row_pages;
    int64_t pages;
    /* tables: those of the two sides; all: the table of all tokens */
    grid_array q, k, v, tables[2], all;
    states states;
} prefix_scene;

static void fill_tables(prefix_scene *p) {
    for (int32_t row = 0; row < p->form.rows; row++) {
        int64_t first = (int64_t)row * p->row_pages;
        for (int32_t i = 0; i < p->row_pages; i++) {
            int32_t own = p->shared_pages + row * p->unique_pages + i;
            grid_store(&p->tables[0], FIG_I32, first + i, i < p->shared_pages ? i : INT32_MAX);
            grid_store(&p->tables[1], FIG_I32, first + i, i < p->unique_pages ? own : INT32_MAX);
            grid_store(&p->all, FIG_I32, first + i,
                       i < p->shared_pages ? i : own - p->shared_pages);
        }
    }
}

static void make_prefix(prefix_scene *p) {
    const merge_form *form = &p->form;
    const int64_t row = (int64_t)form->heads * form->head_dim;
    fig_random random = fig_random_seed(77);
    p->shared_pages = p->shared / p->page_size;
    p->unique_pages = (p->unique + p->page_size - 1) / p->page_size;
    p->row_pages = p->shared_pages + p->unique_pages;
    p->pages = p->shared_pages + (int64_t)form->rows * p->unique_pages;
    grid_array_make(p->report, &p->q, form->rows * row, form->dtype);
    grid_array_make(p->report, &p->k, p->pages * p->page_size * row, form->dtype);
    grid_array_make(p->report, &p->v, p->pages * p->page_size * row, form->dtype);
    grid_array_make(p->report, &p->tables[0], (int64_t)form->rows * p->row_pages, FIG_I32);
    grid_array_make(p->report, &p->tables[1], (int64_t)form->rows * p->row_pages, FIG_I32);
    grid_array_make(p->report, &p->all, (int64_t)form->rows * p->row_pages, FIG_I32);
    states_make(&p->states, form, p->report);
    if (grid_failed(p->report)) return;
    grid_fill(&p->q, form->dtype, 0, form->rows * row, &random);
    grid_fill(&p->k, form->dtype, 0, p->pages * p->page_size * row, &random);
    grid_fill(&p->v, form->dtype, 0, p->pages * p->page_size * row, &random);
    fill_tables(p);
}

static void prefix_close(prefix_scene *p) {
    grid_array *const arrays[] = {&p->q, &p->k, &p->v, &p->tables[0], &p->tables[1], &p->all};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        grid_array_free(arrays[i]);
    states_free(&p->states);
}

static fig_tensor pool(grid_bench *bench, const char *name, const prefix_scene *p,
                       const grid_array *array) {
    const fig_tensor_info info = {
        .name = name,
        .dtype = p->form.dtype,
        .dims = {FIG_DIM_PAGES, p->page_size, p->form.heads, p->form.head_dim}};
    return grid_bench_tensor(bench, &info, &(grid_place){.array = array});
}

static void bind(grid_bench *bench, const char *name, const grid_array *array) {
    if (grid_failed(bench->report)) return;
    if (fig_engine_bind(bench->engine,
                        FIG_OPTIONS(fig_binding, .name = name, .address = array->bytes,
                                    .bytes = array->count)) != FIG_OK)
        grid_fail(bench->report, "bind: %s", fig_message());
}

/* Uses one engine. Between its two steps, the table and the outputs are bound to other memory. */
static void attend(prefix_scene *p) {
    grid_bench bench;
    int32_t lengths[GRID_ROW_LIMIT];
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = p->form.dtype,
                           .q_heads = p->form.heads,
                           .kv_heads = p->form.heads,
                           .head_dim = p->form.head_dim,
                           .page_size = p->page_size,
                           .batch_limit = p->form.rows,
                           .kv_limit = p->shared + p->unique};
    fig_attention_op op = {.size = sizeof op};
    grid_bench_open(&bench, p->report, &spec);
    op.q = heads(&bench, "q", &p->form, &p->q);
    op.out = heads(&bench, "out", &p->form, &p->states.out[0]);
    op.lse = sums(&bench, "lse", &p->form, &p->states.lse[0]);
    op.cache.k = pool(&bench, "k_cache", p, &p->k);
    op.cache.v = pool(&bench, "v_cache", p, &p->v);
    op.cache.page_table = grid_bench_tensor(
        &bench,
        &(fig_tensor_info){
            .name = "page_table", .dtype = FIG_I32, .dims = {p->form.rows, p->row_pages}},
        &(grid_place){.array = &p->tables[0]});
    if (!grid_failed(p->report)) fig_attention(bench.program, &op);
    grid_bench_ready(&bench, NULL);
    for (int side = 0; side < 2; side++) {
        bind(&bench, "page_table", &p->tables[side]);
        bind(&bench, "out", &p->states.out[side]);
        bind(&bench, "lse", &p->states.lse[side]);
        for (int32_t row = 0; row < p->form.rows; row++)
            lengths[row] = side == 0 ? p->shared : p->unique;
        grid_bench_step(&bench, FIG_OPTIONS(fig_step, .rows = p->form.rows, .kv_lengths = lengths));
    }
    grid_bench_close(&bench);
}

static void check_head(prefix_scene *p, int32_t row, int32_t head) {
    const merge_form *form = &p->form;
    const int64_t stride = (int64_t)form->heads * form->head_dim;
    truth_attention_result want;
    char name[40];
    truth_cache k = {.base = p->k.bytes,
                     .dtype = form->dtype,
                     .page_stride = p->page_size * stride,
                     .token_stride = stride,
                     .head_stride = form->head_dim,
                     .pages = p->pages,
                     .page_size = p->page_size,
                     .page_table = (const int32_t *)(const void *)p->all.bytes,
                     .table_stride = p->row_pages},
                v = k;
    v.base = p->v.bytes;
    const truth_attention_args args = {.q = {p->q.bytes, form->dtype, stride, form->head_dim},
                                       .k = k,
                                       .v = v,
                                       .row = row,
                                       .sequence = row,
                                       .length = p->shared + p->unique,
                                       .q_head = head,
                                       .kv_head = head,
                                       .head_dim = form->head_dim,
                                       .sm_scale = (double)(float)(1 / sqrt(form->head_dim))};
    truth_attention(&args, &want);
    snprintf(name, sizeof name, "shared prefix %s", fig_inspect_names_dtype(form->dtype));
    grid_compare(p->report, &(grid_output){name, p->states.joined.bytes, form->dtype,
                                           ((int64_t)row * form->heads + head) * form->head_dim,
                                           form->head_dim, want.out, want.magnitude,
                                           grid_peer(form->dtype), 2});
}

int64_t grid_run_shared_prefix(grid_cursor *cursor, grid_report *report) {
    prefix_scene p = {.report = report};
    p.form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16);
    p.page_size = GRID_PICK(cursor, 1, 16);
    p.form.heads = GRID_PICK(cursor, 8, 16);
    p.form.head_dim = GRID_PICK(cursor, 128, 256);
    p.form.rows = GRID_PICK(cursor, 12, 17);
    p.unique = GRID_PICK(cursor, 37, 17);
    p.shared = GRID_PICK(cursor, 128, 512, 2048);
    const int64_t work =
        (int64_t)p.form.rows * (p.shared + p.unique) * p.form.heads * p.form.head_dim * 6;
    if (report == NULL) return work;
    snprintf(report->shape, sizeof report->shape,
             "shared prefix: %s, %d rows, %d + %d tokens, page %d, %d heads of %d",
             fig_inspect_names_dtype(p.form.dtype), (int)p.form.rows, (int)p.shared, (int)p.unique,
             (int)p.page_size, (int)p.form.heads, (int)p.form.head_dim);
    make_prefix(&p);
    if (!grid_failed(report)) attend(&p);
    if (!grid_failed(report)) join(&p.states, &p.form, report);
    fig_random random = fig_random_seed(9);
    for (int i = 0; i < 12 && !grid_failed(report); i++)
        check_head(&p, fig_random_range(&random, 0, p.form.rows - 1),
                   fig_random_range(&random, 0, p.form.heads - 1));
    prefix_close(&p);
    return work;
}

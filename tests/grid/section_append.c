/* section_append.c: tests appending to caches. Runs the grids of the peer's page tests and of its
 * fused RoPE and append with fp8, and a grid of our own over every layout.
 *
 * Invariant: after a step, every byte of K and V is right. The step's tokens are right to within
 * half a unit (bit for bit if the dtypes are equal), and all other bytes are unchanged. */
#include "tests/grid/grid_sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/figraph/inspect/inspect_names.h"
#include "tools/figraph/truth/truth.h"

enum { EXTRA_PAGES = 3 };

typedef struct append_form {
    fig_dtype dtype, kv_dtype; /* kv_dtype 0: equal to dtype */
    int32_t rows, row_tokens, page_size, kv_heads, head_dim;
    int32_t q_heads, rotary_dim; /* 0: no RoPE before the append */
    fig_kv_layout layout;
    int32_t pairs, packed; /* 1: K and V share a pool; 1: k and v share an array */
    int32_t scales;        /* 0: none; 1: per tensor; 2: per head */
    int32_t uneven;        /* 1: only some of a row's tokens, its last ones, belong to the step */
    int32_t steps;         /* in each step, rows grow by row_tokens, up to `lengths` */
    int32_t lengths[GRID_ROW_LIMIT];
} append_form;

typedef struct side {
    const char *name, *cache_name, *scale_name;
    grid_array *rows, *cache;
    grid_array scale;
    int64_t rows_first, cache_first;
} side;

typedef struct scene {
    const append_form *form;
    grid_report *report;
    grid_bench bench;
    fig_random random;
    side sides[2];
    grid_array q, kv_rows[2], pools[2], before[2], table;
    int32_t now[GRID_ROW_LIMIT]; /* the lengths in the current step */
    int32_t kv_limit, sequence_pages, pages;
    int64_t row_strides[3], kv_strides[4];
    fig_dtype kv_dtype;
} scene;

/* ---- Memory -------------------------------------------------------------------------------- */

static void lay_out(scene *s) {
    const append_form *form = s->form;
    const int64_t head_dim = form->head_dim, heads = form->kv_heads;
    const int64_t page_tokens = form->page_size > 0 ? form->page_size : s->kv_limit;
    const int64_t page = page_tokens * heads * head_dim;
    s->kv_strides[0] = form->pairs ? 2 * page : page;
    s->kv_strides[1] = form->layout == FIG_HND ? head_dim : heads * head_dim;
    s->kv_strides[2] = form->layout == FIG_HND ? page_tokens * head_dim : head_dim;
    s->kv_strides[3] = 1;
    s->row_strides[0] = heads * head_dim * (form->packed ? 2 : 1);
    s->row_strides[1] = head_dim;
    s->row_strides[2] = 1;
    for (int i = 0; i < 2; i++) {
        s->sides[i] = (side){.name = i == 0 ? "k" : "v",
                             .cache_name = i == 0 ? "k_cache" : "v_cache",
                             .scale_name = i == 0 ? "k_scale" : "v_scale",
                             .rows = &s->kv_rows[form->packed ? 0 : i],
                             .cache = &s->pools[form->pairs ? 0 : i],
                             .rows_first = form->packed && i == 1 ? heads * head_dim : 0,
                             .cache_first = form->pairs && i == 1 ? page : 0};
    }
}

static void make_memory(scene *s) {
    const append_form *form = s->form;
    const int64_t tokens = (int64_t)form->rows * form->row_tokens;
    const int64_t page_tokens = form->page_size > 0 ? form->page_size : s->kv_limit;
    const int64_t page = page_tokens * form->kv_heads * form->head_dim;
    grid_array_make(s->report, &s->q, tokens * (form->q_heads + 1) * form->head_dim, form->dtype);
    grid_array_make(s->report, &s->table, (int64_t)form->rows * s->sequence_pages, FIG_I32);
    for (int i = 0; i < 2; i++) {
        int64_t rows = form->packed && i == 1 ? 1 : tokens * s->row_strides[0];
        int64_t cache = form->pairs && i == 1 ? 1 : s->pages * page * (form->pairs ? 2 : 1);
        grid_array_make(s->report, &s->kv_rows[i], rows, form->dtype);
        grid_array_make(s->report, &s->pools[i], cache, s->kv_dtype);
        grid_array_make(s->report, &s->before[i], cache, s->kv_dtype);
        grid_array_make(s->report, &s->sides[i].scale, form->kv_heads, FIG_F32);
        for (int32_t head = 0; head < form->kv_heads && !grid_failed(s->report); head++)
            grid_store(&s->sides[i].scale, FIG_F32, head,
                       0.02 + 0.01 * fig_random_float(&s->random));
    }
    if (grid_failed(s->report)) return;
    int32_t *table = (int32_t *)(void *)s->table.bytes;
    /* shuffles while it fills the array */
    for (int32_t i = 0; i < form->rows * s->sequence_pages; i++) {
        int32_t j = fig_random_range(&s->random, 0, i);
        table[i] = table[j];
        table[j] = i + EXTRA_PAGES;
    }
}

static void scene_close(scene *s) {
    grid_bench_close(&s->bench);
    grid_array_free(&s->q);
    grid_array_free(&s->table);
    for (int i = 0; i < 2; i++) {
        grid_array_free(&s->kv_rows[i]);
        grid_array_free(&s->pools[i]);
        grid_array_free(&s->before[i]);
        grid_array_free(&s->sides[i].scale);
    }
}

/* ---- The program --------------------------------------------------------------------------- */

static fig_tensor rows(scene *s, const char *name, int32_t heads, const grid_place *place) {
    const fig_tensor_info info = {.name = name,
                                  .dtype = s->form->dtype,
                                  .dims = {FIG_DIM_BATCH, heads, s->form->head_dim},
                                  .multiple = s->form->row_tokens};
    return grid_bench_tensor(&s->bench, &info, place);
}

static void record_side(scene *s, const side *x, fig_tensor *in, fig_tensor *cache,
                        fig_tensor *scale) {
    const append_form *form = s->form;
    const fig_tensor_info info = {.name = x->cache_name,
                                  .dtype = s->kv_dtype,
                                  .dims = {FIG_DIM_PAGES,
                                           form->page_size > 0 ? form->page_size : s->kv_limit,
                                           form->kv_heads, form->head_dim},
                                  .layout = form->layout};
    const fig_tensor_info scales = {
        .name = x->scale_name, .dtype = FIG_F32, .dims = {form->scales == 2 ? form->kv_heads : 1}};
    *in = rows(s, x->name, form->kv_heads, &(grid_place){x->rows, x->rows_first, s->row_strides});
    *cache = grid_bench_tensor(
        &s->bench, &info,
        &(grid_place){x->cache, x->cache_first, form->pairs ? s->kv_strides : NULL});
    if (form->scales > 0)
        *scale = grid_bench_tensor(&s->bench, &scales, &(grid_place){.array = &x->scale});
}

static void record(scene *s) {
    const append_form *form = s->form;
    fig_append_kv_op op = {.size = sizeof op};
    record_side(s, &s->sides[0], &op.k, &op.cache.k, &op.cache.k_scale);
    record_side(s, &s->sides[1], &op.v, &op.cache.v, &op.cache.v_scale);
    if (form->page_size > 0)
        op.cache.page_table = grid_bench_tensor(
            &s->bench,
            &(fig_tensor_info){
                .name = "page_table", .dtype = FIG_I32, .dims = {form->rows, s->sequence_pages}},
            &(grid_place){.array = &s->table});
    if (form->q_heads > 0) {
        const fig_rope_spec rope = {.rotary_dim = form->rotary_dim, .interleaved = 1};
        const fig_tensor q = rows(s, "q", form->q_heads, &(grid_place){.array = &s->q});
        if (!grid_failed(s->report))
            fig_rope(s->bench.program, FIG_OPTIONS(fig_rope_op, .q = q, .k = op.k, .rope = &rope));
    }
    if (!grid_failed(s->report)) fig_append_kv(s->bench.program, &op);
}

/* ---- Truth --------------------------------------------------------------------------------- */

static truth_cache cache_of(const scene *s, const side *x) {
    const append_form *form = s->form;
    return (truth_cache){
        .base = x->cache->bytes,
        .dtype = s->kv_dtype,
        .page_stride = s->kv_strides[0],
        .token_stride = s->kv_strides[1],
        .head_stride = s->kv_strides[2],
        .pages = s->pages,
        .page_size = form->page_size > 0 ? form->page_size : s->kv_limit,
        .page_table = form->page_size > 0 ? (const int32_t *)(const void *)s->table.bytes : NULL,
        .table_stride = s->sequence_pages};
}

static double greatest_of(fig_dtype dtype) {
    return dtype == FIG_E4M3 ? 448 : dtype == FIG_E5M2 ? 57344 : INFINITY;
}

/* Checks one head of one token, and copies it to `before`, so that it counts as unchanged from then
 * on. */
static void check_head(scene *s, int i, int64_t number, int64_t at, int32_t head) {
    const append_form *form = s->form;
    const side *x = &s->sides[i];
    const int64_t from = x->rows_first + number * s->row_strides[0] + head * s->row_strides[1];
    const int64_t to = x->cache_first + at + head * s->kv_strides[2];
    const int exact = s->kv_dtype == form->dtype;
    const size_t item = x->cache->count / (size_t)(s->pages * s->kv_strides[0]);
    double want[TRUTH_HEAD_DIM_LIMIT], scale = 1;
    char name[40];
    if (form->scales > 0) scale = truth_load(x->scale.bytes, FIG_F32, form->scales == 2 ? head : 0);
    for (int32_t c = 0; c < form->head_dim; c++) {
        double value = truth_load(x->rows->bytes, form->dtype, from + c) / scale;
        double greatest = exact ? INFINITY : greatest_of(s->kv_dtype);
        want[c] = fmax(-greatest, fmin(greatest, value));
    }
    snprintf(name, sizeof name, "append %s to %s", fig_inspect_names_dtype(form->dtype),
             fig_inspect_names_dtype(s->kv_dtype));
    grid_compare(s->report,
                 &(grid_output){name, x->cache->bytes, s->kv_dtype, to, form->head_dim, want, want,
                                exact ? 0 : 0.25, exact ? 0 : 0.5 + 0x1p-20});
    memcpy(s->before[form->pairs ? 0 : i].bytes + (size_t)to * item,
           x->cache->bytes + (size_t)to * item, (size_t)form->head_dim * item);
}

static int32_t tokens_of(const append_form *form, int32_t row) {
    return form->uneven ? 1 + row % form->row_tokens : form->row_tokens;
}

static void check(scene *s) {
    const append_form *form = s->form;
    for (int32_t row = 0; row < form->rows; row++)
        for (int32_t query = form->row_tokens - tokens_of(form, row);
             query < form->row_tokens && s->now[row] > 0; query++)
            for (int i = 0; i < 2; i++) {
                const truth_cache cache = cache_of(s, &s->sides[i]);
                int64_t at =
                    truth_cache_offset(&cache, row, s->now[row] - form->row_tokens + query);
                for (int32_t head = 0; head < form->kv_heads && !grid_failed(s->report); head++)
                    check_head(s, i, (int64_t)row * form->row_tokens + query, at, head);
            }
    for (int i = 0; i < 2 && !grid_failed(s->report); i++) {
        const uint8_t *bytes = s->pools[i].bytes, *before = s->before[i].bytes;
        if (memcmp(bytes, before, s->pools[i].count) == 0) continue;
        size_t at = 0;
        while (bytes[at] == before[at])
            at++;
        grid_fail(s->report, "byte %zu of pool %d was 0x%02x and became 0x%02x", at, i, before[at],
                  bytes[at]);
    }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

static int64_t work_of(const append_form *form) {
    return (int64_t)form->steps * form->rows * form->row_tokens * form->kv_heads * form->head_dim *
           32;
}

static void step(scene *s, int32_t index) {
    const append_form *form = s->form;
    const int64_t tokens = (int64_t)form->rows * form->row_tokens;
    int32_t counts[GRID_ROW_LIMIT];
    for (int i = 0; i < (form->packed ? 1 : 2); i++)
        grid_fill(&s->kv_rows[i], form->dtype, 0, tokens * s->row_strides[0], &s->random);
    if (form->q_heads > 0)
        grid_fill(&s->q, form->dtype, 0, tokens * form->q_heads * form->head_dim, &s->random);
    for (int32_t row = 0; row < form->rows; row++) {
        int32_t left = (form->steps - 1 - index) * form->row_tokens;
        int32_t length = form->lengths[row] - (form->steps > 1 ? left : 0);
        s->now[row] = length < form->row_tokens ? 0 : length;
        counts[row] = tokens_of(form, row);
    }
    grid_bench_step(&s->bench, FIG_OPTIONS(fig_step, .rows = form->rows, .kv_lengths = s->now,
                                           .row_tokens = form->uneven ? counts : NULL));
    if (!grid_failed(s->report)) check(s);
}

static int64_t run(const append_form *form, grid_report *report) {
    scene s = {.form = form, .report = report, .random = fig_random_seed(3)};
    if (report == NULL) return work_of(form);
    for (int32_t row = 0; row < form->rows; row++)
        if (form->lengths[row] > s.kv_limit) s.kv_limit = form->lengths[row];
    s.kv_dtype = form->kv_dtype != 0 ? form->kv_dtype : form->dtype;
    s.sequence_pages =
        form->page_size > 0 ? (s.kv_limit + form->page_size - 1) / form->page_size : 1;
    s.pages = form->rows * s.sequence_pages + (form->page_size > 0 ? EXTRA_PAGES : 0);
    snprintf(report->shape, sizeof report->shape,
             "append: %s to %s, %d x %d rows, page %d, %d heads of %d, %s, pairs %d, packed %d, "
             "scales %d, steps %d, uneven %d, rope of %d",
             fig_inspect_names_dtype(form->dtype), fig_inspect_names_dtype(s.kv_dtype),
             (int)form->rows, (int)form->row_tokens, (int)form->page_size, (int)form->kv_heads,
             (int)form->head_dim, form->layout == FIG_HND ? "HND" : "NHD", (int)form->pairs,
             (int)form->packed, (int)form->scales, (int)form->steps, (int)form->uneven,
             (int)form->rotary_dim);
    lay_out(&s);
    make_memory(&s);
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = form->dtype,
                           .kv_dtype = form->kv_dtype,
                           .q_heads = form->kv_heads,
                           .kv_heads = form->kv_heads,
                           .head_dim = form->head_dim,
                           .page_size = form->page_size,
                           .batch_limit = form->rows,
                           .kv_limit = s.kv_limit,
                           .row_tokens = form->row_tokens};
    grid_bench_open(&s.bench, report, &spec);
    record(&s);
    const fig_bucket bucket = {form->rows, s.kv_limit};
    grid_bench_ready(&s.bench,
                     FIG_OPTIONS(fig_lower_options, .buckets = &bucket, .bucket_count = 1));
    for (int32_t i = 0; i < form->steps && !grid_failed(report); i++)
        step(&s, i);
    scene_close(&s);
    return work_of(form);
}

typedef struct kind {
    fig_dtype dtype, kv_dtype;
    int32_t scales;
} kind;
static const kind kinds[] = {
    {FIG_F16, 0, 0},         {FIG_BF16, 0, 0},        {FIG_F32, 0, 0},
    {FIG_F16, FIG_E4M3, 0},  {FIG_F16, FIG_E4M3, 1},  {FIG_F16, FIG_E4M3, 2},
    {FIG_F16, FIG_E5M2, 0},  {FIG_F16, FIG_E5M2, 1},  {FIG_F16, FIG_E5M2, 2},
    {FIG_BF16, FIG_E4M3, 0}, {FIG_BF16, FIG_E4M3, 1}, {FIG_BF16, FIG_E4M3, 2},
    {FIG_BF16, FIG_E5M2, 0}, {FIG_BF16, FIG_E5M2, 1}, {FIG_BF16, FIG_E5M2, 2}};

int64_t grid_run_append(grid_cursor *cursor, grid_report *report) {
    append_form form = {.steps = 1, .kv_heads = 4};
    const kind *pair = &kinds[GRID_PICK(cursor, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)];
    form.dtype = pair->dtype;
    form.kv_dtype = pair->kv_dtype;
    form.scales = pair->scales;
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.packed = GRID_PICK(cursor, 0, 1);
    form.page_size = GRID_PICK(cursor, 0, 1, 5, 16);
    form.pairs = GRID_PICK(cursor, 0, 1);
    form.row_tokens = GRID_PICK(cursor, 1, 2, 3, 8);
    form.head_dim = GRID_PICK(cursor, 64, 80, 96, 128, 256);
    form.rows = GRID_PICK(cursor, 1, 7, 33);
    form.uneven = form.rows == 7;
    fig_random random = fig_random_seed((uint64_t)form.head_dim);
    for (int32_t row = 0; row < form.rows; row++)
        form.lengths[row] = row % 4 == 1 ? 0 : fig_random_range(&random, form.row_tokens, 70);
    return run(&form, report);
}

/* The peer's case appends 45, 8, 25 and 22 tokens to pages of 16. Here they are appended one by
 * one, and a row is idle before its turn. */
int64_t grid_run_prefill_append(grid_cursor *cursor, grid_report *report) {
    append_form form = {.steps = 45, .kv_heads = 32, .head_dim = 128, .page_size = 16};
    form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16);
    form.packed = GRID_PICK(cursor, 0, 1);
    form.pairs = GRID_PICK(cursor, 0, 1);
    form.row_tokens = 1;
    form.rows = 4;
    memcpy(form.lengths, (const int32_t[]){45, 8, 25, 22}, 4 * sizeof(int32_t));
    return run(&form, report);
}

/* Each tuple is a case of the peer, grouped or multi-head: q heads, kv heads, rotated dims, other
 * dims. */
int64_t grid_run_rope_append(grid_cursor *cursor, grid_report *report) {
    static const int32_t tuples[9][4] = {{32, 8, 64, 64},  {64, 16, 128, 128}, {24, 6, 32, 96},
                                         {32, 8, 128, 0},  {64, 8, 128, 0},    {64, 8, 64, 0},
                                         {32, 32, 64, 64}, {16, 16, 128, 128}, {8, 8, 32, 96}};
    append_form form = {.steps = 1, .row_tokens = 1, .scales = 1};
    const int32_t *tuple = tuples[GRID_PICK(cursor, 0, 1, 2, 3, 4, 5, 6, 7, 8)];
    form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16);
    form.kv_dtype = (fig_dtype)GRID_PICK(cursor, FIG_E4M3, FIG_E5M2);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.page_size = GRID_PICK(cursor, 16, 32);
    form.q_heads = tuple[0];
    form.kv_heads = tuple[1];
    form.rotary_dim = tuple[2];
    form.head_dim = tuple[2] + tuple[3];
    const int32_t tokens = GRID_PICK(cursor, 1, 19, 128, 199, 899, 2047);
    /* 2047 tokens are run as 1024 rows of 2 */
    form.rows = tokens > GRID_ROW_LIMIT ? GRID_ROW_LIMIT : tokens;
    if (tokens > GRID_ROW_LIMIT) form.row_tokens = 2;
    for (int32_t row = 0; row < form.rows; row++)
        form.lengths[row] = form.row_tokens + row * 7 % 40;
    return run(&form, report);
}

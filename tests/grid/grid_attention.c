/* grid_attention.c: see grid_attention.h.
 *
 * Each row has its own pages if they fit into memory. In larger steps, rows draw pages from one
 * pool, since such a step does not test the contents of pages. In a large step, as many random
 * heads are compared as the report has time for, and the whole output must be finite. Invariant:
 * the contents of rows depend only on the form and its seed. */
#include "tests/grid/grid_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/inspect/inspect_names.h"
#include "tools/figraph/truth/truth_attention.h"

enum {
    /* the most bytes of K, or of V, for which rows have pages of their own */
    POOL_BYTES = 48 << 20,
    TRUTH_PER_S = 25000000 /* about how many elements of K the float64 code processes per second */
};

/* The memory of a case. */
typedef struct scene {
    const grid_attention *form;
    grid_report *report;
    fig_random random;
    grid_bench bench;
    grid_array q, out, lse, k, v, table, sinks, alibi, k_scale, v_scale, lengths;
    grid_array *v_pool; /* the array that holds V: v, or k if there is one pool */
    int32_t row_tokens, q_heads, kv_limit, page_tokens, sequence_pages, batch;
    int64_t pages, v_first;
    int64_t q_strides[3], kv_strides[4]; /* the strides of the logical dims */
    int shared;                          /* 1: rows draw their pages from a pool */
    int32_t sequences[GRID_ROW_LIMIT];
} scene;

static fig_dtype kv_dtype_of(const grid_attention *form) {
    return form->kv_dtype != 0 ? form->kv_dtype : form->dtype;
}

static int32_t longest_of(const grid_attention *form) {
    int32_t longest = 1;
    for (int32_t step = 0; step < (form->step_count > 0 ? form->step_count : 1); step++)
        for (int32_t row = 0; row < form->rows; row++)
            if (form->lengths[step][row] > longest) longest = form->lengths[step][row];
    return longest;
}

/* ---- Addresses and strides ------------------------------------------------------------------ */

static int32_t row_longest(const scene *s, int32_t row) {
    int32_t longest = 0;
    for (int32_t step = 0; step < s->form->step_count; step++)
        if (s->form->lengths[step][row] > longest) longest = s->form->lengths[step][row];
    return longest;
}

static int64_t pages_of_rows(const scene *s) {
    int64_t pages = 0;
    for (int32_t row = 0; row < s->form->rows; row++)
        pages += (row_longest(s, row) + s->page_tokens - 1) / s->page_tokens;
    return pages;
}

static void lay_out(scene *s) {
    const grid_attention *form = s->form;
    const int64_t item = form->kv_dtype != 0 ? 1 : form->dtype == FIG_F32 ? 4 : 2;
    const int64_t head_dim = form->head_dim, heads = form->kv_heads;
    const int64_t page = s->page_tokens * heads * head_dim;
    const int heads_first = form->layout == FIG_HND;
    s->pages = form->page_size == 0 ? s->batch : pages_of_rows(s) + 3;
    s->shared = form->page_size > 0 && (form->pooled || s->pages * page * item > POOL_BYTES);
    if (s->shared) s->pages = POOL_BYTES / (page * item) + 1;
    s->kv_strides[0] = form->pool == GRID_PAIRS ? 2 * page : page;
    s->kv_strides[1] = heads_first ? head_dim : heads * head_dim;
    s->kv_strides[2] = heads_first ? s->page_tokens * head_dim : head_dim;
    s->kv_strides[3] = 1;
    s->v_first = form->pool == GRID_PAIRS ? page : form->pool == GRID_HALVES ? s->pages * page : 0;
    s->q_strides[0] = (s->q_heads + (form->packed ? 2 * heads : 0)) * head_dim;
    s->q_strides[1] = head_dim;
    s->q_strides[2] = 1;
}

/* Returns the generator of a row's contents. These do not depend on other rows. */
static fig_random row_random(const scene *s, int32_t row, int32_t part) {
    return fig_random_seed(s->form->seed * 1000003 + (uint64_t)row * 8 + (uint64_t)part);
}

/* Makes the pool. If rows draw pages from it, they may see any token, so it is filled
 * completely. */
static void make_pool(scene *s, grid_array *pool, int64_t elements, fig_random *random) {
    if (s->shared) {
        grid_array_noise(s->report, pool, elements, kv_dtype_of(s->form), random);
    } else {
        grid_array_make(s->report, pool, elements, kv_dtype_of(s->form));
    }
}

static void make_memory(scene *s) {
    const grid_attention *form = s->form;
    const int64_t page = (int64_t)s->page_tokens * form->kv_heads * form->head_dim;
    const int64_t queries = (int64_t)s->batch * s->row_tokens;
    const int64_t pools = form->pool == GRID_APART ? 1 : 2;
    grid_array_make(s->report, &s->q, queries * s->q_strides[0], form->dtype);
    grid_array_make(s->report, &s->out, queries * s->q_heads * form->head_dim, form->dtype);
    grid_array_make(s->report, &s->lse, queries * s->q_heads, FIG_F32);
    fig_random random = row_random(s, GRID_ROW_LIMIT, 0);
    make_pool(s, &s->k, pools * s->pages * page, &random);
    if (form->pool == GRID_APART) make_pool(s, &s->v, s->pages * page, &random);
    s->v_pool = form->pool == GRID_APART ? &s->v : &s->k;
    grid_array_make(s->report, &s->table, (int64_t)s->batch * s->sequence_pages, FIG_I32);
    grid_array_make(s->report, &s->sinks, s->q_heads, FIG_F32);
    grid_array_make(s->report, &s->alibi, s->q_heads, FIG_F32);
    grid_array_make(s->report, &s->k_scale, form->kv_heads, FIG_F32);
    grid_array_make(s->report, &s->v_scale, form->kv_heads, FIG_F32);
    grid_array_make(s->report, &s->lengths, s->batch, FIG_I32);
}

static void scene_close(scene *s) {
    grid_array *const arrays[] = {&s->q,       &s->out,     &s->lse,    &s->k,
                                  &s->v,       &s->table,   &s->sinks,  &s->alibi,
                                  &s->k_scale, &s->v_scale, &s->lengths};
    grid_bench_close(&s->bench);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        grid_array_free(arrays[i]);
}

/* ---- Contents ------------------------------------------------------------------------------- */

/* Fills the page table in random order. Entries after a row's last page are not numbers of
 * pages. */
static void fill_table(scene *s) {
    int32_t *table = (int32_t *)(void *)s->table.bytes;
    int32_t *order = calloc((size_t)s->pages, sizeof *order), taken = 0;
    if (order == NULL) {
        grid_fail(s->report, "no memory for %lld pages", (long long)s->pages);
        return;
    }
    for (int32_t i = 0; i < s->pages; i++) {
        int32_t j = fig_random_range(&s->random, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    for (int32_t i = 0; i < s->batch * s->sequence_pages; i++)
        table[i] = i % 2 == 0 ? INT32_MAX : -1;
    for (int32_t row = 0; row < s->form->rows; row++) {
        int32_t count = (row_longest(s, row) + s->page_tokens - 1) / s->page_tokens;
        int32_t *entries = table + s->sequences[row] * s->sequence_pages;
        fig_random random = row_random(s, row, 0);
        for (int32_t i = 0; i < count; i++)
            entries[i] =
                s->shared ? fig_random_range(&random, 0, (int32_t)s->pages - 1) : order[taken++];
    }
    free(order);
}

/* Returns the first token that a query of any step sees. */
static int32_t first_seen(const scene *s, int32_t row) {
    int32_t shortest = INT32_MAX;
    if (s->form->window == 0) return 0;
    for (int32_t step = 0; step < s->form->step_count; step++) {
        int32_t length = s->form->lengths[step][row];
        if (length > 0 && length < shortest) shortest = length;
    }
    int32_t first = shortest - s->row_tokens + 1 - s->form->window;
    return first > 0 ? first : 0;
}

static truth_cache cache_of(const scene *s, const grid_array *pool, int64_t first) {
    const fig_dtype dtype = kv_dtype_of(s->form);
    const int64_t item = dtype == FIG_F32 ? 4 : s->form->kv_dtype != 0 ? 1 : 2;
    return (truth_cache){.base = pool->bytes + first * item,
                         .dtype = dtype,
                         .page_stride = s->kv_strides[0],
                         .token_stride = s->kv_strides[1],
                         .head_stride = s->kv_strides[2],
                         .pages = s->pages,
                         .page_size = s->page_tokens,
                         .page_table = s->form->page_size == 0
                                           ? NULL
                                           : (const int32_t *)(const void *)s->table.bytes,
                         .table_stride = s->sequence_pages};
}

static void fill_tokens(scene *s, const grid_array *pool, int64_t first, int32_t part) {
    const truth_cache cache = cache_of(s, pool, first);
    for (int32_t row = 0; row < s->form->rows; row++) {
        int32_t end = row_longest(s, row);
        fig_random random = row_random(s, row, part);
        for (int32_t token = first_seen(s, row); token < end; token++) {
            int64_t at = first + truth_cache_offset(&cache, s->sequences[row], token);
            for (int32_t head = 0; head < s->form->kv_heads; head++)
                grid_fill(pool, cache.dtype, at + head * cache.head_stride, s->form->head_dim,
                          &random);
        }
    }
}

/* Makes every logit equal `offset`: only element 0 of q is not 0, and it is large, as element 0 of
 * k is. All logits are made equal, since f32 could not tell logits of this size apart by small
 * differences. */
static void offset_logits(scene *s) {
    const grid_attention *form = s->form;
    const truth_cache cache = cache_of(s, &s->k, 0);
    const double size = sqrt(fabs((double)form->logit_offset) * sqrt(form->head_dim));
    for (int64_t row = 0; row < (int64_t)form->rows * s->row_tokens; row++)
        for (int32_t i = 0; i < s->q_heads * form->head_dim; i++) {
            double first = form->logit_offset < 0 ? -size : size;
            grid_store(&s->q, form->dtype, row * s->q_strides[0] + i,
                       i % form->head_dim == 0 ? first : 0);
        }
    for (int32_t row = 0; row < form->rows; row++)
        for (int32_t token = 0; token < row_longest(s, row); token++)
            for (int32_t head = 0; head < form->kv_heads; head++)
                grid_store(&s->k, cache.dtype,
                           truth_cache_offset(&cache, s->sequences[row], token) +
                               head * cache.head_stride,
                           size);
}

static void fill_words(scene *s) {
    for (int32_t head = 0; head < s->q_heads; head++) {
        grid_store(&s->sinks, FIG_F32, head, 2 * fig_random_normal(&s->random));
        grid_store(&s->alibi, FIG_F32, head, exp2(-8.0 * (head + 1) / s->q_heads));
    }
    for (int32_t head = 0; head < s->form->kv_heads; head++) {
        grid_store(&s->k_scale, FIG_F32, head, 0.9 + 0.6 * fig_random_float(&s->random));
        grid_store(&s->v_scale, FIG_F32, head, 0.9 + 0.6 * fig_random_float(&s->random));
    }
}

static void fill(scene *s) {
    const grid_attention *form = s->form;
    fill_table(s);
    if (grid_failed(s->report)) return;
    for (int32_t row = 0; row < form->rows; row++) {
        fig_random random = row_random(s, row, 1);
        for (int64_t query = 0; query < s->row_tokens; query++)
            grid_fill(&s->q, form->dtype, (row * s->row_tokens + query) * s->q_strides[0],
                      s->q_heads * form->head_dim, &random);
    }
    if (!s->shared) {
        fill_tokens(s, &s->k, 0, 2);
        fill_tokens(s, s->v_pool, s->v_first, 3);
    }
    fill_words(s);
    if (form->logit_offset != 0) offset_logits(s);
}

/* ---- The program --------------------------------------------------------------------------- */

static fig_tensor words(scene *s, const char *name, const grid_array *array, int64_t count) {
    return grid_bench_tensor(&s->bench,
                             &(fig_tensor_info){.name = name, .dtype = FIG_F32, .dims = {count}},
                             &(grid_place){.array = array});
}

static fig_tensor rows(scene *s, const char *name, const grid_array *array,
                       const int64_t *strides) {
    const grid_attention *form = s->form;
    const fig_tensor_info info = {.name = name,
                                  .dtype = form->dtype,
                                  .dims = {FIG_DIM_BATCH, s->q_heads, form->head_dim},
                                  .multiple = s->row_tokens};
    return grid_bench_tensor(&s->bench, &info, &(grid_place){.array = array, .strides = strides});
}

static fig_tensor cache(scene *s, const char *name, const grid_array *pool, int64_t first) {
    const grid_attention *form = s->form;
    const fig_tensor_info info = {
        .name = name,
        .dtype = kv_dtype_of(form),
        .dims = {FIG_DIM_PAGES, s->page_tokens, form->kv_heads, form->head_dim},
        .layout = form->layout};
    const grid_place place = {
        .array = pool,
        .first = first,
        .strides = form->pool == GRID_APART || form->page_size == 0 ? NULL : s->kv_strides};
    return grid_bench_tensor(&s->bench, &info, &place);
}

static void record(scene *s) {
    const grid_attention *form = s->form;
    fig_attention_op op = {.size = sizeof op, .window = form->window, .soft_cap = form->soft_cap};
    if (form->device_lengths) {
        const fig_tensor_info info = {.name = "lengths", .dtype = FIG_I32, .dims = {FIG_DIM_BATCH}};
        const fig_tensor lengths =
            grid_bench_tensor(&s->bench, &info, &(grid_place){.array = &s->lengths});
        if (!grid_failed(s->report))
            fig_program_read_lengths(s->bench.program, lengths, (fig_tensor){0});
    }
    op.q = rows(s, "q", &s->q, form->packed ? s->q_strides : NULL);
    op.out = rows(s, "out", &s->out, NULL);
    op.lse = grid_bench_tensor(&s->bench,
                               &(fig_tensor_info){.name = "lse",
                                                  .dtype = FIG_F32,
                                                  .dims = {FIG_DIM_BATCH, s->q_heads},
                                                  .multiple = s->row_tokens},
                               &(grid_place){.array = &s->lse});
    op.cache.k = cache(s, "k_cache", &s->k, 0);
    op.cache.v = cache(s, "v_cache", s->v_pool, s->v_first);
    if (form->page_size > 0)
        op.cache.page_table = grid_bench_tensor(
            &s->bench,
            &(fig_tensor_info){
                .name = "page_table", .dtype = FIG_I32, .dims = {s->batch, s->sequence_pages}},
            &(grid_place){.array = &s->table});
    const int64_t scales = form->scales == GRID_PER_HEAD ? form->kv_heads : 1;
    if (form->scales != GRID_UNSCALED) {
        op.cache.k_scale = words(s, "k_scale", &s->k_scale, scales);
        op.cache.v_scale = words(s, "v_scale", &s->v_scale, scales);
    }
    if (form->sinks) op.sinks = words(s, "sinks", &s->sinks, s->q_heads);
    if (form->alibi) op.alibi = words(s, "alibi", &s->alibi, s->q_heads);
    if (!grid_failed(s->report)) fig_attention(s->bench.program, &op);
}

static void scene_open(scene *s, const grid_attention *form, grid_report *report) {
    *s = (scene){.form = form, .report = report, .random = fig_random_seed(form->seed)};
    s->row_tokens = form->row_tokens > 0 ? form->row_tokens : 1;
    s->q_heads = form->kv_heads * form->group;
    s->kv_limit = form->kv_limit > 0 ? form->kv_limit : longest_of(form);
    s->batch = form->batch_limit > 0 ? form->batch_limit : form->rows;
    s->page_tokens = form->page_size > 0 ? form->page_size : s->kv_limit;
    s->sequence_pages = (s->kv_limit + s->page_tokens - 1) / s->page_tokens;
    for (int32_t row = 0; row < form->rows; row++) { /* shuffles while it fills the array */
        int32_t other = form->reorder ? fig_random_range(&s->random, 0, row) : row;
        s->sequences[row] = s->sequences[other];
        s->sequences[other] = row;
    }
    lay_out(s);
    make_memory(s);
    if (!grid_failed(report)) fill(s);
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = form->dtype,
                           .kv_dtype = form->kv_dtype,
                           .q_heads = s->q_heads,
                           .kv_heads = form->kv_heads,
                           .head_dim = form->head_dim,
                           .page_size = form->page_size,
                           .batch_limit = s->batch,
                           .kv_limit = s->kv_limit,
                           .row_tokens = s->row_tokens};
    grid_bench_open(&s->bench, report, &spec);
    record(s);
    const fig_bucket bucket = {s->batch, s->kv_limit};
    grid_bench_ready(&s->bench,
                     FIG_OPTIONS(fig_lower_options, .buckets = &bucket, .bucket_count = 1,
                                 .deterministic = form->deterministic));
}

/* ---- Truth --------------------------------------------------------------------------------- */

static double word_of(const grid_array *array, int64_t index) {
    return truth_load(array->bytes, FIG_F32, index);
}

static void check_head(scene *s, int32_t step, int32_t row, int32_t query, int32_t q_head) {
    const grid_attention *form = s->form;
    const int32_t length = form->lengths[step][row], kv_head = q_head / form->group;
    const int32_t scale = form->scales == GRID_PER_HEAD ? kv_head : 0;
    const int64_t number = (int64_t)row * s->row_tokens + query;
    const double sink = word_of(&s->sinks, q_head);
    char name[40], lse_name[40];
    truth_attention_args args = {
        .q = {s->q.bytes, form->dtype, s->q_strides[0], s->q_strides[1]},
        .k = cache_of(s, &s->k, 0),
        .v = cache_of(s, s->v_pool, s->v_first),
        .row = number,
        .sequence = s->sequences[row],
        .length = length > 0 ? length - (s->row_tokens - 1 - query) : 0,
        .q_head = q_head,
        .kv_head = kv_head,
        .head_dim = form->head_dim,
        .window = form->window,
        .sm_scale = (double)(float)(1 / sqrt((double)form->head_dim)),
        .soft_cap = (double)form->soft_cap,
        .alibi = form->alibi ? word_of(&s->alibi, q_head) : 0,
        .k_scale = form->scales != GRID_UNSCALED ? word_of(&s->k_scale, scale) : 1,
        .v_scale = form->scales != GRID_UNSCALED ? word_of(&s->v_scale, scale) : 1,
        .sink = form->sinks ? &sink : NULL};
    truth_attention_result want;
    truth_attention(&args, &want);
    snprintf(name, sizeof name, "attention %s, kv %s", fig_inspect_names_dtype(form->dtype),
             fig_inspect_names_dtype(kv_dtype_of(form)));
    snprintf(lse_name, sizeof lse_name, "lse of %s", fig_inspect_names_dtype(form->dtype));
    grid_compare(s->report,
                 &(grid_output){name, s->out.bytes, form->dtype,
                                (number * s->q_heads + q_head) * form->head_dim, form->head_dim,
                                want.out, want.magnitude, grid_peer(form->dtype), 1});
    const double lse_magnitude = fmax(fabs(want.lse), 5);
    grid_compare(s->report,
                 &(grid_output){lse_name, s->lse.bytes, FIG_F32, number * s->q_heads + q_head, 1,
                                &want.lse, isinf(want.lse) ? &(double){1} : &lse_magnitude, 1e-3,
                                1});
    size_t used = strlen(s->report->failure);
    if (used > 0 && strstr(s->report->failure, "; row") == NULL)
        snprintf(s->report->failure + used, sizeof s->report->failure - used,
                 "; row %d of %d, query %d, q head %d, length %d, step %d", (int)row,
                 (int)form->rows, (int)query, (int)q_head, (int)length, (int)step);
}

static void check_finite(scene *s, int32_t step) {
    const int64_t row_count = (int64_t)s->row_tokens * s->q_heads * s->form->head_dim;
    for (int64_t i = 0; i < s->form->rows * row_count; i++) {
        if (isfinite(truth_load(s->out.bytes, s->form->dtype, i))) continue;
        grid_fail(s->report, "out: element %lld of row %lld is not finite in step %d",
                  (long long)(i % row_count), (long long)(i / row_count), (int)step);
        return;
    }
}

/* Returns how many of a row's queries are tokens of the step. */
static int32_t tokens_of(const scene *s, int32_t row) {
    return s->form->uneven ? 1 + row % s->row_tokens : s->row_tokens;
}

/* Compares all heads if there is time, otherwise some of them, with those of the first and the last
 * row. */
static void check_step(scene *s, int32_t step) {
    const grid_attention *form = s->form;
    double left = s->report->truth_s * TRUTH_PER_S / form->step_count;
    int64_t tokens = 0, heads = (int64_t)s->row_tokens * s->q_heads;
    for (int32_t row = 0; row < form->rows; row++)
        tokens += form->lengths[step][row] + 1;
    check_finite(s, step);
    const int whole = (double)(tokens * heads * form->head_dim) <= left;
    for (int64_t i = 0; i < form->rows * heads && !grid_failed(s->report) && left > 0; i++) {
        int64_t row = i / heads, head = i % heads;
        if (!whole) {
            row = i == 0   ? 0
                  : i == 1 ? form->rows - 1
                           : fig_random_range(&s->random, 0, form->rows - 1);
            head = fig_random_range(&s->random, 0, (int32_t)heads - 1);
            left -= (form->lengths[step][row] + 1.0) * form->head_dim;
        }
        const int32_t query = (int32_t)(head / s->q_heads);
        if (query >= s->row_tokens - tokens_of(s, (int32_t)row))
            check_head(s, step, (int32_t)row, query, (int32_t)(head % s->q_heads));
    }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

void grid_attention_uniform(grid_attention *form, int32_t step, int32_t length) {
    for (int32_t row = 0; row < form->rows; row++)
        form->lengths[step][row] = length;
}

int64_t grid_attention_work(const grid_attention *form) {
    int64_t tokens = 0;
    for (int32_t step = 0; step < (form->step_count > 0 ? form->step_count : 1); step++)
        for (int32_t row = 0; row < form->rows; row++) {
            int32_t length = form->lengths[step][row];
            tokens += form->window > 0 && length > form->window ? form->window : length;
        }
    return tokens * form->kv_heads * form->head_dim * 2 *
           (form->group * (form->row_tokens > 0 ? form->row_tokens : 1) + 2);
}

static void describe(const scene *s) {
    const grid_attention *form = s->form;
    snprintf(s->report->shape, sizeof s->report->shape,
             "attention: q %s, kv %s, rows %d x %d, longest %d, page %d, heads %d/%d x %d, %s, "
             "pool %d, packed %d, window %d, cap %g, scales %d, sinks %d, alibi %d, steps %d, "
             "device lengths %d, uneven %d, deterministic %d, seed %llu",
             fig_inspect_names_dtype(form->dtype), fig_inspect_names_dtype(kv_dtype_of(form)),
             (int)form->rows, (int)s->row_tokens, (int)longest_of(form), (int)form->page_size,
             (int)s->q_heads, (int)form->kv_heads, (int)form->head_dim,
             form->layout == FIG_HND ? "HND" : "NHD", (int)form->pool, (int)form->packed,
             (int)form->window, (double)form->soft_cap, (int)form->scales, (int)form->sinks,
             (int)form->alibi, (int)form->step_count, (int)form->device_lengths, (int)form->uneven,
             (int)form->deterministic, (unsigned long long)form->seed);
}

static void step_scene(scene *s, int32_t step) {
    const grid_attention *form = s->form;
    int32_t counts[GRID_ROW_LIMIT];
    if (grid_failed(s->report)) return;
    for (int32_t row = 0; row < form->rows; row++)
        counts[row] = tokens_of(s, row);
    memset(s->out.bytes, 0xff, s->out.count);
    memcpy(s->lengths.bytes, form->lengths[step], (size_t)form->rows * sizeof(int32_t));
    grid_bench_step(&s->bench,
                    FIG_OPTIONS(fig_step, .rows = form->rows,
                                .kv_lengths = form->device_lengths ? NULL : form->lengths[step],
                                .sequences = form->reorder ? s->sequences : NULL,
                                .row_tokens = form->uneven ? counts : NULL));
}

static void open_filled(scene *s, grid_attention *filled, const grid_attention *form,
                        grid_report *report) {
    *filled = *form;
    if (filled->step_count == 0) filled->step_count = 1;
    scene_open(s, filled, report);
    describe(s);
}

void grid_attention_run(const grid_attention *form, grid_report *report) {
    scene s;
    grid_attention filled;
    open_filled(&s, &filled, form, report);
    for (int32_t step = 0; step < filled.step_count && !grid_failed(report); step++) {
        step_scene(&s, step);
        if (!grid_failed(report)) check_step(&s, step);
    }
    scene_close(&s);
}

void grid_attention_bits(const grid_attention *form, grid_report *report, int32_t row_count,
                         uint8_t *bits) {
    scene s;
    grid_attention filled;
    open_filled(&s, &filled, form, report);
    step_scene(&s, 0);
    if (!grid_failed(report))
        memcpy(bits, s.out.bytes,
               s.out.count / (size_t)(s.batch * s.row_tokens) * (size_t)(row_count * s.row_tokens));
    scene_close(&s);
}

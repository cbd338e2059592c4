/* prompt_case.c: see prompt_case.h. */
#include "tests/support/kernels/prompt_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/driver/caller.h"
#include "tests/support/place.h"
#include "tests/support/worst.h"
#include "tools/figraph/truth/truth_attention.h"

fig_prompt_form fig_prompt_form_of(fig_dtype dtype, int32_t q_heads, int32_t kv_heads,
                                   int32_t head_dim) {
    return (fig_prompt_form){.dtype = dtype,
                             .q_heads = q_heads,
                             .kv_heads = kv_heads,
                             .head_dim = head_dim,
                             .page_size = 16,
                             .gap = 1};
}

void fig_prompt_form_add(fig_prompt_form *form, int32_t queries, int32_t length) {
    assert_true(form->rows < FIG_PROMPT_ROW_LIMIT);
    form->contents[form->rows] = form->rows;
    form->queries[form->rows] = queries;
    form->lengths[form->rows++] = length;
}

void fig_prompt_form_share(fig_prompt_form *form, int32_t first_row, int32_t rows, int32_t tokens) {
    assert_true(form->prefix_count < FIG_PROMPT_PREFIX_LIMIT);
    assert_int_equal(tokens % form->page_size, 0);
    form->prefixes[form->prefix_count++] = (fig_prompts_prefix){first_row, rows, tokens};
}

/* ---- Making a case --------------------------------------------------------------------------- */

static int32_t ceil_div(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

/* Returns the distance between two pages, in elements. */
static int64_t page_stride(const fig_prompt_form *f) {
    const int64_t width = f->head_dim + f->between;
    return f->page_size * f->kv_heads * width + (f->apart ? f->head_dim : 0);
}

static void put_strides(const fig_prompt_form *f, int64_t strides[3]) {
    const int64_t width = f->head_dim + f->between;
    strides[0] = page_stride(f);
    strides[1] = f->hnd ? width : f->kv_heads * width;
    strides[2] = f->hnd ? f->page_size * width : width;
}

static void place_rows(fig_prompt_case *c) {
    const fig_prompt_form *f = &c->form;
    int32_t token = f->gap;
    c->columns = 1;
    for (int32_t r = 0; r < f->rows; r++) {
        c->starts[r] = token;
        token += f->queries[r];
        c->pages += ceil_div(f->lengths[r], f->page_size);
        if (ceil_div(f->lengths[r], f->page_size) > c->columns)
            c->columns = ceil_div(f->lengths[r], f->page_size);
    }
    c->starts[f->rows] = token;
    c->tokens = token + f->gap;
    c->pages += 2; /* page 0 and one more page belong to no row */
}

/* Returns the first row that has the same page in a column as this row: another row if they share
 * the page, else the row itself. A row without queries shares no pages. */
static int32_t reader_of(const fig_prompt_form *f, int32_t row, int32_t column) {
    for (int32_t i = 0; i < f->prefix_count && f->queries[row] > 0; i++) {
        const fig_prompts_prefix *prefix = &f->prefixes[i];
        if (row < prefix->first_row || row >= prefix->first_row + prefix->rows) continue;
        if (column >= prefix->tokens / f->page_size) continue;
        int32_t reader = prefix->first_row;
        while (f->queries[reader] == 0)
            reader++;
        return reader;
    }
    return row;
}

/* Returns the query tokens of rows with prefixes. */
static int32_t shared_tokens(const fig_prompt_form *f) {
    int32_t tokens = 0;
    for (int32_t r = 0; r < f->rows; r++) {
        int is_shared = 0;
        for (int32_t i = 0; i < f->prefix_count; i++)
            is_shared |=
                r >= f->prefixes[i].first_row && r < f->prefixes[i].first_row + f->prefixes[i].rows;
        tokens += is_shared ? f->queries[r] : 0;
    }
    return tokens;
}

/* Gives each row its pages, in random order. Entries that no query needs keep a number that no page
 * has. */
static void fill_table(fig_prompt_case *c, fig_random *random) {
    const fig_prompt_form *f = &c->form;
    int32_t *order = malloc((size_t)c->pages * sizeof *order), used = 0;
    assert_non_null(order);
    for (int32_t i = 0; i < c->pages; i++)
        order[i] = i;
    for (int32_t i = (int32_t)c->pages - 1; i > 1; i--) {
        const int32_t j = fig_random_range(random, 1, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int32_t r = 0; r < f->rows; r++) {
        for (int32_t column = 0; column < ceil_div(f->lengths[r], f->page_size); column++) {
            const int32_t reader = reader_of(f, r, column), *table = c->table.data;
            const int32_t page =
                reader < r ? table[(int64_t)reader * c->columns + column] : order[++used];
            fig_reference_array_set(&c->table, (int64_t)r * c->columns + column, page);
        }
    }
    free(order);
}

/* Fills token `token` of a row in both caches. */
static void fill_token(fig_prompt_case *c, int32_t row, int32_t token, fig_random *random) {
    const fig_prompt_form *f = &c->form;
    const int32_t *table = c->table.data;
    const int64_t page = table[(int64_t)row * c->columns + token / f->page_size];
    int64_t strides[3];
    put_strides(f, strides);
    for (int32_t head = 0; head < f->kv_heads; head++) {
        const int64_t at =
            page * strides[0] + token % f->page_size * strides[1] + head * strides[2];
        fig_reference_array_fill(&c->k, at, f->head_dim, random, 1.0f);
        fig_reference_array_fill(&c->v, at, f->head_dim, random, 1.0f);
    }
}

/* Returns the first token that must be finite. If a token that no query sees shares a page and a
 * tile with one that is seen, a kernel may multiply it by 0, so it must not be NaN. */
static int32_t first_token(const fig_prompt_form *f, int32_t row) {
    const int32_t low = f->lengths[row] - f->queries[row] + 1 - f->window;
    if (f->window == 0 || f->sees_all || low <= 0) return 0;
    return low / f->page_size * f->page_size;
}

static void fill_row(fig_prompt_case *c, int32_t row, uint64_t seed) {
    const fig_prompt_form *f = &c->form;
    const int64_t width = (int64_t)f->q_heads * f->head_dim;
    fig_random random = fig_random_seed(seed * 1000003 + (uint64_t)f->contents[row]);
    fig_reference_array_fill(&c->q, c->starts[row] * width, f->queries[row] * width, &random, 2.0f);
    if (f->queries[row] == 0) return;
    for (int32_t token = first_token(f, row); token < f->lengths[row]; token++)
        fill_token(c, row, token, &random);
}

static void open_prompts(fig_prompt_case *c) {
    const fig_prompt_form *f = &c->form;
    const fig_engine_options place = fig_place_options();
    const fig_prompts_options options = {.size = sizeof options,
                                         .device = place.device,
                                         .dtype = f->dtype,
                                         .q_heads = f->q_heads,
                                         .kv_heads = f->kv_heads,
                                         .head_dim = f->head_dim,
                                         .page_size = f->page_size,
                                         .window = f->window,
                                         .sm_scale = f->sm_scale,
                                         .soft_cap = f->soft_cap,
                                         .deterministic = (uint32_t)f->deterministic,
                                         .test = place.test,
                                         .shared_limit = f->shared_limit > 0 ? f->shared_limit
                                                                             : shared_tokens(f)};
    if (fig_prompts_open(&c->prompts, &options) != FIG_OK) fail_msg("%s", fig_message());
}

static void write_plan(fig_prompt_case *c, int32_t prefix_count) {
    const fig_prompt_form *f = &c->form;
    const fig_prompts_step step = {.size = sizeof step,
                                   .rows = f->rows,
                                   .query_start = c->starts,
                                   .lengths = f->lengths,
                                   .page_columns = c->columns,
                                   .sees_all = (uint32_t)f->sees_all,
                                   .prefix_count = f->finds ? 0 : prefix_count,
                                   .prefixes = f->prefixes,
                                   .page_table =
                                       f->finds && prefix_count > 0 ? c->table.data : NULL,
                                   .table_stride = c->columns};
    if (fig_prompts_plan(c->prompts, &step, c->plan, c->memory.plan_bytes) != FIG_OK)
        fail_msg("%s", fig_message());
}

static void measure(fig_prompt_case *c) {
    const fig_prompt_form *f = &c->form;
    c->memory.size = sizeof c->memory;
    if (fig_prompts_measure(c->prompts, f->rows, c->tokens, &c->memory) != FIG_OK)
        fail_msg("%s", fig_message());
    c->plan = fig_place_allocate(c->memory.plan_bytes);
    assert_non_null(c->plan);
}

static void fill_call(fig_prompt_case *c) {
    const fig_prompt_form *f = &c->form;
    c->call = (fig_prompts_call){.size = sizeof c->call,
                                 .tokens = c->tokens,
                                 .plan = c->plan,
                                 .q = c->q.data,
                                 .out = c->out.data,
                                 .lse = c->lse.data,
                                 .k_cache = c->k.data,
                                 .v_cache = c->v.data,
                                 .pages = c->pages,
                                 .page_table = c->table.data,
                                 .sinks = f->sinks ? c->sinks.data : NULL,
                                 .table_stride = c->columns,
                                 .scratch = c->scratch.data,
                                 .scratch_bytes = c->memory.scratch_bytes,
                                 .early_reads = (uint32_t)f->early_reads};
    put_strides(f, c->call.k_strides);
    put_strides(f, c->call.v_strides);
}

void fig_prompt_case_open(fig_prompt_case *c, const fig_prompt_form *form, uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    *c = (fig_prompt_case){.form = *form};
    place_rows(c);
    open_prompts(c);
    measure(c);
    const fig_prompt_form *f = &c->form;
    const int64_t out = (int64_t)c->tokens * f->q_heads * f->head_dim;
    const int64_t cache = c->pages * page_stride(f);
    c->q = fig_reference_array_make((int32_t)f->dtype, out);
    c->out = fig_reference_array_make((int32_t)f->dtype, out);
    c->lse = fig_reference_array_make(FIG_F32, (int64_t)c->tokens * f->q_heads);
    c->k = fig_reference_array_make((int32_t)f->dtype, cache);
    c->v = fig_reference_array_make((int32_t)f->dtype, cache);
    c->table = fig_reference_array_make(FIG_I32, (int64_t)f->rows * c->columns + 1);
    c->sinks = fig_reference_array_make(FIG_F32, f->q_heads);
    c->scratch = fig_reference_array_make(FIG_I32, (int64_t)c->memory.scratch_bytes / 4);
    memset(c->scratch.data, 0, c->memory.zero_bytes);
    fig_reference_array_fill(&c->sinks, 0, f->q_heads, &random, 2.0f);
    fill_table(c, &random);
    write_plan(c, f->prefix_count);
    for (int32_t r = 0; r < f->rows; r++)
        fill_row(c, r, seed);
    fill_call(c);
}

void fig_prompt_case_close(fig_prompt_case *c) {
    fig_reference_array *const arrays[] = {&c->q, &c->out,   &c->lse,   &c->k,
                                           &c->v, &c->table, &c->sinks, &c->scratch};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fig_reference_array_free(arrays[i]);
    fig_place_free(c->plan);
    fig_prompts_close(c->prompts);
}

/* ---- Running --------------------------------------------------------------------------------- */

static void launch(fig_prompt_case *c) {
    fig_caller caller = {0};
    if (fig_place_device() == FIG_DEVICE_CUDA) assert_int_equal(fig_caller_open(&caller), 0);
    c->call.stream = caller.stream;
    if (fig_prompts_run(c->prompts, &c->call) != FIG_OK) fail_msg("%s", fig_message());
    if (caller.stream == NULL) return;
    FIG_CALLER_TRY(&caller, StreamSynchronize, caller.stream);
    assert_int_equal(fig_caller_close(&caller), 0);
}

static void expect_clean_counters(const fig_prompt_case *c) {
    const uint8_t *bytes = c->scratch.data;
    for (uint64_t i = 0; i < c->memory.zero_bytes; i++)
        if (bytes[i] != 0)
            fail_msg("byte %llu of scratch was left %d", (unsigned long long)i, bytes[i]);
}

void fig_prompt_case_run(fig_prompt_case *c) {
    const fig_prompt_form *f = &c->form;
    const size_t out_bytes = (size_t)c->out.count * 2, lse_bytes = (size_t)c->lse.count * 4;
    uint8_t *first = malloc(out_bytes + lse_bytes);
    assert_non_null(first);
    for (int32_t r = 0; r < f->rows; r++) {
        const int64_t rows = (int64_t)f->queries[r] * f->q_heads;
        const int64_t at = (int64_t)c->starts[r] * f->q_heads;
        fig_reference_array_allow(&c->out, at * f->head_dim, rows * f->head_dim);
        fig_reference_array_allow(&c->lse, at, rows);
    }
    fig_reference_array_keep(&c->out);
    fig_reference_array_keep(&c->lse);
    for (int32_t turn = 0; turn < 2; turn++) {
        memcpy(c->out.data, c->out.before, out_bytes);
        memcpy(c->lse.data, c->lse.before, lse_bytes);
        launch(c);
        expect_clean_counters(c);
        fig_reference_array_check(&c->out, "out");
        fig_reference_array_check(&c->lse, "lse");
        if (turn == 1)
            assert_true(memcmp(first, c->out.data, out_bytes) == 0 &&
                        memcmp(first + out_bytes, c->lse.data, lse_bytes) == 0);
        memcpy(first, c->out.data, out_bytes);
        memcpy(first + out_bytes, c->lse.data, lse_bytes);
    }
    free(first);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

typedef struct place {
    int32_t row, query, head;
} place;

typedef struct error {
    double squares, values;
} error;

static truth_cache cache_of(const fig_prompt_case *c, const fig_reference_array *array) {
    int64_t strides[3];
    put_strides(&c->form, strides);
    return (truth_cache){.base = array->data,
                         .dtype = c->form.dtype,
                         .page_stride = strides[0],
                         .token_stride = strides[1],
                         .head_stride = strides[2],
                         .pages = c->pages,
                         .page_size = c->form.page_size,
                         .page_table = c->table.data,
                         .table_stride = c->columns};
}

static void find_truth(const fig_prompt_case *c, place at, truth_attention_result *result) {
    const fig_prompt_form *f = &c->form;
    const double sink = f->sinks ? ((const float *)c->sinks.data)[at.head] : 0;
    const int32_t behind = f->queries[at.row] - 1 - at.query;
    const truth_attention_args args = {
        .q = {c->q.data, f->dtype, (int64_t)f->q_heads * f->head_dim, f->head_dim},
        .k = cache_of(c, &c->k),
        .v = cache_of(c, &c->v),
        .row = c->starts[at.row] + at.query,
        .sequence = at.row,
        .length = f->lengths[at.row] - (f->sees_all ? 0 : behind),
        .q_head = at.head,
        .kv_head = at.head / (f->q_heads / f->kv_heads),
        .head_dim = f->head_dim,
        .window = f->sees_all ? 0 : f->window,
        .sm_scale = f->sm_scale > 0 ? f->sm_scale : 1 / sqrt(f->head_dim),
        .soft_cap = f->soft_cap,
        .sink = f->sinks ? &sink : NULL};
    truth_attention(&args, result);
}

/* One unit is the rounding of out. Kernels on warpgroups also round the weights, which may lose as
 * much again. */
static void compare(const fig_prompt_case *c, place at, error *sum) {
    const fig_prompt_form *f = &c->form;
    const double unit = f->dtype == FIG_BF16 ? 0x1p-8 : 0x1p-11;
    const double units = strcmp(fig_place_name(), "cuda.hopper") == 0 ? 2 : 1.02;
    const int64_t vector = ((int64_t)c->starts[at.row] + at.query) * f->q_heads + at.head;
    const double lse = ((const float *)c->lse.data)[vector];
    truth_attention_result truth;
    find_truth(c, at, &truth);
    if (!(fabs(lse - truth.lse) <= 2e-5 * (1 + fabs(truth.lse))))
        fail_msg("row %d query %d head %d: lse %.9g, expected %.9g", at.row, at.query, at.head, lse,
                 truth.lse);
    for (int32_t i = 0; i < f->head_dim; i++) {
        const double seen = truth_load(c->out.data, f->dtype, vector * f->head_dim + i);
        const double off = fabs(seen - truth.out[i]);
        const double tolerance = units * unit * truth.magnitude[i] + 1e-6;
        fig_worst_note("prompt_attention", f->dtype, off, tolerance);
        if (!(off <= tolerance))
            fail_msg("row %d query %d head %d dim %d: %.9g, expected %.9g, tolerance %.3g", at.row,
                     at.query, at.head, i, seen, truth.out[i], tolerance);
        sum->squares += off * off;
        sum->values += truth.out[i] * truth.out[i];
    }
}

double fig_prompt_case_check(fig_prompt_case *c, int32_t most) {
    const fig_prompt_form *f = &c->form;
    fig_random random = fig_random_seed(7);
    error sum = {0, 0};
    for (int32_t row = 0; row < f->rows; row++) {
        const int64_t all = (int64_t)f->queries[row] * f->q_heads;
        const int64_t share = 1 + most / f->rows, count = all < share ? all : share;
        for (int64_t i = 0; i < count; i++) {
            /* The first and the last vector, and random others. */
            int64_t vector =
                i < 2 ? i * (all - 1) : fig_random_range(&random, 0, (int32_t)(all - 1));
            if (all <= share) vector = i;
            compare(c, (place){row, (int32_t)(vector / f->q_heads), (int32_t)(vector % f->q_heads)},
                    &sum);
        }
    }
    return sum.values > 0 ? sqrt(sum.squares / sum.values) : 0;
}

/* Compares a vector of the two results. The kernel rounds weights before it multiplies them by V,
 * and the rounding of each weight depends on how the work is cut. So the difference is small
 * relative to the whole vector, but not relative to each of its values. */
static void compare_vectors(const fig_prompt_case *c, const uint16_t *shared, int64_t first) {
    const fig_prompt_form *f = &c->form;
    const double unit = f->dtype == FIG_BF16 ? 0x1p-7 : 0x1p-10;
    double squares = 0, values = 0;
    for (int64_t i = first; i < first + f->head_dim; i++) {
        const double without = truth_load(c->out.data, f->dtype, i);
        const double off = truth_load(shared, f->dtype, i) - without;
        squares += off * off;
        values += without * without;
    }
    if (!(sqrt(squares) <= unit * sqrt(values) + 1e-6))
        fail_msg("vector %lld: differs by %.3g with prefixes, its norm is %.3g",
                 (long long)(first / f->head_dim), sqrt(squares), sqrt(values));
}

void fig_prompt_case_compare(fig_prompt_case *c) {
    const fig_prompt_form *f = &c->form;
    const size_t bytes = (size_t)c->out.count * 2;
    uint16_t *shared = malloc(bytes);
    assert_non_null(shared);
    fig_prompt_case_run(c);
    memcpy(shared, c->out.data, bytes);
    write_plan(c, 0);
    memcpy(c->out.data, c->out.before, bytes);
    launch(c);
    expect_clean_counters(c);
    const int64_t width = (int64_t)f->q_heads * f->head_dim;
    for (int64_t i = c->starts[0] * width; i < c->starts[f->rows] * width; i += f->head_dim)
        compare_vectors(c, shared, i);
    write_plan(c, f->prefix_count);
    free(shared);
}

double fig_prompt_case_try(const fig_prompt_form *form, uint64_t seed, int32_t most) {
    fig_prompt_case c;
    fig_prompt_case_open(&c, form, seed);
    fig_prompt_case_run(&c);
    const double rms = fig_prompt_case_check(&c, most);
    fig_prompt_case_close(&c);
    return rms;
}

/* chunk_case.c: see chunk_case.h. */
#include "tests/support/kernels/chunk_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/place.h"
#include "tests/support/worst.h"
#include "tools/figraph/truth/truth_attention.h"

enum { WAIT_US = 120000000 };

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

/* ---- The program ----------------------------------------------------------------------------- */

static fig_tensor declare(fig_program *program, const char *name, fig_dtype dtype, int32_t heads,
                          int32_t width) {
    fig_tensor_info info = {
        .size = sizeof info,
        .name = name,
        .role = FIG_ROLE_BOUND,
        .dtype = dtype,
        .rank = heads > 0 ? 3 : 2,
        .dims = {FIG_DIM_QUERIES, heads > 0 ? heads : width, heads > 0 ? width : 1}};
    return fig_program_tensor(program, &info);
}

static fig_tensor declare_vector(fig_program *program, const char *name, int32_t count) {
    if (count == 0) return (fig_tensor){0};
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_F32, .rank = 1, .dims = {count}));
}

/* Declares the arrays of the score, which attention finds by their names. */
static void declare_arrays(fig_program *program, const fig_chunk_case *c) {
    for (int32_t i = 0; c->score != NULL && i < c->truth.parts.array_count; i++) {
        const fig_score_array *array = &c->truth.parts.arrays[i];
        fig_program_tensor(program,
                           FIG_OPTIONS(fig_tensor_info, .name = array->name, .role = FIG_ROLE_BOUND,
                                       .dtype = array->dtype, .rank = 1, .dims = {array->count}));
    }
}

static fig_tensor declare_cache(fig_program *program, const fig_chunk_form *f, const char *name) {
    return fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                             .dtype = f->kv_dtype, .rank = 4,
                             .dims = {FIG_DIM_PAGES, f->page_size > 0 ? f->page_size : f->kv,
                                      f->kv_heads, f->head_dim}));
}

/* Lets the device read lengths and query tokens, if the form says so. */
static void read_on_device(fig_program *program, const fig_chunk_form *f) {
    if (!f->on_device) return;
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    const fig_tensor starts = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "query_starts", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {f->rows + 1}));
    fig_program_read_queries(program, lengths, (fig_tensor){0}, starts);
}

static void record(fig_program *program, const fig_chunk_case *c) {
    const fig_chunk_form *f = &c->form;
    read_on_device(program, f);
    const fig_tensor q = declare(program, "q", f->dtype, f->q_heads, f->head_dim);
    const fig_tensor k = declare(program, "k", f->dtype, f->kv_heads, f->head_dim);
    const fig_tensor v = declare(program, "v", f->dtype, f->kv_heads, f->head_dim);
    const fig_tensor out = declare(program, "out", f->dtype, f->q_heads, f->head_dim);
    const fig_tensor lse = declare(program, "lse", FIG_F32, 0, f->q_heads);
    fig_cache cache = {.k = declare_cache(program, f, "k_cache"),
                       .v = declare_cache(program, f, "v_cache"),
                       .k_scale = declare_vector(program, "k_scale", f->scales),
                       .v_scale = declare_vector(program, "v_scale", f->scales)};
    if (f->page_size > 0)
        cache.page_table = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                                 .dtype = FIG_I32, .rank = 2, .dims = {f->rows, c->columns}));
    const fig_tensor sinks = declare_vector(program, "sinks", f->sinks ? f->q_heads : 0);
    const fig_tensor alibi = declare_vector(program, "alibi", f->alibi ? f->q_heads : 0);
    declare_arrays(program, c);
    fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
    fig_attention(program,
                  FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .lse = lse, .sinks = sinks,
                              .alibi = alibi, .cache = cache, .window = f->window,
                              .soft_cap = f->soft_cap, .score = c->score));
    if (!f->twice) return;
    const fig_tensor plain = declare(program, "plain_out", f->dtype, f->q_heads, f->head_dim);
    const fig_tensor plain_lse = declare(program, "plain_lse", FIG_F32, 0, f->q_heads);
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = plain, .lse = plain_lse,
                                       .sinks = sinks, .alibi = alibi, .cache = cache,
                                       .window = f->window, .soft_cap = f->soft_cap));
}

/* ---- Open ------------------------------------------------------------------------------------ */

static size_t bytes_of(const fig_reference_array *array) {
    return (size_t)array->count * (size_t)fig_numeric_bytes(array->dtype);
}

static void bind(fig_chunk_case *c, const char *name, const fig_reference_array *array,
                 const int64_t *strides) {
    fig_binding binding = {
        .size = sizeof binding, .name = name, .address = array->data, .bytes = bytes_of(array)};
    for (int32_t i = 0; i < 4 && strides != NULL; i++)
        binding.strides[i] = strides[i];
    expect(fig_engine_bind(c->engine, &binding));
}

static int32_t page_tokens(const fig_chunk_form *f) {
    return f->page_size > 0 ? f->page_size : f->kv;
}

/* Strides {page, token, head, dim} of the caches. */
static void put_strides(const fig_chunk_form *f, int64_t strides[4]) {
    strides[0] = (int64_t)page_tokens(f) * f->kv_heads * f->head_dim;
    strides[1] = f->hnd ? f->head_dim : (int64_t)f->kv_heads * f->head_dim;
    strides[2] = f->hnd ? (int64_t)page_tokens(f) * f->head_dim : f->head_dim;
    strides[3] = 1;
}

/* Gives each sequence its pages, in random order. */
static void set_pages(fig_chunk_case *c, fig_random *random) {
    const int32_t all = c->form.rows * c->columns;
    for (int32_t i = 0; i < all; i++) {
        const int32_t j = fig_random_range(random, 0, i);
        c->table[i] = c->table[j];
        c->table[j] = i;
    }
    for (int32_t s = 0; s < c->form.rows && c->form.page_size > 0; s++)
        expect(fig_engine_set_pages(c->engine,
                                    FIG_OPTIONS(fig_pages, .sequence = s, .count = c->columns,
                                                .pages = c->table + (int64_t)s * c->columns,
                                                .table = "page_table")));
}

static void make_arrays(fig_chunk_case *c, fig_random *random) {
    const fig_chunk_form *f = &c->form;
    const int64_t tokens = f->query_limit, kv = (int64_t)f->kv_heads * f->head_dim;
    const int64_t cache = c->pages * page_tokens(f) * kv;
    const int32_t dtype = (int32_t)f->dtype, kv_dtype = (int32_t)f->kv_dtype;
    c->q = fig_reference_array_make(dtype, tokens * f->q_heads * f->head_dim);
    c->out = fig_reference_array_make(dtype, tokens * f->q_heads * f->head_dim);
    c->k = fig_reference_array_make(dtype, tokens * kv);
    c->v = fig_reference_array_make(dtype, tokens * kv);
    c->lse = fig_reference_array_make(FIG_F32, tokens * f->q_heads);
    c->plain_out = fig_reference_array_make(dtype, tokens * f->q_heads * f->head_dim);
    c->plain_lse = fig_reference_array_make(FIG_F32, tokens * f->q_heads);
    c->lengths = fig_reference_array_make(FIG_I32, f->rows);
    c->starts = fig_reference_array_make(FIG_I32, f->rows + 1);
    c->k_cache = fig_reference_array_make(kv_dtype, cache);
    c->v_cache = fig_reference_array_make(kv_dtype, cache);
    fig_reference_array_fill(&c->k_cache, 0, cache, random, 1.0f);
    fig_reference_array_fill(&c->v_cache, 0, cache, random, 1.0f);
    fig_reference_array *const vectors[] = {&c->sinks, &c->alibi, &c->k_scale, &c->v_scale};
    for (int32_t i = 0; i < 4; i++) {
        *vectors[i] = fig_reference_array_make(FIG_F32, f->q_heads);
        for (int32_t head = 0; head < f->q_heads; head++)
            fig_reference_array_set(vectors[i], head,
                                    i == 0   ? 1.5 - 0.25 * head
                                    : i == 1 ? 0.125 / (1 + head)
                                             : 0.5 + 0.125 * (head % 5));
    }
}

/* Parses the score, and makes its arrays. */
static void make_score(fig_chunk_case *c, fig_random *random) {
    if (c->form.score == NULL) return;
    expect(fig_score_parse(&c->score, c->form.score));
    c->truth.parts.size = sizeof c->truth.parts;
    expect(fig_score_read(c->score, &c->truth.parts));
    for (int32_t i = 0; i < c->truth.parts.array_count; i++) {
        const fig_score_array *of = &c->truth.parts.arrays[i];
        fig_reference_array *array = &c->arrays[i];
        *array = fig_reference_array_make((int32_t)of->dtype, of->count);
        if (of->dtype != FIG_I32) fig_reference_array_fill(array, 0, of->count, random, 0.1f);
        for (int32_t n = 0; of->dtype == FIG_I32 && n < of->count; n++)
            ((int32_t *)array->data)[n] = strcmp(of->name, "sees") == 0
                                              ? (int32_t)fig_random_bits(random)
                                              : fig_random_range(random, 0, c->form.kv);
        c->truth.arrays[i] = array->data;
        c->truth.counts[i] = of->count;
    }
}

static void open_engine(fig_chunk_case *c) {
    const fig_chunk_form *f = &c->form;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = f->dtype,
                           .kv_dtype = f->kv_dtype,
                           .q_heads = f->q_heads,
                           .kv_heads = f->kv_heads,
                           .head_dim = f->head_dim,
                           .page_size = f->page_size,
                           .batch_limit = f->rows,
                           .kv_limit = f->kv,
                           .row_tokens = f->row_tokens,
                           .query_limit = f->query_limit};
    const fig_lower_options how = {.size = sizeof how,
                                   .traits = f->traits != NULL ? f->traits : fig_place_traits(),
                                   .deterministic = f->deterministic};
    fig_program *program;
    expect(fig_program_create(&program, &spec));
    record(program, c);
    expect(fig_program_finish(program));
    expect(fig_graphs_lower(&c->graphs, program, &how));
    fig_program_destroy(program);
    fig_engine_options place = fig_place_options();
    place.share = f->share;
    if (f->share == 0 && fig_place_device() == FIG_DEVICE_CUDA)
        place.share = 1; /* a test's few tokens save a GPU no time */
    expect(fig_engine_open(&c->engine, c->graphs, &place));
}

fig_chunk_step fig_chunk_case_draw(const fig_chunk_form *form, fig_random *random, int32_t *ends,
                                   fig_chunk_count *count) {
    fig_chunk_step step = {.rows = fig_random_range(random, 1, form->rows)};
    const int32_t turn = fig_random_range(random, 0, form->rows - 1);
    int32_t left = form->query_limit;
    for (int32_t row = 0; row < step.rows; row++) {
        const int32_t sequence = (row + turn) % form->rows;
        const int32_t more = fig_size_min(count(form, random, left), form->kv);
        if (ends[sequence] + more > form->kv) ends[sequence] = 0;
        step.sequences[row] = sequence;
        step.counts[row] = more;
        step.lengths[row] = ends[sequence] + more;
        const int is_idle = fig_random_range(random, 0, 9) == 0; /* with query tokens */
        if (is_idle) step.lengths[row] = 0;
        if (step.lengths[row] > 0) ends[sequence] += more;
        left -= more;
    }
    return step;
}

void fig_chunk_case_open(fig_chunk_case *c, const fig_chunk_form *form, uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    const fig_chunk_form *f = &c->form;
    int64_t strides[4];
    memset(c, 0, sizeof *c);
    c->form = *form;
    c->columns = (f->kv + page_tokens(f) - 1) / page_tokens(f);
    c->pages = (int64_t)f->rows * c->columns;
    assert_true((size_t)c->pages <= sizeof c->table / sizeof *c->table);
    make_score(c, &random);
    open_engine(c);
    make_arrays(c, &random);
    put_strides(f, strides);
    bind(c, "q", &c->q, NULL);
    bind(c, "k", &c->k, NULL);
    bind(c, "v", &c->v, NULL);
    bind(c, "out", &c->out, NULL);
    bind(c, "lse", &c->lse, NULL);
    bind(c, "k_cache", &c->k_cache, strides);
    bind(c, "v_cache", &c->v_cache, strides);
    if (f->on_device) bind(c, "lengths", &c->lengths, NULL);
    if (f->on_device) bind(c, "query_starts", &c->starts, NULL);
    if (f->twice) bind(c, "plain_out", &c->plain_out, NULL);
    if (f->twice) bind(c, "plain_lse", &c->plain_lse, NULL);
    if (f->sinks) bind(c, "sinks", &c->sinks, NULL);
    if (f->alibi) bind(c, "alibi", &c->alibi, NULL);
    c->k_scale.count = c->v_scale.count = f->scales;
    if (f->scales) bind(c, "k_scale", &c->k_scale, NULL);
    if (f->scales) bind(c, "v_scale", &c->v_scale, NULL);
    for (int32_t i = 0; i < c->truth.parts.array_count; i++)
        bind(c, c->truth.parts.arrays[i].name, &c->arrays[i], NULL);
    set_pages(c, &random);
}

void fig_chunk_case_close(fig_chunk_case *c) {
    fig_reference_array *const arrays[] = {&c->q,      &c->k,         &c->v,        &c->out,
                                           &c->lse,    &c->k_cache,   &c->v_cache,  &c->sinks,
                                           &c->alibi,  &c->k_scale,   &c->v_scale,  &c->lengths,
                                           &c->starts, &c->plain_out, &c->plain_lse};
    fig_engine_close(c->engine);
    fig_graphs_destroy(c->graphs);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fig_reference_array_free(arrays[i]);
    for (int32_t i = 0; i < c->truth.parts.array_count; i++)
        fig_reference_array_free(&c->arrays[i]);
    fig_score_destroy(c->score);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static int32_t first_of(const fig_chunk_step *step, int32_t row) {
    int32_t first = 0;
    for (int32_t r = 0; r < row; r++)
        first += step->counts[r];
    return first;
}

static void poison(fig_reference_array *array) {
    memset(array->data, 0xff, bytes_of(array));
}

void fig_chunk_case_fill(fig_chunk_case *c, const fig_chunk_step *step, const int32_t *contents,
                         uint64_t seed) {
    const fig_chunk_form *f = &c->form;
    fig_reference_array *const arrays[] = {&c->q, &c->k, &c->v};
    poison(&c->q);
    poison(&c->k);
    poison(&c->v);
    for (int32_t row = 0; row < step->rows; row++) {
        fig_random random = fig_random_seed(seed * 1000003 + (uint64_t)contents[row]);
        for (int32_t i = 0; i < 3; i++) {
            const int64_t width = (int64_t)(i == 0 ? f->q_heads : f->kv_heads) * f->head_dim;
            fig_reference_array_fill(arrays[i], first_of(step, row) * width,
                                     step->counts[row] * width, &random, i == 0 ? 2.0f : 1.0f);
        }
    }
}

/* Launches a step. If the device reads the lengths, the host knows only rows and sequences. */
static void launch(fig_chunk_case *c, const fig_chunk_step *step) {
    int32_t *starts = c->starts.data;
    fig_step given = {.size = sizeof given,
                      .rows = step->rows,
                      .sequences = step->sequences,
                      .bucket = step->bucket};
    if (!c->form.on_device) {
        given.kv_lengths = step->lengths;
        given.query_counts = step->counts;
    }
    memcpy(c->lengths.data, step->lengths, (size_t)step->rows * sizeof *step->lengths);
    for (int32_t row = 0; row <= step->rows; row++)
        starts[row] = first_of(step, row);
    expect(fig_engine_step(c->engine, &given));
    expect(fig_engine_wait(c->engine, WAIT_US));
}

fig_bucket_info fig_chunk_case_bucket(const fig_chunk_case *c) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_bucket_info bucket = {.size = sizeof bucket};
    expect(fig_engine_read_stats(c->engine, &stats));
    expect(fig_graphs_bucket(c->graphs, stats.last_bucket, &bucket));
    return bucket;
}

/* Allows the vectors that the step which was launched may write: those of its query tokens. A
 * bucket of ones writes those of each of its rows. */
static void allow_written(fig_chunk_case *c, const fig_chunk_step *step) {
    const fig_bucket_info bucket = fig_chunk_case_bucket(c);
    const int64_t tokens =
        bucket.form == FIG_FORM_ONES ? bucket.bucket.batch : first_of(step, step->rows);
    const int64_t vectors = tokens * c->form.q_heads;
    fig_reference_array_allow(&c->out, 0, vectors * c->form.head_dim);
    fig_reference_array_allow(&c->lse, 0, vectors);
}

void fig_chunk_case_run(fig_chunk_case *c, const fig_chunk_step *step) {
    const size_t out_bytes = bytes_of(&c->out), lse_bytes = bytes_of(&c->lse);
    uint8_t *first = malloc(out_bytes + lse_bytes);
    assert_non_null(first);
    memset(c->out.free, 0, (size_t)c->out.count);
    memset(c->lse.free, 0, (size_t)c->lse.count);
    for (int32_t turn = 0; turn < 2; turn++) {
        poison(&c->out);
        poison(&c->lse);
        fig_reference_array_keep(&c->out);
        fig_reference_array_keep(&c->lse);
        launch(c, step);
        allow_written(c, step);
        fig_reference_array_check(&c->out, "out");
        fig_reference_array_check(&c->lse, "lse");
        if (turn == 1 && (memcmp(first, c->out.data, out_bytes) != 0 ||
                          memcmp(first + out_bytes, c->lse.data, lse_bytes) != 0))
            fail_msg("a step that ran twice left other bits");
        memcpy(first, c->out.data, out_bytes);
        memcpy(first + out_bytes, c->lse.data, lse_bytes);
    }
    free(first);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static truth_cache cache_of(const fig_chunk_case *c, const fig_reference_array *array) {
    int64_t strides[4];
    put_strides(&c->form, strides);
    return (truth_cache){.base = array->data,
                         .dtype = c->form.kv_dtype,
                         .page_stride = strides[0],
                         .token_stride = strides[1],
                         .head_stride = strides[2],
                         .pages = c->pages,
                         .page_size = page_tokens(&c->form),
                         .page_table = c->form.page_size > 0 ? c->table : NULL,
                         .table_stride = c->columns};
}

/* Returns 1 if the mask hides the token from all queries of the row. */
static int is_hidden(const fig_chunk_case *c, const fig_chunk_step *step, int32_t row,
                     int32_t token) {
    const fig_chunk_form *f = &c->form;
    const int32_t count = step->counts[row], length = step->lengths[row];
    for (int32_t i = 0; i < count * f->q_heads; i++) {
        const truth_score_place at = {.q_pos = length - count + i / f->q_heads,
                                      .kv_pos = token,
                                      .kv_length = length,
                                      .head = i % f->q_heads,
                                      .kv_head = i % f->q_heads / (f->q_heads / f->kv_heads),
                                      .row = row,
                                      .context = &c->truth};
        const int has_mask = c->truth.parts.mask_node_count > 0;
        if ((!has_mask || truth_score_sees(&at)) && truth_score_of(&at, 0) != -INFINITY) return 0;
    }
    return 1;
}

int32_t fig_chunk_case_spoil(fig_chunk_case *c, const fig_chunk_step *step) {
    const truth_cache cache = cache_of(c, &c->k_cache);
    const int32_t bytes = fig_numeric_bytes((int32_t)c->form.kv_dtype);
    int32_t spoilt = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        for (int32_t token = 0; token < step->lengths[row] - step->counts[row]; token++) {
            if (!is_hidden(c, step, row, token)) continue;
            for (int32_t head = 0; head < c->form.kv_heads; head++) {
                const int64_t at = truth_cache_offset(&cache, step->sequences[row], token) +
                                   head * cache.head_stride;
                memset((uint8_t *)c->k_cache.data + at * bytes, 0xff,
                       (size_t)(c->form.head_dim * bytes));
                memset((uint8_t *)c->v_cache.data + at * bytes, 0xff,
                       (size_t)(c->form.head_dim * bytes));
            }
            spoilt++;
        }
    }
    return spoilt;
}

/* A vector of a step, and the node that computed it. */
typedef struct place {
    int32_t row, query, head;
    int32_t is_plain; /* 1: the node without the score */
} place;

static void find_truth(const fig_chunk_case *c, const fig_chunk_step *step, place at,
                       truth_attention_result *result) {
    const int has_score = c->score != NULL && !at.is_plain;
    const fig_chunk_form *f = &c->form;
    const int32_t kv_head = at.head / (f->q_heads / f->kv_heads);
    const int32_t of_scale = f->scales > 1 ? kv_head : 0;
    const double sink = ((const float *)c->sinks.data)[at.head];
    const float *k_scale = c->k_scale.data, *v_scale = c->v_scale.data, *alibi = c->alibi.data;
    const truth_attention_args args = {
        .q = {c->q.data, f->dtype, (int64_t)f->q_heads * f->head_dim, f->head_dim},
        .k = cache_of(c, &c->k_cache),
        .v = cache_of(c, &c->v_cache),
        .row = first_of(step, at.row) + at.query,
        .sequence = step->sequences[at.row],
        .length = step->lengths[at.row] - (step->counts[at.row] - 1 - at.query),
        .q_head = at.head,
        .kv_head = kv_head,
        .head_dim = f->head_dim,
        .window = f->window,
        .sm_scale = 1 / sqrt(f->head_dim),
        .soft_cap = f->soft_cap,
        .alibi = f->alibi ? alibi[at.head] : 0,
        .k_scale = f->scales ? k_scale[of_scale] : 0,
        .v_scale = f->scales ? v_scale[of_scale] : 0,
        .sink = f->sinks ? &sink : NULL,
        .score = has_score ? truth_score_of : NULL,
        .sees = has_score && c->truth.parts.mask_node_count > 0 ? truth_score_sees : NULL,
        .score_context = &c->truth,
        .is_sigmoid = has_score && c->truth.parts.weights == FIG_SCORE_SIGMOID_WEIGHTS,
        .step_row = at.row,
        .kv_length = step->lengths[at.row]};
    truth_attention(&args, result);
}

static void compare(const fig_chunk_case *c, const fig_chunk_step *step, place at) {
    const fig_chunk_form *f = &c->form;
    const double unit = f->dtype == FIG_BF16 ? 0x1p-8 : f->dtype == FIG_F16 ? 0x1p-11 : 0x1p-17;
    const double units = strcmp(fig_place_name(), "cuda.hopper") == 0 ? 2 : 1.02;
    const int64_t vector = ((int64_t)first_of(step, at.row) + at.query) * f->q_heads + at.head;
    const fig_reference_array *out = at.is_plain ? &c->plain_out : &c->out;
    const fig_reference_array *lses = at.is_plain ? &c->plain_lse : &c->lse;
    const double lse = ((const float *)lses->data)[vector];
    truth_attention_result truth = {.lse = -INFINITY};
    if (step->lengths[at.row] > 0) find_truth(c, step, at, &truth);
    if (!(lse == truth.lse || fabs(lse - truth.lse) <= 2e-5 * (1 + fabs(truth.lse))))
        fail_msg("row %d of %d at %d, query %d head %d: lse %.9g, expected %.9g", at.row,
                 step->counts[at.row], step->lengths[at.row], at.query, at.head, lse, truth.lse);
    for (int32_t i = 0; i < f->head_dim; i++) {
        const double seen = truth_load(out->data, f->dtype, vector * f->head_dim + i);
        const double off = fabs(seen - truth.out[i]);
        const double tolerance = units * unit * truth.magnitude[i] + truth.slack[i] + 1e-6;
        fig_worst_note("chunks", f->dtype, off, tolerance);
        if (!(off <= tolerance))
            fail_msg("row %d of %d at %d, query %d head %d dim %d: %.9g, expected %.9g, "
                     "tolerance %.3g",
                     at.row, step->counts[at.row], step->lengths[at.row], at.query, at.head, i,
                     seen, truth.out[i], tolerance);
    }
}

/* Checks that the caches hold the newest tokens of a row, rounded to the dtype of the caches. */
static void check_append(const fig_chunk_case *c, const fig_chunk_step *step, int32_t row) {
    const fig_chunk_form *f = &c->form;
    const truth_cache cache = cache_of(c, &c->k_cache);
    if (f->kv_dtype != f->dtype || f->dtype == FIG_F32 || f->scales || step->lengths[row] == 0)
        return;
    for (int32_t query = 0; query < step->counts[row]; query++) {
        const int32_t token = step->lengths[row] - step->counts[row] + query;
        const int64_t to = truth_cache_offset(&cache, step->sequences[row], token);
        const int64_t from = ((int64_t)first_of(step, row) + query) * f->kv_heads * f->head_dim;
        if (memcmp((const uint16_t *)c->k_cache.data + to, (const uint16_t *)c->k.data + from,
                   (size_t)f->head_dim * 2) != 0)
            fail_msg("row %d: query token %d was not appended", row, query);
    }
}

void fig_chunk_case_check(fig_chunk_case *c, const fig_chunk_step *step, int32_t most) {
    fig_random random = fig_random_seed(7);
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t all = step->counts[row] * c->form.q_heads;
        check_append(c, step, row);
        for (int32_t i = 0; i < fig_size_min(all, most); i++) {
            int32_t vector = all <= most ? i : fig_random_range(&random, 0, all - 1);
            if (all > most && i < 2) vector = i * (all - 1);
            place at = {row, vector / c->form.q_heads, vector % c->form.q_heads, 0};
            compare(c, step, at);
            at.is_plain = 1;
            if (c->form.twice) compare(c, step, at);
        }
    }
}

void fig_chunk_case_try(fig_chunk_case *c, fig_random *random, uint64_t seed, uint64_t steps,
                        int32_t most, fig_chunk_count *count) {
    int32_t ends[FIG_CHUNK_ROW_LIMIT], contents[FIG_CHUNK_ROW_LIMIT];
    for (int32_t row = 0; row < c->form.rows; row++) {
        ends[row] = fig_random_range(random, 0, c->form.kv / 2);
        contents[row] = row;
    }
    for (uint64_t n = 0; n < steps; n++) {
        const fig_chunk_step step = fig_chunk_case_draw(&c->form, random, ends, count);
        fig_chunk_case_fill(c, &step, contents, seed + n);
        fig_chunk_case_run(c, &step);
        fig_chunk_case_check(c, &step, most);
    }
}

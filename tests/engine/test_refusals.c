/* test_refusals.c: tests every mistake that a caller may make between a spec and a step.
 *
 * A table has a line for each mistake, with the expected status and sentence. The sentence names
 * field, value and limit. After the refusal nothing is half open, no byte of the caller has been
 * written, nothing is staged, and the engine works as if the refused call had not been made. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

enum { ROWS = 4, KV = 128, PAGE = 16 };

/* Which call has the mistake. */
typedef enum part {
    SPEC,     /* a field is set to `value`, or to `real` if it is a float */
    STEP,     /* element `item` of an array becomes `value`, or a field if there is no array */
    BINDING,  /* a binding of q.0, out.0 or k_cache.0 */
    PAGES,    /* entry `item` of a sequence's row */
    FORK,     /* a field of a fork of sequence 1 */
    RECORDER, /* an operation whose tensors do not fit; `item` chooses it */
    BUCKET    /* batch is `item` and kv `value` */
} part;

typedef struct mistake {
    part part;
    size_t field; /* its offset in the struct */
    int32_t item;
    int64_t value;
    float real;
    const char *name;   /* of the tensor */
    int64_t strides[4]; /* of the binding */
    fig_status status;
    const char *sentence;
} mistake;

/* ---- The table ----------------------------------------------------------------------------- */

#define SPEC_FIELD(f, v, s)                                                                        \
    {                                                                                              \
        .part = SPEC, .field = offsetof(fig_spec, f), .value = (v), .status = FIG_INVALID,         \
        .sentence = (s)                                                                            \
    }
#define SPEC_REAL(f, v, s)                                                                         \
    {                                                                                              \
        .part = SPEC, .field = offsetof(fig_spec, f), .item = 1, .real = (v),                      \
        .status = FIG_INVALID, .sentence = (s)                                                     \
    }
#define STEP_ITEM(f, i, v, code, s)                                                                \
    {                                                                                              \
        .part = STEP, .field = offsetof(fig_step, f), .item = (i), .value = (v), .status = (code), \
        .sentence = (s)                                                                            \
    }
#define BINDING_OF(n, f, v, s)                                                                     \
    {                                                                                              \
        .part = BINDING, .field = offsetof(fig_binding, f), .name = (n), .value = (v),             \
        .status = FIG_INVALID, .sentence = (s)                                                     \
    }
#define STRIDES_OF(n, s0, s1, s2, s)                                                               \
    {                                                                                              \
        .part = BINDING, .name = (n), .strides = {s0, s1, s2},                                     \
        .field = offsetof(fig_binding, strides), .status = FIG_INVALID, .sentence = (s)            \
    }
#define PAGE_IS(f, v, s)                                                                           \
    {                                                                                              \
        .part = PAGES, .field = offsetof(fig_pages, f), .value = (v), .status = FIG_INVALID,       \
        .sentence = (s)                                                                            \
    }
#define PAGE_ENTRY(i, v, s)                                                                        \
    {                                                                                              \
        .part = PAGES, .field = offsetof(fig_pages, pages), .item = (i), .value = (v),             \
        .status = FIG_INVALID, .sentence = (s)                                                     \
    }
#define FORK_IS(f, v, s)                                                                           \
    {                                                                                              \
        .part = FORK, .field = offsetof(fig_fork, f), .value = (v), .status = FIG_INVALID,         \
        .sentence = (s)                                                                            \
    }

static const mistake table[] = {
    /* heads */
    SPEC_FIELD(q_heads, 9, "spec: q_heads is 9, it must be a multiple of kv_heads, 2"),
    SPEC_FIELD(q_heads, 34, "spec: q_heads is 34, the limit is 16 for each of the 2 kv_heads"),
    SPEC_FIELD(q_heads, 0, "spec: q_heads is 0, limits 1 to 256"),
    SPEC_FIELD(kv_heads, 257, "spec: kv_heads is 257, limits 1 to 256"),
    SPEC_FIELD(head_dim, 72, "spec: head_dim is 72, this library has 64, 80, 96, 128 and 256"),
    SPEC_FIELD(head_dim, 512, "spec: head_dim is 512, this library has 64, 80, 96, 128 and 256"),
    /* limits */
    SPEC_FIELD(page_size, -1, "spec: page_size is -1, limits 0 to 65536"),
    SPEC_FIELD(page_size, 65537, "spec: page_size is 65537, limits 0 to 65536"),
    SPEC_FIELD(batch_limit, 1025, "spec: batch_limit is 1025, limits 1 to 1024"),
    SPEC_FIELD(kv_limit, 0, "spec: kv_limit is 0, limits 1 to 1048576"),
    SPEC_FIELD(row_tokens, 17, "spec: row_tokens is 17, limits 0 to 16"),
    SPEC_FIELD(query_limit, 1048577, "spec: query_limit is 1048577, limits 0 to 1048576"),
    SPEC_FIELD(layers, 513, "spec: layers is 513, limits 0 to 512"),
    SPEC_FIELD(ffn_rows, 9, "spec: ffn_rows is 9, limits 0 to 8"),
    SPEC_FIELD(ffn_width, 44, "spec: ffn_width is 44, it must be a multiple of 8"),
    SPEC_FIELD(sequence_limit, 65537, "spec: sequence_limit is 65537, limits 0 to 65536"),
    SPEC_FIELD(window, -1, "spec: window is -1, limits 0 to 2147483647"),
    /* kinds */
    SPEC_FIELD(dtype, FIG_I32, "spec: dtype is 8, this library has FIG_F32, FIG_F16 and FIG_BF16"),
    SPEC_FIELD(
        kv_dtype, FIG_BF16,
        "spec: kv_dtype is FIG_BF16, but dtype is FIG_F16: a cache has that dtype, or FIG_E4M3 "
        "or FIG_E5M2 beside FIG_F16 and FIG_BF16"),
    SPEC_FIELD(kv_layout, 2, "spec: kv_layout is 2, limits 0 to 1"),
    SPEC_FIELD(activation, 4, "spec: activation is 4, limits 0 to 3"),
    SPEC_FIELD(kv_scales, 1,
               "spec: kv_scales is 1, it must be 0 where kv_dtype is neither FIG_E4M3 nor "
               "FIG_E5M2"),
    SPEC_REAL(soft_cap, -1.0f, "spec: soft_cap is -1, it must be finite and at least 0"),
    SPEC_REAL(sm_scale, INFINITY, "spec: sm_scale is inf, it must be finite and at least 0"),
    SPEC_REAL(rope.theta, -3.0f, "rope: theta is -3, it must be finite and above 0"),
    SPEC_FIELD(rope.rotary_dim, 65,
               "rope: rotary_dim is 65, it must be even and at most head_dim, 64"),
    SPEC_FIELD(rope.interleaved, 2, "rope: interleaved is 2, it must be 0 or 1"),

    /* what a program can record */
    {.part = RECORDER,
     .item = 0,
     .status = FIG_INVALID,
     .sentence = "node 0 (attention): q has 6 heads for 4 of k_cache, it must be a multiple, limit "
                 "16"},
    {.part = RECORDER,
     .item = 1,
     .status = FIG_UNSUPPORTED,
     .sentence = "node 0 (attention): q has head_dim 72, this library has 64, 80, 96, 128 and 256"},
    {.part = RECORDER,
     .item = 2,
     .status = FIG_INVALID,
     .sentence = "node 0 (attention): out, operand 8, is absent"},
    {.part = RECORDER,
     .item = 3,
     .status = FIG_INVALID,
     .sentence = "node 0 (attention): q and out are both q, one of them is written"},
    {.part = BUCKET,
     .item = 5,
     .value = 64,
     .status = FIG_INVALID,
     .sentence = "bucket 0: batch is 5, limits 1 to 4"},
    {.part = BUCKET,
     .item = 2,
     .value = 129,
     .status = FIG_INVALID,
     .sentence = "bucket 0: kv is 129, limits 1 to 128"},

    /* what can be bound */
    BINDING_OF("nothing", name, 0, "the program has no tensor nothing"),
    BINDING_OF("q.0", bytes, 4095, "tensor q.0: bytes is 4095, it must be 4096 or more"),
    BINDING_OF("k_cache.0", bytes, 8191,
               "tensor k_cache.0: bytes is 8191, which holds 0 of 1 pages"),
    BINDING_OF("q.0", address, 8, "it must be a multiple of 16"),
    STRIDES_OF("q.0", 255, 64, 1, "tensor q.0: strides[0] is 255, it must be 256 or more"),
    STRIDES_OF("q.0", 256, 63, 1, "tensor q.0: strides[1] is 63, it must be 64 or more"),
    STRIDES_OF("q.0", 256, 64, 2, "tensor q.0: strides[2] is 2, the last must be 1"),
    STRIDES_OF("q.0", 256, -64, 1, "tensor q.0: strides[1] is -64, it must be positive"),
    STRIDES_OF("q.0", 260, 64, 1, "tensor q.0: bytes is 4096, it must be 4144 or more"),
    /* an output overlaps another tensor, completely or only between that tensor's rows */
    BINDING_OF("out.0", size, 0, "tensor out.0: overlaps tensor q.0, and a node writes the first"),

    /* which pages can be set */
    PAGE_ENTRY(2, 61, "pages: pages[2] is 61, the caches hold 61"),
    PAGE_ENTRY(0, -1, "pages: pages[0] is -1, the caches hold 61"),
    PAGE_IS(sequence, 7, "pages: sequence is 7, limit 6"),
    PAGE_IS(sequence, -1, "pages: sequence is -1, limit 6"),
    PAGE_IS(first, 6, "pages: 3 entries from 6, a sequence has 8"),
    PAGE_IS(count, -3, "pages: -3 entries from 0, a sequence has 8"),
    PAGE_IS(pages, 0, "pages: pages is NULL"),
    FORK_IS(source, 7, "fork: source is 7 and target 2, limits 0 to 6"),
    FORK_IS(target, -1, "fork: source is 1 and target -1, limits 0 to 6"),
    FORK_IS(source, 2, "fork: source and target are both 2"),
    FORK_IS(length, -1, "fork: length is -1, limits 0 to 128"),
    FORK_IS(length, 129, "fork: length is 129, limits 0 to 128"),

    /* what a step can be */
    STEP_ITEM(rows, 0, -1, FIG_INVALID, "step: rows is -1, it must be at least 0"),
    STEP_ITEM(rows, 0, 5, FIG_TOO_LARGE, "step: rows is 5, limit 4"),
    STEP_ITEM(kv_lengths, -1, 0, FIG_INVALID, "step: kv_lengths is NULL for 3 rows"),
    STEP_ITEM(kv_lengths, 1, -2, FIG_INVALID, "step: kv_lengths[1] is -2, it must be at least 0"),
    STEP_ITEM(kv_lengths, 2, 129, FIG_TOO_LARGE, "step: kv_lengths[2] is 129, limit 128"),
    STEP_ITEM(query_counts, 0, 1, FIG_INVALID,
              "step: query_counts must be NULL where the spec's query_limit is 0"),
    STEP_ITEM(positions, 0, -7, FIG_INVALID, "step: positions[0] is -7, it must be at least 0"),
    STEP_ITEM(sequences, 1, 7, FIG_INVALID, "step: sequences[1] is 7, limits 0 to 6"),
    STEP_ITEM(sequences, 1, -1, FIG_INVALID, "step: sequences[1] is -1, limits 0 to 6"),
    STEP_ITEM(sequences, 2, 0, FIG_INVALID,
              "step: sequences[2] is 0, which an earlier row names too, and both have tokens"),
    STEP_ITEM(token_limit, 0, 9, FIG_INVALID,
              "step: token_limit is 9, it is for programs that read lengths on the device"),
};

/* ---- Before an engine ---------------------------------------------------------------------- */

static fig_spec good_spec(void) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_F16,
                      .q_heads = 4,
                      .kv_heads = 2,
                      .head_dim = 64,
                      .ffn_width = 48,
                      .page_size = PAGE,
                      .batch_limit = ROWS,
                      .kv_limit = KV};
}

static fig_status try_spec(const mistake *m) {
    fig_spec spec = good_spec();
    fig_program *program = (fig_program *)(void *)&spec;
    const int32_t value = (int32_t)m->value;
    memcpy((uint8_t *)&spec + m->field, m->item ? (const void *)&m->real : (const void *)&value, 4);
    assert_int_equal(fig_spec_check(&spec), m->status);
    fig_status status = fig_program_create(&program, &spec);
    assert_null(program);
    return status;
}

static fig_tensor record(fig_program *program, const char *name, int64_t heads, int64_t head_dim,
                         int64_t page) {
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F16,
                            .rank = page > 0 ? 4 : 3,
                            .dims = {FIG_DIM_BATCH, heads, head_dim}};
    if (page > 0) memcpy(info.dims, (int64_t[4]){FIG_DIM_PAGES, page, heads, head_dim}, 32);
    return fig_program_tensor(program, &info);
}

static fig_status try_recorder(const mistake *m) {
    fig_program *program;
    fig_graphs *graphs = (fig_graphs *)(void *)&program;
    fig_spec spec = good_spec();
    const int64_t head_dim = m->item == 1 ? 72 : 64, heads = m->item == 0 ? 6 : 8;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_attention_op op = {.size = sizeof op};
    op.q = record(program, "q", heads, head_dim, 0);
    op.cache.k = record(program, "k", 4, head_dim, KV);
    op.cache.v = record(program, "v", 4, head_dim, KV);
    if (m->item != 2) op.out = m->item == 3 ? op.q : record(program, "out", heads, head_dim, 0);
    fig_attention(program, &op);
    fig_status status = fig_program_finish(program);
    char kept[512];
    snprintf(kept, sizeof kept, "%s", fig_message());
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), status);
    assert_null(graphs);
    fig_program_destroy(program);
    assert_string_equal(fig_message(), kept);
    return status;
}

static fig_status try_bucket(const mistake *m) {
    fig_program *program;
    fig_graphs *graphs = (fig_graphs *)(void *)&program;
    const fig_spec spec = good_spec();
    const fig_bucket bucket = {m->item, (int32_t)m->value};
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    fig_status status = fig_graphs_lower(
        &graphs, program, FIG_OPTIONS(fig_lower_options, .buckets = &bucket, .bucket_count = 1));
    assert_null(graphs);
    fig_program_destroy(program);
    return status;
}

/* ---- At an engine -------------------------------------------------------------------------- */

static fig_status try_binding(const mistake *m, const fig_decode *d, fig_engine *engine) {
    const int is_cache = strcmp(m->name, "k_cache.0") == 0, is_out = strcmp(m->name, "out.0") == 0;
    const fig_decode_kind kind = is_cache ? FIG_DECODE_K_CACHE
                                 : is_out ? FIG_DECODE_OUT
                                          : FIG_DECODE_Q;
    const fig_binding right = fig_decode_binding(d, 0, kind);
    fig_binding wrong = right;
    wrong.name = m->name;
    if (m->field == offsetof(fig_binding, bytes)) wrong.bytes = (size_t)m->value;
    if (m->field == offsetof(fig_binding, address)) wrong.address = (uint8_t *)right.address + 8;
    memcpy(wrong.strides, m->strides, sizeof wrong.strides);
    if (is_out) wrong.address = (uint8_t *)fig_decode_binding(d, 0, FIG_DECODE_Q).address + 512;
    fig_status status = fig_engine_bind(engine, &wrong);
    if (!is_out) return status;
    /* each binding is right by itself; only both together are refused */
    assert_int_equal(status, FIG_OK);
    status = fig_engine_prepare(engine, 0);
    char kept[512];
    snprintf(kept, sizeof kept, "%s", fig_message());
    assert_int_equal(fig_engine_bind(engine, &right), FIG_OK);
    assert_string_equal(fig_message(), kept);
    return status;
}

static fig_status try_pages(const mistake *m, fig_engine *engine) {
    int32_t entries[3] = {1, 2, 3};
    fig_pages pages = {.size = sizeof pages, .count = 3, .pages = entries};
    const int32_t value = (int32_t)m->value;
    if (m->field != offsetof(fig_pages, pages)) {
        memcpy((uint8_t *)&pages + m->field, &value, sizeof value);
    } else if (m->sentence != NULL && strcmp(m->sentence, "pages: pages is NULL") == 0) {
        pages.pages = NULL;
    } else {
        entries[m->item] = value;
    }
    return fig_engine_set_pages(engine, &pages);
}

static fig_status try_fork(const mistake *m, fig_engine *engine) {
    fig_fork fork = {.size = sizeof fork, .source = 1, .target = 2, .length = 40};
    const int32_t value = (int32_t)m->value;
    memcpy((uint8_t *)&fork + m->field, &value, sizeof value);
    return fig_engine_fork(engine, &fork);
}

static fig_status try_step(const mistake *m, fig_engine *engine) {
    int32_t lengths[5] = {3, 50, 128, 1, 1}, positions[5] = {2, 49, 127},
            sequences[5] = {0, 3, 5, 1, 2};
    static const int32_t counts[5] = {1, 1, 1, 1, 1};
    fig_step step = {.size = sizeof step,
                     .rows = 3,
                     .kv_lengths = lengths,
                     .positions = positions,
                     .sequences = sequences};
    const int32_t value = (int32_t)m->value;
    if (m->field == offsetof(fig_step, rows)) step.rows = value;
    if (m->field == offsetof(fig_step, token_limit)) step.token_limit = m->value;
    if (m->field == offsetof(fig_step, kv_lengths) && m->item < 0) step.kv_lengths = NULL;
    if (m->field == offsetof(fig_step, kv_lengths) && m->item >= 0) lengths[m->item] = value;
    if (m->field == offsetof(fig_step, positions)) positions[m->item] = value;
    if (m->field == offsetof(fig_step, query_counts)) step.query_counts = counts;
    if (m->field == offsetof(fig_step, sequences)) sequences[m->item] = value;
    fig_status status = fig_engine_step(engine, &step);
    assert_int_equal(fig_engine_stage(engine, &step), status);
    return status;
}

static void check_step(fig_decode *decode, fig_engine *engine) {
    static const int32_t lengths[] = {1, 1, 0, 1};
    const fig_step step = {.size = sizeof step, .rows = 4, .kv_lengths = lengths};
    fig_random random = fig_random_seed(4);
    fig_decode_fill(decode, &random);
    if (fig_engine_step(engine, &step) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_engine_wait(engine, 60000000), FIG_OK);
    fig_decode_check(decode, &step);
}

/* ---- All of it ----------------------------------------------------------------------------- */

static fig_status try_mistake(const mistake *m, const fig_decode *decode, fig_engine *engine) {
    switch (m->part) {
    case SPEC: return try_spec(m);
    case RECORDER: return try_recorder(m);
    case BUCKET: return try_bucket(m);
    case BINDING: return try_binding(m, decode, engine);
    case PAGES: return try_pages(m, engine);
    case FORK: return try_fork(m, engine);
    case STEP: return try_step(m, engine);
    }
    return FIG_OK;
}

static void check_untouched(const fig_decode *decode, fig_engine *engine, int64_t steps) {
    fig_progress progress = {.size = sizeof progress};
    assert_int_equal(fig_engine_poll(engine, &progress), FIG_OK);
    assert_int_equal(progress.staged, steps);
    assert_int_equal(progress.launched, steps);
    assert_memory_equal(decode->memory, decode->before, decode->memory_bytes);
}

static void every_mistake_is_named_and_changes_nothing(void **state) {
    (void)state;
    const fig_decode_options options = {
        .dtype = FIG_F32, .layers = 1, .page_size = PAGE, .batch_limit = ROWS, .kv_limit = KV};
    static fig_decode decode;
    fig_engine *engine;
    int64_t steps = 0;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_decode_bind(&decode, engine);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const mistake *m = &table[i];
        memcpy(decode.before, decode.memory, decode.memory_bytes);
        fig_status status = try_mistake(m, &decode, engine);
        if (status != m->status || strstr(fig_message(), m->sentence) == NULL)
            fail_msg("mistake %zu: %s: \"%s\", not %s: \"%s\"", i, fig_status_name(status),
                     fig_message(), fig_status_name(m->status), m->sentence);
        check_untouched(&decode, engine, steps);
        check_step(&decode, engine);
        steps++;
    }
    print_message("%zu mistakes\n", sizeof table / sizeof *table);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

/* ---- NULL ---------------------------------------------------------------------------------- */

static void expect(fig_status status, const char *sentence) {
    if (status != FIG_INVALID || strstr(fig_message(), sentence) == NULL)
        fail_msg("%s: \"%s\", not FIG_INVALID: \"%s\"", fig_status_name(status), fig_message(),
                 sentence);
}

static void null_is_refused_wherever_a_struct_is_needed(void **state) {
    (void)state;
    const fig_decode_options options = {
        .dtype = FIG_F32, .layers = 1, .page_size = PAGE, .batch_limit = ROWS, .kv_limit = KV};
    static fig_decode decode;
    fig_engine *engine;
    fig_program *program;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_decode_bind(&decode, engine);
    fig_program_create(&program, NULL);
    assert_null(program);
    expect(fig_spec_check(NULL), "spec");
    expect(fig_engine_bind(engine, NULL), "the program has no tensor NULL");
    expect(fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .count = 1)), "pages is NULL");
    expect(fig_engine_write(engine, NULL, NULL), "the program has no tensor NULL");
    expect(fig_engine_read(engine, FIG_OPTIONS(fig_span, .name = "q.0", .bytes = 1), NULL),
           "tensor q.0: the host's memory is NULL");
    expect(fig_engine_register(engine, NULL, NULL, NULL), "the program has no call NULL");
    fig_engine *none = engine;
    expect(fig_engine_open(&none, NULL, NULL), "engine: graphs is NULL");
    assert_null(none);
    check_step(&decode, engine);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_is_named_and_changes_nothing),
        cmocka_unit_test(null_is_refused_wherever_a_struct_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

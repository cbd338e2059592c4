/* test_operation.c: each operation takes the tensors that its kernel can work on, and refuses any
 * other in one sentence that names node, operand, value and limit.
 *
 * A refusal is one change to operands that are otherwise sound. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/operation.h"
#include "tests/support/sample.h"

enum { OPERAND_CAPACITY = 8 };

/* An operand of a sound node; rank 0: absent. */
typedef struct given {
    fig_dtype dtype;
    int32_t rank;
    int64_t dims[4];
} given;

typedef struct sound {
    fig_op op;
    given operands[OPERAND_CAPACITY];
    uint32_t count;
} sound;

#define ROWS FIG_DIM_BATCH
#define PAGES FIG_DIM_PAGES

/* Of the sample's spec: 6 rows, 200 tokens, 9 sequences, pages of 16. */
static const sound sounds[] = {
    {FIG_OP_SILU_AND_MUL, {{FIG_BF16, 2, {ROWS, 48}}, {FIG_BF16, 2, {ROWS, 24}}}, 2},
    {FIG_OP_ROPE,
     {[FIG_ROPE_Q] = {FIG_F32, 3, {ROWS, 6, 128}},
      [FIG_ROPE_K] = {FIG_F32, 3, {ROWS, 2, 128}},
      [FIG_ROPE_POSITIONS] = {FIG_I64, 1, {ROWS}},
      [FIG_ROPE_Q_OUT] = {FIG_F32, 3, {ROWS, 6, 128}},
      [FIG_ROPE_K_OUT] = {FIG_F32, 3, {ROWS, 2, 128}}},
     5},
    {FIG_OP_APPEND_KV,
     {[FIG_APPEND_K] = {FIG_F16, 3, {ROWS, 2, 64}},
      [FIG_APPEND_V] = {FIG_F16, 3, {ROWS, 2, 64}},
      [FIG_APPEND_TABLE] = {FIG_I32, 2, {9, 13}},
      [FIG_APPEND_K_CACHE] = {FIG_F16, 4, {PAGES, 16, 2, 64}},
      [FIG_APPEND_V_CACHE] = {FIG_F16, 4, {PAGES, 16, 2, 64}}},
     5},
    {FIG_OP_ATTENTION,
     {[FIG_ATTENTION_Q] = {FIG_F16, 3, {ROWS, 8, 64}},
      [FIG_ATTENTION_K_CACHE] = {FIG_F16, 4, {PAGES, 16, 2, 64}},
      [FIG_ATTENTION_V_CACHE] = {FIG_F16, 4, {PAGES, 16, 2, 64}},
      [FIG_ATTENTION_TABLE] = {FIG_I32, 2, {9, 13}},
      [FIG_ATTENTION_OUT] = {FIG_F16, 3, {ROWS, 8, 64}},
      [FIG_ATTENTION_LSE] = {FIG_F32, 2, {ROWS, 8}}},
     6},
};
enum { SOUND_COUNT = sizeof sounds / sizeof sounds[0] };

typedef enum change {
    NOTHING,
    ABSENT,
    SAME_AS, /* operand `value` */
    FOREIGN, /* tensor id `value` */
    DTYPE,
    RANK,
    DIM /* DIM + i */
} change;

/* Records one node with up to two changes, and returns what finishing it says. */
typedef struct changed {
    fig_op op;
    uint32_t operand;
    int change;
    int64_t value;
} changed;

static const sound *sound_of(fig_op op) {
    for (int i = 0; i < SOUND_COUNT; i++) {
        if (sounds[i].op == op) return &sounds[i];
    }
    fail_msg("no sound node of operation %d", (int)op);
    return NULL;
}

static void apply(given *operand, const changed *edit) {
    if (edit->change == ABSENT) operand->rank = 0;
    if (edit->change == DTYPE) operand->dtype = (fig_dtype)edit->value;
    if (edit->change == RANK) {
        for (int64_t i = operand->rank; i < edit->value; i++)
            operand->dims[i] = 8;
        operand->rank = (int32_t)edit->value;
        for (int64_t i = edit->value; i < 4; i++)
            operand->dims[i] = 0;
    }
    if (edit->change >= DIM) operand->dims[edit->change - DIM] = edit->value;
}

static void attributes_of(fig_op op, const fig_program *program, uint8_t bytes[64],
                          uint32_t *count) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    *count = fig_kernel_table[op].attribute_bytes;
    if (op == FIG_OP_ROPE) memcpy(bytes, &spec->rope, sizeof spec->rope);
    if (op == FIG_OP_ATTENTION) memcpy(bytes, &spec->sm_scale, sizeof spec->sm_scale);
}

static fig_status record(const changed *edits, size_t edit_count) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const sound *node = sound_of(edits[0].op);
    uint32_t ids[OPERAND_CAPACITY] = {0}, attribute_count;
    uint8_t attributes[64];
    for (uint32_t i = 0; i < node->count; i++) {
        given operand = node->operands[i];
        fig_tensor_info info = {.size = sizeof info, .role = FIG_BOUND};
        for (size_t e = 0; e < edit_count; e++) {
            if (edits[e].operand == i) apply(&operand, &edits[e]);
        }
        if (operand.rank == 0) continue;
        info.name = fig_kernel_table[node->op].operands[i].name;
        info.dtype = operand.dtype;
        info.rank = operand.rank;
        memcpy(info.dims, operand.dims, sizeof info.dims);
        ids[i] = fig_program_tensor(program, &info).id;
        if (ids[i] == 0) fail_msg("operand %u: %s", i, fig_message());
    }
    for (size_t e = 0; e < edit_count; e++) {
        if (edits[e].change == SAME_AS) ids[edits[e].operand] = ids[edits[e].value];
        if (edits[e].change == FOREIGN) ids[edits[e].operand] = (uint32_t)edits[e].value;
    }
    attributes_of(node->op, program, attributes, &attribute_count);
    fig_program_node(program, node->op, ids, node->count, attributes, attribute_count);
    fig_status status = fig_program_finish(program);
    if (status == FIG_OK) assert_int_equal(fig_program_check(fig_program_view_of(program)), FIG_OK);
    fig_program_destroy(program);
    return status;
}

static void takes(const changed *edits, size_t count) {
    if (record(edits, count) != FIG_OK)
        fail_msg("operation %d, operand %u, change %d: %s", (int)edits[0].op, edits[0].operand,
                 edits[0].change, fig_message());
}

static void sound_nodes_are_taken(void **state) {
    (void)state;
    for (int i = 0; i < SOUND_COUNT; i++)
        takes(&(changed){sounds[i].op, 0, NOTHING, 0}, 1);
}

static void what_is_optional_or_free_may_vary(void **state) {
    (void)state;
    static const changed edits[] = {
        {FIG_OP_ROPE, FIG_ROPE_POSITIONS, ABSENT, 0},
        {FIG_OP_ROPE, FIG_ROPE_POSITIONS, DTYPE, FIG_I32},
        {FIG_OP_ROPE, FIG_ROPE_Q_OUT, SAME_AS, FIG_ROPE_Q},
        {FIG_OP_ROPE, FIG_ROPE_K_OUT, SAME_AS, FIG_ROPE_K},
        {FIG_OP_APPEND_KV, FIG_APPEND_V, SAME_AS, FIG_APPEND_K},
        {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, DIM, 70},
        {FIG_OP_APPEND_KV, FIG_APPEND_TABLE, DIM, 10},
        {FIG_OP_APPEND_KV, FIG_APPEND_TABLE, DIM + 1, 14},
        {FIG_OP_ATTENTION, FIG_ATTENTION_LSE, ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_V_CACHE, SAME_AS, FIG_ATTENTION_K_CACHE},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++)
        takes(&edits[i], 1);
}

/* Without a table a page is a sequence, and holds kv_limit tokens exactly. */
static void a_dense_cache_has_pages_of_kv_limit(void **state) {
    (void)state;
    for (int64_t tokens = 199; tokens <= 201; tokens++) {
        const changed edits[] = {
            {FIG_OP_ATTENTION, FIG_ATTENTION_TABLE, ABSENT, 0},
            {FIG_OP_ATTENTION, FIG_ATTENTION_K_CACHE, DIM + 1, tokens},
            {FIG_OP_ATTENTION, FIG_ATTENTION_V_CACHE, DIM + 1, tokens},
        };
        if (tokens == 200) {
            takes(edits, 3);
        } else {
            FIG_SAMPLE_REFUSES(record(edits, 3), FIG_INVALID, "hold kv_limit tokens, 200");
        }
    }
}

typedef struct refusal {
    changed edit;
    fig_status status;
    const char *part;
} refusal;

#define SILU(operand, change, value)                                                               \
    { FIG_OP_SILU_AND_MUL, operand, change, value }
#define ROPE(operand, change, value)                                                               \
    { FIG_OP_ROPE, FIG_ROPE_##operand, change, value }
#define APPEND(operand, change, value)                                                             \
    { FIG_OP_APPEND_KV, FIG_APPEND_##operand, change, value }
#define ATTEND(operand, change, value)                                                             \
    { FIG_OP_ATTENTION, FIG_ATTENTION_##operand, change, value }

static const refusal refusals[] = {
    {SILU(FIG_SILU_IN, ABSENT, 0), FIG_INVALID, "node 0 (silu_and_mul): in, operand 0, is absent"},
    {SILU(FIG_SILU_IN, FOREIGN, 3), FIG_INVALID, "in is tensor 3, the program has 2"},
    {SILU(FIG_SILU_OUT, FOREIGN, UINT32_MAX), FIG_INVALID, "out is tensor 4294967295"},
    {SILU(FIG_SILU_OUT, SAME_AS, FIG_SILU_IN), FIG_INVALID, "in and out are both in"},
    {SILU(FIG_SILU_IN, DTYPE, FIG_F16), FIG_INVALID, "in has dtype 2, it must be 3"},
    {SILU(FIG_SILU_OUT, DTYPE, FIG_I32), FIG_INVALID, "out has dtype 8"},
    {SILU(FIG_SILU_IN, RANK, 3), FIG_INVALID, "in has rank 3, it must be 2"},
    {SILU(FIG_SILU_OUT, DIM, 6), FIG_INVALID, "out: dims[0] must be FIG_DIM_BATCH"},
    {SILU(FIG_SILU_OUT, DIM, PAGES), FIG_INVALID, "out: dims[0] must be FIG_DIM_BATCH"},
    {SILU(FIG_SILU_IN, DIM + 1, 47), FIG_INVALID, "in: dims[1] is 47, it must be 48"},
    {SILU(FIG_SILU_OUT, DIM + 1, 20), FIG_INVALID, "width 20, it must be a multiple of 8"},
    {SILU(FIG_SILU_OUT, DIM + 1, (1 << 20) + 8), FIG_INVALID, "limit 1048576"},

    {ROPE(Q, ABSENT, 0), FIG_INVALID, "node 0 (rope): q, operand 0, is absent"},
    {ROPE(K, ABSENT, 0), FIG_INVALID, "k, operand 1, is absent"},
    {ROPE(Q_OUT, ABSENT, 0), FIG_INVALID, "q_out, operand 3, is absent"},
    {ROPE(K, SAME_AS, FIG_ROPE_Q_OUT), FIG_INVALID, "k and q_out are both q_out"},
    {ROPE(Q_OUT, SAME_AS, FIG_ROPE_K), FIG_INVALID, "k and q_out are both k"},
    {ROPE(K_OUT, SAME_AS, FIG_ROPE_Q), FIG_INVALID, "q and k_out are both q"},
    {ROPE(K_OUT, SAME_AS, FIG_ROPE_Q_OUT), FIG_INVALID, "q_out and k_out are both q_out"},
    {ROPE(K_OUT, SAME_AS, FIG_ROPE_POSITIONS), FIG_INVALID, "positions and k_out are both"},
    {ROPE(Q, DTYPE, FIG_F16), FIG_INVALID, "k has dtype 1, it must be 2"},
    {ROPE(Q, DTYPE, FIG_I64), FIG_INVALID, "q has dtype 9"},
    {ROPE(Q_OUT, DTYPE, FIG_BF16), FIG_INVALID, "q_out has dtype 3, it must be 1"},
    {ROPE(K_OUT, DTYPE, FIG_BF16), FIG_INVALID, "k_out has dtype 3, it must be 1"},
    {ROPE(POSITIONS, DTYPE, FIG_F32), FIG_INVALID, "positions has dtype 1"},
    {ROPE(POSITIONS, RANK, 2), FIG_INVALID, "positions has rank 2, it must be 1"},
    {ROPE(POSITIONS, DIM, 6), FIG_INVALID, "positions: dims[0] must be FIG_DIM_BATCH"},
    {ROPE(Q, DIM, 6), FIG_INVALID, "q: dims[0] must be FIG_DIM_BATCH"},
    {ROPE(Q, DIM + 1, 257), FIG_INVALID, "q has 257 heads, limit 256"},
    {ROPE(K, DIM + 1, 257), FIG_INVALID, "k has 257 heads, limit 256"},
    {ROPE(K, DIM + 1, 3), FIG_INVALID, "k_out: dims[1] is 2, it must be 3"},
    {ROPE(Q_OUT, DIM + 1, 5), FIG_INVALID, "q_out: dims[1] is 5, it must be 6"},
    {ROPE(Q, DIM + 2, 80), FIG_UNSUPPORTED, "q has head_dim 80, this library has 64 and 128"},
    {ROPE(K, DIM + 2, 64), FIG_INVALID, "k: dims[2] is 64, it must be 128"},

    {APPEND(K, ABSENT, 0), FIG_INVALID, "node 0 (append_kv): k, operand 0, is absent"},
    {APPEND(V_CACHE, ABSENT, 0), FIG_INVALID, "v_cache, operand 4, is absent"},
    {APPEND(TABLE, ABSENT, 0), FIG_INVALID, "page_table is absent"},
    {APPEND(V_CACHE, SAME_AS, FIG_APPEND_K_CACHE), FIG_INVALID, "k_cache and v_cache are both"},
    {APPEND(K_CACHE, SAME_AS, FIG_APPEND_K), FIG_INVALID, "k and k_cache are both k"},
    {APPEND(K, DTYPE, FIG_I32), FIG_INVALID, "k has dtype 8"},
    {APPEND(K, DIM + 1, 257), FIG_INVALID, "k has 257 heads, limit 256"},
    {APPEND(K, DIM + 2, 96), FIG_UNSUPPORTED, "k has head_dim 96"},
    {APPEND(V, DTYPE, FIG_F32), FIG_INVALID, "v has dtype 1, it must be 2"},
    {APPEND(V, DIM + 1, 3), FIG_INVALID, "v: dims[1] is 3, it must be 2"},
    {APPEND(V, DIM + 2, 128), FIG_INVALID, "v: dims[2] is 128, it must be 64"},
    {APPEND(K_CACHE, DTYPE, FIG_BF16), FIG_INVALID, "k_cache has dtype 3, it must be 2"},
    {APPEND(V_CACHE, DTYPE, FIG_BF16), FIG_INVALID, "v_cache has dtype 3, it must be 2"},
    {APPEND(K_CACHE, DIM, ROWS), FIG_INVALID, "k_cache: dims[0] must be FIG_DIM_PAGES"},
    {APPEND(K_CACHE, DIM + 3, 128), FIG_INVALID, "k_cache: dims[3] is 128, it must be 64"},
    {APPEND(V_CACHE, DIM + 1, 32), FIG_INVALID, "v_cache: dims[1] is 32, it must be 16"},
    {APPEND(V_CACHE, DIM + 2, 1), FIG_INVALID, "v_cache: dims[2] is 1, it must be 2"},
    {APPEND(V_CACHE, RANK, 3), FIG_INVALID, "v_cache has rank 3, it must be 4"},
    {APPEND(TABLE, DTYPE, FIG_I64), FIG_INVALID, "page_table has dtype 9, it must be 8"},
    {APPEND(TABLE, DIM, ROWS), FIG_INVALID, "page_table: dims[0] must be a number"},
    {APPEND(TABLE, DIM, 8), FIG_INVALID, "page_table has 8 rows for 9 sequences"},
    {APPEND(TABLE, DIM + 1, 12), FIG_INVALID, "12 pages of 16 tokens for a kv_limit of 200"},

    {ATTEND(OUT, ABSENT, 0), FIG_INVALID, "node 0 (attention): out, operand 4, is absent"},
    {ATTEND(OUT, SAME_AS, FIG_ATTENTION_Q), FIG_INVALID, "q and out are both q"},
    {ATTEND(LSE, SAME_AS, FIG_ATTENTION_OUT), FIG_INVALID, "out and lse are both out"},
    {ATTEND(OUT, DIM + 1, 4), FIG_INVALID, "out: dims[1] is 4, it must be 8"},
    {ATTEND(OUT, DTYPE, FIG_F32), FIG_INVALID, "out has dtype 1, it must be 2"},
    {ATTEND(LSE, DTYPE, FIG_F16), FIG_INVALID, "lse has dtype 2, it must be 1"},
    {ATTEND(LSE, DIM + 1, 4), FIG_INVALID, "lse: dims[1] is 4, it must be 8"},
    {ATTEND(LSE, RANK, 3), FIG_INVALID, "lse has rank 3, it must be 2"},
    {ATTEND(Q, DIM + 2, 256), FIG_UNSUPPORTED, "q has head_dim 256"},
    {ATTEND(Q, DTYPE, FIG_I32), FIG_INVALID, "q has dtype 8"},
    {ATTEND(K_CACHE, DIM + 3, 128), FIG_INVALID, "k_cache: dims[3] is 128, it must be 64"},
    {ATTEND(K_CACHE, DTYPE, FIG_F32), FIG_INVALID, "k_cache has dtype 1, it must be 2"},
    {ATTEND(TABLE, DIM + 1, 12), FIG_INVALID, "12 pages of 16 tokens"},
};

static void each_unsound_operand_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const fig_status status = record(&refusals[i].edit, 1);
        if (status != refusals[i].status || strstr(fig_message(), refusals[i].part) == NULL)
            fail_msg("refusal %zu: %s \"%s\", not %s \"%s\"", i, fig_status_name(status),
                     fig_message(), fig_status_name(refusals[i].status), refusals[i].part);
    }
}

static void refuse_heads(int64_t q_heads, int64_t kv_heads) {
    const changed edits[] = {
        {FIG_OP_ATTENTION, FIG_ATTENTION_Q, DIM + 1, q_heads},
        {FIG_OP_ATTENTION, FIG_ATTENTION_OUT, DIM + 1, q_heads},
        {FIG_OP_ATTENTION, FIG_ATTENTION_LSE, ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_K_CACHE, DIM + 2, kv_heads},
        {FIG_OP_ATTENTION, FIG_ATTENTION_V_CACHE, DIM + 2, kv_heads},
    };
    FIG_SAMPLE_REFUSES(record(edits, 5), FIG_INVALID, " heads");
}

static void q_heads_are_a_multiple_of_kv_heads_up_to_the_group_limit(void **state) {
    (void)state;
    static const changed group_of_16[] = {
        {FIG_OP_ATTENTION, FIG_ATTENTION_Q, DIM + 1, 32},
        {FIG_OP_ATTENTION, FIG_ATTENTION_OUT, DIM + 1, 32},
        {FIG_OP_ATTENTION, FIG_ATTENTION_LSE, ABSENT, 0},
    };
    takes(group_of_16, 3);
    refuse_heads(34, 2);
    refuse_heads(7, 2);
    refuse_heads(2, 3);
    refuse_heads(2, 512);
}

static void pages_end_at_their_limit(void **state) {
    (void)state;
    const changed edits[] = {
        {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, DIM + 1, 65537},
        {FIG_OP_APPEND_KV, FIG_APPEND_V_CACHE, DIM + 1, 65537},
    };
    FIG_SAMPLE_REFUSES(record(edits, 2), FIG_INVALID, "a page has 65537 tokens, limit 65536");
}

static void caches_hold_the_heads_that_are_appended(void **state) {
    (void)state;
    const changed edits[] = {
        {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, DIM + 2, 4},
        {FIG_OP_APPEND_KV, FIG_APPEND_V_CACHE, DIM + 2, 4},
    };
    FIG_SAMPLE_REFUSES(record(edits, 2), FIG_INVALID, "k has 2 heads and k_cache 4");
}

/* ---- The recorder's calls -------------------------------------------------------------------- */

static fig_program *begin(void) {
    const fig_spec spec = fig_sample_spec();
    return fig_sample_program(&spec);
}

static fig_status end(fig_program *program) {
    const fig_status status = fig_program_finish(program);
    fig_program_destroy(program);
    return status;
}

static void rope_is_in_place_and_of_the_spec_unless_told(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64),
                     k = fig_sample_rows(program, "k", 2, 64);
    const fig_tensor out = fig_sample_rows(program, "out", 8, 64);
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
    const fig_rope_spec own = {.interleaved = 1, .theta = 5000};
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .q_out = out, .rope = &own));
    const fig_program_view *view = fig_program_view_of(program);
    assert_int_equal(view->node_count, 2);
    const uint32_t *first = view->operands, *second = view->operands + 5;
    assert_int_equal(first[FIG_ROPE_Q_OUT], q.id);
    assert_int_equal(first[FIG_ROPE_K_OUT], k.id);
    assert_int_equal(first[FIG_ROPE_POSITIONS], 0);
    assert_int_equal(second[FIG_ROPE_Q_OUT], out.id);
    fig_rope_spec stored;
    memcpy(&stored, view->attributes, sizeof stored);
    assert_memory_equal(&stored, &view->spec.rope, sizeof stored);
    memcpy(&stored, view->attributes + view->nodes[1].attribute, sizeof stored);
    assert_int_equal(stored.interleaved, 1);
    assert_true(stored.theta == 5000.0f && stored.scale == 1.0f);
    assert_int_equal(end(program), FIG_OK);
}

static void an_unsound_rope_is_refused(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64),
                     k = fig_sample_rows(program, "k", 2, 64);
    const fig_rope_spec own = {.theta = -1};
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope = &own));
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "theta is -1");
}

static fig_status attend_with(float sm_scale, float *stored) {
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64);
    const fig_tensor out = fig_sample_rows(program, "out", 8, 64);
    const fig_cache cache = fig_sample_cache(program, "cache", 2, 64);
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache,
                                       .sm_scale = sm_scale));
    memcpy(stored, fig_program_view_of(program)->attributes, sizeof *stored);
    return end(program);
}

static void sm_scale_is_the_specs_unless_told(void **state) {
    (void)state;
    float stored;
    assert_int_equal(attend_with(0, &stored), FIG_OK);
    assert_true(stored == 0.125f);
    assert_int_equal(attend_with(0.5f, &stored), FIG_OK);
    assert_true(stored == 0.5f);
    FIG_SAMPLE_REFUSES(attend_with(-0.5f, &stored), FIG_INVALID, "sm_scale is -0.5");
    FIG_SAMPLE_REFUSES(attend_with(INFINITY, &stored), FIG_INVALID, "sm_scale is inf");
    FIG_SAMPLE_REFUSES(attend_with(NAN, &stored), FIG_INVALID, "sm_scale is");
}

static void a_call_stores_its_name_tag_and_bytes(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor a = fig_sample_rows(program, "a", 1, 8),
                     b = fig_sample_rows(program, "b", 1, 8);
    const fig_tensor reads[] = {a, b}, writes[] = {b};
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = reads, .read_count = 2,
                                  .writes = writes, .write_count = 1, .tag = 7, .bytes = "xyz",
                                  .byte_count = 3));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "gemm"));
    const fig_program_view *view = fig_program_view_of(program);
    fig_call_attributes call, second;
    memcpy(&call, view->attributes, sizeof call);
    memcpy(&second, view->attributes + view->nodes[1].attribute, sizeof second);
    assert_string_equal(view->strings + call.name, "gemm");
    assert_int_equal(second.name, call.name);
    assert_int_equal(call.tag, 7);
    assert_int_equal(call.byte_count, 3);
    assert_memory_equal(call.bytes, "xyz\0", 4);
    assert_int_equal(fig_program_access(view, &view->nodes[0], 1), FIG_ACCESS_READ);
    assert_int_equal(fig_program_access(view, &view->nodes[0], 2), FIG_ACCESS_WRITE);
    assert_int_equal(end(program), FIG_OK);
}

static fig_status call_with(const fig_call_op *op) {
    fig_program *program = begin();
    fig_sample_rows(program, "a", 1, 8);
    fig_call(program, op);
    return end(program);
}

static void unsound_calls_are_refused(void **state) {
    (void)state;
    static const fig_tensor twice[] = {{1}, {1}}, absent[] = {{0}}, foreign[] = {{2}};
    static const char bytes[257];
    FIG_SAMPLE_REFUSES(call_with(FIG_OPTIONS(fig_call_op, .tag = 1)), FIG_INVALID, "name is NULL");
    FIG_SAMPLE_REFUSES(call_with(FIG_OPTIONS(fig_call_op, .call = "a b")), FIG_INVALID, "a b");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = twice, .read_count = 17)),
        FIG_INVALID, "read_count is 17, limits 0 to 16");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .writes = twice, .write_count = -1)),
        FIG_INVALID, "write_count is -1");
    FIG_SAMPLE_REFUSES(call_with(FIG_OPTIONS(fig_call_op, .call = "c", .read_count = 1)),
                       FIG_INVALID, "its array is NULL");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .bytes = bytes, .byte_count = 257)),
        FIG_INVALID, "byte_count is 257, limits 0 to 256");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .writes = twice, .write_count = 2)),
        FIG_INVALID, "node 0 (call): writes a twice");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = absent, .read_count = 1)),
        FIG_INVALID, "tensor, operand 0, is absent");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = foreign, .read_count = 1)),
        FIG_INVALID, "tensor is tensor 2, the program has 1");
    assert_int_equal(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = twice, .read_count = 2)), FIG_OK);
}

/* The recorder counts them itself; a file may hold any number. */
static void a_call_writes_at_most_sixteen(void **state) {
    (void)state;
    for (uint32_t count = 16; count <= 17; count++) {
        fig_program *program = begin();
        uint32_t ids[17];
        char name[16];
        for (uint32_t i = 0; i < count; i++) {
            snprintf(name, sizeof name, "t%u", i);
            ids[i] = fig_sample_rows(program, name, 1, 8).id;
        }
        const fig_call_attributes call = {.name = fig_program_string(program, "c")};
        fig_program_node(program, FIG_OP_CALL, ids, count, &call, sizeof call);
        if (count == 16) assert_int_equal(end(program), FIG_OK);
        if (count == 17)
            FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "write_count is 17, limit 16");
    }
}

static void nothing_is_recorded_into_no_program(void **state) {
    (void)state;
    fig_silu_and_mul(NULL, NULL);
    fig_rope(NULL, NULL);
    fig_append_kv(NULL, NULL);
    fig_attention(NULL, NULL);
    fig_call(NULL, NULL);
    fig_program_layer(NULL, 0);
    assert_int_equal(fig_program_string(NULL, "c"), 0);
}

static void what_is_refused_leaves_no_node(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "not a name"));
    assert_int_equal(fig_program_view_of(program)->node_count, 0);
    assert_int_equal(fig_program_string(program, "c"), 0);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "not a name");
    program = begin();
    fig_silu_and_mul(program, NULL);
    assert_int_equal(fig_sample_rows(program, "after", 1, 8).id, 0);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "in, operand 0, is absent");
}

static void options_of_no_size_are_refused(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_silu_and_mul(program, &(fig_silu_and_mul_op){.size = 0});
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "fig_silu_and_mul_op: size is 0");
    program = begin();
    fig_append_kv(program, &(fig_append_kv_op){.size = 2});
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "fig_append_kv_op: size is 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_nodes_are_taken),
        cmocka_unit_test(what_is_optional_or_free_may_vary),
        cmocka_unit_test(a_dense_cache_has_pages_of_kv_limit),
        cmocka_unit_test(each_unsound_operand_is_refused_by_name),
        cmocka_unit_test(q_heads_are_a_multiple_of_kv_heads_up_to_the_group_limit),
        cmocka_unit_test(pages_end_at_their_limit),
        cmocka_unit_test(caches_hold_the_heads_that_are_appended),
        cmocka_unit_test(rope_is_in_place_and_of_the_spec_unless_told),
        cmocka_unit_test(an_unsound_rope_is_refused),
        cmocka_unit_test(sm_scale_is_the_specs_unless_told),
        cmocka_unit_test(a_call_stores_its_name_tag_and_bytes),
        cmocka_unit_test(unsound_calls_are_refused),
        cmocka_unit_test(a_call_writes_at_most_sixteen),
        cmocka_unit_test(nothing_is_recorded_into_no_program),
        cmocka_unit_test(what_is_refused_leaves_no_node),
        cmocka_unit_test(options_of_no_size_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

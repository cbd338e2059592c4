/* test_operation_latent.c: tests which latent nodes the recorder accepts, and that each refusal
 * names the limit and the tensor or option. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/record/program.h"
#include "kernels/latent/latent.h"
#include "tests/support/files/sample.h"

/* A program with one node, sound but for what a test changes. */
typedef struct draft {
    fig_dtype dtype, cache_dtype;
    int64_t heads, q_width, out_width, token_width, latent_width, norm_width, page_size;
    int64_t rope_width, rope_heads; /* of q_rope; 0: there is none */
    fig_dtype rope_dtype;
    int32_t rope_tokens;
    int32_t tokens, row_tokens, has_out, has_sinks, has_norm, has_table, window, rotary_dim;
    int64_t query_limit;
    float sm_scale, epsilon;
} draft;

static draft sound(void) {
    return (draft){.dtype = FIG_BF16,
                   .cache_dtype = FIG_BF16,
                   .heads = 16,
                   .q_width = 576,
                   .out_width = 512,
                   .token_width = 576,
                   .latent_width = 576,
                   .norm_width = 512,
                   .page_size = 64,
                   .tokens = 1,
                   .row_tokens = 8,
                   .has_out = 1,
                   .has_norm = 1,
                   .has_table = 1,
                   .sm_scale = 0.1f};
}

static fig_tensor tensor(fig_program *program, const char *name, fig_dtype dtype,
                         const int64_t dims[3], int32_t multiple) {
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = dtype,
                            .multiple = multiple};
    while (info.rank < 3 && dims[info.rank] != 0) {
        info.dims[info.rank] = dims[info.rank];
        info.rank++;
    }
    return fig_program_tensor(program, &info);
}
#define TENSOR(name, dtype, multiple, ...)                                                         \
    tensor(program, name, dtype, (const int64_t[3]){__VA_ARGS__}, multiple)

static fig_program *create(const draft *d) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = d->dtype,
                           .q_heads = 8,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .page_size = 64,
                           .batch_limit = 4,
                           .kv_limit = 256,
                           .row_tokens = d->row_tokens,
                           .query_limit = d->query_limit,
                           .rope = {.interleaved = 1}};
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    return program;
}

static int64_t rows_of(const draft *d) {
    return d->query_limit > 0 ? FIG_DIM_QUERIES : FIG_DIM_BATCH;
}

static int32_t tokens_of(const draft *d) {
    return d->query_limit > 0 ? 0 : d->tokens;
}

static fig_tensor q_rope(fig_program *program, const draft *d) {
    const int64_t dims[] = {rows_of(d), d->rope_heads, d->rope_width};
    if (d->rope_width == 0) return (fig_tensor){0};
    return tensor(program, "q_rope", d->rope_dtype, dims, d->query_limit > 0 ? 0 : d->rope_tokens);
}

/* A draft with q in two tensors. */
static draft apart(void) {
    draft d = sound();
    d.q_width = 512;
    d.rope_width = 64;
    d.rope_heads = d.heads;
    d.rope_dtype = d.dtype;
    d.rope_tokens = d.tokens;
    return d;
}

static fig_tensor table(fig_program *program, const draft *d) {
    if (!d->has_table) return (fig_tensor){0};
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = "page_table",
                                          .role = FIG_ROLE_STATE, .dtype = FIG_I32, .rank = 2,
                                          .dims = {4, (256 + d->page_size - 1) / d->page_size}));
}

/* Records attention alone. The caller destroys *program. */
static fig_status record_attention(const draft *d, fig_program **out) {
    fig_program *program = *out = create(d);
    const fig_tensor sinks = d->has_sinks ? TENSOR("sinks", FIG_F32, 0, d->heads) : (fig_tensor){0};
    fig_latent_attention(
        program,
        FIG_OPTIONS(
            fig_latent_attention_op,
            .q = TENSOR("q", d->dtype, tokens_of(d), rows_of(d), d->heads, d->q_width),
            .out = TENSOR("out", d->dtype, tokens_of(d), rows_of(d), d->heads, d->out_width),
            .lse = TENSOR("lse", FIG_F32, tokens_of(d), rows_of(d), d->heads),
            .cache =
                TENSOR("cache", d->cache_dtype, 0, FIG_DIM_PAGES, d->page_size, d->token_width),
            .page_table = table(program, d), .sinks = sinks, .window = d->window,
            .sm_scale = d->sm_scale, .q_rope = q_rope(program, d)));
    return fig_program_finish(program);
}

static fig_status record_decode(const draft *d, fig_program **out) {
    fig_program *program = *out = create(d);
    const fig_rope_spec rope = {.interleaved = 1, .rotary_dim = d->rotary_dim};
    fig_latent_decode_op op = {.size = sizeof op,
                               .window = d->window,
                               .sm_scale = d->sm_scale,
                               .norm_epsilon = d->epsilon,
                               .rope = &rope};
    op.q = TENSOR("q", d->dtype, tokens_of(d), rows_of(d), d->heads, d->q_width);
    op.latent = TENSOR("latent", d->dtype, tokens_of(d), rows_of(d), d->latent_width);
    op.cache = TENSOR("cache", d->cache_dtype, 0, FIG_DIM_PAGES, d->page_size, d->token_width);
    op.page_table = table(program, d);
    if (d->has_out)
        op.out = TENSOR("out", d->dtype, tokens_of(d), rows_of(d), d->heads, d->out_width);
    if (d->has_norm) op.norm = TENSOR("norm", d->dtype, 0, d->norm_width);
    if (d->has_sinks) op.sinks = TENSOR("sinks", FIG_F32, 0, d->heads);
    op.q_rope = q_rope(program, d);
    fig_latent_decode(program, &op);
    return fig_program_finish(program);
}

static void takes(const draft *d) {
    fig_program *program;
    fig_status status = record_attention(d, &program);
    if (status != FIG_OK) fail_msg("attention: %s", fig_message());
    fig_program_destroy(program);
    status = record_decode(d, &program);
    if (status != FIG_OK) fail_msg("decode: %s", fig_message());
    fig_program_destroy(program);
}

static void refuses(const draft *d, fig_status status, const char *words) {
    fig_program *program;
    FIG_SAMPLE_REFUSES(record_attention(d, &program), status, words);
    fig_program_destroy(program);
    FIG_SAMPLE_REFUSES(record_decode(d, &program), status, words);
    fig_program_destroy(program);
}

static void refuses_decode(const draft *d, fig_status status, const char *words) {
    fig_program *program;
    FIG_SAMPLE_REFUSES(record_decode(d, &program), status, words);
    fig_program_destroy(program);
}

static void heads_pages_tokens_and_dtypes_may_vary(void **state) {
    (void)state;
    static const int64_t heads[] = {8, 16, 40, 128}, pages[] = {1, 3, 64, 256};
    for (int i = 0; i < 4; i++) {
        draft d = sound();
        d.heads = heads[i];
        d.page_size = pages[i];
        d.tokens = 1 + 7 * (i % 2);
        d.has_sinks = i % 2;
        d.window = 10 * i;
        takes(&d);
        d.dtype = i % 2 ? FIG_F16 : FIG_F32;
        d.cache_dtype = d.dtype;
        takes(&d);
    }
    draft codes = sound();
    codes.cache_dtype = FIG_E4M3;
    codes.token_width = 656;
    takes(&codes);
    draft dense = sound();
    dense.has_table = 0;
    dense.page_size = 256;
    takes(&dense);
    draft two = apart();
    takes(&two);
    two.row_tokens = 4;
    two.query_limit = 12;
    two.heads = two.rope_heads = 8;
    takes(&two);
}

static void a_refusal_names_q_rope(void **state) {
    (void)state;
    draft d = apart();
    d.q_width = 576;
    refuses(&d, FIG_UNSUPPORTED, "q has 576 values a head, it must be 512 beside q_rope");
    d = apart();
    d.rope_width = 128;
    refuses(&d, FIG_INVALID, "q_rope: dims[2] is 128, it must be 64");
    d = apart();
    d.rope_heads = 8;
    refuses(&d, FIG_INVALID, "q_rope: dims[1] is 8, it must be 16");
    d = apart();
    d.rope_dtype = FIG_F16;
    refuses(&d, FIG_INVALID, "q_rope has dtype");
    d = apart();
    d.rope_tokens = 2;
    refuses(&d, FIG_INVALID, "q_rope: multiple is 2, it must be 1");
}

/* A node without q_rope is as short as it was before there was one, so its file has the same
 * bytes. */
static void a_node_has_the_operand_q_rope_only_if_it_is_given(void **state) {
    (void)state;
    fig_status (*const records[])(const draft *, fig_program **) = {record_attention,
                                                                    record_decode};
    static const uint32_t counts[] = {FIG_LATENT_ATTENTION_LSE + 1, FIG_LATENT_DECODE_NORM + 1};
    for (int i = 0; i < 2; i++) {
        const draft one = sound(), two = apart();
        fig_program *program;
        assert_int_equal(records[i](&one, &program), FIG_OK);
        assert_int_equal(fig_program_view_of(program)->nodes[0].operand_count, counts[i]);
        fig_program_destroy(program);
        assert_int_equal(records[i](&two, &program), FIG_OK);
        assert_int_equal(fig_program_view_of(program)->nodes[0].operand_count, counts[i] + 1);
        fig_program_destroy(program);
    }
}

static void a_refusal_names_the_tensor_and_the_limit(void **state) {
    (void)state;
    draft d = sound();
    d.heads = 12;
    refuses(&d, FIG_UNSUPPORTED, "q has 12 heads, it must be a multiple of 8, limit 128");
    d.heads = 136;
    refuses(&d, FIG_UNSUPPORTED, "q has 136 heads");
    d = sound();
    d.q_width = 512;
    refuses(&d, FIG_UNSUPPORTED, "q has 512 values a head, it must be 576");
    d = sound();
    d.out_width = 576;
    refuses(&d, FIG_INVALID, "out: dims[2] is 576, it must be 512");
    d = sound();
    d.token_width = 656;
    refuses(&d, FIG_INVALID, "k_cache: dims[2] is 656, it must be 576");
    d.cache_dtype = FIG_E4M3;
    d.token_width = 576;
    refuses(&d, FIG_INVALID, "k_cache: dims[2] is 576, it must be 656");
    d.token_width = 656;
    d.dtype = FIG_F32;
    refuses(&d, FIG_INVALID, "k_cache has dtype");
    d = sound();
    d.cache_dtype = FIG_E5M2;
    refuses(&d, FIG_INVALID, "k_cache has dtype");
    d = sound();
    d.tokens = 9;
    refuses(&d, FIG_INVALID, "q: multiple is 9, limit 8");
    d = sound();
    d.tokens = d.row_tokens = 16;
    takes(&d);
    d.row_tokens = 9;
    d.query_limit = 40;
    refuses(&d, FIG_UNSUPPORTED,
            "row_tokens is 9, limit 8 where the host gives the lengths of packed rows");
    d.row_tokens = 17;
    refuses(&d, FIG_UNSUPPORTED, "row_tokens is 17, limit 16 over a latent cache");
    d = sound();
    d.window = -1;
    refuses(&d, FIG_INVALID, "window is -1");
    d = sound();
    d.sm_scale = -1;
    refuses(&d, FIG_INVALID, "sm_scale is -1");
    d = sound();
    d.has_table = 0;
    refuses(&d, FIG_INVALID, "page_table is absent");
}

static void operands_of_decode_alone_are_checked_too(void **state) {
    (void)state;
    draft d = sound();
    d.latent_width = 512;
    refuses_decode(&d, FIG_INVALID, "latent: dims[1] is 512, it must be 576");
    d = sound();
    d.norm_width = 576;
    refuses_decode(&d, FIG_INVALID, "norm: dims[0] is 576, it must be 512");
    d = sound();
    d.has_norm = 0;
    d.epsilon = 1e-6f;
    refuses_decode(&d, FIG_INVALID, "norm_epsilon is 1e-06, but there is no norm");
    d = sound();
    d.epsilon = -1;
    refuses_decode(&d, FIG_INVALID, "norm_epsilon is -1");
    d = sound();
    d.rotary_dim = 32;
    refuses_decode(&d, FIG_INVALID, "rotary_dim is 32, it must be 64");
    d = sound();
    d.has_out = 0;
    d.has_sinks = 1;
    refuses_decode(&d, FIG_INVALID, "sinks is given without out");
}

/* The attention of a decode node is a second launch, whose work is split. Without `out` there is no
 * attention, and nothing is split. */
static void a_node_without_out_is_not_split(void **state) {
    (void)state;
    for (int has_out = 0; has_out < 2; has_out++) {
        draft d = sound();
        fig_program *program;
        d.has_out = has_out;
        assert_int_equal(record_decode(&d, &program), FIG_OK);
        const fig_program_view *view = fig_program_view_of(program);
        assert_int_equal(fig_program_view_is_split(view, &view->nodes[0]), has_out);
        fig_program_destroy(program);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_pages_tokens_and_dtypes_may_vary),
        cmocka_unit_test(a_refusal_names_the_tensor_and_the_limit),
        cmocka_unit_test(a_refusal_names_q_rope),
        cmocka_unit_test(a_node_has_the_operand_q_rope_only_if_it_is_given),
        cmocka_unit_test(operands_of_decode_alone_are_checked_too),
        cmocka_unit_test(a_node_without_out_is_not_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

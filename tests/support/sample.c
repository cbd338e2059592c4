/* sample.c: small specs and programs that tests of graphs/ start from. */
#include "tests/support/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

fig_spec fig_sample_spec(void) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_F16,
                      .layers = 2,
                      .q_heads = 8,
                      .kv_heads = 2,
                      .head_dim = 64,
                      .ffn_width = 32,
                      .page_size = 16,
                      .batch_limit = 6,
                      .kv_limit = 200,
                      .sequence_limit = 9};
}

fig_program *fig_sample_program(const fig_spec *spec) {
    fig_program *program;
    if (fig_program_create(&program, spec) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

fig_program *fig_sample_step(const fig_spec *spec) {
    fig_program *program = fig_sample_program(spec);
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

fig_program *fig_sample_mixture(void) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_program_decode_step(program);
    const fig_tensor read = fig_program_find(program, "out.0");
    const fig_tensor temp =
        fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "temp", .dtype = FIG_F32,
                                                .rank = 2, .dims = {FIG_DIM_BATCH, 40}));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = &read, .read_count = 1,
                                  .writes = &temp, .write_count = 1, .tag = 9, .bytes = "abc",
                                  .byte_count = 3));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

fig_tensor fig_sample_rows(fig_program *program, const char *name, int64_t heads,
                           int64_t head_dim) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_BOUND,
                                                   .dtype = FIG_F16, .rank = 3,
                                                   .dims = {FIG_DIM_BATCH, heads, head_dim}));
}

fig_cache fig_sample_cache(fig_program *program, const char *name, int64_t heads,
                           int64_t head_dim) {
    char k_name[FIG_NAME_LIMIT + 1], v_name[FIG_NAME_LIMIT + 1];
    fig_tensor_info info = {.size = sizeof info,
                            .name = k_name,
                            .role = FIG_STATE,
                            .dtype = FIG_F16,
                            .rank = 4,
                            .dims = {FIG_DIM_PAGES, 0, heads, head_dim}};
    fig_cache cache = {{0}, {0}, {0}};
    info.dims[1] = fig_program_view_of(program)->spec.kv_limit;
    snprintf(k_name, sizeof k_name, "k_%s", name);
    snprintf(v_name, sizeof v_name, "v_%s", name);
    cache.k = fig_program_tensor(program, &info);
    info.name = v_name;
    cache.v = fig_program_tensor(program, &info);
    return cache;
}

void fig_sample_attention(fig_program *program, const char *name, const fig_sample_heads *heads) {
    char q_name[FIG_NAME_LIMIT + 1], out_name[FIG_NAME_LIMIT + 1];
    snprintf(q_name, sizeof q_name, "q_%s", name);
    snprintf(out_name, sizeof out_name, "out_%s", name);
    const fig_tensor q = fig_sample_rows(program, q_name, heads->q, heads->head_dim);
    const fig_tensor out = fig_sample_rows(program, out_name, heads->q, heads->head_dim);
    const fig_cache cache = fig_sample_cache(program, name, heads->kv, heads->head_dim);
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
}

void fig_sample_check(fig_status status, fig_status expected, const char *part, int line) {
    if (status != expected)
        fail_msg("line %d: %s (\"%s\"), not %s", line, fig_status_name(status), fig_message(),
                 fig_status_name(expected));
    if (strstr(fig_message(), part) == NULL)
        fail_msg("line %d: \"%s\" does not say \"%s\"", line, fig_message(), part);
}

/* test_operand.c: tests that an unsound operand is refused with a sentence that names node,
 * operand, value and limit.
 *
 * Each case makes a single change to an otherwise sound node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/operations/operand.h"
#include "tests/support/files/edit.h"

typedef struct refusal {
    fig_edit edit;
    fig_status status;
    const char *part;
} refusal;

#define GATED(operand, change, value)                                                              \
    { FIG_OP_GATED, FIG_GATED_##operand, FIG_EDIT_##change, value }
#define NORM(operand, change, value)                                                               \
    { FIG_OP_RMS_NORM, FIG_RMS_NORM_##operand, FIG_EDIT_##change, value }
#define MERGE(operand, change, value)                                                              \
    { FIG_OP_MERGE_STATES, FIG_MERGE_##operand, FIG_EDIT_##change, value }
#define VALUE(op, type, field, change, value)                                                      \
    { op, offsetof(fig_##type##_attributes, field), FIG_EDIT_##change, value }
#define ROPE(operand, change, value)                                                               \
    { FIG_OP_ROPE, FIG_ROPE_##operand, FIG_EDIT_##change, value }
#define APPEND(operand, change, value)                                                             \
    { FIG_OP_APPEND_KV, FIG_APPEND_##operand, FIG_EDIT_##change, value }
#define ATTEND(operand, change, value)                                                             \
    { FIG_OP_ATTENTION, FIG_ATTENTION_##operand, FIG_EDIT_##change, value }

#define REDUCE(operand, change, value)                                                             \
    { FIG_OP_ALL_REDUCE, FIG_ALL_REDUCE_##operand, FIG_EDIT_##change, value }
#define GATHER(operand, change, value)                                                             \
    { FIG_OP_ALL_GATHER, FIG_ALL_GATHER_##operand, FIG_EDIT_##change, value }

static const refusal refusals[] = {
    {REDUCE(IN, ABSENT, 0), FIG_INVALID, "node 0 (all_reduce): in, operand 0, is absent"},
    {REDUCE(IN, DTYPE, FIG_I32), FIG_INVALID, "in has dtype 8"},
    {REDUCE(IN, RANK, 3), FIG_INVALID, "in has rank 3, it must be 2"},
    {REDUCE(IN, DIM, 6), FIG_INVALID, "in: dims[0] must be FIG_DIM_BATCH"},
    {REDUCE(IN, DIM + 1, 20), FIG_INVALID, "in has width 20, it must be a multiple of 8"},
    {REDUCE(IN, DIM + 1, (1 << 20) + 8), FIG_INVALID, "in has width 1048584, limit 1048576"},
    {REDUCE(IN, MULTIPLE, 2), FIG_INVALID, "out: multiple is 1, it must be 2"},
    {REDUCE(OUT, DTYPE, FIG_F16), FIG_INVALID, "out has dtype 2, it must be 3"},
    {REDUCE(OUT, DIM + 1, 32), FIG_INVALID, "out: dims[1] is 32, it must be 24"},
    {REDUCE(WEIGHT, DIM, 16), FIG_INVALID, "weight: dims[0] is 16, it must be 24"},
    {REDUCE(RESIDUAL, DTYPE, FIG_F32), FIG_INVALID, "residual has dtype 1, it must be 3"},
    {REDUCE(RESIDUAL, SAME_AS, FIG_ALL_REDUCE_IN), FIG_INVALID, "in and residual are both in"},
    {REDUCE(OUT, SAME_AS, FIG_ALL_REDUCE_RESIDUAL), FIG_INVALID, "residual and out are both"},
    {VALUE(FIG_OP_ALL_REDUCE, rms_norm, epsilon, REAL, 0), FIG_INVALID, "epsilon is 0"},
    {VALUE(FIG_OP_ALL_REDUCE, rms_norm, weight_offset, INTEGER, 0x7f800000), FIG_INVALID,
     "weight_offset is inf"},
    {GATHER(OUT, ABSENT, 0), FIG_INVALID, "node 0 (all_gather): out, operand 1, is absent"},
    {GATHER(OUT, SAME_AS, FIG_ALL_GATHER_IN), FIG_INVALID, "in and out are both in"},
    {GATHER(IN, DIM + 1, 10), FIG_INVALID, "in has width 10, it must be a multiple of 4"},
    {GATHER(IN, DIM + 1, 16), FIG_INVALID, "out has width 36, it must be a multiple of in's, 16"},
    {GATHER(OUT, DIM + 1, 257 * 12), FIG_INVALID, "limit 256 times"},
    {GATHER(OUT, DTYPE, FIG_F16), FIG_INVALID, "out has dtype 2"},
    {GATHER(OUT, MULTIPLE, 3), FIG_INVALID, "out: multiple is 3, it must be 1"},

    {GATED(IN, ABSENT, 0), FIG_INVALID, "node 0 (gated): in, operand 0, is absent"},
    {GATED(IN, FOREIGN, 3), FIG_INVALID, "in is tensor 3, the program has 2"},
    {GATED(OUT, FOREIGN, UINT32_MAX), FIG_INVALID, "out is tensor 4294967295"},
    {GATED(OUT, SAME_AS, FIG_GATED_IN), FIG_INVALID, "in and out are both in"},
    {GATED(IN, DTYPE, FIG_F16), FIG_INVALID, "in has dtype 2, it must be 3"},
    {GATED(OUT, DTYPE, FIG_I32), FIG_INVALID, "out has dtype 8"},
    {GATED(IN, RANK, 3), FIG_INVALID, "in has rank 3, it must be 2"},
    {GATED(OUT, DIM, 6), FIG_INVALID, "out: dims[0] must be FIG_DIM_BATCH"},
    {GATED(OUT, DIM, FIG_DIM_PAGES), FIG_INVALID, "out: dims[0] must be FIG_DIM_BATCH"},
    {GATED(IN, DIM + 1, 47), FIG_INVALID, "in: dims[1] is 47, it must be 48"},
    {GATED(OUT, DIM + 1, 20), FIG_INVALID, "in: dims[1] is 48, it must be 40"},
    {GATED(OUT, DIM + 1, (1 << 20) + 8), FIG_INVALID, "limit 1048576"},

    {{FIG_OP_GATED, 0, FIG_EDIT_INTEGER, 4}, FIG_INVALID, "activation is 4, limits 0 to 3"},
    {{FIG_OP_GATED, 0, FIG_EDIT_INTEGER, -1}, FIG_INVALID, "activation is -1"},

    {{FIG_OP_PLAN, FIG_PLAN_IN_LENGTHS, FIG_EDIT_ABSENT, 0},
     FIG_INVALID,
     "node 0 (plan): lengths, operand 0"},
    {{FIG_OP_PLAN, FIG_PLAN_IN_LENGTHS, FIG_EDIT_DTYPE, FIG_I64},
     FIG_INVALID,
     "lengths has dtype 9"},
    {{FIG_OP_PLAN, FIG_PLAN_IN_LENGTHS, FIG_EDIT_DIM, 6},
     FIG_INVALID,
     "lengths: dims[0] must be FIG_DIM_"},
    {{FIG_OP_PLAN, FIG_PLAN_IN_POSITIONS, FIG_EDIT_DTYPE, FIG_I64},
     FIG_INVALID,
     "positions has dtype 9"},

    {NORM(WEIGHT, ABSENT, 0), FIG_INVALID, "node 0 (rms_norm): weight, operand 1, is absent"},
    {NORM(IN, DTYPE, FIG_E4M3), FIG_INVALID, "in has dtype 4"},
    {NORM(IN, DIM + 1, (1 << 20) + 1), FIG_INVALID, "width 1048577, limit 1048576"},
    {NORM(WEIGHT, DIM, 8), FIG_INVALID, "weight: dims[0] is 8, it must be 7"},
    {NORM(WEIGHT, DTYPE, FIG_F32), FIG_INVALID, "weight has dtype 1, it must be 3"},
    {NORM(OUT, DIM + 1, 8), FIG_INVALID, "out: dims[1] is 8, it must be 7"},
    {NORM(OUT, DTYPE, FIG_F32), FIG_INVALID, "out has dtype 1, it must be 3"},
    {NORM(RESIDUAL, DIM + 1, 8), FIG_INVALID, "residual: dims[1] is 8, it must be 7"},
    {NORM(RESIDUAL, SAME_AS, FIG_RMS_NORM_IN), FIG_INVALID, "in and residual are both in"},
    {NORM(OUT, SAME_AS, FIG_RMS_NORM_RESIDUAL), FIG_INVALID, "residual and out are both"},
    {NORM(OUT, SAME_AS, FIG_RMS_NORM_WEIGHT), FIG_INVALID, "weight and out are both weight"},
    {VALUE(FIG_OP_RMS_NORM, rms_norm, epsilon, REAL, 0), FIG_INVALID, "epsilon is 0"},
    {VALUE(FIG_OP_RMS_NORM, rms_norm, weight_offset, INTEGER, 0x7f800000), FIG_INVALID,
     "weight_offset is inf"},

    {MERGE(LSE_B, ABSENT, 0), FIG_INVALID, "node 0 (merge_states): lse_b, operand 3, is absent"},
    {MERGE(OUT_A, DIM + 2, 257), FIG_UNSUPPORTED, "out_a has head_dim 257, limit 256"},
    {MERGE(OUT_B, DIM + 2, 48), FIG_INVALID, "out_b: dims[2] is 48, it must be 40"},
    {MERGE(OUT_B, DTYPE, FIG_F32), FIG_INVALID, "out_b has dtype 1, it must be 2"},
    {MERGE(LSE_A, DTYPE, FIG_F16), FIG_INVALID, "lse_a has dtype 2, it must be 1"},
    {MERGE(LSE_B, DIM + 1, 4), FIG_INVALID, "lse_b: dims[1] is 4, it must be 8"},
    {MERGE(OUT, SAME_AS, FIG_MERGE_OUT_A), FIG_INVALID, "out_a and out are both out_a"},
    {MERGE(LSE, SAME_AS, FIG_MERGE_LSE_B), FIG_INVALID, "lse_b and lse are both lse_b"},

    {ROPE(Q, ABSENT, 0), FIG_INVALID, "node 0 (rope): q, operand 0, is absent"},
    {ROPE(K, ABSENT, 0), FIG_INVALID, "k, operand 1, is absent"},
    {ROPE(Q_OUT, ABSENT, 0), FIG_INVALID, "q_out, operand 8, is absent"},
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
    {ROPE(Q, DIM + 2, 127), FIG_UNSUPPORTED, "q has head_dim 127, it must be even, limit 256"},
    {ROPE(Q, DIM + 2, 258), FIG_UNSUPPORTED, "q has head_dim 258"},
    {ROPE(COS_SIN, DIM + 1, 64), FIG_INVALID, "cos_sin: dims[1] is 64, it must be 128"},
    {ROPE(COS_SIN, DTYPE, FIG_F16), FIG_INVALID, "cos_sin has dtype 2, it must be 1"},
    {ROPE(COS_SIN, DIM, FIG_DIM_BATCH), FIG_INVALID, "cos_sin: dims[0] must be a number"},
    {ROPE(Q_NORM, DIM, 64), FIG_INVALID, "q_norm: dims[0] is 64, it must be 128"},
    {ROPE(K_NORM, DTYPE, FIG_F16), FIG_INVALID, "k_norm has dtype 2, it must be 1"},
    {ROPE(K_OUT, SAME_AS, FIG_ROPE_K_NORM), FIG_INVALID, "k_norm and k_out are both k_norm"},
    {VALUE(FIG_OP_ROPE, rope, rope.rotary_dim, INTEGER, 0), FIG_INVALID, "default"},
    {VALUE(FIG_OP_ROPE, rope, rope.rotary_dim, INTEGER, 130), FIG_INVALID, "rotary_dim is 130"},
    {VALUE(FIG_OP_ROPE, rope, rope.scale, REAL, 0), FIG_INVALID, "default that is not filled in"},
    {VALUE(FIG_OP_ROPE, rope, norm_epsilon, REAL, -1), FIG_INVALID, "norm_epsilon is -0.001"},
    {ROPE(K, DIM + 2, 64), FIG_INVALID, "k: dims[2] is 64, it must be 128"},

    {APPEND(K, ABSENT, 0), FIG_INVALID, "node 0 (append_kv): k, operand 0, is absent"},
    {APPEND(V_CACHE, ABSENT, 0), FIG_INVALID, "v_cache, operand 6, is absent"},
    {APPEND(TABLE, ABSENT, 0), FIG_INVALID, "page_table is absent"},
    {APPEND(V_CACHE, SAME_AS, FIG_APPEND_K_CACHE), FIG_INVALID, "k_cache and v_cache are both"},
    {APPEND(K_CACHE, SAME_AS, FIG_APPEND_K), FIG_INVALID, "k and k_cache are both k"},
    {APPEND(K, DTYPE, FIG_I32), FIG_INVALID, "k has dtype 8"},
    {APPEND(K, DIM + 1, 257), FIG_INVALID, "k has 257 heads, limit 256"},
    {APPEND(K, DIM + 2, 72), FIG_UNSUPPORTED,
     "k has head_dim 72, this library has 64, 80, 96, 128 and 256"},
    {APPEND(V, DTYPE, FIG_F32), FIG_INVALID, "v has dtype 1, it must be 2"},
    {APPEND(V, DIM + 1, 3), FIG_INVALID, "v: dims[1] is 3, it must be 2"},
    {APPEND(V, DIM + 2, 128), FIG_INVALID, "v: dims[2] is 128, it must be 64"},
    {APPEND(K_CACHE, DTYPE, FIG_BF16), FIG_INVALID, "k_cache has dtype 3, it must be 2"},
    {APPEND(V_CACHE, DTYPE, FIG_BF16), FIG_INVALID, "v_cache has dtype 3, it must be 2"},
    {APPEND(K_CACHE, DIM, FIG_DIM_BATCH), FIG_INVALID, "k_cache: dims[0] must be FIG_DIM_PAGES"},
    {APPEND(K_CACHE, DIM + 3, 128), FIG_INVALID, "k_cache: dims[3] is 128, it must be 64"},
    {APPEND(V_CACHE, DIM + 1, 32), FIG_INVALID, "v_cache: dims[1] is 32, it must be 16"},
    {APPEND(V_CACHE, DIM + 2, 1), FIG_INVALID, "v_cache: dims[2] is 1, it must be 2"},
    {APPEND(V_CACHE, RANK, 3), FIG_INVALID, "v_cache has rank 3, it must be 4"},
    {APPEND(TABLE, DTYPE, FIG_I64), FIG_INVALID, "page_table has dtype 9, it must be 8"},
    {APPEND(TABLE, DIM, FIG_DIM_BATCH), FIG_INVALID, "page_table: dims[0] must be a number"},
    {APPEND(TABLE, DIM, 8), FIG_INVALID, "page_table has 8 rows for 9 sequences"},
    {APPEND(TABLE, DIM + 1, 12), FIG_INVALID, "12 pages of 16 tokens for a kv_limit of 200"},

    {ATTEND(OUT, ABSENT, 0), FIG_INVALID, "node 0 (attention): out, operand 8, is absent"},
    {ATTEND(OUT, SAME_AS, FIG_ATTENTION_Q), FIG_INVALID, "q and out are both q"},
    {ATTEND(LSE, SAME_AS, FIG_ATTENTION_OUT), FIG_INVALID, "out and lse are both out"},
    {ATTEND(OUT, DIM + 1, 4), FIG_INVALID, "out: dims[1] is 4, it must be 8"},
    {ATTEND(OUT, DTYPE, FIG_F32), FIG_INVALID, "out has dtype 1, it must be 2"},
    {ATTEND(LSE, DTYPE, FIG_F16), FIG_INVALID, "lse has dtype 2, it must be 1"},
    {ATTEND(LSE, DIM + 1, 4), FIG_INVALID, "lse: dims[1] is 4, it must be 8"},
    {ATTEND(LSE, RANK, 3), FIG_INVALID, "lse has rank 3, it must be 2"},
    {ATTEND(Q, DIM + 2, 512), FIG_UNSUPPORTED, "q has head_dim 512"},
    {ATTEND(SINKS, DIM, 2), FIG_INVALID, "sinks: dims[0] is 2, it must be 8"},
    {ATTEND(SINKS, DTYPE, FIG_F16), FIG_INVALID, "sinks has dtype 2, it must be 1"},
    {ATTEND(ALIBI, RANK, 2), FIG_INVALID, "alibi has rank 2, it must be 1"},
    {ATTEND(K_SCALE, PRESENT, 1), FIG_INVALID, "k_scale is there, but k_cache has dtype 2"},
    {ATTEND(OUT, SAME_AS, FIG_ATTENTION_SINKS), FIG_INVALID, "sinks and out are both sinks"},
    {VALUE(FIG_OP_ATTENTION, attention, sm_scale, REAL, 0), FIG_INVALID, "sm_scale is 0"},
    {VALUE(FIG_OP_ATTENTION, attention, soft_cap, REAL, -1), FIG_INVALID, "soft_cap is -0.001"},
    {VALUE(FIG_OP_ATTENTION, attention, window, INTEGER, -1), FIG_INVALID,
     "window is -1, limits 0 to 1048576"},
    {VALUE(FIG_OP_ATTENTION, attention, window, INTEGER, (1 << 20) + 1), FIG_INVALID,
     "window is 1048577"},
    {ATTEND(Q, DTYPE, FIG_I32), FIG_INVALID, "q has dtype 8"},
    {ATTEND(K_CACHE, DIM + 3, 128), FIG_INVALID, "k_cache: dims[3] is 128, it must be 64"},
    {ATTEND(K_CACHE, DTYPE, FIG_F32), FIG_INVALID, "k_cache has dtype 1, it must be 2"},
    {ATTEND(TABLE, DIM + 1, 12), FIG_INVALID, "12 pages of 16 tokens"},
};

static void each_unsound_operand_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const fig_status status = fig_edit_record(&refusals[i].edit, 1);
        if (status != refusals[i].status || strstr(fig_message(), refusals[i].part) == NULL)
            fail_msg("refusal %zu: %s \"%s\", not %s \"%s\"", i, fig_status_name(status),
                     fig_message(), fig_status_name(refusals[i].status), refusals[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_unsound_operand_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

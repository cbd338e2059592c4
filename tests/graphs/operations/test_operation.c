/* test_operation.c: tests that each operation accepts exactly the tensors on which its kernel can
 * work, including the demands that operands make on each other.
 *
 * test_operand.c tests the refusals of single operands. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/operations/operation.h"
#include "tests/support/files/edit.h"
#include "tests/support/files/sample.h"

static void takes(const fig_edit *edits, size_t count) {
    if (fig_edit_record(edits, count) != FIG_OK)
        fail_msg("operation %d, operand %u, change %d: %s", (int)edits[0].op, edits[0].operand,
                 edits[0].change, fig_message());
}

static void sound_nodes_are_taken(void **state) {
    (void)state;
    for (fig_op op = FIG_OP_FETCH + 1; op < FIG_OP_LOOK_AHEAD; op++)
        takes(&(fig_edit){op, 0, FIG_EDIT_NOTHING, 0}, 1);
    takes(&(fig_edit){FIG_OP_ALL_REDUCE, 0, FIG_EDIT_NOTHING, 0}, 1);
    takes(&(fig_edit){FIG_OP_ALL_GATHER, 0, FIG_EDIT_NOTHING, 0}, 1);
}

static void a_sum_over_ranks_has_all_operands_of_a_norm_or_none(void **state) {
    (void)state;
    static const fig_edit alone[] = {
        {FIG_OP_ALL_REDUCE, FIG_ALL_REDUCE_WEIGHT, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ALL_REDUCE, FIG_ALL_REDUCE_RESIDUAL, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ALL_REDUCE, offsetof(fig_rms_norm_attributes, epsilon), FIG_EDIT_INTEGER, 0},
    };
    takes(alone, 3);
    FIG_SAMPLE_REFUSES(fig_edit_record(alone, 2), FIG_FORMAT, "epsilon is 1e-06");
    FIG_SAMPLE_REFUSES(fig_edit_record(alone, 1), FIG_INVALID, "residual is there, but not weight");
    FIG_SAMPLE_REFUSES(fig_edit_record(alone + 1, 1), FIG_INVALID,
                       "weight is there, but not residual");
}

static void optional_operands_may_vary(void **state) {
    (void)state;
    static const fig_edit edits[] = {
        {FIG_OP_PLAN, FIG_PLAN_IN_POSITIONS, FIG_EDIT_ABSENT, 0},
        {FIG_OP_GATED, 0, FIG_EDIT_INTEGER, FIG_SWIGLU_LIMITED},
        {FIG_OP_RMS_NORM, FIG_RMS_NORM_RESIDUAL, FIG_EDIT_ABSENT, 0},
        {FIG_OP_RMS_NORM, FIG_RMS_NORM_OUT, FIG_EDIT_SAME_AS, FIG_RMS_NORM_IN},
        {FIG_OP_RMS_NORM, offsetof(fig_rms_norm_attributes, weight_offset), FIG_EDIT_REAL, -1500},
        {FIG_OP_ROPE, FIG_ROPE_POSITIONS, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ROPE, FIG_ROPE_COS_SIN, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ROPE, FIG_ROPE_COS_SIN, FIG_EDIT_DIM, 1},
        {FIG_OP_ROPE, FIG_ROPE_POSITIONS, FIG_EDIT_DTYPE, FIG_I32},
        {FIG_OP_ROPE, FIG_ROPE_Q_OUT, FIG_EDIT_SAME_AS, FIG_ROPE_Q},
        {FIG_OP_ROPE, FIG_ROPE_K_OUT, FIG_EDIT_SAME_AS, FIG_ROPE_K},
        {FIG_OP_APPEND_KV, FIG_APPEND_V, FIG_EDIT_SAME_AS, FIG_APPEND_K},
        {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, FIG_EDIT_DIM, 70},
        {FIG_OP_APPEND_KV, FIG_APPEND_TABLE, FIG_EDIT_DIM, 10},
        {FIG_OP_APPEND_KV, FIG_APPEND_TABLE, FIG_EDIT_DIM + 1, 14},
        {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, FIG_EDIT_MULTIPLE, 1},
        {FIG_OP_ATTENTION, FIG_ATTENTION_LSE, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_SINKS, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_ALIBI, FIG_EDIT_SAME_AS, FIG_ATTENTION_SINKS},
        {FIG_OP_ATTENTION, offsetof(fig_attention_attributes, window), FIG_EDIT_INTEGER, 1 << 20},
        {FIG_OP_ATTENTION, offsetof(fig_attention_attributes, soft_cap), FIG_EDIT_REAL, 50000},
        {FIG_OP_MERGE_STATES, FIG_MERGE_LSE, FIG_EDIT_ABSENT, 0},
        {FIG_OP_MERGE_STATES, FIG_MERGE_OUT_B, FIG_EDIT_SAME_AS, FIG_MERGE_OUT_A},
        {FIG_OP_ATTENTION, FIG_ATTENTION_V_CACHE, FIG_EDIT_SAME_AS, FIG_ATTENTION_K_CACHE},
        {FIG_OP_ALL_REDUCE, FIG_ALL_REDUCE_OUT, FIG_EDIT_SAME_AS, FIG_ALL_REDUCE_IN},
        {FIG_OP_ALL_GATHER, FIG_ALL_GATHER_OUT, FIG_EDIT_DIM + 1, 12},
        {FIG_OP_ALL_GATHER, FIG_ALL_GATHER_OUT, FIG_EDIT_DIM + 1, 256 * 12},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++)
        takes(&edits[i], 1);
}

/* Operands that the table's row has after a node's last operand count as absent. */
static void a_node_may_end_before_its_row_does(void **state) {
    (void)state;
    for (fig_op op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_kernel *kernel = &fig_kernel_table[op];
        if (!fig_edit_is_known(op)) continue;
        for (uint32_t count = 0; count <= kernel->operand_count; count++) {
            const fig_edit ends = {op, FIG_OPERAND_LIMIT, FIG_EDIT_COUNT, count};
            if (count >= kernel->operand_least) {
                takes(&ends, 1);
            } else {
                FIG_SAMPLE_REFUSES(fig_edit_record(&ends, 1), FIG_FORMAT, " operands, limits ");
            }
        }
    }
    const fig_edit brief = {FIG_OP_ATTENTION, FIG_OPERAND_LIMIT, FIG_EDIT_BYTES, 8};
    FIG_SAMPLE_REFUSES(fig_edit_record(&brief, 1), FIG_FORMAT,
                       "8 bytes of attributes, limits 12 to 2048");
}

/* Writes the node as a later library would, in which the operation has more operands. */
static void operands_beyond_the_row_are_absent_or_refused(void **state) {
    (void)state;
    const fig_edit absent[] = {{FIG_OP_ATTENTION, FIG_OPERAND_LIMIT, FIG_EDIT_COUNT, 12},
                               {FIG_OP_ATTENTION, FIG_OPERAND_LIMIT, FIG_EDIT_BYTES, 40}};
    takes(absent, 2);
    const fig_edit operand[] = {{FIG_OP_ATTENTION, 11, FIG_EDIT_COUNT, 12},
                                {FIG_OP_ATTENTION, 11, FIG_EDIT_FOREIGN, 1}};
    FIG_SAMPLE_REFUSES(fig_edit_record(operand, 2), FIG_UNSUPPORTED,
                       "operand 11 is there, and this library knows 10: a newer one wrote it");
    const fig_edit byte[] = {{FIG_OP_ATTENTION, FIG_OPERAND_LIMIT, FIG_EDIT_BYTES, 40},
                             {FIG_OP_ATTENTION, 36, FIG_EDIT_INTEGER, 1}};
    FIG_SAMPLE_REFUSES(fig_edit_record(byte, 2), FIG_UNSUPPORTED,
                       "byte 36 of attributes is not 0, and this library knows 12: a newer one");
    const fig_edit many[] = {{FIG_OP_GATED, FIG_OPERAND_LIMIT, FIG_EDIT_COUNT, 33},
                             {FIG_OP_GATED, 32, FIG_EDIT_FOREIGN, 1}};
    FIG_SAMPLE_REFUSES(fig_edit_record(many, 2), FIG_FORMAT, "33 operands, limits 2 to 32");
    const fig_edit long_ones[] = {{FIG_OP_GATED, FIG_OPERAND_LIMIT, FIG_EDIT_BYTES, 2052},
                                  {FIG_OP_GATED, 2048, FIG_EDIT_INTEGER, 1}};
    FIG_SAMPLE_REFUSES(fig_edit_record(long_ones, 2), FIG_FORMAT,
                       "2052 bytes of attributes, limits 4 to 2048");
}

/* Without a page table, a page is a sequence and holds exactly kv_limit tokens. */
static void a_dense_cache_has_pages_of_kv_limit(void **state) {
    (void)state;
    for (int64_t tokens = 199; tokens <= 201; tokens++) {
        const fig_edit edits[] = {
            {FIG_OP_ATTENTION, FIG_ATTENTION_TABLE, FIG_EDIT_ABSENT, 0},
            {FIG_OP_ATTENTION, FIG_ATTENTION_K_CACHE, FIG_EDIT_DIM + 1, tokens},
            {FIG_OP_ATTENTION, FIG_ATTENTION_V_CACHE, FIG_EDIT_DIM + 1, tokens},
        };
        if (tokens == 200) {
            takes(edits, 3);
        } else {
            FIG_SAMPLE_REFUSES(fig_edit_record(edits, 3), FIG_INVALID, "hold kv_limit tokens, 200");
        }
    }
}

/* The multiple of all operands with rows must be equal. If rows can have several queries, it must
 * not exceed the spec's row_tokens. */
static void tokens_of_a_row_are_as_many_in_every_operand(void **state) {
    (void)state;
    static const struct {
        fig_op op;
        int64_t limit;
    } limits[] = {{FIG_OP_GATED, 64},      {FIG_OP_RMS_NORM, 64},  {FIG_OP_ROPE, 64},
                  {FIG_OP_APPEND_KV, 2},   {FIG_OP_ATTENTION, 2},  {FIG_OP_MERGE_STATES, 64},
                  {FIG_OP_ALL_REDUCE, 64}, {FIG_OP_ALL_GATHER, 64}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const uint32_t operands = fig_edit_row_operands(limits[i].op);
        fig_edit edits[32];
        size_t count = 0;
        for (uint32_t o = 0; o < 32; o++) {
            if (operands >> o & 1)
                edits[count++] = (fig_edit){limits[i].op, o, FIG_EDIT_MULTIPLE, limits[i].limit};
        }
        takes(edits, count);
        for (size_t e = 0; e < count; e++) {
            const int64_t kept = edits[e].value;
            edits[e].value = 1;
            FIG_SAMPLE_REFUSES(fig_edit_record(edits, count), FIG_INVALID, "multiple is");
            edits[e].value = kept;
        }
        if (limits[i].limit == 64) continue;
        for (size_t e = 0; e < count; e++)
            edits[e].value++;
        FIG_SAMPLE_REFUSES(fig_edit_record(edits, count), FIG_INVALID,
                           "multiple is 3, limit 2, the spec's");
    }
    static const fig_edit plan[] = {{FIG_OP_PLAN, 0, FIG_EDIT_MULTIPLE, 2},
                                    {FIG_OP_PLAN, 1, FIG_EDIT_MULTIPLE, 2}};
    FIG_SAMPLE_REFUSES(fig_edit_record(plan, 2), FIG_INVALID,
                       "lengths: multiple is 2, it must be 1");
    static const fig_edit pages[] = {{FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, FIG_EDIT_MULTIPLE, 2}};
    FIG_SAMPLE_REFUSES(fig_edit_record(pages, 1), FIG_INVALID,
                       "k_cache: multiple is 2, it must be 1");
}

/* If RoPE takes positions from the plan, the first query of a row must still have a token. */
static void rope_by_the_plan_has_no_more_queries_than_the_spec(void **state) {
    (void)state;
    for (int64_t multiple = 2; multiple <= 3; multiple++) {
        const fig_edit edits[] = {
            {FIG_OP_ROPE, FIG_ROPE_POSITIONS, FIG_EDIT_ABSENT, 0},
            {FIG_OP_ROPE, FIG_ROPE_Q, FIG_EDIT_MULTIPLE, multiple},
            {FIG_OP_ROPE, FIG_ROPE_K, FIG_EDIT_MULTIPLE, multiple},
            {FIG_OP_ROPE, FIG_ROPE_Q_OUT, FIG_EDIT_MULTIPLE, multiple},
            {FIG_OP_ROPE, FIG_ROPE_K_OUT, FIG_EDIT_MULTIPLE, multiple},
        };
        if (multiple == 2) takes(edits, 5);
        if (multiple == 3)
            FIG_SAMPLE_REFUSES(fig_edit_record(edits, 5), FIG_INVALID, "q: multiple is 3, limit 2");
    }
}

static void packed_positions_are_a_pair_and_stand_alone(void **state) {
    (void)state;
    const fig_edit edits[] = {
        {FIG_OP_ROPE, FIG_ROPE_INDPTR, FIG_EDIT_PRESENT, 4},
        {FIG_OP_ROPE, FIG_ROPE_INDPTR, FIG_EDIT_DTYPE, FIG_I32},
        {FIG_OP_ROPE, FIG_ROPE_OFFSETS, FIG_EDIT_PRESENT, 3},
        {FIG_OP_ROPE, FIG_ROPE_OFFSETS, FIG_EDIT_DTYPE, FIG_I32},
        {FIG_OP_ROPE, FIG_ROPE_POSITIONS, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ROPE, FIG_ROPE_COS_SIN, FIG_EDIT_DIM, 1},
    };
    takes(edits, 6);
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 4), FIG_INVALID,
                       "positions and indptr are both there");
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 2), FIG_INVALID, "indptr is there, but not offsets");
    FIG_SAMPLE_REFUSES(fig_edit_record(edits + 2, 2), FIG_INVALID,
                       "offsets is there, but not indptr");
    fig_edit wrong[6];
    memcpy(wrong, edits, sizeof wrong);
    wrong[0].value = 3;
    FIG_SAMPLE_REFUSES(fig_edit_record(wrong, 6), FIG_INVALID,
                       "indptr: dims[0] is 3, it must be 4");
    memcpy(wrong, edits, sizeof wrong);
    wrong[1].value = FIG_I64;
    FIG_SAMPLE_REFUSES(fig_edit_record(wrong, 6), FIG_INVALID, "indptr has dtype 9, it must be 8");
    wrong[3].value = FIG_I64;
    takes(wrong, 6);
    memcpy(wrong, edits, sizeof wrong);
    wrong[3].value = FIG_F32;
    FIG_SAMPLE_REFUSES(fig_edit_record(wrong, 6), FIG_INVALID,
                       "offsets has dtype 1, it must be FIG_I32 or FIG_I64");
    memcpy(wrong, edits, sizeof wrong);
    wrong[0].value = 65538;
    wrong[2].value = 65537;
    FIG_SAMPLE_REFUSES(fig_edit_record(wrong, 6), FIG_INVALID, "65537 segments, limit 65536");
}

/* The step's positions are below kv_limit. Positions that the caller gives have no limit. */
static void a_table_of_angles_has_a_row_for_each_position(void **state) {
    (void)state;
    fig_edit edits[] = {{FIG_OP_ROPE, FIG_ROPE_POSITIONS, FIG_EDIT_ABSENT, 0},
                        {FIG_OP_ROPE, FIG_ROPE_COS_SIN, FIG_EDIT_DIM, 200}};
    takes(edits, 2);
    edits[1].value = 199;
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 2), FIG_INVALID,
                       "cos_sin has 199 rows for a kv_limit of 200");
    takes(edits + 1, 1);
    edits[1].value = INT64_C(1) << 31;
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 2), FIG_INVALID, "2147483648 rows, limit 2147483647");
}

static void a_node_has_norms_of_q_and_k_or_neither(void **state) {
    (void)state;
    const uint32_t epsilon = offsetof(fig_rope_attributes, norm_epsilon);
    fig_edit edits[] = {{FIG_OP_ROPE, FIG_ROPE_Q_NORM, FIG_EDIT_ABSENT, 0},
                        {FIG_OP_ROPE, FIG_ROPE_K_NORM, FIG_EDIT_ABSENT, 0},
                        {FIG_OP_ROPE, epsilon, FIG_EDIT_REAL, 0}};
    takes(edits, 3);
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 2), FIG_INVALID, "but there is no q_norm");
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 1), FIG_INVALID, "k_norm is there, but not q_norm");
    FIG_SAMPLE_REFUSES(fig_edit_record(edits + 1, 1), FIG_INVALID,
                       "q_norm is there, but not k_norm");
    FIG_SAMPLE_REFUSES(fig_edit_record(edits + 2, 1), FIG_INVALID,
                       "norm_epsilon is 0, it must be finite");
}

/* Only caches may be fp8, and only with 16-bit activations. */
static void caches_may_be_narrower_than_activations(void **state) {
    (void)state;
    fig_edit edits[] = {{FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, FIG_EDIT_DTYPE, FIG_E4M3},
                        {FIG_OP_APPEND_KV, FIG_APPEND_V_CACHE, FIG_EDIT_DTYPE, FIG_E4M3},
                        {FIG_OP_APPEND_KV, FIG_APPEND_K_SCALE, FIG_EDIT_PRESENT, 1},
                        {FIG_OP_APPEND_KV, FIG_APPEND_V_SCALE, FIG_EDIT_PRESENT, 2},
                        {FIG_OP_APPEND_KV, FIG_APPEND_K, FIG_EDIT_DTYPE, FIG_F32},
                        {FIG_OP_APPEND_KV, FIG_APPEND_V, FIG_EDIT_DTYPE, FIG_F32}};
    takes(edits, 4);
    takes(edits, 3);
    takes(edits, 2);
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 6), FIG_INVALID, "k_cache has dtype 4, it must be 1");
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 1), FIG_INVALID, "v_cache has dtype 2, it must be 4");
    FIG_SAMPLE_REFUSES(fig_edit_record(edits + 2, 1), FIG_INVALID,
                       "k_scale is there, but k_cache has dtype 2 and no scale");
    edits[3].value = 3;
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 4), FIG_INVALID,
                       "v_scale: dims[0] is 3, it must be 1 or the 2 heads of v_cache");
    edits[1].value = FIG_E5M2;
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 2), FIG_INVALID, "v_cache has dtype 5, it must be 4");
}

static void heads_have_the_dims_that_kernels_have(void **state) {
    (void)state;
    static const int64_t dims[] = {64, 80, 96, 128, 256};
    for (int64_t dim = 8; dim <= 264; dim += 8) {
        const fig_edit edits[] = {{FIG_OP_APPEND_KV, FIG_APPEND_K, FIG_EDIT_DIM + 2, dim},
                                  {FIG_OP_APPEND_KV, FIG_APPEND_V, FIG_EDIT_DIM + 2, dim},
                                  {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, FIG_EDIT_DIM + 3, dim},
                                  {FIG_OP_APPEND_KV, FIG_APPEND_V_CACHE, FIG_EDIT_DIM + 3, dim}};
        int known = 0;
        for (int i = 0; i < 5; i++)
            known |= dims[i] == dim;
        if (known) takes(edits, 4);
        if (!known)
            FIG_SAMPLE_REFUSES(fig_edit_record(edits, 4), FIG_UNSUPPORTED, "k has head_dim");
    }
}

/* Every node reads the plan, so the node that makes the plan comes first. */
static void a_plan_is_made_first_and_once(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    for (int first = FIG_OP_PLAN; first <= FIG_OP_CALL; first += FIG_OP_CALL - FIG_OP_PLAN) {
        fig_program *program = fig_sample_program(&spec);
        const fig_tensor lengths = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                                 .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
        if (first == FIG_OP_PLAN) fig_program_read_lengths(program, lengths, (fig_tensor){0});
        if (first == FIG_OP_CALL) fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
        assert_int_equal(fig_program_view_reads_lengths(fig_program_view_of(program)),
                         first == FIG_OP_PLAN);
        fig_program_read_lengths(program, lengths, (fig_tensor){0});
        FIG_SAMPLE_REFUSES(fig_program_finish(program), FIG_ORDER,
                           "read_lengths: it must come once, before every other node");
        fig_program_destroy(program);
    }
}

static void refuse_heads(int64_t q_heads, int64_t kv_heads) {
    const fig_edit edits[] = {
        {FIG_OP_ATTENTION, FIG_ATTENTION_Q, FIG_EDIT_DIM + 1, q_heads},
        {FIG_OP_ATTENTION, FIG_ATTENTION_OUT, FIG_EDIT_DIM + 1, q_heads},
        {FIG_OP_ATTENTION, FIG_ATTENTION_LSE, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_K_CACHE, FIG_EDIT_DIM + 2, kv_heads},
        {FIG_OP_ATTENTION, FIG_ATTENTION_V_CACHE, FIG_EDIT_DIM + 2, kv_heads},
        {FIG_OP_ATTENTION, FIG_ATTENTION_SINKS, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_ALIBI, FIG_EDIT_ABSENT, 0},
    };
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 7), FIG_INVALID, " heads");
}

static void q_heads_are_a_multiple_of_kv_heads_up_to_the_group_limit(void **state) {
    (void)state;
    static const fig_edit group_of_16[] = {
        {FIG_OP_ATTENTION, FIG_ATTENTION_Q, FIG_EDIT_DIM + 1, 32},
        {FIG_OP_ATTENTION, FIG_ATTENTION_OUT, FIG_EDIT_DIM + 1, 32},
        {FIG_OP_ATTENTION, FIG_ATTENTION_LSE, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_SINKS, FIG_EDIT_ABSENT, 0},
        {FIG_OP_ATTENTION, FIG_ATTENTION_ALIBI, FIG_EDIT_ABSENT, 0},
    };
    takes(group_of_16, 5);
    refuse_heads(34, 2);
    refuse_heads(7, 2);
    refuse_heads(2, 3);
    refuse_heads(2, 512);
}

static void pages_end_at_their_limit(void **state) {
    (void)state;
    const fig_edit edits[] = {
        {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, FIG_EDIT_DIM + 1, 65537},
        {FIG_OP_APPEND_KV, FIG_APPEND_V_CACHE, FIG_EDIT_DIM + 1, 65537},
    };
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 2), FIG_INVALID,
                       "a page has 65537 tokens, limit 65536");
}

static void caches_hold_the_heads_that_are_appended(void **state) {
    (void)state;
    const fig_edit edits[] = {
        {FIG_OP_APPEND_KV, FIG_APPEND_K_CACHE, FIG_EDIT_DIM + 2, 4},
        {FIG_OP_APPEND_KV, FIG_APPEND_V_CACHE, FIG_EDIT_DIM + 2, 4},
    };
    FIG_SAMPLE_REFUSES(fig_edit_record(edits, 2), FIG_INVALID, "k has 2 heads and k_cache 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_nodes_are_taken),
        cmocka_unit_test(a_sum_over_ranks_has_all_operands_of_a_norm_or_none),
        cmocka_unit_test(optional_operands_may_vary),
        cmocka_unit_test(a_node_may_end_before_its_row_does),
        cmocka_unit_test(operands_beyond_the_row_are_absent_or_refused),
        cmocka_unit_test(a_dense_cache_has_pages_of_kv_limit),
        cmocka_unit_test(tokens_of_a_row_are_as_many_in_every_operand),
        cmocka_unit_test(rope_by_the_plan_has_no_more_queries_than_the_spec),
        cmocka_unit_test(packed_positions_are_a_pair_and_stand_alone),
        cmocka_unit_test(a_table_of_angles_has_a_row_for_each_position),
        cmocka_unit_test(a_node_has_norms_of_q_and_k_or_neither),
        cmocka_unit_test(caches_may_be_narrower_than_activations),
        cmocka_unit_test(heads_have_the_dims_that_kernels_have),
        cmocka_unit_test(a_plan_is_made_first_and_once),
        cmocka_unit_test(q_heads_are_a_multiple_of_kv_heads_up_to_the_group_limit),
        cmocka_unit_test(pages_end_at_their_limit),
        cmocka_unit_test(caches_hold_the_heads_that_are_appended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

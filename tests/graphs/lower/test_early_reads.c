/* test_early_reads.c: tests when attention may begin before the preceding launch has ended: exactly
 * if that launch writes nothing that attention reads early. Also tests which launches must not
 * begin early at all, because a node writes their weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/lower.h"
#include "graphs/record/program.h"
#include "tests/support/files/sample.h"

/* Masks the early reads of all launches with `mask`, and returns the flags in the params of the
 * program's n-th attention. */
static uint32_t taken_of(fig_program *program, int n, uint32_t mask) {
    const fig_lower_target target = fig_sample_target("h200");
    const fig_program_view *view = fig_program_view_of(program);
    fig_bucket_shape shape = {.caps = {4, 100}};
    fig_workspace workspace;
    fig_lower_common common;
    fig_lowered lowered;
    uint32_t flags = UINT32_MAX;
    assert_int_equal(fig_lower_shape(view, &target, 0, &shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&workspace, view, &shape, 1), FIG_OK);
    assert_int_equal(fig_lower_common_init(&common, view, &workspace), FIG_OK);
    for (uint32_t i = 0; i < common.launch_count; i++)
        common.early_reads[i] &= mask;
    assert_int_equal(fig_lower_bucket(&common, &shape, &lowered), FIG_OK);
    for (uint32_t i = 0; i < lowered.launch_count; i++) {
        const fig_launch *launch = &lowered.launches[i];
        if (launch->op != FIG_OP_ATTENTION || n-- > 0) continue;
        const uint8_t *params = lowered.params + launch->params;
        memcpy(&flags, params + offsetof(fig_attention_params, flags), sizeof flags);
        break;
    }
    fig_lower_finish(&lowered);
    fig_lower_common_finish(&common);
    fig_workspace_finish(&workspace);
    return flags;
}

/* Returns FIG_ATTENTION_EARLY, or 0, for the program's n-th attention. */
static uint32_t early_reads_of(fig_program *program, int n) {
    return taken_of(program, n, UINT32_MAX) & FIG_ATTENTION_EARLY;
}

static void finish(fig_program *program) {
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
}

/* The first layer's attention directly follows the fetch, since it does RoPE and the append
 * itself. */
static void every_attention_of_a_step_except_the_first_may_begin_early(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    assert_int_equal(early_reads_of(program, 0), 0);
    assert_int_equal(early_reads_of(program, 1), FIG_ATTENTION_EARLY);
    fig_program_destroy(program);
}

/* The fetch, which precedes the first attention, brings the plan. The second attention follows the
 * first, since they share a workspace. */
static void attention_behind_the_fetch_waits(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    const fig_sample_heads heads = {4, 2, 64};
    fig_program *program = fig_sample_program(&spec);
    fig_sample_attention(program, "a", &heads);
    fig_sample_attention(program, "b", &heads);
    finish(program);
    assert_int_equal(early_reads_of(program, 0), 0);
    assert_int_equal(early_reads_of(program, 1), FIG_ATTENTION_EARLY);
    fig_program_destroy(program);
}

/* If the device reads the lengths, the launch after the fetch makes the plan. */
static void attention_behind_the_launch_that_makes_its_plan_waits(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    const fig_sample_heads heads = {4, 2, 64};
    fig_program *program = fig_sample_program(&spec);
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    fig_program_read_lengths(program, lengths, (fig_tensor){0});
    fig_sample_attention(program, "a", &heads);
    finish(program);
    assert_int_equal(early_reads_of(program, 0), 0);
    fig_program_destroy(program);
}

/* Without a page table, a page may have any number of tokens. */
static void without_a_table_a_cache_is_dense(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    const fig_sample_heads heads = {4, 2, 64};
    fig_program *program = fig_sample_program(&spec);
    fig_sample_attention(program, "a", &heads);
    finish(program);
    assert_int_equal(taken_of(program, 0, UINT32_MAX), FIG_ATTENTION_DENSE);
    fig_program_destroy(program);
    program = fig_sample_step(&spec);
    assert_int_equal(taken_of(program, 1, UINT32_MAX), FIG_ATTENTION_EARLY);
    fig_program_destroy(program);
}

/* The node that stands between the first attention and a second one over another cache. */
typedef enum writer { APPEND, APPEND_TWO_TOKENS, CALL_ON_K, CALL_ON_V, CALL_ON_TABLE } writer;

static void record(fig_program *program, writer between, fig_cache cache) {
    const fig_tensor *writes = between == CALL_ON_K   ? &cache.k
                               : between == CALL_ON_V ? &cache.v
                                                      : &cache.page_table;
    if (between >= CALL_ON_K) {
        fig_call(program,
                 FIG_OPTIONS(fig_call_op, .call = "fill", .writes = writes, .write_count = 1));
        return;
    }
    const fig_tensor rows = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "new", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F16, .rank = 3, .dims = {FIG_DIM_BATCH, 2, 64},
                             .multiple = between == APPEND ? 1 : 2));
    fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = rows, .v = rows, .cache = cache));
}

/* Returns the early reads of the second attention, whose rows have one query each. */
static uint32_t early_reads_behind(writer between) {
    fig_spec spec = fig_sample_spec();
    spec.row_tokens = 2;
    fig_program *program = fig_sample_program(&spec);
    const fig_sample_heads heads = {4, 2, 64};
    fig_sample_attention(program, "a", &heads);
    fig_cache cache = fig_sample_cache(program, "c", 2, 64);
    cache.page_table = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "table", .role = FIG_ROLE_STATE,
                             .dtype = FIG_I32, .rank = 2, .dims = {spec.sequence_limit, 1}));
    const fig_tensor q = fig_sample_rows(program, "q", 4, 64);
    const fig_tensor out = fig_sample_rows(program, "out", 4, 64);
    record(program, between, cache);
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    finish(program);
    const uint32_t early_reads = early_reads_of(program, 1);
    fig_program_destroy(program);
    return early_reads;
}

static void a_cache_that_a_call_writes_is_waited_for(void **state) {
    (void)state;
    assert_int_equal(early_reads_behind(APPEND), FIG_ATTENTION_EARLY);
    assert_int_equal(early_reads_behind(CALL_ON_K), 0);
    assert_int_equal(early_reads_behind(CALL_ON_V), 0);
    assert_int_equal(early_reads_behind(CALL_ON_TABLE), 0);
}

/* Before the preceding launch has ended, attention reads all tokens except the newest: it leaves
 * out as many as it has queries. */
static void attention_waits_for_more_new_tokens_than_it_has_queries(void **state) {
    (void)state;
    assert_int_equal(early_reads_behind(APPEND_TWO_TOKENS), 0);
}

/* If the early reads of launches were computed for each bucket, a program with many launches and
 * many buckets would take minutes to load. */
static void early_reads_are_found_once_for_all_buckets(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    assert_int_equal(taken_of(program, 1, FIG_ATTENTION_EARLY), FIG_ATTENTION_EARLY);
    assert_int_equal(taken_of(program, 1, 0), 0);
    fig_program_destroy(program);
}

/* ---- Weights */

static fig_tensor weight_of(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_STATE,
                                          .dtype = FIG_F16, .rank = 1, .dims = {width}));
}

static fig_tensor matrix_of(fig_program *program, const char *name) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_F16,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, 64}));
}

/* Records a node of the operation with the two weights; an operation with one weight takes the
 * second. */
static void record_with(fig_program *program, fig_op op, fig_tensor a, fig_tensor b) {
    if (op == FIG_OP_RMS_NORM || op == FIG_OP_ALL_REDUCE) {
        fig_rms_norm_op norm = {.size = sizeof norm, .weight = b};
        norm.in = matrix_of(program, "in");
        norm.out = matrix_of(program, "normed");
        if (op == FIG_OP_ALL_REDUCE) norm.residual = matrix_of(program, "residual");
        if (op == FIG_OP_RMS_NORM) fig_rms_norm(program, &norm);
        if (op == FIG_OP_ALL_REDUCE) fig_all_reduce_add_rms_norm(program, &norm);
        return;
    }
    const fig_tensor q = fig_sample_rows(program, "q", 4, 64);
    const fig_tensor k = fig_sample_rows(program, "k", 2, 64);
    if (op == FIG_OP_ROPE) {
        fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .q_out = q, .k_out = k,
                                      .q_norm = a, .k_norm = b));
        return;
    }
    fig_decode_attention(program,
                         FIG_OPTIONS(fig_decode_attention_op, .q = q, .k = k,
                                     .v = fig_sample_rows(program, "v", 2, 64),
                                     .out = fig_sample_rows(program, "out", 4, 64), .q_norm = a,
                                     .k_norm = b, .cache = fig_sample_cache(program, "c", 2, 64)));
}

/* Returns the flags of the operation's launch behind a call that writes weight number `written`, or
 * no weight if that is 2. Sets *rest to the flags of all other launches. */
static uint32_t flags_behind_writer(fig_op op, int written, uint32_t *rest) {
    const fig_spec spec = fig_sample_spec();
    const fig_lower_target target = fig_sample_target("h200");
    fig_program *program = fig_sample_program(&spec);
    const fig_tensor weights[] = {weight_of(program, "a", 64), weight_of(program, "b", 64),
                                  weight_of(program, "other", 64)};
    fig_bucket_shape shape = {.caps = {4, 100}};
    fig_workspace workspace;
    fig_lower_common common;
    uint32_t flags = 0;
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "fill", .writes = &weights[written],
                                  .write_count = 1));
    record_with(program, op, weights[0], weights[1]);
    finish(program);
    const fig_program_view *view = fig_program_view_of(program);
    assert_int_equal(fig_lower_shape(view, &target, 0, &shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&workspace, view, &shape, 1), FIG_OK);
    assert_int_equal(fig_lower_common_init(&common, view, &workspace), FIG_OK);
    *rest = 0;
    for (uint32_t i = 0; i < common.launch_count; i++)
        *(common.launches[i].op == op ? &flags : rest) |= common.early_reads[i];
    fig_lower_common_finish(&common);
    fig_workspace_finish(&workspace);
    fig_program_destroy(program);
    return flags;
}

/* The kernels of these operations read weights before their wait. */
static void a_launch_whose_weight_a_node_writes_may_not_begin_early(void **state) {
    (void)state;
    static const fig_op ops[] = {FIG_OP_RMS_NORM, FIG_OP_ALL_REDUCE, FIG_OP_ROPE,
                                 FIG_OP_DECODE_ATTENTION};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        uint32_t rest;
        assert_int_equal(flags_behind_writer(ops[i], 2, &rest) & FIG_EARLY_READS_WRITTEN, 0);
        assert_int_equal(rest & FIG_EARLY_READS_WRITTEN, 0);
        assert_int_equal(flags_behind_writer(ops[i], 1, &rest) & FIG_EARLY_READS_WRITTEN,
                         FIG_EARLY_READS_WRITTEN);
        assert_int_equal(rest & FIG_EARLY_READS_WRITTEN, 0);
        if (ops[i] == FIG_OP_RMS_NORM || ops[i] == FIG_OP_ALL_REDUCE) continue;
        assert_int_equal(flags_behind_writer(ops[i], 0, &rest) & FIG_EARLY_READS_WRITTEN,
                         FIG_EARLY_READS_WRITTEN);
        assert_int_equal(rest & FIG_EARLY_READS_WRITTEN, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_attention_of_a_step_except_the_first_may_begin_early),
        cmocka_unit_test(attention_behind_the_fetch_waits),
        cmocka_unit_test(attention_behind_the_launch_that_makes_its_plan_waits),
        cmocka_unit_test(without_a_table_a_cache_is_dense),
        cmocka_unit_test(a_cache_that_a_call_writes_is_waited_for),
        cmocka_unit_test(attention_waits_for_more_new_tokens_than_it_has_queries),
        cmocka_unit_test(early_reads_are_found_once_for_all_buckets),
        cmocka_unit_test(a_launch_whose_weight_a_node_writes_may_not_begin_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

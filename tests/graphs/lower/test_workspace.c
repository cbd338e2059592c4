/* test_workspace.c: tests that the parts of a workspace do not overlap and that each part is large
 * enough for every bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/lower.h"
#include "graphs/lower/workspace.h"
#include "graphs/record/program.h"
#include "planner/split/bounds.h"
#include "tests/support/fault.h"
#include "tests/support/files/sample.h"

enum { BUCKET_COUNT = 4, PART_CAPACITY = 32 };

/* Records two classes, and temporary tensors with and without rows. With 64 rows, each part is so
 * large that alignment cannot hide a missing one. */
static fig_program *record(void) {
    fig_spec spec = fig_sample_spec();
    spec.batch_limit = 64;
    fig_program *program = fig_sample_program(&spec);
    const fig_sample_heads heads[] = {{8, 2, 64}, {32, 8, 128}};
    fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "rows", .dtype = FIG_F32,
                                            .rank = 2, .dims = {FIG_DIM_BATCH, 7}));
    fig_sample_attention(program, "small", &heads[0]);
    fig_sample_attention(program, "large", &heads[1]);
    fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "fixed", .dtype = FIG_I64,
                                            .rank = 1, .dims = {33}));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

static void shape_buckets(const fig_program_view *view, fig_bucket_shape buckets[BUCKET_COUNT]) {
    static const fig_bucket caps[] = {{64, 128}, {64, 200}, {64, 200}, {1, 200}};
    const fig_lower_target target = fig_sample_target("host");
    for (uint32_t i = 0; i < BUCKET_COUNT; i++) {
        buckets[i].caps = caps[i];
        buckets[i].variant = i == 2;
        buckets[i].queries = buckets[i].is_loose = 0;
        assert_int_equal(fig_lower_shape(view, &target, i, &buckets[i]), FIG_OK);
    }
}

typedef struct part {
    uint64_t offset, bytes;
} part;

static uint64_t max_of(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Checks that a class's parts are as large as the bounds demand, over all buckets. */
static int class_parts(const fig_workspace *workspace, const fig_bucket_shape *buckets, int index,
                       part parts[3]) {
    static const int32_t q_heads[] = {8, 32}, head_dim[] = {64, 128};
    uint64_t counters = 0, partials = 0, sums = 0;
    for (int i = 0; i < BUCKET_COUNT; i++) {
        const fig_split_shape *split = &buckets[i].plan.splits[index];
        const fig_bounds_class bounds =
            fig_bounds_class_of(split, q_heads[index] / split->groups, head_dim[index]);
        counters = max_of(counters, bounds.counters_bytes);
        partials = max_of(partials, bounds.partials_bytes);
        sums = max_of(sums, bounds.sums_bytes);
    }
    parts[0] = (part){workspace->counters[index], counters};
    parts[1] = (part){workspace->partials[index], partials};
    parts[2] = (part){workspace->sums[index], sums};
    return 3;
}

static void parts_are_apart_aligned_and_large_enough(void **state) {
    (void)state;
    fig_program *program = record();
    const fig_program_view *view = fig_program_view_of(program);
    fig_bucket_shape buckets[BUCKET_COUNT];
    fig_workspace workspace;
    part parts[PART_CAPACITY];
    int count = 0;
    shape_buckets(view, buckets);
    assert_int_equal(fig_workspace_init(&workspace, view, buckets, BUCKET_COUNT), FIG_OK);
    for (int i = 0; i < 2; i++)
        count += class_parts(&workspace, buckets, i, parts + count);
    parts[count++] = (part){workspace.temps[fig_program_find(program, "rows").id - 1], 64 * 7 * 4};
    parts[count++] = (part){workspace.temps[fig_program_find(program, "fixed").id - 1], 33 * 8};
    assert_true(workspace.temps[fig_program_find(program, "q_small").id - 1] == UINT64_MAX);
    for (int a = 0; a < count; a++) {
        assert_int_equal(parts[a].offset % 256, 0);
        assert_true(parts[a].bytes > 0);
        assert_true(parts[a].offset + parts[a].bytes <= workspace.bytes);
        for (int b = 0; b < a; b++)
            assert_true(parts[a].offset + parts[a].bytes <= parts[b].offset ||
                        parts[b].offset + parts[b].bytes <= parts[a].offset);
    }
    /* The counters are one block, so that they can be cleared at once if a replay is cut short. */
    assert_int_equal(workspace.counters[0], 0);
    assert_true(workspace.counters[1] < workspace.partials[0]);
    fig_workspace_finish(&workspace);
    fig_program_destroy(program);
}

/* A step never needs more than the workspace of its own bucket. */
static void one_bucket_needs_no_more_than_all(void **state) {
    (void)state;
    fig_program *program = record();
    const fig_program_view *view = fig_program_view_of(program);
    fig_bucket_shape buckets[BUCKET_COUNT];
    fig_workspace all, one;
    shape_buckets(view, buckets);
    assert_int_equal(fig_workspace_init(&all, view, buckets, BUCKET_COUNT), FIG_OK);
    for (int i = 0; i < BUCKET_COUNT; i++) {
        assert_int_equal(fig_workspace_init(&one, view, &buckets[i], 1), FIG_OK);
        assert_true(one.bytes <= all.bytes);
        fig_workspace_finish(&one);
    }
    fig_workspace_finish(&all);
    fig_program_destroy(program);
}

static fig_status lay_out(fig_program *program, fig_workspace *workspace) {
    const fig_bucket_shape none = {.caps = {1, 1}};
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    memset(workspace, 0xff, sizeof *workspace);
    const fig_status status = fig_workspace_init(workspace, fig_program_view_of(program), &none, 1);
    fig_program_destroy(program);
    return status;
}

/* Lays out temporary tensors of 2^45 bytes each. */
static fig_status lay_out_temps(int count, fig_workspace *workspace) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    char name[16];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "t%d", i);
        fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name, .dtype = FIG_F32,
                                                .rank = 1, .dims = {INT64_C(1) << 43}));
    }
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    return lay_out(program, workspace);
}

static void a_workspace_ends_at_its_limit(void **state) {
    (void)state;
    fig_workspace workspace;
    assert_int_equal(lay_out_temps(2, &workspace), FIG_OK);
    assert_true(workspace.bytes == FIG_WORKSPACE_BYTES_LIMIT);
    fig_workspace_finish(&workspace);
    FIG_SAMPLE_REFUSES(lay_out_temps(3, &workspace), FIG_TOO_LARGE,
                       "workspace: 70368744177664 bytes and 35184372088832 more, limit "
                       "70368744177664");
    assert_null(workspace.temps);
}

static void one_class_too_many_has_no_workspace(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_workspace workspace;
    char name[16];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%d", i);
        fig_sample_attention(program, name, &(fig_sample_heads){16, 1 << i, 64});
    }
    FIG_SAMPLE_REFUSES(lay_out(program, &workspace), FIG_UNSUPPORTED,
                       "need one class more than the limit of 4");
    assert_null(workspace.temps);
}

static void a_failed_allocation_leaves_nothing(void **state) {
    (void)state;
    fig_program *program = record();
    const fig_program_view *view = fig_program_view_of(program);
    fig_bucket_shape buckets[BUCKET_COUNT];
    fig_workspace workspace;
    shape_buckets(view, buckets);
    fig_fault_arm(1);
    const fig_status status = fig_workspace_init(&workspace, view, buckets, BUCKET_COUNT);
    assert_int_equal(fig_fault_disarm(), 1);
    FIG_SAMPLE_REFUSES(status, FIG_NOMEM, "workspace: ");
    assert_null(workspace.temps);
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_apart_aligned_and_large_enough),
        cmocka_unit_test(one_bucket_needs_no_more_than_all),
        cmocka_unit_test(a_workspace_ends_at_its_limit),
        cmocka_unit_test(one_class_too_many_has_no_workspace),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

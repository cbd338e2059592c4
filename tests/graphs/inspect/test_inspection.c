/* test_inspection.c: tests that an inspection shows the contents of graphs, and refuses buckets
 * that the graphs do not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_inspect.h"
#include "kernels/table/families.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"

static void every_kernel_has_room_for_its_fields(void **state) {
    (void)state;
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        assert_true(fig_kernel_table[op].field_count < FIG_INSPECT_FIELD_LIMIT);
}

static void fields_of_a_launch_are_those_of_its_kernel(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_breadth();
    const fig_inspection *view;
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    fig_lowered lowered;
    assert_int_equal(fig_inspection_open(&view, graphs, 1), FIG_OK);
    assert_int_equal(fig_lower_bucket(&graphs->common, &graphs->buckets[0], &lowered), FIG_OK);
    assert_int_equal(view->launch_count, lowered.launch_count);
    for (uint32_t l = 0; l < view->launch_count; l++) {
        const int32_t count = fig_inspection_launch_fields(view, l, fields);
        const uint32_t op = lowered.launches[l].op;
        if (op == FIG_OP_CALL) {
            assert_int_equal(count, 0);
            continue;
        }
        const fig_kernel *kernel = &fig_kernel_table[op];
        assert_int_equal(count, kernel->field_count);
        for (int32_t i = 0; i < count; i++) {
            assert_string_equal(fields[i].name, kernel->fields[i].name);
            const int has_word = fields[i].kind == FIG_INSPECT_ADDRESS ||
                                 fields[i].kind == FIG_INSPECT_STRIDE ||
                                 fields[i].kind == FIG_INSPECT_ENGINE;
            if (has_word) assert_non_null(fields[i].word);
        }
    }
    assert_int_equal(fig_inspection_launch_fields(view, view->launch_count, fields), 0);
    assert_int_equal(fig_inspection_node_fields(view, view->node_count, fields), 0);
    fig_lower_finish(&lowered);
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
}

static void without_a_bucket_there_are_no_launches(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    const fig_inspection *view;
    assert_int_equal(fig_inspection_open(&view, graphs, 0), FIG_OK);
    assert_int_equal(view->launch_count, 0);
    assert_true(view->node_count > 0 && view->nodes[0].launch_count == 0);
    assert_int_equal(strlen(view->content_id), 64);
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
}

static void missing_objects_are_refused(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    const fig_inspection *view;
    const int32_t lengths[] = {5};
    const fig_step step = {.size = sizeof step, .rows = 1, .kv_lengths = lengths};
    fig_plan_report report = {.size = sizeof report};
    assert_int_equal(fig_inspection_open(NULL, graphs, 0), FIG_INVALID);
    assert_int_equal(fig_inspection_open(&view, NULL, 0), FIG_INVALID);
    assert_int_equal(fig_inspection_open(&view, graphs, -1), FIG_INVALID);
    assert_int_equal(fig_inspection_open(&view, graphs, (int32_t)graphs->bucket_count + 1),
                     FIG_INVALID);
    assert_null(view);
    fig_inspection_close(NULL);
    assert_int_equal(fig_inspection_open(&view, graphs, 1), FIG_OK);
    assert_int_equal(fig_inspection_plan(view, &step, view->class_count, &report), FIG_INVALID);
    assert_int_equal(fig_inspection_plan(view, &step, -1, &report), FIG_INVALID);
    assert_int_equal(fig_inspection_plan(view, NULL, 0, &report), FIG_INVALID);
    assert_int_equal(fig_inspection_plan(view, &step, 0, &report), FIG_OK);
    assert_true(report.bucket > 0);
    fig_inspection_close(view);
    fig_graphs_destroy(graphs);
}

static void a_failed_allocation_opens_nothing(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    for (int64_t n = 1;; n++) {
        const fig_inspection *view;
        fig_fault_arm(n);
        const fig_status status = fig_inspection_open(&view, graphs, 1);
        if (fig_fault_disarm() < n) {
            assert_int_equal(status, FIG_OK);
            fig_inspection_close(view);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, FIG_NOMEM);
        assert_null(view);
    }
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_has_room_for_its_fields),
        cmocka_unit_test(fields_of_a_launch_are_those_of_its_kernel),
        cmocka_unit_test(without_a_bucket_there_are_no_launches),
        cmocka_unit_test(missing_objects_are_refused),
        cmocka_unit_test(a_failed_allocation_opens_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_diff.c: tests that figraph diff prints exactly the differences that were made.
 *
 * This also tests facts.c, which supplies the values that a difference shows. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"
#include "tests/support/files/sample.h"
#include "tools/figraph/inspect/diff.h"
#include "tools/figraph/inspect/failure.h"

enum { LINE_LIMIT = 4000, LINE_BYTES = 512 };

/* The differences as lines of text: "tensor q.N: dtype: f16 -> bf16 (2 from tensor q.0)". */
typedef struct lines {
    char text[LINE_LIMIT][LINE_BYTES];
    int count, in_fields;
} lines;

static void take(void *user, const fig_difference *of) {
    lines *all = user;
    assert_true(all->count < LINE_LIMIT);
    if (of->field == NULL) {
        assert_false(all->in_fields);
        assert_true((of->a == NULL) != (of->b == NULL));
    }
    all->in_fields |= of->field != NULL;
    snprintf(all->text[all->count++], LINE_BYTES, "%s: %s: %.99s -> %.99s (%d from %s)",
             of->subject, of->field != NULL ? of->field : "is", of->a != NULL ? of->a : "none",
             of->b != NULL ? of->b : "none", of->times, of->where);
}

static const lines *diff(const fig_graphs *a, const fig_graphs *b) {
    static lines all;
    all.count = all.in_fields = 0;
    if (fig_diff_graphs(a, b, take, &all) != FIG_OK) fail_msg("%s", fig_failure_message());
    return &all;
}

static void assert_line(const lines *all, const char *line) {
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->text[i], line) == 0) return;
    for (int i = 0; i < all->count && i < 30; i++)
        print_message("    %s\n", all->text[i]);
    fail_msg("no difference is \"%s\"", line);
}

static fig_graphs *lower(const fig_spec *spec) {
    return fig_sample_lower(spec, NULL);
}

static void graphs_made_twice_do_not_differ(void **state) {
    (void)state;
    fig_graphs *(*const makers[])(void) = {fig_capture_mixed, fig_capture_breadth,
                                           fig_capture_tuned};
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        fig_graphs *a = makers[i](), *b = makers[i]();
        assert_int_equal(diff(a, b)->count, 0);
        fig_graphs_destroy(a);
        fig_graphs_destroy(b);
    }
}

static void differences_in_presence_come_first_and_once_for_all_layers(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    fig_graphs *plain = lower(&spec);
    spec.kv_dtype = FIG_E4M3;
    fig_graphs *scaled = lower(&spec);
    const lines *all = diff(plain, scaled);
    assert_line(all, "tensor k_scale.N: is: none ->  (2 from tensor k_scale.0)");
    assert_line(all, "spec: kv_dtype: f16 -> e4m3 (1 from spec)");
    assert_line(all, "tensor k_cache.N: dtype: f16 -> e4m3 (2 from tensor k_cache.0)");
    assert_line(all, "node decode_attention of layer N: operands.k_scale.tensor: none -> k_scale.0 "
                     "(2 from node decode_attention of layer 0)");
    all = diff(scaled, plain);
    assert_line(all, "tensor k_scale.N: is:  -> none (2 from tensor k_scale.0)");
    fig_graphs_destroy(plain);
    fig_graphs_destroy(scaled);
}

/* sm_scale appears only in a launch's params, so the difference must be shown there. */
static void a_param_of_a_launch_is_compared_in_every_bucket(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    fig_graphs *a = lower(&spec);
    fig_graphs_info info = {.size = sizeof info};
    assert_int_equal(fig_graphs_read_info(a, &info), FIG_OK);
    spec.sm_scale = 0.5f;
    fig_graphs *b = lower(&spec);
    const lines *all = diff(a, b);
    char line[LINE_BYTES];
    snprintf(line, sizeof line, "launch attention of layer N: params.sm_scale: 0.125 -> 0.5 (%d ",
             2 * info.bucket_count);
    int found = 0;
    for (int i = 0; i < all->count; i++)
        found += strncmp(all->text[i], line, strlen(line)) == 0;
    assert_int_equal(found, 1);
    assert_line(all, "spec: sm_scale: 0.125 -> 0.5 (1 from spec)");
    fig_graphs_destroy(a);
    fig_graphs_destroy(b);
}

static void buckets_that_serve_the_same_steps_are_alike(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    const fig_bucket few[] = {{2, 100}}, more[] = {{1, 100}, {2, 100}};
    fig_graphs *a =
        fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .buckets = few, .bucket_count = 1));
    fig_graphs *b =
        fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .buckets = more, .bucket_count = 2));
    const lines *all = diff(a, b);
    for (int i = 0; i < all->count; i++) {
        const char *subject = all->text[i];
        const int is_new = strncmp(subject, "bucket 1 x ", 11) == 0;
        assert_true(is_new || strncmp(subject, "graphs: ", 8) == 0);
        assert_int_equal(is_new, strstr(subject, ": is: none -> ") != NULL);
    }
    assert_true(all->count > 1);
    fig_graphs_destroy(a);
    fig_graphs_destroy(b);
}

static fig_graphs *call_twice(const char *first, const char *second) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = first));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = second));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program,
                                      FIG_OPTIONS(fig_lower_options, .buckets = &(fig_bucket){1, 1},
                                                  .bucket_count = 1)),
                     FIG_OK);
    fig_program_destroy(program);
    return graphs;
}

static void another_order_is_a_difference(void **state) {
    (void)state;
    fig_graphs *a = call_twice("one", "two"), *b = call_twice("two", "one");
    assert_line(diff(a, b), "graphs: order: node call one -> node call two (1 from graphs)");
    fig_graphs_destroy(a);
    fig_graphs_destroy(b);
}

static void two_equal_names_are_told_apart(void **state) {
    (void)state;
    fig_graphs *a = call_twice("one", "one"), *b = call_twice("one", "two");
    const lines *all = diff(a, b);
    assert_line(all, "node call one #2: is:  -> none (1 from node call one #2)");
    assert_line(all, "node call two: is: none ->  (1 from node call two)");
    fig_graphs_destroy(a);
    fig_graphs_destroy(b);
}

static void graphs_of_other_content_differ_in_their_ids(void **state) {
    (void)state;
    fig_graphs *a = fig_capture_preset("tutorial", 1, "host"), *b = fig_capture_mixed();
    const lines *all = diff(a, b);
    int found = 0;
    for (int i = 0; i < all->count; i++)
        found += strncmp(all->text[i], "graphs: content_id: ", 20) == 0;
    assert_int_equal(found, 1);
    fig_graphs_destroy(a);
    fig_graphs_destroy(b);
}

static void nothing_to_compare_is_refused(void **state) {
    (void)state;
    fig_graphs *a = fig_capture_mixed();
    static lines all;
    assert_int_equal(fig_diff_graphs(NULL, a, take, &all), FIG_INVALID);
    assert_int_equal(fig_diff_graphs(a, NULL, take, &all), FIG_INVALID);
    assert_int_equal(fig_diff_graphs(a, a, NULL, NULL), FIG_INVALID);
    assert_non_null(strstr(fig_failure_message(), "differ is NULL"));
    fig_graphs_destroy(a);
}

/* ---- Failing allocations, ours and Jansson's */

static int64_t allocations, failing;

static void *allocate(size_t bytes) {
    return ++allocations == failing ? NULL : malloc(bytes);
}

static void told_nothing(void *user, const fig_difference *of) {
    (void)of;
    *(int *)user = 1;
}

static void a_failed_allocation_tells_nothing(void **state) {
    (void)state;
    fig_graphs *a = call_twice("one", "two"), *b = call_twice("two", "one");
    json_set_alloc_funcs(allocate, free);
    for (int of_jansson = 0; of_jansson < 2; of_jansson++) {
        for (int64_t n = 1;; n += 1 + n / 64) {
            int told = 0;
            allocations = 0;
            failing = of_jansson ? n : 0;
            fig_fault_arm(of_jansson ? 0 : n);
            const fig_status status = fig_diff_graphs(a, b, told_nothing, &told);
            const int64_t gated = fig_fault_disarm(), seen = of_jansson ? allocations : gated;
            assert_int_equal(told, status == FIG_OK);
            if (seen < n) {
                assert_int_equal(status, FIG_OK);
                assert_true(n > 20);
                break;
            }
            if (status != FIG_OK) assert_int_equal(status, FIG_NOMEM);
        }
    }
    json_set_alloc_funcs(malloc, free);
    fig_graphs_destroy(a);
    fig_graphs_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_made_twice_do_not_differ),
        cmocka_unit_test(differences_in_presence_come_first_and_once_for_all_layers),
        cmocka_unit_test(a_param_of_a_launch_is_compared_in_every_bucket),
        cmocka_unit_test(buckets_that_serve_the_same_steps_are_alike),
        cmocka_unit_test(another_order_is_a_difference),
        cmocka_unit_test(two_equal_names_are_told_apart),
        cmocka_unit_test(graphs_of_other_content_differ_in_their_ids),
        cmocka_unit_test(nothing_to_compare_is_refused),
        cmocka_unit_test(a_failed_allocation_tells_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

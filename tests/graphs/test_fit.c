/* test_fit.c: tests that the verdict on whether graphs fit a machine agrees with a new capture for
 * that machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_unstable.h"
#include "tests/support/files/archived.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"

typedef struct reasons {
    char text[2048]; /* one line per reason, with the verdict first: "1 sentence" */
} reasons;

static void take(void *user, fig_fit fit, const char *reason) {
    reasons *all = user;
    const size_t used = strlen(all->text);
    assert_true(used + strlen(reason) + 4 < sizeof all->text);
    snprintf(all->text + used, sizeof all->text - used, "%u %s\n", fit, reason);
}

static const char *ask(const fig_graphs *graphs, const fig_traits *traits, fig_fit expected) {
    static reasons all;
    fig_fit fit;
    all.text[0] = '\0';
    if (fig_graphs_fit(graphs, traits, &fit, take, &all) != FIG_OK) fail_msg("%s", fig_message());
    if (fit != expected) fail_msg("%u, not %u: %s", fit, expected, all.text);
    return all.text;
}

static fig_traits machine(const char *name) {
    fig_traits traits = {.size = sizeof traits};
    assert_int_equal(fig_traits_named(&traits, name), FIG_OK);
    return traits;
}

static void graphs_fit_the_machine_that_they_are_for(void **state) {
    (void)state;
    static const char *const names[] = {"h200", "h100", "a100", "host"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 1, names[i]);
        const fig_traits own = machine(names[i]);
        assert_string_equal(ask(graphs, &own, FIG_FIT_FINE), "");
        fig_graphs_destroy(graphs);
    }
}

/* Buckets of packed programs have limits on query tokens, and variants of three forms. */
static void packed_graphs_fit_the_machine_that_they_are_for(void **state) {
    (void)state;
    fig_spec spec = {.size = sizeof spec};
    const fig_traits own = machine("h200");
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_spec_preset(&spec, "llama-3.1-8b-layer"), FIG_OK);
    spec.row_tokens = 1000;
    spec.query_limit = 2000;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(
        fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options, .traits = &own)), FIG_OK);
    assert_string_equal(ask(graphs, &own, FIG_FIT_FINE), "");
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

/* Counts in *common the buckets of `a` that `b` also has, by limits and variant. Returns the number
 * of these whose launches are equal in both. */
static uint32_t count_alike(const fig_graphs *a, const fig_graphs *b, uint32_t *common) {
    uint32_t alike = 0;
    *common = 0;
    for (uint32_t i = 0; i < a->bucket_count; i++) {
        for (uint32_t j = 0; j < b->bucket_count; j++) {
            const fig_bucket_shape *x = &a->buckets[i], *y = &b->buckets[j];
            if (memcmp(&x->caps, &y->caps, sizeof x->caps) != 0 || x->variant != y->variant)
                continue;
            ++*common;
            alike += (uint32_t)fig_lower_alike(x, y);
        }
    }
    return alike;
}

/* If SMs and shared memory are equal, launches are equal too, but other buckets may be chosen. */
static void a_machine_of_other_costs_is_a_warning(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 1, "h200");
    fig_graphs *there = fig_capture_preset("llama-3.1-8b", 1, "h100");
    const fig_traits h100 = machine("h100");
    uint32_t common;
    const uint32_t alike = count_alike(graphs, there, &common);
    assert_int_equal(alike, common);
    assert_true(common > 50);
    assert_string_equal(ask(graphs, &h100, FIG_FIT_WARNING),
                        "1 variants are offered and chosen by their costs on h200, not on h100\n");
    fig_graphs_destroy(graphs);
    fig_graphs_destroy(there);
}

static void a_machine_with_other_sms_needs_its_own_capture(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 1, "h200");
    fig_graphs *there = fig_capture_preset("llama-3.1-8b", 1, "a100");
    const fig_traits a100 = machine("a100");
    uint32_t common;
    const uint32_t alike = count_alike(graphs, there, &common);
    assert_true(alike < common);
    const char *text = ask(graphs, &a100, FIG_FIT_ANEW);
    assert_non_null(strstr(text, "buckets are cut for h200 with 132 SMs, and would be cut "
                                 "differently for a100 with 108"));
    assert_non_null(strstr(text, "1 attention is served by copy there, and not by turn"));
    fig_graphs_destroy(graphs);
    fig_graphs_destroy(there);
}

static void a_gpu_without_kernels_refuses(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "h200");
    fig_traits old = machine("a100");
    old.compute_capability = 75;
    assert_string_equal(ask(graphs, &old, FIG_FIT_REFUSED),
                        "3 a100 is of compute capability 7.5, kernels need 8.0\n");
    fig_graphs_destroy(graphs);
}

static void unused_costs_and_an_older_maker_give_warnings(void **state) {
    (void)state;
    fig_graphs *tuned = fig_capture_tuned(), *golden;
    const fig_traits host = machine("host"), h200 = machine("h200");
    assert_non_null(strstr(ask(tuned, &h200, FIG_FIT_ANEW), "tuned costs are of another machine"));
    assert_int_equal(fig_graphs_load(&golden, "tests/golden/mixed.fig"), FIG_OK);
    assert_string_equal(
        ask(golden, &host, FIG_FIT_WARNING),
        "1 4 of 4 buckets are lowered differently than by the library that made the "
        "file\n");
    fig_graphs_destroy(tuned);
    fig_graphs_destroy(golden);
}

/* A library without kernel images has none to compare. */
static void kernels_other_than_the_maker_s_give_a_warning(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
    const fig_traits host = machine("host");
    const int has_images = fig_images_of(FIG_OP_FETCH, 0, FIG_IMAGE_PLAIN).bytes != NULL;
    assert_string_equal(ask(graphs, &host, FIG_FIT_FINE), "");
    fig_archive_finish(&graphs->archive);
    fig_archived_fill(graphs);
    const char *text = ask(graphs, &host, has_images ? FIG_FIT_WARNING : FIG_FIT_FINE);
    assert_int_equal(strstr(text, "images of kernels differ here") != NULL, has_images);
    fig_graphs_destroy(graphs);
}

static void impossible_traits_are_refused(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
    fig_traits none = machine("host");
    fig_fit fit;
    assert_int_equal(fig_graphs_fit(graphs, &none, &fit, NULL, NULL), FIG_OK);
    assert_int_equal(fit, FIG_FIT_FINE);
    none.sm_count = 0;
    assert_int_equal(fig_graphs_fit(graphs, &none, &fit, NULL, NULL), FIG_INVALID);
    assert_int_equal(fig_graphs_fit(graphs, NULL, &fit, NULL, NULL), FIG_INVALID);
    assert_int_equal(fig_graphs_fit(NULL, &none, &fit, NULL, NULL), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "graphs is NULL"));
    fig_graphs_destroy(graphs);
}

static void a_failed_allocation_is_reported(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
    const fig_traits h200 = machine("h200");
    for (int64_t n = 1;; n++) {
        fig_fit fit;
        fig_fault_arm(n);
        const fig_status status = fig_graphs_fit(graphs, &h200, &fit, NULL, NULL);
        if (fig_fault_disarm() < n) {
            assert_int_equal(status, FIG_OK);
            assert_true(n > 1);
            break;
        }
        assert_int_equal(status, FIG_NOMEM);
    }
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_fit_the_machine_that_they_are_for),
        cmocka_unit_test(packed_graphs_fit_the_machine_that_they_are_for),
        cmocka_unit_test(a_machine_of_other_costs_is_a_warning),
        cmocka_unit_test(a_machine_with_other_sms_needs_its_own_capture),
        cmocka_unit_test(a_gpu_without_kernels_refuses),
        cmocka_unit_test(unused_costs_and_an_older_maker_give_warnings),
        cmocka_unit_test(kernels_other_than_the_maker_s_give_a_warning),
        cmocka_unit_test(impossible_traits_are_refused),
        cmocka_unit_test(a_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_registry.c: tests that each recipe gets exactly one runner, whatever the number of callers
 * and recipes. */
#include "ffi/registry.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/fault.h"

static fig_recipe gated_of(int64_t width) {
    return (fig_recipe){.kind = FIG_RECIPE_GATED,
                        .device = FIG_DEVICE_HOST,
                        .dtype = FIG_F16,
                        .slots = 1u << FIG_SLOT_IN | 1u << FIG_SLOT_OUT,
                        .width = width};
}

static const fig_runner *find(int64_t width) {
    const fig_recipe recipe = gated_of(width);
    const fig_runner *runner;
    if (fig_registry_find(&recipe, &runner) != FIG_OK) fail_msg("%s", fig_message());
    assert_non_null(runner);
    return runner;
}

static int64_t missed(void) {
    fig_ffi_counts counts = {.size = sizeof counts};
    fig_registry_read_counts(&counts);
    return counts.missed;
}

static void equal_recipes_share_a_runner(void **state) {
    (void)state;
    const int64_t before = missed();
    const fig_runner *runner = find(8);
    assert_ptr_equal(find(8), runner);
    assert_ptr_not_equal(find(10), runner);
    assert_ptr_equal(find(8), runner);
    assert_int_equal(missed(), before + 2);
}

static void an_impossible_recipe_is_refused_each_time(void **state) {
    (void)state;
    fig_recipe recipe = gated_of(8);
    const fig_runner *runner;
    const int64_t before = missed();
    recipe.dtype = FIG_I32;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fig_registry_find(&recipe, &runner), FIG_INVALID);
        assert_null(runner);
    }
    assert_int_equal(missed(), before);
}

static void calls_that_lacked_memory_may_be_repeated(void **state) {
    (void)state;
    const int64_t before = missed();
    const fig_recipe recipe = gated_of(12);
    const fig_runner *runner;
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_registry_find(&recipe, &runner);
        if (fig_fault_disarm() < n) break;
        if (status == FIG_OK) fail_msg("call %d failed, and nobody was told", (int)n);
        assert_int_equal(status, FIG_NOMEM);
        assert_int_equal(missed(), before);
    }
    assert_int_equal(missed(), before + 1);
}

static void *find_many(void *from) {
    static const fig_runner *found[64];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 64; i++) {
        const int at = (i + *(int *)from) % 64;
        const fig_runner *runner = find(2000 + 2 * at);
        pthread_mutex_lock(&lock);
        if (found[at] == NULL) found[at] = runner;
        assert_ptr_equal(found[at], runner);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void threads_that_ask_at_once_get_the_same(void **state) {
    (void)state;
    const int64_t before = missed();
    int from[] = {0, 1, 32, 63};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, find_many, &from[i]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(missed(), before + 64);
}

static void *find_impossible(void *user) {
    fig_recipe recipe = gated_of(8);
    const fig_runner *runner;
    (void)user;
    recipe.dtype = FIG_I32;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fig_registry_find(&recipe, &runner), FIG_INVALID);
        assert_null(runner);
    }
    return NULL;
}

static void threads_that_ask_for_the_impossible_are_all_refused(void **state) {
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, find_impossible, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* Otherwise the table would grow with each refused call. */
static void a_refused_recipe_takes_no_place(void **state) {
    (void)state;
    fig_recipe recipe = gated_of(8);
    const fig_runner *runner;
    int64_t calls = 0;
    recipe.dtype = FIG_I32;
    for (int i = 0; i < 600; i++) { /* more than the first table holds */
        fig_fault_arm(0);
        const fig_status status = fig_registry_find(&recipe, &runner);
        const int64_t own = fig_fault_disarm();
        assert_int_equal(status, FIG_INVALID);
        if (i == 0) calls = own;
        assert_int_equal(own, calls);
    }
}

static void a_file_is_kept_once(void **state) {
    (void)state;
    const fig_recipe recipe = gated_of(8);
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs *first, *second;
    const fig_graphs *found;
    assert_int_equal(fig_recipe_make(&recipe, &first), FIG_OK);
    assert_int_equal(fig_recipe_make(&recipe, &second), FIG_OK);
    assert_int_equal(fig_graphs_read_info(first, &info), FIG_OK);
    assert_int_equal(fig_registry_find_file(info.content_id, &found), FIG_ORDER);
    assert_int_equal(fig_registry_add_file(first), FIG_OK);
    /* takes ownership, and destroys the duplicate */
    assert_int_equal(fig_registry_add_file(second), FIG_OK);
    assert_int_equal(fig_registry_find_file(info.content_id, &found), FIG_OK);
    assert_ptr_equal(found, first);
    info.content_id[7] = 'g';
    assert_int_equal(fig_registry_find_file(info.content_id, &found), FIG_INVALID);
    assert_int_equal(fig_registry_find_file("abc", &found), FIG_INVALID);
    assert_null(found);
}

/* The registry's table grows several times, and each new table still finds every entry of the old
 * one. */
static void more_operations_than_any_table_holds_are_kept(void **state) {
    (void)state;
    enum { MANY = 4200 };
    static const fig_runner *found[MANY];
    const fig_runner *old = find(8);
    const int64_t before = missed();
    for (int i = 0; i < MANY; i++)
        found[i] = find(10000 + 2 * i);
    assert_int_equal(missed(), before + MANY);
    assert_ptr_equal(find(8), old);
    for (int i = 0; i < MANY; i++)
        assert_ptr_equal(find(10000 + 2 * i), found[i]);
    assert_int_equal(missed(), before + MANY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_recipes_share_a_runner),
        cmocka_unit_test(an_impossible_recipe_is_refused_each_time),
        cmocka_unit_test(calls_that_lacked_memory_may_be_repeated),
        cmocka_unit_test(threads_that_ask_at_once_get_the_same),
        cmocka_unit_test(threads_that_ask_for_the_impossible_are_all_refused),
        cmocka_unit_test(a_refused_recipe_takes_no_place),
        cmocka_unit_test(a_file_is_kept_once),
        cmocka_unit_test(more_operations_than_any_table_holds_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

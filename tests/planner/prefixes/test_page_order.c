/* test_page_order.c: tests that sequences stay sorted by their lists of pages whatever entries are
 * set, and that the number of pages that neighbours share is exact.
 *
 * The test keeps its own table, and compares its rows entry by entry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/prefixes/page_order.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

enum { SEQUENCES = 12, PAGES = 200, TURNS = 20000 };

static struct truth { int32_t entries[SEQUENCES][PAGES], known[SEQUENCES]; } truth;
static const fig_page_order_limits limits = {SEQUENCES, PAGES};

static void set(fig_page_order *order, int32_t sequence, int32_t first, int32_t count,
                const int32_t *pages) {
    fig_page_order_set(order, sequence, first, count, pages);
    if (count == 0) return;
    memcpy(&truth.entries[sequence][first], pages, (size_t)count * sizeof *pages);
    if (first + count > truth.known[sequence]) truth.known[sequence] = first + count;
}

static int32_t common_of(int32_t a, int32_t b) {
    int32_t i = 0;
    while (i < truth.known[a] && i < truth.known[b] && truth.entries[a][i] == truth.entries[b][i])
        i++;
    return i;
}

static int is_before(int32_t a, int32_t b) {
    const int32_t common = common_of(a, b);
    if (common == truth.known[a]) return 1;
    return common < truth.known[b] && truth.entries[a][common] < truth.entries[b][common];
}

static void check(const fig_page_order *order) {
    int32_t known = 0;
    for (int32_t s = 0; s < SEQUENCES; s++) {
        known += truth.known[s] > 0;
        assert_int_equal(order->known[s], truth.known[s]);
        assert_memory_equal(fig_page_order_row(order, s), truth.entries[s],
                            sizeof truth.entries[s]);
        if (truth.known[s] > 0) assert_int_equal(order->order[order->place[s]], s);
    }
    assert_int_equal(order->count, known);
    assert_int_equal(order->common[0], 0);
    assert_int_equal(order->common[order->count], 0);
    for (int32_t i = 1; i < order->count; i++) {
        assert_int_equal(order->common[i], common_of(order->order[i - 1], order->order[i]));
        assert_true(is_before(order->order[i - 1], order->order[i]));
    }
}

/* Changes a sequence: copies the beginning of another one, sets a few entries anywhere, or sets
 * many new entries. */
static void change(fig_page_order *order, fig_random *random) {
    const int32_t s = fig_random_range(random, 0, SEQUENCES - 1);
    int32_t pages[PAGES], first = 0, count;
    switch (fig_random_range(random, 0, 2)) {
    case 0: {
        const int32_t from = fig_random_range(random, 0, SEQUENCES - 1);
        count = fig_random_range(random, 0, truth.known[from]);
        memcpy(pages, truth.entries[from], sizeof pages);
        break;
    }
    case 1:
        first = fig_random_range(random, 0, PAGES - 1);
        count = fig_random_range(random, 0, PAGES - first < 3 ? PAGES - first : 3);
        for (int32_t i = 0; i < count; i++)
            pages[i] = fig_random_range(random, 0, 2);
        break;
    default:
        count = fig_random_range(random, 1, PAGES);
        for (int32_t i = 0; i < count; i++)
            pages[i] = i < 100 ? fig_random_range(random, 0, 1) : i;
    }
    set(order, s, first, count, pages);
}

static void neighbours_share_exactly_the_stated_tokens(void **state) {
    (void)state;
    fig_page_order order;
    fig_random random = fig_random_seed(11);
    memset(&truth, 0, sizeof truth);
    assert_int_equal(fig_page_order_init(&order, &limits), FIG_OK);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int32_t n = fig_random_range(&random, 0, 4); n > 0; n--)
            change(&order, &random);
        fig_page_order_settle(&order);
        assert_int_equal(order.marked_count, 0);
        check(&order);
    }
    fig_page_order_finish(&order);
}

static void a_page_behind_all_that_is_shared_moves_nothing(void **state) {
    (void)state;
    static const int32_t pages[] = {7, 9, 2, 5};
    fig_page_order order;
    memset(&truth, 0, sizeof truth);
    assert_int_equal(fig_page_order_init(&order, &limits), FIG_OK);
    set(&order, 3, 0, 4, pages);
    set(&order, 5, 0, 2, pages);
    set(&order, 5, 2, 1, &pages[3]);
    assert_int_equal(order.marked_count, 2);
    fig_page_order_settle(&order);
    set(&order, 3, 3, 1, &pages[2]); /* they differ in entry 2 */
    set(&order, 3, 4, 2, pages);
    set(&order, 5, 3, 1, pages);
    set(&order, 5, 0, 3, order.entries + 5 * PAGES);
    set(&order, 5, 1, 0, NULL);
    assert_int_equal(order.marked_count, 0);
    check(&order);
    set(&order, 5, 2, 1, &pages[2]); /* now they share more */
    assert_int_equal(order.marked_count, 1);
    fig_page_order_settle(&order);
    check(&order);
    fig_page_order_finish(&order);
}

static void memory_that_runs_out_leaves_nothing(void **state) {
    (void)state;
    static const fig_page_order_limits too_many = {INT64_C(1) << 40, INT64_C(1) << 40};
    fig_page_order order;
    fig_status status = FIG_NOMEM;
    assert_int_equal(fig_page_order_init(&order, &too_many), FIG_NOMEM);
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        status = fig_page_order_init(&order, &limits);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
        assert_null(order.entries);
    }
    assert_int_equal(status, FIG_OK);
    fig_page_order_finish(&order);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_share_exactly_the_stated_tokens),
        cmocka_unit_test(a_page_behind_all_that_is_shared_moves_nothing),
        cmocka_unit_test(memory_that_runs_out_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

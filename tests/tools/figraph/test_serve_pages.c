/* test_serve_pages.c: tests that, through any series of requests, each page of the cache is either
 * free or held by one sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/support/random.h"
#include "tools/figraph/serve/serve_pages.h"
#include "tools/figraph/terminal/report.h"

enum { PAGES = 37, TOKENS = 16, SEQUENCES = 6, ROW = 12 };

static fig_serve_pages make(void) {
    fig_serve_pages pages;
    assert_int_equal(
        fig_serve_pages_init(&pages, &(fig_serve_pages_options){.page_count = PAGES,
                                                                .page_tokens = TOKENS,
                                                                .sequence_count = SEQUENCES,
                                                                .sequence_pages = ROW}),
        FIG_EXIT_FINE);
    return pages;
}

/* Checks that every page is either free or held by one sequence. */
static void check(const fig_serve_pages *pages) {
    int seen[PAGES] = {0};
    for (int32_t i = 0; i < pages->free_count; i++)
        seen[pages->free[i]]++;
    for (int32_t s = 0; s < SEQUENCES; s++)
        for (int32_t i = 0; i < pages->held[s]; i++)
            seen[pages->table[s * ROW + i]]++;
    for (int32_t page = 0; page < PAGES; page++)
        assert_int_equal(seen[page], 1);
}

static void a_page_is_free_or_held_once_whatever_comes_and_goes(void **state) {
    (void)state;
    fig_random random = fig_random_seed(1);
    fig_serve_pages pages = make();
    int32_t refused = 0, most = 0;
    for (int turn = 0; turn < 20000; turn++) {
        const int32_t sequence = fig_random_range(&random, 0, SEQUENCES - 1);
        const int32_t tokens = fig_random_range(&random, 0, ROW * TOKENS);
        const int32_t before = pages.held[sequence], free_before = pages.free_count;
        int32_t wanted = 0;
        fig_pages change;
        while (wanted * TOKENS < tokens)
            wanted++;
        const int32_t missing = wanted > before ? wanted - before : 0;
        assert_int_equal(fig_serve_pages_missing(&pages, sequence, tokens), missing);
        if (fig_random_range(&random, 0, 3) == 0) {
            fig_serve_pages_release(&pages, sequence);
            assert_int_equal(pages.held[sequence], 0);
            assert_int_equal(pages.free_count, free_before + before);
        } else if (fig_serve_pages_grow(&pages, sequence, tokens, &change)) {
            assert_int_equal(change.sequence, sequence);
            assert_int_equal(change.first, before);
            assert_int_equal(change.count, missing);
            assert_ptr_equal(change.pages, pages.table + sequence * ROW + before);
            assert_int_equal(pages.free_count, free_before - missing);
        } else {
            assert_true(missing > free_before);
            assert_int_equal(pages.held[sequence], before);
            assert_int_equal(pages.free_count, free_before);
            refused++;
        }
        if (PAGES - pages.free_count > most) most = PAGES - pages.free_count;
        assert_int_equal(pages.most_used, most);
        check(&pages);
    }
    assert_true(refused > 100);
    assert_int_equal(most, PAGES);
    fig_serve_pages_finish(&pages);
}

static void the_last_page_is_given_and_no_other(void **state) {
    (void)state;
    fig_serve_pages pages = make();
    fig_pages change;
    for (int32_t s = 0; s < 3; s++)
        assert_int_equal(fig_serve_pages_grow(&pages, s, ROW * TOKENS, &change), 1);
    assert_int_equal(fig_serve_pages_grow(&pages, 3, TOKENS + 1, &change), 0);
    assert_int_equal(change.count, 0);
    assert_int_equal(fig_serve_pages_grow(&pages, 3, TOKENS, &change), 1);
    assert_int_equal(pages.free_count, 0);
    assert_int_equal(fig_serve_pages_grow(&pages, 3, TOKENS, &change), 1);
    assert_int_equal(change.count, 0);
    fig_serve_pages_finish(&pages);
}

static void released_pages_stay_in_the_table(void **state) {
    (void)state;
    fig_serve_pages pages = make();
    fig_pages change;
    assert_int_equal(fig_serve_pages_grow(&pages, 2, 3 * TOKENS, &change), 1);
    const int32_t given[3] = {change.pages[0], change.pages[1], change.pages[2]};
    fig_serve_pages_release(&pages, 2);
    assert_memory_equal(pages.table + 2 * ROW, given, sizeof given);
    fig_serve_pages_finish(&pages);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_free_or_held_once_whatever_comes_and_goes),
        cmocka_unit_test(the_last_page_is_given_and_no_other),
        cmocka_unit_test(released_pages_stay_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

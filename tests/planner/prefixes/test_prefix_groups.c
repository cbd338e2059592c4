/* test_prefix_groups.c: tests that groups for strips cover the tokens of their pages and keep the
 * limit on query tokens, and that the costs of groups follow from the costs of strips. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "planner/prefixes/prefix_groups.h"

static fig_strip_group taken[8];

static int32_t take(int32_t limit) {
    static fig_prefixes_group found[] = {
        {.first = 0, .rows = 4, .from = 0, .to = 5, .queries = 6},
        {.first = 1, .rows = 2, .from = 5, .to = 9, .queries = 3, .level = 1},
        {.first = 4, .rows = 3, .from = 0, .to = 7, .queries = 10},
        {.first = 5, .rows = 2, .from = 7, .to = 8, .queries = 8, .level = 1},
        {.first = 7, .rows = 2, .from = 0, .to = 2, .queries = 2}};
    const fig_prefixes prefixes = {.costs = {.page_tokens = 16}, .groups = found, .group_count = 5};
    return fig_prefix_groups_take(&prefixes, limit, taken);
}

static void groups_count_in_tokens(void **state) {
    (void)state;
    assert_int_equal(take(18), 5);
    assert_int_equal(taken[1].first, 1);
    assert_int_equal(taken[1].rows, 2);
    assert_int_equal(taken[1].from, 80);
    assert_int_equal(taken[1].to, 144);
}

static void a_group_beyond_the_limit_goes_with_those_inside_it(void **state) {
    (void)state;
    assert_int_equal(take(17), 4); /* the limit leaves no room for the last group */
    assert_int_equal(take(15), 3); /* room for the last group, but not for the second pair */
    assert_int_equal(taken[2].first, 7);
    assert_int_equal(take(8), 3);
    assert_int_equal(take(7), 2);
    assert_int_equal(take(5), 1); /* only the last group fits */
    assert_int_equal(taken[0].first, 7);
    assert_int_equal(take(1), 0);
}

/* A strip holds query tokens of up to 2 x 64 vectors, and reads the group's tokens once. */
static void a_group_saves_what_its_strips_do_not_read(void **state) {
    (void)state;
    const fig_strips_shape shape = {.ratio = 4};
    const fig_strip_group groups[] = {{.rows = 40, .to = 100}, {.rows = 3, .from = 100, .to = 164}};
    fig_prefix_reads reads = {0};
    fig_prefix_groups_count(&shape, &groups[0], 40, &reads); /* two strips of 32 query tokens */
    assert_int_equal(reads.read, 200);
    assert_int_equal(reads.saved, 3800);
    fig_prefix_groups_count(&shape, &groups[1], 32, &reads); /* several query tokens of a row */
    assert_int_equal(reads.read, 264);
    assert_int_equal(reads.saved, 3928);
}

static void costs_have_the_units_of_strips(void **state) {
    (void)state;
    const fig_strips_shape shape = {.ratio = 8, .head_dim = 128, .tile_tokens = 128};
    const fig_prefixes_costs costs = fig_prefix_groups_costs(&shape, 24);
    assert_int_equal(costs.page_tokens, 24);
    assert_int_equal(costs.query_limit, 8);
    assert_int_equal(costs.strip_queries, 16);
    assert_int_equal(costs.tile, 16 * fig_strips_cost_of(&shape, 8).tile);
    assert_int_equal(costs.lone_once, 16 * fig_strips_cost_scaled(&shape, 9, 8).once);
    assert_int_equal(costs.strip_once, 16 * fig_strips_cost_scaled(&shape, 80, 16).once);
    assert_int_equal(costs.strip_tile, 16 * fig_strips_shared_cost_of(&shape, 9).tile);
    assert_true(costs.partial > 0);
}

/* ---- Where groups pay off -------------------------------------------------------------------- */

enum { ROWS = 256, PAGE_TOKENS = 16, PAGES = 32768 / PAGE_TOKENS, OWN = 256 };

/* Returns 1 if rows that begin with the same `prefix` tokens share them on an H200. */
static int shares(int32_t rows, int32_t prefix) {
    static int32_t pages[PAGES], lengths[ROWS];
    const fig_strips_shape shape = {
        .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = 132};
    const fig_prefixes_costs costs = fig_prefix_groups_split_costs(&shape, PAGE_TOKENS);
    const fig_prefixes_step step = {.rows = rows, .row_tokens = 1, .lengths = lengths};
    fig_page_order order;
    fig_prefixes prefixes;
    assert_int_equal(fig_page_order_init(&order, &(fig_page_order_limits){ROWS, PAGES}), FIG_OK);
    assert_int_equal(fig_prefixes_init(&prefixes, ROWS, ROWS), FIG_OK);
    for (int32_t i = 0; i < PAGES; i++)
        pages[i] = i + 1;
    for (int32_t row = 0; row < rows; row++) {
        lengths[row] = prefix + OWN;
        fig_page_order_set(&order, row, 0, prefix / PAGE_TOKENS, pages);
    }
    fig_prefixes_find(&prefixes, &order, &costs, &step);
    const int found = prefixes.group_count > 0;
    fig_prefixes_finish(&prefixes);
    fig_page_order_finish(&order);
    return found;
}

static void rows_share_where_an_h200_gained_from_it(void **state) {
    (void)state;
    FILE *file = fopen("tools/bench/results/h200_share.csv", "r");
    char line[256];
    int cells = 0, slower = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        int32_t rows, prefix;
        double us, shared_us;
        if (sscanf(line, "%d,%d,%*d,%lf,%lf", &rows, &prefix, &us, &shared_us) != 4) continue;
        if (shares(rows, prefix) != (shared_us < us))
            fail_msg("%d rows of %d tokens: %g us, shared %g", rows, prefix, us, shared_us);
        cells++;
        slower += shared_us > us;
    }
    fclose(file);
    assert_int_equal(cells, 11);
    assert_true(slower > 0); /* otherwise this test does not show what a second launch costs */
}

static void a_few_rows_of_short_prefixes_do_not_share(void **state) {
    (void)state;
    assert_int_equal(shares(2, 2048), 0);
    assert_int_equal(shares(4, 1024), 0);
    assert_int_equal(shares(256, 128), 0);
    assert_int_equal(shares(8, 16384), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_count_in_tokens),
        cmocka_unit_test(a_group_beyond_the_limit_goes_with_those_inside_it),
        cmocka_unit_test(a_group_saves_what_its_strips_do_not_read),
        cmocka_unit_test(costs_have_the_units_of_strips),
        cmocka_unit_test(rows_share_where_an_h200_gained_from_it),
        cmocka_unit_test(a_few_rows_of_short_prefixes_do_not_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

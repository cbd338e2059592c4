/* test_graph_refs.c: tests that the last holder of a graph to drop its reference frees the graph,
 * on any thread. */
#include "engine/seam/graph_refs.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/fault.h"

enum { THREADS = 4, PIECES = 200 };

static void the_engines_own_reference_does_not_count_as_a_piece(void **state) {
    (void)state;
    fig_graph_refs *refs = fig_graph_refs_create();
    assert_non_null(refs);
    assert_int_equal(fig_graph_refs_pieces(refs), 0);
    fig_graph_refs_take(refs);
    fig_graph_refs_take(refs);
    assert_int_equal(fig_graph_refs_pieces(refs), 2);
    fig_graph_refs_drop(refs);
    assert_int_equal(fig_graph_refs_pieces(refs), 1);
    /* The engine's reference goes before the last piece's here. The other order is tested too. */
    fig_graph_refs_drop(refs);
    fig_graph_refs_drop(refs);
    fig_graph_refs_drop(NULL);
}

static void a_failed_allocation_gives_null(void **state) {
    (void)state;
    fig_fault_arm(1);
    assert_null(fig_graph_refs_create());
    fig_fault_disarm();
}

static void *drop_pieces(void *refs) {
    for (int i = 0; i < PIECES; i++)
        fig_graph_refs_drop(refs);
    return NULL;
}

static void threads_drop_pieces_while_the_engine_closes(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    fig_graph_refs *refs = fig_graph_refs_create();
    assert_non_null(refs);
    for (int i = 0; i < THREADS * PIECES; i++)
        fig_graph_refs_take(refs);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, drop_pieces, refs), 0);
    fig_graph_refs_drop(refs);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engines_own_reference_does_not_count_as_a_piece),
        cmocka_unit_test(a_failed_allocation_gives_null),
        cmocka_unit_test(threads_drop_pieces_while_the_engine_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

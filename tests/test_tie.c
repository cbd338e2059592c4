/* test_tie.c: who lets go last frees, on whatever thread. */
#include "engine/tie.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/fault.h"

enum { THREADS = 4, PIECES = 200 };

static void pieces_are_counted_beside_the_engines_end(void **state) {
    (void)state;
    fig_tie *tie = fig_tie_create();
    assert_non_null(tie);
    assert_int_equal(fig_tie_pieces(tie), 0);
    fig_tie_take(tie);
    fig_tie_take(tie);
    assert_int_equal(fig_tie_pieces(tie), 2);
    fig_tie_drop(tie);
    assert_int_equal(fig_tie_pieces(tie), 1);
    fig_tie_drop(tie); /* the engine's; the piece's is left, in the other order as well */
    fig_tie_drop(tie);
    fig_tie_drop(NULL);
}

static void without_memory_there_is_none(void **state) {
    (void)state;
    fig_fault_arm(1);
    assert_null(fig_tie_create());
    fig_fault_disarm();
}

static void *drop_pieces(void *tie) {
    for (int i = 0; i < PIECES; i++)
        fig_tie_drop(tie);
    return NULL;
}

static void threads_let_go_while_the_engine_closes(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    fig_tie *tie = fig_tie_create();
    assert_non_null(tie);
    for (int i = 0; i < THREADS * PIECES; i++)
        fig_tie_take(tie);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, drop_pieces, tie), 0);
    fig_tie_drop(tie);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_counted_beside_the_engines_end),
        cmocka_unit_test(without_memory_there_is_none),
        cmocka_unit_test(threads_let_go_while_the_engine_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_fork_check.c: tests what a child process may do with an engine that its parent opened. */
#include "engine/seam/fork_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/fault.h"
#include "tests/support/gate.h"

enum { CHILD_S = 20 };

/* Returns 0 if every call in the child gave the right answer. */
static int use_as_child(fig_engine *engine) {
    const fig_step step = fig_gate_step(1);
    fig_progress progress = {.size = sizeof progress};
    float act = 0;
    const fig_span span = {.size = sizeof span, .name = "act", .bytes = sizeof act};
    const fig_status seen[] = {fig_engine_step(engine, &step),
                               fig_engine_stage(engine, &step),
                               fig_engine_launch(engine),
                               fig_engine_take_back(engine),
                               fig_engine_wait(engine, -1),
                               fig_engine_poll(engine, &progress),
                               fig_engine_read(engine, &span, &act),
                               fig_engine_prepare(engine, 0),
                               fig_engine_signal(engine, NULL),
                               fig_engine_close_within(engine, -1),
                               fig_engine_close(engine)};
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++)
        if (seen[i] != FIG_LOST) return (int)i + 1;
    return strstr(fig_message(), "forked") != NULL ? 0 : 100;
}

static void a_child_gets_an_error_and_its_parent_goes_on(void **state) {
    (void)state;
    fig_gate g;
    const fig_step step = fig_gate_step(2);
    fig_gate_open(&g, NULL);
    for (int round = 0; round < 2; round++) {
        int status = 0;
        /* still in flight at the fork */
        assert_int_equal(fig_engine_step(g.engine, &step), FIG_OK);
        const pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_S);
            _exit(use_as_child(g.engine));
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status)); /* otherwise the child hung */
        assert_int_equal(WEXITSTATUS(status), 0);
        fig_gate_wait(&g);
        assert_int_equal(g.calls, round + 1);
    }
    fig_gate_close(&g);
}

static void a_failed_allocation_of_a_page_gives_a_status(void **state) {
    (void)state;
    fig_fork_check check;
    fig_fault_arm(1);
    const fig_status status = fig_fork_check_open(&check);
    fig_fault_disarm();
    assert_int_equal(status, FIG_NOMEM);
    fig_fork_check_close(&check);
    assert_int_equal(fig_fork_check_open(&check), FIG_OK);
    assert_false(fig_fork_check_is_child(&check));
    fig_fork_check_close(&check);
    fig_fork_check_close(&check);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_gets_an_error_and_its_parent_goes_on),
        cmocka_unit_test(a_failed_allocation_of_a_page_gives_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

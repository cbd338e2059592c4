/* test_rally.c: tests ranks within this process: the measured time of an all-reduce, and the reason
 * that is reported if the ranks cannot meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/doctor/rally.h"
#include "include/figraph_unstable.h"
#include "tests/support/fault.h"

typedef struct told {
    int count;
    fig_verdict verdict;
    char text[512];
} told;

static void note(void *user, const fig_finding *finding) {
    told *all = user;
    assert_string_equal(finding->subject, "ranks");
    all->count++;
    all->verdict = finding->verdict;
    snprintf(all->text, sizeof all->text, "%s", finding->text);
}

static void ranks_of_the_host_add_up_and_are_timed(void **state) {
    (void)state;
    for (int32_t count = 2; count <= 4; count += 2) {
        fig_rally rally;
        assert_int_equal(fig_rally_run(FIG_DEVICE_HOST, count, &rally), FIG_OK);
        assert_true(rally.ns[0] > 0 && rally.ns[1] > 0);
    }
}

static void the_times_of_all_reduces_are_reported(void **state) {
    (void)state;
    told all = {.count = 0};
    assert_int_equal(fig_examine_ranks(FIG_DEVICE_HOST, 2, note, &all), FIG_OK);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.verdict, FIG_VERDICT_FINE);
    assert_non_null(strstr(all.text, "an all-reduce over 2 ranks of the host takes "));
    assert_non_null(strstr(all.text, " us for 16 KiB and "));
    assert_non_null(strstr(all.text, " us for 128 KiB"));
}

/* With two GPUs the ranks can meet. With fewer, the reason is reported as a fault. */
static void gpus_that_cannot_meet_are_a_fault(void **state) {
    (void)state;
    told all = {.count = 0};
    fig_rally rally;
    const int meet = fig_rally_run(FIG_DEVICE_CUDA, 2, &rally) == FIG_OK;
    assert_int_equal(fig_examine_ranks(FIG_DEVICE_CUDA, 2, note, &all), FIG_OK);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.verdict, meet ? FIG_VERDICT_FINE : FIG_VERDICT_FAULT);
    assert_true(strlen(all.text) > 0);
}

static void a_lack_of_memory_or_threads_gives_a_status_and_nobody_waits(void **state) {
    (void)state;
    for (int64_t n = 1;; n += FIG_FAULT_STRIDE) {
        fig_rally rally;
        fig_fault_arm(n);
        const fig_status status = fig_rally_run(FIG_DEVICE_HOST, 2, &rally);
        if (fig_fault_disarm() < n) break;
        /* For some failures there is a fallback, as for huge pages. */
        if (status == FIG_OK) continue;
        assert_int_not_equal(status, FIG_TIMEOUT);
        assert_string_not_equal(fig_message(), "");
    }
}

static void wrong_counts_are_refused(void **state) {
    (void)state;
    told all = {.count = 0};
    assert_int_equal(fig_examine_ranks(FIG_DEVICE_HOST, 1, note, &all), FIG_INVALID);
    assert_int_equal(fig_examine_ranks(FIG_DEVICE_HOST, 9, note, &all), FIG_INVALID);
    assert_int_equal(fig_examine_ranks(FIG_DEVICE_HOST, 2, NULL, &all), FIG_INVALID);
    assert_int_equal(all.count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_the_host_add_up_and_are_timed),
        cmocka_unit_test(the_times_of_all_reduces_are_reported),
        cmocka_unit_test(gpus_that_cannot_meet_are_a_fault),
        cmocka_unit_test(a_lack_of_memory_or_threads_gives_a_status_and_nobody_waits),
        cmocka_unit_test(wrong_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_codec_faults.c: tests that if memory runs out, a file is written or read completely or not
 * at all.
 *
 * Uses the sample that has every section. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/files/sections.h"
#include "graphs/graphs.h"
#include "tests/support/files/archived.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"

static void writing_survives_every_failed_allocation(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_breadth();
    fig_archived_fill(graphs);
    const fig_codec_parts parts = {.program = graphs->program,
                                   .target = graphs->target,
                                   .buckets = graphs->buckets,
                                   .made_digests = graphs->made_digests,
                                   .bucket_count = graphs->bucket_count,
                                   .maker = graphs->maker,
                                   .notes = graphs->notes,
                                   .archive = graphs->archive};
    for (int64_t n = 1;; n++) {
        uint8_t *bytes, content_id[32];
        size_t count;
        fig_fault_arm(n);
        fig_status status = fig_codec_write(&parts, &bytes, &count);
        if (status == FIG_OK) status = fig_codec_content_id(&parts, content_id);
        const int64_t seen = fig_fault_disarm();
        free(bytes);
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            assert_true(n > 3);
            break;
        }
        assert_int_equal(status, FIG_NOMEM);
        assert_true(strlen(fig_message()) > 0);
    }
    fig_graphs_destroy(graphs);
}

static void reading_survives_every_failed_allocation(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_breadth();
    fig_archived_fill(made);
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(made, &bytes, &count), FIG_OK);
    for (int64_t n = 1;; n++) {
        fig_graphs *graphs;
        fig_fault_arm(n);
        const fig_status status = fig_graphs_parse(&graphs, bytes, count);
        const int64_t seen = fig_fault_disarm();
        fig_graphs_destroy(graphs);
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            assert_true(n > FIG_SECTION_COUNT);
            break;
        }
        assert_int_equal(status, FIG_NOMEM);
        assert_null(graphs);
        assert_true(strlen(fig_message()) > 0);
    }
    free(bytes);
    fig_graphs_destroy(made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing_survives_every_failed_allocation),
        cmocka_unit_test(reading_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

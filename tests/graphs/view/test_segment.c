/* test_segment.c: tests the names of segments, and the lookup of a node's segment. test_restore.c
 * tests arrays from files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/view/segment.h"
#include "tests/support/random.h"
#include "tests/support/files/sample.h"

static void a_segment_cannot_have_the_engines_name_fetch(void **state) {
    (void)state;
    static const char *const sound[] = {"a", "attn.0", "fetch.0", "fetc", "Fetch", "act-1_2"};
    for (size_t i = 0; i < sizeof sound / sizeof sound[0]; i++)
        assert_int_equal(fig_segment_check_name(sound[i]), FIG_OK);
    FIG_SAMPLE_REFUSES(fig_segment_check_name("fetch"), FIG_INVALID, "segment fetch: ");
    FIG_SAMPLE_REFUSES(fig_segment_check_name(""), FIG_INVALID, "segment: name \"\" is not");
    FIG_SAMPLE_REFUSES(fig_segment_check_name("a b"), FIG_INVALID, "segment: name \"a b\"");
    FIG_SAMPLE_REFUSES(fig_segment_check_name(NULL), FIG_INVALID, "segment: name is NULL");
}

/* Compares the lookup with a list of every node's segment. The segments need no names here. */
static void the_lookup_finds_the_segment_of_every_node(void **state) {
    (void)state;
    enum { SEGMENTS = 9, NODES = 64 };
    fig_random random = fig_random_seed(3);
    for (int round = 0; round < 500; round++) {
        fig_segment segments[SEGMENTS];
        const fig_segment *of[NODES] = {NULL};
        fig_program_view view = {.segments = segments};
        const uint32_t count = (uint32_t)fig_random_range(&random, 0, SEGMENTS);
        for (; view.segment_count < count; view.segment_count++) {
            fig_segment *segment = &segments[view.segment_count];
            segment->node = view.node_count + (uint32_t)fig_random_range(&random, 0, 3);
            segment->node_count = (uint32_t)fig_random_range(&random, 1, 4);
            view.node_count = segment->node + segment->node_count;
            for (uint32_t n = segment->node; n < view.node_count; n++)
                of[n] = segment;
        }
        view.node_count++;
        for (uint32_t n = 0; n < view.node_count; n++)
            assert_ptr_equal(fig_segment_of(&view, n), of[n]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_cannot_have_the_engines_name_fetch),
        cmocka_unit_test(the_lookup_finds_the_segment_of_every_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

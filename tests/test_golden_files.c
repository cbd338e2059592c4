/* test_golden_files.c: files of earlier versions are read for ever, under the id that they had.
 *
 * What they compute is test_golden.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/files/file.h"
#include "graphs/files/sections.h"
#include "graphs/graphs.h"
#include "tests/support/stranger.h"

static uint32_t section_count_of(const fig_graphs *graphs) {
    fig_file_header header;
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    memcpy(&header, bytes, sizeof header);
    free(bytes);
    return header.section_count;
}

static const struct golden {
    const char *path, *content_id;
    int32_t layers, tensors, nodes, buckets;
} golden[] = {
    {"tests/golden/mixed.fig", "b27282696fdfafcf6d0eefa31b9a8bfc54ea572d6044d5c6c00c2177f88dc0c2",
     2, 17, 13, 4},
    {"tests/golden/llama-3.1-8b.fig",
     "68a303fde098be1bbbb7ec4ba732021cc01c79f1b8975f606f9ae0b0f5234d41", 32, 257, 128, 198},
    {"tests/golden/breadth.fig", "fbf39215a1ddc602043aedd3f1d00c92f418948df6f135a83006e8ade4f895a5",
     2, 38, 15, 2},
};

/* Its id stays, however the library lowers it now and whatever has changed in its kernels. */
static void golden_files_load_for_ever(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        const struct golden *g = &golden[i];
        fig_graphs *graphs;
        fig_graphs_info info = {.size = sizeof info};
        if (fig_graphs_load(&graphs, g->path) != FIG_OK) fail_msg("%s", fig_message());
        fig_graphs_read_info(graphs, &info);
        assert_int_equal(info.spec->layers, g->layers);
        assert_int_equal(info.tensor_count, g->tensors);
        assert_int_equal(info.node_count, g->nodes);
        assert_int_equal(info.bucket_count, g->buckets);
        assert_string_equal(info.content_id, g->content_id);
        /* They are older than segments, records, notes and images, and say as little of them once
         * saved. */
        assert_int_equal(section_count_of(graphs), FIG_SECTION_SEGM);
        fig_stranger_use(graphs);
        fig_stranger_step(graphs);
        fig_graphs_destroy(graphs);
    }
}

/* One with notes and kernels, which no library has: they are kept to the byte. */
static void a_golden_file_with_kernels_in_it_keeps_them(void **state) {
    (void)state;
    fig_graphs *graphs;
    fig_graphs_info info = {.size = sizeof info};
    fig_note note = {.size = sizeof note};
    uint8_t *bytes;
    size_t count;
    if (fig_graphs_load(&graphs, "tests/golden/archived.fig") != FIG_OK)
        fail_msg("%s", fig_message());
    fig_graphs_read_info(graphs, &info);
    assert_string_equal(info.content_id,
                        "a64b08e950592a74197bc58bb71a051fbc4241181421fdad9842bb5df31634b6");
    assert_int_equal(graphs->archive.image_count, 23);
    assert_int_equal(fig_graphs_note(graphs, 0, &note), FIG_OK);
    assert_string_equal(note.value, "a test");
    uint8_t *written;
    size_t written_count;
    assert_int_equal(fig_graphs_write(graphs, &written, &written_count), FIG_OK);
    assert_int_equal(fig_file_read("tests/golden/archived.fig", 1 << 20, &bytes, &count), FIG_OK);
    assert_int_equal(written_count, count);
    free(bytes);
    fig_graphs *again;
    assert_int_equal(fig_graphs_parse(&again, written, written_count), FIG_OK);
    assert_int_equal(again->archive.stored_bytes, graphs->archive.stored_bytes);
    assert_memory_equal(again->archive.code, graphs->archive.code, again->archive.stored_bytes);
    free(written);
    fig_graphs_destroy(again);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_files_load_for_ever),
        cmocka_unit_test(a_golden_file_with_kernels_in_it_keeps_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

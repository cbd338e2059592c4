/* test_golden_files.c: tests that files of format 1 can be read for ever, keep their id, and are
 * saved with the same contents.
 *
 * test_golden.c tests what they compute. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/files/file.h"
#include "graphs/files/sections.h"
#include "graphs/graphs.h"
#include "graphs/view/hash.h"
#include "tests/support/files/forgery.h"
#include "tests/support/files/stranger.h"

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* Files may be added when the format grows. None may be changed or removed. */
static const struct listed {
    const char *name, *sha256;
} listed[] = {
    {"mixed.fig", "d521756356914f6f459024097b4e304529255ac5789b370d76ccfaaca9349dcd"},
    {"llama-3.1-8b.fig", "106da06342c16314072ca79b654c4d892c439e627bd5ad2de15ee037c4891403"},
    {"breadth.fig", "4cfa9892fa13aea28056894c2b62f7ad28925ae0859938304bde6f46bdcbd7a1"},
    {"archived.fig", "50aa7549bcd68663b96a4592ff69b9dfc6e51262f3713e5197632da7fe45ecde"},
    {"families.fig", "13d32a49da90494667a4b9587bee54ac1d184ab1b6b25d8d3a8bebf1548c55d5"},
    /* Its last node has 12 operands, four fewer than this library's row, and stores a table of
     * zeros as one word. */
    {"ends.fig", "aa0f42ea0202da569fe22e84843a28165b3118a6e0cb065f1f40e57f7ba1f094"},
    /* It has a score, and code that stands for it when compiled. */
    {"scores.fig", "145b9bd95c3d6b0a02a76c53ecbb19a7fb4e181e9769ddcfd8f7dc382fbdbbde"},
    {"mixed.numbers", "99df2944fa7f5986e9d686e4f58ebe734912cd7d02982c571f3923fd69187c62"},
    {"breadth.numbers", "b1d1540d5a60a923a0f54bae6db9e8c7860b30d802d641bbfbbc970f61624551"},
    {"families.numbers", "679efe7df0b01fc5dbd350266de57146b3525d36e85f870eef3df46696201593"},
};
enum { LISTED = sizeof listed / sizeof listed[0], GOLDEN_LIMIT = 1 << 20 };

static uint8_t *read_golden(const char *name, size_t *count) {
    char path[320];
    uint8_t *bytes;
    snprintf(path, sizeof path, "tests/golden/%s", name);
    if (fig_file_read(path, GOLDEN_LIMIT, &bytes, count) != FIG_OK) fail_msg("%s", fig_message());
    return bytes;
}

static void golden_files_are_what_they_were_when_the_format_was_frozen(void **state) {
    (void)state;
    for (int i = 0; i < LISTED; i++) {
        fig_hash_sha256 hash;
        uint8_t digest[32];
        char hex[65];
        size_t count;
        uint8_t *bytes = read_golden(listed[i].name, &count);
        fig_hash_sha256_init(&hash);
        fig_hash_sha256_add(&hash, bytes, count);
        fig_hash_sha256_finish(&hash, digest);
        for (size_t at = 0; at < sizeof digest; at++)
            snprintf(hex + 2 * at, 3, "%02x", digest[at]);
        assert_string_equal(hex, listed[i].sha256);
        free(bytes);
    }
}

static void each_golden_file_is_listed(void **state) {
    (void)state;
    int seen = 0;
    DIR *folder = opendir("tests/golden");
    assert_non_null(folder);
    for (const struct dirent *file; (file = readdir(folder)) != NULL;) {
        int is_listed = file->d_name[0] == '.';
        for (int i = 0; i < LISTED; i++)
            is_listed |= strcmp(listed[i].name, file->d_name) == 0;
        if (!is_listed) fail_msg("%s is not listed", file->d_name);
        seen += file->d_name[0] != '.';
    }
    closedir(folder);
    assert_int_equal(seen, LISTED);
}

/* Compares the sections' contents. Their compressed bytes differ between versions of zstd. */
static void assert_same_sections(const uint8_t *was, size_t was_count, const uint8_t *is,
                                 size_t is_count) {
    fig_file_header a, b;
    fig_forgery x, y;
    memcpy(&a, was, sizeof a);
    memcpy(&b, is, sizeof b);
    assert_int_equal(a.format, 1);
    b.file_bytes = a.file_bytes;
    memcpy(b.check, a.check, sizeof a.check);
    assert_memory_equal(&a, &b, sizeof a);
    fig_forgery_open(&x, was, was_count);
    fig_forgery_open(&y, is, is_count);
    assert_int_equal(x.count, y.count);
    for (uint32_t i = 0; i < x.count; i++) {
        fig_forgery_section *p = &x.sections[i], *q = &y.sections[i];
        q->entry.offset = p->entry.offset;
        q->entry.stored_bytes = p->entry.stored_bytes;
        assert_memory_equal(&p->entry, &q->entry, sizeof p->entry);
        assert_int_equal(p->raw_bytes, q->raw_bytes);
        assert_memory_equal(p->raw, q->raw, p->raw_bytes);
    }
    fig_forgery_close(&x);
    fig_forgery_close(&y);
}

static void a_golden_file_is_saved_as_it_was(void **state) {
    (void)state;
    for (int i = 0; i < LISTED; i++) {
        fig_graphs *graphs;
        size_t count, written_count;
        uint8_t *written, *bytes;
        if (strstr(listed[i].name, ".fig") == NULL) continue;
        bytes = read_golden(listed[i].name, &count);
        if (fig_graphs_parse(&graphs, bytes, count) != FIG_OK) fail_msg("%s", fig_message());
        assert_int_equal(fig_graphs_write(graphs, &written, &written_count), FIG_OK);
        assert_same_sections(bytes, count, written, written_count);
        fig_graphs_destroy(graphs);
        free(written);
        free(bytes);
    }
}

/* ---- Contents -------------------------------------------------------------------------------- */

static const struct golden {
    const char *path, *content_id;
    int32_t layers, tensors, nodes, buckets;
} golden[] = {
    {"tests/golden/mixed.fig", "75fb83710bb7f840d24a30aac098986c38efbf5aaf5678e39dc0f0b3d7ce0d7e",
     2, 17, 13, 4},
    {"tests/golden/llama-3.1-8b.fig",
     "c2be590d1c1aa969f551961a7580ae0d45bfbd845065a8cb811686ffa90f20f0", 32, 257, 128, 198},
    {"tests/golden/breadth.fig", "a5d267474a541952d6e670126ad4ad0153bb1f55b4b8a45d25696a1a3ffa9766",
     2, 38, 15, 2},
    {"tests/golden/families.fig",
     "a01304a110b13256007c678469b011f1d47569d3a68fe3eee8714b2c0d1de092", 4, 38, 9, 5},
};

/* The id stays the same, however lowering and kernels have changed. */
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
        fig_stranger_use(graphs);
        fig_stranger_step(graphs);
        fig_graphs_destroy(graphs);
    }
}

/* The file has notes, and kernels that no library has. Both are kept exactly. */
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
                        "efaad74a6e382c0530cfd77457a0c8d193ccb681baf076dfdf639a8c997b430c");
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
        cmocka_unit_test(golden_files_are_what_they_were_when_the_format_was_frozen),
        cmocka_unit_test(each_golden_file_is_listed),
        cmocka_unit_test(a_golden_file_is_saved_as_it_was),
        cmocka_unit_test(golden_files_load_for_ever),
        cmocka_unit_test(a_golden_file_with_kernels_in_it_keeps_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

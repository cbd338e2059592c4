/* test_golden_damage.c: tests that a golden file with any changed byte, or cut anywhere, is refused
 * or harmless.
 *
 * There are three kinds of change: damage, which the checksum notices; a forger's change, whose
 * hashes are corrected; and a change to a section's contents. If DAMAGE is "3/64", the test makes
 * part 3 of 64 of all possible changes, of every byte to every other value; `make test-damage` runs
 * all parts. Otherwise it changes every byte to one other value, and only some bytes of the
 * sections. Each test prints how many changes it made and how many of them the library accepted. */
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

enum { GOLDEN_COUNT = 5, LARGE = GOLDEN_COUNT - 1, SAMPLE_STRIDE = 9973, USE_STRIDE = 64 };
enum { SEEN_LIMIT = 1 << 20 };

typedef struct golden {
    const char *path;
    uint8_t *bytes, content_id[32];
    size_t count;
} golden;

/* The large file comes last. */
static golden all[GOLDEN_COUNT] = {{.path = "tests/golden/mixed.fig"},
                                   {.path = "tests/golden/breadth.fig"},
                                   {.path = "tests/golden/families.fig"},
                                   {.path = "tests/golden/archived.fig"},
                                   {.path = "tests/golden/llama-3.1-8b.fig"}};

static int read_all(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        fig_graphs *graphs;
        if (fig_file_read(all[i].path, FIG_FILE_BYTES_LIMIT, &all[i].bytes, &all[i].count) !=
                FIG_OK ||
            fig_graphs_parse(&graphs, all[i].bytes, all[i].count) != FIG_OK)
            return 1;
        memcpy(all[i].content_id, graphs->content_id, sizeof all[i].content_id);
        fig_graphs_destroy(graphs);
    }
    return 0;
}

static int free_all(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++)
        free(all[i].bytes);
    return 0;
}

/* Which changes to make: part `part` of `parts`; if `parts` is 0, a sample. */
static int part, parts;
static long turn, tried, accepted;

static int read_part(void **state) {
    (void)state;
    const char *damage = getenv("DAMAGE");
    if (damage != NULL &&
        (sscanf(damage, "%d/%d", &part, &parts) != 2 || part < 0 || part >= parts))
        return 1;
    turn = tried = accepted = 0;
    return 0;
}

static int tell(void **state) {
    (void)state;
    print_message("%ld changes, %ld accepted\n", tried, accepted);
    return 0;
}

/* Returns 1 if this change must be made. Without parts, one of every `sample` changes is made. */
static int is_next(long sample) {
    const long mine = parts > 0 ? turn % parts == part : turn % sample == 0;
    turn++;
    tried += mine;
    return (int)mine;
}

/* Returns the first mask of a byte's changes. With parts all masks from 1 are used, otherwise only
 * 255. */
static int first_mask(void) {
    return parts > 0 ? 1 : 255;
}

/* Returns graphs, which the caller destroys, or NULL if the bytes were refused with a message. The
 * bytes are copied to memory of exactly their size. */
static fig_graphs *parse(const uint8_t *bytes, size_t count) {
    uint8_t *exact = malloc(count > 0 ? count : 1);
    fig_graphs *graphs;
    assert_non_null(exact);
    memcpy(exact, bytes, count);
    const fig_status status = fig_graphs_parse(&graphs, exact, count);
    free(exact);
    if (status != FIG_OK && status != FIG_FORMAT && status != FIG_STALE)
        fail_msg("%s: %s", fig_status_name(status), fig_message());
    assert_true((status == FIG_OK) == (graphs != NULL));
    assert_true(status == FIG_OK || strlen(fig_message()) > 0);
    return graphs;
}

static void every_changed_byte_is_found(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        for (size_t at = 0; at < all[i].count; at++) {
            for (int mask = first_mask(); mask < 256; mask++) {
                if (!is_next(1)) continue;
                all[i].bytes[at] ^= (uint8_t)mask;
                assert_null(parse(all[i].bytes, all[i].count));
                all[i].bytes[at] ^= (uint8_t)mask;
            }
        }
    }
}

static void every_cut_is_found_also_where_the_hashes_agree(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        uint8_t *bytes = malloc(all[i].count);
        assert_non_null(bytes);
        for (size_t count = 0; count < all[i].count; count++) {
            const uint64_t file_bytes = count;
            if (!is_next(1)) continue;
            assert_null(parse(all[i].bytes, count));
            if (count < sizeof(fig_file_header)) continue;
            memcpy(bytes, all[i].bytes, count);
            memcpy(bytes + offsetof(fig_file_header, file_bytes), &file_bytes, sizeof file_bytes);
            fig_forgery_seal(bytes, count);
            assert_null(parse(bytes, count));
        }
        free(bytes);
    }
}

/* Corrects the checksum only. The content id still covers everything that the graphs mean. */
static void every_changed_byte_that_was_sealed_is_found_or_means_nothing(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        uint8_t *bytes = malloc(all[i].count);
        assert_non_null(bytes);
        for (size_t at = 0; at < all[i].count; at++) {
            for (int mask = first_mask(); mask < 256; mask++) {
                if (!is_next(1)) continue;
                memcpy(bytes, all[i].bytes, all[i].count);
                bytes[at] ^= (uint8_t)mask;
                fig_forgery_seal(bytes, all[i].count);
                fig_graphs *graphs = parse(bytes, all[i].count);
                if (graphs == NULL) continue;
                accepted++;
                assert_memory_equal(graphs->content_id, all[i].content_id, 32);
                fig_graphs_destroy(graphs);
            }
        }
        free(bytes);
    }
}

/* Returns 1 if no earlier file had the same content, the same changed kernels and the same buckets
 * that are lowered differently. In half of all accepted files, only hashes of kernels and buckets
 * were changed. */
static int is_first(const fig_graphs *graphs) {
    static uint64_t seen[SEEN_LIMIT]; /* 0: a free place */
    uint64_t key = fig_hash_mix(graphs->changed_kernels, graphs->content_id, 32);
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        const uint8_t is_made = graphs->digests[i] == graphs->made_digests[i];
        key = fig_hash_mix(key, &is_made, sizeof is_made);
    }
    size_t at = key % SEEN_LIMIT;
    while (seen[at] != 0 && seen[at] != key)
        at = (at + 1) % SEEN_LIMIT;
    if (seen[at] == key) return 0;
    seen[at] = key;
    return 1;
}

/* So many files are accepted that only some are used: the first of each kind. */
static void change_meaning(fig_forgery *image, fig_forgery_section *section, size_t at,
                           uint8_t mask) {
    static int used;
    size_t count;
    section->raw[at] ^= mask;
    uint8_t *bytes = fig_forgery_write(image, 0, &count);
    section->raw[at] ^= mask;
    fig_graphs *graphs = parse(bytes, count);
    free(bytes);
    if (graphs == NULL) return;
    accepted++;
    if (is_first(graphs) && used++ % USE_STRIDE == 0) {
        fig_stranger_use(graphs);
        fig_stranger_step(graphs);
    }
    fig_graphs_destroy(graphs);
}

/* Changes the contents of sections and corrects all hashes. The large file has 32 equal layers, so
 * only single bits are changed there. */
static void every_changed_byte_of_a_section_is_refused_or_can_be_run(void **state) {
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        fig_forgery image;
        fig_forgery_open(&image, all[i].bytes, all[i].count);
        for (uint32_t s = 0; s < image.count; s++) {
            fig_forgery_section *section = &image.sections[s];
            for (size_t at = 0; at < section->raw_bytes; at++)
                for (int mask = 1; mask < 256; mask = i == LARGE ? 2 * mask : mask + 1)
                    if (is_next(SAMPLE_STRIDE)) change_meaning(&image, section, at, (uint8_t)mask);
        }
        fig_forgery_close(&image);
    }
    assert_true(accepted > tried / 50 && accepted < tried);
}

#define TOLD(test) cmocka_unit_test_setup_teardown(test, read_part, tell)

int main(void) {
    const struct CMUnitTest tests[] = {
        TOLD(every_changed_byte_is_found),
        TOLD(every_cut_is_found_also_where_the_hashes_agree),
        TOLD(every_changed_byte_that_was_sealed_is_found_or_means_nothing),
        TOLD(every_changed_byte_of_a_section_is_refused_or_can_be_run),
    };
    return cmocka_run_group_tests(tests, read_all, free_all);
}

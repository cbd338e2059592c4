/* test_sections.c: tests that a file's header, table and frames are accepted only in the form that
 * FORMAT.md describes.
 *
 * For each guard there is a file whose only fault is the one that the guard looks for. Its checksum
 * is correct, so without the guard the file would be read. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>
#include <zstd.h>

#include "graphs/graphs.h"
#include "tests/support/files/forgery.h"
#include "tests/support/random.h"
#include "tests/support/files/capture.h"

static uint8_t *sound; /* the file of the mixed sample */
static size_t sound_count;
static uint8_t sound_id[32];

static int set_up(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    const fig_status status = fig_graphs_write(graphs, &sound, &sound_count);
    memcpy(sound_id, graphs->content_id, sizeof sound_id);
    fig_graphs_destroy(graphs);
    return status != FIG_OK;
}

static int tear_down(void **state) {
    (void)state;
    free(sound);
    return 0;
}

/* Parses the bytes. Fails the test unless status and message are as expected. */
static void assert_parses(const char *what, const uint8_t *bytes, size_t count, fig_status expected,
                          const char *said) {
    fig_graphs *graphs;
    /* The memory ends with the file, so asan notices a read past the end. */
    uint8_t *exact = malloc(count + 1);
    assert_non_null(exact);
    if (count > 0) memcpy(exact, bytes, count);
    uint8_t *end = realloc(exact, count > 0 ? count : 1);
    assert_non_null(end);
    const fig_status status = fig_graphs_parse(&graphs, end, count);
    free(end);
    if (status != expected)
        fail_msg("%s: %s, not %s (%s)", what, fig_status_name(status), fig_status_name(expected),
                 fig_message());
    if (status == FIG_OK) assert_memory_equal(graphs->content_id, sound_id, sizeof sound_id);
    if (status != FIG_OK && strstr(fig_message(), said) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", what, fig_message(), said);
    assert_true((status == FIG_OK) == (graphs != NULL));
    fig_graphs_destroy(graphs);
}

static uint8_t *copy_of_sound(size_t room) {
    uint8_t *bytes = calloc(1, sound_count + room);
    assert_non_null(bytes);
    memcpy(bytes, sound, sound_count);
    return bytes;
}

/* ---- One field changed */

typedef struct edit {
    const char *what;
    size_t at, width;
    int step; /* 1: add the value to the present one */
    uint64_t value;
    fig_status status;
    const char *said;
} edit;

#define TEXT(word) #word
#define HEADER(field)                                                                              \
    "header." TEXT(field), offsetof(fig_file_header, field), sizeof(((fig_file_header *)0)->field)
#define ROW(section, field)                                                                        \
    TEXT(section)                                                                                  \
    "." TEXT(field),                                                                               \
        sizeof(fig_file_header) + FIG_SECTION_##section * sizeof(fig_file_section) +               \
            offsetof(fig_file_section, field),                                                     \
        sizeof(((fig_file_section *)0)->field)
#define SET(value) 0, value
#define STEP(value) 1, (uint64_t)INT64_C(value)

static const edit edits[] = {
    {HEADER(format), SET(0), FIG_STALE, "format is 0, this library reads 1"},
    {HEADER(format), SET(2), FIG_STALE, "format is 2, this library reads 1"},
    {HEADER(section_count), SET(0), FIG_FORMAT, "section ENVR is missing"},
    {HEADER(section_count), SET(65), FIG_FORMAT, "section_count is 65, limit 64"},
    {HEADER(section_count), SET(64), FIG_FORMAT, "more than the file's"},
    {HEADER(section_count), SET(UINT32_MAX), FIG_FORMAT, "section_count is 4294967295"},
    {HEADER(file_bytes), STEP(8), FIG_FORMAT, "file_bytes is"},
    {HEADER(maker), SET(123456), FIG_OK, ""},
    {HEADER(features), SET(1), FIG_STALE, "header: features are 0x1, of which"},
    {HEADER(features), SET(0x8000), FIG_STALE, "capture the graphs anew"},
    {HEADER(features), SET(0xffff0000), FIG_OK, ""},
    {HEADER(content_id), SET(0), FIG_FORMAT, "content_id does not agree"},
    {ROW(TENS, name), SET(0x41414141), FIG_STALE, "section AAAA: unknown"},
    {ROW(TENS, name), SET(0x45444f4e), FIG_FORMAT, "section NODE stands where TENS must"},
    {ROW(TENS, flags), SET(1), FIG_FORMAT, "section TENS: flags are 0x1, they must be 0"},
    {ROW(TENS, flags), SET(0x80000000), FIG_FORMAT, "flags are 0x80000000"},
    {ROW(ENVR, offset), STEP(8), FIG_FORMAT, "section ENVR: offset is"},
    {ROW(SPEC, offset), STEP(-8), FIG_FORMAT, "section SPEC: offset is"},
    {ROW(SPEC, offset), SET(UINT64_MAX), FIG_FORMAT,
     "section SPEC: offset is 18446744073709551615"},
    {ROW(DIGS, stored_bytes), STEP(8), FIG_FORMAT, "the file has"},
    {ROW(DIGS, stored_bytes), SET(UINT64_MAX), FIG_FORMAT, "stored_bytes is 18446744073709551615"},
    {ROW(DIGS, stored_bytes), SET(3), FIG_FORMAT, "padding, but not 0"},
    {ROW(STRS, raw_bytes), STEP(1), FIG_FORMAT, "its zstd frame says"},
    {ROW(STRS, raw_bytes), SET(0), FIG_FORMAT, "limits 1 to 1048576"},
    {ROW(STRS, raw_bytes), SET(UINT64_MAX), FIG_FORMAT, "raw_bytes is 18446744073709551615"},
    {ROW(STRS, raw_bytes), SET(UINT64_C(1) << 32), FIG_FORMAT, "limits 1 to 1048576"},
    {ROW(TENS, raw_bytes), STEP(4), FIG_FORMAT, "not a multiple of 48"},
    {ROW(TENS, raw_bytes), SET(48 * ((UINT64_C(1) << 14) + 1)), FIG_FORMAT, "limits 0 to 16384"},
    {ROW(BUCK, raw_bytes), SET(0), FIG_FORMAT, "limits 1 to 4096"},
    {ROW(ENVR, raw_bytes), SET(64), FIG_FORMAT, "2 items, limits 1 to 1"},
    {ROW(NODE, item_bytes), SET(24), FIG_STALE, "item_bytes is 24, this library reads 20"},
    {ROW(NODE, item_bytes), SET(0), FIG_STALE, "item_bytes is 0"},
    {ROW(OPND, reserved), SET(7), FIG_FORMAT, "section OPND: reserved is 7"},
};

static void a_field_that_is_wrong_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        const edit *e = &edits[i];
        uint64_t value = 0;
        uint8_t *bytes = copy_of_sound(0);
        const size_t width = e->width < 8 ? e->width : 8;
        memcpy(&value, bytes + e->at, width);
        value = e->step ? value + e->value : e->value;
        memcpy(bytes + e->at, &value, width);
        fig_forgery_seal(bytes, sound_count);
        assert_parses(e->what, bytes, sound_count, e->status, e->said);
        free(bytes);
    }
}

/* Flips bits in the header, the table, the frames and the padding, whatever their meaning. */
static void every_flipped_bit_is_found(void **state) {
    (void)state;
    const size_t checked = offsetof(fig_file_header, maker);
    uint8_t *bytes = copy_of_sound(0);
    for (size_t at = 0; at < sound_count; at++) {
        for (int bit = 0; bit < 8; bit++) {
            fig_graphs *graphs;
            bytes[at] ^= (uint8_t)(1 << bit);
            const fig_status status = fig_graphs_parse(&graphs, bytes, sound_count);
            bytes[at] ^= (uint8_t)(1 << bit);
            assert_null(graphs);
            if (status != FIG_FORMAT && (at >= checked || status != FIG_STALE))
                fail_msg("byte %zu, bit %d: %s", at, bit, fig_status_name(status));
            if (at >= checked && strstr(fig_message(), "header: check does not agree") == NULL)
                fail_msg("byte %zu, bit %d: \"%s\"", at, bit, fig_message());
        }
    }
    free(bytes);
}

/* ---- The file as a whole */

static void every_file_that_was_cut_is_refused(void **state) {
    (void)state;
    for (size_t count = 0; count < sound_count; count++)
        assert_parses("cut", sound, count, FIG_FORMAT, count < 72 ? "header alone" : "file_bytes");
}

/* Corrects file_bytes too, as a forger would. */
static void every_file_that_was_cut_and_sealed_is_refused(void **state) {
    (void)state;
    for (size_t count = sizeof(fig_file_header); count < sound_count; count++) {
        uint8_t *bytes = copy_of_sound(0);
        const uint64_t file_bytes = count;
        memcpy(bytes + offsetof(fig_file_header, file_bytes), &file_bytes, sizeof file_bytes);
        fig_forgery_seal(bytes, count);
        assert_parses("cut and sealed", bytes, count, FIG_FORMAT, "");
        free(bytes);
    }
}

static void bytes_after_the_end_are_refused(void **state) {
    (void)state;
    uint8_t *bytes = copy_of_sound(8);
    assert_parses("trailing", bytes, sound_count + 8, FIG_FORMAT, "file_bytes is");
    const uint64_t file_bytes = sound_count + 8;
    memcpy(bytes + offsetof(fig_file_header, file_bytes), &file_bytes, sizeof file_bytes);
    fig_forgery_seal(bytes, sound_count + 8);
    assert_parses("trailing", bytes, sound_count + 8, FIG_FORMAT, "the last section ends at byte");
    free(bytes);
}

static void a_file_beyond_the_limit_is_refused_before_it_is_read(void **state) {
    (void)state;
    fig_graphs *graphs;
    assert_int_equal(fig_graphs_parse(&graphs, sound, (size_t)FIG_FILE_BYTES_LIMIT + 1),
                     FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "limit 67108864"));
}

/* A forger has corrected the checksum, but each part's own hashes and sizes still show the
 * change. */
static void every_flipped_byte_that_was_sealed_is_found_or_harmless(void **state) {
    (void)state;
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    uint32_t harmless = 0;
    for (size_t at = 0; at < sound_count; at++) {
        for (size_t m = 0; m < sizeof masks; m++) {
            fig_graphs *graphs;
            uint8_t *bytes = copy_of_sound(0);
            bytes[at] ^= masks[m];
            fig_forgery_seal(bytes, sound_count);
            const fig_status status = fig_graphs_parse(&graphs, bytes, sound_count);
            free(bytes);
            if (status == FIG_OK) {
                harmless++;
                assert_memory_equal(graphs->content_id, sound_id, sizeof sound_id);
            } else if (status != FIG_FORMAT && status != FIG_STALE) {
                fail_msg("byte %zu ^ %#x: %s", at, masks[m], fig_status_name(status));
            }
            assert_true(status == FIG_OK || strlen(fig_message()) > 0);
            fig_graphs_destroy(graphs);
        }
    }
    /* If hashes and frames were not checked, most changes would pass. */
    assert_true(harmless < sound_count / 20);
}

static void damage_by_a_transfer_as_text_is_reported_as_such(void **state) {
    (void)state;
    static const struct {
        const char *magic, *said;
    } damaged[] = {
        {"\x09"
         "FIG\r\n\x1a\n",
         "text mode"},
        {"\x89"
         "FIG\n\x1a\n\0",
         "text mode"},
        {"\x89"
         "FIG\r\r\n\x1a",
         "text mode"},
        {"FIG\r\n\x1a\n\0", "text mode"},
        {"\x89PNG\r\n\x1a\n", "another kind"},
        {"\0\0\0\0\0\0\0\0", "another kind"},
    };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        uint8_t *bytes = copy_of_sound(0);
        memcpy(bytes, damaged[i].magic, 8);
        assert_parses("magic", bytes, sound_count, FIG_FORMAT, damaged[i].said);
        free(bytes);
    }
}

/* ---- Sections put together differently */

static void assert_image(const char *what, const fig_forgery *image, fig_status status,
                         const char *said) {
    size_t count;
    uint8_t *bytes = fig_forgery_write(image, 3, &count);
    assert_parses(what, bytes, count, status, said);
    free(bytes);
}

static void the_second_writer_writes_files_that_are_read(void **state) {
    (void)state;
    fig_forgery image;
    fig_forgery_open(&image, sound, sound_count);
    assert_int_equal(image.count, FIG_SECTION_SEGM); /* all sections except SEGM */
    assert_image("as it was", &image, FIG_OK, "");
    fig_forgery_close(&image);
}

static void sections_missing_twice_or_out_of_order_are_refused(void **state) {
    (void)state;
    for (uint32_t i = 0; i < FIG_SECTION_SEGM; i++) {
        fig_forgery image;
        fig_forgery_open(&image, sound, sound_count);
        fig_forgery_insert(&image, i, &image.sections[i]);
        assert_image("twice", &image, FIG_FORMAT, "stands where");
        fig_forgery_remove(&image, i);
        const fig_forgery_section moved = image.sections[i];
        fig_forgery_insert(&image, i == 0 ? 2 : i - 1, &moved);
        fig_forgery_remove(&image, i == 0 ? 0 : i + 1);
        assert_image("moved", &image, FIG_FORMAT, "stands where");
        fig_forgery_close(&image);
        fig_forgery_open(&image, sound, sound_count);
        fig_forgery_remove(&image, i);
        assert_image("missing", &image, FIG_FORMAT,
                     i + 1 < FIG_SECTION_SEGM ? "stands where" : "section DIGS is missing");
        fig_forgery_close(&image);
    }
}

/* ---- The optional section */

/* Takes apart a file whose program has segments. */
static void open_segments(fig_forgery *image) {
    fig_graphs *graphs = fig_capture_breadth();
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_forgery_open(image, bytes, count);
    /* If the library has records of its kernels, they are the last section; this test removes
     * them. */
    if (graphs->archive.image_count > 0) fig_forgery_remove(image, FIG_SECTION_VARI);
    assert_int_equal(image->count, FIG_SECTION_VARI);
    assert_memory_equal(image->sections[FIG_SECTION_SEGM].entry.name, "SEGM", 4);
    assert_int_equal(image->sections[FIG_SECTION_SEGM].raw_bytes, 4 * 12);
    free(bytes);
    fig_graphs_destroy(graphs);
}

static void segments_stand_last_and_once(void **state) {
    (void)state;
    fig_forgery image;
    open_segments(&image);
    fig_forgery_section *section = &image.sections[FIG_SECTION_SEGM];
    fig_forgery_insert(&image, FIG_SECTION_SEGM, section);
    assert_image("twice", &image, FIG_FORMAT, "section SEGM stands where VARI must");
    fig_forgery_remove(&image, FIG_SECTION_SEGM);
    fig_forgery_insert(&image, FIG_SECTION_DIGS, section);
    fig_forgery_remove(&image, FIG_SECTION_VARI);
    assert_image("moved", &image, FIG_FORMAT, "section SEGM stands where DIGS must");
    fig_forgery_remove(&image, FIG_SECTION_SEGM);
    assert_image("in its place", &image, FIG_FORMAT, "section SEGM stands where DIGS must");
    fig_forgery_remove(&image, FIG_SECTION_SEGM - 1);
    assert_image("both gone", &image, FIG_FORMAT, "section DIGS is missing");
    fig_forgery_close(&image);
}

static void segments_that_break_their_rule_are_refused(void **state) {
    (void)state;
    fig_forgery image;
    open_segments(&image);
    fig_forgery_section *section = &image.sections[FIG_SECTION_SEGM];
    section->entry.flags = FIG_FILE_ANCILLARY;
    assert_image("flags", &image, FIG_FORMAT, "section SEGM: flags are 0x1");
    section->entry.flags = 0;
    section->entry.item_bytes = 16;
    assert_image("item bytes", &image, FIG_STALE, "section SEGM: item_bytes is 16");
    section->entry.item_bytes = 12;
    fig_forgery_resize(&image, FIG_SECTION_SEGM, 4 * 12 + 4);
    assert_image("a part of one", &image, FIG_FORMAT, "section SEGM: raw_bytes is 52, not a");
    fig_forgery_resize(&image, FIG_SECTION_SEGM, 0);
    assert_image("none", &image, FIG_FORMAT, "section SEGM: raw_bytes is 0, 0 items, limits 1 to");
    fig_forgery_resize(&image, FIG_SECTION_SEGM, (FIG_SEGMENT_LIMIT + 1) * (size_t)12);
    assert_image("too many", &image, FIG_FORMAT, "8193 items, limits 1 to 8192");
    fig_forgery_close(&image);
}

/* A file with a shorter segment is sound but describes other graphs, so it is refused under the old
 * id. A file without the segments is refused if it still has their names. */
static void the_content_id_is_of_the_segments_too(void **state) {
    (void)state;
    fig_forgery image;
    fig_graphs *named = fig_capture_breadth(), *other;
    size_t count;
    open_segments(&image);
    fig_segment *segments = (void *)image.sections[FIG_SECTION_SEGM].raw;
    segments[3].node_count--;
    uint8_t *bytes = fig_forgery_write(&image, 3, &count);
    assert_int_equal(fig_graphs_parse(&other, bytes, count), FIG_OK);
    assert_memory_not_equal(other->content_id, named->content_id, 32);
    memcpy(bytes + offsetof(fig_file_header, content_id), named->content_id, 32);
    fig_forgery_seal(bytes, count);
    assert_parses("old id", bytes, count, FIG_FORMAT, "content_id does not agree");
    free(bytes);
    fig_forgery_remove(&image, FIG_SECTION_SEGM);
    assert_image("without", &image, FIG_FORMAT, "nothing refers to \"attn.0\"");
    fig_graphs_destroy(other);
    fig_graphs_destroy(named);
    fig_forgery_close(&image);
}

static void an_unknown_section_is_skipped_where_it_says_that_it_may_be(void **state) {
    (void)state;
    uint8_t note[] = "made on a Tuesday";
    for (uint32_t i = 0; i <= FIG_SECTION_SEGM; i++) {
        fig_forgery image;
        fig_forgery_section section = {.entry = {.name = {'N', 'O', 'T', 'E'}, .item_bytes = 1},
                                       .raw = note,
                                       .raw_bytes = sizeof note};
        fig_forgery_open(&image, sound, sound_count);
        fig_forgery_insert(&image, i, &section);
        assert_image("critical", &image, FIG_STALE, "section NOTE: unknown, flags are 0");
        image.sections[i].entry.flags = FIG_FILE_ANCILLARY;
        assert_image("ancillary", &image, FIG_OK, "");
        image.sections[i].entry.flags = FIG_FILE_ANCILLARY | 2;
        assert_image("more flags", &image, FIG_STALE, "section NOTE: unknown, flags are 0x3");
        fig_forgery_close(&image);
    }
}

/* The section claims 80 MB of zeros and takes a few KB. */
static void a_section_that_would_swell_is_refused_by_its_claim(void **state) {
    (void)state;
    fig_forgery image;
    fig_forgery_open(&image, sound, sound_count);
    fig_forgery_resize(&image, FIG_SECTION_ATTR, (size_t)80 << 20);
    assert_image("bomb", &image, FIG_FORMAT, "section ATTR: raw_bytes is 83886080");
    image.sections[FIG_SECTION_ATTR].forged = 1;
    image.sections[FIG_SECTION_ATTR].entry.raw_bytes = 8;
    assert_image("bomb in disguise", &image, FIG_FORMAT, "raw_bytes is 8, its zstd frame says");
    fig_forgery_close(&image);
}

/* Replaces the last section's frame by `frame`. */
static void assert_last_frame(const char *what, const uint8_t *frame, size_t stored,
                              const char *said) {
    fig_file_header header;
    fig_file_section last;
    const size_t row = sizeof header + FIG_SECTION_DIGS * sizeof last;
    uint8_t *bytes = copy_of_sound(stored + 8);
    memcpy(&header, bytes, sizeof header);
    memcpy(&last, bytes + row, sizeof last);
    last.stored_bytes = stored;
    memcpy(bytes + row, &last, sizeof last);
    memset(bytes + last.offset, 0, sound_count - (size_t)last.offset);
    memcpy(bytes + last.offset, frame, stored);
    header.file_bytes = (last.offset + stored + 7) / 8 * 8;
    memcpy(bytes, &header, sizeof header);
    fig_forgery_seal(bytes, (size_t)header.file_bytes);
    assert_parses(what, bytes, (size_t)header.file_bytes, said == NULL ? FIG_OK : FIG_FORMAT,
                  said == NULL ? "" : said);
    free(bytes);
}

static void a_section_is_one_frame_that_says_its_size(void **state) {
    (void)state;
    fig_forgery image;
    uint8_t frame[8192];
    fig_forgery_open(&image, sound, sound_count);
    const uint8_t *raw = image.sections[FIG_SECTION_DIGS].raw;
    const size_t raw_bytes = image.sections[FIG_SECTION_DIGS].raw_bytes;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_non_null(context);

    size_t stored = ZSTD_compress2(context, frame, sizeof frame, raw, raw_bytes);
    assert_last_frame("plain", frame, stored, NULL);
    memset(frame + stored, 0, 16);
    assert_last_frame("zeros behind", frame, stored + 16, "not that of one zstd frame");
    assert_last_frame("cut", frame, stored - 1, "not that of one zstd frame");
    const size_t second = ZSTD_compress2(context, frame + stored, sizeof frame - stored, raw, 0);
    assert_last_frame("two frames", frame, stored + second, "not that of one zstd frame");
    static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
    memmove(frame + sizeof skippable, frame, stored);
    memcpy(frame, skippable, sizeof skippable);
    assert_last_frame("frame to skip", frame, stored + sizeof skippable, "no zstd frame");
    assert_last_frame("three bytes", frame + sizeof skippable, 3, "no zstd frame");

    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    stored = ZSTD_compress2(context, frame, sizeof frame, raw, raw_bytes);
    assert_last_frame("no size", frame, stored, "its zstd frame says -1");
    ZSTD_freeCCtx(context);
    fig_forgery_close(&image);
}

/* The frame's window would make a streaming decoder allocate 128 MiB. This library's decoder does
 * not need a window. */
static void a_frame_of_a_wide_window_is_read(void **state) {
    (void)state;
    fig_forgery image;
    uint8_t frame[8192];
    fig_forgery_open(&image, sound, sound_count);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_non_null(context);
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 0);
    const fig_forgery_section *section = &image.sections[FIG_SECTION_DIGS];
    const size_t stored =
        ZSTD_compress2(context, frame, sizeof frame, section->raw, section->raw_bytes);
    assert_last_frame("window", frame, stored, NULL);
    ZSTD_freeCCtx(context);
    fig_forgery_close(&image);
}

/* ---- Random damage */

static void random_damage_is_refused_with_a_sentence(void **state) {
    (void)state;
    const uint64_t seed = 7;
    fig_random random = fig_random_seed(seed);
    for (int i = 0; i < 24000; i++) {
        fig_graphs *graphs;
        uint8_t *bytes = copy_of_sound(0);
        /* Half of the changes are in the header and the table, where every field matters. */
        const int32_t reach = i % 2 == 0 ? 72 + 10 * 40 : (int32_t)sound_count;
        for (int32_t n = fig_random_range(&random, 1, 6); n > 0; n--)
            bytes[fig_random_range(&random, 8, reach - 1)] =
                (uint8_t)fig_random_range(&random, 0, 255);
        if (i % 4 != 0) fig_forgery_seal(bytes, sound_count);
        const fig_status status = fig_graphs_parse(&graphs, bytes, sound_count);
        free(bytes);
        if (status == FIG_OK) assert_memory_equal(graphs->content_id, sound_id, sizeof sound_id);
        if (status != FIG_OK && status != FIG_FORMAT && status != FIG_STALE)
            fail_msg("seed %llu, round %d: %s", (unsigned long long)seed, i,
                     fig_status_name(status));
        if (status != FIG_OK) assert_true(strlen(fig_message()) > 0);
        fig_graphs_destroy(graphs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_that_is_wrong_is_refused_by_name),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(every_file_that_was_cut_is_refused),
        cmocka_unit_test(every_file_that_was_cut_and_sealed_is_refused),
        cmocka_unit_test(bytes_after_the_end_are_refused),
        cmocka_unit_test(a_file_beyond_the_limit_is_refused_before_it_is_read),
        cmocka_unit_test(every_flipped_byte_that_was_sealed_is_found_or_harmless),
        cmocka_unit_test(damage_by_a_transfer_as_text_is_reported_as_such),
        cmocka_unit_test(the_second_writer_writes_files_that_are_read),
        cmocka_unit_test(sections_missing_twice_or_out_of_order_are_refused),
        cmocka_unit_test(segments_stand_last_and_once),
        cmocka_unit_test(segments_that_break_their_rule_are_refused),
        cmocka_unit_test(the_content_id_is_of_the_segments_too),
        cmocka_unit_test(an_unknown_section_is_skipped_where_it_says_that_it_may_be),
        cmocka_unit_test(a_section_that_would_swell_is_refused_by_its_claim),
        cmocka_unit_test(a_section_is_one_frame_that_says_its_size),
        cmocka_unit_test(a_frame_of_a_wide_window_is_read),
        cmocka_unit_test(random_damage_is_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

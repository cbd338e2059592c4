/* test_notes.c: tests that notes are kept by key and in a fixed order, and that they hold only
 * characters that any terminal can show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "graphs/files/notes.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"
#include "tests/support/files/sample.h"

static fig_note note(const char *key, const char *value) {
    return (fig_note){sizeof(fig_note), key, value};
}

static fig_status put(fig_notes *notes, const char *key, const char *value) {
    const fig_note given = note(key, value);
    return fig_notes_change(notes, &given, 1);
}

static void assert_holds(const fig_notes *notes, const char *bytes, size_t count) {
    assert_int_equal(notes->bytes, count);
    if (count > 0) assert_memory_equal(notes->text, bytes, count);
    assert_int_equal(fig_notes_check(notes), FIG_OK);
}

static void notes_are_the_same_bytes_however_they_were_given(void **state) {
    (void)state;
    static const char due[] = "a\0first\0b\0\0c\0third";
    const fig_note given[] = {note("c", "x"), note("a", "first"), note("b", ""),
                              note("c", "third")};
    fig_notes at_once = {NULL, 0}, one_by_one = {NULL, 0};
    assert_int_equal(fig_notes_change(&at_once, given, 4), FIG_OK);
    for (int i = 3; i >= 1; i--)
        assert_int_equal(fig_notes_change(&one_by_one, &given[i], 1), FIG_OK);
    assert_holds(&at_once, due, sizeof due);
    assert_holds(&one_by_one, due, sizeof due);
    fig_notes_finish(&at_once);
    fig_notes_finish(&one_by_one);
}

static void a_note_without_a_value_is_removed(void **state) {
    (void)state;
    fig_notes notes = {NULL, 0};
    assert_int_equal(put(&notes, "b", "2"), FIG_OK);
    assert_int_equal(put(&notes, "a", "1"), FIG_OK);
    assert_int_equal(put(&notes, "c", NULL), FIG_OK);
    assert_int_equal(put(&notes, "a", NULL), FIG_OK);
    assert_holds(&notes, "b\0002", 4);
    assert_int_equal(put(&notes, "b", NULL), FIG_OK);
    assert_holds(&notes, "", 0);
    fig_notes_finish(&notes);
}

static void notes_are_found_by_number(void **state) {
    (void)state;
    fig_notes notes = {NULL, 0};
    fig_note told;
    assert_false(fig_notes_at(&notes, 0, &told));
    assert_int_equal(put(&notes, "b", "2"), FIG_OK);
    assert_int_equal(put(&notes, "a", "1"), FIG_OK);
    assert_true(fig_notes_at(&notes, 1, &told));
    assert_string_equal(told.key, "b");
    assert_string_equal(told.value, "2");
    assert_false(fig_notes_at(&notes, 2, &told));
    fig_notes_finish(&notes);
}

static void invalid_notes_are_refused(void **state) {
    (void)state;
    static char long_key[FIG_NOTE_KEY_LIMIT + 2], long_value[FIG_NOTE_VALUE_LIMIT + 2];
    fig_notes notes = {NULL, 0};
    memset(long_key, 'k', sizeof long_key - 1);
    memset(long_value, 'v', sizeof long_value - 1);
    FIG_SAMPLE_REFUSES(put(&notes, "", "v"), FIG_INVALID,
                       "note 0: its key is \"\", it must be 1 to 64");
    FIG_SAMPLE_REFUSES(put(&notes, "a b", "v"), FIG_INVALID, "its key is \"a b\"");
    FIG_SAMPLE_REFUSES(put(&notes, long_key, "v"), FIG_INVALID, "its key is");
    FIG_SAMPLE_REFUSES(put(&notes, NULL, "v"), FIG_INVALID, "note 0: key is NULL");
    FIG_SAMPLE_REFUSES(put(&notes, "k", long_value), FIG_INVALID, "note k: its value has 4097");
    FIG_SAMPLE_REFUSES(put(&notes, "k", "\033[2J"), FIG_INVALID, "printable ASCII");
    FIG_SAMPLE_REFUSES(put(&notes, "k", "a\x7f"), FIG_INVALID, "byte 1 of its value is 0x7f");
    FIG_SAMPLE_REFUSES(put(&notes, "k", "\xc3\xa4"), FIG_INVALID, "is 0xc3");
    FIG_SAMPLE_REFUSES(fig_notes_change(&notes, NULL, 1), FIG_INVALID, "notes is NULL");
    FIG_SAMPLE_REFUSES(fig_notes_change(&notes, NULL, -1), FIG_INVALID, "count is -1");
    assert_int_equal(put(&notes, long_key + 1, long_value + 1), FIG_OK);
    fig_notes_finish(&notes);
}

static void notes_keep_to_their_limits(void **state) {
    (void)state;
    static char value[FIG_NOTE_VALUE_LIMIT + 1];
    fig_notes notes = {NULL, 0};
    char key[16];
    int count = 0;
    fig_status status = FIG_OK;
    for (; status == FIG_OK; count++) {
        snprintf(key, sizeof key, "%d", count);
        status = put(&notes, key, "");
    }
    FIG_SAMPLE_REFUSES(status, FIG_INVALID, "notes: more than 256");
    assert_int_equal(count, FIG_NOTE_LIMIT + 1);
    fig_notes_finish(&notes);

    memset(value, 'v', sizeof value - 1);
    status = FIG_OK;
    for (count = 0; status == FIG_OK; count++) {
        snprintf(key, sizeof key, "%d", count);
        status = put(&notes, key, value);
    }
    FIG_SAMPLE_REFUSES(status, FIG_INVALID, "notes: more than 65536 bytes");
    assert_int_equal(count, 16);
    fig_notes_finish(&notes);
}

/* A file may contain such bytes. */
static void files_of_foreign_writers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        uint32_t count;
        const char *said;
    } wrong[] = {{"a", 1, "does not end"},
                 {"a\0", 2, "does not end"},
                 {"a\0b", 3, "does not end"},
                 {"a\0b\0c\0", 6, "note 1 does not end"},
                 {"b\0b\0a\0b\0", 8, "note a does not come after b"},
                 {"a\0b\0a\0b\0", 8, "note a does not come after a"},
                 {"\0b\0", 3, "its key is"},
                 {"a\0\n\0", 4, "printable"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        /* The memory ends with the notes, so asan notices a read past the end. */
        char *exact = malloc(wrong[i].count);
        assert_non_null(exact);
        memcpy(exact, wrong[i].bytes, wrong[i].count);
        FIG_SAMPLE_REFUSES(fig_notes_check(&(fig_notes){exact, wrong[i].count}), FIG_INVALID,
                           wrong[i].said);
        free(exact);
    }
}

/* Uses the public calls. */
static void graphs_keep_notes_from_save_to_save(void **state) {
    (void)state;
    char path[] = "/tmp/test_notes.XXXXXX";
    const fig_note two[] = {note("model", "mixed"), note("by", "a test")};
    const fig_note change = note("by", NULL);
    fig_graphs *made = fig_capture_mixed(), *loaded, *again;
    fig_graphs_info info = {.size = sizeof info}, kept = {.size = sizeof kept};
    fig_note told = {.size = sizeof told};
    close(mkstemp(path));
    assert_int_equal(
        fig_graphs_archive(made, path,
                           FIG_OPTIONS(fig_archive_options, .notes = two, .note_count = 2)),
        FIG_OK);
    /* The note belongs to the file, not to the graphs that were archived. */
    assert_int_equal(fig_graphs_note(made, 0, &told), FIG_INVALID);
    assert_int_equal(fig_graphs_load(&loaded, path), FIG_OK);
    assert_int_equal(fig_graphs_note(loaded, 1, &told), FIG_OK);
    assert_string_equal(told.key, "model");
    assert_string_equal(told.value, "mixed");
    FIG_SAMPLE_REFUSES(fig_graphs_note(loaded, 2, &told), FIG_INVALID, "there is no note 2");
    FIG_SAMPLE_REFUSES(fig_graphs_note(loaded, -1, &told), FIG_INVALID, "there is no note -1");
    assert_int_equal(
        fig_graphs_archive(loaded, path,
                           FIG_OPTIONS(fig_archive_options, .notes = &change, .note_count = 1)),
        FIG_OK);
    assert_int_equal(fig_graphs_load(&again, path), FIG_OK);
    assert_int_equal(fig_graphs_note(again, 0, &told), FIG_OK);
    assert_string_equal(told.key, "model");
    assert_int_equal(fig_graphs_note(again, 1, &told), FIG_INVALID);
    fig_graphs_read_info(made, &info);
    fig_graphs_read_info(again, &kept);
    assert_string_equal(info.content_id, kept.content_id);
    fig_graphs_destroy(again);
    fig_graphs_destroy(loaded);
    fig_graphs_destroy(made);
    unlink(path);
}

static void running_out_of_memory_loses_no_note(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        fig_notes notes = {NULL, 0}, clone = {NULL, 0};
        fig_fault_arm(n);
        fig_status status = put(&notes, "k", "v");
        if (status == FIG_OK) status = put(&notes, "l", "w");
        if (status == FIG_OK) status = fig_notes_clone(&clone, &notes);
        const int64_t seen = fig_fault_disarm();
        if (seen >= n) assert_int_equal(status, FIG_NOMEM);
        fig_notes_finish(&clone);
        fig_notes_finish(&notes);
        if (seen < n) break;
        assert_true(n < 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_are_the_same_bytes_however_they_were_given),
        cmocka_unit_test(a_note_without_a_value_is_removed),
        cmocka_unit_test(notes_are_found_by_number),
        cmocka_unit_test(invalid_notes_are_refused),
        cmocka_unit_test(notes_keep_to_their_limits),
        cmocka_unit_test(files_of_foreign_writers_are_refused),
        cmocka_unit_test(graphs_keep_notes_from_save_to_save),
        cmocka_unit_test(running_out_of_memory_loses_no_note),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

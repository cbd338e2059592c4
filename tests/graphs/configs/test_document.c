/* test_document.c: tests that a JSON file is either opened completely or refused with the place of
 * the fault, and that a field is read only as its own type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "graphs/configs/document.h"
#include "include/figraph.h"
#include "tests/support/fault.h"
#include "tests/support/files/json_file.h"

static void assert_said(const char *part) {
    if (strstr(fig_message(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fig_message(), part);
}

static fig_status open_text(fig_document *document, const char *text) {
    return fig_document_open(document, fig_json_file_write(text, strlen(text)));
}

/* ---- The file */

static void invalid_json_is_refused_with_its_place(void **state) {
    (void)state;
    fig_document document;
    assert_int_equal(open_text(&document, "{\n  \"model_type\": llama\n}"), FIG_INVALID);
    assert_said("line 2, column 2");
    assert_int_equal(open_text(&document, "{\"a\":1,\"a\":1}"), FIG_INVALID);
    assert_said("duplicate object key");
    assert_int_equal(open_text(&document, "{\"a\": 99999999999999999999}"), FIG_INVALID);
    assert_said("too big integer");
    assert_int_equal(open_text(&document, "[1, 2]"), FIG_INVALID);
    assert_said("it must be an object");
    assert_int_equal(open_text(&document, ""), FIG_INVALID);
    assert_int_equal(open_text(&document, "{} {}"), FIG_INVALID);
    assert_said("line 1");
    assert_null(document.object);
}

static void a_file_that_cannot_be_read_is_named(void **state) {
    (void)state;
    fig_document document;
    assert_int_equal(fig_document_open(&document, "/nowhere/config.json"), FIG_IO);
    assert_said("/nowhere/config.json");
    assert_said(strerror(ENOENT));
    assert_int_equal(fig_document_open(&document, "tests"), FIG_IO);
    assert_said("not a regular file");
}

/* If a pipe were opened like a file, the open would wait for a process that writes to the pipe. */
static void a_pipe_is_refused_at_once(void **state) {
    (void)state;
    fig_document document;
    char path[] = "/tmp/test_document.XXXXXX", pipe[sizeof path + 8];
    assert_non_null(mkdtemp(path));
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(fig_document_open(&document, pipe), FIG_IO);
    assert_said("not a regular file");
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(rmdir(path), 0);
}

static void a_file_beyond_the_limit_is_not_parsed(void **state) {
    (void)state;
    fig_document document;
    const size_t limit = FIG_DOCUMENT_BYTES_LIMIT;
    char *text = malloc(limit + 1);
    assert_non_null(text);
    memset(text, ' ', limit + 1);
    text[0] = '{';
    text[1] = '}';
    assert_int_equal(fig_document_open(&document, fig_json_file_write(text, limit + 1)),
                     FIG_TOO_LARGE);
    assert_said("1048576");
    assert_int_equal(fig_document_open(&document, fig_json_file_write(text, limit)), FIG_OK);
    fig_document_close(&document);
    memset(text, '[', limit);
    assert_int_equal(fig_document_open(&document, fig_json_file_write(text, limit)), FIG_INVALID);
    assert_said("maximum parsing depth");
    free(text);
}

static void every_call_that_fails_while_opening_leaves_nothing_open(void **state) {
    (void)state;
    const char text[] = "{\"a\": 1}";
    const char *path = fig_json_file_write(text, strlen(text));
    for (int64_t n = 1;; n++) {
        fig_document document;
        fig_fault_arm(n);
        const fig_status status = fig_document_open(&document, path);
        const int64_t seen = fig_fault_disarm();
        if (status == FIG_OK) fig_document_close(&document);
        assert_null(document.object);
        if (seen >= n) continue;
        assert_int_equal(status, FIG_OK);
        assert_true(n > 3);
        break;
    }
}

/* ---- Fields */

static const char fields[] = "{\"integer\": 7, \"real\": 2.5, \"huge\": 1e300, \"tiny\": 1e-300,"
                             "\"text\": \"x\", \"truth\": true, \"null\": null,"
                             "\"object\": {\"real\": -1, \"list\": [1]}}";

static void a_field_of_the_type_asked_for_is_read(void **state) {
    (void)state;
    fig_document document;
    int32_t integer = 0;
    float real = 0;
    int truth = 0;
    const char *text = NULL;
    assert_int_equal(open_text(&document, fields), FIG_OK);
    assert_int_equal(
        fig_document_need_integer(&document, "integer", (fig_document_range){7, 7}, &integer),
        FIG_OK);
    assert_int_equal(integer, 7);
    assert_int_equal(fig_document_need_real(&document, "real", &real), FIG_OK);
    assert_true(real == 2.5f);
    assert_int_equal(fig_document_need_real(&document, "integer", &real), FIG_OK);
    assert_true(real == 7.0f);
    assert_int_equal(fig_document_read_truth(&document, "truth", &truth), FIG_OK);
    assert_int_equal(truth, 1);
    assert_int_equal(fig_document_need_text(&document, "text", &text), FIG_OK);
    assert_string_equal(text, "x");
    fig_document_close(&document);
}

static void an_absent_field_leaves_the_value_and_is_refused_where_it_is_needed(void **state) {
    (void)state;
    static const char *const names[] = {"none", "null"};
    const fig_document_range range = {0, 9};
    fig_document document;
    assert_int_equal(open_text(&document, fields), FIG_OK);
    for (int i = 0; i < 2; i++) {
        int32_t integer = 3;
        float real = 3;
        int truth = 3;
        const char *text = "3";
        assert_null(fig_document_find(&document, names[i]));
        assert_int_equal(fig_document_read_integer(&document, names[i], range, &integer), FIG_OK);
        assert_int_equal(fig_document_read_real(&document, names[i], &real), FIG_OK);
        assert_int_equal(fig_document_read_truth(&document, names[i], &truth), FIG_OK);
        assert_int_equal(fig_document_need_integer(&document, names[i], range, &integer),
                         FIG_INVALID);
        assert_said("is missing");
        assert_int_equal(fig_document_need_real(&document, names[i], &real), FIG_INVALID);
        assert_said(names[i]);
        assert_int_equal(fig_document_need_text(&document, names[i], &text), FIG_INVALID);
        assert_true(integer == 3 && real == 3.0f && truth == 3 && strcmp(text, "3") == 0);
    }
    assert_int_equal(fig_document_need(&document, "null"), FIG_OK);
    assert_int_equal(fig_document_need(&document, "none"), FIG_INVALID);
    fig_document_close(&document);
}

static void a_field_of_another_type_is_shown_with_its_path(void **state) {
    (void)state;
    fig_document document, inner;
    int32_t integer = 3;
    float real = 3;
    int truth = 3;
    const char *text = "3";
    assert_int_equal(open_text(&document, fields), FIG_OK);
    assert_int_equal(
        fig_document_read_integer(&document, "real", (fig_document_range){0, 9}, &integer),
        FIG_INVALID);
    assert_said("real is 2.5, it must be an integer of 0 to 9");
    assert_int_equal(
        fig_document_read_integer(&document, "text", (fig_document_range){0, 9}, &integer),
        FIG_INVALID);
    assert_int_equal(
        fig_document_read_integer(&document, "integer", (fig_document_range){8, 9}, &integer),
        FIG_INVALID);
    assert_int_equal(fig_document_read_real(&document, "huge", &real), FIG_INVALID);
    assert_int_equal(fig_document_read_real(&document, "tiny", &real), FIG_INVALID);
    assert_int_equal(fig_document_read_real(&document, "text", &real), FIG_INVALID);
    assert_said("text is \"x\", it must be a number");
    assert_int_equal(fig_document_read_truth(&document, "integer", &truth), FIG_INVALID);
    assert_int_equal(fig_document_need_text(&document, "truth", &text), FIG_INVALID);
    assert_int_equal(fig_document_enter(&document, "text", &inner), FIG_INVALID);
    assert_int_equal(fig_document_enter(&document, "object", &inner), FIG_OK);
    assert_int_equal(fig_document_read_real(&inner, "real", &real), FIG_INVALID);
    assert_said("object.real is -1");
    assert_int_equal(fig_document_need_real(&inner, "list", &real), FIG_INVALID);
    assert_said("object.list is [1]");
    assert_int_equal(fig_document_need_real(&inner, "none", &real), FIG_INVALID);
    assert_said("object.none is missing");
    assert_true(integer == 3 && real == 3.0f && truth == 3 && strcmp(text, "3") == 0);
    fig_document_close(&document);
}

static void a_long_value_is_cut_in_its_sentence(void **state) {
    (void)state;
    fig_document document;
    char text[400] = "{\"a\": \"";
    float real = 0;
    memset(text + strlen(text), 'x', 300);
    memcpy(text + 307, "\"}", 3);
    assert_int_equal(open_text(&document, text), FIG_OK);
    assert_int_equal(fig_document_read_real(&document, "a", &real), FIG_INVALID);
    assert_said("xxx, it must be a number");
    fig_document_close(&document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_json_is_refused_with_its_place),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(a_pipe_is_refused_at_once),
        cmocka_unit_test(a_file_beyond_the_limit_is_not_parsed),
        cmocka_unit_test(every_call_that_fails_while_opening_leaves_nothing_open),
        cmocka_unit_test(a_field_of_the_type_asked_for_is_read),
        cmocka_unit_test(an_absent_field_leaves_the_value_and_is_refused_where_it_is_needed),
        cmocka_unit_test(a_field_of_another_type_is_shown_with_its_path),
        cmocka_unit_test(a_long_value_is_cut_in_its_sentence),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fig_json_file_remove();
    return failed;
}

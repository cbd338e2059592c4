/* test_fuzz.c: tests inputs that fuzzers found, and inputs that reach every part of the code.
 *
 * Calls each entry point of tests/fuzz with its files in tests/fuzz/corpus, and with truncated and
 * changed copies of these files. */
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
#include "tests/fuzz/fuzz.h"
#include "tests/support/files/forgery.h"

enum { NAME_BYTES = 320, CORPUS_LEAST = 10 };

typedef int (*entry)(const uint8_t *bytes, size_t count);

static void call(entry of, const char *folder, const char *name) {
    char path[NAME_BYTES];
    uint8_t *bytes;
    size_t count;
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", folder, name);
    if (fig_file_read(path, 1 << 20, &bytes, &count) != FIG_OK) fail_msg("%s", fig_message());
    of(bytes, count);
    of(bytes, count / 2);
    free(bytes);
}

static void replay(entry of, const char *folder) {
    char path[NAME_BYTES];
    int count = 0;
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s", folder);
    DIR *directory = opendir(path);
    if (directory == NULL) fail_msg("%s is not there", path);
    for (const struct dirent *file; (file = readdir(directory)) != NULL;) {
        if (file->d_name[0] == '.') continue;
        call(of, folder, file->d_name);
        count++;
    }
    closedir(directory);
    assert_true(count >= CORPUS_LEAST);
}

static void any_file_is_refused_or_sound(void **state) {
    (void)state;
    replay(fig_fuzz_parse, "files");
}

static void any_file_is_refused_or_runs(void **state) {
    (void)state;
    replay(fig_fuzz_step, "files");
}

static void any_config_is_refused_or_lowered(void **state) {
    (void)state;
    replay(fig_fuzz_config, "configs");
}

static void any_trace_is_refused_or_kept(void **state) {
    (void)state;
    replay(fig_fuzz_trace, "traces");
}

static void any_score_is_refused_or_kept(void **state) {
    (void)state;
    replay(fig_fuzz_score, "scores");
}

static void bytes_without_the_form_of_a_file_are_reported(void **state) {
    (void)state;
    fig_forgery image;
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_file_read("tests/golden/mixed.fig", 1 << 20, &bytes, &count), FIG_OK);
    for (size_t cut = 0; cut < count; cut++) {
        if (!fig_forgery_try(&image, bytes, cut, 1 << 20)) continue;
        assert_true(count - cut < 8); /* the file ends with zeros */
        fig_forgery_close(&image);
    }
    assert_false(fig_forgery_try(&image, bytes, count, 10));
    assert_true(fig_forgery_try(&image, bytes, count, 1 << 20));
    fig_forgery_close(&image);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_file_is_refused_or_sound),
        cmocka_unit_test(any_file_is_refused_or_runs),
        cmocka_unit_test(any_config_is_refused_or_lowered),
        cmocka_unit_test(any_trace_is_refused_or_kept),
        cmocka_unit_test(any_score_is_refused_or_kept),
        cmocka_unit_test(bytes_without_the_form_of_a_file_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

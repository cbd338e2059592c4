/* test_cache_folder.c: tests which folder of compiled scores is found, and which is made. */
#define _GNU_SOURCE /* nftw */
#include "graphs/scores/cache_folder.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64], path[PATH_MAX], expected[PATH_MAX];

static int remove_one(const char *at, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(at);
}

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/fig_folder_XXXXXX");
    return mkdtemp(root) == NULL || unsetenv("XDG_CACHE_HOME") != 0 || setenv("HOME", root, 1) != 0;
}

static int tear_down(void **state) {
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void assert_found(const char *below) {
    struct stat info;
    snprintf(expected, sizeof expected, "%s%s", root, below);
    if (fig_cache_folder_find(FIG_SCORE_CACHE_DEFAULT, path) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_string_equal(path, expected);
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
}

static void assert_refused(fig_status status, const char *word) {
    assert_int_equal(fig_cache_folder_find(FIG_SCORE_CACHE_DEFAULT, path), status);
    if (strstr(fig_message(), word) == NULL) fail_msg("%s", fig_message());
}

static mode_t mode_of(const char *below) {
    struct stat info;
    snprintf(expected, sizeof expected, "%s%s", root, below);
    assert_int_equal(stat(expected, &info), 0);
    return info.st_mode & 0777;
}

static void the_folder_lies_in_the_users_cache(void **state) {
    (void)state;
    char cache[128];
    assert_found("/.cache/figraph/scores");
    assert_found("/.cache/figraph/scores"); /* it is there by now */
    snprintf(cache, sizeof cache, "%s/other/cache", root);
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    assert_found("/other/cache/figraph/scores");
}

static void a_relative_path_of_the_environment_is_ignored(void **state) {
    (void)state;
    assert_int_equal(setenv("XDG_CACHE_HOME", "cache", 1), 0);
    assert_found("/.cache/figraph/scores");
    assert_int_equal(setenv("XDG_CACHE_HOME", "", 1), 0);
    assert_found("/.cache/figraph/scores");
    assert_int_equal(setenv("HOME", "home", 1), 0);
    assert_refused(FIG_INVALID, "neither XDG_CACHE_HOME nor HOME is an absolute path");
    assert_int_equal(unsetenv("HOME"), 0);
    assert_refused(FIG_INVALID, "name a folder");
}

static void what_is_made_belongs_to_the_user_alone(void **state) {
    (void)state;
    const mode_t before = umask(0);
    assert_found("/.cache/figraph/scores");
    umask(before);
    assert_int_equal(mode_of("/.cache"), 0700);
    assert_int_equal(mode_of("/.cache/figraph"), 0700);
    assert_int_equal(mode_of("/.cache/figraph/scores"), 0700);
}

static void a_folder_that_others_may_write_is_refused_and_not_mended(void **state) {
    (void)state;
    assert_found("/.cache/figraph/scores");
    assert_int_equal(chmod(path, 0770), 0);
    assert_refused(FIG_INVALID, "others may write in ");
    assert_int_equal(mode_of("/.cache/figraph/scores"), 0770);
    assert_int_equal(chmod(expected, 0700), 0);
    snprintf(expected, sizeof expected, "%s/.cache", root);
    assert_int_equal(chmod(expected, 0777), 0);
    assert_refused(FIG_INVALID, ".cache: name a folder that stands elsewhere");
    assert_int_equal(chmod(expected, 0755), 0);
    assert_found("/.cache/figraph/scores");
}

static void a_folder_that_cannot_be_made_is_named(void **state) {
    (void)state;
    char longest[PATH_MAX];
    snprintf(expected, sizeof expected, "%s/.cache", root);
    FILE *file = fopen(expected, "w");
    assert_non_null(file);
    fclose(file);
    assert_refused(FIG_IO, "/.cache: mkdir: ");
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(setenv("XDG_CACHE_HOME", longest, 1), 0);
    assert_refused(FIG_INVALID, "limit 4095");
    assert_string_equal(path, "");
}

static void a_named_folder_is_checked_and_not_made(void **state) {
    (void)state;
    snprintf(expected, sizeof expected, "%s/named", root);
    assert_int_equal(fig_cache_folder_find(expected, path), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "/named is no folder"));
    assert_int_equal(mkdir(expected, 0700), 0);
    assert_int_equal(fig_cache_folder_find(expected, path), FIG_OK);
    assert_string_equal(path, expected);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_folder_lies_in_the_users_cache),
        TEST(a_relative_path_of_the_environment_is_ignored),
        TEST(what_is_made_belongs_to_the_user_alone),
        TEST(a_folder_that_others_may_write_is_refused_and_not_mended),
        TEST(a_folder_that_cannot_be_made_is_named),
        TEST(a_named_folder_is_checked_and_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

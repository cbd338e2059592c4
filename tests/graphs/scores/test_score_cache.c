/* test_score_cache.c: tests the folder of compiled scores: what it returns, what it takes for
 * absent, and which folders it refuses. */
#define _GNU_SOURCE /* nftw */
#include "graphs/scores/score_cache.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "graphs/files/file.h"
#include "tests/support/fault.h"

enum { CODE = 300, HEAD_BYTES = 80, WRITES = 40 };

static const uint8_t key[FIG_SCORE_CACHE_KEY_BYTES] = {1, 2, 3},
                     other_key[FIG_SCORE_CACHE_KEY_BYTES] = {1, 2, 4};
static char folder[64], entry[256];
static uint8_t code[CODE];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/fig_cache_XXXXXX");
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(entry, sizeof entry, "%s/010203%058d.score", folder, 0);
    for (int i = 0; i < CODE; i++)
        code[i] = (uint8_t)(i * 7);
    return fig_score_cache_write(folder, key, code, CODE) != FIG_OK;
}

static int tear_down(void **state) {
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Returns 1 if the folder has the code under this key. What it returns is always that code. */
static int has(const uint8_t *which) {
    uint8_t *bytes;
    size_t count;
    if (fig_score_cache_read(folder, which, &bytes, &count) != FIG_OK)
        fail_msg("%s", fig_message());
    if (bytes == NULL) assert_int_equal(count, 0);
    if (bytes == NULL) return 0;
    assert_int_equal(count, CODE);
    assert_memory_equal(bytes, code, CODE);
    free(bytes);
    return 1;
}

static void write_entry(const uint8_t *bytes, size_t count) {
    assert_int_equal(fig_file_write(entry, bytes, count), FIG_OK);
}

static uint8_t *read_entry(void) {
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_file_read(entry, 1 << 20, &bytes, &count), FIG_OK);
    assert_int_equal(count, HEAD_BYTES + CODE);
    return bytes;
}

static void an_entry_is_found_by_its_key_alone(void **state) {
    (void)state;
    struct stat info;
    assert_true(has(key));
    assert_false(has(other_key));
    assert_int_equal(stat(entry, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void an_entry_with_any_changed_byte_is_absent(void **state) {
    (void)state;
    uint8_t *bytes = read_entry();
    for (size_t i = 0; i < HEAD_BYTES + CODE; i++) {
        bytes[i] ^= 0x10;
        write_entry(bytes, HEAD_BYTES + CODE);
        if (has(key)) fail_msg("byte %zu", i);
        bytes[i] ^= 0x10;
    }
    write_entry(bytes, HEAD_BYTES + CODE);
    assert_true(has(key));
    free(bytes);
}

static void an_entry_of_another_length_is_absent(void **state) {
    (void)state;
    uint8_t longer[HEAD_BYTES + CODE + 1] = {0}, *bytes = read_entry();
    memcpy(longer, bytes, HEAD_BYTES + CODE);
    for (size_t count = 0; count < HEAD_BYTES + CODE; count++) {
        write_entry(longer, count);
        if (has(key)) fail_msg("%zu bytes", count);
    }
    write_entry(longer, sizeof longer);
    assert_false(has(key));
    free(bytes);
}

/* The entry of another score, driver or GPU, under this one's name. */
static void an_entry_of_another_key_is_absent(void **state) {
    (void)state;
    assert_int_equal(fig_score_cache_write(folder, other_key, code, CODE), FIG_OK);
    assert_true(has(other_key));
    char path[256];
    snprintf(path, sizeof path, "%s/010204%058d.score", folder, 0);
    assert_int_equal(rename(path, entry), 0);
    assert_false(has(key));
    assert_int_equal(fig_score_cache_write(folder, key, code, CODE), FIG_OK);
    assert_true(has(key));
}

static void an_entry_that_others_may_write_is_absent(void **state) {
    (void)state;
    struct stat info;
    static const mode_t modes[] = {0620, 0602, 0666};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(entry, modes[i]), 0);
        assert_false(has(key));
    }
    assert_int_equal(fig_score_cache_write(folder, key, code, CODE), FIG_OK);
    assert_int_equal(stat(entry, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_true(has(key));
}

/* A link in the place of an entry is not followed, neither to read nor to write. */
static void a_link_is_absent_and_replaced(void **state) {
    (void)state;
    char target[256];
    struct stat info;
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(rename(entry, target), 0);
    assert_int_equal(symlink(target, entry), 0);
    assert_false(has(key));
    assert_int_equal(unlink(target), 0);
    assert_int_equal(fig_score_cache_write(folder, key, code, CODE), FIG_OK);
    assert_int_equal(stat(target, &info), -1);
    assert_true(has(key));
}

/* ---- While another process changes what lies in the folder ----------------------------------- */

static char other[128], link_path[192]; /* another folder, and a link to one */
static mode_t other_mode;

/* Gives the other folder an entry of the key with other code, which has() would not take. */
static void make_other(void) {
    uint8_t changed[CODE];
    memcpy(changed, code, CODE);
    changed[0] ^= 1;
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(fig_score_cache_write(other, key, changed, CODE), FIG_OK);
}

static void path_of_other(char path[256]) {
    snprintf(path, 256, "%s/010203%058d.score", other, 0);
}

static void exchange_entry(void) {
    char path[256];
    path_of_other(path);
    assert_int_equal(chmod(path, other_mode), 0);
    assert_int_equal(rename(path, entry), 0);
}

static void exchange_entry_for_link(void) {
    char path[256];
    path_of_other(path);
    assert_int_equal(unlink(entry), 0);
    assert_int_equal(symlink(path, entry), 0);
}

static void turn_link(void) {
    assert_int_equal(unlink(link_path), 0);
    assert_int_equal(symlink(other, link_path), 0);
}

/* A user who may rename a folder above can exchange the file at any moment, so only the open file
 * counts. */
static void an_entry_is_judged_after_it_was_opened(void **state) {
    (void)state;
    static const mode_t modes[] = {0620, 0602};
    for (int i = 0; i < 2; i++) {
        make_other();
        other_mode = modes[i];
        fig_fault_intrude(exchange_entry);
        assert_false(has(key));
        assert_int_equal(rmdir(other), 0);
        assert_int_equal(fig_score_cache_write(folder, key, code, CODE), FIG_OK);
    }
    make_other();
    fig_fault_intrude(exchange_entry_for_link);
    assert_false(has(key));
}

static void an_entry_of_another_user_is_absent(void **state) {
    (void)state;
    fig_fault_own(geteuid() + 1);
    const int has_others = has(key);
    fig_fault_own(0);
    const int has_roots = has(key);
    fig_fault_own(-1);
    assert_false(has_others);
    assert_true(has_roots);
}

static void a_link_that_turns_leads_nowhere_else(void **state) {
    (void)state;
    uint8_t *bytes;
    size_t count;
    make_other();
    assert_int_equal(symlink(folder, link_path), 0);
    fig_fault_intrude(turn_link);
    assert_int_equal(fig_score_cache_read(link_path, key, &bytes, &count), FIG_OK);
    assert_int_equal(count, CODE);
    assert_memory_equal(bytes, code, CODE); /* the folder's that was checked */
    free(bytes);
}

/* ---- Folders --------------------------------------------------------------------------------- */

static void assert_refused(const char *path) {
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_score_cache_check(path), FIG_INVALID);
    assert_non_null(strstr(fig_message(), path));
    assert_int_equal(fig_score_cache_read(path, key, &bytes, &count), FIG_INVALID);
    assert_null(bytes);
    assert_int_equal(fig_score_cache_write(path, key, code, CODE), FIG_INVALID);
}

static void a_folder_that_others_may_write_is_refused(void **state) {
    (void)state;
    static const mode_t modes[] = {0770, 0702, 0777, 01777};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(chmod(folder, modes[i]), 0);
        assert_refused(folder);
    }
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(fig_score_cache_check(folder), FIG_OK);
    assert_true(has(key));
    assert_refused(entry); /* no folder */
    assert_refused("/tmp/fig_no_such_folder");
}

static void a_folder_below_one_that_everybody_may_change_is_refused(void **state) {
    (void)state;
    char below[128], lower[192];
    snprintf(below, sizeof below, "%s/below", folder);
    snprintf(lower, sizeof lower, "%s/lower", below);
    assert_int_equal(mkdir(below, 0700), 0);
    assert_int_equal(mkdir(lower, 0700), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_refused(below);
    assert_refused(lower);
    assert_non_null(strstr(fig_message(), "everybody may rename what lies in /tmp/fig_cache_"));
    assert_int_equal(chmod(folder, 01777), 0); /* as /tmp */
    assert_int_equal(fig_score_cache_check(lower), FIG_OK);
    assert_int_equal(chmod(folder, 0770), 0);
    assert_int_equal(fig_score_cache_check(lower), FIG_OK);
}

/* Whoever reads meanwhile sees a whole entry or none. */
static void two_processes_write_one_entry(void **state) {
    (void)state;
    pid_t writers[2];
    for (int i = 0; i < 2; i++) {
        writers[i] = fork();
        assert_true(writers[i] >= 0);
        if (writers[i] != 0) continue;
        int failed = 0;
        for (int n = 0; n < WRITES; n++)
            failed |= fig_score_cache_write(folder, key, code, CODE) != FIG_OK;
        _exit(failed);
    }
    for (int n = 0; n < WRITES; n++)
        assert_true(has(key));
    for (int i = 0; i < 2; i++) {
        int ended;
        assert_int_equal(waitpid(writers[i], &ended, 0), writers[i]);
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    }
    assert_true(has(key));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_entry_is_found_by_its_key_alone),
        TEST(an_entry_with_any_changed_byte_is_absent),
        TEST(an_entry_of_another_length_is_absent),
        TEST(an_entry_of_another_key_is_absent),
        TEST(an_entry_that_others_may_write_is_absent),
        TEST(a_link_is_absent_and_replaced),
        TEST(an_entry_is_judged_after_it_was_opened),
        TEST(an_entry_of_another_user_is_absent),
        TEST(a_link_that_turns_leads_nowhere_else),
        TEST(a_folder_that_others_may_write_is_refused),
        TEST(a_folder_below_one_that_everybody_may_change_is_refused),
        TEST(two_processes_write_one_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

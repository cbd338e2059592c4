/* test_file.c: tests that a file that is being replaced holds either the old or the new bytes,
 * whatever fails, and that no other file remains. test_file_targets.c tests which files may be
 * replaced. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "graphs/files/file.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"
#include "tests/support/files/sample.h"

enum {
    PATH_BYTES = 256,
    LIMIT = 1 << 20,
    UNNAMED = 3 /* the gated call of a save that opens a file without a name */
};

static char directory[PATH_BYTES];
static int sweeper = -1;

static const char *path_of(const char *name) {
    static char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int count_files(void) {
    DIR *open_directory = opendir(directory);
    int count = 0;
    assert_non_null(open_directory);
    for (const struct dirent *entry; (entry = readdir(open_directory)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open_directory);
    return count;
}

static int count_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 64; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static int make_directory(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/test_file.XXXXXX");
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state) {
    (void)state;
    static const char *const names[] = {"f", "pipe", "large", "empty"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    return rmdir(directory);
}

static void assert_holds(const char *path, const char *text) {
    uint8_t *bytes;
    size_t count;
    if (fig_file_read(path, LIMIT, &bytes, &count) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(count, strlen(text));
    assert_memory_equal(bytes, text, count);
    free(bytes);
}

static fig_status put(const char *path, const char *text) {
    return fig_file_write(path, (const uint8_t *)text, strlen(text));
}

static void written_bytes_are_read(void **state) {
    (void)state;
    assert_int_equal(put(path_of("f"), "first"), FIG_OK);
    assert_holds(path_of("f"), "first");
    assert_int_equal(put(path_of("f"), "second, longer"), FIG_OK);
    assert_holds(path_of("f"), "second, longer");
    assert_int_equal(put(path_of("f"), ""), FIG_OK);
    assert_holds(path_of("f"), "");
    assert_int_equal(count_files(), 1);
}

static void short_reads_and_writes_are_continued(void **state) {
    (void)state;
    fig_fault_shorten(3);
    const fig_status status = put(path_of("f"), "more than three bytes");
    assert_int_equal(status, FIG_OK);
    assert_holds(path_of("f"), "more than three bytes");
    fig_fault_shorten(0);
}

static void each_call_that_fails_leaves_the_old_file_or_the_new(void **state) {
    (void)state;
    const int descriptors = count_descriptors();
    int refused = 0, out_of_memory = 0;
    int64_t n = 1;
    for (;; n++) {
        assert_int_equal(put(path_of("f"), "old"), FIG_OK);
        fig_fault_arm(n);
        const fig_status status = put(path_of("f"), "new");
        if (fig_fault_disarm() < n) break;
        if (status != FIG_OK) {
            refused++;
            out_of_memory += status == FIG_NOMEM;
            assert_true(status == FIG_IO || status == FIG_NOMEM);
            assert_non_null(strstr(fig_message(), directory));
        }
        uint8_t *bytes;
        size_t count;
        assert_int_equal(fig_file_read(path_of("f"), LIMIT, &bytes, &count), FIG_OK);
        assert_int_equal(count, 3);
        if (status == FIG_OK) assert_memory_equal(bytes, "new", 3);
        assert_true(memcmp(bytes, "new", 3) == 0 || memcmp(bytes, "old", 3) == 0);
        free(bytes);
        assert_int_equal(count_files(), 1);
    }
    /* Five failures do no harm: those of listing the folder for a sweep, of making a file without a
     * name (a named one is used instead), of locking that file, and of two closes. */
    assert_int_equal(n - 1 - refused, 5);
    assert_true(refused >= 6);
    assert_int_equal(out_of_memory, 0);
    assert_int_equal(count_descriptors(), descriptors);
}

/* Stands for a process that sweeps the folder and locks the temporary file before the saving
 * process does. That one then removes the file, closes it and draws another name, which fails. */
static void lock_the_temporary(void) {
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (strncmp(entry->d_name, ".figraph-", 9) == 0)
            sweeper = open(path_of(entry->d_name), O_RDONLY);
    closedir(listing);
    assert_true(sweeper >= 0);
    assert_int_equal(flock(sweeper, LOCK_EX), 0);
    fig_fault_arm(3);
}

static void a_temporary_file_that_was_given_up_is_closed_once(void **state) {
    (void)state;
    const int descriptors = count_descriptors(), files = count_files();
    fig_fault_intrude_lock(lock_the_temporary);
    fig_fault_arm(UNNAMED);
    const fig_status status = put(path_of("f"), "new");
    assert_true(fig_fault_disarm() >= 3);
    assert_int_equal(status, FIG_IO);
    assert_non_null(strstr(fig_message(), "getrandom"));
    close(sweeper);
    assert_int_equal(count_files(), files);
    assert_int_equal(count_descriptors(), descriptors);
}

static void each_call_that_fails_while_reading_is_reported(void **state) {
    (void)state;
    const int descriptors = count_descriptors();
    int refused = 0, out_of_memory = 0;
    int64_t n = 1;
    assert_int_equal(put(path_of("f"), "bytes"), FIG_OK);
    for (;; n++) {
        uint8_t *bytes = (uint8_t *)1;
        size_t count = 9;
        fig_fault_arm(n);
        const fig_status status = fig_file_read(path_of("f"), LIMIT, &bytes, &count);
        if (fig_fault_disarm() < n) {
            free(bytes);
            break;
        }
        if (status != FIG_OK) {
            refused++;
            out_of_memory += status == FIG_NOMEM;
            assert_null(bytes);
            assert_int_equal(count, 0);
            assert_non_null(strstr(fig_message(), directory));
        }
        free(bytes);
    }
    /* The calls are open, fstat, malloc, read and close. A failing close loses nothing. */
    assert_int_equal(n - 1, 5);
    assert_int_equal(refused, 4);
    assert_int_equal(out_of_memory, 1);
    assert_int_equal(count_descriptors(), descriptors);
}

static int is_anyones(const struct stat *info) {
    (void)info;
    return 1;
}

static int is_of_five_bytes(const struct stat *info) {
    return info->st_size == 5;
}

static fig_status read_ours(const char *name, int (*is_ours)(const struct stat *info)) {
    uint8_t *bytes = (uint8_t *)1;
    size_t count = 9;
    const fig_status status = fig_file_read_ours(path_of(name), LIMIT, is_ours, &bytes, &count);
    assert_true(status == FIG_OK ? count == 5 && memcmp(bytes, "bytes", 5) == 0
                                 : bytes == NULL && count == 0);
    free(bytes);
    return status;
}

static void a_file_that_is_not_ours_is_not_read(void **state) {
    (void)state;
    const int descriptors = count_descriptors();
    assert_int_equal(put(path_of("f"), "bytes"), FIG_OK);
    assert_int_equal(read_ours("f", is_of_five_bytes), FIG_OK);
    assert_int_equal(put(path_of("f"), "more bytes"), FIG_OK);
    FIG_SAMPLE_REFUSES(read_ours("f", is_of_five_bytes), FIG_IO, "others may write it");
    assert_int_equal(put(path_of("f"), "bytes"), FIG_OK);
    assert_int_equal(symlink("f", path_of("pipe")), 0);
    FIG_SAMPLE_REFUSES(read_ours("pipe", is_anyones), FIG_IO, "open");
    assert_int_equal(unlink(path_of("pipe")), 0);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    FIG_SAMPLE_REFUSES(read_ours("pipe", is_anyones), FIG_IO, "not a regular file");
    assert_int_equal(unlink(path_of("pipe")), 0);
    int64_t n = 1;
    for (;; n++) {
        fig_fault_arm(n);
        const fig_status status = read_ours("f", is_anyones);
        if (fig_fault_disarm() < n) break;
        /* open, the two calls of fstat, malloc and read; a failing close loses nothing */
        assert_int_equal(status, n == 4 ? FIG_NOMEM : n == 6 ? FIG_OK : FIG_IO);
    }
    assert_int_equal(n - 1, 6);
    assert_int_equal(count_descriptors(), descriptors);
}

static void leave(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_neighbouring_file_is_not_touched(void **state) {
    (void)state;
    static const char *const names[] = {"f.tmp", ".figraph-0123456789abcdeX.tmp",
                                        ".figraph-0123456789abcdef0.tmp", ".figraph-.tmp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        leave(names[i], "another's");
        assert_int_equal(put(path_of("f"), "mine"), FIG_OK);
        assert_holds(path_of("f"), "mine");
        assert_holds(path_of(names[i]), "another's");
        unlink(path_of(names[i]));
    }
}

/* An unlocked temporary file belongs to a process that was killed. A living process holds a lock on
 * its own. */
static void a_temporary_file_without_a_lock_is_removed(void **state) {
    (void)state;
    static const char temporary[] = ".figraph-0123456789abcdef.tmp";
    leave(temporary, "half");
    const int fd = open(path_of(temporary), O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(put(path_of("f"), "mine"), FIG_OK);
    assert_holds(path_of(temporary), "half");
    close(fd);
    assert_int_equal(put(path_of("f"), "mine"), FIG_OK);
    assert_int_equal(count_files(), 1);
}

enum { BULK_BYTES = 100000 };

/* Writes so many copies of a letter that a partial write would be noticed. */
static fig_status put_bulk(const char *path, char letter) {
    static uint8_t bytes[BULK_BYTES];
    memset(bytes, letter, sizeof bytes);
    return fig_file_write(path, bytes, sizeof bytes);
}

/* Checks that all letters in the file are the same, and returns that letter. */
static char assert_one_bulk(const char *path) {
    uint8_t *bytes;
    size_t count;
    if (fig_file_read(path, LIMIT, &bytes, &count) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(count, BULK_BYTES);
    assert_memory_equal(bytes, bytes + 1, count - 1); /* each letter equals the next one */
    const char letter = (char)bytes[0];
    free(bytes);
    return letter;
}

/* Kills the process before each call of a save in turn. */
static void a_process_that_is_killed_at_any_call_leaves_the_old_file_or_the_new(void **state) {
    (void)state;
    int64_t n = 1;
    int old = 0, code;
    for (;; n++) {
        assert_int_equal(put_bulk(path_of("f"), 'o'), FIG_OK);
        const pid_t child = fork();
        if (child == 0) {
            fig_fault_arm_kill(n);
            put_bulk(path_of("f"), 'n');
            _exit(0);
        }
        assert_int_equal(waitpid(child, &code, 0), child);
        const char letter = assert_one_bulk(path_of("f"));
        assert_true(letter == 'o' || letter == 'n');
        old += letter == 'o';
        assert_in_range(count_files(), 1, 2);
        if (WIFEXITED(code)) break;
        assert_int_equal(WTERMSIG(code), SIGKILL);
    }
    assert_true(old >= 8 && n - old >= 2); /* after the rename, the name holds the new file */
    assert_int_equal(put(path_of("f"), "last"), FIG_OK);
    assert_int_equal(count_files(), 1);
}

/* Each child saves again and again until it is killed, at any moment of a save. */
static void a_process_that_is_killed_leaves_the_old_file_or_the_new(void **state) {
    (void)state;
    enum { KILLS = 200, MOST_US = 2000 };
    fig_random random = fig_random_seed(7);
    int seen_new = 0;
    for (int i = 0; i < KILLS; i++) {
        assert_int_equal(put_bulk(path_of("f"), 'o'), FIG_OK);
        const pid_t child = fork();
        if (child == 0) {
            for (;;)
                put_bulk(path_of("f"), 'n');
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000 * fig_random_range(&random, 0, MOST_US)},
                  NULL);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        const char letter = assert_one_bulk(path_of("f"));
        assert_true(letter == 'o' || letter == 'n');
        seen_new += letter == 'n';
        assert_in_range(count_files(), 1, 2);
    }
    assert_true(seen_new > 0);
    assert_int_equal(put(path_of("f"), "last"), FIG_OK);
    assert_holds(path_of("f"), "last");
    assert_int_equal(count_files(), 1);
}

/* Several processes save at once, each its own letter, again and again. Meanwhile the test reads
 * the file. */
static void simultaneous_saves_leave_one_whole_file(void **state) {
    (void)state;
    enum { WRITERS = 4, SAVES = 50 };
    pid_t children[WRITERS];
    assert_int_equal(put_bulk(path_of("f"), 'a'), FIG_OK);
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        if (children[w] != 0) continue;
        int failed = 0;
        for (int i = 0; i < SAVES; i++)
            failed |= put_bulk(path_of("f"), (char)('a' + w)) != FIG_OK;
        _exit(failed);
    }
    for (int i = 0; i < SAVES; i++)
        assert_in_range(assert_one_bulk(path_of("f")), 'a', 'a' + WRITERS - 1);
    for (int w = 0; w < WRITERS; w++) {
        int code;
        assert_int_equal(waitpid(children[w], &code, 0), children[w]);
        assert_int_equal(code, 0);
    }
    assert_in_range(assert_one_bulk(path_of("f")), 'a', 'a' + WRITERS - 1);
    assert_int_equal(put(path_of("f"), "last"), FIG_OK);
    assert_int_equal(count_files(), 1);
}

static fig_status read_path(const char *path) {
    uint8_t *bytes;
    size_t count;
    const fig_status status = fig_file_read(path, LIMIT, &bytes, &count);
    assert_true(status != FIG_OK);
    assert_null(bytes);
    assert_int_equal(count, 0);
    return status;
}

static void bytes_that_are_not_a_fig_file_are_refused(void **state) {
    (void)state;
    FIG_SAMPLE_REFUSES(read_path(path_of("none")), FIG_IO, "none: open: No such file");
    FIG_SAMPLE_REFUSES(read_path(directory), FIG_IO, "not a regular file");
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    FIG_SAMPLE_REFUSES(read_path(path_of("pipe")), FIG_IO, "pipe: not a regular file");
    const int fd = open(path_of("large"), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, LIMIT + 1), 0);
    close(fd);
    FIG_SAMPLE_REFUSES(read_path(path_of("large")), FIG_TOO_LARGE,
                       "large: 1048577 bytes, limit 1048576");
    FIG_SAMPLE_REFUSES(put(path_of("none/f"), "x"), FIG_IO, "No such file");
    FIG_SAMPLE_REFUSES(put(directory, "x"), FIG_IO, "not a regular file");
}

static void a_path_without_a_folder_is_in_this_one(void **state) {
    (void)state;
    char here[PATH_BYTES];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(directory), 0);
    const fig_status status = put("f", "here");
    assert_int_equal(chdir(here), 0);
    assert_int_equal(status, FIG_OK);
    assert_holds(path_of("f"), "here");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_bytes_are_read),
        cmocka_unit_test(short_reads_and_writes_are_continued),
        cmocka_unit_test(each_call_that_fails_leaves_the_old_file_or_the_new),
        cmocka_unit_test(a_temporary_file_that_was_given_up_is_closed_once),
        cmocka_unit_test(each_call_that_fails_while_reading_is_reported),
        cmocka_unit_test(a_file_that_is_not_ours_is_not_read),
        cmocka_unit_test(a_neighbouring_file_is_not_touched),
        cmocka_unit_test(a_temporary_file_without_a_lock_is_removed),
        cmocka_unit_test(a_process_that_is_killed_at_any_call_leaves_the_old_file_or_the_new),
        cmocka_unit_test(a_process_that_is_killed_leaves_the_old_file_or_the_new),
        cmocka_unit_test(simultaneous_saves_leave_one_whole_file),
        cmocka_unit_test(bytes_that_are_not_a_fig_file_are_refused),
        cmocka_unit_test(a_path_without_a_folder_is_in_this_one),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

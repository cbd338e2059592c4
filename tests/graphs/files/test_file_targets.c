/* test_file_targets.c: tests that a save replaces only regular files, and keeps links to them,
 * their mode, and the files beside them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "graphs/files/file.h"
#include "tests/support/files/sample.h"

enum { PATH_BYTES = 256, LIMIT = 1 << 20, NOBODY = 65534 };

static char directory[PATH_BYTES];

static const char *path_of(const char *name) {
    static char path[4][PATH_BYTES + 64];
    static int next;
    char *own = path[next++ % 4];
    snprintf(own, sizeof path[0], "%s/%s", directory, name);
    return own;
}

static int make_directory(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/test_file_targets.XXXXXX");
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state) {
    (void)state;
    char command[PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static fig_status put(const char *path, const char *text) {
    return fig_file_write(path, (const uint8_t *)text, strlen(text));
}

static void assert_holds(const char *path, const char *text) {
    uint8_t *bytes;
    size_t count;
    if (fig_file_read(path, LIMIT, &bytes, &count) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(count, strlen(text));
    assert_memory_equal(bytes, text, count);
    free(bytes);
}

static mode_t mode_of(const char *path) {
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    return info.st_mode;
}

static void only_regular_files_are_replaced(void **state) {
    (void)state;
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    FIG_SAMPLE_REFUSES(put(path_of("pipe"), "x"), FIG_IO, "pipe: not a regular file");
    assert_true(S_ISFIFO(mode_of(path_of("pipe"))));
    FIG_SAMPLE_REFUSES(put("/dev/null", "x"), FIG_IO, "/dev/null: not a regular file");
    assert_true(S_ISCHR(mode_of("/dev/null")));
    FIG_SAMPLE_REFUSES(put(directory, "x"), FIG_IO, "not a regular file");
    assert_int_equal(symlink("pipe", path_of("to_pipe")), 0);
    FIG_SAMPLE_REFUSES(put(path_of("to_pipe"), "x"), FIG_IO, "to_pipe: not a regular file");
    assert_true(S_ISLNK(mode_of(path_of("to_pipe"))));
}

static void a_symbolic_link_is_followed(void **state) {
    (void)state;
    assert_int_equal(mkdir(path_of("d"), 0700), 0);
    assert_int_equal(put(path_of("d/target"), "old"), FIG_OK);
    assert_int_equal(symlink("d/target", path_of("relative")), 0);
    assert_int_equal(symlink(path_of("relative"), path_of("absolute")), 0);
    assert_int_equal(put(path_of("absolute"), "new"), FIG_OK);
    assert_holds(path_of("d/target"), "new");
    assert_true(S_ISLNK(mode_of(path_of("relative"))));
    assert_true(S_ISLNK(mode_of(path_of("absolute"))));

    assert_int_equal(symlink("d/none", path_of("dangling")), 0);
    assert_int_equal(put(path_of("dangling"), "made"), FIG_OK);
    assert_holds(path_of("d/none"), "made");
    assert_true(S_ISREG(mode_of(path_of("d/none"))));
    assert_int_equal(symlink("ring", path_of("ring")), 0);
    FIG_SAMPLE_REFUSES(put(path_of("ring"), "x"), FIG_IO, "ring: ");
}

/* If the write followed the link, a user who may place links could have any file of ours
 * replaced. */
static void a_private_file_takes_the_place_of_a_link(void **state) {
    (void)state;
    static const uint8_t byte = 'p';
    assert_int_equal(put(path_of("led_to"), "old"), FIG_OK);
    assert_int_equal(symlink("led_to", path_of("private")), 0);
    assert_int_equal(fig_file_write_private(path_of("private"), &byte, 1), FIG_OK);
    assert_holds(path_of("private"), "p");
    assert_holds(path_of("led_to"), "old");
    assert_int_equal(mode_of(path_of("private")), S_IFREG | 0600);
    assert_int_equal(chmod(path_of("private"), 0644), 0);
    assert_int_equal(fig_file_write_private(path_of("private"), &byte, 1), FIG_OK);
    assert_int_equal(mode_of(path_of("private")), S_IFREG | 0600);
    assert_int_equal(mkfifo(path_of("private_pipe"), 0600), 0);
    assert_int_equal(fig_file_write_private(path_of("private_pipe"), &byte, 1), FIG_OK);
    assert_holds(path_of("private_pipe"), "p");
    FIG_SAMPLE_REFUSES(fig_file_write_private(directory, &byte, 1), FIG_IO, "rename");
}

static void a_replaced_file_keeps_its_mode(void **state) {
    (void)state;
    static const mode_t modes[] = {0600, 0640, 0644, 0755};
    const mode_t before = umask(022);
    assert_int_equal(put(path_of("m"), "first"), FIG_OK);
    assert_int_equal(mode_of(path_of("m")) & 07777, 0644);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(path_of("m"), modes[i]), 0);
        assert_int_equal(put(path_of("m"), "again"), FIG_OK);
        assert_int_equal(mode_of(path_of("m")) & 07777, modes[i]);
    }
    umask(before);
}

static void a_process_that_may_keeps_the_owner_of_a_replaced_file(void **state) {
    (void)state;
    struct stat info;
    assert_int_equal(put(path_of("o"), "first"), FIG_OK);
    if (chown(path_of("o"), NOBODY, NOBODY) != 0) skip();
    assert_int_equal(put(path_of("o"), "again"), FIG_OK);
    assert_int_equal(stat(path_of("o"), &info), 0);
    assert_int_equal(info.st_uid, NOBODY);
    assert_int_equal(info.st_gid, NOBODY);
}

static void another_hard_link_keeps_the_old_bytes(void **state) {
    (void)state;
    assert_int_equal(put(path_of("h"), "old"), FIG_OK);
    assert_int_equal(link(path_of("h"), path_of("other")), 0);
    assert_int_equal(put(path_of("h"), "new"), FIG_OK);
    assert_holds(path_of("h"), "new");
    assert_holds(path_of("other"), "old");
}

/* Saves twice in a child process, as a user who is bound by file modes. Returns 0 if both saves
 * succeeded. */
static int save_as_nobody(const char *path) {
    int code;
    const pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) _exit(2);
        _exit(put(path, "first") != FIG_OK || put(path, "second") != FIG_OK);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    return WEXITSTATUS(code);
}

static void a_file_in_an_unreadable_directory_is_saved(void **state) {
    (void)state;
    assert_int_equal(chmod(directory, 0711), 0);
    assert_int_equal(mkdir(path_of("dark"), 0300), 0);
    if (geteuid() == 0) assert_int_equal(chown(path_of("dark"), NOBODY, NOBODY), 0);
    assert_int_equal(save_as_nobody(path_of("dark/f")), 0);
    assert_int_equal(chmod(path_of("dark"), 0700), 0);
    assert_holds(path_of("dark/f"), "second");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_regular_files_are_replaced),
        cmocka_unit_test(a_symbolic_link_is_followed),
        cmocka_unit_test(a_private_file_takes_the_place_of_a_link),
        cmocka_unit_test(a_replaced_file_keeps_its_mode),
        cmocka_unit_test(a_process_that_may_keeps_the_owner_of_a_replaced_file),
        cmocka_unit_test(another_hard_link_keeps_the_old_bytes),
        cmocka_unit_test(a_file_in_an_unreadable_directory_is_saved),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

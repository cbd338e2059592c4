/* test_fault.c: tests that the gates in tests/support fail exactly the calls that they are told to
 * fail.
 *
 * If a gate failed no call, every test of an error path would pass without running that path. */
#include "tests/support/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

static void the_nth_call_fails_once_and_the_others_pass(void **state) {
    (void)state;
    void *volatile blocks[4]; /* volatile: otherwise the compiler may remove the unused blocks */
    fig_fault_arm(3);
    for (int i = 0; i < 4; i++)
        blocks[i] = i % 2 == 0 ? malloc(8) : calloc(1, 8);
    int64_t seen = fig_fault_disarm();
    assert_int_equal(seen, 4);
    for (int i = 0; i < 4; i++) {
        assert_true((blocks[i] == NULL) == (i == 2));
        free(blocks[i]);
    }
}

static void a_disarmed_gate_neither_counts_nor_fails(void **state) {
    (void)state;
    fig_fault_arm(1);
    assert_int_equal(fig_fault_disarm(), 0);
    void *block = malloc(8);
    assert_non_null(block);
    free(block);
    assert_int_equal(fig_fault_disarm(), 0);
}

static void *allocate(void *user) {
    (void)user;
    return malloc(8);
}

static void calls_of_another_thread_neither_count_nor_fail(void **state) {
    (void)state;
    pthread_t thread;
    void *block = NULL;
    assert_int_equal(pthread_create(&thread, NULL, allocate, NULL), 0);
    fig_fault_arm(1);
    pthread_join(thread, &block);
    int64_t seen = fig_fault_disarm();
    assert_int_equal(seen, 0);
    assert_non_null(block);
    free(block);
}

static void a_close_that_fails_has_closed(void **state) {
    (void)state;
    int file = open("/dev/null", O_RDONLY);
    assert_true(file >= 0);
    fig_fault_arm(1);
    int result = close(file);
    fig_fault_disarm();
    assert_int_equal(result, -1);
    assert_int_equal(close(file), -1);
    assert_int_equal(errno, EBADF);
}

static void shortened_calls_move_no_more_than_asked(void **state) {
    (void)state;
    int ends[2];
    char bytes[8];
    assert_int_equal(pipe(ends), 0);
    fig_fault_shorten(3);
    ssize_t written = write(ends[1], "abcdefgh", 8);
    fig_fault_shorten(2);
    ssize_t got = read(ends[0], bytes, 8);
    fig_fault_shorten(0);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(written, 3);
    assert_int_equal(got, 2);
    assert_memory_equal(bytes, "ab", 2);
}

/* Passes every gate once while no gate is armed. */
static int every_call(void) {
    char path[] = "/tmp/figraph_fault_XXXXXX", other[sizeof path + 2];
    int file = mkstemp(path);
    if (file < 0) return 1;
    snprintf(other, sizeof other, "%s.2", path);
    int bad = write(file, "abcd", 4) != 4 || pwrite(file, "e", 1, 4) != 1 || fsync(file) != 0;
    char byte;
    bad |= lseek(file, 0, SEEK_SET) != 0 || read(file, &byte, 1) != 1 || byte != 'a';
    bad |= pread(file, &byte, 1, 4) != 1 || byte != 'e' || ftruncate(file, 2) != 0;
    bad |= close(file) != 0 || rename(path, other) != 0;
    FILE *stream = fopen(other, "w+");
    if (stream == NULL) return 1;
    bad |= fwrite("xy", 1, 2, stream) != 2 || fflush(stream) != 0;
    rewind(stream);
    bad |= fread(&byte, 1, 1, stream) != 1 || byte != 'x' || fclose(stream) != 0;
    return bad | (unlink(other) != 0);
}

static void gates_pass_on_arguments_and_results(void **state) {
    (void)state;
    fig_fault_arm(0);
    int bad = every_call();
    int64_t seen = fig_fault_disarm();
    assert_false(bad);
    assert_int_equal(seen, 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_call_fails_once_and_the_others_pass),
        cmocka_unit_test(a_disarmed_gate_neither_counts_nor_fails),
        cmocka_unit_test(calls_of_another_thread_neither_count_nor_fail),
        cmocka_unit_test(a_close_that_fails_has_closed),
        cmocka_unit_test(shortened_calls_move_no_more_than_asked),
        cmocka_unit_test(gates_pass_on_arguments_and_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

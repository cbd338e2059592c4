/* test_nccl_api.c: tests NCCL's table with an NCCL that is complete, too old, incomplete or
 * absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/files/sample.h"

/* The library that the table opens. */
static struct play {
    int version;      /* 0: the library does not report its version */
    const char *lack; /* a name that the library lacks; NULL: none */
    int opened, closed;
} play;

static int tell_version(int *version) {
    *version = play.version;
    return play.version == 0;
}

static void *play_open(const char *library, int flags) {
    (void)flags;
    play.opened++;
    return strcmp(library, "libnccl.so.2") == 0 ? &play : NULL;
}

static void *play_find(void *handle, const char *name) {
    int (*entry)(int *) = tell_version;
    void *found;
    assert_ptr_equal(handle, &play);
    if (play.lack != NULL && strcmp(play.lack, name) == 0) return NULL;
    memcpy(&found, &entry, sizeof found);
    return found;
}

static int play_close(void *handle) {
    assert_ptr_equal(handle, &play);
    play.closed++;
    return 0;
}

static char *play_error(void) {
    static char words[] = "no such file";
    return words;
}

#define dlopen play_open
#define dlsym play_find
#define dlclose play_close
#define dlerror play_error
#define fig_nccl_api_load load_api
#define fig_nccl_api_open open_api
#define fig_nccl_api_table table_of_api
#include "engine/driver/nccl_api.c"

static void a_version_that_serves_is_kept_open(void **state) {
    (void)state;
    fig_nccl_api api;
    play = (struct play){.version = 22803};
    assert_int_equal(load_api(&api, "libnccl.so.2"), FIG_OK);
    assert_int_equal(api.version, 22803);
    assert_non_null(api.AllReduce);
    assert_non_null(api.GetLastError);
    assert_int_equal(play.closed, 0);
}

static void a_library_that_does_not_serve_is_closed_with_a_reason(void **state) {
    (void)state;
    fig_nccl_api api;
    play = (struct play){.version = 21212};
    FIG_SAMPLE_REFUSES(load_api(&api, "libnccl.so.2"), FIG_UNSUPPORTED,
                       "nccl: libnccl.so.2 is of version 2.12, this library needs 2.14");
    play.version = 0;
    FIG_SAMPLE_REFUSES(load_api(&api, "libnccl.so.2"), FIG_UNSUPPORTED,
                       "nccl: libnccl.so.2 does not tell its version");
    play = (struct play){.version = 22803, .lack = "ncclCommFinalize", .closed = 2};
    FIG_SAMPLE_REFUSES(load_api(&api, "libnccl.so.2"), FIG_UNSUPPORTED,
                       "nccl: libnccl.so.2, of version 2.28, has no ncclCommFinalize");
    assert_int_equal(play.closed, 3);
    assert_int_equal(api.version, 0);
    assert_null(api.AllReduce);
    FIG_SAMPLE_REFUSES(load_api(&api, "libother.so"), FIG_UNSUPPORTED, "nccl: no such file");
    assert_int_equal(play.closed, 3);
}

static void a_process_asks_once_and_hears_the_same_each_time(void **state) {
    (void)state;
    play = (struct play){.version = 20000};
    FIG_SAMPLE_REFUSES(open_api(), FIG_UNSUPPORTED, "is of version 2.0, this library needs 2.14");
    play.version = 22803;
    FIG_SAMPLE_REFUSES(open_api(), FIG_UNSUPPORTED, "is of version 2.0, this library needs 2.14");
    assert_int_equal(play.opened, 1);
    assert_int_equal(table_of_api()->version, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_that_serves_is_kept_open),
        cmocka_unit_test(a_library_that_does_not_serve_is_closed_with_a_reason),
        cmocka_unit_test(a_process_asks_once_and_hears_the_same_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

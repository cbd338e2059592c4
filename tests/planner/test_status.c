/* test_status.c: tests that a failure leaves a one-line message on its own thread, and that options
 * of older and newer headers are read correctly. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "planner/status.h"

typedef struct options {
    uint32_t size;
    int32_t first;
    int64_t second;
} options;

static void fail_gives_back_the_status_and_keeps_the_sentence(void **state) {
    (void)state;
    assert_int_equal(fig_fail(FIG_BUSY, "slot %d of %d", 3, 4), FIG_BUSY);
    assert_string_equal(fig_message(), "slot 3 of 4");
    assert_int_equal(fig_status_relay(FIG_CALLBACK, "100% of it"), FIG_CALLBACK);
    assert_string_equal(fig_message(), "100% of it");
}

static void a_fault_of_the_library_says_so(void **state) {
    (void)state;
    assert_int_equal(fig_status_own_fault("slot %d of %d", 5, 4), FIG_FAULT);
    assert_string_equal(fig_message(), "a fault of libfigraph's own: slot 5 of 4");
    assert_int_equal(fig_status_is_retryable(FIG_FAULT), 0);
    char longest[600];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    fig_status_own_fault("%s", longest);
    assert_int_equal(strlen(fig_message()), 511);
    assert_string_equal(fig_message() + 508, "...");
}

static void a_message_may_be_an_argument_of_the_next(void **state) {
    (void)state;
    fig_fail(FIG_IO, "read failed");
    fig_fail(FIG_FORMAT, "file x: %s, %s", fig_message(), fig_message());
    assert_string_equal(fig_message(), "file x: read failed, read failed");
    fig_status_relay(FIG_LOST, fig_message());
    assert_string_equal(fig_message(), "file x: read failed, read failed");
}

static void a_sentence_too_long_is_cut_and_marked(void **state) {
    (void)state;
    char longest[512], expected[512];
    memset(longest, 'x', sizeof longest);
    longest[511] = '\0';
    fig_fail(FIG_INVALID, "%s", longest);
    assert_string_equal(fig_message(), longest);

    fig_fail(FIG_INVALID, "%sy", longest);
    memset(expected, 'x', sizeof expected);
    memcpy(expected + 508, "...", 4);
    assert_string_equal(fig_message(), expected);
}

static void a_message_is_one_line_whatever_its_arguments_hold(void **state) {
    (void)state;
    fig_fail(FIG_FORMAT, "tensor \"%s\"", "a\nb\x1b[2J\x7f\t");
    assert_string_equal(fig_message(), "tensor \"a?b?[2J??\"");
}

static void *message_of_a_thread(void *sentence) {
    char before[8] = "?";
    strncpy(before, fig_message(), sizeof before - 1);
    fig_fail(FIG_IO, "%s", (const char *)sentence);
    int right = before[0] == '\0' && strcmp(fig_message(), sentence) == 0;
    return right ? sentence : NULL;
}

static void each_thread_has_its_own_message(void **state) {
    (void)state;
    char sentence[] = "of the other thread";
    pthread_t thread;
    void *result = NULL;
    fig_fail(FIG_BUSY, "of this thread");
    assert_int_equal(pthread_create(&thread, NULL, message_of_a_thread, sentence), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, sentence);
    assert_string_equal(fig_message(), "of this thread");
}

static void every_status_has_its_name(void **state) {
    (void)state;
#define NAMED(status)                                                                              \
    { status, #status }
    static const struct {
        fig_status status;
        const char *name;
    } named[] = {
        NAMED(FIG_OK),          NAMED(FIG_INVALID),   NAMED(FIG_TOO_LARGE), NAMED(FIG_UNBOUND),
        NAMED(FIG_UNSUPPORTED), NAMED(FIG_BUSY),      NAMED(FIG_ORDER),     NAMED(FIG_TIMEOUT),
        NAMED(FIG_CALLBACK),    NAMED(FIG_IO),        NAMED(FIG_FORMAT),    NAMED(FIG_STALE),
        NAMED(FIG_NOMEM),       NAMED(FIG_NO_DEVICE), NAMED(FIG_DRIVER),    NAMED(FIG_LOST)};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        assert_string_equal(fig_status_name(named[i].status), named[i].name);
    assert_string_equal(fig_status_name((fig_status)9), "no fig_status");
    assert_int_equal(fig_version(), FIG_VERSION);
}

static void no_options_are_all_default(void **state) {
    (void)state;
    options ours;
    memset(&ours, 0xa5, sizeof ours);
    assert_int_equal(fig_status_take_options(&ours, sizeof ours, NULL, "options"), FIG_OK);
    const options expected = {.size = sizeof(options)};
    assert_memory_equal(&ours, &expected, sizeof ours);
}

static void an_older_caller_leaves_the_rest_zero(void **state) {
    (void)state;
    options ours;
    /* The bytes after the older struct belong to the caller. */
    static const uint32_t older[] = {8, 77, 78, 79};
    memset(&ours, 0xa5, sizeof ours);
    assert_int_equal(fig_status_take_options(&ours, sizeof ours, older, "options"), FIG_OK);
    const options expected = {.size = sizeof(options), .first = 77};
    assert_memory_equal(&ours, &expected, sizeof ours);
}

static void a_newer_caller_is_served_where_the_surplus_is_zero(void **state) {
    (void)state;
    struct {
        options known;
        int64_t surplus;
    } newer = {{sizeof newer, 5, 6}, 0};
    options ours;
    assert_int_equal(fig_status_take_options(&ours, sizeof ours, &newer, "options"), FIG_OK);
    assert_int_equal(ours.size, sizeof ours);
    assert_int_equal(ours.first, 5);
    assert_int_equal(ours.second, 6);

    newer.surplus = INT64_C(1) << 56; /* sets the last byte */
    assert_int_equal(fig_status_take_options(&ours, sizeof ours, &newer, "options"), FIG_INVALID);
    assert_string_equal(fig_message(),
                        "options: size is 24, this library knows 16 bytes and byte 23 is not 0");
    const options refused = {.size = sizeof(options)};
    assert_memory_equal(&ours, &refused, sizeof ours);
}

static void a_size_that_was_forgotten_is_refused(void **state) {
    (void)state;
    options ours, theirs = {.first = 5};
    for (uint32_t size = 0; size < 4; size++) {
        theirs.size = size;
        assert_int_equal(fig_status_take_options(&ours, sizeof ours, &theirs, "options"),
                         FIG_INVALID);
        assert_int_equal(ours.first, 0);
    }
    assert_string_equal(fig_message(), "options: size is 3, it must be sizeof(options)");
}

/* The caller gets the fields that its header has. Fields that the library does not have become
 * zeros. */
static void an_out_struct_gets_the_fields_that_both_sides_have(void **state) {
    (void)state;
    const options ours = {.size = sizeof ours, .first = 5, .second = 6};
    options theirs = {.size = 8, .first = 1, .second = 77};
    assert_int_equal(fig_status_give(&theirs, &ours, sizeof ours, "options"), FIG_OK);
    assert_int_equal(theirs.size, 8);
    assert_int_equal(theirs.first, 5);
    assert_int_equal(theirs.second, 77);
    struct {
        options known;
        int64_t surplus;
    } newer = {{sizeof newer, 1, 2}, 3};
    assert_int_equal(fig_status_give(&newer, &ours, sizeof ours, "options"), FIG_OK);
    assert_int_equal(newer.known.size, sizeof newer);
    assert_int_equal(newer.known.second, 6);
    assert_int_equal(newer.surplus, 0);
    theirs.size = FIG_STATUS_SIZE_LIMIT + 1; /* as if the memory had never been set */
    assert_int_equal(fig_status_give(&theirs, &ours, sizeof ours, "options"), FIG_INVALID);
    assert_string_equal(fig_message(), "options: size is 16385, it must be sizeof(options)");
    options taken;
    assert_int_equal(fig_status_take_options(&taken, sizeof taken, &theirs, "options"),
                     FIG_INVALID);
    assert_int_equal(fig_status_give(NULL, &ours, sizeof ours, "options"), FIG_INVALID);
    theirs.size = 3;
    assert_int_equal(fig_status_give(&theirs, &ours, sizeof ours, "options"), FIG_INVALID);
    assert_string_equal(fig_message(), "options: size is 3, it must be sizeof(options)");
    assert_int_equal(theirs.first, 5);
}

/* Statuses of a newer library count too: an older loop may meet them without knowing their
 * names. */
static void the_tens_digit_marks_retryable_statuses(void **state) {
    (void)state;
    static const fig_status others[] = {FIG_OK,    FIG_INVALID, FIG_ORDER, FIG_CALLBACK,  FIG_IO,
                                        FIG_STALE, FIG_NOMEM,   FIG_LOST,  (fig_status)-1};
    assert_int_equal(fig_status_is_retryable(FIG_BUSY), 1);
    assert_int_equal(fig_status_is_retryable(FIG_TIMEOUT), 1);
    assert_int_equal(fig_status_is_retryable(29), 1);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(fig_status_is_retryable(others[i]), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_gives_back_the_status_and_keeps_the_sentence),
        cmocka_unit_test(a_fault_of_the_library_says_so),
        cmocka_unit_test(a_message_may_be_an_argument_of_the_next),
        cmocka_unit_test(a_sentence_too_long_is_cut_and_marked),
        cmocka_unit_test(a_message_is_one_line_whatever_its_arguments_hold),
        cmocka_unit_test(each_thread_has_its_own_message),
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(the_tens_digit_marks_retryable_statuses),
        cmocka_unit_test(no_options_are_all_default),
        cmocka_unit_test(an_older_caller_leaves_the_rest_zero),
        cmocka_unit_test(a_newer_caller_is_served_where_the_surplus_is_zero),
        cmocka_unit_test(a_size_that_was_forgotten_is_refused),
        cmocka_unit_test(an_out_struct_gets_the_fields_that_both_sides_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

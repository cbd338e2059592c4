/* test_serve_trace.c: tests that random requests have the right means, and that requests can be
 * saved to a file and read back. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tools/figraph/serve/serve_trace.h"
#include "tools/figraph/terminal/report.h"

static const fig_serve_limit roomy = {.tokens = 1 << 20, .why = "it is a test"};

static fig_serve_trace make(const fig_serve_mix *mix) {
    fig_serve_trace trace = {0};
    assert_int_equal(fig_serve_trace_make(&trace, mix), FIG_EXIT_FINE);
    assert_int_equal(trace.count, mix->count);
    return trace;
}

static void assert_same(const fig_serve_trace *a, const fig_serve_trace *b) {
    assert_int_equal(a->count, b->count);
    for (int32_t i = 0; i < a->count; i++) {
        assert_int_equal(a->requests[i].arrival_ns, b->requests[i].arrival_ns);
        assert_int_equal(a->requests[i].prompt, b->requests[i].prompt);
        assert_int_equal(a->requests[i].output, b->requests[i].output);
    }
}

/* Creates a file with these bytes; the caller unlinks it. */
static void write_file(char path[], const char *bytes) {
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, strlen(bytes)), strlen(bytes));
    assert_int_equal(close(file), 0);
}

static int read_bytes(fig_serve_trace *trace, const char *bytes, const fig_serve_limit *limit) {
    char path[] = "/tmp/test_serve_trace.XXXXXX";
    write_file(path, bytes);
    *trace = (fig_serve_trace){0};
    const int code = fig_serve_trace_read(trace, path, limit);
    unlink(path);
    return code;
}

static void lengths_have_the_means_of_sharegpt_and_a_long_tail(void **state) {
    (void)state;
    fig_serve_trace trace =
        make(&(fig_serve_mix){.count = 200000, .seed = 3, .token_limit = 1 << 20});
    const fig_serve_totals totals = fig_serve_trace_totals(&trace);
    int32_t median_below = 0;
    for (int32_t i = 0; i < trace.count; i++)
        /* the median of a log-normal distribution with mean 220: 220 / exp(1.2^2 / 2) */
        median_below += trace.requests[i].prompt <= 107;
    assert_true(fabs((double)totals.prompt / trace.count - 220) < 6);
    assert_true(fabs((double)totals.output / trace.count - 200) < 4);
    assert_true(fabs((double)median_below / trace.count - 0.5) < 0.01);
    assert_true(totals.longest > 5000);
    fig_serve_trace_finish(&trace);
}

static void arrivals_are_a_poisson_process_of_the_rate_asked_for(void **state) {
    (void)state;
    fig_serve_trace trace =
        make(&(fig_serve_mix){.count = 100000, .rate = 50, .seed = 4, .token_limit = 512});
    int64_t before = 0;
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < trace.count; i++) {
        const int64_t gap = trace.requests[i].arrival_ns - before;
        assert_true(gap >= 0);
        assert_int_equal(trace.requests[i].arrival_ns % 1000, 0);
        before = trace.requests[i].arrival_ns;
        sum += (double)gap;
        squares += (double)gap * (double)gap;
    }
    const double mean = sum / trace.count, variance = squares / trace.count - mean * mean;
    assert_true(fabs(mean - 2e7) < 3e5);
    /* in an exponential distribution, mean and standard deviation are equal */
    assert_true(fabs(sqrt(variance) - 2e7) < 5e5);
    fig_serve_trace_finish(&trace);
}

static void without_a_rate_all_are_there_at_once(void **state) {
    (void)state;
    fig_serve_trace trace = make(&(fig_serve_mix){.count = 100, .seed = 4, .token_limit = 512});
    assert_int_equal(trace.requests[99].arrival_ns, 0);
    fig_serve_trace_finish(&trace);
}

static void no_request_is_larger_than_the_limit_or_without_a_token(void **state) {
    (void)state;
    for (int32_t limit = 2; limit < 2000; limit = limit * 3 / 2 + 1) {
        fig_serve_trace trace =
            make(&(fig_serve_mix){.count = 2000, .seed = 5, .token_limit = limit});
        for (int32_t i = 0; i < trace.count; i++) {
            assert_true(trace.requests[i].prompt >= 1);
            assert_true(trace.requests[i].output >= 1);
        }
        assert_true(fig_serve_trace_totals(&trace).longest <= limit);
        fig_serve_trace_finish(&trace);
    }
}

static void a_seed_gives_the_same_requests_and_another_gives_others(void **state) {
    (void)state;
    fig_serve_mix mix = {.count = 300, .rate = 3, .seed = 6, .token_limit = 512};
    fig_serve_trace a = make(&mix), b = make(&mix);
    mix.seed = 7;
    fig_serve_trace c = make(&mix);
    assert_same(&a, &b);
    assert_memory_not_equal(a.requests, c.requests, 300 * sizeof *a.requests);
    fig_serve_trace_finish(&a);
    fig_serve_trace_finish(&b);
    fig_serve_trace_finish(&c);
}

static void a_file_keeps_every_request(void **state) {
    (void)state;
    char path[] = "/tmp/test_serve_trace.XXXXXX";
    fig_serve_trace back = {0};
    fig_serve_trace trace =
        make(&(fig_serve_mix){.count = 1000, .rate = 0.01, .seed = 8, .token_limit = 512});
    write_file(path, "");
    assert_int_equal(fig_serve_trace_write(&trace, path), FIG_EXIT_FINE);
    assert_int_equal(fig_serve_trace_read(&back, path, &roomy), FIG_EXIT_FINE);
    assert_same(&trace, &back);
    unlink(path);
    fig_serve_trace_finish(&trace);
    fig_serve_trace_finish(&back);
}

#define HEADER "arrival_s,prompt_tokens,output_tokens\n"

static void a_trace_is_read_as_it_stands(void **state) {
    (void)state;
    const fig_serve_request want[] = {{0, 5, 7}, {1500000000, 1, 1}, {1500000000, 400, 112}};
    fig_serve_trace trace;
    const fig_serve_limit limit = {.tokens = 512, .why = ""};
    assert_int_equal(read_bytes(&trace, HEADER "0,5,7\r\n1.5,1,1\n1.5000004,400,112", &limit),
                     FIG_EXIT_FINE);
    assert_same(&trace,
                &(fig_serve_trace){.requests = (fig_serve_request[]){want[0], want[1], want[2]},
                                   .count = 3});
    fig_serve_trace_finish(&trace);
}

static void a_mark_of_utf_8_stands_before_the_header(void **state) {
    (void)state;
    fig_serve_trace trace;
    assert_int_equal(read_bytes(&trace, "\xef\xbb\xbf" HEADER "0,5,7", &roomy), FIG_EXIT_FINE);
    assert_int_equal(trace.count, 1);
    fig_serve_trace_finish(&trace);
}

static void blank_lines_at_the_end_are_not_requests(void **state) {
    (void)state;
    static const char *const ends[] = {"", "\n", "\n\n", "\n  \n\r\n"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char bytes[128];
        fig_serve_trace trace;
        snprintf(bytes, sizeof bytes, HEADER "0,5,7%s", ends[i]);
        assert_int_equal(read_bytes(&trace, bytes, &roomy), FIG_EXIT_FINE);
        assert_int_equal(trace.count, 1);
        fig_serve_trace_finish(&trace);
    }
}

static void files_that_are_not_traces_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "",
        HEADER,
        "0,5,7\n",
        "arrival_s,prompt_tokens\n0,5\n",
        "arrival,prompt,output\n0,5,7\n",
        HEADER "\n",
        HEADER "\n0,5,7\n",
        HEADER "0,5,7\n\n0,5,7\n",
        HEADER "0,5\n",
        HEADER "0,5,7,9\n",
        HEADER "0,5,7 \n",
        HEADER "-1,5,7\n",
        HEADER "+1,5,7\n",
        HEADER " 1,5,7\n",
        HEADER "0x1p3,5,7\n",
        HEADER "0x8,5,7\n",
        HEADER "inf,5,7\n",
        HEADER "nan,5,7\n",
        HEADER "0,+5,7\n",
        HEADER "0,5, 7\n",
        HEADER "nan,5,7\n",
        HEADER "inf,5,7\n",
        HEADER "2e9,5,7\n",
        HEADER "x,5,7\n",
        HEADER ",5,7\n",
        HEADER "0,0,7\n",
        HEADER "0,5,0\n",
        HEADER "0,-5,7\n",
        HEADER "0,5.5,7\n",
        HEADER "0,5000000000,7\n",
        HEADER "2,5,7\n1,5,7\n",
        HEADER "0,500,13\n",
        HEADER "0,2147483647,2147483647\n",
    };
    const fig_serve_limit limit = {.tokens = 512, .why = ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fig_serve_trace trace;
        assert_int_equal(read_bytes(&trace, wrong[i], &limit), FIG_EXIT_BAD);
        fig_serve_trace_finish(&trace);
    }
}

static void a_line_longer_than_any_request_is_refused(void **state) {
    (void)state;
    char bytes[1024] = HEADER "0,5,";
    fig_serve_trace trace;
    memset(bytes + strlen(bytes), '0', 600);
    memcpy(bytes + strlen(bytes), "7\n", 3);
    assert_int_equal(read_bytes(&trace, bytes, &roomy), FIG_EXIT_BAD);
    assert_int_equal(trace.count, 0);
    fig_serve_trace_finish(&trace);
}

/* A NUL would end the string that a line is read into, and hide the text behind it. */
static void a_line_that_holds_a_nul_is_refused(void **state) {
    (void)state;
    static const char bytes[] = HEADER "0,5,7\0,9\n1,5,7\n";
    char path[] = "/tmp/test_serve_trace.XXXXXX";
    fig_serve_trace trace = {0};
    const int file = mkstemp(path);
    assert_int_equal(write(file, bytes, sizeof bytes - 1), sizeof bytes - 1);
    assert_int_equal(close(file), 0);
    assert_int_equal(fig_serve_trace_read(&trace, path, &roomy), FIG_EXIT_BAD);
    assert_int_equal(trace.count, 0);
    fig_serve_trace_finish(&trace);
    unlink(path);
}

/* Opening a pipe like a file would block until a process opens it for writing. */
static void a_pipe_is_refused_at_once(void **state) {
    (void)state;
    char path[] = "/tmp/test_serve_trace.XXXXXX", pipe[sizeof path + 8];
    fig_serve_trace trace = {0};
    assert_non_null(mkdtemp(path));
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(fig_serve_trace_read(&trace, pipe, &roomy), FIG_EXIT_BAD);
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(rmdir(path), 0);
    fig_serve_trace_finish(&trace);
}

/* The pipe's only writer has closed it, so it could be read to its end like a file. */
static void a_pipe_is_refused_although_a_trace_is_in_it(void **state) {
    (void)state;
    static const char text[] = "arrival_s,prompt_tokens,output_tokens\n0,5,5\n";
    char path[] = "/tmp/test_serve_trace.XXXXXX", pipe[sizeof path + 8];
    fig_serve_trace trace = {0};
    assert_non_null(mkdtemp(path));
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const int keeps = open(pipe, O_RDONLY | O_NONBLOCK), writes = open(pipe, O_WRONLY);
    assert_int_equal(write(writes, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(close(writes), 0);
    assert_int_equal(fig_serve_trace_read(&trace, pipe, &roomy), FIG_EXIT_BAD);
    assert_int_equal(trace.count, 0);
    assert_int_equal(close(keeps), 0);
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(rmdir(path), 0);
    fig_serve_trace_finish(&trace);
}

static void a_folder_and_a_file_that_is_not_there_are_refused(void **state) {
    (void)state;
    fig_serve_trace trace = {0};
    assert_int_equal(fig_serve_trace_read(&trace, "/tmp", &roomy), FIG_EXIT_BAD);
    assert_int_equal(fig_serve_trace_read(&trace, "/tmp/no/such/file", &roomy), FIG_EXIT_BAD);
    assert_int_equal(fig_serve_trace_write(&trace, "/tmp/no/such/file"), FIG_EXIT_BAD);
    assert_int_equal(fig_serve_trace_write(&trace, "/dev/full"), FIG_EXIT_BAD);
    fig_serve_trace_finish(&trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_have_the_means_of_sharegpt_and_a_long_tail),
        cmocka_unit_test(arrivals_are_a_poisson_process_of_the_rate_asked_for),
        cmocka_unit_test(without_a_rate_all_are_there_at_once),
        cmocka_unit_test(no_request_is_larger_than_the_limit_or_without_a_token),
        cmocka_unit_test(a_seed_gives_the_same_requests_and_another_gives_others),
        cmocka_unit_test(a_file_keeps_every_request),
        cmocka_unit_test(a_trace_is_read_as_it_stands),
        cmocka_unit_test(a_mark_of_utf_8_stands_before_the_header),
        cmocka_unit_test(blank_lines_at_the_end_are_not_requests),
        cmocka_unit_test(files_that_are_not_traces_are_refused),
        cmocka_unit_test(a_line_longer_than_any_request_is_refused),
        cmocka_unit_test(a_line_that_holds_a_nul_is_refused),
        cmocka_unit_test(a_pipe_is_refused_at_once),
        cmocka_unit_test(a_pipe_is_refused_although_a_trace_is_in_it),
        cmocka_unit_test(a_folder_and_a_file_that_is_not_there_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

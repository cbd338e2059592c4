/* test_inspect_buckets.c: that the table of buckets hides nothing, and how classes name layers. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_unstable.h"
#include "tests/support/capture.h"

typedef struct sink {
    char text[1 << 16];
    size_t count;
} sink;

static void take(void *user, const char *bytes, size_t count) {
    sink *s = user;
    assert_true(s->count + count < sizeof s->text);
    memcpy(s->text + s->count, bytes, count);
    s->count += count;
    s->text[s->count] = '\0';
}

static const char *show(sink *s, const fig_graphs *graphs, const fig_print_options *options) {
    s->count = 0;
    if (fig_graphs_print(graphs, options, take, s) != FIG_OK) fail_msg("%s", fig_message());
    return s->text;
}

static void assert_shows(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in\n%s", part, text);
}

static int lines_behind(const char *text, const char *title) {
    const char *at = strstr(text, title);
    int lines = 0;
    assert_non_null(at);
    for (; *at != '\0'; at++)
        lines += *at == '\n';
    return lines;
}

static void a_batch_has_one_line_unless_all_are_asked_for(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 2, "h200");
    sink s;
    const char *text = show(&s, graphs, NULL);
    assert_shows(text, "\nbuckets: 198, a line for each batch\n");
    assert_int_equal(lines_behind(text, "buckets: "), 2 + 9);
    assert_shows(text, "\n     1 to 22     1   128 to 131 072  1x64, 8x16     8 to 132  ");
    assert_shows(text, "\n  177 to 198   256   128 to 131 072  1x64, 8x16          132  ");
    assert_null(strstr(text, "launches"));
    text = show(&s, graphs, FIG_OPTIONS(fig_print_options, .all_buckets = 1));
    assert_shows(text, "\nbuckets: 198\n");
    assert_int_equal(lines_behind(text, "buckets: "), 2 + 198);
    assert_shows(text, "\n         198   256          131 072  8x16                132  ");
    text = show(&s, graphs, FIG_OPTIONS(fig_print_options, .columns = 100));
    assert_shows(text, " workspace   launches\n");
    fig_graphs_destroy(graphs);
}

static void a_batch_tells_of_the_bucket_that_was_lowered_again(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
    sink s;
    graphs->made_digests[7]++;
    const char *text = show(&s, graphs, NULL);
    assert_shows(text, "\n*    7 to 12     2 ");
    assert_shows(text, "\n      1 to 6     1 ");
    assert_shows(text, "relowered   1 of 24 buckets, marked *: the file's maker lowered them\n"
                       "              otherwise\n");
    fig_graphs_destroy(graphs);
}

static fig_graphs *capture_gemma(int32_t layers) {
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_spec_preset(&spec, "gemma-2-9b"), FIG_OK);
    spec.layers = layers;
    spec.window_layers[0] &= (UINT64_C(1) << layers) - 1;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    fig_program_destroy(program);
    return graphs;
}

/* Of gemma's layers every second one has a window. */
static void layers_are_named_as_a_person_would(void **state) {
    (void)state;
    static const struct {
        int32_t layers;
        const char *even, *odd;
    } cases[] = {{2, "layer 0\n", "layer 1\n"},
                 {3, "layers 0, 2\n", "layer 1\n"},
                 {4, "layers 0, 2\n", "layers 1, 3\n"},
                 {5, "layers 0, 2, ..., 4\n", "layers 1, 3\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_graphs *graphs = capture_gemma(cases[i].layers);
        char even[64], odd[64];
        sink s;
        const char *text = show(&s, graphs, NULL);
        snprintf(even, sizeof even, "window 4 096: %s", cases[i].even);
        snprintf(odd, sizeof odd, "all tokens: %s", cases[i].odd);
        assert_shows(text, even);
        assert_shows(text, odd);
        fig_graphs_destroy(graphs);
    }
}

static void machines_and_activations_have_names(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
    sink s;
    assert_shows(show(&s, graphs, NULL), "machine     host: steps are cut for 8 blocks at once\n");
    assert_shows(show(&s, graphs, FIG_OPTIONS(fig_print_options, .bucket = 1)),
                 "activation      silu\n");
    assert_shows(s.text, "1 row, 1 class, 256 bytes");
    assert_shows(show(&s, graphs, FIG_OPTIONS(fig_print_options, .format = FIG_PRINT_JSON)),
                 "\"activation\": \"silu\"");
    fig_graphs_destroy(graphs);
    graphs = fig_capture_preset("tutorial", 1, "h200");
    assert_shows(show(&s, graphs, NULL),
                 "machine     h200: compute capability 9.0, 132 SMs, 232 448 shared bytes");
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_has_one_line_unless_all_are_asked_for),
        cmocka_unit_test(a_batch_tells_of_the_bucket_that_was_lowered_again),
        cmocka_unit_test(layers_are_named_as_a_person_would),
        cmocka_unit_test(machines_and_activations_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

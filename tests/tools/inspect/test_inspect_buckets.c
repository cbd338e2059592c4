/* test_inspect_buckets.c: tests that the table of buckets leaves nothing out, and how the layers of
 * a class are named. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "tools/figraph/inspect/inspect_buckets.h"
#include "include/figraph_unstable.h"
#include "tests/support/files/capture.h"
#include "tests/support/files/sink.h"
#include "tools/figraph/inspect/inspect_print.h"

static const char *show(fig_sink *s, const fig_graphs *graphs, const fig_print_options *options) {
    s->count = 0;
    if (fig_inspect_print(graphs, options, fig_sink_take, s) != FIG_OK)
        fail_msg("%s", fig_message());
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

/* In `form`, "%" PRIu32 stands for the number of buckets. */
static void assert_shows_count(const char *text, const char *form, uint32_t count) {
    char part[128];
    snprintf(part, sizeof part, form, count);
    assert_shows(text, part);
}

static void a_batch_has_one_line_unless_all_are_asked_for(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 2, "h200");
    const uint32_t count = graphs->bucket_count;
    fig_sink s;
    const char *text = show(&s, graphs, NULL);
    assert_shows_count(text, "\nbuckets: %" PRIu32 ", a line for each batch\n", count);
    assert_int_equal(lines_behind(text, "buckets: "), 2 + 9);
    assert_shows(text, "\n     1 to 1");
    assert_shows_count(text, " to %" PRIu32 "   256   128 to 131 072  ", count);
    assert_null(strstr(text, "launches"));
    text = show(&s, graphs, &(fig_print_options){.all_buckets = 1});
    assert_shows_count(text, "\nbuckets: %" PRIu32 "\n", count);
    assert_int_equal(lines_behind(text, "buckets: "), 2 + (int)count);
    assert_shows_count(text, "\n         %" PRIu32 "   256          131 072  ", count);
    assert_shows(text, "\n           1     1              128  1x64");
    text = show(&s, graphs, &(fig_print_options){.columns = 100});
    assert_shows(text, " workspace   launches\n");
    fig_graphs_destroy(graphs);
}

/* If a batch has several variants, their heads are shown; if it has one, also the tokens of its
 * tile. */
static void variants_of_a_batch_are_told_by_their_heads(void **state) {
    (void)state;
    static const struct {
        int32_t heads, tile_tokens, workers;
        const char *told;
    } cases[] = {{2, 64, 9, "  2x64   "}, {1, 64, 9, "  1, 2   "}, {0, 0, 0, "  none   "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
        fig_bucket_info infos[64];
        const fig_inspection *view;
        assert_int_equal(fig_inspection_open(&view, graphs, 0), FIG_OK);
        fig_inspect_summary summary = {.graphs = graphs, .view = view, .infos = infos};
        fig_sink s = {.count = 0};
        fig_print print = {.write = fig_sink_take, .user = &s, .columns = 80};
        for (uint32_t n = 0; n < graphs->bucket_count; n++) {
            infos[n] = (fig_bucket_info){.bucket = {1, 128}, .heads = 2, .tile_tokens = 64};
            infos[n].workers = cases[i].workers;
        }
        infos[0].heads = cases[i].heads;
        infos[0].tile_tokens = cases[i].tile_tokens;
        fig_inspect_buckets_print(&print, &summary);
        assert_shows(s.text, cases[i].told);
        fig_inspection_close(view);
        fig_graphs_destroy(graphs);
    }
}

/* A worker reads no KV heads of a latent cache, but serves some q heads. */
static void over_a_latent_cache_heads_are_q_heads(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("deepseek-v3", 4, "h200");
    fig_bucket_info info = {.size = sizeof info};
    char told[64];
    fig_sink s;
    assert_int_equal(fig_graphs_bucket(graphs, 1, &info), FIG_OK);
    assert_in_range(info.heads, 1, 8);
    const char *text = show(&s, graphs, &(fig_print_options){.all_buckets = 1});
    assert_shows(text, "128 q heads of 512 in groups of 16 or more");
    snprintf(told, sizeof told, "  %" PRId32 "x64 ", 16 * info.heads);
    assert_shows(strstr(text, "q heads/tile"), told);
    assert_shows(show(&s, graphs, NULL), "  16, 32, 64, 128 ");
    snprintf(told, sizeof told, "variant     %" PRId32 " q heads at once", 16 * info.heads);
    assert_shows(show(&s, graphs, &(fig_print_options){.bucket = 1}), told);
    fig_graphs_destroy(graphs);
}

/* Batches grow along the table, so the last bucket belongs to the last batch. */
static void a_batch_tells_of_the_bucket_that_was_lowered_again(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
    char counted[128];
    fig_sink s;
    graphs->made_digests[graphs->bucket_count - 1]++;
    const char *text = show(&s, graphs, NULL);
    snprintf(counted, sizeof counted, "relowered   1 of %" PRIu32 " buckets, marked *: the file's",
             graphs->bucket_count);
    assert_shows(text, counted);
    const char *marked = strstr(text, "\n* ");
    assert_non_null(marked);
    assert_null(strstr(marked + 1, "\n* "));
    snprintf(counted, sizeof counted, " to %" PRIu32 "     8 ", graphs->bucket_count);
    assert_int_equal(strncmp(strstr(marked, " to "), counted, strlen(counted)), 0);
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

/* Every second layer of gemma has a window. */
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
        fig_sink s;
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
    fig_sink s;
    assert_shows(show(&s, graphs, NULL), "machine     host: steps are cut for 8 blocks at once\n");
    assert_shows(show(&s, graphs, &(fig_print_options){.bucket = 1}),
                 "activation           silu\n");
    assert_shows(s.text, "1 row, 1 class, 256 bytes");
    assert_shows(show(&s, graphs, &(fig_print_options){.format = FIG_PRINT_JSON}),
                 "\"activation\": \"silu\"");
    fig_graphs_destroy(graphs);
    graphs = fig_capture_preset("tutorial", 1, "h200");
    assert_shows(show(&s, graphs, NULL),
                 "machine     h200: compute capability 9.0, 132 SMs, 232 448 shared bytes");
    fig_graphs_destroy(graphs);
}

/* A spec for row operations has neither classes nor fields that depend on heads. */
static void a_spec_without_heads_has_no_attention(void **state) {
    (void)state;
    const fig_tensor_info rows = {.size = sizeof rows,
                                  .name = "x",
                                  .role = FIG_ROLE_BOUND,
                                  .dtype = FIG_F16,
                                  .rank = 2,
                                  .dims = {FIG_DIM_BATCH, 14}};
    fig_tensor_info half = rows;
    fig_gated_op op = {.size = sizeof op};
    fig_program *program;
    fig_graphs *graphs;
    fig_sink s;
    half.name = "y";
    half.dims[1] = 7;
    assert_int_equal(fig_program_create(&program, FIG_OPTIONS(fig_spec, .dtype = FIG_F16)), FIG_OK);
    op.in = fig_program_tensor(program, &rows);
    op.out = fig_program_tensor(program, &half);
    fig_silu_and_mul(program, &op);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    assert_shows(show(&s, graphs, NULL), "attention   none, the spec has no heads\n");
    assert_shows(s.text, "attention classes: 0\n");
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_has_one_line_unless_all_are_asked_for),
        cmocka_unit_test(variants_of_a_batch_are_told_by_their_heads),
        cmocka_unit_test(over_a_latent_cache_heads_are_q_heads),
        cmocka_unit_test(a_batch_tells_of_the_bucket_that_was_lowered_again),
        cmocka_unit_test(layers_are_named_as_a_person_would),
        cmocka_unit_test(machines_and_activations_have_names),
        cmocka_unit_test(a_spec_without_heads_has_no_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

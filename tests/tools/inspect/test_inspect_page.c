/* test_inspect_page.c: tests that pages and drawings contain everything that was requested.
 *
 * tests/tools/figraph/test_inspect.sh checks their structure tag by tag. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_scores.h"
#include "include/figraph_unstable.h"
#include "planner/machine/traits.h"
#include "tests/support/fault.h"
#include "tests/support/files/capture.h"
#include "tests/support/files/sample.h"
#include "tools/figraph/inspect/failure.h"
#include "tools/figraph/inspect/inspect_map.h"
#include "tools/figraph/inspect/inspect_print.h"

typedef struct page {
    char text[1 << 19];
    size_t count;
} page;

static void take(void *user, const char *bytes, size_t count) {
    page *p = user;
    assert_true(p->count + count < sizeof p->text);
    memcpy(p->text + p->count, bytes, count);
    p->count += count;
    p->text[p->count] = '\0';
}

static const char *show(const fig_graphs *graphs, const fig_print_options *options) {
    static page p;
    p.count = 0;
    if (fig_inspect_print(graphs, options, take, &p) != FIG_OK) fail_msg("%s", fig_message());
    return p.text;
}

static int count_of(const char *text, const char *what) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    return count;
}

/* The page must show all params by field, the members of the split included, and names in place of
 * addresses. */
static void a_page_holds_every_param_of_every_launch_shown(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    const char *text = show(graphs, &(fig_print_options){.format = FIG_PRINT_HTML, .bucket = 1});
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_program_view *view = fig_program_view_of(graphs->program);
        int used = op == FIG_OP_FETCH;
        for (uint32_t n = 0; n < view->node_count; n++)
            used |= view->nodes[n].op == op;
        for (uint32_t i = 0; used && i < fig_kernel_table[op].field_count; i++) {
            const fig_field *field = &fig_kernel_table[op].fields[i];
            char term[128];
            if (field->kind == FIG_FIELD_ZERO) continue;
            snprintf(term, sizeof term, "<dt>%s%s", field->name,
                     field->type == FIG_TYPE_SPLIT ? ".groups</dt>" : "</dt>");
            if (strstr(text, term) == NULL) fail_msg("%s is nowhere", term);
        }
    }
    assert_non_null(strstr(text, "<dd>stride 1 of q.1</dd>"));
    assert_non_null(strstr(text, "<dd>workspace+0x"));
    assert_non_null(strstr(text, "reads k_cache.0)"));
    fig_graphs_destroy(graphs);
}

static void a_step_has_a_bar_for_each_worker_of_each_class(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("gemma-2-9b", 42, "h200");
    const int32_t lengths[] = {8000, 100, 0};
    const fig_step step = {.size = sizeof step, .rows = 3, .kv_lengths = lengths};
    fig_plan_report report = {.size = sizeof report};
    assert_int_equal(fig_graphs_plan(graphs, &step, &report), FIG_OK);
    const char *text = show(graphs, &(fig_print_options){.format = FIG_PRINT_HTML, .step = &step});
    char words[64];
    snprintf(words, sizeof words, "the step takes bucket %d.", report.bucket);
    assert_non_null(strstr(text, words));
    snprintf(words, sizeof words, "<h2>Bucket %d of ", report.bucket);
    assert_non_null(strstr(text, words));
    assert_int_equal(count_of(text, "<svg class=\"bars\""), 2);
    /* Every tile of the first class, which fig_graphs_plan() reports, is in one piece of the
     * drawing. */
    int64_t tiles = 0;
    const char *second = strstr(strstr(text, "<svg class=\"bars\"") + 1, "<svg class=\"bars\"");
    for (const char *at = strstr(text, "<title>worker "); at < second;
         at = strstr(at + 1, "<title>worker ")) {
        int worker, part, all, row;
        assert_int_equal(sscanf(at, "<title>worker %d: %d of %d tiles are of row %d<", &worker,
                                &part, &all, &row),
                         4);
        assert_true(part > 0 && part <= all && row < 2 && worker < report.workers);
        tiles += part;
    }
    assert_int_equal(tiles, report.tiles);
    assert_non_null(strstr(text, ">tiles</text>"));
    assert_non_null(strstr(text, ">worker</text>"));
    assert_non_null(strstr(text, "class=\"row1\""));
    assert_non_null(strstr(text, "a window of 4 096"));
    fig_graphs_destroy(graphs);
}

/* Over a latent cache, a worker serves q heads. A row of 100 tokens has two tiles for each group of
 * q heads. */
static void a_page_of_a_latent_cache_tells_of_q_heads(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("deepseek-v3", 4, "h200");
    const int32_t lengths[] = {100};
    const fig_step step = {.size = sizeof step, .rows = 1, .kv_lengths = lengths};
    fig_plan_report report = {.size = sizeof report};
    char words[96];
    assert_int_equal(fig_graphs_plan(graphs, &step, &report), FIG_OK);
    assert_int_equal(report.groups * report.heads, 128 / 16);
    const char *text = show(graphs, &(fig_print_options){.format = FIG_PRINT_HTML, .step = &step});
    snprintf(words, sizeof words, "<dt>q heads at once</dt><dd>%d</dd>", 16 * report.heads);
    assert_non_null(strstr(text, words));
    snprintf(words, sizeof words, "<p>Class 1, groups of 16 q heads or more: %d tiles",
             2 * report.groups);
    assert_non_null(strstr(text, words));
    assert_non_null(strstr(text, "<th>q heads x tile</th>"));
    snprintf(words, sizeof words, "<td>%d x 64</td>", 16 * report.heads);
    assert_non_null(strstr(text, words));
    assert_null(strstr(text, "kv heads at once"));
    fig_graphs_destroy(graphs);
}

/* A row whose mask hides all but the first and the last tile has two tiles in the drawing. */
static void tiles_that_a_mask_hides_are_not_drawn(void **state) {
    const int32_t lengths[] = {500, 500};
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths};
    fig_plan_report report = {.size = sizeof report};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    fig_score *score;
    int32_t drawn[2] = {0, 0};
    (void)state;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    assert_int_equal(fig_score_parse(&score, "see 0:1, q_pos:q_pos + 1; score"), FIG_OK);
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step_score(program, score);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    assert_int_equal(fig_graphs_plan(graphs, &step, &report), FIG_OK);
    const char *text = show(graphs, &(fig_print_options){.format = FIG_PRINT_HTML, .step = &step});
    for (const char *at = strstr(text, "<title>worker "); at != NULL;
         at = strstr(at + 1, "<title>worker ")) {
        int worker, part, all, row;
        assert_int_equal(sscanf(at, "<title>worker %d: %d of %d tiles are of row %d<", &worker,
                                &part, &all, &row),
                         4);
        assert_in_range(row, 0, 1);
        drawn[row] += part;
    }
    assert_int_equal(drawn[0], 2 * report.groups);
    assert_int_equal(drawn[1], 2 * report.groups);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
    fig_score_destroy(score);
}

static void without_a_bucket_the_last_is_drawn(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    for (fig_print_format format = FIG_PRINT_HTML; format <= FIG_PRINT_DOT; format++) {
        char *last = strdup(show(graphs, &(fig_print_options){.format = format}));
        const int32_t count = (int32_t)graphs->bucket_count;
        assert_non_null(last);
        assert_string_equal(last,
                            show(graphs, &(fig_print_options){.format = format, .bucket = count}));
        assert_string_not_equal(last,
                                show(graphs, &(fig_print_options){.format = format, .bucket = 1}));
        free(last);
    }
    fig_graphs_destroy(graphs);
}

/* Pages and drawings do not escape names, so names must not contain markup. */
static void no_name_may_be_markup(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    for (const char *mark = "<>&\"'\\;{}\x1b\xff "; *mark != '\0'; mark++) {
        const char name[] = {'a', *mark, '\0'};
        fig_program *program;
        assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = name));
        assert_int_equal(fig_program_finish(program), FIG_INVALID);
        fig_program_destroy(program);
        assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
        fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name, .dtype = FIG_F32,
                                                .rank = 1, .dims = {4}));
        assert_int_equal(fig_program_finish(program), FIG_INVALID);
        fig_program_destroy(program);
        fig_traits traits = {.size = sizeof traits, .sm_count = 1, .shared_bytes = 1 << 16};
        snprintf(traits.name, sizeof traits.name, "%s", name);
        assert_int_equal(fig_traits_check(&traits), FIG_INVALID);
    }
}

static void the_map_covers_the_workspace_and_names_each_user(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    fig_inspect_bucket bucket = {.graphs = graphs};
    fig_inspect_map map;
    uint64_t end = 0;
    uint32_t seen = 0;
    assert_int_equal(fig_inspection_open(&bucket.view, graphs, 1), FIG_OK);
    assert_int_equal(fig_inspect_map_make(&map, &bucket), FIG_OK);
    for (uint32_t i = 0; i < map.count; i++) {
        const fig_inspect_part *part = &map.parts[i];
        assert_int_equal(part->offset, end);
        end += part->bytes;
        /* launch 1 (the call) writes up.0, and launch 2 (gated) reads it */
        if (strcmp(part->name, "up.0") == 0) {
            assert_int_equal(part->first, 1);
            assert_int_equal(part->last, 2);
            seen++;
        }
        if (strcmp(part->name, "partials of class 1") == 0) {
            assert_int_equal(part->first, 5);
            assert_int_equal(part->last, 11);
            seen++;
        }
    }
    assert_int_equal(end, graphs->workspace.bytes);
    assert_int_equal(seen, 2);
    fig_inspect_map_finish(&map);
    fig_inspection_close(bucket.view);
    fig_graphs_destroy(graphs);
}

static void a_step_is_for_a_page_alone_and_must_be_one(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    static page p;
    const int32_t lengths[] = {1 << 20};
    const fig_step step = {.size = sizeof step, .rows = 1, .kv_lengths = lengths};
    fig_print_options options = {.format = FIG_PRINT_SVG, .step = &step};
    assert_int_equal(fig_inspect_print(graphs, &options, take, &p), FIG_INVALID);
    options.format = FIG_PRINT_HTML;
    assert_int_not_equal(fig_inspect_print(graphs, &options, take, &p), FIG_OK);
    assert_non_null(strstr(fig_failure_message(), "1048576"));
    assert_int_equal(p.count, 0);
    fig_graphs_destroy(graphs);
}

static void count_bytes(void *user, const char *bytes, size_t count) {
    (void)bytes;
    *(size_t *)user += count;
}

static void a_failed_allocation_prints_nothing(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.layers = 1;
    fig_graphs *graphs = fig_sample_lower(
        &spec, FIG_OPTIONS(fig_lower_options, .buckets = &(fig_bucket){2, 100}, .bucket_count = 1));
    const int32_t lengths[] = {5, 7};
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths};
    const fig_print_options options = {.format = FIG_PRINT_HTML, .step = &step};
    /* Jansson makes thousands of allocations, so the test fails only some of them. */
    for (int64_t n = 1;; n += 1 + n / 16) {
        size_t printed = 0;
        fig_fault_arm(n);
        const fig_status status = fig_inspect_print(graphs, &options, count_bytes, &printed);
        if (fig_fault_disarm() < n) {
            assert_int_equal(status, FIG_OK);
            assert_true(n > 10);
            break;
        }
        /* Jansson can succeed although some allocations fail. */
        if (status == FIG_OK) continue;
        assert_int_equal(status, FIG_NOMEM);
        assert_int_equal(printed, 0);
    }
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_holds_every_param_of_every_launch_shown),
        cmocka_unit_test(a_step_has_a_bar_for_each_worker_of_each_class),
        cmocka_unit_test(a_page_of_a_latent_cache_tells_of_q_heads),
        cmocka_unit_test(tiles_that_a_mask_hides_are_not_drawn),
        cmocka_unit_test(without_a_bucket_the_last_is_drawn),
        cmocka_unit_test(no_name_may_be_markup),
        cmocka_unit_test(the_map_covers_the_workspace_and_names_each_user),
        cmocka_unit_test(a_step_is_for_a_page_alone_and_must_be_one),
        cmocka_unit_test(a_failed_allocation_prints_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_collectives.c: tests the collectives of a program: how they are recorded, saved, printed,
 * divided among ranks, and ordered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_parallel.h"
#include "include/figraph_runner.h"
#include "include/figraph_unstable.h"
#include "tests/support/files/sample.h"
#include "tests/support/files/sink.h"
#include "tools/figraph/inspect/inspect_print.h"

static fig_tensor rows(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, width}));
}

static fig_tensor weight_of(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 1, .dims = {width}));
}

/* Records an activation and three collectives, each on tensors of its own: "a", "sum of b" and
 * "c". */
static fig_program *record(void) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const fig_tensor a = rows(program, "a", 24), c = rows(program, "c", 16);
    fig_rms_norm_op norm = {.size = sizeof norm, .weight_offset = 1};
    norm.in = rows(program, "b", 32);
    norm.out = rows(program, "normed", 32);
    norm.residual = rows(program, "residual", 32);
    norm.weight = weight_of(program, "weight", 32);
    fig_all_reduce(program, FIG_OPTIONS(fig_all_reduce_op, .in = a, .out = a));
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = rows(program, "gate_up", 64),
                                          .out = rows(program, "act", 32)));
    fig_all_reduce_add_rms_norm(program, &norm);
    fig_all_gather(program,
                   FIG_OPTIONS(fig_all_gather_op, .in = c, .out = rows(program, "all", 16)));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

static fig_graphs *lower(void) {
    static const fig_bucket buckets[] = {{2, 64}, {6, 200}};
    fig_program *program = record();
    fig_graphs *graphs;
    if (fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = buckets, .bucket_count = 2)) !=
        FIG_OK)
        fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

static void recorded_nodes_have_their_defaults(void **state) {
    (void)state;
    fig_program *program = record();
    const fig_program_view *view = fig_program_view_of(program);
    static const fig_op ops[] = {FIG_OP_ALL_REDUCE, FIG_OP_GATED, FIG_OP_ALL_REDUCE,
                                 FIG_OP_ALL_GATHER};
    fig_rms_norm_attributes stored;
    assert_int_equal(view->node_count, 4);
    for (uint32_t n = 0; n < 4; n++) {
        assert_int_equal(view->nodes[n].op, ops[n]);
        assert_int_equal(fig_program_view_meets(&view->nodes[n]), n != 1);
    }
    memcpy(&stored, view->attributes + view->nodes[0].attribute, sizeof stored);
    assert_true(stored.epsilon == 0.0f && stored.weight_offset == 0.0f);
    memcpy(&stored, view->attributes + view->nodes[2].attribute, sizeof stored);
    assert_true(stored.epsilon == 1e-6f && stored.weight_offset == 1.0f);
    fig_program_destroy(program);
}

static void a_norm_without_its_tensors_is_refused_by_name(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    for (int lacks_weight = 0; lacks_weight < 2; lacks_weight++) {
        fig_program *program = fig_sample_program(&spec);
        fig_rms_norm_op norm = {.size = sizeof norm};
        norm.in = norm.out = rows(program, "x", 32);
        if (lacks_weight) norm.residual = rows(program, "residual", 32);
        if (!lacks_weight) norm.weight = weight_of(program, "weight", 32);
        fig_all_reduce_add_rms_norm(program, &norm);
        FIG_SAMPLE_REFUSES(fig_program_finish(program), FIG_INVALID,
                           lacks_weight ? "all_reduce_add_rms_norm: weight is absent"
                                        : "all_reduce_add_rms_norm: residual is absent");
        fig_program_destroy(program);
    }
}

/* The collectives share no tensor. Their order comes from a token that every collective reads and
 * writes when the program is finished. */
static void collectives_are_ordered_among_themselves_alone(void **state) {
    (void)state;
    fig_program *program = record();
    const fig_program_view *view = fig_program_view_of(program);
    static const fig_edge edges[] = {{0, 2}, {2, 3}};
    assert_int_equal(view->edge_count, 2);
    assert_memory_equal(view->edges, edges, sizeof edges);
    fig_program_destroy(program);
}

static void a_file_keeps_collectives_in_order(void **state) {
    (void)state;
    fig_graphs *made = lower(), *loaded;
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(made, &bytes, &count), FIG_OK);
    if (fig_graphs_parse(&loaded, bytes, count) != FIG_OK) fail_msg("%s", fig_message());
    const fig_program_view *view = fig_program_view_of(made->program);
    const fig_program_view *kept = fig_program_view_of(loaded->program);
    assert_memory_equal(made->content_id, loaded->content_id, sizeof made->content_id);
    assert_int_equal(kept->edge_count, view->edge_count);
    assert_memory_equal(kept->edges, view->edges, view->edge_count * sizeof *view->edges);
    for (uint32_t i = 0; i < made->bucket_count; i++)
        assert_int_equal(made->digests[i], loaded->digests[i]);
    free(bytes);
    fig_graphs_destroy(loaded);
    fig_graphs_destroy(made);
}

static void lowering_tells_a_launch_its_node_and_its_peers(void **state) {
    (void)state;
    fig_graphs *graphs = lower();
    fig_lowered lowered;
    assert_int_equal(fig_lower_bucket(&graphs->common, &graphs->buckets[1], &lowered), FIG_OK);
    /* launch 0 is the fetch, so launch 3 belongs to node 2 */
    const fig_launch *launch = &lowered.launches[3];
    fig_all_reduce_params params;
    int peers = 0, fields = 0;
    memcpy(&params, lowered.params + launch->params, sizeof params);
    assert_int_equal(params.node, 2);
    assert_int_equal(params.width, 32);
    assert_int_equal(params.rows.row_limit, 6);
    assert_int_equal(params.dtype, FIG_BF16);
    for (uint32_t i = 0; i < launch->reloc_count; i++) {
        const fig_reloc *reloc = &lowered.relocs[launch->reloc + i];
        peers += reloc->kind == FIG_RELOC_PEERS &&
                 reloc->offset == launch->params + offsetof(fig_all_reduce_params, peers);
        fields++;
    }
    assert_int_equal(peers, 1);
    assert_int_equal(fields, 9);
    fig_lower_finish(&lowered);
    fig_graphs_destroy(graphs);
}

static void print(const fig_graphs *graphs, fig_print_format format, int32_t bucket,
                  fig_sink *sink) {
    sink->count = 0;
    if (fig_inspect_print(graphs,
                          &(fig_print_options){.format = format, .bucket = bucket, .columns = 200},
                          fig_sink_take, sink) != FIG_OK)
        fail_msg("%s", fig_message());
}

static void inspection_shows_collectives_as_text_and_json(void **state) {
    (void)state;
    static fig_sink sink;
    static const char *const expected[2][2][4] = {
        {{"all_reduce", "b, weight, residual -> residual, normed", "all_gather", "c -> all"},
         {"all_reduce", "peers", "the other ranks", "grid 136"}},
        {{"\"all_reduce\"", "\"all_gather\"", "\"weight_offset\"", "\"residual\""},
         {"\"engine\": \"peers\"", "\"all_reduce\"", "\"weight_offset\"", "\"node\": 2"}}};
    fig_graphs *graphs = lower();
    for (int format = 0; format < 2; format++) {
        for (int bucket = 0; bucket < 2; bucket++) {
            print(graphs, format == 0 ? FIG_PRINT_TEXT : FIG_PRINT_JSON, bucket, &sink);
            for (int i = 0; i < 4; i++)
                if (strstr(sink.text, expected[format][bucket][i]) == NULL)
                    fail_msg("%s is not in:\n%s", expected[format][bucket][i], sink.text);
        }
    }
    fig_graphs_destroy(graphs);
}

/* Every rank has a whole sum, and a part of the tensor that is gathered. */
static void a_share_sums_what_is_whole_and_gathers_its_part(void **state) {
    (void)state;
    fig_graphs *model = lower(), *share;
    if (fig_graphs_rank(&share, model, 2) != FIG_OK) fail_msg("%s", fig_message());
    const fig_program_view *view = fig_program_view_of(share->program);
    static const struct {
        const char *name;
        int64_t width;
    } widths[] = {{"a", 24}, {"b", 32}, {"normed", 32}, {"c", 8}, {"all", 16}, {"act", 16}};
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
            if (strcmp(fig_program_view_tensor_name(view, id), widths[i].name) != 0) continue;
            assert_int_equal(view->tensors[id - 1].dims[1], widths[i].width);
        }
    }
    fig_graphs_destroy(share);
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&share, model, 4), FIG_INVALID,
                       "in has width 4, it must be a multiple of 8");
    fig_graphs_destroy(model);
}

static void a_runner_refuses_collectives(void **state) {
    (void)state;
    fig_graphs *graphs = lower();
    fig_runner *runner;
    FIG_SAMPLE_REFUSES(fig_runner_open(&runner, graphs,
                                       FIG_OPTIONS(fig_runner_options, .device = FIG_DEVICE_HOST)),
                       FIG_UNSUPPORTED, "node 0 is a collective");
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_nodes_have_their_defaults),
        cmocka_unit_test(a_norm_without_its_tensors_is_refused_by_name),
        cmocka_unit_test(collectives_are_ordered_among_themselves_alone),
        cmocka_unit_test(a_file_keeps_collectives_in_order),
        cmocka_unit_test(lowering_tells_a_launch_its_node_and_its_peers),
        cmocka_unit_test(inspection_shows_collectives_as_text_and_json),
        cmocka_unit_test(a_share_sums_what_is_whole_and_gathers_its_part),
        cmocka_unit_test(a_runner_refuses_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

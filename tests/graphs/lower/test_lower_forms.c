/* test_lower_forms.c: tests that a bucket of ones lowers to the launches that the program would
 * have if it were not packed and its rows had one query token each, byte for byte; that one of
 * drafts does so as if no row could be a chunk; and that one of strips has the launches for chunks
 * alone.
 *
 * Invariant: both programs have the same nodes, and differ only in launches for chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/variants.h"
#include "graphs/record/program.h"
#include "tests/support/files/sample.h"

enum { ROWS = 24, KV = 2000 };

/* A program, and its lowering for one bucket. */
typedef struct ground {
    fig_program *program;
    fig_bucket_shape shape;
    fig_workspace workspace;
    fig_lower_common common;
    fig_lowered lowered;
} ground;

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

static void ground_make(ground *g, fig_program *program, const fig_lower_target *target,
                        int32_t variant) {
    const fig_program_view *view = fig_program_view_of(program);
    g->program = program;
    g->shape = (fig_bucket_shape){.caps = {ROWS, KV}, .variant = variant};
    expect(fig_lower_shape(view, target, 3, &g->shape));
    expect(fig_workspace_init(&g->workspace, view, &g->shape, 1));
    expect(fig_lower_common_init(&g->common, view, &g->workspace));
    expect(fig_lower_bucket(&g->common, &g->shape, &g->lowered));
}

static void ground_finish(ground *g) {
    fig_lower_finish(&g->lowered);
    fig_lower_common_finish(&g->common);
    fig_workspace_finish(&g->workspace);
    fig_program_destroy(g->program);
}

static fig_spec spec_of(int32_t q_heads, int32_t kv_heads, int32_t head_dim) {
    fig_spec spec = fig_sample_spec();
    spec.dtype = FIG_BF16;
    spec.q_heads = q_heads;
    spec.kv_heads = kv_heads;
    spec.head_dim = head_dim;
    spec.batch_limit = spec.sequence_limit = ROWS;
    spec.kv_limit = KV;
    return spec;
}

static void expect_same_launches(const ground *ones, const ground *plain) {
    uint32_t other = 0;
    for (uint32_t i = 0; i < ones->lowered.launch_count; i++) {
        const fig_launch *a = &ones->lowered.launches[i], *b = &plain->lowered.launches[other];
        if (fig_lower_is_idle(&ones->lowered, i)) continue;
        assert_true(other++ < plain->lowered.launch_count);
        assert_int_equal(a->op, b->op);
        assert_int_equal(a->node, b->node);
        assert_int_equal(a->params_bytes, b->params_bytes);
        if (a->op != FIG_OP_CALL && memcmp(ones->lowered.params + a->params,
                                           plain->lowered.params + b->params, a->params_bytes) != 0)
            fail_msg("launch %u, %s: other params", i, fig_table_op_name(a->op));
    }
    assert_int_equal(other, plain->lowered.launch_count);
}

/* Compares a bucket of a form with one of another program. Returns the number of its launches that
 * have no work. */
static uint32_t compare_form(fig_program *program, fig_program *other, fig_bucket_form form,
                             const char *machine, int32_t candidate) {
    static ground ones, plain; /* too large for the stack */
    const fig_lower_target target = fig_sample_target(machine);
    const int32_t of_form = fig_traits_variant_count(&target.traits);
    uint32_t idle = 0;
    ground_make(&ones, program, &target, (int32_t)form * of_form + candidate);
    ground_make(&plain, other, &target, candidate);
    assert_int_equal(ones.shape.form, form);
    assert_memory_equal(&ones.shape.plan, &plain.shape.plan, sizeof plain.shape.plan);
    assert_memory_equal(ones.shape.variants, plain.shape.variants, sizeof plain.shape.variants);
    assert_memory_equal(ones.shape.is_short, plain.shape.is_short, sizeof plain.shape.is_short);
    assert_int_equal(fig_plan_strips_room(&ones.shape.plan), 0);
    expect_same_launches(&ones, &plain);
    for (uint32_t i = 0; i < ones.lowered.launch_count; i++)
        idle += (uint32_t)fig_lower_is_idle(&ones.lowered, i);
    ground_finish(&ones);
    ground_finish(&plain);
    return idle;
}

static uint32_t compare(const fig_spec *given, int32_t row_tokens, const char *machine,
                        int32_t candidate, fig_program *(*record)(const fig_spec *)) {
    fig_spec packed = *given;
    packed.row_tokens = row_tokens;
    packed.query_limit = row_tokens + ROWS;
    return compare_form(record(&packed), record(given), FIG_FORM_ONES, machine, candidate);
}

static void every_variant_is_that_of_a_program_that_is_not_packed(void **state) {
    (void)state;
    static const char *const machines[] = {"h200", "a100", "host"};
    static const int32_t heads[][3] = {{32, 8, 128}, {8, 2, 64},  {16, 1, 128},
                                       {8, 8, 256},  {24, 8, 80}, {64, 4, 64}};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        fig_spec spec = spec_of(heads[i][0], heads[i][1], heads[i][2]);
        if (i % 3 == 1) spec.kv_dtype = FIG_E4M3;
        for (size_t m = 0; m < sizeof machines / sizeof machines[0]; m++) {
            const fig_lower_target target = fig_sample_target(machines[m]);
            const int32_t count = fig_traits_variant_count(&target.traits);
            for (int32_t v = 0; v < count; v++) {
                assert_int_equal(compare(&spec, 8, machines[m], v, fig_sample_step), 0);
                assert_int_equal(compare(&spec, 200, machines[m], v, fig_sample_step),
                                 (uint32_t)spec.layers);
                assert_int_equal(compare(&spec, 200, machines[m], v, fig_sample_apart),
                                 (uint32_t)spec.layers);
            }
        }
    }
}

static void latents_have_the_same_groups_too(void **state) {
    (void)state;
    static const int32_t heads[] = {16, 128};
    for (int32_t i = 0; i < 2; i++) {
        fig_spec spec = spec_of(heads[i], 1, 576);
        spec.latent_dim = 512;
        spec.sm_scale = 0.07f;
        for (int32_t v = 0; v < 4; v++)
            assert_int_equal(compare(&spec, 4, "h200", v, fig_sample_step), 0);
    }
}

static void windows_keep_their_classes(void **state) {
    (void)state;
    fig_spec spec = spec_of(8, 2, 64);
    spec.window = 100;
    spec.window_layers[0] = 1;
    for (int32_t v = 0; v < 4; v++)
        assert_int_equal(compare(&spec, 200, "h200", v, fig_sample_step), (uint32_t)spec.layers);
}

static void drafts_are_those_of_a_program_without_chunks(void **state) {
    (void)state;
    static const int32_t heads[][3] = {{32, 8, 128}, {8, 2, 64}, {16, 1, 128}, {24, 8, 80}};
    static const char *const machines[] = {"h200", "a100", "host"};
    for (int32_t i = 0; i < 24; i++) {
        const int32_t *of = heads[i % 4];
        fig_spec chunks = spec_of(of[0], of[1], of[2]), drafts = chunks;
        const char *machine = machines[i / 4 % 3];
        const int32_t candidate = i / 12 % 2;
        chunks.row_tokens = 200;
        drafts.row_tokens = 8;
        chunks.query_limit = drafts.query_limit = i % 5 == 0 ? 100 : ROWS * 8;
        assert_int_equal(compare_form(fig_sample_step(&chunks), fig_sample_step(&drafts),
                                      FIG_FORM_DRAFTS, machine, candidate),
                         (uint32_t)chunks.layers);
    }
}

/* Edges of the launches that are left must not lead through launches that are not made. */
static void launches_that_are_left_keep_their_order(void **state) {
    (void)state;
    static ground g;
    fig_spec spec = spec_of(32, 8, 128);
    const fig_lower_target target = fig_sample_target("h200");
    spec.row_tokens = 200;
    spec.query_limit = 300;
    ground_make(&g, fig_sample_apart(&spec), &target, 8);
    const fig_lowered *of = &g.lowered;
    for (uint32_t i = 0; i < of->edge_count; i++) {
        uint32_t other = 0;
        const fig_edge *edge = &of->edges[i];
        if (!fig_lower_is_idle(of, edge->from)) continue;
        /* whatever comes behind an idle launch also comes behind its node's attention */
        for (uint32_t j = 0; j < of->edge_count; j++)
            other |= of->edges[j].from == edge->from - 1 &&
                     (of->edges[j].to == edge->to || of->edges[j].to == edge->to - 1);
        assert_true(other || fig_lower_is_idle(of, edge->to));
    }
    ground_finish(&g);
}

/* Only the launches of attention that read rows on the line are left out. Nothing but the form
 * tells such a bucket from another of one worker. */
static void strips_have_the_launches_for_chunks_alone(void **state) {
    (void)state;
    static ground strips, any;
    fig_spec spec = spec_of(32, 8, 128);
    const fig_lower_target target = fig_sample_target("h200");
    spec.row_tokens = 200;
    spec.query_limit = 300;
    for (int32_t apart = 0; apart < 2; apart++) {
        fig_program *(*const make)(const fig_spec *) = apart ? fig_sample_apart : fig_sample_step;
        ground_make(&strips, make(&spec), &target, FIG_FORM_STRIPS * 4);
        ground_make(&any, make(&spec), &target, 0);
        assert_int_equal(strips.shape.form, FIG_FORM_STRIPS);
        assert_int_equal(strips.shape.plan.splits[0].workers, 1);
        for (uint32_t i = 0; i < strips.lowered.launch_count; i++) {
            assert_int_equal(fig_lower_is_idle(&strips.lowered, i),
                             strips.lowered.launches[i].op == FIG_OP_ATTENTION);
            assert_int_equal(fig_lower_is_idle(&any.lowered, i), 0);
        }
        fig_bucket_shape other = strips.shape;
        other.form = FIG_FORM_ANY;
        assert_false(fig_lower_alike(&strips.shape, &other));
        assert_true(fig_lower_shape_digest(&strips.shape) != fig_lower_shape_digest(&other));
        ground_finish(&strips);
        ground_finish(&any);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_is_that_of_a_program_that_is_not_packed),
        cmocka_unit_test(latents_have_the_same_groups_too),
        cmocka_unit_test(windows_keep_their_classes),
        cmocka_unit_test(drafts_are_those_of_a_program_without_chunks),
        cmocka_unit_test(launches_that_are_left_keep_their_order),
        cmocka_unit_test(strips_have_the_launches_for_chunks_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

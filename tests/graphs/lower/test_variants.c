/* test_variants.c: tests the variants for singles, which only programs whose rows may be chunks
 * have, and which programs have variants for ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/files/codec.h"
#include "graphs/graphs.h"
#include "graphs/lower/variants.h"
#include "graphs/record/program.h"
#include "include/figraph_tune.h"
#include "kernels/table/families.h"
#include "planner/spec/spec.h"
#include "tests/support/files/forgery.h"
#include "tests/support/files/sample.h"

enum { ROWS = 64, KV = 4096 };

static fig_program *record(int32_t q_heads, int32_t kv_heads, int32_t row_tokens) {
    fig_spec spec = fig_sample_spec();
    spec.dtype = FIG_BF16;
    spec.q_heads = q_heads;
    spec.kv_heads = kv_heads;
    spec.head_dim = 128;
    spec.batch_limit = ROWS;
    spec.sequence_limit = ROWS;
    spec.kv_limit = KV;
    spec.row_tokens = row_tokens;
    spec.query_limit = 500;
    return fig_sample_step(&spec);
}

static fig_bucket_shape shape_of(const fig_program *program, const fig_lower_target *target,
                                 int32_t variant) {
    fig_bucket_shape shape = {.caps = {ROWS, KV}, .variant = variant};
    if (fig_lower_shape(fig_program_view_of(program), target, 0, &shape) != FIG_OK)
        fail_msg("%s", fig_message());
    return shape;
}

static int32_t count_of(const fig_program *program, const fig_lower_target *target) {
    const fig_program_view *view = fig_program_view_of(program);
    fig_split_classes classes;
    assert_int_equal(fig_split_classes_find(view, &classes), FIG_OK);
    return fig_variants_count(view, &classes, target);
}

/* Returns 1 if the program has all variants of the form, and 0 if it has none. Strips have one. */
static int has_form(const fig_program *program, const fig_lower_target *target,
                    fig_bucket_form form) {
    const fig_program_view *view = fig_program_view_of(program);
    const int32_t of_form = fig_traits_variant_count(&target->traits);
    int32_t has = 0;
    fig_split_classes classes;
    assert_int_equal(fig_split_classes_find(view, &classes), FIG_OK);
    for (int32_t v = 0; v < of_form; v++)
        has += fig_variants_has(view, &classes, target, (int32_t)form * of_form + v);
    assert_true(has == 0 || has == (form == FIG_FORM_STRIPS ? 1 : of_form));
    return has > 0;
}

/* With 4 query heads of a kv head, 8 query tokens fill 4 of a worker's 8 warps, and one fills
 * half a warp. Of rows with one token, workers may read all 8 heads. */
static void workers_read_more_heads_of_single_tokens(void **state) {
    (void)state;
    static const int32_t heads[] = {1, 2, 2, 2, 1, 8, 2, 4};
    static const int32_t tiles[] = {64, 16, 64, 32, 64, 16, 64, 32};
    const fig_lower_target target = fig_sample_target("h200");
    fig_program *program = record(32, 8, 200);
    assert_int_equal(count_of(program, &target), 20);
    for (int32_t v = 0; v < 8; v++) {
        const fig_bucket_shape shape = shape_of(program, &target, v);
        const fig_split_shape *split = &shape.plan.splits[0];
        assert_int_equal(shape.form, v / 4);
        assert_int_equal(split->row_tokens, v >= 4 ? 1 : FIG_NARROW_TOKENS_LIMIT);
        assert_int_equal(shape.variants[0].heads, heads[v]);
        assert_int_equal(split->tile_tokens, tiles[v]);
        assert_int_equal(split->groups, 8 / heads[v]);
        assert_int_equal(shape.plan.row_tokens, 200);
        assert_int_equal(shape.paces[0].tile_bytes, tiles[v] * heads[v] * 512);
    }
    fig_program_destroy(program);
}

/* Rows are never drafts where all have one token, and the device's rows may be anything. */
static void only_programs_that_gain_have_them(void **state) {
    (void)state;
    static const char *const machines[] = {"h200", "h100", "a100", "host"};
    for (int32_t i = 0; i < 4; i++) {
        fig_lower_target target = fig_sample_target(machines[i]);
        const int32_t candidates = fig_traits_variant_count(&target.traits);
        fig_program *chunks = record(32, 8, 200), *drafts = record(32, 8, 8);
        fig_program *alone = record(8, 8, 200);
        assert_int_equal(has_form(chunks, &target, FIG_FORM_SINGLES), i != 3);
        assert_int_equal(has_form(drafts, &target, FIG_FORM_SINGLES), 0);
        assert_int_equal(has_form(alone, &target, FIG_FORM_SINGLES), 0);
        assert_int_equal(has_form(chunks, &target, FIG_FORM_ONES), 1);
        assert_int_equal(has_form(drafts, &target, FIG_FORM_ONES), 1);
        assert_int_equal(has_form(alone, &target, FIG_FORM_ONES), 1);
        assert_int_equal(has_form(chunks, &target, FIG_FORM_STRIPS), 1);
        assert_int_equal(has_form(drafts, &target, FIG_FORM_STRIPS), 0);
        assert_int_equal(has_form(chunks, &target, FIG_FORM_DRAFTS), 1);
        assert_int_equal(has_form(drafts, &target, FIG_FORM_DRAFTS), 0);
        assert_int_equal(count_of(drafts, &target), 3 * candidates);
        target.deterministic = 1;
        assert_int_equal(count_of(chunks, &target), candidates);
        fig_program_destroy(chunks);
        fig_program_destroy(drafts);
        fig_program_destroy(alone);
    }
}

/* Blocks of four heads have two warps for each, for which `packed` has no instance. */
static void a_bucket_offers_them_unless_their_blocks_end_late(void **state) {
    (void)state;
    const fig_lower_target target = fig_sample_target("h200");
    const fig_bucket bucket = {ROWS, KV};
    fig_program *program = record(32, 8, 200);
    const fig_program_view *view = fig_program_view_of(program);
    uint32_t offered;
    assert_int_equal(fig_variants_serves(view, &target, 4), 1);
    assert_int_equal(fig_variants_serves(view, &target, 5), 1);
    assert_int_equal(fig_variants_serves(view, &target, 6), 1);
    assert_int_equal(fig_variants_serves(view, &target, 7), 0);
    assert_int_equal(fig_variants_offer(view, &target, &bucket, 0, &offered), FIG_OK);
    assert_true((offered & 0xf) != 0 && (offered & 0x70) != 0 && (offered & 0xf00) != 0);
    assert_int_equal(offered & 0x80, 0);
    assert_int_equal(offered >> 12 & 0xf, 1);
    assert_true(offered >> 16 != 0);
    fig_program_destroy(program);
}

/* Returns the rate at which a worker of variant 5 reads beside chunks, over such a cache. */
static int64_t rate_over(fig_dtype kv_dtype, int32_t head_dim, int32_t page_size) {
    fig_spec spec = fig_sample_spec();
    const fig_lower_target target = fig_sample_target("h200");
    spec.dtype = FIG_BF16;
    spec.kv_dtype = kv_dtype;
    spec.q_heads = 32;
    spec.kv_heads = 8;
    spec.head_dim = head_dim;
    spec.page_size = page_size;
    spec.batch_limit = spec.sequence_limit = ROWS;
    spec.kv_limit = KV;
    spec.row_tokens = 200;
    spec.query_limit = 500;
    fig_program *program = fig_sample_step(&spec);
    const int64_t rate = shape_of(program, &target, 5).paces[0].of_worker;
    fig_program_destroy(program);
    return rate;
}

/* Chunks that run on plain instructions, or over small pages, take far longer than the planner
 * thinks. */
static void only_chunks_on_warpgroups_are_divided(void **state) {
    (void)state;
    assert_true(rate_over(FIG_BF16, 128, 16) > 0);
    assert_true(rate_over(FIG_BF16, 256, 64) > 0);
    assert_int_equal(rate_over(FIG_BF16, 80, 16), 0);
    assert_int_equal(rate_over(FIG_BF16, 128, 8), 0);
    assert_int_equal(rate_over(FIG_E4M3, 128, 16), 0);
}

/* Where nothing was measured, and where splits are fixed, both launches use the whole machine. */
static void only_measured_machines_are_divided(void **state) {
    (void)state;
    fig_program *program = record(32, 8, 200), *drafts = record(32, 8, 8);
    fig_lower_target target = fig_sample_target("h200");
    assert_true(shape_of(program, &target, 5).paces[0].of_worker >
                shape_of(program, &target, 4).paces[0].of_worker);
    assert_true(shape_of(program, &target, 1).paces[0].of_worker > 0);
    assert_int_equal(shape_of(drafts, &target, 1).paces[0].of_worker, 0);
    target.deterministic = 1;
    assert_int_equal(shape_of(program, &target, 0).paces[0].of_worker, 0);
    target = fig_sample_target("a100");
    assert_int_equal(shape_of(program, &target, 2).paces[0].of_worker, 0);
    fig_program_destroy(program);
    fig_program_destroy(drafts);
}

/* Returns the family that serves attention in a bucket of the variant. */
static const char *family_of(const fig_program *program, const fig_lower_target *target,
                             int32_t variant) {
    const fig_program_view *view = fig_program_view_of(program);
    const fig_bucket_shape shape = shape_of(program, target, variant);
    fig_workspace workspace;
    fig_lower_common common;
    fig_lowered lowered;
    fig_family_choice choice = {0};
    assert_int_equal(fig_workspace_init(&workspace, view, &shape, 1), FIG_OK);
    assert_int_equal(fig_lower_common_init(&common, view, &workspace), FIG_OK);
    assert_int_equal(fig_lower_bucket(&common, &shape, &lowered), FIG_OK);
    for (uint32_t i = 0; i < lowered.launch_count; i++)
        if (lowered.launches[i].op == FIG_OP_ATTENTION)
            fig_families_choose(FIG_OP_ATTENTION, lowered.params + lowered.launches[i].params,
                                &target->traits, &choice);
    fig_lower_finish(&lowered);
    fig_lower_common_finish(&common);
    fig_workspace_finish(&workspace);
    return fig_families_of(FIG_OP_ATTENTION, choice.family)->name;
}

/* Blocks of `bulk` without work would hold up the chunks. */
static void blocks_without_work_exit_early(void **state) {
    (void)state;
    static const char *const families[] = {"many",   "packed", "packed", "packed",
                                           "packed", "packed", "packed", "bulk"};
    const fig_lower_target target = fig_sample_target("h200");
    fig_program *program = record(32, 8, 200);
    for (int32_t v = 0; v < 8; v++)
        assert_string_equal(family_of(program, &target, v), families[v]);
    fig_program_destroy(program);
}

static void a_variant_that_the_program_lacks_is_refused(void **state) {
    (void)state;
    const fig_lower_target target = fig_sample_target("h200");
    fig_program *drafts = record(32, 8, 8);
    fig_bucket_shape shape = {.caps = {ROWS, KV}, .variant = 4};
    FIG_SAMPLE_REFUSES(fig_lower_shape(fig_program_view_of(drafts), &target, 0, &shape),
                       FIG_INVALID,
                       "variant is 4, which only programs have whose rows may be chunks");
    shape = (fig_bucket_shape){.caps = {ROWS, KV}, .variant = 12};
    FIG_SAMPLE_REFUSES(fig_lower_shape(fig_program_view_of(drafts), &target, 0, &shape),
                       FIG_INVALID, "variant is 12, limits 0 to 11");
    shape = (fig_bucket_shape){.caps = {ROWS, KV}, .variant = 8, .queries = ROWS - 1};
    FIG_SAMPLE_REFUSES(fig_lower_shape(fig_program_view_of(drafts), &target, 0, &shape),
                       FIG_INVALID,
                       "variant 8 has a query token for each of 64 rows, the limit is 63");
    fig_program_destroy(drafts);
}

static fig_graphs *lower(const fig_program *program, fig_bucket bucket) {
    const fig_lower_target target = fig_sample_target("h200");
    const fig_lower_options how = {
        .size = sizeof how, .traits = &target.traits, .buckets = &bucket, .bucket_count = 1};
    fig_graphs *graphs;
    if (fig_graphs_lower(&graphs, program, &how) != FIG_OK) fail_msg("%s", fig_message());
    return graphs;
}

/* ---- Costs ----------------------------------------------------------------------------------- */

/* Those that most steps take are measured, and drafts keep the costs of the machine's table. */
static void tune_measures_those_for_single_tokens(void **state) {
    (void)state;
    static const int32_t heads[] = {1, 8, 2, 4}, lengths[] = {1, 4096};
    fig_program *program = record(32, 8, 200);
    fig_graphs *graphs = lower(program, (fig_bucket){ROWS, KV}), *tuned;
    fig_tune_class info = {.size = sizeof info};
    assert_int_equal(fig_graphs_tune_class(graphs, 0, &info), FIG_OK);
    assert_int_equal(info.row_tokens, 1);
    for (int32_t v = 0; v < 4; v++) {
        fig_tune_variant variant = {.size = sizeof variant};
        assert_int_equal(fig_graphs_tune_variant(graphs, 0, v, &variant), FIG_OK);
        assert_int_equal(variant.heads, heads[v]);
        assert_int_equal(variant.serves, 1); /* number 3 serves ones */
    }
    fig_tune_costs costs = {.size = sizeof costs, .variant = 2, .start_ns = 777, .bytes_per_us = 9};
    fig_tune_work work = {.size = sizeof work};
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths};
    assert_int_equal(fig_graphs_tune_work(graphs, &costs, &step, &work), FIG_OK);
    assert_int_equal(fig_graphs_tune(&tuned, graphs, &costs, 1), FIG_OK);
    const fig_lower_target *target = &tuned->target;
    assert_int_equal(shape_of(program, target, 6).variants[0].start_ns, 777);
    assert_true(shape_of(program, target, 2).variants[0].start_ns != 777);
    assert_true(shape_of(program, target, 5).variants[0].start_ns != 777);
    assert_int_equal(shape_of(program, target, 10).variants[0].start_ns, 777);
    costs.variant = 4;
    FIG_SAMPLE_REFUSES(fig_graphs_tune_work(graphs, &costs, &step, &work), FIG_INVALID,
                       "variant is 4, limits 0 to 3");
    fig_graphs_destroy(tuned);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void files_keep_them_and_buckets_tell_them(void **state) {
    (void)state;
    fig_program *program = record(32, 8, 200);
    fig_graphs *graphs = lower(program, (fig_bucket){ROWS, KV}), *read;
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    assert_int_equal(fig_graphs_parse(&read, bytes, count), FIG_OK);
    assert_int_equal(read->bucket_count, graphs->bucket_count);
    for (uint32_t i = 0; i < read->bucket_count; i++) {
        fig_bucket_info info = {.size = sizeof info};
        assert_int_equal(fig_graphs_bucket(read, (int32_t)i + 1, &info), FIG_OK);
        const int are_single = info.form == FIG_FORM_SINGLES || info.form == FIG_FORM_ONES;
        assert_int_equal(info.form, info.variant / 4);
        assert_int_equal(info.row_queries, are_single ? 1 : FIG_NARROW_TOKENS_LIMIT);
        assert_true(fig_lower_alike(&read->buckets[i], &graphs->buckets[i]));
    }
    free(bytes);
    fig_graphs_destroy(read);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

/* Every size needs a bucket for steps with drafts. */
static void a_file_with_such_buckets_alone_is_refused(void **state) {
    (void)state;
    fig_program *program = record(32, 8, 200);
    fig_graphs *graphs = lower(program, (fig_bucket){1, 128}), *read;
    uint8_t *bytes;
    size_t count;
    fig_forgery image;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_forgery_open(&image, bytes, count);
    free(bytes);
    const fig_forgery_section *section = &image.sections[FIG_SECTION_BUCK];
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        const uint32_t variant = 4 + i;
        memcpy(section->raw + i * section->entry.item_bytes + offsetof(fig_file_bucket, variant),
               &variant, sizeof variant);
    }
    bytes = fig_forgery_write(&image, 1, &count);
    FIG_SAMPLE_REFUSES(fig_graphs_parse(&read, bytes, count), FIG_FORMAT,
                       "bucket 0: variant 4 is not for any step");
    free(bytes);
    fig_forgery_close(&image);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_read_more_heads_of_single_tokens),
        cmocka_unit_test(only_programs_that_gain_have_them),
        cmocka_unit_test(a_bucket_offers_them_unless_their_blocks_end_late),
        cmocka_unit_test(only_measured_machines_are_divided),
        cmocka_unit_test(only_chunks_on_warpgroups_are_divided),
        cmocka_unit_test(blocks_without_work_exit_early),
        cmocka_unit_test(a_variant_that_the_program_lacks_is_refused),
        cmocka_unit_test(tune_measures_those_for_single_tokens),
        cmocka_unit_test(files_keep_them_and_buckets_tell_them),
        cmocka_unit_test(a_file_with_such_buckets_alone_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

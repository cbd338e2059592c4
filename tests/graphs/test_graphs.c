/* test_graphs.c: tests that graphs are the same whether they are made here or read from a file,
 * that they describe themselves correctly, and that a failure leaves nothing behind. */
#include <fcntl.h>
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

#include "graphs/files/sections.h"
#include "graphs/files/sections.h"
#include "graphs/graphs.h"
#include "graphs/graphs.h"
#include "planner/status.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"
#include "tests/support/files/sample.h"

enum { PATH_BYTES = 256 };
static char path[PATH_BYTES];

static int make_path(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_graphs.%ld.fig", (long)getpid());
    return 0;
}

static int remove_path(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

static fig_graphs_info info_of(const fig_graphs *graphs) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(graphs, &info);
    return info;
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* The ladder has batches 1, 2, 4, 6 and kv 128, 200, each size in one variant or in both. */
static void by_default_the_ladder_is_lowered_for_the_host(void **state) {
    (void)state;
    static const fig_bucket caps[] = {{1, 128}, {1, 200}, {2, 128}, {2, 200},
                                      {4, 128}, {4, 200}, {6, 128}, {6, 200}};
    fig_graphs *graphs = fig_sample_graphs();
    const fig_graphs_info info = info_of(graphs);
    int32_t rung = -1, last = -1;
    assert_in_range(info.bucket_count, 4 * 2, 4 * 2 * 2);
    assert_int_equal(info.tensor_count, 17);
    assert_int_equal(info.node_count, 4);
    assert_int_equal(info.relowered_count, 0);
    assert_string_equal(info.traits->name, "host");
    assert_int_equal(info.spec->kv_limit, 200);
    assert_true(info.spec->sm_scale == 0.125f);
    assert_int_equal(strlen(info.content_id), 64);
    for (int32_t i = 0; i < info.bucket_count; i++) {
        fig_bucket_info bucket = {.size = sizeof bucket};
        assert_int_equal(fig_graphs_bucket(graphs, i + 1, &bucket), FIG_OK);
        if (rung < 0 || memcmp(&bucket.bucket, &caps[rung], sizeof caps[0]) != 0) {
            rung++;
            last = -1;
        }
        assert_true(rung < 8 && bucket.variant > last);
        assert_memory_equal(&bucket.bucket, &caps[rung], sizeof caps[0]);
        last = bucket.variant;
        assert_int_equal(bucket.heads, bucket.variant == 0 ? 1 : 2);
        assert_int_equal(bucket.tile_tokens, bucket.variant == 0 ? 64 : 16);
        assert_int_equal(bucket.launch_count, 7);
        assert_true(bucket.workers >= 1 && bucket.workers <= 8);
        assert_true(bucket.plan_bytes > 64 && bucket.plan_bytes <= graphs->plan_bytes);
        assert_true(bucket.workspace_bytes > 0 &&
                    bucket.workspace_bytes <= graphs->workspace.bytes);
    }
    assert_int_equal(rung, 7);
    fig_graphs_destroy(graphs);
}

static void buckets_and_traits_are_the_callers(void **state) {
    (void)state;
    static const fig_bucket buckets[] = {{6, 200}, {2, 50}, {6, 200}};
    static const fig_bucket sorted[] = {{2, 50}, {6, 200}};
    fig_traits traits = {.size = sizeof traits,
                         .name = "mine\0left over",
                         .compute_capability = 90,
                         .sm_count = 7,
                         .shared_bytes = 100000};
    const fig_spec spec = fig_sample_spec();
    fig_graphs *graphs =
        fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .traits = &traits,
                                            .buckets = buckets, .bucket_count = 3));
    const uint32_t last = graphs->bucket_count - 1;
    assert_in_range(last, 1, 7);
    assert_memory_equal(&graphs->buckets[0].caps, &sorted[0], sizeof sorted[0]);
    assert_memory_equal(&graphs->buckets[last].caps, &sorted[1], sizeof sorted[0]);
    const fig_traits kept = {sizeof kept, "mine", 90, 7, 100000};
    assert_memory_equal(&graphs->target.traits, &kept, sizeof kept);
    assert_in_range(graphs->buckets[last].plan.splits[0].workers, 1, 7);
    fig_graphs_destroy(graphs);
}

/* Each bucket has one variant, and the file states that the graphs are deterministic. */
static void deterministic_graphs_have_one_variant_and_load_as_deterministic(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_graphs *made = fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .deterministic = 1));
    fig_graphs *loaded;
    assert_int_equal(made->bucket_count, 4 * 2);
    assert_int_equal(fig_graphs_save(made, path), FIG_OK);
    if (fig_graphs_load(&loaded, path) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(loaded->target.deterministic, 1);
    assert_int_equal(info_of(loaded).relowered_count, 0);
    assert_memory_equal(loaded->buckets, made->buckets, made->bucket_count * sizeof *made->buckets);
    for (uint32_t i = 0; i < made->bucket_count; i++)
        assert_int_equal(made->buckets[i].plan.splits[0].fixed, 1);
    fig_graphs_destroy(made);
    fig_graphs_destroy(loaded);
}

static fig_status lower_with(const fig_lower_options *options) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    fig_graphs *graphs = (fig_graphs *)1;
    const fig_status status = fig_graphs_lower(&graphs, program, options);
    fig_program_destroy(program);
    if (status == FIG_OK) fig_graphs_destroy(graphs);
    if (status != FIG_OK) assert_null(graphs);
    return status;
}

static void unsound_options_are_refused(void **state) {
    (void)state;
    static const fig_bucket wide[] = {{7, 1}};
    const fig_traits none = {.size = sizeof none, .name = "none"};
    const fig_traits b200 = {sizeof b200, "b200", 10, 148, 232448}; /* 10.0 would be 100 */
    FIG_SAMPLE_REFUSES(lower_with(FIG_OPTIONS(fig_lower_options, .traits = &b200)), FIG_UNSUPPORTED,
                       "traits: compute_capability is 10, which is 1.0, kernels need 80");
    FIG_SAMPLE_REFUSES(lower_with(FIG_OPTIONS(fig_lower_options, .bucket_count = 2)), FIG_INVALID,
                       "buckets is NULL, bucket_count 2");
    FIG_SAMPLE_REFUSES(lower_with(FIG_OPTIONS(fig_lower_options, .buckets = wide)), FIG_INVALID,
                       "bucket_count is 0, limits 1 to 4096");
    FIG_SAMPLE_REFUSES(
        lower_with(FIG_OPTIONS(fig_lower_options, .buckets = wide, .bucket_count = 5000)),
        FIG_INVALID, "bucket_count is 5000");
    FIG_SAMPLE_REFUSES(
        lower_with(FIG_OPTIONS(fig_lower_options, .buckets = wide, .bucket_count = 1)), FIG_INVALID,
        "batch is 7, limits 1 to 6");
    FIG_SAMPLE_REFUSES(lower_with(FIG_OPTIONS(fig_lower_options, .traits = &none)), FIG_INVALID,
                       "traits: sm_count is 0");
    FIG_SAMPLE_REFUSES(lower_with(FIG_OPTIONS(fig_lower_options, .deterministic = 2)), FIG_INVALID,
                       "deterministic is 2, it must be 0 or 1");
    FIG_SAMPLE_REFUSES(
        lower_with(FIG_OPTIONS(fig_lower_options, .buckets = wide, .bucket_count = -1)),
        FIG_INVALID, "bucket_count is -1");
    FIG_SAMPLE_REFUSES(lower_with(FIG_OPTIONS(fig_lower_options, .traits = &(fig_traits){0})),
                       FIG_INVALID, "fig_traits: size is 0");
    FIG_SAMPLE_REFUSES(lower_with(&(fig_lower_options){.size = 0}), FIG_INVALID, "size is 0");
    fig_graphs *graphs;
    FIG_SAMPLE_REFUSES(fig_graphs_lower(&graphs, NULL, NULL), FIG_INVALID, "program: NULL");
}

static void a_program_that_failed_or_is_unfinished_is_not_lowered(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_graphs *graphs;
    fig_program_decode_step(program);
    FIG_SAMPLE_REFUSES(fig_graphs_lower(&graphs, program, NULL), FIG_ORDER, "not finished");
    fig_attention(program, NULL);
    FIG_SAMPLE_REFUSES(fig_graphs_lower(&graphs, program, NULL), FIG_INVALID,
                       "node 4 (attention): q, operand 0, is absent");
    fig_program_destroy(program);
}

/* ---- Assembling graphs from parts, as the codec does ---------------------------------------- */

static void *duplicate(const void *from, size_t bytes) {
    if (from == NULL) return NULL;
    void *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, from, bytes);
}

/* Lowers a program and destroys it. */
static fig_status assemble_of(fig_program *program, const char *traits,
                              const fig_bucket_shape *shapes, uint32_t count,
                              const uint64_t *digests, fig_graphs **graphs) {
    static const fig_codec_parts nothing;
    fig_codec_parts parts = {.program = program,
                             .target = fig_sample_target(traits),
                             .buckets = duplicate(shapes, count * sizeof *shapes),
                             .bucket_count = count,
                             .made_digests = duplicate(digests, count * sizeof *digests),
                             .maker = fig_codec_maker_of(fig_program_view_of(program))};
    const fig_status status = fig_graphs_assemble(graphs, &parts);
    assert_memory_equal(&parts, &nothing, sizeof parts);
    if (status != FIG_OK) assert_null(*graphs);
    return status;
}

static fig_status assemble(const fig_bucket_shape *shapes, uint32_t count, const uint64_t *digests,
                           fig_graphs **graphs) {
    const fig_spec spec = fig_sample_spec();
    return assemble_of(fig_sample_step(&spec), "h100", shapes, count, digests, graphs);
}

static void buckets_of_a_file_are_checked(void **state) {
    (void)state;
    fig_graphs *graphs;
    static const fig_bucket_shape many[4097];
    fig_bucket_shape shapes[3] = {{.caps = {1, 100}}, {.caps = {2, 50}}, {.caps = {2, 60}}};
    assert_int_equal(assemble(shapes, 3, NULL, &graphs), FIG_OK);
    fig_graphs_destroy(graphs);
    FIG_SAMPLE_REFUSES(assemble(shapes, 0, NULL, &graphs), FIG_INVALID, "0 buckets");
    FIG_SAMPLE_REFUSES(assemble(many, 4097, NULL, &graphs), FIG_INVALID, "limits 1 to 4096");
    shapes[2].caps.kv = 50;
    FIG_SAMPLE_REFUSES(assemble(shapes, 3, NULL, &graphs), FIG_INVALID,
                       "bucket 2: 2 x 50, variant 0 does not come after");
    shapes[2].variant = 4;
    FIG_SAMPLE_REFUSES(assemble(shapes, 3, NULL, &graphs), FIG_INVALID, "variant is 4");
    shapes[2].variant = 1;
    shapes[0].caps.batch = 3;
    FIG_SAMPLE_REFUSES(assemble(shapes, 3, NULL, &graphs), FIG_INVALID, "bucket 1: 2 x 50");
    shapes[0].caps.batch = -1;
    FIG_SAMPLE_REFUSES(assemble(shapes, 3, NULL, &graphs), FIG_INVALID, "batch is -1");
}

static void launches_of_all_buckets_have_a_limit(void **state) {
    (void)state;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .batch_limit = 1,
                           .kv_limit = 4096};
    fig_program *program = fig_sample_program(&spec);
    static fig_bucket_shape shapes[256];
    fig_graphs *graphs;
    for (int i = 0; i < 4096; i++)
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    for (int i = 0; i < 256; i++)
        shapes[i].caps = (fig_bucket){1, i + 1};
    FIG_SAMPLE_REFUSES(assemble_of(program, "host", shapes, 256, NULL, &graphs), FIG_TOO_LARGE,
                       "256 buckets of 4097 launches, limit 1048576");
}

static void launches_unlike_the_makers_are_counted(void **state) {
    (void)state;
    fig_graphs *graphs, *again;
    fig_bucket_shape shapes[3] = {{.caps = {1, 100}}, {.caps = {2, 50}}, {.caps = {6, 60}}};
    assert_int_equal(assemble(shapes, 3, NULL, &graphs), FIG_OK);
    assert_int_equal(info_of(graphs).relowered_count, 0);
    uint64_t digests[3];
    memcpy(digests, graphs->digests, sizeof digests);
    assert_true(digests[0] != digests[1] && digests[1] != digests[2]);
    assert_int_equal(assemble(shapes, 3, digests, &again), FIG_OK);
    assert_int_equal(info_of(again).relowered_count, 0);
    fig_graphs_destroy(again);
    digests[0]++;
    digests[2]--;
    assert_int_equal(assemble(shapes, 3, digests, &again), FIG_OK);
    assert_int_equal(info_of(again).relowered_count, 2);
    assert_string_equal(info_of(again).content_id, info_of(graphs).content_id);
    fig_graphs_destroy(again);
    fig_graphs_destroy(graphs);
}

static void the_content_id_is_of_spec_program_traits_and_buckets(void **state) {
    (void)state;
    static const fig_bucket small[] = {{1, 8}};
    fig_spec spec = fig_sample_spec();
    fig_traits traits = {.size = sizeof traits};
    assert_int_equal(fig_traits_named(&traits, "h100"), FIG_OK);
    fig_graphs *graphs[4] = {fig_sample_graphs()};
    graphs[1] = fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .traits = &traits));
    graphs[2] = fig_sample_lower(
        &spec, FIG_OPTIONS(fig_lower_options, .buckets = small, .bucket_count = 1));
    spec.rope.theta = 20000;
    graphs[3] = fig_sample_lower(&spec, NULL);
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < a; b++)
            assert_string_not_equal(info_of(graphs[a]).content_id, info_of(graphs[b]).content_id);
    }
    for (int i = 0; i < 4; i++)
        fig_graphs_destroy(graphs[i]);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void assert_written_alike(const fig_graphs *a, const fig_graphs *b) {
    uint8_t *bytes[2];
    size_t counts[2];
    assert_int_equal(fig_graphs_write(a, &bytes[0], &counts[0]), FIG_OK);
    assert_int_equal(fig_graphs_write(b, &bytes[1], &counts[1]), FIG_OK);
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(bytes[0], bytes[1], counts[0]);
    free(bytes[0]);
    free(bytes[1]);
}

static void saved_graphs_are_loaded_and_saved_alike(void **state) {
    (void)state;
    fig_graphs *made = fig_sample_graphs(), *made_again = fig_sample_graphs(), *loaded,
               *loaded_again;
    assert_int_equal(fig_graphs_save(made, path), FIG_OK);
    if (fig_graphs_load(&loaded, path) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_save(loaded, path), FIG_OK);
    if (fig_graphs_load(&loaded_again, path) != FIG_OK) fail_msg("%s", fig_message());
    assert_written_alike(made, loaded);
    assert_written_alike(made, loaded_again);
    assert_written_alike(made, made_again);
    assert_memory_equal(loaded->buckets, made->buckets, made->bucket_count * sizeof *made->buckets);
    assert_memory_equal(loaded->digests, made->digests, made->bucket_count * sizeof(uint64_t));
    assert_int_equal(loaded->workspace.bytes, made->workspace.bytes);
    assert_string_equal(info_of(loaded).content_id, info_of(made).content_id);
    assert_int_equal(info_of(loaded).relowered_count, 0);
    fig_graphs_destroy(made);
    fig_graphs_destroy(made_again);
    fig_graphs_destroy(loaded);
    fig_graphs_destroy(loaded_again);
}

static fig_status load_path(const char *from) {
    fig_graphs *graphs = (fig_graphs *)1;
    const fig_status status = fig_graphs_load(&graphs, from);
    assert_true(status != FIG_OK);
    assert_null(graphs);
    return status;
}

static void a_file_that_cannot_be_loaded_is_named(void **state) {
    (void)state;
    FIG_SAMPLE_REFUSES(load_path("/tmp/test_graphs.none"), FIG_IO,
                       "/tmp/test_graphs.none: open: No such file or directory");
    FIG_SAMPLE_REFUSES(load_path("/tmp"), FIG_IO, "/tmp: not a regular file");
    FIG_SAMPLE_REFUSES(load_path(NULL), FIG_INVALID, "path is NULL");
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, "no fig", 6), 6);
    FIG_SAMPLE_REFUSES(load_path(path), FIG_FORMAT, path);
    assert_int_equal(ftruncate(fd, FIG_FILE_BYTES_LIMIT + 1), 0);
    close(fd);
    FIG_SAMPLE_REFUSES(load_path(path), FIG_FORMAT, "67108865 bytes, limit 67108864");
    unlink(path);
    fig_graphs *graphs;
    FIG_SAMPLE_REFUSES(fig_graphs_parse(&graphs, NULL, 1), FIG_INVALID, "bytes is NULL");
    FIG_SAMPLE_REFUSES(fig_graphs_parse(&graphs, "", 0), FIG_FORMAT, "");
    FIG_SAMPLE_REFUSES(fig_graphs_save(NULL, path), FIG_INVALID, "graphs is NULL");
}

/* ---- Faults ---------------------------------------------------------------------------------- */

typedef enum work { LOWER, SAVE, LOAD, PLAN, BUCKET } work;

typedef struct bench {
    fig_program *program;
    fig_graphs *graphs;
} bench;

static fig_status do_work(const bench *b, work what) {
    static const int32_t lengths[] = {5, 200};
    fig_plan_report report = {.size = sizeof report};
    fig_bucket_info info = {.size = sizeof info};
    fig_graphs *graphs = NULL;
    fig_status status = FIG_OK;
    switch (what) {
    case LOWER: status = fig_graphs_lower(&graphs, b->program, NULL); break;
    case SAVE: status = fig_graphs_save(b->graphs, path); break;
    case LOAD: status = fig_graphs_load(&graphs, path); break;
    case PLAN:
        status = fig_graphs_plan(b->graphs, FIG_OPTIONS(fig_step, .rows = 2, .kv_lengths = lengths),
                                 &report);
        break;
    case BUCKET: status = fig_graphs_bucket(b->graphs, 3, &info); break;
    }
    if (status != FIG_OK && graphs != NULL) fail_msg("graphs beside a failure");
    fig_graphs_destroy(graphs);
    return status;
}

/* Fails each allocation and each file call in turn, until none is left. */
static void each_call_that_fails_is_reported(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    const bench b = {fig_sample_step(&spec), fig_sample_graphs()};
    assert_int_equal(fig_graphs_save(b.graphs, path), FIG_OK);
    for (work what = LOWER; what <= BUCKET; what++) {
        int64_t n = 1, refused = 0;
        for (;; n++) {
            fig_fail(FIG_INVALID, "nothing");
            fig_fault_arm(n);
            const fig_status status = do_work(&b, what);
            const int64_t calls = fig_fault_disarm();
            if (status != FIG_OK) {
                refused++;
                assert_string_not_equal(fig_message(), "nothing");
                assert_true(status == FIG_NOMEM || status == FIG_IO);
            }
            if (calls < n) break;
        }
        /* A failing close does no harm, since a file is read completely, or is on the disk, before
         * it is closed. A save also survives four other failures, which file.c describes: of a
         * sweep, of a file without a name, of its lock, and of a second close. */
        assert_int_equal(n - 1 - refused, what == SAVE ? 5 : what == LOAD ? 1 : 0);
        assert_true(refused >= 1);
        assert_int_equal(do_work(&b, what), FIG_OK);
    }
    assert_int_equal(do_work(&b, LOAD), FIG_OK);
    fig_program_destroy(b.program);
    fig_graphs_destroy(b.graphs);
}

/* ---- Queries -------------------------------------------------------------------------------- */

static void tensors_come_as_recorded_without_the_engines_own(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_tensor_info infos[] = {
        {.name = "a",
         .role = FIG_ROLE_BOUND,
         .dtype = FIG_F16,
         .rank = 2,
         .dims = {FIG_DIM_BATCH, 3}},
        {.name = "hidden", .role = FIG_ROLE_TEMP, .dtype = FIG_F32, .rank = 1, .dims = {5}},
        {.name = "b",
         .role = FIG_ROLE_STATE,
         .dtype = FIG_I64,
         .rank = 4,
         .dims = {FIG_DIM_PAGES, 4, 5, 6},
         .multiple = 3,
         .layout = FIG_HND},
    };
    for (int i = 0; i < 3; i++) {
        infos[i].size = sizeof infos[i];
        fig_program_tensor(program, &infos[i]);
    }
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    fig_graphs *graphs;
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    fig_program_destroy(program);
    assert_int_equal(info_of(graphs).tensor_count, 2);
    for (int i = 0; i < 2; i++) {
        const fig_tensor_info *expected = &infos[i * 2];
        fig_tensor_info info = {.size = sizeof info};
        assert_int_equal(fig_graphs_tensor(graphs, i, &info), FIG_OK);
        assert_string_equal(info.name, expected->name);
        assert_int_equal(info.role, expected->role);
        assert_int_equal(info.dtype, expected->dtype);
        assert_int_equal(info.rank, expected->rank);
        assert_int_equal(info.multiple, i == 0 ? 1 : 3);
        assert_int_equal(info.layout, expected->layout);
        for (int32_t d = 0; d < 4; d++)
            assert_int_equal(info.dims[d], d < info.rank ? expected->dims[d] : 1);
    }
    fig_tensor_info info = {.size = sizeof info};
    FIG_SAMPLE_REFUSES(fig_graphs_tensor(graphs, 2, &info), FIG_INVALID,
                       "index is 2, limits 0 to 1");
    assert_null(info.name);
    FIG_SAMPLE_REFUSES(fig_graphs_tensor(graphs, -1, &info), FIG_INVALID, "index is -1");
    fig_bucket_info bucket = {.size = sizeof bucket};
    assert_int_equal(fig_graphs_bucket(graphs, 1, &bucket), FIG_OK);
    assert_int_equal(bucket.heads + bucket.workers + bucket.tile_tokens, 0);
    FIG_SAMPLE_REFUSES(fig_graphs_bucket(graphs, 0, &bucket), FIG_INVALID,
                       "bucket is 0, limits 1 to 8");
    FIG_SAMPLE_REFUSES(fig_graphs_bucket(graphs, 9, &bucket), FIG_INVALID,
                       "bucket is 9, limits 1 to 8");
    fig_graphs_destroy(graphs);
}

/* A caller with an older header passes a shorter struct, one with a newer header a longer
 * struct. */
static void outs_are_filled_as_far_as_the_caller_knows_them(void **state) {
    (void)state;
    fig_graphs *graphs = fig_sample_graphs();
    struct {
        fig_bucket_info info;
        uint8_t beyond[8];
    } larger;
    memset(&larger, 0xff, sizeof larger);
    larger.info.size = offsetof(fig_bucket_info, launch_count);
    assert_int_equal(fig_graphs_bucket(graphs, 2, &larger.info), FIG_OK);
    assert_int_equal(larger.info.variant, graphs->buckets[1].variant);
    assert_int_equal(larger.info.launch_count, -1);
    larger.info.size = sizeof larger;
    assert_int_equal(fig_graphs_bucket(graphs, 2, &larger.info), FIG_OK);
    assert_int_equal(larger.info.launch_count, 7);
    assert_int_equal(larger.info.size, sizeof larger);
    static const uint8_t zeros[8];
    assert_memory_equal(larger.beyond, zeros, sizeof zeros);
    assert_int_equal(fig_graphs_read_info(graphs, &(fig_graphs_info){0}), FIG_INVALID);
    larger.info.size = 0;
    FIG_SAMPLE_REFUSES(fig_graphs_bucket(graphs, 2, &larger.info), FIG_INVALID,
                       "fig_bucket_info: size is 0");
    FIG_SAMPLE_REFUSES(fig_graphs_tensor(graphs, 1, &(fig_tensor_info){0}), FIG_INVALID,
                       "fig_tensor_info: size is 0");
    FIG_SAMPLE_REFUSES(fig_graphs_plan(graphs, NULL, &(fig_plan_report){0}), FIG_INVALID,
                       "fig_plan_report: size is 0");
    fig_graphs_destroy(graphs);
}

/* A model with eight times as many layers or buckets could still be lowered. */
static void presets_lower_for_every_machine(void **state) {
    (void)state;
    const char *preset, *machine;
    for (int32_t p = 0; (preset = fig_spec_preset_name(p)) != NULL; p++) {
        for (int32_t m = 0; (machine = fig_traits_name(m)) != NULL; m++) {
            fig_spec spec = {.size = sizeof spec};
            fig_traits traits = {.size = sizeof traits};
            assert_int_equal(fig_spec_preset(&spec, preset), FIG_OK);
            assert_int_equal(fig_traits_named(&traits, machine), FIG_OK);
            fig_graphs *graphs =
                fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .traits = &traits));
            assert_in_range(graphs->bucket_count * graphs->common.launch_count, 1,
                            FIG_LAUNCH_LIMIT / 8);
            fig_graphs_destroy(graphs);
        }
    }
}

/* Compares byte by byte which buckets share launches. This check is simpler than fig_lower_alike()
 * and independent of it. */
static void check_shared(const fig_graphs *graphs) {
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        fig_lowered own, next;
        assert_int_equal(fig_lower_bucket(&graphs->common, &graphs->buckets[i], &own), FIG_OK);
        assert_ptr_equal(own.launches, graphs->common.launches);
        assert_ptr_equal(own.node_launches, graphs->common.node_launches);
        assert_ptr_equal(own.edges, graphs->common.edges);
        assert_ptr_equal(own.relocs, graphs->common.relocs);
        for (uint32_t j = i + 1; j < graphs->bucket_count; j++) {
            fig_bucket_shape other = graphs->buckets[j];
            const int shares = other.plan.exec == graphs->buckets[i].plan.exec;
            other.plan.exec = graphs->buckets[i].plan.exec;
            assert_int_equal(fig_lower_bucket(&graphs->common, &other, &next), FIG_OK);
            assert_int_equal(memcmp(own.params, next.params, own.params_bytes) == 0, shares);
            fig_lower_finish(&next);
        }
        fig_lower_finish(&own);
    }
}

static void buckets_that_need_the_same_launches_share_an_exec(void **state) {
    (void)state;
    fig_memory_info memory = {.size = sizeof memory};
    fig_graphs *graphs = fig_capture_preset("llama-3.1-70b", 1, "h200");
    assert_true(graphs->exec_count < graphs->bucket_count);
    check_shared(graphs);
    assert_int_equal(fig_graphs_memory(graphs, 0, &memory), FIG_OK);
    assert_int_equal(memory.exec_count, graphs->exec_count);
    fig_graphs_destroy(graphs);
    graphs = fig_capture_mixed();
    check_shared(graphs);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_that_need_the_same_launches_share_an_exec),
        cmocka_unit_test(by_default_the_ladder_is_lowered_for_the_host),
        cmocka_unit_test(buckets_and_traits_are_the_callers),
        cmocka_unit_test(deterministic_graphs_have_one_variant_and_load_as_deterministic),
        cmocka_unit_test(unsound_options_are_refused),
        cmocka_unit_test(a_program_that_failed_or_is_unfinished_is_not_lowered),
        cmocka_unit_test(buckets_of_a_file_are_checked),
        cmocka_unit_test(launches_of_all_buckets_have_a_limit),
        cmocka_unit_test(launches_unlike_the_makers_are_counted),
        cmocka_unit_test(the_content_id_is_of_spec_program_traits_and_buckets),
        cmocka_unit_test(saved_graphs_are_loaded_and_saved_alike),
        cmocka_unit_test(a_file_that_cannot_be_loaded_is_named),
        cmocka_unit_test(each_call_that_fails_is_reported),
        cmocka_unit_test(tensors_come_as_recorded_without_the_engines_own),
        cmocka_unit_test(outs_are_filled_as_far_as_the_caller_knows_them),
        cmocka_unit_test(presets_lower_for_every_machine),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}

/* test_worth_sections.c: tests that no section of a file takes longer to read than the file's size
 * justifies.
 *
 * Each file here has as many items of one kind as a file may have. The library refuses a section
 * that is stored in fewer bytes than its raw size divided by FIG_FILE_WORTH. So a file has at least
 * the raw bytes of its sections divided by FIG_FILE_WORTH. The test allows a microsecond of
 * processor time for each of these bytes, even if the sections compress better. If a file seems to
 * take longer, it is read again and compared with a
 * reference computation on the same thread, so that a slow or busy machine fails no test. Under
 * sanitizers, which slow everything down, files are read but not timed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_archive.h"
#include "include/figraph_parallel.h"
#include "tests/support/files/forgery.h"
#include "tests/support/files/sample.h"
#include "tests/support/yardstick.h"

#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { IS_TIMED = 0, ROUNDS = 1 };
#else
enum { IS_TIMED = 1, ROUNDS = 40 };
#endif

/* Returns the least size that a file with these sections could have. */
static double least_bytes(const fig_forgery *image) {
    size_t raw = 0, stored = sizeof(fig_file_header) + image->count * sizeof(fig_file_section);
    for (uint32_t i = 0; i < image->count; i++) {
        const int is_code = memcmp(image->sections[i].entry.name, "CODE", 4) == 0;
        raw += is_code ? 0 : image->sections[i].raw_bytes;
        stored += is_code ? (size_t)image->sections[i].entry.stored_bytes : 16;
    }
    return (double)(raw / FIG_FILE_WORTH > stored ? raw / FIG_FILE_WORTH : stored);
}

static void judge_image(const char *what, const fig_forgery *image, fig_status expected) {
    size_t count;
    uint8_t *bytes = fig_forgery_write(image, 0, &count);
    const double allowed = least_bytes(image);
    double best = 1e12, slower = 1;
    /* Other load on the machine can only make a round longer, so the shortest round counts. */
    for (int i = 0; i < ROUNDS && (i < 3 || best > allowed / 2); i++) {
        fig_graphs *graphs;
        const double begin = fig_yardstick_now_us();
        const fig_status status = fig_graphs_parse(&graphs, bytes, count);
        fig_graphs_destroy(graphs);
        const double us = (fig_yardstick_now_us() - begin) / slower;
        if (IS_TIMED && us > allowed) slower = fig_yardstick();
        if (us < best) best = us;
        if (status != expected) fail_msg("%s: %s", what, fig_message());
    }
    free(bytes);
    print_message("%s: %.0f us of %.0f\n", what, best, allowed);
    if (IS_TIMED && best > allowed) fail_msg("%s: %.0f us, %.0f are allowed", what, best, allowed);
}

static void judge(const char *what, fig_graphs *graphs) {
    fig_forgery image;
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_graphs_destroy(graphs);
    fig_forgery_open(&image, bytes, count);
    free(bytes);
    judge_image(what, &image, FIG_OK);
    fig_forgery_close(&image);
}

static const fig_bucket one_bucket = {1, 16};

static fig_graphs *lower_one(fig_program *program) {
    return fig_sample_finish(
        program, FIG_OPTIONS(fig_lower_options, .buckets = &one_bucket, .bucket_count = 1));
}

static fig_program *begin(void) {
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    return program;
}

/* Adds an f32 tensor of one number, or of rows of `width` numbers. */
static fig_tensor tensor(fig_program *program, const char *name, int32_t rank, int64_t width) {
    return fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F16, .rank = rank,
                             .dims = {rank > 1 ? FIG_DIM_BATCH : width, rank > 1 ? width : 0}));
}

/* ---- NODE, OPND and ATTR --------------------------------------------------------------------- */

/* Records a chain of the shortest records that exist. */
static void long_chains_of_gates_are_read_in_time(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor in = tensor(program, "in", 2, 2), out = tensor(program, "out", 2, 1);
    for (int i = 0; i < FIG_NODE_LIMIT - 1; i++)
        fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    judge("gates in a row", lower_one(program));
}

/* The library's writer stores such a section uncompressed, and that file is read. The same file
 * with the section compressed is refused. */
static void a_file_that_is_not_worth_its_claims_is_refused(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_forgery image;
    fig_graphs *graphs;
    uint8_t *bytes;
    size_t count;
    for (int i = 0; i < 1000; i++)
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    graphs = lower_one(program);
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_graphs_destroy(graphs);
    assert_int_equal(fig_graphs_parse(&graphs, bytes, count), FIG_OK);
    fig_graphs_destroy(graphs);
    fig_forgery_open(&image, bytes, count);
    free(bytes);
    bytes = fig_forgery_write(&image, 12, &count);
    FIG_SAMPLE_REFUSES(fig_graphs_parse(&graphs, bytes, count), FIG_FORMAT,
                       "the sections are more raw bytes than 24 for each of");
    free(bytes);
    fig_forgery_close(&image);
}

static void long_chains_of_gathers_are_read_in_time(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor in = tensor(program, "in", 2, 8), out = tensor(program, "out", 2, 8);
    for (int i = 0; i < FIG_NODE_LIMIT - 1; i++)
        fig_all_gather(program, FIG_OPTIONS(fig_all_gather_op, .in = in, .out = out));
    judge("gathers in a row", lower_one(program));
}

static void norms_with_many_reads_are_read_in_time(void **state) {
    (void)state;
    enum { TENSORS = 512 };
    fig_program *program = begin();
    fig_tensor of[TENSORS];
    const fig_tensor weight = tensor(program, "weight", 1, 8);
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        of[i] = tensor(program, name, 2, 8);
    }
    for (int i = 0; i < FIG_NODE_LIMIT - 1; i++)
        fig_add_rms_norm(program,
                         FIG_OPTIONS(fig_rms_norm_op, .weight = weight, .epsilon = 1,
                                     .in = of[i % TENSORS], .residual = of[(i + 171) % TENSORS],
                                     .out = of[(i + 341) % TENSORS]));
    judge("norms that read many", lower_one(program));
}

static void calls_with_many_reads_are_read_in_time(void **state) {
    (void)state;
    enum { TENSORS = 4096, READS = 15 };
    fig_program *program = begin();
    static fig_tensor of[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        of[i] = tensor(program, name, 1, 1);
    }
    for (int i = 0; i < FIG_NODE_LIMIT - 1; i++) {
        fig_tensor reads[READS];
        for (int k = 0; k < READS; k++)
            reads[k] = of[(i + 1 + k * 271) % TENSORS];
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c", .reads = reads, .read_count = READS,
                                      .writes = &of[i % TENSORS], .write_count = 1));
    }
    judge("calls that read many", lower_one(program));
}

/* Records `nodes` nodes that go through `kinds` different kinds of RoPE in turn. */
static void record_ropes(fig_program *program, int32_t nodes, int32_t kinds) {
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64),
                     k = fig_sample_rows(program, "k", 2, 64);
    for (int32_t i = 0; i < nodes; i++)
        fig_rope(program,
                 FIG_OPTIONS(fig_rope_op, .q = q, .k = k,
                             .rope = &(fig_rope_spec){.theta = (float)(10000 + i % kinds)}));
}

static void ropes_of_many_kinds_are_read_in_time(void **state) {
    (void)state;
    fig_graphs *graphs;
    fig_program *program = begin();
    record_ropes(program, 2000, FIG_LAUNCH_ROPE_LIMIT);
    judge("ropes of many kinds", lower_one(program));
    program = begin();
    record_ropes(program, FIG_LAUNCH_ROPE_LIMIT + 1, FIG_LAUNCH_ROPE_LIMIT + 1);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    FIG_SAMPLE_REFUSES(
        fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = &one_bucket, .bucket_count = 1)),
        FIG_TOO_LARGE, "node 16: more than 16 kinds of RoPE without a table");
    fig_program_destroy(program);
}

/* ---- STRS, TENS and SEGM --------------------------------------------------------------------- */

/* Each name repeats the previous one with one more letter or another end, so that the search for a
 * name passes as many forks as possible. */
static void long_common_names_are_found_in_time(void **state) {
    (void)state;
    enum { NAMES = FIG_TENSOR_LIMIT };
    fig_program *program = begin();
    for (int i = 0; i < NAMES; i++) {
        char name[FIG_NAME_LIMIT + 1];
        const int length = i % (FIG_NAME_LIMIT - 8);
        memset(name, 'o', (size_t)length);
        snprintf(name + length, sizeof name - (size_t)length, "%d", i);
        tensor(program, name, 1, 1);
    }
    const fig_tensor last = fig_program_find(program, "0");
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c", .reads = &last, .read_count = 1));
    judge("names that are hard to find", lower_one(program));
}

static void each_node_may_be_a_segment_of_its_own(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor in = tensor(program, "in", 2, 2), out = tensor(program, "out", 2, 1);
    for (int i = 0; i < FIG_NODE_LIMIT - 1; i++) {
        char name[16];
        snprintf(name, sizeof name, "%x", i);
        fig_program_segment(program, name);
        fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    }
    judge("as many segments as nodes", lower_one(program));
}

/* ---- BUCK, DIGS and VARI --------------------------------------------------------------------- */

/* Records four classes of attention. Each class is split in each bucket. */
static fig_program *record_classes(const fig_spec *spec) {
    fig_program *program;
    assert_int_equal(fig_program_create(&program, spec), FIG_OK);
    const fig_tensor q = fig_sample_rows(program, "q", spec->q_heads, spec->head_dim);
    const fig_tensor out = fig_sample_rows(program, "out", spec->q_heads, spec->head_dim);
    const fig_cache cache = fig_sample_cache(program, "cache", spec->kv_heads, spec->head_dim);
    for (int32_t i = 0; i < FIG_CLASS_LIMIT; i++)
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache,
                                           .window = 16 * i));
    return program;
}

/* Lowers `count` buckets for a machine with many workers. */
static fig_graphs *lower_buckets(int32_t count, int32_t deterministic) {
    fig_spec spec = {.size = sizeof spec};
    fig_traits traits = {.size = sizeof traits};
    fig_bucket *buckets = calloc((size_t)count, sizeof *buckets);
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    assert_non_null(buckets);
    spec.kv_limit = 1 << 20;
    for (int32_t i = 0; i < count; i++)
        buckets[i] = (fig_bucket){1, 256 * (i + 1)};
    fig_graphs *graphs = fig_sample_finish(
        record_classes(&spec), FIG_OPTIONS(fig_lower_options, .traits = &traits, .buckets = buckets,
                                           .bucket_count = count, .deterministic = deterministic));
    free(buckets);
    return graphs;
}

static void a_file_may_have_as_many_buckets_as_the_limit(void **state) {
    (void)state;
    judge("as many buckets as there may be", lower_buckets(FIG_BUCKET_LIMIT, 1));
    judge("buckets of many variants", lower_buckets(FIG_BUCKET_LIMIT / 8, 0));
}

static void buckets_may_stand_beside_the_most_records(void **state) {
    (void)state;
    fig_graphs *graphs = lower_buckets(FIG_BUCKET_LIMIT, 1);
    fig_tuning *tuning = &graphs->target.tuning;
    tuning->records = calloc(FIG_TUNING_LIMIT, sizeof *tuning->records);
    assert_non_null(tuning->records);
    tuning->count = FIG_TUNING_LIMIT;
    for (uint32_t i = 0; i < tuning->count; i++) {
        fig_tuned *record = &tuning->records[i];
        *record = (fig_tuned){.machine = "h200",
                              .compute_capability = 90,
                              .sm_count = (int32_t)(1 + i / 64),
                              .maker = FIG_VERSION,
                              .split_class = (int32_t)(i / 16 % 4),
                              .number = (int32_t)(i % 16)};
        record->variant = (fig_variant){
            .name = "v", .heads = 1, .tile_tokens = 16, .workers_per_sm = 1, .bytes_per_us = 1};
    }
    judge("buckets beside records", graphs);
}

/* ---- KERN, META, IMAG and CODE --------------------------------------------------------------- */

static fig_forgery take_apart(fig_graphs *graphs) {
    fig_forgery image;
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_graphs_destroy(graphs);
    fig_forgery_open(&image, bytes, count);
    free(bytes);
    return image;
}

/* Every kernel names the table's longest row, which a careless reader would hash once per
 * kernel. */
static void a_file_may_name_one_kernel_many_times(void **state) {
    (void)state;
    fig_forgery image = take_apart(fig_sample_graphs());
    fig_forgery_resize(&image, FIG_SECTION_KERN, FIG_FILE_KERNEL_LIMIT * sizeof(fig_file_kernel));
    fig_file_kernel *kernels = (void *)image.sections[FIG_SECTION_KERN].raw;
    for (int i = 0; i < FIG_FILE_KERNEL_LIMIT; i++) {
        const fig_op op = FIG_OP_DECODE_ATTENTION;
        kernels[i] = (fig_file_kernel){.op = op};
        memcpy(kernels[i].name, fig_kernel_table[op].name, strlen(fig_kernel_table[op].name));
    }
    judge_image("a kernel over and over", &image, FIG_FORMAT);
    fig_forgery_close(&image);
}

static void a_file_may_have_the_most_notes_and_images(void **state) {
    (void)state;
    fig_graphs *graphs = fig_sample_graphs();
    char keys[FIG_NOTE_LIMIT][16], text[200];
    fig_note notes[FIG_NOTE_LIMIT];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < FIG_NOTE_LIMIT; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        notes[i] = (fig_note){.size = sizeof *notes, .key = keys[i], .value = text};
    }
    assert_int_equal(fig_notes_change(&graphs->notes, notes, FIG_NOTE_LIMIT), FIG_OK);
    fig_archive_finish(&graphs->archive);
    fig_archive_image *images = calloc(FIG_ARCHIVE_IMAGE_LIMIT, sizeof *images);
    assert_non_null(images);
    for (uint32_t i = 0; i < FIG_ARCHIVE_IMAGE_LIMIT; i++)
        images[i] = (fig_archive_image){.op = i, .family = "f", .bytes = 1};
    graphs->archive = (fig_archive){.images = images, .image_count = FIG_ARCHIVE_IMAGE_LIMIT};
    judge("notes and images", graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_chains_of_gates_are_read_in_time),
        cmocka_unit_test(a_file_that_is_not_worth_its_claims_is_refused),
        cmocka_unit_test(long_chains_of_gathers_are_read_in_time),
        cmocka_unit_test(norms_with_many_reads_are_read_in_time),
        cmocka_unit_test(calls_with_many_reads_are_read_in_time),
        cmocka_unit_test(ropes_of_many_kinds_are_read_in_time),
        cmocka_unit_test(long_common_names_are_found_in_time),
        cmocka_unit_test(each_node_may_be_a_segment_of_its_own),
        cmocka_unit_test(a_file_may_have_as_many_buckets_as_the_limit),
        cmocka_unit_test(buckets_may_stand_beside_the_most_records),
        cmocka_unit_test(a_file_may_name_one_kernel_many_times),
        cmocka_unit_test(a_file_may_have_the_most_notes_and_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

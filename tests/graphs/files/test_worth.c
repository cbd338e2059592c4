/* test_worth.c: tests that reading a file costs no more than the file's size justifies.
 * test_worth_sections.c tests each kind of section.
 *
 * Memory is the sum of all blocks allocated during reading, including those that were freed. Time
 * is processor time. If it seems too long, the file is read again and compared with a reference
 * computation on the same thread, so that a slow or busy machine fails no test. Sanitizers slow the
 * library down by an unknown factor, so under them only memory is checked. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "graphs/files/file.h"
#include "graphs/graphs.h"
#include "include/figraph_tune.h"
#include "tests/support/files/archived.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"
#include "tests/support/files/forgery.h"
#include "tests/support/random.h"
#include "tests/support/files/sample.h"
#include "tests/support/yardstick.h"

#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { IS_TIMED = 0 };
#else
enum { IS_TIMED = 1 };
#endif

/* The limits for any file, for a small one, and for a model's file. */
enum { SMALL_BYTES = 200, SMALL_MEMORY = 64 << 20, LEAST_MS = 100, MS_PER_MB = 1000 };
enum { MODEL_BUCKETS = 198, MODEL_BYTES = 20000, MODEL_MS = 5, ROUNDS = 40 };

typedef struct cost {
    uint64_t bytes;
    double ms;
    fig_status status;
} cost;

/* Parses and destroys the result. Parsing checks everything. */
static cost read_bytes(const uint8_t *bytes, size_t count) {
    fig_graphs *graphs;
    cost of;
    const double begin_us = fig_yardstick_now_us();
    fig_fault_arm(0);
    of.status = fig_graphs_parse(&graphs, bytes, count);
    fig_fault_disarm();
    of.bytes = fig_fault_bytes();
    fig_graphs_destroy(graphs);
    of.ms = (fig_yardstick_now_us() - begin_us) / 1e3;
    return of;
}

/* Returns the cost of one reading or, if it took longer than most_ms, the least of several
 * readings. */
static cost read_within(double most_ms, const uint8_t *bytes, size_t count) {
    cost best = read_bytes(bytes, count);
    for (int i = 0; IS_TIMED && i < ROUNDS && best.ms > most_ms; i++) {
        const double before = fig_yardstick();
        cost of = read_bytes(bytes, count);
        const double after = fig_yardstick();
        of.ms /= before > after ? before : after;
        if (of.ms < best.ms) best = of;
    }
    return best;
}

static cost read_for_its_worth(const char *what, const uint8_t *bytes, size_t count) {
    const double per_mb = (double)count / 1e6 * MS_PER_MB;
    const double most_ms = count > SMALL_BYTES ? per_mb : LEAST_MS;
    const cost of = read_within(most_ms, bytes, count);
    if (IS_TIMED && of.ms > most_ms)
        fail_msg("%s: a file of %zu bytes took %.1f ms, %.1f are allowed", what, count, of.ms,
                 most_ms);
    if (count <= SMALL_BYTES && of.bytes > SMALL_MEMORY)
        fail_msg("%s: a file of %zu bytes asked for %llu", what, count,
                 (unsigned long long)of.bytes);
    return of;
}

/* ---- Small files ----------------------------------------------------------------------------- */

/* Draws a sound header and as many rows of the table as fit. Any of their fields may have faults,
 * but the hashes are correct. */
static void draw_small(fig_random *random, uint8_t bytes[SMALL_BYTES], size_t *count) {
    static const uint32_t wild[] = {0, 1, 8, 64, 255, 1 << 20, INT32_MAX, UINT32_MAX};
    fig_file_header header = {.format = FIG_FILE_FORMAT,
                              .section_count = (uint32_t)fig_random_range(random, 0, 4)};
    *count = (size_t)fig_random_range(random, 0, SMALL_BYTES);
    memset(bytes, 0, SMALL_BYTES);
    memcpy(header.magic, FIG_FILE_MAGIC, sizeof header.magic);
    header.file_bytes = *count;
    for (int i = 0; i < 3; i++) {
        fig_file_section row = {.offset = 72, .item_bytes = 32, .raw_bytes = 32};
        memcpy(row.name, fig_section_table[fig_random_range(random, 0, FIG_SECTION_COUNT - 1)].name,
               sizeof row.name);
        memcpy((uint8_t *)&row + 4 * fig_random_range(random, 1, 9),
               &wild[fig_random_range(random, 0, 7)], 4);
        memcpy(bytes + sizeof header + (size_t)i * sizeof row, &row, sizeof row);
    }
    memcpy(bytes, &header, sizeof header);
    if (*count >= sizeof header) fig_forgery_seal(bytes, *count);
}

static void a_file_of_200_bytes_costs_next_to_nothing(void **state) {
    (void)state;
    fig_random random = fig_random_seed(3);
    cost most = {0};
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[SMALL_BYTES];
        size_t count;
        draw_small(&random, bytes, &count);
        const cost of = read_for_its_worth("drawn", bytes, count);
        assert_true(of.status == FIG_FORMAT || of.status == FIG_STALE);
        if (of.bytes > most.bytes) most.bytes = of.bytes;
        if (of.ms > most.ms) most.ms = of.ms;
    }
    print_message("at most %llu bytes of memory and %.3f ms\n", (unsigned long long)most.bytes,
                  most.ms);
}

/* Reads the first 200 bytes of whole files and of the fuzzers' files, with corrected hashes. The
 * rest of the file is missing, though the header still claims it. */
static void the_first_200_bytes_of_any_file_cost_next_to_nothing(void **state) {
    (void)state;
    DIR *corpus = opendir("tests/fuzz/corpus/files");
    int seen = 0;
    assert_non_null(corpus);
    for (const struct dirent *file; (file = readdir(corpus)) != NULL;) {
        char path[320];
        uint8_t *bytes;
        size_t count;
        if (file->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "tests/fuzz/corpus/files/%s", file->d_name);
        assert_int_equal(fig_file_read(path, 1 << 20, &bytes, &count), FIG_OK);
        if (count > SMALL_BYTES) count = SMALL_BYTES;
        if (count >= sizeof(fig_file_header)) {
            const uint64_t file_bytes = count;
            memcpy(bytes + offsetof(fig_file_header, file_bytes), &file_bytes, sizeof file_bytes);
            fig_forgery_seal(bytes, count);
        }
        read_for_its_worth(path, bytes, count);
        free(bytes);
        seen++;
    }
    closedir(corpus);
    assert_true(seen > 100);
}

/* ---- The most expensive files ---------------------------------------------------------------- */

static fig_program *begin_program(fig_spec *spec) {
    fig_program *program;
    spec->size = sizeof *spec;
    assert_int_equal(fig_spec_preset(spec, "tutorial"), FIG_OK);
    assert_int_equal(fig_program_create(&program, spec), FIG_OK);
    return program;
}

/* Records calls that all read or write the same tensors, so each has many predecessors. */
static fig_graphs *make_dense(void) {
    enum { NODES = FIG_NODE_LIMIT - 1, TENSORS = 16 };
    static const fig_bucket one = {1, 16};
    fig_spec spec;
    fig_program *program = begin_program(&spec);
    fig_tensor tensors[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        tensors[i] = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_TEMP,
                                 .dtype = FIG_F32, .rank = 1, .dims = {1}));
    }
    for (int i = 0; i < NODES; i++) {
        const int writes = i % 8 == 0 ? TENSORS : 0;
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c", .reads = tensors,
                                      .read_count = TENSORS - writes, .writes = tensors,
                                      .write_count = writes));
    }
    return fig_sample_finish(program,
                             FIG_OPTIONS(fig_lower_options, .buckets = &one, .bucket_count = 1));
}

/* Each node reads tensors of its own and the result of the node before it, which takes many names
 * and records. */
static fig_graphs *make_wide(void) {
    enum { NODES = 4000 };
    static const fig_bucket one = {1, 16};
    fig_spec spec;
    fig_program *program = begin_program(&spec);
    fig_tensor last = {0};
    for (int i = 0; i < NODES; i++) {
        fig_tensor own[4];
        for (int t = 0; t < 4; t++) {
            char name[32];
            snprintf(name, sizeof name, "tensor.of.node.%d.%d", i, t);
            own[t] = fig_program_tensor(
                program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                     .dtype = FIG_F32, .rank = 1, .dims = {1}));
        }
        const fig_tensor reads[4] = {own[0], own[1], own[2], last};
        fig_call(program,
                 FIG_OPTIONS(fig_call_op, .call = "c", .reads = reads, .read_count = i > 0 ? 4 : 3,
                             .writes = &own[3], .write_count = 1));
        last = own[3];
    }
    return fig_sample_finish(program,
                             FIG_OPTIONS(fig_lower_options, .buckets = &one, .bucket_count = 1));
}

/* Lowers as many launches as a file may have; only few buckets have equal launches. */
static fig_graphs *make_buckets(void) {
    enum { ROWS = 800, COUNT = 2 * ROWS };
    static fig_bucket buckets[COUNT];
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    spec.batch_limit = spec.sequence_limit = ROWS;
    spec.layers = 53;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    for (int i = 0; i < COUNT; i++)
        buckets[i] = (fig_bucket){i / 2 + 1, i % 2 == 0 ? 1 : spec.kv_limit};
    return fig_sample_finish(program, FIG_OPTIONS(fig_lower_options, .buckets = buckets,
                                                  .bucket_count = COUNT, .deterministic = 1));
}

/* Records `nodes` nodes with the longest params. */
static fig_program *record_long(int32_t nodes) {
    fig_spec spec;
    fig_program *program = begin_program(&spec);
    fig_decode_attention_op op = {.size = sizeof op};
    op.q = fig_sample_rows(program, "q", spec.q_heads, spec.head_dim);
    op.k = fig_sample_rows(program, "k", spec.kv_heads, spec.head_dim);
    op.v = fig_sample_rows(program, "v", spec.kv_heads, spec.head_dim);
    op.out = fig_sample_rows(program, "out", spec.q_heads, spec.head_dim);
    op.cache = fig_sample_cache(program, "cache", spec.kv_heads, spec.head_dim);
    for (int32_t i = 0; i < nodes; i++)
        fig_decode_attention(program, &op);
    return program;
}

/* The bytes of a node's params. Room for one node is left to the fetch. */
enum { NODE_BYTES = 1472 + sizeof(fig_attention_params) };
enum { LONG_NODES = FIG_LOWER_PARAMS_LIMIT / NODE_BYTES - 1 };
static_assert(sizeof(fig_decode_attention_params) <= 1472, "a multiple of 64");
static const fig_bucket long_bucket = {1, 16};

/* Lowers as many nodes with the longest params as a file may have. */
static fig_graphs *make_long(void) {
    return fig_sample_finish(
        record_long(LONG_NODES),
        FIG_OPTIONS(fig_lower_options, .buckets = &long_bucket, .bucket_count = 1));
}

static void more_params_than_the_limit_are_refused(void **state) {
    (void)state;
    fig_graphs *graphs;
    fig_program *program = record_long(LONG_NODES + 2);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    FIG_SAMPLE_REFUSES(fig_graphs_lower(&graphs, program,
                                        FIG_OPTIONS(fig_lower_options, .buckets = &long_bucket,
                                                    .bucket_count = 1)),
                       FIG_TOO_LARGE, "bytes of params in all launches, limit 4456448");
    fig_program_destroy(program);
}

static void judge(const char *what, fig_graphs *graphs) {
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_graphs_destroy(graphs);
    const cost of = read_for_its_worth(what, bytes, count);
    free(bytes);
    print_message("%s: %zu bytes, %.1f ms, %.1f MB asked for\n", what, count, of.ms,
                  (double)of.bytes / 1e6);
    assert_int_equal(of.status, FIG_OK);
}

static void files_that_ask_for_all_they_may_take_no_longer_than_they_are_worth(void **state) {
    (void)state;
    judge("calls that depend on many", make_dense());
    judge("as many tensors as there may be", make_wide());
    judge("nodes of the longest params", make_long());
    judge("as many launches as there may be", make_buckets());
}

/* ---- The file of a model --------------------------------------------------------------------- */

static void llama_s_file_of_198_buckets_is_small_and_read_at_once(void **state) {
    (void)state;
    static fig_bucket buckets[MODEL_BUCKETS];
    enum { KVS = 22 };
    fig_spec spec = {.size = sizeof spec};
    fig_traits traits = {.size = sizeof traits};
    fig_program *program;
    uint8_t *bytes;
    size_t count;
    for (int32_t i = 0; i < MODEL_BUCKETS; i++) {
        const int32_t octave = 128 << i % KVS / 2;
        buckets[i] = (fig_bucket){1 << i / KVS, i % 2 == 0 ? octave : octave / 4 * 3};
    }
    assert_int_equal(fig_spec_preset(&spec, "llama-3.1-8b"), FIG_OK);
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    fig_graphs *graphs =
        fig_sample_finish(program, FIG_OPTIONS(fig_lower_options, .traits = &traits,
                                               .buckets = buckets, .bucket_count = MODEL_BUCKETS));
    fig_archive_finish(&graphs->archive);
    /* Adds records of kernels without the kernels themselves, as in files of a library built with
     * nvcc. */
    assert_int_equal(fig_archive_record(&graphs->archive,
                                        fig_codec_kernels_of(fig_program_view_of(graphs->program)),
                                        fig_archived_image),
                     FIG_OK);
    const uint32_t bucket_count = graphs->bucket_count;
    assert_true(bucket_count >= MODEL_BUCKETS && spec.layers == 32);
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_graphs_destroy(graphs);
    const cost of = read_within(MODEL_MS, bytes, count);
    free(bytes);
    print_message("%u buckets: %zu bytes, %.2f ms\n", bucket_count, count, of.ms);
    assert_int_equal(of.status, FIG_OK);
    assert_true(count < MODEL_BYTES);
    assert_true(!IS_TIMED || of.ms <= MODEL_MS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_200_bytes_costs_next_to_nothing),
        cmocka_unit_test(the_first_200_bytes_of_any_file_cost_next_to_nothing),
        cmocka_unit_test(more_params_than_the_limit_are_refused),
        cmocka_unit_test(files_that_ask_for_all_they_may_take_no_longer_than_they_are_worth),
        cmocka_unit_test(llama_s_file_of_198_buckets_is_small_and_read_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

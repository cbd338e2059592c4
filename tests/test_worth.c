/* test_worth.c: what a file costs whoever reads it is bounded by what the file is worth; what each
 * of its sections may ask for is test_worth_sections.c's.
 *
 * Memory is all that was asked for while a file was read, what was given back included, and time
 * the processor's own, so that other work of the machine counts for nothing. Sanitizers make the
 * library slower by a factor of their own: under them memory alone is judged. */
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
#include "tests/support/archived.h"
#include "tests/support/capture.h"
#include "tests/support/fault.h"
#include "tests/support/forgery.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

#ifdef FIG_CHECK_THREADS /* as variants with sanitizers have it */
enum { IS_TIMED = 0 };
#else
enum { IS_TIMED = 1 };
#endif

/* The bars: of any file, of a small one, and of a model's. */
enum { SMALL_BYTES = 200, SMALL_MEMORY = 64 << 20, LEAST_MS = 100, MS_PER_MB = 1000 };
enum { MODEL_BUCKETS = 198, MODEL_BYTES = 20000, MODEL_MS = 5, ROUNDS = 9 };

typedef struct cost {
    uint64_t bytes;
    double ms;
    fig_status status;
} cost;

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Parse, which checks all of it, and the end of what came of it. */
static cost read_bytes(const uint8_t *bytes, size_t count) {
    fig_graphs *graphs;
    cost of;
    const double begin = now_ms();
    fig_fault_arm(0);
    of.status = fig_graphs_parse(&graphs, bytes, count);
    fig_fault_disarm();
    of.bytes = fig_fault_bytes();
    fig_graphs_destroy(graphs);
    of.ms = now_ms() - begin;
    return of;
}

static void assert_worth(const char *what, const cost *of, size_t count) {
    const double per_mb = (double)count / 1e6 * MS_PER_MB;
    const double most_ms = count > SMALL_BYTES ? per_mb : LEAST_MS;
    if (IS_TIMED && of->ms > most_ms)
        fail_msg("%s: a file of %zu bytes took %.1f ms, %.1f are allowed", what, count, of->ms,
                 most_ms);
    if (count <= SMALL_BYTES && of->bytes > SMALL_MEMORY)
        fail_msg("%s: a file of %zu bytes asked for %llu", what, count,
                 (unsigned long long)of->bytes);
}

/* ---- Small files ----------------------------------------------------------------------------- */

/* A sound header and as many rows as fit, any of their fields wrong, and hashes that agree. */
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
        const cost of = read_bytes(bytes, count);
        assert_true(of.status == FIG_FORMAT || of.status == FIG_STALE);
        assert_worth("drawn", &of, count);
        if (of.bytes > most.bytes) most.bytes = of.bytes;
        if (of.ms > most.ms) most.ms = of.ms;
    }
    print_message("at most %llu bytes of memory and %.3f ms\n", (unsigned long long)most.bytes,
                  most.ms);
}

/* Of whole files and of those that fuzzers kept, the first 200 bytes, sealed: what lies behind them
 * is gone, and what they claim is not. */
static void nor_do_the_first_200_of_any_other(void **state) {
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
        const cost of = read_bytes(bytes, count);
        assert_worth(path, &of, count);
        free(bytes);
        seen++;
    }
    closedir(corpus);
    assert_true(seen > 100);
}

/* ---- Files that cost as much as they can ----------------------------------------------------- */

static fig_program *begin_program(fig_spec *spec) {
    fig_program *program;
    spec->size = sizeof *spec;
    assert_int_equal(fig_spec_preset(spec, "tutorial"), FIG_OK);
    assert_int_equal(fig_program_create(&program, spec), FIG_OK);
    return program;
}

/* Calls that all read or write the same tensors, so that each comes after many. */
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

/* Each node reads tensors of its own and what the one before wrote: names and records in plenty. */
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

/* As many launches as a file may have, of which few buckets have the same. */
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

/* So many nodes of the longest params. */
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

/* As they lie, beside some of the fetch. */
enum { NODE_BYTES = 1472 + sizeof(fig_attention_params) };
enum { LONG_NODES = FIG_LOWER_PARAMS_LIMIT / NODE_BYTES - 1 };
static_assert(sizeof(fig_decode_attention_params) <= 1472, "a multiple of 64");
static const fig_bucket long_bucket = {1, 16};

/* As many as a file may have. */
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
                       FIG_TOO_LARGE, "bytes of params in all launches, limit 4194304");
    fig_program_destroy(program);
}

static void judge(const char *what, fig_graphs *graphs) {
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_graphs_destroy(graphs);
    cost best = read_bytes(bytes, count);
    for (int i = 1; i < 3; i++) {
        const cost of = read_bytes(bytes, count);
        if (of.ms < best.ms) best = of;
    }
    free(bytes);
    print_message("%s: %zu bytes, %.1f ms, %.1f MB asked for\n", what, count, best.ms,
                  (double)best.bytes / 1e6);
    assert_int_equal(best.status, FIG_OK);
    assert_worth(what, &best, count);
}

static void files_that_ask_for_all_they_may_take_no_longer_than_they_are_worth(void **state) {
    (void)state;
    judge("calls that depend on many", make_dense());
    judge("as many tensors as there may be", make_wide());
    judge("nodes of the longest params", make_long());
    judge("as many launches as there may be", make_buckets());
}

/* ---- A model's ------------------------------------------------------------------------------- */

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
    /* The records of kernels that a library built with nvcc writes, and not the kernels. */
    assert_int_equal(fig_archive_record(&graphs->archive,
                                        fig_codec_kernels_of(fig_program_view_of(graphs->program)),
                                        fig_archived_image),
                     FIG_OK);
    const uint32_t bucket_count = graphs->bucket_count;
    assert_true(bucket_count >= MODEL_BUCKETS && spec.layers == 32);
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_graphs_destroy(graphs);
    cost best = read_bytes(bytes, count);
    for (int i = 1; i < ROUNDS; i++) {
        const cost of = read_bytes(bytes, count);
        if (of.ms < best.ms) best = of;
    }
    free(bytes);
    print_message("%u buckets: %zu bytes, %.2f ms\n", bucket_count, count, best.ms);
    assert_int_equal(best.status, FIG_OK);
    assert_true(count < MODEL_BYTES);
    assert_true(!IS_TIMED || best.ms < MODEL_MS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_200_bytes_costs_next_to_nothing),
        cmocka_unit_test(nor_do_the_first_200_of_any_other),
        cmocka_unit_test(more_params_than_the_limit_are_refused),
        cmocka_unit_test(files_that_ask_for_all_they_may_take_no_longer_than_they_are_worth),
        cmocka_unit_test(llama_s_file_of_198_buckets_is_small_and_read_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

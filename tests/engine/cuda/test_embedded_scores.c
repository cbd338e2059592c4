/* test_embedded_scores.c: tests compiled scores in files, over a driver that needs no GPU: what is
 * embedded, who loads it, and what is refused. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/graph/cuda_resident.h"
#include "graphs/files/archive.h"
#include "include/figraph_runner.h"
#include "include/figraph_scores.h"
#include "tests/support/driver/caller.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/fault.h"

#define fake fig_cuda_bench_fake

enum { LIST_LIMIT = FIG_EMBEDDED_LIMIT };

static char path[] = "/tmp/fig_embedded_XXXXXX";

/* The compiled scores that `figraph inspect --images` lists. */
typedef struct list {
    char hex[LIST_LIMIT][65];
    const char *images[LIST_LIMIT];
    fig_trust trust;
} list;

static fig_graphs *lower(const char *text) {
    static const fig_bucket two[] = {{1, 64}, {2, 64}};
    const fig_lower_options options = {.size = sizeof options, .buckets = two, .bucket_count = 2};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    fig_score *score;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    spec.dtype = FIG_BF16;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    assert_int_equal(fig_score_parse(&score, text), FIG_OK);
    fig_program_decode_step_score(program, score);
    fig_score_destroy(score);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_graphs_lower(&graphs, program, &options) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

static fig_status archive(const fig_graphs *graphs, fig_device device, int32_t compiles) {
    fig_runner *runner;
    const fig_runner_options options = {
        .size = sizeof options, .device = device, .compile_scores = compiles};
    if (fig_runner_open(&runner, graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
    const fig_status status = fig_runner_archive(runner, path, NULL);
    fig_runner_close(runner);
    fig_cuda_resident_forget();
    fig_cuda_scores_forget();
    return status;
}

/* Returns graphs that were loaded from a file with compiled scores. */
static fig_graphs *embedded(void) {
    fig_graphs *graphs = lower("score * 2.0 + tanh(score)"), *loaded;
    if (archive(graphs, FIG_DEVICE_CUDA, 1) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_graphs_load(&loaded, path) != FIG_OK) fail_msg("%s", fig_message());
    assert_memory_equal(loaded->content_id, graphs->content_id, 32);
    fig_graphs_destroy(graphs);
    return loaded;
}

static const fig_trust *trust_all(list *all, const fig_graphs *graphs) {
    fig_compiled_info info = {.size = sizeof info};
    *all = (list){.trust = {.size = sizeof all->trust, .images = all->images}};
    for (int32_t i = 0; fig_graphs_compiled(graphs, i, &info) == FIG_OK; i++) {
        memcpy(all->hex[i], info.sha256, sizeof info.sha256);
        all->images[i] = all->hex[i];
        all->trust.image_count++;
    }
    return &all->trust;
}

static fig_status open_engine(fig_engine **engine, const fig_graphs *graphs,
                              const fig_trust *trust) {
    return fig_engine_open(engine, graphs,
                           FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA,
                                       .compile_scores = 1, .trust = trust));
}

/* Prepares an engine and runs a step. Returns the number of scores that it compiled. */
static int64_t compiled_by(const fig_graphs *graphs, const fig_trust *trust) {
    static const int32_t one = 1;
    const int64_t before = fake->links;
    fig_engine *engine;
    if (open_engine(&engine, graphs, trust) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_caller_bind_all(engine, graphs), FIG_OK);
    if (fig_engine_prepare(engine, 0) != FIG_OK) fail_msg("%s", fig_message());
    const fig_step step = {.size = sizeof step, .rows = 1, .kv_lengths = &one};
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, -1), FIG_OK);
    assert_non_null(strstr(fake->ran[FIG_OP_SCORED_ATTENTION], "fig_kernel_scored_bulk_bf16_"));
    fig_engine_close(engine);
    return fake->links - before;
}

static void an_engine_that_trusts_the_file_compiles_nothing(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = embedded();
    assert_true(trust_all(&all, graphs)->image_count > 0);
    assert_int_equal(compiled_by(graphs, &all.trust), 0);
    assert_true(compiled_by(graphs, NULL) > 0); /* who does not trust it gets none of its code */
    fig_cuda_scores_forget();
    assert_int_equal(compiled_by(graphs, &all.trust), 0);
    fig_graphs_destroy(graphs);
}

static void without_compile_scores_the_code_stays_unused(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = embedded();
    fig_engine *engine;
    fig_launch_info info = {.size = sizeof info};
    const int64_t links = fake->links;
    assert_int_equal(fig_engine_open(&engine, graphs,
                                     FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA,
                                                 .trust = trust_all(&all, graphs))),
                     FIG_OK);
    assert_int_equal(fig_caller_bind_all(engine, graphs), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine, 0), FIG_OK);
    for (int32_t i = 0; fig_engine_launch_info(engine, 1, i, &info) == FIG_OK; i++)
        if (strcmp(info.operation, "scored_attention") == 0)
            assert_string_equal(info.family, "plain");
    assert_int_equal(fake->links, links);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

static void code_that_is_not_on_the_list_is_refused_with_advice(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = embedded();
    fig_engine *engine;
    trust_all(&all, graphs);
    all.hex[0][0] = all.hex[0][0] == '0' ? '1' : '0';
    assert_int_equal(open_engine(&engine, graphs, &all.trust), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "the file's compiled score ("));
    assert_non_null(strstr(fig_message(), ") is not trusted, SHA-256 "));
    assert_null(engine);
    fig_graphs_destroy(graphs);
}

/* A forger could do this: the record names a trusted hash, but the code differs from it. */
static void code_without_its_recorded_hash_is_refused(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = embedded();
    fig_engine *engine;
    graphs->archive.compiled.records[0].sha256[5] ^= 1;
    trust_all(&all, graphs);
    assert_int_equal(open_engine(&engine, graphs, &all.trust), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "does not have the SHA-256 that SIMG records"));
    graphs->archive.compiled.records[0].sha256[5] ^= 1;
    graphs->archive.compiled.code[0] ^= 1;
    trust_all(&all, graphs);
    assert_int_equal(open_engine(&engine, graphs, &all.trust), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "section SCOD: zstd:"));
    fig_graphs_destroy(graphs);
}

static void code_of_another_text_gpu_or_newer_driver_is_not_taken(void **state) {
    (void)state;
    static list all;
    for (int i = 0; i < 4; i++) {
        fig_graphs *graphs = embedded();
        fig_embedded *compiled = &graphs->archive.compiled;
        for (uint32_t n = 0; n < compiled->count; n++) {
            if (i == 0) compiled->records[n].ptx[0] ^= 1;
            if (i == 1) compiled->records[n].compute_capability = 80;
            if (i == 2) compiled->records[n].driver += 10;
            if (i == 3) compiled->records[n].driver -= 10;
        }
        trust_all(&all, graphs);
        assert_int_equal(compiled_by(graphs, &all.trust) > 0, i < 3);
        fig_cuda_scores_forget();
        fig_graphs_destroy(graphs);
    }
}

static void a_runner_that_compiled_nothing_has_nothing_to_embed(void **state) {
    (void)state;
    fig_graphs *graphs = lower("score * 2.0");
    assert_int_equal(archive(graphs, FIG_DEVICE_CUDA, 0), FIG_UNSUPPORTED);
    assert_non_null(strstr(fig_message(), "runner: no score was compiled"));
    assert_int_equal(archive(graphs, FIG_DEVICE_HOST, 1), FIG_UNSUPPORTED);
    fig_graphs_destroy(graphs);
    graphs = lower("see 0:q_pos + 1; score * 2.0");
    assert_int_equal(archive(graphs, FIG_DEVICE_CUDA, 1), FIG_UNSUPPORTED);
    fig_graphs_destroy(graphs);
}

static void saving_again_keeps_the_code(void **state) {
    (void)state;
    fig_graphs *graphs = embedded(), *again;
    const fig_note note = {.size = sizeof note, .key = "k", .value = "v"};
    fig_compiled_info info = {.size = sizeof info}, kept = {.size = sizeof kept};
    uint8_t *bytes, *other;
    size_t count, other_count;
    assert_int_equal(
        fig_graphs_archive(graphs, path,
                           FIG_OPTIONS(fig_archive_options, .notes = &note, .note_count = 1)),
        FIG_OK);
    assert_int_equal(fig_graphs_load(&again, path), FIG_OK);
    assert_int_equal(fig_graphs_compiled(graphs, 0, &info), FIG_OK);
    assert_int_equal(fig_graphs_compiled(again, 0, &kept), FIG_OK);
    assert_string_equal(info.sha256, kept.sha256);
    assert_string_equal(kept.family, info.family);
    assert_int_equal(kept.compute_capability, 90);
    assert_true(kept.bytes > 0 && kept.driver > 12000);
    assert_int_equal(fig_graphs_write(again, &bytes, &count), FIG_OK);
    fig_graphs_destroy(again);
    assert_int_equal(fig_graphs_parse(&again, bytes, count), FIG_OK);
    assert_int_equal(fig_graphs_write(again, &other, &other_count), FIG_OK);
    assert_int_equal(other_count, count);
    assert_memory_equal(other, bytes, count);
    free(other);
    free(bytes);
    assert_int_equal(fig_graphs_compiled(again, (int32_t)again->archive.compiled.count, &kept),
                     FIG_INVALID);
    assert_int_equal(fig_graphs_compiled(again, -1, &kept), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "compiled score: index is -1"));
    fig_graphs_destroy(again);
    fig_graphs_destroy(graphs);
}

/* ---- Files that no library would write */

static void assert_refused(fig_graphs *graphs, const char *words) {
    fig_graphs *loaded;
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    assert_int_equal(fig_graphs_parse(&loaded, bytes, count), FIG_FORMAT);
    if (strstr(fig_message(), words) == NULL) fail_msg("%s", fig_message());
    free(bytes);
}

static void records_that_no_library_writes_are_refused(void **state) {
    (void)state;
    fig_graphs *graphs = embedded();
    fig_embedded *compiled = &graphs->archive.compiled;
    fig_embedded_record *record = compiled->records, sound = *record;
    const uint32_t count = compiled->count;
    record->family[0] = 'B';
    assert_refused(graphs, "section SIMG: score 0: family is not a name of [a-z0-9_]");
    *record = sound;
    record->family[15] = 'b';
    assert_refused(graphs, "section SIMG: score 0: family is not");
    *record = sound;
    record->bytes = 0;
    assert_refused(graphs, "section SIMG: score 0: bytes is 0, limits 1 to 16777216");
    *record = sound;
    record->bytes += 16;
    assert_refused(graphs, "section SIMG: the compiled scores take");
    *record = sound;
    compiled->count = 0;
    assert_refused(graphs, "section SIMG: the compiled scores take 0 bytes");
    compiled->count = count;
    assert_true(count > 1);
    compiled->records[1] = compiled->records[0];
    assert_refused(graphs, "section SIMG: score 1 does not come after the one before");
    fig_graphs_destroy(graphs);
}

static void running_out_of_memory_loses_no_code(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = embedded();
    fig_archive_admitted admitted;
    fig_archive clone;
    trust_all(&all, graphs);
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status =
            fig_archive_admit(&graphs->archive, &all.trust, fig_images_of, &admitted);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
        assert_int_equal(admitted.set.compiled_count, 0);
    }
    assert_int_equal(admitted.set.compiled_count, graphs->archive.compiled.count);
    fig_archive_admitted_finish(&admitted);
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_archive_clone(&clone, &graphs->archive);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
        assert_null(clone.compiled.records);
    }
    fig_archive_finish(&clone);
    fig_graphs_destroy(graphs);
}

static void saving_without_memory_leaves_the_old_file(void **state) {
    (void)state;
    fig_graphs *graphs = embedded(), *loaded;
    fig_runner *runner;
    const fig_runner_options options = {
        .size = sizeof options, .device = FIG_DEVICE_CUDA, .compile_scores = 1};
    assert_int_equal(fig_runner_open(&runner, graphs, &options), FIG_OK);
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_runner_archive(runner, path, NULL);
        if (fig_fault_disarm() < n) break;
        if (status != FIG_OK) assert_true(status == FIG_NOMEM || status == FIG_IO);
        assert_int_equal(fig_graphs_load(&loaded, path), FIG_OK);
        fig_graphs_destroy(loaded);
    }
    fig_runner_close(runner);
    fig_cuda_resident_forget();
    fig_graphs_destroy(graphs);
}

static int make_path(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(an_engine_that_trusts_the_file_compiles_nothing),
        FIG_CUDA_BENCH_TEST(without_compile_scores_the_code_stays_unused),
        FIG_CUDA_BENCH_TEST(code_that_is_not_on_the_list_is_refused_with_advice),
        FIG_CUDA_BENCH_TEST(code_without_its_recorded_hash_is_refused),
        FIG_CUDA_BENCH_TEST(code_of_another_text_gpu_or_newer_driver_is_not_taken),
        FIG_CUDA_BENCH_TEST(a_runner_that_compiled_nothing_has_nothing_to_embed),
        FIG_CUDA_BENCH_TEST(saving_again_keeps_the_code),
        FIG_CUDA_BENCH_TEST(records_that_no_library_writes_are_refused),
        FIG_CUDA_BENCH_TEST(running_out_of_memory_loses_no_code),
        FIG_CUDA_BENCH_TEST(saving_without_memory_leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}

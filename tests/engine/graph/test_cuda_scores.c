/* test_cuda_scores.c: tests engines that compile scores, over a driver that needs no GPU: what is
 * compiled and when, what is kept, and what is refused. */
#define _GNU_SOURCE /* nftw */
#include "engine/engine.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/graph/cuda_scores.h"
#include "graphs/files/file.h"
#include "include/figraph_scores.h"
#include "tests/support/driver/caller.h"
#include "tests/support/driver/cuda_bench.h"

#define fake fig_cuda_bench_fake

static const char plain_text[] = "score * 2.0 + tanh(score)";

typedef struct scene {
    fig_graphs *graphs;
    fig_engine *engine;
} scene;

/* row_tokens, query_limit: as in the spec; 0: the program is not packed. */
typedef struct packing {
    int32_t row_tokens, query_limit;
} packing;

static void lower_scene(scene *s, const char *text, packing rows) {
    static const fig_bucket two[] = {{1, 64}, {2, 64}};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_score *score;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    spec.dtype = FIG_BF16;
    spec.row_tokens = rows.row_tokens;
    spec.query_limit = rows.query_limit;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    assert_int_equal(fig_score_parse(&score, text), FIG_OK);
    fig_program_decode_step_score(program, score);
    fig_score_destroy(score);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_lower_options lower = {.size = sizeof lower, .buckets = two, .bucket_count = 2};
    if (fig_graphs_lower(&s->graphs, program, &lower) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
}

static void open_packed(scene *s, const char *text, const char *folder, packing rows) {
    const fig_engine_options options = {.size = sizeof options,
                                        .device = FIG_DEVICE_CUDA,
                                        .compile_scores = 1,
                                        .score_cache = folder};
    lower_scene(s, text, rows);
    if (fig_engine_open(&s->engine, s->graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_caller_bind_all(s->engine, s->graphs), FIG_OK);
}

static void open_scene(scene *s, const char *text, const char *folder) {
    open_packed(s, text, folder, (packing){0, 0});
}

static void close_scene(scene *s) {
    fig_engine_close(s->engine);
    fig_graphs_destroy(s->graphs);
    fig_cuda_scores_forget();
    s->engine = NULL;
}

/* Returns the family that serves the launches of an operation. */
static const char *family_of_op(const scene *s, int32_t bucket, const char *operation) {
    fig_launch_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_engine_launch_info(s->engine, bucket, i, &info) == FIG_OK; i++)
        if (strcmp(info.operation, operation) == 0) return info.family;
    return NULL;
}

/* Returns the family that serves the launches with a score. */
static const char *family_of(const scene *s, int32_t bucket) {
    return family_of_op(s, bucket, "scored_attention");
}

/* Opens an engine, prepares its buckets and closes it. Returns the number of scores compiled. */
static int64_t compiled_by(const char *text, const char *folder) {
    const int64_t before = fake->links;
    scene s;
    open_scene(&s, text, folder);
    if (fig_engine_prepare(s.engine, 0) != FIG_OK) fail_msg("%s", fig_message());
    close_scene(&s);
    return fake->links - before;
}

/* ---- What is compiled ------------------------------------------------------------------------ */

static void a_score_is_compiled_once_for_all_layers_and_buckets(void **state) {
    (void)state;
    scene s;
    open_scene(&s, plain_text, NULL);
    assert_int_equal(fake->links, 0);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    assert_string_equal(family_of(&s, 1), "bulk");
    assert_string_equal(family_of(&s, 2), "bulk");
    assert_true(fake->links == 1 || fake->links == 2); /* buckets may have other shares */
    const int64_t links = fake->links;
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    assert_int_equal(fake->links, links);
    static const int32_t one = 1;
    assert_int_equal(
        fig_engine_step(s.engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &one)), FIG_OK);
    assert_int_equal(fig_engine_wait(s.engine, -1), FIG_OK);
    assert_non_null(strstr(fake->ran[FIG_OP_SCORED_ATTENTION], "fig_kernel_scored_bulk_bf16_"));
    close_scene(&s);
}

static fig_tensor declare(fig_program *program, const char *name, int64_t rows, int64_t heads) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 3, .dims = {rows, heads, 64}));
}

/* Records attention with two scores, which the same kernel serves. */
static void lower_two_scores(scene *s) {
    static const char *const texts[] = {"score * 2.0", "score * 3.0"};
    static const char *const outs[] = {"out", "other_out"};
    const fig_bucket bucket = {2, 64};
    const fig_lower_options lower = {.size = sizeof lower, .buckets = &bucket, .bucket_count = 1};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 8,
                           .kv_heads = 4,
                           .head_dim = 64,
                           .page_size = 64,
                           .batch_limit = 2,
                           .kv_limit = 64};
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    const fig_tensor q = declare(program, "q", FIG_DIM_BATCH, 8);
    fig_cache cache = {0};
    fig_tensor *sides[] = {&cache.k, &cache.v};
    for (int i = 0; i < 2; i++)
        *sides[i] =
            fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = i == 0 ? "k" : "v",
                                                    .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                    .rank = 4, .dims = {FIG_DIM_PAGES, 64, 4, 64}));
    for (int i = 0; i < 2; i++) {
        fig_score *score;
        assert_int_equal(fig_score_parse(&score, texts[i]), FIG_OK);
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q,
                                           .out = declare(program, outs[i], FIG_DIM_BATCH, 8),
                                           .cache = cache, .score = score));
        fig_score_destroy(score);
    }
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_graphs_lower(&s->graphs, program, &lower) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
}

static void two_scores_of_a_program_are_two_kernels(void **state) {
    (void)state;
    const fig_engine_options options = {
        .size = sizeof options, .device = FIG_DEVICE_CUDA, .compile_scores = 1};
    scene s;
    lower_two_scores(&s);
    assert_int_equal(fig_engine_open(&s.engine, s.graphs, &options), FIG_OK);
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    if (fig_engine_prepare(s.engine, 0) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fake->links, 2);
    close_scene(&s);
}

static void a_gpu_without_the_copy_engine_compiles_the_other_family(void **state) {
    (void)state;
    scene s;
    fake->capability = 80;
    open_scene(&s, plain_text, NULL);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    assert_string_equal(family_of(&s, 1), "copy");
    assert_int_equal(fake->links, 1);
    close_scene(&s);
}

static void a_score_of_chunks_is_interpreted(void **state) {
    static const int32_t lengths[] = {30, 7}, counts[] = {20, 1};
    (void)state;
    scene s;
    open_packed(&s, plain_text, NULL, (packing){64, 128});
    if (fig_engine_prepare(s.engine, 0) != FIG_OK) fail_msg("%s", fig_message());
    assert_string_equal(family_of(&s, 1), "bulk");
    assert_string_equal(family_of_op(&s, 1, "scored_prompt"), "plain");
    assert_null(family_of_op(&s, 1, "prompt_attention"));
    assert_true(fake->links >= 1);
    if (fig_engine_step(s.engine, FIG_OPTIONS(fig_step, .rows = 2, .kv_lengths = lengths,
                                              .query_counts = counts)) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_int_equal(fig_engine_wait(s.engine, -1), FIG_OK);
    assert_string_equal(fake->ran[FIG_OP_SCORED_PROMPT], "fig_kernel_scored_prompt_128");
    close_scene(&s);
}

static void without_the_option_nothing_is_compiled(void **state) {
    (void)state;
    const fig_engine_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    scene s;
    lower_scene(&s, plain_text, (packing){0, 0});
    assert_int_equal(fig_engine_open(&s.engine, s.graphs, &options), FIG_OK);
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    assert_string_equal(family_of(&s, 1), "plain");
    assert_int_equal(fake->links, 0);
    close_scene(&s);
}

static void a_score_with_a_mask_is_interpreted(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "see 0:q_pos + 1; score * 2.0", NULL);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    assert_string_equal(family_of(&s, 1), "plain");
    assert_int_equal(fake->links, 0);
    close_scene(&s);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void assert_unsupported(const char *word) {
    scene s;
    open_scene(&s, plain_text, NULL);
    assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_UNSUPPORTED);
    assert_non_null(strstr(fig_message(), word));
    assert_non_null(strstr(fig_message(), "without compile_scores the score is interpreted"));
    fake->refuses_scores = fake->no_templates = 0;
    fake->fail_name = NULL;
    if (fig_engine_prepare(s.engine, 1) != FIG_OK) fail_msg("%s", fig_message());
    close_scene(&s);
}

static void a_driver_that_does_not_compile_says_what_to_do(void **state) {
    (void)state;
    fake->refuses_scores = 1;
    assert_unsupported("ptxas fatal: Unsupported .version: without");
    static const char *const calls[] = {"cuLinkCreate", "cuLinkAddData", "cuLinkComplete"};
    for (int i = 0; i < 3; i++) {
        fake->fail_name = calls[i], fake->fail_with = 221; /* no compiler is installed */
        assert_unsupported("CUDA");
    }
}

static void a_library_without_templates_says_what_to_do(void **state) {
    (void)state;
    fake->no_templates = 1;
    assert_unsupported("no template of fig_kernel_scored_bulk_bf16_");
}

static void memory_that_runs_out_is_no_refusal(void **state) {
    (void)state;
    scene s;
    open_scene(&s, plain_text, NULL);
    fake->fail_name = "cuLinkAddData", fake->fail_with = FIG_CU_OUT_OF_MEMORY;
    assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_NOMEM);
    fake->fail_name = NULL;
    close_scene(&s);
}

/* ---- What is kept ---------------------------------------------------------------------------- */

static char folder[] = "/tmp/fig_scores_XXXXXX";

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static void make_folder(void) {
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
}

static void remove_folder(void) {
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void another_engine_of_the_process_finds_the_code(void **state) {
    (void)state;
    scene s, other;
    open_scene(&s, plain_text, NULL);
    open_scene(&other, plain_text, NULL);
    assert_int_equal(fig_engine_prepare(s.engine, 0), FIG_OK);
    const int64_t links = fake->links;
    assert_int_equal(fig_engine_prepare(other.engine, 0), FIG_OK);
    assert_int_equal(fake->links, links);
    fig_engine_close(other.engine);
    fig_graphs_destroy(other.graphs);
    close_scene(&s);
}

static void a_later_process_finds_the_code_in_the_folder(void **state) {
    (void)state;
    make_folder();
    const int64_t links = compiled_by(plain_text, folder);
    assert_true(links > 0);
    assert_int_equal(compiled_by(plain_text, folder), 0);
    assert_int_equal(compiled_by("score * 3.0", folder), links);
    assert_int_equal(compiled_by(plain_text, NULL), links);
    fake->capability = 80; /* another GPU, with another kernel */
    assert_true(compiled_by(plain_text, folder) > 0);
    assert_int_equal(compiled_by(plain_text, folder), 0);
    fake->capability = 89; /* with the same kernel */
    assert_true(compiled_by(plain_text, folder) > 0);
    fig_cuda_api_table()->version += 10; /* another driver */
    assert_true(compiled_by(plain_text, folder) > 0);
    assert_int_equal(compiled_by(plain_text, folder), 0);
    remove_folder();
}

static char changed[512];

static int change_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)at;
    uint8_t *bytes;
    size_t count;
    if (kind != FTW_F) return 0;
    assert_int_equal(fig_file_read(path, 1 << 20, &bytes, &count), FIG_OK);
    bytes[count - 1] ^= 1;
    assert_int_equal(fig_file_write(path, bytes, count), FIG_OK);
    free(bytes);
    snprintf(changed, sizeof changed, "%s", path);
    return 0;
}

static void a_damaged_entry_is_made_anew(void **state) {
    (void)state;
    make_folder();
    const int64_t links = compiled_by(plain_text, folder);
    nftw(folder, change_one, 8, FTW_PHYS);
    assert_int_equal(compiled_by(plain_text, folder), links);
    assert_int_equal(compiled_by(plain_text, folder), 0);
    remove_folder();
}

static void a_folder_that_others_may_write_is_refused(void **state) {
    (void)state;
    fig_engine_options options = {
        .size = sizeof options, .device = FIG_DEVICE_CUDA, .compile_scores = 1};
    scene s;
    make_folder();
    lower_scene(&s, plain_text, (packing){0, 0});
    options.score_cache = folder;
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(fig_engine_open(&s.engine, s.graphs, &options), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "others may write in /tmp/fig_scores_"));
    assert_int_equal(chmod(folder, 0700), 0);
    options.compile_scores = 0;
    assert_int_equal(fig_engine_open(&s.engine, s.graphs, &options), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "score_cache is for engines with compile_scores"));
    options.compile_scores = 1;
    assert_int_equal(fig_engine_open(&s.engine, s.graphs, &options), FIG_OK);
    assert_int_equal(chmod(folder, 0770), 0); /* later */
    assert_int_equal(fig_caller_bind_all(s.engine, s.graphs), FIG_OK);
    assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_INVALID);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(fig_engine_prepare(s.engine, 1), FIG_OK);
    close_scene(&s);
    remove_folder();
}

static void the_default_folder_is_the_users_own(void **state) {
    (void)state;
    char own[128];
    struct stat info;
    make_folder();
    snprintf(own, sizeof own, "%s/figraph/scores", folder);
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    const int64_t links = compiled_by(plain_text, NULL);
    assert_int_equal(stat(own, &info), -1); /* nobody asked for it */
    assert_int_equal(compiled_by(plain_text, FIG_SCORE_CACHE_DEFAULT), links);
    assert_int_equal(stat(own, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(compiled_by(plain_text, FIG_SCORE_CACHE_DEFAULT), 0);
    nftw(own, change_one, 8, FTW_PHYS);
    assert_int_equal(compiled_by(plain_text, FIG_SCORE_CACHE_DEFAULT), links);
    assert_int_equal(compiled_by(plain_text, own), 0);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    remove_folder();
}

static void the_default_folder_is_refused_where_others_may_write(void **state) {
    (void)state;
    const fig_engine_options options = {.size = sizeof options,
                                        .device = FIG_DEVICE_CUDA,
                                        .compile_scores = 1,
                                        .score_cache = FIG_SCORE_CACHE_DEFAULT};
    char own[128];
    scene s;
    make_folder();
    snprintf(own, sizeof own, "%s/figraph", folder);
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    assert_true(compiled_by(plain_text, FIG_SCORE_CACHE_DEFAULT) > 0);
    assert_int_equal(chmod(own, 0777), 0);
    lower_scene(&s, plain_text, (packing){0, 0});
    assert_int_equal(fig_engine_open(&s.engine, s.graphs, &options), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "/figraph/scores: everybody may rename"));
    assert_null(s.engine);
    fig_graphs_destroy(s.graphs);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    remove_folder();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(a_score_is_compiled_once_for_all_layers_and_buckets),
        FIG_CUDA_BENCH_TEST(two_scores_of_a_program_are_two_kernels),
        FIG_CUDA_BENCH_TEST(a_gpu_without_the_copy_engine_compiles_the_other_family),
        FIG_CUDA_BENCH_TEST(a_score_of_chunks_is_interpreted),
        FIG_CUDA_BENCH_TEST(without_the_option_nothing_is_compiled),
        FIG_CUDA_BENCH_TEST(a_score_with_a_mask_is_interpreted),
        FIG_CUDA_BENCH_TEST(a_driver_that_does_not_compile_says_what_to_do),
        FIG_CUDA_BENCH_TEST(a_library_without_templates_says_what_to_do),
        FIG_CUDA_BENCH_TEST(memory_that_runs_out_is_no_refusal),
        FIG_CUDA_BENCH_TEST(another_engine_of_the_process_finds_the_code),
        FIG_CUDA_BENCH_TEST(a_later_process_finds_the_code_in_the_folder),
        FIG_CUDA_BENCH_TEST(a_damaged_entry_is_made_anew),
        FIG_CUDA_BENCH_TEST(a_folder_that_others_may_write_is_refused),
        FIG_CUDA_BENCH_TEST(the_default_folder_is_the_users_own),
        FIG_CUDA_BENCH_TEST(the_default_folder_is_refused_where_others_may_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

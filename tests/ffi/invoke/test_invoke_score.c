/* test_invoke_score.c: tests attention calls with a score.
 *
 * The fake driver plays the GPU. A call with a score does the same work as a call with ALiBi or a
 * soft cap; tests/python/python_torch_scores.py compares numbers with float64. */
#include "ffi/invoke/invoke_score.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ffi/known_scores.h"
#include "ffi/registry.h"
#include "include/figraph_ffi.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/fault.h"
#include "tests/support/hang.h"

enum { ROWS = 3, HEADS = 4, KV = 2, DIM = 64, TOKENS = 24 };

static const char alibi_text[] = "score + slope[head] * (kv_pos - q_pos)";
static const char apart_text[] = "score + slope[head] * float(kv_pos) - slope[head] * float(q_pos)";
static const char capped_text[] =
    "f32 slope[4]; 20 * tanh((score + slope[head] * (kv_pos - q_pos)) / 20)";

typedef struct world {
    float q[ROWS * HEADS * DIM], k[ROWS * KV * DIM], v[ROWS * KV * DIM];
    float k_cache[ROWS * TOKENS * KV * DIM], v_cache[ROWS * TOKENS * KV * DIM];
    float out[ROWS * HEADS * DIM], slopes[HEADS];
    int32_t lengths[ROWS];
    uint16_t halves[HEADS];
} world;

static void fill(float *to, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(int32_t)seed / 2147483648.0f;
    }
}

static world *make(void) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    fill(w->q, sizeof w->q / sizeof *w->q, 1);
    fill(w->k, sizeof w->k / sizeof *w->k, 2);
    fill(w->v, sizeof w->v / sizeof *w->v, 3);
    fill(w->k_cache, sizeof w->k_cache / sizeof *w->k_cache, 4);
    fill(w->v_cache, sizeof w->v_cache / sizeof *w->v_cache, 5);
    fill(w->slopes, HEADS, 6);
    memcpy(w->lengths, (const int32_t[]){24, 0, 17}, sizeof w->lengths);
    return w;
}

static fig_array array_of(const char *name, void *data, fig_dtype dtype, int32_t rank,
                          const int64_t *dims) {
    fig_array array = {.name = name, .data = data, .dtype = dtype, .bits = 32, .rank = rank};
    if (dtype == FIG_BF16 || dtype == FIG_F16) array.bits = 16;
    array.device = FIG_DEVICE_HOST;
    memcpy(array.dims, dims, (size_t)rank * sizeof *dims);
    fig_array_pack(&array);
    return array;
}

static fig_array slopes_of(world *w) {
    return array_of("score_array0", w->slopes, FIG_F32, 1, (const int64_t[]){HEADS});
}

static fig_invoke_decode call_of(world *w) {
    const int64_t q[] = {ROWS, HEADS, DIM}, k[] = {ROWS, KV, DIM},
                  cache[] = {ROWS, TOKENS, KV, DIM};
    const int64_t rows = ROWS;
    return (fig_invoke_decode){
        .attention = {.q = array_of("q", w->q, FIG_F32, 3, q),
                      .out = array_of("out", w->out, FIG_F32, 3, q),
                      .k = array_of("k_cache", w->k_cache, FIG_F32, 4, cache),
                      .v = array_of("v_cache", w->v_cache, FIG_F32, 4, cache),
                      .lengths = array_of("lengths", w->lengths, FIG_I32, 1, &rows),
                      .window_left = -1,
                      .sm_scale = 0.125},
        .k = array_of("k", w->k, FIG_F32, 3, k),
        .v = array_of("v", w->v, FIG_F32, 3, k),
        .rope = {.scale = 1, .theta = 10000}};
}

static int64_t known(const char *text) {
    int64_t number;
    if (fig_ffi_add_score(text, &number) != FIG_OK) fail_msg("%s", fig_ffi_message());
    return number;
}

/* Puts a call on the fake GPU. */
static void move(fig_invoke_decode *d) {
    fig_array *const arrays[] = {&d->attention.q,
                                 &d->attention.out,
                                 &d->attention.k,
                                 &d->attention.v,
                                 &d->attention.lengths,
                                 &d->attention.alibi,
                                 &d->attention.score_arrays[0],
                                 &d->k,
                                 &d->v};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        arrays[i]->device = FIG_DEVICE_CUDA;
}

typedef struct way {
    fig_device device;
    int decode;
} way;

static void run(const way *of, fig_invoke_decode *d) {
    static _Alignas(64) uint8_t scratch[1 << 16];
    fig_invoke invoke = {.scratch = scratch, .scratch_bytes = sizeof scratch};
    if (of->device == FIG_DEVICE_CUDA) move(d);
    const fig_status status = of->decode ? fig_invoke_decode_describe(&invoke, d)
                                         : fig_invoke_attention_describe(&invoke, &d->attention);
    if (status != FIG_OK) fail_msg("%s", fig_ffi_message());
    if (of->device == FIG_DEVICE_CUDA)
        invoke.stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    if (fig_invoke_run(&invoke) != FIG_OK) fail_msg("%s", fig_ffi_message());
    if (of->device == FIG_DEVICE_CUDA) fig_fake_cuda_stream_destroy(invoke.stream);
}

static void a_score_gives_the_same_as_the_options_that_it_writes_out(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const way of = {i & 1 ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST, i / 2};
        world *a = make(), *b = make();
        fig_invoke_decode theirs = call_of(a), ours = call_of(b);
        theirs.attention.alibi = slopes_of(a);
        theirs.attention.alibi.name = "alibi";
        ours.attention.score = known(apart_text);
        ours.attention.score_arrays[0] = slopes_of(b);
        run(&of, &theirs);
        run(&of, &ours);
        for (int n = 0; n < ROWS * HEADS * DIM; n++)
            assert_true(fabsf(a->out[n] - b->out[n]) < 1e-5f);
        assert_true(a->out[0] != 0);
        assert_memory_equal(a->k_cache, b->k_cache, sizeof a->k_cache);
        assert_memory_equal(a->v_cache, b->v_cache, sizeof a->v_cache);
        free(a);
        free(b);
    }
}

/* ---- Recipes */

static fig_recipe recipe_of(fig_invoke_decode *d) {
    fig_invoke invoke = {0};
    if (fig_invoke_attention_describe(&invoke, &d->attention) != FIG_OK)
        fail_msg("%s", fig_ffi_message());
    return invoke.recipe;
}

static void a_cap_and_alibi_take_the_recipe_of_these_options(void **state) {
    (void)state;
    world *w = make();
    fig_invoke_decode theirs = call_of(w), ours = call_of(w);
    theirs.attention.soft_cap = 20;
    theirs.attention.alibi = slopes_of(w);
    ours.attention.score = known(capped_text);
    ours.attention.score_arrays[0] = slopes_of(w);
    const fig_recipe a = recipe_of(&theirs), b = recipe_of(&ours);
    assert_memory_equal(&a, &b, sizeof a);
    free(w);
}

/* Slopes of another form are no ALiBi. */
static void slopes_that_alibi_does_not_take_stay_a_score(void **state) {
    (void)state;
    world *w = make();
    const int64_t more = HEADS * DIM, heads = HEADS;
    fig_invoke_decode d = call_of(w);
    d.attention.score = known(alibi_text);
    d.attention.score_arrays[0] = array_of("score_array0", w->q, FIG_F32, 1, &more);
    fig_recipe recipe = recipe_of(&d);
    assert_true(recipe.score == d.attention.score);
    assert_int_equal(recipe.score_counts[0], more);
    d = call_of(w);
    d.attention.score = known("bf16 slope[]; score + slope[head] * (kv_pos - q_pos)");
    d.attention.score_arrays[0] = array_of("score_array0", w->halves, FIG_BF16, 1, &heads);
    recipe = recipe_of(&d);
    assert_true(recipe.score == d.attention.score);
    free(w);
}

/* ---- Refusals */

static void expect(fig_status status, fig_invoke_decode *d, const char *words) {
    fig_invoke invoke = {0};
    assert_int_equal(fig_invoke_attention_describe(&invoke, &d->attention), status);
    if (strstr(fig_ffi_message(), words) == NULL)
        fail_msg("\"%s\" has no \"%s\"", fig_ffi_message(), words);
}

static void mistakes_are_refused_by_name(void **state) {
    (void)state;
    world *w = make();
    const int64_t score = known(apart_text), heads = HEADS, none = 0, square[] = {2, 2};
    const fig_invoke_decode sound = call_of(w);
    fig_invoke_decode d = sound;
    d.attention.score = 12345;
    expect(FIG_ORDER, &d, "score is 12345");
    d = sound;
    d.attention.score_arrays[1] = slopes_of(w);
    expect(FIG_INVALID, &d, "score_array1 is given, but the call's score has 0 arrays");
    d.attention.score = score;
    d.attention.score_arrays[0] = slopes_of(w);
    expect(FIG_INVALID, &d, "score_array1 is given, but the call's score has 1 arrays");
    d = sound;
    d.attention.score = score;
    expect(FIG_INVALID, &d, "array slope is not given");
    d.attention.score_arrays[0] = array_of("score_array0", w->slopes, FIG_I32, 1, &heads);
    expect(FIG_ARRAY_WRONG_TYPE, &d, "slope is ");
    d.attention.score_arrays[0] = array_of("score_array0", w->slopes, FIG_F32, 2, square);
    expect(FIG_INVALID, &d, "slope is [2, 2]");
    d.attention.score_arrays[0] = slopes_of(w);
    d.attention.score_arrays[0].strides[0] = 2;
    expect(FIG_INVALID, &d, "slope");
    d.attention.score_arrays[0] = array_of("score_array0", w->slopes, FIG_F32, 1, &none);
    expect(FIG_INVALID, &d, "slope");
    d.attention.score = known("f32 slope[5]; score + slope[head]");
    d.attention.score_arrays[0] = slopes_of(w);
    expect(FIG_INVALID, &d, "slope is [4]");
    d.attention.score = score;
    d.attention.alibi = slopes_of(w);
    expect(FIG_INVALID, &d, "alibi is given beside a score");
    d.attention.alibi = (fig_array){0};
    d.attention.soft_cap = 3;
    expect(FIG_INVALID, &d, "logits_soft_cap is 3 beside a score");
    free(w);
}

static void a_score_makes_its_own_plan(void **state) {
    (void)state;
    static uint8_t bytes[64];
    const int64_t count = sizeof bytes;
    world *w = make();
    const fig_array plan = array_of("plan", bytes, FIG_E4M3, 1, &count);
    fig_invoke_decode d = call_of(w);
    fig_invoke invoke = {0}, plain = {0};
    d.attention.score = known(apart_text);
    d.attention.score_arrays[0] = slopes_of(w);
    assert_int_equal(fig_invoke_attention_describe(&invoke, &d.attention), FIG_OK);
    assert_int_equal(fig_invoke_lend_plan(&invoke, &plan), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "plan is given beside a score"));
    d = call_of(w);
    d.attention.score = known(alibi_text);
    d.attention.score_arrays[0] = slopes_of(w);
    assert_int_equal(fig_invoke_attention_describe(&plain, &d.attention), FIG_OK);
    assert_int_equal(fig_invoke_lend_plan(&plain, &plan), FIG_OK);
    free(w);
}

/* ---- Compiled scores */

static fig_status set_compiling(int32_t compiles, const char *folder) {
    return fig_ffi_compile_scores(
        FIG_OPTIONS(fig_ffi_score_options, .compile_scores = compiles, .score_cache = folder));
}

/* Describes attention with f16 on the fake GPU. The result points to the call's arrays. */
static fig_invoke describe_halves(const char *text) {
    static fig_invoke_decode d;
    static _Alignas(64) uint8_t scratch[1 << 16];
    static uint16_t halves[6][ROWS * TOKENS * KV * DIM];
    const int64_t q[] = {ROWS, HEADS, DIM}, cache[] = {ROWS, TOKENS, KV, DIM}, rows = ROWS;
    static int32_t lengths[ROWS] = {24, 0, 17};
    d = (fig_invoke_decode){
        .attention = {.q = array_of("q", halves[0], FIG_F16, 3, q),
                      .out = array_of("out", halves[1], FIG_F16, 3, q),
                      .k = array_of("k_cache", halves[2], FIG_F16, 4, cache),
                      .v = array_of("v_cache", halves[3], FIG_F16, 4, cache),
                      .lengths = array_of("lengths", lengths, FIG_I32, 1, &rows),
                      .window_left = -1,
                      .sm_scale = 0.125,
                      .score = known(text)}};
    fig_invoke invoke = {.scratch = scratch, .scratch_bytes = sizeof scratch};
    move(&d);
    if (fig_invoke_attention_describe(&invoke, &d.attention) != FIG_OK)
        fail_msg("%s", fig_ffi_message());
    return invoke;
}

/* Runs that attention. Returns the kernel that served it. */
static const char *run_halves(const char *text, fig_fake_cuda *fake, fig_status expected) {
    fig_invoke invoke = describe_halves(text);
    invoke.stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    assert_int_equal(fig_invoke_run(&invoke), expected);
    fig_fake_cuda_stream_destroy(invoke.stream);
    return fake->ran[FIG_OP_SCORED_ATTENTION];
}

static void calls_compile_scores_once_they_are_told_to(void **state) {
    fig_fake_cuda *fake = *state;
    static const char text[] = "score * 3.0";
    assert_string_equal(run_halves(text, fake, FIG_OK), "fig_kernel_scored_attention");
    assert_int_equal(fake->links, 0);
    assert_int_equal(set_compiling(1, NULL), FIG_OK);
    assert_non_null(strstr(run_halves(text, fake, FIG_OK), "fig_kernel_scored_bulk_f16_64_"));
    const int64_t links = fake->links;
    assert_true(links > 0);
    run_halves(text, fake, FIG_OK);
    assert_int_equal(fake->links, links);
    assert_int_equal(set_compiling(0, NULL), FIG_OK);
    assert_string_equal(run_halves(text, fake, FIG_OK), "fig_kernel_scored_attention");
}

/* The same recipe as that of the call that the driver compiles for, asked for by another thread. */
typedef struct same_call {
    fig_recipe recipe;
    const fig_runner *runner;
    pthread_t thread;
} same_call;

static void *find_same(void *of) {
    same_call *same = of;
    if (fig_registry_find(&same->recipe, &same->runner) != FIG_OK) fail_msg("%s", fig_message());
    return NULL;
}

/* Calls that need no GPU, since the fake serves one thread at a time. */
static void *call_others(void *user) {
    const fig_recipe recipe = {.kind = FIG_RECIPE_GATED,
                               .device = FIG_DEVICE_HOST,
                               .dtype = FIG_F16,
                               .slots = 1u << FIG_SLOT_IN | 1u << FIG_SLOT_OUT,
                               .width = 8};
    const fig_runner *runner;
    (void)user;
    if (fig_registry_find(&recipe, &runner) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(set_compiling(1, NULL), FIG_OK);
    return NULL;
}

static void call_meanwhile(void *of) {
    same_call *same = of;
    pthread_t others;
    assert_int_equal(pthread_create(&same->thread, NULL, find_same, same), 0);
    assert_int_equal(pthread_create(&others, NULL, call_others, NULL), 0);
    assert_int_equal(pthread_join(others, NULL), 0);
}

static int64_t runners_made(void) {
    fig_ffi_counts counts = {.size = sizeof counts};
    fig_registry_read_counts(&counts);
    return counts.missed;
}

static void other_calls_find_their_runners_while_a_score_is_compiled(void **state) {
    fig_fake_cuda *fake = *state;
    static const char text[] = "score * 7.0";
    same_call same = {.runner = NULL};
    const fig_runner *runner;
    int64_t links = fake->links;
    assert_int_equal(set_compiling(1, NULL), FIG_OK);
    run_halves("score * 11.0", fake, FIG_OK);
    const int64_t links_of_one = fake->links - links;
    const int64_t missed = runners_made();
    links = fake->links;
    same.recipe = describe_halves(text).recipe;
    fake->compiling = call_meanwhile;
    fake->user = &same;
    assert_non_null(strstr(run_halves(text, fake, FIG_OK), "fig_kernel_scored_bulk_f16_64_"));
    assert_int_equal(pthread_join(same.thread, NULL), 0);
    assert_int_equal(fig_registry_find(&same.recipe, &runner), FIG_OK);
    assert_ptr_equal(same.runner, runner);
    assert_int_equal(runners_made(), missed + 2); /* that of the call, and that of another call */
    assert_int_equal(fake->links - links, links_of_one);
    assert_int_equal(set_compiling(0, NULL), FIG_OK);
}

/* Forks while a score is compiled. The child asks for the same runner, which nobody makes there. */
static void fork_meanwhile(void *of) {
    same_call *same = of;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        alarm(FIG_HANG_S);
        _exit(fig_registry_find(&same->recipe, &same->runner) == FIG_OK ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_child_waits_for_no_thread_of_its_parent(void **state) {
    fig_fake_cuda *fake = *state;
    static const char text[] = "score * 17.0";
    same_call same = {.runner = NULL};
    assert_int_equal(set_compiling(1, NULL), FIG_OK);
    same.recipe = describe_halves(text).recipe;
    fake->compiling = fork_meanwhile;
    fake->user = &same;
    run_halves(text, fake, FIG_OK);
    assert_null(fake->compiling); /* the test has forked */
    assert_int_equal(set_compiling(0, NULL), FIG_OK);
}

static void what_keeps_a_score_from_being_compiled_is_told(void **state) {
    fig_fake_cuda *fake = *state;
    assert_int_equal(set_compiling(1, "/tmp/fig_no_such_folder"), FIG_OK);
    run_halves("score * 5.0", fake, FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "/tmp/fig_no_such_folder is no folder"));
    assert_int_equal(set_compiling(1, NULL), FIG_OK);
    fake->refuses_scores = 1;
    run_halves("score * 5.0", fake, FIG_UNSUPPORTED);
    assert_non_null(strstr(fig_ffi_message(), "without compile_scores the score is interpreted"));
    assert_int_equal(set_compiling(0, NULL), FIG_OK);
    run_halves("score * 5.0", fake, FIG_OK);
    fake->refuses_scores = 0;
    assert_int_equal(set_compiling(2, NULL), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "compile_scores is 2, it must be 0 or 1"));
    assert_int_equal(set_compiling(0, "/tmp"), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "score_cache is for compile_scores"));
}

static void a_folder_is_never_left_out_for_lack_of_memory(void **state) {
    (void)state;
    assert_int_equal(set_compiling(1, "/tmp/fig_no_such_folder"), FIG_OK);
    const fig_recipe recipe = describe_halves("score * 13.0").recipe;
    const fig_runner *runner;
    fig_status status;
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        status = fig_registry_find(&recipe, &runner);
        if (fig_fault_disarm() < n) break;
        if (status != FIG_INVALID) assert_int_equal(status, FIG_NOMEM);
    }
    assert_int_equal(status, FIG_INVALID);
    assert_int_equal(set_compiling(0, NULL), FIG_OK);
}

/* ---- Sizes and known scores */

static void scratch_suffices_with_and_without_the_score(void **state) {
    (void)state;
    fig_ffi_attention shape = {.size = sizeof shape,
                               .dtype = FIG_F16,
                               .q_heads = 32,
                               .kv_heads = 8,
                               .head_dim = 128,
                               .page_size = 16,
                               .rows = 8,
                               .kv_length = 2000};
    fig_ffi_scratch plain = {.size = sizeof plain}, scored = {.size = sizeof scored};
    assert_int_equal(fig_ffi_read_scratch(&shape, &plain), FIG_OK);
    shape.score = known(apart_text);
    assert_int_equal(fig_ffi_read_scratch(&shape, &scored), FIG_OK);
    assert_true(scored.best_bytes >= plain.best_bytes);
    assert_true(scored.least_bytes >= plain.least_bytes);
    shape.q_heads = 0;
    assert_int_equal(fig_ffi_read_scratch(&shape, &scored), FIG_INVALID);
    shape.score = 12345;
    assert_int_equal(fig_ffi_read_scratch(&shape, &scored), FIG_ORDER);
}

/* Runs last, since no score can be added after it. */
static void a_score_is_known_by_its_normal_form(void **state) {
    (void)state;
    int64_t a = known("score + 2.5 * kv_pos"), b = known("kv_pos*2.5+score"), c;
    char text[64];
    assert_true(a > 0 && a == b);
    assert_true(known("score + 2.5 * q_pos") != a);
    assert_int_equal(fig_ffi_add_score("score +", &c), FIG_INVALID);
    assert_true(c == 0);
    fig_status status = FIG_OK;
    for (int i = 0; status == FIG_OK && i <= FIG_KNOWN_SCORE_LIMIT; i++) {
        snprintf(text, sizeof text, "score + %d * kv_pos", 1000 + i);
        status = fig_ffi_add_score(text, &c);
    }
    assert_int_equal(status, FIG_TOO_LARGE);
    assert_true(known("score + 2.5 * kv_pos") == a);
}

static int install(void **state) {
    *state = fig_fake_cuda_install();
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_score_gives_the_same_as_the_options_that_it_writes_out),
        cmocka_unit_test(a_cap_and_alibi_take_the_recipe_of_these_options),
        cmocka_unit_test(slopes_that_alibi_does_not_take_stay_a_score),
        cmocka_unit_test(mistakes_are_refused_by_name),
        cmocka_unit_test(a_score_makes_its_own_plan),
        cmocka_unit_test(calls_compile_scores_once_they_are_told_to),
        cmocka_unit_test_setup_teardown(other_calls_find_their_runners_while_a_score_is_compiled,
                                        fig_hang_watch, fig_hang_unwatch),
        cmocka_unit_test(what_keeps_a_score_from_being_compiled_is_told),
        cmocka_unit_test_setup_teardown(a_child_waits_for_no_thread_of_its_parent, fig_hang_watch,
                                        fig_hang_unwatch),
        cmocka_unit_test(a_folder_is_never_left_out_for_lack_of_memory),
        cmocka_unit_test(scratch_suffices_with_and_without_the_score),
        cmocka_unit_test(a_score_is_known_by_its_normal_form),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}

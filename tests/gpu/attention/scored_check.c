/* scored_check.c: compares compiled scores with interpreted ones on a GPU, and times both.
 *
 *     build/release/tests/gpu/attention/scored_check [CACHE]
 *
 * Each case runs one step three times: with compile_scores, without, and without a score. The first
 * two must agree to rounding: the tensor cores add in another order. Prints CSV: for each case, the
 * family that served, the seconds of preparing (which compiles) and those without a score, the
 * microseconds of a layer compiled, interpreted and without a score, and the rms difference,
 * relative to the rms of the values. A time is the median of seven series of steps; an interpreted
 * one is that of one series. The program does not judge times; it exits with 1 if results differ
 * by more than rounding, if a NaN appears, or if no tensor core served. Values of hidden tokens are
 * NaN in cases that hide tokens. CACHE is a folder that keeps compiled images; a second call reads
 * those of the first. SIGALRM ends the program if a step hangs. FIG_DEVICE=host runs the small
 * cases on the host, which interprets every score. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/seam/clock.h"
#include "include/figraph_scores.h"
#include "include/figraph_unstable.h"
#include "tests/support/driver/gpu_caller.h"
#include "tests/support/place.h"
#include "tests/support/random.h"
#include "tools/figraph/truth/truth_attention.h"

enum {
    ROUNDS = 7,
    STEPS = 32,
    LAYERS = 8,
    PAGE = 16,
    KV_HEADS = 8,
    ROW_LIMIT = 32,
    ELEMENTS = 1 << 16,
    DRAWN = (1 << 18) - 17, /* odd, so that no two pages begin alike */
    HIDE_EVERY = 7, /* tokens of such positions have the score -inf in cases that hide tokens */
    HANG_S = 120,
    WAIT_US = 60000000
};
#define ERROR_LIMIT 0.006

typedef struct check_case {
    const char *score;
    int32_t rows, length, head_dim, ratio;
    fig_dtype kv_dtype;
    int hides; /* 1: every HIDE_EVERY-th token is hidden, and its V is NaN */
} check_case;

/* The first cases are small enough for the host. */
enum { SMALL_CASES = 7 };
static const check_case cases[] = {
    {"score", 2, 300, 64, 4, FIG_BF16, 0},
    {"f32 a[65536]; score + a[head] * (kv_pos - q_pos)", 3, 517, 128, 4, FIG_BF16, 0},
    {"bf16 b[65536]; score + b[row * 4096 + kv_pos]", 3, 517, 80, 4, FIG_BF16, 0},
    {"weights sigmoid; score - log2(kv_length) * 0.6931472", 2, 300, 128, 8, FIG_BF16, 0},
    {"select(kv_pos % 7 != 3, score, -inf)", 2, 300, 128, 4, FIG_BF16, 1},
    {"select((kv_pos % 7 != 3) & (kv_pos % 7 != head % 2), score, -inf)", 2, 300, 64, 4, FIG_BF16,
     1},
    {"20 * tanh(score / 20) + sin(score) * cos(kv_pos) + sigmoid(score) / 3", 2, 300, 128, 4,
     FIG_BF16, 0},
    {"f32 a[65536]; score + a[head] * (kv_pos - q_pos)", 8, 8192, 128, 4, FIG_BF16, 0},
    {"f32 a[65536]; score + a[head] * (kv_pos - q_pos)", 32, 4096, 128, 4, FIG_BF16, 0},
    {"d = q_pos - kv_pos; min(score * 2.0 + d / 1024.0, 50 - float(d & 255) / 64)", 8, 8192, 128, 4,
     FIG_BF16, 0}, /* eight operations */
    {"d = q_pos - kv_pos; min(score * 2.0 + d / 1024.0, 50 - float(d & 255) / 64)", 32, 4096, 128,
     4, FIG_BF16, 0},
    {"select(kv_pos // 2048 == q_pos // 2048, score, -inf)", 8, 8192, 128, 4, FIG_BF16, 0},
    {"f32 a[65536]; score + a[head] * (kv_pos - q_pos)", 8, 8192, 128, 4, FIG_E4M3, 0},
    {"score * cos(kv_pos - q_pos)", 8, 8192, 128, 4, FIG_BF16, 0},
    /* ranges that hide nothing, and ranges that hide half */
    {"see 0:kv_length; score", 8, 8192, 128, 4, FIG_BF16, 0},
    {"see kv_length // 2:kv_length; score", 8, 8192, 128, 4, FIG_BF16, 0},
    {"see 0:kv_length; score", 32, 4096, 128, 4, FIG_BF16, 0},
    {"see kv_length // 2:kv_length; score", 32, 4096, 128, 4, FIG_BF16, 0}};
enum { CASES = sizeof cases / sizeof cases[0] };

typedef enum way_kind { COMPILED, INTERPRETED, WITHOUT, WAYS } way_kind;

typedef struct way {
    fig_graphs *graphs;
    fig_engine *engine;
    uint16_t *out; /* [rows][q heads][head_dim] of the last layer */
    double us, prepare_s;
} way;

typedef struct check {
    check_case c;
    int32_t q_heads, pages, layers;
    int32_t lengths[ROW_LIMIT];
    way ways[WAYS];
} check;

static const char *image_folder; /* the folder of compiled images, or NULL */

static int is_host(void) {
    return fig_place_device() == FIG_DEVICE_HOST;
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL) fail_msg("%zu bytes", bytes);
    return memory;
}

static size_t out_bytes(const check *k) {
    return (size_t)k->c.rows * (size_t)(k->q_heads * k->c.head_dim) * 2;
}

/* ---- The program ----------------------------------------------------------------------------- */

static fig_tensor declare(fig_program *program, const char *name, const check *k) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 3,
                                          .dims = {FIG_DIM_BATCH, k->q_heads, k->c.head_dim}));
}

static fig_tensor declare_cache(fig_program *program, const check *k, const char *name,
                                int32_t layer) {
    char full[32];
    snprintf(full, sizeof full, "%s.%d", name, (int)layer);
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = full, .role = FIG_ROLE_BOUND,
                                          .dtype = k->c.kv_dtype, .rank = 4,
                                          .dims = {FIG_DIM_PAGES, PAGE, KV_HEADS, k->c.head_dim}));
}

/* Declares the array of the score, if it has one. */
static fig_tensor declare_array(fig_program *program, const fig_score *score) {
    fig_score_parts parts = {.size = sizeof parts};
    if (score == NULL) return (fig_tensor){0};
    OK(fig_score_read(score, &parts));
    if (parts.array_count == 0) return (fig_tensor){0};
    return fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = parts.arrays[0].name, .role = FIG_ROLE_BOUND,
                             .dtype = parts.arrays[0].dtype, .rank = 1, .dims = {ELEMENTS}));
}

static void record(fig_program *program, const check *k, const fig_score *score) {
    const fig_tensor q = declare(program, "q", k), out = declare(program, "out", k);
    const fig_tensor array = declare_array(program, score);
    const fig_tensor table =
        fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "page_table",
                                                .role = FIG_ROLE_STATE, .dtype = FIG_I32, .rank = 2,
                                                .dims = {k->c.rows, k->pages / k->c.rows}));
    for (int32_t layer = 0; layer < k->layers; layer++) {
        const fig_cache cache = {.k = declare_cache(program, k, "k_cache", layer),
                                 .v = declare_cache(program, k, "v_cache", layer),
                                 .page_table = table};
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache,
                                           .score = score, .score_arrays = {array}));
    }
}

static void lower(const check *k, way *w, const fig_score *score) {
    const fig_bucket bucket = {k->c.rows, k->c.length};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .kv_dtype = k->c.kv_dtype,
                           .q_heads = k->q_heads,
                           .kv_heads = KV_HEADS,
                           .head_dim = k->c.head_dim,
                           .page_size = PAGE,
                           .batch_limit = k->c.rows,
                           .kv_limit = k->pages / k->c.rows * PAGE};
    const fig_lower_options how = {
        .size = sizeof how, .traits = fig_place_traits(), .buckets = &bucket, .bucket_count = 1};
    fig_program *program;
    OK(fig_program_create(&program, &spec));
    record(program, k, score);
    OK(fig_program_finish(program));
    OK(fig_graphs_lower(&w->graphs, program, &how));
    fig_program_destroy(program);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Binds a tensor to memory of the engine and writes random numbers there, the same for each way.
 * A large tensor repeats the first of its numbers. */
static uint8_t *bind(const way *w, const char *name, size_t count, fig_dtype dtype) {
    const size_t width = dtype == FIG_E4M3 ? 1 : dtype == FIG_BF16 ? 2 : 4;
    const size_t bytes = count * width, drawn = count < DRAWN ? count : DRAWN;
    fig_random random = fig_random_seed(7 + (uint64_t)name[0]);
    uint8_t *memory = allocate(bytes);
    for (size_t i = 0; i < drawn; i++)
        truth_store(memory, dtype, (int64_t)i, fig_random_normal(&random));
    for (size_t at = drawn * width; at < bytes; at += drawn * width)
        memcpy(memory + at, memory, bytes - at < drawn * width ? bytes - at : drawn * width);
    OK(fig_engine_bind(w->engine, FIG_OPTIONS(fig_binding, .name = name, .bytes = bytes)));
    OK(fig_engine_write(w->engine, FIG_OPTIONS(fig_span, .name = name, .bytes = bytes), memory));
    return memory;
}

/* Makes V of the hidden tokens NaN. Page p of a row holds its tokens from p * PAGE. */
static void spoil(const check *k, const way *w, const char *name, uint8_t *memory) {
    const size_t token_bytes = (size_t)(KV_HEADS * k->c.head_dim) * 2;
    const int32_t row_tokens = k->pages / k->c.rows * PAGE;
    for (int32_t token = 0; token < k->pages * PAGE; token++)
        if (token % row_tokens % HIDE_EVERY == 3)
            memset(memory + (size_t)token * token_bytes, 0xff, token_bytes);
    OK(fig_engine_write(
        w->engine,
        FIG_OPTIONS(fig_span, .name = name, .bytes = (size_t)(k->pages * PAGE) * token_bytes),
        memory));
}

static void bind_all(const check *k, const way *w, int has_score) {
    const size_t vectors = (size_t)(k->c.rows * k->q_heads * k->c.head_dim);
    const size_t values = (size_t)(k->pages * PAGE * KV_HEADS) * (size_t)k->c.head_dim;
    free(bind(w, "q", vectors, FIG_BF16));
    free(bind(w, "out", vectors, FIG_BF16));
    if (has_score && strncmp(k->c.score, "f32 a", 5) == 0) free(bind(w, "a", ELEMENTS, FIG_F32));
    if (has_score && strncmp(k->c.score, "bf16 b", 6) == 0) free(bind(w, "b", ELEMENTS, FIG_BF16));
    for (int32_t layer = 0; layer < 2 * k->layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "%c_cache.%d", layer % 2 ? 'v' : 'k', (int)layer / 2);
        uint8_t *memory = bind(w, name, values, k->c.kv_dtype);
        if (layer % 2 && k->c.hides && has_score) spoil(k, w, name, memory);
        free(memory);
    }
}

static void set_pages(const check *k, const way *w) {
    const int32_t each = k->pages / k->c.rows;
    int32_t *pages = allocate((size_t)each * sizeof *pages);
    for (int32_t row = 0; row < k->c.rows; row++) {
        for (int32_t i = 0; i < each; i++)
            pages[i] = row * each + i;
        OK(fig_engine_set_pages(
            w->engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = each, .pages = pages)));
    }
    free(pages);
}

static void open_way(check *k, way_kind kind) {
    way *w = &k->ways[kind];
    fig_engine_options options = fig_place_options();
    void *const stream = fig_gpu_caller.stream;
    fig_score *score = NULL;
    options.compile_scores = kind == COMPILED;
    if (kind == COMPILED) options.score_cache = image_folder;
    if (!is_host()) options.stream = &stream;
    if (kind != WITHOUT) OK(fig_score_parse(&score, k->c.score));
    lower(k, w, score);
    fig_score_destroy(score);
    OK(fig_engine_open(&w->engine, w->graphs, &options));
    bind_all(k, w, kind != WITHOUT);
    set_pages(k, w);
    const int64_t begin_ns = fig_clock_ns();
    OK(fig_engine_prepare(w->engine, 0));
    w->prepare_s = (double)(fig_clock_ns() - begin_ns) / 1e9;
    w->out = allocate(out_bytes(k));
}

/* Returns the family that serves the attention of an engine. */
static const char *family_of(const way *w) {
    static char family[32];
    fig_launch_info info = {.size = sizeof info};
    family[0] = '\0';
    for (int32_t i = 0; fig_engine_launch_info(w->engine, 1, i, &info) == FIG_OK; i++)
        if (strcmp(info.operation, "scored_attention") == 0 ||
            strcmp(info.operation, "attention") == 0)
            snprintf(family, sizeof family, "%s", info.family != NULL ? info.family : "");
    return family;
}

/* ---- Times ----------------------------------------------------------------------------------- */

static void run_steps(const check *k, const way *w, int32_t count) {
    for (int32_t n = 0; n < count; n++) {
        fig_status status;
        do
            status = fig_engine_step(
                w->engine, FIG_OPTIONS(fig_step, .rows = k->c.rows, .kv_lengths = k->lengths));
        while (status == FIG_BUSY);
        OK(status);
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the microseconds of a step. The host's times mean nothing here. */
static double time_steps(const check *k, const way *w) {
    fig_cu_event from = NULL, to = NULL;
    float ms = 0;
    alarm(HANG_S);
    if (is_host()) return 0;
    CU(EventCreate, &from, 0);
    CU(EventCreate, &to, 0);
    CU(EventRecord, from, fig_gpu_caller.stream);
    run_steps(k, w, STEPS);
    CU(EventRecord, to, fig_gpu_caller.stream);
    CU(EventSynchronize, to);
    CU(EventElapsedTime, &ms, from, to);
    CU(EventDestroy, from);
    CU(EventDestroy, to);
    return (double)ms * 1e3 / STEPS;
}

/* rounds: series of steps, of which the median counts. */
static void time_way(const check *k, way *w, int rounds) {
    double times[ROUNDS];
    run_steps(k, w, 1);
    OK(fig_engine_wait(w->engine, WAIT_US));
    for (int32_t i = 0; i < rounds; i++)
        times[i] = time_steps(k, w) / k->layers;
    qsort(times, (size_t)rounds, sizeof times[0], by_size);
    w->us = times[rounds / 2];
    OK(fig_engine_wait(w->engine, WAIT_US));
    OK(fig_engine_read(w->engine, FIG_OPTIONS(fig_span, .name = "out", .bytes = out_bytes(k)),
                       w->out));
}

/* ---- Results --------------------------------------------------------------------------------- */

static double difference_of(const check *k) {
    double squares = 0, values = 0;
    for (int64_t i = 0; i < (int64_t)out_bytes(k) / 2; i++) {
        const double right = truth_load(k->ways[INTERPRETED].out, FIG_BF16, i);
        const double off = truth_load(k->ways[COMPILED].out, FIG_BF16, i) - right;
        squares += off * off;
        values += right * right;
    }
    return sqrt(squares / values); /* NaN if a result is NaN */
}

/* Prints a case; returns 1 if it is wrong. */
static int print_case(const check *k) {
    const way *made = &k->ways[COMPILED];
    const char *family = family_of(made);
    const double error = difference_of(k);
    printf("\"%s\",%d,%d,%d,%d,%s,%.4f,%.4f,%.2f,%.2f,%.2f,%.5f\n", k->c.score, k->c.rows,
           k->c.length, k->c.head_dim, (int)k->c.kv_dtype, family, made->prepare_s,
           k->ways[WITHOUT].prepare_s, made->us, k->ways[INTERPRETED].us, k->ways[WITHOUT].us,
           error);
    fflush(stdout);
    const int is_slow = strcmp(family, "bulk") != 0 && strcmp(family, "copy") != 0;
    return !(error < ERROR_LIMIT) || (is_slow && !is_host() && strcmp(k->c.score, "score") != 0);
}

static int run_case(const check_case *c) {
    static check k;
    const int32_t each = (c->length + PAGE - 1) / PAGE;
    k = (check){.c = *c,
                .q_heads = KV_HEADS * c->ratio,
                .pages = each * c->rows,
                .layers = is_host() || c->length < 1000 ? 1 : LAYERS};
    for (int32_t row = 0; row < c->rows; row++)
        k.lengths[row] = c->length < 1000 ? c->length - 29 * row : c->length;
    for (int kind = 0; kind < WAYS; kind++) {
        open_way(&k, (way_kind)kind);
        time_way(&k, &k.ways[kind], kind == INTERPRETED ? 1 : ROUNDS);
    }
    const int is_wrong = print_case(&k);
    for (int kind = 0; kind < WAYS; kind++) {
        fig_engine_close(k.ways[kind].engine);
        fig_graphs_destroy(k.ways[kind].graphs);
        free(k.ways[kind].out);
    }
    return is_wrong;
}

int main(int argc, char **argv) {
    int failed = 0;
    void *state = NULL;
    image_folder = argc > 1 ? argv[1] : NULL;
    alarm(HANG_S);
    if (!is_host() && fig_gpu_caller_set_up(&state) != 0) return 2;
    printf("score,rows,length,head_dim,kv_dtype,family,prepare_s,prepare_s_without,us_compiled,"
           "us_interpreted,us_without,error\n");
    for (int i = 0; i < (is_host() ? SMALL_CASES : CASES); i++)
        failed |= run_case(&cases[i]);
    if (!is_host() && fig_gpu_caller_tear_down(&state) != 0) return 2;
    return failed;
}

/* beside.c: lets engines of several processes share one GPU for a given number of seconds.
 *
 *     build/release/tests/gpu/beside [--processes N] [--seconds N] [--seed N]
 *
 * FIG_DEVICE=cuda --processes 8 --seconds 60 is the long run. Without options, as in tests/gpu/run,
 * two processes run for a few seconds. Each process has an engine and repeats a few steps of
 * different lengths in its own order. It launches up to a dozen steps in advance, so the GPU runs
 * chains of short kernels that share one workspace, and interrupts one process's kernels to run
 * another's. All layers hold the same numbers, so in every step all layers must give the same bits,
 * and a repeated step must give the bits of its first run. The results of the first run are
 * compared with the host's reference kernels. Partials, sums and counters must be zeros whenever
 * the stream is idle. Every fourth process uses plain edges: no kernel starts before its
 * predecessors have ended. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/seam/clock.h"
#include "include/figraph_unstable.h"
#include "kernels/common/numeric.h"
#include "tests/support/place.h"
#include "tests/support/random.h"
#include "tools/figraph/truth/truth.h"

enum {
    LAYERS = 12,
    ROWS = 16,
    KV_LIMIT = 1024,
    PAGE = 16,
    SEQUENCE_PAGES = KV_LIMIT / PAGE,
    PAGES = ROWS * SEQUENCE_PAGES,
    HEAD_DIM = 128,
    OUT_WIDTH = 32 * HEAD_DIM,
    OUT_BYTES = ROWS * OUT_WIDTH * 2,
    CASES = 20,
    BURST_LIMIT = 12,
    LOOK_EVERY = 32,
    PROCESS_LIMIT = 64
};

static int64_t processes = 2, seconds = 4, seed = 1;

typedef struct one_case {
    int32_t rows, lengths[ROWS];
    uint8_t out[OUT_BYTES]; /* the output, which is the same for every layer */
} one_case;

typedef struct beside {
    fig_graphs *graphs;
    fig_engine *engine;
    int32_t layers;
    one_case cases[CASES];
    uint8_t read[OUT_BYTES];
} beside;

static one_case right[CASES]; /* from the reference kernels */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) give_up("%s", fig_message());                                        \
    } while (0)

/* A child process runs no CMocka test: it prints the error, and its parent checks its exit code. */
static _Noreturn void give_up(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fprintf(stderr, "beside: process %d: ", (int)getpid());
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    va_end(words);
    _exit(1);
}

/* ---- The work ------------------------------------------------------------------------------ */

static fig_graphs *lower(int32_t layers, const fig_traits *traits) {
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    TRY(fig_spec_preset(&spec, "llama-3.1-8b"));
    spec.layers = layers;
    spec.ffn_width = 256;
    spec.batch_limit = spec.sequence_limit = ROWS;
    spec.kv_limit = KV_LIMIT;
    spec.page_size = PAGE;
    TRY(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    TRY(fig_program_finish(program));
    TRY(fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options, .traits = traits)));
    fig_program_destroy(program);
    return graphs;
}

/* The numbers depend only on the kind of tensor, so all layers hold the same ones. */
static void fill(fig_engine *engine, const fig_tensor_info *tensor, size_t bytes) {
    uint16_t *numbers = malloc(bytes);
    uint64_t kind = (uint64_t)seed;
    for (const char *c = tensor->name; *c != '.'; c++)
        kind = kind * 131 + (unsigned char)*c;
    fig_random random = fig_random_seed(kind);
    if (numbers == NULL) give_up("no memory");
    for (size_t i = 0; i < bytes / 2; i++)
        fig_numeric_store(numbers, FIG_BF16, (int64_t)i, fig_random_float(&random));
    TRY(fig_engine_write(engine, FIG_OPTIONS(fig_span, .name = tensor->name, .bytes = bytes),
                         numbers));
    free(numbers);
}

static void bind_all(const beside *b) {
    fig_tensor_info tensor = {.size = sizeof tensor};
    for (int32_t i = 0; fig_graphs_tensor(b->graphs, i, &tensor) == FIG_OK; i++) {
        if (tensor.role != FIG_ROLE_BOUND) continue;
        size_t bytes = (tensor.dims[0] == FIG_DIM_BATCH ? ROWS : PAGES) * (size_t)2;
        for (int32_t d = 1; d < tensor.rank; d++)
            bytes *= (size_t)tensor.dims[d];
        TRY(fig_engine_bind(b->engine,
                            FIG_OPTIONS(fig_binding, .name = tensor.name, .bytes = bytes)));
        fill(b->engine, &tensor, bytes);
    }
    for (int32_t sequence = 0; sequence < ROWS; sequence++) {
        int32_t pages[SEQUENCE_PAGES];
        for (int32_t i = 0; i < SEQUENCE_PAGES; i++)
            pages[i] = (sequence + i * ROWS) * 37 % PAGES;
        TRY(fig_engine_set_pages(b->engine, FIG_OPTIONS(fig_pages, .sequence = sequence,
                                                        .count = SEQUENCE_PAGES, .pages = pages)));
    }
}

static void open_engine(beside *b, int32_t layers, const fig_engine_options *options,
                        const fig_traits *traits) {
    b->layers = layers;
    b->graphs = lower(layers, traits);
    TRY(fig_engine_open(&b->engine, b->graphs, options));
    bind_all(b);
}

/* Draws steps of one to all rows, with lengths from one token to the limit: most rows are short,
 * some are cut many times. */
static void draw_cases(beside *b) {
    fig_random random = fig_random_seed((uint64_t)seed);
    for (int i = 0; i < CASES; i++) {
        one_case *of = &b->cases[i];
        of->rows = fig_random_range(&random, 1, i % 2 == 0 ? 4 : ROWS);
        for (int32_t row = 0; row < of->rows; row++)
            of->lengths[row] = fig_random_range(&random, 1, 1 << fig_random_range(&random, 3, 10));
    }
}

/* At position 0 nothing rotates, so q and k, which a step rotates in place, stay unchanged. */
static void step(beside *b, int index) {
    static const int32_t positions[ROWS];
    const one_case *of = &b->cases[index];
    TRY(fig_engine_step(b->engine, FIG_OPTIONS(fig_step, .rows = of->rows,
                                               .kv_lengths = of->lengths, .positions = positions)));
}

static void wait_for_all(beside *b) {
    TRY(fig_engine_wait(b->engine, INT64_C(60000000)));
}

static void read_out(beside *b, int index, int32_t layer, uint8_t *to) {
    char name[16];
    snprintf(name, sizeof name, "out.%d", (int)layer);
    const size_t bytes = (size_t)b->cases[index].rows * OUT_WIDTH * 2;
    TRY(fig_engine_read(b->engine, FIG_OPTIONS(fig_span, .name = name, .bytes = bytes), to));
}

/* Runs each step twice. The first run replaces initial tokens by appended ones; from the second run
 * on, each step finds the same tokens. */
static void run_first(beside *b) {
    for (int turn = 0; turn < 2 * CASES; turn++) {
        step(b, turn % CASES);
        wait_for_all(b);
        if (turn >= CASES) read_out(b, turn % CASES, 0, b->cases[turn % CASES].out);
    }
}

/* ---- The verdict --------------------------------------------------------------------------- */

static void check_layer(beside *b, int index, int32_t layer, int64_t steps) {
    const one_case *of = &b->cases[index];
    const int32_t count = of->rows * OUT_WIDTH;
    read_out(b, index, layer, b->read);
    if (memcmp(b->read, of->out, (size_t)count * 2) == 0) return;
    int32_t first = 0, differ = 0;
    for (int32_t i = count - 1; i >= 0; i--)
        if (memcmp(b->read + 2 * i, of->out + 2 * i, 2) != 0) {
            first = i;
            differ++;
        }
    give_up("after %" PRId64 " steps: case %d, layer %d: %d of %d numbers differ, the first of row "
            "%d, head %d: %g, before %g",
            steps, index, (int)layer, (int)differ, (int)count, (int)(first / OUT_WIDTH),
            (int)(first % OUT_WIDTH / HEAD_DIM), truth_load(b->read, FIG_BF16, first),
            truth_load(of->out, FIG_BF16, first));
}

/* The tolerance allows for bf16 and for sums in another order. check_layer() compares bits. */
static void compare_with_twins(const beside *b) {
    for (int c = 0; c < CASES; c++)
        for (int32_t i = 0; i < b->cases[c].rows * OUT_WIDTH; i++) {
            const double got = truth_load(b->cases[c].out, FIG_BF16, i);
            const double want = truth_load(right[c].out, FIG_BF16, i);
            if (!(fabs(got - want) <= 0.002 + 0.01 * fabs(want)))
                give_up("case %d, number %d: %g, the twins say %g", c, (int)i, got, want);
        }
}

/* Counters, partials and sums lie side by side in the workspace, and all must be zeros. */
static void check_workspace(const beside *b) {
    const fig_workspace *workspace = &b->graphs->workspace;
    const fig_engine *engine = b->engine;
    uint64_t *words = malloc(workspace->bytes);
    if (words == NULL) give_up("no memory");
    TRY(engine->api->copy_out(engine->dev, engine->stream, words, engine->workspace.device,
                              workspace->bytes));
    for (uint64_t i = 0; i < workspace->bytes / sizeof *words; i++)
        if (words[i] != 0)
            give_up("the workspace holds %#" PRIx64 " at %" PRIu64 ", partials begin at %" PRIu64,
                    words[i], i * sizeof *words, workspace->partials[0]);
    free(words);
}

/* ---- Processes ----------------------------------------------------------------------------- */

static void run_child(int number) {
    static beside b;
    fig_engine_options options = fig_place_options();
    fig_test_options test = {.size = sizeof test, .plain_edges = number % 4 == 3};
    if (options.test != NULL) test.plain_kernels = options.test->plain_kernels;
    options.test = &test;
    options.busy_us = 10000000;
    fig_random random = fig_random_seed((uint64_t)(seed * PROCESS_LIMIT + number));
    draw_cases(&b);
    open_engine(&b, LAYERS, &options, fig_place_traits());
    run_first(&b);
    compare_with_twins(&b);
    int64_t steps = 0;
    const int64_t begin_ns = fig_clock_ns(), end_ns = begin_ns + seconds * 1000000000;
    for (int64_t burst = 1; fig_clock_ns() < end_ns; burst++) {
        int index = 0;
        for (int count = fig_random_range(&random, 1, BURST_LIMIT); count > 0; count--, steps++)
            step(&b, index = fig_random_range(&random, 0, CASES - 1));
        wait_for_all(&b);
        check_layer(&b, index, fig_random_range(&random, 0, LAYERS - 2), steps);
        check_layer(&b, index, LAYERS - 1, steps);
        if (burst % LOOK_EVERY == 0) check_workspace(&b);
    }
    check_workspace(&b);
    TRY(fig_engine_close(b.engine));
    printf("beside: process %d of %d%s: %" PRId64 " steps of %d layers in %.1f s, none differed\n",
           number, (int)processes, test.plain_edges ? ", plain edges" : "", steps, LAYERS,
           (double)(fig_clock_ns() - begin_ns) / 1e9);
    fflush(stdout);
    _exit(0);
}

/* One layer is enough, since all layers are equal. */
static void ask_twins(void) {
    static beside b;
    const fig_engine_options options = {.size = sizeof options, .device = FIG_DEVICE_HOST};
    draw_cases(&b);
    open_engine(&b, 1, &options, NULL);
    run_first(&b);
    memcpy(right, b.cases, sizeof right);
    fig_engine_close(b.engine);
    fig_graphs_destroy(b.graphs);
}

/* The children are forked before this process uses a driver, which no child could use
 * afterwards. */
static void processes_on_one_device_leave_each_other_s_steps_alone(void **state) {
    (void)state;
    pid_t children[PROCESS_LIMIT];
    int failed = 0;
    ask_twins();
    fflush(stdout);
    for (int i = 0; i < (int)processes; i++) {
        children[i] = fork();
        if (children[i] == 0) run_child(i);
        assert_true(children[i] > 0);
    }
    for (int i = 0; i < (int)processes; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        failed += status != 0;
    }
    if (failed > 0) fail_msg("%d of %d processes failed", failed, (int)processes);
}

static int read_options(int count, char **words) {
    for (int i = 1; i < count; i += 2) {
        int64_t *option = strcmp(words[i], "--processes") == 0 ? &processes
                          : strcmp(words[i], "--seconds") == 0 ? &seconds
                          : strcmp(words[i], "--seed") == 0    ? &seed
                                                               : NULL;
        if (option == NULL || i + 1 == count) return 0;
        *option = atoll(words[i + 1]);
    }
    return processes >= 1 && processes <= PROCESS_LIMIT && seconds >= 1;
}

int main(int count, char **words) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_on_one_device_leave_each_other_s_steps_alone),
    };
    if (!read_options(count, words)) {
        fprintf(stderr, "beside [--processes N] [--seconds N] [--seed N], at most %d processes\n",
                PROCESS_LIMIT);
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

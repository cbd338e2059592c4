/* test_ragged.c: thousands of decode steps in which rows join, grow and leave, across the buckets,
 * against float64.
 *
 * Two rows of each step are compared in all layers, the others are asked for numbers; one step in
 * fifty is compared to the last byte. Every step has fresh inputs and outputs that are NaN before.
 *
 * Usage: test_ragged [STEPS [SEED]] */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/decode.h"
#include "tests/support/place.h"

/* On the host steps take long, and under a sanitizer many times as long. */
#ifdef FIG_CHECK_THREADS /* as variants with sanitizers have it */
enum { HOST_STEPS = 60 };
#else
enum { HOST_STEPS = 300 };
#endif
enum {
    CUDA_STEPS = 10000,
    WHOLE_EVERY = 50,
    FEW = 60, /* steps that may not have met many buckets */
    ROW_LIMIT = 12,
    SEQUENCE_LIMIT = ROW_LIMIT + 3,
    KV_LIMIT = 300,
    BUCKET_LIMIT = 256
};

static int steps;
static uint64_t seed;

/* Who is served: rows [0, rows) of the step, in no order that lasts. */
typedef struct crowd {
    fig_decode *decode;
    fig_engine *engine;
    fig_random random;
    int32_t rows, wanted, joined, left; /* wanted: rows that the crowd tends to */
    int32_t lengths[ROW_LIMIT], sequences[ROW_LIMIT];
    int32_t held[SEQUENCE_LIMIT]; /* tokens */
    int8_t served[SEQUENCE_LIMIT];
} crowd;

static int32_t draw(crowd *c, int32_t low, int32_t high) {
    return fig_random_range(&c->random, low, high);
}

/* A prompt of any length, most of them short, on pages in another order. */
static void join(crowd *c) {
    int32_t sequence = draw(c, 0, SEQUENCE_LIMIT - 1);
    while (c->served[sequence])
        sequence = (sequence + 1) % SEQUENCE_LIMIT;
    const int32_t prompt = draw(c, 0, draw(c, 0, 2) == 0 ? KV_LIMIT - 20 : 30);
    fig_decode_forget(c->decode, sequence);
    fig_decode_move_pages(c->decode, c->engine, sequence, &c->random);
    fig_decode_prefill(c->decode, sequence, prompt, &c->random);
    c->served[sequence] = 1;
    c->held[sequence] = prompt;
    c->sequences[c->rows++] = sequence;
    c->joined++;
}

static void leave(crowd *c, int32_t row) {
    c->served[c->sequences[row]] = 0;
    c->sequences[row] = c->sequences[--c->rows];
    c->left++;
}

/* Each row grows by a step's queries, but for the few that are idle in it. */
static fig_step next_step(crowd *c) {
    const int32_t queries = c->decode->spec.row_tokens;
    for (int32_t row = c->rows - 1; row >= 0; row--)
        if (c->held[c->sequences[row]] + queries > KV_LIMIT || draw(c, 0, 60) == 0) leave(c, row);
    if (draw(c, 0, 15) == 0) c->wanted = draw(c, 0, ROW_LIMIT);
    while (c->rows > c->wanted)
        leave(c, draw(c, 0, c->rows - 1));
    if (c->rows < c->wanted) join(c);
    for (int32_t row = 0; row < c->rows; row++) {
        int32_t *held = &c->held[c->sequences[row]];
        c->lengths[row] = draw(c, 0, 19) == 0 ? 0 : (*held += queries);
    }
    return (fig_step){.size = sizeof(fig_step),
                      .rows = c->rows,
                      .kv_lengths = c->lengths,
                      .sequences = c->sequences};
}

static void check_numbers(const fig_decode *d, int32_t rows, fig_decode_kind kind) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++) {
        const fig_decode_tensor *tensor = &d->tensors[layer][kind];
        const int64_t count = rows * d->spec.row_tokens * tensor->strides[0];
        for (int64_t i = 0; i < count; i++)
            if (!isfinite(truth_load(tensor->address, tensor->dtype, i)))
                fail_msg("%s: element %lld is no number", tensor->name, (long long)i);
    }
}

/* The last row, which may have joined in this step, and one of the others. */
static void check_some(crowd *c, const fig_step *step) {
    if (step->rows > 0) fig_decode_check_row(c->decode, step, step->rows - 1);
    if (step->rows > 1) fig_decode_check_row(c->decode, step, draw(c, 0, step->rows - 2));
    check_numbers(c->decode, step->rows, FIG_DECODE_ACT);
    check_numbers(c->decode, step->rows, FIG_DECODE_OUT);
}

static void run_step(crowd *c, int whole) {
    const fig_step step = next_step(c);
    if (whole) {
        fig_decode_fill(c->decode, &c->random);
    } else {
        fig_decode_fill_rows(c->decode, &c->random);
    }
    const fig_step given = fig_decode_step(c->decode, &step);
    if (fig_engine_step(c->engine, &given) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_engine_wait(c->engine, 60000000) != FIG_OK) fail_msg("%s", fig_message());
    if (whole) {
        fig_decode_check(c->decode, &step);
    } else {
        check_some(c, &step);
    }
}

static void replay(const fig_decode_options *options, int count) {
    static fig_decode decode;
    int served[BUCKET_LIMIT] = {0}, buckets = 0;
    crowd c = {.decode = &decode, .random = fig_random_seed(seed), .wanted = 3};
    fig_decode_open(&decode, options);
    if (fig_place_open(&c.engine, decode.graphs) != FIG_OK) fail_msg("%s", fig_message());
    fig_decode_bind(&decode, c.engine);
    for (int i = 0; i < count; i++) {
        fig_engine_stats stats = {.size = sizeof stats};
        run_step(&c, i % WHOLE_EVERY == WHOLE_EVERY - 1);
        fig_engine_read_stats(c.engine, &stats);
        assert_in_range(stats.last_bucket, 1, BUCKET_LIMIT);
        buckets += served[stats.last_bucket - 1]++ == 0;
    }
    print_message("%d steps, %d buckets, %d joined, %d left, worst error %.3f of what is "
                  "tolerated; seed 0x%llx\n",
                  count, buckets, (int)c.joined, (int)c.left, decode.worst,
                  (unsigned long long)seed);
    assert_true(count < FEW || (buckets > 4 && c.left > 4));
    fig_engine_close(c.engine);
    fig_decode_close(&decode);
}

static void rows_that_join_grow_and_leave_are_the_truth(void **state) {
    (void)state;
    const fig_decode_options options = {.dtype = FIG_BF16,
                                        .layers = 3,
                                        .page_size = 16,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT};
    replay(&options, steps);
}

/* Two split classes, fp8 pages, two queries a row, and lengths that only the device knows. */
static void so_they_are_with_every_feature(void **state) {
    (void)state;
    const fig_decode_options options = {.dtype = FIG_F16,
                                        .kv_dtype = FIG_E4M3,
                                        .kv_scales = 1,
                                        .layers = 3,
                                        .page_size = 16,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT,
                                        .row_tokens = 2,
                                        .window = 70,
                                        .window_layers = 2,
                                        .soft_cap = 30,
                                        .qk_norm_epsilon = 1e-6f,
                                        .reads_lengths = 1};
    replay(&options, steps / 5);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_join_grow_and_leave_are_the_truth),
        cmocka_unit_test(so_they_are_with_every_feature),
    };
    steps = fig_place_device() == FIG_DEVICE_CUDA ? fig_place_cases(CUDA_STEPS) : HOST_STEPS;
    if (argc > 1) steps = (int)strtol(argv[1], NULL, 10);
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261120;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

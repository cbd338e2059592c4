/* test_ragged.c: compares thousands of decode steps with float64. Rows join, grow and leave, so
 * that the steps use many buckets.
 *
 * In each step, two rows are compared in all layers, and the others must not be NaN. One step in
 * fifty is compared completely. Every step has new inputs, and its outputs are NaN before it runs.
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

#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

/* Steps are slow on the host, and many times slower with sanitizers. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { HOST_STEPS = 60 };
#else
enum { HOST_STEPS = 300 };
#endif
enum {
    CUDA_STEPS = 10000,
    WHOLE_EVERY = 50,
    FEW = 60, /* with this number of steps, many buckets are not reached */
    ROW_LIMIT = 12,
    SEQUENCE_LIMIT = ROW_LIMIT + 3,
    KV_LIMIT = 300,
    BUCKET_LIMIT = 256
};

static int steps;
static uint64_t seed;

/* The sequences that are served: rows [0, rows) of the step, in an order that changes. */
typedef struct crowd {
    fig_decode *decode;
    fig_engine *engine;
    fig_random random;
    int32_t rows, wanted, joined, left; /* wanted: the number of rows that the steps approach */
    int32_t lengths[ROW_LIMIT], sequences[ROW_LIMIT];
    /* if the program is packed: the number of query tokens of each row */
    int32_t counts[ROW_LIMIT];
    int32_t held[SEQUENCE_LIMIT]; /* tokens of each sequence */
    int8_t served[SEQUENCE_LIMIT];
} crowd;

static int32_t draw(crowd *c, int32_t low, int32_t high) {
    return fig_random_range(&c->random, low, high);
}

/* Lets a sequence join, with a prompt of any length, mostly short, and with its pages in a new
 * order. */
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

/* A row of a packed program grows by any number of queries. A row without queries is idle, whatever
 * its length. Now and then a row has queries and length 0; then it is idle, and its queries are
 * padding. */
static void grow_packed(crowd *c, int32_t row) {
    int32_t *held = &c->held[c->sequences[row]];
    c->counts[row] = draw(c, 0, c->decode->spec.row_tokens);
    c->lengths[row] = 0;
    if (draw(c, 0, 19) > 0) c->lengths[row] = *held += c->counts[row];
}

/* Each row grows by the queries of a step, except a few that are idle in this step. */
static fig_step next_step(crowd *c) {
    const int32_t queries = c->decode->spec.row_tokens;
    const int is_packed = c->decode->spec.query_limit > 0;
    for (int32_t row = c->rows - 1; row >= 0; row--)
        if (c->held[c->sequences[row]] + queries > KV_LIMIT || draw(c, 0, 60) == 0) leave(c, row);
    if (draw(c, 0, 15) == 0) c->wanted = draw(c, 0, ROW_LIMIT);
    while (c->rows > c->wanted)
        leave(c, draw(c, 0, c->rows - 1));
    if (c->rows < c->wanted) join(c);
    for (int32_t row = 0; row < c->rows && is_packed; row++)
        grow_packed(c, row);
    for (int32_t row = 0; row < c->rows && !is_packed; row++) {
        int32_t *held = &c->held[c->sequences[row]];
        c->lengths[row] = draw(c, 0, 19) == 0 ? 0 : (*held += queries);
    }
    return (fig_step){.size = sizeof(fig_step),
                      .rows = c->rows,
                      .kv_lengths = c->lengths,
                      .sequences = c->sequences,
                      .query_counts = is_packed ? c->counts : NULL};
}

static void check_numbers(const fig_decode *d, int32_t queries, fig_decode_kind kind) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++) {
        const fig_decode_tensor *tensor = &d->tensors[layer][kind];
        const int64_t count = queries * tensor->strides[0];
        for (int64_t i = 0; i < count; i++)
            if (!isfinite(truth_load(tensor->address, tensor->dtype, i)))
                fail_msg("%s: element %lld is no number", tensor->name, (long long)i);
    }
}

/* Checks the last row, which may have joined in this step, and one other row. */
static void check_some(crowd *c, const fig_step *step) {
    if (step->rows > 0) fig_decode_check_row(c->decode, step, step->rows - 1);
    if (step->rows > 1) fig_decode_check_row(c->decode, step, draw(c, 0, step->rows - 2));
    const int32_t queries = fig_decode_first_query(c->decode, step, step->rows);
    check_numbers(c->decode, queries, FIG_DECODE_ACT);
    check_numbers(c->decode, queries, FIG_DECODE_OUT);
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
    assert_true(count <= FEW || (buckets > 4 && c.left > 4));
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

/* Tests two split classes, fp8 pages, two queries per row, and lengths in device memory. */
static void rows_with_every_feature_are_the_truth(void **state) {
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

/* Tests rows of 0 to 8 query tokens, packed without gaps. */
static void rows_with_unequal_numbers_of_queries_are_the_truth(void **state) {
    (void)state;
    const fig_decode_options options = {.dtype = FIG_BF16,
                                        .layers = 2,
                                        .page_size = 16,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT,
                                        .row_tokens = 8,
                                        .query_limit = 8 * ROW_LIMIT};
    replay(&options, steps / 3);
}

/* Tests the same with every feature, with numbers of queries in device memory, and with up to as
 * many of them as the kernels for decode take. */
static void rows_with_queries_counted_on_the_device_are_the_truth(void **state) {
    (void)state;
    const fig_decode_options options = {.dtype = FIG_F16,
                                        .kv_dtype = FIG_E4M3,
                                        .kv_scales = 1,
                                        .layers = 3,
                                        .page_size = 16,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT,
                                        .row_tokens = 16,
                                        .query_limit = 16 * ROW_LIMIT,
                                        .window = 70,
                                        .window_layers = 2,
                                        .soft_cap = 30,
                                        .qk_norm_epsilon = 1e-6f,
                                        .packed = 1,
                                        .reads_lengths = 1};
    replay(&options, steps / 10);
}

/* Tests a program that takes chunks, with layers of two split classes in turn. In a step without
 * chunks, the launches for chunks must still end after those in front of them: the graph leaves out
 * edges that they imply (engine/graph/cuda_lanes.c). */
static void rows_beside_chunks_are_the_truth_in_two_split_classes(void **state) {
    (void)state;
    const fig_decode_options options = {.dtype = FIG_BF16,
                                        .layers = 4,
                                        .page_size = 16,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT,
                                        .row_tokens = 10,
                                        .query_limit = 10 * ROW_LIMIT,
                                        .window = 70,
                                        .window_layers = 5};
    replay(&options, steps / 5);
}

/* Tests fixed splits, pages of 5 tokens, f32, and a window that ends within a row's queries. */
static void rows_with_fixed_splits_are_the_truth(void **state) {
    (void)state;
    const fig_decode_options options = {.dtype = FIG_F32,
                                        .layers = 2,
                                        .page_size = 5,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT,
                                        .row_tokens = 7,
                                        .query_limit = 7 * ROW_LIMIT,
                                        .window = 3,
                                        .window_layers = 1,
                                        .deterministic = 1};
    replay(&options, steps / 5);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_join_grow_and_leave_are_the_truth),
        cmocka_unit_test(rows_with_every_feature_are_the_truth),
        cmocka_unit_test(rows_with_unequal_numbers_of_queries_are_the_truth),
        cmocka_unit_test(rows_with_queries_counted_on_the_device_are_the_truth),
        cmocka_unit_test(rows_beside_chunks_are_the_truth_in_two_split_classes),
        cmocka_unit_test(rows_with_fixed_splits_are_the_truth),
    };
    steps = fig_place_device() == FIG_DEVICE_CUDA ? fig_place_cases(CUDA_STEPS) : HOST_STEPS;
    if (argc > 1) steps = (int)strtol(argv[1], NULL, 10);
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261120;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_replay.c: replays whole decode steps with ragged growing lengths, and compares them with
 * float64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

enum { ROW_LIMIT = 8, KV_LIMIT = 200, SEQUENCE_LIMIT = ROW_LIMIT + 3, BUCKET_LIMIT = 64 };

/* Only the host's order can be shuffled; a GPU chooses its own order. */
static fig_engine *open_engine(const fig_decode *decode, uint64_t shuffle) {
    fig_engine_options options = fig_place_options();
    fig_engine *engine;
    options.slots = 8;
    const fig_test_options test = {.size = sizeof test, .shuffle = shuffle};
    if (options.device == FIG_DEVICE_HOST) options.test = &test;
    if (fig_engine_open(&engine, decode->graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
    return engine;
}

/* Random rows for steps: any sequences in any order, some rows idle. */
typedef struct traffic {
    int32_t held[SEQUENCE_LIMIT]; /* the number of tokens that each sequence holds */
    int32_t lengths[ROW_LIMIT], sequences[ROW_LIMIT], positions[ROW_LIMIT], tokens[ROW_LIMIT];
    int drafts; /* 1: rows have any number of query tokens, up to the spec's row_tokens */
    fig_step step;
} traffic;

static void traffic_next(traffic *t, const fig_decode *decode, fig_random *random) {
    int32_t order[SEQUENCE_LIMIT];
    int32_t rows = fig_random_range(random, 0, ROW_LIMIT);
    for (int32_t i = 0; i < SEQUENCE_LIMIT; i++) { /* shuffles while it fills the array */
        int32_t j = fig_random_range(random, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    const int32_t queries = decode->spec.row_tokens;
    for (int32_t row = 0; row < rows; row++) {
        int32_t *held = &t->held[order[row]];
        t->sequences[row] = order[row];
        t->lengths[row] = 0;
        t->tokens[row] = queries;
        t->positions[row] = fig_random_range(random, queries, 5000);
        if (fig_random_range(random, 0, 9) == 0) continue;
        /* the sequence is full, so a new one takes its place */
        if (*held > decode->spec.kv_limit - queries) *held = 0;
        if (t->drafts) t->tokens[row] = fig_random_range(random, 1, queries);
        if (*held + t->tokens[row] < queries) t->tokens[row] = queries - *held;
        t->lengths[row] = *held += t->tokens[row];
    }
    t->step = (fig_step){
        .size = sizeof t->step, .rows = rows, .kv_lengths = t->lengths, .sequences = t->sequences};
    if (fig_random_range(random, 0, 2) == 0) t->step.positions = t->positions;
    if (t->drafts) t->step.row_tokens = t->tokens;
}

/* Sequences begin with lengths of any size, so the steps use all buckets. */
static void traffic_begin(traffic *t, fig_decode *decode, fig_random *random) {
    memset(t, 0, sizeof *t);
    for (int32_t s = 0; s < SEQUENCE_LIMIT; s++) {
        t->held[s] = s % 3 == 0 ? 0 : fig_random_range(random, 0, decode->spec.kv_limit);
        fig_decode_prefill(decode, s, t->held[s], random);
    }
}

static void replay_and_compare(const fig_decode_options *options, int steps, uint64_t shuffle) {
    static fig_decode decode;
    traffic t;
    fig_random random = fig_random_seed((uint64_t)options->dtype * 1000 + 1);
    int served[BUCKET_LIMIT] = {0}, buckets = 0;
    fig_decode_open(&decode, options);
    fig_engine *engine = open_engine(&decode, shuffle);
    fig_decode_bind(&decode, engine);
    traffic_begin(&t, &decode, &random);
    for (int i = 0; i < steps; i++) {
        fig_engine_stats stats = {.size = sizeof stats};
        fig_decode_fill(&decode, &random);
        t.drafts = options->row_tokens > 1 && i % 2; /* every other step has full rows */
        traffic_next(&t, &decode, &random);
        const fig_step step = fig_decode_step(&decode, &t.step);
        if (fig_engine_step(engine, &step) != FIG_OK) fail_msg("%s", fig_message());
        if (fig_engine_wait(engine, 60000000) != FIG_OK) fail_msg("%s", fig_message());
        fig_decode_check(&decode, &t.step);
        fig_engine_read_stats(engine, &stats);
        assert_in_range(stats.last_bucket, 1, BUCKET_LIMIT);
        buckets += served[stats.last_bucket - 1]++ == 0;
    }
    print_message("%d steps, %d buckets, worst error %.3f of what is tolerated\n", steps, buckets,
                  decode.worst);
    assert_true(buckets > 1);
    assert_true(decode.worst > 0);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void every_step_of_a_paged_decode_is_the_truth(void **state) {
    (void)state;
    static const fig_dtype dtypes[] = {FIG_F16, FIG_BF16, FIG_F32};
    for (int i = 0; i < 3; i++) {
        const fig_decode_options options = {.dtype = dtypes[i],
                                            .layers = 2,
                                            .page_size = 16,
                                            .batch_limit = ROW_LIMIT,
                                            .kv_limit = KV_LIMIT};
        replay_and_compare(&options, 24, 0);
    }
}

static void every_step_of_a_dense_decode_is_the_truth(void **state) {
    (void)state;
    const fig_decode_options options = {
        .dtype = FIG_F16, .layers = 1, .batch_limit = ROW_LIMIT, .kv_limit = KV_LIMIT};
    replay_and_compare(&options, 16, 0);
}

static void strided_views_of_packed_memory_are_served(void **state) {
    (void)state;
    fig_decode_options options = {.dtype = FIG_BF16,
                                  .layers = 2,
                                  .page_size = 7,
                                  .batch_limit = ROW_LIMIT,
                                  .kv_limit = KV_LIMIT,
                                  .packed = 1};
    replay_and_compare(&options, 12, 0);
    options.page_size = 0;
    options.dtype = FIG_F32;
    replay_and_compare(&options, 12, 0);
}

/* Every feature of a spec in two layers, so that classes, layouts and types occur together. */
static const fig_decode_options features[] = {
    {.dtype = FIG_F16, .page_size = 16, .kv_dtype = FIG_E4M3, .kv_scales = 1},
    {.dtype = FIG_BF16, .page_size = 5, .kv_dtype = FIG_E5M2, .packed = 1},
    {.dtype = FIG_BF16, .page_size = 16, .kv_layout = FIG_HND},
    {.dtype = FIG_F16, .page_size = 7, .kv_layout = FIG_HND, .kv_dtype = FIG_E4M3, .packed = 1},
    {.dtype = FIG_F16, .page_size = 16, .row_tokens = 3},
    {.dtype = FIG_F32, .row_tokens = 8, .packed = 1},
    {.dtype = FIG_BF16, .page_size = 16, .row_tokens = 16, .window = 20},
    {.dtype = FIG_F16, .page_size = 8, .row_tokens = 13, .reads_lengths = 1},
    {.dtype = FIG_F16, .page_size = 16, .window = 37},
    {.dtype = FIG_BF16, .page_size = 16, .window = 64, .window_layers = 1, .soft_cap = 20},
    {.dtype = FIG_F16, .page_size = 16, .window = 65, .window_layers = 2, .row_tokens = 4},
    {.dtype = FIG_F16, .page_size = 16, .qk_norm_epsilon = 1e-6f, .rope = {.theta = 1e6f}},
    {.dtype = FIG_F32, .activation = FIG_GELU_TANH, .rope = {.rotary_dim = 32, .interleaved = 1}},
    {.dtype = FIG_F16, .page_size = 16, .deterministic = 1},
    {.dtype = FIG_F16, .page_size = 16, .reads_lengths = 1},
    {.dtype = FIG_BF16,
     .page_size = 3,
     .reads_lengths = 1,
     .kv_dtype = FIG_E5M2,
     .kv_scales = 1,
     .kv_layout = FIG_HND,
     .packed = 1,
     .row_tokens = 2,
     .window = 50,
     .window_layers = 2,
     .soft_cap = 30,
     .qk_norm_epsilon = 1e-5f,
     .activation = FIG_GELU,
     .deterministic = 1}};

static void every_feature_of_a_spec_is_the_truth(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        fig_decode_options options = features[i];
        options.layers = 2;
        options.batch_limit = ROW_LIMIT;
        options.kv_limit = KV_LIMIT;
        print_message("feature %zu: ", i);
        replay_and_compare(&options, 10, i % 2 == 0 ? 0 : i);
    }
}

/* Replaces every page that a sequence's window has passed by a page of NaN. */
static void give_old_pages_away(fig_decode *d, fig_engine *engine, const traffic *t) {
    const int32_t nan_page = d->pages - 1;
    for (int32_t s = 0; s < SEQUENCE_LIMIT; s++) {
        const int32_t seen_from = t->held[s] + 1 - d->spec.window;
        for (int32_t i = 0; (i + 1) * d->page_tokens <= seen_from; i++) {
            d->window_table[s * d->sequence_pages + i] = nan_page;
            assert_int_equal(
                fig_engine_set_pages(engine,
                                     FIG_OPTIONS(fig_pages, .sequence = s, .first = i, .count = 1,
                                                 .pages = &nan_page, .table = "page_table.window")),
                FIG_OK);
        }
    }
}

static void pages_behind_the_window_may_be_given_away(void **state) {
    (void)state;
    static fig_decode decode;
    traffic t;
    fig_random random = fig_random_seed(4);
    fig_decode_open(&decode, &(fig_decode_options){.dtype = FIG_BF16,
                                                   .layers = 2,
                                                   .page_size = 16,
                                                   .window = 40,
                                                   .window_layers = 1,
                                                   .batch_limit = ROW_LIMIT,
                                                   .kv_limit = KV_LIMIT});
    fig_engine *engine = open_engine(&decode, 0);
    fig_decode_bind(&decode, engine);
    traffic_begin(&t, &decode, &random);
    /* Keeps every sequence so short that it does not fill up and start again: its first pages are
     * no longer its own. */
    for (int32_t s = 0; s < SEQUENCE_LIMIT; s++)
        t.held[s] = t.held[s] < KV_LIMIT - 8 ? t.held[s] : KV_LIMIT - 8;
    for (int i = 0; i < 6; i++) {
        give_old_pages_away(&decode, engine, &t);
        fig_decode_fill(&decode, &random);
        traffic_next(&t, &decode, &random);
        if (fig_engine_step(engine, &t.step) != FIG_OK) fail_msg("%s", fig_message());
        if (fig_engine_wait(engine, 60000000) != FIG_OK) fail_msg("%s", fig_message());
        fig_decode_check(&decode, &t.step);
    }
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void every_step_in_a_shuffled_order_is_the_truth(void **state) {
    (void)state;
    const fig_decode_options options = {.dtype = FIG_F16,
                                        .layers = 2,
                                        .page_size = 32,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT};
    replay_and_compare(&options, 12, 99);
}

/* Runs some steps, staging `ahead` of them before their first launch. The tensors' contents remain
 * in `decode`. */
static void replay_ahead(fig_decode *decode, uint64_t shuffle, int ahead) {
    static const fig_bucket buckets[] = {{2, 128}, {8, 64}, {8, KV_LIMIT}};
    const fig_decode_options options = {.dtype = FIG_F16,
                                        .layers = 2,
                                        .page_size = 16,
                                        .batch_limit = ROW_LIMIT,
                                        .kv_limit = KV_LIMIT,
                                        .buckets = buckets,
                                        .bucket_count = 3};
    traffic t;
    fig_random random = fig_random_seed(5);
    fig_decode_open(decode, &options);
    fig_engine *engine = open_engine(decode, shuffle);
    fig_decode_bind(decode, engine);
    traffic_begin(&t, decode, &random);
    fig_decode_fill(decode, &random);
    for (int i = 0; i < 24; i += ahead) {
        for (int j = 0; j < ahead; j++) {
            traffic_next(&t, decode, &random);
            assert_int_equal(fig_engine_stage(engine, &t.step), FIG_OK);
            /* staging has read the lengths before it returned */
            memset(t.lengths, 0x7f, sizeof t.lengths);
            memset(t.sequences, 0x7f, sizeof t.sequences);
            memset(t.positions, 0x7f, sizeof t.positions);
        }
        for (int j = 0; j < ahead; j++)
            assert_int_equal(fig_engine_launch(engine), FIG_OK);
        assert_int_equal(fig_engine_wait(engine, 20000000), FIG_OK);
    }
    fig_engine_close(engine);
}

static void check_same_memory(const fig_decode *a, const fig_decode *b) {
    assert_int_equal(a->memory_bytes, b->memory_bytes);
    if (memcmp(a->memory, b->memory, a->memory_bytes) == 0) return;
    for (size_t i = 0; i < a->memory_bytes; i++)
        if (a->memory[i] != b->memory[i])
            fail_msg("byte %zu: 0x%02x and 0x%02x", i, a->memory[i], b->memory[i]);
}

static void no_order_and_no_staging_ahead_changes_a_bit(void **state) {
    (void)state;
    static fig_decode plain, other;
    replay_ahead(&plain, 0, 1);
    for (uint64_t shuffle = 0; shuffle < 4; shuffle++) {
        int ahead = shuffle % 2 == 0 ? 8 : 1;
        replay_ahead(&other, shuffle, ahead);
        check_same_memory(&plain, &other);
        fig_decode_close(&other);
    }
    fig_decode_close(&plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_of_a_paged_decode_is_the_truth),
        cmocka_unit_test(every_step_of_a_dense_decode_is_the_truth),
        cmocka_unit_test(strided_views_of_packed_memory_are_served),
        cmocka_unit_test(every_feature_of_a_spec_is_the_truth),
        cmocka_unit_test(pages_behind_the_window_may_be_given_away),
        cmocka_unit_test(every_step_in_a_shuffled_order_is_the_truth),
        cmocka_unit_test(no_order_and_no_staging_ahead_changes_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

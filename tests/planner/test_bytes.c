/* test_bytes.c: tests steps in the engine's own memory, which the host reaches only by write and
 * read. On cuda this is device memory.
 *
 * The test keeps a copy of a decode step's tensors. It writes them to the engine, reads them back,
 * and checks them as if the step had run on the copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

enum { ROWS = 6, KV = 160, STEPS = 5, WAIT_US = 60000000 };

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

/* Moves one tensor between the test's copy and the engine. */
typedef fig_status (*mover)(fig_engine *engine, const fig_decode_tensor *tensor);

static void for_each(fig_decode *d, fig_engine *engine, mover move) {
    for (int32_t layer = 0; layer < d->spec.layers; layer++)
        for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++)
            if (d->tensors[layer][kind].address != NULL)
                expect(move(engine, &d->tensors[layer][kind]));
}

static fig_status own(fig_engine *engine, const fig_decode_tensor *tensor) {
    return fig_engine_bind(engine,
                           FIG_OPTIONS(fig_binding, .name = tensor->name, .bytes = tensor->bytes));
}

static fig_status push(fig_engine *engine, const fig_decode_tensor *tensor) {
    return fig_engine_write(engine,
                            FIG_OPTIONS(fig_span, .name = tensor->name, .bytes = tensor->bytes),
                            tensor->address);
}

static fig_status pull(fig_engine *engine, const fig_decode_tensor *tensor) {
    return fig_engine_read(engine,
                           FIG_OPTIONS(fig_span, .name = tensor->name, .bytes = tensor->bytes),
                           tensor->address);
}

/* Sets the page table while the copy's caches are bound, and then gives each tensor memory of the
 * engine. The page table keeps its contents. */
static fig_engine *open_owned(fig_decode *d, const fig_decode_options *options) {
    fig_engine *engine;
    fig_decode_open(d, options);
    expect(fig_place_open(&engine, d->graphs));
    fig_decode_bind(d, engine);
    for_each(d, engine, own);
    return engine;
}

static void close_owned(fig_decode *d, fig_engine *engine) {
    fig_engine_close(engine);
    fig_decode_close(d);
}

/* Returns step `by` of a series in which every row grows by row_tokens. One row is idle. */
static fig_step step_of(const fig_decode *d, int32_t by, int32_t lengths[ROWS]) {
    for (int32_t row = 0; row < ROWS; row++)
        lengths[row] = row == 2 ? 0 : 1 + 27 * row + (by + 1) * d->spec.row_tokens;
    return (fig_step){.size = sizeof(fig_step), .rows = ROWS, .kv_lengths = lengths};
}

static void steps_in_the_engine_s_memory_give_the_true_results(void **state) {
    (void)state;
    static const fig_decode_options all[] = {
        {.dtype = FIG_BF16, .page_size = 16},
        {.dtype = FIG_F32},
        {.dtype = FIG_F16, .page_size = 5, .kv_layout = FIG_HND},
        {.dtype = FIG_F16, .page_size = 16, .kv_dtype = FIG_E4M3, .kv_scales = 1, .row_tokens = 2},
        {.dtype = FIG_BF16, .page_size = 16, .window = 33, .window_layers = 1, .soft_cap = 20},
        {.dtype = FIG_F16, .page_size = 16, .qk_norm_epsilon = 1e-6f, .deterministic = 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        static fig_decode decode;
        fig_decode_options options = all[i];
        fig_random random = fig_random_seed(i);
        int32_t lengths[ROWS];
        options.layers = 2;
        options.batch_limit = ROWS;
        options.kv_limit = KV;
        fig_engine *engine = open_owned(&decode, &options);
        for (int32_t s = 0; s < ROWS; s++)
            fig_decode_prefill(&decode, s, KV, &random);
        for (int32_t n = 0; n < STEPS; n++) {
            const fig_step step = step_of(&decode, n, lengths);
            fig_decode_fill(&decode, &random);
            for_each(&decode, engine, push);
            expect(fig_engine_step(engine, &step));
            expect(fig_engine_wait(engine, WAIT_US));
            for_each(&decode, engine, pull);
            fig_decode_check(&decode, &step);
        }
        close_owned(&decode, engine);
    }
}

static const fig_decode_options small = {
    .dtype = FIG_F32, .layers = 1, .page_size = 16, .batch_limit = ROWS, .kv_limit = KV};

/* A copy waits for earlier launches, and a launch waits for earlier copies, but the host waits for
 * neither. */
static void copies_and_steps_keep_their_order_without_a_wait(void **state) {
    (void)state;
    static fig_decode decode;
    fig_random random = fig_random_seed(9);
    int32_t lengths[ROWS];
    fig_engine *engine = open_owned(&decode, &small);
    for (int32_t s = 0; s < ROWS; s++)
        fig_decode_prefill(&decode, s, KV, &random);
    for (int32_t n = 0; n < STEPS; n++) {
        const fig_step step = step_of(&decode, n, lengths);
        fig_decode_fill(&decode, &random);
        for_each(&decode, engine, push);
        fig_status status = fig_engine_step(engine, &step);
        expect(status);
        for_each(&decode, engine, pull);
        fig_decode_check(&decode, &step);
    }
    expect(fig_engine_wait(engine, WAIT_US));
    close_owned(&decode, engine);
}

static void the_engine_s_memory_is_zeroed_whenever_it_is_bound(void **state) {
    (void)state;
    static fig_decode decode;
    fig_engine *engine = open_owned(&decode, &small);
    const fig_decode_tensor *cache = &decode.tensors[0][FIG_DECODE_K_CACHE];
    uint8_t *bytes = malloc(cache->bytes);
    assert_non_null(bytes);
    for (int round = 0; round < 3; round++) {
        fig_engine_stats stats = {.size = sizeof stats};
        memset(bytes, 0xee, cache->bytes);
        const fig_span span = {.size = sizeof span, .name = cache->name, .bytes = cache->bytes};
        expect(fig_engine_read(engine, &span, bytes));
        for (size_t i = 0; i < cache->bytes; i++)
            if (bytes[i] != 0) fail_msg("byte %zu is 0x%02x in round %d", i, bytes[i], round);
        memset(bytes, 0xcd, cache->bytes);
        expect(fig_engine_write(engine, &span, bytes));
        fig_engine_read_stats(engine, &stats);
        assert_true(stats.owned_bytes >= cache->bytes);
        expect(own(engine, cache));
    }
    free(bytes);
    close_owned(&decode, engine);
}

/* Moves spans of any alignment and of odd sizes, to and from any place in host memory. No other
 * byte may change. */
static void a_span_moves_its_bytes_and_no_other(void **state) {
    (void)state;
    static fig_decode decode;
    fig_random random = fig_random_seed(10);
    fig_engine *engine = open_owned(&decode, &small);
    const fig_decode_tensor *cache = &decode.tensors[0][FIG_DECODE_V_CACHE];
    const fig_span whole = {.size = sizeof whole, .name = cache->name, .bytes = cache->bytes};
    uint8_t *mirror = calloc(1, cache->bytes), *found = malloc(cache->bytes);
    assert_true(mirror != NULL && found != NULL);
    for (int n = 0; n < 200; n++) {
        fig_span span = whole;
        span.bytes = (size_t)fig_random_range(&random, 0, n % 10 == 0 ? 20000 : 70);
        span.offset = (size_t)fig_random_range(&random, 0, (int32_t)(cache->bytes - span.bytes));
        memset(mirror + span.offset, n + 1, span.bytes);
        expect(fig_engine_write(engine, &span, mirror + span.offset));
        memset(found, 0, span.bytes);
        expect(fig_engine_read(engine, &span, found));
        assert_memory_equal(found, mirror + span.offset, span.bytes);
    }
    expect(fig_engine_read(engine, &whole, found));
    assert_memory_equal(found, mirror, cache->bytes);
    free(mirror);
    free(found);
    close_owned(&decode, engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_in_the_engine_s_memory_give_the_true_results),
        cmocka_unit_test(copies_and_steps_keep_their_order_without_a_wait),
        cmocka_unit_test(the_engine_s_memory_is_zeroed_whenever_it_is_bound),
        cmocka_unit_test(a_span_moves_its_bytes_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

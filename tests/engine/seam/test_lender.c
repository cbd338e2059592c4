/* test_lender.c: tests an engine in memory that its caller lends. */
#include "engine/seam/lender.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/gate.h"

/* A caller that counts the blocks it lends, and can refuse to lend or return bad addresses. */
typedef struct caller {
    int device, pinned, out; /* blocks of each kind lent so far; blocks not returned yet */
    /* 1: refuses the next block; 2: misaligns it; 3: returns no address. Pinned memory only: 4:
     * misaligns the host's address; 5: returns no host address */
    int refuses;
    fig_engine *engine; /* the engine that the callback calls; NULL: none */
    fig_status answer;
    /* NULL: no stream. `early` counts blocks that came back while the stream was busy */
    fig_cu_stream stream;
    int early;
} caller;

static int lend(void *user, fig_allocation *allocation) {
    caller *c = user;
    void *memory = NULL;
    if (c->refuses == 1) return 7;
    if (c->engine != NULL) c->answer = fig_engine_wait(c->engine, -1);
    assert_int_equal(posix_memalign(&memory, FIG_LENDER_ALIGNMENT, allocation->bytes + 512), 0);
    memset(memory, 0xee, allocation->bytes + 512);
    c->out++;
    *(allocation->kind == FIG_MEMORY_PINNED ? &c->pinned : &c->device) += 1;
    allocation->device = (uint8_t *)memory + (c->refuses == 2 ? 16 : 0);
    allocation->host = allocation->kind == FIG_MEMORY_PINNED ? allocation->device : NULL;
    if (c->refuses == 4 && allocation->host != NULL) allocation->host = (uint8_t *)memory + 16;
    if (c->refuses == 5) allocation->host = NULL;
    if (c->refuses == 3) free(memory), allocation->device = allocation->host = NULL;
    return 0;
}

static int take_back(void *user, fig_allocation *allocation) {
    caller *c = user;
    const uintptr_t address = (uintptr_t)allocation->device;
    free((void *)(address - address % FIG_LENDER_ALIGNMENT));
    c->out--;
    c->early += c->stream != NULL && c->stream->busy_looks != 0;
    return 0;
}

static fig_engine_options options_of(caller *c, fig_device device) {
    return (fig_engine_options){.size = sizeof(fig_engine_options),
                                .device = device,
                                .allocate = lend,
                                .release = take_back,
                                .memory_user = c};
}

static void all_that_an_engine_allocates_is_lent(fig_device device) {
    caller c = {0};
    fig_graphs *graphs = fig_gate_graphs();
    const fig_engine_options options = options_of(&c, device);
    fig_engine *engine;
    float seen[4] = {1, 1, 1, 1};
    const fig_span span = {.size = sizeof span, .name = "act", .bytes = sizeof seen};
    if (fig_engine_open(&engine, graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(c.pinned, 1);
    assert_int_equal(c.device, 3); /* for the workspace, the plan and the state */
    const uint8_t *pinned = engine->pinned.host;
    for (size_t i = 0; i < engine->pinned.bytes; i++)
        assert_int_equal(pinned[i], 0); /* the engine zeroes memory that the caller lends, too */
    c.engine = engine;
    assert_int_equal(fig_gate_bind(engine, "act", NULL, 0), FIG_OK);
    assert_int_equal(c.answer, FIG_ORDER);
    assert_int_equal(c.device, 4);
    assert_int_equal(fig_engine_read(engine, &span, seen), FIG_OK);
    for (int i = 0; i < 4; i++)
        assert_true(seen[i] == 0);
    assert_int_equal(fig_engine_close(engine), FIG_OK);
    assert_int_equal(c.out, 0);
    fig_graphs_destroy(graphs);
}

static void on_the_host_all_memory_is_the_callers(void **state) {
    (void)state;
    all_that_an_engine_allocates_is_lent(FIG_DEVICE_HOST);
}

static void on_cuda_all_memory_is_the_callers(void **state) {
    (void)state;
    all_that_an_engine_allocates_is_lent(FIG_DEVICE_CUDA);
    assert_int_equal(fig_cuda_bench_fake->memory_used, 0);
}

static void unsuitable_memory_is_refused(void **state) {
    (void)state;
    static const fig_status statuses[] = {FIG_OK,      FIG_NOMEM,   FIG_INVALID,
                                          FIG_INVALID, FIG_INVALID, FIG_INVALID};
    static const char *const sentences[] = {"",
                                            "engine: allocate returned 7 for ",
                                            "it must be a multiple of 256",
                                            "engine: allocate left device NULL",
                                            "it must be a multiple of 256",
                                            "engine: allocate left host NULL"};
    fig_graphs *graphs = fig_gate_graphs();
    for (int refuses = 1; refuses <= 5; refuses++) {
        for (fig_device device = FIG_DEVICE_HOST; device <= FIG_DEVICE_CUDA; device++) {
            caller c = {.refuses = refuses};
            const fig_engine_options options = options_of(&c, device);
            fig_engine *engine;
            assert_int_equal(fig_engine_open(&engine, graphs, &options), statuses[refuses]);
            assert_non_null(strstr(fig_message(), sentences[refuses]));
            assert_int_equal(c.out, 0);
        }
    }
    caller c = {0};
    fig_engine_options half = options_of(&c, FIG_DEVICE_HOST);
    fig_engine *engine;
    half.release = NULL;
    assert_int_equal(fig_engine_open(&engine, graphs, &half), FIG_INVALID);
    assert_string_equal(fig_message(),
                        "engine: release is NULL, but allocate and release must be set together");
    fig_graphs_destroy(graphs);
}

static void memory_that_cannot_be_zeroed_is_given_back(void **state) {
    (void)state;
    caller c = {0};
    fig_graphs *graphs = fig_gate_graphs();
    const fig_engine_options options = options_of(&c, FIG_DEVICE_CUDA);
    fig_engine *engine;
    assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_OK);
    const int out = c.out, device = c.device;
    fig_cuda_bench_fake->fail_name = "cuMemsetD8Async";
    fig_cuda_bench_fake->fail_with = 801;
    assert_int_equal(fig_gate_bind(engine, "act", NULL, 0), FIG_DRIVER);
    assert_int_equal(c.device, device + 1);
    assert_int_equal(c.out, out);
    assert_int_equal(fig_engine_close(engine), FIG_OK);
    assert_int_equal(c.out, 0);
    fig_graphs_destroy(graphs);
}

/* No prepared step uses the table; only the copy of its entries is in flight. */
static void a_table_comes_back_when_its_entries_have_come(void **state) {
    (void)state;
    enum { PAGES = 64 };
    static const fig_decode_options small = {
        .dtype = FIG_F16, .layers = 1, .page_size = 4, .batch_limit = 2, .kv_limit = 4 * PAGES};
    static const int32_t pages[PAGES];
    caller c = {0};
    fig_decode decode;
    fig_engine *engine;
    fig_decode_open(&decode, &small);
    const fig_engine_options options = options_of(&c, FIG_DEVICE_CUDA);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, &options), FIG_OK);
    assert_int_equal(fig_gate_bind(engine, "page_table", NULL, 0), FIG_OK);
    const int out = c.out;
    assert_int_equal(
        fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .count = PAGES, .pages = pages)),
        FIG_OK);
    c.stream = fig_engine_stream(engine);
    c.stream->busy_looks = 3;
    assert_int_equal(fig_gate_bind(engine, "page_table", NULL, 0), FIG_OK);
    assert_int_equal(c.out, out);
    assert_int_equal(c.early, 0);
    c.stream = NULL;
    assert_int_equal(fig_engine_close(engine), FIG_OK);
    assert_int_equal(c.out, 0);
    fig_decode_close(&decode);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(on_the_host_all_memory_is_the_callers),
        FIG_CUDA_BENCH_TEST(on_cuda_all_memory_is_the_callers),
        FIG_CUDA_BENCH_TEST(unsuitable_memory_is_refused),
        FIG_CUDA_BENCH_TEST(memory_that_cannot_be_zeroed_is_given_back),
        FIG_CUDA_BENCH_TEST(a_table_comes_back_when_its_entries_have_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

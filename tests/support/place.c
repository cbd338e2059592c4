/* place.c: see place.h.
 *
 * The driver takes much longer to allocate a pinned block than a test uses the block. So sizes are
 * rounded up, and freed blocks are kept for reuse, by rounded size. With FIG_PLACE=exact no block
 * is kept or rounded, so that compute-sanitizer sees the exact end of each. Invariant: `held`
 * guards the blocks and the single device, which only one thread may use at a time. */
#include "include/figraph_unstable.h"
#include "tests/support/place.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/seam/device.h"
#include "kernels/table/families.h"

enum {
    ALIGNMENT = 64,
    CLASS_COUNT = 48, /* sizes are rounded to powers of two */
    CLASS_LEAST = 12, /* 4096 bytes, the least size */
    GUARD = 64,       /* watched bytes after the end of each block */
    GUARD_BYTE = 0xa5,
    POISON_BYTE = 0xff,
    CASES_LEAST = 24,
    CASES_MOST = 20 /* times as many cases as were asked for */
};
/* Builds with sanitizers look for wrong accesses, of which few cases make all kinds. The same cases
 * and all others compare numbers in the build without. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { CASE_SHARE = 4 };
#else
enum { CASE_SHARE = 1 };
#endif
static const int64_t launch_limit_us = 60000000;

typedef struct place_block {
    struct place_block *next;
    fig_block memory;
    size_t bytes;     /* the bytes that were requested */
    int32_t of_class; /* -1: the block has the exact size and is not kept */
} place_block;

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static fig_dev *dev; /* opened at the first use and never closed */
static fig_dev_stream *stream;
static place_block *used, *kept[FIG_MEMORY_PINNED + 1][CLASS_COUNT];
static int host_holds;

/* ---- Options from the environment ---------------------------------------------------------- */

static int says(const char *name, const char *value) {
    const char *said = getenv(name);
    return said != NULL && strcmp(said, value) == 0;
}

static void refuse(const char *name, const char *values) {
    fprintf(stderr, "%s is \"%s\", it must be %s\n", name, getenv(name), values);
    exit(2);
}

fig_device fig_place_device(void) {
    if (host_holds > 0) return FIG_DEVICE_HOST;
    if (says("FIG_DEVICE", "cuda")) return FIG_DEVICE_CUDA;
    if (getenv("FIG_DEVICE") != NULL && !says("FIG_DEVICE", "") && !says("FIG_DEVICE", "host"))
        refuse("FIG_DEVICE", "host or cuda");
    return FIG_DEVICE_HOST;
}

static int is_plain(void) {
    if (says("FIG_IMAGE", "plain")) return 1;
    if (getenv("FIG_IMAGE") != NULL && !says("FIG_IMAGE", "") && !says("FIG_IMAGE", "hopper"))
        refuse("FIG_IMAGE", "hopper or plain");
    return 0;
}

const char *fig_place_name(void) {
    if (fig_place_device() == FIG_DEVICE_HOST) return "host";
    return is_plain() ? "cuda.plain" : "cuda.hopper";
}

double fig_place_weight_error(fig_dtype dtype, fig_dtype kv_dtype) {
    if (kv_dtype != dtype || strcmp(fig_place_name(), "cuda.hopper") != 0) return 0;
    return dtype == FIG_BF16 ? 0x1p-8 : dtype == FIG_F16 ? 0x1p-11 : 0;
}

double fig_place_code_error(fig_dtype dtype, fig_dtype kv_dtype) {
    return kv_dtype == FIG_E4M3 && dtype == FIG_BF16 ? fig_place_weight_error(dtype, dtype) : 0;
}

/* Static, since it must outlive the engines that were opened with it. */
static const fig_test_options plain_kernels = {.size = sizeof plain_kernels, .plain_kernels = 1};

fig_engine_options fig_place_options(void) {
    fig_engine_options options = {.size = sizeof options, .device = fig_place_device()};
    if (options.device == FIG_DEVICE_CUDA) options.test = is_plain() ? &plain_kernels : NULL;
    return options;
}

fig_status fig_place_open(fig_engine **engine, const fig_graphs *graphs) {
    const fig_engine_options options = fig_place_options();
    return fig_engine_open(engine, graphs, &options);
}

/* Prints the reason once per test, however many engines the test opens. */
fig_engine_options fig_place_host_only(const char *why) {
    static const char *last;
    if (fig_place_device() != FIG_DEVICE_HOST && why != last) printf("host only: %s\n", why);
    last = why;
    return (fig_engine_options){.size = sizeof(fig_engine_options), .device = FIG_DEVICE_HOST};
}

void fig_place_host_program(const char *why) {
    fig_place_host_only(why);
    host_holds++;
}

void fig_place_hold_host(void) {
    host_holds++;
}

void fig_place_release_host(void) {
    assert(host_holds > 0);
    host_holds--;
}

const fig_traits *fig_place_traits(void) {
    static _Thread_local fig_traits hopper = {.size = sizeof hopper};
    if (fig_place_device() == FIG_DEVICE_HOST) return NULL;
    return fig_traits_named(&hopper, "h200") == FIG_OK ? &hopper : NULL;
}

int fig_place_cases(int all) {
    const char *share = getenv("FIG_CASE_SHARE");
    const long of = share != NULL ? strtol(share, NULL, 10) : CASE_SHARE;
    const int some = of > 1 ? (int)(all / of) : all;
    return some >= CASES_LEAST || some == all ? some : all < CASES_LEAST ? all : CASES_LEAST;
}

int fig_place_wants_case(int n, int all, int seen, int wanted) {
    const int cases = fig_place_cases(all);
    return n < cases || (seen < wanted && n < CASES_MOST * cases);
}

/* ---- The device ---------------------------------------------------------------------------- */

static fig_status open_device(void) {
    const fig_engine_options options = fig_place_options();
    if (stream != NULL) return FIG_OK;
    fig_status status = dev == NULL ? fig_device_cuda.open(&dev, &options) : FIG_OK;
    if (status == FIG_OK) status = fig_device_cuda.stream_open(dev, &stream);
    return status;
}

/* Waits for the launch. If it does not end, leaks everything that it uses. */
static fig_status run_graph(const fig_dev_graph *graph) {
    fig_dev_exec *exec;
    fig_status status = fig_device_cuda.exec_create(dev, &exec, graph);
    if (status != FIG_OK) return status;
    status = fig_device_cuda.exec_launch(dev, exec, stream);
    if (status == FIG_OK) status = fig_device_cuda.stream_wait(dev, stream, launch_limit_us);
    if (status == FIG_OK) status = fig_device_cuda.stream_take_fault(dev, stream);
    if (status != FIG_TIMEOUT) fig_device_cuda.exec_destroy(dev, exec);
    return status;
}

static fig_status launch(fig_op op, const void *params) {
    const fig_kernel *kernel = &fig_kernel_table[op];
    fig_dev_graph *graph;
    fig_traits traits;
    fig_family_choice choice;
    fig_dev_launch one = {.op = op, .params = params, .params_bytes = kernel->params_bytes};
    fig_status status = open_device();
    if (status != FIG_OK) return status;
    fig_device_cuda.read_kernel_traits(dev, &traits);
    fig_families_choose(op, params, &traits, &choice);
    one.family = choice.family;
    memcpy(one.grid, choice.shape.grid, sizeof one.grid);
    memcpy(one.block, choice.shape.block, sizeof one.block);
    one.shared_bytes = choice.shape.shared_bytes;
    status = fig_device_cuda.graph_create(dev, &graph);
    if (status != FIG_OK) return status;
    status = fig_device_cuda.graph_kernel(dev, graph, &one, (fig_dev_after){NULL, 0});
    if (status == FIG_OK) status = run_graph(graph);
    fig_device_cuda.graph_destroy(dev, graph);
    return status;
}

fig_status fig_place_launch(fig_op op, const void *params) {
    pthread_mutex_lock(&held);
    fig_status status = launch(op, params);
    pthread_mutex_unlock(&held);
    return status;
}

/* ---- Blocks -------------------------------------------------------------------------------- */

static int32_t class_of(size_t bytes) {
    int32_t of_class = CLASS_LEAST;
    while (of_class < CLASS_COUNT - 1 && ((size_t)1 << of_class) < bytes + GUARD)
        of_class++;
    return of_class;
}

static place_block *make_block(fig_memory kind, int32_t of_class, size_t bytes) {
    place_block *block = calloc(1, sizeof *block);
    if (block == NULL) return NULL;
    block->of_class = of_class;
    if (of_class >= 0) bytes = (size_t)1 << of_class;
    if (open_device() == FIG_OK &&
        fig_device_cuda.allocate(dev, &block->memory, kind, bytes > 0 ? bytes : 1) == FIG_OK) {
        assert(kind == FIG_MEMORY_DEVICE || block->memory.host == block->memory.device);
        return block;
    }
    free(block);
    return NULL;
}

static size_t guard_of(const place_block *block) {
    const size_t behind = block->memory.bytes - block->bytes;
    return block->of_class < 0 ? 0 : behind < GUARD ? behind : GUARD;
}

static place_block *take_block(fig_memory kind, size_t bytes) {
    const int32_t of_class = says("FIG_PLACE", "exact") ? -1 : class_of(bytes);
    place_block *block = of_class >= 0 ? kept[kind][of_class] : NULL;
    if (block != NULL) {
        kept[kind][of_class] = block->next;
    } else {
        block = make_block(kind, of_class, bytes);
        if (block == NULL) return NULL;
    }
    block->bytes = bytes;
    block->next = used;
    used = block;
    if (kind == FIG_MEMORY_PINNED)
        memset((uint8_t *)block->memory.host + bytes, GUARD_BYTE, guard_of(block));
    return block;
}

static void check_guard(const place_block *block) {
    const uint8_t *behind = (const uint8_t *)block->memory.host + block->bytes;
    for (size_t i = 0; i < guard_of(block); i++) {
        if (behind[i] == GUARD_BYTE) continue;
        fprintf(stderr, "byte %zu behind a block of %zu was written\n", i, block->bytes);
        abort();
    }
}

static void give_block(const void *device) {
    place_block **at = &used;
    while (*at != NULL && (*at)->memory.device != device)
        at = &(*at)->next;
    assert(*at != NULL);
    place_block *block = *at;
    *at = block->next;
    if (block->memory.kind == FIG_MEMORY_PINNED) check_guard(block);
    if (block->of_class >= 0) {
        place_block **first = &kept[block->memory.kind][block->of_class];
        block->next = *first;
        *first = block;
        return;
    }
    fig_device_cuda.release(dev, &block->memory);
    free(block);
}

/* ---- An engine's memory -------------------------------------------------------------------- */

static int32_t lend(void *user, fig_allocation *allocation) {
    (void)user;
    pthread_mutex_lock(&held);
    const place_block *block = take_block(allocation->kind, allocation->bytes);
    pthread_mutex_unlock(&held);
    if (block == NULL) return 1;
    allocation->device = block->memory.device;
    allocation->host = block->memory.host;
    return 0;
}

static int32_t take_back(void *user, fig_allocation *allocation) {
    (void)user;
    pthread_mutex_lock(&held);
    give_block(allocation->device);
    pthread_mutex_unlock(&held);
    return 0;
}

void fig_place_lend(fig_engine_options *options) {
    if (options->device != FIG_DEVICE_CUDA) return;
    options->allocate = lend;
    options->release = take_back;
}

/* ---- The test's memory --------------------------------------------------------------------- */

void *fig_place_allocate_as_is(size_t bytes) {
    void *address = NULL;
    if (fig_place_device() == FIG_DEVICE_HOST) {
        if (posix_memalign(&address, ALIGNMENT, bytes > 0 ? bytes : 1) != 0) address = NULL;
    } else {
        pthread_mutex_lock(&held);
        const place_block *block = take_block(FIG_MEMORY_PINNED, bytes);
        if (block != NULL) address = block->memory.host;
        pthread_mutex_unlock(&held);
    }
    if (address == NULL)
        fprintf(stderr, "%s: no block of %zu bytes: %s\n", fig_place_name(), bytes, fig_message());
    return address;
}

void *fig_place_allocate(size_t bytes) {
    void *address = fig_place_allocate_as_is(bytes);
    return address != NULL ? memset(address, POISON_BYTE, bytes) : NULL;
}

void fig_place_free(void *address) {
    if (address == NULL) return;
    if (fig_place_device() == FIG_DEVICE_HOST) {
        free(address);
        return;
    }
    pthread_mutex_lock(&held);
    give_block(address);
    pthread_mutex_unlock(&held);
}

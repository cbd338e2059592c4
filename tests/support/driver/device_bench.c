/* device_bench.c: see device_bench.h. */
#include "tests/support/driver/device_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/seam/clock.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

enum { NUMBERS = 4096, ALIGNMENT = 64 };

int fig_device_bench_is_host(void) {
    return fig_place_device() == FIG_DEVICE_HOST;
}

int fig_device_bench_set_up(void) {
    void *state = NULL;
    alarm(FIG_DEVICE_BENCH_HANG_S);
    return fig_device_bench_is_host() ? 0 : fig_gpu_caller_set_up(&state);
}

int fig_device_bench_tear_down(void) {
    void *state = NULL;
    return fig_device_bench_is_host() ? 0 : fig_gpu_caller_tear_down(&state);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

void *fig_device_bench_memory(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, bytes) != 0) fail_msg("%zu bytes", bytes);
    return memory;
}

void *fig_device_bench_allocate(size_t bytes) {
    fig_cu_address address = 0;
    if (fig_device_bench_is_host()) {
        void *memory = fig_device_bench_memory(bytes);
        memset(memory, 0, bytes);
        return memory;
    }
    CU(MemAlloc, &address, bytes + 256);
    CU(MemsetD8Async, address, 0, bytes, fig_gpu_caller.stream);
    CU(StreamSynchronize, fig_gpu_caller.stream);
    return (void *)(uintptr_t)address;
}

void fig_device_bench_free(void *address) {
    if (fig_device_bench_is_host()) {
        free(address);
    } else if (address != NULL) {
        CU(MemFree, (fig_cu_address)(uintptr_t)address);
    }
}

/* Does not wait on a GPU. */
static void start_copy(void *to, const void *from, size_t bytes) {
    if (fig_device_bench_is_host()) {
        memcpy(to, from, bytes);
    } else {
        CU(MemcpyAsync, (fig_cu_address)(uintptr_t)to, (fig_cu_address)(uintptr_t)from, bytes,
           fig_gpu_caller.stream);
    }
}

static void wait(void) {
    if (fig_device_bench_is_host()) return;
    alarm(FIG_DEVICE_BENCH_HANG_S);
    CU(StreamSynchronize, fig_gpu_caller.stream);
}

void fig_device_bench_copy(void *to, const void *from, size_t bytes) {
    start_copy(to, from, bytes);
    wait();
}

void *fig_device_bench_upload(const void *from, size_t bytes) {
    void *memory = fig_device_bench_allocate(bytes);
    fig_device_bench_copy(memory, from, bytes);
    return memory;
}

void fig_device_bench_repeat(void *memory, size_t bytes, size_t piece_bytes) {
    for (size_t at = piece_bytes; at < bytes; at += piece_bytes)
        start_copy((uint8_t *)memory + at, memory,
                   bytes - at < piece_bytes ? bytes - at : piece_bytes);
    wait();
}

void fig_device_bench_fill(uint16_t *to, size_t count, fig_random *random) {
    static uint16_t numbers[NUMBERS];
    if (numbers[0] == 0)
        for (int i = 0; i < NUMBERS; i++)
            truth_store(numbers, FIG_BF16, i, fig_random_normal(random) + 1e-3f);
    for (size_t i = 0; i < count; i += 4) {
        uint64_t bits = fig_random_bits(random);
        for (size_t j = i; j < i + 4; j++, bits >>= 16)
            to[j] = numbers[bits & (NUMBERS - 1)];
    }
}

/* ---- Times ----------------------------------------------------------------------------------- */

void fig_device_bench_capture(fig_device_bench_graph *graph) {
    fig_cu_instantiate_params wish = {0};
    if (fig_device_bench_is_host()) return;
    CU(StreamBeginCapture, fig_gpu_caller.stream, FIG_CU_CAPTURE_RELAXED);
    graph->enqueue(graph->of);
    CU(StreamEndCapture, fig_gpu_caller.stream, &graph->graph);
    CU(GraphInstantiateWithParams, &graph->exec, graph->graph, &wish);
}

void fig_device_bench_drop(fig_device_bench_graph *graph) {
    if (!fig_device_bench_is_host()) {
        CU(GraphExecDestroy, graph->exec);
        CU(GraphDestroy, graph->graph);
    }
    *graph = (fig_device_bench_graph){.enqueue = graph->enqueue, .of = graph->of};
}

double fig_device_bench_replay(const fig_device_bench_graph *graph) {
    fig_cu_event from, to;
    float ms = 0;
    alarm(FIG_DEVICE_BENCH_HANG_S);
    if (fig_device_bench_is_host()) {
        const int64_t begin_ns = fig_clock_ns();
        graph->enqueue(graph->of);
        return (double)(fig_clock_ns() - begin_ns) / 1e3;
    }
    CU(EventCreate, &from, 0);
    CU(EventCreate, &to, 0);
    CU(EventRecord, from, fig_gpu_caller.stream);
    CU(GraphLaunch, graph->exec, fig_gpu_caller.stream);
    CU(EventRecord, to, fig_gpu_caller.stream);
    CU(EventSynchronize, to);
    CU(EventElapsedTime, &ms, from, to);
    CU(EventDestroy, from);
    CU(EventDestroy, to);
    return (double)ms * 1e3;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fig_device_bench_median(const fig_device_bench_graph *graph) {
    double times[FIG_DEVICE_BENCH_ROUNDS];
    for (int i = 0; i < FIG_DEVICE_BENCH_ROUNDS; i++)
        times[i] = fig_device_bench_replay(graph);
    qsort(times, FIG_DEVICE_BENCH_ROUNDS, sizeof times[0], by_size);
    return times[FIG_DEVICE_BENCH_ROUNDS / 2];
}

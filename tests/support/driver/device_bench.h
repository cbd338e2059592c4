/* device_bench.h: what benches of tests/gpu share: memory of the device that FIG_DEVICE names, and
 * the times of launches that one graph replays.
 *
 * On the host a replay calls the launches again, so a bench can be tried there; its times mean
 * nothing. Every function ends the program if the driver refuses. Invariant: while a bench waits
 * for the device, SIGALRM ends it after FIG_DEVICE_BENCH_HANG_S. */
#ifndef FIG_TESTS_SUPPORT_DEVICE_BENCH_H
#define FIG_TESTS_SUPPORT_DEVICE_BENCH_H

#include "tests/support/driver/gpu_caller.h"
#include "tests/support/random.h"

enum { FIG_DEVICE_BENCH_HANG_S = 60, FIG_DEVICE_BENCH_ROUNDS = 7 };

/* Both return 0 on success. */
int fig_device_bench_set_up(void);
int fig_device_bench_tear_down(void);
int fig_device_bench_is_host(void);

/* Memory of the process, aligned to 64 bytes; free() frees it. */
void *fig_device_bench_memory(size_t bytes);
/* Memory of the device. */
void *fig_device_bench_allocate(size_t bytes); /* zeros */
void *fig_device_bench_upload(const void *from, size_t bytes);
void fig_device_bench_free(void *address);
/* Copies in any direction, and waits. */
void fig_device_bench_copy(void *to, const void *from, size_t bytes);
/* Fills the device's memory with copies of its first piece. */
void fig_device_bench_repeat(void *memory, size_t bytes, size_t piece_bytes);

/* Draws normally distributed bf16 numbers from a small table, since caches have a hundred million
 * of them. count: a multiple of 4. */
void fig_device_bench_fill(uint16_t *to, size_t count, fig_random *random);

/* Launches that one graph replays. */
typedef struct fig_device_bench_graph {
    void (*enqueue)(const void *of); /* enqueues all launches on the caller's stream */
    const void *of;
    fig_cu_graph graph;
    fig_cu_exec exec;
} fig_device_bench_graph;
void fig_device_bench_capture(fig_device_bench_graph *graph);
void fig_device_bench_drop(fig_device_bench_graph *graph);
/* Replays once. Returns the microseconds of all launches together. */
double fig_device_bench_replay(const fig_device_bench_graph *graph);
/* Returns the median of FIG_DEVICE_BENCH_ROUNDS replays. */
double fig_device_bench_median(const fig_device_bench_graph *graph);

#endif

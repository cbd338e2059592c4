/* bench_pool.h: fills device memory with synthetic numbers; the caches of all cells are its pages.
 *
 * One allocation serves all cells of a dtype, because filling many GB again for each cell would
 * take longer than timing it. The first half is for K, the second for V. Weights lie beside
 * them; they are only read, never multiplied. Invariant: fig_bench_pool_at() returns the
 * contents of the device, unless a program that appends has caches there. */
#ifndef FIG_TOOLS_BENCH_POOL_H
#define FIG_TOOLS_BENCH_POOL_H

#include "tools/figraph/bench/bench_rig.h"

typedef struct fig_bench_pool {
    fig_bench_rig rig;
    fig_dtype dtype;
    uint8_t *address; /* on the device */
    size_t half_bytes;
    uint8_t *block;   /* the contents of a block; the halves repeat them */
    uint8_t *weights; /* on the device, several times as large as an L2 */
    size_t weight_bytes;
    double ceiling; /* the bytes per second that bulk copies read, from end to end */
} fig_bench_pool;

/* Opens a pool of the given size or, if memory is short, a smaller one that still holds the
 * smallest cell. On the host, refuses a pool that is larger than half of the memory. Returns
 * FIG_EXIT_*; close frees everything that was opened. */
int fig_bench_pool_open(fig_bench_pool *pool, const fig_bench_machine *machine, fig_dtype dtype,
                        size_t half_bytes);
void fig_bench_pool_close(fig_bench_pool *pool);
/* Copies the bytes at `offset` from the pool's start, as they were filled in. */
void fig_bench_pool_at(const fig_bench_pool *pool, size_t offset, void *to, size_t bytes);

/* Reads the same bytes from the device, including later writes. Returns FIG_EXIT_*. */
int fig_bench_pool_read(const fig_bench_pool *pool, size_t offset, void *to, size_t bytes);

/* Measures the bytes per second that copying one half to the other reads and writes, both
 * counted. The contents of the pool do not change. */
int fig_bench_pool_copy(const fig_bench_pool *pool, const fig_bench_machine *machine,
                        double *bytes);

#endif

/* bench_pool.h: device memory full of made-up numbers, of which every cell's caches are pages.
 *
 * One allocation serves all cells of a dtype: filling many GB anew for each would take longer than
 * timing it. Its first half is for K, its second for V; beside them lie weights, which nobody
 * multiplies by. Invariant: what fig_bench_pool_at tells is
 * what the device holds, for as long as no caches of a program that appends lie there. */
#ifndef FIG_TOOLS_BENCH_POOL_H
#define FIG_TOOLS_BENCH_POOL_H

#include "tools/figraph/bench/bench_rig.h"

typedef struct fig_bench_pool {
    fig_bench_rig rig;
    fig_dtype dtype;
    uint8_t *address; /* on the device */
    size_t half_bytes;
    uint8_t *block;   /* what is there, again and again */
    uint8_t *weights; /* on the device, several times what an L2 holds */
    size_t weight_bytes;
    double ceiling; /* bytes that a second reads, by bulk copies from end to end */
} fig_bench_pool;

/* As many bytes as there are where memory is short, but a cell of the least size. Returns
 * FIG_EXIT_*; close frees what was opened. */
int fig_bench_pool_open(fig_bench_pool *pool, const fig_bench_machine *machine, fig_dtype dtype,
                        size_t half_bytes);
void fig_bench_pool_close(fig_bench_pool *pool);
/* Copies what lies `offset` bytes from the pool's start. */
void fig_bench_pool_at(const fig_bench_pool *pool, size_t offset, void *to, size_t bytes);

/* The same from the device itself, whoever wrote there since. Returns FIG_EXIT_*. */
int fig_bench_pool_read(const fig_bench_pool *pool, size_t offset, void *to, size_t bytes);

/* Bytes that a second reads and writes, both counted, where one half is copied to the other. What
 * the pool holds stays as it is. */
int fig_bench_pool_copy(const fig_bench_pool *pool, const fig_bench_machine *machine,
                        double *bytes);

#endif

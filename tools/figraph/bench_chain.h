/* bench_chain.h: one cell's attention as a chain of layers over cold caches, checked and timed.
 *
 * Each layer's q is the layer before's out. Caches are pages of the pool: those of one lie between
 * those of the others, in an order that the page table shuffles. Invariant: what is timed was
 * checked against float64 first. */
#ifndef FIG_TOOLS_BENCH_CHAIN_H
#define FIG_TOOLS_BENCH_CHAIN_H

#include "tools/figraph/bench_cells.h"
#include "tools/figraph/bench_pool.h"

typedef struct fig_bench_chain {
    fig_bench_rig rig;
    const fig_bench_cell *cell;
    const fig_bench_pool *pool;
    fig_spec spec;
    int32_t layers, copies; /* copies: caches apart from each other, taken in turn */
    int32_t *pages;         /* [pages of the cell]: the page table, row after row */
    fig_step step;
} fig_bench_chain;

/* What lies between two attentions. */
typedef enum fig_bench_between {
    FIG_BENCH_NOTHING,
    FIG_BENCH_ROPE,     /* of q, in place: another kernel, as real layers have */
    FIG_BENCH_ROPE_ONLY /* no attention at all: what that kernel takes by itself */
} fig_bench_between;

/* Layers and caches of a cell on that machine; 0 caches: the pool is too small. */
void fig_bench_chain_size(fig_bench_chain *chain, const fig_bench_machine *machine,
                          const fig_bench_cell *cell, const fig_bench_pool *pool);
/* What half a pool must hold for it. */
size_t fig_bench_chain_bytes(const fig_bench_machine *machine, const fig_bench_cell *cell);
/* After size. Returns FIG_EXIT_*. */
int fig_bench_chain_open(fig_bench_chain *chain, const fig_bench_machine *machine,
                         fig_bench_between between);
/* Runs it once and compares rows and heads of its last layer. */
int fig_bench_chain_check(fig_bench_chain *chain, double *worst_ulp);
void fig_bench_chain_close(fig_bench_chain *chain);

#endif

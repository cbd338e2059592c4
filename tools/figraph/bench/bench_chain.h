/* bench_chain.h: one cell's attention as a chain of layers over cold caches, checked and timed.
 *
 * Each layer's q is the layer before's out. Caches are pages of the pool: those of one lie between
 * those of the others, in an order that the page table shuffles. Invariant: what is timed was
 * checked against float64 first. */
#ifndef FIG_TOOLS_BENCH_CHAIN_H
#define FIG_TOOLS_BENCH_CHAIN_H

#include "tools/figraph/bench/bench_cells.h"
#include "tools/figraph/bench/bench_pool.h"

/* What lies between two attentions. */
typedef enum fig_bench_between {
    FIG_BENCH_NOTHING,
    FIG_BENCH_STEP,      /* the layers of a model: silu of gate_up, then RoPE of q and k, append and
                              attention as the one node that the standard step has */
    FIG_BENCH_STEP_APART /* the same, and each of the four a node of its own */
} fig_bench_between;

/* Tensors of a step, which all layers share; but the last layer's k is its own, so that the check,
 * which reads it before the step runs and after, knows what became of it. What is appended beside v
 * is k or, of nodes apart, k_turned. */
#define FIG_BENCH_GATE_UP "gate_up"
#define FIG_BENCH_ACT "act"
#define FIG_BENCH_K "k"
#define FIG_BENCH_K_LAST "k_last"
#define FIG_BENCH_K_TURNED "k_turned"
#define FIG_BENCH_V "v"

typedef struct fig_bench_chain {
    fig_bench_rig rig;
    const fig_bench_cell *cell;
    const fig_bench_pool *pool;
    fig_spec spec;
    int32_t layers, copies; /* copies: caches apart from each other, taken in turn */
    int32_t *pages;         /* [pages of the cell]: the page table, row after row */
    fig_step step;
    int32_t variant;           /* that is lowered, from 1; 0: those worth having */
    int32_t ffn_width;         /* of a step */
    int32_t sum_width;         /* of a step: all-reduces with residual and norm, so wide, behind its
                                  activation and its attention; 0: none */
    fig_bench_between between; /* once it is open */
    uint8_t *k;                /* of the last layer, [rows][kv_heads][head_dim]: before the step */
    int is_left;               /* 1: a check has found that q and k stay as they are */
} fig_bench_chain;

/* Layers and caches of a cell on that machine; 0 caches: the pool is too small. */
void fig_bench_chain_size(fig_bench_chain *chain, const fig_bench_machine *machine,
                          const fig_bench_cell *cell, const fig_bench_pool *pool);
/* What half a pool must hold for it. */
size_t fig_bench_chain_bytes(const fig_bench_machine *machine, const fig_bench_cell *cell);
/* After size, or with cell, pool, layers and copies as a caller has them. Returns FIG_EXIT_*. */
int fig_bench_chain_open(fig_bench_chain *chain, const fig_bench_machine *machine,
                         fig_bench_between between);
/* Runs it once and compares rows and heads of its last layer. */
int fig_bench_chain_check(fig_bench_chain *chain, double *worst_ulp);
/* What an attention adds to a chain of kernels that have nothing to do with it, in us. They read
 * weights, as much as a projection of 4096 x 4096 in 16 bits has, and between them and attention
 * neither begins before the other has ended: an attention whose blocks are placed while another
 * kernel still holds some SMs is placed unevenly, and what libraries of matrix products launch lets
 * nothing begin early. Reading takes the same time whatever the caches hold, and its few
 * instructions leave them as they were. */
int fig_bench_chain_alone(fig_bench_chain *chain, const fig_bench_machine *machine, double *us);
void fig_bench_chain_close(fig_bench_chain *chain);

#endif

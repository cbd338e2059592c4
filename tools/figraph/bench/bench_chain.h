/* bench_chain.h: checks and times one cell's attention as a chain of layers over cold caches.
 *
 * The output of each layer is the q of the next; over latent caches, where out is narrower than q,
 * all layers have one q and one out. Caches are pages of the pool; the pages of
 * different caches alternate, and the page table shuffles them. Invariant: every timed chain was
 * first compared with float64. */
#ifndef FIG_TOOLS_BENCH_CHAIN_H
#define FIG_TOOLS_BENCH_CHAIN_H

#include "tools/figraph/bench/bench_cells.h"
#include "tools/figraph/bench/bench_pool.h"

/* The operations between two attentions. */
typedef enum fig_bench_between {
    FIG_BENCH_NOTHING,
    /* a model's layers: silu of gate_up, then RoPE of q and k, append and attention as one node,
     * as in the standard step */
    FIG_BENCH_STEP,
    FIG_BENCH_STEP_APART /* the same operations, each of the four as its own node */
} fig_bench_between;

/* Tensors of a step. All layers share them, except that the last layer has its own k, which the
 * check reads before and after the step. Attention appends v and k; if the operations are
 * separate nodes, it appends k_turned instead of k. */
#define FIG_BENCH_GATE_UP "gate_up"
#define FIG_BENCH_ACT "act"
#define FIG_BENCH_K "k"
#define FIG_BENCH_K_LAST "k_last"
#define FIG_BENCH_K_TURNED "k_turned"
#define FIG_BENCH_V "v"

/* Two tensors of [rows] or [query tokens], which are by turns the q and the out of a layer. */
#define FIG_BENCH_X0 "x.0"
#define FIG_BENCH_X1 "x.1"

typedef struct fig_bench_chain {
    fig_bench_rig rig;
    const fig_bench_cell *cell;
    const fig_bench_pool *pool;
    fig_spec spec;
    int32_t layers, copies; /* copies: the number of separate caches, used in turn */
    int32_t *pages;         /* [pages of the cell]: the page table, row after row */
    fig_step step;
    int32_t variant;   /* the variant to lower, from 1; 0: all useful ones */
    int32_t ffn_width; /* the width of the step's activation */
    /* the width of the all-reduces with residual and norm that follow the step's activation and
     * its attention; 0: none */
    int32_t sum_width;
    fig_bench_between between; /* set by open */
    uint8_t *k;                /* the last layer's k before the step, [rows][kv_heads][head_dim] */
    int is_left;               /* 1: a check found that the step leaves q and k unrotated */
} fig_bench_chain;

/* Chooses the numbers of layers and caches for a cell on this machine. 0 caches means that the pool
 * is too small. */
void fig_bench_chain_size(fig_bench_chain *chain, const fig_bench_machine *machine,
                          const fig_bench_cell *cell, const fig_bench_pool *pool);
/* Returns the bytes that half a pool must have for the cell. */
size_t fig_bench_chain_bytes(const fig_bench_machine *machine, const fig_bench_cell *cell);
/* Opens the chain. Before, call fig_bench_chain_size(), or set cell, pool, layers and copies.
 * Returns FIG_EXIT_*. */
int fig_bench_chain_open(fig_bench_chain *chain, const fig_bench_machine *machine,
                         fig_bench_between between);
/* Gives the rows of a chain with drafts other numbers of query tokens, which the same graph then
 * reads. each: the number for every row, except that a row has no more query tokens than tokens; 0:
 * the numbers of the cell. Returns FIG_EXIT_*. */
int fig_bench_chain_draft(fig_bench_chain *chain, int32_t each);
/* Runs the chain once and compares rows and heads of its last layer. */
int fig_bench_chain_check(fig_bench_chain *chain, double *worst_ulp);
/* Measures the time in us that an attention adds to a chain of unrelated kernels. Each of these
 * kernels reads as many weights as a projection of 4096 x 4096 in 16 bits has. No launch begins
 * before the previous one has ended, for two reasons: if attention starts while another kernel
 * still holds some SMs, its blocks are placed unevenly; and the kernels of matrix product libraries
 * let nothing begin early. Reading takes the same time whatever the weights hold, and its few
 * instructions leave the caches as they were. */
int fig_bench_chain_alone(fig_bench_chain *chain, const fig_bench_machine *machine, double *us);
void fig_bench_chain_close(fig_bench_chain *chain);

/* Returns 1 if there are other operations between two attentions. */
int fig_bench_chain_is_step(const fig_bench_chain *chain);
/* Returns 1 if the cache holds 8-bit codes, and thus has scales. */
int fig_bench_chain_is_quarter(const fig_bench_chain *chain);
/* Returns the rows of x.0 and x.1: query tokens where the spec is packed. */
int64_t fig_bench_chain_rows(const fig_bench_chain *chain);
/* Returns the numbers of a head of the last layer's out. */
int32_t fig_bench_chain_out_dim(const fig_bench_chain *chain);
/* Heads have different scales, so the check notices a kernel that mixes up heads. */
float fig_bench_chain_scale(const fig_bench_chain *chain, int32_t kv_head);
/* Returns the offset of a page in the pool's half. Page p of cache `copy` is page p * copies + copy
 * there. */
size_t fig_bench_chain_place(const fig_bench_chain *chain, int32_t copy, int32_t page);

#endif

/* layer_bench.h: builds engine steps of several layers, each of which appends to a cache of its own
 * and computes attention, or only computes attention, for benches that run on a GPU.
 *
 * All layers have the same q, k, v and out, in bf16. Invariant: tensors hold the same random
 * numbers in every run. */
#ifndef FIG_TESTS_LAYER_BENCH_H
#define FIG_TESTS_LAYER_BENCH_H

#include <stdint.h>

#include "include/figraph.h"

enum {
    FIG_LAYER_BENCH_ROUNDS = 7,
    FIG_LAYER_BENCH_PAGE = 16,
    FIG_LAYER_BENCH_Q_HEADS = 32,
    FIG_LAYER_BENCH_KV_HEADS = 8,
    FIG_LAYER_BENCH_HEAD_DIM = 128,
    FIG_LAYER_BENCH_HANG_S = 60,
    FIG_LAYER_BENCH_WAIT_US = 60000000
};
/* bytes of K, or of V, of a token */
#define FIG_LAYER_BENCH_TOKEN_BYTES (FIG_LAYER_BENCH_KV_HEADS * FIG_LAYER_BENCH_HEAD_DIM * 2)

typedef struct fig_layer_bench {
    int32_t rows, kv_limit, row_tokens, tokens; /* tokens: query tokens of a step */
    int32_t layers, pages;                      /* pages: of each layer's cache */
    const fig_traits *traits; /* the machine to lower for; NULL: that of fig_place_traits() */
    int32_t on_device;        /* 1: the device reads the tensors `lengths` and `query_starts` */
    int32_t only_reads;       /* 1: layers compute attention and append nothing */
} fig_layer_bench;

/* Returns the N of a leading `--steps N` and removes both words, or returns `usual`. */
int32_t fig_layer_bench_steps_asked(int *argc, char ***argv, int32_t usual);

/* Runs steps until they are launched. */
typedef void (*fig_layer_bench_steps)(void *of, int32_t count);

void *fig_layer_bench_allocate(size_t bytes);
/* Returns all pages of a layer in random order; the caller frees them. */
int32_t *fig_layer_bench_order(const fig_layer_bench *bench);
/* Returns the pages that hold `tokens` tokens. */
int32_t fig_layer_bench_pages(int32_t tokens);
/* Gives a row the pages for its tokens, from `next` on. Returns the first page behind them. */
const int32_t *fig_layer_bench_lend(fig_engine *engine, int32_t row, int32_t tokens,
                                    const int32_t *next);
fig_graphs *fig_layer_bench_lower(const fig_layer_bench *bench);
/* Binds all tensors to memory of the engine, and fills them. */
void fig_layer_bench_bind(const fig_layer_bench *bench, fig_engine *engine);
/* Returns the bytes of out. */
uint64_t fig_layer_bench_out_bytes(const fig_layer_bench *bench);
/* Returns the microseconds of a layer: the median of series of `count` steps, divided by steps and
 * layers. SIGALRM ends the program if a step hangs. */
double fig_layer_bench_time(const fig_layer_bench *bench, fig_engine *engine, int32_t count,
                            fig_layer_bench_steps steps, void *of);

#endif

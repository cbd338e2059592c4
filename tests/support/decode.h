/* decode.h: a standard decode step in the test's own memory, and the float64 truth of it.
 *
 * Opens graphs, binds every tensor of an engine to memory of its own, fills a step's inputs, and
 * compares what the engine made of them with truth.h. All of it is memory of place.h, so that the
 * engine's addresses are the test's. Invariant: a check of a step accounts for every byte of all
 * tensors: right within its type's precision, unspecified, or as it was. */
#ifndef FIG_TESTS_SUPPORT_DECODE_H
#define FIG_TESTS_SUPPORT_DECODE_H

#include "include/figraph.h"
#include "tests/support/random.h"
#include "tools/figraph/step/truth_attention.h"

enum {
    FIG_DECODE_LAYER_LIMIT = 4,
    FIG_DECODE_Q_HEADS = 4,
    FIG_DECODE_KV_HEADS = 2,
    FIG_DECODE_HEAD_DIM = 64,
    FIG_DECODE_FFN = 48
};

typedef struct fig_decode_options {
    fig_dtype dtype;
    int32_t layers, page_size, batch_limit, kv_limit;
    int32_t bucket_count; /* 0: the ladder's */
    const fig_bucket *buckets;
    int packed; /* 1: q, k and v are views of one [rows][q | k | v], K and V of one pool */

    /* Of the spec, where they are not 0: */
    fig_dtype kv_dtype;
    fig_activation activation;
    fig_kv_layout kv_layout;
    int32_t kv_scales, row_tokens, window;
    uint64_t window_layers;
    float soft_cap, qk_norm_epsilon;
    fig_rope_spec rope;

    int reads_lengths; /* 1: the program takes lengths and positions from the device */
    int deterministic;
} fig_decode_options;

/* Names of a layer's tensors, "q.0" without its end. */
typedef enum fig_decode_kind {
    FIG_DECODE_GATE_UP,
    FIG_DECODE_ACT,
    FIG_DECODE_Q,
    FIG_DECODE_K,
    FIG_DECODE_V,
    FIG_DECODE_OUT,
    FIG_DECODE_K_CACHE,
    FIG_DECODE_V_CACHE,
    FIG_DECODE_K_SCALE, /* where the cache is fp8 */
    FIG_DECODE_V_SCALE,
    FIG_DECODE_Q_NORM, /* where there is an epsilon */
    FIG_DECODE_K_NORM,
    FIG_DECODE_KIND_COUNT
} fig_decode_kind;

typedef struct fig_decode_tensor {
    char name[32];
    uint8_t *address; /* NULL: the program has no such tensor */
    size_t bytes;
    fig_dtype dtype;
    int32_t rank, layer;
    int64_t dims[4], strides[4]; /* dims[0] as this memory has it; in elements */
} fig_decode_tensor;

typedef struct fig_decode {
    fig_decode_options options;
    fig_spec spec;
    fig_graphs *graphs;
    fig_decode_tensor tensors[FIG_DECODE_LAYER_LIMIT][FIG_DECODE_KIND_COUNT];
    uint8_t *memory, *before; /* all tensors, and a copy made by fill */
    size_t memory_bytes;
    /* [sequence_limit][sequence_pages]; that of layers with a window where others see all is NULL
     * in every other case. */
    int32_t *page_table, *window_table;
    int32_t page_tokens, sequence_pages, pages;
    int32_t *lengths, *positions; /* [batch_limit] what the device reads, where it does */
    double worst;                 /* error of any output so far, in parts of what is tolerated */
} fig_decode;

/* Fails the test where it cannot. */
void fig_decode_open(fig_decode *decode, const fig_decode_options *options);
void fig_decode_close(fig_decode *decode);

/* Binds all tensors and, where there is a page table, fills it with pages in random order. */
void fig_decode_bind(fig_decode *decode, fig_engine *engine);
fig_binding fig_decode_binding(const fig_decode *decode, int32_t layer, fig_decode_kind kind);

/* NaN in every token of a sequence in every cache, as where nobody wrote. Nothing runs. */
void fig_decode_forget(fig_decode *decode, int32_t sequence);
/* Gives a sequence its pages in another order; the engine's table follows. Nothing runs. */
void fig_decode_move_pages(fig_decode *decode, fig_engine *engine, int32_t sequence,
                           fig_random *random);
/* Numbers for tokens [0, length) of a sequence in every cache, as if they had been appended; those
 * of no sequence are NaN. Bound by then; nothing runs. */
void fig_decode_prefill(fig_decode *decode, int32_t sequence, int32_t length, fig_random *random);
/* New numbers in every row of every input. Nothing runs. */
void fig_decode_fill(fig_decode *decode, fig_random *random);
/* The same, and NaN in every output, for a step of which some rows are checked and no other byte is
 * looked at: caches, which are most of the memory, are not copied. */
void fig_decode_fill_rows(fig_decode *decode, fig_random *random);
/* The step as the program takes it: lengths and positions go to the device where it reads them. */
fig_step fig_decode_step(fig_decode *decode, const fig_step *step);
/* Where a sequence's tokens lie in a layer's K or V. */
truth_cache fig_decode_cache(const fig_decode *decode, const fig_decode_tensor *cache);
/* Compares all that a step did since fill with the truth; nothing else has changed. */
void fig_decode_check(fig_decode *decode, const fig_step *step);
/* One row of it in all layers, after fig_decode_fill_rows. */
void fig_decode_check_row(fig_decode *decode, const fig_step *step, int32_t row);

#endif

/* decode.h: a standard decode step in the test's own memory, and the float64 truth of it.
 *
 * Opens graphs, binds every tensor of an engine to memory of its own, fills a step's inputs, and
 * compares what the engine made of them with tools/figraph/truth.h. Works on the host device alone,
 * where the engine's addresses are the test's. Invariant: each check accounts for every byte of all
 * tensors: right within its type's precision, unspecified, or as it was. */
#ifndef FIG_TESTS_SUPPORT_DECODE_H
#define FIG_TESTS_SUPPORT_DECODE_H

#include "include/figraph.h"
#include "tests/support/random.h"

enum { FIG_DECODE_LAYER_LIMIT = 4 };

typedef struct fig_decode_options {
    fig_dtype dtype;
    int32_t layers, page_size, batch_limit, kv_limit;
    int32_t bucket_count; /* 0: the ladder's */
    const fig_bucket *buckets;
    int packed; /* 1: q, k and v are views of one [rows][q | k | v], K and V of one pool */
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
    FIG_DECODE_KIND_COUNT
} fig_decode_kind;

typedef struct fig_decode_tensor {
    char name[32];
    uint8_t *address;
    size_t bytes;
    int64_t strides[4]; /* in elements */
} fig_decode_tensor;

typedef struct fig_decode {
    fig_decode_options options;
    fig_spec spec;
    fig_graphs *graphs;
    fig_decode_tensor tensors[FIG_DECODE_LAYER_LIMIT][FIG_DECODE_KIND_COUNT];
    uint8_t *memory, *before; /* all tensors, and a copy made by fill */
    size_t memory_bytes;
    int32_t *page_table; /* [sequence_limit][sequence_pages] */
    int32_t page_tokens, sequence_pages, pages;
    double worst; /* error of any output so far, in parts of what is tolerated */
} fig_decode;

/* Fails the test where it cannot. */
void fig_decode_open(fig_decode *decode, const fig_decode_options *options);
void fig_decode_close(fig_decode *decode);

/* Binds all tensors and, where there is a page table, fills it with pages in random order. */
void fig_decode_bind(fig_decode *decode, fig_engine *engine);
fig_binding fig_decode_binding(const fig_decode *decode, int32_t layer, fig_decode_kind kind);

/* Numbers for tokens [0, length) of a sequence in every cache, as if they had been appended; those
 * of no sequence are NaN. Bound by then; nothing runs. */
void fig_decode_prefill(fig_decode *decode, int32_t sequence, int32_t length, fig_random *random);
/* New numbers in every row of every input. Nothing runs. */
void fig_decode_fill(fig_decode *decode, fig_random *random);
/* Compares all that a step did since fill with the truth; nothing else has changed. */
void fig_decode_check(fig_decode *decode, const fig_step *step);

#endif

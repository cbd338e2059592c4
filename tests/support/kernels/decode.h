/* decode.h: runs a standard decode step in the test's own memory, and checks it with float64.
 *
 * Opens graphs, binds every tensor of an engine to the test's memory, fills a step's inputs, and
 * compares the engine's outputs with truth.h. All memory comes from place.h, so the test and the
 * device use the same addresses. Invariant: a check of a step accounts for every byte of all
 * tensors. Each byte must be right within its type's precision, unspecified, or unchanged. */
#ifndef FIG_TESTS_SUPPORT_DECODE_H
#define FIG_TESTS_SUPPORT_DECODE_H

#include "include/figraph.h"
#include "tests/support/random.h"
#include "tools/figraph/truth/truth_attention.h"

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
    int32_t bucket_count; /* 0: the default buckets */
    const fig_bucket *buckets;
    /* 1: q, k and v are views of one array [rows][q | k | v], and K and V are views of one pool */
    int packed;

    /* Fields of the spec that are set if they are not 0: */
    fig_dtype kv_dtype;
    fig_activation activation;
    fig_kv_layout kv_layout;
    int32_t kv_scales, row_tokens, window;
    uint64_t window_layers;
    float soft_cap, qk_norm_epsilon;
    fig_rope_spec rope;

    int reads_lengths; /* 1: the program reads lengths and positions on the device */
    /* the spec's; if above 0 and the program reads lengths, it reads counts too */
    int64_t query_limit;
    int deterministic;
} fig_decode_options;

/* The tensors of a layer. Their names are "q.0" and so on, with the layer's number. */
typedef enum fig_decode_kind {
    FIG_DECODE_GATE_UP,
    FIG_DECODE_ACT,
    FIG_DECODE_Q,
    FIG_DECODE_K,
    FIG_DECODE_V,
    FIG_DECODE_OUT,
    FIG_DECODE_K_CACHE,
    FIG_DECODE_V_CACHE,
    FIG_DECODE_K_SCALE, /* only with fp8 caches */
    FIG_DECODE_V_SCALE,
    FIG_DECODE_Q_NORM, /* only with qk_norm_epsilon */
    FIG_DECODE_K_NORM,
    FIG_DECODE_KIND_COUNT
} fig_decode_kind;

typedef struct fig_decode_tensor {
    char name[32];
    uint8_t *address; /* NULL: the program has no such tensor */
    size_t bytes;
    fig_dtype dtype;
    int32_t rank, layer;
    /* strides in elements; dims[0] is the number of rows or pages that this memory has */
    int64_t dims[4], strides[4];
} fig_decode_tensor;

typedef struct fig_decode {
    fig_decode_options options;
    fig_spec spec;
    fig_graphs *graphs;
    fig_decode_tensor tensors[FIG_DECODE_LAYER_LIMIT][FIG_DECODE_KIND_COUNT];
    uint8_t *memory, *before; /* all tensors, and the copy that fill made of them */
    size_t memory_bytes;
    /* [sequence_limit][sequence_pages] each. window_table: the table of the layers with a window if
     * other layers have none, else NULL. */
    int32_t *page_table, *window_table;
    int32_t page_tokens, sequence_pages, pages;
    int32_t *lengths, *positions; /* [batch_limit] each, if the device reads them */
    int32_t *query_starts;        /* [batch_limit + 1], if the device reads them */
    double worst; /* the worst error of any output so far, as a fraction of the tolerance */
} fig_decode;

/* Fails the test if something cannot be opened. */
void fig_decode_open(fig_decode *decode, const fig_decode_options *options);
void fig_decode_close(fig_decode *decode);

/* Binds all tensors. If there is a page table, fills it with pages in random order. */
void fig_decode_bind(fig_decode *decode, fig_engine *engine);
fig_binding fig_decode_binding(const fig_decode *decode, int32_t layer, fig_decode_kind kind);

/* Sets all tokens of a sequence to NaN in every cache, as if they had never been written. Call it
 * while nothing runs. */
void fig_decode_forget(fig_decode *decode, int32_t sequence);
/* Gives a sequence its pages in another order, in the engine's table as well. Call it while nothing
 * runs. */
void fig_decode_move_pages(fig_decode *decode, fig_engine *engine, int32_t sequence,
                           fig_random *random);
/* Fills tokens [0, length) of a sequence in every cache, as if they had been appended. Tokens of no
 * sequence are NaN. Call it after binding, while nothing runs. */
void fig_decode_prefill(fig_decode *decode, int32_t sequence, int32_t length, fig_random *random);
/* Fills every row of every input with new numbers. Call it while nothing runs. */
void fig_decode_fill(fig_decode *decode, fig_random *random);
/* Does the same and fills every output with NaN. It is for steps of which only some rows are
 * checked: it does not copy the caches, which are most of the memory. */
void fig_decode_fill_rows(fig_decode *decode, fig_random *random);
/* Returns the step in the form that the program takes. If the device reads lengths and positions,
 * writes them to the device. */
fig_step fig_decode_step(fig_decode *decode, const fig_step *step);
/* Return the number of a row's query tokens, and how many query tokens the rows before it have. */
int32_t fig_decode_queries(const fig_decode *decode, const fig_step *step, int32_t row);
int32_t fig_decode_first_query(const fig_decode *decode, const fig_step *step, int32_t row);
/* Describes the tokens of a layer's K or V, in the form that truth.h takes. */
truth_cache fig_decode_cache(const fig_decode *decode, const fig_decode_tensor *cache);
/* Compares everything that a step has done since fill with the truth, and checks that nothing else
 * has changed. */
void fig_decode_check(fig_decode *decode, const fig_step *step);
/* Checks one row in all layers, after fig_decode_fill_rows(). */
void fig_decode_check_row(fig_decode *decode, const fig_step *step, int32_t row);

#endif

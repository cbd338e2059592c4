/* spec.h: checks a spec and fills in its defaults.
 *
 * Owns the limits and defaults. Invariant: every fig_spec inside the library has passed
 * fig_spec_resolve() and holds no zero that means "default". */
#ifndef FIG_PLANNER_SPEC_H
#define FIG_PLANNER_SPEC_H

#include "include/figraph.h"

enum {
    FIG_BATCH_LIMIT = 1024,
    FIG_KV_LIMIT = 1 << 20,
    FIG_SEQUENCE_LIMIT = 1 << 16,
    FIG_LAYER_LIMIT = 512,
    FIG_HEAD_LIMIT = 256,
    FIG_GROUP_LIMIT = 16,          /* q heads that share a kv head */
    FIG_ROW_TOKENS_LIMIT = 16,     /* query tokens of a row that the kernels for decode serve */
    FIG_NARROW_TOKENS_LIMIT = 8,   /* the same, in a program where longer rows are chunks */
    FIG_CHUNK_TOKENS_LIMIT = 4096, /* query tokens of a chunk of a prompt */
    FIG_QUERY_LIMIT = 1 << 20,
    FIG_FFN_ROWS_LIMIT = 8,
    FIG_PAGE_SIZE_LIMIT = 1 << 16,
    FIG_WIDTH_LIMIT = 1 << 20
};

/* Checks `spec` and fills every default into *out. A refusal names field, value and limit. */
fig_status fig_spec_resolve(const fig_spec *spec, fig_spec *out);

/* Returns the number of dims of a head that RoPE may rotate. With a latent cache, these are the
 * last dims of the head. */
int32_t fig_spec_turning_dim(const fig_spec *spec);
/* The columns of a layer's activation, and its rows for each token. */
typedef struct fig_spec_ffn {
    int32_t width, rows;
} fig_spec_ffn;
fig_spec_ffn fig_spec_layer_ffn(const fig_spec *resolved, int32_t layer);
/* Returns the number of tokens of a page; a dense sequence is one page of kv_limit tokens. */
int32_t fig_spec_page_tokens(const fig_spec *resolved);
/* Returns the number of pages that one sequence may need. */
int32_t fig_spec_sequence_pages(const fig_spec *resolved);
/* Returns the number of tokens that a query of layer `layer` sees: the window, or 0 for all. */
int32_t fig_spec_layer_window(const fig_spec *resolved, int32_t layer);
/* The RoPE of one layer; meaningful only if fig_spec_layer_turns() returns 1. */
typedef struct fig_spec_turns {
    const fig_rope_spec *rope;
    const fig_rope_table *table;
} fig_spec_turns;
fig_spec_turns fig_spec_layer_rope(const fig_spec *resolved, int32_t layer);
/* Returns 0 if the layer has no RoPE. */
int fig_spec_layer_turns(const fig_spec *resolved, int32_t layer);

#endif

/* spec.h: what a spec may say, and what it says where it is silent.
 *
 * Owns limits and defaults. Invariant: every fig_spec inside the library has passed
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
    FIG_GROUP_LIMIT = 16, /* q heads that share a kv head */
    FIG_ROW_TOKENS_LIMIT = 8,
    FIG_FFN_ROWS_LIMIT = 8,
    FIG_PAGE_SIZE_LIMIT = 1 << 16,
    FIG_WIDTH_LIMIT = 1 << 20
};

/* Checks `spec` and fills every default into *out; the sentence names field, value and limit. */
fig_status fig_spec_resolve(const fig_spec *spec, fig_spec *out);

/* Tokens of a page, a dense sequence being one page; and pages that one sequence may need. */
int32_t fig_spec_page_tokens(const fig_spec *resolved);
int32_t fig_spec_sequence_pages(const fig_spec *resolved);
/* What a query of layer `layer` sees: the window, or 0 for all. */
int32_t fig_spec_layer_window(const fig_spec *resolved, int32_t layer);
/* How heads of layer `layer` turn, where they do. */
typedef struct fig_spec_turns {
    const fig_rope_spec *rope;
    const fig_rope_table *table;
} fig_spec_turns;
fig_spec_turns fig_spec_layer_rope(const fig_spec *resolved, int32_t layer);
/* 0: the layer has no RoPE. */
int fig_spec_layer_turns(const fig_spec *resolved, int32_t layer);

#endif

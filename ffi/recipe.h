/* recipe.h: everything that decides which kernels an operation of a foreign caller's needs.
 *
 * A recipe is a key: two calls with equal recipes share one runner. So it holds dims that are fixed
 * in a program, types, scalars and the device, and neither rows nor lengths; kv_limit is a power of
 * two. Owns the one-operation program of each kind. Invariant: a recipe has no byte without a
 * field, and fields that its kind does not read are zero, so that equal recipes are equal bytes. */
#ifndef FIG_FFI_RECIPE_H
#define FIG_FFI_RECIPE_H

#include <assert.h>

#include "include/figraph.h"

typedef enum fig_recipe_kind {
    FIG_RECIPE_GATED = 1,
    FIG_RECIPE_ROPE,
    FIG_RECIPE_APPEND,
    FIG_RECIPE_ATTENTION,
    FIG_RECIPE_DECODE, /* RoPE, append and attention in one */
    FIG_RECIPE_NORM,   /* RMSNorm; of a sum, where there is a residual */
    FIG_RECIPE_PROGRAM /* of a file, by its content id */
} fig_recipe_kind;

/* Arrays of all kinds, in the order in which their programs record them. */
typedef enum fig_slot {
    FIG_SLOT_IN = 0, /* of gated and norm */
    FIG_SLOT_RESIDUAL,
    FIG_SLOT_WEIGHT,
    FIG_SLOT_Q,
    FIG_SLOT_K,
    FIG_SLOT_V,
    FIG_SLOT_K_CACHE,
    FIG_SLOT_V_CACHE,
    FIG_SLOT_PAGE_TABLE,
    FIG_SLOT_LENGTHS,
    FIG_SLOT_POSITIONS,
    FIG_SLOT_INDPTR,
    FIG_SLOT_OFFSETS,
    FIG_SLOT_COS_SIN,
    FIG_SLOT_K_SCALE,
    FIG_SLOT_V_SCALE,
    FIG_SLOT_SINKS,
    FIG_SLOT_ALIBI,
    FIG_SLOT_OUT,
    FIG_SLOT_K_OUT, /* of rope, whose q_out is FIG_SLOT_OUT */
    FIG_SLOT_LSE,
    FIG_SLOT_COUNT
} fig_slot;

typedef struct fig_recipe {
    uint32_t kind; /* fig_recipe_kind */
    fig_device device;
    int32_t ordinal;
    uint32_t slots; /* bit s: there is a fig_slot s */
    fig_dtype dtype, kv_dtype, index_dtype;
    fig_activation activation;
    int64_t width;     /* gated and norm: of out */
    int64_t segments;  /* rope: of offsets */
    int64_t positions; /* rope: of cos_sin */
    int32_t q_heads, kv_heads, head_dim;
    fig_kv_layout layout;
    int32_t page_size; /* 0: dense */
    int32_t kv_limit;  /* a power of two */
    int32_t scales;    /* in k_scale and v_scale: 1 or kv_heads */
    int32_t window;    /* tokens seen; 0: all */
    float soft_cap, sm_scale;
    float epsilon, weight_offset; /* norm */
    fig_rope_spec rope;
    uint8_t content[32]; /* program: its content id */
} fig_recipe;
static_assert(sizeof(fig_recipe) == 32 + 24 + 48 + sizeof(fig_rope_spec) + 32,
              "no byte without a field");

int fig_recipe_has(const fig_recipe *recipe, fig_slot slot);
/* The kv_limit of recipes whose sequences may have so many tokens. FIG_TOO_LARGE. */
fig_status fig_recipe_round_tokens(int64_t tokens, int32_t *kv_limit);
/* Records, finishes and lowers the program of any kind but FIG_RECIPE_PROGRAM. Its tensors are the
 * recipe's slots in their order. */
fig_status fig_recipe_make(const fig_recipe *recipe, fig_graphs **graphs);

#endif

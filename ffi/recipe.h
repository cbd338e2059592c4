/* recipe.h: the key by which a foreign call's runner is found.
 *
 * Calls with equal recipes share one runner. So a recipe holds the dims that a program fixes, the
 * types, the scalars and the device, but neither rows nor lengths, and its kv_limit is rounded to a
 * power of two. Owns the one-operation program of each kind. Invariant: a recipe has no padding,
 * and fields that its kind does not read are zero, so equal recipes have equal bytes. */
#ifndef FIG_FFI_RECIPE_H
#define FIG_FFI_RECIPE_H

#include <assert.h>

#include "include/figraph.h"

typedef enum fig_recipe_kind {
    FIG_RECIPE_GATED = 1,
    FIG_RECIPE_ROPE,
    FIG_RECIPE_APPEND,
    FIG_RECIPE_ATTENTION,
    FIG_RECIPE_DECODE,        /* RoPE, append and attention in one */
    FIG_RECIPE_NORM,          /* RMSNorm, or RMSNorm of a sum with a residual */
    FIG_RECIPE_LATENT,        /* attention over a latent cache */
    FIG_RECIPE_LATENT_DECODE, /* RoPE, norm, append and attention in one */
    FIG_RECIPE_PROGRAM        /* a file's program, by its content id */
} fig_recipe_kind;

/* The arrays of all kinds, in the order in which programs record them. */
typedef enum fig_slot {
    FIG_SLOT_IN = 0, /* the input of gated and norm */
    FIG_SLOT_RESIDUAL,
    FIG_SLOT_WEIGHT,
    FIG_SLOT_Q,
    FIG_SLOT_K,
    FIG_SLOT_V,
    FIG_SLOT_LATENT, /* the new tokens of a latent cache */
    FIG_SLOT_NORM,   /* the weight of their norm */
    FIG_SLOT_Q_ROPE, /* the last 64 values of each head of q; if a recipe has it, q has 512 */
    FIG_SLOT_K_CACHE,
    FIG_SLOT_V_CACHE,
    FIG_SLOT_LATENT_CACHE,
    FIG_SLOT_PAGE_TABLE,
    FIG_SLOT_LENGTHS,
    FIG_SLOT_QUERY_STARTS, /* if a recipe has it, its program is packed */
    FIG_SLOT_POSITIONS,    /* one per token; in a recipe of attention one per row, for the plan */
    FIG_SLOT_INDPTR,
    FIG_SLOT_OFFSETS,
    FIG_SLOT_COS_SIN,
    FIG_SLOT_K_SCALE,
    FIG_SLOT_V_SCALE,
    FIG_SLOT_SINKS,
    FIG_SLOT_ALIBI,
    FIG_SLOT_OUT,
    FIG_SLOT_K_OUT, /* rope's k_out; its q_out is FIG_SLOT_OUT */
    FIG_SLOT_LSE,
    FIG_SLOT_SCORE_ARRAY, /* the first of the arrays that a score may have */
    FIG_SLOT_SCORE_ARRAY_LAST = FIG_SLOT_SCORE_ARRAY + FIG_SCORE_ARRAY_LIMIT - 1,
    FIG_SLOT_COUNT
} fig_slot;

typedef struct fig_recipe {
    uint32_t kind; /* fig_recipe_kind */
    fig_device device;
    int32_t ordinal;
    fig_dtype dtype, kv_dtype, index_dtype;
    fig_activation activation;
    /* attention and decode with a score, and programs with one: 1 if a GPU compiles scores */
    uint32_t compiles_scores;
    uint64_t slots; /* bit s: the call has an array for fig_slot s */
    int64_t score;  /* attention and decode: the number of a known score; 0: none */
    int64_t width;  /* gated and norm: the width of out */
    /* rope: the largest number of offsets; a run's number follows from the array's bytes */
    int64_t segments;
    int64_t positions; /* rope: number of positions in cos_sin */
    int32_t q_heads, kv_heads, head_dim;
    fig_kv_layout layout;
    int32_t page_size; /* 0: dense */
    int32_t kv_limit;  /* a power of two */
    int32_t scales;    /* the size of k_scale and v_scale: 1 or kv_heads */
    int32_t window;    /* tokens that a query sees; 0: all */
    /* append, attention and decode: the query tokens of a row; in a packed program, the most that a
     * row may have. 0: 1 */
    int32_t row_tokens;
    int32_t deterministic; /* 1: a row's bits depend only on its own length */
    float soft_cap, sm_scale;
    float epsilon, weight_offset;                /* norm; latent_decode has epsilon, too */
    int32_t score_counts[FIG_SCORE_ARRAY_LIMIT]; /* the elements of the score's arrays */
    fig_rope_spec rope;                          /* decode: rotary_dim 0: q and k are not rotated */
    uint8_t content[32];                         /* program: its content id */
} fig_recipe;
static_assert(sizeof(fig_recipe) == 32 + 40 + 56 + 32 + sizeof(fig_rope_spec) + 32,
              "no byte without a field");

/* The names of the arguments in which calls pass the arrays of a score. */
extern const char *const fig_recipe_score_arrays[FIG_SCORE_ARRAY_LIMIT];

/* Returns the number of query tokens of a row, at least 1. */
int32_t fig_recipe_tokens(const fig_recipe *recipe);
int fig_recipe_is_packed(const fig_recipe *recipe);
/* Returns 1 if the operation works on a latent cache. */
int fig_recipe_is_latent(const fig_recipe *recipe);
int fig_recipe_has(const fig_recipe *recipe, fig_slot slot);
/* Fails unless the number is 512, for a latent cache, or 0, for a cache with K and V of each KV
 * head. */
fig_status fig_recipe_check_latent_dim(int64_t latent_dim);
/* On entry, *tokens is the number of tokens that fit into a sequence's cache or its row of the page
 * table. Sets *tokens to the largest number of tokens to plan for, and *kv_limit to the recipe's
 * kv_limit. With lengths on the device, sequences may be shorter than their room, so a page table
 * may have any width: *tokens is reduced to at most FIG_KV_LIMIT, and longer rows are idle. Without
 * lengths each row fills its room, so the call returns FIG_TOO_LARGE if *tokens is above
 * FIG_KV_LIMIT. */
fig_status fig_recipe_round_tokens(int64_t *tokens, int has_lengths, int32_t *kv_limit);
/* Records, finishes and lowers the program of a recipe whose kind is not FIG_RECIPE_PROGRAM. Its
 * tensors are the recipe's slots, in order. */
fig_status fig_recipe_make(const fig_recipe *recipe, fig_graphs **graphs);

#endif

/* invoke.h: describes one foreign call of either interface, and runs it on a runner.
 *
 * The describe function of an operation checks the caller's arrays and scalars. It fills in the
 * recipe, which selects the runner, and the arguments of the run; invoke.c then runs it. Owns the
 * meaning of the operations' arguments. Invariant: nothing is launched unless all arguments are
 * valid. */
#ifndef FIG_FFI_INVOKE_H
#define FIG_FFI_INVOKE_H

#include "ffi/array.h"
#include "ffi/recipe.h"

typedef struct fig_invoke {
    fig_recipe recipe;
    const fig_array *arrays[FIG_SLOT_COUNT]; /* [fig_slot]; NULL: the recipe lacks the slot */
    int64_t rows, kv_length;
    int64_t tokens;      /* for a packed call: query tokens that its arrays have room for */
    const char *segment; /* a segment of a program; NULL: the whole program */
    void *plan;          /* NULL: the run makes its own */
    uint64_t plan_bytes;
    void *scratch;
    uint64_t scratch_bytes; /* limits how finely a plan cuts the work */
    void *stream;           /* on a GPU NULL is the default stream */
    int plans;              /* 1: the run only makes `plan` */
    int loads_only;         /* 1: the call only loads kernels, and runs nothing */
} fig_invoke;

/* input, residual and out are [rows][width]; out may be input. With a residual, input is added to
 * it and the sum is normalised. */
typedef struct fig_invoke_norm {
    fig_array input, residual, weight, out; /* weight: [width] */
    double epsilon, weight_offset;
} fig_invoke_norm;

typedef struct fig_invoke_rope {
    /* [rows][heads][head_dim]; only the last stride must be 1; q_out may be q, and k_out may be
     * k */
    fig_array q, k, q_out, k_out;
    fig_array positions, indptr, offsets, cos_sin; /* either positions, or indptr and offsets */
    fig_rope_spec rope;
} fig_invoke_rope;

/* Rows with different numbers of query tokens, in calls with a query_start_loc, i32 [rows + 1]:
 * row r has the tokens from query_start_loc[r] up to query_start_loc[r + 1], and the first dim of
 * q, k, v, out and lse counts all tokens. Lengths are then required; they give the number of rows.
 */
typedef struct fig_invoke_queries {
    fig_array start_loc;
    int64_t row_tokens; /* the most that a row may have; 0: the most that any call takes */
} fig_invoke_queries;

/* q and out are [rows][q_heads][head_dim], or [rows][tokens][q_heads][head_dim] with the last
 * tokens of each sequence; only their last stride must be 1. A call with one row may leave out the
 * first dim of q, out and lse, and then of k and v too. A page table or a dense cache may have more
 * rows than the call; the surplus rows are not touched. */
typedef struct fig_invoke_attention {
    fig_array q, out, lse;
    /* [pages][page_size][kv_heads][head_dim] with a page_table, otherwise
     * [rows][tokens][kv_heads][head_dim]; `layout` gives the order in memory */
    fig_array k, v;
    fig_array page_table, lengths; /* i32; without lengths each row has all tokens of its cache */
    fig_array k_scale, v_scale, sinks, alibi;
    int64_t layout;      /* 0: NHD, 1: HND */
    int64_t window_left; /* tokens that a query sees before its own; negative: all */
    double soft_cap, sm_scale;
    int64_t deterministic; /* not 0: a row's bits depend only on its own length */
    fig_invoke_queries queries;
    int64_t score; /* the number of a known score; 0: none */
    fig_array score_arrays[FIG_SCORE_ARRAY_LIMIT];
} fig_invoke_attention;

typedef struct fig_invoke_append {
    /* [rows][kv_heads][head_dim] or [rows][tokens]..., like the q of attention */
    fig_array k, v;
    fig_array k_cache, v_cache, page_table, lengths, k_scale, v_scale;
    int64_t layout;
    fig_invoke_queries queries;
} fig_invoke_append;

/* A call for the newest tokens of each sequence: q and k are rotated by the tokens' positions, k
 * and v are appended to the cache, and q attends to the whole cache. The call may overwrite q and k
 * with the rotated values. */
typedef struct fig_invoke_decode {
    fig_invoke_attention attention; /* its k and v are the cache; lengths are required */
    fig_array k, v;                 /* the new tokens; shaped like q except for the heads */
    fig_array positions, cos_sin;   /* as in fig_invoke_rope; both may be absent */
    fig_rope_spec rope;
    int plain; /* 1: q and k are not rotated */
} fig_invoke_decode;

/* A call over a latent cache, which has one vector of 512 + 64 numbers for a token. q is
 * [rows][q_heads][576], or [rows][tokens][q_heads][576] with the last tokens of each sequence; out
 * has the dims of q, but 512 values a head. If q_rope is given, it has the last 64 values of each
 * head, and q has 512. */
typedef struct fig_invoke_latent {
    fig_array q, q_rope, out, lse;
    /* [pages][page_size][576] with a page_table, otherwise [rows][tokens][576], of q's dtype; or
     * [..][..][656] bytes of codes, as figraph.h describes them */
    fig_array cache;
    fig_array page_table, lengths, sinks; /* as in fig_invoke_attention */
    int64_t window_left;
    double sm_scale; /* above 0 */
    int64_t deterministic;
    fig_invoke_queries queries;
    /* Only latent_decode has these fields, and it also requires lengths. latent: the new tokens,
     * [rows][576] or [rows][tokens][576]. norm: [512]; absent: there is no norm. The call may
     * overwrite the last 64 values of each head of q, or q_rope. */
    fig_array latent, norm, positions, cos_sin;
    fig_rope_spec rope;
    double norm_epsilon; /* 0: the default */
} fig_invoke_latent;

/* The values on which a plan depends. They must equal those of the attention calls that read the
 * plan. */
typedef struct fig_invoke_plan {
    fig_array lengths, out, scratch; /* out and scratch are arrays of bytes */
    fig_array positions;             /* i32 [rows] of each row's last token; absent: length - 1 */
    fig_dtype dtype, kv_dtype;
    int64_t q_heads, kv_heads, head_dim, page_size; /* page_size: 0: dense */
    int64_t kv_length, window_left;
    int64_t row_tokens, deterministic;
    fig_array query_start_loc; /* i32 [rows + 1]; absent: each row has row_tokens query tokens */
    int64_t tokens;     /* with query_start_loc: tokens of q in calls under the plan; 0: any */
    int64_t latent_dim; /* 512: the cache is latent; with kv_dtype FIG_E4M3 it has codes. 0: not */
} fig_invoke_plan;

/* Each function fills *invoke except stream and loads_only, which the caller sets. *invoke points
 * to the given arrays, so they must outlive it. The functions that take a cache reduce the caller's
 * arrays to the parts that the call uses: rows and tokens become one dim, and surplus rows of the
 * cache are cut off. */
fig_status fig_invoke_gated_describe(fig_invoke *invoke, fig_activation activation,
                                     const fig_array *input, const fig_array *out);
fig_status fig_invoke_norm_describe(fig_invoke *invoke, const fig_invoke_norm *norm);
fig_status fig_invoke_rope_describe(fig_invoke *invoke, const fig_invoke_rope *rope);
fig_status fig_invoke_attention_describe(fig_invoke *invoke, fig_invoke_attention *attention);
fig_status fig_invoke_append_describe(fig_invoke *invoke, fig_invoke_append *append);
fig_status fig_invoke_decode_describe(fig_invoke *invoke, fig_invoke_decode *decode);
fig_status fig_invoke_latent_describe(fig_invoke *invoke, fig_invoke_latent *latent);
fig_status fig_invoke_latent_describe_decode(fig_invoke *invoke, fig_invoke_latent *latent);

/* Describes the call that makes the plan which the attention calls of all layers share. The plan is
 * made from lengths, i32 [rows], on the device. kv_length is the largest number of tokens of a row.
 * The run also zeroes the scratch, which the layers use one after another. */
fig_status fig_invoke_attention_describe_plan(fig_invoke *invoke, const fig_invoke_plan *plan);

/* For describe functions: the first function takes the positions of `tokens` query tokens, the
 * second the table of cosines and sines. Both arrays may be absent. */
fig_status fig_invoke_rope_take_positions(fig_invoke *invoke, const fig_array *positions,
                                          int64_t tokens);
fig_status fig_invoke_rope_take_cos_sin(fig_invoke *invoke, const fig_array *cos_sin);

/* For describe functions: sets the array of a slot and checks that it is on the call's device.
 * Ignores an absent array. */
void fig_invoke_add(fig_invoke *invoke, fig_slot slot, const fig_array *array);

/* Finds the GPU of the current context, for interfaces that do not name a GPU. */
fig_status fig_invoke_current_gpu(int32_t *ordinal);

/* These two set the scratch, and the plan if it is present; neither array may have gaps. */
fig_status fig_invoke_lend(fig_invoke *invoke, const fig_array *scratch);
fig_status fig_invoke_lend_plan(fig_invoke *invoke, const fig_array *plan);
fig_status fig_invoke_run(const fig_invoke *invoke);
/* Runs with the given bindings instead of arrays. */
fig_status fig_invoke_launch(const fig_invoke *invoke, const fig_binding *bindings, int32_t count);

#endif

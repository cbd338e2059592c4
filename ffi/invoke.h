/* invoke.h: one call from outside, whichever interface it came through, on its way to a runner.
 *
 * An operation's describe checks the caller's arrays and scalars and fills in what the runner needs
 * and what chooses it; invoke.c runs that. Owns what the operations mean by their arguments.
 * Invariant: nothing is launched unless all that was asked is sound. */
#ifndef FIG_FFI_INVOKE_H
#define FIG_FFI_INVOKE_H

#include "ffi/array.h"
#include "ffi/recipe.h"

typedef struct fig_invoke {
    fig_recipe recipe;
    const fig_array *arrays[FIG_SLOT_COUNT]; /* of the recipe's slots; others NULL */
    int64_t rows, kv_length;
    const char *segment; /* of a program; NULL: all */
    void *plan;          /* NULL: the run makes its own */
    uint64_t plan_bytes;
    void *scratch; /* of scratch_bytes, which decide how a plan cuts the work */
    uint64_t scratch_bytes;
    void *stream;   /* cuda: NULL is the default stream */
    int plans;      /* 1: the run is the making of `plan` alone */
    int loads_only; /* 1: kernels are made ready, and nothing runs */
} fig_invoke;

/* input, residual and out are [rows][width]; out may be input. Where there is a residual, input is
 * added to it, and that sum is normalised. */
typedef struct fig_invoke_norm {
    fig_array input, residual, weight, out; /* weight: [width] */
    double epsilon, weight_offset;
} fig_invoke_norm;

typedef struct fig_invoke_rope {
    fig_array q, k, q_out, k_out;                  /* [rows][heads][head_dim], any strides but the
                                                     last; an out may be its in */
    fig_array positions, indptr, offsets, cos_sin; /* positions, or indptr and offsets */
    fig_rope_spec rope;
} fig_invoke_rope;

/* q and out are [rows][q_heads][head_dim], q of any strides but the last; or without the first dim,
 * and then without it in lse and in k and v too, where there is one row. */
typedef struct fig_invoke_attention {
    fig_array q, out, lse;
    fig_array k, v;                /* [pages][page_size][kv_heads][head_dim] with page_table; else
                                      [rows][tokens][kv_heads][head_dim]; in memory of `layout` */
    fig_array page_table, lengths; /* i32; without lengths a row has all of its tokens */
    fig_array k_scale, v_scale, sinks, alibi;
    int64_t layout;      /* 0: NHD, 1: HND */
    int64_t window_left; /* tokens seen before a row's own; below 0: all */
    double soft_cap, sm_scale;
} fig_invoke_attention;

typedef struct fig_invoke_append {
    fig_array k, v; /* [rows][kv_heads][head_dim], any strides but the last */
    fig_array k_cache, v_cache, page_table, lengths, k_scale, v_scale;
    int64_t layout;
} fig_invoke_append;

/* One token of each sequence: q and k, [rows][heads][head_dim], are turned to where it stands, k
 * and v go into the cache, and q attends to all there is. Whether q and k stay turned is open. */
typedef struct fig_invoke_decode {
    fig_invoke_attention attention; /* its k and v are the cache; lengths are there */
    fig_array k, v;                 /* of the token, any strides but the last */
    fig_rope_spec rope;
} fig_invoke_decode;

/* A plan follows from all of this, as attention that reads it has it. */
typedef struct fig_invoke_plan {
    fig_array lengths, out, scratch; /* out and scratch: bytes */
    fig_dtype dtype, kv_dtype;
    int64_t q_heads, kv_heads, head_dim, page_size; /* page_size: 0: dense */
    int64_t kv_length, window_left;
} fig_invoke_plan;

/* Each fills *invoke, whose stream and loads_only are the caller's; arrays stay where they are. */
fig_status fig_invoke_gated_describe(fig_invoke *invoke, fig_activation activation,
                                     const fig_array *input, const fig_array *out);
fig_status fig_invoke_norm_describe(fig_invoke *invoke, const fig_invoke_norm *norm);
fig_status fig_invoke_rope_describe(fig_invoke *invoke, const fig_invoke_rope *rope);
fig_status fig_invoke_attention_describe(fig_invoke *invoke, const fig_invoke_attention *attention);
fig_status fig_invoke_append_describe(fig_invoke *invoke, const fig_invoke_append *append);
fig_status fig_invoke_decode_describe(fig_invoke *invoke, const fig_invoke_decode *decode);

/* The plan that attention of such rows shares, in all layers: of their lengths, i32 [rows], on the
 * device. kv_length is the most tokens of a row. Scratch, which those share by turns, is put to
 * zeros. */
fig_status fig_invoke_attention_describe_plan(fig_invoke *invoke, const fig_invoke_plan *plan);

/* For descriptions: an array for a slot, on the device of those before it. Absent ones are passed
 * over. */
void fig_invoke_add(fig_invoke *invoke, fig_slot slot, const fig_array *array);

/* The GPU whose context is current, for a caller that cannot name one. */
fig_status fig_invoke_current_gpu(int32_t *ordinal);

/* Memory of `scratch`, where it is there. */
fig_status fig_invoke_lend(fig_invoke *invoke, const fig_array *scratch);
void fig_invoke_lend_plan(fig_invoke *invoke, const fig_array *plan);
fig_status fig_invoke_run(const fig_invoke *invoke);
/* The same with bindings that are made already, in place of arrays. */
fig_status fig_invoke_launch(const fig_invoke *invoke, const fig_binding *bindings, int32_t count);

#endif

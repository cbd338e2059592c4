/* params.h: the one argument of each kernel. Read by nvcc, by the twins and by table.c.
 *
 * Pointers are device addresses on cuda and host addresses on the host device; lowering leaves each
 * zero beside a relocation. `plan` is the device's copy of the step's plan; its rows decide how
 * many rows a kernel does, never the grid. Strides are in elements and known at bind. Invariant:
 * every byte belongs to exactly one field of table.c, so a struct has no hidden padding. */
#ifndef FIG_KERNELS_PARAMS_H
#define FIG_KERNELS_PARAMS_H

#include <stddef.h>

#include "planner/plan.h"
#include "include/figraph.h"

static_assert(sizeof(void *) == 8, "addresses are eight bytes in params");

/* What a fetch tells the host, in memory that both see. */
typedef struct fig_fetch_words {
    uint64_t consumed; /* sequence number of the last plan that left its slot */
    uint64_t missed;   /* replays that found no plan for them and ran zero rows */
} fig_fetch_words;

/* Copies the next slot of the ring to `plan`: the one whose sequence number is *cursor + 1. Where
 * it is not there, or was planned for another bucket, it leaves a plan of zero rows. */
typedef struct fig_fetch_params {
    const uint8_t *ring; /* [slot_count][slot_bytes] */
    uint8_t *plan;
    uint64_t *cursor; /* sequence number of the last plan fetched */
    fig_fetch_words *words;
    uint32_t slot_count, slot_bytes;
    uint32_t bucket, plan_bytes; /* most that a plan of this bucket may use */
} fig_fetch_params;
static_assert(sizeof(fig_fetch_params) == 48, "ABI");

typedef struct fig_silu_and_mul_params {
    const void *in; /* [rows][2 * width] */
    void *out;      /* [rows][width] */
    const uint8_t *plan;
    int64_t in_stride, out_stride;
    int32_t row_limit, width;
    int32_t dtype;
    uint32_t reserved;
} fig_silu_and_mul_params;
static_assert(sizeof(fig_silu_and_mul_params) == 56, "ABI");

/* [rows][heads][head_dim] */
typedef struct fig_row_strides {
    int64_t row, head;
} fig_row_strides;

typedef struct fig_rope_params {
    const void *q, *k;
    void *q_out, *k_out;
    const void *positions; /* [rows] of positions_dtype; NULL: the plan's */
    const uint8_t *plan;
    fig_row_strides q_strides, k_strides, q_out_strides, k_out_strides;
    fig_rope_spec rope;
    uint32_t positions_offset; /* into plan */
    int32_t row_limit, q_heads, k_heads, head_dim;
    int32_t dtype, positions_dtype;
} fig_rope_params;
static_assert(sizeof(fig_rope_spec) == 28, "ABI");
static_assert(sizeof(fig_rope_params) == 168, "ABI");

/* [pages][page_size][kv_heads][head_dim] */
typedef struct fig_cache_strides {
    int64_t page, token, head;
} fig_cache_strides;

typedef struct fig_append_kv_params {
    const void *k, *v; /* [rows][kv_heads][head_dim] */
    void *k_cache, *v_cache;
    const int32_t *page_table; /* [sequences][table_stride]; NULL: page s is sequence s */
    const uint8_t *plan;
    fig_row_strides k_strides, v_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t table_stride;
    int64_t k_pages, v_pages;
    uint32_t lengths_offset, sequences_offset; /* into plan */
    int32_t row_limit, page_size, kv_heads, head_dim;
    int32_t dtype;
    uint32_t reserved;
} fig_append_kv_params;
static_assert(sizeof(fig_append_kv_params) == 184, "ABI");

/* A worker reads heads_per_worker kv heads at a time: group g is heads [g * n, (g + 1) * n). Its
 * q heads are as many times q_heads / kv_heads. */
typedef struct fig_attention_params {
    const void *q; /* [rows][q_heads][head_dim] */
    const void *k_cache, *v_cache;
    void *out;  /* [rows][q_heads][head_dim] */
    float *lse; /* [rows][q_heads], base 2; NULL: not wanted */
    const int32_t *page_table;
    const uint8_t *plan;
    float *partials;    /* [partial limit][q heads of a group][head_dim] */
    float *sums;        /* [partial limit][q heads of a group][2]: greatest logit, sum of weights */
    uint32_t *counters; /* [row_limit][groups]; pieces that have finished; 0 between replays */
    fig_row_strides q_strides, out_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t lse_stride, table_stride;
    int64_t k_pages, v_pages;
    fig_split_shape split;
    uint32_t lengths_offset, sequences_offset, prefix_offset, starts_offset; /* into plan */
    int32_t q_heads, kv_heads, head_dim, heads_per_worker;
    int32_t page_size, dtype;
    float sm_scale;
    uint32_t reserved;
} fig_attention_params;
static_assert(offsetof(fig_attention_params, split) == 192, "ABI");
static_assert(sizeof(fig_attention_params) == 256, "ABI");

#endif

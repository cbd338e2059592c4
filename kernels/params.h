/* params.h: the one argument of each kernel. Read by nvcc, by the twins and by table.c.
 *
 * Pointers are device addresses on cuda and host addresses on the host device; lowering leaves each
 * zero beside a relocation. `plan` is the device's copy of the step's plan; its rows decide how
 * many rows a kernel does, never the grid. Strides are in elements and known at bind. Invariant:
 * every byte belongs to exactly one field of table.c, so a struct has no hidden padding. */
#ifndef FIG_KERNELS_PARAMS_H
#define FIG_KERNELS_PARAMS_H

#include <stdalign.h>
#include <stddef.h>

#include "kernels/peers.h"
#include "planner/plan.h"
#include "include/figraph.h"

static_assert(sizeof(void *) == 8, "addresses are eight bytes in params");

/* What the driver makes of a fig_tensor_map_recipe, as a kernel reads it from its params. */
enum { FIG_TENSOR_MAP_RANK_LIMIT = 5 };
typedef struct fig_tensor_map {
    alignas(64) uint8_t bytes[128];
} fig_tensor_map;
static_assert(sizeof(fig_tensor_map) == 128, "ABI");

/* What the device tells the host, in memory that both see. */
typedef struct fig_fetch_words {
    uint64_t consumed; /* number of the last plan that left its slot */
    uint64_t replays;  /* launches that ran under a plan */
    uint64_t missed;   /* launches that found no plan for them and ran zero rows */
    uint64_t torn;     /* of those, the ones whose plan did not match its checksum */
} fig_fetch_words;

/* How far the device is: its own memory, which nobody else writes. The slot behind it holds plan
 * number `ahead`, where that is not 0: taken out of the ring before its launch. */
typedef struct fig_fetch_state {
    uint64_t number; /* of the last plan fetched */
    uint64_t replays;
    uint64_t ahead;
    int32_t left;  /* launches that the last plan is still for */
    int32_t rows;  /* of the last plan */
    uint32_t held; /* 1 + the exec whose sections the plan holds; 0: it holds none */
    uint32_t reserved[7];
} fig_fetch_state;
static_assert(sizeof(fig_fetch_state) == 64, "the slot behind it is aligned");

/* Fetches of no exec: one drops what is left of a horizon, and what was taken ahead; the other
 * forgets what was taken ahead, and leaves a horizon that is under way. */
#define FIG_FETCH_DROP UINT32_MAX
#define FIG_FETCH_FORGET (UINT32_MAX - 1)

/* Makes `plan` the step's. Where launches are left to the last plan, its rows grow; else the plan
 * of number state->number + 1 is taken, from behind the state or out of the ring, and the page
 * tables are changed as it says. Where it is not there, is another bucket's or not whole, the plan
 * becomes one of zero rows. */
typedef struct fig_fetch_params {
    const uint8_t *ring; /* [slot_count][slot_bytes] */
    uint8_t *plan;
    fig_fetch_state *state;
    fig_fetch_words *words;
    fig_plan_shape shape; /* exec FIG_FETCH_DROP or FORGET: the rest is unread */
    uint32_t slot_count, slot_bytes;
    uint32_t tells; /* 1: tells the host what it did; 0: a look ahead behind it will */
} fig_fetch_params;
static_assert(sizeof(fig_fetch_params) == 240, "ABI");

/* Runs beside the later part of a graph: tells the host how far the device is, and takes the next
 * plan out of the ring, where it is there already, so that the next fetch need not wait for the
 * bus. */
typedef struct fig_look_ahead_params {
    const uint8_t *ring;
    fig_fetch_state *state;
    fig_fetch_words *words;
    uint32_t slot_count, slot_bytes;
} fig_look_ahead_params;
static_assert(sizeof(fig_look_ahead_params) == 32, "ABI");

/* Reads memory from end to end: how fast this machine can is what an operation is judged by. */
typedef struct fig_ceiling_params {
    const uint8_t *in;
    uint64_t *out;           /* changed by exclusive or with every word that was read */
    uint32_t pieces, blocks; /* of 16 bytes */
} fig_ceiling_params;
static_assert(sizeof(fig_ceiling_params) == 24, "ABI");

/* What the device makes a plan of where the host does not know the lengths: lengths, positions and
 * every class's split are written by the code that the host would have used. Of an engine's step
 * head and sequences are there, fetched, and a step that breaks a bound of the bucket becomes one
 * of zero rows. A run has neither: where `rows` says how many it has, both are written, row r being
 * sequence r, and no bound can be broken. A run also has scratch put to zeros. */
typedef struct fig_plan_params {
    const int32_t *lengths;   /* [rows]; NULL: each is `length` */
    const int32_t *positions; /* [rows]; NULL: length - 1 */
    uint8_t *plan;            /* NULL: nothing is planned */
    fig_fetch_words *words;   /* missed counts a step that became one of zero rows */
    void *zeros;              /* [zero_pieces] of 16 bytes; NULL: none */
    fig_plan_shape shape;
    int32_t kv_limit;
    int32_t rows; /* of a run; 0: those of the plan's head */
    int32_t length;
    uint32_t zero_pieces, reserved;
} fig_plan_params;
static_assert(sizeof(fig_plan_params) == 256, "ABI");

/* Of a kernel that works row by row: at most row_limit rows, `multiple` for each of the plan's. */
typedef struct fig_rows {
    int32_t row_limit, multiple;
} fig_rows;

/* EARLY: nothing that makes the plan is one launch up, so that the plan may be read before
 * fig_block_wait, and the launches behind may begin at once. */
enum { FIG_HASTE_EARLY = 1 };

/* Those that the step has; without a plan, all. */
FIG_BOTH int32_t fig_params_rows(const fig_rows *rows, const uint8_t *plan) {
    if (plan == NULL) return rows->row_limit;
    return ((const fig_plan_head *)plan)->rows * rows->multiple;
}

typedef struct fig_gated_params {
    const void *in; /* [rows][2 * width] */
    void *out;      /* [rows][width] */
    const uint8_t *plan;
    int64_t in_stride, out_stride;
    fig_rows rows;
    int32_t width, dtype;
    int32_t activation; /* fig_activation */
    uint32_t haste;     /* FIG_HASTE_* */
} fig_gated_params;
static_assert(sizeof(fig_gated_params) == 64, "ABI");

typedef struct fig_rms_norm_params {
    const void *in;     /* [rows][width] */
    const void *weight; /* [width] */
    void *out;          /* [rows][width] */
    void *residual;     /* [rows][width]; NULL: none */
    const uint8_t *plan;
    int64_t in_stride, out_stride, residual_stride;
    fig_rows rows;
    int32_t width, dtype;
    float epsilon, weight_offset;
} fig_rms_norm_params;
static_assert(sizeof(fig_rms_norm_params) == 88, "ABI");

/* out = the sum of what all ranks have in `in`, added up in their order in f32 and rounded once.
 * With a weight that sum is what rms_norm finds in its `in`, beside a residual. Rows lie close
 * together, and a row is whole vectors of 16 bytes. */
typedef struct fig_all_reduce_params {
    const void *in;     /* [rows][width] */
    const void *weight; /* [width]; NULL: no norm, and no residual */
    void *out;          /* [rows][width] */
    void *residual;     /* [rows][width] */
    const uint8_t *plan;
    const fig_fetch_state *state;
    fig_peers *peers;
    fig_rows rows;
    int32_t width, dtype;
    float epsilon, weight_offset;
    uint32_t node;   /* of the program */
    uint32_t haste;  /* FIG_HASTE_* */
    int32_t ranks;   /* of the group */
    uint32_t routes; /* FIG_ROUTE_* that it may take; 0: nothing is bound yet */
} fig_all_reduce_params;
static_assert(sizeof(fig_all_reduce_params) == 96, "ABI");

/* out[row] = what each rank has in in[row], one behind another in their order. */
typedef struct fig_all_gather_params {
    const void *in; /* [rows][width] */
    void *out;      /* [rows][ranks * width] */
    const uint8_t *plan;
    const fig_fetch_state *state;
    fig_peers *peers;
    fig_rows rows;
    int32_t width, dtype;
    uint32_t node;  /* of the program */
    uint32_t haste; /* FIG_HASTE_* */
    int32_t ranks;  /* as in fig_all_reduce_params */
    uint32_t routes;
} fig_all_gather_params;
static_assert(sizeof(fig_all_gather_params) == 72, "ABI");

/* [rows][heads][head_dim] */
typedef struct fig_row_strides {
    int64_t row, head;
} fig_row_strides;

/* A resolved fig_rope_spec without its reserved words, as files hold it. Kernels read but the first
 * two, which pairs turn. */
typedef struct fig_rope_terms {
    int32_t interleaved, rotary_dim;
    float theta, scale;
    float llama3_factor, llama3_low, llama3_high;
    int32_t llama3_context;
} fig_rope_terms;
static_assert(sizeof(fig_rope_terms) == 32, "ABI");
static_assert(offsetof(fig_rope_spec, reserved) == sizeof(fig_rope_terms), "the same fields");

/* What the node's table says or, where it has none, what its terms come to: kernels know of no
 * formula. As long as makes attention's params whole, whose tensor maps lie at multiples of 64. */
typedef struct fig_rope_angles {
    fig_rope_table table;
    double reserved[7];
} fig_rope_angles;
static_assert(sizeof(fig_rope_angles) == 1088, "ABI");

/* A row that is in no segment is not written; a position outside cos_sin reads as the nearest one
 * in it. */
typedef struct fig_rope_params {
    const void *q, *k;
    void *q_out, *k_out;
    const void *positions;        /* [rows] of positions_dtype; NULL: the plan's, or packed */
    const void *indptr, *offsets; /* [segments + 1], [segments] of packed_dtype; NULL: not packed */
    const float *cos_sin;         /* [cos_sin_rows][rotary_dim]; NULL: computed */
    const void *q_norm, *k_norm;  /* [head_dim]; NULL: none */
    const uint8_t *plan;
    fig_row_strides q_strides, k_strides, q_out_strides, k_out_strides;
    int64_t cos_sin_stride;
    fig_rope_terms rope;
    float norm_epsilon;
    uint32_t positions_offset; /* into plan */
    fig_rows rows;
    int32_t segments, cos_sin_rows;
    int32_t q_heads, k_heads, head_dim;
    int32_t dtype, positions_dtype, packed_dtype; /* the last two: FIG_I32 or FIG_I64 */
    fig_rope_angles angles;
} fig_rope_params;
static_assert(sizeof(fig_rope_params) == 1328, "ABI");

/* [pages][page_size][kv_heads][head_dim] */
typedef struct fig_cache_strides {
    int64_t page, token, head;
} fig_cache_strides;

/* Row r of the plan has row_tokens rows here, the last tokens of its sequence; where the plan says
 * how many of them are tokens, only the last so many are written. */
typedef struct fig_append_kv_params {
    const void *k, *v; /* [rows][kv_heads][head_dim] */
    void *k_cache, *v_cache;
    const int32_t *page_table;      /* [sequences][table_stride]; NULL: page s is sequence s */
    const float *k_scale, *v_scale; /* [scales]; NULL: 1 */
    const uint8_t *plan;
    fig_row_strides k_strides, v_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t table_stride;
    int64_t k_pages, v_pages;
    uint32_t lengths_offset, sequences_offset; /* into plan */
    fig_rows rows;
    int32_t page_size, kv_heads, head_dim;
    int32_t k_scales, v_scales; /* 0, 1 or kv_heads */
    int32_t dtype, kv_dtype;
    uint32_t tokens_offset; /* into plan; 0: a plan never says */
} fig_append_kv_params;
static_assert(sizeof(fig_append_kv_params) == 216, "ABI");

/* Both at once; q and k are turned in place. */
typedef struct fig_decode_attention_params {
    void *q;       /* [rows][q_heads][head_dim] */
    void *k;       /* [rows][kv_heads][head_dim] */
    const void *v; /* likewise */
    void *k_cache, *v_cache;
    const int32_t *page_table; /* as in fig_append_kv_params, and so are the scales */
    const float *k_scale, *v_scale;
    const void *positions; /* as in fig_rope_params, and so is what follows */
    const float *cos_sin;
    const void *q_norm, *k_norm;
    const uint8_t *plan;
    fig_row_strides q_strides, k_strides, v_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t cos_sin_stride, table_stride;
    int64_t k_pages, v_pages;
    fig_rope_terms rope;
    float norm_epsilon;
    uint32_t lengths_offset, sequences_offset, positions_offset; /* into plan */
    fig_rows rows;
    int32_t cos_sin_rows, page_size;
    int32_t q_heads, kv_heads, head_dim;
    int32_t k_scales, v_scales; /* 0, 1 or kv_heads */
    int32_t dtype, kv_dtype, positions_dtype;
    uint32_t tokens_offset; /* as in fig_append_kv_params */
    uint32_t haste;         /* FIG_HASTE_* */
    fig_rope_angles angles;
} fig_decode_attention_params;
static_assert(sizeof(fig_decode_attention_params) == 1424, "ABI");

/* EARLY: and the page table and tokens that the step itself does not append may be read before
 * fig_block_wait too. APART: no block waits for another of its launch, since it may not be running.
 * DENSE: there is no page table, and a sequence's one page may have any number of tokens. */
enum { FIG_ATTENTION_EARLY = FIG_HASTE_EARLY, FIG_ATTENTION_APART = 2, FIG_ATTENTION_DENSE = 4 };

/* Where attention turns and appends by itself, what it needs beside its own: as in
 * fig_decode_attention_params. */
typedef struct fig_attention_turn {
    const void *k, *v;
    const void *q_norm, *k_norm, *positions;
    const float *cos_sin;
    fig_row_strides k_strides, v_strides;
    fig_rope_terms rope; /* rotary_dim 0: what is read was turned and appended before */
    float norm_epsilon;
    uint32_t positions_offset, tokens_offset; /* into plan */
    uint32_t is_on; /* 1: the family that serves turns and appends, as it says in finish */
    fig_rope_angles angles;
} fig_attention_turn;
static_assert(sizeof(fig_attention_turn) == 1216, "ABI");

/* A worker reads heads_per_worker kv heads at a time: group g is heads [g * n, (g + 1) * n). Its
 * q heads are as many times q_heads / kv_heads, and its vectors as many times row_tokens, ordered
 * [token][q head of the group]. */
typedef struct fig_attention_params {
    fig_tensor_map k_map, v_map; /* for the family that has the bulk copy engine read them */
    const void *q;               /* [rows][q_heads][head_dim] */
    const void *k_cache, *v_cache;
    void *out;  /* [rows][q_heads][head_dim] */
    float *lse; /* [rows][q_heads], base 2; NULL: not wanted */
    const int32_t *page_table;
    const float *k_scale, *v_scale; /* [scales]; NULL: 1 */
    const float *sinks, *alibi;     /* [q_heads]; NULL: none */
    const uint8_t *plan;
    float *partials;    /* [partial limit][vectors of a group][head_dim] */
    float *sums;        /* [partial limit][vectors of a group][2]: greatest logit, sum of weights */
    uint32_t *counters; /* [row_limit][groups]; pieces that have finished; 0 between replays */
    fig_row_strides q_strides, out_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t lse_stride, table_stride;
    int64_t k_pages, v_pages;
    fig_split_shape split;
    uint32_t lengths_offset, sequences_offset, prefix_offset, starts_offset; /* into plan */
    int32_t q_heads, kv_heads, head_dim, heads_per_worker;
    int32_t page_size, dtype, kv_dtype;
    int32_t k_scales, v_scales; /* 0, 1 or kv_heads */
    float sm_scale, soft_cap;
    uint32_t flags; /* FIG_ATTENTION_* */
    fig_attention_turn turn;
} fig_attention_params;
static_assert(sizeof(fig_attention_params) == 1792, "ABI");

/* Attention over a dense cache by rows of one length, which the host knows. */
typedef struct fig_whole_attention_params {
    const void *q;                 /* [rows][q_heads][head_dim] */
    const void *k_cache, *v_cache; /* [rows][tokens][kv_heads][head_dim] */
    void *out;                     /* as q */
    float *lse;                    /* [rows][q_heads], base 2; NULL: not wanted */
    fig_row_strides q_strides, out_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t lse_stride;
    int32_t rows, length; /* length: 1 at least */
    int32_t q_heads, kv_heads, head_dim, dtype;
    float scale; /* of a logit */
    uint32_t reserved;
} fig_whole_attention_params;
static_assert(sizeof(fig_whole_attention_params) == 160, "ABI");

typedef struct fig_merge_states_params {
    const void *out_a, *out_b;  /* [rows][heads][head_dim] */
    const float *lse_a, *lse_b; /* [rows][heads], base 2 */
    void *out;
    float *lse; /* NULL: not wanted */
    const uint8_t *plan;
    fig_row_strides out_a_strides, out_b_strides, out_strides;
    int64_t lse_a_stride, lse_b_stride, lse_stride;
    fig_rows rows;
    int32_t heads, head_dim, dtype;
    uint32_t reserved;
} fig_merge_states_params;
static_assert(sizeof(fig_merge_states_params) == 152, "ABI");

#endif

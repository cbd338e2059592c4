/* params.h: defines the one argument of each kernel.
 *
 * nvcc, the reference kernels and table.c read this header. Pointers are device addresses on cuda
 * and host addresses on the host device. Lowering writes each pointer as zero, with a relocation.
 * `plan` is the device's copy of the step's plan. The plan's rows, never the grid, decide how many
 * rows a kernel processes. Strides count elements and are known at bind. Invariant: every byte
 * belongs to exactly one field of table.c, so a struct has no hidden padding. */
#ifndef FIG_KERNELS_PARAMS_H
#define FIG_KERNELS_PARAMS_H

#include <stdalign.h>
#include <stddef.h>

#include "include/figraph.h"
#include "kernels/common/peers.h"
#include "planner/plans/plan.h"
#include "planner/scores/score_value.h"

static_assert(sizeof(void *) == 8, "addresses are eight bytes in params");

/* The driver's encoding of a fig_tensor_map_recipe; the kernel reads it from its params. */
enum { FIG_TENSOR_MAP_RANK_LIMIT = 5 };
typedef struct fig_tensor_map {
    alignas(64) uint8_t bytes[128];
} fig_tensor_map;
static_assert(sizeof(fig_tensor_map) == 128, "ABI");

/* The device's reports to the host, in memory that both can access. */
typedef struct fig_fetch_words {
    uint64_t consumed; /* number of the last plan whose slot is free again */
    uint64_t replays;  /* launches that ran under a plan */
    uint64_t missed;   /* launches without a plan of their own, which ran zero rows */
    uint64_t torn;     /* those of `missed` whose plan did not match its checksum */
    /* those of `missed` whose plan was staged before the host knew of an earlier, damaged one */
    uint64_t late;
} fig_fetch_words;

/* Holds the device's progress, in memory that only the device writes. A slot follows the struct in
 * memory. If `ahead` is not 0, an earlier launch has already copied plan number `ahead` from the
 * ring to this slot. */
typedef struct fig_fetch_state {
    uint64_t number; /* number of the last plan that was fetched */
    uint64_t replays;
    uint64_t ahead;
    int32_t left;  /* launches that remain for that plan */
    int32_t rows;  /* rows of that plan */
    uint32_t held; /* 1 + the exec whose sections the plan holds; 0: it holds no sections */
    uint32_t torn; /* damaged plans so far; later plans must have this stamp */
    uint32_t reserved[6];
} fig_fetch_state;
static_assert(sizeof(fig_fetch_state) == 64, "the slot behind it is aligned");

/* Values of `exec` for fetches that belong to no exec. FIG_FETCH_DROP discards the rest of a
 * horizon and the prefetched plan. FIG_FETCH_FORGET discards only the prefetched plan and keeps a
 * horizon that has begun. */
#define FIG_FETCH_DROP UINT32_MAX
#define FIG_FETCH_FORGET (UINT32_MAX - 1)

/* The fetch makes `plan` the plan of this step. If the last plan has launches left, its rows grow.
 * Otherwise the fetch takes plan number state->number + 1, from the slot after the state or from
 * the ring, and changes the page tables as that plan demands. If that plan is missing, belongs to
 * another bucket or is incomplete, `plan` gets zero rows. */
typedef struct fig_fetch_params {
    const uint8_t *ring; /* [slot_count][slot_bytes] */
    uint8_t *plan;
    fig_fetch_state *state;
    fig_fetch_words *words;
    fig_plan_shape shape; /* if exec is FIG_FETCH_DROP or FORGET, the rest is not read */
    uint32_t slot_count, slot_bytes;
    uint32_t tells; /* 1: reports its progress to the host; 0: a later look ahead reports it */
} fig_fetch_params;
static_assert(sizeof(fig_fetch_params) == 264, "ABI");

/* The look ahead runs beside the later part of a graph and reports the device's progress to the
 * host. If the next plan is already in the ring, the look ahead also copies that plan to the slot
 * after the state, so the next fetch need not wait for the bus. */
typedef struct fig_look_ahead_params {
    const uint8_t *ring;
    fig_fetch_state *state;
    fig_fetch_words *words;
    uint32_t slot_count, slot_bytes;
} fig_look_ahead_params;
static_assert(sizeof(fig_look_ahead_params) == 32, "ABI");

/* This operation reads memory from end to end. The speeds of other operations on the same machine
 * are compared with its speed. */
typedef struct fig_ceiling_params {
    const uint8_t *in;
    uint64_t *out;           /* the exclusive or of its old value and all words read */
    uint32_t pieces, blocks; /* pieces: number of 16-byte pieces */
} fig_ceiling_params;
static_assert(sizeof(fig_ceiling_params) == 24, "ABI");

/* This operation makes a plan on the device when the host does not know the lengths. By the host's
 * own rules it writes lengths, positions, the split of every class, and its strips if rows may be
 * chunks. In an engine's step, the fetch has already written head and sequences, and a step that
 * breaks a bound of the bucket gets zero rows. A run has no fetch. There `rows` gives the number of
 * rows, this operation also writes head and sequences, and row r is sequence r. The only bound that
 * a run can break is that of query tokens: such a run gets zero rows, and nothing counts it. The
 * operation also sets a run's scratch to zeros. */
typedef struct fig_plan_params {
    const int32_t *lengths;   /* [rows]; NULL: every length is `length` */
    const int32_t *positions; /* [rows]; NULL: length - 1 */
    /* [rows + 1] of a packed program, see figraph.h; NULL: each row has row_tokens query tokens */
    const int32_t *query_starts;
    uint8_t *plan;          /* NULL: nothing is planned */
    fig_fetch_words *words; /* `missed` counts a step that got zero rows */
    void *zeros;            /* [zero_pieces], pieces of 16 bytes; NULL: none */
    fig_plan_shape shape;
    int32_t kv_limit;
    int32_t rows; /* rows of a run; 0: take the rows of the plan's head */
    int32_t length;
    uint32_t zero_pieces, reserved;
    fig_plan_strips strips; /* read only if the plan has room for strips */
} fig_plan_params;
static_assert(sizeof(fig_plan_params) == 432, "ABI");

/* Gives the number of rows for a kernel that works row by row: `multiple` rows for each row of the
 * plan, and at most row_limit. If queries_offset is not 0, it is the offset of the plan's query
 * tokens, and there are `multiple` rows for each query token instead. */
typedef struct fig_rows {
    int32_t row_limit, multiple;
    uint32_t queries_offset, reserved;
} fig_rows;

/* FIG_EARLY_READS_ON: the launch right before this one does not make the plan. So this launch may
 * read the plan before fig_block_wait(), and the following launches may begin at once. */
enum { FIG_EARLY_READS_ON = 1 };

/* Returns the number of rows of the step, or all rows if there is no plan. The plan of a step
 * without rows may hold older query tokens. */
FIG_BOTH int32_t fig_params_rows(const fig_rows *rows, const uint8_t *plan) {
    if (plan == NULL) return rows->row_limit;
    int32_t count = ((const fig_plan_head *)plan)->rows;
    if (rows->queries_offset != 0 && count > 0)
        count = *(const int32_t *)(plan + rows->queries_offset);
    return count * rows->multiple;
}

/* Returns the number of rows with blocks of their own in a launch. A step of a packed program may
 * have far fewer query tokens than its bucket, and thousands of blocks that find no token take
 * longer than the tokens. So a block that handles a row also handles the row that is this number
 * behind it, and so on. Whatever the stride of rows, such rows are a multiple of 16 bytes apart. */
enum { FIG_PARAMS_ABREAST = 512 };
FIG_BOTH int32_t fig_params_abreast(const fig_rows *rows) {
    if (rows->queries_offset == 0) return rows->row_limit;
    return fig_size_min(rows->row_limit, FIG_PARAMS_ABREAST);
}

/* The place of a query token: its row in the plan, and the number of tokens from it to the end of
 * the row, itself included. */
typedef struct fig_params_query {
    int32_t row, before_end;
} fig_params_query;

/* Returns the place of query token `number`. A number past the step's last token gets some place
 * within the step's rows. */
FIG_BOTH fig_params_query fig_params_query_of(const fig_rows *rows, const uint8_t *plan,
                                              int32_t number) {
    fig_params_query query;
    if (rows->queries_offset == 0) {
        query.row = number / rows->multiple;
        query.before_end = rows->multiple - number % rows->multiple;
        return query;
    }
    const int32_t *starts = (const int32_t *)(plan + rows->queries_offset) + 1;
    query.row = fig_plan_row_of_query(plan, rows->queries_offset,
                                      ((const fig_plan_head *)plan)->rows, number);
    query.before_end = starts[query.row + 1] - number;
    return query;
}

typedef struct fig_gated_params {
    const void *in; /* [rows][2 * width] */
    void *out;      /* [rows][width] */
    const uint8_t *plan;
    int64_t in_stride, out_stride;
    fig_rows rows;
    int32_t width, dtype;
    int32_t activation;   /* fig_activation */
    uint32_t early_reads; /* FIG_EARLY_READS_* */
} fig_gated_params;
static_assert(sizeof(fig_gated_params) == 72, "ABI");

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
static_assert(sizeof(fig_rms_norm_params) == 96, "ABI");

/* out = the sum of `in` over all ranks, added up in f32 in the order of ranks and rounded once. If
 * there is a weight, that sum is then the `in` of an rms_norm with a residual. Rows are contiguous,
 * and a row is a whole number of 16-byte vectors. */
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
    uint32_t node;        /* number of the node in the program */
    uint32_t early_reads; /* FIG_EARLY_READS_* */
    int32_t ranks;        /* ranks in the group */
    uint32_t routes;      /* FIG_ROUTE_* that the message may take; 0: nothing is bound yet */
} fig_all_reduce_params;
static_assert(sizeof(fig_all_reduce_params) == 104, "ABI");

/* out[row] = in[row] of every rank, one after the other in the order of ranks. */
typedef struct fig_all_gather_params {
    const void *in; /* [rows][width] */
    void *out;      /* [rows][ranks * width] */
    const uint8_t *plan;
    const fig_fetch_state *state;
    fig_peers *peers;
    fig_rows rows;
    int32_t width, dtype;
    uint32_t node;        /* number of the node in the program */
    uint32_t early_reads; /* FIG_EARLY_READS_* */
    int32_t ranks;        /* as in fig_all_reduce_params */
    uint32_t routes;
} fig_all_gather_params;
static_assert(sizeof(fig_all_gather_params) == 80, "ABI");

/* [rows][heads][head_dim] */
typedef struct fig_row_strides {
    int64_t row, head;
} fig_row_strides;

/* A resolved fig_rope_spec without its reserved words, as files hold it. Kernels read only the
 * first two fields, which decide the pairs. */
typedef struct fig_rope_terms {
    int32_t interleaved, rotary_dim;
    float theta, scale;
    float llama3_factor, llama3_low, llama3_high;
    int32_t llama3_context;
} fig_rope_terms;
static_assert(sizeof(fig_rope_terms) == 32, "ABI");
static_assert(offsetof(fig_rope_spec, reserved) == sizeof(fig_rope_terms), "the same fields");

/* The node's table, or values computed from its terms if it has no table. Kernels contain no
 * formula for angles. The size of this struct keeps the tensor maps in attention's params at
 * multiples of 64. */
typedef struct fig_rope_angles {
    fig_rope_table table;
    double reserved[6];
} fig_rope_angles;
static_assert(sizeof(fig_rope_angles) == 1080, "ABI");

/* Returns 1 if the node rotates nothing. All frequencies of a rotation are above 0. Heads without a
 * norm then keep their bits; with cosines of 1 and sines of 0, a zero could lose its sign. */
FIG_BOTH int32_t fig_params_is_still(const fig_rope_angles *angles) {
    return angles->table.frequencies[0] == 0;
}

/* A row in no segment is not written. If a position is outside cos_sin, the nearest row of cos_sin
 * is read. */
typedef struct fig_rope_params {
    const void *q, *k;
    void *q_out, *k_out;
    const void *positions;        /* [rows] of positions_dtype; NULL: by indptr, else the plan's */
    const void *indptr, *offsets; /* [segments + 1], [segments] of packed_dtype; NULL: not packed */
    const float *cos_sin;         /* [cos_sin_rows][rotary_dim]; NULL: computed */
    const void *q_norm, *k_norm;  /* [head_dim]; NULL: none */
    const uint8_t *plan;
    fig_row_strides q_strides, k_strides, q_out_strides, k_out_strides;
    int64_t cos_sin_stride;
    fig_rope_terms rope;
    float norm_epsilon;
    uint32_t positions_offset; /* offset in the plan */
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

/* k and v have row_tokens rows for each row of the plan or, in a packed program, one row for each
 * of its query tokens. These are the last tokens of the row's sequence. If the plan gives the
 * number of a row's real tokens, the kernel writes only this number of tokens, the last ones. */
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
    uint32_t lengths_offset, sequences_offset; /* offsets in the plan */
    fig_rows rows;
    int32_t page_size, kv_heads, head_dim;
    int32_t k_scales, v_scales; /* 0, 1 or kv_heads */
    int32_t dtype, kv_dtype;
    uint32_t tokens_offset; /* offset in the plan; 0: plans have no such section */
} fig_append_kv_params;
static_assert(sizeof(fig_append_kv_params) == 224, "ABI");

/* rope and append_kv together; q and k are changed in place. */
typedef struct fig_decode_attention_params {
    void *q;       /* [rows][q_heads][head_dim] */
    void *k;       /* [rows][kv_heads][head_dim] */
    const void *v; /* the shape of k */
    void *k_cache, *v_cache;
    const int32_t *page_table; /* as in fig_append_kv_params; so are the scales */
    const float *k_scale, *v_scale;
    const void *positions; /* as in fig_rope_params; so are the next fields */
    const float *cos_sin;
    const void *q_norm, *k_norm;
    const uint8_t *plan;
    fig_row_strides q_strides, k_strides, v_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t cos_sin_stride, table_stride;
    int64_t k_pages, v_pages;
    fig_rope_terms rope;
    float norm_epsilon;
    uint32_t lengths_offset, sequences_offset, positions_offset; /* offsets in the plan */
    fig_rows rows;
    int32_t cos_sin_rows, page_size;
    int32_t q_heads, kv_heads, head_dim;
    int32_t k_scales, v_scales; /* 0, 1 or kv_heads */
    int32_t dtype, kv_dtype, positions_dtype;
    uint32_t tokens_offset; /* as in fig_append_kv_params */
    uint32_t early_reads;   /* FIG_EARLY_READS_* */
    fig_rope_angles angles;
} fig_decode_attention_params;
static_assert(sizeof(fig_decode_attention_params) == 1424, "ABI");

/* FIG_ATTENTION_EARLY: allows the same as FIG_EARLY_READS_ON; in addition, before fig_block_wait()
 * the launch may read the page table and the tokens that the step itself does not append.
 * FIG_ATTENTION_APART: no block waits for another block of its launch, because that block may not
 * be running. FIG_ATTENTION_DENSE: there is no page table, and the only page of a sequence may have
 * any number of tokens. FIG_ATTENTION_IN_ORDER: block n is worker n for every line.
 * FIG_ATTENTION_SCORED: the params are the member `attention` of a fig_scored_attention_params or a
 * fig_scored_prompt_params. */
enum {
    FIG_ATTENTION_EARLY = FIG_EARLY_READS_ON,
    FIG_ATTENTION_APART = 2,
    FIG_ATTENTION_DENSE = 4,
    FIG_ATTENTION_IN_ORDER = 8,
    FIG_ATTENTION_SCORED = 16
};

/* FIG_ATTENTION_PACKED: the program is packed, so rows may have unequal numbers of query tokens.
 * FIG_ATTENTION_SINGLES: in this bucket, no row of this launch has more than one, but rows beside
 * it may be chunks. */
typedef enum fig_attention_packing {
    FIG_ATTENTION_PACKED = 1,
    FIG_ATTENTION_SINGLES
} fig_attention_packing;

/* The additional inputs of a launch that applies RoPE and appends within attention, as in
 * fig_decode_attention_params. */
typedef struct fig_attention_turn {
    const void *k, *v;
    const void *q_norm, *k_norm, *positions;
    const float *cos_sin;
    fig_row_strides k_strides, v_strides;
    fig_rope_terms rope; /* rotary_dim 0: RoPE and append were done before */
    float norm_epsilon;
    uint32_t positions_offset, tokens_offset; /* offsets in the plan */
    uint32_t is_on; /* 1: the family that serves applies RoPE and appends; its `finish` sets this */
    fig_rope_angles angles;
} fig_attention_turn;
static_assert(sizeof(fig_attention_turn) == 1208, "ABI");

/* Where launches of attention leave the results of tails (planner/plans/plan.h). */
typedef struct fig_attention_slots {
    float *partials; /* as in fig_prompt_attention_params */
    float *sums;
    uint32_t *counters;
    uint32_t tails_offset; /* in the plan; 0: the bucket's plans have no tails */
    uint32_t reserved[9];  /* up to the alignment of tensor maps */
} fig_attention_slots;
static_assert(sizeof(fig_attention_slots) == 64, "ABI");

/* A worker reads n = heads_per_worker kv heads at a time: group g is heads [g * n, (g + 1) * n). A
 * group has n * q_heads / kv_heads q heads. Each q head has row_tokens vectors; the vectors of a
 * group are ordered [token][q head of the group]. */
typedef struct fig_attention_params {
    fig_tensor_map k_map, v_map; /* for families that use the bulk copy engine */
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
    uint32_t *counters; /* [row_limit][groups]; pieces finished; 0 between replays */
    fig_row_strides q_strides, out_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t lse_stride, table_stride;
    int64_t k_pages, v_pages;
    fig_split_shape split;
    /* offsets in the plan */
    uint32_t lengths_offset, sequences_offset, prefix_offset, starts_offset;
    int32_t q_heads, kv_heads, head_dim, heads_per_worker;
    int32_t page_size, dtype, kv_dtype;
    int32_t k_scales, v_scales; /* 0, 1 or kv_heads */
    float sm_scale, soft_cap;
    uint32_t flags; /* FIG_ATTENTION_* */
    /* offset of the plan's query tokens, which are the rows of q, out and lse; 0: a row has
     * row_tokens rows there */
    uint32_t queries_offset;
    uint32_t is_packed; /* fig_attention_packing; 0: queries_offset is 0 in every bucket */
    fig_attention_turn turn;
    fig_attention_slots slots;
} fig_attention_params;
static_assert(sizeof(fig_attention_params) == 1856, "ABI");

/* Attention whose logits become scores by an expression. `attention` has FIG_ATTENTION_SCORED set,
 * and no ALiBi, soft cap or turn. */
typedef struct fig_scored_attention_params {
    fig_attention_params attention;
    const void *arrays[FIG_SCORE_ARRAY_LIMIT]; /* [elements] of each array of the score */
    fig_score_code score;
} fig_scored_attention_params;
static_assert(sizeof(fig_scored_attention_params) == 4096, "ABI");
static_assert(offsetof(fig_scored_attention_params, attention) == 0, "code of attention reads it");

/* Attention over a dense cache, with rows of one length that the host knows. */
typedef struct fig_whole_attention_params {
    const void *q;                 /* [rows][q_heads][head_dim] */
    const void *k_cache, *v_cache; /* [rows][tokens][kv_heads][head_dim] */
    void *out;                     /* the same as q */
    float *lse;                    /* [rows][q_heads], base 2; NULL: not wanted */
    fig_row_strides q_strides, out_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t lse_stride;
    int32_t rows, length; /* length: at least 1 */
    int32_t q_heads, kv_heads, head_dim, dtype;
    float scale; /* factor of a logit */
    uint32_t reserved;
} fig_whole_attention_params;
static_assert(sizeof(fig_whole_attention_params) == 160, "ABI");

/* Attention of rows with many query tokens over a paged or dense cache. Strips
 * (planner/plans/strips.h) give each block its work. In a run of fig_prompts, `plan` consists of
 * strips alone; in a program, they are a section of the step's plan. If several blocks share a
 * strip, they leave its state in partials and sums, and counters identify the last one to finish.
 * That block merges the partials and sets the counters to 0. */
typedef struct fig_prompt_attention_params {
    fig_tensor_map k_map, v_map, q_map; /* for the family that uses warpgroups */
    const void *q;                      /* [tokens][q_heads][head_dim] */
    const void *k_cache, *v_cache;      /* [pages][page_size][kv_heads][head_dim] */
    void *out;                          /* [tokens][q_heads][head_dim] */
    float *lse;                         /* [tokens][q_heads], base 2; NULL: not wanted */
    const int32_t *page_table;          /* [sequences][table_stride]; NULL: page s is sequence s */
    const float *k_scale, *v_scale;     /* [scales]; NULL: 1 */
    const float *sinks, *alibi;         /* [q_heads]; NULL: none */
    const uint8_t *plan;
    float *partials;    /* [partial vectors][head_dim] */
    float *sums;        /* [partial vectors][2]: greatest logit, sum of weights */
    uint32_t *counters; /* 0 between launches */
    fig_row_strides q_strides, out_strides;
    fig_cache_strides k_cache_strides, v_cache_strides;
    int64_t lse_stride, table_stride;
    int64_t k_pages, v_pages;
    fig_rows rows;   /* rows of q and out; a run sets only their limit */
    int32_t workers; /* workers of the strips, and blocks of the launch */
    int32_t q_heads, kv_heads, head_dim, page_size;
    int32_t ratio, half; /* ratio: q heads per kv head; half: query tokens of half a strip */
    int32_t tile_tokens; /* tokens of a tile of the strips */
    int32_t dtype, kv_dtype;
    int32_t k_scales, v_scales; /* 0, 1 or kv_heads */
    float sm_scale, soft_cap;
    int32_t window;         /* 0: none */
    uint32_t flags;         /* FIG_ATTENTION_EARLY, FIG_ATTENTION_DENSE, FIG_ATTENTION_SCORED */
    uint32_t strips_offset; /* of the section in a step's plan; 0: the plan has only strips */
    int32_t split_class;    /* the class that the strips belong to */
    uint32_t reserved[2];
} fig_prompt_attention_params;
static_assert(sizeof(fig_prompt_attention_params) == 704, "ABI");

/* Returns the strips of the launch, or NULL if the step has no rows: the bytes behind the plan's
 * head then belong to an older plan. */
FIG_BOTH const uint8_t *fig_params_strips(const fig_prompt_attention_params *p) {
    if (p->strips_offset == 0) return p->plan;
    if (((const fig_plan_head *)(const void *)p->plan)->rows == 0) return NULL;
    return fig_plan_strips_of(p->plan, p->strips_offset, p->split_class);
}

/* Attention over chunks whose logits become scores by an expression. `attention` has
 * FIG_ATTENTION_SCORED set, a plan of an engine's step without shared segments, and no ALiBi and no
 * soft cap. */
typedef struct fig_scored_prompt_params {
    fig_prompt_attention_params attention;
    const void *arrays[FIG_SCORE_ARRAY_LIMIT]; /* [elements] of each array of the score */
    fig_score_code score;
} fig_scored_prompt_params;
static_assert(sizeof(fig_scored_prompt_params) == 2944, "ABI");
static_assert(offsetof(fig_scored_prompt_params, attention) == 0, "the reference kernel reads it");

/* [pages][page_size][values of a token] */
typedef struct fig_token_strides {
    int64_t page, token;
} fig_token_strides;

/* Attention over a latent cache. A token has one vector, which all q heads share: K is the whole
 * vector, and V its first 512 values. A worker reads a tile for one group of q heads: group g is
 * heads [g * n, (g + 1) * n) of n = q_heads / split.groups. The vectors of a group are ordered
 * [token][q head of the group]. */
typedef struct fig_latent_attention_params {
    fig_tensor_map k_map; /* for the family that uses warpgroups */
    const void *q;        /* [rows][q_heads][576]; [rows][q_heads][512] if there is a q_rope */
    const void
        *k_cache; /* [pages][page_size][token], as kernels/latent/latent.h lays out a token */
    void *out;    /* [rows][q_heads][512] */
    float *lse;   /* [rows][q_heads], base 2; NULL: not wanted */
    const int32_t *page_table;
    const float *sinks; /* [q_heads]; NULL: none */
    const uint8_t *plan;
    float *partials;    /* [partial limit][vectors of a group][512] */
    float *sums;        /* [partial limit][vectors of a group][2]: greatest logit, sum of weights */
    uint32_t *counters; /* [row_limit][groups]; pieces finished; 0 between replays */
    fig_row_strides q_strides, out_strides;
    fig_token_strides k_cache_strides;
    int64_t lse_stride, table_stride, k_pages;
    fig_split_shape split;
    /* offsets in the plan */
    uint32_t lengths_offset, sequences_offset, prefix_offset, starts_offset;
    int32_t q_heads, page_size, dtype, kv_dtype;
    float sm_scale;
    uint32_t flags;          /* FIG_ATTENTION_* */
    uint32_t queries_offset; /* as in fig_attention_params */
    int32_t is_short;        /* 1: each group of each row has a cluster of workers */
    const void *q_rope; /* [rows][q_heads][64]; NULL: it follows the other values of each q head */
    fig_row_strides q_rope_strides;
} fig_latent_attention_params;
static_assert(sizeof(fig_latent_attention_params) == 384, "ABI");

/* Normalises the latent of each new token, applies RoPE to the last 64 values of the token and of
 * each q head, and writes the token to the cache. q is changed in place. */
typedef struct fig_latent_decode_params {
    void *q;            /* as in fig_latent_attention_params; not used if there is a q_rope */
    const void *latent; /* [rows][576] */
    const void *norm;   /* [512]; NULL: none */
    void *k_cache;      /* as in fig_latent_attention_params */
    const int32_t *page_table;
    const void *positions; /* as in fig_rope_params; so is the next field */
    const float *cos_sin;
    const uint8_t *plan;
    fig_row_strides q_strides;
    int64_t latent_stride;
    fig_token_strides k_cache_strides;
    int64_t cos_sin_stride, table_stride, k_pages;
    fig_rope_terms rope;
    float norm_epsilon;
    uint32_t lengths_offset, sequences_offset, positions_offset; /* offsets in the plan */
    fig_rows rows;
    int32_t cos_sin_rows, page_size, q_heads;
    int32_t dtype, kv_dtype, positions_dtype;
    uint32_t tokens_offset; /* as in fig_append_kv_params */
    uint32_t early_reads;   /* FIG_EARLY_READS_* */
    fig_rope_table angles;  /* as in fig_rope_angles */
    void *q_rope;           /* as in fig_latent_attention_params */
    fig_row_strides q_rope_strides;
    uint32_t reserved[6];
} fig_latent_decode_params;
static_assert(sizeof(fig_latent_decode_params) == 1304, "ABI");

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
static_assert(sizeof(fig_merge_states_params) == 160, "ABI");

#endif

/* attention_case.h: one launch of attention with all that it may meet, and its comparison with
 * float64.
 *
 * Everything that nobody wrote is NaN: outputs, gaps between strides, and what lies in the cache
 * behind a row's tokens or before its window. So a result without NaN has read nothing it should
 * not. Partials, sums and counters are zeros, and must be again. What a row holds follows from its
 * `content` alone, so that two cases can hold the same row among others. Invariant: every array has
 * just the size that the launch may use. */
#ifndef FIG_TESTS_SUPPORT_ATTENTION_CASE_H
#define FIG_TESTS_SUPPORT_ATTENTION_CASE_H

#include "tests/support/twin.h"
#include "tools/figraph/step/truth_attention.h"

enum { FIG_CASE_ROW_LIMIT = 256 };

/* Where K and V lie: apart, or in one pool of [pages][2][...] or [2][pages][...]. */
typedef enum fig_case_pool { FIG_CASE_APART, FIG_CASE_PAIRS, FIG_CASE_HALVES } fig_case_pool;
typedef enum fig_case_scales {
    FIG_CASE_UNSCALED,
    FIG_CASE_PER_TENSOR,
    FIG_CASE_PER_HEAD
} fig_case_scales;

/* What a case is about; all else is drawn. */
typedef struct fig_attention_form {
    uint64_t seed; /* of what rows hold */
    int32_t dtype, kv_dtype, head_dim, kv_heads, ratio, heads_per_worker;
    int32_t page_size; /* 0: dense */
    int32_t layout;    /* fig_kv_layout */
    int32_t pool;      /* fig_case_pool */
    int32_t packed;    /* 1: a row of q is followed by k and v, as out of one GEMM */
    int64_t unit;      /* that strides are whole ones of, fig_twin_unit; 0: drawn */
    int32_t tile_tokens, workers, row_limit, rows;
    int32_t row_tokens, window, fixed;
    int32_t horizon, launch;  /* the split is that of so many launches, of which this is the n-th
                                 from 0; 0 and 0: of this one alone */
    int32_t sinks, alibi;     /* 1: there are */
    int32_t scales;           /* fig_case_scales */
    float soft_cap, sm_scale; /* 0: none; 1 / sqrt(head_dim) */
    int32_t length_limit;     /* tokens of a dense page; as many entries as that has a table row */
    int32_t outside;          /* of 16 page numbers, how many lie outside the cache */
    int32_t shared_pages;     /* 0: each row has pages of its own; n: all draw from so many */
    int32_t lengths[FIG_CASE_ROW_LIMIT]; /* at this launch */
    int32_t contents[FIG_CASE_ROW_LIMIT];
} fig_attention_form;

typedef struct fig_attention_case {
    fig_attention_form form;
    fig_random random; /* of strides, pages and sequences; what rows hold is not drawn from it */
    int64_t unit;      /* the form's, or what was drawn */
    int32_t sequences[FIG_CASE_ROW_LIMIT];
    fig_plan_shape shape;
    uint8_t *plan;
    fig_twin_array q, k, v, table, out, lse, partials, sums, counters; /* a pool is all in k */
    fig_twin_array sinks, alibi, k_scale, v_scale;
    fig_attention_params params;
} fig_attention_case;

/* A small form with none of the features; the seed becomes the form's. */
fig_attention_form fig_attention_form_draw(fig_random *random, uint64_t seed);
/* Adds each feature, now and then. */
void fig_attention_form_draw_features(fig_attention_form *form, fig_random *random);

void fig_attention_case_open(fig_attention_case *c, const fig_attention_form *form,
                             fig_random random);
void fig_attention_case_close(fig_attention_case *c);
/* Gives the case another number of workers, with a plan and a workspace for them. */
void fig_attention_case_split(fig_attention_case *c, int32_t workers);

/* Runs it and fails where a byte was written that must not be or a counter was left. Blocks come in
 * order where `order` is NULL. */
void fig_attention_case_run(fig_attention_case *c, fig_random *order);

/* Compares out and lse of so many (row, query, q head), drawn where there are more, with float64.
 * out: one unit of a 16-bit dtype at the magnitude, half of which is the rounding of out; in f32,
 * whose unit is far below what its sums lose, 2e-5 of it. */
void fig_attention_case_check(fig_attention_case *c, int32_t most);
void fig_attention_case_check_vector(const fig_attention_case *c, int32_t row, int32_t query,
                                     int32_t q_head);

/* What float64 says; row, query and q_head are within the case. */
void fig_attention_case_truth(const fig_attention_case *c, int32_t row, int32_t query,
                              int32_t q_head, truth_attention_result *result);
/* Elements from the start of out and of lse. */
int64_t fig_attention_case_out(const fig_attention_case *c, int32_t row, int32_t query,
                               int32_t q_head);
int64_t fig_attention_case_lse(const fig_attention_case *c, int32_t row, int32_t query,
                               int32_t q_head);
/* Fails with all that the form says. */
void fig_attention_case_fail(const fig_attention_case *c, const char *what, int64_t index,
                             double got, double want, double tolerance);

#endif

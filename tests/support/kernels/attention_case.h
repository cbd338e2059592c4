/* attention_case.h: runs one launch of attention with any features, and compares it with float64.
 *
 * Everything that is not an input or a result is NaN: outputs before the launch, gaps between
 * strides, and cache tokens after a row's last or before its window. So a result without NaN proves
 * that the kernel read nothing else. Partials, sums and counters are zeros, and must be zeros again
 * afterwards. The contents of a row depend only on its `content`, so that two cases can have the
 * same row among different other rows. Invariant: every array has exactly the size that the launch
 * may use. */
#ifndef FIG_TESTS_SUPPORT_ATTENTION_CASE_H
#define FIG_TESTS_SUPPORT_ATTENTION_CASE_H

#include "planner/scores/mask_lines.h"
#include "planner/scores/score.h"
#include "tests/support/kernels/reference.h"
#include "tools/figraph/truth/truth_attention.h"

enum { FIG_CASE_ROW_LIMIT = 256 };

/* Where K and V are: in separate arrays, or in one pool of [pages][2][...] or [2][pages][...]. */
typedef enum fig_case_pool { FIG_CASE_APART, FIG_CASE_PAIRS, FIG_CASE_HALVES } fig_case_pool;
typedef enum fig_case_scales {
    FIG_CASE_UNSCALED,
    FIG_CASE_PER_TENSOR,
    FIG_CASE_PER_HEAD
} fig_case_scales;

/* The properties of a case. All other properties are drawn. */
typedef struct fig_attention_form {
    uint64_t seed; /* seeds the rows' contents */
    int32_t dtype, kv_dtype, head_dim, kv_heads, ratio, heads_per_worker;
    int32_t page_size; /* 0: dense */
    int32_t layout;    /* fig_kv_layout */
    int32_t pool;      /* fig_case_pool */
    /* 1: in memory, k and v follow each row of q, as a single GEMM writes them */
    int32_t packed;
    int64_t unit; /* every stride is a multiple of this; see fig_reference_unit(). 0: drawn */
    int32_t tile_tokens, workers, row_limit, rows;
    int32_t row_tokens, window, fixed;
    /* How many launches the split is made for, and which of them this launch is, counted from 0.
     * Both 0: the split is for this launch alone. */
    int32_t horizon, launch;
    int32_t sinks, alibi;     /* 1: present */
    int32_t scales;           /* fig_case_scales */
    float soft_cap, sm_scale; /* soft_cap 0: no cap; sm_scale 0: 1 / sqrt(head_dim) */
    /* a dense page has this many tokens; a row of the table has entries for this many */
    int32_t length_limit;
    int32_t outside;      /* of 16 page numbers in the table, this many are outside the cache */
    int32_t shared_pages; /* 0: each row has its own pages; n: all rows draw from n pages */
    int32_t lengths[FIG_CASE_ROW_LIMIT]; /* the lengths at this launch */
    int32_t contents[FIG_CASE_ROW_LIMIT];
    int32_t counted; /* 1: the program is packed, and `counts` has each row's queries */
    int32_t counts[FIG_CASE_ROW_LIMIT]; /* 0 to row_tokens; if 0, the row's length is 0 too */
    /* NULL: the launch has no score. With one, alibi and soft_cap are 0 */
    const fig_score *score;
    const void *arrays[FIG_SCORE_ARRAY_LIMIT]; /* the arrays of the score */
    double (*score_truth)(const truth_score_place *place, double logit);
    /* For a score with a mask; tokens that it hides from every vector are NaN. NULL: the score has
     * no mask. */
    int (*mask_truth)(const truth_score_place *place);
    int32_t planned; /* 1: the planner knows the score's mask, unless a range reads an array */
} fig_attention_form;

typedef struct fig_attention_case {
    fig_attention_form form;
    fig_random random; /* draws strides, pages and sequences, but not the rows' contents */
    int64_t unit;      /* the form's unit or, if that is 0, the drawn one */
    int32_t sequences[FIG_CASE_ROW_LIMIT];
    fig_plan_shape shape;
    fig_mask_lines lines;
    uint8_t *plan;
    /* k holds the pool, if there is one */
    fig_reference_array q, k, v, table, out, lse, partials, sums, counters;
    fig_reference_array sinks, alibi, k_scale, v_scale;
    fig_attention_params params;
} fig_attention_case;

/* Draws a small form without features. The form remembers the seed. */
fig_attention_form fig_attention_form_draw(fig_random *random, uint64_t seed);
/* Adds each feature with some probability. */
void fig_attention_form_draw_features(fig_attention_form *form, fig_random *random);

/* Gives each row a number of queries. A row with fewer tokens than queries gets more tokens. */
void fig_attention_form_draw_counts(fig_attention_form *form, fig_random *random);
/* Returns which rows of q and out belong to a row of the step. For row `rows`, `first` is the
 * number of all rows of q. */
fig_plan_queries fig_attention_form_queries(const fig_attention_form *form, int32_t row);

void fig_attention_case_open(fig_attention_case *c, const fig_attention_form *form,
                             fig_random random);
void fig_attention_case_close(fig_attention_case *c);
/* Changes the case to another number of workers, with a new plan and workspace. */
void fig_attention_case_split(fig_attention_case *c, int32_t workers);

/* Runs the launch. Fails if it wrote a byte that it must not write, or left a counter above 0.
 * Blocks run in order if `order` is NULL. */
void fig_attention_case_run(fig_attention_case *c, fig_random *order);

/* Compares out and lse with float64, for at most `most` vectors (row, query, q head); if there are
 * more, they are drawn. The tolerance of a 16-bit out is one unit at its magnitude, half of which
 * is the rounding of out. The tolerance of an f32 out is 2e-5 of the magnitude, since sums lose
 * much more than a unit. */
void fig_attention_case_check(fig_attention_case *c, int32_t most);
void fig_attention_case_check_vector(const fig_attention_case *c, int32_t row, int32_t query,
                                     int32_t q_head);

/* Computes a vector in float64. row, query and q_head must be within the case. */
void fig_attention_case_truth(const fig_attention_case *c, int32_t row, int32_t query,
                              int32_t q_head, truth_attention_result *result);
/* Return the index in out of a vector's first element, and the index in lse of the vector's
 * element. */
int64_t fig_attention_case_out(const fig_attention_case *c, int32_t row, int32_t query,
                               int32_t q_head);
int64_t fig_attention_case_lse(const fig_attention_case *c, int32_t row, int32_t query,
                               int32_t q_head);
/* Fails the test, and prints the whole form. */
void fig_attention_case_fail(const fig_attention_case *c, const char *what, int64_t index,
                             double got, double want, double tolerance);

#endif

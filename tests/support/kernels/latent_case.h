/* latent_case.h: runs one launch of attention over a latent cache, and compares it with float64.
 *
 * Everything that nobody wrote is NaN, as in attention_case.h: a result without NaN proves that the
 * kernel read nothing else. Partials, sums and counters are zeros, and must be zeros again
 * afterwards. Invariant: every array has exactly the size that the launch may use. */
#ifndef FIG_TESTS_SUPPORT_LATENT_CASE_H
#define FIG_TESTS_SUPPORT_LATENT_CASE_H

#include "tests/support/kernels/reference.h"
#include "tools/figraph/truth/truth_latent.h"

enum { FIG_LATENT_CASE_ROWS = 64 };

/* The properties of a case. Everything else is drawn. */
typedef struct fig_latent_form {
    uint64_t seed; /* the seed of the rows' contents */
    int32_t dtype, kv_dtype, q_heads;
    int32_t page_size; /* 0: dense */
    int32_t tile_tokens, workers, row_limit, rows;
    int32_t row_tokens, window, fixed, sinks;
    int32_t length_limit; /* tokens of a dense page; a row of the table has this many */
    int32_t outside;      /* of 16 page numbers, this many lie outside the cache */
    int32_t is_aligned;   /* 1: vectors and tokens begin at multiples of 16 bytes; 0: drawn */
    int32_t apart;        /* 1: q is in two tensors; 2: the first one has its heads outermost */
    int32_t lengths[FIG_LATENT_CASE_ROWS];
    int32_t contents[FIG_LATENT_CASE_ROWS]; /* rows of equal content have equal q and tokens */
    int32_t groups;  /* 0: whole groups; 1: the smallest ones; 2: those of two blocks */
    int32_t blocks;  /* of a cluster for each group of a row, if that are not too many; 0: lines */
    int32_t counted; /* 1: the program is packed, and `counts` has each row's queries */
    int32_t counts[FIG_LATENT_CASE_ROWS]; /* 0 to row_tokens; if 0, the row's length is 0 too */
} fig_latent_form;

typedef struct fig_latent_case {
    fig_latent_form form;
    fig_random random; /* for strides, pages and sequences, but not for contents */
    int64_t unit;
    int32_t sequences[FIG_LATENT_CASE_ROWS];
    fig_plan_shape shape;
    uint8_t *plan;
    fig_reference_array q, q_rope, cache, table, out, lse, sinks, partials, sums, counters;
    fig_latent_attention_params params;
} fig_latent_case;

/* Draws a small form with any features. The form keeps the seed. */
fig_latent_form fig_latent_form_draw(fig_random *random, uint64_t seed);
/* Draws a form of up to 900 tokens that warpgroups serve. */
fig_latent_form fig_latent_form_draw_wide(fig_random *random, uint64_t seed);
/* Returns the rows of q and out that belong to a row of the step. For row `rows`, `first` is the
 * number of all rows of q. */
fig_plan_queries fig_latent_form_queries(const fig_latent_form *form, int32_t row);

void fig_latent_case_open(fig_latent_case *c, const fig_latent_form *form, fig_random random);
void fig_latent_case_close(fig_latent_case *c);
/* Runs the launch, and fails if it wrote a byte that it must not write or left a counter above 0.
 * Blocks run in order if `order` is NULL. */
void fig_latent_case_run(fig_latent_case *c, fig_random *order);
/* Compares out and lse of `most` vectors with float64; draws them if there are more. Tolerances are
 * those of fig_attention_case_check(). */
void fig_latent_case_check(fig_latent_case *c, int32_t most);
/* Returns the index of a vector's first element in out. */
int64_t fig_latent_case_out(const fig_latent_case *c, int32_t row, int32_t query, int32_t q_head);

#endif

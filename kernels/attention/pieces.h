/* pieces.h: stores and merges the results of pieces, for the reference kernels of split attention.
 *
 * Owns partials, sums and counters on the host, as pieces.cuh does on the GPU. Invariant: pieces
 * are merged in their order, so the output bits do not depend on which block merges. Partials, sums
 * and counters are 0 except while their segment is half done. */
#ifndef FIG_KERNELS_PIECES_H
#define FIG_KERNELS_PIECES_H

#include "kernels/attention/sums.h"
#include "kernels/common/params.h"

enum { FIG_PIECES_DIM_LIMIT = 512 };

/* One vector of the step: a q head of one row of q and out. */
typedef struct fig_pieces_vector {
    int64_t row; /* a row of the plan has one row of q and out for each query */
    int32_t q_head;
} fig_pieces_vector;

/* The place of a worker in a step. */
typedef struct fig_pieces_worker {
    const int32_t *lengths, *sequences; /* [rows] */
    fig_split_line line;
    int32_t worker;
} fig_pieces_worker;

fig_pieces_worker fig_pieces_worker_of(const fig_attention_params *p, int32_t worker);
/* Returns the rows of q and out that belong to a row of the plan. */
fig_plan_queries fig_pieces_queries(const fig_attention_params *p, int32_t row);
/* Returns the params that hold the launch's score, or NULL if it has none. */
const fig_scored_attention_params *fig_pieces_scored(const fig_attention_params *p);

/* Ends a vector of a row of the plan, of which all pieces have been merged. If the row has a tail,
 * leaves the sum in the tail's slot, and merges all slots if this was the last one. Otherwise
 * writes the result, with its sink and the scale of V. Changes *sums. */
void fig_pieces_end(const fig_attention_params *p, int32_t row, fig_pieces_vector vector,
                    fig_sums *sums);
/* Returns the index of a vector of the group in the partials. Its sums have the same index. */
int64_t fig_pieces_partial(const fig_attention_params *p, int32_t partial, int32_t query,
                           int32_t group_head);
void fig_pieces_write_partial(const fig_attention_params *p, int64_t index, const fig_sums *sums);
/* Counts a piece as finished, as atomicInc does. Returns 1 if the piece is the last one of its
 * segment, and then leaves the counter at 0. */
int fig_pieces_is_last(const fig_attention_params *p, const fig_split_piece *piece);
/* Merges all pieces of the segment, and sets its partials to zeros, as before the launch. */
void fig_pieces_merge(const fig_attention_params *p, const fig_split_piece *piece);
/* Writes the output of those rows of length 0 that belong to the worker: zeros and an LSE of -inf,
 * with or without sinks. Such rows are not on the line, so the row number decides which worker
 * writes them. */
void fig_pieces_write_idle_rows(const fig_attention_params *p, const fig_pieces_worker *place);

#endif

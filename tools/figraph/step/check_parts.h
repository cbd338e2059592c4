/* check_parts.h: the functions that the checks of a step's parts have in common. */
#ifndef FIG_TOOLS_CHECK_PARTS_H
#define FIG_TOOLS_CHECK_PARTS_H

#include "tools/figraph/step/check.h"
#include "tools/figraph/truth/truth.h"

/* Some elements of an output and their expected values. */
typedef struct fig_check_comparison {
    const fig_session_tensor *tensor;
    int32_t step;
    int64_t row, head, first; /* the index of element 0; head -1: the index is [row][first] */
    const void *got;          /* [count] */
    const double *due;        /* [count] the expected values */
    const double *magnitude;  /* [count]; NULL: the magnitude of `due` */
    const double *slack;      /* [count] is added to the tolerance; NULL: 0 */
    int32_t count;
} fig_check_comparison;
/* Compares, and reports the first element that is off. Returns FIG_EXIT_*. */
int fig_check_compare(fig_check *check, const fig_check_comparison *c);

truth_rows fig_check_rows(const fig_session_tensor *tensor);
/* Returns the number of rows in tensors that have one row for each query token of the step. */
int32_t fig_check_queries(const fig_schedule *schedule);
/* Returns the position of a query token; negative: its row is idle. */
int32_t fig_check_place(const fig_schedule *schedule, int32_t query);
int32_t fig_check_sequence(const fig_session *session, const fig_schedule *schedule, int32_t query);
/* Reads the rows that the step has into `to`. */
int fig_check_read_rows(fig_session *session, const fig_schedule *schedule,
                        const fig_session_tensor *tensor, void *to);
/* Return the RoPE of a layer, and its table. If the layer has no RoPE, rotary_dim is 0, and nothing
 * is to be rotated. */
fig_rope_spec fig_check_rope(const fig_spec *spec, int32_t layer);
const fig_rope_table *fig_check_table(const fig_spec *spec, int32_t layer);

/* check_latent.c: checks the attention of a layer over a latent cache. */
int fig_check_latent(fig_check *check, fig_session *session, const fig_schedule *schedule,
                     int32_t layer);

#endif

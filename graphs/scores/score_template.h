/* score_template.h: completes a template of attention for one score.
 *
 * A template is PTX of all entries of a family, with a mark wherever an entry needs a score
 * (kernels/strips/attention_scored.cuh). score_ptx.c writes the score's instructions; this file
 * cuts out one entry, puts the instructions in the place of each mark, and the bodies of the
 * template's functions in the place of each call. Invariant: a text holds one entry, no mark and no
 * call of a score's function. */
#ifndef FIG_GRAPHS_SCORE_TEMPLATE_H
#define FIG_GRAPHS_SCORE_TEMPLATE_H

#include "kernels/table/images.h"
#include "planner/scores/score_ptx.h"

/* The newest PTX that a text may ask for: that of CUDA 12.4, the oldest driver that the library
 * supports. A driver refuses PTX of a newer toolkit, even if it knows each of its instructions. */
#define FIG_SCORE_TEMPLATE_VERSION "8.4"

/* Writes the PTX of an entry with this score to *text, which the caller finishes. The score has no
 * mask. FIG_DRIVER: the template has no such entry, or nvcc wrote it in another way than this file
 * can read; FIG_NOMEM. */
fig_status fig_score_template_complete(const fig_image *image, const char *entry,
                                       const fig_score_code *code, fig_ptx_text *text);

/* The same for a template that is not compressed, [count] and a NUL. */
fig_status fig_score_template_fill(const char *ptx, const char *entry, const fig_score_code *code,
                                   fig_ptx_text *text);

#endif

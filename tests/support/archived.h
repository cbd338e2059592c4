/* archived.h: images of kernels that no compiler made, and graphs whose file holds them.
 *
 * Each image begins with the number that the fake driver reads there, goes on with bytes of its
 * own, and is of another length than the one before. Invariant: the same place has the same bytes
 * in every process. */
#ifndef FIG_TESTS_SUPPORT_ARCHIVED_H
#define FIG_TESTS_SUPPORT_ARCHIVED_H

#include "graphs/graphs.h"

/* A fig_image_source: every place has an image but the plain one of gated, as where a family serves
 * on one chip alone. */
fig_image fig_archived_image(fig_op op, uint32_t family, fig_image_path path);
/* Gives graphs the notes "made-by" and "model", and the images of their kernels, embedded. */
void fig_archived_fill(fig_graphs *graphs);

#endif

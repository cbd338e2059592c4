/* archived.h: made-up kernel images, and graphs whose file holds them.
 *
 * An image begins with the number that the fake driver reads. The bytes after it and its length
 * differ from image to image. Invariant: an image has the same bytes in every process. */
#ifndef FIG_TESTS_SUPPORT_ARCHIVED_H
#define FIG_TESTS_SUPPORT_ARCHIVED_H

#include "graphs/graphs.h"

/* Is a fig_image_source. Every place has an image, except the plain path of gated, so that there is
 * a family for one kind of chip only. */
fig_image fig_archived_image(fig_op op, uint32_t family, fig_image_path path);
/* Gives graphs the notes "made-by" and "model", and embeds images of the kernels that they use. */
void fig_archived_fill(fig_graphs *graphs);

#endif

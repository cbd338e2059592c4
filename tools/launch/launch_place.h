/* launch_place.h: on which cores each rank runs.
 *
 * Rank r is taken to use the r-th GPU, as CUDA counts those of one kind. Invariant: a rank that has
 * no place runs anywhere; nothing fails for want of one. */
#ifndef FIG_TOOLS_LAUNCH_PLACE_H
#define FIG_TOOLS_LAUNCH_PLACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct fig_launch_places fig_launch_places;

fig_launch_places *fig_launch_place_open(int32_t count); /* NULL: there are none */
void fig_launch_place_close(fig_launch_places *places);  /* takes NULL */
/* Binds the calling process. places may be NULL. */
void fig_launch_place_bind(const fig_launch_places *places, int32_t rank);
/* "cores 0-3,8-11, beside GPU 0000:18:00.0". places may be NULL. */
void fig_launch_place_tell(const fig_launch_places *places, int32_t rank, char *text, size_t bytes);

#endif

/* launch_place.h: binds each rank to cores.
 *
 * Rank r is assumed to use the r-th GPU, in the order in which CUDA counts GPUs of one kind.
 * Invariant: a rank without a place runs anywhere, and no call fails for lack of a place. */
#ifndef FIG_TOOLS_LAUNCH_PLACE_H
#define FIG_TOOLS_LAUNCH_PLACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct fig_launch_places fig_launch_places;

fig_launch_places *fig_launch_place_open(int32_t count); /* NULL: there are no places */
void fig_launch_place_close(fig_launch_places *places);  /* accepts NULL */
/* Binds the calling process to the rank's place. places may be NULL. */
void fig_launch_place_bind(const fig_launch_places *places, int32_t rank);
/* Writes a place as text: "threads 0-3,8-11, beside GPU 0000:18:00.0". places may be NULL. */
void fig_launch_place_tell(const fig_launch_places *places, int32_t rank, char *text, size_t bytes);

#endif

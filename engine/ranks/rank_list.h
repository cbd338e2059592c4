/* rank_list.h: writes a list of ranks for a message: "rank 2", "ranks 0, 2 and 5 to 7".
 *
 * Invariant: the text fits FIG_RANK_LIST_BYTES for any number of ranks. */
#ifndef FIG_ENGINE_RANKS_RANK_LIST_H
#define FIG_ENGINE_RANKS_RANK_LIST_H

#include <stddef.h>
#include <stdint.h>

enum { FIG_RANK_LIST_BYTES = 96 };

/* Lists the ranks whose byte in is_in, [count], is not 0. A long list ends with "and 12 more" after
 * a few runs. */
void fig_rank_list_write(char out[FIG_RANK_LIST_BYTES], const uint8_t *is_in, int32_t count);

#endif

/* roll.h: ranks, as a sentence names them: "rank 2", "ranks 0, 2 and 5 to 7".
 *
 * Invariant: the text ends within its bytes, however many there are to name. */
#ifndef FIG_ENGINE_RANKS_ROLL_H
#define FIG_ENGINE_RANKS_ROLL_H

#include <stddef.h>
#include <stdint.h>

enum { FIG_ROLL_BYTES = 96 };

/* Those whose byte in is_in, [count], is not 0; past a few, "and 12 more". */
void fig_roll_write(char out[FIG_ROLL_BYTES], const uint8_t *is_in, int32_t count);

#endif

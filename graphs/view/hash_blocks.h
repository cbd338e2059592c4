/* hash_blocks.h: the rounds of SHA-256 over whole blocks of 64 bytes.
 *
 * Owns only the arithmetic; hash.c handles padding and partial blocks. */
#ifndef FIG_GRAPHS_HASH_BLOCKS_H
#define FIG_GRAPHS_HASH_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* blocks: [count][64]. Uses the processor's SHA instructions if it has them. */
void fig_hash_blocks_add(uint32_t state[8], const uint8_t *blocks, size_t count);
/* Like fig_hash_blocks_add(), but runs on any processor. */
void fig_hash_blocks_add_plain(uint32_t state[8], const uint8_t *blocks, size_t count);

#endif

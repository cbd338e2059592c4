/* merges.h: bounds how many blocks of a launch may wait for blocks that have not begun.
 *
 * When several blocks share a merge of attention, the FIG_MERGES_PARTS highest workers of the
 * segment wait for the pieces of all its workers. A GPU starts blocks in the order of their
 * numbers.
 *
 * If block n is worker n, a waiting block can lack a piece only if its segment also contains the
 * worker that began last. At most FIG_MERGES_PARTS - 1 waiting blocks of that segment have begun.
 *
 * If workers are spread (kv_piece.cuh), they begin in order within each half of the workers. So
 * each half has such a segment, and one more segment may lie across the border of the halves: all
 * of its FIG_MERGES_PARTS highest workers may have begun before the last worker of the first half.
 *
 * Each waiting block holds an SM until the missing blocks find a place. nvcc and gcc both read this
 * file. Invariant: the file holds only constants and arithmetic. */
#ifndef FIG_KERNELS_MERGES_H
#define FIG_KERNELS_MERGES_H

#include <stdint.h>

enum {
    FIG_MERGES_PARTS = 8, /* largest number of blocks that share a merge */
    /* largest numbers of waiting blocks, if workers are in order and if they are spread */
    FIG_MERGES_WAITING = FIG_MERGES_PARTS - 1,
    FIG_MERGES_WAITING_SPREAD = 2 * FIG_MERGES_WAITING + FIG_MERGES_PARTS
};

/* Returns 1 if `launches` launches, each in its own stream and each with at most `waiting` blocks
 * that wait for others, can deadlock. They deadlock if waiting blocks hold every place of the
 * machine. The bound assumes one block per SM, the fewest places that a machine can have. A single
 * launch cannot deadlock, because the machine has a place for each of its blocks. */
static inline int fig_merges_may_starve(int32_t launches, int32_t waiting, int32_t sm_count) {
    return launches > 1 && (int64_t)launches * waiting >= sm_count;
}

#endif

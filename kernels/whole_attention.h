/* whole_attention.h: which attention is done whole, in one launch without plan or scratch, and how
 * it is dealt to blocks, for the twin and the kernel alike.
 *
 * Eight blocks, which see each other's shared memory, share a row's tokens for up to four q heads
 * of a kv head. Invariant: each token and each q head is dealt to one of them. */
#ifndef FIG_KERNELS_WHOLE_ATTENTION_H
#define FIG_KERNELS_WHOLE_ATTENTION_H

#include "kernels/params.h"

enum {
    FIG_WHOLE_ATTENTION_BLOCKS = 8, /* that share tokens */
    FIG_WHOLE_ATTENTION_HEADS = 4,  /* q heads at once */
    FIG_WHOLE_ATTENTION_WARPS = 8,
    FIG_WHOLE_ATTENTION_LENGTH_LIMIT = 2048 /* beyond it tensor cores gain more than a launch */
};

/* Of whom a cluster of blocks is: q heads [q_head, q_head + heads) of a row. */
typedef struct fig_whole_attention_place {
    int64_t row;
    int32_t kv_head, q_head, heads;
} fig_whole_attention_place;

/* Clusters of a kv head. */
FIG_BOTH int32_t fig_whole_attention_parts(const fig_whole_attention_params *p) {
    return fig_size_ceil_div(p->q_heads / p->kv_heads, FIG_WHOLE_ATTENTION_HEADS);
}

FIG_BOTH fig_whole_attention_place fig_whole_attention_place_of(const fig_whole_attention_params *p,
                                                                int32_t cluster) {
    const int32_t ratio = p->q_heads / p->kv_heads, parts = fig_whole_attention_parts(p);
    const int32_t part = cluster % parts, first = part * FIG_WHOLE_ATTENTION_HEADS;
    fig_whole_attention_place place;
    place.kv_head = cluster / parts % p->kv_heads;
    place.row = cluster / parts / p->kv_heads;
    place.q_head = place.kv_head * ratio + first;
    place.heads = fig_size_min(ratio - first, FIG_WHOLE_ATTENTION_HEADS);
    return place;
}

/* First token of the cluster's block of that rank. */
FIG_BOTH int32_t fig_whole_attention_first(const fig_whole_attention_params *p, int32_t rank) {
    return p->length * rank / FIG_WHOLE_ATTENTION_BLOCKS;
}

/* What attention's launch would do, of rows whose length is known; refuses says why it cannot be
 * done so, NULL: it can. */
fig_whole_attention_params fig_whole_attention_of(const fig_attention_params *attention,
                                                  int32_t rows, int32_t length);
const char *fig_whole_attention_refuses(const fig_attention_params *attention, int32_t rows,
                                        int32_t length, const fig_traits *traits);

#endif

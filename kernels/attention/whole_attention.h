/* whole_attention.h: decides which attention can run in one launch, without a plan or scratch
 * memory, and deals its work to blocks. The kernel and the reference kernel both use it.
 *
 * Eight blocks that can read each other's shared memory share a row's tokens, for up to four q
 * heads of a kv head. Invariant: each pair of a token and a q head is dealt to exactly one
 * block. */
#ifndef FIG_KERNELS_WHOLE_ATTENTION_H
#define FIG_KERNELS_WHOLE_ATTENTION_H

#include "kernels/common/params.h"

enum {
    FIG_WHOLE_ATTENTION_BLOCKS = 8, /* blocks that share a row's tokens */
    FIG_WHOLE_ATTENTION_HEADS = 4,  /* q heads of a cluster */
    FIG_WHOLE_ATTENTION_WARPS = 8,
    /* for longer rows, tensor cores save more than the extra launch costs */
    FIG_WHOLE_ATTENTION_LENGTH_LIMIT = 2048
};

/* Names the work of a cluster of blocks: q heads [q_head, q_head + heads) of a row. */
typedef struct fig_whole_attention_place {
    int64_t row;
    int32_t kv_head, q_head, heads;
} fig_whole_attention_place;

/* Returns the number of clusters of a kv head. */
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

/* Returns the first token of block `rank` of the cluster. */
FIG_BOTH int32_t fig_whole_attention_first(const fig_whole_attention_params *p, int32_t rank) {
    return p->length * rank / FIG_WHOLE_ATTENTION_BLOCKS;
}

/* Returns the params of a launch that does the work of the launch with params *attention, for rows
 * of a known length. fig_whole_attention_refuses() returns the reason why such a launch cannot be
 * replaced, or NULL if it can. */
fig_whole_attention_params fig_whole_attention_of(const fig_attention_params *attention,
                                                  int32_t rows, int32_t length);
const char *fig_whole_attention_refuses(const fig_attention_params *attention, int32_t rows,
                                        int32_t length, const fig_traits *traits);

#endif

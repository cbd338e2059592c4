/* launch.h: what nodes become in a bucket: params of a kernel, and what is filled in at bind.
 *
 * Owns the filling of params from the kernel table. A launch has no grid and no block yet: those
 * are its family's, which is chosen once its tensors are bound. Invariant: every address and every
 * bind-time size in params is zero beside exactly one relocation. */
#ifndef FIG_GRAPHS_LAUNCH_H
#define FIG_GRAPHS_LAUNCH_H

#include "graphs/workspace.h"

typedef enum fig_reloc_kind {
    FIG_RELOC_ADDRESS = 1, /* of tensor id `symbol`, a FIG_ROLE_TEMP too */
    FIG_RELOC_STRIDE,      /* of tensor id `symbol`, dimension `item`, in elements: i64 */
    FIG_RELOC_EXTENT,      /* bound dims[0] of tensor id `symbol`: i64 */
    FIG_RELOC_WORKSPACE,   /* address of the workspace + addend */
    FIG_RELOC_PLAN,        /* address */
    FIG_RELOC_RING,        /* address */
    FIG_RELOC_RING_STATE,  /* address */
    FIG_RELOC_RING_WORDS,  /* address */
    FIG_RELOC_RING_SLOTS,  /* u32 */
    FIG_RELOC_RING_BYTES,  /* u32 */
    FIG_RELOC_PEERS,       /* address */
    FIG_RELOC_RANKS,       /* i32 */
    FIG_RELOC_ROUTES       /* u32 */
} fig_reloc_kind;

typedef struct fig_reloc {
    uint32_t offset; /* of the word in the bucket's params */
    uint16_t kind, item;
    uint32_t symbol, reserved;
    uint64_t addend;
} fig_reloc;
static_assert(sizeof(fig_reloc) == 24, "digest");

/* Of the word that is filled in. */
uint32_t fig_launch_reloc_bytes(uint32_t kind);

typedef struct fig_launch {
    uint32_t op;                   /* fig_op; FIG_OP_CALL has no params */
    uint32_t node, node_count;     /* those that it serves; of none, the fetch, 0 nodes */
    uint32_t params, params_bytes; /* offset: a multiple of 64 */
    uint32_t reloc, reloc_count;
    uint32_t split_class; /* UINT32_MAX: none */
} fig_launch;
static_assert(sizeof(fig_launch) == 32, "digest");

/* Launches [first, first + count) of a bucket. */
typedef struct fig_launch_range {
    uint32_t first, count;
} fig_launch_range;

/* Kinds of RoPE that nodes of a program say by terms, of which a model has two. */
enum { FIG_LAUNCH_ROPE_LIMIT = 16 };

/* What terms that came before come to: a table of frequencies takes as long as all other params of
 * a launch. Zeros: none came yet. */
typedef struct fig_launch_memo {
    fig_rope_terms terms[FIG_LAUNCH_ROPE_LIMIT]; /* [count] */
    fig_rope_angles angles[FIG_LAUNCH_ROPE_LIMIT];
    int32_t count;
    int is_full; /* 1: one came that found no place, and what it was filled with is not its own */
} fig_launch_memo;

/* What decides a launch's params beside the node. */
typedef struct fig_launch_source {
    const fig_program_view *view;
    const fig_split_classes *classes; /* the view's */
    const fig_workspace *workspace;
    const fig_bucket_shape *shape;
    fig_launch_memo *memo; /* NULL where a bucket's part is filled */
} fig_launch_source;

/* 1: the node has what the field, an attribute, is filled from. Attention by itself has none of
 * what it turns q and k by. */
int fig_launch_has_attribute(const fig_node *node, const fig_field *field);

/* What is the same in every bucket: fills so much of the launch's params, zeroed, and its
 * relocations, of which there are at most as many as its kernel has fields, sorted by offset. Reads
 * op, node, params and split_class, sets reloc_count. source->shape: NULL. */
void fig_launch_fill(fig_launch *launch, const fig_launch_source *source, uint8_t *params,
                     fig_reloc *relocs);
/* The rest, which a bucket decides. haste: FIG_ATTENTION_* of the launch. workspace: NULL. */
void fig_launch_fill_bucket(const fig_launch *launch, const fig_launch_source *source,
                            uint32_t haste, uint8_t *params);

#endif

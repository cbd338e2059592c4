/* launch.h: the launches of a bucket: the params of each kernel, and the words that bind fills in.
 *
 * Owns the filling of params from the kernel table. A launch has no grid and no block size yet: its
 * family decides both, and the engine chooses the family once the tensors are bound. Invariant:
 * every address and every bind-time size in params is zero here and has exactly one relocation. */
#ifndef FIG_GRAPHS_LAUNCH_H
#define FIG_GRAPHS_LAUNCH_H

#include "graphs/lower/workspace.h"

typedef enum fig_reloc_kind {
    FIG_RELOC_ADDRESS = 1, /* the address of tensor id `symbol`, which may be a FIG_ROLE_TEMP */
    FIG_RELOC_STRIDE,      /* i64: stride of dim `item` of tensor id `symbol`, in elements */
    FIG_RELOC_EXTENT,      /* i64: the bound dims[0] of tensor id `symbol` */
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
    uint32_t offset; /* the word's offset from the start of the bucket's params */
    uint16_t kind, item;
    uint32_t symbol, reserved;
    uint64_t addend;
} fig_reloc;
static_assert(sizeof(fig_reloc) == 24, "digest");

/* Returns the size of the word that a relocation of that kind fills in. */
uint32_t fig_launch_reloc_bytes(uint32_t kind);

typedef struct fig_launch {
    uint32_t op;                   /* fig_op; FIG_OP_CALL has no params */
    uint32_t node, node_count;     /* the nodes that the launch serves; the fetch serves none */
    uint32_t params, params_bytes; /* params: an offset, a multiple of 64 */
    uint32_t reloc, reloc_count;
    uint32_t split_class; /* UINT32_MAX: none */
} fig_launch;
static_assert(sizeof(fig_launch) == 32, "digest");

/* Launches [first, first + count) of a bucket. */
typedef struct fig_launch_range {
    uint32_t first, count;
} fig_launch_range;

/* The largest number of different RoPE formulas that a program may give as terms instead of a
 * table. A model has at most two. */
enum { FIG_LAUNCH_ROPE_LIMIT = 16 };

/* Angles that were computed for earlier launches, by their RoPE terms. They are kept because
 * computing one table of frequencies takes as long as filling all other params of a launch. A
 * zeroed memo is empty. */
typedef struct fig_launch_memo {
    fig_rope_terms terms[FIG_LAUNCH_ROPE_LIMIT]; /* [count] */
    fig_rope_angles angles[FIG_LAUNCH_ROPE_LIMIT];
    int32_t count;
    int is_full; /* 1: some launch's terms found no room; its params hold wrong angles */
} fig_launch_memo;

/* The inputs that, besides the node, decide a launch's params. */
typedef struct fig_launch_source {
    const fig_program_view *view;
    const fig_split_classes *classes; /* the view's */
    const fig_workspace *workspace;
    const fig_bucket_shape *shape;
    fig_launch_memo *memo; /* fig_launch_fill_bucket() does not need it: NULL */
} fig_launch_source;

/* Returns the id of the tensor that a field of `op` names by the index `operand`, or 0 if the node
 * has no such operand. `op` is the node's operation, or the operation that the node launches after
 * it. */
uint32_t fig_launch_operand(const fig_program_view *view, const fig_node *node, uint32_t op,
                            uint32_t operand);
/* Returns the number of tokens in a page of the caches that a node reads through a page table, and
 * sets *table to that table. 0: the node's caches differ, or it reads none through a table; then
 * *table is 0. The node must be no call. */
int32_t fig_launch_page_tokens(const fig_program_view *view, const fig_node *node, uint32_t *table);
/* Copies the attribute bytes that a field of `op` addresses as `offset`. Returns 0, with all bytes
 * 0, if the node's operation has no such attributes. Bytes past the end of the node's attributes
 * read as 0. */
int fig_launch_attribute(const fig_program_view *view, const fig_node *node, uint32_t op,
                         uint32_t offset, void *to, size_t bytes);
/* Returns the table in the fig_rope_attributes at `offset`, or all zeros if there is no table. */
fig_rope_table fig_launch_rope_table(const fig_program_view *view, const fig_node *node,
                                     uint32_t op, uint32_t offset);

/* Fills the params that are the same in every bucket, and the relocations, sorted by offset. The
 * caller passes zeroed params, and room for one relocation per field of the kernel. Reads op, node,
 * params and split_class of the launch; sets reloc_count. source->shape must be NULL. */
void fig_launch_fill(fig_launch *launch, const fig_launch_source *source, uint8_t *params,
                     fig_reloc *relocs);
/* Fills the params that depend on the bucket. early_reads: the launch's FIG_ATTENTION_* flags.
 * source->workspace must be NULL. */
void fig_launch_fill_bucket(const fig_launch *launch, const fig_launch_source *source,
                            uint32_t early_reads, uint8_t *params);

#endif

/* figraph_inspect.h: look into graphs node by node, launch by launch and field by field.
 *
 * This header is for programs that show, draw or compare graphs, as `figraph inspect` and `figraph
 * diff` do. Its structs may change with any version, as those of figraph_unstable.h may, so a
 * program must be built against the library that it runs with.
 *
 *     fig_inspection_open(&inspection, graphs, 1); // with the launches of bucket 1
 *     for (uint32_t i = 0; i < inspection->launch_count; i++)
 *         puts(inspection->launches[i].operation);
 *     fig_inspection_close(inspection); */
#ifndef FIGRAPH_INSPECT_H
#define FIGRAPH_INSPECT_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* The largest number of classes of attention in a program. */
    FIG_INSPECT_CLASS_LIMIT = 4,
    /* The largest number of families of an operation. */
    FIG_INSPECT_FAMILY_LIMIT = 8,
    /* The largest number of fields of a launch or a node. */
    FIG_INSPECT_FIELD_LIMIT = 96
};

/* ---- The program ----------------------------------------------------------------------------- */
typedef struct fig_inspect_tensor {
    /* The name. */
    const char *name;
    /* The role: whether the engine or the caller owns the memory. */
    fig_role role;
    /* The type of the elements. */
    fig_dtype dtype;
    /* The order in which dims 1 and 2 lie in memory. */
    fig_kv_layout layout;
    /* The number of dims. */
    int32_t rank;
    /* FIG_DIM_BATCH, FIG_DIM_PAGES or FIG_DIM_QUERIES if dims[0] counts rows, pages or query
     * tokens. 0: dims[0] is a number. */
    int32_t symbol;
    /* The extents. Entries past the rank are 1. If dims[0] is symbolic, it holds the factor by
     * which the number of rows or pages is multiplied. */
    int64_t dims[4];
    /* For FIG_ROLE_TEMP: the tensor's offset in the workspace. UINT64_MAX: it is not in the
     * workspace. */
    uint64_t offset;
} fig_inspect_tensor;

enum { FIG_INSPECT_READS = 1, FIG_INSPECT_WRITES = 2 };
/* A tensor that a node reads or writes. */
typedef struct fig_inspect_operand {
    /* The operation's name for the tensor, such as "q". NULL: the node is a call. */
    const char *name;
    /* The number of the tensor, from 1. 0: absent. */
    uint32_t tensor;
    /* FIG_INSPECT_READS, FIG_INSPECT_WRITES or both. */
    uint32_t access;
} fig_inspect_operand;

typedef struct fig_inspect_node {
    /* The operation, such as "rope". */
    const char *operation;
    /* For a call: the name that its callback is registered under. NULL: the node is not a call. */
    const char *call;
    /* The layer. -1: none. */
    int32_t layer;
    /* The segment, from 0. -1: none. */
    int32_t segment;
    /* The class of attention, from 0. -1: none. */
    int32_t split_class;
    /* 1: the node is a collective, and all ranks run collectives in the same order. */
    int32_t meets;
    /* The node's first operand in `operands`. */
    uint32_t operand;
    /* The number of the node's operands. */
    uint32_t operand_count;
    /* [attribute_bytes] The attributes. Nodes that do the same work have equal attributes. */
    const void *attributes;
    /* The size of the attributes. */
    uint32_t attribute_bytes;
    /* For a call: the number of operands that it reads. They come before the operands that it
     * writes. */
    uint32_t read_count;
    /* For a call: its tag. */
    uint64_t tag;
    /* [call_byte_count] For a call: its bytes. */
    const uint8_t *call_bytes;
    /* For a call: the number of bytes in call_bytes. */
    uint32_t call_byte_count;
    /* The node's first launch in `launches`. */
    uint32_t launch;
    /* The number of the node's launches. 0: the inspection was opened without a bucket. */
    uint32_t launch_count;
} fig_inspect_node;

typedef struct fig_inspect_segment {
    /* The name. */
    const char *name;
    /* The first node. */
    uint32_t node;
    /* The number of nodes. */
    uint32_t node_count;
} fig_inspect_segment;

/* An edge: one node or launch must come before another. Arrays of edges are sorted by (to,
 * from). */
typedef struct fig_edge {
    /* The node or launch that comes first. */
    uint32_t from;
    /* The node or launch that comes after it. */
    uint32_t to;
} fig_edge;

/* A class of attention: nodes that share one split. */
typedef struct fig_inspect_class {
    /* The number of KV heads. For a latent cache: the number of groups of query heads if all groups
     * have the smallest size. A worker may serve several of these at a time, as one group
     * (fig_bucket_info.heads). The split has one segment for each row and group. */
    int32_t kv_heads;
    /* The number of tokens that a query sees. 0: all. */
    int32_t window;
    /* The number of query tokens of each row. */
    int32_t row_tokens;
    /* The number of query heads. */
    int32_t q_heads;
    /* Elements of each head. */
    int32_t head_dim;
    /* Bytes of one number of the cache. */
    int32_t value_bytes;
    /* The offset in the workspace where the counters of the merge begin. */
    uint64_t counters;
    /* The offset in the workspace where the partials begin. A partial is the result of one piece of
     * a row, before the merge. */
    uint64_t partials;
    /* The offset in the workspace where the sums of the partials begin. */
    uint64_t sums;
} fig_inspect_class;

/* ---- The launches of a bucket ---------------------------------------------------------------- */
typedef struct fig_inspect_launch {
    /* The operation, such as "rope". */
    const char *operation;
    /* The family of kernels that serves the launch, as far as lowering can tell before tensors are
     * bound. NULL: the launch is a call. */
    const char *family;
    /* The first node that the launch serves. */
    uint32_t node;
    /* The number of nodes that the launch serves. The launch that fetches the plan serves none. */
    uint32_t node_count;
    /* The class of attention, from 0. -1: none. */
    int32_t split_class;
    /* 1: the launch is a call. */
    int32_t is_call;
    /* 1: the launch fetches the plan or makes it. */
    int32_t gives_plan;
    /* 1: the launch is not made, because the next launch of the same node also does this launch's
     * work. 2: it is not made, because it has no work in any step of the bucket. */
    int32_t left_out;
    /* Blocks in each direction. */
    uint32_t grid[3];
    /* Threads of a block in each direction. */
    uint32_t block[3];
    /* Dynamic shared memory of a block. */
    uint32_t shared_bytes;
    /* The number of families that the operation has. */
    int32_t family_count;
    /* The number of families that come before the launch's own family and refused the launch. */
    int32_t refusal_count;
    /* [refusal_count] The names of those families. */
    const char *refused[FIG_INSPECT_FAMILY_LIMIT];
    /* [refusal_count] For each of those families, the need that the launch does not meet. */
    const char *needs[FIG_INSPECT_FAMILY_LIMIT];
} fig_inspect_launch;

/* ---- Fields of a launch's params and of a node's attributes ---------------------------------- */
/* The kind of a field, which says in which members of fig_inspect_field the field's value lies. */
typedef uint32_t fig_inspect_kind;
enum {
    FIG_INSPECT_NONE = 0,   /* the address of an absent tensor */
    FIG_INSPECT_INTEGER,    /* integer */
    FIG_INSPECT_REAL,       /* real */
    FIG_INSPECT_DTYPE,      /* integer: a fig_dtype */
    FIG_INSPECT_ACTIVATION, /* integer: a fig_activation */
    FIG_INSPECT_ADDRESS,    /* the address of tensor `word` */
    FIG_INSPECT_STRIDE,     /* the stride of tensor `word` in dimension `integer` */
    FIG_INSPECT_EXTENT,     /* dims[0] of tensor `word` as it is bound */
    FIG_INSPECT_WORKSPACE,  /* the workspace's address + integer; word: the tensor there, or NULL */
    FIG_INSPECT_ENGINE,     /* word: a value that the engine fills in, "plan" or "ring_state" */
    FIG_INSPECT_LATER,      /* a value that is made when the bucket is prepared */
    FIG_INSPECT_TABLE,      /* bytes: a fig_rope_table */
    FIG_INSPECT_SPLIT,      /* bytes: a fig_inspect_split */
    FIG_INSPECT_PLAN,       /* bytes: a fig_inspect_plan */
    FIG_INSPECT_SCORE,      /* word: the text of a score, as fig_score_text gives it */
    FIG_INSPECT_STRIPS      /* bytes: a fig_inspect_strips */
};
typedef struct fig_inspect_field {
    /* The name, such as "q_strides.row". */
    const char *name;
    /* The kind of the field's value. */
    fig_inspect_kind kind;
    /* 1: the field is reserved and always 0. */
    int32_t is_reserved;
    /* A value, as the kind says. */
    int64_t integer;
    /* A value, as the kind says. */
    float real;
    /* A value, as the kind says. */
    const char *word;
    /* A value, as the kind says. Copy the bytes before use: they may have any alignment. */
    const void *bytes;
} fig_inspect_field;

/* The split of the work of a class of attention among workers. */
typedef struct fig_inspect_split {
    /* The bucket's most rows. */
    int32_t row_limit;
    /* The number of head groups: kv_heads divided by the number of heads that a worker reads at a
     * time. */
    int32_t groups;
    /* The number of tokens of a tile. Tiles are counted from token 0, whatever the window. */
    int32_t tile_tokens;
    /* The number of workers: the grid. */
    int32_t workers;
    /* The number of tokens that a query sees, its own included. 0: all. */
    int32_t window;
    /* The number of query tokens of each row. They are the last tokens of its sequence. */
    int32_t row_tokens;
    /* 1: each tile is a piece by itself, as in deterministic graphs. */
    int32_t fixed;
    /* The largest number of tiles in any step of this bucket. */
    int32_t tile_limit;
} fig_inspect_split;

/* The shape of a bucket's plans. The members `lengths` to `starts` are the offsets where the plan's
 * sections begin. */
typedef struct fig_inspect_plan {
    /* The exec that the plans are for. */
    uint32_t exec;
    /* The bucket's most rows. */
    int32_t row_limit;
    /* The number of classes of attention. */
    int32_t class_count;
    /* The largest number of query tokens of a row. */
    int32_t row_tokens;
    /* [class_count] The split of each class. */
    fig_inspect_split splits[FIG_INSPECT_CLASS_LIMIT];
    /* [class_count] The cost, in units, of each row and head group beyond its tiles. 0: the class
     * is always split by tiles. See fig_plan_report. */
    int32_t once[FIG_INSPECT_CLASS_LIMIT];
    /* The lengths of the rows. */
    uint32_t lengths;
    /* The positions of the rows. */
    uint32_t positions;
    /* The sequences of the rows. */
    uint32_t sequences;
    /* For each row, the number of its queries that are real tokens, not padding. 0: there is no
     * such section, because each row has one query. */
    uint32_t tokens;
    /* [class_count] For each class, the number of tiles before each row. */
    uint32_t prefix[FIG_INSPECT_CLASS_LIMIT];
    /* [class_count] For each class, the place where each worker starts. */
    uint32_t starts[FIG_INSPECT_CLASS_LIMIT];
    /* The size of the whole plan. */
    uint32_t bytes;
    /* The number of query tokens, then for each row the number of its first one, then the number of
     * query tokens again. 0: there is no such section, because the program is not packed. */
    uint32_t queries;
    /* The bucket's most query tokens. 0: the program is not packed. */
    int32_t query_limit;
} fig_inspect_plan;

/* How a class of attention cuts the chunks of a packed program into strips. */
typedef struct fig_inspect_strip_shape {
    /* The number of query heads per kv head. */
    int32_t ratio;
    /* The number of kv heads. */
    int32_t kv_heads;
    /* The dim of a head. */
    int32_t head_dim;
    /* The number of kv tokens of a tile. */
    int32_t tile_tokens;
    /* The number of tokens that a query sees, its own included. 0: all. */
    int32_t window;
    /* The number of workers: the grid of the launch for chunks. 0: the program has no chunks. */
    int32_t workers;
    /* 1: no strip is cut, as in deterministic graphs. */
    int32_t whole;
    /* 1: rows that begin with the same pages may read them once. */
    int32_t shares;
    /* 0: a query sees no later tokens than its own. 1: it may see all, because a mask decides. */
    int32_t visible;
} fig_inspect_strip_shape;

/* How each class cuts chunks, for the launch that makes plans on the device. */
typedef struct fig_inspect_strips {
    /* [class] */
    fig_inspect_strip_shape of[FIG_INSPECT_CLASS_LIMIT];
} fig_inspect_strips;

/* ---- All of it ------------------------------------------------------------------------------- */
typedef struct fig_inspection {
    /* The graphs that are inspected. */
    const fig_graphs *graphs;
    /* The spec, with every default filled in. */
    const fig_spec *spec;
    /* The spec of the whole model if the graphs are one rank's share, else the same as `spec`. */
    const fig_spec *model;
    /* The machine that the graphs are lowered for. */
    const fig_traits *traits;
    /* The SHA-256, in hex, of the contents of a file of these graphs. */
    char content_id[65];
    /* The number of ranks. */
    int32_t ranks;
    /* 1: the graphs are deterministic. */
    int32_t deterministic;
    /* 1: the file holds kernel images. */
    int32_t embeds_images;
    /* The bucket that fig_inspection_open() was called with, from 1. 0: none, and there are no
     * launches. */
    int32_t bucket;
    /* The number of buckets. */
    uint32_t bucket_count;
    /* [bucket_count] Digests of the launches that this library makes. */
    const uint64_t *digests;
    /* [bucket_count] Digests of the launches that the maker of the file made. */
    const uint64_t *made_digests;
    /* The size of the workspace. */
    uint64_t workspace_bytes;
    /* The size of the largest plan. */
    uint64_t plan_bytes_limit;
    /* [tensor_count] Tensor 1 is tensors[0]. */
    const fig_inspect_tensor *tensors;
    /* The number of tensors. */
    uint32_t tensor_count;
    /* [node_count] In recorded order. */
    const fig_inspect_node *nodes;
    /* The number of nodes. */
    uint32_t node_count;
    /* The operands of all nodes. */
    const fig_inspect_operand *operands;
    /* [segment_count] In recorded order. */
    const fig_inspect_segment *segments;
    /* The number of segments. */
    uint32_t segment_count;
    /* [node_edge_count] The order in which nodes must run. */
    const fig_edge *node_edges;
    /* The number of those edges. */
    uint32_t node_edge_count;
    /* [class_count] The classes of attention. */
    fig_inspect_class classes[FIG_INSPECT_CLASS_LIMIT];
    /* The number of classes. */
    int32_t class_count;
    /* [launch_count] The launches of the bucket. */
    const fig_inspect_launch *launches;
    /* The number of launches. */
    uint32_t launch_count;
    /* [edge_count] The order in which launches must run. */
    const fig_edge *edges;
    /* The number of those edges. */
    uint32_t edge_count;
    /* [changed_kernel_count] The operations whose kernels changed since the file was made. */
    const char *const *changed_kernels;
    /* The number of those operations. */
    uint32_t changed_kernel_count;
} fig_inspection;

/* Opens an inspection of graphs. The inspection includes the launches of `bucket`, from 1. 0: it
 * has only the program. The caller owns *inspection and closes it with fig_inspection_close(). The
 * graphs must outlive the inspection. FIG_INVALID: there is no such bucket. */
FIG_API fig_status fig_inspection_open(const fig_inspection **inspection, const fig_graphs *graphs,
                                       int32_t bucket);
/* Frees an inspection. Accepts NULL. */
FIG_API void fig_inspection_close(const fig_inspection *inspection);
/* Writes the fields of a launch's params to `fields` and returns how many there are. A call has
 * none. */
FIG_API int32_t fig_inspection_launch_fields(const fig_inspection *inspection, uint32_t launch,
                                             fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT]);
/* Writes the fields of a node's attributes to `fields` and returns how many there are. A call has
 * none. */
FIG_API int32_t fig_inspection_node_fields(const fig_inspection *inspection, uint32_t node,
                                           fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT]);
/* Does the work of fig_graphs_plan() for any class of attention. split_class: the class, from 0. */
FIG_API fig_status fig_inspection_plan(const fig_inspection *inspection, const fig_step *step,
                                       int32_t split_class, fig_plan_report *report);

#ifdef __cplusplus
}
#endif
#endif

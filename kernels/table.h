/* table.h: every operation as data: its operands, its params field by field, its twin and the
 * families of kernels that may do its work.
 *
 * Lowering fills params from the field table alone, inspection prints by it, and its hash is the
 * kernel's ABI. A new operation is a row here, and a faster kernel for some machines a family of
 * that row; neither is a branch elsewhere. Invariant: the fields of a row cover its params exactly
 * once, in order, and the last family of a row serves every launch. */
#ifndef FIG_KERNELS_TABLE_H
#define FIG_KERNELS_TABLE_H

#include "kernels/params.h"
#include "planner/share.h"

/* A file stores these. */
typedef enum fig_op {
    FIG_OP_FETCH = 0,
    FIG_OP_GATED = 1,
    FIG_OP_ROPE = 2,
    FIG_OP_APPEND_KV = 3,
    FIG_OP_ATTENTION = 4,
    FIG_OP_PLAN = 5,
    FIG_OP_RMS_NORM = 6,
    FIG_OP_MERGE_STATES = 7,
    FIG_OP_LOOK_AHEAD = 8, /* no node's, nor lowered: an engine's own */
    FIG_OP_CEILING = 9,    /* likewise, a measuring's */
    FIG_OP_DECODE_ATTENTION = 10,
    FIG_OP_ALL_REDUCE = 11,
    FIG_OP_ALL_GATHER = 12,
    FIG_OP_WHOLE_ATTENTION = 13, /* as look_ahead: a run's own */
    FIG_OP_KERNEL_COUNT = 14,
    FIG_OP_CALL = 64 /* no kernel: kept as meaning */
} fig_op;

enum { FIG_OPERAND_LIMIT = 32, FIG_PARAMS_LIMIT = 4096, FIG_ATTRIBUTE_LIMIT = 2048 };
enum { FIG_FAMILY_LIMIT = 6, FIG_ENTRY_BYTES = 64 };

enum { FIG_ACCESS_READ = 1, FIG_ACCESS_WRITE = 2 };
typedef struct fig_operand {
    const char *name;
    uint8_t access; /* FIG_ACCESS_* */
    uint8_t optional;
    uint8_t share, dim; /* fig_share_rule: how ranks divide it, along which of its dims */
} fig_operand;

/* Where a field's value comes from; `operand` and `item` are read as the comment says. What the
 * node does not have, an operand or an attribute, is absent. */
typedef enum fig_field_kind {
    FIG_FIELD_ZERO = 0,   /* reserved */
    FIG_FIELD_ADDRESS,    /* of the operand; NULL where absent */
    FIG_FIELD_STRIDE,     /* of the operand's dimension `item`; 0 where absent */
    FIG_FIELD_EXTENT,     /* bound size of the operand's dims[0], in whole pages; 0 where absent */
    FIG_FIELD_DIM,        /* the operand's dimension `item`, divided by `divisor`; 0 where absent */
    FIG_FIELD_DTYPE,      /* the operand's; 0 where absent */
    FIG_FIELD_ATTRIBUTE,  /* bytes of the node's attributes from offset `item` */
    FIG_FIELD_ROWS,       /* of the operand in the bucket: batch times its multiple */
    FIG_FIELD_MULTIPLE,   /* the operand's: its rows for each row of the batch */
    FIG_FIELD_KV_LIMIT,   /* the spec's */
    FIG_FIELD_PLAN,       /* address of the device's plan */
    FIG_FIELD_PLAN_SHAPE, /* the bucket's fig_plan_shape */
    FIG_FIELD_PLAN_SECTION, /* offset in the plan of fig_plan_section `item` */
    FIG_FIELD_SPLIT,        /* the split shape of the node's class */
    FIG_FIELD_HEADS,        /* kv heads that a worker of the node's class reads at once */
    FIG_FIELD_HASTE,        /* FIG_HASTE_* or FIG_ATTENTION_*: what the launch's place in the graph
                               allows, and what its cache is */
    FIG_FIELD_STAGES,       /* tiles that a worker of the node's class has room for; 0: any */
    FIG_FIELD_WORKSPACE,    /* address of fig_workspace_section `item` of the node's class */
    FIG_FIELD_RING,         /* address of the plan ring */
    FIG_FIELD_RING_STATE,   /* address of the device's fig_fetch_state */
    FIG_FIELD_RING_WORDS,   /* address */
    FIG_FIELD_RING_SLOTS,   /* slot count */
    FIG_FIELD_RING_BYTES,   /* bytes of a slot */
    FIG_FIELD_ANGLES,       /* what the node's fig_rope_attributes, from offset `item`, come to */
    FIG_FIELD_TENSOR_MAP,   /* number `item` of the family that serves; only a GPU's device fills it
                               in, and where that family has none it stays zero */
    FIG_FIELD_PAGE_TOKENS,  /* of the operand, a cache: dimension 1; of a run, where the cache is
                               dense, as many as its bytes hold */
    FIG_FIELD_RUN,          /* a run's to fill in; 0 in an engine's launch */
    FIG_FIELD_PEERS,        /* address of the device's fig_peers */
    FIG_FIELD_RANKS,        /* of the group */
    FIG_FIELD_ROUTES,       /* FIG_ROUTE_* that a message may take to them */
    FIG_FIELD_NODE          /* its number in the program */
} fig_field_kind;

typedef enum fig_plan_section {
    FIG_PLAN_LENGTHS,
    FIG_PLAN_POSITIONS,
    FIG_PLAN_SEQUENCES,
    FIG_PLAN_TOKENS,
    FIG_PLAN_PREFIX, /* of the node's class */
    FIG_PLAN_STARTS
} fig_plan_section;

typedef enum fig_workspace_section {
    FIG_WORKSPACE_PARTIALS,
    FIG_WORKSPACE_SUMS,
    FIG_WORKSPACE_COUNTERS
} fig_workspace_section;

typedef enum fig_field_type {
    FIG_TYPE_ADDRESS,
    FIG_TYPE_I64,
    FIG_TYPE_I32,
    FIG_TYPE_U32,
    FIG_TYPE_F32,
    FIG_TYPE_SPLIT,
    FIG_TYPE_PLAN_SHAPE,
    FIG_TYPE_ANGLES,
    FIG_TYPE_TENSOR_MAP
} fig_field_type;

typedef struct fig_field {
    const char *name; /* "q_strides.row" */
    uint16_t offset, bytes;
    uint8_t kind, type; /* fig_field_kind, fig_field_type */
    uint8_t operand, item, divisor;
} fig_field;

typedef struct fig_launch_shape {
    uint32_t grid[3], block[3], shared_bytes;
} fig_launch_shape;

/* What cuTensorMapEncodeTiled is asked for; dimensions stand from the innermost out. Elements are
 * not interleaved, every element of a box is read, and what lies outside the tensor reads as 0. */
typedef struct fig_tensor_map_recipe {
    uint64_t address;                         /* a multiple of 16 */
    uint32_t dtype;                           /* fig_dtype; one of 8 bits is read as bytes */
    uint32_t rank;                            /* 1 to FIG_TENSOR_MAP_RANK_LIMIT */
    uint64_t dims[FIG_TENSOR_MAP_RANK_LIMIT]; /* [rank] */
    uint64_t strides_bytes[FIG_TENSOR_MAP_RANK_LIMIT]; /* [rank]; of dims[0] it is not read */
    uint32_t box[FIG_TENSOR_MAP_RANK_LIMIT];           /* [rank] */
    uint32_t swizzle_bytes;                            /* 0, 32, 64 or 128 */
} fig_tensor_map_recipe;

/* One way to do an operation's work. The families of an operation share its params, its twin and
 * the meaning of its grid, so that which of them serves decides the block, the shared bytes and the
 * entry alone. They are asked in order when a launch is prepared, and the first that does not
 * refuse serves.
 *
 * Inspection and lowering ask before anything is bound: addresses, strides and extents are then 0,
 * which no function here may take for a fault. */
typedef struct fig_family {
    const char *name; /* "scalar" */
    /* NULL: it serves such a launch. Else why it does not, as what follows "it needs": "compute
     * capability 9.0". traits->compute_capability is what the images in use are compiled for: 90
     * where they may use all that 9.0 alone has, 80 for every other GPU, 0 on the host. The whole
     * function is absent in the last family of a row. */
    const char *(*refuses)(const void *params, const fig_traits *traits);
    /* Grid and block of a launch. */
    void (*shape)(const void *params, fig_launch_shape *shape);
    /* Dynamic shared memory of a block, on a machine where it has traits->shared_bytes at most.
     * NULL: none. */
    uint32_t (*shared)(const void *params, const fig_traits *traits);
    /* The entry in the family's image that takes such a launch. NULL: there is only one, named
     * fig_kernel_<name of the operation>. */
    void (*entry)(const void *params, char name[FIG_ENTRY_BYTES]);
    /* How tensor map `item` of such a launch is made. NULL: the family has none. */
    void (*map)(const void *params, uint32_t item, fig_tensor_map_recipe *recipe);
    /* Marks in params that this family serves. NULL: it needs no mark. */
    void (*finish)(void *params);
    /* 1: it does what the launch before it, of the same node, is for, and that one is left out. */
    int does_all;
    /* 1: NCCL does the work, captured anew wherever params change; the image holds what stands
     * around it. */
    int is_captured;
} fig_family;

typedef struct fig_kernel {
    const char *name; /* "rope" */
    const fig_operand *operands;
    const fig_field *fields;
    const fig_family *families; /* [family_count] */
    uint16_t operand_count, field_count;
    uint16_t params_bytes, attribute_bytes;
    uint16_t brief_bytes; /* of attributes without a rope table; 0: the operation has none */
    uint8_t family_count; /* 1 to FIG_FAMILY_LIMIT */
    uint8_t split;        /* 1: its node belongs to a split class */
    uint8_t meets;        /* 1: a collective: every rank runs it, and all in one order */
    uint8_t then;         /* fig_op: its node has a launch of that operation too, behind its own; 0:
                             none. The node's operands and attributes begin with that one's */
    /* One block. Blocks of a launch may run in any order, one at a time. */
    void (*twin)(const void *params, const uint32_t block[3]);
} fig_kernel;

extern const fig_kernel fig_kernel_table[FIG_OP_KERNEL_COUNT]; /* [fig_op] */

/* Operands in the order of a node's. */
enum { FIG_GATED_IN, FIG_GATED_OUT };
enum {
    FIG_ROPE_Q,
    FIG_ROPE_K,
    FIG_ROPE_POSITIONS,
    FIG_ROPE_INDPTR,
    FIG_ROPE_OFFSETS,
    FIG_ROPE_COS_SIN,
    FIG_ROPE_Q_NORM,
    FIG_ROPE_K_NORM,
    FIG_ROPE_Q_OUT,
    FIG_ROPE_K_OUT
};
enum {
    FIG_APPEND_K,
    FIG_APPEND_V,
    FIG_APPEND_TABLE,
    FIG_APPEND_K_SCALE,
    FIG_APPEND_V_SCALE,
    FIG_APPEND_K_CACHE,
    FIG_APPEND_V_CACHE
};
enum {
    FIG_ATTENTION_Q,
    FIG_ATTENTION_K_CACHE,
    FIG_ATTENTION_V_CACHE,
    FIG_ATTENTION_TABLE,
    FIG_ATTENTION_K_SCALE,
    FIG_ATTENTION_V_SCALE,
    FIG_ATTENTION_SINKS,
    FIG_ATTENTION_ALIBI,
    FIG_ATTENTION_OUT,
    FIG_ATTENTION_LSE
};
enum { FIG_ATTENTION_K_MAP, FIG_ATTENTION_V_MAP }; /* tensor maps */
/* Attention's, then these: a launch of attention serves such a node as it serves its own, where it
 * has an out. */
enum {
    FIG_DECODE_ATTENTION_K = FIG_ATTENTION_LSE + 1,
    FIG_DECODE_ATTENTION_V,
    FIG_DECODE_ATTENTION_POSITIONS,
    FIG_DECODE_ATTENTION_COS_SIN,
    FIG_DECODE_ATTENTION_Q_NORM,
    FIG_DECODE_ATTENTION_K_NORM
};
enum { FIG_PLAN_IN_LENGTHS, FIG_PLAN_IN_POSITIONS };
enum { FIG_CEILING_IN, FIG_CEILING_OUT };
enum {
    FIG_WHOLE_ATTENTION_Q,
    FIG_WHOLE_ATTENTION_K_CACHE,
    FIG_WHOLE_ATTENTION_V_CACHE,
    FIG_WHOLE_ATTENTION_OUT,
    FIG_WHOLE_ATTENTION_LSE
};
/* The residual is both: absent in rms_norm, read and written in add_rms_norm. */
enum { FIG_RMS_NORM_IN, FIG_RMS_NORM_WEIGHT, FIG_RMS_NORM_RESIDUAL, FIG_RMS_NORM_OUT };
/* Weight and residual are there where a norm is, and then both. */
enum { FIG_ALL_REDUCE_IN, FIG_ALL_REDUCE_WEIGHT, FIG_ALL_REDUCE_RESIDUAL, FIG_ALL_REDUCE_OUT };
enum { FIG_ALL_GATHER_IN, FIG_ALL_GATHER_OUT };
enum {
    FIG_MERGE_OUT_A,
    FIG_MERGE_LSE_A,
    FIG_MERGE_OUT_B,
    FIG_MERGE_LSE_B,
    FIG_MERGE_OUT,
    FIG_MERGE_LSE
};

/* Families, in the order that they are asked. */
enum { FIG_ALL_REDUCE_NCCL, FIG_ALL_REDUCE_TWO_SHOT, FIG_ALL_REDUCE_ONE_SHOT };

/* Attributes of a node, the part of its meaning that is not a tensor; resolved, no default left. */
typedef struct fig_gated_attributes {
    int32_t activation; /* fig_activation */
} fig_gated_attributes;
typedef struct fig_rope_attributes {
    fig_rope_terms rope; /* with a table: the first two, and zeros */
    float norm_epsilon;  /* 0 without q_norm */
} fig_rope_attributes;
/* Of rope; a node without a table has none of what stands behind the turn. */
typedef struct fig_rope_node_attributes {
    fig_rope_attributes turn;
    uint32_t reserved;
    fig_rope_table table;
} fig_rope_node_attributes;
typedef struct fig_attention_attributes {
    float sm_scale, soft_cap;
    int32_t window; /* of the node's split class */
} fig_attention_attributes;
typedef struct fig_decode_attention_attributes {
    fig_attention_attributes attention; /* first, as attention's operands are */
    fig_rope_attributes rope;
    fig_rope_table table; /* as in fig_rope_node_attributes */
} fig_decode_attention_attributes;
/* The table lies behind the fig_rope_attributes from `offset` on, as a double must. */
static inline uint32_t fig_table_rope_table(uint32_t offset) {
    return (offset + (uint32_t)sizeof(fig_rope_attributes) + 7) / 8 * 8;
}
static_assert(offsetof(fig_rope_node_attributes, table) == 40, "file format");
static_assert(offsetof(fig_decode_attention_attributes, table) == 48, "file format");
typedef struct fig_rms_norm_attributes {
    float epsilon, weight_offset;
} fig_rms_norm_attributes;

/* [*count] the operation's. families.c alone reads them, and what a test puts before them it calls
 * in place of this. */
const fig_family *fig_table_families(fig_op op, uint32_t *count);
/* "rope" or "call"; NULL for a number that no operation has. */
const char *fig_table_op_name(uint32_t op);

#endif

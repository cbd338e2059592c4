/* table.h: describes every operation as data: its operands, the fields of its params, its reference
 * kernel and the kernel families that can run it.
 *
 * Lowering fills params only from the field table, and inspection prints params by that table. A
 * hash of the field table is the ABI of the kernel. A new operation needs a line in operations.h,
 * its params in params.h, a row in rows.h, a reference kernel and a kernel. If the operation
 * demands more of its tensors than its row can express, its line in operations.h also names a
 * check in graphs/operations. A kernel that is faster on some machines is one more family of the
 * same row. Neither addition adds a branch to other code. Invariant: the fields of a row cover its
 * params exactly once, in order, and the last family of a row serves every launch. */
#ifndef FIG_KERNELS_TABLE_H
#define FIG_KERNELS_TABLE_H

#include "kernels/common/params.h"
#include "kernels/table/operations.h"
#include "planner/spec/share.h"

/* FIG_OP_FETCH and so on. Files store these numbers, which come from operations.h. */
#define FIG_OP_OF(number, OP, name, reference, check, families) FIG_OP_##OP = number,
#define FIG_OP_COUNT_OF(number, OP, name, reference, check, families) +1
#define FIG_OP_NOTHING(...)
typedef enum fig_op {
    FIG_OPERATIONS(FIG_OP_OF, FIG_OP_NOTHING) FIG_OP_KERNEL_COUNT =
        0 FIG_OPERATIONS(FIG_OP_COUNT_OF, FIG_OP_NOTHING),
    FIG_OP_CALL = 64 /* has no kernel; the node only records the call */
} fig_op;

/* FIG_FAMILY_ATTENTION_COPY and so on: the index of a family within its operation. */
#define FIG_FAMILIES_OF(number, OP, name, reference, check, families) enum { families };
#define FIG_FAMILY_OF(OP, KIND, kind, file, PATHS) FIG_FAMILY_##OP##_##KIND,
FIG_OPERATIONS(FIG_FAMILIES_OF, FIG_FAMILY_OF)

enum { FIG_OPERAND_LIMIT = 32, FIG_PARAMS_LIMIT = 4096, FIG_ATTRIBUTE_LIMIT = 2048 };
enum { FIG_FAMILY_LIMIT = 8, FIG_ENTRY_BYTES = 64 };

enum { FIG_ACCESS_READ = 1, FIG_ACCESS_WRITE = 2 };
/* Expands to 1 + the index of an operand, so that 0 can mean "no operand". */
#define FIG_SLOT(operand) ((operand) + 1)
typedef struct fig_operand {
    const char *name;
    uint8_t access; /* FIG_ACCESS_* */
    uint8_t optional;
    /* fig_share_rule: how ranks divide the operand, and along which dimension */
    uint8_t share, dim;
    /* FIG_SLOT of an earlier operand that may be the same tensor. Every block then writes only
     * those elements of this operand that no other block reads from the earlier one. */
    uint8_t in_place;
} fig_operand;

/* The source of a field's value. Each comment says how `operand` and `item` are read. "Absent"
 * means that the node lacks the operand or the attribute. */
typedef enum fig_field_kind {
    FIG_FIELD_ZERO = 0, /* reserved */
    FIG_FIELD_ADDRESS,  /* address of the operand; NULL where absent */
    FIG_FIELD_STRIDE,   /* stride of the operand's dimension `item`; 0 where absent */
    FIG_FIELD_EXTENT,   /* bound size of the operand's dims[0], in whole pages; 0 where absent */
    /* size of the operand's dimension `item`, divided by `divisor`; 0 where absent */
    FIG_FIELD_DIM,
    FIG_FIELD_DTYPE,     /* dtype of the operand; 0 where absent */
    FIG_FIELD_ATTRIBUTE, /* bytes of the node's attributes from offset `item` */
    FIG_FIELD_ROWS, /* rows of the operand in the bucket: the batch times the operand's multiple */
    FIG_FIELD_MULTIPLE,     /* rows of the operand per row of the batch, or per query token */
    FIG_FIELD_KV_LIMIT,     /* KV limit of the spec */
    FIG_FIELD_PLAN,         /* address of the device's plan */
    FIG_FIELD_PLAN_SHAPE,   /* the bucket's fig_plan_shape */
    FIG_FIELD_PLAN_SECTION, /* offset of fig_plan_section `item` in the plan */
    FIG_FIELD_SPLIT,        /* the split shape of the node's class */
    FIG_FIELD_HEADS,        /* kv heads that a worker of the node's class reads at once */
    /* FIG_EARLY_READS_* or FIG_ATTENTION_*: the early reads that the launch's place in the graph
     * allows, and the kind of its cache */
    FIG_FIELD_EARLY_READS,
    /* tiles that fit into the memory of a worker of the node's class; 0: no limit */
    FIG_FIELD_STAGES,
    FIG_FIELD_IS_SHORT,   /* 1: each segment of the node's class has a cluster of workers */
    FIG_FIELD_WORKSPACE,  /* address of fig_workspace_section `item` of the node's class */
    FIG_FIELD_RING,       /* address of the plan ring */
    FIG_FIELD_RING_STATE, /* address of the device's fig_fetch_state */
    FIG_FIELD_RING_WORDS, /* address of the ring's words */
    FIG_FIELD_RING_SLOTS, /* slot count */
    FIG_FIELD_RING_BYTES, /* bytes of a slot */
    /* fig_rope_angles, or its table alone, computed from the node's fig_rope_attributes at offset
     * `item` */
    FIG_FIELD_ANGLES,
    /* tensor map `item` of the family that serves. Only a GPU's device fills it in. It stays zero
     * if the family has no tensor map */
    FIG_FIELD_TENSOR_MAP,
    /* dimension 1 of the operand, which is a cache. In a run with a dense cache: the tokens that
     * fit into the bytes of the cache */
    FIG_FIELD_PAGE_TOKENS,
    FIG_FIELD_RUN,    /* filled in by a run; 0 in an engine's launch */
    FIG_FIELD_PEERS,  /* address of the device's fig_peers */
    FIG_FIELD_RANKS,  /* ranks in the group */
    FIG_FIELD_ROUTES, /* FIG_ROUTE_* that a message to the other ranks may take */
    FIG_FIELD_NODE,   /* number of the node in the program */
    /* if dims[0] of the operand is FIG_DIM_QUERIES: the offset of the section `queries` in the
     * plan; otherwise 0 */
    FIG_FIELD_QUERIES,
    /* 1 if dims[0] of the operand is FIG_DIM_QUERIES; otherwise 0 */
    FIG_FIELD_IS_PACKED,
    /* fig_strips_number `item` of the strips of the node's class */
    FIG_FIELD_STRIPS,
    FIG_FIELD_STRIPS_SHAPES, /* the bucket's fig_plan_strips */
    /* fig_score_code of the score that the attribute at offset `item` numbers */
    FIG_FIELD_SCORE
} fig_field_kind;

typedef enum fig_plan_section {
    FIG_PLAN_LENGTHS,
    FIG_PLAN_POSITIONS,
    FIG_PLAN_SEQUENCES,
    FIG_PLAN_TOKENS,
    FIG_PLAN_PREFIX, /* prefix of the node's class */
    FIG_PLAN_STARTS,
    FIG_PLAN_STRIPS, /* of all classes */
    FIG_PLAN_TAILS   /* of the class that shares; 0 for all others */
} fig_plan_section;

typedef enum fig_workspace_section {
    FIG_WORKSPACE_PARTIALS,
    FIG_WORKSPACE_SUMS,
    FIG_WORKSPACE_COUNTERS,
    FIG_WORKSPACE_STRIP_PARTIALS,
    FIG_WORKSPACE_STRIP_SUMS,
    FIG_WORKSPACE_STRIP_COUNTERS
} fig_workspace_section;

/* Returns 1 for a section that only programs have whose rows may be chunks. */
static inline int fig_table_is_of_strips(uint32_t section) {
    return section >= FIG_WORKSPACE_STRIP_PARTIALS;
}

/* Numbers that follow from the strips of a class. */
typedef enum fig_strips_number {
    FIG_STRIPS_WORKERS,
    FIG_STRIPS_RATIO,
    FIG_STRIPS_HALF_QUERIES, /* query tokens of half a strip */
    FIG_STRIPS_TILE_TOKENS,
    FIG_STRIPS_CLASS /* number of the class */
} fig_strips_number;

typedef enum fig_field_type {
    FIG_TYPE_ADDRESS,
    FIG_TYPE_I64,
    FIG_TYPE_I32,
    FIG_TYPE_U32,
    FIG_TYPE_F32,
    FIG_TYPE_SPLIT,
    FIG_TYPE_PLAN_SHAPE,
    FIG_TYPE_STRIPS,
    FIG_TYPE_ANGLES,
    FIG_TYPE_TENSOR_MAP,
    FIG_TYPE_SCORE
} fig_field_type;

typedef struct fig_field {
    const char *name; /* "q_strides.row" */
    uint16_t offset, bytes;
    uint8_t kind, type; /* fig_field_kind, fig_field_type */
    uint8_t operand;
    uint16_t item;
    uint8_t divisor;
} fig_field;

typedef struct fig_launch_shape {
    uint32_t grid[3], block[3], shared_bytes;
} fig_launch_shape;

/* The arguments of cuTensorMapEncodeTiled. Dimensions are listed from the innermost to the
 * outermost. Elements are not interleaved, every element of a box is read, and elements outside the
 * tensor read as 0. */
typedef struct fig_tensor_map_recipe {
    uint64_t address;                         /* a multiple of 16 */
    uint32_t dtype;                           /* fig_dtype; an 8-bit type is read as bytes */
    uint32_t rank;                            /* 1 to FIG_TENSOR_MAP_RANK_LIMIT */
    uint64_t dims[FIG_TENSOR_MAP_RANK_LIMIT]; /* [rank] */
    /* [rank]; the entry of dims[0] is not read */
    uint64_t strides_bytes[FIG_TENSOR_MAP_RANK_LIMIT];
    uint32_t box[FIG_TENSOR_MAP_RANK_LIMIT]; /* [rank] */
    uint32_t swizzle_bytes;                  /* 0, 32, 64 or 128 */
} fig_tensor_map_recipe;

/* Describes one way to do an operation's work. All families of an operation share its params, its
 * reference kernel and the meaning of its grid. The choice of a family therefore changes only the
 * block, the shared memory and the entry. When a launch is prepared, the families are tried in
 * order, and the first that does not refuse serves.
 *
 * Inspection and lowering call these functions before anything is bound. Addresses, strides and
 * extents are then 0, and no function here may refuse because of that. */
typedef struct fig_family {
    const char *name; /* "scalar" */
    /* Returns NULL if the family serves such a launch. Otherwise returns the reason, as the words
     * that follow "it needs": "compute capability 9.0". traits->compute_capability is the one that
     * the images in use are compiled for: 90 if they may use every feature that only 9.0 has, 80
     * for every other GPU, 0 on the host. The function pointer itself is NULL in the last family of
     * a row. */
    const char *(*refuses)(const void *params, const fig_traits *traits);
    /* Sets the grid and block of a launch. */
    void (*shape)(const void *params, fig_launch_shape *shape);
    /* Returns the dynamic shared memory of a block, at most traits->shared_bytes. NULL: the family
     * uses none. */
    uint32_t (*shared)(const void *params, const fig_traits *traits);
    /* Writes the name of the entry in the family's image that takes such a launch. NULL: the image
     * has a single entry, named fig_kernel_<name of the operation>. */
    void (*entry)(const void *params, char name[FIG_ENTRY_BYTES]);
    /* Makes the recipe of tensor map `item` of such a launch. NULL: the family has no tensor
     * map. */
    void (*map)(const void *params, uint32_t item, fig_tensor_map_recipe *recipe);
    /* Marks in params that this family serves. NULL: the family needs no mark. */
    void (*finish)(void *params);
    /* 1: this launch also does the work of the preceding launch of the same node, so that launch is
     * left out. */
    int does_all;
    /* 1: the launch can merge the results of tails (planner/plans/plan.h) with those of prefixes */
    int serves_tails;
    /* 1: NCCL does the work, and it is captured again whenever params change. The image holds only
     * the kernels around the NCCL call. */
    int is_captured;
    /* 1: the family has a template in place of an image. Its params are those of a
     * fig_scored_attention_params, and its entry is compiled for their score. */
    int compiles;
} fig_family;

/* Attributes [to, to + bytes) of a launch are copied from the node's attributes at offset
 * `from`. */
typedef struct fig_attribute_range {
    uint16_t to, from, bytes;
} fig_attribute_range;

/* Selects the operands and attributes of a node that one of its launches uses. The fields of the
 * launch name operands by their index in this selection. All zeros: the launch uses every operand
 * and attribute in the node's own order. */
typedef struct fig_reads {
    /* [operand_count] FIG_SLOT of the node's operand; 0: the launch has no such operand */
    const uint8_t *operands;
    const fig_attribute_range *attributes; /* [range_count]; the launch has no other attributes */
    uint8_t operand_count, range_count;
} fig_reads;

/* How a node is split among workers: the roles of its operands, and its window. */
typedef struct fig_split_row {
    uint8_t q, k_cache, v_cache, table, out; /* operands; a node without `out` is not split */
    /* 1: the cache is latent, [pages][page_size][values of a token]: all q heads share a token's
     * vector, which is K, and its first values are V */
    uint8_t v_in_k;
    uint16_t window; /* offset of the window in the attributes, an int32_t */
} fig_split_row;

/* An operation that can replace an operation whose work is split among workers, in a run for which
 * the host knows the length of every row. The replacement needs no plan and leaves no partials for
 * a worker to merge. */
typedef struct fig_whole {
    uint8_t op; /* fig_op */
    /* Returns 1 if the operation does the same work as a launch of these params over `rows` rows,
     * and fills *whole with its own params. length 0: the longest rows that any run may have. */
    int (*make)(const void *params, int32_t rows, int32_t length, const fig_traits *traits,
                void *whole);
} fig_whole;

/* How a collective combines the data of the ranks. Operand 0 is the contribution of each rank. */
typedef enum fig_meeting_kind {
    FIG_MEETING_NONE = 0,
    FIG_MEETING_SUM,
    FIG_MEETING_GATHER /* operand 1 has the columns of all ranks together */
} fig_meeting_kind;

typedef struct fig_kernel {
    const char *name; /* "rope" */
    const fig_operand *operands;
    const fig_field *fields;
    const fig_family *families; /* [family_count] */
    uint16_t operand_count, field_count;
    uint16_t params_bytes, attribute_bytes;
    /* A node may have operands and attributes of a newer or an older version. It has at least
     * `operand_least` operands and `attribute_least` bytes of attributes; missing operands are
     * absent, and missing bytes are 0. A node from a newer writer may have more than this row, if
     * the extra operands are absent and the extra bytes are 0. */
    uint16_t operand_least, attribute_least;
    /* A recorder always writes at least this number of operands, absent ones included, as it did
     * when format 1 was frozen. Operands added since then follow; the recorder writes them up to
     * the last present one. */
    uint16_t operand_base;
    uint8_t family_count; /* 1 to FIG_FAMILY_LIMIT */
    uint8_t meets; /* fig_meeting_kind: every rank runs such nodes, all ranks in the same order */
    uint8_t makes_plan; /* 1: nodes that read the plan come after this one */
    /* 1: the node has a score, which may depend on the number of a head. Ranks cannot divide it */
    uint8_t has_score;
    /* FIG_SLOT of an operand: the node writes only the newest tokens of each row into its caches,
     * and the operand gives their number */
    uint8_t appends;
    /* fig_op: a split node gets a second launch, of this operation, right after its own; 0: no
     * second launch */
    uint8_t then;
    /* fig_op: in a program with fig_program_view_has_chunks(), a split node gets one more launch,
     * of this operation, which runs beside its last one and reads the same parts of the node. 0:
     * no such launch */
    uint8_t beside;
    /* the parts of the node that its own launch reads, and the parts that the second one reads */
    fig_reads own, rest;
    /* bit o: a node with operand o reads no plan, although fields of its launch name one */
    uint32_t plan_unless;
    /* bit o: the node's own launch may read operand o, a weight, before its wait at any place */
    uint32_t early_weights;
    const fig_split_row *split; /* NULL: the node is never split */
    const fig_whole *whole;     /* NULL: no operation can replace it */
    /* Runs one block. Blocks of a launch may run in any order, one at a time. */
    void (*reference)(const void *params, const uint32_t block[3]);
    /* Lists the cuts that matter for loading kernels before the first run. The number and the
     * length of rows decide how a launch is cut, and the cut decides which families refuse. This
     * function writes cut n, counted from 0, into the params of a launch of one row, and returns 0
     * if there is no cut n. Invariant: if a family serves the launch at some number and length of
     * rows, with some entry and some amount of shared memory, then the family serves it in the same
     * way at one of these cuts. NULL: no family looks at the cut. */
    int (*cut)(void *params, const fig_traits *traits, int32_t n);
} fig_kernel;

extern const fig_kernel fig_kernel_table[FIG_OP_KERNEL_COUNT]; /* [fig_op] */

/* Indices of operands, in the order of a node's operands. */
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
/* Operands that only a launch of attention has; its fields may name them, but no attention node has
 * them. A future operand of attention comes after FIG_ATTENTION_LSE in a node, and after these in a
 * launch. */
enum {
    FIG_ATTENTION_TURN_K = FIG_ATTENTION_LSE + 1,
    FIG_ATTENTION_TURN_V,
    FIG_ATTENTION_TURN_POSITIONS,
    FIG_ATTENTION_TURN_COS_SIN,
    FIG_ATTENTION_TURN_Q_NORM,
    FIG_ATTENTION_TURN_K_NORM,
    FIG_ATTENTION_SLOT_COUNT
};
/* The first operands are those of attention. If the node has an `out`, it has a second launch,
 * which is one of FIG_OP_ATTENTION. */
enum {
    FIG_DECODE_ATTENTION_K = FIG_ATTENTION_LSE + 1,
    FIG_DECODE_ATTENTION_V,
    FIG_DECODE_ATTENTION_POSITIONS,
    FIG_DECODE_ATTENTION_COS_SIN,
    FIG_DECODE_ATTENTION_Q_NORM,
    FIG_DECODE_ATTENTION_K_NORM
};
/* The first operands are those of attention; array i of the score is FIG_SCORED_ARRAY + i. */
enum {
    FIG_SCORED_ARRAY = FIG_ATTENTION_LSE + 1,
    FIG_SCORED_OPERAND_COUNT = FIG_SCORED_ARRAY + FIG_SCORE_ARRAY_LIMIT
};
enum { FIG_PLAN_IN_LENGTHS, FIG_PLAN_IN_POSITIONS, FIG_PLAN_IN_QUERIES };
enum { FIG_CEILING_IN, FIG_CEILING_OUT };
enum {
    FIG_WHOLE_ATTENTION_Q,
    FIG_WHOLE_ATTENTION_K_CACHE,
    FIG_WHOLE_ATTENTION_V_CACHE,
    FIG_WHOLE_ATTENTION_OUT,
    FIG_WHOLE_ATTENTION_LSE
};
/* The operands of prompt_attention are those of attention. */
enum { FIG_PROMPT_ATTENTION_K_MAP, FIG_PROMPT_ATTENTION_V_MAP, FIG_PROMPT_ATTENTION_Q_MAP };
enum {
    FIG_LATENT_ATTENTION_Q,
    FIG_LATENT_ATTENTION_K_CACHE,
    FIG_LATENT_ATTENTION_TABLE,
    FIG_LATENT_ATTENTION_SINKS,
    FIG_LATENT_ATTENTION_OUT,
    FIG_LATENT_ATTENTION_LSE,
    FIG_LATENT_ATTENTION_Q_ROPE,
    FIG_LATENT_ATTENTION_COUNT
};
/* The first operands are those of latent_attention, without q_rope. If the node has an `out`, a
 * launch of latent_attention serves it too. */
enum {
    FIG_LATENT_DECODE_LATENT = FIG_LATENT_ATTENTION_LSE + 1,
    FIG_LATENT_DECODE_POSITIONS,
    FIG_LATENT_DECODE_COS_SIN,
    FIG_LATENT_DECODE_NORM,
    FIG_LATENT_DECODE_Q_ROPE
};
/* The residual is absent in rms_norm; add_rms_norm reads and writes it. */
enum { FIG_RMS_NORM_IN, FIG_RMS_NORM_WEIGHT, FIG_RMS_NORM_RESIDUAL, FIG_RMS_NORM_OUT };
/* Weight and residual are either both present, if the node has a norm, or both absent. */
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

/* The attributes of a node are the part of its meaning that is not a tensor. Values have already
 * replaced defaults. */
typedef struct fig_gated_attributes {
    int32_t activation; /* fig_activation */
} fig_gated_attributes;
typedef struct fig_rope_attributes {
    fig_rope_terms rope; /* with a table: only the first two are set, the others are 0 */
    float norm_epsilon;  /* 0 without q_norm */
} fig_rope_attributes;
/* Attributes of rope; a node without a table ends after `turn`. */
typedef struct fig_rope_node_attributes {
    fig_rope_attributes turn;
    uint32_t reserved;
    fig_rope_table table;
} fig_rope_node_attributes;
typedef struct fig_attention_attributes {
    float sm_scale, soft_cap;
    int32_t window; /* the window of the node's split class */
} fig_attention_attributes;
typedef struct fig_decode_attention_attributes {
    fig_attention_attributes attention;
    fig_rope_attributes rope;
    fig_rope_table table; /* as in fig_rope_node_attributes */
} fig_decode_attention_attributes;
typedef struct fig_latent_attributes {
    float sm_scale;
    int32_t window; /* of the node's split class */
} fig_latent_attributes;
typedef struct fig_latent_decode_attributes {
    fig_latent_attributes attention;
    fig_rope_attributes rope; /* norm_epsilon is that of the latent's norm */
    uint32_t reserved;
    fig_rope_table table; /* as in fig_rope_node_attributes */
} fig_latent_decode_attributes;
/* Attributes of a launch of attention, for every node that has such a launch. Future attributes of
 * attention come after these. */
typedef struct fig_attention_launch_attributes {
    fig_attention_attributes attention;
    fig_rope_attributes turn; /* no attention node has `turn` and `table` */
    fig_rope_table table;
} fig_attention_launch_attributes;
typedef struct fig_scored_attributes {
    fig_attention_attributes attention;
    uint32_t score; /* number of a score of the program, from 1 */
} fig_scored_attributes;
/* A flag beside FIG_ATTENTION_*: the device may compile the score of the launch. An engine sets it
 * in its own params, so no lowering depends on it. No kernel reads it. */
enum { FIG_SCORED_COMPILES = 1 << 16 };
/* A flag beside FIG_EARLY_READS_* and FIG_ATTENTION_*: a node writes memory that the launch reads
 * before its wait, so the launch begins only after all launches in front of it have ended. No
 * kernel reads it. */
enum { FIG_EARLY_READS_WRITTEN = 1 << 17 };
/* The table follows the fig_rope_attributes at `offset`, rounded up to the alignment of a
 * double. */
static inline uint32_t fig_table_rope_table(uint32_t offset) {
    return (offset + (uint32_t)sizeof(fig_rope_attributes) + 7) / 8 * 8;
}
static_assert(offsetof(fig_rope_node_attributes, table) == 40, "file format");
static_assert(offsetof(fig_decode_attention_attributes, table) == 48, "file format");
static_assert(offsetof(fig_latent_decode_attributes, table) == 48, "file format");
typedef struct fig_rms_norm_attributes {
    float epsilon, weight_offset;
} fig_rms_norm_attributes;

/* Returns the operation's families, [*count]. Only families.c calls this. A test can add families
 * by replacing this function. */
const fig_family *fig_table_families(fig_op op, uint32_t *count);
/* Returns "rope" or "call"; NULL if no operation has the number. */
const char *fig_table_op_name(uint32_t op);

#endif

/* program_view.h: a recorded step as all readers see it: flat arrays of PODs with indices.
 *
 * Owns what the records are and what is read off them. How they are recorded, copied and checked is
 * in program.c, what an operation demands of its tensors in operation.c. Invariant: nothing here
 * writes, and of a view that has not been checked only what a function says is looked at. */
#ifndef FIG_GRAPHS_PROGRAM_VIEW_H
#define FIG_GRAPHS_PROGRAM_VIEW_H

#include "graphs/edges.h"
#include "include/figraph.h"
#include "kernels/table.h"

enum {
    FIG_TENSOR_LIMIT = 1 << 14,
    FIG_NODE_LIMIT = 1 << 13,
    FIG_ATTRIBUTES_LIMIT = 1 << 22, /* bytes, of all nodes */
    FIG_SEGMENT_LIMIT = FIG_NODE_LIMIT, /* none is without a node */
    FIG_MULTIPLE_LIMIT = 64,
    FIG_CALL_BYTES_LIMIT = 256,
    FIG_CALL_TENSOR_LIMIT = 16
};

/* Above any device's memory, and low enough that no sum of sizes wraps. */
#define FIG_TENSOR_BYTES_LIMIT (UINT64_C(1) << 46)

typedef enum fig_symbol { FIG_SYMBOL_NONE = 0, FIG_SYMBOL_BATCH, FIG_SYMBOL_PAGES } fig_symbol;

typedef struct fig_tensor_record {
    uint32_t name;                     /* offset into strings */
    uint8_t role, dtype, rank, symbol; /* fig_role, fig_dtype, 1..4, fig_symbol of dims[0] */
    uint8_t layout;                    /* fig_kv_layout: the order of dims 1 and 2 in memory */
    uint8_t reserved[7];
    int64_t dims[4]; /* dims[0] is the multiple where symbolic; 1 past the rank */
} fig_tensor_record;
static_assert(sizeof(fig_tensor_record) == 48, "file format");

/* Operands are tensor ids, 0 for absent, in the order of the op's row in the kernel table; those of
 * a call are its reads, then its writes. Attributes are the op's POD, followed by zeros up to a
 * multiple of 8. Both lie back to back in node order, so that one program has one form. */
typedef struct fig_node {
    uint16_t op;   /* fig_op */
    int16_t layer; /* -1: none */
    uint32_t operand, operand_count;
    uint32_t attribute, attribute_bytes;
} fig_node;
static_assert(sizeof(fig_node) == 20, "file format");

typedef struct fig_call_attributes {
    uint64_t tag;
    uint32_t name; /* offset into strings */
    uint32_t read_count, byte_count;
    uint32_t reserved;
    uint8_t bytes[FIG_CALL_BYTES_LIMIT];
} fig_call_attributes;
static_assert(sizeof(fig_call_attributes) == 24 + FIG_CALL_BYTES_LIMIT, "file format");

/* Nodes [node, node + node_count) under a name that no other segment has. */
typedef struct fig_segment {
    uint32_t name; /* offset into strings */
    uint32_t node, node_count;
} fig_segment;
static_assert(sizeof(fig_segment) == 12, "file format");

/* What all readers read. Tensor id t is tensors[t - 1]. */
typedef struct fig_program_view {
    fig_spec spec; /* resolved */
    const fig_tensor_record *tensors;
    const fig_node *nodes;
    const uint32_t *operands;
    const uint8_t *attributes;
    const char *strings;         /* NUL-terminated, the first "" */
    const fig_segment *segments; /* sorted by node, none overlaps another */
    const fig_edge *edges;       /* derived, never stored; sorted by (to, from) */
    uint32_t tensor_count, node_count, operand_count, attribute_bytes, string_bytes, edge_count;
    uint32_t segment_count;
} fig_program_view;

const char *fig_program_view_tensor_name(const fig_program_view *view, uint32_t tensor);
/* 1: *segment is the one of that name; 0: there is none, and it is all zeros. */
int fig_program_view_find_segment(const fig_program_view *view, const char *name,
                                  fig_segment *segment);
/* FIG_ACCESS_* of a node's i-th operand. */
uint32_t fig_program_view_access(const fig_program_view *view, const fig_node *node, uint32_t i);
uint32_t fig_program_view_dtype_bytes(uint32_t dtype); /* 0: no fig_dtype */
/* dims[0] of so many rows or pages: as it is where it is no symbol. */
int64_t fig_program_view_extent(const fig_tensor_record *record, int64_t rows);
/* 1: attention is part of what the node does, and is split among workers. A decode_attention
 * without an out turns and appends alone. */
int fig_program_view_is_split(const fig_program_view *view, const fig_node *node);
/* 1: it makes its plans on the device, from lengths that the host does not know. */
int fig_program_view_reads_lengths(const fig_program_view *view);
/* 1: it is a collective. */
int fig_program_view_meets(const fig_node *node);
/* Of the largest message that a collective of it sends, at the spec's batch limit; 0: there is
 * none. */
uint64_t fig_program_view_message_bytes(const fig_program_view *view);
/* Without gaps, in any order of dims; at the spec's batch limit, and of one page where pages are
 * symbolic. */
uint64_t fig_program_view_tensor_bytes(const fig_program_view *view, uint32_t tensor);
/* The same of a record; 1: more than FIG_TENSOR_BYTES_LIMIT. */
int fig_program_view_measure(const fig_tensor_record *record, int64_t batch_limit, uint64_t *bytes);

#endif

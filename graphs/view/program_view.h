/* program_view.h: presents a recorded step to all readers as flat arrays of PODs with indices.
 *
 * Owns the records and the functions that read them. program.c records, copies and checks programs;
 * operation.c checks the tensors of a node. Invariant: nothing here changes a program. If a view
 * has not been checked, a function reads only the fields that its comment names. */
#ifndef FIG_GRAPHS_PROGRAM_VIEW_H
#define FIG_GRAPHS_PROGRAM_VIEW_H

#include "graphs/view/edges.h"
#include "include/figraph.h"
#include "kernels/table/table.h"

enum {
    FIG_TENSOR_LIMIT = 1 << 14,
    FIG_NODE_LIMIT = 1 << 13,
    FIG_ATTRIBUTES_LIMIT = 1 << 22,     /* bytes of all nodes together */
    FIG_SEGMENT_LIMIT = FIG_NODE_LIMIT, /* each segment has at least one node */
    FIG_MULTIPLE_LIMIT = 128,           /* the experts of every query token of a row */
    FIG_CALL_BYTES_LIMIT = 256,
    FIG_CALL_TENSOR_LIMIT = 16
};

/* The limit is above any device's memory, and low enough that no sum of sizes wraps. */
#define FIG_TENSOR_BYTES_LIMIT (UINT64_C(1) << 46)

typedef enum fig_symbol {
    FIG_SYMBOL_NONE = 0,
    FIG_SYMBOL_BATCH,
    FIG_SYMBOL_PAGES,
    FIG_SYMBOL_QUERIES /* only in a packed program */
} fig_symbol;

typedef struct fig_tensor_record {
    uint32_t name;                     /* offset into strings */
    uint8_t role, dtype, rank, symbol; /* fig_role, fig_dtype, 1..4, fig_symbol of dims[0] */
    uint8_t layout;                    /* fig_kv_layout: the order of dims 1 and 2 in memory */
    uint8_t reserved[7];
    /* dims[0] is the multiple of the symbol if there is one; dims past the rank are 1. */
    int64_t dims[4];
} fig_tensor_record;
static_assert(sizeof(fig_tensor_record) == 48, "file format");

/* Operands are tensor ids, or 0 for an absent operand, in the order of the operation's row in the
 * kernel table. A call lists the tensors that it reads, then those that it writes. Attributes are
 * the operation's POD, followed by zeros up to a multiple of 8. Operands and attributes may be
 * shorter than the row says, and may be longer if the surplus is 0. Both arrays hold the nodes'
 * parts back to back in node order. The recorder always writes the length that the row says, so
 * equal programs have equal bytes. */
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

/* Nodes [node, node + node_count), with a name that no other segment has. */
typedef struct fig_segment {
    uint32_t name; /* offset into strings */
    uint32_t node, node_count;
} fig_segment;
static_assert(sizeof(fig_segment) == 12, "file format");

/* Scores lie back to back in units. graphs/view/score_units.h reads them. */
typedef struct fig_score_unit {
    uint32_t words[4];
} fig_score_unit;
static_assert(sizeof(fig_score_unit) == 16, "file format");

/* A program in the form that all readers use. tensors[t - 1] has tensor id t. */
typedef struct fig_program_view {
    fig_spec spec; /* resolved */
    const fig_tensor_record *tensors;
    const fig_node *nodes;
    const uint32_t *operands;
    const uint8_t *attributes;
    const char *strings;          /* NUL-terminated; the first is "" */
    const fig_segment *segments;  /* sorted by node; no two overlap */
    const fig_score_unit *scores; /* [score_units] */
    const fig_edge *edges;        /* derived, never stored; sorted by (to, from) */
    uint32_t tensor_count, node_count, operand_count, attribute_bytes, string_bytes, edge_count;
    uint32_t segment_count, score_units;
} fig_program_view;

const char *fig_program_view_tensor_name(const fig_program_view *view, uint32_t tensor);
/* Sets *segment to the segment of that name and returns 1. Returns 0 if there is no such segment,
 * and sets *segment to zeros. */
int fig_program_view_find_segment(const fig_program_view *view, const char *name,
                                  fig_segment *segment);
/* These return the id and the record of the node's i-th operand, or 0 and NULL if the operand is
 * absent. */
uint32_t fig_program_view_operand(const fig_program_view *view, const fig_node *node, uint32_t i);
const fig_tensor_record *fig_program_view_tensor(const fig_program_view *view, const fig_node *node,
                                                 uint32_t i);
/* Copies `bytes` bytes of the node's attributes from `offset` on; bytes past their end read as
 * 0. */
void fig_program_view_attributes(const fig_program_view *view, const fig_node *node,
                                 uint32_t offset, void *to, size_t bytes);
/* Returns the FIG_ACCESS_* of a node's i-th operand, or 0 if the operation's row has no such
 * operand. */
uint32_t fig_program_view_access(const fig_program_view *view, const fig_node *node, uint32_t i);
uint32_t fig_program_view_dtype_bytes(uint32_t dtype); /* 0: not a fig_dtype */
/* Returns dims[0] for `rows` rows, pages or query tokens: the multiple times `rows`, or dims[0] if
 * it has no symbol. */
int64_t fig_program_view_extent(const fig_tensor_record *record, int64_t rows);
/* Returns 1 if the node computes attention, which workers share. A decode_attention without an
 * `out` only applies RoPE and appends. */
int fig_program_view_is_split(const fig_program_view *view, const fig_node *node);
/* Returns 1 if the node makes the plan that all other nodes read. */
int fig_program_view_makes_plan(const fig_node *node);
/* Returns 1 if the program makes its plans on the device, from lengths that the host does not
 * know. */
int fig_program_view_reads_lengths(const fig_program_view *view);
/* Returns 1 if rows of the packed program may be chunks, of more than FIG_NARROW_TOKENS_LIMIT query
 * tokens. Attention of chunks has a plan, a launch and a workspace of its own. A program that reads
 * lengths has chunks only if its row_tokens is above FIG_ROW_TOKENS_LIMIT: up to there the kernels
 * for decode serve all its rows, and each run and step is spared a launch. They also serve all rows
 * over a latent cache, because no kernel for chunks reads one. */
int fig_program_view_has_chunks(const fig_program_view *view);
/* Returns the most query tokens of a row that the kernels for decode serve. */
int32_t fig_program_view_narrow_tokens(const fig_program_view *view);
/* Returns the tensor of query_starts that the program reads; 0 if it reads none. */
uint32_t fig_program_view_query_starts(const fig_program_view *view);
/* Returns 1 if the node is a collective. */
int fig_program_view_meets(const fig_node *node);
/* Returns the bytes of the largest message that a collective of the program sends at the spec's
 * batch limit, or 0 if the program has no collective. */
uint64_t fig_program_view_message_bytes(const fig_program_view *view);
/* Returns the bytes of a tensor without gaps, for any order of its dims: its size at the spec's
 * batch limit or, if the number of pages is symbolic, the size of one page. */
uint64_t fig_program_view_tensor_bytes(const fig_program_view *view, uint32_t tensor);
/* Sets *bytes to the same size for a record. Returns 1 if the size exceeds
 * FIG_TENSOR_BYTES_LIMIT. */
int fig_program_view_measure(const fig_tensor_record *record, const fig_spec *spec,
                             uint64_t *bytes);
/* Returns how many rows, pages or query tokens dims[0] counts at the spec's limits; 1 for pages,
 * and for a dims[0] that is a number. */
int64_t fig_program_view_rows(const fig_tensor_record *record, const fig_spec *spec);
/* Returns 1 if the tensor has rows of the batch or query tokens. */
int fig_program_view_has_rows(const fig_tensor_record *record);

#endif

/* inspect.h: what text and JSON have in common: names for numbers, where a param comes from, and
 * what is shown once.
 *
 * inspect_text.c and inspect_json.c say the same things in two ways with it, inspect_page.c and the
 * drawings in others, and inspect_print.c is the public call. Invariant: none of them knows a
 * kernel by name; all comes from the table. */
#ifndef FIG_GRAPHS_INSPECT_H
#define FIG_GRAPHS_INSPECT_H

#include "graphs/graphs.h"
#include "graphs/inspect/layer_fold.h"
#include "graphs/inspect/print.h"
#include "kernels/families.h"

/* Graphs, and what had to be made to show them. */
typedef struct fig_inspect_summary {
    const fig_graphs *graphs;
    const fig_program_view *view;
    fig_split_classes classes;
    fig_bucket_info *infos;         /* [graphs->bucket_count] */
    fig_layer_fold_tensors *groups; /* [group_count] */
    uint32_t group_count;
    uint32_t relowered_count;
    int all_buckets; /* 1: text has a line for each bucket, else one for each batch */
} fig_inspect_summary;

/* A bucket lowered, beside what it was lowered from. */
typedef struct fig_inspect_bucket {
    const fig_graphs *graphs;
    const fig_program_view *view;
    uint32_t index; /* from 0 */
    fig_bucket_info info;
    fig_lowered lowered;
} fig_inspect_bucket;

/* One word of a launch's params. */
typedef struct fig_inspect_value {
    const uint8_t *bytes;   /* [field->bytes] */
    const fig_reloc *reloc; /* NULL: the bytes are the value */
    const char *operand;    /* name of the operand's tensor; NULL: the field has none */
} fig_inspect_value;
fig_inspect_value fig_inspect_value_of(const fig_inspect_bucket *bucket, const fig_launch *launch,
                                       const fig_field *field);
int32_t fig_inspect_i32(const uint8_t *bytes);
int64_t fig_inspect_i64(const uint8_t *bytes);
float fig_inspect_f32(const uint8_t *bytes);
fig_split_shape fig_inspect_split(const uint8_t *bytes);
fig_rope_angles fig_inspect_angles(const uint8_t *bytes);
/* Of a node that has one. */
fig_rope_table fig_inspect_table(const fig_program_view *view, const fig_node *node);
fig_plan_shape fig_inspect_plan(const uint8_t *bytes);

/* What a param is, in words: "q.0", "stride 1 of q.0", "workspace+0x1000", "bf16", "16". A split
 * has members instead. */
enum { FIG_INSPECT_VALUE_BYTES = 2 * FIG_NAME_LIMIT };
void fig_inspect_describe(const fig_field *field, const fig_inspect_value *value,
                          char text[FIG_INSPECT_VALUE_BYTES]);
typedef struct fig_inspect_member {
    const char *name;
    int32_t value;
} fig_inspect_member;
enum { FIG_INSPECT_SPLIT_MEMBERS = 7 };
void fig_inspect_split_members(const uint8_t *bytes,
                               fig_inspect_member members[FIG_INSPECT_SPLIT_MEMBERS]);
/* "rope" or, for a call, "call" and the name it is registered under. */
enum { FIG_INSPECT_OPERATION_BYTES = FIG_NAME_LIMIT + FIG_PRINT_NUMBER };
void fig_inspect_operation(const fig_inspect_bucket *bucket, const fig_launch *launch,
                           char text[FIG_INSPECT_OPERATION_BYTES]);
void fig_inspect_node_operation(const fig_program_view *view, const fig_node *node,
                                char text[FIG_INSPECT_OPERATION_BYTES]);

const char *fig_inspect_dtype(uint32_t dtype);           /* "bf16"; "none" for 0 */
const char *fig_inspect_role(uint32_t role);             /* "bound" */
const char *fig_inspect_activation(uint32_t activation); /* "gelu_tanh" */
const char *fig_inspect_layout(uint32_t layout);         /* "hnd" */
/* The name of what an i32 of params or attributes stands for, a dtype say; NULL: it is a number. */
const char *fig_inspect_value_name(const fig_field *field, const uint8_t *bytes);
/* "batch" or "pages"; NULL where dims[0] is a number. */
const char *fig_inspect_symbol(const fig_tensor_record *record);

/* 1: the launch behind it, of the same node, is of a family that does its work too. */
int fig_inspect_is_left_out(const fig_inspect_bucket *bucket, uint32_t launch);
/* The family that will serve a launch on the machine that the graphs are lowered for, as far as
 * can be known before anything is bound. */
void fig_inspect_family(const fig_inspect_bucket *bucket, const fig_launch *launch,
                        fig_family_choice *choice);

/* The attributes of a call. */
fig_call_attributes fig_inspect_call(const fig_program_view *view, const fig_node *node);

/* Edges that end at a launch: edges[*first], *count of them. */
void fig_inspect_edges(const fig_lowered *lowered, uint32_t launch, uint32_t *first,
                       uint32_t *count);

/* Nodes from `node` on that are shown once: `period` layers of in all `count` nodes, which the
 * layers behind repeat until they are `times` as many. */
typedef struct fig_inspect_stretch {
    uint32_t node, count, period, times;
} fig_inspect_stretch;
/* bucket: NULL, or its launches repeat as well. */
fig_inspect_stretch fig_inspect_stretch_at(const fig_program_view *view,
                                           const fig_inspect_bucket *bucket, uint32_t node);

#endif

/* inspect.h: puts fields into words and finds repeated layers, for text, JSON and drawings.
 *
 * inspect_text.c, inspect_json.c, inspect_page.c and the drawings show the same content in
 * different forms. Commands call inspect_print.c. Invariant: none of these files knows a kernel
 * by name; all content comes from an inspection. */
#ifndef FIG_TOOLS_INSPECT_H
#define FIG_TOOLS_INSPECT_H

#include <figraph_inspect.h>

#include "tools/figraph/inspect/inspect_names.h"
#include "tools/figraph/inspect/layer_fold.h"
#include "tools/figraph/inspect/print.h"

enum { FIG_INSPECT_NAME_LIMIT = 63, FIG_INSPECT_FREQUENCY_LIMIT = 128 };

/* Graphs and the data prepared for showing them. */
typedef struct fig_inspect_summary {
    const fig_graphs *graphs;
    const fig_inspection *view;
    fig_bucket_info *infos;         /* [view->bucket_count] */
    fig_layer_fold_tensors *groups; /* [group_count] */
    uint32_t group_count;
    uint32_t relowered_count;
    int all_buckets; /* 1: text has a line for each bucket, else one for each batch */
} fig_inspect_summary;

/* A bucket with its launches. */
typedef struct fig_inspect_bucket {
    const fig_graphs *graphs;
    const fig_inspection *view;
    uint32_t index; /* from 0 */
    fig_bucket_info info;
} fig_inspect_bucket;

/* Returns the RoPE table in the bytes of a field. */
fig_rope_table fig_inspect_table(const fig_inspect_field *field);
fig_inspect_split fig_inspect_split_of(const fig_inspect_field *field);
fig_inspect_plan fig_inspect_plan_of(const fig_inspect_field *field);
fig_inspect_strips fig_inspect_strips_of(const fig_inspect_field *field);
/* Returns 1 if the table gives the frequencies, which otherwise follow from the spec's RoPE
 * terms. */
int fig_inspect_has_table(const fig_rope_table *table);

/* Writes a param in words: "q.0", "stride 1 of q.0", "workspace+0x1000", "bf16", "16". Does not
 * take a split, which has members instead. */
enum { FIG_INSPECT_VALUE_BYTES = 2 * FIG_INSPECT_NAME_LIMIT };
void fig_inspect_describe(const fig_inspect_field *field, char text[FIG_INSPECT_VALUE_BYTES]);
typedef struct fig_inspect_member {
    const char *name;
    int32_t value;
} fig_inspect_member;
enum { FIG_INSPECT_SPLIT_MEMBERS = 7 };
void fig_inspect_split_members(const fig_inspect_field *field,
                               fig_inspect_member members[FIG_INSPECT_SPLIT_MEMBERS]);
/* Returns the name that an integer stands for, for example of a dtype; NULL: it is a plain
 * number. */
const char *fig_inspect_value_name(const fig_inspect_field *field);

/* Writes "rope" or, for a call, "call" and its registered name. */
enum { FIG_INSPECT_OPERATION_BYTES = FIG_INSPECT_NAME_LIMIT + FIG_PRINT_NUMBER };
void fig_inspect_operation(const fig_inspect_bucket *bucket, const fig_inspect_launch *launch,
                           char text[FIG_INSPECT_OPERATION_BYTES]);
void fig_inspect_node_operation(const fig_inspect_node *node,
                                char text[FIG_INSPECT_OPERATION_BYTES]);

/* Writes the heads that a worker of the first attention serves at once: "2 of 8 kv heads" or, over
 * a latent cache, "64 q heads". */
enum { FIG_INSPECT_HEADS_BYTES = 48 };
void fig_inspect_heads(const fig_inspect_bucket *bucket, char text[FIG_INSPECT_HEADS_BYTES]);

/* Returns "batch" or "pages"; NULL if dims[0] is a number. */
const char *fig_inspect_symbol(const fig_inspect_tensor *tensor);
/* Returns the segment that contains a node; NULL: none does. */
const fig_inspect_segment *fig_inspect_segment_of(const fig_inspection *view, uint32_t node);
/* Returns the number of tokens that the layer sees, 0 for all. fig_inspect_layer_turns() returns
 * 1 if the layer applies RoPE to q and k. */
int32_t fig_inspect_layer_window(const fig_spec *spec, int32_t layer);
int fig_inspect_layer_turns(const fig_spec *spec, int32_t layer);

/* Finds the edges that end at a launch: edges[*first] and the next, *count in all. */
void fig_inspect_edges(const fig_inspection *view, uint32_t launch, uint32_t *first,
                       uint32_t *count);

/* Describes nodes from `node` on that are shown once. They cover `period` layers and `count` nodes
 * in all; the following layers repeat them, so that the pattern occurs `times` times. */
typedef struct fig_inspect_stretch {
    uint32_t node, count, period, times;
} fig_inspect_stretch;
/* bucket: if not NULL, its launches must repeat as well. */
fig_inspect_stretch fig_inspect_stretch_at(const fig_inspection *view,
                                           const fig_inspect_bucket *bucket, uint32_t node);

#endif

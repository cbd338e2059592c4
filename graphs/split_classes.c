/* split_classes.c: which nodes of a program are split alike.
 *
 * The only reader of an attention node's operands beside its check: what is split is its cache, so
 * kv heads and the tokens that are seen decide. Invariant: nodes of one class that differ in q
 * heads, head_dim or dtype are served by the most of each. */
#include "graphs/split_classes.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/form.h"
#include "planner/size.h"
#include "planner/status.h"

static int32_t max_of(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static int may_be_short(const uint32_t *ids, const fig_tensor_record *q,
                        const fig_tensor_record *cache) {
    const fig_form_rows rows = {.dtype = (int32_t)q->dtype,
                                .kv_dtype = (int32_t)cache->dtype,
                                .head_dim = (int32_t)q->dims[2],
                                .row_tokens = (int32_t)q->dims[0],
                                .ratio = (int32_t)(q->dims[1] / cache->dims[2]),
                                .page_size =
                                    ids[FIG_ATTENTION_TABLE] != 0 ? (int32_t)cache->dims[1] : 0};
    return fig_form_short_refuses(&rows) == NULL;
}

/* What one split node needs by itself. */
static fig_split_class needs_of(const fig_program_view *view, const fig_node *node) {
    const uint32_t *ids = view->operands + node->operand;
    const fig_tensor_record *q = &view->tensors[ids[FIG_ATTENTION_Q] - 1];
    const fig_tensor_record *cache = &view->tensors[ids[FIG_ATTENTION_K_CACHE] - 1];
    fig_attention_attributes attributes;
    memcpy(&attributes, view->attributes + node->attribute, sizeof attributes);
    return (fig_split_class){.kv_heads = (int32_t)cache->dims[2],
                             .window = attributes.window,
                             .row_tokens = (int32_t)q->dims[0],
                             .q_heads = (int32_t)q->dims[1],
                             .head_dim = (int32_t)q->dims[2],
                             .value_bytes = (int32_t)fig_program_view_dtype_bytes(cache->dtype),
                             .may_be_short = may_be_short(ids, q, cache)};
}

static int same_class(const fig_split_class *a, const fig_split_class *b) {
    return a->kv_heads == b->kv_heads && a->window == b->window && a->row_tokens == b->row_tokens;
}

uint32_t fig_split_classes_index(const fig_split_classes *classes, const fig_program_view *view,
                                 const fig_node *node) {
    if (!fig_program_view_is_split(view, node)) return UINT32_MAX;
    const fig_split_class needs = needs_of(view, node);
    for (int32_t i = 0; i < classes->count; i++) {
        if (same_class(&classes->of[i], &needs)) return (uint32_t)i;
    }
    return UINT32_MAX;
}

fig_status fig_split_classes_find(const fig_program_view *view, fig_split_classes *classes) {
    classes->count = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        if (!fig_program_view_is_split(view, node)) continue;
        const fig_split_class needs = needs_of(view, node);
        const uint32_t index = fig_split_classes_index(classes, view, node);
        if (index == UINT32_MAX) {
            if (classes->count == FIG_CLASS_LIMIT)
                return fig_fail(FIG_UNSUPPORTED,
                                "node %u (%s): %" PRId32 " kv heads, window %" PRId32
                                " and %" PRId32
                                " tokens of a row, unlike %d other classes, the limit of a program",
                                n, fig_table_op_name(node->op), needs.kv_heads, needs.window,
                                needs.row_tokens, FIG_CLASS_LIMIT);
            classes->of[classes->count++] = needs;
            continue;
        }
        fig_split_class *most = &classes->of[index];
        most->q_heads = max_of(most->q_heads, needs.q_heads);
        most->head_dim = max_of(most->head_dim, needs.head_dim);
        most->value_bytes = max_of(most->value_bytes, needs.value_bytes);
        most->may_be_short &= needs.may_be_short;
    }
    return FIG_OK;
}

int32_t fig_split_classes_heads(const fig_split_class *split_class, int32_t most) {
    int32_t heads = fig_size_min(split_class->kv_heads, most);
    while (split_class->kv_heads % heads != 0)
        heads--;
    return heads;
}

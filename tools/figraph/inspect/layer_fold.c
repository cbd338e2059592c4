/* layer_fold.c: finds the parts of a program that are equal in every layer.
 *
 * Compares tensors, nodes and segments and ignores the layer's number; inspect_*.c prints them.
 * Invariant: no pass takes longer than sorting the tensors, whatever their names. */
#include "tools/figraph/inspect/layer_fold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/inspect/failure.h"

enum { DIGITS_LIMIT = 6 };

fig_layer_fold_name fig_layer_fold_split(const char *name) {
    const fig_layer_fold_name whole = {(uint32_t)strlen(name), FIG_FOLD_NONE};
    const char *dot = strrchr(name, '.');
    if (dot == NULL) return whole;
    const char *digits = dot + 1;
    const size_t length = strlen(digits);
    /* "q.07" does not count as a number: it would not print back unchanged. */
    if (length == 0 || length > DIGITS_LIMIT || (length > 1 && digits[0] == '0')) return whole;
    if (strspn(digits, "0123456789") != length) return whole;
    return (fig_layer_fold_name){(uint32_t)(dot - name), (int32_t)strtol(digits, NULL, 10)};
}

/* ---- Tensors */

typedef struct entry {
    const char *name;
    const fig_inspect_tensor *record;
    fig_layer_fold_name split;
    uint32_t id;
} entry;

static int compare_records(const fig_inspect_tensor *a, const fig_inspect_tensor *b) {
    const int64_t shape_a[] = {a->role, a->dtype, a->layout, a->rank, a->symbol};
    const int64_t shape_b[] = {b->role, b->dtype, b->layout, b->rank, b->symbol};
    const int order = memcmp(shape_a, shape_b, sizeof shape_a);
    return order != 0 ? order : memcmp(a->dims, b->dims, sizeof a->dims);
}

static int compare_stems(const entry *a, const entry *b) {
    if (a->split.stem_bytes != b->split.stem_bytes)
        return a->split.stem_bytes < b->split.stem_bytes ? -1 : 1;
    const int order = memcmp(a->name, b->name, a->split.stem_bytes);
    return order != 0 ? order : compare_records(a->record, b->record);
}

static int compare_entries(const void *left, const void *right) {
    const entry *a = left, *b = right;
    const int order = compare_stems(a, b);
    if (order != 0) return order;
    return (a->split.number > b->split.number) - (a->split.number < b->split.number);
}

static int compare_groups(const void *left, const void *right) {
    const fig_layer_fold_tensors *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

static uint32_t group_entries(const entry *entries, uint32_t count,
                              fig_layer_fold_tensors *groups) {
    uint32_t group_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const entry *before = i > 0 ? &entries[i - 1] : NULL;
        if (before != NULL && before->split.number != FIG_FOLD_NONE &&
            entries[i].split.number == before->split.number + 1 &&
            compare_stems(before, &entries[i]) == 0) {
            groups[group_count - 1].count++;
        } else {
            groups[group_count++] = (fig_layer_fold_tensors){entries[i].id, 1};
        }
    }
    return group_count;
}

fig_status fig_layer_fold_group(const fig_inspection *view, fig_layer_fold_tensors **groups,
                                uint32_t *group_count) {
    const uint32_t count = view->tensor_count;
    entry *entries = calloc((size_t)count + 1, sizeof *entries);
    *groups = calloc((size_t)count + 1, sizeof **groups);
    *group_count = 0;
    if (entries == NULL || *groups == NULL) {
        free(entries);
        free(*groups);
        *groups = NULL;
        return fig_failure(FIG_NOMEM, "fold: %u tensors", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *name = view->tensors[i].name;
        entries[i] = (entry){name, &view->tensors[i], fig_layer_fold_split(name), i + 1};
    }
    qsort(entries, count, sizeof *entries, compare_entries);
    *group_count = group_entries(entries, count, *groups);
    qsort(*groups, *group_count, sizeof **groups, compare_groups);
    free(entries);
    return FIG_OK;
}

/* ---- Nodes */

uint32_t fig_layer_fold_block(const fig_inspection *view, uint32_t node) {
    uint32_t end = node + 1;
    assert(node < view->node_count);
    while (end < view->node_count && view->nodes[end].layer == view->nodes[node].layer)
        end++;
    return end - node;
}

/* Two layers that are compared. */
typedef struct layer_pair {
    int32_t a, b;
} layer_pair;

/* Returns 1 if a and b end in their layers' numbers and have one stem. If a does not end in its
 * layer's number, returns 1 if the names are equal. */
static int names_match(const char *a, const char *b, layer_pair layers) {
    const fig_layer_fold_name split_a = fig_layer_fold_split(a), split_b = fig_layer_fold_split(b);
    if (split_a.number != layers.a) return strcmp(a, b) == 0;
    return split_b.number == layers.b && split_a.stem_bytes == split_b.stem_bytes &&
           memcmp(a, b, split_a.stem_bytes) == 0;
}

/* Compares tensor a of the first layer with tensor b of the second. */
static int operands_match(const fig_inspection *view, uint32_t a, uint32_t b, layer_pair layers) {
    if (a == 0 || b == 0) return a == b;
    return names_match(view->tensors[a - 1].name, view->tensors[b - 1].name, layers) &&
           compare_records(&view->tensors[a - 1], &view->tensors[b - 1]) == 0;
}

/* Compares the segments of nodes a and b. */
static int segments_match(const fig_inspection *view, uint32_t a, uint32_t b) {
    const int32_t of_a = view->nodes[a].segment, of_b = view->nodes[b].segment;
    if (of_a < 0 || of_b < 0) return of_a == of_b;
    return names_match(view->segments[of_a].name, view->segments[of_b].name,
                       (layer_pair){view->nodes[a].layer, view->nodes[b].layer});
}

static int nodes_match(const fig_inspection *view, const fig_inspect_node *a,
                       const fig_inspect_node *b) {
    if (strcmp(a->operation, b->operation) != 0 || a->operand_count != b->operand_count ||
        a->attribute_bytes != b->attribute_bytes)
        return 0;
    if (a->attribute_bytes > 0 && memcmp(a->attributes, b->attributes, a->attribute_bytes) != 0)
        return 0;
    for (uint32_t i = 0; i < a->operand_count; i++) {
        if (!operands_match(view, view->operands[a->operand + i].tensor,
                            view->operands[b->operand + i].tensor,
                            (layer_pair){a->layer, b->layer}))
            return 0;
    }
    return 1;
}

int fig_layer_fold_repeats(const fig_inspection *view, uint32_t a, uint32_t count) {
    const uint32_t b = a + count, end = b + count;
    if (end > view->node_count || view->nodes[a].layer < 0) return 0;
    const int apart = view->nodes[b].layer - view->nodes[a].layer;
    if (view->nodes[b].layer != view->nodes[b - 1].layer + 1) return 0;
    if (end < view->node_count && view->nodes[end].layer == view->nodes[end - 1].layer) return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (view->nodes[b + i].layer - view->nodes[a + i].layer != apart) return 0;
        if (!nodes_match(view, &view->nodes[a + i], &view->nodes[b + i])) return 0;
        if (!segments_match(view, a + i, b + i)) return 0;
    }
    return 1;
}

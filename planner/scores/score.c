/* score.c: the calls of figraph_scores.h except parsing. It also recognises the scores that other
 * fields of attention can express.
 *
 * Invariant: every score was built by fig_score_build_finish, so functions that read a score do not
 * check it. */
#include "planner/scores/score.h"

#include <inttypes.h>
#include <stdlib.h>

#include "planner/scores/mask_value.h"
#include "planner/scores/score_ops.h"
#include "planner/status.h"

/* Puts the name of a list's item in front of the sentence of a failure. */
static fig_status name_item(const char *list, int32_t item, fig_status status) {
    return fig_fail(status, "score: %s %" PRId32 ": %s", list, item, fig_message());
}

static fig_status check_parts(const fig_score_parts *parts) {
    if (parts->node_count < 1 || parts->node_count > FIG_SCORE_NODE_LIMIT)
        return fig_fail(FIG_INVALID, "score: %" PRId32 " nodes, limits 1 to %d", parts->node_count,
                        FIG_SCORE_NODE_LIMIT);
    if (parts->array_count < 0 || parts->array_count > FIG_SCORE_ARRAY_LIMIT)
        return fig_fail(FIG_INVALID, "score: %" PRId32 " arrays, limits 0 to %d",
                        parts->array_count, FIG_SCORE_ARRAY_LIMIT);
    if (parts->mask_node_count < 0 ||
        parts->mask_node_count > FIG_SCORE_NODE_LIMIT - parts->node_count)
        return fig_fail(
            FIG_INVALID, "score: %" PRId32 " nodes of a mask beside %" PRId32 ", limits 0 to %d",
            parts->mask_node_count, parts->node_count, FIG_SCORE_NODE_LIMIT - parts->node_count);
    if (parts->mask_nodes == NULL && parts->mask_node_count > 0)
        return fig_fail(FIG_INVALID, "score: mask_nodes is NULL");
    if (parts->nodes == NULL || (parts->arrays == NULL && parts->array_count > 0))
        return fig_fail(FIG_INVALID, "score: %s is NULL",
                        parts->nodes == NULL ? "nodes" : "arrays");
    return FIG_OK;
}

/* A list of nodes. Their operands are numbers of nodes in the same list. */
typedef struct node_list {
    const char *name;
    const fig_score_node *nodes; /* [count] */
    int32_t count;
} node_list;

/* Builds the nodes one after the other. numbers[i] is the builder's number of node i. */
static fig_status build_nodes(fig_score_builder *builder, const node_list *list,
                              uint16_t *numbers) {
    for (int32_t i = 0; i < list->count; i++) {
        fig_score_node node = list->nodes[i];
        uint16_t *const operands[] = {&node.a, &node.b, &node.c};
        for (int32_t o = 0; o < fig_score_ops_operands(node.op); o++) {
            if (*operands[o] >= i)
                return fig_fail(FIG_INVALID,
                                "score: %s %" PRId32
                                ": operand %c is node %d, it must be an earlier one",
                                list->name, i, 'a' + (char)o, *operands[o]);
            *operands[o] = numbers[*operands[o]];
        }
        const fig_status status = fig_score_build_node(builder, &node, &numbers[i]);
        if (status != FIG_OK) return name_item(list->name, i, status);
    }
    return FIG_OK;
}

/* Builds the mask of the parts, if they have one. */
static fig_status build_mask(fig_score_builder *builder, const fig_score_parts *parts) {
    const node_list list = {"mask node", parts->mask_nodes, parts->mask_node_count};
    uint16_t numbers[FIG_SCORE_NODE_LIMIT];
    FIG_TRY(build_nodes(builder, &list, numbers));
    for (int32_t i = 0; i < list.count; i++) {
        if (builder->nodes[numbers[i]].type != 0) continue;
        const fig_status status = fig_score_build_part(builder, numbers[i]);
        if (status != FIG_OK) return name_item(list.name, i, status);
    }
    if (list.count > 0 && builder->range_count == 0)
        return fig_fail(FIG_INVALID, "score: the nodes of the mask have no range");
    return FIG_OK;
}

static fig_status build(fig_score_builder *builder, const fig_score_parts *parts, uint16_t *root) {
    const node_list list = {"node", parts->nodes, parts->node_count};
    uint16_t numbers[FIG_SCORE_NODE_LIMIT];
    uint32_t array;
    *root = 0;
    for (int32_t i = 0; i < parts->array_count; i++) {
        const fig_status status = fig_score_build_array(builder, &parts->arrays[i], &array);
        if (status != FIG_OK) return name_item("array", i, status);
    }
    FIG_TRY(build_nodes(builder, &list, numbers));
    *root = numbers[list.count - 1];
    return build_mask(builder, parts);
}

fig_status fig_score_make(fig_score *score, const fig_score_parts *parts) {
    uint16_t root;
    memset(score, 0, sizeof *score);
    FIG_TRY(check_parts(parts));
    fig_score_builder *builder = calloc(1, sizeof *builder);
    if (builder == NULL) return fig_fail(FIG_NOMEM, "score: %zu bytes", sizeof *builder);
    fig_status status = build(builder, parts, &root);
    if (status == FIG_OK) status = fig_score_build_finish(builder, root, parts->weights, score);
    free(builder);
    return status;
}

fig_status fig_score_create(fig_score **out, const fig_score_parts *parts) {
    fig_score_parts ours;
    *out = NULL;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, parts, "fig_score_parts"));
    fig_score *score = calloc(1, sizeof *score);
    if (score == NULL) return fig_fail(FIG_NOMEM, "score: %zu bytes", sizeof *score);
    const fig_status status = fig_score_make(score, &ours);
    if (status != FIG_OK) {
        free(score);
        score = NULL;
    }
    *out = score;
    return status;
}

void fig_score_destroy(fig_score *score) {
    free(score);
}

fig_status fig_score_read(const fig_score *score, fig_score_parts *parts) {
    fig_score_parts ours = {.size = sizeof ours};
    if (score == NULL) return fig_fail(FIG_INVALID, "score: NULL");
    ours.nodes = score->code.nodes;
    ours.arrays = score->arrays;
    ours.node_count = (int32_t)score->code.node_count;
    ours.array_count = (int32_t)score->array_count;
    ours.weights = score->code.weights;
    ours.mask_node_count = (int32_t)score->code.mask_node_count;
    if (ours.mask_node_count > 0) ours.mask_nodes = score->code.nodes + score->code.node_count;
    return fig_status_give(parts, &ours, sizeof ours, "fig_score_parts");
}

const char *fig_score_text(const fig_score *score) {
    return score == NULL ? "" : score->text;
}

fig_status fig_score_evaluate(const fig_score *score, const fig_score_place *place, float *scores,
                              int32_t count) {
    fig_score_place ours;
    if (score == NULL) return fig_fail(FIG_INVALID, "score: NULL");
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, place, "fig_score_place"));
    if (count < 0 || (scores == NULL && count > 0))
        return fig_fail(FIG_INVALID, "score: scores are NULL or %" PRId32 ", at least 0", count);
    if (score->array_count > 0 && (ours.arrays == NULL || ours.counts == NULL))
        return fig_fail(FIG_INVALID, "score: place: %s is NULL, and the score reads %s",
                        ours.arrays == NULL ? "arrays" : "counts", score->arrays[0].name);
    fig_score_code code = score->code;
    for (uint32_t i = 0; i < score->array_count; i++) {
        if (ours.arrays[i] == NULL || ours.counts[i] < 1)
            return fig_fail(FIG_INVALID, "score: place: array %s is NULL or has no element",
                            score->arrays[i].name);
        if (ours.counts[i] < code.arrays[i].count)
            return fig_fail(FIG_INVALID,
                            "score: place: array %s has %" PRId32
                            " elements, the score says %" PRId32,
                            score->arrays[i].name, ours.counts[i], code.arrays[i].count);
        if (code.arrays[i].count == 0) code.arrays[i].count = ours.counts[i];
    }
    fig_score_inputs inputs = {.arrays = ours.arrays};
    inputs.terms[FIG_SCORE_Q_POS] = (uint32_t)ours.q_pos;
    inputs.terms[FIG_SCORE_KV_LENGTH] = (uint32_t)ours.kv_length;
    inputs.terms[FIG_SCORE_HEAD] = (uint32_t)ours.head;
    inputs.terms[FIG_SCORE_KV_HEAD] = (uint32_t)ours.kv_head;
    inputs.terms[FIG_SCORE_ROW] = (uint32_t)ours.row;
    const fig_mask_sight sight = fig_mask_value_of(&code, &inputs, 0);
    for (int32_t i = 0; i < count; i++) {
        const uint32_t token = (uint32_t)ours.kv_pos + (uint32_t)i;
        inputs.terms[FIG_SCORE_SCORE] = fig_score_value_bits(scores[i]);
        inputs.terms[FIG_SCORE_KV_POS] = token;
        scores[i] = fig_score_value_of(&code, &inputs);
        if (code.mask_node_count > 0 && !fig_mask_value_sees(&sight, (int32_t)token))
            scores[i] = -INFINITY;
    }
    return FIG_OK;
}

/* ---- A score and the mask of another score */

/* Sets *number to the number of the mask's array among the arrays of the score, and adds the array
 * if the score does not have it. */
static fig_status join_array(fig_score_array *arrays, int32_t *count, const fig_score_array *array,
                             uint32_t *number) {
    for (*number = 0; *number < (uint32_t)*count; ++*number)
        if (strcmp(arrays[*number].name, array->name) == 0) break;
    fig_score_array *at = &arrays[*number];
    if (*number == FIG_SCORE_ARRAY_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "score: more than %d arrays with those of the mask",
                        FIG_SCORE_ARRAY_LIMIT);
    if (*number == (uint32_t)*count) {
        arrays[(*count)++] = *array;
        return FIG_OK;
    }
    if (at->dtype != array->dtype ||
        (at->count != 0 && array->count != 0 && at->count != array->count))
        return fig_fail(FIG_INVALID, "score: the mask declares array %s in another way",
                        array->name);
    if (at->count == 0) at->count = array->count;
    return FIG_OK;
}

fig_status fig_score_join(const fig_score *score, const fig_score *mask, fig_score *joined) {
    static const fig_score_node logit = {.op = FIG_SCORE_SCORE};
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT] = {{.count = 0}};
    fig_score_node nodes[FIG_SCORE_NODE_LIMIT];
    uint32_t number;
    fig_score_parts all = {.nodes = &logit, .node_count = 1}, given;
    memset(joined, 0, sizeof *joined);
    if (score != NULL) {
        all.size = sizeof all;
        FIG_TRY(fig_score_read(score, &all));
        if (mask != NULL && all.mask_node_count > 0)
            return fig_fail(FIG_INVALID, "score: a mask is given beside a score with a mask");
        memcpy(arrays, all.arrays, (size_t)all.array_count * sizeof *arrays);
    }
    all.arrays = arrays;
    if (mask == NULL) return fig_score_make(joined, &all);
    given = (fig_score_parts){.size = sizeof given};
    FIG_TRY(fig_score_read(mask, &given));
    all.mask_nodes = nodes;
    all.mask_node_count = given.mask_node_count;
    for (int32_t i = 0; i < given.mask_node_count; i++) {
        nodes[i] = given.mask_nodes[i];
        if (nodes[i].op != FIG_SCORE_ELEMENT) continue;
        FIG_TRY(join_array(arrays, &all.array_count, &given.arrays[nodes[i].bits], &number));
        nodes[i].bits = number;
    }
    return fig_score_make(joined, &all);
}

/* ---- Forms that attention has fields for */

static const fig_score_node *operand(const fig_score *score, uint16_t n, uint32_t op) {
    const fig_score_node *node = &score->code.nodes[n];
    return node->op == op ? node : NULL;
}

/* Returns 1 if the node is kv_pos - q_pos in f32, or q_pos - kv_pos if `is_behind` is 0. */
static int is_distance(const fig_score *score, uint16_t n, int is_behind) {
    const fig_score_node *made = operand(score, n, FIG_SCORE_FLOAT);
    const fig_score_node *node = made == NULL ? NULL : operand(score, made->a, FIG_SCORE_SUBTRACT);
    if (node == NULL) return 0;
    return operand(score, is_behind ? node->a : node->b, FIG_SCORE_KV_POS) != NULL &&
           operand(score, is_behind ? node->b : node->a, FIG_SCORE_Q_POS) != NULL;
}

/* Returns the number of the array `slope` if the node is slope[head] * distance; otherwise -1. */
static int32_t slope_of(const fig_score *score, uint16_t n, int is_behind) {
    const fig_score_node *node = operand(score, n, FIG_SCORE_MULTIPLY);
    if (node == NULL) return -1;
    for (int32_t i = 0; i < 2; i++) {
        const uint16_t slope = i == 0 ? node->a : node->b, rest = i == 0 ? node->b : node->a;
        const fig_score_node *element = operand(score, slope, FIG_SCORE_ELEMENT);
        if (element == NULL || !is_distance(score, rest, is_behind)) continue;
        if (operand(score, element->a, FIG_SCORE_HEAD) == NULL) continue;
        if (score->arrays[element->bits].dtype == FIG_F32) return (int32_t)element->bits;
    }
    return -1;
}

/* If the node is cap * tanh(x / cap), returns cap and sets *inside to x. Otherwise returns 0. */
static float cap_of(const fig_score *score, uint16_t n, uint16_t *inside) {
    const fig_score_node *product = operand(score, n, FIG_SCORE_MULTIPLY);
    const fig_score_node *cap =
        product == NULL ? NULL : operand(score, product->b, FIG_SCORE_CONSTANT);
    const fig_score_node *tangent = cap == NULL ? NULL : operand(score, product->a, FIG_SCORE_TANH);
    const fig_score_node *ratio =
        tangent == NULL ? NULL : operand(score, tangent->a, FIG_SCORE_DIVIDE);
    *inside = n;
    if (ratio == NULL || ratio->b != product->b) return 0.0f;
    const float value = fig_score_value_float(cap->bits);
    if (!isfinite(value) || value <= 0.0f) return 0.0f;
    *inside = ratio->a;
    return value;
}

fig_score_form fig_score_recognise(const fig_score *score) {
    fig_score_form form = {.slope_array = -1};
    uint16_t n = (uint16_t)(score->code.node_count - 1);
    if (score->code.weights != FIG_SCORE_SOFTMAX || score->code.mask_node_count > 0) return form;
    form.soft_cap = cap_of(score, n, &n);
    const fig_score_node *node = &score->code.nodes[n];
    if (node->op == FIG_SCORE_ADD || node->op == FIG_SCORE_SUBTRACT) {
        if (operand(score, node->a, FIG_SCORE_SCORE) == NULL) return form;
        form.slope_array = slope_of(score, node->b, node->op == FIG_SCORE_ADD);
        form.is_known = form.slope_array >= 0;
    } else {
        form.is_known = node->op == FIG_SCORE_SCORE;
    }
    return form;
}

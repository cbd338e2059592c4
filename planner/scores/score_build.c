/* score_build.c: builds the normal form of a score.
 *
 * Each node is brought into its normal form when it is added: implied conversions become nodes,
 * operands of a commutative operation get their order, constants are folded, and of several equal
 * nodes only one is kept. At the end, the nodes that the root needs are numbered in the order in
 * which an evaluation of the root needs them. Invariant: adding the nodes of a normal form changes
 * none of them. So a file's score is checked by building it again: it is in normal form if the
 * result is equal. Folding computes only operations that every machine rounds alike. */
#include "planner/scores/score.h"

#include <inttypes.h>

#include "planner/scores/score_ops.h"
#include "planner/status.h"

#define IS_F32(builder, n) ((builder)->nodes[n].type == FIG_F32)
#define IS_CONSTANT(builder, n) ((builder)->nodes[n].op == FIG_SCORE_CONSTANT)

/* ---- Arrays */

/* Checks that an array's name is valid and is followed by zeros. */
static fig_status check_array_name(const fig_score_array *array) {
    size_t length = 0;
    while (length < sizeof array->name && array->name[length] != 0) {
        const char c = array->name[length];
        if (!fig_score_ops_is_letter(c) && !(length > 0 && c >= '0' && c <= '9'))
            return fig_fail(FIG_INVALID,
                            "character %zu of an array's name is code %d, and no "
                            "letter, digit or _",
                            length, (unsigned char)c);
        length++;
    }
    if (length == 0 || length > FIG_SCORE_NAME_LIMIT)
        return fig_fail(FIG_INVALID, "an array's name has %zu characters, limits 1 to %d", length,
                        FIG_SCORE_NAME_LIMIT);
    for (size_t i = length; i < sizeof array->name; i++)
        if (array->name[i] != 0)
            return fig_fail(FIG_INVALID, "array %s: its name is not followed by zeros",
                            array->name);
    return FIG_OK;
}

fig_status fig_score_build_array(fig_score_builder *builder, const fig_score_array *array,
                                 uint32_t *number) {
    *number = builder->array_count;
    FIG_TRY(check_array_name(array));
    if (fig_score_ops_has_meaning(array->name))
        return fig_fail(FIG_INVALID, "array %s: the word has a meaning of its own", array->name);
    for (uint32_t i = 0; i < builder->array_count; i++)
        if (strcmp(builder->arrays[i].name, array->name) == 0)
            return fig_fail(FIG_INVALID, "array %s is declared twice", array->name);
    if (array->dtype != FIG_F32 && array->dtype != FIG_BF16 && array->dtype != FIG_I32)
        return fig_fail(FIG_INVALID, "array %s: dtype is %" PRIu32 ", it must be f32, bf16 or i32",
                        array->name, array->dtype);
    if (array->count < 0)
        return fig_fail(FIG_INVALID, "array %s: count is %" PRId32 ", it must be at least 0",
                        array->name, array->count);
    if (builder->array_count == FIG_SCORE_ARRAY_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "more than %d arrays", FIG_SCORE_ARRAY_LIMIT);
    builder->arrays[builder->array_count++] = *array;
    return FIG_OK;
}

/* ---- Nodes */

static uint64_t mix(uint64_t key, uint64_t word) {
    key = (key ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 29;
}

static uint64_t key_of(const fig_score_builder *builder, const fig_score_node *node) {
    const int32_t operands = fig_score_ops_table[node->op].operands;
    uint64_t key = mix(node->op, node->type);
    if (node->op == FIG_SCORE_ELEMENT) {
        for (const char *c = builder->arrays[node->bits].name; *c != 0; c++)
            key = mix(key, (uint64_t)(unsigned char)*c);
    } else {
        key = mix(key, node->bits);
    }
    if (operands > 0) key = mix(key, builder->keys[node->a]);
    if (operands > 1) key = mix(key, builder->keys[node->b]);
    if (operands > 2) key = mix(key, builder->keys[node->c]);
    return key;
}

/* Returns in *number the node that equals this one, and adds the node if there is none. The node is
 * in normal form. */
static fig_status intern(fig_score_builder *builder, const fig_score_node *node, uint16_t *number) {
    const int32_t operands = fig_score_ops_table[node->op].operands;
    for (uint32_t i = 0; i < builder->node_count; i++) {
        *number = (uint16_t)i;
        if (memcmp(&builder->nodes[i], node, sizeof *node) == 0) return FIG_OK;
    }
    *number = (uint16_t)builder->node_count;
    if (builder->node_count == FIG_SCORE_BUILD_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "more than %d different parts, of which a score may keep %d",
                        FIG_SCORE_BUILD_LIMIT, FIG_SCORE_NODE_LIMIT);
    builder->nodes[*number] = *node;
    builder->keys[*number] = key_of(builder, node);
    builder->has_score[*number] = node->op == FIG_SCORE_SCORE;
    if (operands > 0) builder->has_score[*number] |= builder->has_score[node->a];
    if (operands > 1) builder->has_score[*number] |= builder->has_score[node->b];
    if (operands > 2) builder->has_score[*number] |= builder->has_score[node->c];
    builder->node_count++;
    return FIG_OK;
}

static fig_status to_float(fig_score_builder *builder, uint16_t *operand) {
    if (IS_F32(builder, *operand)) return FIG_OK;
    const fig_score_node node = {.op = FIG_SCORE_FLOAT, .a = *operand};
    return fig_score_build_node(builder, &node, operand);
}

/* If two operands have different types, converts both to f32. */
static fig_status unify(fig_score_builder *builder, uint16_t *a, uint16_t *b) {
    if (builder->nodes[*a].type == builder->nodes[*b].type) return FIG_OK;
    FIG_TRY(to_float(builder, a));
    return to_float(builder, b);
}

static fig_status need_int(const fig_score_builder *builder, uint32_t op, uint16_t operand,
                           const char *what) {
    if (!IS_F32(builder, operand)) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s of %s is f32, it must be i32: int(x) makes one", what,
                    fig_score_ops_table[op].name);
}

/* Converts and checks the operands, and sets the type. */
static fig_status check_types(fig_score_builder *builder, fig_score_node *node) {
    node->type = FIG_F32;
    switch (fig_score_ops_table[node->op].kind) {
    case FIG_SCORE_KIND_NONE: break;
    case FIG_SCORE_KIND_TERM: node->type = node->op == FIG_SCORE_SCORE ? FIG_F32 : FIG_I32; break;
    case FIG_SCORE_KIND_CONSTANT: break;
    case FIG_SCORE_KIND_ELEMENT:
        if (IS_F32(builder, node->a))
            return fig_fail(FIG_INVALID, "the index of %s is f32, it must be i32: int(x) makes one",
                            builder->arrays[node->bits].name);
        if (builder->arrays[node->bits].dtype == FIG_I32) node->type = FIG_I32;
        break;
    case FIG_SCORE_KIND_ARITHMETIC:
        FIG_TRY(unify(builder, &node->a, &node->b));
        node->type = builder->nodes[node->a].type;
        break;
    case FIG_SCORE_KIND_REAL:
        FIG_TRY(to_float(builder, &node->a));
        FIG_TRY(to_float(builder, &node->b));
        break;
    case FIG_SCORE_KIND_INTEGER:
        FIG_TRY(need_int(builder, node->op, node->a, "the first operand"));
        FIG_TRY(need_int(builder, node->op, node->b, "the second operand"));
        node->type = FIG_I32;
        break;
    case FIG_SCORE_KIND_COMPARISON:
        FIG_TRY(unify(builder, &node->a, &node->b));
        node->type = FIG_I32;
        break;
    case FIG_SCORE_KIND_SELECT:
        FIG_TRY(need_int(builder, node->op, node->a, "the condition"));
        FIG_TRY(unify(builder, &node->b, &node->c));
        node->type = builder->nodes[node->b].type;
        break;
    case FIG_SCORE_KIND_SIGN: node->type = builder->nodes[node->a].type; break;
    case FIG_SCORE_KIND_FUNCTION: FIG_TRY(to_float(builder, &node->a)); break;
    case FIG_SCORE_KIND_FLOAT: break;
    case FIG_SCORE_KIND_INT: node->type = FIG_I32; break;
    case FIG_SCORE_KIND_MASK:
        FIG_TRY(need_int(builder, node->op, node->a, "the first operand"));
        FIG_TRY(need_int(builder, node->op, node->b, "the second operand"));
        node->type = 0;
        break;
    }
    return FIG_OK;
}

/* Returns 1 if operand b comes before operand a in the normal form. Operands that depend on the
 * term `score` come first, and constants come last. */
static int is_swapped(const fig_score_builder *builder, uint16_t a, uint16_t b) {
    if (builder->has_score[a] != builder->has_score[b]) return builder->has_score[b];
    if (IS_CONSTANT(builder, a) != IS_CONSTANT(builder, b)) return IS_CONSTANT(builder, a);
    return builder->keys[b] < builder->keys[a];
}

/* Returns 1 if all operands are constants and every machine computes the same bits, and sets
 * *bits. */
static int folds(const fig_score_builder *builder, const fig_score_node *node, uint32_t *bits) {
    const fig_score_node *a = &builder->nodes[node->a], *b = &builder->nodes[node->b];
    const fig_score_node *c = &builder->nodes[node->c];
    const int32_t operands = fig_score_ops_table[node->op].operands;
    *bits = 0;
    if (operands == 0 || node->op == FIG_SCORE_ELEMENT ||
        fig_score_ops_table[node->op].kind == FIG_SCORE_KIND_FUNCTION ||
        fig_score_ops_table[node->op].kind == FIG_SCORE_KIND_MASK)
        return 0;
    if (a->op != FIG_SCORE_CONSTANT) return 0;
    if (operands > 1 && b->op != FIG_SCORE_CONSTANT) return 0;
    if (operands > 2 && c->op != FIG_SCORE_CONSTANT) return 0;
    *bits = fig_score_value_apply(node, a->type, a->bits, b->bits, c->bits);
    const float x = fig_score_value_float(*bits);
    return node->type == FIG_I32 || x == x; /* the bits of a NaN differ between machines */
}

/* Returns 1 if the node always has the value of an existing node, and sets *number to the existing
 * node. */
static int simplifies(const fig_score_builder *builder, const fig_score_node *node,
                      uint16_t *number) {
    const fig_score_node *a = &builder->nodes[node->a], *b = &builder->nodes[node->b];
    const uint32_t one = node->type == FIG_I32 ? 1u : fig_score_value_bits(1.0f);
    const int ends_in = fig_score_ops_table[node->op].operands == 2 && b->op == FIG_SCORE_CONSTANT;
    *number = node->a;
    switch (node->op) {
    case FIG_SCORE_MULTIPLY: return ends_in && b->bits == one;
    case FIG_SCORE_ADD:
    case FIG_SCORE_SUBTRACT: return ends_in && node->type == FIG_I32 && b->bits == 0;
    case FIG_SCORE_NEGATE: *number = a->a; return a->op == FIG_SCORE_NEGATE;
    case FIG_SCORE_FLOAT: return a->type == FIG_F32;
    case FIG_SCORE_INT: return a->type == FIG_I32;
    case FIG_SCORE_SELECT:
        *number = a->bits != 0 || node->b == node->c ? node->b : node->c;
        return a->op == FIG_SCORE_CONSTANT || node->b == node->c;
    default: return 0;
    }
}

/* Checks the fields of a node that comes from a caller or a file. */
static fig_status check_fields(const fig_score_builder *builder, const fig_score_node *node) {
    const int32_t operands = fig_score_ops_operands(node->op);
    const uint16_t given[] = {node->a, node->b, node->c};
    if (operands < 0)
        return fig_fail(FIG_INVALID, "op is %d, limits 1 to %d", node->op, FIG_SCORE_OP_COUNT - 1);
    if (node->reserved != 0)
        return fig_fail(FIG_INVALID, "reserved is %d, it must be 0", node->reserved);
    for (int32_t i = 0; i < 3; i++) {
        if (i < operands && given[i] < builder->node_count) {
            if (builder->nodes[given[i]].type != 0) continue;
            return fig_fail(FIG_INVALID, "operand %c is a part of a mask, which has no value",
                            'a' + (char)i);
        }
        if (i >= operands && given[i] == 0) continue;
        if (i >= operands)
            return fig_fail(FIG_INVALID, "operand %c is %d, but %s has %" PRId32, 'a' + (char)i,
                            given[i], fig_score_ops_table[node->op].name, operands);
        return fig_fail(FIG_INVALID, "operand %c is node %d, it must be an earlier one",
                        'a' + (char)i, given[i]);
    }
    if (node->op == FIG_SCORE_ELEMENT && node->bits >= builder->array_count)
        return fig_fail(FIG_INVALID, "array %" PRIu32 " of %" PRIu32, node->bits,
                        builder->array_count);
    if (node->op == FIG_SCORE_CONSTANT && node->type != FIG_I32 && node->type != FIG_F32)
        return fig_fail(FIG_INVALID, "the type of a constant is %d, it must be i32 or f32",
                        node->type);
    if (node->op != FIG_SCORE_ELEMENT && node->op != FIG_SCORE_CONSTANT && node->bits != 0)
        return fig_fail(FIG_INVALID, "bits are %" PRIu32 ", but %s has none", node->bits,
                        fig_score_ops_table[node->op].name);
    return FIG_OK;
}

fig_status fig_score_build_node(fig_score_builder *builder, const fig_score_node *given,
                                uint16_t *number) {
    fig_score_node node = *given;
    uint32_t bits;
    *number = 0;
    FIG_TRY(check_fields(builder, &node));
    FIG_TRY(check_types(builder, &node));
    if (node.op == FIG_SCORE_CONSTANT) {
        const float x = fig_score_value_float(node.bits);
        node.type = given->type;
        if (node.type == FIG_F32 && !(x == x)) return fig_fail(FIG_INVALID, "a constant is NaN");
    }
    if (fig_score_ops_table[node.op].commutes && is_swapped(builder, node.a, node.b)) {
        const uint16_t a = node.a;
        node.a = node.b;
        node.b = a;
    }
    if (simplifies(builder, &node, number)) return FIG_OK;
    if (folds(builder, &node, &bits))
        node = (fig_score_node){.op = FIG_SCORE_CONSTANT, .type = node.type, .bits = bits};
    return intern(builder, &node, number);
}

/* ---- The normal form */

/* The nodes that the roots need, in the order in which an evaluation needs them. */
typedef struct numbering {
    uint16_t numbers[FIG_SCORE_BUILD_LIMIT]; /* [node] its new number, from 1; 0: none yet */
    uint16_t order[FIG_SCORE_BUILD_LIMIT];   /* [new number - 1] the node */
    uint16_t open[FIG_SCORE_BUILD_LIMIT];    /* nodes whose operands are being numbered */
    uint32_t count, open_count;
} numbering;

/* Numbers the nodes that a root needs and that have no number yet. */
static void number_nodes(const fig_score_builder *builder, uint16_t root, numbering *n) {
    n->open[0] = root;
    n->open_count = 1;
    while (n->open_count > 0) {
        const uint16_t at = n->open[n->open_count - 1];
        const fig_score_node *node = &builder->nodes[at];
        const uint16_t operands[] = {node->a, node->b, node->c};
        int32_t i = 0;
        while (i < fig_score_ops_table[node->op].operands && n->numbers[operands[i]] != 0)
            i++;
        if (i < fig_score_ops_table[node->op].operands) {
            n->open[n->open_count++] = operands[i]; /* fits: a path has each node at most once */
            continue;
        }
        n->open_count--;
        n->order[n->count++] = at;
        n->numbers[at] = (uint16_t)n->count;
    }
}

/* Returns a copy of a node in which operands have their new numbers. If the node is the first that
 * reads its array, copies the array to the score. */
static fig_score_node place_node(const fig_score_builder *builder, const numbering *n, uint32_t at,
                                 fig_score *score) {
    fig_score_node node = builder->nodes[n->order[at]];
    const int32_t operands = fig_score_ops_table[node.op].operands;
    if (operands > 0) node.a = (uint16_t)(n->numbers[node.a] - 1);
    if (operands > 1) node.b = (uint16_t)(n->numbers[node.b] - 1);
    if (operands > 2) node.c = (uint16_t)(n->numbers[node.c] - 1);
    if (node.op == FIG_SCORE_ELEMENT) {
        const fig_score_array *array = &builder->arrays[node.bits];
        uint32_t number = 0;
        while (number < score->array_count && strcmp(score->arrays[number].name, array->name) != 0)
            number++;
        if (number == score->array_count) score->arrays[score->array_count++] = *array;
        score->code.arrays[number] = (fig_score_extent){array->dtype, array->count};
        node.bits = number;
    }
    return node;
}

fig_status fig_score_build_part(fig_score_builder *builder, uint16_t node) {
    if (builder->nodes[node].op == FIG_SCORE_BITS) {
        if (builder->has_bits && builder->bits != node)
            return fig_fail(FIG_INVALID, "a mask has bits once");
        builder->bits = node;
        builder->has_bits = 1;
        return FIG_OK;
    }
    for (uint32_t i = 0; i < builder->range_count; i++)
        if (builder->ranges[i] == node) return FIG_OK;
    if (builder->range_count == FIG_SCORE_RANGE_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "a mask has more than %d ranges", FIG_SCORE_RANGE_LIMIT);
    builder->ranges[builder->range_count++] = node;
    return FIG_OK;
}

/* Refuses a node that a mask may not have. A mask has no f32, because host and GPU might round it
 * differently, and not the term kv_pos, because it is computed once for all tokens of a query. */
static fig_status check_mask_node(const fig_score_builder *builder, const fig_score_node *node) {
    if (node->op == FIG_SCORE_KV_POS)
        return fig_fail(FIG_INVALID, "score: a mask reads kv_pos: its ranges say which tokens a "
                                     "query sees, without a term for the token");
    if (node->op == FIG_SCORE_ELEMENT && node->type == FIG_F32)
        return fig_fail(FIG_INVALID, "score: a mask reads array %s, which is not i32",
                        builder->arrays[node->bits].name);
    if (node->type == FIG_F32)
        return fig_fail(FIG_INVALID, "score: a mask has %s, which is f32: all its parts are i32",
                        fig_score_ops_table[node->op].name);
    return FIG_OK;
}

/* Numbers the nodes of the mask and checks them. `n` stays empty if there is no mask. */
static fig_status number_mask(const fig_score_builder *builder, numbering *n) {
    *n = (numbering){.count = 0};
    if (builder->has_bits && builder->range_count == 0)
        return fig_fail(FIG_INVALID, "score: a mask has bits and no range");
    for (uint32_t i = 0; i < builder->range_count; i++)
        number_nodes(builder, builder->ranges[i], n);
    if (builder->has_bits) number_nodes(builder, builder->bits, n);
    for (uint32_t i = 0; i < n->count; i++)
        FIG_TRY(check_mask_node(builder, &builder->nodes[n->order[i]]));
    for (uint32_t i = 0; i < builder->array_count && n->count > 0; i++)
        if (fig_score_ops_begins_mask(builder->arrays[i].name))
            return fig_fail(FIG_INVALID,
                            "score: array %s: beside a mask, the word has a meaning of its own",
                            builder->arrays[i].name);
    return FIG_OK;
}

fig_status fig_score_build_finish(const fig_score_builder *builder, uint16_t root,
                                  fig_score_weights weights, fig_score *score) {
    numbering n = {.count = 0}, mask;
    memset(score, 0, sizeof *score);
    if (root >= builder->node_count) return fig_fail(FIG_INVALID, "score: it has no nodes");
    if (!IS_F32(builder, root))
        return fig_fail(FIG_INVALID, "score: the result is i32, it must be f32");
    if (weights > FIG_SCORE_SIGMOID_WEIGHTS)
        return fig_fail(FIG_INVALID, "score: weights are %" PRIu32 ", limits 0 to %d", weights,
                        FIG_SCORE_SIGMOID_WEIGHTS);
    number_nodes(builder, root, &n);
    FIG_TRY(number_mask(builder, &mask));
    if (n.count + mask.count > FIG_SCORE_NODE_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "score: %" PRIu32 " nodes, limit %d", n.count + mask.count,
                        FIG_SCORE_NODE_LIMIT);
    score->code.weights = weights;
    score->code.node_count = n.count;
    score->code.mask_node_count = mask.count;
    for (uint32_t i = 0; i < n.count; i++)
        score->code.nodes[i] = place_node(builder, &n, i, score);
    for (uint32_t i = 0; i < mask.count; i++)
        score->code.nodes[n.count + i] = place_node(builder, &mask, i, score);
    fig_score_print_text(score);
    return FIG_OK;
}

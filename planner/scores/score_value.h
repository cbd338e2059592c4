/* score_value.h: computes the value of a score for one query and one token.
 *
 * Owns the meaning of every operation of figraph_scores.h. Host and GPU compile this file, and
 * kernels that are compiled for a single expression call the same functions. Invariant: no value is
 * undefined in C, and an element is read only at an index that lies within its array. Read by
 * nvcc. */
#ifndef FIG_PLANNER_SCORE_VALUE_H
#define FIG_PLANNER_SCORE_VALUE_H

#include <math.h>
#include <string.h>

#include "include/figraph_scores.h"
#include "planner/size.h"

#define FIG_SCORE_LOG2_E 1.4426950408889634f

/* An array without its name. */
typedef struct fig_score_extent {
    uint32_t dtype; /* FIG_F32, FIG_BF16 or FIG_I32 */
    int32_t count;  /* number of elements; at least 1 if attention reads the array */
} fig_score_extent;

/* A score as kernels get it, in its normal form. */
typedef struct fig_score_code {
    uint32_t node_count;
    uint32_t weights;         /* fig_score_weights */
    uint32_t mask_node_count; /* 0: no mask */
    uint32_t line; /* FIG_MASK_LINE_*, if the planner may know the mask, see mask_line.h */
    /* 0; makes the params of attention a multiple of 64 bytes */
    uint32_t reserved[12];
    fig_score_extent arrays[FIG_SCORE_ARRAY_LIMIT];
    /* The nodes of the score, then the nodes of the mask. In the mask, operands are numbered from
     * the mask's first node. */
    fig_score_node nodes[FIG_SCORE_NODE_LIMIT];
} fig_score_code;

enum { FIG_SCORE_TERM_COUNT = FIG_SCORE_ROW + 1 };

/* The values of the terms and arrays for which a score is evaluated. */
typedef struct fig_score_inputs {
    uint32_t terms[FIG_SCORE_TERM_COUNT]; /* [fig_score_op] bits of each term */
    const void *const *arrays;            /* [array] */
} fig_score_inputs;

FIG_BOTH float fig_score_value_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FIG_BOTH uint32_t fig_score_value_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* ---- i32 */

FIG_BOTH int32_t fig_score_value_quotient(int32_t a, int32_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int32_t)(0u - (uint32_t)a); /* also for the least i32 */
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

FIG_BOTH int32_t fig_score_value_remainder(int32_t a, int32_t b) {
    if (b == 0 || b == -1) return 0;
    return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
}

FIG_BOTH int32_t fig_score_value_shift_right(int32_t a, int32_t count) {
    const uint32_t sign = a < 0 ? 0xffffffffu : 0u;
    return (int32_t)((((uint32_t)a ^ sign) >> (count & 31)) ^ sign);
}

FIG_BOTH int32_t fig_score_value_int(float x) {
    if (!(x == x)) return 0;
    if (x >= 2147483648.0f) return 2147483647;
    if (x < -2147483648.0f) return -2147483647 - 1;
    return (int32_t)x;
}

/* Computes the operations that give an i32 from i32 operands. */
FIG_BOTH int32_t fig_score_value_integer(uint32_t op, int32_t a, int32_t b) {
    const uint32_t x = (uint32_t)a, y = (uint32_t)b;
    switch (op) {
    case FIG_SCORE_ADD: return (int32_t)(x + y);
    case FIG_SCORE_SUBTRACT: return (int32_t)(x - y);
    case FIG_SCORE_MULTIPLY: return (int32_t)(x * y);
    case FIG_SCORE_MIN: return a < b ? a : b;
    case FIG_SCORE_MAX: return a > b ? a : b;
    case FIG_SCORE_QUOTIENT: return fig_score_value_quotient(a, b);
    case FIG_SCORE_REMAINDER: return fig_score_value_remainder(a, b);
    case FIG_SCORE_AND: return (int32_t)(x & y);
    case FIG_SCORE_OR: return (int32_t)(x | y);
    case FIG_SCORE_XOR: return (int32_t)(x ^ y);
    case FIG_SCORE_SHIFT_LEFT: return (int32_t)(x << (y & 31));
    case FIG_SCORE_SHIFT_RIGHT: return fig_score_value_shift_right(a, b);
    case FIG_SCORE_LESS: return a < b;
    case FIG_SCORE_LESS_EQUAL: return a <= b;
    case FIG_SCORE_EQUAL: return a == b;
    case FIG_SCORE_UNEQUAL: return a != b;
    case FIG_SCORE_NEGATE: return (int32_t)(0u - x);
    case FIG_SCORE_ABS: return a < 0 ? (int32_t)(0u - x) : a;
    default: return 0;
    }
}

/* ---- f32 */

FIG_BOTH float fig_score_value_min(float a, float b) {
    return !(b == b) || a < b ? a : b;
}

FIG_BOTH float fig_score_value_max(float a, float b) {
    return !(b == b) || a > b ? a : b;
}

FIG_BOTH float fig_score_value_sigmoid(float x) {
    return 1.0f / (1.0f + exp2f(-x * FIG_SCORE_LOG2_E));
}

/* Computes the comparisons of f32. */
FIG_BOTH int32_t fig_score_value_compare(uint32_t op, float a, float b) {
    switch (op) {
    case FIG_SCORE_LESS: return a < b;
    case FIG_SCORE_LESS_EQUAL: return a <= b;
    case FIG_SCORE_EQUAL: return a == b;
    default: return a != b;
    }
}

/* Computes the operations that give an f32 from f32 operands. */
FIG_BOTH float fig_score_value_real(uint32_t op, float a, float b) {
    switch (op) {
    case FIG_SCORE_ADD: return a + b;
    case FIG_SCORE_SUBTRACT: return a - b;
    case FIG_SCORE_MULTIPLY: return a * b;
    case FIG_SCORE_DIVIDE: return a / b;
    case FIG_SCORE_MIN: return fig_score_value_min(a, b);
    case FIG_SCORE_MAX: return fig_score_value_max(a, b);
    case FIG_SCORE_NEGATE: return -a;
    case FIG_SCORE_ABS: return fabsf(a);
    case FIG_SCORE_EXP2: return exp2f(a);
    case FIG_SCORE_LOG2: return log2f(a);
    case FIG_SCORE_TANH: return tanhf(a);
    case FIG_SCORE_SIGMOID: return fig_score_value_sigmoid(a);
    case FIG_SCORE_SIN: return sinf(a);
    case FIG_SCORE_COS: return cosf(a);
    default: return 0.0f;
    }
}

/* ---- Nodes */

/* Returns the bits of the array's element with this index, or of the nearest element. */
FIG_BOTH uint32_t fig_score_value_element(const fig_score_extent *array, const void *elements,
                                          int32_t index) {
    const int32_t last = array->count - 1;
    const int32_t at = index < 0 ? 0 : index > last ? last : index;
    if (array->dtype == FIG_BF16) return (uint32_t)((const uint16_t *)elements)[at] << 16;
    return ((const uint32_t *)elements)[at];
}

FIG_BOTH int fig_score_value_is_comparison(uint32_t op) {
    return op >= FIG_SCORE_LESS && op <= FIG_SCORE_UNEQUAL;
}

/* Returns the bits of a node that is neither a term nor an element. operand_type: the type of a. */
FIG_BOTH uint32_t fig_score_value_apply(const fig_score_node *node, uint32_t operand_type,
                                        uint32_t a, uint32_t b, uint32_t c) {
    switch (node->op) {
    case FIG_SCORE_CONSTANT: return node->bits;
    case FIG_SCORE_SELECT: return a != 0 ? b : c;
    case FIG_SCORE_FLOAT: return fig_score_value_bits((float)(int32_t)a);
    case FIG_SCORE_INT: return (uint32_t)fig_score_value_int(fig_score_value_float(a));
    default: break;
    }
    if (operand_type == FIG_I32)
        return (uint32_t)fig_score_value_integer(node->op, (int32_t)a, (int32_t)b);
    if (fig_score_value_is_comparison(node->op))
        return (uint32_t)fig_score_value_compare(node->op, fig_score_value_float(a),
                                                 fig_score_value_float(b));
    return fig_score_value_bits(
        fig_score_value_real(node->op, fig_score_value_float(a), fig_score_value_float(b)));
}

/* Returns the bits of nodes[n]. values: the bits of the nodes before it. */
FIG_BOTH uint32_t fig_score_value_node(const fig_score_code *code, const fig_score_inputs *inputs,
                                       const fig_score_node *nodes, uint32_t n,
                                       const uint32_t *values) {
    const fig_score_node *node = &nodes[n];
    if (node->op < FIG_SCORE_TERM_COUNT) return inputs->terms[node->op];
    if (node->op == FIG_SCORE_ELEMENT)
        return fig_score_value_element(&code->arrays[node->bits], inputs->arrays[node->bits],
                                       (int32_t)values[node->a]);
    return fig_score_value_apply(node, nodes[node->a].type, values[node->a], values[node->b],
                                 values[node->c]);
}

/* Returns 1 if the score is the logit itself, so that only its mask hides tokens. */
FIG_BOTH int fig_score_value_is_logit(const fig_score_code *code) {
    return code->node_count == 1 && code->nodes[0].op == FIG_SCORE_SCORE &&
           code->weights == FIG_SCORE_SOFTMAX;
}

/* Evaluates the score for these inputs. */
FIG_BOTH float fig_score_value_of(const fig_score_code *code, const fig_score_inputs *inputs) {
    uint32_t values[FIG_SCORE_NODE_LIMIT];
    uint32_t value = 0;
    for (uint32_t n = 0; n < code->node_count; n++) {
        value = fig_score_value_node(code, inputs, code->nodes, n, values);
        values[n] = value;
    }
    return fig_score_value_float(value);
}

#endif

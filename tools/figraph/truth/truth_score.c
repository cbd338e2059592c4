/* truth_score.c: evaluates the nodes of a score one after another.
 *
 * Sums, products and quotients of two f32 numbers are computed in float64 and then rounded to f32,
 * which gives the same number as one rounding. Invariant: a value is i32 or f32 as its node says,
 * and only that member of it is read. */
#include "tools/figraph/truth/truth_score.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct value {
    double real;
    int32_t whole;
} value;

static int32_t wrap(int64_t x) {
    const uint32_t bits = (uint32_t)(uint64_t)x;
    int32_t whole;
    memcpy(&whole, &bits, sizeof whole);
    return whole;
}

/* Rounds down; a quotient by 0 is 0. */
static int64_t quotient_of(int64_t a, int64_t b) {
    if (b == 0) return 0;
    const int64_t cut = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? cut - 1 : cut;
}

static int32_t nearest_whole(double x) {
    if (isnan(x)) return 0;
    if (x >= INT32_MAX) return INT32_MAX;
    if (x <= INT32_MIN) return INT32_MIN;
    return (int32_t)x;
}

/* Reads an element. An index outside the array reads its nearest element. */
static value element_of(const truth_score *score, uint32_t number, int32_t index) {
    const int32_t last = score->counts[number] - 1;
    const int32_t inside = index < 0 ? 0 : index > last ? last : index;
    const double read =
        truth_load(score->arrays[number], score->parts.arrays[number].dtype, inside);
    return (value){.real = read, .whole = nearest_whole(read)};
}

static int32_t term_of(fig_score_op op, const truth_score_place *place) {
    switch (op) {
    case FIG_SCORE_Q_POS: return place->q_pos;
    case FIG_SCORE_KV_POS: return place->kv_pos;
    case FIG_SCORE_KV_LENGTH: return place->kv_length;
    case FIG_SCORE_HEAD: return place->head;
    case FIG_SCORE_KV_HEAD: return place->kv_head;
    default: assert(op == FIG_SCORE_ROW); return place->row;
    }
}

static value constant_of(const fig_score_node *node) {
    float real;
    memcpy(&real, &node->bits, sizeof real);
    return (value){.real = (double)real, .whole = wrap((int64_t)node->bits)};
}

/* Operations of i32 that give i32. */
static int32_t whole_of(fig_score_op op, int32_t a, int32_t b) {
    const int64_t x = a, y = b;
    const int32_t shift = b & 31;
    switch (op) {
    case FIG_SCORE_ADD: return wrap(x + y);
    case FIG_SCORE_SUBTRACT: return wrap(x - y);
    case FIG_SCORE_MULTIPLY: return wrap(x * y);
    case FIG_SCORE_MIN: return a < b ? a : b;
    case FIG_SCORE_MAX: return a > b ? a : b;
    case FIG_SCORE_QUOTIENT: return wrap(quotient_of(x, y));
    case FIG_SCORE_REMAINDER: return y == 0 ? 0 : wrap(x - quotient_of(x, y) * y);
    case FIG_SCORE_AND: return wrap(x & y);
    case FIG_SCORE_OR: return wrap(x | y);
    case FIG_SCORE_XOR: return wrap(x ^ y);
    case FIG_SCORE_SHIFT_LEFT: return wrap(x * (INT64_C(1) << shift));
    case FIG_SCORE_SHIFT_RIGHT: return wrap(quotient_of(x, INT64_C(1) << shift));
    case FIG_SCORE_NEGATE: return wrap(-x);
    default: assert(op == FIG_SCORE_ABS); return wrap(x < 0 ? -x : x);
    }
}

/* Operations of f32 that give f32. */
static double real_of(fig_score_op op, double a, double b) {
    switch (op) {
    case FIG_SCORE_ADD: return a + b;
    case FIG_SCORE_SUBTRACT: return a - b;
    case FIG_SCORE_MULTIPLY: return a * b;
    case FIG_SCORE_DIVIDE: return a / b;
    case FIG_SCORE_MIN: return fmin(a, b);
    case FIG_SCORE_MAX: return fmax(a, b);
    case FIG_SCORE_NEGATE: return -a;
    case FIG_SCORE_ABS: return fabs(a);
    case FIG_SCORE_EXP2: return exp2(a);
    case FIG_SCORE_LOG2: return log2(a);
    case FIG_SCORE_TANH: return tanh(a);
    case FIG_SCORE_SIGMOID: return 1 / (1 + exp(-a));
    case FIG_SCORE_SIN: return sin(a);
    default: assert(op == FIG_SCORE_COS); return cos(a);
    }
}

/* difference: < 0: less, 0: equal, > 0: greater, NAN: unordered */
static int32_t holds(fig_score_op op, double difference) {
    switch (op) {
    case FIG_SCORE_LESS: return difference < 0;
    case FIG_SCORE_LESS_EQUAL: return difference <= 0;
    case FIG_SCORE_EQUAL: return difference == 0;
    default: assert(op == FIG_SCORE_UNEQUAL); return !(difference == 0);
    }
}

/* Orders two numbers of one type; equal infinities have no difference. */
static double difference_of(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    return (a > b) - (a < b);
}

/* Returns the value of an operation on earlier nodes. */
static value operate(const truth_score *score, const fig_score_node *nodes,
                     const fig_score_node *node, const value *values) {
    const value *a = &values[node->a], *b = &values[node->b];
    const int is_real = nodes[node->a].type == FIG_F32;
    switch (node->op) {
    case FIG_SCORE_ELEMENT: return element_of(score, node->bits, a->whole);
    case FIG_SCORE_SELECT: return a->whole != 0 ? *b : values[node->c];
    case FIG_SCORE_FLOAT: return (value){.real = (double)(float)a->whole};
    case FIG_SCORE_INT: return (value){.whole = nearest_whole(a->real)};
    case FIG_SCORE_LESS:
    case FIG_SCORE_LESS_EQUAL:
    case FIG_SCORE_EQUAL:
    case FIG_SCORE_UNEQUAL:
        return (value){.whole = holds(node->op, is_real ? difference_of(a->real, b->real)
                                                        : difference_of(a->whole, b->whole))};
    default: break;
    }
    if (is_real) return (value){.real = (double)(float)real_of(node->op, a->real, b->real)};
    return (value){.whole = whole_of(node->op, a->whole, b->whole)};
}

/* Computes the values of a list of nodes. */
static void compute(const truth_score_place *place, const fig_score_node *nodes, int32_t count,
                    double logit, value *values) {
    const truth_score *score = place->context;
    for (int32_t i = 0; i < count; i++) {
        const fig_score_node *node = &nodes[i];
        if (node->op == FIG_SCORE_SCORE) {
            values[i] = (value){.real = (double)(float)logit};
        } else if (node->op < FIG_SCORE_CONSTANT) {
            values[i] = (value){.whole = term_of(node->op, place)};
        } else if (node->op == FIG_SCORE_CONSTANT) {
            values[i] = constant_of(node);
        } else if (node->op != FIG_SCORE_RANGE && node->op != FIG_SCORE_BITS) {
            values[i] = operate(score, nodes, node, values);
        }
    }
}

int truth_score_sees(const truth_score_place *place) {
    const truth_score *score = place->context;
    const fig_score_node *nodes = score->parts.mask_nodes;
    const int32_t count = score->parts.mask_node_count;
    const int32_t bit = place->kv_pos - (place->kv_length - 64);
    value values[FIG_SCORE_NODE_LIMIT];
    int is_shown = 0, has_bit = 1;
    compute(place, nodes, count, 0, values);
    for (int32_t i = 0; i < count; i++) {
        const int32_t a = values[nodes[i].a].whole, b = values[nodes[i].b].whole;
        if (nodes[i].op == FIG_SCORE_RANGE) is_shown |= a <= place->kv_pos && place->kv_pos < b;
        if (nodes[i].op == FIG_SCORE_BITS && bit >= 0)
            has_bit = (int)((uint32_t)(bit < 32 ? a : b) >> bit % 32 & 1u);
    }
    return is_shown && has_bit;
}

double truth_score_of(const truth_score_place *place, double logit) {
    const truth_score *score = place->context;
    value values[FIG_SCORE_NODE_LIMIT];
    compute(place, score->parts.nodes, score->parts.node_count, logit, values);
    return values[score->parts.node_count - 1].real;
}

/* figraph_scores.h: describe a variant of attention by an expression that computes its scores.
 *
 * A score is an expression. It may use the logit of attention, the positions of the query and of
 * the token, the head, and arrays. Attention evaluates it for every token that a query sees:
 *
 *     fig_score *score;
 *     fig_score_parse(&score, "f32 slope[32]; score + slope[head] * (kv_pos - q_pos)");
 *     fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache,
 *                                        .score = score, .score_arrays = {slope}));
 *     fig_score_destroy(score);
 *
 * The text of a score is any number of statements, each followed by a semicolon, and then an
 * expression. Statements are:
 *
 *     f32 slope[32];       an array of 32 elements; its dtype is f32, bf16 or i32
 *     i32 chunk[];         an array with as many elements as its tensor
 *     f32 cap;             a scalar: an array of one element, read without an index
 *     far = q_pos - 512;   a name for an expression
 *     weights sigmoid;     a weight is sigmoid(score); weights are not divided by a sum
 *     see 0:q_pos + 1;     a mask: the query sees tokens 0 to q_pos; a comma separates two ranges
 *     bits low, high;      a part of the mask: which of the row's last 64 tokens the query sees
 *
 * An array without a statement is f32 and has as many elements as its tensor. Terms:
 *
 *     score       f32: the logit, q.k * sm_scale
 *     q_pos       i32: the index of the query's token in its sequence, from 0
 *     kv_pos      i32: the index of the token that the query looks at, from 0
 *     kv_length   i32: the number of tokens in the row's sequence, including this step's
 *     head        i32: the query head
 *     kv_head     i32: the kv head
 *     row         i32: the row of the step
 *
 * Operators have the precedence that they have in Python. From the weakest to the strongest these
 * are: < <= > >= == !=, then |, ^, &, << >>, + -, * / // %, and - in front of an operand. The
 * functions are min(a, b), max(a, b), abs(x), exp2(x), log2(x), tanh(x), sigmoid(x), sin(x),
 * cos(x), float(x), int(x), and select(c, a, b), which gives `a` if c is not 0, and `b` if c is 0.
 * Numbers are written like 12, 0x1f, 0.5, 1e-3 or inf.
 *
 * Types: a value is i32 or f32. An operator with one f32 operand turns the other one into f32. The
 * operator / and the functions from exp2 to cos turn i32 into f32. //, %, &, |, ^, << and >> take
 * only i32. Comparisons give the i32 1 or 0. No evaluation fails:
 *
 *   - i32 wraps around at 2^31. a // b rounds down, and a % b has the sign of b. If b is 0, both
 *     results are 0. A shift uses only the low 5 bits of its count; >> keeps the sign.
 *   - An index below 0 reads the first element of the array, and an index past the end reads the
 *     last one. So no score reads outside an array.
 *   - int(x) rounds towards 0. A number outside the range of i32 gives the nearest i32, and NaN
 *     gives 0.
 *   - If one operand of min or max is NaN, the result is the other one. If the result is 0, its
 *     sign is unspecified.
 *
 * If the score of a token is -inf, the query does not see the token: its weight is 0, and its value
 * does not affect the result. If a query sees no token, its out is 0 and its lse is -inf. If a
 * score is NaN or +inf, the query's out is NaN. f32 arithmetic rounds as IEEE 754 says; the
 * functions from exp2 to cos are as exact as those of the C library, or of CUDA.
 *
 * A mask says which tokens a query sees, before any score is computed. Attention does not read the
 * tokens outside its ranges. Without a mask, a query sees its own token and those before it; a mask
 * takes the place of this rule, so it may show later tokens of the same step too. If attention also
 * has a window, tokens before the window stay hidden. The bounds of a range are i32 expressions of
 * i32 arrays and of all terms except score and kv_pos; a mask has no f32 values. `see a:b` shows
 * the tokens from a to b - 1. A bound below 0 counts as 0, and a bound above kv_length as
 * kv_length. A range shows nothing if its end does not exceed its beginning. The two operands of
 * `bits` are i32 words: bit i of `low` belongs to token kv_length - 64 + i, and bit i of `high` to
 * token kv_length - 32 + i. The query sees one of these 64 tokens if the token lies in a range and
 * its bit is 1.
 *
 * A score has one normal form. In this form, a conversion that the text only implies is a node. An
 * operation on constants is replaced by its result, unless computing that result takes a function
 * of the C library. The operands of a sum or a product have a fixed order. Equal parts are one
 * node. Files hold the normal form, and programs print it. Two texts with the same normal form are
 * the same score. */
#ifndef FIGRAPH_SCORES_H
#define FIGRAPH_SCORES_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of nodes of a score with its mask, of characters in an array's name, and of
 * characters in a text. The largest number of arrays is FIG_SCORE_ARRAY_LIMIT, in figraph.h. */
enum { FIG_SCORE_NODE_LIMIT = 128, FIG_SCORE_NAME_LIMIT = 23, FIG_SCORE_TEXT_LIMIT = 16383 };

/* The operation of a node. Files hold these numbers. */
typedef uint16_t fig_score_op;
enum {
    /* Terms, without operands. */
    FIG_SCORE_SCORE = 1,
    FIG_SCORE_Q_POS = 2,
    FIG_SCORE_KV_POS = 3,
    FIG_SCORE_KV_LENGTH = 4,
    FIG_SCORE_HEAD = 5,
    FIG_SCORE_KV_HEAD = 6,
    FIG_SCORE_ROW = 7,
    /* A constant: the field `bits` holds the number, which has the type `type`. */
    FIG_SCORE_CONSTANT = 8,
    /* An element of an array: the field `bits` is the number of the array, and the value of operand
     * a is the index of the element. */
    FIG_SCORE_ELEMENT = 9,
    /* Operations on a and b, which have the same type. */
    FIG_SCORE_ADD = 10,
    FIG_SCORE_SUBTRACT = 11,
    FIG_SCORE_MULTIPLY = 12,
    FIG_SCORE_MIN = 13,
    FIG_SCORE_MAX = 14,
    /* Division of a by b, both f32. */
    FIG_SCORE_DIVIDE = 15,
    /* Operations on a and b, both i32: // % & | ^ << >> */
    FIG_SCORE_QUOTIENT = 16,
    FIG_SCORE_REMAINDER = 17,
    FIG_SCORE_AND = 18,
    FIG_SCORE_OR = 19,
    FIG_SCORE_XOR = 20,
    FIG_SCORE_SHIFT_LEFT = 21,
    FIG_SCORE_SHIFT_RIGHT = 22,
    /* Comparisons of a and b, which have the same type: < <= == != */
    FIG_SCORE_LESS = 23,
    FIG_SCORE_LESS_EQUAL = 24,
    FIG_SCORE_EQUAL = 25,
    FIG_SCORE_UNEQUAL = 26,
    /* The value of b if a, an i32, is not 0; else the value of c. */
    FIG_SCORE_SELECT = 27,
    /* Operations on a, of either type. */
    FIG_SCORE_NEGATE = 28,
    FIG_SCORE_ABS = 29,
    /* Functions of a, an f32. */
    FIG_SCORE_EXP2 = 30,
    FIG_SCORE_LOG2 = 31,
    FIG_SCORE_TANH = 32,
    FIG_SCORE_SIGMOID = 33,
    FIG_SCORE_SIN = 34,
    FIG_SCORE_COS = 35,
    /* Conversions of a: from i32 to f32, and from f32 to i32. */
    FIG_SCORE_FLOAT = 36,
    FIG_SCORE_INT = 37,
    /* In a mask only. The range of tokens from a to b - 1. */
    FIG_SCORE_RANGE = 38,
    /* In a mask only. The bits of the row's last 64 tokens: a is `low`, and b is `high`. */
    FIG_SCORE_BITS = 39,
    FIG_SCORE_OP_COUNT = 40
};

/* A node of an expression. Closed. */
typedef struct fig_score_node {
    /* What the node computes. */
    fig_score_op op;
    /* FIG_I32 or FIG_F32; 0 for a range and for bits. The caller gives the type of a constant;
     * fig_score_create computes all other types. */
    uint16_t type;
    /* Operands: numbers of earlier nodes, from 0. An operand that the operation does not have is
     * 0. */
    uint16_t a, b, c;
    uint16_t reserved; /* 0 */
    /* The bits of a constant, or the number of an array; else 0. */
    uint32_t bits;
} fig_score_node;

/* An array that a score reads. Closed. */
typedef struct fig_score_array {
    /* The name: letters, digits and _, not beginning with a digit. The rest of the array is 0. */
    char name[24];
    /* FIG_F32, FIG_BF16 or FIG_I32. */
    fig_dtype dtype;
    /* The number of elements. 0: as many as the tensor that is given for the array. */
    int32_t count;
} fig_score_array;

/* The way in which scores become weights. */
typedef uint32_t fig_score_weights;
enum {
    /* A weight is e^score, divided by the sum of e^score over all tokens. */
    FIG_SCORE_SOFTMAX = 0,
    /* A weight is 1 / (1 + e^-score). lse is the log2 of the sum of the weights. There are no
     * sinks. */
    FIG_SCORE_SIGMOID_WEIGHTS
};

/* A score as arrays of structs. */
typedef struct fig_score_parts {
    uint32_t size; /* sizeof(fig_score_parts) */
    /* [node_count] The last node is the score. */
    const fig_score_node *nodes;
    /* [array_count] The arrays that the score and its mask read. */
    const fig_score_array *arrays;
    /* The number of nodes in `nodes`. */
    int32_t node_count;
    /* The number of arrays. */
    int32_t array_count;
    /* The way in which scores become weights. */
    fig_score_weights weights;
    /* The number of nodes of the mask. 0: no mask. */
    int32_t mask_node_count;
    /* [mask_node_count] The nodes of the mask. Their operands are numbers of nodes in this array,
     * from 0; they read the same `arrays`. One or two of the nodes are ranges, and at most one is
     * bits. */
    const fig_score_node *mask_nodes;
} fig_score_parts;

/* Makes a score from a text. The caller owns *score and frees it with fig_score_destroy.
 * FIG_INVALID: the sentence describes the mistake and gives its column. FIG_TOO_LARGE: the sentence
 * names the limit. */
FIG_API fig_status fig_score_parse(fig_score **score, const char *text);
/* Makes *masked, a copy of a score with a mask added. text: the statements of the mask, and then
 * its ranges instead of an expression, such as "i32 start[]; start[q_pos]:q_pos + 1". score: NULL
 * stands for the logit itself. If both declare an array, they share it. Arrays that only the mask
 * has come behind those of the score. The caller owns *masked. FIG_INVALID: the score already has a
 * mask, or the two declare an array differently. Otherwise fails as fig_score_parse does. */
FIG_API fig_status fig_score_parse_mask(fig_score **masked, const char *text,
                                        const fig_score *score);
/* Makes a score from nodes. The nodes are copied and brought into the normal form. Conversions
 * between i32 and f32 may be left out, as in a text. FIG_INVALID: the sentence names the node and
 * the field. */
FIG_API fig_status fig_score_create(fig_score **score, const fig_score_parts *parts);
/* Frees a score. A program that was recorded with it has its own copy. */
FIG_API void fig_score_destroy(fig_score *score);
/* Sets *parts to the normal form. The arrays belong to the score. */
FIG_API fig_status fig_score_read(const fig_score *score, fig_score_parts *parts);
/* Returns the text of the normal form. It belongs to the score, and parses to the same score. */
FIG_API const char *fig_score_text(const fig_score *score);

/* Records the standard step, as fig_program_decode_step does, with this score in each layer. Every
 * array of the score becomes one tensor [count] of FIG_ROLE_BOUND, with the array's name; all
 * layers read it. FIG_INVALID, from fig_program_finish: an array has no count, or the spec has a
 * soft_cap. */
FIG_API void fig_program_decode_step_score(fig_program *program, const fig_score *score);

/* The query, and the first token, that fig_score_evaluate computes scores for. */
typedef struct fig_score_place {
    uint32_t size; /* sizeof(fig_score_place) */
    /* The values of the terms with the same names. */
    int32_t q_pos;
    int32_t kv_pos;
    int32_t kv_length;
    int32_t head;
    int32_t kv_head;
    int32_t row;
    /* [array_count] The elements of each array, in host memory. */
    const void *const *arrays;
    /* [array_count] The number of elements of each array, at least 1. */
    const int32_t *counts;
} fig_score_place;

/* Replaces `count` logits by their scores, as the host's attention does. On entry, scores[i] is the
 * logit of token place->kv_pos + i; on return, it is that token's score, or -inf if the mask hides
 * the token. FIG_INVALID: a field of *place is missing. */
FIG_API fig_status fig_score_evaluate(const fig_score *score, const fig_score_place *place,
                                      float *scores, int32_t count);

#ifdef __cplusplus
}
#endif

#endif

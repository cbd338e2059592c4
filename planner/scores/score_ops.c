/* score_ops.c: the operations of scores, and the words of their texts. */
#include "planner/scores/score_ops.h"

#include <string.h>

#include "planner/scores/score_value.h"

const fig_score_op_row fig_score_ops_table[FIG_SCORE_OP_COUNT] = {
    [FIG_SCORE_SCORE] = {"score", FIG_SCORE_KIND_TERM, 0, 0},
    [FIG_SCORE_Q_POS] = {"q_pos", FIG_SCORE_KIND_TERM, 0, 0},
    [FIG_SCORE_KV_POS] = {"kv_pos", FIG_SCORE_KIND_TERM, 0, 0},
    [FIG_SCORE_KV_LENGTH] = {"kv_length", FIG_SCORE_KIND_TERM, 0, 0},
    [FIG_SCORE_HEAD] = {"head", FIG_SCORE_KIND_TERM, 0, 0},
    [FIG_SCORE_KV_HEAD] = {"kv_head", FIG_SCORE_KIND_TERM, 0, 0},
    [FIG_SCORE_ROW] = {"row", FIG_SCORE_KIND_TERM, 0, 0},
    [FIG_SCORE_CONSTANT] = {"constant", FIG_SCORE_KIND_CONSTANT, 0, 0},
    [FIG_SCORE_ELEMENT] = {"element", FIG_SCORE_KIND_ELEMENT, 1, 0},
    [FIG_SCORE_ADD] = {"+", FIG_SCORE_KIND_ARITHMETIC, 2, 1},
    [FIG_SCORE_SUBTRACT] = {"-", FIG_SCORE_KIND_ARITHMETIC, 2, 0},
    [FIG_SCORE_MULTIPLY] = {"*", FIG_SCORE_KIND_ARITHMETIC, 2, 1},
    [FIG_SCORE_MIN] = {"min", FIG_SCORE_KIND_ARITHMETIC, 2, 1},
    [FIG_SCORE_MAX] = {"max", FIG_SCORE_KIND_ARITHMETIC, 2, 1},
    [FIG_SCORE_DIVIDE] = {"/", FIG_SCORE_KIND_REAL, 2, 0},
    [FIG_SCORE_QUOTIENT] = {"//", FIG_SCORE_KIND_INTEGER, 2, 0},
    [FIG_SCORE_REMAINDER] = {"%", FIG_SCORE_KIND_INTEGER, 2, 0},
    [FIG_SCORE_AND] = {"&", FIG_SCORE_KIND_INTEGER, 2, 1},
    [FIG_SCORE_OR] = {"|", FIG_SCORE_KIND_INTEGER, 2, 1},
    [FIG_SCORE_XOR] = {"^", FIG_SCORE_KIND_INTEGER, 2, 1},
    [FIG_SCORE_SHIFT_LEFT] = {"<<", FIG_SCORE_KIND_INTEGER, 2, 0},
    [FIG_SCORE_SHIFT_RIGHT] = {">>", FIG_SCORE_KIND_INTEGER, 2, 0},
    [FIG_SCORE_LESS] = {"<", FIG_SCORE_KIND_COMPARISON, 2, 0},
    [FIG_SCORE_LESS_EQUAL] = {"<=", FIG_SCORE_KIND_COMPARISON, 2, 0},
    [FIG_SCORE_EQUAL] = {"==", FIG_SCORE_KIND_COMPARISON, 2, 1},
    [FIG_SCORE_UNEQUAL] = {"!=", FIG_SCORE_KIND_COMPARISON, 2, 1},
    [FIG_SCORE_SELECT] = {"select", FIG_SCORE_KIND_SELECT, 3, 0},
    [FIG_SCORE_NEGATE] = {"-", FIG_SCORE_KIND_SIGN, 1, 0},
    [FIG_SCORE_ABS] = {"abs", FIG_SCORE_KIND_SIGN, 1, 0},
    [FIG_SCORE_EXP2] = {"exp2", FIG_SCORE_KIND_FUNCTION, 1, 0},
    [FIG_SCORE_LOG2] = {"log2", FIG_SCORE_KIND_FUNCTION, 1, 0},
    [FIG_SCORE_TANH] = {"tanh", FIG_SCORE_KIND_FUNCTION, 1, 0},
    [FIG_SCORE_SIGMOID] = {"sigmoid", FIG_SCORE_KIND_FUNCTION, 1, 0},
    [FIG_SCORE_SIN] = {"sin", FIG_SCORE_KIND_FUNCTION, 1, 0},
    [FIG_SCORE_COS] = {"cos", FIG_SCORE_KIND_FUNCTION, 1, 0},
    [FIG_SCORE_FLOAT] = {"float", FIG_SCORE_KIND_FLOAT, 1, 0},
    [FIG_SCORE_INT] = {"int", FIG_SCORE_KIND_INT, 1, 0},
    [FIG_SCORE_RANGE] = {":", FIG_SCORE_KIND_MASK, 2, 0},
    [FIG_SCORE_BITS] = {"bits", FIG_SCORE_KIND_MASK, 2, 0},
};

int fig_score_ops_is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

const char *fig_score_ops_name(uint32_t op) {
    return op < FIG_SCORE_OP_COUNT && fig_score_ops_table[op].name != NULL
               ? fig_score_ops_table[op].name
               : "";
}

int32_t fig_score_ops_operands(uint32_t op) {
    return op < FIG_SCORE_OP_COUNT && fig_score_ops_table[op].kind != FIG_SCORE_KIND_NONE
               ? fig_score_ops_table[op].operands
               : -1;
}

uint32_t fig_score_ops_term(const char *name) {
    for (uint32_t op = 1; op < FIG_SCORE_TERM_COUNT; op++)
        if (strcmp(fig_score_ops_table[op].name, name) == 0) return op;
    return 0;
}

uint32_t fig_score_ops_function(const char *name) {
    for (uint32_t op = FIG_SCORE_MIN; op <= FIG_SCORE_INT; op++)
        if (fig_score_ops_is_letter(fig_score_ops_table[op].name[0]) &&
            strcmp(fig_score_ops_table[op].name, name) == 0)
            return op;
    return 0;
}

uint32_t fig_score_ops_dtype(const char *word) {
    if (strcmp(word, "f32") == 0) return FIG_F32;
    if (strcmp(word, "bf16") == 0) return FIG_BF16;
    return strcmp(word, "i32") == 0 ? FIG_I32 : 0;
}

int fig_score_ops_has_meaning(const char *word) {
    return fig_score_ops_term(word) != 0 || fig_score_ops_function(word) != 0 ||
           fig_score_ops_dtype(word) != 0 || strcmp(word, "inf") == 0 ||
           strcmp(word, "weights") == 0;
}

int fig_score_ops_begins_mask(const char *word) {
    return strcmp(word, "see") == 0 || strcmp(word, "bits") == 0;
}

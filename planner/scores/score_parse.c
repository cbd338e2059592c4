/* score_parse.c: reads the text of a score.
 *
 * An operator waits on one stack until its second operand is complete, and operands wait on
 * another, so no text makes this file recurse. Invariant: each entry of a stack belongs to a
 * character of the text, and a text that needs more entries than a stack has is refused. */
#include "planner/scores/score.h"

#include <inttypes.h>
#include <stdlib.h>

#include "planner/scores/score_ops.h"
#include "planner/scores/score_tokens.h"
#include "planner/status.h"

enum {
    STACK_LIMIT = 4 * FIG_SCORE_NODE_LIMIT,
    NAMED_LIMIT = FIG_SCORE_NODE_LIMIT,
    SIGN_STRENGTH = 8,
    COMPARISON_STRENGTH = 1
};

/* The kinds of entries that wait on the stack for operands. */
typedef enum wait_kind { WAIT_OPERATOR, WAIT_SIGN, WAIT_PAREN, WAIT_CALL, WAIT_INDEX } wait_kind;

typedef struct waiting {
    uint8_t kind; /* wait_kind */
    uint8_t strength;
    uint8_t is_swapped; /* 1: > or >=, which become < or <= with their operands swapped */
    uint8_t got;        /* for a call: the number of operands that are complete */
    uint16_t op;        /* for an operator or a call: its fig_score_op */
    uint16_t array;     /* for an index: the number of the array */
    size_t at;
} waiting;

/* A name for an expression. */
typedef struct named {
    char name[FIG_SCORE_WORD_LIMIT];
    uint16_t node;
} named;

typedef struct parser {
    fig_score_reader reader;
    fig_score_builder builder;
    fig_score_weights weights;
    named names[NAMED_LIMIT];
    waiting waits[STACK_LIMIT];
    uint16_t values[STACK_LIMIT]; /* nodes */
    uint32_t name_count, wait_count, value_count;
    uint8_t is_used[FIG_SCORE_ARRAY_LIMIT]; /* [array] */
    uint8_t is_list;                        /* 1: a comma may follow the expression being read */
} parser;

/* The operators with two operands. The operands of > and >= are swapped. */
static const struct {
    const char *text;
    uint16_t op;
    uint8_t strength, is_swapped;
} operators[] = {
    {"<", FIG_SCORE_LESS, COMPARISON_STRENGTH, 0},
    {"<=", FIG_SCORE_LESS_EQUAL, COMPARISON_STRENGTH, 0},
    {">", FIG_SCORE_LESS, COMPARISON_STRENGTH, 1},
    {">=", FIG_SCORE_LESS_EQUAL, COMPARISON_STRENGTH, 1},
    {"==", FIG_SCORE_EQUAL, COMPARISON_STRENGTH, 0},
    {"!=", FIG_SCORE_UNEQUAL, COMPARISON_STRENGTH, 0},
    {"|", FIG_SCORE_OR, 2, 0},
    {"^", FIG_SCORE_XOR, 3, 0},
    {"&", FIG_SCORE_AND, 4, 0},
    {"<<", FIG_SCORE_SHIFT_LEFT, 5, 0},
    {">>", FIG_SCORE_SHIFT_RIGHT, 5, 0},
    {"+", FIG_SCORE_ADD, 6, 0},
    {"-", FIG_SCORE_SUBTRACT, 6, 0},
    {"*", FIG_SCORE_MULTIPLY, 7, 0},
    {"/", FIG_SCORE_DIVIDE, 7, 0},
    {"//", FIG_SCORE_QUOTIENT, 7, 0},
    {"%", FIG_SCORE_REMAINDER, 7, 0},
};
enum { OPERATOR_COUNT = sizeof operators / sizeof operators[0] };

static int is_sign(const parser *p, const char *text) {
    return p->reader.token.kind == FIG_SCORE_TOKEN_SIGN && strcmp(p->reader.token.text, text) == 0;
}

static fig_status refuse_token(const parser *p, const char *wanted) {
    const size_t at = p->reader.token.at;
    if (p->reader.token.kind == FIG_SCORE_TOKEN_END)
        return FIG_SCORE_REFUSE_AT(&p->reader, at, "the text ends, it wants %s", wanted);
    if (p->reader.token.kind == FIG_SCORE_TOKEN_NUMBER)
        return FIG_SCORE_REFUSE_AT(&p->reader, at, "a number, it wants %s", wanted);
    return FIG_SCORE_REFUSE_AT(&p->reader, at, "\"%s\", it wants %s", p->reader.token.text, wanted);
}

static fig_status expect(parser *p, const char *sign) {
    if (!is_sign(p, sign)) {
        char wanted[FIG_SCORE_WORD_LIMIT] = {'"', sign[0], '"', 0};
        return refuse_token(p, wanted);
    }
    return fig_score_tokens_next(&p->reader);
}

/* ---- Stacks */

static fig_status push_value(parser *p, uint16_t node, size_t at) {
    if (p->value_count == STACK_LIMIT)
        return fig_score_tokens_refuse(
            &p->reader, at, fig_fail(FIG_TOO_LARGE, "more than %d operands wait", STACK_LIMIT));
    p->values[p->value_count++] = node;
    return FIG_OK;
}

static fig_status push_wait(parser *p, waiting wait) {
    if (p->wait_count == STACK_LIMIT)
        return fig_score_tokens_refuse(
            &p->reader, wait.at,
            fig_fail(FIG_TOO_LARGE, "more than %d parts inside each other", STACK_LIMIT));
    p->waits[p->wait_count++] = wait;
    return FIG_OK;
}

/* Adds a node and pushes it. */
static fig_status add(parser *p, const fig_score_node *node, size_t at) {
    uint16_t number;
    const fig_status status = fig_score_build_node(&p->builder, node, &number);
    if (status != FIG_OK) return fig_score_tokens_refuse(&p->reader, at, status);
    return push_value(p, number, at);
}

/* Removes the last entry from the stack, takes its operands, and pushes the node of its result. */
static fig_status apply_wait(parser *p) {
    const waiting wait = p->waits[--p->wait_count];
    fig_score_node node = {.op = wait.op};
    if (wait.kind == WAIT_INDEX) {
        node.op = FIG_SCORE_ELEMENT;
        node.bits = wait.array;
    }
    const int32_t operands = fig_score_ops_operands(node.op);
    const uint16_t *values = p->values + (p->value_count - (uint32_t)operands);
    p->value_count -= (uint32_t)operands;
    node.a = values[wait.is_swapped ? 1 : 0];
    if (operands > 1) node.b = values[wait.is_swapped ? 0 : 1];
    if (operands > 2) node.c = values[2];
    return add(p, &node, wait.at);
}

/* Applies the operators at the top of the stack that bind at least this strongly. */
static fig_status apply_stronger(parser *p, uint8_t strength) {
    while (p->wait_count > 0) {
        const waiting *last = &p->waits[p->wait_count - 1];
        if (last->kind != WAIT_OPERATOR && last->kind != WAIT_SIGN) break;
        if (last->strength < strength) break;
        if (strength == COMPARISON_STRENGTH && last->strength == COMPARISON_STRENGTH)
            return FIG_SCORE_REFUSE_AT(&p->reader, p->reader.token.at,
                                       "comparisons make no chain: (a < b) & (b < c) is one");
        FIG_TRY(apply_wait(p));
    }
    return FIG_OK;
}

/* ---- Operands */

static fig_status add_constant(parser *p, uint16_t type, uint32_t bits) {
    const fig_score_node node = {.op = FIG_SCORE_CONSTANT, .type = type, .bits = bits};
    return add(p, &node, p->reader.token.at);
}

static int find_array(const parser *p, const char *name, uint32_t *number) {
    for (*number = 0; *number < p->builder.array_count; ++*number)
        if (strcmp(p->builder.arrays[*number].name, name) == 0) return 1;
    return 0;
}

/* Reads `name`, `name[` or `name(`. Sets *is_whole to 0 if operands follow. */
static fig_status read_name(parser *p, int *is_whole) {
    const fig_score_token word = p->reader.token;
    const uint16_t term = (uint16_t)fig_score_ops_term(word.text),
                   op = (uint16_t)fig_score_ops_function(word.text);
    uint32_t array;
    *is_whole = 1;
    FIG_TRY(fig_score_tokens_next(&p->reader));
    if (is_sign(p, "(")) {
        *is_whole = 0;
        if (op == 0)
            return FIG_SCORE_REFUSE_AT(&p->reader, word.at, "%s is no function", word.text);
        return push_wait(p, (waiting){.kind = WAIT_CALL, .op = op, .at = word.at});
    }
    if (op != 0) return refuse_token(p, "\"(\" after the function");
    if (term != 0) return add(p, &(fig_score_node){.op = term}, word.at);
    if (strcmp(word.text, "inf") == 0)
        return add_constant(p, FIG_F32, fig_score_value_bits(INFINITY));
    for (uint32_t i = 0; i < p->name_count; i++)
        if (strcmp(p->names[i].name, word.text) == 0)
            return push_value(p, p->names[i].node, word.at);
    if (!find_array(p, word.text, &array)) {
        fig_score_array made = {.dtype = FIG_F32, .count = is_sign(p, "[") ? 0 : 1};
        memcpy(made.name, word.text, sizeof made.name);
        const fig_status status = fig_score_build_array(&p->builder, &made, &array);
        if (status != FIG_OK) return fig_score_tokens_refuse(&p->reader, word.at, status);
    }
    p->is_used[array] = 1;
    if (is_sign(p, "[")) {
        *is_whole = 0;
        return push_wait(p, (waiting){.kind = WAIT_INDEX, .array = (uint16_t)array, .at = word.at});
    }
    if (p->builder.arrays[array].count != 1) return refuse_token(p, "\"[\" after the array");
    const fig_score_node first = {.op = FIG_SCORE_CONSTANT, .type = FIG_I32};
    fig_score_node node = {.op = FIG_SCORE_ELEMENT, .bits = array};
    const fig_status status = fig_score_build_node(&p->builder, &first, &node.a);
    if (status != FIG_OK) return fig_score_tokens_refuse(&p->reader, word.at, status);
    return add(p, &node, word.at);
}

/* Reads the beginning of an operand, up to a token that other operands follow, such as "(". If the
 * operand is complete, sets *is_whole to 1. */
static fig_status read_operand(parser *p, int *is_whole) {
    const size_t at = p->reader.token.at;
    *is_whole = 0;
    if (is_sign(p, "(")) {
        FIG_TRY(push_wait(p, (waiting){.kind = WAIT_PAREN, .at = at}));
        return fig_score_tokens_next(&p->reader);
    }
    if (is_sign(p, "-")) {
        FIG_TRY(push_wait(p, (waiting){.kind = WAIT_SIGN,
                                       .op = FIG_SCORE_NEGATE,
                                       .strength = SIGN_STRENGTH,
                                       .at = at}));
        return fig_score_tokens_next(&p->reader);
    }
    if (p->reader.token.kind == FIG_SCORE_TOKEN_NUMBER) {
        *is_whole = 1;
        FIG_TRY(add_constant(p, p->reader.token.type, p->reader.token.bits));
        return fig_score_tokens_next(&p->reader);
    }
    if (p->reader.token.kind != FIG_SCORE_TOKEN_WORD) return refuse_token(p, "an operand");
    FIG_TRY(read_name(p, is_whole));
    return *is_whole ? FIG_OK : fig_score_tokens_next(&p->reader); /* past "(" or "[" */
}

/* ---- Expressions */

static fig_status read_comma(parser *p) {
    waiting *last = p->wait_count > 0 ? &p->waits[p->wait_count - 1] : NULL;
    if (last == NULL || last->kind != WAIT_CALL)
        return FIG_SCORE_REFUSE_AT(&p->reader, p->reader.token.at,
                                   "\",\" is not between the operands of a function");
    if (++last->got >= fig_score_ops_operands(last->op))
        return FIG_SCORE_REFUSE_AT(&p->reader, p->reader.token.at, "%s has %" PRId32 " operand%s",
                                   fig_score_ops_name(last->op), fig_score_ops_operands(last->op),
                                   FIG_PLURAL(fig_score_ops_operands(last->op)));
    return fig_score_tokens_next(&p->reader);
}

static fig_status read_close(parser *p) {
    const int is_index = is_sign(p, "]");
    const waiting *last = p->wait_count > 0 ? &p->waits[p->wait_count - 1] : NULL;
    if (last == NULL || (last->kind == WAIT_INDEX) != is_index)
        return FIG_SCORE_REFUSE_AT(&p->reader, p->reader.token.at, "\"%s\" closes nothing",
                                   p->reader.token.text);
    if (last->kind == WAIT_CALL && last->got + 1 != fig_score_ops_operands(last->op))
        return FIG_SCORE_REFUSE_AT(&p->reader, p->reader.token.at, "%s has %" PRId32 " operands",
                                   fig_score_ops_name(last->op), fig_score_ops_operands(last->op));
    if (last->kind == WAIT_PAREN) {
        p->wait_count--;
    } else {
        FIG_TRY(apply_wait(p));
    }
    return fig_score_tokens_next(&p->reader);
}

/* Reads the token after an operand. Sets *wants to 1 if another operand must follow. Sets *is_over
 * to 1, and reads nothing, if the token does not belong to the expression. */
static fig_status read_after(parser *p, int *wants, int *is_over) {
    *wants = *is_over = 0;
    for (size_t i = 0; i < OPERATOR_COUNT; i++) {
        if (!is_sign(p, operators[i].text)) continue;
        *wants = 1;
        FIG_TRY(apply_stronger(p, operators[i].strength));
        FIG_TRY(push_wait(p, (waiting){.kind = WAIT_OPERATOR,
                                       .strength = operators[i].strength,
                                       .is_swapped = operators[i].is_swapped,
                                       .op = operators[i].op,
                                       .at = p->reader.token.at}));
        return fig_score_tokens_next(&p->reader);
    }
    if (is_sign(p, ",") || is_sign(p, ")") || is_sign(p, "]")) {
        FIG_TRY(apply_stronger(p, 0));
        if (is_sign(p, ",") && p->is_list && p->wait_count == 0) {
            *is_over = 1;
            return FIG_OK;
        }
        *wants = is_sign(p, ",");
        return *wants ? read_comma(p) : read_close(p);
    }
    *is_over = 1;
    return FIG_OK;
}

static fig_status read_expression(parser *p, uint16_t *root) {
    int is_whole = 0, wants = 1, is_over = 0;
    *root = 0;
    p->wait_count = p->value_count = 0;
    while (!is_over) {
        if (wants) {
            FIG_TRY(read_operand(p, &is_whole));
            wants = !is_whole;
        } else {
            FIG_TRY(read_after(p, &wants, &is_over));
        }
    }
    FIG_TRY(apply_stronger(p, 0));
    if (p->wait_count > 0)
        return refuse_token(p, p->waits[p->wait_count - 1].kind == WAIT_INDEX ? "\"]\"" : "\")\"");
    *root = p->values[0];
    return FIG_OK;
}

/* ---- The mask */

/* Reads `a SIGN b`, and makes it a part of the mask. */
static fig_status read_part(parser *p, uint16_t op, const char *sign) {
    fig_score_node node = {.op = op};
    const size_t at = p->reader.token.at;
    uint16_t number;
    p->is_list = 1;
    FIG_TRY(read_expression(p, &node.a));
    FIG_TRY(expect(p, sign));
    FIG_TRY(read_expression(p, &node.b));
    p->is_list = 0;
    fig_status status = fig_score_build_node(&p->builder, &node, &number);
    if (status == FIG_OK) status = fig_score_build_part(&p->builder, number);
    return status == FIG_OK ? FIG_OK : fig_score_tokens_refuse(&p->reader, at, status);
}

/* Returns 1 if the word that the parser has just read begins a statement of the mask, and is not
 * the name of an array or an expression. */
static int begins_mask(const parser *p, const fig_score_token *word) {
    uint32_t array;
    int is_name = is_sign(p, "[") || is_sign(p, "=") || find_array(p, word->text, &array);
    for (uint32_t i = 0; i < p->name_count; i++)
        is_name |= strcmp(p->names[i].name, word->text) == 0;
    return !is_name && fig_score_ops_begins_mask(word->text);
}

/* Reads the ranges of a mask. */
static fig_status read_ranges(parser *p) {
    FIG_TRY(read_part(p, FIG_SCORE_RANGE, ":"));
    while (is_sign(p, ",")) {
        FIG_TRY(fig_score_tokens_next(&p->reader));
        FIG_TRY(read_part(p, FIG_SCORE_RANGE, ":"));
    }
    return FIG_OK;
}

/* ---- Statements */

/* Checks that no other part of the score has the name. */
static fig_status check_free(const parser *p, const fig_score_token *word) {
    uint32_t array;
    int is_taken = fig_score_ops_has_meaning(word->text) || find_array(p, word->text, &array);
    for (uint32_t i = 0; i < p->name_count; i++)
        is_taken |= strcmp(p->names[i].name, word->text) == 0;
    if (!is_taken) return FIG_OK;
    return FIG_SCORE_REFUSE_AT(&p->reader, word->at, "the name %s is taken", word->text);
}

/* Reads the rest of an array's statement, after the dtype. */
static fig_status read_array(parser *p, uint32_t dtype) {
    fig_score_array array = {.dtype = dtype, .count = 1};
    const fig_score_token word = p->reader.token;
    uint32_t number;
    if (word.kind != FIG_SCORE_TOKEN_WORD) return refuse_token(p, "the name of an array");
    FIG_TRY(check_free(p, &word));
    memcpy(array.name, word.text, sizeof array.name);
    FIG_TRY(fig_score_tokens_next(&p->reader));
    if (is_sign(p, "[")) {
        array.count = 0;
        FIG_TRY(fig_score_tokens_next(&p->reader));
        if (p->reader.token.kind == FIG_SCORE_TOKEN_NUMBER) {
            if (p->reader.token.type != FIG_I32 || (int32_t)p->reader.token.bits < 1)
                return FIG_SCORE_REFUSE_AT(&p->reader, p->reader.token.at,
                                           "an array has at least one element");
            array.count = (int32_t)p->reader.token.bits;
            FIG_TRY(fig_score_tokens_next(&p->reader));
        }
        FIG_TRY(expect(p, "]"));
    }
    const fig_status status = fig_score_build_array(&p->builder, &array, &number);
    return status == FIG_OK ? FIG_OK : fig_score_tokens_refuse(&p->reader, word.at, status);
}

static fig_status read_weights(parser *p) {
    if (p->reader.token.kind == FIG_SCORE_TOKEN_WORD &&
        strcmp(p->reader.token.text, "sigmoid") == 0) {
        p->weights = FIG_SCORE_SIGMOID_WEIGHTS;
    } else if (p->reader.token.kind == FIG_SCORE_TOKEN_WORD &&
               strcmp(p->reader.token.text, "softmax") == 0) {
        p->weights = FIG_SCORE_SOFTMAX;
    } else {
        return refuse_token(p, "softmax or sigmoid");
    }
    return fig_score_tokens_next(&p->reader);
}

/* Reads the rest of the statement that names an expression, after the name. */
static fig_status read_named(parser *p, const fig_score_token *word) {
    uint16_t node;
    FIG_TRY(check_free(p, word));
    if (p->name_count == NAMED_LIMIT)
        return fig_score_tokens_refuse(&p->reader, word->at,
                                       fig_fail(FIG_TOO_LARGE, "more than %d names", NAMED_LIMIT));
    FIG_TRY(read_expression(p, &node));
    named *name = &p->names[p->name_count++];
    memcpy(name->name, word->text, sizeof name->name);
    name->node = node;
    return FIG_OK;
}

/* If a statement comes next, reads it up to its semicolon and sets *is_one to 1. Otherwise sets
 * *is_one to 0. */
static fig_status read_statement(parser *p, int *is_one) {
    const size_t next = p->reader.next;
    const fig_score_token word = p->reader.token;
    *is_one = 1;
    if (word.kind == FIG_SCORE_TOKEN_WORD) {
        FIG_TRY(fig_score_tokens_next(&p->reader));
        if (fig_score_ops_dtype(word.text) != 0)
            return read_array(p, fig_score_ops_dtype(word.text));
        if (strcmp(word.text, "weights") == 0) return read_weights(p);
        if (begins_mask(p, &word))
            return strcmp(word.text, "see") == 0 ? read_ranges(p)
                                                 : read_part(p, FIG_SCORE_BITS, ",");
        if (is_sign(p, "=")) {
            FIG_TRY(fig_score_tokens_next(&p->reader));
            return read_named(p, &word);
        }
    }
    *is_one = 0;
    p->reader.next = next;
    p->reader.token = word;
    return FIG_OK;
}

static fig_status read_statements(parser *p) {
    int is_statement = 1;
    FIG_TRY(fig_score_tokens_next(&p->reader));
    for (;;) {
        FIG_TRY(read_statement(p, &is_statement));
        if (!is_statement) return FIG_OK;
        FIG_TRY(expect(p, ";"));
    }
}

static fig_status check_end(const parser *p) {
    if (p->reader.token.kind != FIG_SCORE_TOKEN_END)
        return refuse_token(p, "an operator or the end");
    for (uint32_t i = 0; i < p->builder.array_count; i++)
        if (!p->is_used[i])
            return fig_fail(FIG_INVALID, "score: array %s is declared and not used",
                            p->builder.arrays[i].name);
    return FIG_OK;
}

/* Reads the text of a score. */
static fig_status read_score(parser *p, uint16_t *root) {
    *root = 0;
    FIG_TRY(read_statements(p));
    FIG_TRY(read_expression(p, root));
    return check_end(p);
}

/* Reads the text of a mask. The result is the logit itself with that mask. */
static fig_status read_mask(parser *p, uint16_t *root) {
    const fig_score_node logit = {.op = FIG_SCORE_SCORE};
    *root = 0;
    FIG_TRY(read_statements(p));
    if (p->weights != FIG_SCORE_SOFTMAX)
        return fig_fail(FIG_INVALID, "score: weights belong to the score, not to its mask");
    FIG_TRY(read_ranges(p));
    FIG_TRY(check_end(p));
    return fig_score_build_node(&p->builder, &logit, root);
}

/* Makes a score from a text; `read` is read_score or read_mask. */
static fig_status parse(const char *text, fig_status (*read)(parser *, uint16_t *),
                        fig_score **out) {
    uint16_t root;
    *out = NULL;
    if (text == NULL) return fig_fail(FIG_INVALID, "score: the text is NULL");
    if (strnlen(text, FIG_SCORE_TEXT_LIMIT + 1) > FIG_SCORE_TEXT_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "score: more than %d characters", FIG_SCORE_TEXT_LIMIT);
    parser *p = calloc(1, sizeof *p);
    fig_score *score = calloc(1, sizeof *score);
    fig_status status = FIG_OK;
    if (p == NULL || score == NULL)
        status = fig_fail(FIG_NOMEM, "score: %zu bytes", sizeof *p + sizeof *score);
    if (status == FIG_OK) {
        p->reader.text = text;
        p->reader.what = read == read_mask ? "mask" : "score";
        status = read(p, &root);
    }
    if (status == FIG_OK) status = fig_score_build_finish(&p->builder, root, p->weights, score);
    free(p);
    if (status != FIG_OK) {
        free(score);
        score = NULL;
    }
    *out = score;
    return status;
}

fig_status fig_score_parse(fig_score **out, const char *text) {
    return parse(text, read_score, out);
}

fig_status fig_score_parse_mask(fig_score **out, const char *text, const fig_score *score) {
    fig_score *mask, *masked = NULL;
    *out = NULL;
    fig_status status = parse(text, read_mask, &mask);
    if (status == FIG_OK) {
        masked = calloc(1, sizeof *masked);
        status = masked == NULL ? fig_fail(FIG_NOMEM, "score: %zu bytes", sizeof *masked)
                                : fig_score_join(score, mask, masked);
    }
    fig_score_destroy(mask);
    if (status != FIG_OK) {
        free(masked);
        masked = NULL;
    }
    *out = masked;
    return status;
}

/* score_parse.c: reads the text of a score.
 *
 * An operator waits on one stack until its second operand is complete, and operands wait on
 * another, so no text makes this file recurse. Invariant: each entry of a stack belongs to a
 * character of the text, and a text that needs more entries than a stack has is refused. */
#include "planner/scores/score.h"

#include <inttypes.h>
#include <stdlib.h>

#include "planner/scores/score_ops.h"
#include "planner/status.h"

enum {
    STACK_LIMIT = 4 * FIG_SCORE_NODE_LIMIT,
    NAMED_LIMIT = FIG_SCORE_NODE_LIMIT,
    WORD_LIMIT = 32,
    SIGN_STRENGTH = 8,
    COMPARISON_STRENGTH = 1
};

typedef enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_SIGN } token_kind;

typedef struct token {
    token_kind kind;
    char text[WORD_LIMIT]; /* a word or an operator */
    uint32_t bits;         /* of a number */
    uint16_t type;         /* of a number */
    size_t at;             /* its first character */
} token;

/* What waits for operands. */
typedef enum wait_kind { WAIT_OPERATOR, WAIT_SIGN, WAIT_PAREN, WAIT_CALL, WAIT_INDEX } wait_kind;

typedef struct waiting {
    uint8_t kind; /* wait_kind */
    uint8_t strength;
    uint8_t is_swapped; /* 1: of > and >=, whose operands change places */
    uint8_t got;        /* operands of a call that are complete */
    uint16_t op;        /* fig_score_op of an operator or a call */
    uint16_t array;     /* of an index */
    size_t at;
} waiting;

/* A name for an expression. */
typedef struct named {
    char name[WORD_LIMIT];
    uint16_t node;
} named;

typedef struct parser {
    const char *text;
    size_t next; /* the first character that no token has */
    token token;
    fig_score_builder builder;
    fig_score_weights weights;
    named names[NAMED_LIMIT];
    waiting waits[STACK_LIMIT];
    uint16_t values[STACK_LIMIT]; /* nodes */
    uint32_t name_count, wait_count, value_count;
    uint8_t is_used[FIG_SCORE_ARRAY_LIMIT]; /* [array] */
} parser;

/* The operators of two operands. `>` and `>=` swap theirs. */
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

/* Reports what is wrong at a character of the text. */
#define REFUSE_AT(at, ...) refuse_at(at, fig_fail(FIG_INVALID, __VA_ARGS__))

static fig_status refuse_at(size_t at, fig_status status) {
    return fig_fail(status, "score: column %zu: %s", at + 1, fig_message());
}

/* ---- Tokens */

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The standard library's functions would read the point of the process's locale. */
static float decimal(long double digits, int64_t power) {
    if (power > 100) power = 100;
    if (power < -100) power = -100;
    return (float)(power < 0 ? digits / powl(10, -(long double)power)
                             : digits * powl(10, (long double)power));
}

static fig_status read_hex(parser *p) {
    const size_t at = p->next;
    uint64_t value = 0;
    p->next += 2;
    const size_t first = p->next;
    for (;; p->next++) {
        const char c = p->text[p->next];
        const int digit = is_digit(c)            ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) break;
        value = value * 16 + (uint64_t)digit;
        if (value > UINT32_MAX) return REFUSE_AT(at, "a number has more than 32 bits");
    }
    if (p->next == first) return REFUSE_AT(at, "0x is followed by no digit");
    p->token.type = FIG_I32;
    p->token.bits = (uint32_t)value;
    return FIG_OK;
}

/* Reads the power of ten behind the digits of a number, if there is one. */
static void read_power(parser *p, int64_t *power) {
    const char *text = p->text;
    int64_t given = 0;
    if (text[p->next] != 'e' && text[p->next] != 'E') return;
    const size_t sign = text[p->next + 1] == '-' || text[p->next + 1] == '+';
    if (!is_digit(text[p->next + 1 + sign])) return;
    const int is_negative = text[p->next + 1] == '-';
    for (p->next += 1 + sign; is_digit(text[p->next]); p->next++)
        if (given < 10000) given = given * 10 + (text[p->next] - '0');
    *power += is_negative ? -given : given;
}

static fig_status read_number(parser *p) {
    const char *text = p->text;
    const size_t at = p->next;
    long double digits = 0;
    uint64_t whole = 0;
    int64_t power = 0;
    int taken = 0; /* digits after leading zeros; more than 19 change no f32 */
    if (text[at] == '0' && (text[at + 1] == 'x' || text[at + 1] == 'X')) return read_hex(p);
    size_t point = 0;
    for (;; p->next++) {
        const char c = text[p->next];
        if (c == '.' && point == 0) {
            point = p->next + 1;
            continue;
        }
        if (!is_digit(c)) break;
        if (taken > 0 || c != '0') taken++;
        if (taken <= 19) digits = digits * 10 + (c - '0');
        if (taken <= 19) whole = whole * 10 + (uint64_t)(c - '0');
        power += (taken > 19) - (point != 0);
    }
    const size_t end = p->next;
    read_power(p, &power);
    if (fig_score_ops_is_letter(text[p->next]) || text[p->next] == '.')
        return REFUSE_AT(p->next, "a number is followed by '%c'", text[p->next]);
    if (point == 0 && end == p->next) {
        if (taken > 19 || whole > UINT64_C(1) << 31)
            return REFUSE_AT(at, "a number is beyond i32; 1e10 is an f32");
        p->token.type = FIG_I32;
        p->token.bits = (uint32_t)whole;
        return FIG_OK;
    }
    p->token.type = FIG_F32;
    p->token.bits = fig_score_value_bits(decimal(digits, power));
    if (isinf(fig_score_value_float(p->token.bits)))
        return REFUSE_AT(at, "a number is beyond f32; inf is infinity");
    return FIG_OK;
}

static fig_status read_word(parser *p) {
    size_t length = 0;
    const size_t at = p->next;
    while (fig_score_ops_is_letter(p->text[p->next]) || is_digit(p->text[p->next])) {
        if (length >= FIG_SCORE_NAME_LIMIT)
            return REFUSE_AT(at, "a name has more than %d characters", FIG_SCORE_NAME_LIMIT);
        p->token.text[length++] = p->text[p->next++];
    }
    p->token.text[length] = 0;
    return FIG_OK;
}

static fig_status read_sign(parser *p) {
    static const char *const signs[] = {"<<", ">>", "<=", ">=", "==", "!=", "//", "<",
                                        ">",  "+",  "-",  "*",  "/",  "%",  "&",  "|",
                                        "^",  "(",  ")",  "[",  "]",  ",",  ";",  "="};
    const char *rest = p->text + p->next;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        const size_t length = strlen(signs[i]);
        if (strncmp(rest, signs[i], length) != 0) continue;
        memcpy(p->token.text, signs[i], length + 1);
        p->next += length;
        return FIG_OK;
    }
    if (*rest >= ' ' && *rest <= '~')
        return REFUSE_AT(p->next, "'%c' has no meaning in a score", *rest);
    return REFUSE_AT(p->next, "a character of code %d has no meaning in a score",
                     (unsigned char)*rest);
}

static fig_status advance(parser *p) {
    while (p->text[p->next] == ' ' || p->text[p->next] == '\n' || p->text[p->next] == '\t')
        p->next++;
    const char c = p->text[p->next];
    p->token = (token){.at = p->next};
    if (c == 0) return FIG_OK;
    if (is_digit(c) || (c == '.' && is_digit(p->text[p->next + 1]))) {
        p->token.kind = TOKEN_NUMBER;
        return read_number(p);
    }
    p->token.kind = fig_score_ops_is_letter(c) ? TOKEN_WORD : TOKEN_SIGN;
    return fig_score_ops_is_letter(c) ? read_word(p) : read_sign(p);
}

static int is_sign(const parser *p, const char *text) {
    return p->token.kind == TOKEN_SIGN && strcmp(p->token.text, text) == 0;
}

static fig_status refuse_token(const parser *p, const char *wanted) {
    const size_t at = p->token.at;
    if (p->token.kind == TOKEN_END) return REFUSE_AT(at, "the text ends, it wants %s", wanted);
    if (p->token.kind == TOKEN_NUMBER) return REFUSE_AT(at, "a number, it wants %s", wanted);
    return REFUSE_AT(at, "\"%s\", it wants %s", p->token.text, wanted);
}

static fig_status expect(parser *p, const char *sign) {
    if (!is_sign(p, sign)) {
        char wanted[WORD_LIMIT] = {'"', sign[0], '"', 0};
        return refuse_token(p, wanted);
    }
    return advance(p);
}

/* ---- Stacks */

static fig_status push_value(parser *p, uint16_t node, size_t at) {
    if (p->value_count == STACK_LIMIT)
        return refuse_at(at, fig_fail(FIG_TOO_LARGE, "more than %d operands wait", STACK_LIMIT));
    p->values[p->value_count++] = node;
    return FIG_OK;
}

static fig_status push_wait(parser *p, waiting wait) {
    if (p->wait_count == STACK_LIMIT)
        return refuse_at(
            wait.at, fig_fail(FIG_TOO_LARGE, "more than %d parts inside each other", STACK_LIMIT));
    p->waits[p->wait_count++] = wait;
    return FIG_OK;
}

/* Adds a node and pushes it. */
static fig_status add(parser *p, const fig_score_node *node, size_t at) {
    uint16_t number;
    const fig_status status = fig_score_build_node(&p->builder, node, &number);
    if (status != FIG_OK) return refuse_at(at, status);
    return push_value(p, number, at);
}

/* Takes the operands of the last wait from the stack, and pushes its node. */
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

/* Applies the operators that bind at least as strongly. */
static fig_status apply_stronger(parser *p, uint8_t strength) {
    while (p->wait_count > 0) {
        const waiting *last = &p->waits[p->wait_count - 1];
        if (last->kind != WAIT_OPERATOR && last->kind != WAIT_SIGN) break;
        if (last->strength < strength) break;
        if (strength == COMPARISON_STRENGTH && last->strength == COMPARISON_STRENGTH)
            return REFUSE_AT(p->token.at, "comparisons make no chain: (a < b) & (b < c) is one");
        FIG_TRY(apply_wait(p));
    }
    return FIG_OK;
}

/* ---- Operands */

static fig_status add_constant(parser *p, uint16_t type, uint32_t bits) {
    const fig_score_node node = {.op = FIG_SCORE_CONSTANT, .type = type, .bits = bits};
    return add(p, &node, p->token.at);
}

static int find_array(const parser *p, const char *name, uint32_t *number) {
    for (*number = 0; *number < p->builder.array_count; ++*number)
        if (strcmp(p->builder.arrays[*number].name, name) == 0) return 1;
    return 0;
}

/* Reads `name`, `name[` or `name(`. Sets *is_whole to 0 if operands follow. */
static fig_status read_name(parser *p, int *is_whole) {
    const token word = p->token;
    const uint16_t term = (uint16_t)fig_score_ops_term(word.text),
                   op = (uint16_t)fig_score_ops_function(word.text);
    uint32_t array;
    *is_whole = 1;
    FIG_TRY(advance(p));
    if (is_sign(p, "(")) {
        *is_whole = 0;
        if (op == 0) return REFUSE_AT(word.at, "%s is no function", word.text);
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
        if (status != FIG_OK) return refuse_at(word.at, status);
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
    if (status != FIG_OK) return refuse_at(word.at, status);
    return add(p, &node, word.at);
}

/* Reads what may begin an operand. Sets *is_whole to 1 after an operand that is complete. */
static fig_status read_operand(parser *p, int *is_whole) {
    const size_t at = p->token.at;
    *is_whole = 0;
    if (is_sign(p, "(")) {
        FIG_TRY(push_wait(p, (waiting){.kind = WAIT_PAREN, .at = at}));
        return advance(p);
    }
    if (is_sign(p, "-")) {
        FIG_TRY(push_wait(p, (waiting){.kind = WAIT_SIGN,
                                       .op = FIG_SCORE_NEGATE,
                                       .strength = SIGN_STRENGTH,
                                       .at = at}));
        return advance(p);
    }
    if (p->token.kind == TOKEN_NUMBER) {
        *is_whole = 1;
        FIG_TRY(add_constant(p, p->token.type, p->token.bits));
        return advance(p);
    }
    if (p->token.kind != TOKEN_WORD) return refuse_token(p, "an operand");
    FIG_TRY(read_name(p, is_whole));
    return *is_whole ? FIG_OK : advance(p); /* past "(" or "[" */
}

/* ---- Expressions */

static fig_status read_comma(parser *p) {
    waiting *last = p->wait_count > 0 ? &p->waits[p->wait_count - 1] : NULL;
    if (last == NULL || last->kind != WAIT_CALL)
        return REFUSE_AT(p->token.at, "\",\" is not between the operands of a function");
    if (++last->got >= fig_score_ops_operands(last->op))
        return REFUSE_AT(p->token.at, "%s has %" PRId32 " operand%s", fig_score_ops_name(last->op),
                         fig_score_ops_operands(last->op),
                         FIG_PLURAL(fig_score_ops_operands(last->op)));
    return advance(p);
}

static fig_status read_close(parser *p) {
    const int is_index = is_sign(p, "]");
    const waiting *last = p->wait_count > 0 ? &p->waits[p->wait_count - 1] : NULL;
    if (last == NULL || (last->kind == WAIT_INDEX) != is_index)
        return REFUSE_AT(p->token.at, "\"%s\" closes nothing", p->token.text);
    if (last->kind == WAIT_CALL && last->got + 1 != fig_score_ops_operands(last->op))
        return REFUSE_AT(p->token.at, "%s has %" PRId32 " operands", fig_score_ops_name(last->op),
                         fig_score_ops_operands(last->op));
    if (last->kind == WAIT_PAREN) {
        p->wait_count--;
    } else {
        FIG_TRY(apply_wait(p));
    }
    return advance(p);
}

/* Reads what may follow an operand. Sets *wants to 1 if another operand must follow, and *is_over
 * to 1 if none of it belongs to the expression. */
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
                                       .at = p->token.at}));
        return advance(p);
    }
    if (is_sign(p, ",") || is_sign(p, ")") || is_sign(p, "]")) {
        *wants = is_sign(p, ",");
        FIG_TRY(apply_stronger(p, 0));
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

/* ---- Statements */

/* Checks that no other part of the score has the name. */
static fig_status check_free(const parser *p, const token *word) {
    uint32_t array;
    int is_taken = fig_score_ops_has_meaning(word->text) || find_array(p, word->text, &array);
    for (uint32_t i = 0; i < p->name_count; i++)
        is_taken |= strcmp(p->names[i].name, word->text) == 0;
    if (!is_taken) return FIG_OK;
    return REFUSE_AT(word->at, "the name %s is taken", word->text);
}

/* Reads what follows the dtype of an array. */
static fig_status read_array(parser *p, uint32_t dtype) {
    fig_score_array array = {.dtype = dtype, .count = 1};
    const token word = p->token;
    uint32_t number;
    if (word.kind != TOKEN_WORD) return refuse_token(p, "the name of an array");
    FIG_TRY(check_free(p, &word));
    memcpy(array.name, word.text, sizeof array.name);
    FIG_TRY(advance(p));
    if (is_sign(p, "[")) {
        array.count = 0;
        FIG_TRY(advance(p));
        if (p->token.kind == TOKEN_NUMBER) {
            if (p->token.type != FIG_I32 || (int32_t)p->token.bits < 1)
                return REFUSE_AT(p->token.at, "an array has at least one element");
            array.count = (int32_t)p->token.bits;
            FIG_TRY(advance(p));
        }
        FIG_TRY(expect(p, "]"));
    }
    const fig_status status = fig_score_build_array(&p->builder, &array, &number);
    return status == FIG_OK ? FIG_OK : refuse_at(word.at, status);
}

static fig_status read_weights(parser *p) {
    if (p->token.kind == TOKEN_WORD && strcmp(p->token.text, "sigmoid") == 0) {
        p->weights = FIG_SCORE_SIGMOID_WEIGHTS;
    } else if (p->token.kind == TOKEN_WORD && strcmp(p->token.text, "softmax") == 0) {
        p->weights = FIG_SCORE_SOFTMAX;
    } else {
        return refuse_token(p, "softmax or sigmoid");
    }
    return advance(p);
}

/* Reads what follows the name of an expression. */
static fig_status read_named(parser *p, const token *word) {
    uint16_t node;
    FIG_TRY(check_free(p, word));
    if (p->name_count == NAMED_LIMIT)
        return refuse_at(word->at, fig_fail(FIG_TOO_LARGE, "more than %d names", NAMED_LIMIT));
    FIG_TRY(read_expression(p, &node));
    named *name = &p->names[p->name_count++];
    memcpy(name->name, word->text, sizeof name->name);
    name->node = node;
    return FIG_OK;
}

/* Reads a statement up to its semicolon, if the text has one next. *is_one is 0 if it does not. */
static fig_status read_statement(parser *p, int *is_one) {
    const size_t next = p->next;
    const token word = p->token;
    *is_one = 1;
    if (word.kind == TOKEN_WORD) {
        FIG_TRY(advance(p));
        if (fig_score_ops_dtype(word.text) != 0)
            return read_array(p, fig_score_ops_dtype(word.text));
        if (strcmp(word.text, "weights") == 0) return read_weights(p);
        if (is_sign(p, "=")) {
            FIG_TRY(advance(p));
            return read_named(p, &word);
        }
    }
    *is_one = 0;
    p->next = next;
    p->token = word;
    return FIG_OK;
}

static fig_status parse(parser *p, uint16_t *root) {
    int is_statement = 1;
    *root = 0;
    FIG_TRY(advance(p));
    for (;;) {
        FIG_TRY(read_statement(p, &is_statement));
        if (!is_statement) break;
        FIG_TRY(expect(p, ";"));
    }
    FIG_TRY(read_expression(p, root));
    if (p->token.kind != TOKEN_END) return refuse_token(p, "an operator or the end");
    for (uint32_t i = 0; i < p->builder.array_count; i++)
        if (!p->is_used[i])
            return fig_fail(FIG_INVALID, "score: array %s is declared and not used",
                            p->builder.arrays[i].name);
    return FIG_OK;
}

fig_status fig_score_parse(fig_score **out, const char *text) {
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
        p->text = text;
        status = parse(p, &root);
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

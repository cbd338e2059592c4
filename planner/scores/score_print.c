/* score_print.c: writes the text of a score's normal form.
 *
 * A part that several nodes use gets a name and a statement of its own, so the length of the text
 * follows from the number of nodes. Conversions that the text implies are left out. Invariant: the
 * text parses to the same nodes, whatever the locale of the process. */
#include "planner/scores/score.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "planner/scores/score_ops.h"

/* The strengths with which operators bind. Functions, terms and numbers bind most strongly. */
enum {
    BINDS_LEAST = 0,
    BINDS_COMPARISON,
    BINDS_OR,
    BINDS_XOR,
    BINDS_AND,
    BINDS_SHIFT,
    BINDS_SUM,
    BINDS_PRODUCT,
    BINDS_SIGN,
    BINDS_MOST
};

enum { ITEM_LIMIT = 12 * FIG_SCORE_NODE_LIMIT, NODE_NONE = 0xffff };

/* A piece of text, or a node whose text is still to be written. */
typedef struct item {
    const char *text; /* NULL: a node */
    uint16_t node;
} item;

typedef struct printer {
    fig_score *score;
    const fig_score_node *nodes; /* [node_count] being written: nodes of the score or of the mask */
    uint32_t node_count;
    uint8_t named; /* names given so far */
    size_t length;
    uint8_t uses[FIG_SCORE_NODE_LIMIT];  /* [node] nodes that use it as an operand; 2: or more */
    uint8_t names[FIG_SCORE_NODE_LIMIT]; /* [node] number of its name; 0: none */
    item items[ITEM_LIMIT];              /* a stack; the last item is written next */
    uint32_t item_count;
    uint16_t whole; /* the node whose statement is being written */
} printer;

static int binds_of(uint32_t op) {
    switch (op) {
    case FIG_SCORE_LESS:
    case FIG_SCORE_LESS_EQUAL:
    case FIG_SCORE_EQUAL:
    case FIG_SCORE_UNEQUAL: return BINDS_COMPARISON;
    case FIG_SCORE_OR: return BINDS_OR;
    case FIG_SCORE_XOR: return BINDS_XOR;
    case FIG_SCORE_AND: return BINDS_AND;
    case FIG_SCORE_SHIFT_LEFT:
    case FIG_SCORE_SHIFT_RIGHT: return BINDS_SHIFT;
    case FIG_SCORE_ADD:
    case FIG_SCORE_SUBTRACT: return BINDS_SUM;
    case FIG_SCORE_MULTIPLY:
    case FIG_SCORE_DIVIDE:
    case FIG_SCORE_QUOTIENT:
    case FIG_SCORE_REMAINDER: return BINDS_PRODUCT;
    case FIG_SCORE_NEGATE: return BINDS_SIGN;
    default: return BINDS_MOST;
    }
}

static void put(printer *p, const char *text) {
    const size_t length = strlen(text);
    assert(p->length + length <= FIG_SCORE_TEXT_LIMIT);
    if (p->length + length > FIG_SCORE_TEXT_LIMIT) return;
    memcpy(p->score->text + p->length, text, length + 1);
    p->length += length;
}

static void push_text(printer *p, const char *text) {
    assert(p->item_count < ITEM_LIMIT);
    p->items[p->item_count++] = (item){text, NODE_NONE};
}

static void push_node(printer *p, uint16_t node) {
    assert(p->item_count < ITEM_LIMIT);
    p->items[p->item_count++] = (item){NULL, node};
}

/* ---- Numbers and names */

/* Writes the shortest number that reads as the same f32. Uses only the digits from snprintf,
 * because the locale decides which character snprintf writes as the decimal point. */
static void put_float(printer *p, float x) {
    char digits[32], text[48];
    int precision = 0, exponent = 0;
    size_t length = 0, count = 0;
    if (signbit(x)) put(p, "-");
    x = fabsf(x);
    if (isinf(x)) {
        put(p, "inf");
        return;
    }
    do {
        snprintf(digits, sizeof digits, "%.*e", precision, (double)x);
        const char *e = strchr(digits, 'e');
        exponent = 0;
        for (const char *c = e + 2; *c != 0; c++)
            exponent = exponent * 10 + (*c - '0');
        if (e[1] == '-') exponent = -exponent;
        count = 0;
        for (const char *c = digits; c < e; c++)
            if (*c >= '0' && *c <= '9') text[count++] = *c;
        text[count] = 0;
        /* The value of the digits is text * 10^(exponent - precision). */
        long double value = 0;
        for (size_t i = 0; i < count; i++)
            value = value * 10 + (text[i] - '0');
        const int power = exponent - precision;
        value = power < 0 ? value / powl(10, -power) : value * powl(10, power);
        if ((float)value == x) break;
        precision++;
    } while (precision < 12);
    while (count > 1 && text[count - 1] == '0')
        text[--count] = 0;
    char out[64];
    if (exponent < -4 || exponent > 8) {
        length = (size_t)snprintf(out, sizeof out, "%c%s%se%d", text[0], count > 1 ? "." : "",
                                  text + 1, exponent);
    } else if (exponent < 0) {
        length = (size_t)snprintf(out, sizeof out, "0.%.*s%s", -exponent - 1, "00000000", text);
    } else {
        const size_t whole = (size_t)exponent + 1;
        for (size_t i = 0; i < whole; i++)
            out[length++] = i < count ? text[i] : '0';
        out[length++] = '.';
        for (size_t i = whole; i < count; i++)
            out[length++] = text[i];
        if (count <= whole) out[length++] = '0';
        out[length] = 0;
    }
    assert(length < sizeof out);
    put(p, out);
}

static void put_constant(printer *p, const fig_score_node *node) {
    char text[16];
    if (node->type == FIG_F32) {
        put_float(p, fig_score_value_float(node->bits));
        return;
    }
    snprintf(text, sizeof text, "%" PRId32, (int32_t)node->bits);
    put(p, text);
}

/* Writes the name of a part: t1, or t1_, t1__ and so on if arrays have that name. */
static void put_name(printer *p, uint8_t number) {
    char name[FIG_SCORE_NAME_LIMIT + 9];
    size_t length = (size_t)snprintf(name, sizeof name, "t%d", number);
    for (uint32_t i = 0; i < p->score->array_count; i++) {
        if (strcmp(name, p->score->arrays[i].name) != 0) continue;
        name[length++] = '_';
        name[length] = 0;
        i = UINT32_MAX; /* compare the new name with all arrays */
    }
    put(p, name);
}

/* ---- Nodes */

static const fig_score_node *node_of(const printer *p, uint16_t n) {
    return &p->nodes[n];
}

/* Returns 1 if the node is written without operands, so that it needs no name. */
static int is_leaf(const printer *p, uint16_t n) {
    const fig_score_node *node = node_of(p, n);
    if (node->op == FIG_SCORE_FLOAT) node = node_of(p, node->a);
    return fig_score_ops_operands(node->op) == 0;
}

/* Returns the node to write for an operand: if the operand is a conversion that the text implies,
 * this is the converted node. other: the operand that must have the same type, or NODE_NONE if the
 * operation always converts i32 to f32. */
static uint16_t written(const printer *p, uint16_t operand, uint16_t other) {
    const fig_score_node *node = node_of(p, operand);
    if (node->op != FIG_SCORE_FLOAT || p->names[operand] != 0) return operand;
    if (other != NODE_NONE && node_of(p, other)->op == FIG_SCORE_FLOAT) return operand;
    return node->a;
}

static int strength_of(const printer *p, uint16_t n) {
    const fig_score_node *node = node_of(p, n);
    if (p->names[n] != 0) return BINDS_MOST;
    if (node->op == FIG_SCORE_CONSTANT && node->type == FIG_I32 && (int32_t)node->bits < 0)
        return BINDS_SIGN;
    if (node->op == FIG_SCORE_CONSTANT && node->type == FIG_F32 &&
        signbit(fig_score_value_float(node->bits)))
        return BINDS_SIGN;
    return binds_of(node->op);
}

/* Pushes an operand. Puts parentheses around it if its operator binds less strongly than
 * `least`. */
static void push_operand(printer *p, uint16_t n, int least) {
    const int wrapped = strength_of(p, n) < least;
    if (wrapped) push_text(p, ")");
    push_node(p, n);
    if (wrapped) push_text(p, "(");
}

static void push_operator(printer *p, const fig_score_node *node) {
    static const struct {
        uint16_t op;
        const char *text;
    } spaced[] = {{FIG_SCORE_ADD, " + "},          {FIG_SCORE_SUBTRACT, " - "},
                  {FIG_SCORE_MULTIPLY, " * "},     {FIG_SCORE_DIVIDE, " / "},
                  {FIG_SCORE_QUOTIENT, " // "},    {FIG_SCORE_REMAINDER, " % "},
                  {FIG_SCORE_AND, " & "},          {FIG_SCORE_OR, " | "},
                  {FIG_SCORE_XOR, " ^ "},          {FIG_SCORE_SHIFT_LEFT, " << "},
                  {FIG_SCORE_SHIFT_RIGHT, " >> "}, {FIG_SCORE_LESS, " < "},
                  {FIG_SCORE_LESS_EQUAL, " <= "},  {FIG_SCORE_EQUAL, " == "},
                  {FIG_SCORE_UNEQUAL, " != "}};
    const int binds = binds_of(node->op);
    const int converts = node->op == FIG_SCORE_DIVIDE;
    size_t i = 0;
    while (spaced[i].op != node->op)
        i++;
    push_operand(p, written(p, node->b, converts ? NODE_NONE : node->a), binds + 1);
    push_text(p, spaced[i].text);
    push_operand(p, written(p, node->a, converts ? NODE_NONE : node->b),
                 binds == BINDS_COMPARISON ? binds + 1 : binds);
}

static void push_call(printer *p, const fig_score_node *node) {
    const int32_t operands = fig_score_ops_operands(node->op);
    uint16_t first = node->a, second = node->b, third = node->c;
    if (node->op == FIG_SCORE_MIN || node->op == FIG_SCORE_MAX) {
        first = written(p, node->a, node->b);
        second = written(p, node->b, node->a);
    } else if (node->op == FIG_SCORE_SELECT) {
        second = written(p, node->b, node->c);
        third = written(p, node->c, node->b);
    } else if (node->op >= FIG_SCORE_EXP2 && node->op <= FIG_SCORE_COS) {
        first = written(p, node->a, NODE_NONE);
    }
    push_text(p, ")");
    if (operands > 2) push_node(p, third);
    if (operands > 2) push_text(p, ", ");
    if (operands > 1) push_node(p, second);
    if (operands > 1) push_text(p, ", ");
    push_node(p, first);
    push_text(p, "(");
    push_text(p, fig_score_ops_name(node->op));
}

/* Pushes an element of an array. If the array is a scalar, leaves out the index. */
static void push_element(printer *p, const fig_score_node *node) {
    const fig_score_array *array = &p->score->arrays[node->bits];
    const fig_score_node *index = node_of(p, node->a);
    const int is_scalar = array->count == 1 && index->op == FIG_SCORE_CONSTANT && index->bits == 0;
    if (!is_scalar) {
        push_text(p, "]");
        push_node(p, node->a);
        push_text(p, "[");
    }
    push_text(p, array->name);
}

static void write_node(printer *p, uint16_t n) {
    const fig_score_node *node = node_of(p, n);
    if (p->names[n] != 0 && n != p->whole) {
        put_name(p, p->names[n]);
    } else if (node->op == FIG_SCORE_CONSTANT) {
        put_constant(p, node);
    } else if (node->op < FIG_SCORE_TERM_COUNT) {
        put(p, fig_score_ops_name(node->op));
    } else if (node->op == FIG_SCORE_ELEMENT) {
        push_element(p, node);
    } else if (node->op == FIG_SCORE_NEGATE) {
        push_operand(p, node->a, BINDS_SIGN);
        push_text(p, "-");
    } else if (binds_of(node->op) == BINDS_MOST) {
        push_call(p, node);
    } else {
        push_operator(p, node);
    }
}

/* Writes all items. */
static void write_items(printer *p) {
    while (p->item_count > 0) {
        const item next = p->items[--p->item_count];
        if (next.text != NULL) {
            put(p, next.text);
        } else {
            write_node(p, next.node);
        }
    }
}

/* Writes the expression of a node. */
static void write_whole(printer *p, uint16_t n) {
    p->whole = n;
    push_node(p, n);
    write_items(p);
}

/* ---- Statements */

/* Gives names to the parts that several nodes use. */
static void name_shared(printer *p) {
    memset(p->uses, 0, sizeof p->uses);
    memset(p->names, 0, sizeof p->names);
    for (uint32_t n = 0; n < p->node_count; n++) {
        const fig_score_node *node = &p->nodes[n];
        const uint16_t operands[] = {node->a, node->b, node->c};
        for (int32_t i = 0; i < fig_score_ops_operands(node->op); i++)
            if (p->uses[operands[i]] < 2) p->uses[operands[i]]++;
    }
    for (uint32_t n = 0; n < p->node_count; n++)
        if (p->uses[n] > 1 && !is_leaf(p, (uint16_t)n)) p->names[n] = ++p->named;
}

/* Writes a statement for each part that has a name. */
static void put_shared(printer *p) {
    name_shared(p);
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (p->names[n] == 0) continue;
        put_name(p, p->names[n]);
        put(p, " = ");
        write_whole(p, (uint16_t)n);
        put(p, "; ");
    }
}

/* Writes a range or bits as `a SIGN b`. */
static void put_part(printer *p, const fig_score_node *node, const char *sign) {
    const uint16_t operands[] = {node->a, node->b};
    for (int32_t i = 0; i < 2; i++) {
        if (i == 1) put(p, sign);
        p->whole = NODE_NONE;
        push_node(p, operands[i]);
        write_items(p);
    }
}

/* Writes the statements of the mask, if there is one. */
static void put_mask(printer *p) {
    const fig_score_code *code = &p->score->code;
    int32_t ranges = 0;
    p->nodes = code->nodes + code->node_count;
    p->node_count = code->mask_node_count;
    if (p->node_count == 0) return;
    put_shared(p);
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (p->nodes[n].op != FIG_SCORE_RANGE) continue;
        put(p, ranges++ == 0 ? "see " : ", ");
        put_part(p, &p->nodes[n], ":");
    }
    put(p, "; ");
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (p->nodes[n].op != FIG_SCORE_BITS) continue;
        put(p, "bits ");
        put_part(p, &p->nodes[n], ", ");
        put(p, "; ");
    }
}

static void put_array(printer *p, const fig_score_array *array) {
    static const char *const dtypes[] = {
        [FIG_F32] = "f32 ", [FIG_BF16] = "bf16 ", [FIG_I32] = "i32 "};
    char count[24] = "";
    if (array->count > 1) snprintf(count, sizeof count, "[%" PRId32 "]", array->count);
    put(p, dtypes[array->dtype]);
    put(p, array->name);
    put(p, array->count == 0 ? "[]" : count);
    put(p, "; ");
}

void fig_score_print_text(fig_score *score) {
    printer p = {.score = score};
    const fig_score_code *code = &score->code;
    score->text[0] = 0;
    if (code->weights == FIG_SCORE_SIGMOID_WEIGHTS) put(&p, "weights sigmoid; ");
    for (uint32_t i = 0; i < score->array_count; i++)
        put_array(&p, &score->arrays[i]);
    put_mask(&p);
    p.nodes = code->nodes;
    p.node_count = code->node_count;
    put_shared(&p);
    write_whole(&p, (uint16_t)(code->node_count - 1));
}

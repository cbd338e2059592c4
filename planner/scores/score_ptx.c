/* score_ptx.c: writes a score as PTX.
 *
 * Register n<i> holds the bits of node i. All registers are untyped, so that an instruction may
 * read them as i32 or f32. Every f32 instruction states its rounding: without it, the assembler
 * could make one instruction of a product and a sum. Invariant: only instructions that
 * tests/planner/scores/test_score_ptx.c can run are written. */
#include "planner/scores/score_ptx.h"

#include <assert.h>
#include <inttypes.h>

/* ---- Nodes */

typedef struct writing {
    const fig_score_code *code;
    const fig_score_ptx_place *place;
    fig_ptx_text *text;
} writing;

/* Writes n<i> = name(n<a>, n<b>). */
static void write_two(const writing *w, uint32_t i, const char *name) {
    const fig_score_node *node = &w->code->nodes[i];
    fig_ptx_text_say(w->text, "%s n%" PRIu32 ", n%u, n%u;\n", name, i, node->a, node->b);
}

static void write_one(const writing *w, uint32_t i, const char *name) {
    fig_ptx_text_say(w->text, "%s n%" PRIu32 ", n%u;\n", name, i, w->code->nodes[i].a);
}

/* Writes a call of a function of the template. */
static void write_call(const writing *w, uint32_t i, const char *name, int operands) {
    const fig_score_node *node = &w->code->nodes[i];
    fig_ptx_text_say(w->text, "call (n%" PRIu32 "), fig_scored_functions_%s, (n%u", i, name,
                     node->a);
    if (operands > 1) fig_ptx_text_say(w->text, ", n%u", node->b);
    fig_ptx_text_say(w->text, ");\n");
}

static void write_element(const writing *w, uint32_t i) {
    const fig_score_node *node = &w->code->nodes[i];
    const uint32_t array = node->bits;
    const int is_half = w->code->arrays[array].dtype == FIG_BF16;
    const char *params = w->place->params;
    const size_t count =
        w->place->counts + array * sizeof(fig_score_extent) + offsetof(fig_score_extent, count);
    fig_ptx_text_say(w->text, "ld.param.u32 last, [%s+%zu];\n", params, count);
    fig_ptx_text_say(w->text, "add.s32 last, last, -1;\n");
    fig_ptx_text_say(w->text, "max.s32 index, n%u, 0;\n", node->a);
    fig_ptx_text_say(w->text, "min.s32 index, index, last;\n");
    fig_ptx_text_say(w->text, "ld.param.u64 base, [%s+%zu];\n", params,
                     w->place->arrays + array * sizeof(void *));
    fig_ptx_text_say(w->text, "mul.wide.s32 offset, index, %d;\n", is_half ? 2 : 4);
    fig_ptx_text_say(w->text, "add.s64 base, base, offset;\n");
    fig_ptx_text_say(w->text, "ld.global.%s n%" PRIu32 ", [base];\n", is_half ? "u16" : "u32", i);
    if (is_half) fig_ptx_text_say(w->text, "shl.b32 n%" PRIu32 ", n%" PRIu32 ", 16;\n", i, i);
}

/* Returns k if the node is the i32 constant 2^k, and -1 otherwise. */
static int power_of(const fig_score_node *node) {
    if (node->op != FIG_SCORE_CONSTANT) return -1;
    for (int k = 0; k < 31; k++)
        if (node->bits == 1u << k) return k;
    return -1;
}

/* A quotient by a power of two is a shift, and the remainder has the low bits. */
static void write_division(const writing *w, uint32_t i) {
    const fig_score_node *node = &w->code->nodes[i];
    const int is_quotient = node->op == FIG_SCORE_QUOTIENT;
    const int power = power_of(&w->code->nodes[node->b]);
    if (power < 0) {
        write_call(w, i, is_quotient ? "quotient" : "remainder", 2);
    } else if (is_quotient) {
        fig_ptx_text_say(w->text, "shr.s32 n%" PRIu32 ", n%u, %d;\n", i, node->a, power);
    } else {
        fig_ptx_text_say(w->text, "and.b32 n%" PRIu32 ", n%u, %" PRIu32 ";\n", i, node->a,
                         (1u << power) - 1);
    }
}

/* PTX clamps a count of 32 or more. */
static void write_shift(const writing *w, uint32_t i, const char *name) {
    const fig_score_node *node = &w->code->nodes[i];
    fig_ptx_text_say(w->text, "and.b32 index, n%u, 31;\n", node->b);
    fig_ptx_text_say(w->text, "%s n%" PRIu32 ", n%u, index;\n", name, i, node->a);
}

static void write_comparison(const writing *w, uint32_t i, const char *name) {
    const fig_score_node *node = &w->code->nodes[i];
    fig_ptx_text_say(w->text, "setp.%s holds, n%u, n%u;\n", name, node->a, node->b);
    fig_ptx_text_say(w->text, "selp.b32 n%" PRIu32 ", 1, 0, holds;\n", i);
}

static void write_integer(const writing *w, uint32_t i) {
    const fig_score_node *node = &w->code->nodes[i];
    switch (node->op) {
    case FIG_SCORE_ADD: write_two(w, i, "add.s32"); return;
    case FIG_SCORE_SUBTRACT: write_two(w, i, "sub.s32"); return;
    case FIG_SCORE_MULTIPLY: write_two(w, i, "mul.lo.s32"); return;
    case FIG_SCORE_MIN: write_two(w, i, "min.s32"); return;
    case FIG_SCORE_MAX: write_two(w, i, "max.s32"); return;
    case FIG_SCORE_QUOTIENT:
    case FIG_SCORE_REMAINDER: write_division(w, i); return;
    case FIG_SCORE_AND: write_two(w, i, "and.b32"); return;
    case FIG_SCORE_OR: write_two(w, i, "or.b32"); return;
    case FIG_SCORE_XOR: write_two(w, i, "xor.b32"); return;
    case FIG_SCORE_SHIFT_LEFT: write_shift(w, i, "shl.b32"); return;
    case FIG_SCORE_SHIFT_RIGHT: write_shift(w, i, "shr.s32"); return;
    case FIG_SCORE_LESS: write_comparison(w, i, "lt.s32"); return;
    case FIG_SCORE_LESS_EQUAL: write_comparison(w, i, "le.s32"); return;
    case FIG_SCORE_EQUAL: write_comparison(w, i, "eq.s32"); return;
    case FIG_SCORE_UNEQUAL: write_comparison(w, i, "ne.s32"); return;
    case FIG_SCORE_NEGATE:
    case FIG_SCORE_ABS:
        fig_ptx_text_say(w->text, "sub.s32 n%" PRIu32 ", 0, n%u;\n", i, node->a);
        if (node->op == FIG_SCORE_ABS)
            fig_ptx_text_say(w->text, "max.s32 n%" PRIu32 ", n%" PRIu32 ", n%u;\n", i, i, node->a);
        return;
    default: assert(0 && "an operation of i32");
    }
}

/* As fig_score_value_min: `a` if b is NaN or the comparison holds, else `b`. */
static void write_bound(const writing *w, uint32_t i, const char *comparison) {
    const fig_score_node *node = &w->code->nodes[i];
    fig_ptx_text_say(w->text, "setp.nan.f32 holds, n%u, n%u;\n", node->b, node->b);
    fig_ptx_text_say(w->text, "setp.%s.or.f32 holds, n%u, n%u, holds;\n", comparison, node->a,
                     node->b);
    fig_ptx_text_say(w->text, "selp.b32 n%" PRIu32 ", n%u, n%u, holds;\n", i, node->a, node->b);
}

/* Division by a power of two equals the product with its inverse, which is exact too. */
static void write_ratio(const writing *w, uint32_t i) {
    const fig_score_node *node = &w->code->nodes[i], *by = &w->code->nodes[node->b];
    const uint32_t exponent = by->bits >> 23 & 0xff;
    if (by->op != FIG_SCORE_CONSTANT || (by->bits & 0x7fffff) != 0 || exponent < 1 ||
        exponent > 253) {
        write_two(w, i, "div.rn.f32");
        return;
    }
    const uint32_t inverse = (by->bits & 0x80000000u) | (254 - exponent) << 23;
    fig_ptx_text_say(w->text, "mul.rn.f32 n%" PRIu32 ", n%u, 0f%08" PRIX32 ";\n", i, node->a,
                     inverse);
}

static void write_real(const writing *w, uint32_t i) {
    switch (w->code->nodes[i].op) {
    case FIG_SCORE_ADD: write_two(w, i, "add.rn.f32"); return;
    case FIG_SCORE_SUBTRACT: write_two(w, i, "sub.rn.f32"); return;
    case FIG_SCORE_MULTIPLY: write_two(w, i, "mul.rn.f32"); return;
    case FIG_SCORE_DIVIDE: write_ratio(w, i); return;
    case FIG_SCORE_MIN: write_bound(w, i, "lt"); return;
    case FIG_SCORE_MAX: write_bound(w, i, "gt"); return;
    case FIG_SCORE_LESS: write_comparison(w, i, "lt.f32"); return;
    case FIG_SCORE_LESS_EQUAL: write_comparison(w, i, "le.f32"); return;
    case FIG_SCORE_EQUAL: write_comparison(w, i, "eq.f32"); return;
    case FIG_SCORE_UNEQUAL: write_comparison(w, i, "neu.f32"); return;
    case FIG_SCORE_NEGATE: write_one(w, i, "neg.f32"); return;
    case FIG_SCORE_ABS: write_one(w, i, "abs.f32"); return;
    case FIG_SCORE_EXP2: write_call(w, i, "exp2", 1); return;
    case FIG_SCORE_LOG2: write_call(w, i, "log2", 1); return;
    case FIG_SCORE_TANH: write_call(w, i, "tanh", 1); return;
    case FIG_SCORE_SIGMOID: write_call(w, i, "sigmoid", 1); return;
    case FIG_SCORE_SIN: write_call(w, i, "sin", 1); return;
    case FIG_SCORE_COS: write_call(w, i, "cos", 1); return;
    default: assert(0 && "an operation of f32");
    }
}

static void write_node(const writing *w, uint32_t i) {
    const fig_score_node *node = &w->code->nodes[i];
    if (node->op < FIG_SCORE_TERM_COUNT) {
        fig_ptx_text_say(w->text, "mov.b32 n%" PRIu32 ", %s;\n", i, w->place->terms[node->op]);
        return;
    }
    switch (node->op) {
    case FIG_SCORE_CONSTANT:
        fig_ptx_text_say(w->text, "mov.b32 n%" PRIu32 ", 0x%08" PRIx32 ";\n", i, node->bits);
        return;
    case FIG_SCORE_ELEMENT: write_element(w, i); return;
    case FIG_SCORE_SELECT:
        fig_ptx_text_say(w->text, "setp.ne.s32 holds, n%u, 0;\n", node->a);
        fig_ptx_text_say(w->text, "selp.b32 n%" PRIu32 ", n%u, n%u, holds;\n", i, node->b, node->c);
        return;
    case FIG_SCORE_FLOAT: write_one(w, i, "cvt.rn.f32.s32"); return;
    case FIG_SCORE_INT: write_one(w, i, "cvt.rzi.s32.f32"); return;
    default: break;
    }
    if (w->code->nodes[node->a].type == FIG_I32) {
        write_integer(w, i);
    } else {
        write_real(w, i);
    }
}

/* The last register holds the logit, because the name of `out` may mean another register within a
 * function's body. */
void fig_score_ptx_write(const fig_score_code *code, const fig_score_ptx_place *place,
                         fig_ptx_text *text) {
    const writing w = {code, place, text};
    const uint32_t logit = code->node_count, score = logit - 1;
    fig_ptx_text_say(text, "{\n.reg .pred holds;\n.reg .b32 n<%" PRIu32 ">;\n", logit + 1);
    fig_ptx_text_say(text, ".reg .b32 index, last;\n.reg .b64 base, offset;\n");
    for (uint32_t i = 0; i < code->node_count; i++)
        write_node(&w, i);
    if (code->weights == FIG_SCORE_SOFTMAX) {
        fig_ptx_text_say(text, "mul.rn.f32 n%" PRIu32 ", n%" PRIu32 ", 0f3FB8AA3B;\n", logit,
                         score);
    } else {
        fig_ptx_text_say(
            text, "call (n%" PRIu32 "), fig_scored_functions_sigmoid_logit, (n%" PRIu32 ");\n",
            logit, score);
    }
    fig_ptx_text_say(text, "mov.b32 %s, n%" PRIu32 ";\n}\n", place->out, logit);
}

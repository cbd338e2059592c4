/* test_score_ptx.c: runs the PTX that scores are written as, and compares every bit with the
 * interpreter of score_value.h.
 *
 * The machine below knows only the instructions that score_ptx.c writes, in the words of the PTX
 * manual, and fails on any other. Functions of a template are the functions that nvcc compiles for
 * them. NaN equals NaN, whatever its bits: no operation of a score tells them apart. */
#include "planner/scores/score_ptx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/attention/logit.h"
#include "planner/scores/score.h"
#include "tests/support/random.h"

enum {
    REGISTER_LIMIT = 256,
    OPERAND_LIMIT = 4,
    WORD_LIMIT = 48,
    ARRAYS_AT = 1792,
    COUNTS_AT = 2048,
    ELEMENTS = 8,
    SCORES = 4000,
    PLACES = 24
};

static uint32_t draw(fig_random *random) {
    return (uint32_t)(fig_random_bits(random) >> 32);
}

/* ---- The machine */

typedef struct machine {
    struct {
        char name[WORD_LIMIT];
        uint64_t bits;
    } registers[REGISTER_LIMIT];
    int register_count;
    const fig_score_code *code;
    const void *const *arrays;
    const char *line; /* for messages */
} machine;

static uint64_t *find(machine *m, const char *name) {
    for (int i = 0; i < m->register_count; i++)
        if (strcmp(m->registers[i].name, name) == 0) return &m->registers[i].bits;
    assert_true(m->register_count < REGISTER_LIMIT);
    snprintf(m->registers[m->register_count].name, WORD_LIMIT, "%s", name);
    m->registers[m->register_count].bits = 0;
    return &m->registers[m->register_count++].bits;
}

/* Returns the bits of a register or of a constant. */
static uint64_t value_of(machine *m, const char *word) {
    if (strncmp(word, "0f", 2) == 0) return strtoul(word + 2, NULL, 16);
    if (word[0] == '-' || (word[0] >= '0' && word[0] <= '9'))
        return (uint64_t)strtoll(word, NULL, 0);
    return *find(m, word);
}

static uint32_t word_of(machine *m, const char *word) {
    return (uint32_t)value_of(m, word);
}

static float real_of(machine *m, const char *word) {
    return fig_score_value_float(word_of(m, word));
}

/* Splits "op a, b, c;" into words. Returns the number of operands. */
static int split(const char *line, char op[WORD_LIMIT], char operands[OPERAND_LIMIT][WORD_LIMIT]) {
    const char *separators = " ,;()[]";
    int count = -1;
    for (const char *at = line; *at != '\0';) {
        at += strspn(at, separators);
        const size_t length = strcspn(at, separators);
        if (length == 0) break;
        assert_true(length < WORD_LIMIT && count < OPERAND_LIMIT);
        char *to = count < 0 ? op : operands[count];
        memcpy(to, at, length);
        to[length] = '\0';
        count++;
        at += length;
    }
    return count;
}

static int compare(const char *how, float a, float b) {
    if (strcmp(how, "lt") == 0) return a < b;
    if (strcmp(how, "le") == 0) return a <= b;
    if (strcmp(how, "gt") == 0) return a > b;
    if (strcmp(how, "eq") == 0) return a == b;
    if (strcmp(how, "neu") == 0) return !(a == b);
    if (strcmp(how, "nan") == 0) return a != a || b != b;
    fail_msg("a comparison: %s", how);
    return 0;
}

static int compare_integers(const char *how, int32_t a, int32_t b) {
    if (strcmp(how, "lt") == 0) return a < b;
    if (strcmp(how, "le") == 0) return a <= b;
    if (strcmp(how, "eq") == 0) return a == b;
    if (strcmp(how, "ne") == 0) return a != b;
    fail_msg("a comparison: %s", how);
    return 0;
}

/* setp.<how>[.or].<type> */
static uint64_t set_predicate(machine *m, const char *op, char o[OPERAND_LIMIT][WORD_LIMIT],
                              int count) {
    char how[WORD_LIMIT];
    const char *type = strrchr(op, '.');
    snprintf(how, sizeof how, "%s", op + strlen("setp."));
    *strchr(how, '.') = '\0';
    if (strcmp(type, ".s32") == 0) {
        assert_int_equal(count, 3);
        return (uint64_t)compare_integers(how, (int32_t)word_of(m, o[1]),
                                          (int32_t)word_of(m, o[2]));
    }
    assert_string_equal(type, ".f32");
    const int holds = compare(how, real_of(m, o[1]), real_of(m, o[2]));
    if (strstr(op, ".or.") == NULL) return (uint64_t)holds;
    assert_int_equal(count, 4);
    return (uint64_t)holds | value_of(m, o[3]);
}

/* Converts towards 0; NaN gives 0, and a number beyond i32 the nearest one. */
static int32_t convert(float x) {
    if (x != x) return 0;
    const double whole = trunc((double)x);
    return whole > 2147483647.0    ? 2147483647
           : whole < -2147483648.0 ? (-2147483647 - 1)
                                   : (int32_t)whole;
}

static uint64_t run_real(machine *m, const char *op, char o[OPERAND_LIMIT][WORD_LIMIT]) {
    const float a = real_of(m, o[1]), b = o[2][0] != '\0' ? real_of(m, o[2]) : 0;
    float x = 0;
    if (strcmp(op, "add.rn.f32") == 0)
        x = a + b;
    else if (strcmp(op, "sub.rn.f32") == 0)
        x = a - b;
    else if (strcmp(op, "mul.rn.f32") == 0)
        x = a * b;
    else if (strcmp(op, "div.rn.f32") == 0)
        x = a / b;
    else if (strcmp(op, "neg.f32") == 0)
        x = -a;
    else if (strcmp(op, "abs.f32") == 0)
        x = fabsf(a);
    else if (strcmp(op, "cvt.rn.f32.s32") == 0)
        x = (float)(int32_t)word_of(m, o[1]);
    else
        fail_msg("an instruction: %s", m->line);
    return fig_score_value_bits(x);
}

/* Loads from the params, or from an array. An address beyond the array fails. */
static uint64_t load(machine *m, const char *op, const char *from) {
    const char *plus = strchr(from, '+');
    if (strncmp(op, "ld.param.", strlen("ld.param.")) == 0) {
        const uint32_t at = (uint32_t)strtoul(plus + 1, NULL, 10);
        assert_memory_equal(from, "entry_param_0", strlen("entry_param_0"));
        if (strcmp(op, "ld.param.u64") == 0) {
            assert_true(at >= ARRAYS_AT && (at - ARRAYS_AT) % 8 == 0);
            return (uint64_t)(uintptr_t)m->arrays[(at - ARRAYS_AT) / 8];
        }
        assert_string_equal(op, "ld.param.u32");
        assert_true(at >= COUNTS_AT && (at - COUNTS_AT) % 8 == 4);
        return (uint32_t)m->code->arrays[(at - COUNTS_AT) / 8].count;
    }
    const uint64_t address = value_of(m, from);
    const size_t bytes = strcmp(op, "ld.global.u16") == 0 ? 2 : 4;
    for (uint32_t i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++) {
        const uint64_t first = (uint64_t)(uintptr_t)m->arrays[i];
        if (address < first || address + bytes > first + bytes * (size_t)m->code->arrays[i].count)
            continue;
        uint32_t bits = 0;
        memcpy(&bits, (const void *)(uintptr_t)address, bytes);
        return bits;
    }
    fail_msg("a load outside all arrays: %s", m->line);
    return 0;
}

static uint64_t call(machine *m, const char *name, char o[OPERAND_LIMIT][WORD_LIMIT]) {
    const int32_t a = (int32_t)word_of(m, o[2]), b = o[3][0] ? (int32_t)word_of(m, o[3]) : 0;
    const float x = real_of(m, o[2]);
    float y = 0;
    if (strcmp(name, "fig_scored_functions_quotient") == 0)
        return (uint32_t)fig_score_value_quotient(a, b);
    if (strcmp(name, "fig_scored_functions_remainder") == 0)
        return (uint32_t)fig_score_value_remainder(a, b);
    if (strcmp(name, "fig_scored_functions_exp2") == 0)
        y = exp2f(x);
    else if (strcmp(name, "fig_scored_functions_log2") == 0)
        y = log2f(x);
    else if (strcmp(name, "fig_scored_functions_tanh") == 0)
        y = tanhf(x);
    else if (strcmp(name, "fig_scored_functions_sin") == 0)
        y = sinf(x);
    else if (strcmp(name, "fig_scored_functions_cos") == 0)
        y = cosf(x);
    else if (strcmp(name, "fig_scored_functions_sigmoid") == 0)
        y = fig_score_value_sigmoid(x);
    else if (strcmp(name, "fig_scored_functions_sigmoid_logit") == 0)
        y = fig_logit_of_score(x, FIG_SCORE_SIGMOID_WEIGHTS);
    else
        fail_msg("a function: %s", name);
    return fig_score_value_bits(y);
}

static uint64_t run_integer(machine *m, const char *op, char o[OPERAND_LIMIT][WORD_LIMIT]) {
    const uint32_t x = word_of(m, o[1]), y = word_of(m, o[2]);
    const int32_t a = (int32_t)x, b = (int32_t)y;
    if (strcmp(op, "add.s32") == 0) return x + y;
    if (strcmp(op, "sub.s32") == 0) return x - y;
    if (strcmp(op, "mul.lo.s32") == 0) return x * y;
    if (strcmp(op, "min.s32") == 0) return (uint32_t)(a < b ? a : b);
    if (strcmp(op, "max.s32") == 0) return (uint32_t)(a > b ? a : b);
    if (strcmp(op, "and.b32") == 0) return x & y;
    if (strcmp(op, "or.b32") == 0) return x | y;
    if (strcmp(op, "xor.b32") == 0) return x ^ y;
    if (strcmp(op, "shl.b32") == 0) return y > 31 ? 0 : x << y;
    if (strcmp(op, "shr.s32") == 0)
        return (uint32_t)(((int64_t)a) >> (y > 31 ? 31 : y)); /* gcc and clang keep the sign */
    if (strcmp(op, "mul.wide.s32") == 0) return (uint64_t)((int64_t)a * b);
    if (strcmp(op, "add.s64") == 0) return value_of(m, o[1]) + value_of(m, o[2]);
    return run_real(m, op, o);
}

static void run_line(machine *m, const char *line) {
    char op[WORD_LIMIT] = "", o[OPERAND_LIMIT][WORD_LIMIT] = {"", "", "", ""};
    m->line = line;
    if (line[0] == '{' || line[0] == '}' || line[0] == '.') return;
    const int count = split(line, op, o);
    assert_true(count >= 2);
    uint64_t bits;
    if (strcmp(op, "call") == 0)
        bits = call(m, o[1], o);
    else if (strncmp(op, "ld.", 3) == 0)
        bits = load(m, op, o[1]);
    else if (strncmp(op, "setp.", 5) == 0)
        bits = set_predicate(m, op, o, count);
    else if (strcmp(op, "selp.b32") == 0)
        bits = word_of(m, value_of(m, o[3]) ? o[1] : o[2]);
    else if (strcmp(op, "mov.b32") == 0)
        bits = word_of(m, o[1]);
    else if (strcmp(op, "cvt.rzi.s32.f32") == 0)
        bits = (uint32_t)convert(real_of(m, o[1]));
    else
        bits = run_integer(m, op, o);
    *find(m, o[0]) = bits;
}

/* Returns the bits of the logit that the text computes. */
static uint32_t run(const fig_ptx_text *text, const fig_score_code *code,
                    const fig_score_inputs *inputs) {
    machine m = {.code = code, .arrays = inputs->arrays};
    char line[256], name[WORD_LIMIT];
    for (uint32_t term = 1; term < FIG_SCORE_TERM_COUNT; term++) {
        snprintf(name, sizeof name, "%%r%u", term);
        *find(&m, name) = inputs->terms[term];
    }
    for (const char *at = text->bytes; *at != '\0';) {
        const size_t length = strcspn(at, "\n");
        assert_true(length < sizeof line);
        memcpy(line, at, length);
        line[length] = '\0';
        run_line(&m, line);
        at += length + 1;
    }
    return word_of(&m, "%out");
}

/* ---- Scores */

static void write(const fig_score_code *code, fig_ptx_text *text) {
    fig_score_ptx_place place = {
        .out = "%out", .params = "entry_param_0", .arrays = ARRAYS_AT, .counts = COUNTS_AT};
    for (uint32_t term = 1; term < FIG_SCORE_TERM_COUNT; term++)
        snprintf(place.terms[term], sizeof place.terms[term], "%%r%u", term);
    *text = (fig_ptx_text){0};
    fig_score_ptx_write(code, &place, text);
    assert_false(text->is_short);
}

static const float odd_reals[] = {0.0f,  -0.0f,  1.0f,    -1.0f,         0.5f,
                                  3.0f,  1e-40f, -1e-45f, 2147483648.0f, -2147483904.0f,
                                  3e38f, -3e38f, 88.5f};

static uint32_t real_bits(fig_random *random) {
    const uint32_t kind = draw(random) % 8;
    if (kind == 0) return 0x7fc00000u;
    if (kind == 1) return draw(random) % 2 ? 0x7f800000u : 0xff800000u;
    if (kind == 2)
        return fig_score_value_bits(
            odd_reals[draw(random) % (sizeof odd_reals / sizeof odd_reals[0])]);
    if (kind == 3) return (uint32_t)draw(random);
    return fig_score_value_bits((float)((int32_t)(draw(random) % 4001) - 2000) / 64);
}

static uint32_t integer_bits(fig_random *random) {
    static const uint32_t odd[] = {0, 1, 0xffffffffu, 0x80000000u, 0x7fffffffu, 31, 32, 33};
    const uint32_t kind = draw(random) % 4;
    if (kind == 0) return odd[draw(random) % 8];
    if (kind == 1) return (uint32_t)draw(random);
    return draw(random) % 64;
}

static uint8_t elements[FIG_SCORE_ARRAY_LIMIT][4 * ELEMENTS];
static const void *arrays[FIG_SCORE_ARRAY_LIMIT];

static fig_score_inputs inputs_of(fig_random *random) {
    fig_score_inputs inputs = {.arrays = arrays};
    for (uint32_t i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++) {
        arrays[i] = elements[i];
        for (uint32_t e = 0; e < ELEMENTS; e++) {
            const uint32_t bits = i % 2 ? integer_bits(random) : real_bits(random);
            memcpy(elements[i] + 4 * e, &bits, sizeof bits);
        }
    }
    inputs.terms[FIG_SCORE_SCORE] = real_bits(random);
    for (uint32_t term = FIG_SCORE_Q_POS; term < FIG_SCORE_TERM_COUNT; term++)
        inputs.terms[term] = integer_bits(random);
    return inputs;
}

/* Compares the two for many inputs. Returns the number of results that are no NaN. */
static int compare_all(const fig_score *score, fig_random *random) {
    fig_score_code code = score->code;
    fig_ptx_text text;
    int numbers = 0;
    for (uint32_t i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++)
        if (code.arrays[i].count == 0) code.arrays[i].count = 1 + (int32_t)(i % ELEMENTS);
    write(&code, &text);
    for (int n = 0; n < PLACES; n++) {
        const fig_score_inputs inputs = inputs_of(random);
        const float value = fig_score_value_of(&code, &inputs);
        const uint32_t expected = fig_score_value_bits(fig_logit_of_score(value, code.weights));
        const uint32_t got = run(&text, &code, &inputs);
        const float a = fig_score_value_float(expected), b = fig_score_value_float(got);
        if (expected != got && (a == a || b == b))
            fail_msg("%s: %a, and the interpreter gives %a\n%s", fig_score_text(score), (double)b,
                     (double)a, text.bytes);
        numbers += a == a;
    }
    fig_ptx_text_finish(&text);
    return numbers;
}

/* Returns a score of random nodes, or NULL if they are none. */
static fig_score *random_score(fig_random *random) {
    static const fig_score_array four[] = {{"a", FIG_F32, ELEMENTS},
                                           {"b", FIG_I32, ELEMENTS},
                                           {"c", FIG_BF16, 2 * ELEMENTS},
                                           {"d", FIG_I32, 1}};
    fig_score_node nodes[24] = {{.op = 0}};
    const int32_t count = 8 + (int32_t)(draw(random) % 16);
    for (int32_t i = 0; i < count; i++) {
        fig_score_node *node = &nodes[i];
        const uint32_t kind = i == 0  ? 1
                              : i < 5 ? draw(random) % 8 + 1
                                      : draw(random) % FIG_SCORE_RANGE;
        node->op = (fig_score_op)(kind == 0 ? 1 : kind);
        if (node->op == FIG_SCORE_CONSTANT) {
            node->type = draw(random) % 2 ? FIG_I32 : FIG_F32;
            node->bits = node->type == FIG_I32 ? integer_bits(random) : real_bits(random);
            if (draw(random) % 3 == 0 && node->type == FIG_I32)
                node->bits = 1u << draw(random) % 31;
            if (draw(random) % 3 == 0 && node->type == FIG_F32)
                node->bits = (draw(random) % 512) << 23;
            if ((node->bits & 0x7f800000u) == 0x7f800000u && (node->bits & 0x7fffffu) != 0)
                node->bits = 0x7f800000u; /* a score has no constant NaN */
            continue;
        }
        if (node->op == FIG_SCORE_ELEMENT) node->bits = draw(random) % 4;
        if (node->op < FIG_SCORE_CONSTANT) continue;
        const uint32_t back = i < 6 ? (uint32_t)i : 6;
        node->a = (uint16_t)((uint32_t)i - 1 - draw(random) % back);
        if (node->op == FIG_SCORE_ELEMENT || node->op >= FIG_SCORE_NEGATE) continue;
        node->b = (uint16_t)((uint32_t)i - 1 - draw(random) % back);
        if (node->op == FIG_SCORE_SELECT)
            node->c = (uint16_t)((uint32_t)i - 1 - draw(random) % back);
    }
    const fig_score_parts parts = {.size = sizeof parts,
                                   .nodes = nodes,
                                   .arrays = four,
                                   .node_count = count,
                                   .array_count = 4,
                                   .weights = draw(random) % 4 == 0};
    fig_score *score;
    return fig_score_create(&score, &parts) == FIG_OK ? score : NULL;
}

static void random_scores_give_the_interpreters_bits(void **state) {
    (void)state;
    fig_random random = fig_random_seed(1);
    int64_t made = 0, numbers = 0, tried = 0;
    uint64_t seen = 0;
    for (tried = 0; made < SCORES && tried < 100 * SCORES; tried++) {
        fig_score *score = random_score(&random);
        if (score == NULL) continue;
        for (uint32_t i = 0; i < score->code.node_count; i++)
            seen |= (uint64_t)1 << score->code.nodes[i].op;
        numbers += compare_all(score, &random);
        fig_score_destroy(score);
        made++;
    }
    printf("%lld scores of %lld tries, %lld results that are numbers\n", (long long)made,
           (long long)tried, (long long)numbers);
    assert_int_equal(made, SCORES);
    assert_true(numbers > SCORES * PLACES / 4);
    for (uint32_t op = 1; op < FIG_SCORE_RANGE; op++)
        if (!(seen >> op & 1)) fail_msg("no score has operation %u", op);
}

static void scores_of_users_give_the_interpreters_bits(void **state) {
    static const char *const texts[] = {
        "score",
        "30 * tanh(score / 30)",
        "f32 slope[8]; score + slope[head] * (kv_pos - q_pos)",
        "bf16 bias[16]; score + bias[row * 4096 + kv_pos]",
        "d = q_pos - kv_pos; far = 16 + int(log2(d / 16.0) / 3.0 * 16.0); "
        "f32 bias[8]; score + bias[head * 32 + select(d < 16, d, min(far, 31))]",
        "weights sigmoid; score - log2(kv_length) * 0.6931472",
        "select(kv_pos // 8192 == q_pos // 8192, score, -inf)",
        "select(kv_pos // 7 == q_pos % 5, score, -inf)",
        "i32 document[8]; select(document[kv_pos] == document[q_pos], score, -inf)",
        "select((kv_pos < 4) | (kv_pos > q_pos - 1024), score, -inf)",
        "i32 sees[8]; n = kv_pos - kv_length + 8; "
        "select((n < 0) | (sees[row * 8 + q_pos - kv_length + 8] >> n & 1), score, -inf)",
        "score * cos(kv_pos - q_pos) + sin(score) / 8",
        "f32 cap; cap * tanh(score / cap) + float(kv_head)",
        "score / 1.7014118346046923e38 + score / 8.507059173023462e37 - score / -0.125"};
    (void)state;
    fig_random random = fig_random_seed(2);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fig_score *score;
        if (fig_score_parse(&score, texts[i]) != FIG_OK) fail_msg("%s", fig_message());
        for (int n = 0; n < 40; n++)
            compare_all(score, &random);
        fig_score_destroy(score);
    }
}

/* A comparison of one score with another must be able to fail. */
static void another_score_has_other_bits(void **state) {
    (void)state;
    fig_score *one, *other;
    fig_random random = fig_random_seed(3);
    fig_ptx_text text;
    int differs = 0;
    assert_int_equal(fig_score_parse(&one, "score + 1.0"), FIG_OK);
    assert_int_equal(fig_score_parse(&other, "score + 2.0"), FIG_OK);
    write(&one->code, &text);
    for (int n = 0; n < PLACES; n++) {
        const fig_score_inputs inputs = inputs_of(&random);
        const float value = fig_score_value_of(&other->code, &inputs);
        differs += run(&text, &one->code, &inputs) !=
                   fig_score_value_bits(fig_logit_of_score(value, FIG_SCORE_SOFTMAX));
    }
    assert_true(differs > PLACES / 4);
    fig_ptx_text_finish(&text);
    fig_score_destroy(one);
    fig_score_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_scores_give_the_interpreters_bits),
        cmocka_unit_test(scores_of_users_give_the_interpreters_bits),
        cmocka_unit_test(another_score_has_other_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

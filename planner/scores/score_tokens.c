/* score_tokens.c: reads the tokens of a score's text. */
#include "planner/scores/score_tokens.h"

#include <math.h>
#include <string.h>

#include "planner/scores/score_ops.h"
#include "planner/scores/score_value.h"

fig_status fig_score_tokens_refuse(const fig_score_reader *reader, size_t at, fig_status status) {
    return fig_fail(status, "%s: column %zu: %s", reader->what, at + 1, fig_message());
}

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Returns digits * 10^power. The functions of the standard library are not used, because the locale
 * of the process decides which decimal point they accept. */
static float decimal(long double digits, int64_t power) {
    if (power > 100) power = 100;
    if (power < -100) power = -100;
    return (float)(power < 0 ? digits / powl(10, -(long double)power)
                             : digits * powl(10, (long double)power));
}

static fig_status read_hex(fig_score_reader *p) {
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
        if (value > UINT32_MAX) return FIG_SCORE_REFUSE_AT(p, at, "a number has more than 32 bits");
    }
    if (p->next == first) return FIG_SCORE_REFUSE_AT(p, at, "0x is followed by no digit");
    p->token.type = FIG_I32;
    p->token.bits = (uint32_t)value;
    return FIG_OK;
}

/* Reads the power of ten behind the digits of a number, if there is one. */
static void read_power(fig_score_reader *p, int64_t *power) {
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

static fig_status read_number(fig_score_reader *p) {
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
        return FIG_SCORE_REFUSE_AT(p, p->next, "a number is followed by '%c'", text[p->next]);
    if (point == 0 && end == p->next) {
        if (taken > 19 || whole > UINT64_C(1) << 31)
            return FIG_SCORE_REFUSE_AT(p, at, "a number is beyond i32; 1e10 is an f32");
        p->token.type = FIG_I32;
        p->token.bits = (uint32_t)whole;
        return FIG_OK;
    }
    p->token.type = FIG_F32;
    p->token.bits = fig_score_value_bits(decimal(digits, power));
    if (isinf(fig_score_value_float(p->token.bits)))
        return FIG_SCORE_REFUSE_AT(p, at, "a number is beyond f32; inf is infinity");
    return FIG_OK;
}

static fig_status read_word(fig_score_reader *p) {
    size_t length = 0;
    const size_t at = p->next;
    while (fig_score_ops_is_letter(p->text[p->next]) || is_digit(p->text[p->next])) {
        if (length >= FIG_SCORE_NAME_LIMIT)
            return FIG_SCORE_REFUSE_AT(p, at, "a name has more than %d characters",
                                       FIG_SCORE_NAME_LIMIT);
        p->token.text[length++] = p->text[p->next++];
    }
    p->token.text[length] = 0;
    return FIG_OK;
}

static fig_status read_sign(fig_score_reader *p) {
    static const char *const signs[] = {"<<", ">>", "<=", ">=", "==", "!=", "//", "<", ">",
                                        "+",  "-",  "*",  "/",  "%",  "&",  "|",  "^", "(",
                                        ")",  "[",  "]",  ",",  ";",  "=",  ":"};
    const char *rest = p->text + p->next;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        const size_t length = strlen(signs[i]);
        if (strncmp(rest, signs[i], length) != 0) continue;
        memcpy(p->token.text, signs[i], length + 1);
        p->next += length;
        return FIG_OK;
    }
    if (*rest >= ' ' && *rest <= '~')
        return FIG_SCORE_REFUSE_AT(p, p->next, "'%c' has no meaning in a score", *rest);
    return FIG_SCORE_REFUSE_AT(p, p->next, "a character of code %d has no meaning in a score",
                               (unsigned char)*rest);
}

fig_status fig_score_tokens_next(fig_score_reader *p) {
    while (p->text[p->next] == ' ' || p->text[p->next] == '\n' || p->text[p->next] == '\t')
        p->next++;
    const char c = p->text[p->next];
    p->token = (fig_score_token){.at = p->next};
    if (c == 0) return FIG_OK;
    if (is_digit(c) || (c == '.' && is_digit(p->text[p->next + 1]))) {
        p->token.kind = FIG_SCORE_TOKEN_NUMBER;
        return read_number(p);
    }
    p->token.kind = fig_score_ops_is_letter(c) ? FIG_SCORE_TOKEN_WORD : FIG_SCORE_TOKEN_SIGN;
    return fig_score_ops_is_letter(c) ? read_word(p) : read_sign(p);
}

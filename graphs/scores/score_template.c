/* score_template.c: completes a template of attention for one score.
 *
 * Reads only what nvcc writes for the sources of the templates: one instruction a line, a function
 * that loads its params by name and returns once, at its end. Anything else is refused. A body
 * stands in braces of its own, so its registers and labels are its own too. Invariant: lines that
 * have nothing to do with the score are copied byte for byte, apart from the version. */
#include "graphs/scores/score_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "planner/status.h"

enum { TEXT_LIMIT = 1 << 26, OPERAND_LIMIT = 2 };

/* A part of a text. */
typedef struct span {
    const char *at;
    size_t count;
} span;

static const char entry_mark[] = ".visible .entry ", score_mark[] = "// fig_score ",
                  function_mark[] = ".func ", function_name[] = "fig_scored_functions_",
                  result[] = "func_retval0";

static fig_status refuse(const char *entry, const char *what) {
    return fig_fail(FIG_DRIVER, "score: the template of %s has %s", entry, what);
}

/* Returns the line that begins at `at`, without its end. */
static span line_at(const char *at) {
    const span line = {at, strcspn(at, "\n")};
    return line;
}

static const char *next_line(span line) {
    return line.at + line.count + (line.at[line.count] == '\n');
}

static const char *find_in(span where, const char *what) {
    const size_t count = strlen(what);
    for (size_t i = 0; i + count <= where.count; i++)
        if (memcmp(where.at + i, what, count) == 0) return where.at + i;
    return NULL;
}

/* Returns the end of the block in braces that begins at or after `at`, or NULL. Comments that nvcc
 * writes hold no brace; the strings of pragmas hold none either. */
static const char *end_of_block(const char *at) {
    int depth = 0;
    for (; *at != '\0'; at++) {
        depth += *at == '{';
        if (*at != '}') continue;
        if (--depth == 0) return at + 1;
    }
    return NULL;
}

/* ---- Functions */

/* Returns the function's text, from .func to the end of its body. If the template lacks the
 * function, `count` is 0. */
static span function_of(const char *ptx, const char *name, size_t name_count) {
    for (const char *at = strstr(ptx, function_mark); at != NULL;
         at = strstr(at + 1, function_mark)) {
        const span line = line_at(at);
        const char *found = find_in(line, function_name);
        if (found == NULL || strncmp(found, name, name_count) != 0 || found[name_count] != '(')
            continue;
        const char *end = end_of_block(at);
        if (end != NULL) return (span){at, (size_t)(end - at)};
    }
    return (span){NULL, 0};
}

/* A call in the form that score_ptx.c writes: call (out), name, (operand, operand); */
typedef struct call {
    span out, name, operands[OPERAND_LIMIT];
    int operand_count;
} call;

/* Returns the word that begins at *at, and moves *at behind it and the separators that follow. */
static span take_word(const char **at) {
    const span word = {*at, strcspn(*at, " ,();\n")};
    *at += word.count;
    *at += strspn(*at, " ,()");
    return word;
}

static call call_of(const char *line) {
    call c = {.operand_count = 0};
    const char *at = line + strlen("call (");
    c.out = take_word(&at);
    c.name = take_word(&at);
    while (*at != ';' && *at != '\0' && c.operand_count < OPERAND_LIMIT)
        c.operands[c.operand_count++] = take_word(&at);
    return c;
}

/* Returns the operand that a line of the body loads, or -1 if it loads none. */
static int loaded_by(const call *c, span line) {
    const char *param = find_in(line, "_param_");
    if (param == NULL || find_in(line, "ld.param") == NULL) return -1;
    const int number = param[strlen("_param_")] - '0';
    return number >= 0 && number < c->operand_count ? number : -1;
}

/* Returns the register of a load or a store of a param: the word before the comma, or before the
 * semicolon. */
static span register_of(span line) {
    const char *at = find_in(line, "%");
    if (at == NULL) return (span){line.at, 0};
    return (span){at, strcspn(at, ",;\n")};
}

/* Appends one line of a function's body; the call's registers take the place of its params. Returns
 * 0 if a body may not have such a line. */
static int put_body_line(const call *c, span line, fig_ptx_text *text) {
    const int operand = loaded_by(c, line);
    const span own = register_of(line);
    const int is_result = find_in(line, result) != NULL;
    if (find_in(line, "param") != NULL || is_result) {
        if ((operand < 0 && !is_result) || own.count == 0) return 0;
        const span to = is_result ? c->out : own, from = is_result ? own : c->operands[operand];
        fig_ptx_text_say(text, "mov.b32 %.*s, %.*s;\n", (int)to.count, to.at, (int)from.count,
                         from.at);
        return 1;
    }
    fig_ptx_text_put(text, line.at, line.count);
    fig_ptx_text_put(text, "\n", 1);
    return 1;
}

/* Returns 1 if the line is the return of a function, whatever stands before it. */
static int is_return(span line) {
    const char *at = find_in(line, "ret;");
    return at != NULL && (at == line.at || at[-1] == '\t' || at[-1] == ' ');
}

static fig_status put_body(const char *ptx, const char *entry, const call *c, fig_ptx_text *text) {
    const span function = function_of(ptx, c->name.at, c->name.count);
    if (function.count == 0) return refuse(entry, "no function of a score");
    const char *at = strchr(function.at, '{'), *end = function.at + function.count - 1;
    int returns = 0;
    fig_ptx_text_put(text, "{\n", 2);
    for (span line = line_at(at + 1); line.at < end; line = line_at(next_line(line))) {
        if (line.at + line.count > end) line.count = (size_t)(end - line.at);
        if (returns > 0 && line.count > 0) return refuse(entry, "a function that returns early");
        if (is_return(line)) {
            if (find_in(line, "@") != NULL) return refuse(entry, "a function that returns early");
            returns++;
        } else if (!put_body_line(c, line, text)) {
            return refuse(entry, "a function with other params than the library knows");
        }
    }
    if (returns != 1) return refuse(entry, "a function without a return");
    fig_ptx_text_put(text, "}\n", 2);
    return FIG_OK;
}

/* Copies the instructions of a score, with bodies in the place of calls. */
static fig_status put_calls(const char *ptx, const char *entry, const fig_ptx_text *score,
                            fig_ptx_text *text) {
    for (span line = line_at(score->bytes); *line.at != '\0'; line = line_at(next_line(line))) {
        if (strncmp(line.at, "call ", strlen("call ")) == 0) {
            const call c = call_of(line.at);
            FIG_TRY(put_body(ptx, entry, &c, text));
            continue;
        }
        fig_ptx_text_put(text, line.at, line.count);
        fig_ptx_text_put(text, "\n", 1);
    }
    return FIG_OK;
}

/* ---- The score */

/* Reads the names behind a mark. Returns 0 if they are not those of a place. */
static int read_place(const char *mark, const char *entry, fig_score_ptx_place *place) {
    const char *at = mark + strlen(score_mark);
    *place = (fig_score_ptx_place){.arrays = offsetof(fig_scored_attention_params, arrays),
                                   .counts = offsetof(fig_scored_attention_params, score) +
                                             offsetof(fig_score_code, arrays)};
    const int count = snprintf(place->params, sizeof place->params, "%s_param_0", entry);
    int is_read = count > 0 && (size_t)count < sizeof place->params;
    for (uint32_t i = 0; i < FIG_SCORE_TERM_COUNT && is_read; i++) {
        char *to = i == 0 ? place->out : place->terms[i];
        const span word = take_word(&at);
        is_read = word.count > 0 && word.count < FIG_SCORE_PTX_NAME_LIMIT && word.at[0] == '%';
        if (is_read) memcpy(to, word.at, word.count);
    }
    return is_read;
}

static fig_status put_score(const char *ptx, const char *entry, const char *mark,
                            const fig_score_code *code, fig_ptx_text *text) {
    fig_score_ptx_place place;
    fig_ptx_text score = {0};
    if (!read_place(mark, entry, &place)) return refuse(entry, "a mark without registers");
    fig_score_ptx_write(code, &place, &score);
    fig_status status = score.is_short ? fig_fail(FIG_NOMEM, "score: PTX") : FIG_OK;
    if (status == FIG_OK) status = put_calls(ptx, entry, &score, text);
    fig_ptx_text_finish(&score);
    return status;
}

/* Copies a part of the template. *marks counts its marks. */
static fig_status put_part(const char *ptx, const char *entry, span part,
                           const fig_score_code *code, fig_ptx_text *text, int *marks) {
    const char *end = part.at + part.count;
    for (span line = line_at(part.at); line.at < end; line = line_at(next_line(line))) {
        if (line.at + line.count > end) line.count = (size_t)(end - line.at);
        const char *mark = find_in(line, score_mark);
        if (mark != NULL) {
            FIG_TRY(put_score(ptx, entry, mark, code, text));
            ++*marks;
            continue;
        }
        fig_ptx_text_put(text, line.at, line.count);
        fig_ptx_text_put(text, "\n", 1);
    }
    return FIG_OK;
}

/* ---- The parts of a template */

/* Appends what comes before the first entry, without the functions of scores. */
static fig_status put_head(const char *ptx, const char *entry, fig_ptx_text *text) {
    const char *end = strstr(ptx, entry_mark);
    for (span line = line_at(ptx); line.at < end; line = line_at(next_line(line))) {
        const int is_function = find_in(line, function_mark) != NULL;
        if (is_function && find_in(line, function_name) != NULL) {
            const char *behind = end_of_block(line.at);
            if (behind == NULL || behind > end) return refuse(entry, "a function without an end");
            line = line_at(behind);
            continue;
        }
        if (strncmp(line.at, ".version ", strlen(".version ")) == 0) {
            fig_ptx_text_say(text, ".version " FIG_SCORE_TEMPLATE_VERSION "\n");
            continue;
        }
        fig_ptx_text_put(text, line.at, line.count);
        fig_ptx_text_put(text, "\n", 1);
    }
    return FIG_OK;
}

static const char *find_entry(const char *ptx, const char *entry) {
    const size_t count = strlen(entry), before = strlen(entry_mark);
    const char *at = strstr(ptx, entry_mark);
    while (at != NULL && (strncmp(at + before, entry, count) != 0 || at[before + count] != '('))
        at = strstr(at + 1, entry_mark);
    return at;
}

fig_status fig_score_template_fill(const char *ptx, const char *entry, const fig_score_code *code,
                                   fig_ptx_text *text) {
    assert(code->mask_node_count == 0);
    const char *at = find_entry(ptx, entry);
    const char *body = at == NULL ? NULL : strchr(at, '{');
    const char *end = body == NULL ? NULL : end_of_block(body);
    int marks = 0;
    if (end == NULL) return refuse(entry, "no such entry");
    FIG_TRY(put_head(ptx, entry, text));
    FIG_TRY(put_part(ptx, entry, (span){at, (size_t)(end - at)}, code, text, &marks));
    if (marks == 0) return refuse(entry, "no mark of a score");
    return text->is_short ? fig_fail(FIG_NOMEM, "score: PTX of %s", entry) : FIG_OK;
}

fig_status fig_score_template_complete(const fig_image *image, const char *entry,
                                       const fig_score_code *code, fig_ptx_text *text) {
    const unsigned long long count = ZSTD_getFrameContentSize(image->bytes, image->count);
    if (count == 0 || count > TEXT_LIMIT) return refuse(entry, "no size");
    char *ptx = malloc((size_t)count + 1);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (ptx == NULL || context == NULL) {
        free(ptx);
        ZSTD_freeDCtx(context);
        return fig_fail(FIG_NOMEM, "score: %llu bytes", count + 1);
    }
    const size_t done =
        ZSTD_decompressDCtx(context, ptx, (size_t)count, image->bytes, image->count);
    ZSTD_freeDCtx(context);
    ptx[count] = '\0';
    const fig_status status = done == (size_t)count
                                  ? fig_score_template_fill(ptx, entry, code, text)
                                  : refuse(entry, "damaged bytes");
    free(ptx);
    return status;
}

/* cmd_diff.c: figraph diff, which prints the differences of two .fig files.
 *
 * inspect/diff.c finds the differences and folds repeated ones; this file prints them. Invariant:
 * parts that only one file has come before fields that differ. */
#include <stdio.h>
#include <string.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/inspect/diff.h"
#include "tools/figraph/inspect/failure.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

enum { FIELD_COLUMN = 4, VALUE_COLUMN = 28, TEXT_BYTES = 1024 };

/* The state of the output. */
typedef struct told {
    const fig_arguments *arguments;
    fig_emit *emit;    /* NULL: print text */
    int32_t count;     /* differences printed so far */
    int in_fields;     /* 1: all differences of structure were printed */
    char subject[256]; /* the part whose fields are being printed */
} told;

/* ---- Text */

static void print_title(const told *to) {
    fig_report_name(to->arguments->operand);
    printf(" and ");
    fig_report_name(to->arguments->second);
    printf(" differ\n");
}

/* Prints a difference; if several were folded into it, their number and the first place follow. */
static void print_rest(const fig_difference *of, int at, int indent, const char *text) {
    char sentence[TEXT_BYTES];
    if (of->times == 1) snprintf(sentence, sizeof sentence, "%s", text);
    if (of->times > 1)
        snprintf(sentence, sizeof sentence, "%s (%d times; the first: %s)", text, of->times,
                 of->where);
    fig_columns_words(at, indent, sentence);
}

static void print_subject(const fig_difference *of) {
    const int at = printf("  %c ", of->a != NULL ? '-' : '+');
    print_rest(of, at, at, of->times > 1 ? of->subject : of->where);
}

/* A difference in a single place is printed under that place's own name. */
static void print_head(told *to, const fig_difference *of) {
    const char *subject = of->times > 1 ? of->subject : of->where;
    if (strcmp(to->subject, subject) == 0) return;
    printf("  %s\n", subject);
    snprintf(to->subject, sizeof to->subject, "%s", subject);
}

/* Values that are too long for the field's line are printed below it. */
static void print_field(told *to, const fig_difference *of) {
    const char *a = of->a != NULL ? of->a : "absent", *b = of->b != NULL ? of->b : "absent";
    const int room = fig_columns() - VALUE_COLUMN;
    char text[TEXT_BYTES];
    print_head(to, of);
    snprintf(text, sizeof text, "%.400s -> %.400s", a, b);
    int at = printf("%*s%-*s ", FIELD_COLUMN, "", VALUE_COLUMN - FIELD_COLUMN - 1, of->field);
    int indent = VALUE_COLUMN;
    if ((int)strlen(a) > room || (int)strlen(b) > room) {
        indent = FIELD_COLUMN + 2;
        at = printf("\n%*s", indent, "") - 1;
    }
    print_rest(of, at, indent, text);
}

static void print_difference(told *to, const fig_difference *of) {
    const int begins = to->count == 0 || (of->field != NULL && !to->in_fields);
    if (to->count == 0) print_title(to);
    if (begins && of->field == NULL)
        printf("\nstructure: - only in the first, + only in the second\n");
    if (begins && of->field != NULL) printf("\nfields of both\n");
    if (of->field == NULL) print_subject(of);
    if (of->field != NULL) print_field(to, of);
}

/* ---- JSON */

static void emit_or_null(fig_emit *emit, const char *key, const char *value) {
    if (value != NULL) fig_emit_text(emit, key, value);
}

static void emit_difference(told *to, const fig_difference *of) {
    fig_emit *emit = to->emit;
    if (of->field != NULL && !to->in_fields) {
        fig_emit_close(emit);
        fig_emit_array(emit, "fields");
    }
    fig_emit_object(emit, NULL);
    fig_emit_text(emit, "subject", of->subject);
    fig_emit_text(emit, "first", of->where);
    fig_emit_integer(emit, "times", of->times);
    if (of->field == NULL) {
        fig_emit_text(emit, "only_in", of->a != NULL ? "a" : "b");
    } else {
        fig_emit_text(emit, "field", of->field);
        emit_or_null(emit, "a", of->a);
        emit_or_null(emit, "b", of->b);
    }
    fig_emit_close(emit);
}

/* ---- Both */

static void take(void *user, const fig_difference *of) {
    told *to = user;
    if (to->emit != NULL) {
        emit_difference(to, of);
    } else {
        print_difference(to, of);
    }
    to->in_fields |= of->field != NULL;
    to->count++;
}

static fig_status tell(told *to, const fig_graphs *a, const fig_graphs *b) {
    fig_emit emit = {0};
    if (fig_arguments_text(to->arguments, "--json") == NULL) return fig_diff_graphs(a, b, take, to);
    to->emit = &emit;
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "a", to->arguments->operand);
    fig_emit_text(&emit, "b", to->arguments->second);
    fig_emit_array(&emit, "structure");
    const fig_status status = fig_diff_graphs(a, b, take, to);
    fig_emit_close(&emit);
    if (!to->in_fields) {
        fig_emit_array(&emit, "fields");
        fig_emit_close(&emit);
    }
    fig_emit_integer(&emit, "count", to->count);
    fig_emit_close(&emit);
    return status;
}

static void print_same(const fig_arguments *arguments) {
    fig_report_name(arguments->operand);
    printf(" and ");
    fig_report_name(arguments->second);
    printf(" hold the same\n");
}

static int compare(const fig_arguments *arguments, const fig_graphs *a, const fig_graphs *b) {
    told to = {.arguments = arguments};
    if (tell(&to, a, b) != FIG_OK) return fig_report_refuse("diff: %s", fig_failure_message());
    if (to.count == 0 && to.emit == NULL) print_same(arguments);
    return to.count > 0 ? FIG_EXIT_FAILED : FIG_EXIT_FINE;
}

static int run(const fig_arguments *arguments) {
    fig_graphs *a, *b = NULL;
    int code = FIG_EXIT_FINE;
    if (fig_graphs_load(&a, arguments->operand) != FIG_OK)
        return fig_report_status(arguments->operand);
    if (fig_graphs_load(&b, arguments->second) != FIG_OK)
        code = fig_report_status(arguments->second);
    if (code == FIG_EXIT_FINE) code = compare(arguments, a, b);
    fig_graphs_destroy(a);
    fig_graphs_destroy(b);
    return code;
}

const fig_command fig_cmd_diff = {
    .name = "diff",
    .summary = "print the differences of two .fig files",
    .operand = "FILE",
    .second = "FILE",
    .notes = "First come the parts that only one file has, then the fields that differ, down to "
             "each parameter of a launch. A difference that repeats in several layers or buckets "
             "is printed once. Two buckets are matched if they have the same limits and the same "
             "variant.",
    .failure = "the files differ",
    .example = "figraph diff old.fig new.fig",
    .run = run,
    .options = {{"--json", NULL, "print an object"}},
};

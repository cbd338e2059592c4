/* arguments.c: read a command line by the command's own table.
 *
 * Options are "--name value" or "--name=value", each at most once, in any order around the operand;
 * behind "--" everything is an operand. Invariant: a word is understood or refused by name. */
#include "tools/figraph/arguments.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/report.h"
#include "tools/figraph/text.h"

enum { HELP_COLUMN = 20 };

static int option_count(const fig_command *command) {
    int count = 0;
    while (count < FIG_ARGUMENTS_OPTION_LIMIT && command->options[count].name != NULL)
        count++;
    return count;
}

/* The option that a word names, its "=value" left out; -1: none. */
static int option_named(const fig_command *command, const char *word, size_t length) {
    for (int i = 0; i < option_count(command); i++) {
        const char *name = command->options[i].name;
        if (strlen(name) == length && memcmp(name, word, length) == 0) return i;
    }
    return -1;
}

static int take_operand(fig_arguments *arguments, const char *word) {
    const fig_command *command = arguments->command;
    if (command->operand == NULL) {
        return fig_report_refuse("%s: %s: no operand is taken", command->name, word);
    }
    if (arguments->operand != NULL) {
        return fig_report_refuse("%s: %s: one %s is taken, and %s was given before it",
                                 command->name, word, command->operand, arguments->operand);
    }
    arguments->operand = word;
    return FIG_EXIT_FINE;
}

/* Takes words[*at], an option, and moves *at to the last word used. */
static int take_option(fig_arguments *arguments, int count, char *const *words, int *at) {
    const fig_command *command = arguments->command;
    const char *word = words[*at];
    size_t length = strcspn(word, "=");
    int index = option_named(command, word, length);
    if (index < 0) {
        return fig_report_refuse("%s: unknown option %.*s; figraph %s --help lists them",
                                 command->name, (int)length, word, command->name);
    }
    const fig_option *option = &command->options[index];
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (arguments->values[index] != NULL) {
        return fig_report_refuse("%s: %s was given twice", command->name, option->name);
    }
    if (option->value == NULL) {
        if (value != NULL) {
            return fig_report_refuse("%s: %s: takes no value, and %s was given", command->name,
                                     option->name, value);
        }
        arguments->values[index] = "";
        return FIG_EXIT_FINE;
    }
    if (value == NULL && *at + 1 < count && strncmp(words[*at + 1], "--", 2) != 0) {
        value = words[++*at];
    }
    if (value == NULL || *value == '\0') {
        return fig_report_refuse("%s: %s: its value, %s, is missing", command->name, option->name,
                                 option->value);
    }
    arguments->values[index] = value;
    return FIG_EXIT_FINE;
}

int fig_arguments_parse(fig_arguments *arguments, const fig_command *command, int count,
                        char *const *words) {
    int only_operands = 0;
    *arguments = (fig_arguments){.command = command};
    for (int i = 0; i < count; i++) {
        const char *word = words[i];
        int code;
        if (only_operands || word[0] != '-' || word[1] == '\0') {
            code = take_operand(arguments, word);
        } else if (strcmp(word, "--") == 0) {
            only_operands = 1;
            continue;
        } else if (strcmp(word, "--help") == 0) {
            arguments->help = 1;
            return FIG_EXIT_FINE;
        } else {
            code = take_option(arguments, count, words, &i);
        }
        if (code != FIG_EXIT_FINE) return code;
    }
    if (command->operand != NULL && command->operand[0] != '[' && arguments->operand == NULL) {
        return fig_report_refuse("%s: %s is missing", command->name, command->operand);
    }
    return FIG_EXIT_FINE;
}

void fig_arguments_print_help(const fig_command *command) {
    printf("figraph %s: %s\n\nusage: figraph %s%s%s [options]\n\n", command->name, command->summary,
           command->name, command->operand != NULL ? " " : "",
           command->operand != NULL ? command->operand : "");
    for (int i = 0; i < option_count(command); i++) {
        const fig_option *option = &command->options[i];
        int width = printf("  %s%s%s", option->name, option->value != NULL ? " " : "",
                           option->value != NULL ? option->value : "");
        printf("%*s%s\n", width < HELP_COLUMN ? HELP_COLUMN - width : 2, "", option->help);
    }
    printf("  %-*s%s\n", HELP_COLUMN - 2, "--help", "this text");
    if (command->notes != NULL) printf("\n%s\n", command->notes);
    printf("\nexample:\n  %s\n", command->example);
}

const char *fig_arguments_text(const fig_arguments *arguments, const char *name) {
    int index = option_named(arguments->command, name, strlen(name));
    assert(index >= 0);
    return arguments->values[index];
}

int fig_arguments_integer(const fig_arguments *arguments, const fig_integer *integer,
                          int64_t *out) {
    const char *command = arguments->command->name;
    const char *text = fig_arguments_text(arguments, integer->name);
    char *end;
    *out = integer->fallback;
    if (text == NULL) return FIG_EXIT_FINE;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || !fig_text_is_decimal(text)) {
        return fig_report_refuse("%s: %s: \"%s\" is not a whole number", command, integer->name,
                                 text);
    }
    if (errno == ERANGE || value < integer->least || value > integer->most) {
        return fig_report_refuse("%s: %s: %s is outside %" PRId64 "..%" PRId64, command,
                                 integer->name, text, integer->least, integer->most);
    }
    *out = value;
    return FIG_EXIT_FINE;
}

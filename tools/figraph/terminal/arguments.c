/* arguments.c: reads a command line by the command's option table.
 *
 * Options are "--name value" or "--name=value"; one-letter options are "-o value" or "-ovalue".
 * Each may be given once, before or after the operand. After "--" every word is an operand.
 * Invariant: each word is understood, or refused by name. */
#include "tools/figraph/terminal/arguments.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/nearest.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/text.h"

enum { HELP_COLUMN = 21, EXIT_COLUMN = 5, PATH_LIMIT = 4096 };

static int option_count(const fig_command *command) {
    int count = 0;
    while (count < FIG_ARGUMENTS_OPTION_LIMIT && command->options[count].name != NULL)
        count++;
    return count;
}

/* Returns the index of the option that the word names, ignoring "=value"; -1: none. */
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
        return fig_report_refuse("%s: %s: it takes only options; figraph %s --help lists them",
                                 command->name, word, command->name);
    }
    if (*word == '\0')
        return fig_report_refuse("%s: an empty word names no file", command->name);
    if (arguments->operand != NULL && command->second != NULL && arguments->second == NULL) {
        arguments->second = word;
        return FIG_EXIT_FINE;
    }
    if (arguments->second != NULL) {
        return fig_report_refuse("%s: %s: %s and %s are taken, and both were given before it",
                                 command->name, word, command->operand, command->second);
    }
    if (arguments->operand != NULL) {
        return fig_report_refuse("%s: %s: one %s is taken, and %s was given before it",
                                 command->name, word, command->operand, arguments->operand);
    }
    arguments->operand = word;
    return FIG_EXIT_FINE;
}

/* Returns the length of the name in "--name=value" or "-ovalue". */
static size_t name_bytes(const char *word) {
    return word[1] == '-' ? strcspn(word, "=") : 2;
}

/* Returns the value in the same word as the option's name; NULL: there is none. */
static const char *attached_value(const char *word) {
    const char *rest = word + name_bytes(word);
    if (*rest == '=') return rest + 1;
    return *rest != '\0' ? rest : NULL;
}

static const char *option_name(const void *of, int32_t index) {
    const fig_command *command = of;
    return index < option_count(command) ? command->options[index].name : NULL;
}

static int refuse_unknown(const fig_command *command, const char *word) {
    char name[FIG_NEAREST_BYTES], asked[FIG_NEAREST_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)name_bytes(word), word);
    fig_nearest_ask(asked, name, option_name, command);
    return fig_report_refuse("%s: unknown option %s%s; figraph %s --help lists them", command->name,
                             name, asked, command->name);
}

/* Refuses "-". In many programs "-" means stdin or stdout, but figraph reads and writes files only
 * by name. A file with that name can be given as "./-". */
static int refuse_dash(const fig_command *command, const fig_option *option) {
    return fig_report_refuse(
        "%s: %s: \"-\" names no file, since stdin and stdout are not used; ./- names one",
        command->name, option->name);
}

/* Returns 1 if the folder of a file takes new files; otherwise sets errno. */
static int is_folder_open(const char *path) {
    const char *slash = strrchr(path, '/');
    const int bytes = slash == NULL || slash == path ? 1 : (int)(slash - path);
    char folder[PATH_LIMIT];
    errno = ENAMETOOLONG;
    if (bytes >= PATH_LIMIT) return 0;
    snprintf(folder, sizeof folder, "%.*s", bytes, slash == NULL ? "." : path);
    return access(folder, W_OK | X_OK) == 0;
}

int fig_arguments_check_written(const fig_command *command, const fig_option *option,
                                const char *path) {
    struct stat status;
    int is_open = 0;
    if (stat(path, &status) != 0) {
        is_open = errno == ENOENT && is_folder_open(path);
    } else if (S_ISDIR(status.st_mode)) {
        errno = EISDIR;
    } else {
        is_open = access(path, W_OK) == 0 && (!option->is_replaced || is_folder_open(path));
    }
    if (is_open) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: %s: %s: %s", command->name, option->name, path, strerror(errno));
}

/* Takes words[*at], an option, and moves *at to the last word used. */
static int take_option(fig_arguments *arguments, int count, char *const *words, int *at) {
    const fig_command *command = arguments->command;
    const char *word = words[*at], *value = attached_value(word);
    const int index = option_named(command, word, name_bytes(word));
    if (index < 0) return refuse_unknown(command, word);
    const fig_option *option = &command->options[index];
    if (arguments->values[index] != NULL && !option->repeats) {
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
        return fig_report_refuse("%s: %s needs a value: %s %s", command->name, option->name,
                                 option->name, option->value);
    }
    if (strcmp(option->value, "FILE") == 0 && strcmp(value, "-") == 0)
        return refuse_dash(command, option);
    arguments->values[index] = value;
    if (!option->is_written && !option->is_replaced) return FIG_EXIT_FINE;
    return fig_arguments_check_written(command, option, value);
}

/* Refuses a command line that lacks a required operand or option. */
static int check_needs(const fig_arguments *arguments) {
    const fig_command *command = arguments->command;
    if (command->operand != NULL && command->operand[0] != '[' && arguments->operand == NULL) {
        return fig_report_refuse("%s: %s is required; see figraph %s --help", command->name,
                                 command->operand, command->name);
    }
    if (command->second != NULL && arguments->second == NULL) {
        return fig_report_refuse("%s: %s is required behind %s; see figraph %s --help",
                                 command->name, command->second, arguments->operand, command->name);
    }
    for (int i = 0; i < option_count(command); i++) {
        const fig_option *option = &command->options[i];
        if (option->need != FIG_OPTION_REQUIRED || arguments->values[i] != NULL) continue;
        return fig_report_refuse("%s: %s %s is required; see figraph %s --help", command->name,
                                 option->name, option->value, command->name);
    }
    return FIG_EXIT_FINE;
}

int fig_arguments_parse(fig_arguments *arguments, const fig_command *command, int count,
                        char *const *words) {
    int only_operands = 0;
    *arguments = (fig_arguments){.command = command, .count = count, .words = words};
    for (int i = 0; i < count; i++) {
        const char *word = words[i];
        int code;
        if (only_operands || word[0] != '-' || word[1] == '\0') {
            code = take_operand(arguments, word);
        } else if (strcmp(word, "--") == 0) {
            only_operands = 1;
            continue;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            arguments->help = 1;
            return FIG_EXIT_FINE;
        } else {
            code = take_option(arguments, count, words, &i);
        }
        if (code != FIG_EXIT_FINE) return code;
    }
    return check_needs(arguments);
}

/* ---- Help */

/* "FILE", or "(FILE | --preset NAME)" if an option can replace the operand. */
static int add_choice(const fig_command *command, char *text, size_t bytes) {
    const char *operand = command->operand, *before = " (";
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < option_count(command); i++) {
        const fig_option *option = &command->options[i];
        if (option->need != FIG_OPTION_ONE_OF) continue;
        if (used == 0 && operand != NULL && operand[0] == '[') {
            used += (size_t)snprintf(text, bytes, " (%.*s", (int)strlen(operand) - 2, operand + 1);
            before = " | ";
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", before, option->name,
                                 option->value);
        before = " | ";
    }
    if (used > 0) snprintf(text + used, bytes - used, ")");
    return used > 0;
}

static void print_usage(const fig_command *command) {
    char usage[256], choice[128];
    const int chosen = add_choice(command, choice, sizeof choice);
    const int joined = chosen && command->operand != NULL && command->operand[0] == '[';
    size_t used = (size_t)snprintf(usage, sizeof usage, "usage: figraph %s", command->name);
    if (command->operand != NULL && !joined)
        used += (size_t)snprintf(usage + used, sizeof usage - used, " %s", command->operand);
    if (command->second != NULL)
        used += (size_t)snprintf(usage + used, sizeof usage - used, " %s", command->second);
    used += (size_t)snprintf(usage + used, sizeof usage - used, "%s", choice);
    for (int i = 0; i < option_count(command); i++) {
        const fig_option *option = &command->options[i];
        if (option->need != FIG_OPTION_REQUIRED) continue;
        used += (size_t)snprintf(usage + used, sizeof usage - used, " %s %s", option->name,
                                 option->value);
    }
    snprintf(usage + used, sizeof usage - used, " [options]");
    fig_columns_words(0, (int)strlen("usage: "), usage);
}

static void print_row(const char *left, const char *right) {
    int column = printf("  %s", left);
    if (column > HELP_COLUMN - 2) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", HELP_COLUMN - column, "");
    fig_columns_words(HELP_COLUMN, HELP_COLUMN, right);
}

static void print_options(const fig_command *command) {
    static const char *const needs[] = {[FIG_OPTION_FREE] = "",
                                        [FIG_OPTION_REQUIRED] = " (required)",
                                        [FIG_OPTION_ONE_OF] = " (one of these is required)"};
    for (int i = 0; i < option_count(command); i++) {
        const fig_option *option = &command->options[i];
        char left[64], right[256];
        snprintf(left, sizeof left, "%s%s%s", option->name, option->value != NULL ? " " : "",
                 option->value != NULL ? option->value : "");
        snprintf(right, sizeof right, "%s%s", option->help, needs[option->need]);
        print_row(left, right);
    }
    print_row("-h, --help", "this text");
}

void fig_arguments_print_end(const fig_command *command) {
    printf("\nexit code:\n");
    printf("  0  fine\n");
    if (command->failure != NULL) fig_columns_words(printf("  1  "), EXIT_COLUMN, command->failure);
    printf("  2  bad usage, bad input, or an error of a device or file\n");
    printf("\nexample:\n  %s\n", command->example);
}

void fig_arguments_print_help(const fig_command *command) {
    fig_columns_words(printf("figraph %s: ", command->name), 0, command->summary);
    putchar('\n');
    print_usage(command);
    putchar('\n');
    print_options(command);
    if (command->notes != NULL) {
        putchar('\n');
        fig_columns_paragraphs(command->notes);
    }
    fig_arguments_print_end(command);
}

const char *fig_arguments_text(const fig_arguments *arguments, const char *name) {
    int index = option_named(arguments->command, name, strlen(name));
    assert(index >= 0);
    return arguments->values[index];
}

/* A value never begins with "--", so a word with "--" is never the value of another option. */
const char *fig_arguments_next(const fig_arguments *arguments, const char *name, int *at) {
    assert(strncmp(name, "--", 2) == 0);
    while (*at < arguments->count && strcmp(arguments->words[*at], "--") != 0) {
        const char *word = arguments->words[(*at)++];
        if (strncmp(word, "--", 2) != 0 || name_bytes(word) != strlen(name)) continue;
        if (strncmp(word, name, strlen(name)) != 0) continue;
        const char *value = attached_value(word);
        return value != NULL ? value : arguments->words[(*at)++];
    }
    return NULL;
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

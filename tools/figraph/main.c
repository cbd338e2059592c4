/* main.c: figraph, the command line of libfigraph.
 *
 * Finds the command, runs it and closes stdout. The commands do everything else, and they include
 * only the installed headers. Invariant: exit 0 means that everything asked for was done and
 * written. */
#include <stdio.h>
#include <string.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/nearest.h"
#include "tools/figraph/terminal/report.h"

static const fig_command *const commands[] = {
    &fig_cmd_plan,   &fig_cmd_capture, &fig_cmd_inspect, &fig_cmd_diff, &fig_cmd_fit,
    &fig_cmd_verify, &fig_cmd_replay,  &fig_cmd_serve,   &fig_cmd_tune, &fig_cmd_bench,
    &fig_cmd_memory, &fig_cmd_presets, &fig_cmd_doctor};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands, NAME_COLUMN = 13 };

static int print_help(void) {
    printf("figraph: plan, capture, inspect and replay the decode step of an LLM\n\n"
           "usage: figraph COMMAND [options]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fig_columns_words(printf("  %-11s", commands[i]->name), NAME_COLUMN, commands[i]->summary);
    printf("\n  figraph help COMMAND    prints the options of a command\n"
           "  figraph --version       prints the version\n\n"
           "exit code:\n"
           "  0  fine\n"
           "  1  a check failed; each command's help names its checks\n"
           "  2  bad usage, bad input, or an error of a device or file\n\n"
           "example:\n"
           "  figraph capture --preset tutorial -o tutorial.fig\n"
           "  figraph replay tutorial.fig --steps 64 --check\n");
    return FIG_EXIT_FINE;
}

static int print_version(void) {
    int32_t version = fig_version();
    printf("figraph %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return FIG_EXIT_FINE;
}

static int run_command(const fig_command *command, int count, char **words) {
    fig_arguments arguments;
    const int code = fig_arguments_parse(&arguments, command, count, words);
    if (code != FIG_EXIT_FINE) return code;
    if (!arguments.help) return command->run(&arguments);
    fig_arguments_print_help(command);
    return FIG_EXIT_FINE;
}

static const fig_command *find(const char *name) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i]->name) == 0) return commands[i];
    return NULL;
}

/* Returns the name of a part without the command's name. */
static const char *part_word(const fig_command *command, const fig_command *part) {
    return part->name + strlen(command->name) + 1;
}

static int list_parts(const fig_command *command) {
    fig_columns_words(printf("figraph %s: ", command->name), 0, command->summary);
    printf("\nusage: figraph %s PART [options]\n\n", command->name);
    for (int i = 0; command->parts[i] != NULL; i++)
        fig_columns_words(printf("  %-11s", part_word(command, command->parts[i])), NAME_COLUMN,
                          command->parts[i]->summary);
    printf("\n  figraph help %s PART prints the options of a part\n", command->name);
    fig_arguments_print_end(command);
    return FIG_EXIT_FINE;
}

static const char *command_name(const void *of, int32_t index) {
    (void)of;
    return index < COMMAND_COUNT ? commands[index]->name : NULL;
}

static const char *option_name(const void *of, int32_t index) {
    static const char *const names[] = {"--help", "--version"};
    (void)of;
    return index < 2 ? names[index] : NULL;
}

static int refuse_unknown(const char *word) {
    const int is_option = word[0] == '-';
    char asked[FIG_NEAREST_BYTES];
    fig_nearest_ask(asked, word, is_option ? option_name : command_name, NULL);
    return fig_report_refuse("unknown %s %s%s; figraph --help lists all commands",
                             is_option ? "option" : "command", word, asked);
}

static int is_any(const char *word, const char *a, const char *b) {
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

static const fig_command *find_part(const fig_command *command, const char *word) {
    for (int i = 0; command->parts[i] != NULL; i++)
        if (strcmp(word, part_word(command, command->parts[i])) == 0) return command->parts[i];
    return NULL;
}

/* If the user gives a file and no part, the part that takes a file runs. */
static const fig_command *find_taker(const fig_command *command, const char *word) {
    if (strpbrk(word, "./") == NULL || word[0] == '-') return NULL;
    for (int i = 0; command->parts[i] != NULL; i++)
        if (command->parts[i]->operand != NULL) return command->parts[i];
    return NULL;
}

static const char *part_name(const void *of, int32_t index) {
    const fig_command *command = of;
    const fig_command *part = command->parts[index];
    return part != NULL ? part_word(command, part) : NULL;
}

static int refuse_part(const fig_command *command, const char *word) {
    char asked[FIG_NEAREST_BYTES];
    fig_nearest_ask(asked, word, part_name, command);
    return fig_report_refuse("%s: unknown part %s%s; figraph %s --help lists them", command->name,
                             word, asked, command->name);
}

static int run_part(const fig_command *command, int count, char **words) {
    if (count == 0)
        return fig_report_refuse("%s: a part is missing; figraph %s --help lists them",
                                 command->name, command->name);
    if (is_any(words[0], "--help", "-h")) return list_parts(command);
    const fig_command *part = find_part(command, words[0]), *taker = find_taker(command, words[0]);
    if (part == NULL && taker != NULL) return run_command(taker, count, words);
    if (part == NULL) return refuse_part(command, words[0]);
    return run_command(part, count - 1, words + 1);
}

/* figraph help [COMMAND [PART]]. */
static int help(int count, char **words) {
    if (count == 0 || is_any(words[0], "help", "--help")) return print_help();
    const fig_command *command = find(words[0]);
    if (command == NULL) return refuse_unknown(words[0]);
    if (command->parts != NULL && count == 1) return list_parts(command);
    if (command->parts != NULL) {
        const fig_command *part = find_part(command, words[1]);
        if (part == NULL) return refuse_part(command, words[1]);
        command = part;
        count--;
        words++;
    }
    if (count > 1) return fig_report_refuse("help: %s: it takes one command", words[1]);
    fig_arguments_print_help(command);
    return FIG_EXIT_FINE;
}

static int run(int count, char **words) {
    if (count < 2) return fig_report_refuse("a command is missing; figraph --help lists them");
    if (is_any(words[1], "--help", "-h")) return print_help();
    if (strcmp(words[1], "help") == 0) return help(count - 2, words + 2);
    if (strcmp(words[1], "--version") == 0 && count > 2)
        return fig_report_refuse("%s: nothing may follow --version", words[2]);
    if (strcmp(words[1], "--version") == 0) return print_version();
    const fig_command *command = find(words[1]);
    if (command == NULL) return refuse_unknown(words[1]);
    return command->parts != NULL ? run_part(command, count - 2, words + 2)
                                  : run_command(command, count - 2, words + 2);
}

int main(int count, char **words) {
    return fig_report_close(run(count, words));
}

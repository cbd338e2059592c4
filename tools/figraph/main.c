/* main.c: figraph, the command line of libfigraph.
 *
 * Finds the command and closes stdout; leaves all else to the commands, which see <figraph.h>
 * alone. Invariant: exit 0 means that everything asked for was done and written. */
#include <stdio.h>
#include <string.h>

#include <figraph.h>

#include "tools/figraph/commands.h"
#include "tools/figraph/report.h"

static const fig_command *const commands[] = {
    &fig_cmd_plan,  &fig_cmd_capture, &fig_cmd_inspect, &fig_cmd_verify,  &fig_cmd_replay,
    &fig_cmd_serve, &fig_cmd_bench,   &fig_cmd_memory,  &fig_cmd_presets, &fig_cmd_doctor};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static int print_help(void) {
    printf("figraph: plan, capture, inspect and replay the decode step of an LLM\n\n"
           "usage: figraph <command> [options]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        printf("  %-10s%s\n", commands[i]->name, commands[i]->summary);
    printf("\n  figraph <command> --help says more; figraph --version tells the version.\n\n"
           "exit: 0 fine, 1 a check failed, 2 bad usage or bad input\n\n"
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

/* The word of a part: what stands behind its command's name. */
static const char *part_word(const fig_command *command, const fig_command *part) {
    return part->name + strlen(command->name) + 1;
}

static int list_parts(const fig_command *command) {
    printf("figraph %s: %s\n\nusage: figraph %s <part> [options]\n\n", command->name,
           command->summary, command->name);
    for (int i = 0; command->parts[i] != NULL; i++)
        printf("  %-11s%s\n", part_word(command, command->parts[i]), command->parts[i]->summary);
    printf("\n  figraph %s <part> --help says more.\n\nexample:\n  %s\n", command->name,
           command->example);
    return FIG_EXIT_FINE;
}

static int run_part(const fig_command *command, int count, char **words) {
    if (count == 0 || strcmp(words[0], "--help") == 0) return list_parts(command);
    for (int i = 0; command->parts[i] != NULL; i++)
        if (strcmp(words[0], part_word(command, command->parts[i])) == 0)
            return run_command(command->parts[i], count - 1, words + 1);
    return fig_report_refuse("%s: unknown part %s; figraph %s --help lists them", command->name,
                             words[0], command->name);
}

static int run(int count, char **words) {
    if (count < 2) {
        return fig_report_refuse("a command is missing; figraph --help lists them");
    }
    if (strcmp(words[1], "--help") == 0) return print_help();
    if (strcmp(words[1], "--version") == 0) return print_version();
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(words[1], commands[i]->name) != 0) continue;
        return commands[i]->parts != NULL ? run_part(commands[i], count - 2, words + 2)
                                          : run_command(commands[i], count - 2, words + 2);
    }
    return fig_report_refuse("unknown %s %s; figraph --help lists what there is",
                             words[1][0] == '-' ? "option" : "command", words[1]);
}

int main(int count, char **words) {
    return fig_report_close(run(count, words));
}

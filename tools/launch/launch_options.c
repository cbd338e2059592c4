/* launch_options.c: parses five options, prints the help, and refuses everything else in one
 * sentence.
 *
 * Invariant: that of launch_options.h. */
#include "tools/launch/launch_options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_LIMIT_S = 31536000 };

static const char help[] =
    "usage: figraph-launch -n N [options] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Starts N ranks of a program on this machine and waits for them.\n"
    "\n"
    "  -n N              number of ranks, 1 to 256\n"
    "  --timeout S       end all ranks after S seconds\n"
    "  --dry-run         print the environment of each rank and the cores that\n"
    "                    it would run on; start nothing\n"
    "  --plain           print lines of stdout without the rank's number\n"
    "  -h, --help        print this help\n"
    "\n"
    "Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,\n"
    "MASTER_PORT and FIG_SECRET in its environment, as fig_ranks_open reads them.\n"
    "Only MASTER_PORT and FIG_SECRET keep a value that was set before. Rank r runs on\n"
    "the cores beside GPU r. If there are fewer GPUs than ranks, the ranks share all\n"
    "cores. A rank reads nothing from stdin, and each line that it prints begins with\n"
    "its number.\n"
    "\n"
    "Signals are passed on to the ranks. A second SIGINT, SIGTERM, SIGHUP or SIGQUIT\n"
    "kills them. When one rank fails, the others are ended within 2 s.\n"
    "\n"
    "exit codes:\n"
    "    0  every rank ended with 0\n"
    "    2  bad usage, or an error of stdout\n"
    "  124  the time limit of --timeout was reached\n"
    "  127  the program cannot be run\n"
    "  else the code of the rank that failed first, or 128 plus its signal\n"
    "\n"
    "example:\n"
    "  figraph-launch -n 2 --timeout 600 -- ./serve model.fig\n";

int fig_launch_options_refuse(int code, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "figraph-launch: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return code;
}

int fig_launch_options_close(void) {
    int failed = ferror(stdout);
    errno = 0;
    if (fclose(stdout) != 0) failed = 1;
    if (!failed) return 0;
    return fig_launch_options_refuse(FIG_LAUNCH_USAGE, "stdout: %s",
                                     errno != 0 ? strerror(errno) : "a write failed");
}

/* Returns the value of the option `name`, from word `*at` or the next word, or NULL if word `*at`
 * is not this option. */
static const char *take_value(const char *name, int count, char *const *words, int *at) {
    const char *word = words[*at];
    const size_t bytes = strlen(name);
    if (strncmp(word, name, bytes) != 0) return NULL;
    if (word[bytes] == '\0') return *at + 1 < count ? words[++*at] : "";
    if (name[1] != '-') return word + bytes; /* -n4 */
    return word[bytes] == '=' ? word + bytes + 1 : NULL;
}

static int read_number(const char *name, const char *text, int32_t most, int32_t *out) {
    char *end;
    const long number = strtol(text, &end, 10);
    if (text[0] == '\0')
        return fig_launch_options_refuse(
            FIG_LAUNCH_USAGE, "%s needs a value, a number from 1 to %d", name, (int)most);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number < 1 || number > most)
        return fig_launch_options_refuse(FIG_LAUNCH_USAGE, "%s %s: it is a number from 1 to %d",
                                         name, text, (int)most);
    *out = (int32_t)number;
    return 0;
}

static int refuse_hosts(void) {
    return fig_launch_options_refuse(
        FIG_LAUNCH_USAGE, "--hosts: ranks are started on this machine only; across machines use "
                          "torchrun, mpirun or srun, whose variables fig_ranks_open reads as well");
}

/* Takes the option in word *at, and moves *at to the last word used. */
static int take_option(fig_launch_options *options, int count, char *const *words, int *at) {
    const char *word = words[*at];
    const char *value;
    if (strcmp(word, "--dry-run") == 0) {
        options->dry_run = 1;
        return 0;
    }
    if (strcmp(word, "--plain") == 0) {
        options->plain = 1;
        return 0;
    }
    if (strncmp(word, "--hosts", 7) == 0) return refuse_hosts();
    if ((value = take_value("--timeout", count, words, at)) != NULL)
        return read_number("--timeout", value, TIMEOUT_LIMIT_S, &options->timeout_s);
    if ((value = take_value("-n", count, words, at)) != NULL)
        return read_number("-n", value, FIG_LAUNCH_LIMIT, &options->count);
    return fig_launch_options_refuse(FIG_LAUNCH_USAGE,
                                     "unknown option %s; figraph-launch --help lists them", word);
}

int fig_launch_options_parse(fig_launch_options *options, int count, char *const *words) {
    int at = 1;
    *options = (fig_launch_options){0};
    for (; at < count && words[at][0] == '-'; at++) {
        if (strcmp(words[at], "--") == 0) {
            at++;
            break;
        }
        if (strcmp(words[at], "--help") == 0 || strcmp(words[at], "-h") == 0) {
            fputs(help, stdout);
            return -1;
        }
        const int code = take_option(options, count, words, &at);
        if (code != 0) return code;
    }
    options->program = words + at;
    if (options->count == 0)
        return fig_launch_options_refuse(FIG_LAUNCH_USAGE,
                                         "-n N is required, the number of ranks; see "
                                         "figraph-launch --help");
    if (at >= count)
        return fig_launch_options_refuse(FIG_LAUNCH_USAGE, "no program was given; see "
                                                           "figraph-launch --help");
    return 0;
}

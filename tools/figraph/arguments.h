/* arguments.h: a command as data, and the words of a command line read by it.
 *
 * Owns options, help and the refusal of what a command does not know; leaves the meaning of values
 * to the commands. Invariant: an option that a command reads is in its table, so --help lists it.
 * */
#ifndef FIG_TOOLS_ARGUMENTS_H
#define FIG_TOOLS_ARGUMENTS_H

#include <stdint.h>

enum { FIG_ARGUMENTS_OPTION_LIMIT = 24 };

typedef struct fig_arguments fig_arguments;

typedef struct fig_option {
    const char *name;  /* "--batch", or "-o" */
    const char *value; /* what stands behind it in the help: "N"; NULL: a flag */
    const char *help;
} fig_option;

typedef struct fig_command fig_command;
struct fig_command {
    const char *name; /* "bench", and "bench replay" of its part */
    const char *summary;
    const fig_command *const *parts; /* ends with NULL; what follows is theirs; NULL: it has none */
    const char *operand; /* "FILE"; "[WHAT]": it may be left out; NULL: the command takes none */
    const char *notes;   /* NULL: nothing to add to the options */
    const char *example;
    int (*run)(const fig_arguments *arguments);     /* returns FIG_EXIT_* */
    fig_option options[FIG_ARGUMENTS_OPTION_LIMIT]; /* ends at the first without a name */
};

struct fig_arguments {
    const fig_command *command;
    const char *operand;                            /* NULL: not given */
    const char *values[FIG_ARGUMENTS_OPTION_LIMIT]; /* [option]; NULL: not given; a flag's is "" */
    int help;                                       /* 1: --help was among the words */
};

/* words: those behind the command's name. Returns FIG_EXIT_*. */
int fig_arguments_parse(fig_arguments *arguments, const fig_command *command, int count,
                        char *const *words);
void fig_arguments_print_help(const fig_command *command);

/* The value of an option of the command's table, NULL where it was not given. */
const char *fig_arguments_text(const fig_arguments *arguments, const char *name);

typedef struct fig_integer {
    const char *name;
    int64_t least, most;
    int64_t fallback; /* where the option was not given */
} fig_integer;
/* Returns FIG_EXIT_*; the sentence names option, value and limit. */
int fig_arguments_integer(const fig_arguments *arguments, const fig_integer *integer, int64_t *out);

#endif

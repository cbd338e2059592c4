/* arguments.h: a command as data, and the words of a command line read by it.
 *
 * Owns options, help and the refusal of what a command does not know; leaves the meaning of values
 * to the commands. Invariant: an option that a command reads is in its table, so that --help lists
 * it. */
#ifndef FIG_TOOLS_ARGUMENTS_H
#define FIG_TOOLS_ARGUMENTS_H

#include <stdint.h>

enum { FIG_ARGUMENTS_OPTION_LIMIT = 32 };

typedef struct fig_arguments fig_arguments;

typedef enum fig_option_need {
    FIG_OPTION_FREE, /* it may be left out */
    FIG_OPTION_REQUIRED,
    FIG_OPTION_ONE_OF /* of these and of an operand that may be left out one is required */
} fig_option_need;

typedef struct fig_option {
    const char *name;  /* "--batch", or "-o" */
    const char *value; /* what stands behind it in the help: "N"; NULL: a flag */
    const char *help;
    fig_option_need need; /* the command refuses for itself where it needs one of several */
    int repeats;          /* 1: it may be given any number of times */
} fig_option;

typedef struct fig_command fig_command;
struct fig_command {
    const char *name; /* "bench", and "bench replay" of its part */
    const char *summary;
    const fig_command *const *parts; /* ends with NULL; what follows is theirs; NULL: it has none */
    const char *operand; /* "FILE"; "[WHAT]": it may be left out; NULL: the command takes none */
    const char *second;  /* behind an operand, and required: "FILE"; NULL: the command takes one */
    const char *notes;   /* paragraphs; NULL: nothing to add to the options */
    const char *failure; /* what ends with exit code 1; NULL: nothing does */
    const char *example;
    int (*run)(const fig_arguments *arguments);     /* returns FIG_EXIT_* */
    fig_option options[FIG_ARGUMENTS_OPTION_LIMIT]; /* ends at the first without a name */
};

struct fig_arguments {
    const fig_command *command;
    const char *operand, *second;                   /* NULL: not given */
    const char *values[FIG_ARGUMENTS_OPTION_LIMIT]; /* [option]; NULL: not given; a flag's is "" */
    int help;                                       /* 1: -h or --help was among the words */
    int count;                                      /* of the words that it was read from */
    char *const *words;
};

/* words: those behind the command's name. Returns FIG_EXIT_*. */
int fig_arguments_parse(fig_arguments *arguments, const fig_command *command, int count,
                        char *const *words);
/* Exit codes and an example, with which help ends. */
void fig_arguments_print_end(const fig_command *command);
void fig_arguments_print_help(const fig_command *command);

/* The value of an option of the command's table, NULL where it was not given. */
const char *fig_arguments_text(const fig_arguments *arguments, const char *name);

/* Each value of an option that repeats, in the order given; NULL: there are no more. *at begins as
 * 0. */
const char *fig_arguments_next(const fig_arguments *arguments, const char *name, int *at);

typedef struct fig_integer {
    const char *name;
    int64_t least, most;
    int64_t fallback; /* where the option was not given */
} fig_integer;
/* Returns FIG_EXIT_*; the sentence names option, value and limit. */
int fig_arguments_integer(const fig_arguments *arguments, const fig_integer *integer, int64_t *out);

#endif

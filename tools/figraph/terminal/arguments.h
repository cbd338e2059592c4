/* arguments.h: describes a command as data, and reads a command line by this description.
 *
 * Owns options, help texts and the refusal of unknown words; the commands interpret the values.
 * Invariant: a command reads only options that are in its table, so --help lists all of them. */
#ifndef FIG_TOOLS_ARGUMENTS_H
#define FIG_TOOLS_ARGUMENTS_H

#include <stdint.h>

enum { FIG_ARGUMENTS_OPTION_LIMIT = 40 };

typedef struct fig_arguments fig_arguments;

typedef enum fig_option_need {
    FIG_OPTION_FREE, /* optional */
    FIG_OPTION_REQUIRED,
    FIG_OPTION_ONE_OF /* one of these options, or the optional operand, is required */
} fig_option_need;

typedef struct fig_option {
    const char *name;  /* "--batch", or "-o" */
    const char *value; /* the name of its value in the help, such as "N"; NULL: a flag */
    const char *help;
    fig_option_need need; /* for FIG_OPTION_ONE_OF the command itself checks that one is given */
    int repeats;          /* 1: it may be given any number of times */
    int is_written;       /* 1: it names a file that is written when the work is done */
    int is_replaced;      /* 1: likewise, but as a new file that takes the name of the old one */
} fig_option;

typedef struct fig_command fig_command;
struct fig_command {
    const char *name; /* "bench", or "bench replay" for a part of it */
    const char *summary;
    /* Ends with NULL. A command with parts leaves the fields below unset, except the example; NULL:
     * no parts. */
    const fig_command *const *parts;
    const char *operand; /* "FILE"; "[FILE]": it is optional; NULL: the command takes none */
    const char *second;  /* a second, required operand: "FILE"; NULL: the command takes one */
    const char *notes;   /* paragraphs for the help; NULL: none */
    const char *failure; /* the failed checks that end with exit code 1; NULL: there is no check */
    const char *example;
    int (*run)(const fig_arguments *arguments);     /* returns FIG_EXIT_* */
    fig_option options[FIG_ARGUMENTS_OPTION_LIMIT]; /* ends at the first option without a name */
};

struct fig_arguments {
    const fig_command *command;
    const char *operand, *second;                   /* NULL: not given */
    const char *values[FIG_ARGUMENTS_OPTION_LIMIT]; /* [option]; NULL: not given; a flag's is "" */
    int help;                                       /* 1: -h or --help was given */
    int count;
    char *const *words; /* [count], the words that were read */
};

/* words: the words after the command's name. Refuses a file that could not be written, so that no
 * long work is lost. Returns FIG_EXIT_*. */
int fig_arguments_parse(fig_arguments *arguments, const fig_command *command, int count,
                        char *const *words);
/* Refuses a file that could not be written, or replaced if the option says so. Does not create it,
 * since the command may fail. Returns FIG_EXIT_*. */
int fig_arguments_check_written(const fig_command *command, const fig_option *option,
                                const char *path);
/* Prints the end of a help text: the exit codes and the example. */
void fig_arguments_print_end(const fig_command *command);
void fig_arguments_print_help(const fig_command *command);

/* Returns the value of an option of the command's table; NULL: it was not given. */
const char *fig_arguments_text(const fig_arguments *arguments, const char *name);

/* Returns the next value of an option that repeats, in the order given; NULL: there are no more.
 * Set *at to 0 before the first call. */
const char *fig_arguments_next(const fig_arguments *arguments, const char *name, int *at);

typedef struct fig_integer {
    const char *name;
    int64_t least, most;
    int64_t fallback; /* the value if the option was not given */
} fig_integer;
/* Reads a whole number. Returns FIG_EXIT_*; the message names the option, the value and the limit.
 */
int fig_arguments_integer(const fig_arguments *arguments, const fig_integer *integer, int64_t *out);

#endif

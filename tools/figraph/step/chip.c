/* chip.c: see chip.h. */
#include "tools/figraph/step/chip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/nearest.h"
#include "tools/figraph/terminal/report.h"

/* The three numbers that every machine must have, in the order in which the message names them. */
enum { NUMBERS = 3, WORD_LIMIT = 64 };
static const char *const names[NUMBERS] = {"compute_capability", "sm_count", "shared_bytes"};

static int refuse(const fig_arguments *arguments, const char *word, const char *wrong) {
    return fig_report_refuse("%s: --traits: \"%s\" %s", arguments->command->name, word, wrong);
}

/* Reads a word such as "sm_count=142". */
static int read_word(const fig_arguments *arguments, char *word, fig_traits *traits,
                     int given[NUMBERS]) {
    int32_t *const fields[NUMBERS] = {&traits->compute_capability, &traits->sm_count,
                                      &traits->shared_bytes};
    char *value = strchr(word, '='), *end;
    if (value == NULL)
        return refuse(arguments, word, "is not of the form NAME=NUMBER, such as sm_count=132");
    *value++ = '\0';
    if (strcmp(word, "name") == 0) {
        if (strlen(value) >= sizeof traits->name)
            return refuse(arguments, value, "is longer than a name may be, 15 characters");
        snprintf(traits->name, sizeof traits->name, "%s", value);
        return FIG_EXIT_FINE;
    }
    for (int i = 0; i < NUMBERS; i++) {
        if (strcmp(word, names[i]) != 0) continue;
        if (given[i]) return refuse(arguments, word, "was given twice");
        errno = 0;
        const long number = strtol(value, &end, 10);
        if (end == value || *end != '\0' || errno != 0 || number < 0 || number > INT32_MAX)
            return refuse(arguments, value, "is no integer of at least 0");
        *fields[i] = (int32_t)number;
        given[i] = 1;
        return FIG_EXIT_FINE;
    }
    return refuse(arguments, word,
                  "is none of name, compute_capability, sm_count and shared_bytes");
}

/* Reads words that commas separate. */
static int read_numbers(const fig_arguments *arguments, const char *text, fig_traits *traits) {
    int given[NUMBERS] = {0}, code = FIG_EXIT_FINE;
    *traits = (fig_traits){.size = sizeof *traits, .name = "chip"};
    while (code == FIG_EXIT_FINE && *text != '\0') {
        char word[WORD_LIMIT];
        const size_t length = strcspn(text, ",");
        if (length >= sizeof word) return refuse(arguments, text, "has a word that is too long");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        code = read_word(arguments, word, traits, given);
        text += length + (text[length] == ',');
    }
    for (int i = 0; code == FIG_EXIT_FINE && i < NUMBERS; i++)
        if (!given[i]) code = refuse(arguments, names[i], "is missing");
    return code;
}

static const char *chip_name(const void *of, int32_t index) {
    (void)of;
    return fig_traits_name(index);
}

int fig_chip_read(const fig_arguments *arguments, const char *text, fig_traits *traits) {
    if (strchr(text, '=') != NULL) return read_numbers(arguments, text, traits);
    *traits = (fig_traits){.size = sizeof *traits};
    if (fig_traits_named(traits, text) == FIG_OK) return FIG_EXIT_FINE;
    char asked[FIG_NEAREST_BYTES];
    fig_nearest_ask(asked, text, chip_name, NULL);
    return fig_report_refuse("--traits: %s%s", fig_message(), asked);
}

/* lengths.h: kv lengths as a person writes them: "32768,39x512" is one row and 39 equal ones. */
#ifndef FIG_TOOLS_LENGTHS_H
#define FIG_TOOLS_LENGTHS_H

#include <stdint.h>

enum { FIG_LENGTHS_LIMIT = 1 << 16 };

typedef struct fig_lengths {
    int32_t *values; /* [count] */
    int32_t count, capacity;
} fig_lengths;

/* Reads `text`; lengths start zeroed. Returns FIG_EXIT_*; `option`, "plan: --kv" say, begins the
 * sentence. What was read so far is held on failure too: finish frees it. */
int fig_lengths_parse(fig_lengths *lengths, const char *text, const char *option);
/* Makes them `count` rows: a single length is repeated, any other number of them must match. */
int fig_lengths_repeat(fig_lengths *lengths, int32_t count, const char *option);
void fig_lengths_finish(fig_lengths *lengths);

int64_t fig_lengths_total(const fig_lengths *lengths);
/* As it is parsed, equal neighbours as one item, cut with ",..." where `bytes` are too few. */
void fig_lengths_describe(const fig_lengths *lengths, char *text, int bytes);

#endif

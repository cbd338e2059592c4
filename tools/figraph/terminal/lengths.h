/* lengths.h: reads a list of kv lengths: "32768,39x512" is one row of 32768 and 39 of 512. In
 * "4x2000:3+512:8", four rows have 3 query tokens each, and one has 8. In "64x8448@8192", 64 rows
 * begin with the same 8192 tokens. */
#ifndef FIG_TOOLS_LENGTHS_H
#define FIG_TOOLS_LENGTHS_H

#include <stdint.h>

enum { FIG_LENGTHS_LIMIT = 1 << 16 };

typedef struct fig_lengths {
    int32_t *values;  /* [count] */
    int32_t *queries; /* [count] query tokens of each row; NULL: no item gives them */
    /* [count] The first row of each row's item, and the tokens with which all rows of the item
     * begin; NULL: no item gives them. */
    int32_t *sources, *shared;
    int32_t count, capacity;
} fig_lengths;

/* Reads `text` into zeroed lengths. Returns FIG_EXIT_*; `option`, such as "plan: --kv", begins the
 * message. Call finish after a failure too. */
int fig_lengths_parse(fig_lengths *lengths, const char *text, const char *option);
/* Does the same for a list whose items may end with ":" and a number of query tokens, and may be
 * joined by "+" too. Either every item has such a number or none. */
int fig_lengths_parse_queries(fig_lengths *lengths, const char *text, const char *option);
/* Does the same for a list whose items may also have "@" and a number of shared tokens behind the
 * length, at most as many as the length. */
int fig_lengths_parse_shared(fig_lengths *lengths, const char *text, const char *option);
/* Refuses an item of a single row that shares tokens. Call it when all rows are there. */
int fig_lengths_check_shared(const fig_lengths *lengths, const char *option);
/* If no item gives query tokens, gives each row one, and idle rows none. Returns FIG_EXIT_*. */
int fig_lengths_fill_queries(fig_lengths *lengths);
/* Makes `count` rows: repeats a single length, and refuses any other number of lengths than
 * `count`. */
int fig_lengths_repeat(fig_lengths *lengths, int32_t count, const char *option);
void fig_lengths_finish(fig_lengths *lengths);

int64_t fig_lengths_total(const fig_lengths *lengths);
/* Returns the sum of query tokens, or 0 if no item gives them. */
int64_t fig_lengths_queries(const fig_lengths *lengths);
/* Writes the list in the form that parse reads, with equal neighbours as one item. The
 * text ends with ",..." if `bytes` are too few. */
void fig_lengths_describe(const fig_lengths *lengths, char *text, int bytes);

#endif

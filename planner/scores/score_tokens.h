/* score_tokens.h: splits the text of a score into tokens: words, numbers and signs.
 *
 * Invariant: a token lies within the text, and every sentence about a token gives its column. */
#ifndef FIG_PLANNER_SCORE_TOKENS_H
#define FIG_PLANNER_SCORE_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "planner/status.h"

enum { FIG_SCORE_WORD_LIMIT = 32 };

typedef enum fig_score_token_kind {
    FIG_SCORE_TOKEN_END,
    FIG_SCORE_TOKEN_WORD,
    FIG_SCORE_TOKEN_NUMBER,
    FIG_SCORE_TOKEN_SIGN
} fig_score_token_kind;

typedef struct fig_score_token {
    fig_score_token_kind kind;
    char text[FIG_SCORE_WORD_LIMIT]; /* the characters of a word or a sign */
    uint32_t bits;                   /* the bits of a number */
    uint16_t type;                   /* the fig_dtype of a number */
    size_t at;                       /* index of the token's first character in the text */
} fig_score_token;

typedef struct fig_score_reader {
    const char *text;
    const char *what; /* the text is that of a "score" or of a "mask" */
    size_t next;      /* index of the first character that belongs to no token yet */
    fig_score_token token;
} fig_score_reader;

/* Reports what is wrong at a character of the text. */
#define FIG_SCORE_REFUSE_AT(reader, at, ...)                                                       \
    fig_score_tokens_refuse(reader, at, fig_fail(FIG_INVALID, __VA_ARGS__))

/* Puts the column of the character at index `at` before the sentence of a failure. */
fig_status fig_score_tokens_refuse(const fig_score_reader *reader, size_t at, fig_status status);
/* Reads the next token of the text. */
fig_status fig_score_tokens_next(fig_score_reader *reader);

#endif

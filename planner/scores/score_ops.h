/* score_ops.h: a table of the operations of scores: their names and the types of their operands.
 *
 * Owns the words of the language. Invariant: the numbers are those of figraph_scores.h. */
#ifndef FIG_PLANNER_SCORE_OPS_H
#define FIG_PLANNER_SCORE_OPS_H

#include "include/figraph_scores.h"

/* The operands that an operation has, and their types. */
typedef enum fig_score_kind {
    FIG_SCORE_KIND_NONE,       /* no such operation */
    FIG_SCORE_KIND_TERM,       /* no operands */
    FIG_SCORE_KIND_CONSTANT,   /* no operands */
    FIG_SCORE_KIND_ELEMENT,    /* one i32 */
    FIG_SCORE_KIND_ARITHMETIC, /* two of the same type; the result has that type */
    FIG_SCORE_KIND_REAL,       /* two f32 */
    FIG_SCORE_KIND_INTEGER,    /* two i32 */
    FIG_SCORE_KIND_COMPARISON, /* two of the same type */
    FIG_SCORE_KIND_SELECT,     /* one i32, then two of the same type */
    FIG_SCORE_KIND_SIGN,       /* one of either type; the result has that type */
    FIG_SCORE_KIND_FUNCTION,   /* one f32 */
    FIG_SCORE_KIND_FLOAT,      /* one i32 */
    FIG_SCORE_KIND_INT,        /* one f32 */
    FIG_SCORE_KIND_MASK        /* two i32; the node has no value and is no operand of another */
} fig_score_kind;

typedef struct fig_score_op_row {
    const char *name; /* in a text, such as "+" or "tanh" */
    fig_score_kind kind;
    int32_t operands;
    int commutes;
} fig_score_op_row;

extern const fig_score_op_row fig_score_ops_table[FIG_SCORE_OP_COUNT]; /* [fig_score_op] */

/* Returns the operation's name in a text; "" if there is no such operation. */
const char *fig_score_ops_name(uint32_t op);
/* Returns the number of operands of an operation, or -1 if there is no such operation. */
int32_t fig_score_ops_operands(uint32_t op);
/* Return the term, or the function, that has the name; 0 if there is none. */
uint32_t fig_score_ops_term(const char *name);
uint32_t fig_score_ops_function(const char *name);
/* Returns the fig_dtype that the word names, or 0. An array's statement begins with such a word. */
uint32_t fig_score_ops_dtype(const char *word);
/* Returns 1 if the language gives the word a meaning, so that no array or expression may have it as
 * its name. */
int fig_score_ops_has_meaning(const char *word);
/* Returns 1 if the word begins a statement of a mask. A score without a mask may still have arrays
 * of these names, because files from before masks may hold such scores. */
int fig_score_ops_begins_mask(const char *word);
int fig_score_ops_is_letter(char c);

#endif

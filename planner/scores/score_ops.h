/* score_ops.h: the operations of scores as a table: names, and what each demands of its operands.
 *
 * Owns the words of the language. Invariant: the numbers are those of figraph_scores.h. */
#ifndef FIG_PLANNER_SCORE_OPS_H
#define FIG_PLANNER_SCORE_OPS_H

#include "include/figraph_scores.h"

/* What an operation demands of its operands. */
typedef enum fig_score_kind {
    FIG_SCORE_KIND_NONE,       /* no such operation */
    FIG_SCORE_KIND_TERM,       /* none */
    FIG_SCORE_KIND_CONSTANT,   /* none */
    FIG_SCORE_KIND_ELEMENT,    /* i32 */
    FIG_SCORE_KIND_ARITHMETIC, /* two of one type, which is the result's */
    FIG_SCORE_KIND_REAL,       /* two f32 */
    FIG_SCORE_KIND_INTEGER,    /* two i32 */
    FIG_SCORE_KIND_COMPARISON, /* two of one type */
    FIG_SCORE_KIND_SELECT,     /* i32, and two of one type */
    FIG_SCORE_KIND_SIGN,       /* one, whose type is the result's */
    FIG_SCORE_KIND_FUNCTION,   /* one f32 */
    FIG_SCORE_KIND_FLOAT,      /* i32 */
    FIG_SCORE_KIND_INT,        /* f32 */
    FIG_SCORE_KIND_MASK        /* two i32; it has no value, and no node has it as an operand */
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
/* These return the term or the function with that name, or 0. */
uint32_t fig_score_ops_term(const char *name);
uint32_t fig_score_ops_function(const char *name);
/* Returns the fig_dtype of a statement that begins with the word, or 0. */
uint32_t fig_score_ops_dtype(const char *word);
/* Returns 1 if a word of a text has a meaning, so that nothing else may have it as a name. */
int fig_score_ops_has_meaning(const char *word);
/* Returns 1 for the words that begin a statement of a mask. A score without a mask may have arrays
 * of these names, since scores are older than masks. */
int fig_score_ops_begins_mask(const char *word);
int fig_score_ops_is_letter(char c);

#endif

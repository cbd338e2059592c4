/* edit.h: one sound node of each operation, and changes to it.
 *
 * A test of what is refused changes one thing of what is otherwise sound. */
#ifndef FIG_TESTS_SUPPORT_EDIT_H
#define FIG_TESTS_SUPPORT_EDIT_H

#include "graphs/program.h"

/* Of operand `operand` of the node. */
typedef enum fig_edit_change {
    FIG_EDIT_NOTHING,
    FIG_EDIT_ABSENT,
    FIG_EDIT_PRESENT, /* f32 [value], an optional one of words */
    FIG_EDIT_SAME_AS, /* operand `value` */
    FIG_EDIT_FOREIGN, /* tensor id `value` */
    FIG_EDIT_DTYPE,
    FIG_EDIT_RANK,
    FIG_EDIT_MULTIPLE,
    FIG_EDIT_INTEGER, /* of the attributes, at byte `operand` */
    FIG_EDIT_REAL,    /* the same, in thousandths */
    FIG_EDIT_DIM      /* FIG_EDIT_DIM + i */
} fig_edit_change;

typedef struct fig_edit {
    fig_op op;
    uint32_t operand;
    int change; /* fig_edit_change */
    int64_t value;
} fig_edit;

/* Records the node of edits[0].op with all of the edits, and returns what finishing it says. The
 * spec is the sample's, of two query tokens a row. */
fig_status fig_edit_record(const fig_edit *edits, size_t count);
/* Bit o: the sound node has operand o, and its rows are those of the batch. */
uint32_t fig_edit_row_operands(fig_op op);

#endif

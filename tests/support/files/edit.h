/* edit.h: makes one sound node of each operation, and changes it.
 *
 * A test of refusals changes one part of an otherwise sound node. */
#ifndef FIG_TESTS_SUPPORT_EDIT_H
#define FIG_TESTS_SUPPORT_EDIT_H

#include "graphs/record/program.h"

/* How an edit changes operand `operand` of a node. */
typedef enum fig_edit_change {
    FIG_EDIT_NOTHING,
    FIG_EDIT_ABSENT,
    FIG_EDIT_PRESENT, /* an optional operand is present, with this many f32 numbers */
    FIG_EDIT_SAME_AS, /* the operand is the same tensor as operand `value` */
    FIG_EDIT_FOREIGN, /* the operand is the tensor with id `value` */
    FIG_EDIT_DTYPE,
    FIG_EDIT_RANK,
    FIG_EDIT_MULTIPLE,
    FIG_EDIT_COUNT,   /* the node has only `value` operands */
    FIG_EDIT_BYTES,   /* the node has only `value` bytes of attributes */
    FIG_EDIT_INTEGER, /* the integer attribute at byte `operand` becomes `value` */
    FIG_EDIT_REAL,    /* the real attribute at byte `operand` becomes `value` thousandths */
    FIG_EDIT_DIM      /* FIG_EDIT_DIM + i: dim i becomes `value` */
} fig_edit_change;

typedef struct fig_edit {
    fig_op op;
    uint32_t operand;
    int change; /* fig_edit_change */
    int64_t value;
} fig_edit;

/* Records the node of edits[0].op with all edits applied, and returns the status of finishing the
 * program. The spec is the sample's, with two query tokens per row. */
fig_status fig_edit_record(const fig_edit *edits, size_t count);
/* Returns 1 if this file has a sound node of the operation. */
int fig_edit_is_known(fig_op op);
/* Returns a mask. Bit o is set if the sound node has operand o, and that operand has rows of the
 * batch. */
uint32_t fig_edit_row_operands(fig_op op);

#endif

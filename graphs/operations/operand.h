/* operand.h: checks that operations make on one of their tensors.
 *
 * Owns the checks and their messages; the other files of this folder say which operation makes
 * which check. Invariant: an absent operand passes every check except
 * fig_operand_check_present(). */
#ifndef FIG_GRAPHS_OPERAND_H
#define FIG_GRAPHS_OPERAND_H

#include "graphs/view/program_view.h"

/* A node in the form that checks read. */
typedef struct fig_operand_node {
    const fig_program_view *view;
    const fig_node *node;
    const fig_operand *operands; /* [operand_count] of the table; NULL for a call */
    uint32_t index;
} fig_operand_node;

enum {
    FIG_OPERAND_ANY = 0,  /* an extent that may have any value */
    FIG_OPERAND_ROWS = -4 /* for dims[0]: FIG_DIM_BATCH or, in a packed program, FIG_DIM_QUERIES */
};

/* The extents that a tensor must have, in the form in which a caller records them. FIG_DIM_PAGES
 * also accepts a fixed number of pages. */
typedef struct fig_operand_form {
    int32_t rank;
    int64_t dims[4];
    int64_t multiple; /* the multiple of a symbolic dims[0] */
} fig_operand_form;

/* Fails with a message that begins with "node <n> (<op>): ". */
__attribute__((format(printf, 3, 4))) fig_status
fig_operand_refuse(const fig_operand_node *o, fig_status status, const char *format, ...);

uint32_t fig_operand_id(const fig_operand_node *o, uint32_t operand);
const char *fig_operand_name(const fig_operand_node *o, uint32_t operand);
/* Returns the operand's tensor, or NULL if the operand is absent. */
const fig_tensor_record *fig_operand_tensor(const fig_operand_node *o, uint32_t operand);

/* Checks that every operand is a tensor of the program and no required operand is absent. */
fig_status fig_operand_check_present(const fig_operand_node *o);
fig_status fig_operand_check_form(const fig_operand_node *o, uint32_t operand,
                                  const fig_operand_form *form);
fig_status fig_operand_check_dtype(const fig_operand_node *o, uint32_t operand, uint32_t dtype);
/* Checks that the dtype is FIG_F32, FIG_F16 or FIG_BF16. */
fig_status fig_operand_check_activation(const fig_operand_node *o, uint32_t operand);
/* Checks the form and the dtype. */
fig_status fig_operand_check_like(const fig_operand_node *o, uint32_t operand,
                                  const fig_operand_form *form, uint32_t dtype);
/* Checks that the operand is f32 [heads]. */
fig_status fig_operand_check_head_words(const fig_operand_node *o, uint32_t operand, int64_t heads);
/* Checks that the operand has a weight for each of `width` values. */
fig_status fig_operand_check_weight(const fig_operand_node *o, uint32_t operand, int64_t width,
                                    uint32_t dtype);
/* Returns the symbol of a tensor that has passed a check for FIG_OPERAND_ROWS, in the form in which
 * a caller records it. */
int64_t fig_operand_rows(const fig_tensor_record *tensor);
/* Checks that the tensor's rows are the query tokens of a step: FIG_DIM_QUERIES in a packed
 * program, otherwise at most row_tokens for each row of the batch. A row that is not idle has at
 * least row_tokens tokens, so its first query has a position. */
fig_status fig_operand_check_row_tokens(const fig_operand_node *o, uint32_t operand);
/* Checks that the operand is [rows][heads][n] and has no more heads than kernels support. */
fig_status fig_operand_check_heads(const fig_operand_node *o, uint32_t operand);
/* Checks that an attribute is a finite number above 0. */
fig_status fig_operand_check_positive(const fig_operand_node *o, const char *name, float value);

/* Reads `bytes` bytes of the node's attributes from `offset` on; bytes past their end read as 0. */
void fig_operand_read_attributes(const fig_operand_node *o, size_t offset, void *attributes,
                                 size_t bytes);
#define FIG_OPERAND_ATTRIBUTES(o, offset, attributes)                                              \
    fig_operand_read_attributes(o, offset, attributes, sizeof *(attributes))

#endif

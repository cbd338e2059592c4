/* operand.h: what an operation may ask of one of its tensors.
 *
 * Owns the questions and their sentences; which operation asks what the room's other files
 * say. Invariant: an operand that is absent answers every question but that of presence. */
#ifndef FIG_GRAPHS_OPERAND_H
#define FIG_GRAPHS_OPERAND_H

#include "graphs/program_view.h"

/* A node as its checks read it. */
typedef struct fig_operand_node {
    const fig_program_view *view;
    const fig_node *node;
    const fig_operand *operands; /* [operand_count] of the table; NULL for a call */
    uint32_t index;
} fig_operand_node;

enum { FIG_OPERAND_ANY = 0 }; /* an extent that is free */

/* Extents as a recorder would give them. FIG_DIM_PAGES also takes a fixed number of pages. */
typedef struct fig_operand_form {
    int32_t rank;
    int64_t dims[4];
    int64_t multiple; /* of a symbolic dims[0] */
} fig_operand_form;

/* Begins the sentence with "node <n> (<op>): ". */
__attribute__((format(printf, 3, 4))) fig_status
fig_operand_refuse(const fig_operand_node *o, fig_status status, const char *format, ...);

uint32_t fig_operand_id(const fig_operand_node *o, uint32_t operand);
const char *fig_operand_name(const fig_operand_node *o, uint32_t operand);
/* NULL where absent. */
const fig_tensor_record *fig_operand_tensor(const fig_operand_node *o, uint32_t operand);

/* Every operand is a tensor of the program, and those that are not optional are there. */
fig_status fig_operand_check_present(const fig_operand_node *o);
fig_status fig_operand_check_form(const fig_operand_node *o, uint32_t operand,
                                  const fig_operand_form *form);
fig_status fig_operand_check_dtype(const fig_operand_node *o, uint32_t operand, uint32_t dtype);
/* FIG_F32, FIG_F16 or FIG_BF16. */
fig_status fig_operand_check_activation(const fig_operand_node *o, uint32_t operand);
/* What is written has the form and dtype of what is read. */
fig_status fig_operand_check_like(const fig_operand_node *o, uint32_t operand,
                                  const fig_operand_form *form, uint32_t dtype);
/* f32 [heads] */
fig_status fig_operand_check_head_words(const fig_operand_node *o, uint32_t operand, int64_t heads);
/* A weight for each of `width` values. */
fig_status fig_operand_check_weight(const fig_operand_node *o, uint32_t operand, int64_t width,
                                    uint32_t dtype);
/* A row that is not idle has row_tokens tokens, so that its first query has one to stand at. */
fig_status fig_operand_check_row_tokens(const fig_operand_node *o, uint32_t operand);
/* [rows][heads][n], of as many heads as kernels can have. */
fig_status fig_operand_check_heads(const fig_operand_node *o, uint32_t operand);
/* An attribute that is a finite number above 0. */
fig_status fig_operand_check_positive(const fig_operand_node *o, const char *name, float value);

/* The node's attributes, `bytes` of them from `offset` on. */
void fig_operand_read_attributes(const fig_operand_node *o, size_t offset, void *attributes,
                                 size_t bytes);
#define FIG_OPERAND_ATTRIBUTES(o, offset, attributes)                                              \
    fig_operand_read_attributes(o, offset, attributes, sizeof *(attributes))

#endif

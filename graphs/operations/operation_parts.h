/* operation_parts.h: declares the checks of this folder's files, which operation.c calls.
 *
 * Invariant: before it calls the check of a kernel's node, operation.c has checked that the node
 * has all required operands and attributes, that it has none beyond its row, and that no written
 * tensor is given twice. */
#ifndef FIG_GRAPHS_OPERATION_PARTS_H
#define FIG_GRAPHS_OPERATION_PARTS_H

#include "graphs/operations/operand.h"

enum { FIG_OPERATION_HEAD_DIM_LIMIT = 256 };

/* operation_rows.c */
fig_status fig_operation_rows_check_plan(const fig_operand_node *o);
fig_status fig_operation_rows_check_gated(const fig_operand_node *o);
fig_status fig_operation_rows_check_norm(const fig_operand_node *o);
fig_status fig_operation_rows_check_all_reduce(const fig_operand_node *o);
fig_status fig_operation_rows_check_all_gather(const fig_operand_node *o);

/* operation_rope.c; decode_attention calls the `fused` check, and checks the forms of q and k
 * itself. */
fig_status fig_operation_rope_check(const fig_operand_node *o);
fig_status fig_operation_rope_check_fused(const fig_operand_node *o);
/* latent_decode calls the next check; it checks the forms of q and latent, and the norm, itself. */
fig_status fig_operation_rope_check_latent(const fig_operand_node *o);

/* operation_attention.c */
fig_status fig_operation_attention_check(const fig_operand_node *o);
fig_status fig_operation_attention_check_append(const fig_operand_node *o);
fig_status fig_operation_attention_check_decode(const fig_operand_node *o);
fig_status fig_operation_attention_check_merge(const fig_operand_node *o);
/* Checks that the table has a row for each sequence, and each row a page for each token below
 * kv_limit. Without a table, each sequence is one page. */
fig_status fig_operation_attention_check_pages(const fig_operand_node *o, uint32_t table,
                                               int64_t page_size);
fig_status fig_operation_attention_check_window(const fig_operand_node *o, int32_t window);

/* operation_latent.c */
fig_status fig_operation_latent_check(const fig_operand_node *o);
fig_status fig_operation_latent_check_decode(const fig_operand_node *o);

/* operation_scored.c */
fig_status fig_operation_scored_check(const fig_operand_node *o);

/* operation_call.c. The kernel table has no operands for these nodes. */
fig_status fig_operation_call_check(const fig_operand_node *o);

#endif

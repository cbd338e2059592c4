/* operation_parts.h: what each file of this room checks for operation.c.
 *
 * Invariant: of a kernel's node operation.c has checked before how many operands and attributes it
 * has, that those it needs are there, and that none that is written is given twice. */
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

/* operation_rope.c; fused: as a part of decode_attention, which checks the forms of q and k. */
fig_status fig_operation_rope_check(const fig_operand_node *o);
fig_status fig_operation_rope_check_fused(const fig_operand_node *o);

/* operation_attention.c */
fig_status fig_operation_attention_check(const fig_operand_node *o);
fig_status fig_operation_attention_check_append(const fig_operand_node *o);
fig_status fig_operation_attention_check_decode(const fig_operand_node *o);
fig_status fig_operation_attention_check_merge(const fig_operand_node *o);

/* operation_call.c, whose nodes have no operands of a table. */
fig_status fig_operation_call_check(const fig_operand_node *o);

#endif

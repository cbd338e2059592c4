/* decode_step.h: the standard step, with what records the attention of a layer left open. */
#ifndef FIG_GRAPHS_DECODE_STEP_H
#define FIG_GRAPHS_DECODE_STEP_H

#include "include/figraph.h"

/* Records RoPE, append and attention, in one node or in several. */
typedef void (*fig_decode_step_attention)(fig_program *program, const fig_decode_attention_op *op);

/* As fig_program_decode_step, whose attention is fig_decode_attention. */
void fig_decode_step_record(fig_program *program, fig_decode_step_attention attention);

#endif

/* decode_step.h: records the standard step, with a callback for the attention of a layer. */
#ifndef FIG_GRAPHS_DECODE_STEP_H
#define FIG_GRAPHS_DECODE_STEP_H

#include "include/figraph.h"

/* Records RoPE, append and attention, in one node or in several. */
typedef void (*fig_decode_step_attention)(fig_program *program, const fig_decode_attention_op *op);

/* Like fig_program_decode_step(), which passes fig_decode_attention. */
void fig_decode_step_record(fig_program *program, fig_decode_step_attention attention);

#endif

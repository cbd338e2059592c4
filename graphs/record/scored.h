/* scored.h: records attention with a score.
 *
 * Decides whether a score becomes other fields of attention, and which nodes it becomes if not.
 * Invariant: a program with a score is recorded with the score's meaning, or refused. */
#ifndef FIG_GRAPHS_SCORED_H
#define FIG_GRAPHS_SCORED_H

#include "include/figraph.h"

/* Returns 1 if the caller must record *op as attention without a score: *op had none, or the call
 * turned it into alibi and soft_cap. Returns 0 if the call recorded or refused the node. */
int fig_scored_replace(fig_program *program, fig_attention_op *op);
/* Does the same for decode_attention, which it records as several nodes. */
int fig_scored_replace_decode(fig_program *program, fig_decode_attention_op *op);

#endif

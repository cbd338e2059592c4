/* invoke_score.h: reads the score of an attention call into the call's description. */
#ifndef FIG_FFI_INVOKE_SCORE_H
#define FIG_FFI_INVOKE_SCORE_H

#include "ffi/invoke/invoke.h"

/* If the call has a score, takes the score and its arrays. The recipe's q_heads must be set. If the
 * score is a soft cap, ALiBi or both, sets those arguments instead, so that the call uses the same
 * runner as a call that gives them. */
fig_status fig_invoke_score_take(fig_invoke *invoke, fig_invoke_attention *attention);

#endif

/* invoke_score.h: takes the score of an attention call. */
#ifndef FIG_FFI_INVOKE_SCORE_H
#define FIG_FFI_INVOKE_SCORE_H

#include "ffi/invoke.h"

/* Takes the score and its arrays, if there is one. The recipe's q_heads must be set. A score that
 * is a soft cap, ALiBi or both becomes these arguments, so that the call uses the same runner as a
 * call with them. */
fig_status fig_invoke_score_take(fig_invoke *invoke, fig_invoke_attention *attention);

#endif

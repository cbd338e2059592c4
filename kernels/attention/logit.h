/* logit.h: computes the logit from the product of a query and a key.
 *
 *     logit = cap(product * scale + slope * behind) * log2(e)
 *     cap(x) = soft_cap * tanh(x / soft_cap), or x where soft_cap is 0
 *
 * If attention has a score, the score replaces slope and cap: see fig_logit_of_score.
 *
 * The reference kernel and every kernel take the formula from this file. Invariant: a model without
 * ALiBi and soft cap pays for neither. */
#ifndef FIG_KERNELS_LOGIT_H
#define FIG_KERNELS_LOGIT_H

#include <math.h>

#include "kernels/common/numeric.h"
#include "planner/scores/score_value.h"

/* Adds the ALiBi term. behind: position of the key minus position of the query, 0 or negative. */
FIG_BOTH float fig_logit_lean(float logit, float slope, int32_t behind) {
    return logit + slope * (float)behind;
}

/* Applies the soft cap and converts the logit to base 2, as the weights need it. */
FIG_BOTH float fig_logit_finish(float logit, float soft_cap) {
    if (soft_cap > 0) logit = soft_cap * tanhf(logit / soft_cap);
    return logit * FIG_NUMERIC_LOG2_E;
}

/* Converts a score to a logit in base 2. If weights are sigmoids, the logit is log2 of the weight;
 * the result that softmax gives for such logits, times 2^lse, is then the sum of weight * v. */
FIG_BOTH float fig_logit_of_score(float score, uint32_t weights) {
    if (weights == FIG_SCORE_SOFTMAX) return score * FIG_NUMERIC_LOG2_E;
    return -log2f(1.0f + exp2f(-score * FIG_NUMERIC_LOG2_E));
}

#endif

/* sums.c: see sums.h. */
#include "kernels/attention/sums.h"

#include <math.h>
#include <string.h>

#include "kernels/common/numeric.h"

void fig_sums_keep(const fig_sums_store *to, int64_t at, const fig_sums *sums) {
    memcpy(to->values + at * to->dims, sums->values, (size_t)to->dims * sizeof *sums->values);
    to->states[at * 2] = sums->greatest;
    to->states[at * 2 + 1] = sums->weights;
}

void fig_sums_add(const fig_sums_store *from, int64_t at, fig_sums *all) {
    const float *state = from->states + at * 2, *values = from->values + at * from->dims;
    const float greatest = fmaxf(all->greatest, state[0]);
    const float old = fig_sums_shrink(all->greatest, greatest);
    const float own = fig_sums_shrink(state[0], greatest);
    all->greatest = greatest;
    all->weights = all->weights * old + state[1] * own;
    for (int32_t i = 0; i < from->dims; i++)
        all->values[i] = all->values[i] * old + values[i] * own;
}

float fig_sums_finish(const float *sink, float v_scale, fig_sums *sums) {
    float shrink = 1;
    if (sink != NULL) {
        const float logit = *sink * FIG_NUMERIC_LOG2_E;
        const float greatest = fmaxf(sums->greatest, logit);
        shrink = fig_sums_shrink(sums->greatest, greatest);
        sums->weights = sums->weights * shrink + fig_sums_shrink(logit, greatest);
        sums->greatest = greatest;
    }
    return sums->weights == 0 ? 0 : v_scale * shrink / sums->weights;
}

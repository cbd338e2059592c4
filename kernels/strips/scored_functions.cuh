/* scored_functions.cuh: the operations of scores that take more than a few instructions, as
 * functions of a template.
 *
 * nvcc compiles them from the code that the interpreter has too, so both compute the same bits. At
 * run time their bodies go wherever a score uses them, and the functions themselves are left out.
 * Invariant: a function returns once, at its end, and score_ptx.c knows its name. */
#ifndef FIG_KERNELS_SCORED_FUNCTIONS_CUH
#define FIG_KERNELS_SCORED_FUNCTIONS_CUH

#include "kernels/attention/logit.h"

#define FIG_SCORED_FUNCTION extern "C" __device__ __noinline__ __attribute__((used))

FIG_SCORED_FUNCTION int32_t fig_scored_functions_quotient(int32_t a, int32_t b) {
    return fig_score_value_quotient(a, b);
}

FIG_SCORED_FUNCTION int32_t fig_scored_functions_remainder(int32_t a, int32_t b) {
    return fig_score_value_remainder(a, b);
}

FIG_SCORED_FUNCTION float fig_scored_functions_exp2(float x) {
    return exp2f(x);
}

FIG_SCORED_FUNCTION float fig_scored_functions_log2(float x) {
    return log2f(x);
}

FIG_SCORED_FUNCTION float fig_scored_functions_tanh(float x) {
    return tanhf(x);
}

FIG_SCORED_FUNCTION float fig_scored_functions_sigmoid(float x) {
    return fig_score_value_sigmoid(x);
}

FIG_SCORED_FUNCTION float fig_scored_functions_sin(float x) {
    return sinf(x);
}

FIG_SCORED_FUNCTION float fig_scored_functions_cos(float x) {
    return cosf(x);
}

/* The logit in base 2 of a score whose weight is a sigmoid. */
FIG_SCORED_FUNCTION float fig_scored_functions_sigmoid_logit(float score) {
    return fig_logit_of_score(score, FIG_SCORE_SIGMOID_WEIGHTS);
}

#endif

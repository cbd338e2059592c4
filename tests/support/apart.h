/* apart.h: the standard step with RoPE, append and attention as separate nodes.
 *
 * Invariant: it has the tensors of fig_program_decode_step, in the same order. */
#ifndef FIG_TESTS_SUPPORT_APART_H
#define FIG_TESTS_SUPPORT_APART_H

#include "include/figraph.h"

void fig_apart_decode_step(fig_program *program);

#endif

/* apart.h: the standard step with RoPE, append and attention as nodes of their own.
 *
 * Invariant: its tensors are those of fig_program_decode_step, in their order. */
#ifndef FIG_TESTS_SUPPORT_APART_H
#define FIG_TESTS_SUPPORT_APART_H

#include "include/figraph.h"

void fig_apart_decode_step(fig_program *program);

#endif

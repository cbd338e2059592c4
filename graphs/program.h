/* program.h: a step while it is recorded, and whole.
 *
 * Owns the arrays of program_view.h, their growth while recording and their check. What an
 * operation demands of its tensors is in operation.c, what a program becomes in a bucket in
 * lower.c, bytes in codec.c. Invariant: operands and strings lie in range and edges point forward:
 * no reader needs a stack. */
#ifndef FIG_GRAPHS_PROGRAM_H
#define FIG_GRAPHS_PROGRAM_H

#include "graphs/program_view.h"
#include "graphs/strings.h"

struct fig_program; /* fig_program of the public header: growable arrays around a view */

/* ---- For the operations' recorder calls (recorder.c) */

/* Keeps the first failure: returns it, or `status`. */
fig_status fig_program_refuse(fig_program *program, fig_status status);
/* 1: recording goes on, 0: it failed before or is finished (which this records as a failure). */
int fig_program_recording(fig_program *program);
const fig_program_view *fig_program_view_of(const fig_program *program);
/* Appends a node and checks it (fig_operation_check); sticky. operands: ids, 0 for absent. */
void fig_program_node(fig_program *program, fig_op op, const uint32_t *operands,
                      uint32_t operand_count, const void *attributes, uint32_t attribute_bytes);
/* Offset of a copy of `text` in the strings, or of the copy already there; sticky, 0 on failure. */
uint32_t fig_program_string(fig_program *program, const char *text);

/* ---- For readers */

/* FIG_OK once finished: only then may a view be trusted. Otherwise the failure that was kept. */
fig_status fig_program_ready(const fig_program *program);
/* Makes a finished program from arrays that a file held: copies them, checks all of it, derives the
 * edges. The view's edges are ignored. */
fig_status fig_program_restore(fig_program **program, const fig_program_view *view);
/* A finished program of its own memory. */
fig_status fig_program_clone(fig_program **clone, const fig_program *program);
/* Walks all of it: every index, count, name, dtype and extent, each node's demands. */
fig_status fig_program_check(const fig_program_view *view);

#endif

/* program.h: holds a program during recording and once it is complete.
 *
 * Owns the arrays of program_view.h, their growth while recording, and their check. operation.c
 * checks the tensors of a node, lower.c lowers programs, and codec.c turns them into bytes.
 * Invariant: operands and strings are in range, and edges point forward, so one pass in node order
 * serves any reader. */
#ifndef FIG_GRAPHS_PROGRAM_H
#define FIG_GRAPHS_PROGRAM_H

#include "graphs/view/program_view.h"
#include "graphs/view/strings.h"

struct fig_program; /* fig_program of the public header: growable arrays around a view */

/* ---- For the recorder calls of operations (recorder.c) */

/* Records `status` as the program's failure unless the program has failed before. Returns the first
 * failure. */
fig_status fig_program_refuse(fig_program *program, fig_status status);
/* Returns 1 if recording goes on. Returns 0 if recording failed before or the program is finished;
 * a call on a finished program becomes the program's failure. */
int fig_program_recording(fig_program *program);
const fig_program_view *fig_program_view_of(const fig_program *program);
/* Appends a node and checks it by fig_operation_check(); a failure is sticky. operands: tensor ids,
 * 0 for absent operands. Trailing absent operands and zero attributes are left out, as the
 * operation's row says. */
void fig_program_node(fig_program *program, fig_op op, const uint32_t *operands,
                      uint32_t operand_count, const void *attributes, uint32_t attribute_bytes);
/* Returns the offset of `text` in the strings; adds the text if it is new. A failure is sticky and
 * returns 0. */
uint32_t fig_program_string(fig_program *program, const char *text);

/* Returns the number of a score among the program's scores, and adds the score if it is new. Every
 * array of the score must have a count. A failure is sticky and returns 0. */
uint32_t fig_program_score(fig_program *program, const fig_score *score);
/* Returns the layer of the next node; -1: none. */
int16_t fig_program_layer_of(const fig_program *program);

/* ---- For readers */

/* Returns FIG_OK if the program is finished, else the program's failure. Only the view of a
 * finished program may be read. */
fig_status fig_program_ready(const fig_program *program);
/* Makes a finished program from the arrays of a file: copies them, checks everything and derives
 * the edges. The view's own edges are ignored. */
fig_status fig_program_restore(fig_program **program, const fig_program_view *view);
/* Copies a finished program into separate memory. */
fig_status fig_program_clone(fig_program **clone, const fig_program *program);
/* Checks the whole program: every index, count, name, dtype and extent, and every node. */
fig_status fig_program_check(const fig_program_view *view);

#endif

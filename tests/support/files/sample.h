/* sample.h: makes the small specs and programs from which tests of graphs/ start.
 *
 * All limits of the spec are small, and no two are equal, so that a mix-up of two limits is
 * noticed. */
#ifndef FIG_TESTS_SUPPORT_SAMPLE_H
#define FIG_TESTS_SUPPORT_SAMPLE_H

#include "graphs/lower/lower.h"

/* Returns the spec: two layers, 8 q heads and 2 kv heads of 64, width 32, pages of 16, 6 rows, 200
 * tokens, 9 sequences. */
fig_spec fig_sample_spec(void);

/* Records and finishes the standard step. */
fig_program *fig_sample_step(const fig_spec *spec);
/* Does the same with RoPE, append and attention as separate nodes. */
fig_program *fig_sample_apart(const fig_spec *spec);
/* Lowers the standard step, and asserts that nothing failed. fig_sample_graphs() uses the spec
 * above and lowers for the host. */
fig_graphs *fig_sample_lower(const fig_spec *spec, const fig_lower_options *options);
fig_graphs *fig_sample_graphs(void);
/* Finishes a test's own program, lowers it and destroys it. */
fig_graphs *fig_sample_finish(fig_program *program, const fig_lower_options *options);

/* Records and finishes the step of separate nodes and a call, so that the program has tensors of
 * every role. */
fig_program *fig_sample_mixture(void);

/* fig_sample_breadth() records and finishes a program with every operation and every feature:
 * lengths read on the device, two query tokens per row, an fp8 cache in HND layout, and two
 * windows. fig_sample_breadth_spec() returns its spec. */
fig_spec fig_sample_breadth_spec(void);
fig_program *fig_sample_breadth(void);

/* Returns the machine of that name, without deterministic splits. */
fig_lower_target fig_sample_target(const char *traits);

/* Begins a program with one bound tensor of rows, and asserts that nothing failed. */
fig_program *fig_sample_program(const fig_spec *spec);
fig_tensor fig_sample_rows(fig_program *program, const char *name, int64_t heads, int64_t head_dim);
/* Adds two caches "k_<name>" and "v_<name>". They have no page table, so they are dense, with
 * kv_limit tokens. */
fig_cache fig_sample_cache(fig_program *program, const char *name, int64_t heads, int64_t head_dim);

/* Adds an attention node with tensors of its own, which are named after `name`. */
typedef struct fig_sample_heads {
    int64_t q, kv, head_dim;
} fig_sample_heads;
void fig_sample_attention(fig_program *program, const char *name, const fig_sample_heads *heads);

/* Asserts a status and a message that contains `part`. */
void fig_sample_check(fig_status status, fig_status expected, const char *part, int line);
#define FIG_SAMPLE_REFUSES(call, expected, part) fig_sample_check(call, expected, part, __LINE__)

#endif

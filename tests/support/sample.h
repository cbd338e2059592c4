/* sample.h: small specs and programs that tests of graphs/ start from.
 *
 * The spec has every limit small and unlike the others, so that a limit taken for another shows. */
#ifndef FIG_TESTS_SUPPORT_SAMPLE_H
#define FIG_TESTS_SUPPORT_SAMPLE_H

#include "graphs/lower.h"

/* Two layers, 8 q heads and 2 kv heads of 64, width 32, pages of 16, 6 rows, 200 tokens, 9
 * sequences. */
fig_spec fig_sample_spec(void);

/* The standard step, finished. */
fig_program *fig_sample_step(const fig_spec *spec);
/* The same with RoPE, append and attention apart. */
fig_program *fig_sample_apart(const fig_spec *spec);
/* The standard step lowered; asserts that nothing failed. graphs: of the spec above, for the
 * host. */
fig_graphs *fig_sample_lower(const fig_spec *spec, const fig_lower_options *options);
fig_graphs *fig_sample_graphs(void);
/* A program of the test's own, unfinished; destroys it. */
fig_graphs *fig_sample_finish(fig_program *program, const fig_lower_options *options);

/* The standard step, apart, and a call, finished: tensors of every role. */
fig_program *fig_sample_mixture(void);

/* Every operation and every feature, finished: lengths read on the device, two query tokens of a
 * row, an fp8 cache whose heads come first in memory, two windows. */
fig_spec fig_sample_breadth_spec(void);
fig_program *fig_sample_breadth(void);

/* A machine by name, splits not fixed. */
fig_lower_target fig_sample_target(const char *traits);

/* An unfinished program with a bound tensor of rows; asserts that nothing failed. */
fig_program *fig_sample_program(const fig_spec *spec);
fig_tensor fig_sample_rows(fig_program *program, const char *name, int64_t heads, int64_t head_dim);
/* Two caches "k_<name>" and "v_<name>" without a table: pages of kv_limit tokens. */
fig_cache fig_sample_cache(fig_program *program, const char *name, int64_t heads, int64_t head_dim);

/* An attention node on tensors of its own, named after `name`. */
typedef struct fig_sample_heads {
    int64_t q, kv, head_dim;
} fig_sample_heads;
void fig_sample_attention(fig_program *program, const char *name, const fig_sample_heads *heads);

/* Asserts a status, and a sentence that holds `part`. */
void fig_sample_check(fig_status status, fig_status expected, const char *part, int line);
#define FIG_SAMPLE_REFUSES(call, expected, part) fig_sample_check(call, expected, part, __LINE__)

#endif

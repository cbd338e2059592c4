/* place.h: chooses the device that tests run on, and allocates the memory that they pass to it.
 *
 * FIG_DEVICE is "host", the default, or "cuda". On cuda, FIG_IMAGE is "hopper", the default, or
 * "plain". Memory on cuda is pinned and mapped: host and GPU use the same addresses, and after a
 * wait a test reads a kernel's results in place. Invariant: every address that an engine or a
 * kernel gets was allocated here, and bytes after the end of each block are watched. */
#ifndef FIG_TESTS_SUPPORT_PLACE_H
#define FIG_TESTS_SUPPORT_PLACE_H

#include <stddef.h>

#include "include/figraph.h"
#include "kernels/table/table.h"

/* Ends the program if the environment names an unknown device. */
fig_device fig_place_device(void);
const char *fig_place_name(void); /* "host", "cuda.hopper" or "cuda.plain" */

/* Returns options for an engine. A test may add to them. */
fig_engine_options fig_place_options(void);
/* Opens an engine with fig_place_options(). */
fig_status fig_place_open(fig_engine **engine, const fig_graphs *graphs);
/* On cuda, lends the engine memory from blocks that are kept for reuse, since the driver stops the
 * GPU whenever it frees a block. */
void fig_place_lend(fig_engine_options *options);
/* Returns options for a test that concerns the host alone, whatever device other tests use. Prints
 * the reason. */
fig_engine_options fig_place_host_only(const char *why);
/* From this call on, the whole program runs on the host, whatever device other programs use. */
void fig_place_host_program(const char *why);
/* Between hold and release, tests run on the host. This is for a test with a fake driver, which has
 * no memory of a real GPU. Pairs may be nested. */
void fig_place_hold_host(void);
void fig_place_release_host(void);
/* Returns the greatest relative error of a weight of attention that warpgroups multiply by V: they
 * round weights to the dtype of q if the cache has that dtype and 16 bits. 0 on other devices. */
double fig_place_weight_error(fig_dtype dtype, fig_dtype kv_dtype);
/* Returns the greatest relative error of a value of a latent cache of codes, if warpgroups serve
 * it: they round the value to the dtype of q. The errors of K also move logits and weights. 0 on
 * other devices and for other caches. */
double fig_place_code_error(fig_dtype dtype, fig_dtype kv_dtype);
/* Returns the machine to lower for: NULL for the host, or a machine like the GPU. */
const fig_traits *fig_place_traits(void);

/* Returns how many of `all` random cases to try. That is all of them unless FIG_CASE_SHARE is n;
 * then it is every n-th, but at least 24. This is for tools that slow a case down a hundred
 * times. In builds with sanitizers n is 4. */
int fig_place_cases(int all);
/* Returns 1 if case n is to be tried: one of fig_place_cases(all), or a further one because fewer
 * than `wanted` cases so far were of the kind that the test is about. So chance cannot leave the
 * test with too few of them. It gives up after 20 times as many cases, since that is no chance. */
int fig_place_wants_case(int n, int all, int seen, int wanted);

/* Allocates memory, aligned to 64 bytes. Every byte is 0xff, which makes a NaN in every float type.
 * Returns NULL with a message if memory ran out. On the host, asan notices the first byte past the
 * end. On cuda, bytes after the end are watched, and fig_place_free() ends the program if they have
 * changed. Any thread may call this. */
void *fig_place_allocate(size_t bytes);
/* Does not initialise the memory, for callers that write every byte. */
void *fig_place_allocate_as_is(size_t bytes);
void fig_place_free(void *address); /* accepts NULL */

/* On cuda only. Runs the kernel once, to its end, as the only node of a graph. */
fig_status fig_place_launch(fig_op op, const void *params);

#endif

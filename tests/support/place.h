/* place.h: the device that tests run on, and where the memory lies that they give to it.
 *
 * FIG_DEVICE is "host", the default, or "cuda"; there FIG_IMAGE is "hopper", the default, or
 * "plain". On cuda memory is pinned and mapped, so that an address is the test's and the GPU's, and
 * what a kernel left is read where it lies once the test has waited. Invariant: whatever an engine
 * or a kernel is given an address of was allocated here, with not a byte more than was asked for
 * that nobody watches. */
#ifndef FIG_TESTS_SUPPORT_PLACE_H
#define FIG_TESTS_SUPPORT_PLACE_H

#include <stddef.h>

#include "include/figraph.h"
#include "kernels/table.h"

/* Exits the program where the environment says what no device is. */
fig_device fig_place_device(void);
const char *fig_place_name(void); /* "host", "cuda.hopper", "cuda.plain" */

/* What an engine is opened with; a test adds what it needs. */
fig_engine_options fig_place_options(void);
fig_status fig_place_open(fig_engine **engine, const fig_graphs *graphs); /* with those */
/* cuda: the engine's memory is lent to it, of blocks that are kept for the next, since the driver
 * stops the GPU where it takes one back. */
void fig_place_lend(fig_engine_options *options);
/* Those of a test that is about the host, wherever others run: its reason is printed there. */
fig_engine_options fig_place_host_only(const char *why);
/* From here on the whole program runs on the host, wherever others run. */
void fig_place_host_program(const char *why);
/* Between the two as well: a test whose driver is a fake has no memory of a real GPU. */
void fig_place_hold_host(void);
void fig_place_release_host(void);
/* What graphs are lowered for: NULL, the host, or the machine of the GPU's kind. */
const fig_traits *fig_place_traits(void);

/* How many of so many random cases to try: all, or an n-th of them, but 24 at least, where
 * FIG_CASE_SHARE is n, as under a tool that makes each take a hundred times as long. */
int fig_place_cases(int all);

/* 64-byte aligned, every byte 0xff: a NaN in every float type. NULL with a message where there is
 * none. On the host asan sees the first byte past it; on cuda what lies behind it is watched, and
 * free ends the program where it has changed. Any thread may call. */
void *fig_place_allocate(size_t bytes);
void *fig_place_allocate_as_is(size_t bytes); /* of any bytes, for who writes all of them */
void fig_place_free(void *address);           /* NULL is nothing */

/* cuda alone: the kernel once, as the one node of a graph, from launch to end. */
fig_status fig_place_launch(fig_op op, const void *params);

#endif

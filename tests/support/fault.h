/* fault.h: make the n-th call to memory, files or threads fail.
 *
 * A test binary is linked with each gated function wrapped (GATES in the Makefile): calls of the
 * library and of the test pass through fault.c, those of other libraries do not. Nothing fails
 * unless armed. Invariant: only calls of the thread that armed are counted or failed.
 *
 *     for (int64_t n = 1;; n++) {
 *         fig_fault_arm(n);
 *         fig_status status = fig_graphs_save(graphs, path);
 *         if (fig_fault_disarm() < n) break;
 *         assert_int_not_equal(status, FIG_OK);
 *     } */
#ifndef FIG_TESTS_SUPPORT_FAULT_H
#define FIG_TESTS_SUPPORT_FAULT_H

#include <stddef.h>
#include <stdint.h>

/* How far a loop over all points of failure goes at once. Other variants fail at each; under tsan
 * a step is ten times as slow, and what threads share is the same at most points. */
#ifdef __SANITIZE_THREAD__
enum { FIG_FAULT_STRIDE = 7 };
#else
enum { FIG_FAULT_STRIDE = 1 };
#endif

/* From here on the n-th gated call of this thread fails, once; 0: none does, calls are counted. */
void fig_fault_arm(int64_t n);

/* The same, but where the n-th call would begin the process ends as by kill -9. */
void fig_fault_arm_kill(int64_t n);

/* Nothing fails any more. Returns the gated calls seen since arm: fewer than its n means that none
 * failed. Call it before an assertion, since what reports one may allocate. */
int64_t fig_fault_disarm(void);

/* Bytes that this thread asked memory for between arm and disarm, whatever was given back. */
uint64_t fig_fault_bytes(void);

/* From here on read, write, pread and pwrite of this thread move at most `bytes` at a time, as they
 * may at any time; 0: as many as asked. */
void fig_fault_shorten(size_t bytes);

#endif

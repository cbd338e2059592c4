/* fault.h: makes the n-th call to memory, files or threads fail.
 *
 * A test binary is linked so that each gated function is wrapped (GATES in the Makefile). Calls
 * from the library and from the test pass through fault.c; calls from other libraries do not.
 * Nothing fails unless a thread arms the gates. Invariant: only that thread's calls are counted and
 * can fail.
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
#include <sys/types.h>

/* The stride of a loop over all points of failure. Other builds try every point. tsan skips most
 * points, because a step is ten times as slow there, and threads share memory in the same way at
 * most points. */
#ifdef __SANITIZE_THREAD__
enum { FIG_FAULT_STRIDE = 7 };
#else
enum { FIG_FAULT_STRIDE = 1 };
#endif

/* From this call on, the n-th gated call of this thread fails, once. 0: calls are counted and none
 * fails. */
void fig_fault_arm(int64_t n);

/* Does the same, except that the n-th call ends the process as kill -9 would. */
void fig_fault_arm_kill(int64_t n);

/* Disarms the gates. Returns the number of gated calls since fig_fault_arm(). If this is less than
 * n, none failed. Call it before an assertion, since reporting a failed assertion may allocate. */
int64_t fig_fault_disarm(void);

/* Returns the bytes that this thread requested between arming and disarming, including those that
 * it freed again. */
uint64_t fig_fault_bytes(void);

/* From this call on, this thread's read, write, pread and pwrite move at most `bytes` bytes at a
 * time, which POSIX permits. 0: no limit. */
void fig_fault_shorten(size_t bytes);

/* Calls `act` once, right before this thread's next open: it stands for another process, which
 * changes files between two calls of this one. */
void fig_fault_intrude(void (*act)(void));
/* Does the same right before this thread's next flock. */
void fig_fault_intrude_lock(void (*act)(void));

/* From this call on, this thread's fstat names this user as the owner of every file, which a test
 * could not make without being root. -1: the true owner. */
void fig_fault_own(int64_t user);

#endif

/* kept_kernels.h: kernels that stay loaded for all engines of a program, however many it opens.
 *
 * An engine loads its kernels and unloads them, and while the driver does either it keeps all other
 * threads waiting. A program that opens an engine for a single launch, and another for the next, on
 * eight threads at once, takes 13 ms for each where kernels come and go and 3 where they stay.
 * Invariant: what an engine asks of the driver gives what it gave. */
#ifndef FIG_TESTS_SUPPORT_KEPT_KERNELS_H
#define FIG_TESTS_SUPPORT_KEPT_KERNELS_H

/* Called before the program's first engine on cuda, and again at will, by any thread. */
void fig_kept_kernels_start(void);

#endif

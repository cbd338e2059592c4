/* kept_kernels.h: keeps kernels loaded for all engines that a program opens.
 *
 * An engine loads its kernels when it opens and unloads them when it closes. Meanwhile the driver
 * stops all other threads. On eight threads that each open an engine per launch, a launch takes 13
 * ms if kernels are loaded each time, and 3 ms if they stay loaded. Invariant: the replaced calls
 * return what the driver's own calls would return. */
#ifndef FIG_TESTS_SUPPORT_KEPT_KERNELS_H
#define FIG_TESTS_SUPPORT_KEPT_KERNELS_H

/* Call this before the program opens its first engine on CUDA. Any thread may call it, any number
 * of times. */
void fig_kept_kernels_start(void);

#endif

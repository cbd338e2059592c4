/* all_reduce_two_shot.cu: all_reduce in two shots, see all_reduce.cuh. */
#include "kernels/all_reduce.cuh"

FIG_ALL_REDUCE_ENTRY(fig_kernel_all_reduce_alone, , fig_all_reduce_no_words, fig_all_reduce_alone,
                     2)
FIG_ALL_REDUCE_ENTRY(fig_kernel_all_reduce_norm, FIG_ALL_REDUCE_IN_TEAMS, fig_all_reduce_words,
                     fig_all_reduce_norm, 2)

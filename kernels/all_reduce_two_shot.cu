/* all_reduce_two_shot.cu: all_reduce in two shots, see all_reduce.cuh. */
#include "kernels/all_reduce.cuh"

FIG_ALL_REDUCE_ENTRIES(2)

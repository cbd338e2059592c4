/* all_reduce_two_shot.cu: runs all_reduce in two shots; see all_reduce.cuh. */
#include "kernels/ranks/all_reduce.cuh"

FIG_ALL_REDUCE_ENTRIES(2)

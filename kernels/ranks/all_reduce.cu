/* all_reduce.cu: runs all_reduce in one shot; see all_reduce.cuh. */
#include "kernels/ranks/all_reduce.cuh"

FIG_ALL_REDUCE_ENTRIES(1)

/* attention_short.cu: attention over short rows, on tensor cores, by clusters of blocks. */
#include "kernels/short_instances.cuh"

FIG_SHORT_INSTANCES(short, 0)

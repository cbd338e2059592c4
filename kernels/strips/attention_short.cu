/* attention_short.cu: computes attention over short rows on tensor cores, by clusters of blocks. */
#include "kernels/strips/short_instances.cuh"

FIG_SHORT_INSTANCES(short, 0)

/* attention_short.cu: attention over short rows, on tensor cores, by clusters of blocks. */
#include "kernels/short_instances.cuh"

FIG_SHORT_INSTANCES(short, 0)
FIG_SHORT_INSTANCES_OF_CODES(short, 0)

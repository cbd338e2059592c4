/* attention_bulk.cu: computes attention on tensor cores; the bulk copy engine loads K and V. */
#include "kernels/strips/attention_instances.cuh"

FIG_ATTENTION_INSTANCES(bulk, 0)

/* attention_bulk.cu: attention on tensor cores whose K and V come by the bulk copy engine. */
#include "kernels/attention_instances.cuh"

FIG_ATTENTION_INSTANCES(bulk, 0)

/* attention_turn.cu: decode_attention in one launch, on tensor cores, K and V by the bulk copy
 * engine: it turns q and k and appends k and v itself. */
#include "kernels/attention_instances.cuh"

FIG_ATTENTION_INSTANCES(turn, 1)

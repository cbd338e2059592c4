/* attention_turn.cu: runs decode_attention in one launch, on tensor cores. The bulk copy engine
 * loads K and V. The launch also applies RoPE to q and k, and appends k and v. */
#include "kernels/strips/attention_instances.cuh"

FIG_ATTENTION_INSTANCES(turn, 1)

/* attention_short_turn.cu: runs decode_attention over short rows in one launch, on tensor cores, by
 * clusters of blocks. The launch also applies RoPE to q and k, and appends k and v. */
#include "kernels/strips/short_instances.cuh"

FIG_SHORT_INSTANCES(short_turn, 1)

/* attention_short_turn.cu: decode_attention of short rows in one launch, on tensor cores, by
 * clusters of blocks: it turns q and k and appends k and v itself. */
#include "kernels/short_instances.cuh"

FIG_SHORT_INSTANCES(short_turn, 1)

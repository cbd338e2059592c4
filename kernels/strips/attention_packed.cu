/* attention_packed.cu: computes attention as attention_bulk.cu does, for packed programs.
 *
 * A row may have fewer query tokens than the largest row, so the parts of warps in a piece's work
 * follow the number of its row (attention_form.cuh). Owns the instances, for the rows of most
 * models: each one adds 70 KB to the library. Invariant: all warps of a block derive their parts in
 * a piece from the same number of query tokens, so they agree on which warps meet. */
#define FIG_PIECES_PACKED 1
#include "kernels/strips/attention_instances.cuh"

#define SHARES(name, kv, dims)                                                                     \
    FIG_ATTENTION_INSTANCE(packed, 0, name, kv, dims, 1)                                           \
    FIG_ATTENTION_INSTANCE(packed, 0, name, kv, dims, 2)
SHARES(f16, FIG_F16, 64)
SHARES(f16, FIG_F16, 128)
SHARES(bf16, FIG_BF16, 64)
SHARES(bf16, FIG_BF16, 128)
SHARES(e4m3, FIG_E4M3, 128)

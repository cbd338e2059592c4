/* attention_packed.cu: computes attention as attention_bulk.cu does, for packed programs.
 *
 * A row may have fewer query tokens than the largest row, so the parts of warps in a piece's work
 * follow the number of its row (attention_form.cuh). Owns the instances, for the rows of most
 * models: each one adds 70 KB to the library. Over a cache of 16-bit values, 3 or 4 sets of warps
 * mostly belong to one head, and attention_many.cu serves it; 1 or 2 sets occur only in buckets for
 * single query tokens (graphs/lower/variants.h). There the rows of groups may have tails, whose
 * results go to slots (kernels/attention/tails.cuh). Invariant: all warps of a block derive their
 * parts in a piece from the same number of query tokens, so they agree on which warps meet. */
#define FIG_PIECES_PACKED 1
#define FIG_PIECES_TAILS 1
#include "kernels/strips/attention_instances.cuh"

FIG_ATTENTION_INSTANCE(packed, 0, f16, FIG_F16, 64, 1)
FIG_ATTENTION_INSTANCE(packed, 0, f16, FIG_F16, 64, 4)
FIG_ATTENTION_INSTANCE(packed, 0, f16, FIG_F16, 128, 1)
FIG_ATTENTION_INSTANCE(packed, 0, f16, FIG_F16, 128, 4)
FIG_ATTENTION_INSTANCE(packed, 0, bf16, FIG_BF16, 64, 1)
FIG_ATTENTION_INSTANCE(packed, 0, bf16, FIG_BF16, 64, 4)
FIG_ATTENTION_INSTANCE(packed, 0, bf16, FIG_BF16, 128, 1)
FIG_ATTENTION_INSTANCE(packed, 0, bf16, FIG_BF16, 128, 4)
FIG_ATTENTION_INSTANCE(packed, 0, e4m3, FIG_E4M3, 128, 1)
FIG_ATTENTION_INSTANCE(packed, 0, e4m3, FIG_E4M3, 128, 2)

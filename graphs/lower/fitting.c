/* fitting.c: adapts a machine's way of reading the cache to the kernels of a split class.
 *
 * Owns the tile, the heads and the costs that follow from the class. Invariant: that of lower.c. */
#include "graphs/lower/fitting.h"

#include "kernels/attention/geometry.h"
#include "kernels/attention/many.h"
#include "kernels/latent/latent.h"
#include "planner/split/units.h"

/* TOKEN_BYTES: bytes of K and V of one token in one head, for which candidates state their
 * costs. */
enum { TOKEN_BYTES = 512, TILE_NS_LIMIT = 1000000 };

/* Returns 1 if the family `many` serves the class. */
static int is_many(const fig_split_class *own, const fig_traits *traits) {
    return own->is_many && traits->compute_capability == FIG_GEOMETRY_CAPABILITY_OF_BULK;
}

/* Tensor-core kernels read whole strips with a limited number of warps. So this function lowers
 * `heads` to the number that the warps can serve, and makes a tile at least one strip. If a token
 * has few bytes, a strip has more tokens. If a single head has more vectors than all warps can
 * hold, no such kernel serves it, and the variant stays unchanged. For rows of many query tokens, a
 * worker reads whole strips of one head. */
static void fit_kernels(const fig_split_class *own, const fig_traits *traits,
                        fig_variant *variant) {
    const int32_t vectors = own->q_heads / own->kv_heads * own->row_tokens;
    if (is_many(own, traits)) {
        variant->heads = 1;
        const int32_t least = fig_many_strip(own->head_dim);
        if (variant->tile_tokens < least) variant->tile_tokens = least;
        return;
    }
    const int32_t heads = fig_geometry_heads(vectors);
    if (traits->compute_capability < FIG_GEOMETRY_CAPABILITY || own->value_bytes > 2 || heads < 1)
        return;
    if (variant->heads > heads) variant->heads = fig_split_classes_heads(own, heads);
    variant->tile_tokens *= fig_geometry_steps(own->value_bytes, own->head_dim);
    const int32_t strip = fig_geometry_strip(own->value_bytes, own->head_dim,
                                             fig_geometry_sets(variant->heads, vectors));
    if (variant->tile_tokens < strip) variant->tile_tokens = strip;
}

/* Scales `once` and tile_ns from the candidate's tile to the fitted tile. A larger tile takes
 * longer, so `once` is fewer units. */
static void scale_units(const fig_split_class *own, const fig_variant *candidate,
                        fig_variant *variant) {
    const int64_t tokens = (int64_t)variant->tile_tokens * variant->heads;
    const int64_t bytes = tokens * own->head_dim * own->value_bytes * 2;
    const int64_t measured = (int64_t)candidate->tile_tokens * candidate->heads * TOKEN_BYTES;
    const int64_t once = (variant->once * measured + bytes / 2) / bytes;
    const int64_t tile_ns = (variant->tile_ns * bytes + measured / 2) / measured;
    variant->once = once < FIG_UNITS_ONCE_LIMIT ? (int32_t)once : FIG_UNITS_ONCE_LIMIT;
    variant->tile_ns = tile_ns < TILE_NS_LIMIT ? (int32_t)tile_ns : TILE_NS_LIMIT;
}

/* Replaces all candidates by one way to read a latent cache: a worker reads a tile for one group of
 * q heads. The times were measured on one H200 with the warpgroup kernel, for several numbers of
 * vectors in a group; `once` is the time that a worker's second segment adds. */
static void fit_latent(const fig_split_class *own, fig_variant *variant) {
    const int32_t vectors = own->q_heads / own->kv_heads * own->row_tokens;
    variant->tile_tokens = FIG_LATENT_TILE_TOKENS;
    variant->workers_per_sm = 1;
    variant->once = vectors <= 16 ? 29 : vectors <= 32 ? 22 : 40;
    variant->tile_ns = vectors <= 16 ? 1360 : vectors <= 32 ? 1800 : 1600;
}

void fig_fitting_fit(const fig_split_class *own, const fig_lower_target *target,
                     const fig_variant *candidate, fig_variant *variant) {
    const int is_latent = own->latent_bytes > 0;
    if (is_latent) {
        fit_latent(own, variant);
    } else {
        fit_kernels(own, &target->traits, variant);
    }
    if (target->deterministic) variant->tile_tokens = FIG_FIXED_TILE_TOKENS;
    if (!is_latent) scale_units(own, candidate, variant);
}

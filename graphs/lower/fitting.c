/* fitting.c: adapts a machine's way of reading the cache to the kernels of a split class.
 *
 * Owns the tile, the heads and the costs that follow from the class, and all costs over latent
 * caches. Invariant: that of lower.c. */
#include "graphs/lower/fitting.h"

#include "kernels/attention/geometry.h"
#include "kernels/attention/many.h"
#include "kernels/latent/latent_narrow.h"
#include "planner/size.h"
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

/* ---- Latent caches --------------------------------------------------------------------------- */

/* The costs of the warpgroup kernels for groups of at most `vectors` vectors, as measured on one
 * H200. start_ns, short_ns: of a launch on the whole machine, in lines and in clusters. once: the
 * time that a worker's second segment adds. unit_ns: the time of a tile where rows differ in
 * length. */
typedef struct latent_costs {
    int32_t vectors, start_ns, short_ns, tile_ns, piece_ns, segment_ns, once, unit_ns;
} latent_costs;
static const latent_costs latent_rows[] = {
    {FIG_LATENT_NARROW_FEW, 7300, 6600, 1620, 40, 600, 29, 1360},
    {FIG_LATENT_NARROW_VECTORS, 9700, 7400, 1690, 70, 700, 22, 1800},
    {FIG_LATENT_VECTORS, 12600, 12600, 2030, 95, 1500, 40, 1600},
    {FIG_LATENT_PAIR_VECTORS, 13000, 13000, 1760, 200, 1500, 40, 1700}};
/* Of a cache of codes, which has no clusters. No warpgroup kernel serves more than 32 vectors of a
 * group there. */
static const latent_costs latent_code_rows[] = {
    {FIG_LATENT_NARROW_FEW, 7300, 7300, 2000, 40, 600, 29, 1700},
    {FIG_LATENT_NARROW_VECTORS, 9700, 9700, 2550, 70, 700, 22, 2300},
    {FIG_LATENT_PAIR_VECTORS, 30000, 30000, 60000, 95, 1500, 40, 60000}};
/* A launch on half or a quarter of the machine begins beside those before it, and takes less. */
enum { HALF_NS = 3200, SHORT_HALF_NS = 2500, SHORT_QUARTER_NS = 1500 };

static int is_wide(const fig_traits *traits) {
    return traits->compute_capability == FIG_GEOMETRY_CAPABILITY_OF_BULK;
}

static const latent_costs *latent_costs_of(const fig_split_class *own, const fig_variant *variant) {
    const int32_t vectors = own->q_heads / own->kv_heads * variant->heads * own->row_tokens;
    const latent_costs *costs = own->value_bytes == 1 ? latent_code_rows : latent_rows;
    while (costs->vectors < vectors && costs->vectors < FIG_LATENT_PAIR_VECTORS)
        costs++;
    return costs;
}

/* Returns the number of smallest groups that a worker serves at once. The candidate for one head
 * serves whole groups, as in files that know no others, and the one for most heads the smallest
 * groups. That for two heads serves two of them, and that for four as many as two blocks can.
 * Kernels that are not of warpgroups, as over f32, gain nothing by that, nor two blocks over
 * codes. */
static int32_t latent_heads(const fig_split_class *own, const fig_traits *traits,
                            const fig_variant *candidate) {
    const int32_t q_heads = own->q_heads, tokens = own->row_tokens;
    const int32_t least = fig_latent_least_heads(q_heads, tokens);
    const int32_t whole = fig_latent_group_heads(q_heads, tokens) / least;
    if (candidate->heads == 1 || !is_wide(traits) || own->value_bytes > 2) return whole;
    if (candidate->heads == 4)
        return own->value_bytes == 1 ? whole : fig_latent_pair_heads(q_heads, tokens) / least;
    return candidate->heads == 2 && whole % 2 == 0 ? 2 : 1;
}

/* Turns a candidate into a way to read a latent cache, where a worker reads tiles for one group of
 * q heads. The workers of smaller groups read the same tokens, but keep more of the machine busy,
 * and their results are merged sooner. */
static void fit_latent(const fig_split_class *own, const fig_traits *traits,
                       const fig_variant *candidate, fig_variant *variant) {
    variant->heads = latent_heads(own, traits, candidate);
    const latent_costs *costs = latent_costs_of(own, variant);
    variant->tile_tokens = FIG_LATENT_TILE_TOKENS;
    variant->workers_per_sm = 1;
    variant->stages = is_wide(traits) && candidate->heads > 1 && own->value_bytes == 2 &&
                      costs->vectors <= FIG_LATENT_NARROW_VECTORS;
    variant->start_ns = costs->start_ns;
    variant->bytes_per_us = FIG_LATENT_TILE_TOKENS * own->latent_bytes * 1000 / costs->tile_ns;
    variant->piece_ns = costs->piece_ns;
    variant->segment_ns = costs->segment_ns;
    variant->once = costs->once;
    variant->tile_ns = costs->unit_ns;
}

void fig_fitting_place(const fig_split_class *own, const fig_traits *traits, int32_t workers,
                       int32_t is_short, fig_variant *variant) {
    if (own->latent_bytes == 0 || !is_wide(traits)) return;
    const latent_costs *costs = latent_costs_of(own, variant);
    int32_t less = is_short ? costs->start_ns - costs->short_ns : 0;
    if (fig_latent_is_pair(own->q_heads, own->row_tokens, own->kv_heads / variant->heads))
        workers *= 2;
    if (workers * 2 <= traits->sm_count) less += is_short ? SHORT_HALF_NS : HALF_NS;
    if (is_short && workers * 4 <= traits->sm_count) less += SHORT_QUARTER_NS;
    variant->start_ns = variant->start_ns > less ? variant->start_ns - less : 0;
    if (is_short) variant->piece_ns = 0;
}

void fig_fitting_fit(const fig_split_class *own, const fig_lower_target *target,
                     const fig_variant *candidate, fig_variant *variant) {
    const int is_latent = own->latent_bytes > 0;
    if (is_latent) {
        fit_latent(own, &target->traits, candidate, variant);
    } else {
        fit_kernels(own, &target->traits, variant);
    }
    if (target->deterministic) variant->tile_tokens = FIG_FIXED_TILE_TOKENS;
    if (!is_latent) scale_units(own, candidate, variant);
}

/* figraph_rope.h: turn the kinds of RoPE scaling that config files name into explicit frequencies.
 *
 * The result is a fig_rope_table: an array of frequencies, and one factor that cosines and sines
 * are multiplied by.
 *
 *     fig_rope_scale(&spec.rope_table, &spec.rope, spec.head_dim,
 *                    FIG_OPTIONS(fig_rope_scaling, .kind = FIG_ROPE_YARN, .factor = 32,
 *                                .context = 4096));
 *
 * Below, d is the rope's rotary_dim and f(i) is theta^(-2i / d), the frequency of pair i. The
 * rope's scale and llama3_* fields must be 0.
 *
 * Two kinds need no table. Linear scaling uses the rope's `scale`: each frequency is f(i) / scale.
 * Llama 3 scaling uses the rope's llama3_* fields. It depends on the wavelength of a frequency,
 * 2 pi / f(i):
 *
 *     longer than llama3_context / llama3_low     the frequency is divided by llama3_factor
 *     shorter than llama3_context / llama3_high   the frequency stays
 *     between the two                             a blend of both, linear in the frequency
 */
#ifndef FIGRAPH_ROPE_H
#define FIGRAPH_ROPE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t fig_rope_kind;
enum {
    /* Beyond `context` tokens, theta is multiplied by (factor * tokens / context - factor + 1)^(d /
     * (d - 2)). Other libraries use the current length of the sequence as `tokens`; here `tokens`
     * is fixed. */
    FIG_ROPE_DYNAMIC = 1,
    /* Pairs that turn more than beta_fast times within `context` keep f(i). Pairs that turn less
     * than beta_slow times have f(i) / factor. Between the two, frequencies blend linearly in i.
     *
     * With mscale_of(m) = 0.1 * m * ln(factor) + 1, the factor of cosines and sines is
     * mscale_of(mscale) / mscale_of(mscale_all), or mscale_of(1) if either field is 0. */
    FIG_ROPE_YARN,
    /* f(i) is divided by long_factors[i] if `tokens` exceeds `context`, else by short_factors[i].
     * The factor of cosines and sines is sqrt(1 + ln(factor) / ln(context)). */
    FIG_ROPE_LONGROPE
};

typedef struct fig_rope_scaling {
    uint32_t size; /* sizeof(fig_rope_scaling) */
    /* The kind of scaling. */
    fig_rope_kind kind;
    /* The ratio of the context after scaling to the context before. */
    float factor;
    /* The context before scaling, in tokens: original_max_position_embeddings. */
    int32_t context;
    /* The number of tokens of the longest sequence to serve: the spec's kv_limit. */
    int32_t tokens;
    /* FIG_ROPE_YARN. 0: 32. */
    float beta_fast;
    /* FIG_ROPE_YARN. 0: 1. */
    float beta_slow;
    /* FIG_ROPE_YARN. */
    float mscale;
    /* FIG_ROPE_YARN. */
    float mscale_all;
    /* FIG_ROPE_YARN. 0: the bounds between which frequencies blend are rounded to whole pairs, the
     * lower bound down and the upper bound up. 1: they are not rounded. */
    int32_t keeps_fractions;
    /* The factor of cosines and sines. 0: it is computed by the formula above. */
    float attention_factor;
    /* [d / 2] FIG_ROPE_LONGROPE. */
    const float *short_factors;
    /* [d / 2] FIG_ROPE_LONGROPE. */
    const float *long_factors;
} fig_rope_scaling;

/* Computes the table of a kind of scaling, for heads of head_dim elements. FIG_INVALID: the
 * sentence names the field, its value and the limit. */
FIG_API fig_status fig_rope_scale(fig_rope_table *table, const fig_rope_spec *rope,
                                  int32_t head_dim, const fig_rope_scaling *scaling);

#ifdef __cplusplus
}
#endif
#endif

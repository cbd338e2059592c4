/* figraph_rope.h: kinds of RoPE scaling, as models' files name them, made what they are: an array
 * of frequencies and one factor.
 *
 *     fig_rope_scale(&spec.rope_table, &spec.rope, spec.head_dim,
 *                    FIG_OPTIONS(fig_rope_scaling, .kind = FIG_ROPE_YARN, .factor = 32,
 *                                .context = 4096));
 *
 * f(i) is theta^(-2i / d) below, d the rope's rotary_dim; its scale and llama3_* must be 0. Two
 * kinds need no table: the linear one is f(i) / scale, and llama 3's is the rope's llama3_*: a
 * frequency whose wave, 2 pi / f(i), is longer than llama3_context / llama3_low is divided by
 * llama3_factor, one whose wave is shorter than llama3_context / llama3_high is kept, and those
 * between shift evenly in frequency from the one to the other. */
#ifndef FIGRAPH_ROPE_H
#define FIGRAPH_ROPE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t fig_rope_kind;
enum {
    /* Beyond `context` tokens theta becomes theta * (factor * tokens / context - factor + 1) to the
     * power of d / (d - 2). What grows with the sequence elsewhere is fixed here, by `tokens`. */
    FIG_ROPE_DYNAMIC = 1,
    /* Pairs that turn more than beta_fast times within `context` keep f(i), those that turn less
     * than beta_slow times have f(i) / factor, and those between shift evenly in i. The factor of
     * cosines and sines is mscale_of(mscale) / mscale_of(mscale_all), or mscale_of(1) where either
     * is 0; mscale_of(m) is 0.1 * m * ln(factor) + 1. */
    FIG_ROPE_YARN,
    /* f(i) divided by long_factors[i] where `tokens` is beyond `context`, else by short_factors[i].
     * The factor of cosines and sines is sqrt(1 + ln(factor) / ln(context)). */
    FIG_ROPE_LONGROPE
};

typedef struct fig_rope_scaling {
    uint32_t size;
    fig_rope_kind kind;
    float factor;               /* by how much the context was stretched */
    int32_t context;            /* tokens before it was: original_max_position_embeddings */
    int32_t tokens;             /* of the longest sequence that is served: the spec's kv_limit */
    float beta_fast, beta_slow; /* 0: 32 and 1 */
    float mscale, mscale_all;
    int32_t keeps_fractions; /* 0: where betas begin and end to count is rounded to whole pairs */
    float attention_factor;  /* in place of the factor that the kind has; 0: that one */
    const float *short_factors; /* [d / 2] */
    const float *long_factors;
} fig_rope_scaling;

/* head_dim: of the heads to turn. FIG_INVALID: the sentence names field, value and limit. */
FIG_API fig_status fig_rope_scale(fig_rope_table *table, const fig_rope_spec *rope,
                                  int32_t head_dim, const fig_rope_scaling *scaling);

#ifdef __cplusplus
}
#endif
#endif

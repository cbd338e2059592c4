/* frequencies.c: see frequencies.h. */
#include "planner/spec/frequencies.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "include/figraph_rope.h"
#include "planner/spec/rope_spec.h"
#include "planner/status.h"

static const long double tau = 6.283185307179586476925286766559L;

/* ---- Tables */

int fig_frequencies_has_table(const fig_rope_table *table) {
    static const fig_rope_table none;
    return memcmp(table, &none, sizeof none) != 0;
}

fig_rope_table fig_frequencies_still(void) {
    return (fig_rope_table){.factor = 1};
}

int fig_frequencies_is_still(const fig_rope_table *table) {
    const fig_rope_table still = fig_frequencies_still();
    return memcmp(table, &still, sizeof still) == 0;
}

fig_status fig_frequencies_resolve(const char *name, const fig_rope_spec *rope,
                                   fig_rope_table *table) {
    if (!fig_frequencies_has_table(table)) return FIG_OK;
    for (int32_t i = 0; i < FIG_FREQUENCY_LIMIT; i++) {
        const double frequency = table->frequencies[i];
        const int turns = i < rope->rotary_dim / 2;
        if (turns ? isfinite(frequency) && frequency > 0 : frequency == 0 && !signbit(frequency))
            continue;
        return fig_fail(FIG_INVALID, "%s: frequencies[%" PRId32 "] is %g, it must be %s", name, i,
                        frequency,
                        turns ? "finite and above 0" : "0, since that pair is not rotated");
    }
    if (!(isfinite(table->factor) && table->factor >= 0))
        return fig_fail(FIG_INVALID, "%s: factor is %g, it must be finite and above 0", name,
                        table->factor);
    if (table->factor == 0) table->factor = 1;
    return FIG_OK;
}

/* ---- RoPE by terms */

/* octaves: log2 of theta. */
static long double plain(long double octaves, int32_t rotary_dim, int32_t pair) {
    return exp2l(-2.0L * pair / rotary_dim * octaves);
}

/* Llama 3 keeps the frequencies of short wavelengths and divides those of long ones by its factor.
 * Between the two limits it blends the kept and the divided frequency, linearly in frequency. */
static long double stretched(const fig_rope_spec *rope, long double frequency) {
    const long double waves = rope->llama3_context * frequency / tau; /* in the original context */
    long double kept = (waves - rope->llama3_low) / (rope->llama3_high - rope->llama3_low);
    kept = fminl(fmaxl(kept, 0), 1);
    return kept * frequency + (1 - kept) * frequency / rope->llama3_factor;
}

fig_rope_table fig_frequencies_of(const fig_rope_spec *rope) {
    fig_rope_table table = {.factor = 1};
    const long double octaves = log2l(rope->theta);
    assert(rope->rotary_dim <= 2 * FIG_FREQUENCY_LIMIT);
    for (int32_t i = 0; i < rope->rotary_dim / 2; i++) {
        long double frequency = plain(octaves, rope->rotary_dim, i);
        if (rope->llama3_factor > 0) frequency = stretched(rope, frequency);
        table.frequencies[i] = (double)(frequency / rope->scale);
    }
    return table;
}

/* ---- Kinds of scaling */

static void scale_dynamic(const fig_rope_spec *rope, const fig_rope_scaling *scaling,
                          fig_rope_table *table) {
    const long double d = rope->rotary_dim, factor = scaling->factor;
    long double theta = rope->theta;
    table->factor = 1;
    if (scaling->tokens > scaling->context)
        theta *= powl(factor * scaling->tokens / scaling->context - factor + 1, d / (d - 2));
    for (int32_t i = 0; i < rope->rotary_dim / 2; i++)
        table->frequencies[i] = (double)plain(log2l(theta), rope->rotary_dim, i);
}

/* Returns the pair, as a fractional index, that makes `turns` full turns within the original
 * context. */
static long double pair_of_turns(const fig_rope_spec *rope, const fig_rope_scaling *scaling,
                                 long double turns) {
    return rope->rotary_dim * logl(scaling->context / (turns * tau)) / (2 * logl(rope->theta));
}

static long double mscale_of(const fig_rope_scaling *scaling, long double mscale) {
    return scaling->factor > 1 ? 0.1L * mscale * logl(scaling->factor) + 1 : 1;
}

static void scale_yarn(const fig_rope_spec *rope, const fig_rope_scaling *scaling,
                       fig_rope_table *table) {
    const float fast = scaling->beta_fast != 0 ? scaling->beta_fast : 32;
    const float slow = scaling->beta_slow != 0 ? scaling->beta_slow : 1;
    long double first = pair_of_turns(rope, scaling, fast);
    long double last = pair_of_turns(rope, scaling, slow);
    if (!scaling->keeps_fractions) {
        first = floorl(first);
        last = ceill(last);
    }
    first = fmaxl(first, 0);
    last = fminl(last, rope->rotary_dim - 1);
    if (last == first) last += 0.001L; /* as in every implementation, to avoid 0 / 0 */
    for (int32_t i = 0; i < rope->rotary_dim / 2; i++) {
        const long double frequency = plain(log2l(rope->theta), rope->rotary_dim, i);
        const long double kept = 1 - fminl(fmaxl((i - first) / (last - first), 0), 1);
        table->frequencies[i] =
            (double)(kept * frequency + (1 - kept) * frequency / scaling->factor);
    }
    table->factor = (double)mscale_of(scaling, 1);
    if (scaling->mscale != 0 && scaling->mscale_all != 0)
        table->factor =
            (double)(mscale_of(scaling, scaling->mscale) / mscale_of(scaling, scaling->mscale_all));
}

static void scale_longrope(const fig_rope_spec *rope, const fig_rope_scaling *scaling,
                           fig_rope_table *table) {
    const float *factors =
        scaling->tokens > scaling->context ? scaling->long_factors : scaling->short_factors;
    for (int32_t i = 0; i < rope->rotary_dim / 2; i++)
        table->frequencies[i] =
            (double)(plain(log2l(rope->theta), rope->rotary_dim, i) / factors[i]);
    table->factor = 1;
    if (scaling->factor > 1)
        table->factor = (double)sqrtl(1 + logl(scaling->factor) / logl(scaling->context));
}

static fig_status check_above(const char *field, float value, float least) {
    if (isfinite(value) && value >= least) return FIG_OK;
    return fig_fail(FIG_INVALID, "rope scaling: %s is %g, it must be finite and at least %g", field,
                    (double)value, (double)least);
}

static fig_status check_factors(const char *field, const float *factors, int32_t count) {
    if (factors == NULL) return fig_fail(FIG_INVALID, "rope scaling: %s is NULL", field);
    for (int32_t i = 0; i < count; i++)
        if (!(isfinite(factors[i]) && factors[i] > 0))
            return fig_fail(FIG_INVALID,
                            "rope scaling: %s[%" PRId32 "] is %g, it must be finite and above 0",
                            field, i, (double)factors[i]);
    return FIG_OK;
}

static fig_status check_scaling(const fig_rope_spec *rope, const fig_rope_scaling *scaling) {
    if (scaling->kind < FIG_ROPE_DYNAMIC || scaling->kind > FIG_ROPE_LONGROPE)
        return fig_fail(FIG_INVALID, "rope scaling: kind is %" PRIu32 ", limits %d to %d",
                        scaling->kind, FIG_ROPE_DYNAMIC, FIG_ROPE_LONGROPE);
    if (rope->scale != 1 || rope->llama3_factor != 0)
        return fig_fail(FIG_INVALID, "rope scaling: the rope sets scale or llama3_factor as well");
    if (rope->theta <= 1 || rope->rotary_dim < 4)
        return fig_fail(FIG_INVALID,
                        "rope scaling: theta is %g and rotary_dim %" PRId32
                        ", they must be above 1 and at least 4",
                        (double)rope->theta, rope->rotary_dim);
    if (scaling->context < 2 || scaling->tokens < 0)
        return fig_fail(FIG_INVALID,
                        "rope scaling: context is %" PRId32 " and tokens %" PRId32
                        ", they must be at least 2 and 0",
                        scaling->context, scaling->tokens);
    FIG_TRY(check_above("factor", scaling->factor, 1));
    FIG_TRY(check_above("beta_fast", scaling->beta_fast, 0));
    FIG_TRY(check_above("beta_slow", scaling->beta_slow, 0));
    FIG_TRY(check_above("mscale", scaling->mscale, 0));
    FIG_TRY(check_above("mscale_all", scaling->mscale_all, 0));
    FIG_TRY(check_above("attention_factor", scaling->attention_factor, 0));
    if (scaling->kind != FIG_ROPE_LONGROPE) return FIG_OK;
    FIG_TRY(check_factors("short_factors", scaling->short_factors, rope->rotary_dim / 2));
    return check_factors("long_factors", scaling->long_factors, rope->rotary_dim / 2);
}

fig_status fig_rope_scale(fig_rope_table *table, const fig_rope_spec *rope, int32_t head_dim,
                          const fig_rope_scaling *scaling) {
    fig_rope_scaling ours;
    fig_rope_spec resolved;
    fig_rope_table made = {.factor = 0};
    memset(table, 0, sizeof *table);
    if (rope == NULL) return fig_fail(FIG_INVALID, "rope scaling: rope is NULL");
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, scaling, "fig_rope_scaling"));
    if (head_dim < 2 || head_dim > 2 * FIG_FREQUENCY_LIMIT)
        return fig_fail(FIG_INVALID, "rope scaling: head_dim is %" PRId32 ", limits 2 to %d",
                        head_dim, 2 * FIG_FREQUENCY_LIMIT);
    FIG_TRY(fig_rope_spec_resolve(rope, head_dim, &resolved));
    FIG_TRY(check_scaling(&resolved, &ours));
    switch (ours.kind) {
    case FIG_ROPE_DYNAMIC: scale_dynamic(&resolved, &ours, &made); break;
    case FIG_ROPE_YARN: scale_yarn(&resolved, &ours, &made); break;
    case FIG_ROPE_LONGROPE: scale_longrope(&resolved, &ours, &made); break;
    }
    if (ours.attention_factor != 0) made.factor = (double)ours.attention_factor;
    FIG_TRY(fig_frequencies_resolve("rope scaling", &resolved, &made));
    *table = made;
    return FIG_OK;
}

/* rope_spec.c: checks a fig_rope_spec and fills in its defaults. */
#include "planner/spec/rope_spec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "planner/status.h"

static fig_status check_reserved(const fig_rope_spec *rope) {
    for (size_t i = 0; i < sizeof rope->reserved / sizeof *rope->reserved; i++) {
        if (rope->reserved[i] != 0)
            return fig_fail(FIG_INVALID, "rope: reserved[%zu] is %" PRIu32 ", it must be 0", i,
                            rope->reserved[i]);
    }
    return FIG_OK;
}

static fig_status check_llama3(const fig_rope_spec *rope) {
    if (rope->llama3_factor == 0.0f) {
        if (rope->llama3_low == 0.0f && rope->llama3_high == 0.0f && rope->llama3_context == 0)
            return FIG_OK;
        return fig_fail(FIG_INVALID,
                        "rope: llama3_factor is 0, but llama3_low is %g, llama3_high %g and "
                        "llama3_context %" PRId32 ", which must be 0 with it",
                        (double)rope->llama3_low, (double)rope->llama3_high, rope->llama3_context);
    }
    if (!isfinite(rope->llama3_factor) || rope->llama3_factor < 1.0f)
        return fig_fail(FIG_INVALID, "rope: llama3_factor is %g, it must be 0, or finite and >= 1",
                        (double)rope->llama3_factor);
    if (!isfinite(rope->llama3_low) || rope->llama3_low <= 0.0f)
        return fig_fail(FIG_INVALID, "rope: llama3_low is %g, it must be finite and above 0",
                        (double)rope->llama3_low);
    if (!isfinite(rope->llama3_high) || rope->llama3_high <= rope->llama3_low)
        return fig_fail(FIG_INVALID,
                        "rope: llama3_high is %g, it must be finite and above llama3_low, %g",
                        (double)rope->llama3_high, (double)rope->llama3_low);
    if (rope->llama3_context < 1)
        return fig_fail(FIG_INVALID, "rope: llama3_context is %" PRId32 ", it must be at least 1",
                        rope->llama3_context);
    return FIG_OK;
}

/* Fails unless the value is finite and at least 0; 0 means the default. */
static fig_status check_positive(const char *field, float value) {
    if (isfinite(value) && value >= 0.0f) return FIG_OK;
    return fig_fail(FIG_INVALID, "rope: %s is %g, it must be finite and above 0", field,
                    (double)value);
}

fig_status fig_rope_spec_resolve(const fig_rope_spec *rope, int32_t head_dim, fig_rope_spec *out) {
    fig_rope_spec resolved = *rope;
    memset(out, 0, sizeof *out);
    if (resolved.interleaved != 0 && resolved.interleaved != 1)
        return fig_fail(FIG_INVALID, "rope: interleaved is %" PRId32 ", it must be 0 or 1",
                        resolved.interleaved);
    if (resolved.rotary_dim < 0 || resolved.rotary_dim > head_dim || resolved.rotary_dim % 2 != 0)
        return fig_fail(FIG_INVALID,
                        "rope: rotary_dim is %" PRId32
                        ", it must be even and at most head_dim, %" PRId32,
                        resolved.rotary_dim, head_dim);
    FIG_TRY(check_positive("theta", resolved.theta));
    FIG_TRY(check_positive("scale", resolved.scale));
    FIG_TRY(check_llama3(&resolved));
    FIG_TRY(check_reserved(&resolved));
    if (resolved.rotary_dim == 0) resolved.rotary_dim = head_dim;
    if (resolved.theta == 0.0f) resolved.theta = 10000.0f;
    if (resolved.scale == 0.0f) resolved.scale = 1.0f;
    *out = resolved;
    return FIG_OK;
}

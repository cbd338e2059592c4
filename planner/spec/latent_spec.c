/* latent_spec.c: see latent_spec.h. */
#include "planner/spec/latent_spec.h"

#include <inttypes.h>

#include "planner/spec/spec.h"
#include "planner/status.h"

/* Fails unless a field has the only value that this library serves. */
static fig_status check_only(const char *field, int64_t value, int64_t only) {
    if (value == only) return FIG_OK;
    return fig_fail(FIG_UNSUPPORTED,
                    "spec: %s is %" PRId64 ", it must be %" PRId64 " where latent_dim is %d", field,
                    value, only, FIG_LATENT_SPEC_DIM);
}

fig_status fig_latent_spec_check(const fig_spec *spec) {
    const int is_codes = spec->kv_dtype == FIG_E4M3 && spec->dtype != FIG_F32;
    if (spec->latent_dim != FIG_LATENT_SPEC_DIM)
        return fig_fail(FIG_UNSUPPORTED,
                        "spec: latent_dim is %" PRId32 ", this library has 0 and %d",
                        spec->latent_dim, FIG_LATENT_SPEC_DIM);
    FIG_TRY(check_only("kv_heads", spec->kv_heads, 1));
    FIG_TRY(check_only("head_dim", spec->head_dim, FIG_LATENT_SPEC_KEY_DIM));
    FIG_TRY(check_only("kv_layout", spec->kv_layout, FIG_NHD));
    FIG_TRY(check_only("kv_scales", spec->kv_scales, 0));
    if (spec->row_tokens > FIG_LATENT_SPEC_ROW_TOKENS)
        return fig_fail(FIG_UNSUPPORTED,
                        "spec: row_tokens is %" PRId32 ", limit %d where latent_dim is %d",
                        spec->row_tokens, FIG_LATENT_SPEC_ROW_TOKENS, FIG_LATENT_SPEC_DIM);
    if (spec->q_heads < FIG_LATENT_SPEC_HEAD_UNIT || spec->q_heads > FIG_LATENT_SPEC_HEAD_LIMIT ||
        spec->q_heads % FIG_LATENT_SPEC_HEAD_UNIT != 0)
        return fig_fail(FIG_UNSUPPORTED,
                        "spec: q_heads is %" PRId32
                        ", it must be a multiple of %d, limit %d, where latent_dim is %d",
                        spec->q_heads, FIG_LATENT_SPEC_HEAD_UNIT, FIG_LATENT_SPEC_HEAD_LIMIT,
                        FIG_LATENT_SPEC_DIM);
    if (spec->kv_dtype != 0 && spec->kv_dtype != spec->dtype && !is_codes)
        return fig_fail(FIG_UNSUPPORTED,
                        "spec: kv_dtype is %d, a latent cache has the dtype of activations, or "
                        "FIG_E4M3 beside FIG_F16 and FIG_BF16",
                        (int)spec->kv_dtype);
    if (spec->sm_scale == 0.0f)
        return fig_fail(FIG_INVALID, "spec: sm_scale is 0, it must be given where latent_dim is %d",
                        FIG_LATENT_SPEC_DIM);
    if (spec->soft_cap != 0.0f || spec->qk_norm_epsilon != 0.0f)
        return fig_fail(FIG_UNSUPPORTED, "spec: %s is %g, it must be 0 where latent_dim is %d",
                        spec->soft_cap != 0.0f ? "soft_cap" : "qk_norm_epsilon",
                        (double)(spec->soft_cap != 0.0f ? spec->soft_cap : spec->qk_norm_epsilon),
                        FIG_LATENT_SPEC_DIM);
    for (int i = 0; i < 8; i++)
        if (spec->plain_layers[i] != 0)
            return fig_fail(FIG_UNSUPPORTED,
                            "spec: plain_layers is set, it must not be where latent_dim is %d",
                            FIG_LATENT_SPEC_DIM);
    return FIG_OK;
}

int32_t fig_latent_spec_groups(const fig_spec *spec) {
    return spec->q_heads / (spec->row_tokens > FIG_LATENT_SPEC_UNIT_TOKENS
                                ? FIG_LATENT_SPEC_HEAD_PART
                                : FIG_LATENT_SPEC_HEAD_UNIT);
}

fig_status fig_latent_spec_check_rope(const fig_spec *resolved) {
    const int32_t dim = resolved->head_dim - resolved->latent_dim;
    if (resolved->latent_dim == 0) return FIG_OK;
    FIG_TRY(check_only("rope.rotary_dim", resolved->rope.rotary_dim, dim));
    if (resolved->window_rope.theta == 0.0f) return FIG_OK;
    return check_only("window_rope.rotary_dim", resolved->window_rope.rotary_dim, dim);
}

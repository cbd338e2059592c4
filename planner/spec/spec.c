/* spec.c: checks a spec and fills in its defaults.
 *
 * Owns limits and defaults; the models known by name are in presets.c, and graphs/configs reads a
 * config.json. Invariant: for a spec that passes here, every tile count of the planner stays below
 * 2^31 in any variant. */
#include "planner/spec/spec.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "include/figraph_unstable.h"
#include "planner/size.h"
#include "planner/spec/frequencies.h"
#include "planner/spec/head_dims.h"
#include "planner/spec/latent_spec.h"
#include "planner/spec/rope_spec.h"
#include "planner/status.h"

static_assert(sizeof(fig_spec) == 2400, "file format: no byte without a field");
static_assert(8 * sizeof(((fig_spec *)0)->window_layers) == FIG_LAYER_LIMIT,
              "a bit for each layer");

/* The limit of heads times tokens in the largest step. In every variant a tile has at least 16
 * tokens, so a line holds at most 2^34 / 16 full tiles, and one partly filled tile for each row and
 * head: 2^30 + 2^18 tiles in all. A window only removes tiles. */
static const int64_t head_token_limit = INT64_C(1) << 34;

static fig_status check_range(const char *field, int32_t value, int32_t least, int32_t most) {
    if (value >= least && value <= most) return FIG_OK;
    return fig_fail(FIG_INVALID, "spec: %s is %" PRId32 ", limits %" PRId32 " to %" PRId32, field,
                    value, least, most);
}

static fig_status check_real(const char *field, float value) {
    if (isfinite(value) && value >= 0.0f) return FIG_OK;
    return fig_fail(FIG_INVALID, "spec: %s is %g, it must be finite and at least 0", field,
                    (double)value);
}

static const char *dtype_name(fig_dtype dtype) {
    static const char *const names[] = {
        [FIG_F32] = "FIG_F32",   [FIG_F16] = "FIG_F16",   [FIG_BF16] = "FIG_BF16",
        [FIG_E4M3] = "FIG_E4M3", [FIG_E5M2] = "FIG_E5M2", [FIG_I32] = "FIG_I32",
        [FIG_I64] = "FIG_I64"};
    const char *name = dtype < sizeof names / sizeof names[0] ? names[dtype] : NULL;
    return name != NULL ? name : "no dtype";
}

static int is_fp8(fig_dtype dtype) {
    return dtype == FIG_E4M3 || dtype == FIG_E5M2;
}

static fig_status check_dtypes(const fig_spec *spec) {
    const int narrow = spec->dtype == FIG_F16 || spec->dtype == FIG_BF16;
    if (spec->dtype != FIG_F32 && !narrow)
        return fig_fail(FIG_INVALID,
                        "spec: dtype is %d, this library has FIG_F32, FIG_F16 and FIG_BF16",
                        (int)spec->dtype);
    if (spec->kv_dtype != 0 && spec->kv_dtype != spec->dtype && !(narrow && is_fp8(spec->kv_dtype)))
        return fig_fail(
            FIG_INVALID,
            "spec: kv_dtype is %s, but dtype is %s: a cache has that dtype, or FIG_E4M3 "
            "or FIG_E5M2 beside FIG_F16 and FIG_BF16",
            dtype_name(spec->kv_dtype), dtype_name(spec->dtype));
    FIG_TRY(check_range("kv_scales", spec->kv_scales, 0, 1));
    if (spec->kv_scales != 0 && !is_fp8(spec->kv_dtype))
        return fig_fail(FIG_INVALID,
                        "spec: kv_scales is %" PRId32
                        ", it must be 0 where kv_dtype is neither FIG_E4M3 nor FIG_E5M2",
                        spec->kv_scales);
    return FIG_OK;
}

/* Returns 0 for a spec without heads, which serves programs that only work row by row. */
static int has_heads(const fig_spec *spec) {
    return spec->q_heads != 0 || spec->kv_heads != 0 || spec->head_dim != 0;
}

static fig_status check_heads(const fig_spec *spec) {
    if (!has_heads(spec)) return FIG_OK;
    if (spec->latent_dim != 0) return fig_latent_spec_check(spec);
    FIG_TRY(check_range("q_heads", spec->q_heads, 1, FIG_HEAD_LIMIT));
    FIG_TRY(check_range("kv_heads", spec->kv_heads, 1, FIG_HEAD_LIMIT));
    if (spec->q_heads % spec->kv_heads != 0)
        return fig_fail(FIG_INVALID,
                        "spec: q_heads is %" PRId32 ", it must be a multiple of kv_heads, %" PRId32,
                        spec->q_heads, spec->kv_heads);
    if (spec->q_heads / spec->kv_heads > FIG_GROUP_LIMIT)
        return fig_fail(FIG_INVALID,
                        "spec: q_heads is %" PRId32 ", the limit is %d for each of the %" PRId32
                        " kv_heads",
                        spec->q_heads, FIG_GROUP_LIMIT, spec->kv_heads);
    if (fig_head_dims_has(spec->head_dim)) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "spec: head_dim is %" PRId32 ", this library has " FIG_HEAD_DIMS_TEXT,
                    spec->head_dim);
}

static fig_status check_limits(const fig_spec *spec) {
    FIG_TRY(check_range("page_size", spec->page_size, 0, FIG_PAGE_SIZE_LIMIT));
    FIG_TRY(check_range("kv_layout", (int32_t)spec->kv_layout, FIG_NHD, FIG_HND));
    FIG_TRY(check_range("batch_limit", spec->batch_limit, has_heads(spec), FIG_BATCH_LIMIT));
    FIG_TRY(check_range("kv_limit", spec->kv_limit, has_heads(spec), FIG_KV_LIMIT));
    FIG_TRY(check_range("sequence_limit", spec->sequence_limit, 0, FIG_SEQUENCE_LIMIT));
    const int32_t most = spec->query_limit > 0 ? FIG_CHUNK_TOKENS_LIMIT : FIG_ROW_TOKENS_LIMIT;
    FIG_TRY(check_range("row_tokens", spec->row_tokens, 0,
                        has_heads(spec) ? fig_size_min(most, spec->kv_limit) : most));
    if (spec->query_limit < 0 || spec->query_limit > FIG_QUERY_LIMIT)
        return fig_fail(FIG_INVALID, "spec: query_limit is %" PRId64 ", limits 0 to %d",
                        spec->query_limit, FIG_QUERY_LIMIT);
    const int32_t heads = spec->latent_dim != 0 ? fig_latent_spec_groups(spec) : spec->kv_heads;
    int64_t head_tokens = (int64_t)spec->batch_limit * spec->kv_limit * heads;
    if (head_tokens > head_token_limit)
        return fig_fail(FIG_INVALID,
                        "spec: batch_limit * kv_limit * kv_heads is %" PRId64 ", limit %" PRId64,
                        head_tokens, head_token_limit);
    return FIG_OK;
}

static int has_layer(const uint64_t layers[8], int32_t layer) {
    return (int)(layers[layer / 64] >> (layer % 64) & 1);
}

static int has_window(const fig_spec *spec, int32_t layer) {
    return has_layer(spec->window_layers, layer);
}

static int has_window_rope(const fig_spec *spec) {
    static const fig_rope_spec none;
    return memcmp(&spec->window_rope, &none, sizeof none) != 0 ||
           fig_frequencies_has_table(&spec->window_table);
}

static fig_status check_window(const fig_spec *spec) {
    const int32_t layers = spec->layers != 0 ? spec->layers : 1;
    FIG_TRY(check_range("window", spec->window, 0, INT32_MAX));
    for (int32_t layer = 0; layer < FIG_LAYER_LIMIT; layer++) {
        if (!has_window(spec, layer)) continue;
        if (spec->window == 0)
            return fig_fail(FIG_INVALID,
                            "spec: window_layers has layer %" PRId32 ", but window is 0", layer);
        if (layer >= layers)
            return fig_fail(FIG_INVALID,
                            "spec: window_layers has layer %" PRId32 ", but layers is %" PRId32,
                            layer, layers);
    }
    return FIG_OK;
}

/* RoPE and the norm of q and k are one operation, so a layer without RoPE cannot have the norm. */
static fig_status check_plain(const fig_spec *spec) {
    const int32_t layers = spec->layers != 0 ? spec->layers : 1;
    for (int32_t layer = 0; layer < FIG_LAYER_LIMIT; layer++) {
        if (!has_layer(spec->plain_layers, layer)) continue;
        if (layer >= layers)
            return fig_fail(FIG_INVALID,
                            "spec: plain_layers has layer %" PRId32 ", but layers is %" PRId32,
                            layer, layers);
        if (spec->qk_norm_epsilon != 0.0f)
            return fig_fail(FIG_INVALID,
                            "spec: plain_layers has layer %" PRId32
                            ", but qk_norm_epsilon is set, which comes with RoPE",
                            layer);
    }
    return FIG_OK;
}

static fig_status check_dense(const fig_spec *spec) {
    FIG_TRY(
        check_range("dense_layers", spec->dense_layers, 0, spec->layers != 0 ? spec->layers : 1));
    FIG_TRY(check_range("dense_width", spec->dense_width, spec->dense_layers > 0,
                        spec->dense_layers > 0 ? FIG_WIDTH_LIMIT : 0));
    if (spec->dense_width % 8 != 0)
        return fig_fail(FIG_INVALID, "spec: dense_width is %" PRId32 ", it must be a multiple of 8",
                        spec->dense_width);
    if (spec->dense_layers == 0 || spec->ffn_width > 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "spec: dense_layers is %" PRId32 ", but ffn_width is 0",
                    spec->dense_layers);
}

static fig_status check_fields(const fig_spec *spec) {
    FIG_TRY(check_dtypes(spec));
    FIG_TRY(check_range("layers", spec->layers, 0, FIG_LAYER_LIMIT));
    FIG_TRY(check_heads(spec));
    FIG_TRY(check_range("ffn_width", spec->ffn_width, 0, FIG_WIDTH_LIMIT));
    if (spec->ffn_width % 8 != 0)
        return fig_fail(FIG_INVALID, "spec: ffn_width is %" PRId32 ", it must be a multiple of 8",
                        spec->ffn_width);
    FIG_TRY(check_range("ffn_rows", spec->ffn_rows, 0, FIG_FFN_ROWS_LIMIT));
    FIG_TRY(check_dense(spec));
    FIG_TRY(check_range("sinks", spec->sinks, 0, 1));
    FIG_TRY(check_range("activation", (int32_t)spec->activation, FIG_SILU, FIG_SWIGLU_LIMITED));
    FIG_TRY(check_limits(spec));
    FIG_TRY(check_window(spec));
    FIG_TRY(check_plain(spec));
    FIG_TRY(check_real("soft_cap", spec->soft_cap));
    FIG_TRY(check_real("sm_scale", spec->sm_scale));
    FIG_TRY(check_real("latent_norm_epsilon", spec->latent_norm_epsilon));
    if (spec->latent_norm_epsilon > 0.0f && spec->latent_dim == 0)
        return fig_fail(FIG_INVALID, "spec: latent_norm_epsilon is %g, but latent_dim is 0",
                        (double)spec->latent_norm_epsilon);
    return check_real("qk_norm_epsilon", spec->qk_norm_epsilon);
}

/* Leaves a window_rope of all zeros unchanged: it means that layers with a window use the same RoPE
 * as all other layers. */
static fig_status resolve_window_rope(fig_spec *spec) {
    if (!has_window_rope(spec)) return FIG_OK;
    FIG_TRY(
        fig_rope_spec_resolve(&spec->window_rope, fig_spec_turning_dim(spec), &spec->window_rope));
    return fig_frequencies_resolve("window_table", &spec->window_rope, &spec->window_table);
}

/* Sets the bits of all layers if no bit of window_layers is set: every layer then has the
 * window. */
static void resolve_window_layers(fig_spec *spec) {
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        if (has_window(spec, layer)) return;
    }
    for (int32_t layer = 0; spec->window > 0 && layer < spec->layers; layer++)
        spec->window_layers[layer / 64] |= UINT64_C(1) << (layer % 64);
}

fig_status fig_spec_resolve(const fig_spec *spec, fig_spec *out) {
    fig_spec resolved;
    fig_status status = fig_status_take_options(&resolved, sizeof resolved, spec, "fig_spec");
    memset(out, 0, sizeof *out);
    FIG_TRY(status);
    FIG_TRY(check_fields(&resolved));
    FIG_TRY(fig_rope_spec_resolve(&resolved.rope, fig_spec_turning_dim(&resolved), &resolved.rope));
    FIG_TRY(fig_frequencies_resolve("rope_table", &resolved.rope, &resolved.rope_table));
    FIG_TRY(resolve_window_rope(&resolved));
    FIG_TRY(fig_latent_spec_check_rope(&resolved));
    if (resolved.kv_dtype == 0) resolved.kv_dtype = resolved.dtype;
    if (resolved.layers == 0) resolved.layers = 1;
    if (resolved.row_tokens == 0) resolved.row_tokens = 1;
    if (resolved.ffn_rows == 0) resolved.ffn_rows = 1;
    if (resolved.batch_limit == 0) resolved.batch_limit = 1;
    if (resolved.kv_limit == 0) resolved.kv_limit = 1;
    resolve_window_layers(&resolved);
    if (resolved.sequence_limit == 0) resolved.sequence_limit = resolved.batch_limit;
    if (resolved.sm_scale == 0.0f && resolved.head_dim > 0)
        resolved.sm_scale = (float)(1.0 / sqrt((double)resolved.head_dim));
    *out = resolved;
    return FIG_OK;
}

int32_t fig_spec_turning_dim(const fig_spec *spec) {
    return spec->head_dim - spec->latent_dim;
}

int32_t fig_spec_page_tokens(const fig_spec *resolved) {
    return resolved->page_size != 0 ? resolved->page_size : resolved->kv_limit;
}

int32_t fig_spec_sequence_pages(const fig_spec *resolved) {
    return fig_size_ceil_div(resolved->kv_limit, fig_spec_page_tokens(resolved));
}

/* Returns 0 for a window as long as the longest sequence: such a window hides nothing, so its
 * layers are split like layers without a window. */
int32_t fig_spec_layer_window(const fig_spec *resolved, int32_t layer) {
    assert(layer >= 0 && layer < resolved->layers);
    if (resolved->window >= resolved->kv_limit) return 0;
    return has_window(resolved, layer) ? resolved->window : 0;
}

fig_spec_turns fig_spec_layer_rope(const fig_spec *resolved, int32_t layer) {
    assert(layer >= 0 && layer < resolved->layers);
    if (has_window(resolved, layer) && has_window_rope(resolved))
        return (fig_spec_turns){&resolved->window_rope, &resolved->window_table};
    return (fig_spec_turns){&resolved->rope, &resolved->rope_table};
}

int fig_spec_layer_turns(const fig_spec *resolved, int32_t layer) {
    assert(layer >= 0 && layer < resolved->layers);
    return !has_layer(resolved->plain_layers, layer);
}

fig_spec_ffn fig_spec_layer_ffn(const fig_spec *resolved, int32_t layer) {
    assert(layer >= 0 && layer < resolved->layers);
    if (layer < resolved->dense_layers) return (fig_spec_ffn){resolved->dense_width, 1};
    return (fig_spec_ffn){resolved->ffn_width, resolved->ffn_rows};
}

fig_status fig_spec_check(const fig_spec *spec) {
    fig_spec resolved;
    return fig_spec_resolve(spec, &resolved);
}

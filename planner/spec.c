/* spec.c: what a spec may say, and what it says where it is silent.
 *
 * Owns limits, defaults and presets; reading a config.json is elsewhere. Invariant: a spec that
 * passes here keeps every tile count of the planner, in any variant, below 2^31. */
#include "planner/spec.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

/* Heads times tokens of the largest step. No variant's tile is smaller than 16 tokens, so a line
 * holds at most 2^34 / 16 tiles and one part of a tile for each row and head: 2^30 + 2^18. */
static const int64_t head_token_limit = INT64_C(1) << 34;

static const fig_spec tutorial = {
    .size = sizeof(fig_spec),
    .dtype = FIG_F16,
    .q_heads = 16,
    .kv_heads = 4,
    .head_dim = 64,
    .ffn_width = 64,
    .page_size = 16,
    .batch_limit = 8,
    .kv_limit = 512,
};

static const fig_spec llama_3_1_8b = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .q_heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn_width = 14336,
    .page_size = 16,
    .batch_limit = 256,
    .kv_limit = 131072,
    .rope = {.theta = 500000.0f,
             .llama3_factor = 8.0f,
             .llama3_low = 1.0f,
             .llama3_high = 4.0f,
             .llama3_context = 8192},
};

static const struct preset {
    const char *name;
    const fig_spec *spec;
    int32_t layers;
} presets[] = {
    {"tutorial", &tutorial, 1},
    {"llama-3.1-8b", &llama_3_1_8b, 32},
    {"llama-3.1-8b-layer", &llama_3_1_8b, 1},
};
enum { PRESET_COUNT = sizeof presets / sizeof presets[0] };

static fig_status check_range(const char *field, int32_t value, int32_t least, int32_t most) {
    if (value >= least && value <= most) return FIG_OK;
    return fig_fail(FIG_INVALID, "spec: %s is %" PRId32 ", limits %" PRId32 " to %" PRId32, field,
                    value, least, most);
}

static fig_status check_heads(const fig_spec *spec) {
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
    if (spec->head_dim != 64 && spec->head_dim != 128)
        return fig_fail(FIG_INVALID, "spec: head_dim is %" PRId32 ", this library has 64 and 128",
                        spec->head_dim);
    return FIG_OK;
}

static fig_status check_limits(const fig_spec *spec) {
    FIG_TRY(check_range("page_size", spec->page_size, 0, FIG_PAGE_SIZE_LIMIT));
    FIG_TRY(check_range("batch_limit", spec->batch_limit, 1, FIG_BATCH_LIMIT));
    FIG_TRY(check_range("kv_limit", spec->kv_limit, 1, FIG_KV_LIMIT));
    FIG_TRY(check_range("sequence_limit", spec->sequence_limit, 0, FIG_SEQUENCE_LIMIT));
    int64_t head_tokens = (int64_t)spec->batch_limit * spec->kv_limit * spec->kv_heads;
    if (head_tokens > head_token_limit)
        return fig_fail(FIG_INVALID,
                        "spec: batch_limit * kv_limit * kv_heads is %" PRId64 ", limit %" PRId64,
                        head_tokens, head_token_limit);
    return FIG_OK;
}

static fig_status check_fields(const fig_spec *spec) {
    if (spec->dtype != FIG_F32 && spec->dtype != FIG_F16 && spec->dtype != FIG_BF16)
        return fig_fail(FIG_INVALID,
                        "spec: dtype is %d, this library has FIG_F32, FIG_F16 and FIG_BF16",
                        (int)spec->dtype);
    FIG_TRY(check_range("layers", spec->layers, 0, FIG_LAYER_LIMIT));
    FIG_TRY(check_heads(spec));
    FIG_TRY(check_range("ffn_width", spec->ffn_width, 0, FIG_WIDTH_LIMIT));
    if (spec->ffn_width % 8 != 0)
        return fig_fail(FIG_INVALID, "spec: ffn_width is %" PRId32 ", it must be a multiple of 8",
                        spec->ffn_width);
    FIG_TRY(check_limits(spec));
    if (!isfinite(spec->sm_scale) || spec->sm_scale < 0.0f)
        return fig_fail(FIG_INVALID, "spec: sm_scale is %g, it must be finite and at least 0",
                        (double)spec->sm_scale);
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

/* `value` of 0 is the caller's default. */
static fig_status check_positive(const char *field, float value) {
    if (isfinite(value) && value >= 0.0f) return FIG_OK;
    return fig_fail(FIG_INVALID, "rope: %s is %g, it must be finite and above 0", field,
                    (double)value);
}

fig_status fig_spec_resolve_rope(const fig_rope_spec *rope, fig_rope_spec *out) {
    fig_rope_spec resolved = *rope;
    memset(out, 0, sizeof *out);
    if (resolved.interleaved != 0 && resolved.interleaved != 1)
        return fig_fail(FIG_INVALID, "rope: interleaved is %" PRId32 ", it must be 0 or 1",
                        resolved.interleaved);
    FIG_TRY(check_positive("theta", resolved.theta));
    FIG_TRY(check_positive("scale", resolved.scale));
    FIG_TRY(check_llama3(&resolved));
    if (resolved.theta == 0.0f) resolved.theta = 10000.0f;
    if (resolved.scale == 0.0f) resolved.scale = 1.0f;
    *out = resolved;
    return FIG_OK;
}

fig_status fig_spec_resolve(const fig_spec *spec, fig_spec *out) {
    fig_spec resolved;
    fig_status status = fig_status_take_options(&resolved, sizeof resolved, spec, "fig_spec");
    memset(out, 0, sizeof *out);
    FIG_TRY(status);
    FIG_TRY(check_fields(&resolved));
    FIG_TRY(fig_spec_resolve_rope(&resolved.rope, &resolved.rope));
    if (resolved.layers == 0) resolved.layers = 1;
    if (resolved.sequence_limit == 0) resolved.sequence_limit = resolved.batch_limit;
    if (resolved.sm_scale == 0.0f)
        resolved.sm_scale = (float)(1.0 / sqrt((double)resolved.head_dim));
    *out = resolved;
    return FIG_OK;
}

int32_t fig_spec_page_tokens(const fig_spec *resolved) {
    return resolved->page_size != 0 ? resolved->page_size : resolved->kv_limit;
}

int32_t fig_spec_sequence_pages(const fig_spec *resolved) {
    return fig_size_ceil_div(resolved->kv_limit, fig_spec_page_tokens(resolved));
}

fig_status fig_spec_preset(fig_spec *spec, const char *name) {
    char known[128] = "";
    memset(spec, 0, sizeof *spec);
    for (int i = 0; i < PRESET_COUNT; i++) {
        if (name != NULL && strcmp(name, presets[i].name) == 0) {
            *spec = *presets[i].spec;
            spec->layers = presets[i].layers;
            return FIG_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", presets[i].name);
    }
    return fig_fail(FIG_INVALID, "preset %s is unknown, there are %s", name != NULL ? name : "NULL",
                    known);
}

const char *fig_spec_preset_name(int32_t index) {
    return index >= 0 && index < PRESET_COUNT ? presets[index].name : NULL;
}

fig_status fig_spec_check(const fig_spec *spec) {
    fig_spec resolved;
    return fig_spec_resolve(spec, &resolved);
}

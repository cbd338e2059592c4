/* config_latent.c: reads the fields of a config.json that describe latent attention (MLA).
 *
 * Owns what the families of DeepSeek state in their code: the scale of logits follows from the
 * heads before they are multiplied by kv_b_proj, and from yarn's mscale_all_dim; the latent's norm
 * has the epsilon 1e-6, whatever rms_norm_eps is. Invariant: that of config.c. */
#include "graphs/configs/config_latent.h"

#include <math.h>
#include <stdio.h>

#include "planner/spec/latent_spec.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

#define LATENT_NORM_EPSILON 1e-6f

static const fig_document_range any_count = {1, INT32_MAX}, head_range = {1, FIG_HEAD_LIMIT};

/* Fails unless a field has the only value that this library serves. */
static fig_status need_only(const fig_document *config, const char *field, int32_t only) {
    char wrong[FIG_DOCUMENT_TEXT];
    int32_t value;
    FIG_TRY(fig_document_need_integer(config, field, any_count, &value));
    if (value == only) return FIG_OK;
    snprintf(wrong, sizeof wrong, "this library has %d", (int)only);
    return fig_document_refuse(config, field, FIG_UNSUPPORTED, wrong);
}

fig_status fig_config_latent_read_heads(const fig_document *config, fig_spec *spec) {
    FIG_TRY(fig_document_need_integer(config, "num_attention_heads", head_range, &spec->q_heads));
    FIG_TRY(need_only(config, "kv_lora_rank", FIG_LATENT_SPEC_DIM));
    FIG_TRY(need_only(config, "qk_rope_head_dim", FIG_LATENT_SPEC_KEY_DIM - FIG_LATENT_SPEC_DIM));
    spec->kv_heads = 1;
    spec->head_dim = FIG_LATENT_SPEC_KEY_DIM;
    spec->latent_dim = FIG_LATENT_SPEC_DIM;
    spec->latent_norm_epsilon = LATENT_NORM_EPSILON;
    return FIG_OK;
}

fig_status fig_config_latent_read_dense(const fig_document *config, fig_spec *spec) {
    const fig_document_range layers = {0, FIG_LAYER_LIMIT}, widths = {1, FIG_WIDTH_LIMIT};
    int32_t dense, width;
    FIG_TRY(fig_document_need_integer(config, "first_k_dense_replace", layers, &dense));
    if (dense == 0) return FIG_OK;
    FIG_TRY(fig_document_need_integer(config, "intermediate_size", widths, &width));
    if (dense >= spec->layers) {
        spec->ffn_width = width;
        spec->ffn_rows = 0;
        return FIG_OK;
    }
    spec->dense_layers = dense;
    spec->dense_width = width;
    return FIG_OK;
}

/* Reads yarn's factor for the scale of logits: the square of 0.1 mscale_all_dim ln factor + 1. */
static fig_status read_mscale(const fig_document *config, double *mscale) {
    static const char *const fields[] = {"rope_parameters", "rope_scaling"};
    fig_document rope;
    float all = 0, factor = 0;
    *mscale = 1;
    for (int i = 0; i < 2; i++) {
        if (fig_document_find(config, fields[i]) == NULL) continue;
        FIG_TRY(fig_document_enter(config, fields[i], &rope));
        FIG_TRY(fig_document_read_real(&rope, "mscale_all_dim", &all));
        FIG_TRY(fig_document_read_real(&rope, "factor", &factor));
    }
    if (all > 0 && factor > 1) *mscale = 0.1 * (double)all * log((double)factor) + 1;
    return FIG_OK;
}

fig_status fig_config_latent_read_logits(const fig_document *config, fig_spec *spec) {
    int32_t plain, turned = FIG_LATENT_SPEC_KEY_DIM - FIG_LATENT_SPEC_DIM;
    int interleaved = 1;
    double mscale;
    FIG_TRY(fig_document_need_integer(config, "qk_nope_head_dim", any_count, &plain));
    FIG_TRY(read_mscale(config, &mscale));
    FIG_TRY(fig_document_read_truth(config, "rope_interleave", &interleaved));
    spec->sm_scale = (float)(mscale * mscale / sqrt((double)plain + turned));
    spec->rope.interleaved = interleaved;
    return FIG_OK;
}

/* config_cache.c: reads how a config.json's quantization_config stores caches.
 *
 * The rest of quantization_config describes weights, which are the caller's task. Invariant: if
 * this library cannot store caches as a file requires, reading fails with a message that names the
 * field, because a step over caches of another type would not compute the model. */
#include "graphs/configs/config_cache.h"

#include <string.h>

#include "graphs/configs/config_fields.h"
#include "planner/status.h"

/* The fields of a scheme that this library reads, and those on which a step does not depend. The
 * list ends with NULL. */
static const char *const scheme_fields[] = {"num_bits", "type",        "strategy",
                                            "observer", "symmetric",   "observer_kwargs",
                                            "zp_dtype", "scale_dtype", NULL};

static fig_status refuse_unknown(const fig_document *scheme) {
    const char *field;
    json_t *value;
    json_object_foreach(scheme->object, field, value) {
        int i = 0;
        while (scheme_fields[i] != NULL && strcmp(field, scheme_fields[i]) != 0)
            i++;
        if (scheme_fields[i] == NULL && fig_config_fields_ask(value) &&
            !fig_document_ignores(scheme, field))
            return fig_document_refuse(scheme, field, FIG_UNSUPPORTED,
                                       "which this library's caches do not do");
    }
    return FIG_OK;
}

/* Eight bits of type float mean e4m3 with fixed scales: one per tensor, or one per head. */
static fig_status read_scheme(const fig_document *scheme, fig_spec *spec) {
    static const fig_document_range eight = {8, 8};
    const char *type, *strategy = "tensor";
    int32_t bits;
    int symmetric = 1;
    FIG_TRY(refuse_unknown(scheme));
    FIG_TRY(fig_document_need_integer(scheme, "num_bits", eight, &bits));
    FIG_TRY(fig_document_need_text(scheme, "type", &type));
    if (strcmp(type, "float") != 0)
        return fig_document_refuse(scheme, "type", FIG_UNSUPPORTED, "this library has float");
    FIG_TRY(fig_document_read_truth(scheme, "symmetric", &symmetric));
    if (!symmetric)
        return fig_document_refuse(scheme, "symmetric", FIG_UNSUPPORTED, "this library has true");
    if (fig_document_find(scheme, "strategy") != NULL)
        FIG_TRY(fig_document_need_text(scheme, "strategy", &strategy));
    spec->kv_dtype = FIG_E4M3;
    spec->kv_scales = strcmp(strategy, "attn_head") == 0;
    if (spec->kv_scales || strcmp(strategy, "tensor") == 0) return FIG_OK;
    return fig_document_refuse(scheme, "strategy", FIG_UNSUPPORTED,
                               "this library has tensor and attn_head");
}

fig_status fig_config_cache_read(const fig_document *config, fig_spec *spec) {
    static const char prefix[] = "kv_cache", field[] = "kv_cache_scheme";
    fig_document quantization, scheme;
    const char *name;
    json_t *value;
    if (fig_document_find(config, "quantization_config") == NULL) return FIG_OK;
    FIG_TRY(fig_document_enter(config, "quantization_config", &quantization));
    json_object_foreach(quantization.object, name, value) {
        if (strncmp(name, prefix, sizeof prefix - 1) == 0 && strcmp(name, field) != 0 &&
            fig_config_fields_ask(value) && !fig_document_ignores(&quantization, name))
            return fig_document_refuse(&quantization, name, FIG_UNSUPPORTED,
                                       "this library reads kv_cache_scheme alone");
    }
    if (fig_document_find(&quantization, field) == NULL) return FIG_OK;
    FIG_TRY(fig_document_enter(&quantization, field, &scheme));
    return read_scheme(&scheme, spec);
}

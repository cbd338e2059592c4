/* config_rope.c: reads the RoPE of a config.json.
 *
 * Owns the spellings of a file's rope object and the parameters of each RoPE type; figraph_rope.h
 * computes frequencies. Invariant: reading fails if a parameter does not belong to the RoPE type,
 * because the parameter would change the angles in a way that this library does not know. */
#include "graphs/configs/config_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "include/figraph_rope.h"
#include "planner/spec/frequencies.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

static const fig_document_range any_count = {1, INT32_MAX};

/* The RoPE of one kind of layer, while it is read. */
typedef struct turns {
    fig_rope_spec rope;
    fig_rope_table table;
    float partial;  /* the fraction of head_dim that is rotated */
    int32_t tokens; /* the length of the longest sequence */
} turns;

/* The object with the RoPE parameters, which may be the file itself. */
typedef struct source {
    const fig_document *config, *from;
    int32_t head_dim;
} source;

/* ---- Types */

/* Reads the length of the context before scaling: from the rope object, else from the file. If
 * neither has it, this is the model's whole context. */
static fig_status read_context(const source *s, int32_t *context) {
    static const char field[] = "original_max_position_embeddings";
    *context = 0;
    FIG_TRY(fig_document_read_integer(s->from, field, any_count, context));
    if (*context == 0) FIG_TRY(fig_document_read_integer(s->config, field, any_count, context));
    if (*context > 0) return FIG_OK;
    return fig_document_need_integer(s->config, "max_position_embeddings", any_count, context);
}

/* Applies the scaling. If figraph_rope.h refuses the scaling, the file is wrong. */
static fig_status scale(const source *s, const fig_rope_scaling *scaling, turns *read) {
    const fig_status status = fig_rope_scale(&read->table, &read->rope, s->head_dim, scaling);
    if (status == FIG_OK) return FIG_OK;
    return fig_fail(status, "%s: %s%s", s->config->path, s->from->name, fig_message());
}

static fig_status read_nothing(const source *s, turns *read) {
    (void)s;
    (void)read;
    return FIG_OK;
}

/* Checks the sections. A decoded token has the same position in every section, so sections do not
 * change the token's angles. */
static fig_status read_sections(const source *s, turns *read) {
    const json_t *sections = fig_document_find(s->from, "mrope_section");
    json_int_t sum = 0;
    if (sections == NULL) return FIG_OK;
    for (size_t i = 0; i < json_array_size(sections); i++)
        sum += json_integer_value(json_array_get(sections, i));
    const int32_t turning = read->rope.rotary_dim != 0 ? read->rope.rotary_dim : s->head_dim;
    if (sum == turning / 2) return FIG_OK;
    return fig_document_refuse(s->from, "mrope_section", FIG_INVALID,
                               "its sections must add up to all pairs that are rotated");
}

static fig_status need_sections(const source *s, turns *read) {
    FIG_TRY(fig_document_need(s->from, "mrope_section"));
    return read_sections(s, read);
}

static fig_status read_linear(const source *s, turns *read) {
    return fig_document_need_real(s->from, "factor", &read->rope.scale);
}

static fig_status read_llama3(const source *s, turns *read) {
    fig_rope_spec *rope = &read->rope;
    FIG_TRY(fig_document_need_real(s->from, "factor", &rope->llama3_factor));
    FIG_TRY(fig_document_need_real(s->from, "low_freq_factor", &rope->llama3_low));
    FIG_TRY(fig_document_need_real(s->from, "high_freq_factor", &rope->llama3_high));
    return fig_document_need_integer(s->from, "original_max_position_embeddings", any_count,
                                     &rope->llama3_context);
}

static fig_status read_dynamic(const source *s, turns *read) {
    fig_rope_scaling scaling = {
        .size = sizeof scaling, .kind = FIG_ROPE_DYNAMIC, .tokens = read->tokens};
    FIG_TRY(fig_document_need_real(s->from, "factor", &scaling.factor));
    FIG_TRY(read_context(s, &scaling.context));
    return scale(s, &scaling, read);
}

static fig_status read_yarn(const source *s, turns *read) {
    fig_rope_scaling scaling = {.size = sizeof scaling, .kind = FIG_ROPE_YARN};
    int rounds = 1;
    FIG_TRY(fig_document_need_real(s->from, "factor", &scaling.factor));
    FIG_TRY(read_context(s, &scaling.context));
    FIG_TRY(fig_document_read_real(s->from, "beta_fast", &scaling.beta_fast));
    FIG_TRY(fig_document_read_real(s->from, "beta_slow", &scaling.beta_slow));
    FIG_TRY(fig_document_read_real(s->from, "mscale", &scaling.mscale));
    FIG_TRY(fig_document_read_real(s->from, "mscale_all_dim", &scaling.mscale_all));
    FIG_TRY(fig_document_read_real(s->from, "attention_factor", &scaling.attention_factor));
    FIG_TRY(fig_document_read_truth(s->from, "truncate", &rounds));
    scaling.keeps_fractions = !rounds;
    return scale(s, &scaling, read);
}

/* Reads a field that must have `count` numbers above 0. */
static fig_status need_factors(const source *s, const char *field, int32_t count,
                               float factors[FIG_FREQUENCY_LIMIT]) {
    const json_t *array = fig_document_find(s->from, field);
    char wrong[FIG_DOCUMENT_TEXT];
    snprintf(wrong, sizeof wrong, "it must be an array of %d numbers above 0", (int)count);
    if (array == NULL) return fig_document_refuse_missing(s->from, field);
    if (json_array_size(array) != (size_t)count)
        return fig_document_refuse(s->from, field, FIG_INVALID, wrong);
    for (int32_t i = 0; i < count; i++) {
        factors[i] = (float)json_number_value(json_array_get(array, (size_t)i));
        if (!isfinite(factors[i]) || factors[i] <= 0.0f)
            return fig_document_refuse(s->from, field, FIG_INVALID, wrong);
    }
    return FIG_OK;
}

static fig_status read_longrope(const source *s, turns *read) {
    float brief[FIG_FREQUENCY_LIMIT], far[FIG_FREQUENCY_LIMIT];
    fig_rope_scaling scaling = {.size = sizeof scaling,
                                .kind = FIG_ROPE_LONGROPE,
                                .tokens = read->tokens,
                                .short_factors = brief,
                                .long_factors = far};
    const int32_t turning = read->rope.rotary_dim != 0 ? read->rope.rotary_dim : s->head_dim;
    int32_t positions = 0;
    if (turning > 2 * FIG_FREQUENCY_LIMIT) return FIG_OK; /* the spec's check refuses it */
    FIG_TRY(need_factors(s, "short_factor", turning / 2, brief));
    FIG_TRY(need_factors(s, "long_factor", turning / 2, far));
    FIG_TRY(read_context(s, &scaling.context));
    FIG_TRY(fig_document_read_real(s->from, "factor", &scaling.factor));
    FIG_TRY(fig_document_read_real(s->from, "attention_factor", &scaling.attention_factor));
    FIG_TRY(fig_document_need_integer(s->config, "max_position_embeddings", any_count, &positions));
    if (scaling.factor == 0)
        scaling.factor = fmaxf((float)positions / (float)scaling.context, 1.0f);
    return scale(s, &scaling, read);
}

enum { PARAMETER_LIMIT = 10 };
static const struct rope_type {
    const char *name;
    fig_status (*read)(const source *s, turns *read);
    const char *parameters[PARAMETER_LIMIT]; /* besides the shared ones; ends with NULL */
} rope_types[] = {
    {"default", read_sections, {"mrope_section", "mrope_interleaved", NULL}},
    {"mrope", need_sections, {"mrope_section", "mrope_interleaved", NULL}},
    {"linear", read_linear, {"factor", NULL}},
    {"dynamic", read_dynamic, {"factor", "original_max_position_embeddings", NULL}},
    {"llama3",
     read_llama3,
     {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL}},
    {"yarn",
     read_yarn,
     {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale",
      "mscale_all_dim", "attention_factor", "truncate", "finetuned", NULL}},
    {"longrope",
     read_longrope,
     {"factor", "original_max_position_embeddings", "short_factor", "long_factor",
      "attention_factor", NULL}},
    {"su",
     read_longrope,
     {"factor", "original_max_position_embeddings", "short_factor", "long_factor",
      "attention_factor", NULL}},
};
enum { ROPE_TYPE_COUNT = sizeof rope_types / sizeof rope_types[0] };
static const struct rope_type no_type = {"", read_nothing, {NULL}};
static const char *const shared_parameters[] = {"rope_type", "type", "rope_theta",
                                                "partial_rotary_factor", NULL};

/* Reads the RoPE type. rope_type is the newer spelling of type; a file may hold both. A file that
 * was saved again may have an older "mrope" beside "default"; for a decoded token both mean the
 * same. */
static fig_status read_type(const fig_document *from, const struct rope_type **type) {
    const char *field = fig_document_find(from, "rope_type") != NULL ? "rope_type" : "type";
    const json_t *older = fig_document_find(from, "type");
    const char *name;
    if (fig_document_find(from, field) == NULL)
        return fig_document_refuse_missing(from, "rope_type");
    FIG_TRY(fig_document_need_text(from, field, &name));
    const int renamed = strcmp(name, "default") == 0 && json_is_string(older) &&
                        strcmp(json_string_value(older), "mrope") == 0;
    if (older != NULL && !renamed && !json_equal(fig_document_find(from, field), older))
        return fig_document_refuse(from, "type", FIG_INVALID, "but rope_type differs");
    for (int i = 0; i < ROPE_TYPE_COUNT; i++) {
        *type = &rope_types[i];
        if (strcmp(name, rope_types[i].name) == 0) return FIG_OK;
    }
    return fig_document_refuse(from, field, FIG_UNSUPPORTED,
                               "this library has default, mrope, linear, dynamic, llama3, yarn and "
                               "longrope");
}

static int is_listed(const char *const *names, const char *name) {
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

static fig_status refuse_unknown(const fig_document *from, const struct rope_type *type) {
    const char *name;
    json_t *value;
    json_object_foreach(from->object, name, value) {
        char wrong[FIG_DOCUMENT_TEXT];
        const int is_read = is_listed(shared_parameters, name) || is_listed(type->parameters, name);
        const int is_ignored = fig_document_ignores(from, name);
        if (is_read && is_ignored)
            return fig_document_refuse(from, name, FIG_INVALID, "and cannot be ignored");
        if (json_is_null(value) || is_read || is_ignored) continue;
        snprintf(wrong, sizeof wrong, "which this library does not support for rope type %s",
                 type->name);
        return fig_document_refuse(from, name, FIG_UNSUPPORTED, wrong);
    }
    return FIG_OK;
}

/* ---- One kind of layer */

/* Each of the two fields may be in the file, in its rope object, or in both with the same value. */
static fig_status read_shared(const source *s, const fig_config_rope *family, turns *read) {
    turns outer = *read;
    FIG_TRY(fig_document_read_real(s->config, "rope_theta", &outer.rope.theta));
    FIG_TRY(fig_document_read_real(s->config, "partial_rotary_factor", &outer.partial));
    if (family->part != NULL)
        FIG_TRY(fig_document_read_real(s->config, family->part, &outer.partial));
    read->rope.theta = outer.rope.theta;
    read->partial = outer.partial;
    FIG_TRY(fig_document_read_real(s->from, "rope_theta", &read->rope.theta));
    FIG_TRY(fig_document_read_real(s->from, "partial_rotary_factor", &read->partial));
    if (fig_document_find(s->config, "rope_theta") != NULL && read->rope.theta != outer.rope.theta)
        return fig_document_refuse(s->from, "rope_theta", FIG_INVALID,
                                   "but rope_theta outside of it differs");
    if (fig_document_find(s->config, "partial_rotary_factor") != NULL &&
        read->partial != outer.partial)
        return fig_document_refuse(s->from, "partial_rotary_factor", FIG_INVALID,
                                   "but partial_rotary_factor outside of it differs");
    if (read->rope.theta == 0.0f) return fig_document_refuse_missing(s->config, "rope_theta");
    return FIG_OK;
}

static fig_status take_rotary_dim(const source *s, const fig_config_rope *family, turns *read) {
    const float rotary_dim = (float)s->head_dim * read->partial;
    const float pairs = roundf(rotary_dim / 2);
    const int within = fig_document_find(s->from, "partial_rotary_factor") != NULL;
    const fig_document *at = within ? s->from : s->config;
    if (family->partial) FIG_TRY(fig_document_need(at, "partial_rotary_factor"));
    if (read->partial > 1.0f || pairs < 1 || fabsf(rotary_dim - 2 * pairs) > 1e-3f)
        return fig_document_refuse(at, "partial_rotary_factor", FIG_INVALID,
                                   "it must be at most 1 and leave an even part of head_dim");
    if (read->partial != 1.0f) read->rope.rotary_dim = 2 * (int32_t)pairs;
    return FIG_OK;
}

static fig_status read_turns(const source *s, const fig_config_rope *family, turns *read) {
    const struct rope_type *type = &no_type;
    read->rope =
        (fig_rope_spec){.interleaved = family->interleaved, .theta = family->theta, .scale = 1.0f};
    read->partial = 1.0f;
    if (s->from != s->config) {
        FIG_TRY(read_type(s->from, &type));
        FIG_TRY(refuse_unknown(s->from, type));
    }
    FIG_TRY(read_shared(s, family, read));
    FIG_TRY(take_rotary_dim(s, family, read));
    return type->read(s, read);
}

/* ---- All layers */

/* Finds the rope object. rope_parameters is the newer form: rope_scaling with rope_theta inside. */
static fig_status find_object(const fig_document *config, fig_document *object) {
    const int newer = fig_document_find(config, "rope_parameters") != NULL;
    const char *field = newer ? "rope_parameters" : "rope_scaling";
    object->object = NULL;
    if (fig_document_find(config, field) == NULL) return FIG_OK;
    if (newer && fig_document_find(config, "rope_scaling") != NULL)
        return fig_document_refuse(config, "rope_scaling", FIG_INVALID,
                                   "rope_parameters is given as well");
    return fig_document_enter(config, field, object);
}

/* Reads a rope object that contains one object for each type of layer. */
static fig_status read_both(const source *s, const fig_config_rope *family, turns *all,
                            turns *window) {
    fig_document full, sliding;
    const char *name;
    json_t *value;
    json_object_foreach(s->from->object, name, value) {
        if (strcmp(name, "full_attention") != 0 && strcmp(name, "sliding_attention") != 0)
            return fig_document_refuse(s->from, name, FIG_UNSUPPORTED,
                                       "beside full_attention and sliding_attention");
    }
    FIG_TRY(fig_document_need(s->from, "sliding_attention"));
    FIG_TRY(fig_document_enter(s->from, "full_attention", &full));
    FIG_TRY(fig_document_enter(s->from, "sliding_attention", &sliding));
    FIG_TRY(read_turns(&(source){s->config, &full, s->head_dim}, family, all));
    return read_turns(&(source){s->config, &sliding, s->head_dim}, family, window);
}

/* Layers with a window use the file's RoPE without its scaling. */
static fig_status read_window(const source *s, const fig_config_rope *family, const turns *all,
                              turns *window) {
    *window = *all;
    memset(&window->table, 0, sizeof window->table);
    window->rope = (fig_rope_spec){.interleaved = all->rope.interleaved,
                                   .rotary_dim = all->rope.rotary_dim,
                                   .theta = all->rope.theta,
                                   .scale = 1.0f};
    if (family->window_theta == NULL) return FIG_OK;
    return fig_document_need_real(s->config, family->window_theta, &window->rope.theta);
}

fig_status fig_config_rope_read(const fig_document *config, const fig_config_rope *family,
                                fig_spec *spec) {
    fig_document object;
    int32_t positions = 0;
    turns all = {.tokens = spec->kv_limit}, window = all;
    FIG_TRY(fig_document_read_integer(config, "max_position_embeddings", any_count, &positions));
    if (all.tokens == 0) all.tokens = positions < FIG_KV_LIMIT ? positions : FIG_KV_LIMIT;
    window.tokens = all.tokens;
    FIG_TRY(find_object(config, &object));
    const source s = {config, object.object != NULL ? &object : config, fig_spec_turning_dim(spec)};
    const int has_both = object.object != NULL && fig_document_find(&object, "full_attention");
    memset(&spec->window_rope, 0, sizeof spec->window_rope);
    memset(&spec->window_table, 0, sizeof spec->window_table);
    if (has_both) {
        FIG_TRY(read_both(&s, family, &all, &window));
    } else {
        FIG_TRY(read_turns(&s, family, &all));
        if (family->window) FIG_TRY(read_window(&s, family, &all, &window));
    }
    spec->rope = all.rope;
    spec->rope_table = all.table;
    if (!has_both && !family->window) return FIG_OK;
    spec->window_rope = window.rope;
    spec->window_table = window.table;
    return FIG_OK;
}

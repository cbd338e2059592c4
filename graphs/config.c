/* config.c: a spec's fields from a Hugging Face config.json.
 *
 * Owns what the fields of such a file mean to a decode step; limits and defaults of a spec are
 * planner/spec.c's. Invariant: what the file asks for and this library lacks is refused by name, so
 * that no step is planned for another model than the one described. */
#include "include/figraph.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/spec.h"
#include "planner/status.h"

enum { CONFIG_BYTES_LIMIT = 1 << 20, FIELD_BYTES = 96 };

/* An object of the file; `name` leads to it: "" or "rope_scaling.". */
typedef struct source {
    const char *path;
    const char *name;
    json_t *object;
} source;

/* ---- Values */

/* "128", "\"yarn\"", "{...}": a value as a sentence shows it. */
static void show(const json_t *value, char text[FIELD_BYTES]) {
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(text, FIELD_BYTES, "%s", dump != NULL ? dump : "too large to show");
    free(dump);
}

static fig_status refuse(fig_status status, const source *from, const char *field,
                         const char *expected) {
    char text[FIELD_BYTES];
    show(json_object_get(from->object, field), text);
    return fig_fail(status, "%s: %s%s is %s, %s", from->path, from->name, field, text, expected);
}

/* NULL: absent, which is how null reads. */
static json_t *find(const source *from, const char *field) {
    json_t *value = json_object_get(from->object, field);
    return json_is_null(value) ? NULL : value;
}

static fig_status refuse_missing(const source *from, const char *field) {
    return fig_fail(FIG_INVALID, "%s: %s%s is missing", from->path, from->name, field);
}

/* An integer of [1, limit]; *value stays as it is where the field is absent. */
static fig_status read_count(const source *from, const char *field, int64_t limit, int32_t *value) {
    const json_t *found = find(from, field);
    char expected[FIELD_BYTES];
    if (found == NULL) return FIG_OK;
    snprintf(expected, sizeof expected, "it must be an integer of 1 to %" PRId64, limit);
    const json_int_t count = json_integer_value(found); /* 0 for what is no integer */
    if (count < 1 || count > limit) return refuse(FIG_INVALID, from, field, expected);
    *value = (int32_t)count;
    return FIG_OK;
}

static fig_status need_count(const source *from, const char *field, int64_t limit, int32_t *value) {
    if (find(from, field) == NULL) return refuse_missing(from, field);
    return read_count(from, field, limit, value);
}

/* A number above 0 that a float holds; *value stays as it is where the field is absent. */
static fig_status read_real(const source *from, const char *field, float *value) {
    const json_t *found = find(from, field);
    if (found == NULL) return FIG_OK;
    const float number = (float)json_number_value(found);
    if (!json_is_number(found) || !isfinite(number) || number <= 0.0f)
        return refuse(FIG_INVALID, from, field, "it must be a number above 0 in a float's range");
    *value = number;
    return FIG_OK;
}

static fig_status need_real(const source *from, const char *field, float *value) {
    if (find(from, field) == NULL) return refuse_missing(from, field);
    return read_real(from, field, value);
}

/* ---- Rope */

/* The parameters of each rope type, beside the type and theta. One that is not listed would change
 * the angles in a way that this library does not know. */
static const struct rope_type {
    const char *name;
    const char *parameters[5]; /* ends with NULL */
} rope_types[] = {
    {"default", {NULL}},
    {"linear", {"factor", NULL}},
    {"llama3",
     {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL}},
};
enum { ROPE_TYPE_COUNT = sizeof rope_types / sizeof rope_types[0] };

/* rope_type is the newer spelling of type; a file may hold both. */
static fig_status read_rope_type(const source *from, const struct rope_type **type) {
    const char *field = find(from, "rope_type") != NULL ? "rope_type" : "type";
    *type = NULL;
    const json_t *value = find(from, field);
    if (value == NULL) return refuse_missing(from, "rope_type");
    if (!json_is_string(value)) return refuse(FIG_INVALID, from, field, "it must be a string");
    const json_t *older = find(from, "type");
    if (older != NULL && !json_equal(value, older))
        return refuse(FIG_INVALID, from, "type", "rope_type is another");
    for (int i = 0; i < ROPE_TYPE_COUNT; i++) {
        if (strcmp(json_string_value(value), rope_types[i].name) != 0) continue;
        *type = &rope_types[i];
        return FIG_OK;
    }
    return refuse(FIG_UNSUPPORTED, from, field, "this library has default, linear and llama3");
}

static int is_rope_parameter(const struct rope_type *type, const char *name) {
    if (strcmp(name, "rope_type") == 0 || strcmp(name, "type") == 0 ||
        strcmp(name, "rope_theta") == 0)
        return 1;
    for (int i = 0; type->parameters[i] != NULL; i++) {
        if (strcmp(name, type->parameters[i]) == 0) return 1;
    }
    return 0;
}

static fig_status read_rope_object(const source *from, fig_rope_spec *rope) {
    const struct rope_type *type;
    const char *name;
    json_t *value;
    FIG_TRY(read_rope_type(from, &type));
    json_object_foreach(from->object, name, value) {
        if (json_is_null(value) || is_rope_parameter(type, name)) continue;
        char expected[FIELD_BYTES];
        snprintf(expected, sizeof expected, "which rope type %s does not have here", type->name);
        return refuse(FIG_UNSUPPORTED, from, name, expected);
    }
    FIG_TRY(read_real(from, "rope_theta", &rope->theta));
    if (strcmp(type->name, "linear") == 0) return need_real(from, "factor", &rope->scale);
    if (strcmp(type->name, "llama3") != 0) return FIG_OK;
    FIG_TRY(need_real(from, "factor", &rope->llama3_factor));
    FIG_TRY(need_real(from, "low_freq_factor", &rope->llama3_low));
    FIG_TRY(need_real(from, "high_freq_factor", &rope->llama3_high));
    return need_count(from, "original_max_position_embeddings", INT32_MAX, &rope->llama3_context);
}

/* rope_parameters is the newer form: rope_scaling with rope_theta inside. */
static fig_status read_rope(const source *config, fig_rope_spec *rope) {
    fig_rope_spec read = {.interleaved = 0, .theta = 10000.0f, .scale = 1.0f};
    const char *field =
        find(config, "rope_parameters") != NULL ? "rope_parameters" : "rope_scaling";
    json_t *object = find(config, field);
    FIG_TRY(read_real(config, "rope_theta", &read.theta));
    if (object != NULL) {
        char name[FIELD_BYTES];
        const float outer = read.theta;
        snprintf(name, sizeof name, "%s.", field);
        if (!json_is_object(object))
            return refuse(FIG_INVALID, config, field, "it must be an object");
        if (object != find(config, "rope_scaling") && find(config, "rope_scaling") != NULL)
            return refuse(FIG_INVALID, config, "rope_scaling", "rope_parameters is given as well");
        const source from = {config->path, name, object};
        FIG_TRY(read_rope_object(&from, &read));
        if (find(config, "rope_theta") != NULL && read.theta != outer)
            return refuse(FIG_INVALID, &from, "rope_theta", "rope_theta outside of it is another");
    }
    *rope = read;
    return FIG_OK;
}

/* ---- The rest */

/* What a llama's config may ask of the step that this library does not do. null, false and, for a
 * factor, 1 ask for nothing. Biases, norms and embeddings are the caller's work, not the step's. */
static const char *const lacking[] = {
    "sliding_window",        "attention_chunk_size",
    "no_rope_layers",        "attn_logit_softcapping",
    "query_pre_attn_scalar", "attention_multiplier",
    "partial_rotary_factor", "qk_norm",
    "use_qk_norm",           "alibi",
    "attention_sinks",       "v_head_dim",
};

static fig_status refuse_lacking(const source *config) {
    const json_t *uses_window = find(config, "use_sliding_window");
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
        const json_t *value = find(config, lacking[i]);
        if (value == NULL || json_is_false(value)) continue;
        if (strcmp(lacking[i], "sliding_window") == 0 && json_is_false(uses_window)) continue;
        if (strcmp(lacking[i], "partial_rotary_factor") == 0 && json_number_value(value) == 1.0)
            continue;
        return refuse(FIG_UNSUPPORTED, config, lacking[i], "which this library does not do");
    }
    const json_t *types = find(config, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type != NULL && strcmp(type, "full_attention") == 0) continue;
        return fig_fail(FIG_UNSUPPORTED,
                        "%s: layer_types[%zu] is %s, this library has "
                        "full_attention",
                        config->path, i, type != NULL ? type : "no string");
    }
    if (types != NULL && !json_is_array(types))
        return refuse(FIG_INVALID, config, "layer_types", "it must be an array");
    return FIG_OK;
}

/* A string field that has to be one value. */
static fig_status need_word(const source *config, const char *field, const char *word) {
    const json_t *value = find(config, field);
    char expected[FIELD_BYTES];
    if (value == NULL) return refuse_missing(config, field);
    if (!json_is_string(value)) return refuse(FIG_INVALID, config, field, "it must be a string");
    if (strcmp(json_string_value(value), word) == 0) return FIG_OK;
    snprintf(expected, sizeof expected, "this library has %s", word);
    return refuse(FIG_UNSUPPORTED, config, field, expected);
}

static fig_status read_heads(const source *config, fig_spec *spec) {
    int32_t hidden_size = 0;
    FIG_TRY(need_count(config, "num_attention_heads", FIG_HEAD_LIMIT, &spec->q_heads));
    spec->kv_heads = spec->q_heads;
    FIG_TRY(read_count(config, "num_key_value_heads", FIG_HEAD_LIMIT, &spec->kv_heads));
    if (find(config, "head_dim") != NULL)
        return read_count(config, "head_dim", FIG_WIDTH_LIMIT, &spec->head_dim);
    FIG_TRY(need_count(config, "hidden_size", FIG_WIDTH_LIMIT, &hidden_size));
    if (hidden_size % spec->q_heads != 0)
        return refuse(FIG_INVALID, config, "hidden_size",
                      "without head_dim it must be a multiple of num_attention_heads");
    spec->head_dim = hidden_size / spec->q_heads;
    return FIG_OK;
}

/* dtype is the newer spelling of torch_dtype. */
static fig_status read_dtype(const source *config, fig_dtype *dtype) {
    static const struct {
        const char *name;
        fig_dtype dtype;
    } names[] = {{"float32", FIG_F32}, {"float16", FIG_F16}, {"bfloat16", FIG_BF16}};
    const char *field = find(config, "dtype") != NULL ? "dtype" : "torch_dtype";
    const json_t *value = find(config, field);
    if (value == NULL) return refuse_missing(config, "torch_dtype");
    if (!json_is_string(value)) return refuse(FIG_INVALID, config, field, "it must be a string");
    const json_t *older = find(config, "torch_dtype");
    if (older != NULL && !json_equal(value, older))
        return refuse(FIG_INVALID, config, "torch_dtype", "dtype is another");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(json_string_value(value), names[i].name) != 0) continue;
        *dtype = names[i].dtype;
        return FIG_OK;
    }
    return refuse(FIG_UNSUPPORTED, config, field, "this library has float32, float16 and bfloat16");
}

static fig_status read_fields(const source *config, fig_spec *spec) {
    int32_t positions = 0;
    FIG_TRY(need_word(config, "model_type", "llama"));
    FIG_TRY(need_word(config, "hidden_act", "silu"));
    FIG_TRY(refuse_lacking(config));
    FIG_TRY(need_count(config, "num_hidden_layers", FIG_LAYER_LIMIT, &spec->layers));
    FIG_TRY(read_heads(config, spec));
    FIG_TRY(need_count(config, "intermediate_size", FIG_WIDTH_LIMIT, &spec->ffn_width));
    FIG_TRY(read_dtype(config, &spec->dtype));
    FIG_TRY(read_rope(config, &spec->rope));
    FIG_TRY(read_count(config, "max_position_embeddings", INT32_MAX, &positions));
    if (spec->kv_limit == 0) spec->kv_limit = positions < FIG_KV_LIMIT ? positions : FIG_KV_LIMIT;
    return FIG_OK;
}

/* ---- The file */

static fig_status read_bytes(const char *path, char **bytes, size_t *count) {
    *bytes = NULL;
    *count = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return fig_fail(FIG_IO, "%s: open: %s", path, strerror(errno));
    char *held = malloc(CONFIG_BYTES_LIMIT + 1);
    if (held == NULL) {
        fclose(file);
        return fig_fail(FIG_NOMEM, "%s: %d bytes", path, CONFIG_BYTES_LIMIT + 1);
    }
    const size_t length = fread(held, 1, CONFIG_BYTES_LIMIT + 1, file);
    fig_status status = FIG_OK;
    if (ferror(file)) {
        status = fig_fail(FIG_IO, "%s: read: %s", path, strerror(errno));
    } else if (length > CONFIG_BYTES_LIMIT) {
        status = fig_fail(FIG_TOO_LARGE, "%s: the file has more than %d bytes", path,
                          CONFIG_BYTES_LIMIT);
    }
    fclose(file);
    if (status != FIG_OK) {
        free(held);
        return status;
    }
    *bytes = held;
    *count = length;
    return FIG_OK;
}

static fig_status read_object(const char *path, json_t **object) {
    char *bytes;
    size_t count;
    json_error_t error;
    *object = NULL;
    FIG_TRY(read_bytes(path, &bytes, &count));
    json_t *value = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (value == NULL && json_error_code(&error) == json_error_out_of_memory)
        return fig_fail(FIG_NOMEM, "%s: its JSON", path);
    if (value == NULL)
        return fig_fail(FIG_INVALID, "%s: line %d, column %d: %s", path, error.line, error.column,
                        error.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return fig_fail(FIG_INVALID, "%s: the file is an array, it must be an object", path);
    }
    *object = value;
    return FIG_OK;
}

fig_status fig_spec_read_config(fig_spec *spec, const char *path) {
    fig_spec read;
    source config = {.path = path, .name = "", .object = NULL};
    if (spec == NULL) return fig_fail(FIG_INVALID, "config: spec is NULL");
    if (path == NULL) return fig_fail(FIG_INVALID, "config: path is NULL");
    FIG_TRY(fig_status_take_options(&read, sizeof read, spec, "fig_spec"));
    FIG_TRY(read_object(path, &config.object));
    fig_status status = read_fields(&config, &read);
    json_decref(config.object);
    FIG_TRY(status);
    /* A caller of an older header has room for what it knows. */
    read.size = spec->size;
    memcpy(spec, &read, read.size < sizeof read ? read.size : sizeof read);
    return FIG_OK;
}

/* document.c: reads a JSON file, the objects in it, and their fields by type.
 *
 * A file is read whole before it is parsed, so that its size is bounded and a disk error can be
 * told from an error in the text. Invariant: a function sets an output only if it returns
 * FIG_OK. */
#include "graphs/configs/document.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/files/file.h"
#include "planner/status.h"

/* ---- The file */

fig_status fig_document_open(fig_document *document, const char *path) {
    uint8_t *bytes;
    size_t count;
    json_error_t error;
    *document = (fig_document){.path = path};
    FIG_TRY(fig_file_read(path, FIG_DOCUMENT_BYTES_LIMIT, &bytes, &count));
    json_t *value = json_loadb((const char *)bytes, count, JSON_REJECT_DUPLICATES, &error);
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
    document->object = value;
    return FIG_OK;
}

void fig_document_close(fig_document *document) {
    json_decref(document->object);
    document->object = NULL;
}

/* ---- Refusals */

int fig_document_ignores(const fig_document *document, const char *field) {
    for (int32_t i = 0; i < document->ignored_count; i++)
        if (strcmp(document->ignored[i], field) == 0) return 1;
    return 0;
}

json_t *fig_document_find(const fig_document *document, const char *field) {
    json_t *value = json_object_get(document->object, field);
    return json_is_null(value) ? NULL : value;
}

/* Formats a value for a message: "128", "\"yarn\"", "{...}". */
static void show(const json_t *value, char text[FIG_DOCUMENT_TEXT]) {
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(text, FIG_DOCUMENT_TEXT, "%s", dump != NULL ? dump : "too large to show");
    free(dump);
}

fig_status fig_document_refuse(const fig_document *document, const char *field, fig_status status,
                               const char *wrong) {
    char text[FIG_DOCUMENT_TEXT];
    show(json_object_get(document->object, field), text);
    return fig_fail(status, "%s: %s%s is %s, %s", document->path, document->name, field, text,
                    wrong);
}

fig_status fig_document_refuse_missing(const fig_document *document, const char *field) {
    return fig_fail(FIG_INVALID, "%s: %s%s is missing", document->path, document->name, field);
}

fig_status fig_document_need(const fig_document *document, const char *field) {
    if (json_object_get(document->object, field) != NULL) return FIG_OK;
    return fig_document_refuse_missing(document, field);
}

/* ---- Fields */

fig_status fig_document_enter(const fig_document *document, const char *field,
                              fig_document *inner) {
    json_t *object = fig_document_find(document, field);
    if (!json_is_object(object))
        return fig_document_refuse(document, field, FIG_INVALID, "it must be an object");
    *inner = (fig_document){.path = document->path,
                            .object = object,
                            .ignored = document->ignored,
                            .ignored_count = document->ignored_count};
    snprintf(inner->name, sizeof inner->name, "%.40s%.40s.", document->name, field);
    return FIG_OK;
}

fig_status fig_document_read_integer(const fig_document *document, const char *field,
                                     fig_document_range range, int32_t *value) {
    const json_t *found = fig_document_find(document, field);
    char wrong[FIG_DOCUMENT_TEXT];
    if (found == NULL) return FIG_OK;
    const json_int_t integer = json_integer_value(found);
    if (!json_is_integer(found) || integer < range.least || integer > range.most) {
        snprintf(wrong, sizeof wrong, "it must be an integer of %" PRId64 " to %" PRId64,
                 range.least, range.most);
        return fig_document_refuse(document, field, FIG_INVALID, wrong);
    }
    *value = (int32_t)integer;
    return FIG_OK;
}

fig_status fig_document_need_integer(const fig_document *document, const char *field,
                                     fig_document_range range, int32_t *value) {
    if (fig_document_find(document, field) == NULL)
        return fig_document_refuse_missing(document, field);
    return fig_document_read_integer(document, field, range, value);
}

fig_status fig_document_read_real(const fig_document *document, const char *field, float *value) {
    const json_t *found = fig_document_find(document, field);
    if (found == NULL) return FIG_OK;
    const float number = (float)json_number_value(found); /* 0 if the value is not a number */
    if (!isfinite(number) || number <= 0.0f)
        return fig_document_refuse(document, field, FIG_INVALID,
                                   "it must be a number above 0 in a float's range");
    *value = number;
    return FIG_OK;
}

fig_status fig_document_need_real(const fig_document *document, const char *field, float *value) {
    if (fig_document_find(document, field) == NULL)
        return fig_document_refuse_missing(document, field);
    return fig_document_read_real(document, field, value);
}

fig_status fig_document_read_truth(const fig_document *document, const char *field, int *value) {
    const json_t *found = fig_document_find(document, field);
    if (found == NULL) return FIG_OK;
    if (!json_is_boolean(found))
        return fig_document_refuse(document, field, FIG_INVALID, "it must be true or false");
    *value = json_is_true(found);
    return FIG_OK;
}

fig_status fig_document_need_text(const fig_document *document, const char *field,
                                  const char **text) {
    const json_t *found = fig_document_find(document, field);
    if (found == NULL) return fig_document_refuse_missing(document, field);
    if (!json_is_string(found))
        return fig_document_refuse(document, field, FIG_INVALID, "it must be a string");
    *text = json_string_value(found);
    return FIG_OK;
}

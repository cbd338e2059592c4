/* document.h: reads a JSON file, the objects in it, and their fields by type.
 *
 * Owns the types of fields; callers own their meaning. A field with null counts as absent.
 * Invariant: a message about a field names the file, the path to the field and its value. */
#ifndef FIG_GRAPHS_DOCUMENT_H
#define FIG_GRAPHS_DOCUMENT_H

#include <jansson.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_DOCUMENT_BYTES_LIMIT = 1 << 20, FIG_DOCUMENT_TEXT = 96 };

/* An object of the file. fig_document_close() closes the file's own object. An inner object lives
 * as long as the file's own object. */
typedef struct fig_document {
    const char *path;             /* owned by the caller */
    char name[FIG_DOCUMENT_TEXT]; /* the path to the object: "" or "rope_scaling." */
    json_t *object;
    const char *const *ignored; /* [ignored_count] owned by the caller: unknown fields to ignore */
    int32_t ignored_count;
} fig_document;

fig_status fig_document_open(fig_document *document, const char *path);
void fig_document_close(fig_document *document);

/* Returns 1 if the field is one of `ignored`. */
int fig_document_ignores(const fig_document *document, const char *field);

/* Returns the field's value, or NULL if the field is absent. */
json_t *fig_document_find(const fig_document *document, const char *field);
/* Returns FIG_OK if the field is present, even if its value is null. */
fig_status fig_document_need(const fig_document *document, const char *field);
/* Fails because of the field's value. `wrong` ends the message: "rope_scaling.factor is -8,
 * <wrong>". */
fig_status fig_document_refuse(const fig_document *document, const char *field, fig_status status,
                               const char *wrong);
fig_status fig_document_refuse_missing(const fig_document *document, const char *field);

/* Enters an inner object, whose field must be present. */
fig_status fig_document_enter(const fig_document *document, const char *field, fig_document *inner);

/* If the field is absent, a read_ function leaves *value unchanged and a need_ function fails. */
typedef struct fig_document_range {
    int64_t least, most;
} fig_document_range;
fig_status fig_document_read_integer(const fig_document *document, const char *field,
                                     fig_document_range range, int32_t *value);
fig_status fig_document_need_integer(const fig_document *document, const char *field,
                                     fig_document_range range, int32_t *value);
/* Reads a number, which must be above 0 and in a float's range. */
fig_status fig_document_read_real(const fig_document *document, const char *field, float *value);
fig_status fig_document_need_real(const fig_document *document, const char *field, float *value);
fig_status fig_document_read_truth(const fig_document *document, const char *field, int *value);
/* Reads a text, which belongs to the document. */
fig_status fig_document_need_text(const fig_document *document, const char *field,
                                  const char **text);

#endif

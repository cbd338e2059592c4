/* document.h: a JSON file, its objects, and their fields by type.
 *
 * Owns what a field may be; leaves what it means to whoever reads it. null reads as absent.
 * Invariant: a sentence about a field names the file, the path to the field and its value. */
#ifndef FIG_GRAPHS_DOCUMENT_H
#define FIG_GRAPHS_DOCUMENT_H

#include <jansson.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_DOCUMENT_BYTES_LIMIT = 1 << 20, FIG_DOCUMENT_TEXT = 96 };

/* An object of the file. The file's own is closed; one within it lives as long. */
typedef struct fig_document {
    const char *path;             /* the caller's */
    char name[FIG_DOCUMENT_TEXT]; /* what leads to the object: "" or "rope_scaling." */
    json_t *object;
} fig_document;

fig_status fig_document_open(fig_document *document, const char *path);
void fig_document_close(fig_document *document);

/* NULL where the field is absent. */
json_t *fig_document_find(const fig_document *document, const char *field);
/* FIG_OK where the field is there, null included. */
fig_status fig_document_need(const fig_document *document, const char *field);
/* `wrong` ends the sentence: "rope_scaling.factor is -8, <wrong>". */
fig_status fig_document_refuse(const fig_document *document, const char *field, fig_status status,
                               const char *wrong);
fig_status fig_document_refuse_missing(const fig_document *document, const char *field);

/* An object within; its field is there. */
fig_status fig_document_enter(const fig_document *document, const char *field, fig_document *inner);

/* What is read stays as it is where the field is absent; need_ refuses that. */
typedef struct fig_document_range {
    int64_t least, most;
} fig_document_range;
fig_status fig_document_read_integer(const fig_document *document, const char *field,
                                     fig_document_range range, int32_t *value);
fig_status fig_document_need_integer(const fig_document *document, const char *field,
                                     fig_document_range range, int32_t *value);
/* Above 0, and in a float's range. */
fig_status fig_document_read_real(const fig_document *document, const char *field, float *value);
fig_status fig_document_need_real(const fig_document *document, const char *field, float *value);
fig_status fig_document_read_truth(const fig_document *document, const char *field, int *value);
/* The document's own. */
fig_status fig_document_need_text(const fig_document *document, const char *field,
                                  const char **text);

#endif

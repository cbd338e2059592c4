/* config_fields.h: lists the known fields of a config.json, and finds the object that describes the
 * decoder. */
#ifndef FIG_GRAPHS_CONFIG_FIELDS_H
#define FIG_GRAPHS_CONFIG_FIELDS_H

#include "graphs/configs/document.h"

/* Returns 1 if the field may occur in any file, because this library reads it or a decode step does
 * not depend on it. */
int fig_config_fields_know(const char *field);
/* Returns 1 if this library reads the field for every family, so that no caller may ignore the
 * field. */
int fig_config_fields_read(const char *field);
/* Returns 0 if the value is null, false, 0, [] or {}: such a value requests nothing. */
int fig_config_fields_ask(const json_t *value);
/* Fails for a field of the family whose value this library does not support. */
fig_status fig_config_fields_refuse(const fig_document *config, const char *model_type,
                                    const char *field);
/* Fails for an unknown field, because such a field may change the step in an unknown way. The
 * caller may have it ignored. */
fig_status fig_config_fields_refuse_unknown(const fig_document *config, const char *model_type,
                                            const char *field);

/* Finds the object that describes the decoder: the file itself or, for a model that also sees
 * images, its text_config, completed with the defaults of such files. */
fig_status fig_config_fields_find_text(const fig_document *config, fig_document *text);

/* Appends the models with images to `sentence`, [bytes], which lists the models that can be
 * read. */
void fig_config_fields_list_image_models(char *sentence, size_t bytes);

#endif

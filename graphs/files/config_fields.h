/* config_fields.h: which fields of a config.json are known, and which object of it has those of the
 * model that decodes. */
#ifndef FIG_GRAPHS_CONFIG_FIELDS_H
#define FIG_GRAPHS_CONFIG_FIELDS_H

#include "graphs/files/document.h"

/* 1: any of these files may say it: it is read, or a decode step does not depend on it. */
int fig_config_fields_know(const char *field);
/* 0: null, false, 0, [] and {} ask for nothing. */
int fig_config_fields_ask(const json_t *value);
/* A field that nobody here knows may change the step in a way that nobody here does. */
fig_status fig_config_fields_refuse(const fig_document *config, const char *model_type,
                                    const char *field);

/* The object that describes the decoder: the file, or of a model that sees images as well its
 * text_config, with what such a file leaves out. */
fig_status fig_config_fields_find_text(const fig_document *config, fig_document *text);

#endif

/* vocabulary.h: prints the JSON records that several commands share. */
#ifndef FIG_TOOLS_VOCABULARY_H
#define FIG_TOOLS_VOCABULARY_H

#include <figraph.h>

#include "tools/figraph/terminal/emit.h"

/* Prints "traits": {"name": ...}, as figraph inspect does. */
void fig_vocabulary_traits(fig_emit *emit, const fig_traits *traits);
/* Prints the number of ranks that share the model, and the whole model's sizes. */
void fig_vocabulary_share(fig_emit *emit, const fig_spec *model, int32_t ranks);
/* Opens an object (an array element if `key` is NULL) with the bucket's number from 1, its limits
 * and its variant. The caller may add fields, and closes it. */
void fig_vocabulary_open_bucket(fig_emit *emit, const char *key, int32_t number,
                                const fig_bucket_info *info);
/* Prints a file's traits, counts and content_id. */
void fig_vocabulary_graphs(fig_emit *emit, const fig_graphs_info *info);

#endif

/* vocabulary.h: the records that several commands have in their JSON, each said in one way. */
#ifndef FIG_TOOLS_VOCABULARY_H
#define FIG_TOOLS_VOCABULARY_H

#include <figraph.h>

#include "tools/figraph/terminal/emit.h"

/* "traits": {"name": ...}, as figraph inspect has it. */
void fig_vocabulary_traits(fig_emit *emit, const fig_traits *traits);
/* How many ranks share the model, and what all of them have together. */
void fig_vocabulary_share(fig_emit *emit, const fig_spec *model, int32_t ranks);
/* Opens an object, in an array where `key` is NULL, with what names the bucket: its number from 1,
 * its limits and its variant. The caller may go on, and closes it. */
void fig_vocabulary_open_bucket(fig_emit *emit, const char *key, int32_t number,
                                const fig_bucket_info *info);
/* What a file holds: traits, counts and content_id. */
void fig_vocabulary_graphs(fig_emit *emit, const fig_graphs_info *info);

#endif

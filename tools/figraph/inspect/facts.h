/* facts.h: gives everything that inspection prints about graphs, as subjects with fields.
 *
 * The facts are made from the output of inspect_json.c, so every printed value is a fact and
 * nothing is listed twice. A subject is a JSON object. "fields" maps paths, such as
 * "split.workers", to text. "layer" is -1 if the subject belongs to no layer. "kind" is present if
 * subjects differ only in their names. "bucket", from 0, is present if the subject is a bucket. A
 * subject's name does not contain its place in a list, so the subjects before it do not change
 * it. */
#ifndef FIG_TOOLS_FACTS_H
#define FIG_TOOLS_FACTS_H

#include <jansson.h>

#include <figraph.h>

/* Makes *facts, an object of subjects by name, in order. The caller owns it. */
fig_status fig_facts_of_graphs(const fig_graphs *graphs, json_t **facts);
/* Makes the facts of the launches of a bucket, numbered from 0. */
fig_status fig_facts_of_bucket(const fig_graphs *graphs, uint32_t index, json_t **facts);

#endif

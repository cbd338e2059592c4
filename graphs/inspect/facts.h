/* facts.h: all that inspection says of graphs, as subjects that have fields.
 *
 * Made of what inspect_json.c prints, so that whatever is shown is a fact and nothing is listed
 * twice. A subject is a JSON object: "fields", text by path, "split.workers" say; "layer", -1 where
 * it is of none; "kind", where others are alike but for their names; "bucket", from 0, where it is
 * one. Its name does not hold its place in a list, so that what stands before it does not change
 * it. */
#ifndef FIG_GRAPHS_FACTS_H
#define FIG_GRAPHS_FACTS_H

#include <jansson.h>

#include "graphs/graphs.h"

/* *facts is the caller's, an object of subjects by name, in order. */
fig_status fig_facts_of_graphs(const fig_graphs *graphs, json_t **facts);
/* The launches of a bucket, from 0. */
fig_status fig_facts_of_bucket(const fig_graphs *graphs, uint32_t index, json_t **facts);

#endif

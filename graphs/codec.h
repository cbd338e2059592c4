/* codec.h: graphs to bytes and back; FORMAT.md is the text of it.
 *
 * Knows what each section means; how they lie in a file is in sections.c, and files are opened in
 * file.c. Reading trusts nothing; what the bytes claim never decides how much memory is taken. */
#ifndef FIG_GRAPHS_CODEC_H
#define FIG_GRAPHS_CODEC_H

#include "graphs/graphs.h"
#include "graphs/sections.h"

/* *bytes is the caller's to free. The same graphs give the same bytes. */
fig_status fig_codec_write(const fig_graphs *graphs, uint8_t **bytes, size_t *count);
fig_status fig_codec_read(fig_graphs **graphs, const uint8_t *bytes, size_t count);
/* This library, as the maker of graphs of a program. */
fig_graphs_maker fig_codec_maker(const fig_program_view *view);
/* SHA-256 of the raw sections that say what graphs are, the same whatever compressed them and
 * whoever derived the others. */
fig_status fig_codec_content_id(const fig_graphs *graphs, uint8_t content_id[32]);

#endif

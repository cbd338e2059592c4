/* codec.h: what graphs are made of, to bytes and back; FORMAT.md is the text of it.
 *
 * Knows what each section means; how they lie in a file is in sections.c, files are opened in
 * file.c, and graphs.c makes graphs of the parts. Reading trusts nothing; what the bytes claim
 * never decides how much memory is taken. */
#ifndef FIG_GRAPHS_CODEC_H
#define FIG_GRAPHS_CODEC_H

#include "graphs/files/archive.h"
#include "graphs/files/notes.h"
#include "graphs/lower.h"

/* What the library that made the graphs says of itself. No part of what they mean, and kept so that
 * graphs saved again give the same file, whichever library loaded them. */
typedef struct fig_codec_maker {
    uint32_t version; /* its FIG_VERSION */
    struct {
        uint32_t params_bytes;
        uint8_t abi[32];
    } kernels[FIG_OP_KERNEL_COUNT]; /* [fig_op]; zero where no node has the operation */
} fig_codec_maker;

/* What graphs are made of; all else about them is derived. */
typedef struct fig_codec_parts {
    fig_program *program; /* finished */
    fig_lower_target target;
    fig_bucket_shape *buckets; /* [bucket_count]; a file has caps and variant of each */
    uint64_t *made_digests;    /* [bucket_count] of what the maker lowered */
    uint32_t bucket_count;
    fig_codec_maker maker;
    fig_notes notes;
    fig_archive archive;      /* of the maker's images */
    uint32_t changed_kernels; /* bit op: its row in the maker's table was another than here */
} fig_codec_parts;

/* *bytes is the caller's to free. The same parts give the same bytes. */
fig_status fig_codec_write(const fig_codec_parts *parts, uint8_t **bytes, size_t *count);
/* Zeros on failure. What the parts hold is the caller's, who ends them with finish. */
fig_status fig_codec_read(fig_codec_parts *parts, const uint8_t *bytes, size_t count);
void fig_codec_finish(fig_codec_parts *parts);
/* The status of a file of such a maker whose parts were refused with `status` and a sentence. */
fig_status fig_codec_judge(uint32_t maker, fig_status status);
/* This library, as the maker of graphs of a program. */
fig_codec_maker fig_codec_maker_of(const fig_program_view *view);
/* Bit op: the kernels that KERN lists, the fetch and what the program's nodes launch. */
uint32_t fig_codec_kernels_of(const fig_program_view *view);
/* SHA-256 of the raw sections that say what graphs are, the same whatever compressed them and
 * whoever derived the others. */
fig_status fig_codec_content_id(const fig_codec_parts *parts, uint8_t content_id[32]);

#endif

/* codec.h: turns the parts of graphs into bytes and back; FORMAT.md describes the bytes.
 *
 * Owns the meaning of each section. sections.c lays out a file, file.c opens files, and graphs.c
 * makes graphs from the parts. Reading trusts nothing, and never allocates memory merely because
 * the bytes claim a size. */
#ifndef FIG_GRAPHS_CODEC_H
#define FIG_GRAPHS_CODEC_H

#include "graphs/files/archive.h"
#include "graphs/files/notes.h"
#include "graphs/lower/lower.h"

/* The maker: the version and kernels of the library that made the graphs. They are not part of the
 * graphs' meaning. They are kept so that any library that loads the graphs and saves them again
 * writes the same file. */
typedef struct fig_codec_maker {
    uint32_t version; /* the maker's FIG_VERSION */
    struct {
        uint32_t params_bytes;
        uint8_t abi[32];
    } kernels[FIG_OP_KERNEL_COUNT]; /* [fig_op]; zeros if no node launches the operation */
} fig_codec_maker;

/* The parts from which graphs are made. Everything else in graphs is derived from these parts. */
typedef struct fig_codec_parts {
    fig_program *program; /* finished */
    fig_lower_target target;
    fig_bucket_shape *buckets; /* [bucket_count]; a file holds the caps and variant of each */
    uint64_t *made_digests;    /* [bucket_count] digests of the launches that the maker lowered */
    uint32_t bucket_count;
    fig_codec_maker maker;
    fig_notes notes;
    fig_archive archive;      /* records the maker's images */
    uint32_t changed_kernels; /* bit op: set if the maker's row differs from this library's */
} fig_codec_parts;

/* Writes a file's bytes to memory. Equal parts give equal bytes. The caller frees *bytes. */
fig_status fig_codec_write(const fig_codec_parts *parts, uint8_t **bytes, size_t *count);
/* Reads the parts from a file's bytes. The caller owns the parts and frees them with
 * fig_codec_finish(). On failure *parts is all zeros. */
fig_status fig_codec_read(fig_codec_parts *parts, const uint8_t *bytes, size_t count);
void fig_codec_finish(fig_codec_parts *parts);
/* Returns the status to report to the reader of a file. maker: the maker's version. `status` and
 * fig_message() are those of the call that refused the file's parts. */
fig_status fig_codec_judge(uint32_t maker, fig_status status);
/* Describes this library as the maker of a program's graphs. */
fig_codec_maker fig_codec_maker_of(const fig_program_view *view);
/* Returns the kernels that section KERN lists, as bits by op: the fetch and all kernels that the
 * program's nodes launch. */
uint32_t fig_codec_kernels_of(const fig_program_view *view);
/* Computes the SHA-256 of the raw sections that define the graphs. The result depends neither on
 * the compressor nor on the library that derived the other sections. */
fig_status fig_codec_content_id(const fig_codec_parts *parts, uint8_t content_id[32]);

#endif

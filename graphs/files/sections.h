/* sections.h: the parts of a .fig file, and how they lie in it; FORMAT.md is the text of it.
 *
 * Owns the header, the table, the frames and their hashes; what the sections mean is codec.c's.
 * Invariant: every POD here is little-endian and has no hidden padding. */
#ifndef FIG_GRAPHS_SECTIONS_H
#define FIG_GRAPHS_SECTIONS_H

#include "include/figraph.h"

#include <assert.h>

enum {
    FIG_FILE_BYTES_LIMIT = 64 << 20,
    FIG_FILE_SECTION_LIMIT = 64,
    FIG_FILE_SPEC_LIMIT = 4096, /* bytes of the spec, which grows with the library */
    FIG_FILE_KERNEL_LIMIT = 64,
    FIG_FILE_WORTH = 24, /* most raw bytes, sealed ones apart, for each byte of a file */
    FIG_FILE_FORMAT = 1
};

/* As PNG's: a byte that seven-bit transfers lose, both line ends and the end of a text file. */
#define FIG_FILE_MAGIC                                                                             \
    "\x89"                                                                                         \
    "FIG\r\n\x1a\n"

typedef struct fig_file_header {
    uint8_t magic[8];
    uint32_t format;
    uint32_t section_count;
    uint64_t file_bytes;
    uint32_t maker;    /* FIG_VERSION of the library that made the graphs; for sentences alone */
    uint32_t features; /* FIG_FILE_CRITICAL: bits that a reader must know; others it may not */
    uint8_t check[8];  /* first of the SHA-256 of the whole file, these bytes zero */
    uint8_t content_id[32];
} fig_file_header;
static_assert(sizeof(fig_file_header) == 72, "file format");

/* Of the header's features: none has a meaning so far. */
enum { FIG_FILE_CRITICAL = 0xffff };

enum { FIG_FILE_ANCILLARY = 1 }; /* a reader that does not know the section may skip it */

typedef struct fig_file_section {
    char name[4];
    uint32_t flags;
    uint64_t offset; /* of its zstd frame: a multiple of 8 */
    uint64_t stored_bytes, raw_bytes;
    uint32_t item_bytes;
    uint32_t reserved;
} fig_file_section;
static_assert(sizeof(fig_file_section) == 40, "file format");

typedef struct fig_file_machine { /* fig_lower_target */
    char name[16];
    int32_t compute_capability, sm_count, shared_bytes;
    int32_t deterministic;
} fig_file_machine;
static_assert(sizeof(fig_file_machine) == 32, "file format");

typedef struct fig_file_bucket {
    int32_t batch, kv;
    uint32_t variant;
} fig_file_bucket;
static_assert(sizeof(fig_file_bucket) == 12, "file format");

typedef struct fig_file_kernel {
    uint32_t op, params_bytes;
    char name[24];
    uint8_t abi[32]; /* SHA-256 of the kernel's row in the maker's table */
} fig_file_kernel;
static_assert(sizeof(fig_file_kernel) == 64, "file format");

/* A file holds the spec to its last unit that is not zero. */
enum { FIG_FILE_SPEC_UNIT = 8 };
static_assert(sizeof(fig_spec) == 2376, "file format: it grows at its end");
static_assert(sizeof(fig_spec) % FIG_FILE_SPEC_UNIT == 0, "whole units");

/* In file order; each is there once, where its rule does not let it be absent. */
typedef enum fig_section {
    FIG_SECTION_ENVR, /* fig_file_machine: what it was lowered for */
    FIG_SECTION_SPEC, /* fig_spec, resolved */
    FIG_SECTION_STRS, /* names */
    FIG_SECTION_TENS, /* fig_tensor_record */
    FIG_SECTION_NODE, /* fig_node */
    FIG_SECTION_OPND, /* u32 tensor ids */
    FIG_SECTION_ATTR, /* bytes of attributes */
    FIG_SECTION_BUCK, /* fig_file_bucket */
    FIG_SECTION_KERN, /* fig_file_kernel; derived by the maker */
    FIG_SECTION_DIGS, /* u64 digests of the launches that the maker lowered; derived */
    FIG_SECTION_SEGM, /* fig_segment; optional */
    FIG_SECTION_VARI, /* fig_tuned; optional */
    FIG_SECTION_META, /* fig_notes; ancillary, as those below */
    FIG_SECTION_IMAG, /* fig_archive_image: what kernels the maker had */
    FIG_SECTION_CODE, /* those images; sealed */
    FIG_SECTION_COUNT
} fig_section;

/* "TENS", and what its items may be. A claim beyond `most` is refused before memory is taken. */
typedef struct fig_section_rule {
    char name[5];
    uint32_t item_bytes;
    uint32_t least, most; /* items */
    int derived; /* 1: it follows from the others and the maker, and is no part of the content id */
    int optional;   /* 1: without items it is neither in the file nor in the content id */
    uint32_t flags; /* that it has in the table */
    int sealed;     /* 1: it stays as it is stored, and is decompressed by whoever has a reason */
} fig_section_rule;
extern const fig_section_rule fig_section_table[FIG_SECTION_COUNT];

/* All sections of a file, uncompressed but for those that are sealed. */
typedef struct fig_sections {
    const void *raw[FIG_SECTION_COUNT]; /* of a sealed one its frame */
    uint32_t item_count[FIG_SECTION_COUNT];
    size_t sealed_bytes[FIG_SECTION_COUNT]; /* of the frame of a sealed one */
    uint32_t maker;                         /* as in the header */
    void *held[FIG_SECTION_COUNT]; /* what finish frees: the memory of `raw` where it was read */
} fig_sections;

/* Ends the sentence of a refusal that is due to the file's age: who made it, and what to do.
 * `whose` says more of the maker, ", whose fetch differs"; "": nothing more is known. Returns
 * FIG_STALE. */
fig_status fig_sections_refuse_age(uint32_t maker, const char *whose);

/* What the file means, as a number: SHA-256 over name, size and raw bytes of each section that is
 * there and not derived, in order. */
void fig_sections_hash(const fig_sections *sections, uint8_t content_id[32]);
/* *bytes is the caller's to free. */
fig_status fig_sections_write(const fig_sections *sections, uint8_t **bytes, size_t *count);
/* Checks all of the file but what the sections mean. */
fig_status fig_sections_read(fig_sections *sections, const uint8_t *bytes, size_t count);
void fig_sections_finish(fig_sections *sections);

#endif

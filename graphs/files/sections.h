/* sections.h: the parts of a .fig file and their layout; FORMAT.md describes them in words.
 *
 * Owns the header, the table, the frames and their hashes; codec.c owns the meaning of sections.
 * Invariant: every POD here is little-endian and has no hidden padding. */
#ifndef FIG_GRAPHS_SECTIONS_H
#define FIG_GRAPHS_SECTIONS_H

#include "include/figraph.h"

#include <assert.h>

enum {
    FIG_FILE_BYTES_LIMIT = 64 << 20,
    FIG_FILE_SECTION_LIMIT = 64,
    FIG_FILE_SPEC_LIMIT = 4096, /* bytes of the spec, which later libraries extend */
    FIG_FILE_KERNEL_LIMIT = 64,
    /* the most raw bytes for each byte of the file, not counting sealed sections */
    FIG_FILE_WORTH = 24,
    FIG_FILE_FORMAT = 1
};

/* The first bytes of a file, chosen as in PNG: a byte above 127, both line endings and the DOS
 * end-of-file character. A transfer in text mode would damage these bytes. */
#define FIG_FILE_MAGIC                                                                             \
    "\x89"                                                                                         \
    "FIG\r\n\x1a\n"

typedef struct fig_file_header {
    uint8_t magic[8];
    uint32_t format;
    uint32_t section_count;
    uint64_t file_bytes;
    uint32_t maker;    /* FIG_VERSION of the library that made the graphs; for messages only */
    uint32_t features; /* readers must know the bits in FIG_FILE_CRITICAL, and may ignore others */
    uint8_t check[8];  /* the first bytes of the whole file's SHA-256, with these bytes zero */
    uint8_t content_id[32];
} fig_file_header;
static_assert(sizeof(fig_file_header) == 72, "file format");

/* The bits of the header's features that a reader must know. No bit is in use. */
enum { FIG_FILE_CRITICAL = 0xffff };

enum { FIG_FILE_ANCILLARY = 1 }; /* a reader that does not know the section may skip it */

typedef struct fig_file_section {
    char name[4];
    uint32_t flags;
    uint64_t offset; /* offset of the zstd frame: a multiple of 8 */
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
    int32_t queries; /* as in fig_bucket_shape; items without this field have 0 */
} fig_file_bucket;
static_assert(sizeof(fig_file_bucket) == 16, "file format");
enum { FIG_FILE_BUCKET_BYTES_LEAST = 12 };

typedef struct fig_file_kernel {
    uint32_t op, params_bytes;
    char name[24];
    uint8_t abi[32]; /* SHA-256 of the kernel's row in the maker's table */
} fig_file_kernel;
static_assert(sizeof(fig_file_kernel) == 64, "file format");

/* A file holds the spec up to its last unit that is not zero. */
enum { FIG_FILE_SPEC_UNIT = 8 };
static_assert(sizeof(fig_spec) == 2400, "file format: it grows at its end");
static_assert(sizeof(fig_spec) % FIG_FILE_SPEC_UNIT == 0, "whole units");

/* The sections in file order. Each section occurs exactly once; sections with the rule `optional`
 * may be absent. */
typedef enum fig_section {
    FIG_SECTION_ENVR, /* fig_file_machine: the machine for which the program was lowered */
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
    FIG_SECTION_SCOR, /* fig_score_unit; optional */
    FIG_SECTION_META, /* fig_notes; ancillary, like the two sections below */
    FIG_SECTION_IMAG, /* fig_archive_image: the kernel images of the maker */
    FIG_SECTION_CODE, /* the images themselves; sealed */
    FIG_SECTION_SIMG, /* fig_embedded_record: compiled scores; ancillary, like the next */
    FIG_SECTION_SCOD, /* their code; sealed */
    FIG_SECTION_COUNT
} fig_section;

/* The name and limits of a section. A size beyond `most` is refused before memory is allocated. */
typedef struct fig_section_rule {
    char name[5];
    uint32_t item_bytes;
    uint32_t least, most; /* items */
    int derived;          /* 1: follows from other sections and the maker; not in the content id */
    int optional;   /* 1: if it has no items, it is neither in the file nor in the content id */
    uint32_t flags; /* its flags in the table */
    int sealed;     /* 1: it stays compressed until a caller needs it */
    /* size of an item in files that omit its last fields; 0: no file omits any */
    uint32_t item_bytes_least;
} fig_section_rule;
extern const fig_section_rule fig_section_table[FIG_SECTION_COUNT];

/* All sections of a file, uncompressed except for sealed ones. */
typedef struct fig_sections {
    const void *raw[FIG_SECTION_COUNT]; /* for a sealed section: its frame */
    uint32_t item_count[FIG_SECTION_COUNT];
    uint32_t item_bytes[FIG_SECTION_COUNT]; /* 0: as in fig_section_table */
    size_t sealed_bytes[FIG_SECTION_COUNT]; /* the size of a sealed section's frame */
    uint32_t maker;                         /* as in the header */
    void *held[FIG_SECTION_COUNT]; /* memory that reading took for `raw`; finish frees it */
} fig_sections;

/* Ends the message of a refusal that is due to the file's age: appends the file's maker and advice.
 * `whose` follows the maker in the message, such as ", whose fetch differs" or "". Returns
 * FIG_STALE. */
fig_status fig_sections_refuse_age(uint32_t maker, const char *whose);

/* Returns the size of an item of a section that was read or will be written. */
uint32_t fig_sections_item_bytes(const fig_sections *sections, fig_section s);

/* Computes the identity of the file's meaning: the SHA-256 of the name, size and raw bytes of each
 * section that is present and not derived, in file order. */
void fig_sections_hash(const fig_sections *sections, uint8_t content_id[32]);
/* Writes a file's bytes to memory. The caller frees *bytes. */
fig_status fig_sections_write(const fig_sections *sections, uint8_t **bytes, size_t *count);
/* Checks everything about the file except the meaning of its sections. */
fig_status fig_sections_read(fig_sections *sections, const uint8_t *bytes, size_t count);
void fig_sections_finish(fig_sections *sections);

#endif

/* sections.c: writes and reads the layout of a .fig file.
 *
 * Owns the header, the table of sections and their zstd frames; codec.c owns the meaning of a
 * section. Invariant: the bytes written depend only on the sections, and no value that was read is
 * used before a check has bounded it. */
#include "graphs/files/sections.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "graphs/files/archive.h"
#include "graphs/files/notes.h"
#include "graphs/lower/tuning.h"
#include "graphs/view/hash.h"
#include "graphs/view/program_view.h"
#include "graphs/view/score_units.h"
#include "graphs/view/strings.h"
#include "planner/plans/bucket.h"
#include "planner/size.h"
#include "planner/status.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a .fig file is a dump of little-endian PODs"
#endif

enum { COMPRESSION_LEVEL = 12, SECTION_ALIGNMENT = 8 };

/* The rules of a section that is not part of the graphs' meaning. */
#define ANCILLARY .derived = 1, .optional = 1, .flags = FIG_FILE_ANCILLARY

const fig_section_rule fig_section_table[FIG_SECTION_COUNT] = {
    [FIG_SECTION_ENVR] = {"ENVR", sizeof(fig_file_machine), 1, 1},
    [FIG_SECTION_SPEC] = {"SPEC", 1, FIG_FILE_SPEC_UNIT, FIG_FILE_SPEC_LIMIT},
    [FIG_SECTION_STRS] = {"STRS", 1, 1, FIG_STRING_BYTES_LIMIT},
    [FIG_SECTION_TENS] = {"TENS", sizeof(fig_tensor_record), 0, FIG_TENSOR_LIMIT},
    [FIG_SECTION_NODE] = {"NODE", sizeof(fig_node), 0, FIG_NODE_LIMIT},
    [FIG_SECTION_OPND] = {"OPND", sizeof(uint32_t), 0, FIG_NODE_LIMIT *FIG_OPERAND_LIMIT},
    [FIG_SECTION_ATTR] = {"ATTR", 1, 0, FIG_ATTRIBUTES_LIMIT},
    [FIG_SECTION_BUCK] = {"BUCK", sizeof(fig_file_bucket), 1, FIG_BUCKET_LIMIT,
                          .item_bytes_least = FIG_FILE_BUCKET_BYTES_LEAST},
    [FIG_SECTION_KERN] = {"KERN", sizeof(fig_file_kernel), 1, FIG_FILE_KERNEL_LIMIT, .derived = 1},
    [FIG_SECTION_DIGS] = {"DIGS", sizeof(uint64_t), 1, FIG_BUCKET_LIMIT, .derived = 1},
    [FIG_SECTION_SEGM] = {"SEGM", sizeof(fig_segment), 1, FIG_SEGMENT_LIMIT, .optional = 1},
    [FIG_SECTION_VARI] = {"VARI", sizeof(fig_tuned), 1, FIG_TUNING_LIMIT, .optional = 1,
                          .item_bytes_least = FIG_TUNED_BYTES_LEAST},
    [FIG_SECTION_SCOR] = {"SCOR", sizeof(fig_score_unit), 1, FIG_SCORE_UNITS_LIMIT, .optional = 1},
    [FIG_SECTION_META] = {"META", 1, 1, FIG_NOTE_BYTES_LIMIT, ANCILLARY},
    [FIG_SECTION_IMAG] = {"IMAG", sizeof(fig_archive_image), 1, FIG_ARCHIVE_IMAGE_LIMIT, ANCILLARY},
    [FIG_SECTION_CODE] = {"CODE", 1, 1, FIG_ARCHIVE_CODE_LIMIT, ANCILLARY, .sealed = 1},
    [FIG_SECTION_SIMG] = {"SIMG", sizeof(fig_embedded_record), 1, FIG_EMBEDDED_LIMIT, ANCILLARY},
    [FIG_SECTION_SCOD] = {"SCOD", 1, 1, FIG_EMBEDDED_CODE_LIMIT, ANCILLARY, .sealed = 1},
};

/* ---- Writing and reading */

static uint64_t aligned(uint64_t bytes) {
    return fig_size_align(bytes, SECTION_ALIGNMENT);
}

uint32_t fig_sections_item_bytes(const fig_sections *sections, fig_section s) {
    return sections->item_bytes[s] > 0 ? sections->item_bytes[s] : fig_section_table[s].item_bytes;
}

static uint64_t raw_bytes_of(const fig_sections *sections, fig_section s) {
    return (uint64_t)sections->item_count[s] * fig_sections_item_bytes(sections, s);
}

static int is_absent(const fig_sections *sections, fig_section s) {
    return fig_section_table[s].optional && sections->item_count[s] == 0;
}

void fig_sections_hash(const fig_sections *sections, uint8_t content_id[32]) {
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    for (fig_section s = 0; s < FIG_SECTION_COUNT; s++) {
        const uint64_t raw_bytes = raw_bytes_of(sections, s);
        if (fig_section_table[s].derived || is_absent(sections, s)) continue;
        fig_hash_sha256_add(&hash, fig_section_table[s].name, 4);
        fig_hash_sha256_add(&hash, &raw_bytes, sizeof raw_bytes);
        fig_hash_sha256_add(&hash, sections->raw[s], (size_t)raw_bytes);
    }
    fig_hash_sha256_finish(&hash, content_id);
}

/* Returns the section of that name, or FIG_SECTION_COUNT if this library does not know the
 * section. */
static fig_section section_of(const char name[4]) {
    fig_section s = 0;
    while (s < FIG_SECTION_COUNT && memcmp(name, fig_section_table[s].name, 4) != 0)
        s++;
    return s;
}

/* Returns 1 if the table claims at most FIG_FILE_WORTH raw bytes for each byte of the file. With
 * this check, the size of a file bounds the time to read it. */
static int is_worth(const fig_file_section *table, size_t rows, size_t count) {
    uint64_t raw_bytes = 0;
    for (size_t i = 0; i < rows; i++) {
        const fig_section s = section_of(table[i].name);
        if (s != FIG_SECTION_COUNT && !fig_section_table[s].sealed) raw_bytes += table[i].raw_bytes;
    }
    return raw_bytes <= (uint64_t)FIG_FILE_WORTH * count;
}

static void hash_file(const uint8_t *bytes, size_t count, uint8_t check[8]) {
    fig_file_header header;
    uint8_t digest[32];
    fig_hash_sha256 hash;
    assert(count >= sizeof header);
    memcpy(&header, bytes, sizeof header);
    memset(header.check, 0, sizeof header.check);
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, &header, sizeof header);
    fig_hash_sha256_add(&hash, bytes + sizeof header, count - sizeof header);
    fig_hash_sha256_finish(&hash, digest);
    memcpy(check, digest, sizeof header.check);
}

/* ---- Writing */

/* Writes a zstd frame of blocks that are stored uncompressed. */
static size_t store(uint8_t *to, const uint8_t *raw, uint32_t raw_bytes) {
    static const uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0xa0}; /* the content's size follows */
    enum { BLOCK_BYTES = 1 << 17, BLOCK_HEAD = 3 };
    uint8_t *next = to + sizeof head + sizeof raw_bytes;
    uint32_t stored = 0; /* `raw` may be NULL if it holds nothing */
    memcpy(to, head, sizeof head);
    memcpy(to + sizeof head, &raw_bytes, sizeof raw_bytes);
    do {
        const uint32_t left = raw_bytes - stored;
        const uint32_t taken = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        const uint32_t block = taken << BLOCK_HEAD | (taken == left);
        memcpy(next, &block, BLOCK_HEAD);
        if (taken > 0) memcpy(next + BLOCK_HEAD, raw + stored, taken);
        stored += taken;
        next += BLOCK_HEAD + taken;
    } while (stored < raw_bytes);
    return (size_t)(next - to);
}

/* Writes the section's frame to `to`. Returns the size of the frame, or zstd's error. If `context`
 * is NULL, stores the bytes uncompressed. */
static size_t put_frame(const fig_sections *sections, fig_section s, ZSTD_CCtx *context,
                        uint8_t *to, size_t capacity) {
    const size_t raw_bytes = (size_t)raw_bytes_of(sections, s);
    if (!fig_section_table[s].sealed && context == NULL)
        return store(to, sections->raw[s], (uint32_t)raw_bytes);
    if (!fig_section_table[s].sealed)
        return ZSTD_compress2(context, to, capacity, sections->raw[s], raw_bytes);
    assert(sections->sealed_bytes[s] <= capacity);
    memcpy(to, sections->raw[s], sections->sealed_bytes[s]);
    return sections->sealed_bytes[s];
}

/* Writes the frames behind the table and fills in the table. *at is the end of the table on entry,
 * and the end of the file afterwards. */
static fig_status compress(const fig_sections *sections, ZSTD_CCtx *context, uint8_t *file,
                           size_t capacity, fig_file_section *table, size_t *at) {
    for (fig_section s = 0; s < FIG_SECTION_COUNT; s++) {
        const fig_section_rule *rule = &fig_section_table[s];
        if (is_absent(sections, s)) continue;
        assert(sections->item_count[s] >= rule->least && sections->item_count[s] <= rule->most);
        const size_t stored = put_frame(sections, s, context, file + *at, capacity - *at);
        if (ZSTD_isError(stored))
            return fig_fail(FIG_NOMEM, "section %s: zstd: %s", rule->name,
                            ZSTD_getErrorName(stored));
        *table = (fig_file_section){.flags = rule->flags,
                                    .offset = *at,
                                    .stored_bytes = stored,
                                    .raw_bytes = raw_bytes_of(sections, s),
                                    .item_bytes = fig_sections_item_bytes(sections, s)};
        memcpy(table->name, rule->name, sizeof table->name);
        table++;
        const size_t end = *at + stored;
        *at = (size_t)aligned(end);
        memset(file + end, 0, *at - end);
    }
    return FIG_OK;
}

static fig_status write_file(const fig_sections *sections, ZSTD_CCtx *context, uint8_t **bytes,
                             size_t *count) {
    fig_file_section table[FIG_SECTION_COUNT];
    fig_file_header header = {.format = FIG_FILE_FORMAT, .maker = sections->maker};
    size_t capacity = sizeof header + sizeof table;
    for (fig_section s = 0; s < FIG_SECTION_COUNT; s++) {
        header.section_count += !is_absent(sections, s);
        capacity += (size_t)aligned(ZSTD_compressBound((size_t)raw_bytes_of(sections, s)) +
                                    sections->sealed_bytes[s]);
    }
    const size_t table_bytes = header.section_count * sizeof *table;
    const size_t begin = sizeof header + table_bytes;
    size_t end = begin;
    uint8_t *file = malloc(capacity);
    if (file == NULL) return fig_fail(FIG_NOMEM, "sections: a file of %zu bytes", capacity);
    fig_status status = compress(sections, context, file, capacity, table, &end);
    if (status == FIG_OK && !is_worth(table, header.section_count, end)) {
        end = begin;
        status = compress(sections, NULL, file, capacity, table, &end);
    }
    if (status != FIG_OK) {
        free(file);
        return status;
    }
    assert(end <= FIG_FILE_BYTES_LIMIT);
    memcpy(header.magic, FIG_FILE_MAGIC, sizeof header.magic);
    header.file_bytes = end;
    fig_sections_hash(sections, header.content_id);
    memcpy(file, &header, sizeof header);
    memcpy(file + sizeof header, table, table_bytes);
    hash_file(file, end, file + offsetof(fig_file_header, check));
    *bytes = file;
    *count = end;
    return FIG_OK;
}

fig_status fig_sections_write(const fig_sections *sections, uint8_t **bytes, size_t *count) {
    *bytes = NULL;
    *count = 0;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    if (context == NULL) return fig_fail(FIG_NOMEM, "sections: a zstd context");
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, COMPRESSION_LEVEL);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    fig_status status = write_file(sections, context, bytes, count);
    ZSTD_freeCCtx(context);
    return status;
}

/* ---- Reading */

fig_status fig_sections_refuse_age(uint32_t maker, const char *whose) {
    if (maker == FIG_VERSION)
        return fig_fail(
            FIG_STALE,
            "%s; the file was made by another build of version %d%s: capture the graphs "
            "anew",
            fig_message(), FIG_VERSION, whose);
    return fig_fail(FIG_STALE,
                    "%s; the file was made by version %" PRIu32
                    "%s, and this library is %d: capture the graphs anew",
                    fig_message(), maker, whose, FIG_VERSION);
}

typedef struct reader {
    const uint8_t *bytes; /* [count] */
    size_t count;
    fig_file_header header;
    fig_file_section table[FIG_SECTION_COUNT]; /* the rows of known sections; zeros: absent */
} reader;

static fig_status check_magic(const reader *r) {
    const uint8_t *magic = r->header.magic;
    if (memcmp(magic, FIG_FILE_MAGIC, sizeof r->header.magic) == 0) return FIG_OK;
    if (memcmp(magic + 1, "FIG", 3) == 0 || memcmp(magic, "FIG", 3) == 0)
        return fig_fail(FIG_FORMAT, "header: magic is damaged as by a transfer in text mode");
    return fig_fail(FIG_FORMAT, "header: magic is that of another kind of file");
}

static fig_status read_header(reader *r) {
    fig_file_header *header = &r->header;
    if (r->count > FIG_FILE_BYTES_LIMIT)
        return fig_fail(FIG_FORMAT, "the file has %zu bytes, limit %d", r->count,
                        FIG_FILE_BYTES_LIMIT);
    if (r->count < sizeof *header)
        return fig_fail(FIG_FORMAT, "the file has %zu bytes, a .fig file's header alone has %zu",
                        r->count, sizeof *header);
    memcpy(header, r->bytes, sizeof *header);
    FIG_TRY(check_magic(r));
    if (header->format != FIG_FILE_FORMAT)
        return fig_fail(FIG_STALE,
                        "header: format is %" PRIu32
                        ", this library reads %d: capture the graphs anew",
                        header->format, FIG_FILE_FORMAT);
    if (header->file_bytes != r->count)
        return fig_fail(FIG_FORMAT, "header: file_bytes is %" PRIu64 ", the file has %zu",
                        header->file_bytes, r->count);
    if (header->section_count > FIG_FILE_SECTION_LIMIT)
        return fig_fail(FIG_FORMAT, "header: section_count is %" PRIu32 ", limit %d",
                        header->section_count, FIG_FILE_SECTION_LIMIT);
    const size_t table_bytes = header->section_count * sizeof(fig_file_section);
    if (table_bytes > r->count - sizeof *header)
        return fig_fail(FIG_FORMAT,
                        "header: section_count is %" PRIu32 ", more than the file's %zu bytes hold",
                        header->section_count, r->count);
    uint8_t check[8];
    hash_file(r->bytes, r->count, check);
    if (memcmp(check, header->check, sizeof check) != 0)
        return fig_fail(FIG_FORMAT, "header: check does not agree with the file's bytes");
    if ((header->features & FIG_FILE_CRITICAL) == 0) return FIG_OK;
    fig_fail(FIG_STALE, "header: features are %#" PRIx32 ", of which this library knows none",
             header->features);
    return fig_sections_refuse_age(header->maker, "");
}

/* Checks that the section begins where the previous section ends, rounded up to 8, and that zeros
 * fill the gap. This ensures that sections are in order, do not overlap, and have no hidden bytes
 * between them. Moves *at behind the section. */
static fig_status check_place(const reader *r, const fig_file_section *entry, uint64_t *at) {
    if (entry->offset != *at)
        return fig_fail(FIG_FORMAT, "section %.4s: offset is %" PRIu64 ", it must be %" PRIu64,
                        entry->name, entry->offset, *at);
    if (entry->stored_bytes > r->count - *at)
        return fig_fail(FIG_FORMAT,
                        "section %.4s: stored_bytes is %" PRIu64 ", the file has %" PRIu64 " there",
                        entry->name, entry->stored_bytes, r->count - *at);
    const uint64_t end = *at + entry->stored_bytes;
    *at = aligned(end);
    if (*at > r->count)
        return fig_fail(FIG_FORMAT, "section %.4s: the file ends within its padding", entry->name);
    for (uint64_t i = end; i < *at; i++) {
        if (r->bytes[i] != 0)
            return fig_fail(FIG_FORMAT,
                            "section %.4s: byte %" PRIu64 " of the file is padding, but not 0",
                            entry->name, i);
    }
    return FIG_OK;
}

static fig_status check_claims(const fig_file_section *entry, const fig_section_rule *rule,
                               uint32_t maker) {
    if (entry->flags != rule->flags)
        return fig_fail(FIG_FORMAT, "section %s: flags are %#" PRIx32 ", they must be %#" PRIx32,
                        rule->name, entry->flags, rule->flags);
    if (entry->item_bytes != rule->item_bytes &&
        (entry->item_bytes == 0 || entry->item_bytes != rule->item_bytes_least)) {
        fig_fail(FIG_STALE, "section %s: item_bytes is %" PRIu32 ", this library reads %" PRIu32,
                 rule->name, entry->item_bytes, rule->item_bytes);
        return fig_sections_refuse_age(maker, "");
    }
    if (entry->raw_bytes % entry->item_bytes != 0)
        return fig_fail(FIG_FORMAT,
                        "section %s: raw_bytes is %" PRIu64 ", not a multiple of %" PRIu32,
                        rule->name, entry->raw_bytes, entry->item_bytes);
    const uint64_t items = entry->raw_bytes / entry->item_bytes;
    if (items < rule->least || items > rule->most)
        return fig_fail(FIG_FORMAT,
                        "section %s: raw_bytes is %" PRIu64 ", %" PRIu64 " items, limits %" PRIu32
                        " to %" PRIu32,
                        rule->name, entry->raw_bytes, items, rule->least, rule->most);
    return FIG_OK;
}

/* Moves *expected past optional sections in front of `s`. */
static void pass_optional(fig_section *expected, fig_section s) {
    while (*expected < s && fig_section_table[*expected].optional)
        ++*expected;
}

/* Checks that the name is plain text, because an error message may contain the name. */
static fig_status check_name(const fig_file_section *entry) {
    for (size_t i = 0; i < sizeof entry->name; i++) {
        const char c = entry->name[i];
        if ((c < 'A' || c > 'Z') && (c < '0' || c > '9'))
            return fig_fail(FIG_FORMAT, "a section's name is not four of A to Z and 0 to 9");
    }
    return FIG_OK;
}

/* Reads one row of the table; `expected` is the next known section. */
static fig_status read_entry(reader *r, const fig_file_section *entry, fig_section *expected) {
    const fig_section s = section_of(entry->name);
    if (s == FIG_SECTION_COUNT && entry->flags == FIG_FILE_ANCILLARY) return FIG_OK;
    if (s == FIG_SECTION_COUNT) {
        fig_fail(FIG_STALE, "section %.4s: unknown, flags are %#" PRIx32, entry->name,
                 entry->flags);
        return fig_sections_refuse_age(r->header.maker, "");
    }
    pass_optional(expected, s);
    if (s != *expected)
        return fig_fail(FIG_FORMAT, "section %s stands where %s must", fig_section_table[s].name,
                        *expected < FIG_SECTION_COUNT ? fig_section_table[*expected].name
                                                      : "the table's end");
    FIG_TRY(check_claims(entry, &fig_section_table[s], r->header.maker));
    r->table[s] = *entry;
    ++*expected;
    return FIG_OK;
}

static fig_status read_table(reader *r) {
    uint64_t at = sizeof r->header + r->header.section_count * sizeof(fig_file_section);
    fig_section expected = 0;
    for (uint32_t i = 0; i < r->header.section_count; i++) {
        fig_file_section entry;
        memcpy(&entry, r->bytes + sizeof r->header + i * sizeof entry, sizeof entry);
        FIG_TRY(check_name(&entry));
        if (entry.reserved != 0)
            return fig_fail(FIG_FORMAT, "section %.4s: reserved is %" PRIu32 ", it must be 0",
                            entry.name, entry.reserved);
        FIG_TRY(check_place(r, &entry, &at));
        FIG_TRY(read_entry(r, &entry, &expected));
    }
    pass_optional(&expected, FIG_SECTION_COUNT);
    if (expected != FIG_SECTION_COUNT)
        return fig_fail(FIG_FORMAT, "section %s is missing", fig_section_table[expected].name);
    if (at != r->count)
        return fig_fail(FIG_FORMAT, "the last section ends at byte %" PRIu64 ", the file at %zu",
                        at, r->count);
    if (!is_worth(r->table, FIG_SECTION_COUNT, r->count))
        return fig_fail(FIG_FORMAT, "the sections are more raw bytes than %d for each of %zu",
                        FIG_FILE_WORTH, r->count);
    return FIG_OK;
}

static fig_status check_frame(const reader *r, fig_section s) {
    static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    const fig_file_section *entry = &r->table[s];
    const char *name = fig_section_table[s].name;
    const uint8_t *frame = r->bytes + entry->offset;
    const size_t stored = (size_t)entry->stored_bytes;
    /* zstd itself would also accept frames of older formats and skippable frames. */
    if (stored < sizeof magic || memcmp(frame, magic, sizeof magic) != 0)
        return fig_fail(FIG_FORMAT, "section %s: no zstd frame at byte %" PRIu64, name,
                        entry->offset);
    const unsigned long long content = ZSTD_getFrameContentSize(frame, stored);
    if (content != entry->raw_bytes)
        return fig_fail(FIG_FORMAT,
                        "section %s: raw_bytes is %" PRIu64 ", its zstd frame says %lld", name,
                        entry->raw_bytes, (long long)content);
    if (ZSTD_findFrameCompressedSize(frame, stored) != stored)
        return fig_fail(FIG_FORMAT, "section %s: stored_bytes is %zu, not that of one zstd frame",
                        name, stored);
    return FIG_OK;
}

/* Copies the frame without decompressing it, because the content may be a thousand times as large
 * as the frame. */
static fig_status keep_sealed(const reader *r, fig_section s, void **frame) {
    const size_t stored = (size_t)r->table[s].stored_bytes;
    *frame = malloc(stored);
    if (*frame == NULL)
        return fig_fail(FIG_NOMEM, "section %s: %zu bytes", fig_section_table[s].name, stored);
    memcpy(*frame, r->bytes + r->table[s].offset, stored);
    return FIG_OK;
}

/* Decompresses one frame in a single call, directly to its place, so zstd allocates no window,
 * whatever window size the frame specifies. */
static fig_status decompress(const reader *r, fig_section s, ZSTD_DCtx *context, void **raw) {
    const char *name = fig_section_table[s].name;
    const size_t raw_bytes = (size_t)r->table[s].raw_bytes;
    FIG_TRY(check_frame(r, s));
    if (fig_section_table[s].sealed) return keep_sealed(r, s, raw);
    *raw = malloc(raw_bytes + 1); /* not NULL for an empty section either */
    if (*raw == NULL) return fig_fail(FIG_NOMEM, "section %s: %zu bytes", name, raw_bytes);
    const size_t done = ZSTD_decompressDCtx(context, *raw, raw_bytes, r->bytes + r->table[s].offset,
                                            (size_t)r->table[s].stored_bytes);
    if (done != raw_bytes)
        return fig_fail(FIG_FORMAT, "section %s: zstd: %s", name, ZSTD_getErrorName(done));
    return FIG_OK;
}

static fig_status decompress_all(const reader *r, fig_sections *sections) {
    fig_status status = FIG_OK;
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (context == NULL) return fig_fail(FIG_NOMEM, "sections: a zstd context");
    for (fig_section s = 0; s < FIG_SECTION_COUNT && status == FIG_OK; s++) {
        if (r->table[s].offset == 0) continue; /* absent */
        status = decompress(r, s, context, &sections->held[s]);
        sections->raw[s] = sections->held[s];
        sections->item_bytes[s] = r->table[s].item_bytes;
        sections->item_count[s] = (uint32_t)(r->table[s].raw_bytes / r->table[s].item_bytes);
        if (fig_section_table[s].sealed)
            sections->sealed_bytes[s] = (size_t)r->table[s].stored_bytes;
    }
    ZSTD_freeDCtx(context);
    FIG_TRY(status);

    uint8_t content_id[32];
    fig_sections_hash(sections, content_id);
    if (memcmp(content_id, r->header.content_id, sizeof content_id) != 0)
        return fig_fail(FIG_FORMAT, "header: content_id does not agree with the sections");
    return FIG_OK;
}

fig_status fig_sections_read(fig_sections *sections, const uint8_t *bytes, size_t count) {
    reader r = {.bytes = bytes, .count = count};
    memset(sections, 0, sizeof *sections);
    FIG_TRY(read_header(&r));
    sections->maker = r.header.maker;
    fig_status status = read_table(&r);
    if (status == FIG_OK) status = decompress_all(&r, sections);
    if (status == FIG_OK) return FIG_OK;
    fig_sections_finish(sections);
    /* The hash of the whole file matches, so the file is not damaged: its newer maker follows other
     * rules. */
    return status == FIG_FORMAT && r.header.maker > FIG_VERSION
               ? fig_sections_refuse_age(r.header.maker, "")
               : status;
}

void fig_sections_finish(fig_sections *sections) {
    for (fig_section s = 0; s < FIG_SECTION_COUNT; s++)
        free(sections->held[s]);
    memset(sections, 0, sizeof *sections);
}

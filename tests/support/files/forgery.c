/* forgery.c: takes a .fig file apart, so that a test can change it, and puts it together again.
 *
 * The code follows FORMAT.md, not the library's writer. SHA-256 is all that both share. */
#include "tests/support/files/forgery.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "graphs/view/hash.h"

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL) abort();
    return memory;
}

static uint8_t *copy(const uint8_t *bytes, size_t count) {
    uint8_t *held = allocate(count);
    if (count > 0) memcpy(held, bytes, count);
    return held;
}

void fig_forgery_close(fig_forgery *image) {
    for (uint32_t i = 0; i < image->count; i++)
        free(image->sections[i].raw);
    memset(image, 0, sizeof *image);
}

/* Reads a section. Returns 0 if its frame exceeds the file, or if the frame's contents have another
 * size than the section states. */
static int take_section(fig_forgery_section *section, const uint8_t *bytes, size_t count,
                        size_t raw_limit) {
    const fig_file_section *entry = &section->entry;
    if (entry->offset > count || entry->stored_bytes > count - entry->offset ||
        entry->raw_bytes > raw_limit)
        return 0;
    section->raw_bytes = (size_t)entry->raw_bytes;
    section->raw = allocate(section->raw_bytes);
    const size_t done = ZSTD_decompress(section->raw, section->raw_bytes, bytes + entry->offset,
                                        (size_t)entry->stored_bytes);
    return done == section->raw_bytes;
}

int fig_forgery_try(fig_forgery *image, const uint8_t *bytes, size_t count, size_t raw_limit) {
    fig_file_header header;
    memset(image, 0, sizeof *image);
    if (count < sizeof header) return 0;
    memcpy(&header, bytes, sizeof header);
    if (header.section_count > FIG_FILE_SECTION_LIMIT ||
        header.section_count * sizeof(fig_file_section) > count - sizeof header)
        return 0;
    image->maker = header.maker;
    for (uint32_t i = 0; i < header.section_count; i++) {
        fig_forgery_section *section = &image->sections[image->count++];
        memcpy(&section->entry, bytes + sizeof header + i * sizeof section->entry,
               sizeof section->entry);
        if (take_section(section, bytes, count, raw_limit)) continue;
        fig_forgery_close(image);
        return 0;
    }
    return 1;
}

void fig_forgery_open(fig_forgery *image, const uint8_t *bytes, size_t count) {
    if (!fig_forgery_try(image, bytes, count, SIZE_MAX)) abort();
}

void fig_forgery_insert(fig_forgery *image, uint32_t index, const fig_forgery_section *section) {
    fig_forgery_section inserted = *section;
    assert(image->count < FIG_FILE_SECTION_LIMIT && index <= image->count);
    inserted.raw = copy(section->raw, section->raw_bytes);
    memmove(&image->sections[index + 1], &image->sections[index],
            (image->count - index) * sizeof image->sections[0]);
    image->sections[index] = inserted;
    image->count++;
}

void fig_forgery_remove(fig_forgery *image, uint32_t index) {
    assert(index < image->count);
    free(image->sections[index].raw);
    image->count--;
    memmove(&image->sections[index], &image->sections[index + 1],
            (image->count - index) * sizeof image->sections[0]);
}

void fig_forgery_resize(fig_forgery *image, uint32_t index, size_t raw_bytes) {
    fig_forgery_section *section = &image->sections[index];
    uint8_t *raw = allocate(raw_bytes);
    const size_t kept = raw_bytes < section->raw_bytes ? raw_bytes : section->raw_bytes;
    memcpy(raw, section->raw, kept);
    free(section->raw);
    section->raw = raw;
    section->raw_bytes = raw_bytes;
}

static void hash_contents(const fig_forgery *image, uint8_t content_id[32]) {
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    for (uint32_t i = 0; i < image->count; i++) {
        const fig_forgery_section *section = &image->sections[i];
        const uint64_t raw_bytes = section->raw_bytes;
        const int derived = memcmp(section->entry.name, "KERN", 4) == 0 ||
                            memcmp(section->entry.name, "DIGS", 4) == 0;
        if (derived || section->entry.flags & FIG_FILE_ANCILLARY) continue;
        fig_hash_sha256_add(&hash, section->entry.name, 4);
        fig_hash_sha256_add(&hash, &raw_bytes, sizeof raw_bytes);
        fig_hash_sha256_add(&hash, section->raw, section->raw_bytes);
    }
    fig_hash_sha256_finish(&hash, content_id);
}

/* Writes a frame of uncompressed blocks that states the size of its contents. */
static size_t store(uint8_t *to, const uint8_t *raw, size_t raw_bytes) {
    enum { BLOCK_LIMIT = 1 << 17 };
    /* the flags: a single segment, and a size of 4 bytes */
    static const uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0xa0};
    uint8_t *next = to + sizeof head + 4;
    const uint32_t size = (uint32_t)raw_bytes;
    memcpy(to, head, sizeof head);
    memcpy(to + sizeof head, &size, 4);
    do {
        const size_t taken = raw_bytes < BLOCK_LIMIT ? raw_bytes : BLOCK_LIMIT;
        const uint32_t block = (uint32_t)taken << 3 | (taken == raw_bytes);
        memcpy(next, &block, 3);
        memcpy(next + 3, raw, taken);
        next += 3 + taken;
        raw += taken;
        raw_bytes -= taken;
    } while (raw_bytes > 0);
    return (size_t)(next - to);
}

uint8_t *fig_forgery_write(const fig_forgery *image, int level, size_t *count) {
    fig_file_header header = {
        .format = FIG_FILE_FORMAT, .section_count = image->count, .maker = image->maker};
    size_t at = sizeof header + image->count * sizeof(fig_file_section), capacity = at;
    for (uint32_t i = 0; i < image->count; i++)
        capacity += ZSTD_compressBound(image->sections[i].raw_bytes) + 32;
    uint8_t *bytes = allocate(capacity);
    for (uint32_t i = 0; i < image->count; i++) {
        const fig_forgery_section *section = &image->sections[i];
        fig_file_section entry = section->entry;
        entry.offset = at;
        entry.stored_bytes = level == 0 ? store(bytes + at, section->raw, section->raw_bytes)
                                        : ZSTD_compress(bytes + at, capacity - at, section->raw,
                                                        section->raw_bytes, level);
        if (ZSTD_isError((size_t)entry.stored_bytes)) abort();
        if (!section->forged) entry.raw_bytes = section->raw_bytes;
        memcpy(bytes + sizeof header + i * sizeof entry, &entry, sizeof entry);
        /* zstd may have written to bytes after its result. */
        memset(bytes + at + entry.stored_bytes, 0, capacity - at - (size_t)entry.stored_bytes);
        at = (at + (size_t)entry.stored_bytes + 7) / 8 * 8;
    }
    header.file_bytes = at;
    memcpy(header.magic, FIG_FILE_MAGIC, sizeof header.magic);
    hash_contents(image, header.content_id);
    memcpy(bytes, &header, sizeof header);
    fig_forgery_seal(bytes, at);
    *count = at;
    return bytes;
}

void fig_forgery_seal(uint8_t *bytes, size_t count) {
    uint8_t digest[32];
    fig_hash_sha256 hash;
    memset(bytes + offsetof(fig_file_header, check), 0, 8);
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, bytes, count);
    fig_hash_sha256_finish(&hash, digest);
    memcpy(bytes + offsetof(fig_file_header, check), digest, 8);
}

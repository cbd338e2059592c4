/* libfuzzer.c: calls entry point FUZZ for libFuzzer, and mutates .fig files so that their hashes
 * stay correct.
 *
 * If the bytes have the form of a .fig file, a mutation changes one section or a row of the table,
 * and the file is put together again with correct hashes and frames. From time to time, and always
 * if the bytes do not have that form, a mutation changes any byte. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/files/forgery.h"

/* libFuzzer prescribes these names. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t count, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t count, size_t most, unsigned seed);

enum { RAW_LIMIT = 1 << 16, GROWTH = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    return FUZZ(bytes, count);
}

/* Removes or repeats an item. */
static void change_items(fig_forgery *image, uint32_t index, unsigned turn) {
    fig_forgery_section *section = &image->sections[index];
    const size_t item = section->entry.item_bytes > 0 ? section->entry.item_bytes : 1;
    const size_t held = section->raw_bytes, at = held >= item ? turn / 2 % (held / item) * item : 0;
    if (held < item) return;
    if (turn % 2 == 0) {
        memmove(section->raw + at, section->raw + at + item, held - at - item);
        section->raw_bytes = held - item;
        return;
    }
    fig_forgery_resize(image, index, held + item);
    memmove(section->raw + at + item, section->raw + at, held - at);
}

/* Mostly keeps the section a whole number of items, since the reader refuses every other size. */
static void change_section(fig_forgery *image, uint32_t index, unsigned turn) {
    fig_forgery_section *section = &image->sections[index];
    const size_t item = section->entry.item_bytes > 0 ? section->entry.item_bytes : 1;
    const size_t held = section->raw_bytes, most = held + GROWTH;
    fig_forgery_resize(image, index, most);
    section->raw_bytes = held;
    size_t count = held;
    if (turn % 4 == 0) {
        count = LLVMFuzzerMutate(section->raw, held, most);
    } else if (held > 0) {
        const size_t at = turn / 4 % held, width = held - at < 8 ? held - at : 8;
        LLVMFuzzerMutate(section->raw + at, width, width);
    }
    section->raw_bytes = turn % 64 == 0 ? count : count / item * item;
}

static void change_table(fig_forgery *image, uint32_t index, unsigned turn) {
    fig_forgery_section *section = &image->sections[index];
    if (turn % 3 == 0 && image->count < FIG_FILE_SECTION_LIMIT) {
        const fig_forgery_section copy = *section;
        fig_forgery_insert(image, turn / 3 % (image->count + 1), &copy);
    } else if (turn % 3 == 1) {
        fig_forgery_remove(image, index);
    } else {
        uint8_t *entry = (uint8_t *)&section->entry;
        LLVMFuzzerMutate(entry, sizeof section->entry, sizeof section->entry);
        section->forged = turn / 3 % 2 == 0;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t count, size_t most, unsigned seed) {
    fig_forgery image;
    size_t made;
    const unsigned turn = seed / 16;
    if (seed % 16 == 0 || !fig_forgery_try(&image, bytes, count, RAW_LIMIT))
        return LLVMFuzzerMutate(bytes, count, most);
    if (image.count > 0 && seed % 16 == 1) change_table(&image, turn % image.count, turn / 64);
    if (image.count > 0 && seed % 16 == 2) change_items(&image, turn % image.count, turn / 64);
    if (image.count > 0 && seed % 16 > 2) change_section(&image, turn % image.count, turn / 64);
    uint8_t *file = fig_forgery_write(&image, 0, &made);
    if (made <= most) memcpy(bytes, file, made);
    free(file);
    fig_forgery_close(&image);
    return made <= most ? made : count;
}

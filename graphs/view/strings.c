/* strings.c: stores each name once, back to back, and finds names through a crit-bit tree.
 *
 * The author of a file chooses the names, and could choose names that collide in a hash table. In a
 * crit-bit tree a search passes at most one fork for each bit of the name, whatever the names are.
 * Invariant: the bits of forks increase on the way down, and slots are in the order of their
 * text. */
#include "graphs/view/strings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

enum { FIRST_BYTES = 256, FIRST_SLOTS = 32 };

static int is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

fig_status fig_strings_check_name(const char *name, const char *what) {
    size_t length = 0;
    if (name == NULL) return fig_fail(FIG_INVALID, "%s: name is NULL", what);
    while (length <= FIG_NAME_LIMIT && is_name_character(name[length]))
        length++;
    if (length > FIG_NAME_LIMIT)
        return fig_fail(FIG_INVALID, "%s: name \"%.16s...\" is longer than %d bytes", what, name,
                        FIG_NAME_LIMIT);
    if (length == 0 || name[length] != '\0')
        return fig_fail(FIG_INVALID,
                        "%s: name \"%.63s\" is not 1 to %d characters of [A-Za-z0-9._-]", what,
                        name, FIG_NAME_LIMIT);
    return FIG_OK;
}

/* A side of a fork, or the root, is the index of a slot or, with bit 0 set, of a fork. */
static uint32_t side_of_slot(uint32_t slot) {
    return slot << 1;
}

static uint32_t side_of_fork(uint32_t fork) {
    return fork << 1 | 1;
}

static int is_fork(uint32_t side) {
    return (int)(side & 1);
}

/* Returns bit `bit` of a name, counted from the highest bit of the first byte, or 0 past the name's
 * end. */
static uint32_t bit_of(const char *name, size_t length, uint32_t bit) {
    const uint32_t byte = bit / 8;
    return byte < length ? (uint32_t)(unsigned char)name[byte] >> (7 - bit % 8) & 1 : 0;
}

/* Returns the only slot that may hold `name`. The tree must not be empty. */
static fig_string_slot *nearest(const fig_strings *strings, const char *name, size_t length) {
    uint32_t side = strings->root;
    while (is_fork(side)) {
        const fig_string_fork *fork = &strings->forks[side >> 1];
        side = fork->sides[bit_of(name, length, fork->bit)];
    }
    return &strings->slots[side >> 1];
}

/* Returns the index of the first bit in which two different names differ. */
static uint32_t first_difference(const char *a, const char *b) {
    uint32_t byte = 0, bit = 0;
    while (a[byte] == b[byte])
        byte++;
    const uint32_t difference = (uint32_t)(unsigned char)(a[byte] ^ b[byte]);
    while (!(difference >> (7 - bit) & 1))
        bit++;
    return 8 * byte + bit;
}

/* Adds slot `slot`, whose text differs from all others, to the tree: fork `slot` is inserted where
 * the path down first passes `bit`. */
static void hang(fig_strings *strings, uint32_t slot, const char *name, uint32_t bit) {
    const size_t length = strlen(name);
    const uint32_t own = bit_of(name, length, bit);
    fig_string_fork *fork = &strings->forks[slot];
    uint32_t *side = &strings->root;
    while (is_fork(*side) && strings->forks[*side >> 1].bit < bit) {
        fig_string_fork *above = &strings->forks[*side >> 1];
        side = &above->sides[bit_of(name, length, above->bit)];
    }
    fork->bit = bit;
    fork->sides[own] = side_of_slot(slot);
    fork->sides[!own] = *side;
    *side = side_of_fork(slot);
}

/* Makes room for one more slot and the fork that comes with it. */
static fig_status reserve_slot(fig_strings *strings) {
    const uint32_t more = strings->slot_capacity == 0 ? FIRST_SLOTS : 2 * strings->slot_capacity;
    if (strings->count < strings->slot_capacity) return FIG_OK;
    fig_string_slot *slots = realloc(strings->slots, more * sizeof *slots);
    if (slots != NULL) strings->slots = slots;
    fig_string_fork *forks = realloc(strings->forks, more * sizeof *forks);
    if (forks != NULL) strings->forks = forks;
    if (slots == NULL || forks == NULL)
        return fig_fail(FIG_NOMEM, "names: %u slots of %zu bytes", more,
                        sizeof *slots + sizeof *forks);
    strings->slot_capacity = more;
    return FIG_OK;
}

static fig_status reserve_text(fig_strings *strings, uint32_t more) {
    uint32_t capacity = strings->capacity == 0 ? FIRST_BYTES : strings->capacity;
    if (more > FIG_STRING_BYTES_LIMIT - strings->bytes)
        return fig_fail(FIG_TOO_LARGE, "names: %u bytes and %u more, limit %d", strings->bytes,
                        more, FIG_STRING_BYTES_LIMIT);
    while (capacity < strings->bytes + more)
        capacity *= 2;
    if (capacity == strings->capacity) return FIG_OK;
    char *text = realloc(strings->text, capacity);
    if (text == NULL) return fig_fail(FIG_NOMEM, "names: %u bytes", capacity);
    strings->text = text;
    strings->capacity = capacity;
    return FIG_OK;
}

fig_status fig_strings_init(fig_strings *strings) {
    FIG_TRY(reserve_text(strings, 1));
    strings->text[0] = '\0';
    strings->bytes = 1;
    return FIG_OK;
}

fig_status fig_strings_load(fig_strings *strings, const char *text, uint32_t bytes) {
    fig_string_slot *slot;
    FIG_TRY(fig_strings_init(strings));
    if (bytes == 0 || bytes > FIG_STRING_BYTES_LIMIT)
        return fig_fail(FIG_FORMAT, "names: %u bytes, limits 1 to %d", bytes,
                        FIG_STRING_BYTES_LIMIT);
    if (text[0] != '\0' || text[bytes - 1] != '\0')
        return fig_fail(FIG_FORMAT, "names: byte %u is not NUL", text[0] != '\0' ? 0 : bytes - 1);
    for (uint32_t offset = 1; offset < bytes; offset = strings->bytes) {
        FIG_TRY(fig_strings_check_name(text + offset, "names"));
        FIG_TRY(fig_strings_add(strings, text + offset, &slot));
        if (slot->offset != offset)
            return fig_fail(FIG_FORMAT, "names: \"%s\" occurs twice", text + offset);
    }
    return FIG_OK;
}

void fig_strings_finish(fig_strings *strings) {
    free(strings->text);
    free(strings->slots);
    free(strings->forks);
    memset(strings, 0, sizeof *strings);
}

fig_string_slot *fig_strings_find(const fig_strings *strings, const char *name) {
    if (strings->count == 0) return NULL;
    fig_string_slot *slot = nearest(strings, name, strlen(name));
    return strcmp(strings->text + slot->offset, name) == 0 ? slot : NULL;
}

fig_string_slot *fig_strings_at(const fig_strings *strings, uint32_t offset) {
    uint32_t low = 0, high = strings->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strings->slots[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == strings->count || strings->slots[low].offset != offset) return NULL;
    return &strings->slots[low];
}

fig_status fig_strings_add(fig_strings *strings, const char *name, fig_string_slot **slot) {
    const uint32_t length = (uint32_t)strlen(name), added = strings->count;
    assert(length > 0 && length <= FIG_NAME_LIMIT);
    *slot = fig_strings_find(strings, name);
    if (*slot != NULL) return FIG_OK;
    FIG_TRY(reserve_slot(strings));
    FIG_TRY(reserve_text(strings, length + 1));
    if (added == 0) {
        strings->root = side_of_slot(0);
    } else {
        const char *other = strings->text + nearest(strings, name, length)->offset;
        hang(strings, added, name, first_difference(name, other));
    }
    memcpy(strings->text + strings->bytes, name, length + 1);
    strings->slots[added] = (fig_string_slot){.offset = strings->bytes};
    strings->bytes += length + 1;
    strings->count++;
    *slot = &strings->slots[added];
    return FIG_OK;
}

fig_status fig_strings_check_uses(const fig_strings *strings) {
    for (uint32_t i = 0; i < strings->count; i++) {
        if (strings->slots[i].uses == 0)
            return fig_fail(FIG_FORMAT, "names: nothing refers to \"%s\"",
                            strings->text + strings->slots[i].offset);
    }
    return FIG_OK;
}

int fig_strings_begins(const char *text, uint32_t bytes, uint32_t offset) {
    return offset > 0 && offset < bytes && text[offset - 1] == '\0' && text[offset] != '\0';
}

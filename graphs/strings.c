/* strings.c: names, each kept once, back to back, and found by hash.
 *
 * Slots are probed one after another from where the hash points, and hold offsets instead of
 * pointers because the text moves as it grows. Invariant: at least half of the slots are free, so a
 * probe ends. */
#include "graphs/strings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/hash.h"
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

/* The slot that holds `name`, or the free one where it belongs. */
static fig_string_slot *probe(const fig_strings *strings, const char *name, size_t length) {
    uint32_t mask = strings->slot_count - 1;
    uint32_t i = (uint32_t)fig_hash_mix(0, name, length) & mask;
    while (strings->slots[i].offset != 0 &&
           strcmp(strings->text + strings->slots[i].offset, name) != 0)
        i = (i + 1) & mask;
    return &strings->slots[i];
}

static fig_status resize_slots(fig_strings *strings, uint32_t slot_count) {
    assert((slot_count & (slot_count - 1)) == 0 && slot_count / 2 > strings->used);
    fig_strings larger = *strings;
    larger.slot_count = slot_count;
    larger.slots = calloc(slot_count, sizeof *larger.slots);
    if (larger.slots == NULL)
        return fig_fail(FIG_NOMEM, "names: %u slots of %zu bytes", slot_count,
                        sizeof *larger.slots);
    for (uint32_t i = 0; i < strings->slot_count; i++) {
        const fig_string_slot *slot = &strings->slots[i];
        if (slot->offset == 0) continue;
        const char *name = strings->text + slot->offset;
        *probe(&larger, name, strlen(name)) = *slot;
    }
    free(strings->slots);
    *strings = larger;
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
    return resize_slots(strings, FIRST_SLOTS);
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
    memset(strings, 0, sizeof *strings);
}

fig_string_slot *fig_strings_find(const fig_strings *strings, const char *name) {
    fig_string_slot *slot = probe(strings, name, strlen(name));
    return slot->offset == 0 ? NULL : slot;
}

fig_status fig_strings_add(fig_strings *strings, const char *name, fig_string_slot **slot) {
    uint32_t length = (uint32_t)strlen(name);
    assert(length > 0 && length <= FIG_NAME_LIMIT);
    *slot = probe(strings, name, length);
    if ((*slot)->offset != 0) return FIG_OK;
    if (strings->used + 1 >= strings->slot_count / 2) {
        FIG_TRY(resize_slots(strings, strings->slot_count * 2));
        *slot = probe(strings, name, length);
    }
    FIG_TRY(reserve_text(strings, length + 1));
    memcpy(strings->text + strings->bytes, name, length + 1);
    **slot = (fig_string_slot){strings->bytes, 0};
    strings->bytes += length + 1;
    strings->used++;
    return FIG_OK;
}

int fig_strings_begins(const char *text, uint32_t bytes, uint32_t offset) {
    return offset > 0 && offset < bytes && text[offset - 1] == '\0' && text[offset] != '\0';
}

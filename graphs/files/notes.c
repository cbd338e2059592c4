/* notes.c: text notes that a file carries about graphs, by key.
 *
 * Invariant: notes are sorted by key and no key occurs twice, so equal notes give equal bytes,
 * whatever order the caller gave them in. */
#include "graphs/files/notes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

/* Returns 1 if a whole note begins at offset `at` and both strings of the note end within
 * notes->bytes. */
static int note_at(const fig_notes *notes, uint32_t at, fig_note *note) {
    const char *text = notes->text;
    const uint32_t bytes = notes->bytes;
    const size_t key = strnlen(text + at, bytes - at);
    if (key >= bytes - at) return 0;
    const size_t value = strnlen(text + at + key + 1, bytes - at - key - 1);
    if (value >= bytes - at - key - 1) return 0;
    note->key = text + at;
    note->value = text + at + key + 1;
    return 1;
}

static uint32_t note_bytes(const fig_note *note) {
    return (uint32_t)(strlen(note->key) + strlen(note->value) + 2);
}

int fig_notes_at(const fig_notes *notes, int32_t index, fig_note *note) {
    uint32_t at = 0;
    for (int32_t i = 0; at < notes->bytes; i++) {
        if (!note_at(notes, at, note)) return 0;
        if (i == index) return 1;
        at += note_bytes(note);
    }
    return 0;
}

static int is_key(const char *key) {
    static const char allowed[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
    const size_t length = strlen(key);
    return length >= 1 && length <= FIG_NOTE_KEY_LIMIT && strspn(key, allowed) == length;
}

/* Returns the number of characters in front of the first that is not printable ASCII. */
static size_t printable(const char *text) {
    size_t count = 0;
    while (text[count] >= ' ' && text[count] <= '~')
        count++;
    return count;
}

static fig_status check_note(const fig_note *note, int32_t index) {
    const size_t shown = printable(note->key);
    if (!is_key(note->key))
        return fig_fail(FIG_INVALID,
                        "note %" PRId32
                        ": its key is \"%.*s\", it must be 1 to %d letters, digits, '.', '_' "
                        "and '-'",
                        index, (int)(shown < FIG_NOTE_KEY_LIMIT ? shown : FIG_NOTE_KEY_LIMIT),
                        note->key, FIG_NOTE_KEY_LIMIT);
    const size_t bytes = strlen(note->value), sound = printable(note->value);
    if (bytes > FIG_NOTE_VALUE_LIMIT)
        return fig_fail(FIG_INVALID, "note %s: its value has %zu characters, limit %d", note->key,
                        bytes, FIG_NOTE_VALUE_LIMIT);
    if (sound < bytes)
        return fig_fail(FIG_INVALID,
                        "note %s: byte %zu of its value is 0x%02x, it must be printable ASCII",
                        note->key, sound, (unsigned char)note->value[sound]);
    return FIG_OK;
}

fig_status fig_notes_check(const fig_notes *notes) {
    const char *before = "";
    uint32_t at = 0;
    for (int32_t i = 0; at < notes->bytes; i++) {
        fig_note note;
        if (i == FIG_NOTE_LIMIT)
            return fig_fail(FIG_INVALID, "notes: more than %d", FIG_NOTE_LIMIT);
        if (!note_at(notes, at, &note))
            return fig_fail(FIG_INVALID, "note %" PRId32 " does not end", i);
        FIG_TRY(check_note(&note, i));
        if (strcmp(before, note.key) >= 0)
            return fig_fail(FIG_INVALID, "note %s does not come after %s", note.key, before);
        before = note.key;
        at += note_bytes(&note);
    }
    return FIG_OK;
}

/* Returns the offset of the first note whose key is not below `key`. */
static uint32_t place_of(const fig_notes *notes, const char *key) {
    fig_note note;
    uint32_t at = 0;
    while (at < notes->bytes && note_at(notes, at, &note) && strcmp(note.key, key) < 0)
        at += note_bytes(&note);
    return at;
}

/* Removes the note with that key, if there is one. Returns the offset at which such a note
 * belongs. */
static uint32_t remove_note(fig_notes *notes, const char *key) {
    const uint32_t at = place_of(notes, key);
    fig_note note;
    if (at == notes->bytes) return at;
    note_at(notes, at, &note);
    if (strcmp(note.key, key) != 0) return at;
    const uint32_t gone = note_bytes(&note);
    notes->bytes -= gone;
    memmove(notes->text + at, notes->text + at + gone, notes->bytes - at);
    return at;
}

static fig_status put_note(fig_notes *notes, const fig_note *note) {
    const uint32_t at = remove_note(notes, note->key), more = note_bytes(note);
    if (notes->bytes + more > FIG_NOTE_BYTES_LIMIT)
        return fig_fail(FIG_INVALID, "notes: more than %d bytes", FIG_NOTE_BYTES_LIMIT);
    char *text = realloc(notes->text, notes->bytes + more);
    if (text == NULL) return fig_fail(FIG_NOMEM, "notes: %" PRIu32 " bytes", more);
    memmove(text + at + more, text + at, notes->bytes - at);
    const size_t key = strlen(note->key) + 1;
    memcpy(text + at, note->key, key);
    memcpy(text + at + key, note->value, more - key);
    notes->text = text;
    notes->bytes += more;
    return FIG_OK;
}

fig_status fig_notes_change(fig_notes *notes, const fig_note *given, int32_t count) {
    if (count < 0 || count > FIG_NOTE_LIMIT || (given == NULL && count > 0))
        return fig_fail(FIG_INVALID, "notes: count is %" PRId32 ", limits 0 to %d%s", count,
                        FIG_NOTE_LIMIT, given == NULL ? ", and notes is NULL" : "");
    for (int32_t i = 0; i < count; i++) {
        /* The stride is the size of the struct in the caller's header. */
        const void *next = (const uint8_t *)given + (size_t)i * given->size;
        fig_note note;
        FIG_TRY(fig_status_take_options(&note, sizeof note, next, "fig_note"));
        if (note.key == NULL) return fig_fail(FIG_INVALID, "note %" PRId32 ": key is NULL", i);
        if (note.value == NULL) {
            remove_note(notes, note.key);
            continue;
        }
        FIG_TRY(check_note(&note, i));
        FIG_TRY(put_note(notes, &note));
    }
    return fig_notes_check(notes);
}

fig_status fig_notes_clone(fig_notes *clone, const fig_notes *notes) {
    *clone = (fig_notes){NULL, 0};
    if (notes->bytes == 0) return FIG_OK;
    clone->text = malloc(notes->bytes);
    if (clone->text == NULL) return fig_fail(FIG_NOMEM, "notes: %" PRIu32 " bytes", notes->bytes);
    memcpy(clone->text, notes->text, notes->bytes);
    clone->bytes = notes->bytes;
    return FIG_OK;
}

void fig_notes_finish(fig_notes *notes) {
    free(notes->text);
    *notes = (fig_notes){NULL, 0};
}

/* strings.h: stores each name once, back to back, and finds a name in at most one step per bit.
 *
 * Owns the text of names and the rules for a name. Invariant: the text begins with "" and ends with
 * a NUL, so every offset below `bytes` is a terminated string. */
#ifndef FIG_GRAPHS_STRINGS_H
#define FIG_GRAPHS_STRINGS_H

#include "include/figraph.h"

enum {
    FIG_STRING_BYTES_LIMIT = 1 << 20,
    FIG_NAME_LIMIT = 63 /* bytes of a name */
};

/* The possible users of a name, as bits of fig_string_slot.uses. */
enum { FIG_STRING_TENSOR = 1, FIG_STRING_CALL = 2, FIG_STRING_SEGMENT = 4 };

/* The place of one name. Callers set `owner` and `uses`: a program sets `owner` to the id of the
 * tensor of that name, or 0, and `uses` to the kinds of users of the name. */
typedef struct fig_string_slot {
    uint32_t offset;
    uint32_t owner, uses;
} fig_string_slot;

/* The first bit in which the names below this fork differ; each side is a slot or another fork. */
typedef struct fig_string_fork {
    uint32_t bit, sides[2];
} fig_string_fork;

typedef struct fig_strings {
    char *text; /* [bytes] "\0silu\0rope\0..." */
    uint32_t bytes, capacity;
    fig_string_slot *slots; /* [count], by offset */
    fig_string_fork *forks; /* [count]: fork i came with slot i; slot 0 came without a fork */
    uint32_t count, slot_capacity;
    uint32_t root; /* a side; meaningless while there is no name */
} fig_strings;

/* `what` begins the error message: "tensor", "call". */
fig_status fig_strings_check_name(const char *name, const char *what);

/* init and load expect a zeroed struct. init leaves the struct without names. load copies `text`,
 * which may hold any bytes, after checking that every string in `text` is a valid name and occurs
 * once. */
fig_status fig_strings_init(fig_strings *strings);
fig_status fig_strings_load(fig_strings *strings, const char *text, uint32_t bytes);
void fig_strings_finish(fig_strings *strings);

/* Returns the slot of a name, or NULL if the name is not stored. */
fig_string_slot *fig_strings_find(const fig_strings *strings, const char *name);
/* Returns the slot whose name begins at `offset`, or NULL if no name begins there. */
fig_string_slot *fig_strings_at(const fig_strings *strings, uint32_t offset);
/* Finds the slot of a valid name, or adds a slot for a new name. The next addition may move
 * slots. */
fig_status fig_strings_add(fig_strings *strings, const char *name, fig_string_slot **slot);

/* Checks that every name has a user. FIG_FORMAT: some name has no user; a recorder would not have
 * kept that name. */
fig_status fig_strings_check_uses(const fig_strings *strings);

/* Returns 1 if a whole name, not the tail of a name, begins at `offset` of loaded or recorded
 * text. */
int fig_strings_begins(const char *text, uint32_t bytes, uint32_t offset);

#endif

/* strings.h: names, each kept once, back to back, and found in as many steps as they have bits.
 *
 * Owns their text and the rule of what a name may be. Invariant: text begins with "" and ends with
 * a NUL, so every offset below `bytes` is a terminated string. */
#ifndef FIG_GRAPHS_STRINGS_H
#define FIG_GRAPHS_STRINGS_H

#include "include/figraph.h"

enum {
    FIG_STRING_BYTES_LIMIT = 1 << 20,
    FIG_NAME_LIMIT = 63 /* bytes of a name */
};

/* What refers to a name: bits of fig_string_slot.uses. */
enum { FIG_STRING_TENSOR = 1, FIG_STRING_CALL = 2, FIG_STRING_SEGMENT = 4 };

/* `owner` and `uses` are the user's: a program keeps the id of the tensor of that name there, 0 for
 * none, and what refers to the name. */
typedef struct fig_string_slot {
    uint32_t offset;
    uint32_t owner, uses;
} fig_string_slot;

/* Where the names below it first differ; each side is a slot or another fork. */
typedef struct fig_string_fork {
    uint32_t bit, sides[2];
} fig_string_fork;

typedef struct fig_strings {
    char *text; /* [bytes] "\0silu\0rope\0..." */
    uint32_t bytes, capacity;
    fig_string_slot *slots; /* [count], by offset */
    fig_string_fork *forks; /* [count]: fork i came with slot i; slot 0 came with none */
    uint32_t count, slot_capacity;
    uint32_t root; /* a side; of nothing while there is no name */
} fig_strings;

/* `what` begins the sentence: "tensor", "call". */
fig_status fig_strings_check_name(const char *name, const char *what);

/* On a zeroed struct: empty, or a copy of `text` once every string in it is found to be a name that
 * occurs once. `text` may hold anything. */
fig_status fig_strings_init(fig_strings *strings);
fig_status fig_strings_load(fig_strings *strings, const char *text, uint32_t bytes);
void fig_strings_finish(fig_strings *strings);

/* The slot of a name; NULL where it is not there. */
fig_string_slot *fig_strings_find(const fig_strings *strings, const char *name);
/* The slot whose name begins at `offset`; NULL where none does. */
fig_string_slot *fig_strings_at(const fig_strings *strings, uint32_t offset);
/* The slot of a valid name, added where it is not there. Slots move with the next addition. */
fig_status fig_strings_add(fig_strings *strings, const char *name, fig_string_slot **slot);

/* FIG_FORMAT: a name is there that nothing uses, which a recorder would not have kept. */
fig_status fig_strings_check_uses(const fig_strings *strings);

/* 1: a name, and not the tail of one, begins at `offset` of loaded or recorded text. */
int fig_strings_begins(const char *text, uint32_t bytes, uint32_t offset);

#endif

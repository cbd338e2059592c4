/* strings.h: names, each kept once, back to back, and found by hash.
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

/* `owner` is the user's: a program keeps the tensor's id there, 0 for a name of calls alone. */
typedef struct fig_string_slot {
    uint32_t offset; /* 0: free */
    uint32_t owner;
} fig_string_slot;

typedef struct fig_strings {
    char *text; /* [bytes] "\0silu\0rope\0..." */
    uint32_t bytes, capacity;
    fig_string_slot *slots; /* [slot_count], a power of two and more than twice as many as names */
    uint32_t slot_count, used;
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
/* The slot of a valid name, added where it is not there. Slots move with the next addition. */
fig_status fig_strings_add(fig_strings *strings, const char *name, fig_string_slot **slot);

/* 1: a name, and not the tail of one, begins at `offset` of loaded or recorded text. */
int fig_strings_begins(const char *text, uint32_t bytes, uint32_t offset);

#endif

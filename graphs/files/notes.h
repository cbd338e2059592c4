/* notes.h: text notes that a file carries about graphs, by key.
 *
 * Owns the rules for keys and values. The library shows notes and attaches no meaning to them. */
#ifndef FIG_GRAPHS_NOTES_H
#define FIG_GRAPHS_NOTES_H

#include "include/figraph_archive.h"

enum {
    FIG_NOTE_LIMIT = 256,
    FIG_NOTE_KEY_LIMIT = 64,
    FIG_NOTE_VALUE_LIMIT = 4096,
    FIG_NOTE_BYTES_LIMIT = 1 << 16 /* bytes of all notes together */
};

/* The notes as section META stores them. A zeroed struct has no notes. */
typedef struct fig_notes {
    char *text; /* [bytes] key, NUL, value, NUL, and so on */
    uint32_t bytes;
} fig_notes;

/* Checks the rules for keys and values. FIG_INVALID: the message names the first violation. */
fig_status fig_notes_check(const fig_notes *notes);
/* Applies the changes in `given`, [count], to the notes. The size field of its first item is the
 * size of every item. A failure may leave some notes changed. */
fig_status fig_notes_change(fig_notes *notes, const fig_note *given, int32_t count);
/* Sets *note to note `index`, counted from 0. *note points into `notes`. Returns 0 if there is no
 * such note. */
int fig_notes_at(const fig_notes *notes, int32_t index, fig_note *note);
fig_status fig_notes_clone(fig_notes *clone, const fig_notes *notes);
void fig_notes_finish(fig_notes *notes); /* accepts a zeroed struct */

#endif

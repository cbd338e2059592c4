/* notes.h: words that a file carries about graphs, by key.
 *
 * Owns what keys and values may be. They mean nothing to this library, which shows them. */
#ifndef FIG_GRAPHS_NOTES_H
#define FIG_GRAPHS_NOTES_H

#include "include/figraph_archive.h"

enum {
    FIG_NOTE_LIMIT = 256,
    FIG_NOTE_KEY_LIMIT = 64,
    FIG_NOTE_VALUE_LIMIT = 4096,
    FIG_NOTE_BYTES_LIMIT = 1 << 16 /* of all */
};

/* As section META has them. All zero, there are none. */
typedef struct fig_notes {
    char *text; /* [bytes] key, NUL, value, NUL, and so on */
    uint32_t bytes;
} fig_notes;

/* FIG_INVALID names what no note may be. */
fig_status fig_notes_check(const fig_notes *notes);
/* given: [count] each as large as the first says. A failure may have changed some. */
fig_status fig_notes_change(fig_notes *notes, const fig_note *given, int32_t count);
/* 1: *note is that of the number, from 0, its words those of `notes`. */
int fig_notes_at(const fig_notes *notes, int32_t index, fig_note *note);
fig_status fig_notes_clone(fig_notes *clone, const fig_notes *notes);
void fig_notes_finish(fig_notes *notes); /* takes a zeroed one */

#endif

/* serve_pages.h: assigns the pages of the KV cache to sequences.
 *
 *     free    [7 | 2 | 9 | ...]     a stack: giving and taking are O(1)
 *     table   sequence 0: 4 1 6     its pages in the order of its tokens; as the device has it
 *             sequence 1: 0 8
 *
 * Owns the free pages and a copy of the page table; the loop tells the engine about changes.
 * Invariant: each page is either in the stack or held by exactly one sequence. */
#ifndef FIG_TOOLS_SERVE_PAGES_H
#define FIG_TOOLS_SERVE_PAGES_H

#include <figraph.h>

typedef struct fig_serve_pages {
    int32_t page_count, page_tokens;
    int32_t sequence_count, sequence_pages;
    int32_t *free; /* [page_count], free_count of them; the last is given next */
    int32_t free_count;
    int32_t *table; /* [sequence_count][sequence_pages]; entries of returned pages stay readable */
    int32_t *held;  /* [sequence_count] the number of the sequence's pages */
    int32_t most_used;
} fig_serve_pages;

typedef struct fig_serve_pages_options {
    int32_t page_count, page_tokens;
    int32_t sequence_count, sequence_pages;
} fig_serve_pages_options;

/* Returns FIG_EXIT_*; finish also accepts a zeroed struct. */
int fig_serve_pages_init(fig_serve_pages *pages, const fig_serve_pages_options *options);
void fig_serve_pages_finish(fig_serve_pages *pages);

/* Returns the number of pages that a sequence still needs for `tokens` tokens. */
int32_t fig_serve_pages_missing(const fig_serve_pages *pages, int32_t sequence, int32_t tokens);
/* Gives a sequence these pages and returns 1; *change has the new entries, for the engine. Returns
 * 0 if too few pages are free, and then gives none. */
int fig_serve_pages_grow(fig_serve_pages *pages, int32_t sequence, int32_t tokens,
                         fig_pages *change);
/* Takes back all pages of a sequence. */
void fig_serve_pages_release(fig_serve_pages *pages, int32_t sequence);

static inline int32_t fig_serve_pages_used(const fig_serve_pages *pages) {
    return pages->page_count - pages->free_count;
}

#endif

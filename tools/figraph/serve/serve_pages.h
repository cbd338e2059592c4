/* serve_pages.h: which page of the KV cache is whose.
 *
 *     free    [7 | 2 | 9 | ...]     a stack: giving and taking are O(1)
 *     table   sequence 0: 4 1 6     its pages in the order of its tokens; as the device has it
 *             sequence 1: 0 8
 *
 * Owns the free pages and a copy of the page table; leaves telling the engine to the loop.
 * Invariant: each page is in the stack or held by one sequence, and never in two places. */
#ifndef FIG_TOOLS_SERVE_PAGES_H
#define FIG_TOOLS_SERVE_PAGES_H

#include <figraph.h>

typedef struct fig_serve_pages {
    int32_t page_count, page_tokens;
    int32_t sequence_count, sequence_pages;
    int32_t *free; /* [page_count], free_count of them; the last is given next */
    int32_t free_count;
    int32_t *table; /* [sequence_count][sequence_pages]; what is given back stays to be read */
    int32_t *held;  /* [sequence_count] pages of it */
    int32_t most_used;
} fig_serve_pages;

typedef struct fig_serve_pages_options {
    int32_t page_count, page_tokens;
    int32_t sequence_count, sequence_pages;
} fig_serve_pages_options;

/* Returns FIG_EXIT_*; finish takes a zeroed struct. */
int fig_serve_pages_init(fig_serve_pages *pages, const fig_serve_pages_options *options);
void fig_serve_pages_finish(fig_serve_pages *pages);

/* Pages that a sequence lacks for so many tokens; 0: none. */
int32_t fig_serve_pages_missing(const fig_serve_pages *pages, int32_t sequence, int32_t tokens);
/* Gives them, and *change is what the engine is to be told: entries of this table. 0: fewer are
 * free, and nothing was given. */
int fig_serve_pages_grow(fig_serve_pages *pages, int32_t sequence, int32_t tokens,
                         fig_pages *change);
/* Takes all of a sequence back. */
void fig_serve_pages_release(fig_serve_pages *pages, int32_t sequence);

static inline int32_t fig_serve_pages_used(const fig_serve_pages *pages) {
    return pages->page_count - pages->free_count;
}

#endif

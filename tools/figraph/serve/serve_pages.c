/* serve_pages.c: keeps a stack of free pages, and the pages of each sequence. */
#include "tools/figraph/serve/serve_pages.h"

#include <assert.h>
#include <stdlib.h>

#include "tools/figraph/terminal/report.h"

int fig_serve_pages_init(fig_serve_pages *pages, const fig_serve_pages_options *options) {
    const size_t sequences = (size_t)options->sequence_count;
    assert(options->page_count > 0 && options->page_tokens > 0);
    *pages = (fig_serve_pages){
        .page_count = options->page_count,
        .page_tokens = options->page_tokens,
        .sequence_count = options->sequence_count,
        .sequence_pages = options->sequence_pages,
        .free = calloc((size_t)options->page_count, sizeof *pages->free),
        .free_count = options->page_count,
        .table = calloc(sequences * (size_t)options->sequence_pages, sizeof *pages->table),
        .held = calloc(sequences, sizeof *pages->held)};
    if (pages->free == NULL || pages->table == NULL || pages->held == NULL) {
        return fig_report_refuse("serve: no memory for a table of %d pages", pages->page_count);
    }
    for (int32_t i = 0; i < pages->page_count; i++)
        pages->free[i] = pages->page_count - 1 - i;
    return FIG_EXIT_FINE;
}

void fig_serve_pages_finish(fig_serve_pages *pages) {
    free(pages->free);
    free(pages->table);
    free(pages->held);
    *pages = (fig_serve_pages){0};
}

static int32_t *row_of(const fig_serve_pages *pages, int32_t sequence) {
    assert(sequence >= 0 && sequence < pages->sequence_count);
    return pages->table + (int64_t)sequence * pages->sequence_pages;
}

int32_t fig_serve_pages_missing(const fig_serve_pages *pages, int32_t sequence, int32_t tokens) {
    const int32_t held = pages->held[sequence];
    const int32_t wanted =
        (int32_t)(((int64_t)tokens + pages->page_tokens - 1) / pages->page_tokens);
    return wanted > held ? wanted - held : 0;
}

int fig_serve_pages_grow(fig_serve_pages *pages, int32_t sequence, int32_t tokens,
                         fig_pages *change) {
    const int32_t count = fig_serve_pages_missing(pages, sequence, tokens);
    int32_t *row = row_of(pages, sequence), *held = &pages->held[sequence];
    *change = (fig_pages){.size = sizeof *change, .sequence = sequence};
    if (count > pages->free_count) return 0;
    assert(*held + count <= pages->sequence_pages);
    change->first = *held;
    change->count = count;
    change->pages = row + *held;
    for (int32_t i = 0; i < count; i++)
        row[(*held)++] = pages->free[--pages->free_count];
    if (fig_serve_pages_used(pages) > pages->most_used)
        pages->most_used = fig_serve_pages_used(pages);
    return 1;
}

void fig_serve_pages_release(fig_serve_pages *pages, int32_t sequence) {
    const int32_t *row = row_of(pages, sequence);
    int32_t *held = &pages->held[sequence];
    while (*held > 0)
        pages->free[pages->free_count++] = row[--*held];
    assert(pages->free_count <= pages->page_count);
}

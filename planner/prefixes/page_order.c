/* page_order.c: sets entries, and sorts the sequences whose places change.
 *
 * A change of entry d of a sequence can affect the order only if the sequence shares at least d
 * pages with a neighbour. So if a row grows by a page behind its shared pages, the call only
 * compares two pairs of numbers. Invariant: nothing allocates after fig_page_order_init(). */
#include "planner/prefixes/page_order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

enum { BLOCK = 64 }; /* entries that one memcmp compares */

fig_status fig_page_order_init(fig_page_order *order, const fig_page_order_limits *limits) {
    const size_t sequences = (size_t)limits->sequences, pages = (size_t)limits->pages;
    size_t entries, bytes;
    *order = (fig_page_order){.sequence_limit = (int32_t)limits->sequences,
                              .page_limit = (int32_t)limits->pages};
    if (fig_size_multiply(&entries, sequences, pages) ||
        fig_size_multiply(&bytes, entries, sizeof *order->entries))
        return fig_fail(FIG_NOMEM, "page table: %zu sequences of %zu pages", sequences, pages);
    /* calloc gets a block this large from the system, which adds memory only as it is written. */
    order->entries = calloc(entries + 1, sizeof *order->entries);
    order->known = calloc(5 * sequences + 2, sizeof *order->known);
    order->is_marked = calloc(sequences + 1, 1);
    if (order->entries == NULL || order->known == NULL || order->is_marked == NULL) {
        fig_page_order_finish(order);
        return fig_fail(FIG_NOMEM, "page table: %zu sequences of %zu pages", sequences, pages);
    }
    order->order = order->known + sequences;
    order->place = order->order + sequences;
    order->marked = order->place + sequences;
    order->common = order->marked + sequences;
    for (size_t i = 0; i < sequences; i++)
        order->place[i] = -1;
    return FIG_OK;
}

void fig_page_order_finish(fig_page_order *order) {
    free(order->entries);
    free(order->known);
    free(order->is_marked);
    *order = (fig_page_order){0};
}

/* ---- Comparing ----------------------------------------------------------------------------- */

/* Returns the number of leading entries, among the first `count`, that are equal in both. */
static int32_t same_entries(const int32_t *a, const int32_t *b, int32_t count) {
    int32_t i = 0;
    while (i + BLOCK <= count && memcmp(a + i, b + i, BLOCK * sizeof *a) == 0)
        i += BLOCK;
    while (i < count && a[i] == b[i])
        i++;
    return i;
}

/* Returns the pages that two sequences share; the first `from` are known to be shared. */
static int32_t common_of(const fig_page_order *order, int32_t a, int32_t b, int32_t from) {
    const int32_t end = fig_size_min(order->known[a], order->known[b]);
    return from + same_entries(fig_page_order_row(order, a) + from,
                               fig_page_order_row(order, b) + from, end - from);
}

/* Returns 1 if `a` stands before `b`, with which it shares `common` pages. The shorter list comes
 * first if the longer one begins with it. */
static int is_before(const fig_page_order *order, int32_t a, int32_t b, int32_t common) {
    if (common == order->known[a] || common == order->known[b])
        return order->known[a] <= order->known[b];
    return fig_page_order_row(order, a)[common] < fig_page_order_row(order, b)[common];
}

/* ---- Setting entries ----------------------------------------------------------------------- */

void fig_page_order_set(fig_page_order *order, int32_t sequence, int32_t first, int32_t count,
                        const int32_t *pages) {
    assert(sequence >= 0 && sequence < order->sequence_limit);
    assert(first >= 0 && count >= 0 && first <= order->page_limit - count);
    if (count == 0) return;
    int32_t *entries = order->entries + (int64_t)sequence * order->page_limit + first;
    const int32_t was = order->known[sequence], place = order->place[sequence];
    const int32_t same = same_entries(entries, pages, count);
    int32_t changed = first + same;
    memcpy(entries + same, pages + same, (size_t)(count - same) * sizeof *pages);
    if (first + count > was) {
        order->known[sequence] = first + count;
        changed = fig_size_min(changed, was);
    } else if (same == count) {
        return;
    }
    if (order->is_marked[sequence]) return;
    if (place >= 0 && changed > order->common[place] && changed > order->common[place + 1]) return;
    order->is_marked[sequence] = 1;
    order->marked[order->marked_count++] = sequence;
}

/* ---- Finding places ------------------------------------------------------------------------ */

/* Takes all marked sequences out of the order. Two sequences that become neighbours share as many
 * pages as the least that neighbours between them shared. */
static void take_marked_out(fig_page_order *order) {
    int32_t kept = 0, common = INT32_MAX;
    for (int32_t i = 0; i < order->count; i++) {
        const int32_t sequence = order->order[i];
        common = fig_size_min(common, order->common[i]);
        if (order->is_marked[sequence]) continue;
        order->order[kept] = sequence;
        order->place[sequence] = kept;
        order->common[kept++] = common;
        common = INT32_MAX;
    }
    order->count = kept;
    order->common[kept] = 0;
}

/* Inserts a sequence by binary search. Let the new sequence share a pages with one end of the
 * searched interval, and b pages with the other end. Then it shares at least min(a, b) pages with
 * every sequence of the interval, so these pages are not compared again. */
static void put_in(fig_page_order *order, int32_t sequence) {
    int32_t low = 0, high = order->count, left = 0, right = 0;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2, other = order->order[middle];
        const int32_t common = common_of(order, other, sequence, fig_size_min(left, right));
        if (is_before(order, other, sequence, common)) {
            low = middle + 1;
            left = common;
        } else {
            high = middle;
            right = common;
        }
    }
    for (int32_t i = order->count++; i > low; i--) {
        order->order[i] = order->order[i - 1];
        order->common[i + 1] = order->common[i];
        order->place[order->order[i]] = i;
    }
    order->order[low] = sequence;
    order->place[sequence] = low;
    order->common[low] = left;
    order->common[low + 1] = right;
}

void fig_page_order_settle(fig_page_order *order) {
    if (order->marked_count == 0) return;
    take_marked_out(order);
    for (int32_t i = 0; i < order->marked_count; i++) {
        order->is_marked[order->marked[i]] = 0;
        put_in(order, order->marked[i]);
    }
    order->marked_count = 0;
}

/* table_mirrors.c: copies of page tables, made when a table is first used.
 *
 * Invariant: only fig_table_mirrors_prepare() allocates, and a table that was bound anew has no
 * copy until then. */
#include "engine/plans/table_mirrors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

enum { CHUNK = 64 }; /* entries written at a time */

/* If the node reads a page table, records the number of tokens in a page of its caches. */
static void note_pages(fig_table_mirrors *mirrors, uint8_t *is_noted, const fig_node *node) {
    uint32_t table;
    const int32_t tokens = fig_launch_page_tokens(mirrors->bindings->program, node, &table);
    if (table == 0) return;
    fig_table_mirror *mirror = &mirrors->of[table - 1];
    mirror->page_tokens = !is_noted[table - 1] || mirror->page_tokens == tokens ? tokens : 0;
    is_noted[table - 1] = 1;
}

fig_status fig_table_mirrors_init(fig_table_mirrors *mirrors, const fig_binding_table *bindings) {
    const fig_program_view *program = bindings->program;
    const size_t count = (size_t)program->tensor_count + 1;
    uint8_t *is_noted = calloc(count, 1);
    *mirrors =
        (fig_table_mirrors){bindings, calloc(count, sizeof *mirrors->of), program->tensor_count};
    if (is_noted == NULL || mirrors->of == NULL) {
        free(is_noted);
        fig_table_mirrors_finish(mirrors);
        return fig_fail(FIG_NOMEM, "engine: copies of page tables");
    }
    for (uint32_t n = 0; n < program->node_count; n++)
        if (program->nodes[n].op != FIG_OP_CALL) note_pages(mirrors, is_noted, &program->nodes[n]);
    free(is_noted);
    return FIG_OK;
}

void fig_table_mirrors_finish(fig_table_mirrors *mirrors) {
    for (uint32_t i = 0; mirrors->of != NULL && i < mirrors->count; i++)
        fig_page_order_finish(&mirrors->of[i].order);
    free(mirrors->of);
    *mirrors = (fig_table_mirrors){0};
}

const char *fig_table_mirrors_refuse(const fig_table_mirrors *mirrors, uint32_t t) {
    const fig_bound *bound = &mirrors->bindings->tensors[t - 1];
    const int64_t *dims = mirrors->bindings->program->tensors[t - 1].dims;
    if (dims[0] > INT32_MAX || dims[1] > INT32_MAX)
        return "it has more than 2^31 - 1 rows or pages";
    if (bound->written) return "a node of the program writes it";
    if (bound->place.address != NULL && bound->owned.device != bound->place.address)
        return "you bound it to memory of yours";
    if (mirrors->of[t - 1].lost != NULL) return mirrors->of[t - 1].lost;
    if (mirrors->of[t - 1].page_tokens == 0) return "its caches have pages of unlike sizes";
    return NULL;
}

fig_status fig_table_mirrors_prepare(fig_table_mirrors *mirrors, uint32_t t) {
    const int64_t *dims = mirrors->bindings->program->tensors[t - 1].dims;
    const fig_page_order_limits limits = {dims[0], dims[1]};
    fig_page_order *order = &mirrors->of[t - 1].order;
    assert(mirrors->bindings->tensors[t - 1].place.address != NULL);
    if (order->entries != NULL || fig_table_mirrors_refuse(mirrors, t) != NULL) return FIG_OK;
    mirrors->of[t - 1].version++;
    return fig_page_order_init(order, &limits);
}

/* ---- Changes of a table -------------------------------------------------------------------- */

void fig_table_mirrors_set(fig_table_mirrors *mirrors, uint32_t t, const fig_pages *pages) {
    fig_page_order *order = &mirrors->of[t - 1].order;
    if (order->entries == NULL) return;
    fig_page_order_set(order, pages->sequence, pages->first, pages->count, pages->pages);
}

void fig_table_mirrors_lose(fig_table_mirrors *mirrors, uint32_t t, const fig_pages *pages) {
    fig_page_order *order = &mirrors->of[t - 1].order;
    const int32_t end = pages->first + pages->count;
    int32_t unknown[CHUNK];
    if (order->entries == NULL) return;
    for (int32_t i = 0; i < CHUNK; i++)
        unknown[i] = -1 - pages->sequence;
    for (int32_t first = pages->first; first < end; first += CHUNK)
        fig_page_order_set(order, pages->sequence, first, fig_size_min(end - first, CHUNK),
                           unknown);
}

/* Updates entries [first, first + count) of a sequence with those bytes of a span that lie in them.
 * offset: where entry `first` begins in the tensor. from: the bytes of the span; NULL: the entries
 * become unknown. An unknown entry stays unknown if the span has only some of its bytes. */
static void write_entries(fig_page_order *order, const fig_pages *where, uint64_t offset,
                          const fig_span *span, const uint8_t *from) {
    const uint64_t end = offset + (uint64_t)where->count * sizeof(int32_t);
    const uint64_t begin = span->offset > offset ? span->offset : offset;
    const uint64_t stop = span->offset + span->bytes < end ? span->offset + span->bytes : end;
    const int32_t *before = fig_page_order_row(order, where->sequence) + where->first;
    int32_t entries[CHUNK];
    if (begin >= stop) return;
    const int32_t first = (int32_t)((begin - offset) / sizeof entries[0]);
    const int32_t last = (int32_t)((stop - 1 - offset) / sizeof entries[0]);
    memcpy(entries, before, sizeof entries[0] * (size_t)where->count);
    if (from != NULL)
        memcpy((uint8_t *)entries + (begin - offset), from + (begin - span->offset), stop - begin);
    for (int32_t i = first; i <= last; i++) {
        const uint64_t at = offset + (uint64_t)i * sizeof entries[0];
        const int is_whole = begin <= at && at + sizeof entries[0] <= stop;
        if (from == NULL || (before[i] < 0 && !is_whole)) entries[i] = -1 - where->sequence;
    }
    fig_page_order_set(order, where->sequence, where->first + first, last - first + 1,
                       entries + first);
}

void fig_table_mirrors_write(fig_table_mirrors *mirrors, uint32_t t, const fig_span *span,
                             const void *from) {
    const int64_t stride = mirrors->bindings->tensors[t - 1].place.strides[0];
    fig_page_order *order = &mirrors->of[t - 1].order;
    if (order->entries == NULL || span->bytes == 0) return;
    const uint64_t row_bytes = (uint64_t)stride * sizeof(int32_t);
    const uint64_t last = (span->offset + span->bytes - 1) / row_bytes;
    for (uint64_t s = span->offset / row_bytes; s <= last && s < (uint64_t)order->sequence_limit;
         s++) {
        for (int32_t first = 0; first < order->page_limit; first += CHUNK) {
            const fig_pages where = {.sequence = (int32_t)s,
                                     .first = first,
                                     .count = fig_size_min(order->page_limit - first, CHUNK)};
            write_entries(order, &where, s * row_bytes + (uint64_t)first * sizeof(int32_t), span,
                          from);
        }
    }
}

void fig_table_mirrors_forget(fig_table_mirrors *mirrors, uint32_t t) {
    fig_page_order_finish(&mirrors->of[t - 1].order);
    mirrors->of[t - 1].lost = NULL;
}

void fig_table_mirrors_give(fig_table_mirrors *mirrors, uint32_t t) {
    fig_page_order_finish(&mirrors->of[t - 1].order);
    mirrors->of[t - 1].lost = "you have its address and may write there";
}

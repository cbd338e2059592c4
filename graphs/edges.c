/* edges.c: the order that nodes must keep, as few edges as say it.
 *
 * Leaves what a node reads and writes to program.c. Invariant: since edges point forward, a node's
 * ancestors are all known before the node is reached, so one pass in node order reduces. */
#include "graphs/edges.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/table.h"
#include "planner/status.h"

/* No node has this number. */
#define NONE UINT32_MAX

static int order_accesses(const void *a, const void *b) {
    const fig_edge_access *x = a, *y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static int order_edges(const void *a, const void *b) {
    const fig_edge *x = a, *y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* One node's accesses to one tensor become one access. */
static uint32_t merge_accesses(fig_edge_access *accesses, uint32_t count) {
    uint32_t merged = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (merged > 0 && order_accesses(&accesses[merged - 1], &accesses[i]) == 0) {
            accesses[merged - 1].access |= accesses[i].access;
        } else {
            accesses[merged++] = accesses[i];
        }
    }
    return merged;
}

/* The edges of one tensor: all come after the last write, a write after all reads since. Each
 * access makes one edge at most here, and one at most where a later write makes one from it. */
static fig_edge *chain(fig_edge *next, const fig_edge_access *accesses, uint32_t count) {
    uint32_t writer = NONE, reader = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = accesses[i].node;
        if (writer != NONE) *next++ = (fig_edge){writer, node};
        if (!(accesses[i].access & FIG_ACCESS_WRITE)) continue;
        for (; reader < i; reader++)
            *next++ = (fig_edge){accesses[reader].node, node};
        writer = node;
        reader = i + 1;
    }
    return next;
}

/* Marks as NONE each edge of one node, all those with one `to`, that another of them implies, and
 * fills the node's row of ancestors. From the nearest ancestor down, because a path that implies an
 * edge enters the node from a nearer one. */
static void reduce_node(fig_edge *edges, size_t count, uint64_t *rows, size_t row_words) {
    uint64_t *row = rows + edges[0].to * row_words;
    for (size_t i = count; i > 0; i--) {
        uint32_t from = edges[i - 1].from;
        assert(from < edges[i - 1].to);
        if (row[from / 64] >> from % 64 & 1) {
            edges[i - 1].from = NONE;
            continue;
        }
        const uint64_t *ancestors = rows + from * row_words;
        for (size_t word = 0; word <= from / 64; word++)
            row[word] |= ancestors[word];
        row[from / 64] |= UINT64_C(1) << from % 64;
    }
}

fig_status fig_edges_derive(fig_edge **edges, uint32_t *edge_count, fig_edge_access *accesses,
                            uint32_t access_count) {
    *edges = NULL;
    *edge_count = 0;
    if (access_count == 0) return FIG_OK;
    qsort(accesses, access_count, sizeof *accesses, order_accesses);
    uint32_t count = merge_accesses(accesses, access_count);
    fig_edge *all = calloc(count, 2 * sizeof *all), *end = all;
    if (all == NULL) return fig_fail(FIG_NOMEM, "edges: %u of %zu bytes", 2 * count, sizeof *all);
    for (uint32_t first = 0, last; first < count; first = last) {
        last = first + 1;
        while (last < count && accesses[last].tensor == accesses[first].tensor)
            last++;
        end = chain(end, accesses + first, last - first);
    }
    uint32_t all_count = (uint32_t)(end - all);
    fig_status status = fig_edges_reduce(all, &all_count);
    if (status != FIG_OK || all_count == 0) {
        free(all);
        return status;
    }
    *edges = all;
    *edge_count = all_count;
    return FIG_OK;
}

fig_status fig_edges_reduce(fig_edge *edges, uint32_t *edge_count) {
    const uint32_t count = *edge_count;
    uint32_t kept = 0;
    if (count == 0) return FIG_OK;
    qsort(edges, count, sizeof *edges, order_edges);
    const size_t node_count = (size_t)edges[count - 1].to + 1;
    const size_t row_words = (node_count + 63) / 64;
    uint64_t *rows = calloc(node_count, row_words * sizeof *rows); /* [node_count][row_words] */
    if (rows == NULL)
        return fig_fail(FIG_NOMEM, "edges: %zu rows of %zu bytes", node_count,
                        row_words * sizeof *rows);
    for (uint32_t first = 0, last; first < count; first = last) {
        last = first + 1;
        while (last < count && edges[last].to == edges[first].to)
            last++;
        reduce_node(edges + first, last - first, rows, row_words);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (edges[i].from != NONE) edges[kept++] = edges[i];
    }
    free(rows);
    *edge_count = kept;
    return FIG_OK;
}

fig_status fig_edges_check(const fig_edge *edges, uint32_t edge_count, uint32_t node_count) {
    for (uint32_t i = 0; i < edge_count; i++) {
        const fig_edge edge = edges[i], *last = i == 0 ? NULL : &edges[i - 1];
        if (edge.from >= edge.to || edge.to >= node_count)
            return fig_fail(FIG_FORMAT, "edge %u: %u to %u of %u nodes", i, edge.from, edge.to,
                            node_count);
        if (last != NULL &&
            (edge.to < last->to || (edge.to == last->to && edge.from <= last->from)))
            return fig_fail(FIG_FORMAT, "edge %u: %u to %u follows %u to %u", i, edge.from, edge.to,
                            last->from, last->to);
    }
    return FIG_OK;
}

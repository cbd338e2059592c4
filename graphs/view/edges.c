/* edges.c: derives the order that nodes must keep, as the fewest edges that express it.
 *
 * program.c lists the accesses of nodes. Invariant: edges point forward, so all ancestors of a node
 * are known before the node is reached, and one pass in node order reduces the edges. */
#include "graphs/view/edges.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/table/table.h"
#include "planner/status.h"

/* No node has this number. */
#define NONE UINT32_MAX

/* The place of a sort key within each item of an array; all keys are below `limit`. */
typedef struct key {
    size_t item_bytes, offset;
    uint32_t limit;
} key;

static const key tensor_of = {sizeof(fig_edge_access), offsetof(fig_edge_access, tensor), 0};
static const key from_of = {sizeof(fig_edge), offsetof(fig_edge, from), 0};
static const key to_of = {sizeof(fig_edge), offsetof(fig_edge, to), 0};

static uint32_t number_at(const uint8_t *items, size_t index, const key *by) {
    uint32_t number;
    memcpy(&number, items + index * by->item_bytes + by->offset, sizeof number);
    return number;
}

static uint32_t limit_of(const void *items, size_t count, const key *by) {
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t number = number_at(items, i, by);
        if (number > most) most = number;
    }
    return most + 1;
}

/* A stable counting sort: a file may have so many edges that a comparison sort takes a tenth of a
 * second. ends: [by->limit + 1] scratch; after the call, it has the index at which the items of
 * each key end. */
static void sort(void *to, const void *from, size_t count, const key *by, size_t *ends) {
    memset(ends, 0, ((size_t)by->limit + 1) * sizeof *ends);
    for (size_t i = 0; i < count; i++)
        ends[number_at(from, i, by) + 1]++;
    for (uint32_t n = 0; n < by->limit; n++)
        ends[n + 1] += ends[n];
    for (size_t i = 0; i < count; i++) {
        const size_t at = ends[number_at(from, i, by)]++;
        memcpy((uint8_t *)to + at * by->item_bytes, (const uint8_t *)from + i * by->item_bytes,
               by->item_bytes);
    }
}

/* Sorts by tensor. The accesses of one tensor stay in the order of their nodes. */
static fig_status sort_accesses(fig_edge_access *accesses, uint32_t count) {
    key by = tensor_of;
    by.limit = limit_of(accesses, count, &by);
    fig_edge_access *sorted = calloc(count, sizeof *sorted);
    size_t *ends = calloc((size_t)by.limit + 1, sizeof *ends);
    const int is_made = sorted != NULL && ends != NULL;
    if (is_made) {
        sort(sorted, accesses, count, &by, ends);
        memcpy(accesses, sorted, count * sizeof *sorted);
    }
    free(sorted);
    free(ends);
    return is_made ? FIG_OK : fig_fail(FIG_NOMEM, "edges: %u accesses to sort", count);
}

/* Sorts by `to`, then by `from`. ends: [node_count + 1] receives the index at which the edges into
 * each node end. */
static fig_status sort_edges(fig_edge *edges, uint32_t count, uint32_t node_count, size_t *ends) {
    key by_from = from_of, by_to = to_of;
    by_from.limit = by_to.limit = node_count;
    fig_edge *sorted = calloc(count, sizeof *sorted);
    if (sorted == NULL) return fig_fail(FIG_NOMEM, "edges: %u to sort", count);
    sort(sorted, edges, count, &by_from, ends);
    sort(edges, sorted, count, &by_to, ends);
    free(sorted);
    return FIG_OK;
}

/* Merges each node's accesses to one tensor into one access. */
static uint32_t merge_accesses(fig_edge_access *accesses, uint32_t count) {
    uint32_t merged = 0;
    for (uint32_t i = 0; i < count; i++) {
        fig_edge_access *last = merged > 0 ? &accesses[merged - 1] : NULL;
        if (last != NULL && last->tensor == accesses[i].tensor && last->node == accesses[i].node) {
            last->access |= accesses[i].access;
        } else {
            accesses[merged++] = accesses[i];
        }
    }
    return merged;
}

/* Adds the edges of one tensor: every access comes after the last write, and a write also comes
 * after all reads since that write. Each access causes at most two edges: one into the access, and
 * one from the access to a later write. */
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

/* The ancestors of later nodes among nodes [begin, begin + BLOCK): each later node has a row with a
 * bit for each node of the block. Working in blocks keeps the rows small, however many nodes there
 * are. */
enum { BLOCK = 512, BLOCK_WORDS = BLOCK / 64 };
typedef struct block {
    uint32_t begin;
    uint64_t (*rows)[BLOCK_WORDS]; /* [node_count] */
} block;

/* Fills the row of node `to`. Of the edges into it that come from the block, marks with NONE each
 * edge that another edge implies. Goes through the edges from the nearest ancestor to the farthest,
 * because a path that implies an edge enters the node from a nearer ancestor. `edges` are the
 * sorted edges into the node; those from nodes behind the block are already reduced. */
static void reduce_node(const block *of, uint32_t to, fig_edge *edges, size_t count) {
    uint64_t *row = of->rows[to];
    for (size_t i = count; i > 0; i--) {
        const uint32_t from = edges[i - 1].from;
        if (from == NONE) continue;
        if (from < of->begin) break;
        assert(from < to);
        const uint32_t bit = from - of->begin;
        if (bit < BLOCK && (row[bit / 64] >> bit % 64 & 1)) {
            edges[i - 1].from = NONE;
            continue;
        }
        for (int word = 0; word < BLOCK_WORDS; word++)
            row[word] |= of->rows[from][word];
        if (bit < BLOCK) row[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* Reduces all edges. Goes from the last block to the first, as reduce_node() goes from the nearest
 * ancestor. */
static void reduce_all(fig_edge *edges, const size_t *ends, uint32_t node_count, block *of) {
    for (of->begin = (node_count - 1) / BLOCK * BLOCK;; of->begin -= BLOCK) {
        memset(of->rows + of->begin, 0, (node_count - of->begin) * sizeof *of->rows);
        for (uint32_t to = of->begin + 1; to < node_count; to++)
            reduce_node(of, to, edges + ends[to - 1], ends[to] - ends[to - 1]);
        if (of->begin == 0) return;
    }
}

fig_status fig_edges_derive(fig_edge **edges, uint32_t *edge_count, fig_edge_access *accesses,
                            uint32_t access_count) {
    *edges = NULL;
    *edge_count = 0;
    if (access_count == 0) return FIG_OK;
    FIG_TRY(sort_accesses(accesses, access_count));
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
    const uint32_t node_count = limit_of(edges, count, &to_of);
    size_t *ends = calloc((size_t)node_count + 1, sizeof *ends);
    block of = {.rows = calloc(node_count, sizeof *of.rows)};
    fig_status status = ends != NULL && of.rows != NULL
                            ? sort_edges(edges, count, node_count, ends)
                            : fig_fail(FIG_NOMEM, "edges: ancestors of %u nodes", node_count);
    if (status == FIG_OK) reduce_all(edges, ends, node_count, &of);
    free(of.rows);
    free(ends);
    FIG_TRY(status);
    for (uint32_t i = 0; i < count; i++) {
        if (edges[i].from != NONE) edges[kept++] = edges[i];
    }
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

/* prefixes.c: finds the groups of a step from the order of a page table.
 *
 * The items are the rows of the step, in the order of the table. An interval of items that share
 * more pages with each other than with their neighbours is a node of a tree. A node may become a
 * group. The group saves each of its rows the tiles of the shared pages. It costs the tiles of its
 * strips, and one more partial for each query token. The gain of pages [from, to), multiplied by
 * tile_tokens to be an integer, is:
 *
 *     gain = page_worth * (to - from) - tile_price * (end_tile(to) - begin_tile(from)) - price
 *
 * The search goes from the smallest nodes up. For each node it computes the largest possible sum of
 * gains inside the node, once for each group that may enclose the node and each number of levels
 * that remain. A tree that is deeper than FIG_PREFIXES_DEPTH_LIMIT is thinned out first. Invariant:
 * nothing allocates after fig_prefixes_init(). */
#include "planner/prefixes/prefixes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

enum { LEVELS = FIG_PREFIXES_LEVEL_LIMIT, DEPTHS = FIG_PREFIXES_DEPTH_LIMIT };

/* best[d][j][l] sums the gains of some finished nodes: those that have d ancestors and come after
 * the last finished node that has d - 1. The sum holds if the innermost group around these nodes is
 * their j-th ancestor, counted from 1 (0: there is no such group), and l levels remain. */
typedef struct choice {
    int64_t best[DEPTHS + 2][DEPTHS + 2][LEVELS + 1];
} choice;

fig_status fig_prefixes_init(fig_prefixes *prefixes, int32_t row_limit, int32_t sequence_limit) {
    /* The sequence of an idle row may be the row's number, which may exceed the limit. */
    const size_t rows = (size_t)row_limit;
    const size_t sequences = row_limit > sequence_limit ? rows : (size_t)sequence_limit;
    *prefixes =
        (fig_prefixes){.row_limit = row_limit, .sequence_limit = (int32_t)sequences, .rows = -1};
    prefixes->sequences = calloc(6 * rows + 1 + sequences, sizeof *prefixes->sequences);
    prefixes->items = calloc(rows + 1, sizeof *prefixes->items);
    prefixes->nodes = calloc(rows + 1, sizeof *prefixes->nodes);
    prefixes->groups = calloc(rows + 1, sizeof *prefixes->groups);
    if (prefixes->sequences == NULL || prefixes->items == NULL || prefixes->nodes == NULL ||
        prefixes->groups == NULL) {
        fig_prefixes_finish(prefixes);
        return fig_fail(FIG_NOMEM, "shared prefixes: %zu rows", rows);
    }
    prefixes->queries = prefixes->sequences + rows;
    prefixes->least = prefixes->queries + rows;
    prefixes->most = prefixes->least + rows;
    prefixes->members = prefixes->most + rows;
    prefixes->stack = prefixes->members + rows;
    prefixes->row_of = prefixes->stack + rows + 1;
    for (size_t i = 0; i < sequences; i++)
        prefixes->row_of[i] = -1;
    return FIG_OK;
}

void fig_prefixes_finish(fig_prefixes *prefixes) {
    free(prefixes->sequences);
    free(prefixes->items);
    free(prefixes->nodes);
    free(prefixes->groups);
    *prefixes = (fig_prefixes){.rows = -1};
}

void fig_prefixes_forget(fig_prefixes *prefixes) {
    prefixes->costs = (fig_prefixes_costs){0};
}

/* ---- Steps that change nothing ------------------------------------------------------------- */

static int32_t sequence_of(const fig_prefixes_step *step, int32_t row) {
    return step->sequences != NULL ? step->sequences[row] : row;
}

static int32_t queries_of(const fig_prefixes_step *step, int32_t row) {
    return step->queries != NULL ? step->queries[row] : step->row_tokens;
}

/* Returns 1 if the groups may differ from those of the last step: some row has another sequence, or
 * another number of query tokens, or a length outside [least, most]. The loop has no branches, so
 * that the compiler can vectorise it. */
static int differs(const fig_prefixes *prefixes, const fig_prefixes_step *step) {
    const int32_t *sequences = prefixes->sequences, *queries = prefixes->queries;
    const int32_t *least = prefixes->least, *most = prefixes->most, rows = step->rows;
    int32_t other = 0;
    for (int32_t row = 0; row < rows; row++)
        other |= (step->lengths[row] < least[row]) | (step->lengths[row] > most[row]);
    for (int32_t row = 0; row < rows && step->sequences != NULL; row++)
        other |= step->sequences[row] ^ sequences[row];
    for (int32_t row = 0; row < rows && step->sequences == NULL; row++)
        other |= row ^ sequences[row];
    for (int32_t row = 0; row < rows && step->queries != NULL; row++)
        other |= step->queries[row] ^ queries[row];
    return other != 0;
}

static int is_unchanged(const fig_prefixes *prefixes, const fig_page_order *order,
                        const fig_prefixes_costs *costs, const fig_prefixes_step *step) {
    if (order->marked_count > 0 || step->rows != prefixes->rows) return 0;
    if (prefixes->row_tokens != (step->queries == NULL ? step->row_tokens : 0)) return 0;
    if (memcmp(costs, &prefixes->costs, sizeof *costs) != 0) return 0;
    return !differs(prefixes, step);
}

/* ---- Items --------------------------------------------------------------------------------- */

/* Records the rows of the step. An idle row is no item, and affects no group while it is idle. */
static void take_rows(fig_prefixes *prefixes, const fig_prefixes_step *step) {
    for (int32_t i = 0; i < prefixes->rows; i++)
        prefixes->row_of[prefixes->sequences[i]] = -1;
    prefixes->rows = step->rows;
    prefixes->row_tokens = step->queries == NULL ? step->row_tokens : 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t queries = queries_of(step, row), sequence = sequence_of(step, row);
        const int is_idle = step->lengths[row] == 0 || queries == 0;
        prefixes->sequences[row] = sequence;
        prefixes->queries[row] = queries;
        prefixes->least[row] = queries == 0 ? INT32_MIN : step->lengths[row] != 0;
        prefixes->most[row] = is_idle && queries != 0 ? 0 : INT32_MAX;
        if (!is_idle && queries <= prefixes->costs.query_limit) prefixes->row_of[sequence] = row;
    }
}

/* Finds the items, and the number of pages that each shares with the preceding item. */
static void find_items(fig_prefixes *prefixes, const fig_page_order *order) {
    fig_prefixes_item *items = prefixes->items;
    int32_t count = 0, common = INT32_MAX;
    for (int32_t i = 0; i < order->count; i++) {
        const int32_t sequence = order->order[i];
        const int32_t row = sequence < prefixes->sequence_limit ? prefixes->row_of[sequence] : -1;
        common = fig_size_min(common, order->common[i]);
        if (row < 0) continue;
        items[count++] = (fig_prefixes_item){.row = row, .common = common};
        common = INT32_MAX;
    }
    if (count > 0) items[0].common = 0;
    items[count] = (fig_prefixes_item){0};
    prefixes->item_count = count;
}

/* For each row, counts the whole pages in front of its queries, but no more than the pages that it
 * shares with any other row. Sets the range of lengths in which this number stays the same. Most
 * rows reach the number of shared pages, which takes no division. */
static void count_pages(fig_prefixes *prefixes, const fig_prefixes_step *step) {
    const int32_t page_tokens = prefixes->costs.page_tokens;
    for (int32_t i = 0; i < prefixes->item_count; i++) {
        fig_prefixes_item *item = &prefixes->items[i];
        const int32_t queries = prefixes->queries[item->row];
        const int32_t old = step->lengths[item->row] - queries;
        const int32_t shared = item->common > item[1].common ? item->common : item[1].common;
        const int has_all = old >= (int64_t)shared * page_tokens;
        item->whole = has_all ? shared : old > 0 ? old / page_tokens : 0;
        const int64_t least = (int64_t)item->whole * page_tokens + queries;
        const int64_t most = has_all ? INT32_MAX : least + page_tokens - 1;
        if (item->whole > 0) prefixes->least[item->row] = (int32_t)least;
        prefixes->most[item->row] = (int32_t)(most < INT32_MAX ? most : INT32_MAX);
    }
}

/* Returns the last of `slots` whose entry in `commons` is at most `whole`. These entries are in
 * rising order, and commons[0] is 0. */
static int32_t slot_of(const int32_t *slots, int32_t count, const int32_t *commons, int32_t whole) {
    int32_t low = 0;
    while (count - low > 1) {
        const int32_t middle = low + (count - low) / 2;
        if (commons[slots[middle]] <= whole) {
            low = middle;
        } else {
            count = middle;
        }
    }
    return slots[low];
}

/* Finds the place of each item if only its whole pages count: if a row has fewer whole pages than
 * the rows on both sides share, it moves in front of all these rows. Of two items with the same
 * slot, one begins with all whole pages of the other. */
static void find_slots(fig_prefixes *prefixes) {
    int32_t *slots = prefixes->stack, *commons = prefixes->members, open = 0;
    for (int32_t i = 0; i < prefixes->item_count; i++) {
        fig_prefixes_item *item = &prefixes->items[i];
        commons[i] = item->common;
        while (open > 0 && commons[slots[open - 1]] >= item->common)
            open--;
        slots[open++] = i;
        item->slot = item->whole >= item->common ? i : slot_of(slots, open, commons, item->whole);
    }
}

/* Sorts the items by slot, and items of the same slot by the number of whole pages. Few items
 * move. */
static void sort_items(fig_prefixes *prefixes) {
    fig_prefixes_item *items = prefixes->items;
    for (int32_t i = 1; i < prefixes->item_count; i++) {
        const fig_prefixes_item item = items[i];
        int32_t to = i;
        for (; to > 0 && (items[to - 1].slot > item.slot ||
                          (items[to - 1].slot == item.slot && items[to - 1].whole > item.whole));
             to--)
            items[to] = items[to - 1];
        items[to] = item;
    }
}

/* Sets the whole pages that each item shares with the preceding one, and counts queries. */
static void join_items(fig_prefixes *prefixes) {
    fig_prefixes_item *items = prefixes->items;
    const int32_t *commons = prefixes->members, count = prefixes->item_count;
    int32_t before = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t common = i > 0 ? fig_size_min(items[i - 1].whole, items[i].whole) : 0;
        for (int32_t slot = i > 0 ? items[i - 1].slot + 1 : 0; slot <= items[i].slot; slot++)
            common = fig_size_min(common, commons[slot]);
        items[i].common = common;
        items[i].before = before;
        before += prefixes->queries[items[i].row];
    }
    items[count] = (fig_prefixes_item){.before = before};
}

/* ---- The tree ------------------------------------------------------------------------------ */

/* Adds the node of items [first, end), unless no group of these items can gain anything. To find
 * out, it computes the gain of a group that begins at page 0: if that group gains nothing, a group
 * of the same items that begins later, inside another group, gains nothing either. */
static void add_node(fig_prefixes *prefixes, int32_t first, int32_t end, int32_t depth) {
    const fig_prefixes_costs *costs = &prefixes->costs;
    const int32_t queries = prefixes->items[end].before - prefixes->items[first].before;
    const int32_t full = queries / costs->strip_queries, rest = queries % costs->strip_queries;
    const int is_lone = rest > 0 && rest <= costs->strip_queries / 2;
    const int64_t pairs = full + (rest > 0 && !is_lone);
    const int64_t once = pairs * costs->strip_once + is_lone * (int64_t)costs->lone_once;
    const int64_t tile = pairs * costs->strip_tile + is_lone * (int64_t)costs->lone_tile;
    const int64_t tokens = (int64_t)depth * costs->page_tokens;
    fig_prefixes_node node = {.first = first, .end = end, .depth = depth};
    node.begin_tile = (int32_t)(tokens / costs->strip_tile_tokens);
    node.end_tile = (int32_t)((tokens + costs->strip_tile_tokens - 1) / costs->strip_tile_tokens);
    node.page_worth = (int64_t)(end - first) * costs->page_tokens * costs->tile;
    node.tile_price = costs->tile_tokens * tile;
    node.price = costs->tile_tokens * (once + (int64_t)queries * costs->partial);
    if (node.page_worth * depth <= node.tile_price * node.end_tile + node.price) return;
    prefixes->nodes[prefixes->node_count++] = node;
}

/* Finds the nodes; each comes after the nodes inside it. The stack holds the first item of each
 * open interval. The depth of an interval is the number of pages that its first item shares with
 * the next item. */
static void find_nodes(fig_prefixes *prefixes) {
    const fig_prefixes_item *items = prefixes->items;
    int32_t *firsts = prefixes->stack, *depths = prefixes->members, open = 0;
    prefixes->node_count = 0;
    for (int32_t i = 1; i <= prefixes->item_count; i++) {
        const int32_t common = items[i].common;
        int32_t first = i - 1;
        while (open > 0 && depths[open - 1] > common) {
            first = firsts[--open];
            add_node(prefixes, first, i, depths[open]);
        }
        if (common == 0 || (open > 0 && depths[open - 1] == common)) continue;
        firsts[open] = first;
        depths[open++] = common;
    }
}

/* Finds the parent of each node, and returns the greatest level. */
static int32_t find_parents(fig_prefixes *prefixes) {
    fig_prefixes_node *nodes = prefixes->nodes;
    int32_t *around = prefixes->stack, open = 0, deepest = 0;
    for (int32_t n = prefixes->node_count - 1; n >= 0; n--) {
        while (open > 0 && nodes[around[open - 1]].first > nodes[n].first)
            open--;
        nodes[n].level = open;
        nodes[n].parent = open > 0 ? around[open - 1] : -1;
        around[open++] = n;
        if (nodes[n].level > deepest) deepest = nodes[n].level;
    }
    return deepest;
}

/* Thins out a deep tree. A run is a chain of nested nodes of which each has at least three quarters
 * of the rows of the outermost one; only the innermost node of a run stays. From one remaining node
 * to the next one inside it, the number of rows then shrinks by a quarter or more. So even in a
 * step of 1024 rows, at most 22 nodes are nested. */
static void thin_out(fig_prefixes *prefixes) {
    fig_prefixes_node *nodes = prefixes->nodes;
    int32_t *run = prefixes->members, kept = 0; /* [node] rows of its run's outermost node */
    for (int32_t n = prefixes->node_count - 1; n >= 0; n--) {
        const int32_t parent = nodes[n].parent, rows = nodes[n].end - nodes[n].first;
        const int is_run = parent >= 0 && rows * (int64_t)4 >= run[parent] * (int64_t)3;
        run[n] = is_run ? run[parent] : rows;
        if (is_run) nodes[parent].level = -1;
    }
    for (int32_t n = 0; n < prefixes->node_count; n++)
        if (nodes[n].level >= 0) nodes[kept++] = nodes[n];
    prefixes->node_count = kept;
}

/* ---- The choice ---------------------------------------------------------------------------- */

static int64_t gain_of(const fig_prefixes_node *node, int32_t from, int32_t begin_tile) {
    return node->page_worth * (node->depth - from) -
           node->tile_price * (node->end_tile - begin_tile) - node->price;
}

/* Clears the sums of the nodes that have `level` ancestors. */
static void clear(choice *all, int32_t level) {
    memset(all->best[level], 0, (size_t)(level + 1) * sizeof all->best[0][0]);
}

/* Decides, for each node and each choice of groups around it, whether the node is a group. */
static int64_t weigh(fig_prefixes *prefixes) {
    choice all;
    clear(&all, 0);
    for (int32_t n = 0, deepest = 0; n < prefixes->node_count; n++) {
        fig_prefixes_node *node = &prefixes->nodes[n];
        const int32_t level = node->level;
        for (; deepest <= level; deepest++)
            clear(&all, deepest + 1);
        int32_t around = node->parent;
        memset(node->taken, 0, sizeof node->taken);
        for (int32_t j = level; j >= 0; j--) {
            const fig_prefixes_node *outer = j > 0 ? &prefixes->nodes[around] : NULL;
            const int64_t gain = outer == NULL ? gain_of(node, 0, 0)
                                               : gain_of(node, outer->depth, outer->begin_tile);
            for (int32_t left = 1; left <= LEVELS; left++) {
                const int64_t without = all.best[level + 1][j][left];
                const int64_t with = gain + all.best[level + 1][level + 1][left - 1];
                if (with > without) node->taken[left] |= UINT32_C(1) << j;
                all.best[level][j][left] += with > without ? with : without;
            }
            if (outer != NULL) around = outer->parent;
        }
        clear(&all, level + 1);
    }
    return all.best[0][0][LEVELS];
}

/* Makes a group of each node that was chosen, from the outermost nodes inwards. Makes none if they
 * save no more than groups cost the step. */
static void take_groups(fig_prefixes *prefixes) {
    int32_t outer[DEPTHS + 2], left[DEPTHS + 2]; /* [number of ancestors] */
    int32_t ends[DEPTHS + 2] = {0};              /* [1 + number of ancestors] a node's depth */
    prefixes->group_count = 0;
    if (prefixes->costs.step > 0 && prefixes->saved <= prefixes->costs.step) return;
    outer[0] = 0;
    left[0] = LEVELS;
    for (int32_t n = prefixes->node_count - 1; n >= 0; n--) {
        const fig_prefixes_node *node = &prefixes->nodes[n];
        const int32_t level = node->level, around = outer[level];
        const int is_taken = (int)(node->taken[left[level]] >> around & 1);
        outer[level + 1] = is_taken ? level + 1 : around;
        left[level + 1] = left[level] - is_taken;
        ends[level + 1] = node->depth;
        if (!is_taken) continue;
        prefixes->groups[prefixes->group_count++] = (fig_prefixes_group){
            .first = node->first,
            .rows = node->end - node->first,
            .from = ends[around],
            .to = node->depth,
            .queries = prefixes->items[node->end].before - prefixes->items[node->first].before,
            .level = LEVELS - left[level]};
    }
}

int fig_prefixes_find(fig_prefixes *prefixes, fig_page_order *order,
                      const fig_prefixes_costs *costs, const fig_prefixes_step *step) {
    assert(step->rows >= 0 && step->rows <= prefixes->row_limit);
    if (is_unchanged(prefixes, order, costs, step)) return 0;
    prefixes->costs = *costs;
    fig_page_order_settle(order);
    take_rows(prefixes, step);
    find_items(prefixes, order);
    count_pages(prefixes, step);
    find_slots(prefixes);
    sort_items(prefixes);
    join_items(prefixes);
    find_nodes(prefixes);
    if (find_parents(prefixes) > DEPTHS) {
        thin_out(prefixes);
        find_parents(prefixes);
    }
    prefixes->saved = weigh(prefixes) / costs->tile_tokens;
    take_groups(prefixes);
    for (int32_t i = 0; i < prefixes->item_count; i++)
        prefixes->members[i] = prefixes->items[i].row;
    return 1;
}

/* shared_rows.c: makes a table of the rows that a caller describes, and searches it for groups.
 *
 * Entry p of the table is the number of the row that brought page p, plus 1. So two rows have the
 * same entry p only if one has the page from the other, or both from a third. Invariant: a row has
 * an entry for each page that some other row may have too, and none behind these. */
#include "graphs/shared_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/table/families.h"
#include "planner/status.h"

const char *fig_shared_rows_refuse(const fig_graphs *graphs, int32_t share) {
    if (share < 0) return "the option share turns it off";
    if (!fig_program_view_has_chunks(fig_program_view_of(graphs->program)))
        return "no row may be a chunk";
    if (graphs->target.deterministic) return "the graphs are deterministic";
    if (fig_graphs_sharer(graphs) >= 0) return NULL;
    for (int32_t i = 0; i < graphs->common.classes.count; i++)
        if (graphs->common.classes.of[i].shared_table != 0)
            return "the GPU has no kernel that would gain from it, or plans have no room for it";
    return "no attention can share tokens: each has a window, ALiBi, a score, scales, no page "
           "table, or a dtype or head_dim without a kernel that would gain from it";
}

/* The host has no second launch to wait for. */
int fig_shared_rows_always(const fig_graphs *graphs, int32_t share) {
    return share > 0 || graphs->target.traits.compute_capability == 0;
}

/* A step with groups takes a bucket with strips. Its limit is this one, or one that the query
 * tokens of the step do not reach. */
int32_t fig_shared_rows_limit(const fig_plan_shape *shape) {
    const int32_t rows = shape->row_limit;
    if (fig_plan_strips_room(shape) > 0) return fig_plan_shared_limit(shape);
    return rows > FIG_PLAN_SHARED_LEAST ? rows : (int32_t)FIG_PLAN_SHARED_LEAST;
}

/* ---- The table ------------------------------------------------------------------------------ */

static fig_status check_fork(const fig_plan_step *step, const fig_shared_forks *forks,
                             int32_t row) {
    const int32_t source = forks->sources[row], length = forks->lengths[row];
    if (length < 0 || length > step->lengths[row])
        return fig_fail(FIG_INVALID,
                        "plan: fork_lengths[%" PRId32 "] is %" PRId32
                        ", limits 0 to kv_lengths[%" PRId32 "], %" PRId32,
                        row, length, row, step->lengths[row]);
    if (length == 0) return FIG_OK;
    if (source < 0 || source > row)
        return fig_fail(FIG_INVALID,
                        "plan: fork_sources[%" PRId32 "] is %" PRId32 ", limits 0 to %" PRId32, row,
                        source, row);
    if (length <= step->lengths[source]) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "plan: fork_lengths[%" PRId32 "] is %" PRId32 ", limit kv_lengths[%" PRId32
                    "], %" PRId32,
                    row, length, source, step->lengths[source]);
}

static fig_status check_forks(const fig_plan_step *step, const fig_shared_forks *forks) {
    if (forks->share < -1 || forks->share > 1)
        return fig_fail(FIG_INVALID, "plan: share is %" PRId32 ", it is 0, 1 or -1", forks->share);
    if ((forks->sources == NULL) != (forks->lengths == NULL))
        return fig_fail(FIG_INVALID, "plan: fork_%s is NULL, and fork_%s is not",
                        forks->sources == NULL ? "sources" : "lengths",
                        forks->sources == NULL ? "lengths" : "sources");
    if (forks->lengths != NULL && step->lengths == NULL && step->rows > 0)
        return fig_fail(FIG_INVALID,
                        "plan: fork_lengths must be NULL, the program reads lengths on the device");
    for (int32_t row = 0; row < step->rows && forks->lengths != NULL; row++)
        FIG_TRY(check_fork(step, forks, row));
    return FIG_OK;
}

/* Returns the tokens of a page of all caches that are read through a table, or 0 if they differ. */
static int32_t page_tokens_of(const fig_program_view *view, uint32_t table) {
    int32_t all = 0, count = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        uint32_t own;
        if (view->nodes[n].op == FIG_OP_CALL) continue;
        const int32_t tokens = fig_launch_page_tokens(view, &view->nodes[n], &own);
        if (own == table) all = count++ == 0 || all == tokens ? tokens : 0;
    }
    return all;
}

static int is_written(const fig_program_view *view, uint32_t table) {
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        for (uint32_t i = 0; i < node->operand_count; i++)
            if (view->operands[node->operand + i] == table &&
                (fig_program_view_access(view, node, i) & FIG_ACCESS_WRITE))
                return 1;
    }
    return 0;
}

const char *fig_graphs_sharing(const fig_graphs *graphs) {
    const char *off = fig_shared_rows_refuse(graphs, 0);
    if (off != NULL) return off;
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const uint32_t table = graphs->common.classes.of[fig_graphs_sharer(graphs)].shared_table;
    if (is_written(view, table)) return "a node of the program writes the page table";
    if (page_tokens_of(view, table) == 0) return "the caches have pages of unlike sizes";
    return NULL;
}

/* Sets pages [rows] to the numbers of leading pages that each row and some other row may both have.
 * A row comes behind its source. Returns the largest number. */
static int32_t count_pages(const fig_plan_step *step, const fig_shared_forks *forks,
                           int32_t page_tokens, int32_t *pages) {
    int32_t most = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t own = forks->lengths[row] / page_tokens;
        if (own == 0) continue;
        int32_t *source = &pages[forks->sources[row]];
        if (own > *source) *source = own;
        if (own > pages[row]) pages[row] = own;
        if (own > most) most = own;
    }
    return most;
}

/* Sets the entries of all rows. entries: room for those of one row. */
static void set_entries(fig_shared_rows *shared, const fig_plan_step *step,
                        const fig_shared_forks *forks, const int32_t *pages, int32_t *entries) {
    for (int32_t row = 0; row < step->rows; row++) {
        int32_t copied = forks->lengths[row] / shared->costs.page_tokens;
        if (copied > 0 && forks->sources[row] == row) copied = 0;
        if (copied > 0)
            memcpy(entries, fig_page_order_row(&shared->order, forks->sources[row]),
                   (size_t)copied * sizeof *entries);
        for (int32_t i = copied; i < pages[row]; i++)
            entries[i] = row + 1;
        fig_page_order_set(&shared->order, row, 0, pages[row], entries);
    }
}

/* Makes the table, and the memory for groups. */
static fig_status make_table(fig_shared_rows *shared, const fig_plan_step *step,
                             const fig_shared_forks *forks) {
    const size_t rows = (size_t)step->rows;
    int32_t *pages = calloc(rows + 1, sizeof *pages), *entries = NULL;
    shared->groups = calloc(rows + 1, sizeof *shared->groups);
    fig_status status = FIG_OK;
    int32_t most = 0;
    if (pages != NULL && shared->groups != NULL) {
        most = count_pages(step, forks, shared->costs.page_tokens, pages);
        entries = calloc((size_t)most + 1, sizeof *entries);
    }
    if (entries == NULL) status = fig_fail(FIG_NOMEM, "plan: %zu rows that share pages", rows);
    if (status == FIG_OK)
        status = fig_page_order_init(&shared->order, &(fig_page_order_limits){step->rows, most});
    if (status == FIG_OK) status = fig_prefixes_init(&shared->prefixes, step->rows, step->rows);
    if (status == FIG_OK) set_entries(shared, step, forks, pages, entries);
    free(pages);
    free(entries);
    return status;
}

fig_status fig_shared_rows_init(fig_shared_rows *shared, const fig_graphs *graphs,
                                const fig_plan_step *step, const fig_shared_forks *forks) {
    *shared = (fig_shared_rows){.off = "no rows begin with the same pages"};
    FIG_TRY(check_forks(step, forks));
    if (forks->lengths == NULL) return FIG_OK;
    shared->off = fig_shared_rows_refuse(graphs, forks->share);
    if (shared->off == NULL) shared->off = fig_graphs_sharing(graphs);
    if (shared->off != NULL) return FIG_OK;
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const int32_t own = fig_graphs_sharer(graphs);
    shared->strips = graphs->buckets[0].strips[own];
    shared->costs = fig_prefix_groups_split_costs(
        &shared->strips, page_tokens_of(view, graphs->common.classes.of[own].shared_table));
    if (fig_shared_rows_always(graphs, forks->share)) shared->costs.step = 0;
    const fig_status status = make_table(shared, step, forks);
    if (status != FIG_OK) fig_shared_rows_finish(shared);
    return status;
}

void fig_shared_rows_finish(fig_shared_rows *shared) {
    fig_page_order_finish(&shared->order);
    fig_prefixes_finish(&shared->prefixes);
    free(shared->groups);
    *shared = (fig_shared_rows){0};
}

/* ---- Groups --------------------------------------------------------------------------------- */

const fig_plan_groups *fig_shared_rows_find(fig_shared_rows *shared, const fig_plan_shape *shape,
                                            const fig_plan_step *step) {
    const fig_prefixes_step of = {.rows = step->rows,
                                  .row_tokens = shape->row_tokens,
                                  .lengths = step->lengths,
                                  .queries = step->queries};
    if (shared->off != NULL) return NULL;
    fig_prefixes_find(&shared->prefixes, &shared->order, &shared->costs, &of);
    shared->found =
        (fig_plan_groups){.count = fig_prefix_groups_take(
                              &shared->prefixes, fig_shared_rows_limit(shape), shared->groups),
                          .of = shared->groups,
                          .order = shared->prefixes.members};
    return shared->found.count > 0 ? &shared->found : NULL;
}

const char *fig_shared_rows_why(const fig_shared_rows *shared) {
    const fig_prefixes *prefixes = &shared->prefixes;
    if (shared->off != NULL) return shared->off;
    if (prefixes->group_count > 0)
        return "the rows have more query tokens than all groups of a step may have";
    for (int32_t i = 0; i < prefixes->item_count; i++)
        if (prefixes->items[i].common > 0)
            return "to read these pages once would take more time than it saves";
    for (int32_t row = 0; row < prefixes->rows; row++)
        if (shared->order.known[row] > 0 && prefixes->queries[row] > shared->costs.query_limit)
            return "rows of so many query tokens read all of their pages";
    return "no two rows have a whole page in common in front of their query tokens";
}

/* The launches differ from bucket to bucket, and each chooses its family by its params. */
fig_status fig_shared_rows_serve_tails(const fig_graphs *graphs, const fig_bucket_shape *shape,
                                       int32_t *serves) {
    const int32_t sharer = fig_graphs_sharer(graphs);
    fig_lowered lowered;
    *serves = 0;
    if (sharer < 0 || !shape->paces[sharer].serves_tails) return FIG_OK;
    FIG_TRY(fig_lower_bucket(&graphs->common, shape, &lowered));
    *serves = 1;
    for (uint32_t i = 0; i < lowered.launch_count; i++) {
        const fig_launch *launch = &lowered.launches[i];
        fig_family_choice choice;
        if (launch->split_class != (uint32_t)sharer) continue;
        fig_families_choose((fig_op)launch->op, lowered.params + launch->params,
                            &graphs->target.traits, &choice);
        *serves &= fig_families_of((fig_op)launch->op, choice.family)->serves_tails;
    }
    fig_lower_finish(&lowered);
    return FIG_OK;
}

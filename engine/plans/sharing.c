/* sharing.c: finds groups, and records which sequences lend entries of the page table.
 *
 * Only one row of a group really lends its entries, but this file counts all rows of the group as
 * lenders, so that a caller need not know which row it is. In steady decode, rows lend the same
 * entries in step after step, and such a step only lengthens a run. Invariant: the groups of a step
 * are found in the current copy of the table, never in an older one. */
#include "engine/plans/sharing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

enum { PLAN_BITS = 64 };
static_assert((int)FIG_SLOT_LIMIT <= (int)PLAN_BITS,
              "fig_sharing_lent.plans has a bit for each plan");

fig_status fig_sharing_init(fig_sharing *sharing, const fig_table_mirrors *mirrors, int32_t share) {
    const fig_graphs *graphs = mirrors->bindings->graphs;
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const size_t rows = (size_t)view->spec.batch_limit;
    *sharing = (fig_sharing){.mirrors = mirrors, .off = fig_shared_rows_refuse(graphs, share)};
    if (sharing->off != NULL) return FIG_OK;
    sharing->always = fig_shared_rows_always(graphs, share);
    const int32_t own = fig_graphs_sharer(graphs);
    sharing->strips = graphs->buckets[0].strips[own];
    sharing->table = graphs->common.classes.of[own].shared_table;
    sharing->sequence_limit = view->spec.sequence_limit;
    sharing->groups = calloc(rows, sizeof *sharing->groups);
    sharing->lent = calloc((size_t)sharing->sequence_limit, sizeof *sharing->lent);
    if (sharing->groups == NULL || sharing->lent == NULL)
        return fig_fail(FIG_NOMEM, "engine: %zu rows that share pages", rows);
    return fig_prefixes_init(&sharing->prefixes, view->spec.batch_limit, sharing->sequence_limit);
}

void fig_sharing_finish(fig_sharing *sharing) {
    fig_prefixes_finish(&sharing->prefixes);
    free(sharing->groups);
    free(sharing->lent);
    *sharing = (fig_sharing){0};
}

const char *fig_sharing_refuse(const fig_sharing *sharing) {
    if (sharing->off != NULL) return sharing->off;
    return fig_table_mirrors_refuse(sharing->mirrors, sharing->table);
}

/* ---- Finding ------------------------------------------------------------------------------- */

const fig_plan_groups *fig_sharing_find(fig_sharing *sharing, const fig_plan_shape *shape,
                                        const fig_plan_step *step) {
    const int is_noted = sharing->is_noted;
    if (step->lengths == NULL || sharing->off != NULL) return NULL;
    fig_table_mirror *mirror = &sharing->mirrors->of[sharing->table - 1];
    sharing->is_noted = 0;
    if (mirror->order.entries == NULL) { /* there is no copy of the table */
        sharing->found.count = 0;
        return NULL;
    }
    if (mirror->version != sharing->version) fig_prefixes_forget(&sharing->prefixes);
    sharing->version = mirror->version;
    fig_prefixes_costs costs = fig_prefix_groups_split_costs(&sharing->strips, mirror->page_tokens);
    if (sharing->always) costs.step = 0;
    const fig_prefixes_step of = {.rows = step->rows,
                                  .row_tokens = shape->row_tokens,
                                  .lengths = step->lengths,
                                  .sequences = step->sequences,
                                  .queries = step->queries};
    const int32_t limit = fig_shared_rows_limit(shape);
    const int is_new = fig_prefixes_find(&sharing->prefixes, &mirror->order, &costs, &of);
    sharing->is_new = is_new || limit != sharing->shared_limit;
    sharing->is_kept = !sharing->is_new && is_noted;
    if (!sharing->is_kept)
        sharing->found = (fig_plan_groups){
            .count = fig_prefix_groups_take(&sharing->prefixes, limit, sharing->groups),
            .of = sharing->groups,
            .order = sharing->prefixes.members};
    sharing->shared_limit = limit;
    return sharing->found.count > 0 ? &sharing->found : NULL;
}

/* Returns the number of query tokens of a group's rows. */
static int64_t queries_of(const fig_sharing *sharing, const fig_strip_group *group) {
    int64_t queries = 0;
    for (int32_t n = 0; n < group->rows; n++)
        queries += sharing->prefixes.queries[sharing->found.order[group->first + n]];
    return queries;
}

static void note_plan(fig_sharing_lent *lent, uint64_t number) {
    const uint64_t since = number - lent->last;
    lent->plans = since < PLAN_BITS ? lent->plans << since | 1 : 1;
    lent->last = number;
}

/* Records that a sequence lends its first `entries` entries in plan plans->number. If the sequence
 * also lends entries in a plan that waits for a launch, the larger number of entries is kept. */
static void lend(fig_sharing_lent *lent, int32_t entries, const fig_sharing_plans *plans) {
    const int is_waiting = plans->number > plans->first && lent->last >= plans->first;
    if (!is_waiting || lent->count < entries) lent->count = entries;
    lent->in_run = entries;
    note_plan(lent, plans->number);
}

/* Returns what a sequence lends, with all plans of the run: what lend() would have recorded for
 * each of them. */
static fig_sharing_lent lent_of(const fig_sharing *sharing, int32_t sequence) {
    const fig_sharing_run *run = &sharing->run;
    fig_sharing_lent lent = sharing->lent[sequence];
    const uint64_t more = run->last - run->first;
    if (lent.in_run == 0 || more == 0) return lent;
    lent.last = run->last;
    lent.plans = more < PLAN_BITS ? lent.plans << more | ((UINT64_C(1) << more) - 1) : UINT64_MAX;
    if (run->is_alone) lent.count = lent.in_run;
    return lent;
}

/* Ends the run: records its plans for each sequence. O(sequences) */
static void end_run(fig_sharing *sharing) {
    for (int32_t s = 0; s < sharing->sequence_limit && sharing->run.first > 0; s++) {
        sharing->lent[s] = lent_of(sharing, s);
        sharing->lent[s].in_run = 0;
    }
    sharing->run = (fig_sharing_run){.first = 0};
}

/* Adds a plan to the run. */
static fig_sharing_counts lengthen_run(fig_sharing *sharing, const fig_sharing_plans *plans) {
    sharing->run.last = plans->number;
    if (plans->number <= plans->first) sharing->run.is_alone = 1;
    return sharing->run.counts;
}

/* Records a plan of which nothing is known, and begins a run with it. */
static fig_sharing_counts note_rows(fig_sharing *sharing, const fig_plan_step *step,
                                    const fig_sharing_plans *plans) {
    fig_sharing_counts counts = {.groups = step->groups->count};
    end_run(sharing);
    for (int32_t g = 0; g < counts.groups; g++) {
        const fig_strip_group *group = &step->groups->of[g];
        const int32_t entries = group->to / sharing->prefixes.costs.page_tokens;
        fig_prefix_groups_count(&sharing->strips, group, queries_of(sharing, group),
                                &counts.tokens);
        for (int32_t n = 0; n < group->rows; n++) {
            const int32_t row = step->groups->order[group->first + n];
            const int32_t sequence = step->sequences != NULL ? step->sequences[row] : row;
            lend(&sharing->lent[sequence], entries, plans);
        }
    }
    sharing->run =
        (fig_sharing_run){.first = plans->number, .last = plans->number, .counts = counts};
    return counts;
}

fig_sharing_counts fig_sharing_note(fig_sharing *sharing, const fig_plan_step *step,
                                    const fig_sharing_plans *plans) {
    if (step->groups == NULL) return (fig_sharing_counts){.groups = 0};
    note_plan(&sharing->of_any, plans->number);
    sharing->is_noted = 1;
    if (sharing->is_kept && sharing->run.first > 0 && sharing->run.last + 1 == plans->number)
        return lengthen_run(sharing, plans);
    return note_rows(sharing, step, plans);
}

static void forget(fig_sharing_lent *lent, uint64_t number) {
    if (lent->last != number) return;
    lent->plans &= ~UINT64_C(1);
    if (lent->plans == 0) lent->last = 0;
    while (lent->plans != 0 && (lent->plans & 1) == 0) {
        lent->plans >>= 1;
        lent->last--;
    }
}

void fig_sharing_forget_plan(fig_sharing *sharing, uint64_t number) {
    end_run(sharing);
    forget(&sharing->of_any, number);
    for (int32_t s = 0; s < sharing->sequence_limit; s++)
        forget(&sharing->lent[s], number);
}

void fig_sharing_forget_table(fig_sharing *sharing, uint32_t t) {
    if (t != sharing->table) return;
    sharing->of_any = (fig_sharing_lent){0};
    for (int32_t s = 0; s < sharing->sequence_limit; s++)
        sharing->lent[s] = (fig_sharing_lent){0};
}

/* ---- Entries that are lent ----------------------------------------------------------------- */

/* Returns 1 if the call sets entries of the table that is shared. */
static int sets_table(const fig_sharing *sharing, const fig_pages *pages) {
    if (sharing->table == 0) return 0;
    const fig_program_view *program = sharing->mirrors->bindings->program;
    return pages->table == NULL ||
           strcmp(pages->table, fig_program_view_tensor_name(program, sharing->table)) == 0;
}

/* The arguments have not been checked. If the engine does not know the entries any more, all that
 * are lent count as changed. */
int fig_sharing_is_changed(const fig_sharing *sharing, const fig_pages *pages, uint64_t first) {
    const int32_t sequence = pages->sequence;
    if (!sets_table(sharing, pages) || sequence < 0 || sequence >= sharing->sequence_limit ||
        pages->first < 0 || pages->pages == NULL)
        return 0;
    const fig_sharing_lent lent = lent_of(sharing, sequence);
    if (lent.last < first) return 0;
    const int32_t count = fig_size_min(pages->count, lent.count - pages->first);
    const fig_page_order *order = &sharing->mirrors->of[sharing->table - 1].order;
    if (count <= 0 || order->entries == NULL) return count > 0;
    return memcmp(pages->pages, fig_page_order_row(order, sequence) + pages->first,
                  (size_t)count * sizeof *pages->pages) != 0;
}

/* prompt_groups.c: puts the rows of a step in the order of their pages, once for each plan.
 *
 * planner/prefixes/prefix_groups.c has the costs. Invariant: a row shares only whole pages in front
 * of its queries. */
#include "engine/runs/prompt_groups.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/prefixes/prefix_groups.h"
#include "planner/status.h"

/* The data that the search for groups needs. */
typedef struct search {
    fig_page_order order;
    fig_prefixes prefixes;
    int32_t *queries, *lengths; /* [rows] */
} search;

static fig_status open_search(search *s, const fig_prompts_step *step) {
    const fig_page_order_limits limits = {step->rows, step->page_columns};
    const size_t rows = (size_t)step->rows;
    FIG_TRY(fig_page_order_init(&s->order, &limits));
    FIG_TRY(fig_prefixes_init(&s->prefixes, step->rows, step->rows));
    s->queries = calloc(2 * rows + 1, sizeof *s->queries);
    if (s->queries == NULL) return fig_fail(FIG_NOMEM, "plan: %" PRId32 " rows", step->rows);
    s->lengths = s->queries + rows;
    return FIG_OK;
}

static void close_search(search *s) {
    fig_page_order_finish(&s->order);
    fig_prefixes_finish(&s->prefixes);
    free(s->queries);
}

static void find(search *s, const fig_prompts_step *step, const fig_prefixes_costs *costs) {
    for (int32_t r = 0; r < step->rows; r++) {
        s->queries[r] = step->query_start[r + 1] - step->query_start[r];
        if (s->queries[r] == 0 || s->queries[r] > costs->query_limit) continue;
        s->lengths[r] = step->lengths[r];
        fig_page_order_set(&s->order, r, 0, s->lengths[r] / costs->page_tokens,
                           step->page_table + r * step->table_stride);
    }
    const fig_prefixes_step rows = {
        .rows = step->rows, .lengths = s->lengths, .queries = s->queries};
    fig_prefixes_find(&s->prefixes, &s->order, costs, &rows);
}

fig_status fig_prompt_groups_find(const fig_prompts_options *options, const fig_strips_shape *shape,
                                  const fig_prompts_step *step, fig_prompt_groups *groups) {
    const fig_prefixes_costs costs = fig_prefix_groups_costs(shape, options->page_size);
    const size_t rows = (size_t)step->rows;
    search s = {.queries = NULL};
    *groups = (fig_prompt_groups){.groups = calloc(rows + 1, sizeof *groups->groups),
                                  .order = calloc(rows + 1, sizeof *groups->order)};
    fig_status status = FIG_OK;
    if (groups->groups == NULL || groups->order == NULL)
        status = fig_fail(FIG_NOMEM, "plan: %" PRId32 " rows", step->rows);
    if (status == FIG_OK && rows > 0) status = open_search(&s, step);
    if (status == FIG_OK && rows > 0) {
        find(&s, step, &costs);
        groups->count = fig_prefix_groups_take(&s.prefixes, options->shared_limit, groups->groups);
        memcpy(groups->order, s.prefixes.members, rows * sizeof *groups->order);
    }
    close_search(&s);
    return status;
}

void fig_prompt_groups_finish(fig_prompt_groups *groups) {
    free(groups->groups);
    free(groups->order);
    *groups = (fig_prompt_groups){0};
}

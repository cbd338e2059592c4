/* prompt_groups.c: puts the rows of a step in the order of their pages, once for each plan.
 *
 * Only rows whose queries fit half a strip take part: the strips of longer rows are as full without
 * others. Invariant: a row shares only whole pages in front of its queries. */
#include "engine/runs/prompt_groups.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/prefixes/prefixes.h"
#include "planner/status.h"

/* Costs are those of strips.c in sixteenths. To leave one result more of a vector, and to merge it,
 * costs PARTIAL: 45 ns where a full tile takes 1.9 us. */
enum { FINE = 16, PARTIAL = 6 };

/* Everything that the search needs. */
typedef struct search {
    fig_page_order order;
    fig_prefixes prefixes;
    int32_t *queries, *lengths; /* [rows] */
} search;

static fig_prefixes_costs costs_of(const fig_prompts_options *options,
                                   const fig_strips_shape *shape) {
    const int32_t half = fig_strips_half(shape->ratio);
    const fig_strips_cost lone = fig_strips_cost_of(shape, 1);
    const fig_strips_cost full = fig_strips_cost_of(shape, 2 * half);
    return (fig_prefixes_costs){.page_tokens = options->page_size,
                                .query_limit = half,
                                .tile_tokens = shape->tile_tokens,
                                .tile = FINE * (int32_t)lone.tile,
                                .strip_queries = 2 * half,
                                .strip_tile_tokens = shape->tile_tokens,
                                .strip_once = FINE * (int32_t)full.once,
                                .strip_tile = FINE * (int32_t)full.tile,
                                .lone_once = FINE * (int32_t)lone.once,
                                .lone_tile = FINE * (int32_t)lone.tile,
                                .partial = PARTIAL * shape->ratio};
}

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

/* Takes groups as long as their query tokens are within the limit. A group comes before those
 * inside it, which go with it. */
static void take(const search *s, const fig_prompts_options *options, fig_prompt_groups *groups) {
    int32_t queries = 0, is_taken = 0;
    for (int32_t g = 0; g < s->prefixes.group_count; g++) {
        const fig_prefixes_group *found = &s->prefixes.groups[g];
        if (found->level == 0) {
            is_taken = found->queries <= options->shared_limit - queries;
            if (is_taken) queries += found->queries;
        }
        if (!is_taken) continue;
        groups->groups[groups->count++] =
            (fig_strip_group){.first = found->first,
                              .rows = found->rows,
                              .from = found->from * options->page_size,
                              .to = found->to * options->page_size};
    }
}

fig_status fig_prompt_groups_find(const fig_prompts_options *options, const fig_strips_shape *shape,
                                  const fig_prompts_step *step, fig_prompt_groups *groups) {
    const fig_prefixes_costs costs = costs_of(options, shape);
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
        take(&s, options, groups);
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

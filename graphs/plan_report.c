/* plan_report.c: what planning a step would do, on paper.
 *
 * Leaves the plan itself to planner/plan.c. Invariant: the plan that is reported on is the one that
 * an engine would stage, made by the same calls. */
#include "graphs/plan_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/step.h"
#include "planner/status.h"

/* Partials that a step leaves: the pieces of segments that have more than one. */
static int32_t count_partials(const fig_split_shape *split, const fig_split_line *line,
                              const fig_split_start *starts) {
    int32_t partials = 0;
    for (int32_t worker = 0; worker < line->active; worker++) {
        fig_split_start start = starts[worker];
        while (start.count > 0) {
            const fig_split_piece piece = fig_split_take(split, line, &start);
            partials += piece.first != piece.last;
        }
    }
    return partials;
}

/* What is asked about a step. */
typedef struct question {
    const fig_plan_step *step;
    int32_t split_class;
} question;

/* Of a class of a plan that has been written. */
static void report_split(const fig_bucket_shape *shape, const uint8_t *plan, const question *about,
                         fig_plan_report *report) {
    const int32_t own = about->split_class, rows = about->step->rows;
    const fig_split_shape *split = &shape->plan.splits[own];
    const void *prefix = plan + shape->plan.layout.prefix[own];
    const fig_split_start *starts = (const void *)(plan + shape->plan.layout.starts[own]);
    const fig_split_line line = fig_split_line_of(split, prefix, rows);
    report->workers = split->workers;
    report->tile_tokens = split->tile_tokens;
    report->tiles = line.tiles;
    report->tiles_least = INT32_MAX;
    for (int32_t worker = 0; worker < split->workers; worker++) {
        const int32_t tiles = starts[worker].count;
        if (tiles > report->tiles_most) report->tiles_most = tiles;
        if (tiles < report->tiles_least) report->tiles_least = tiles;
        if (report->worker_tiles != NULL && worker < report->worker_capacity)
            report->worker_tiles[worker] = tiles;
    }
    report->partials = count_partials(split, &line, starts);
    report->partial_limit = fig_split_partial_limit(split);
}

/* Of a plan that leaves nothing out, as that of an engine's first step; where only the device knows
 * the lengths there is no split to report on. */
static fig_status report_whole(const fig_bucket_shape *shape, const question *about,
                               fig_plan_held *held, fig_plan_report *report) {
    /* Two in one: what travels, and behind it what becomes of it. */
    const uint32_t limit = shape->plan.layout.bytes;
    uint8_t *slot = calloc(2, limit);
    if (slot == NULL) return fig_fail(FIG_NOMEM, "plan: %u bytes", limit);
    const uint32_t sections = fig_plan_settle(&shape->plan, about->step, held);
    report->plan_bytes = fig_plan_write(&shape->plan, about->step, sections, held, slot);
    fig_plan_unpack(&shape->plan, slot, slot + limit);
    if (shape->plan.class_count > 0) report_split(shape, slot + limit, about, report);
    free(slot);
    return FIG_OK;
}

static fig_status report_plan(const fig_graphs *graphs, const question *about,
                              fig_plan_report *report) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_split_classes classes;
    int32_t index;
    FIG_TRY(fig_bucket_choose(graphs->buckets, (int32_t)graphs->bucket_count, about->step, &index));
    FIG_TRY(fig_split_classes_find(view, &classes));
    const fig_bucket_shape *shape = &graphs->buckets[index];
    fig_plan_held held;
    FIG_TRY(fig_plan_held_init(&held, shape->plan.row_limit));
    report->bucket = index + 1;
    report->plan_bytes_limit = shape->plan.layout.bytes;
    if (classes.count > 0) report->heads = shape->variants[about->split_class].heads;
    fig_status status = report_whole(shape, about, &held, report);
    fig_plan_held_finish(&held);
    return status;
}

fig_status fig_plan_report_class(const fig_graphs *graphs, const fig_step *step,
                                 int32_t split_class, fig_plan_report *report) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_plan_step checked;
    fig_step_stamps stamps = {.of = calloc((size_t)view->spec.sequence_limit, sizeof *stamps.of)};
    fig_status status = FIG_OK;
    if (stamps.of == NULL)
        status = fig_fail(FIG_NOMEM, "plan: %" PRId32 " stamps", view->spec.sequence_limit);
    if (status == FIG_OK) status = fig_step_check(view, step, &stamps, &checked);
    if (status == FIG_OK) status = report_plan(graphs, &(question){&checked, split_class}, report);
    free(stamps.of);
    return status;
}

fig_status fig_graphs_plan(const fig_graphs *graphs, const fig_step *step,
                           fig_plan_report *report) {
    fig_plan_report given, ours = {.size = sizeof ours};
    FIG_TRY(fig_status_take_options(&given, sizeof given, report, "fig_plan_report"));
    ours.worker_tiles = given.worker_tiles;
    ours.worker_capacity = given.worker_capacity;
    const fig_status status = fig_plan_report_class(graphs, step, 0, &ours);
    FIG_TRY(fig_status_give(report, &ours, sizeof ours, "fig_plan_report"));
    return status;
}

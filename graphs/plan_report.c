/* plan_report.c: plans a step without a device and reports the result.
 *
 * planner/plans/plan.c makes the plan. Invariant: the reported plan is the one that an engine would
 * stage, made by the same calls. */
#include "graphs/plan_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/step.h"
#include "planner/split/units.h"
#include "planner/status.h"

/* Counts the partials of a step and the units of its fullest worker. If a segment has more than one
 * piece, each piece gives a partial. */
static void count_pieces(const fig_split_shape *split, const fig_split_line *line,
                         const fig_split_start *starts, fig_plan_report *report) {
    for (int32_t worker = 0; worker < split->workers; worker++) {
        fig_split_start start = starts[worker];
        int32_t units = FIG_UNITS_OF_TILE * start.count;
        while (start.count > 0) {
            const fig_split_piece piece = fig_split_take(split, line, &start);
            report->partials += piece.first != piece.last;
            units += report->once;
        }
        if (units > report->units_most) report->units_most = units;
    }
}

/* The step and class of the report. */
typedef struct question {
    const fig_plan_step *step;
    int32_t split_class;
} question;

/* Reports on one class of a plan that has been written. */
static void report_split(const fig_bucket_shape *shape, const uint8_t *plan, const question *about,
                         const fig_plan_held *held, fig_plan_report *report) {
    const int32_t own = about->split_class, rows = about->step->rows;
    const fig_split_shape *split = &shape->plan.splits[own];
    const int32_t *prefix = (const void *)(plan + shape->plan.layout.prefix[own]);
    const fig_split_start *starts = (const void *)(plan + shape->plan.layout.starts[own]);
    fig_split_line line = fig_split_line_of(split, prefix, rows);
    const fig_plan_head *head = (const void *)plan;
    if (head->sections & FIG_PLAN_BY_UNITS) line.starts = starts;
    fig_split_start cuts[FIG_WORKER_LIMIT];
    report->readers = held->readers[own];
    report->by_units =
        report->readers == 0 && fig_split_starts(split, shape->plan.once[own], prefix, rows, cuts);
    report->workers = split->workers;
    report->groups = split->groups;
    report->tile_tokens = split->tile_tokens;
    report->tiles = line.tiles;
    report->tiles_least = INT32_MAX;
    for (int32_t worker = 0; worker < split->workers; worker++) {
        const int32_t tiles = starts[worker].count;
        const int has_part = report->readers == 0 || worker < report->readers;
        if (tiles > report->tiles_most) report->tiles_most = tiles;
        if (has_part && tiles < report->tiles_least) report->tiles_least = tiles;
        if (report->worker_tiles != NULL && worker < report->worker_capacity)
            report->worker_tiles[worker] = tiles;
    }
    for (int32_t r = 0; r < rows && r < report->row_capacity && report->row_tiles != NULL; r++)
        report->row_tiles[r] = prefix[r + 1] - prefix[r];
    report->once = shape->plan.once[own];
    count_pieces(split, &line, starts, report);
    report->partial_limit = fig_split_partial_limit(split);
}

/* Reports on the strips of a class. */
static void report_strips(const fig_bucket_shape *shape, const uint8_t *plan, const question *about,
                          const fig_plan_held *held, fig_plan_report *report) {
    const uint8_t *strips =
        fig_plan_strips_of(plan, fig_plan_strips_place(&shape->plan), about->split_class);
    const fig_strips_shape *of = &shape->strips[about->split_class];
    const fig_strips_head *head = (const void *)strips;
    const int32_t *ranges = fig_strips_ranges(strips);
    const fig_strips_item *items = fig_strips_items(strips, of->workers);
    const fig_strips_limits limits = fig_plan_strips_limits(&shape->plan, of, held->chunk_least);
    report->chunks = held->chunk_count;
    report->strip_workers = of->workers;
    report->strip_tile_tokens = of->tile_tokens;
    report->strip_partials = head->partial_vectors;
    report->strip_partial_limit = (int32_t)fig_strip_sizes_bound(of, &limits).partial_vectors;
    report->strip_tiles_least = INT32_MAX;
    for (int32_t worker = 0; worker < of->workers; worker++) {
        int32_t tiles = 0, pieces = 0;
        for (int32_t i = ranges[worker]; i < ranges[worker + 1]; i++) {
            tiles += items[i].tiles * items[i].heads;
            pieces += items[i].heads;
            if (items[i].partial <= items[i].first_partial) report->strips += items[i].heads;
        }
        report->strip_pieces += pieces;
        report->strip_tiles += tiles;
        if (tiles > report->strip_tiles_most) report->strip_tiles_most = tiles;
        if (worker < of->workers - report->readers && tiles < report->strip_tiles_least)
            report->strip_tiles_least = tiles;
        if (worker >= report->strip_worker_capacity) continue;
        if (report->strip_worker_tiles != NULL) report->strip_worker_tiles[worker] = tiles;
        if (report->strip_worker_pieces != NULL) report->strip_worker_pieces[worker] = pieces;
    }
}

/* Reports on a plan that leaves nothing out, like the plan of an engine's first step. If only the
 * device knows the lengths, there is no split to report. */
static fig_status report_whole(const fig_bucket_shape *shape, const question *about,
                               fig_plan_held *held, fig_plan_report *report) {
    /* One block of memory holds two plans: the bytes that would be sent to the device, and behind
     * them the unpacked plan. */
    const uint32_t limit = shape->plan.layout.bytes;
    uint8_t *slot = calloc(2, limit);
    if (slot == NULL) return fig_fail(FIG_NOMEM, "plan: %u bytes", limit);
    const uint32_t sections = fig_plan_settle(&shape->plan, about->step, held);
    report->plan_bytes = fig_plan_write(&shape->plan, about->step, sections, held, slot);
    fig_plan_unpack(&shape->plan, slot, slot + limit);
    if (shape->plan.class_count > 0) report_split(shape, slot + limit, about, held, report);
    if (fig_plan_strips_room(&shape->plan) > 0)
        report_strips(shape, slot + limit, about, held, report);
    free(slot);
    return FIG_OK;
}

/* Sets `cheapest` to the bucket that the planner would choose if the step named no bucket. */
static fig_status find_cheapest(const fig_graphs *graphs, const fig_plan_step *step,
                                fig_plan_report *report) {
    fig_plan_step any = *step;
    int32_t index;
    any.bucket = 0;
    report->cheapest = report->bucket;
    if (step->bucket == 0) return FIG_OK;
    FIG_TRY(fig_bucket_choose(graphs->buckets, (int32_t)graphs->bucket_count, &any, &index));
    report->cheapest = index + 1;
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
    const fig_plan_held_limits limits = fig_graphs_held_limits(graphs);
    fig_plan_held held;
    FIG_TRY(fig_plan_held_init(&held, &limits));
    report->bucket = index + 1;
    FIG_TRY(find_cheapest(graphs, about->step, report));
    report->plan_bytes_limit = shape->plan.layout.bytes;
    if (classes.count > 0) report->heads = shape->variants[about->split_class].heads;
    fig_mask_lines lines;
    fig_status status = fig_graphs_mask_lines(graphs, &lines);
    fig_plan_step step = *about->step;
    if (status == FIG_OK) {
        step.hidden = fig_mask_lines_find(&lines, &shape->plan, &step);
        step.paces = shape->paces;
        status = report_whole(shape, &(question){&step, about->split_class}, &held, report);
    }
    fig_mask_lines_finish(&lines);
    fig_plan_held_finish(&held);
    return status;
}

void fig_plan_report_take_arrays(fig_plan_report *report, const fig_plan_report *given) {
    report->worker_tiles = given->worker_tiles;
    report->worker_capacity = given->worker_capacity;
    report->strip_worker_tiles = given->strip_worker_tiles;
    report->strip_worker_pieces = given->strip_worker_pieces;
    report->strip_worker_capacity = given->strip_worker_capacity;
    report->row_tiles = given->row_tiles;
    report->row_capacity = given->row_capacity;
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
    fig_plan_report_take_arrays(&ours, &given);
    const fig_status status = fig_plan_report_class(graphs, step, 0, &ours);
    FIG_TRY(fig_status_give(report, &ours, sizeof ours, "fig_plan_report"));
    return status;
}

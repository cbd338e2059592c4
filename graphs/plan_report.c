/* plan_report.c: plans a step without a device and reports the result.
 *
 * planner/plans/plan.c makes the plan. Invariant: the reported plan is the one that an engine would
 * stage, made by the same calls. */
#include "graphs/plan_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/shared_rows.h"
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

/* What a worker has of strips: of all, and of those that read the pages of groups. */
typedef struct worker_strips {
    int32_t tiles, pieces, strips, prefix_tiles, prefix_strips;
} worker_strips;

/* Adds up items. A strip counts where its first piece is. */
static worker_strips count_strips(const fig_strips_item *items, int32_t count) {
    worker_strips all = {0};
    for (int32_t i = 0; i < count; i++) {
        const fig_strips_item *item = &items[i];
        const int is_prefix = (item->flags & FIG_STRIPS_IS_PREFIX) != 0;
        const int begins = is_prefix ? item->slot == 0 : item->partial <= item->first_partial;
        const int32_t tiles = item->tiles * item->heads, strips = begins ? item->heads : 0;
        all.tiles += tiles;
        all.pieces += item->heads;
        all.strips += strips;
        all.prefix_tiles += is_prefix ? tiles : 0;
        all.prefix_strips += is_prefix ? strips : 0;
    }
    return all;
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
    report->strip_partials = head->partial_vectors + head->slot_vectors;
    report->strip_partial_limit = (int32_t)fig_strip_sizes_bound(of, &limits).partial_vectors;
    report->strip_tiles_least = INT32_MAX;
    for (int32_t worker = 0; worker < of->workers; worker++) {
        const worker_strips own =
            count_strips(items + ranges[worker], ranges[worker + 1] - ranges[worker]);
        report->strips += own.strips;
        report->strip_pieces += own.pieces;
        report->strip_tiles += own.tiles;
        report->prefix_strips += own.prefix_strips;
        report->prefix_tiles += own.prefix_tiles;
        if (own.tiles > report->strip_tiles_most) report->strip_tiles_most = own.tiles;
        if (worker < of->workers - report->readers && own.tiles < report->strip_tiles_least)
            report->strip_tiles_least = own.tiles;
        if (worker >= report->strip_worker_capacity) continue;
        if (report->strip_worker_tiles != NULL) report->strip_worker_tiles[worker] = own.tiles;
        if (report->strip_worker_pieces != NULL) report->strip_worker_pieces[worker] = own.pieces;
        if (report->strip_worker_prefix_tiles != NULL)
            report->strip_worker_prefix_tiles[worker] = own.prefix_tiles;
    }
}

/* Reports on the groups of the class that shares. */
static void report_groups(const fig_strips_shape *strips, const fig_plan_held *held,
                          fig_plan_report *report) {
    fig_prefix_reads reads = {0};
    report->shared_groups = held->group_count;
    for (int32_t g = 0; g < held->group_count; g++) {
        const fig_strip_group *group = &held->groups[g];
        fig_prefix_groups_count(strips, group, fig_plan_held_queries(held, group), &reads);
        if (g >= report->group_capacity) continue;
        if (report->group_rows != NULL) report->group_rows[g] = group->rows;
        if (report->group_firsts != NULL) report->group_firsts[g] = group->from;
        if (report->group_ends != NULL) report->group_ends[g] = group->to;
    }
    for (int32_t row = 0; row < held->rows && held->group_count > 0; row++) {
        const int32_t first = held->work.rows[row].from;
        report->shared_rows += first > 0;
        report->tails += held->has_tails && held->before[row] > 0;
        if (report->row_firsts != NULL && row < report->row_capacity)
            report->row_firsts[row] = first;
    }
    report->shared_read = reads.read;
    report->shared_saved = reads.saved;
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
    if (shape->strips[about->split_class].shares)
        report_groups(&shape->strips[about->split_class], held, report);
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

/* Chooses a bucket for the step and finds its groups, as an engine does for the first step with
 * these groups: they decide the bucket, and a bucket limits their query tokens. */
static fig_status choose(const fig_graphs *graphs, fig_shared_rows *shared, fig_plan_step *step,
                         int32_t *index) {
    const fig_bucket_shape *buckets = graphs->buckets;
    const int32_t count = (int32_t)graphs->bucket_count;
    const int is_named = step->bucket >= 1 && step->bucket <= count;
    *index = step->bucket - 1;
    if (!is_named) FIG_TRY(fig_bucket_choose(buckets, count, step, index));
    step->groups = fig_shared_rows_find(shared, &buckets[*index].plan, step);
    if (!is_named && step->groups == NULL) return FIG_OK;
    return fig_bucket_choose(buckets, count, step, index);
}

/* Reports on the step in the bucket that it takes. The plan of a bucket of ones or of drafts has no
 * place for groups. */
static fig_status report_bucket(const fig_graphs *graphs, const question *about,
                                const fig_shared_rows *shared, int32_t index,
                                fig_plan_report *report) {
    const fig_bucket_shape *shape = &graphs->buckets[index];
    const fig_plan_held_limits limits = fig_graphs_held_limits(graphs);
    fig_plan_step step = *about->step;
    fig_plan_held held;
    fig_mask_lines lines;
    FIG_TRY(find_cheapest(graphs, &step, report));
    if (step.groups == NULL) report->unshared = fig_shared_rows_why(shared);
    if (step.groups != NULL && fig_plan_strips_room(&shape->plan) == 0) {
        report->unshared = "the step names a bucket that has no place for groups";
        step.groups = NULL;
    }
    if (step.groups != NULL && about->split_class != fig_graphs_sharer(graphs))
        report->unshared = "only another class of attention can share pages";
    if (step.groups != NULL)
        FIG_TRY(fig_shared_rows_serve_tails(graphs, shape, &step.serves_tails));
    FIG_TRY(fig_plan_held_init(&held, &limits));
    fig_status status = fig_graphs_mask_lines(graphs, &lines);
    if (status == FIG_OK) {
        step.hidden = fig_mask_lines_find(&lines, &shape->plan, &step);
        step.paces = shape->paces;
        status = report_whole(shape, &(question){&step, about->split_class}, &held, report);
    }
    fig_mask_lines_finish(&lines);
    fig_plan_held_finish(&held);
    return status;
}

static fig_status report_plan(const fig_graphs *graphs, const question *about,
                              fig_plan_report *report) {
    const fig_shared_forks forks = {report->fork_sources, report->fork_lengths, report->share};
    fig_shared_rows shared;
    fig_plan_step step = *about->step;
    int32_t index;
    FIG_TRY(fig_shared_rows_init(&shared, graphs, &step, &forks));
    fig_status status = choose(graphs, &shared, &step, &index);
    if (status == FIG_OK) {
        const fig_bucket_shape *shape = &graphs->buckets[index];
        report->bucket = index + 1;
        report->plan_bytes_limit = shape->plan.layout.bytes;
        if (graphs->common.classes.count > 0)
            report->heads = shape->variants[about->split_class].heads;
        status =
            report_bucket(graphs, &(question){&step, about->split_class}, &shared, index, report);
    }
    fig_shared_rows_finish(&shared);
    return status;
}

void fig_plan_report_take_inputs(fig_plan_report *report, const fig_plan_report *given) {
    report->worker_tiles = given->worker_tiles;
    report->worker_capacity = given->worker_capacity;
    report->strip_worker_tiles = given->strip_worker_tiles;
    report->strip_worker_pieces = given->strip_worker_pieces;
    report->strip_worker_capacity = given->strip_worker_capacity;
    report->row_tiles = given->row_tiles;
    report->row_capacity = given->row_capacity;
    report->row_firsts = given->row_firsts;
    report->fork_sources = given->fork_sources;
    report->fork_lengths = given->fork_lengths;
    report->share = given->share;
    report->group_rows = given->group_rows;
    report->group_firsts = given->group_firsts;
    report->group_ends = given->group_ends;
    report->group_capacity = given->group_capacity;
    report->strip_worker_prefix_tiles = given->strip_worker_prefix_tiles;
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
    fig_plan_report_take_inputs(&ours, &given);
    const fig_status status = fig_plan_report_class(graphs, step, 0, &ours);
    FIG_TRY(fig_status_give(report, &ours, sizeof ours, "fig_plan_report"));
    return status;
}

/* tune.c: reports the costs of variants on a machine, and puts measured costs into graphs.
 *
 * This file does not measure: the caller measures times and fits costs to them. Invariant: tuned
 * graphs differ from the original graphs only in the variants of the buckets and in the tuning
 * records. */
#include "include/figraph_tune.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/graphs.h"
#include "graphs/lower/variants.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

static fig_status find_class(const fig_graphs *graphs, int32_t split_class,
                             fig_split_classes *classes) {
    FIG_TRY(fig_split_classes_find(fig_program_view_of(graphs->program), classes));
    if (split_class >= 0 && split_class < classes->count) return FIG_OK;
    return fig_fail(FIG_INVALID, "split_class is %" PRId32 ", the graphs have %" PRId32,
                    split_class, classes->count);
}

/* Sets *number to the number in the graphs of variant `variant`, counted among those that tune
 * measures. */
static fig_status find_variant(const fig_graphs *graphs, const fig_split_classes *classes,
                               int32_t variant, int32_t *number) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const int32_t count = fig_traits_variant_count(&graphs->target.traits);
    if (variant < 0 || variant >= count)
        return fig_fail(FIG_INVALID, "variant is %" PRId32 ", limits 0 to %" PRId32, variant,
                        count - 1);
    *number = fig_variants_first_tuned(view, classes, &graphs->target) + variant;
    return FIG_OK;
}

fig_status fig_graphs_tune_class(const fig_graphs *graphs, int32_t split_class,
                                 fig_tune_class *info) {
    fig_tune_class ours = {.size = sizeof ours};
    fig_split_classes classes;
    const fig_status status = find_class(graphs, split_class, &classes);
    if (status == FIG_OK) {
        const fig_program_view *view = fig_program_view_of(graphs->program);
        const int32_t first = fig_variants_first_tuned(view, &classes, &graphs->target);
        const fig_split_class of =
            fig_variants_class(&classes, split_class, &graphs->target, first);
        ours.q_heads = of.q_heads;
        ours.kv_heads = of.kv_heads;
        ours.head_dim = of.head_dim;
        ours.row_tokens = of.row_tokens;
        ours.window = of.window;
        ours.value_bytes = of.value_bytes;
    }
    FIG_TRY(fig_status_give(info, &ours, sizeof ours, "fig_tune_class"));
    return status;
}

/* Makes the shape, in the given variant, of the smallest bucket for `rows` rows and `tokens`
 * tokens. */
static fig_status shape_of(const fig_graphs *graphs, int32_t rows, int64_t tokens, int32_t variant,
                           fig_bucket_shape *shape) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const int64_t kv = (tokens + rows - 1) / rows;
    *shape = (fig_bucket_shape){.caps = {rows, (int32_t)kv}, .variant = variant};
    return fig_lower_shape(view, &graphs->target, 0, shape);
}

static fig_status fill_variant(const fig_graphs *graphs, int32_t split_class, int32_t variant,
                               fig_tune_variant *info) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_split_classes classes;
    fig_bucket_shape shape;
    int32_t number;
    const int32_t of_form = fig_traits_variant_count(&graphs->target.traits);
    FIG_TRY(find_class(graphs, split_class, &classes));
    FIG_TRY(find_variant(graphs, &classes, variant, &number));
    FIG_TRY(shape_of(graphs, 1, 1, number, &shape));
    const fig_variant *of = &shape.variants[split_class];
    const fig_tuned *tuned =
        fig_tuning_find(&graphs->target.tuning, &graphs->target.traits, split_class, number);
    memcpy(info->name, of->name, sizeof info->name);
    info->heads = of->heads;
    info->tile_tokens = of->tile_tokens;
    info->start_ns = of->start_ns;
    info->bytes_per_us = of->bytes_per_us;
    info->piece_ns = of->piece_ns;
    info->segment_ns = of->segment_ns;
    info->once = of->once;
    info->tile_ns = of->tile_ns;
    info->is_tuned = tuned != NULL && fig_tuning_fits(tuned, of);
    /* The costs of singles are also those of ones, whose variants serve more programs. */
    info->serves = fig_variants_serves(view, &graphs->target, number) ||
                   (fig_variants_form(&graphs->target, number) == FIG_FORM_SINGLES &&
                    fig_variants_serves(view, &graphs->target, number + of_form));
    return FIG_OK;
}

fig_status fig_graphs_tune_variant(const fig_graphs *graphs, int32_t split_class, int32_t variant,
                                   fig_tune_variant *info) {
    fig_tune_variant ours = {.size = sizeof ours};
    const fig_status status = fill_variant(graphs, split_class, variant, &ours);
    FIG_TRY(fig_status_give(info, &ours, sizeof ours, "fig_tune_variant"));
    return status;
}

/* least: the fewest tokens of a row */
static fig_status check_step(const fig_spec *spec, const fig_step *step, int32_t least,
                             int64_t *tokens) {
    *tokens = 0;
    if (step == NULL || step->kv_lengths == NULL)
        return fig_fail(FIG_INVALID, "tune: %s is NULL", step == NULL ? "step" : "kv_lengths");
    if (step->rows < 1 || step->rows > spec->batch_limit)
        return fig_fail(FIG_TOO_LARGE, "tune: rows is %" PRId32 ", limits 1 to %" PRId32,
                        step->rows, spec->batch_limit);
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t length = step->kv_lengths[row];
        if (length < least || length > spec->kv_limit)
            return fig_fail(FIG_TOO_LARGE,
                            "tune: row %" PRId32 " has %" PRId32 " tokens, limits %" PRId32
                            " to %" PRId32,
                            row, length, least, spec->kv_limit);
        *tokens += length;
    }
    return FIG_OK;
}

static fig_status fill_work(const fig_graphs *graphs, const fig_tune_costs *of,
                            const fig_step *step, fig_tune_work *work) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_split_classes classes;
    fig_bucket_shape shape;
    int64_t tokens;
    int32_t number;
    FIG_TRY(find_class(graphs, of->split_class, &classes));
    FIG_TRY(find_variant(graphs, &classes, of->variant, &number));
    const int32_t least = fig_variants_form(&graphs->target, number) == FIG_FORM_ANY
                              ? fig_program_view_narrow_tokens(view)
                              : 1;
    FIG_TRY(check_step(&view->spec, step, least, &tokens));
    FIG_TRY(shape_of(graphs, step->rows, tokens, number, &shape));
    const fig_plan_step plan = {.rows = step->rows, .lengths = step->kv_lengths, .horizon = 1};
    const fig_bucket_work found = fig_bucket_work_of(&shape, of->split_class, &plan);
    work->bytes = found.bytes;
    work->pieces = found.pieces;
    work->segments = found.segments;
    work->units = found.units;
    return FIG_OK;
}

fig_status fig_graphs_tune_work(const fig_graphs *graphs, const fig_tune_costs *of,
                                const fig_step *step, fig_tune_work *work) {
    fig_tune_work ours = {.size = sizeof ours};
    fig_tune_costs costs;
    FIG_TRY(fig_status_take_options(&costs, sizeof costs, of, "fig_tune_costs"));
    const fig_status status = fill_work(graphs, &costs, step, &ours);
    FIG_TRY(fig_status_give(work, &ours, sizeof ours, "fig_tune_work"));
    return status;
}

fig_status fig_graphs_lower_variant(fig_graphs **graphs, const fig_program *program,
                                    const fig_lower_options *options, int32_t variant) {
    *graphs = NULL;
    if (variant < 0)
        return fig_fail(FIG_INVALID, "variant is %" PRId32 ", it must be 0 or more", variant);
    return fig_graphs_make(graphs, program, options, &(fig_graphs_choice){.variant = variant});
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Makes a record for this library and machine: the candidate, fitted to the class, with the given
 * costs. */
static fig_status record_of(const fig_graphs *graphs, const fig_tune_costs *given,
                            fig_tuned *record) {
    const fig_traits *traits = &graphs->target.traits;
    fig_split_classes classes;
    fig_tune_costs costs;
    fig_bucket_shape shape;
    int32_t number;
    FIG_TRY(fig_status_take_options(&costs, sizeof costs, given, "fig_tune_costs"));
    FIG_TRY(find_class(graphs, costs.split_class, &classes));
    FIG_TRY(find_variant(graphs, &classes, costs.variant, &number));
    FIG_TRY(shape_of(graphs, 1, 1, number, &shape));
    *record = (fig_tuned){.compute_capability = traits->compute_capability,
                          .sm_count = traits->sm_count,
                          .maker = FIG_VERSION,
                          .split_class = costs.split_class,
                          .number = number,
                          .variant = shape.variants[costs.split_class]};
    memcpy(record->machine, traits->name, strlen(traits->name));
    record->variant.start_ns = costs.start_ns;
    record->variant.bytes_per_us = costs.bytes_per_us;
    record->variant.piece_ns = costs.piece_ns;
    record->variant.segment_ns = costs.segment_ns;
    record->variant.once = costs.once;
    record->variant.tile_ns = costs.tile_ns;
    return FIG_OK;
}

/* Collects the new records and the graphs' records of other machines. *tuning must be zeroed; the
 * caller frees it with fig_tuning_finish(). */
static fig_status collect(const fig_graphs *graphs, const fig_tune_costs *costs, int32_t count,
                          fig_tuning *tuning) {
    const fig_tuning *old = &graphs->target.tuning;
    tuning->records = calloc(old->count + (size_t)count + 1, sizeof *tuning->records);
    if (tuning->records == NULL) return fig_fail(FIG_NOMEM, "tune: %" PRId32 " records", count);
    for (uint32_t i = 0; i < old->count; i++)
        if (!fig_tuning_is_of(&old->records[i], &graphs->target.traits))
            tuning->records[tuning->count++] = old->records[i];
    for (int32_t i = 0; i < count; i++) {
        /* The stride is the size of the struct in the caller's header. */
        const fig_tune_costs *given =
            (const void *)((const uint8_t *)costs + (size_t)i * costs->size);
        FIG_TRY(record_of(graphs, given, &tuning->records[tuning->count]));
        tuning->count++;
    }
    fig_tuning_sort(tuning);
    return fig_tuning_check(tuning);
}

/* Lists each (batch, kv) once. The caller frees *buckets. */
static fig_status list_buckets(const fig_graphs *graphs, fig_bucket **buckets, int32_t *count) {
    *count = 0;
    *buckets = calloc(graphs->bucket_count, sizeof **buckets);
    if (*buckets == NULL)
        return fig_fail(FIG_NOMEM, "tune: %" PRIu32 " buckets", graphs->bucket_count);
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        const fig_bucket *own = &graphs->buckets[i].caps;
        if (*count > 0 && memcmp(own, &(*buckets)[*count - 1], sizeof *own) == 0) continue;
        (*buckets)[(*count)++] = *own;
    }
    return FIG_OK;
}

static fig_status make_tuned(fig_graphs **tuned, const fig_graphs *graphs,
                             const fig_tuning *tuning) {
    fig_lower_options options = {.size = sizeof options, .traits = &graphs->target.traits};
    const fig_graphs_choice choice = {.variant = -1, .tuning = tuning};
    fig_bucket *buckets;
    int32_t *queries;
    FIG_TRY(list_buckets(graphs, &buckets, &options.bucket_count));
    options.buckets = buckets;
    fig_status status = fig_graphs_queries(graphs, &queries, &options.query_limit_count);
    options.query_limits = options.query_limit_count > 0 ? queries : NULL;
    if (status == FIG_OK) status = fig_graphs_make(tuned, graphs->program, &options, &choice);
    free(queries);
    free(buckets);
    return status == FIG_OK ? fig_notes_clone(&(*tuned)->notes, &graphs->notes) : status;
}

fig_status fig_graphs_tune(fig_graphs **tuned, const fig_graphs *graphs,
                           const fig_tune_costs *costs, int32_t count) {
    fig_tuning tuning = {NULL, 0};
    *tuned = NULL;
    if (count < 0 || count > FIG_TUNING_LIMIT || (costs == NULL && count > 0))
        return fig_fail(FIG_INVALID, "tune: count is %" PRId32 ", limits 0 to %d%s", count,
                        FIG_TUNING_LIMIT, costs == NULL ? ", and costs is NULL" : "");
    if (graphs->target.deterministic)
        return fig_fail(FIG_INVALID,
                        "tune: the graphs are deterministic, so they have only one variant");
    fig_status status = collect(graphs, costs, count, &tuning);
    if (status == FIG_OK) status = make_tuned(tuned, graphs, &tuning);
    fig_tuning_finish(&tuning);
    if (status == FIG_OK) return FIG_OK;
    fig_graphs_destroy(*tuned);
    *tuned = NULL;
    return status;
}

/* Returns 1 if lowering uses this record, which must be for the graphs' machine. */
static int is_used(const fig_graphs *graphs, const fig_tuned *record) {
    fig_tune_variant variant = {.size = sizeof variant};
    return record->maker == FIG_VERSION &&
           fill_variant(graphs, record->split_class, record->number, &variant) == FIG_OK &&
           variant.is_tuned;
}

fig_status fig_graphs_tune_info(const fig_graphs *graphs, fig_tune_info *info) {
    const fig_tuning *tuning = &graphs->target.tuning;
    fig_tune_info ours = {.size = sizeof ours};
    for (uint32_t i = 0; i < tuning->count; i++) {
        const fig_tuned *record = &tuning->records[i];
        const int is_ours = fig_tuning_is_of(record, &graphs->target.traits);
        ours.foreign += !is_ours;
        ours.used += is_ours && is_used(graphs, record);
        ours.stale += is_ours && !is_used(graphs, record);
    }
    return fig_status_give(info, &ours, sizeof ours, "fig_tune_info");
}

/* inspect_print.c: the public call that prints graphs.
 *
 * Leaves words and layout to inspect_text.c and inspect_json.c. Invariant: nothing is written
 * before all that could fail has been done. */
#include <inttypes.h>
#include <stdlib.h>

#include "graphs/inspect/inspect_json.h"
#include "graphs/inspect/inspect_text.h"
#include "planner/status.h"

enum { DEFAULT_COLUMNS = 80, COLUMNS_LEAST = 40, COLUMNS_MOST = 1000 };

static fig_status prepare_summary(fig_inspect_summary *summary) {
    const fig_graphs *graphs = summary->graphs;
    FIG_TRY(fig_split_classes_find(summary->view, &summary->classes));
    summary->infos = calloc(graphs->bucket_count, sizeof *summary->infos);
    if (summary->infos == NULL)
        return fig_fail(FIG_NOMEM, "print: %" PRIu32 " buckets", graphs->bucket_count);
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        summary->infos[i].size = sizeof summary->infos[i];
        FIG_TRY(fig_graphs_bucket(graphs, (int32_t)i + 1, &summary->infos[i]));
        summary->relowered_count += graphs->digests[i] != graphs->made_digests[i];
    }
    return fig_layer_fold_group(summary->view, &summary->groups, &summary->group_count);
}

static fig_status print_summary(fig_print *print, const fig_graphs *graphs,
                                const fig_print_options *options) {
    const fig_print_format format = options->format;
    fig_inspect_summary summary = {.graphs = graphs,
                                   .view = fig_program_view_of(graphs->program),
                                   .all_buckets = options->all_buckets != 0};
    fig_status status = prepare_summary(&summary);
    if (status == FIG_OK && format == FIG_PRINT_JSON) fig_inspect_json_summary(print, &summary);
    if (status == FIG_OK && format == FIG_PRINT_TEXT) fig_inspect_text_summary(print, &summary);
    free(summary.infos);
    free(summary.groups);
    return status;
}

static fig_status print_bucket(fig_print *print, const fig_graphs *graphs, uint32_t index,
                               fig_print_format format) {
    fig_inspect_bucket bucket = {.graphs = graphs,
                                 .view = fig_program_view_of(graphs->program),
                                 .index = index,
                                 .info.size = sizeof bucket.info};
    FIG_TRY(fig_graphs_bucket(graphs, (int32_t)index + 1, &bucket.info));
    FIG_TRY(fig_lower_bucket(&graphs->common, &graphs->buckets[index], &bucket.lowered));
    if (format == FIG_PRINT_JSON) {
        fig_inspect_json_bucket(print, &bucket);
    } else {
        fig_inspect_text_bucket(print, &bucket);
    }
    fig_lower_finish(&bucket.lowered);
    return FIG_OK;
}

fig_status fig_graphs_print(const fig_graphs *graphs, const fig_print_options *options,
                            fig_write_callback write, void *user) {
    fig_print_options ours;
    fig_print print = {.write = write, .user = user, .columns = DEFAULT_COLUMNS};
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_print_options"));
    if (graphs == NULL) return fig_fail(FIG_INVALID, "print: graphs is NULL");
    if (write == NULL) return fig_fail(FIG_INVALID, "print: write is NULL");
    if (ours.format != FIG_PRINT_TEXT && ours.format != FIG_PRINT_JSON)
        return fig_fail(FIG_INVALID, "print: format is %d, limits %d to %d", (int)ours.format,
                        FIG_PRINT_TEXT, FIG_PRINT_JSON);
    if (ours.columns != 0 && (ours.columns < COLUMNS_LEAST || ours.columns > COLUMNS_MOST))
        return fig_fail(FIG_INVALID, "print: columns is %" PRId32 ", it must be 0 or %d to %d",
                        ours.columns, COLUMNS_LEAST, COLUMNS_MOST);
    if (ours.columns != 0) print.columns = (uint32_t)ours.columns;
    /* A negative one is larger than any count. */
    if ((uint32_t)ours.bucket > graphs->bucket_count)
        return fig_fail(FIG_INVALID, "print: bucket is %" PRId32 ", there are %" PRIu32,
                        ours.bucket, graphs->bucket_count);
    if (ours.bucket > 0)
        return print_bucket(&print, graphs, (uint32_t)ours.bucket - 1, ours.format);
    return print_summary(&print, graphs, &ours);
}

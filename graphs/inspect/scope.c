/* scope.c: see inspect_open.h. */
#include "graphs/inspect/scope.h"

#include <inttypes.h>
#include <stdlib.h>

#include "graphs/inspect/layer_fold.h"
#include "planner/status.h"

fig_status fig_scope_open_summary(fig_inspect_summary *summary, const fig_graphs *graphs) {
    *summary =
        (fig_inspect_summary){.graphs = graphs, .view = fig_program_view_of(graphs->program)};
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

void fig_scope_close_summary(fig_inspect_summary *summary) {
    free(summary->infos);
    free(summary->groups);
}

fig_status fig_scope_open_bucket(fig_inspect_bucket *bucket, const fig_graphs *graphs,
                                 uint32_t index) {
    *bucket = (fig_inspect_bucket){.graphs = graphs,
                                   .view = fig_program_view_of(graphs->program),
                                   .index = index,
                                   .info.size = sizeof bucket->info};
    FIG_TRY(fig_graphs_bucket(graphs, (int32_t)index + 1, &bucket->info));
    return fig_lower_bucket(&graphs->common, &graphs->buckets[index], &bucket->lowered);
}

void fig_scope_close_bucket(fig_inspect_bucket *bucket) {
    fig_lower_finish(&bucket->lowered);
}

/* scope.c: see scope.h. */
#include "tools/figraph/inspect/scope.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/figraph/inspect/failure.h"

static fig_status open_view(const fig_inspection **view, const fig_graphs *graphs, int32_t bucket) {
    return fig_failure_of_library(fig_inspection_open(view, graphs, bucket));
}

fig_status fig_scope_open_summary(fig_inspect_summary *summary, const fig_graphs *graphs) {
    *summary = (fig_inspect_summary){.graphs = graphs};
    FIG_FAILURE_TRY(open_view(&summary->view, graphs, 0));
    const fig_inspection *view = summary->view;
    summary->infos = calloc(view->bucket_count, sizeof *summary->infos);
    if (summary->infos == NULL)
        return fig_failure(FIG_NOMEM, "print: %" PRIu32 " buckets", view->bucket_count);
    for (uint32_t i = 0; i < view->bucket_count; i++) {
        fig_bucket_info *info = &summary->infos[i];
        info->size = sizeof *info;
        FIG_FAILURE_TRY(fig_failure_of_library(fig_graphs_bucket(graphs, (int32_t)i + 1, info)));
        summary->relowered_count += view->digests[i] != view->made_digests[i];
    }
    return fig_layer_fold_group(view, &summary->groups, &summary->group_count);
}

void fig_scope_close_summary(fig_inspect_summary *summary) {
    free(summary->infos);
    free(summary->groups);
    fig_inspection_close(summary->view);
}

fig_status fig_scope_open_bucket(fig_inspect_bucket *bucket, const fig_graphs *graphs,
                                 uint32_t index) {
    const int32_t number = (int32_t)index + 1;
    *bucket =
        (fig_inspect_bucket){.graphs = graphs, .index = index, .info.size = sizeof bucket->info};
    FIG_FAILURE_TRY(fig_failure_of_library(fig_graphs_bucket(graphs, number, &bucket->info)));
    return open_view(&bucket->view, graphs, number);
}

void fig_scope_close_bucket(fig_inspect_bucket *bucket) {
    fig_inspection_close(bucket->view);
}

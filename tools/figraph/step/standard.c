/* standard.c: checks whether a program is the standard step of its spec.
 *
 * Records the step again, with the score that standard_score.c finds in it, and compares it tensor
 * by tensor, so that later code may rely on every extent and type. Whether the nodes compute the
 * right numbers is left to check.c. */
#include "tools/figraph/step/standard.h"

#include <figraph_scores.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/step/standard_score.h"
#include "tools/figraph/terminal/report.h"

static const char reason[] = "only the program's author knows what to bind to it";

/* Returns 1 if q of the graphs is to be compared with that of a step in two tensors. */
static int has_q_rope(const fig_graphs *graphs) {
    fig_tensor_info tensor = {.size = sizeof tensor};
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++)
        if (strcmp(tensor.name, "q_rope.0") == 0) return 1;
    return 0;
}

/* Makes the standard step that the graphs may be, lowered for one bucket; the tensors are the same
 * for any bucket. */
static fig_status make_standard(const fig_graphs *given, const fig_score *score,
                                fig_graphs **graphs) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(given, &info);
    const fig_spec *spec = info.spec;
    const fig_bucket bucket = {spec->batch_limit, spec->kv_limit};
    fig_program *program;
    *graphs = NULL;
    fig_status status = fig_program_create(&program, spec);
    if (status != FIG_OK) return status;
    if (spec->latent_dim > 0 && has_q_rope(given)) {
        fig_program_decode_step_parts(program);
    } else if (score == NULL) {
        fig_program_decode_step(program);
    } else {
        fig_program_decode_step_score(program, score);
    }
    status = fig_program_finish(program);
    if (status == FIG_OK)
        status = fig_graphs_lower(
            graphs, program, FIG_OPTIONS(fig_lower_options, .buckets = &bucket, .bucket_count = 1));
    fig_program_destroy(program);
    return status;
}

/* Returns the name of the first property in which a tensor differs from the standard tensor of
 * its name; NULL: none. */
static const char *difference(const fig_tensor_info *given, const fig_tensor_info *standard) {
    if (given->role != standard->role) return "role";
    if (given->dtype != standard->dtype) return "dtype";
    if (given->rank != standard->rank) return "rank";
    if (memcmp(given->dims, standard->dims, sizeof given->dims) != 0) return "dims";
    if (given->multiple != standard->multiple) return "multiple";
    if (given->layout != standard->layout) return "layout";
    return NULL;
}

typedef struct list {
    fig_tensor_info *tensors; /* [count], sorted by name */
    int32_t count;
} list;

static int order_names(const void *a, const void *b) {
    const fig_tensor_info *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Lists the first `most` tensors of the graphs. Without memory, of->tensors is NULL. */
static void make_list(const fig_graphs *graphs, int32_t most, list *of) {
    of->count = 0;
    of->tensors = calloc((size_t)most + 1, sizeof *of->tensors);
    if (of->tensors == NULL) return;
    for (; of->count < most; of->count++) {
        of->tensors[of->count].size = sizeof *of->tensors;
        if (fig_graphs_tensor(graphs, of->count, &of->tensors[of->count]) != FIG_OK) break;
    }
    qsort(of->tensors, (size_t)of->count, sizeof *of->tensors, order_names);
}

static const fig_tensor_info *find(const list *of, const fig_tensor_info *like) {
    return bsearch(like, of->tensors, (size_t)of->count, sizeof *like, order_names);
}

static int compare_tensors(const list *given, const list *standard, const char *command) {
    for (int32_t i = 0; i < given->count; i++) {
        const fig_tensor_info *tensor = &given->tensors[i], *due = find(standard, tensor);
        if (due == NULL) {
            return fig_report_refuse("%s: tensor %s is not one of a standard step, and %s", command,
                                     tensor->name, reason);
        }
        const char *what = difference(tensor, due);
        if (what == NULL) continue;
        return fig_report_refuse("%s: tensor %s differs from the standard step's in its %s, and %s",
                                 command, tensor->name, what, reason);
    }
    for (int32_t i = 0; i < standard->count; i++) {
        if (find(given, &standard->tensors[i]) != NULL) continue;
        return fig_report_refuse("%s: tensor %s of the standard step is missing", command,
                                 standard->tensors[i].name);
    }
    return FIG_EXIT_FINE;
}

static int compare(const fig_graphs *given, const fig_graphs *standard, const char *command) {
    fig_graphs_info info = {.size = sizeof info}, due = {.size = sizeof due};
    list ours, theirs;
    fig_graphs_read_info(given, &info);
    fig_graphs_read_info(standard, &due);
    make_list(standard, due.tensor_count, &ours);
    /* With one tensor more than expected, at least one is not part of the step. */
    make_list(given, due.tensor_count + 1, &theirs);
    int code = FIG_EXIT_FINE;
    if (ours.tensors == NULL || theirs.tensors == NULL) {
        code = fig_report_refuse("%s: no memory for %d tensors", command, due.tensor_count);
    } else {
        code = compare_tensors(&theirs, &ours, command);
    }
    free(ours.tensors);
    free(theirs.tensors);
    /* In old files RoPE, append and attention are three nodes, so each layer has two nodes more. */
    const int32_t apart = due.node_count + 2 * due.spec->layers;
    if (code != FIG_EXIT_FINE || info.node_count == due.node_count || info.node_count == apart)
        return code;
    char nodes[FIG_REPORT_COUNT];
    return fig_report_refuse("%s: the program has %s, a standard step of its spec %d", command,
                             fig_report_count(nodes, info.node_count, "node"), due.node_count);
}

int fig_standard_check(const fig_graphs *graphs, const char *command, fig_score **score) {
    fig_graphs *standard = NULL;
    int code = fig_standard_score(graphs, command, score);
    if (code == FIG_EXIT_FINE && make_standard(graphs, *score, &standard) != FIG_OK)
        code = fig_report_status(command);
    if (code == FIG_EXIT_FINE) code = compare(graphs, standard, command);
    fig_graphs_destroy(standard);
    if (code == FIG_EXIT_FINE) return code;
    fig_score_destroy(*score);
    *score = NULL;
    return code;
}

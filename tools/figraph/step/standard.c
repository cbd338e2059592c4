/* standard.c: is a program the standard step of its spec?
 *
 * The step is recorded again and compared, tensor by tensor, so that whoever goes on may rely on
 * every extent and type. What the nodes do is for a comparison of numbers to find. */
#include "tools/figraph/step/standard.h"

#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

static const char reason[] = "only who recorded the program knows what to bind to it";

/* The standard step of a spec, lowered for one bucket: its tensors are those of any other. */
static fig_status make_standard(const fig_spec *spec, fig_graphs **graphs) {
    const fig_bucket bucket = {spec->batch_limit, spec->kv_limit};
    fig_program *program;
    *graphs = NULL;
    fig_status status = fig_program_create(&program, spec);
    if (status != FIG_OK) return status;
    fig_program_decode_step(program);
    status = fig_program_finish(program);
    if (status == FIG_OK)
        status = fig_graphs_lower(
            graphs, program, FIG_OPTIONS(fig_lower_options, .buckets = &bucket, .bucket_count = 1));
    fig_program_destroy(program);
    return status;
}

/* What a tensor differs in from the standard one of its name; NULL: in nothing. */
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
    fig_tensor_info *tensors; /* [count], by name */
    int32_t count;
} list;

static int order_names(const void *a, const void *b) {
    const fig_tensor_info *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The first `most` tensors of the graphs. NULL in *of: there was no memory. */
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
    /* Of one more than there should be, one is not of the step. */
    make_list(given, due.tensor_count + 1, &theirs);
    int code = FIG_EXIT_FINE;
    if (ours.tensors == NULL || theirs.tensors == NULL) {
        code = fig_report_refuse("%s: no memory for %d tensors", command, due.tensor_count);
    } else {
        code = compare_tensors(&theirs, &ours, command);
    }
    free(ours.tensors);
    free(theirs.tensors);
    /* Made before RoPE, append and attention were one node, a file has two nodes more a layer. */
    const int32_t apart = due.node_count + 2 * due.spec->layers;
    if (code != FIG_EXIT_FINE || info.node_count == due.node_count || info.node_count == apart)
        return code;
    char nodes[FIG_REPORT_COUNT];
    return fig_report_refuse("%s: the program has %s, a standard step of its spec %d", command,
                             fig_report_count(nodes, info.node_count, "node"), due.node_count);
}

int fig_standard_check(const fig_graphs *graphs, const char *command) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs *standard;
    fig_graphs_read_info(graphs, &info);
    if (make_standard(info.spec, &standard) != FIG_OK) return fig_report_status(command);
    const int code = compare(graphs, standard, command);
    fig_graphs_destroy(standard);
    return code;
}

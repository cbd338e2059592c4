/* divide.c: makes the graphs of one of several ranks.
 *
 * For each operand of a model's program the kernel table says what the operand's dims count. So a
 * rank's program is the model's program with some smaller dims, and is lowered like any other
 * program. The author of the program need not prepare anything: one file of the model serves any
 * number of ranks. Invariant: a tensor is divided along one dim by one rule, or stays whole, and
 * all nodes that use it agree. Calls of callbacks have no such rule and are left out of this
 * check. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/graphs.h"
#include "planner/spec/share.h"
#include "planner/status.h"

/* The rule by which a tensor is divided. The first operand that refers to the tensor sets it. */
typedef struct division {
    uint8_t rule, dim;
    int is_said;
    uint32_t node;
} division;

static fig_status refuse_division(const fig_program_view *view, uint32_t tensor,
                                  const division *said, uint32_t node) {
    return fig_fail(FIG_INVALID,
                    "tensor %s: node %u (%s) and node %u (%s) differ in how ranks would divide it",
                    fig_program_view_tensor_name(view, tensor), said->node,
                    fig_table_op_name(view->nodes[said->node].op), node,
                    fig_table_op_name(view->nodes[node].op));
}

static fig_status add_node(const fig_program_view *view, uint32_t n, division *divisions) {
    const fig_node *node = &view->nodes[n];
    if (node->op == FIG_OP_CALL) return FIG_OK;
    if (fig_kernel_table[node->op].has_score)
        return fig_fail(FIG_UNSUPPORTED,
                        "node %u (%s): it has a score, which may depend on the number of a head: "
                        "ranks cannot divide it",
                        n, fig_table_op_name(node->op));
    for (uint32_t i = 0; i < node->operand_count; i++) {
        const uint32_t tensor = view->operands[node->operand + i];
        if (tensor == 0) continue;
        const fig_operand *operand = &fig_kernel_table[node->op].operands[i];
        division *said = &divisions[tensor - 1];
        if (!said->is_said) *said = (division){operand->share, operand->dim, 1, n};
        if (said->rule != operand->share || said->dim != operand->dim)
            return refuse_division(view, tensor, said, n);
    }
    return FIG_OK;
}

static fig_status divide_tensor(const fig_program_view *view, uint32_t tensor, const division *said,
                                int32_t ranks, fig_tensor_record *record) {
    int64_t part;
    if (!fig_share_divide((fig_share_rule)said->rule, record->dims[said->dim], ranks, &part))
        return fig_fail(FIG_INVALID,
                        "tensor %s: dims[%d] is %" PRId64 ", which %" PRId32 " ranks do not divide",
                        fig_program_view_tensor_name(view, tensor), said->dim,
                        record->dims[said->dim], ranks);
    record->dims[said->dim] = part;
    return FIG_OK;
}

static fig_status divide_tensors(const fig_program_view *view, int32_t ranks, division *divisions,
                                 fig_tensor_record *records) {
    for (uint32_t n = 0; n < view->node_count; n++)
        FIG_TRY(add_node(view, n, divisions));
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        records[id - 1] = view->tensors[id - 1];
        FIG_TRY(divide_tensor(view, id, &divisions[id - 1], ranks, &records[id - 1]));
    }
    return FIG_OK;
}

/* Makes the program that each of `ranks` ranks runs. */
static fig_status divide_program(const fig_program_view *view, int32_t ranks, fig_program **out) {
    const size_t count = (size_t)view->tensor_count + 1;
    fig_program_view share = *view;
    division *divisions = calloc(count, sizeof *divisions); /* [tensor_count] */
    fig_tensor_record *records = calloc(count, sizeof *records);
    fig_status status = FIG_OK;
    *out = NULL;
    if (divisions == NULL || records == NULL)
        status = fig_fail(FIG_NOMEM, "ranks: %u tensors", view->tensor_count);
    if (status == FIG_OK) status = fig_spec_rank(&share.spec, &view->spec, ranks);
    if (status == FIG_OK) status = divide_tensors(view, ranks, divisions, records);
    share.tensors = records;
    if (status == FIG_OK) status = fig_program_restore(out, &share);
    free(divisions);
    free(records);
    /* FIG_FORMAT means a damaged file, but here the caller made the error. */
    return status == FIG_FORMAT ? fig_status_relay(FIG_INVALID, fig_message()) : status;
}

/* Lowers the share for each of the model's bucket sizes once; the share chooses its own
 * variants. */
static fig_status lower_share(fig_graphs **share, const fig_graphs *model,
                              const fig_program *program) {
    fig_lower_options options = {.size = sizeof options,
                                 .traits = &model->target.traits,
                                 .deterministic = model->target.deterministic};
    int32_t *queries;
    fig_bucket *buckets = calloc(model->bucket_count, sizeof *buckets);
    if (buckets == NULL) return fig_fail(FIG_NOMEM, "ranks: %u buckets", model->bucket_count);
    for (uint32_t i = 0; i < model->bucket_count; i++)
        buckets[i] = model->buckets[i].caps;
    options.buckets = buckets;
    options.bucket_count = (int32_t)model->bucket_count;
    fig_status status = fig_graphs_queries(model, &queries, &options.query_limit_count);
    options.query_limits = options.query_limit_count > 0 ? queries : NULL;
    if (status == FIG_OK) status = fig_graphs_lower(share, program, &options);
    free(queries);
    free(buckets);
    return status;
}

/* Copies the model's notes and images, so that a caller that trusts the images can run shares with
 * them. */
static fig_status carry(fig_graphs *share, const fig_graphs *model) {
    FIG_TRY(fig_notes_clone(&share->notes, &model->notes));
    fig_archive_finish(&share->archive);
    return fig_archive_clone(&share->archive, &model->archive);
}

fig_status fig_graphs_rank(fig_graphs **share, const fig_graphs *model, int32_t ranks) {
    fig_program *program;
    *share = NULL;
    if (model == NULL) return fig_fail(FIG_INVALID, "ranks: the model's graphs are NULL");
    if (model->ranks > 1)
        return fig_fail(FIG_INVALID, "ranks: the graphs are a share of %" PRId32 " ranks already",
                        model->ranks);
    FIG_TRY(divide_program(fig_program_view_of(model->program), ranks, &program));
    fig_status status = lower_share(share, model, program);
    fig_program_destroy(program);
    if (status == FIG_OK) status = carry(*share, model);
    if (status != FIG_OK) {
        fig_graphs_destroy(*share);
        *share = NULL;
        return status;
    }
    (*share)->ranks = ranks;
    (*share)->model = fig_program_view_of(model->program)->spec;
    return FIG_OK;
}

/* run_shape.c: chooses the split of a run without an engine, and lays out its scratch.
 *
 * lower.c shapes buckets, and bucket.c computes the costs of variants. Invariant: with less scratch
 * a run has fewer workers, and nothing else changes. Another family may serve the smaller number of
 * workers, so the best shape alone does not tell runner.c which families to load. */
#include "graphs/run_shape.h"

#include <inttypes.h>
#include <string.h>

#include "graphs/lower/variants.h"
#include "planner/size.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

enum { UNIT = 256 };
#define ZEROS_LIMIT (UINT64_C(16) * UINT32_MAX) /* a launch counts pieces of 16 bytes */

/* ---- Temps ----------------------------------------------------------------------------------- */

void fig_run_shape_pass_temp(const fig_program_view *view, uint32_t tensor, fig_run_temp *temp) {
    const fig_tensor_record *record = &view->tensors[tensor - 1];
    uint64_t bytes = fig_program_view_dtype_bytes(record->dtype);
    if (record->role != FIG_ROLE_TEMP) return;
    for (int i = 0; i < record->rank; i++)
        bytes *= (uint64_t)record->dims[i];
    if (record->symbol == FIG_SYMBOL_BATCH) {
        temp->row_bytes += bytes;
    } else if (record->symbol == FIG_SYMBOL_QUERIES) {
        temp->query_bytes += bytes;
    } else {
        temp->fixed_bytes += bytes;
    }
    temp->count++;
}

/* Allows a unit for the alignment of each earlier temp. */
uint64_t fig_run_shape_temp_offset(const fig_run_temp *temp, const fig_run_size *size) {
    const uint64_t bytes = temp->row_bytes * (uint64_t)size->rows +
                           temp->query_bytes * (uint64_t)size->queries + temp->fixed_bytes;
    return fig_size_align(bytes, UNIT) + (uint64_t)temp->count * UNIT;
}

/* ---- Query tokens ---------------------------------------------------------------------------- */

fig_status fig_run_shape_queries(const fig_program_view *view, const fig_run *run,
                                 int32_t *queries) {
    const fig_spec *spec = &view->spec;
    int64_t most = (int64_t)run->rows * spec->row_tokens;
    *queries = 0;
    if (run->query_tokens < 0 || (run->query_tokens > 0 && spec->query_limit == 0))
        return fig_fail(FIG_INVALID, "run: query_tokens is %" PRId64 ", it must be 0%s",
                        run->query_tokens,
                        spec->query_limit == 0 ? ", the program is not packed" : " or more");
    if (run->query_tokens > spec->query_limit)
        return fig_fail(FIG_TOO_LARGE,
                        "run: query_tokens is %" PRId64 ", the spec's query_limit %" PRId64,
                        run->query_tokens, spec->query_limit);
    if (most > spec->query_limit) most = spec->query_limit;
    if (run->query_tokens > 0 && most > run->query_tokens) most = run->query_tokens;
    *queries = (int32_t)most;
    return FIG_OK;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

int fig_run_shape_is_planned(const fig_program_view *view, const fig_node *node) {
    int planned = 0;
    if (node->op == FIG_OP_CALL) return 0;
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    for (uint32_t i = 0; i < kernel->operand_count; i++)
        if ((kernel->plan_unless >> i & 1) && fig_program_view_operand(view, node, i) != 0)
            return 0;
    for (uint32_t i = 0; i < kernel->field_count; i++)
        planned |= kernel->fields[i].kind == FIG_FIELD_PLAN_SECTION;
    return planned;
}

static int any_is_planned(const fig_program_view *view) {
    for (uint32_t n = 0; n < view->node_count; n++)
        if (fig_run_shape_is_planned(view, &view->nodes[n])) return 1;
    return 0;
}

/* ---- Layout ---------------------------------------------------------------------------------- */

/* Returns 1 if runs have attention of rows that may be chunks. */
static int has_strips(const fig_graphs *graphs) {
    return graphs->common.classes.has_chunks && graphs->common.classes.count > 0;
}

/* Lays out the scratch of a shaped bucket. */
static fig_status lay_out(const fig_graphs *graphs, const fig_run_size *size,
                          fig_run_shape *shape) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_run_temp temps = {0, 0, 0, 0};
    memset(&shape->workspace, 0, sizeof shape->workspace);
    shape->plan_bytes = any_is_planned(view) ? shape->bucket.plan.layout.bytes : 0;
    shape->zeros = fig_size_align(shape->plan_bytes, UNIT);
    shape->workspace.bytes = shape->zeros;
    FIG_TRY(
        fig_workspace_place_classes(&shape->workspace, &graphs->common.classes, &shape->bucket, 1));
    shape->temps = shape->workspace.bytes;
    /* A partial of strips is read only after it was written, and the partials of all SMs are many
     * bytes. They lie behind all other parts. */
    shape->zeros_end = has_strips(graphs) ? shape->workspace.strip_partials[0] : shape->temps;
    if (shape->zeros_end - shape->zeros > ZEROS_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "run: %" PRIu64 " bytes of partials, limit %" PRIu64,
                        shape->zeros_end - shape->zeros, ZEROS_LIMIT);
    for (uint32_t id = 1; id <= view->tensor_count; id++)
        fig_run_shape_pass_temp(view, id, &temps);
    shape->bytes = shape->temps;
    if (temps.count > 0) shape->bytes += fig_run_shape_temp_offset(&temps, size);
    return FIG_OK;
}

/* Shapes a plan without a split. The offsets of the plan's sections must fit 32 bits. */
static fig_status shape_rows(const fig_program_view *view, const fig_run_size *size,
                             fig_bucket_shape *bucket) {
    const int32_t row_bytes = 4 * (int32_t)sizeof(int32_t);
    if (any_is_planned(view) && size->rows > INT32_MAX / row_bytes - 64)
        return fig_fail(FIG_TOO_LARGE, "run: rows is %" PRId32 ", limit %" PRId32, size->rows,
                        INT32_MAX / row_bytes - 64);
    *bucket = (fig_bucket_shape){.caps = {size->rows, size->kv_limit}};
    bucket->plan.row_limit = size->rows;
    bucket->plan.row_tokens = view->spec.row_tokens;
    bucket->plan.query_limit = size->queries;
    fig_plan_lay_out(&bucket->plan);
    return FIG_OK;
}

static fig_status check_size(const fig_graphs *graphs, const fig_run_size *size) {
    const fig_spec *spec = &fig_program_view_of(graphs->program)->spec;
    const int has_limit = graphs->common.classes.count > 0 || spec->query_limit > 0;
    if (has_limit && size->rows > spec->batch_limit)
        return fig_fail(FIG_TOO_LARGE, "run: rows is %" PRId32 ", the spec's batch_limit %" PRId32,
                        size->rows, spec->batch_limit);
    if (size->kv_limit > spec->kv_limit)
        return fig_fail(FIG_TOO_LARGE,
                        "run: kv_length is %" PRId32 ", the spec's kv_limit %" PRId32,
                        size->kv_limit, spec->kv_limit);
    return FIG_OK;
}

/* Returns the graphs' target, but with the given traits. */
static fig_lower_target target_of(const fig_graphs *graphs, const fig_traits *traits) {
    fig_lower_target target = graphs->target;
    target.traits = *traits;
    return target;
}

fig_status fig_run_shape_of_variant(const fig_graphs *graphs, const fig_traits *traits,
                                    const fig_run_size *size, int32_t variant,
                                    fig_run_shape *shape) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const fig_lower_target target = target_of(graphs, traits);
    memset(shape, 0, sizeof *shape);
    FIG_TRY(check_size(graphs, size));
    if (graphs->common.classes.count == 0) {
        FIG_TRY(shape_rows(view, size, &shape->bucket));
    } else {
        shape->bucket.caps = (fig_bucket){size->rows, size->kv_limit};
        shape->bucket.variant = variant;
        shape->bucket.is_loose = fig_program_view_reads_lengths(view);
        if (size->queries < fig_lower_query_limit(&view->spec, &shape->bucket.caps))
            shape->bucket.queries = size->queries;
        FIG_TRY(fig_lower_shape(view, &target, 0, &shape->bucket));
    }
    return lay_out(graphs, size, shape);
}

/* ---- Choice ---------------------------------------------------------------------------------- */

/* Returns the cost of a step in which every row has its largest length, because only the device
 * knows the lengths. */
static int64_t cost_of(const fig_run_shape *shape, const fig_run_size *size) {
    const fig_plan_step step = {
        .rows = size->rows, .token_limit = (int64_t)size->rows * size->kv_limit, .horizon = 1};
    return fig_bucket_cost(&shape->bucket, &step);
}

static fig_status make_best(const fig_graphs *graphs, const fig_traits *traits,
                            const fig_run_size *size, fig_run_shape *best) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const fig_lower_target target = target_of(graphs, traits);
    const int32_t count = fig_traits_variant_count(traits);
    FIG_TRY(fig_run_shape_of_variant(graphs, traits, size, 0, best));
    for (int32_t variant = 1; variant < count && graphs->common.classes.count > 0; variant++) {
        fig_run_shape other;
        if (!fig_variants_serves(view, &target, variant)) continue;
        FIG_TRY(fig_run_shape_of_variant(graphs, traits, size, variant, &other));
        if (cost_of(&other, size) < cost_of(best, size)) *best = other;
    }
    return FIG_OK;
}

/* Makes the best shape that has at most `workers` workers in each class. */
static fig_status cut(const fig_graphs *graphs, const fig_run_size *size, const fig_run_shape *best,
                      int32_t workers, fig_run_shape *shape) {
    *shape = *best;
    for (int32_t i = 0; i < graphs->common.classes.count; i++) {
        fig_split_shape *split = &shape->bucket.plan.splits[i];
        fig_strips_shape *strips = &shape->bucket.strips[i];
        split->workers = fig_size_min(split->workers, workers);
        strips->workers = fig_size_min(strips->workers, workers);
    }
    if (graphs->common.classes.count > 0) fig_plan_lay_out(&shape->bucket.plan);
    if (has_strips(graphs))
        FIG_TRY(fig_plan_add_strips(&shape->bucket.plan, shape->bucket.strips,
                                    FIG_NARROW_TOKENS_LIMIT + 1));
    return lay_out(graphs, size, shape);
}

fig_status fig_run_shape_make(const fig_graphs *graphs, const fig_traits *traits,
                              const fig_run_size *size, fig_run_shape *shape) {
    fig_run_shape best, tried;
    int32_t low = 1, high = FIG_WORKER_LIMIT; /* if any number of workers fits, `low` fits */
    memset(shape, 0, sizeof *shape);
    FIG_TRY(make_best(graphs, traits, size, &best));
    *shape = best;
    if (best.bytes <= size->scratch_bytes) return FIG_OK;
    FIG_TRY(cut(graphs, size, &best, low, shape));
    if (shape->bytes > size->scratch_bytes)
        return fig_fail(FIG_INVALID,
                        "run: scratch_bytes is %" PRIu64 ", it must be %" PRIu64
                        " or more, and is best at %" PRIu64,
                        size->scratch_bytes, shape->bytes, best.bytes);
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        FIG_TRY(cut(graphs, size, &best, middle, &tried));
        if (tried.bytes <= size->scratch_bytes) {
            low = middle;
            *shape = tried;
        } else {
            high = middle;
        }
    }
    return FIG_OK;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* Checks the numbers of a run; a kv_length of 0 means the spec's limit. */
static fig_status read_size(const fig_graphs *graphs, const fig_run *run, fig_run_size *size) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const fig_spec *spec = &view->spec;
    const int32_t rows = run->rows;
    const int64_t kv_length = run->kv_length;
    int32_t queries;
    *size = (fig_run_size){0};
    if (rows < 0)
        return fig_fail(FIG_INVALID, "run: rows is %" PRId32 ", it must be 0 or more", rows);
    if (kv_length < 0)
        return fig_fail(FIG_INVALID, "run: kv_length is %" PRId64 ", it must be 0 or more",
                        kv_length);
    if (kv_length > spec->kv_limit)
        return fig_fail(FIG_TOO_LARGE,
                        "run: kv_length is %" PRId64 ", the spec's kv_limit %" PRId32, kv_length,
                        spec->kv_limit);
    FIG_TRY(fig_run_shape_queries(view, run, &queries));
    *size = (fig_run_size){rows, kv_length > 0 ? (int32_t)kv_length : spec->kv_limit,
                           FIG_RUN_SHAPE_BEST, queries};
    return FIG_OK;
}

fig_status fig_graphs_scratch(const fig_graphs *graphs, const fig_traits *traits, int32_t rows,
                              int64_t kv_length, fig_scratch *scratch) {
    const fig_run run = {.size = sizeof run, .rows = rows, .kv_length = kv_length};
    return fig_graphs_run_scratch(graphs, traits, &run, scratch);
}

fig_status fig_graphs_run_scratch(const fig_graphs *graphs, const fig_traits *traits,
                                  const fig_run *run, fig_scratch *scratch) {
    fig_run asked;
    fig_run_size size;
    fig_run_shape best, least;
    fig_scratch ours = {0};
    fig_traits given = graphs->target.traits;
    FIG_TRY(fig_status_give(scratch, &ours, sizeof ours, "fig_scratch"));
    if (traits != NULL)
        FIG_TRY(fig_status_take_options(&given, sizeof given, traits, "fig_traits"));
    FIG_TRY(fig_traits_check(&given));
    FIG_TRY(fig_status_take_options(&asked, sizeof asked, run, "fig_run"));
    FIG_TRY(read_size(graphs, &asked, &size));
    if (size.rows == 0) return FIG_OK;
    FIG_TRY(make_best(graphs, &given, &size, &best));
    FIG_TRY(cut(graphs, &size, &best, 1, &least));
    ours = (fig_scratch){
        .plan_bytes = best.plan_bytes, .best_bytes = best.bytes, .least_bytes = least.bytes};
    return fig_status_give(scratch, &ours, sizeof ours, "fig_scratch");
}

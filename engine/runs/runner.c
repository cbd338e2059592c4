/* runner.c: opens and closes a runner.
 *
 * run.c executes runs. Invariant: when open returns, every kernel that any run may need is loaded,
 * whatever the addresses and strides of the run's tensors. */
#include "engine/runs/runner.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/choice.h"
#include "graphs/lower/early_reads.h"
#include "kernels/attention/merges.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

enum { CONCURRENT_RUNS = 12, CONCURRENT_LIMIT = 1024 };

static fig_status check_program(const fig_program_view *program) {
    if (fig_program_view_has_chunks(program) && !fig_program_view_reads_lengths(program))
        return fig_fail(FIG_UNSUPPORTED,
                        "runner: the spec's row_tokens is %" PRId32
                        ", but only an engine runs packed programs with more than %d "
                        "that do not read lengths",
                        program->spec.row_tokens, FIG_NARROW_TOKENS_LIMIT);
    for (uint32_t n = 0; n < program->node_count; n++) {
        const fig_node *node = &program->nodes[n];
        if (node->op == FIG_OP_CALL || fig_program_view_meets(node))
            return fig_fail(FIG_UNSUPPORTED, "runner: node %u is %s, which only an engine can run",
                            n, node->op == FIG_OP_CALL ? "a call" : "a collective");
    }
    return FIG_OK;
}

static fig_status open_device(fig_runner *runner, const fig_runner_options *options) {
    const fig_choice_wish wish = {"runner", options->device, options->ordinal != 0};
    fig_device device;
    FIG_TRY(fig_choice_of_device(&wish, &device));
    runner->api = device == FIG_DEVICE_HOST ? &fig_run_device_host : &fig_run_device_cuda;
    FIG_TRY(runner->api->open(&runner->device, options));
    runner->api->read_traits(runner->device, &runner->traits);
    runner->api->read_kernel_traits(runner->device, &runner->kernel_traits);
    return FIG_OK;
}

/* Loads every family that may serve a launch. The addresses and strides of the tensors are not
 * known yet. The function therefore loads every family that does not refuse the params known so
 * far, and the last family, which serves if all others refuse. */
static fig_status load_families(fig_runner *runner, fig_op op, const uint8_t *params) {
    for (uint32_t i = 0; fig_families_of(op, i) != NULL; i++) {
        fig_family_choice choice;
        if (fig_families_may_serve(op, i, params, &runner->kernel_traits, &choice))
            FIG_TRY(runner->api->load(runner->device, op, &choice, params));
    }
    return FIG_OK;
}

/* Loads the kernels of a launch for all ways in which a run of this variant may be cut. */
static fig_status load_launch(fig_runner *runner, const fig_run_shape *shape, uint32_t launch) {
    const fig_op op = (fig_op)runner->graphs->common.launches[launch].op;
    const fig_kernel *kernel = &fig_kernel_table[op];
    alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    fig_run_fill(runner, shape, launch, params);
    if (kernel->cut == NULL) return load_families(runner, op, params);
    for (int32_t n = 0; kernel->cut(params, &runner->kernel_traits, n); n++)
        FIG_TRY(load_families(runner, op, params));
    return FIG_OK;
}

/* Loads the kernels of the operation that may do a launch's whole work without a plan, for all
 * bindings and lengths. */
static fig_status load_whole(fig_runner *runner, const fig_launch *launch) {
    const fig_whole *row = fig_kernel_table[launch->op].whole;
    alignas(64) uint8_t whole[FIG_PARAMS_LIMIT];
    if (row == NULL || fig_program_view_reads_lengths(runner->program)) return FIG_OK;
    if (!row->make(runner->graphs->common.params + launch->params, 1, 0, &runner->kernel_traits,
                   whole))
        return FIG_OK;
    return load_families(runner, (fig_op)row->op, whole);
}

/* Loads the kernels of every variant that a run of such a size may use. */
static fig_status load_variants(fig_runner *runner, const fig_run_size *size) {
    const int varies =
        runner->graphs->common.classes.count > 0 && !runner->graphs->target.deterministic;
    const int32_t count = fig_traits_variant_count(&runner->traits);
    for (int32_t variant = 0; variant < (varies ? count : 1); variant++) {
        fig_run_shape shape;
        FIG_TRY(fig_run_shape_of_variant(runner->graphs, &runner->traits, size, variant, &shape));
        for (uint32_t i = 1; i < runner->graphs->common.launch_count; i++)
            FIG_TRY(load_launch(runner, &shape, i));
    }
    return FIG_OK;
}

/* Loads all kernels that a run may use. The number and lengths of a run's rows decide its variant
 * and its cut. Some kernels serve only runs of few query tokens, others only those of many. */
static fig_status load_kernels(fig_runner *runner) {
    const fig_spec *spec = &runner->program->spec;
    const int32_t queries = spec->query_limit > 0 ? 1 : 0;
    const fig_run_size least = {1, spec->kv_limit, FIG_RUN_SHAPE_BEST, queries};
    const fig_run_size most = {(int32_t)spec->batch_limit, spec->kv_limit, FIG_RUN_SHAPE_BEST,
                               (int32_t)spec->query_limit};
    const fig_plan_params planner = {.rows = 1};
    FIG_TRY(load_families(runner, FIG_OP_PLAN, (const uint8_t *)&planner));
    for (uint32_t i = 1; i < runner->graphs->common.launch_count; i++)
        FIG_TRY(load_whole(runner, &runner->graphs->common.launches[i]));
    FIG_TRY(load_variants(runner, &least));
    return load_variants(runner, &most);
}

/* Returns the attention flags with which `runs` concurrent runs, each on its own stream, cannot
 * deadlock: the blocks that may wait for others must not fill the GPU. */
static uint32_t flags_of_concurrency(int32_t runs, int32_t sm_count) {
    if (sm_count == 0) return 0; /* the host */
    if (fig_merges_may_starve(runs, FIG_MERGES_WAITING, sm_count)) return FIG_ATTENTION_APART;
    if (fig_merges_may_starve(runs, FIG_MERGES_WAITING_SPREAD, sm_count))
        return FIG_ATTENTION_IN_ORDER;
    return 0;
}

static fig_status list_early_reads(fig_runner *runner, int32_t concurrent_runs) {
    const fig_lower_common *common = &runner->graphs->common;
    const fig_traits *traits = &runner->traits;
    runner->early_reads = calloc(common->launch_count, sizeof *runner->early_reads);
    if (runner->early_reads == NULL)
        return fig_fail(FIG_NOMEM, "runner: %" PRIu32 " launches", common->launch_count);
    FIG_TRY(fig_early_reads_list(runner->program, common->launches, common->launch_count,
                                 runner->early_reads));
    const int32_t runs = concurrent_runs > 0 ? concurrent_runs : CONCURRENT_RUNS;
    const int32_t sm_count = traits->compute_capability > 0 ? traits->sm_count : 0;
    fig_early_reads_add(common->launches, common->launch_count,
                        flags_of_concurrency(runs, sm_count), runner->early_reads);
    return FIG_OK;
}

/* Says in the flags of launches with a score that the device may compile it. */
static void allow_compiling(fig_runner *runner) {
    const fig_lower_common *common = &runner->graphs->common;
    for (uint32_t i = 0; i < common->launch_count; i++)
        if (common->launches[i].op == FIG_OP_SCORED_ATTENTION)
            runner->early_reads[i] |= FIG_SCORED_COMPILES;
}

static fig_status open_runner(fig_runner *runner, const fig_runner_options *options) {
    FIG_TRY(check_program(runner->program));
    FIG_TRY(fig_run_tensors_init(&runner->tensors, runner->program));
    FIG_TRY(fig_run_order_init(&runner->order, &runner->tensors));
    FIG_TRY(
        fig_run_memo_create(&runner->memo, &runner->graphs->common, runner->tensors.bound_count));
    FIG_TRY(open_device(runner, options));
    FIG_TRY(list_early_reads(runner, options->concurrent_runs));
    if (options->compile_scores) allow_compiling(runner);
    return load_kernels(runner);
}

fig_status fig_runner_open(fig_runner **out, const fig_graphs *graphs,
                           const fig_runner_options *options) {
    fig_runner_options ours;
    *out = NULL;
    if (graphs == NULL) return fig_fail(FIG_INVALID, "runner: graphs is NULL");
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_runner_options"));
    if (ours.concurrent_runs < 0 || ours.concurrent_runs > CONCURRENT_LIMIT)
        return fig_fail(FIG_INVALID, "runner: concurrent_runs is %" PRId32 ", limits 0 to %d",
                        ours.concurrent_runs, CONCURRENT_LIMIT);
    if (ours.score_cache != NULL && !ours.compile_scores)
        return fig_fail(FIG_INVALID, "runner: score_cache is for runners with compile_scores");
    fig_runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL) return fig_fail(FIG_NOMEM, "runner: %zu bytes", sizeof *runner);
    runner->graphs = graphs;
    runner->program = fig_program_view_of(graphs->program);
    const fig_status status = open_runner(runner, &ours);
    if (status == FIG_OK) {
        *out = runner;
    } else {
        fig_runner_close(runner);
    }
    return status;
}

void fig_runner_close(fig_runner *runner) {
    if (runner == NULL) return;
    if (runner->api != NULL) runner->api->close(runner->device);
    fig_run_tensors_finish(&runner->tensors);
    fig_run_memo_destroy(runner->memo);
    fig_run_order_finish(&runner->order);
    free(runner->early_reads);
    free(runner);
}

/* Sets *compiled to the scores that the runner has compiled. */
static fig_status gather_compiled(const fig_runner *runner, fig_embedded *compiled) {
    uint32_t count = 0;
    fig_image_compiled one, *all = NULL;
    memset(compiled, 0, sizeof *compiled);
    for (uint32_t i = 0; runner->api->compiled(runner->device, i, &one); i++) {
        if (one.image.bytes == NULL) continue;
        fig_image_compiled *more = realloc(all, (count + (size_t)1) * sizeof *more);
        if (more == NULL) {
            free(all);
            return fig_fail(FIG_NOMEM, "runner: %" PRIu32 " compiled scores", count + 1);
        }
        all = more;
        all[count++] = one;
    }
    const fig_status status = fig_embedded_make(compiled, all, count);
    free(all);
    return status;
}

fig_status fig_runner_archive(const fig_runner *runner, const char *path,
                              const fig_archive_options *options) {
    fig_embedded compiled;
    FIG_TRY(gather_compiled(runner, &compiled));
    const fig_status status =
        compiled.count > 0
            ? fig_archiving_save(runner->graphs, path, options, &compiled)
            : fig_fail(FIG_UNSUPPORTED, "runner: no score was compiled: the driver of a GPU "
                                        "compiles scores without a mask, in a runner with "
                                        "compile_scores");
    fig_embedded_finish(&compiled);
    return status;
}

fig_device fig_runner_device(const fig_runner *runner) {
    return runner->api->kind;
}

fig_status fig_runner_read_traits(const fig_runner *runner, fig_traits *traits) {
    return fig_status_give(traits, &runner->traits, sizeof runner->traits, "fig_traits");
}

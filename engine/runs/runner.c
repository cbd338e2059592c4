/* runner.c: open and close a runner.
 *
 * Leaves what a run does to run.c. Invariant: every kernel that any run may need is loaded when
 * open returns, however the run's tensors will lie. */
#include "engine/runs/runner.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/choice.h"
#include "graphs/haste.h"
#include "kernels/form.h"
#include "kernels/whole_attention.h"
#include "planner/status.h"

static fig_status check_program(const fig_program_view *program) {
    for (uint32_t n = 0; n < program->node_count; n++) {
        const fig_node *node = &program->nodes[n];
        if (node->op == FIG_OP_CALL || fig_program_view_meets(node))
            return fig_fail(FIG_UNSUPPORTED, "runner: node %u is %s, which an engine alone makes",
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

/* Whatever its tensors' addresses and strides will be, one of the families that do not refuse what
 * is known now serves the launch, or the last. */
static fig_status load_families(fig_runner *runner, fig_op op, const uint8_t *params) {
    for (uint32_t i = 0; fig_families_of(op, i) != NULL; i++) {
        fig_family_choice choice;
        if (fig_families_may_serve(op, i, params, &runner->kernel_traits, &choice))
            FIG_TRY(runner->api->load(runner->device, op, &choice));
    }
    return FIG_OK;
}

/* A run of short rows may have any of these workers and tiles. */
static fig_status load_short(fig_runner *runner, const uint8_t *params) {
    fig_attention_params attention;
    memcpy(&attention, params, sizeof attention);
    const int32_t segments = attention.split.row_limit * attention.split.groups;
    for (int32_t blocks = 2; blocks <= FIG_FORM_SHORT_BLOCKS; blocks *= 2) {
        for (int32_t warps = FIG_FORM_SHORT_WARPS; warps <= FIG_FORM_SHORT_LIMIT; warps *= 2) {
            attention.split.workers = segments * blocks;
            attention.split.tile_tokens = warps * FIG_FORM_TOKENS;
            FIG_TRY(load_families(runner, FIG_OP_ATTENTION, (const uint8_t *)&attention));
        }
    }
    return FIG_OK;
}

static fig_status load_launch(fig_runner *runner, const fig_run_shape *shape, uint32_t launch) {
    const fig_lower_common *common = &runner->graphs->common;
    alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    const fig_op op = (fig_op)common->launches[launch].op;
    fig_run_fill(runner, shape, launch, params);
    FIG_TRY(load_families(runner, op, params));
    return op == FIG_OP_ATTENTION ? load_short(runner, params) : FIG_OK;
}

/* Whatever is bound and however long its sequences are, attention of such heads. */
static fig_status load_whole(fig_runner *runner, const fig_launch *launch) {
    fig_attention_params attention;
    fig_whole_attention_params whole;
    if (launch->op != FIG_OP_ATTENTION || fig_program_view_reads_lengths(runner->program))
        return FIG_OK;
    memcpy(&attention, runner->graphs->common.params + launch->params, sizeof attention);
    attention.split.row_tokens = 1;
    if (fig_whole_attention_refuses(&attention, 1, 1, &runner->kernel_traits) != NULL)
        return FIG_OK;
    whole = fig_whole_attention_of(&attention, 1, 1);
    return load_families(runner, FIG_OP_WHOLE_ATTENTION, (const uint8_t *)&whole);
}

/* Of every variant that a run may be cut in: how long its sequences are decides which. */
static fig_status load_kernels(fig_runner *runner) {
    const fig_run_size size = {1, runner->program->spec.kv_limit, FIG_RUN_SHAPE_BEST};
    const fig_plan_params planner = {.rows = 1};
    const int varies =
        runner->graphs->common.classes.count > 0 && !runner->graphs->target.deterministic;
    const int32_t count = fig_traits_variant_count(&runner->traits);
    FIG_TRY(load_families(runner, FIG_OP_PLAN, (const uint8_t *)&planner));
    for (uint32_t i = 1; i < runner->graphs->common.launch_count; i++)
        FIG_TRY(load_whole(runner, &runner->graphs->common.launches[i]));
    for (int32_t variant = 0; variant < (varies ? count : 1); variant++) {
        fig_run_shape shape;
        FIG_TRY(fig_run_shape_of_variant(runner->graphs, &runner->traits, &size, variant, &shape));
        for (uint32_t i = 1; i < runner->graphs->common.launch_count; i++)
            FIG_TRY(load_launch(runner, &shape, i));
    }
    return FIG_OK;
}

static fig_status list_haste(fig_runner *runner) {
    const fig_lower_common *common = &runner->graphs->common;
    runner->haste = calloc(common->launch_count, sizeof *runner->haste);
    if (runner->haste == NULL)
        return fig_fail(FIG_NOMEM, "runner: %" PRIu32 " launches", common->launch_count);
    return fig_haste_list(runner->program, common->launches, common->launch_count, runner->haste);
}

static fig_status open_runner(fig_runner *runner, const fig_runner_options *options) {
    FIG_TRY(check_program(runner->program));
    FIG_TRY(fig_run_tensors_init(&runner->tensors, runner->program));
    FIG_TRY(list_haste(runner));
    FIG_TRY(fig_run_order_init(&runner->order, &runner->tensors));
    FIG_TRY(
        fig_run_memo_create(&runner->memo, &runner->graphs->common, runner->tensors.bound_count));
    FIG_TRY(open_device(runner, options));
    return load_kernels(runner);
}

fig_status fig_runner_open(fig_runner **out, const fig_graphs *graphs,
                           const fig_runner_options *options) {
    fig_runner_options ours;
    *out = NULL;
    if (graphs == NULL) return fig_fail(FIG_INVALID, "runner: graphs is NULL");
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_runner_options"));
    if (ours.reserved != 0)
        return fig_fail(FIG_INVALID, "runner: reserved is %" PRId32 ", it must be 0",
                        ours.reserved);
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
    free(runner->haste);
    free(runner);
}

fig_device fig_runner_device(const fig_runner *runner) {
    return runner->api->kind;
}

fig_status fig_runner_read_traits(const fig_runner *runner, fig_traits *traits) {
    return fig_status_give(traits, &runner->traits, sizeof runner->traits, "fig_traits");
}

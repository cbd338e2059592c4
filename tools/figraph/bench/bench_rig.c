/* bench_rig.c: lowers, binds and times a small program that a bench records. */
#include "tools/figraph/bench/bench_rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/report.h"

enum { SAMPLES = 9, QUICK_SAMPLES = 3, SAMPLE_US = 500, REPLAYS_MOST = 1000 };

int fig_bench_rig_read_machine(const fig_arguments *arguments, fig_bench_machine *machine) {
    *machine = (fig_bench_machine){.quick = fig_arguments_text(arguments, "--quick") != NULL};
    int code = fig_source_read_device(arguments, &machine->device);
    if (code == FIG_EXIT_FINE)
        code = fig_source_device_traits(arguments, machine->device, &machine->traits);
    const int host = code == FIG_EXIT_FINE && machine->traits.compute_capability == 0;
    machine->device = host ? FIG_DEVICE_HOST : FIG_DEVICE_CUDA;
    machine->samples = host ? 1 : machine->quick ? QUICK_SAMPLES : SAMPLES;
    machine->sample_us = host ? 1 : SAMPLE_US;
    return code;
}

int fig_bench_rig_show(const fig_bench_machine *machine, const fig_bench_table *table,
                       const fig_arguments *arguments) {
    const int code = fig_bench_table_show(table, arguments);
    if (code != FIG_EXIT_FINE || machine->device != FIG_DEVICE_HOST ||
        fig_arguments_text(arguments, "--json") != NULL)
        return code;
    putchar('\n');
    fig_columns_words(0, 0,
                      "Times are not measured on the host: its kernels are C on one thread, which "
                      "says nothing of a GPU's.");
    return code;
}

int fig_bench_rig_begin(fig_bench_rig *rig, const fig_spec *spec) {
    *rig = (fig_bench_rig){.dtype = spec->dtype, .is_packed = spec->query_limit > 0};
    return fig_program_create(&rig->program, spec) == FIG_OK ? FIG_EXIT_FINE
                                                             : fig_report_status("bench");
}

fig_tensor fig_bench_rig_rows(fig_bench_rig *rig, const char *name, int32_t heads, int32_t head_dim,
                              int32_t multiple) {
    const int64_t rows = rig->is_packed ? FIG_DIM_QUERIES : FIG_DIM_BATCH;
    return fig_program_tensor(rig->program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = rig->dtype, .rank = head_dim > 0 ? 3 : 2,
                                          .dims = {rows, heads, head_dim}, .multiple = multiple));
}

void fig_bench_rig_read_queries(fig_bench_rig *rig, const fig_spec *spec) {
    const fig_tensor_info lengths = {.size = sizeof lengths,
                                     .name = FIG_BENCH_LENGTHS,
                                     .role = FIG_ROLE_BOUND,
                                     .dtype = FIG_I32,
                                     .rank = 1,
                                     .dims = {FIG_DIM_BATCH}};
    fig_tensor_info starts = lengths;
    starts.name = FIG_BENCH_STARTS;
    starts.dims[0] = spec->batch_limit + 1;
    fig_program_read_queries(rig->program, fig_program_tensor(rig->program, &lengths),
                             (fig_tensor){0}, fig_program_tensor(rig->program, &starts));
}

fig_tensor fig_bench_rig_table(fig_bench_rig *rig, const fig_spec *spec) {
    const int32_t pages = (spec->kv_limit + spec->page_size - 1) / spec->page_size;
    return fig_program_tensor(
        rig->program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                                  .dtype = FIG_I32, .rank = 2, .dims = {spec->batch_limit, pages}));
}

fig_tensor fig_bench_rig_cache(fig_bench_rig *rig, const fig_spec *spec, const char *name) {
    return fig_program_tensor(
        rig->program,
        FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND, .dtype = spec->kv_dtype,
                    .rank = 4,
                    .dims = {FIG_DIM_PAGES, spec->page_size, spec->kv_heads, spec->head_dim},
                    .layout = spec->kv_layout));
}

fig_rms_norm_op fig_bench_rig_sum(fig_bench_rig *rig, int32_t width) {
    const fig_tensor weight = fig_program_tensor(
        rig->program, FIG_OPTIONS(fig_tensor_info, .name = "norm", .role = FIG_ROLE_BOUND,
                                  .dtype = rig->dtype, .rank = 1, .dims = {width}));
    rig->meets = 1;
    return (fig_rms_norm_op){.size = sizeof(fig_rms_norm_op),
                             .in = fig_bench_rig_rows(rig, "part", width, 0, 1),
                             .residual = fig_bench_rig_rows(rig, "residual", width, 0, 1),
                             .out = fig_bench_rig_rows(rig, "normed", width, 0, 1),
                             .weight = weight};
}

static fig_status bind_all(const fig_bench_rig *rig) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(rig->graphs, i, &info) == FIG_OK; i++) {
        if (info.role != FIG_ROLE_BOUND || info.dims[0] == FIG_DIM_PAGES) continue;
        const fig_binding binding = {.size = sizeof binding, .name = info.name};
        const fig_status status = fig_engine_bind(rig->engine, &binding);
        if (status != FIG_OK) return status;
    }
    return FIG_OK;
}

/* A rig is short-lived, so its ring may lie on any NUMA node. */
int fig_bench_rig_open(fig_bench_rig *rig, const fig_bench_machine *machine, fig_bucket bucket) {
    const fig_lower_options lower = {
        .size = sizeof lower, .traits = &machine->traits, .buckets = &bucket, .bucket_count = 1};
    const fig_engine_options open = {.size = sizeof open,
                                     .device = machine->device,
                                     .numa_node = -1,
                                     .ordinal = machine->ordinal,
                                     .ranks = rig->meets ? machine->ranks : NULL};
    fig_status status = fig_program_finish(rig->program);
    if (status == FIG_OK)
        status = rig->variant > 0 ? fig_graphs_lower_variant(&rig->graphs, rig->program, &lower,
                                                             rig->variant - 1)
                                  : fig_graphs_lower(&rig->graphs, rig->program, &lower);
    fig_program_destroy(rig->program);
    rig->program = NULL;
    if (status == FIG_OK) status = fig_engine_open(&rig->engine, rig->graphs, &open);
    if (status == FIG_OK) status = bind_all(rig);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status("bench");
}

int fig_bench_rig_fill(fig_bench_rig *rig, const char *name, fig_dtype dtype, int64_t count) {
    const fig_span span = {
        .size = sizeof span, .name = name, .bytes = (size_t)count * fig_synthetic_bytes(dtype)};
    uint8_t *elements = malloc(span.bytes);
    fig_synthetic synthetic;
    if (elements == NULL) return fig_report_refuse("bench: no memory for %zu bytes", span.bytes);
    fig_synthetic_seed(&synthetic, 1);
    fig_synthetic_fill(&synthetic, dtype, elements, (size_t)count);
    const fig_status status = fig_engine_write(rig->engine, &span, elements);
    free(elements);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status("bench");
}

int fig_bench_rig_run(fig_bench_rig *rig, const fig_step *step) {
    fig_status status = fig_engine_step(rig->engine, step);
    if (status == FIG_OK) status = fig_engine_wait(rig->engine, -1);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status("bench");
}

/* Rank 0 decides from its own time how many replays a sample has on every rank. */
static fig_status agree_replays(const fig_bench_rig *rig, const fig_bench_machine *machine,
                                fig_timing_options *options) {
    fig_timing_options once = *options;
    fig_timed timed = {.size = sizeof timed};
    int32_t all[FIG_RANKS_LIMIT];
    once.samples = QUICK_SAMPLES;
    once.replays = 1;
    const fig_status status = fig_engine_time(rig->engine, &once, &timed);
    if (status != FIG_OK) return status;
    const double replays = timed.median_ns > 0 ? 1e3 * machine->sample_us / timed.median_ns : 1;
    const int32_t own = replays < 1 ? 1 : replays > REPLAYS_MOST ? REPLAYS_MOST : (int32_t)replays;
    const fig_status met = fig_ranks_all_gather(machine->ranks, &own, sizeof own, all);
    options->replays = all[0];
    return met;
}

int fig_bench_rig_time(fig_bench_rig *rig, const fig_bench_machine *machine, const fig_step *step,
                       fig_timed *timed) {
    fig_timing_options options = {.size = sizeof options,
                                  .step = step,
                                  .serial = rig->serial,
                                  .spacer = rig->spacer,
                                  .samples = machine->samples,
                                  .sample_us = machine->sample_us};
    fig_status status = FIG_OK;
    if (rig->meets && machine->ranks != NULL) status = agree_replays(rig, machine, &options);
    timed->size = sizeof *timed;
    if (status == FIG_OK) status = fig_engine_time(rig->engine, &options, timed);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status("bench");
}

void fig_bench_rig_close(fig_bench_rig *rig) {
    fig_engine_close(rig->engine);
    fig_graphs_destroy(rig->graphs);
    fig_program_destroy(rig->program);
    *rig = (fig_bench_rig){0};
}

int32_t fig_bench_rig_round(int32_t value) {
    int32_t power = 1;
    while (power < value)
        power *= 2;
    return power;
}

/* cmd_memory.c: figraph memory, which tells how much memory an engine takes for a file or a model.
 *
 * With the answer the user can size the KV cache by the memory that is left. The command opens no
 * device for a file, nor for a model with --traits. */
#include <stdio.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/inspect/print.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

typedef struct told_memory {
    const char *name; /* of the file or the model */
    int is_file;
    int32_t ranks;
    int is_latent;        /* 1: a latent cache, which ranks do not divide */
    fig_memory_info info; /* for one rank */
} told_memory;

static uint64_t device_bytes(const fig_memory_info *memory) {
    return memory->workspace_bytes + memory->plan_bytes + memory->state_bytes + memory->exec_bytes;
}

static void emit_memory(const told_memory *memory) {
    const fig_memory_info *info = &memory->info;
    const int64_t ranks = memory->ranks;
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, memory->is_file ? "file" : "model", memory->name);
    fig_emit_integer(&emit, "workspace_bytes", (int64_t)info->workspace_bytes);
    fig_emit_integer(&emit, "plans_bytes", (int64_t)info->plan_bytes);
    fig_emit_integer(&emit, "state_bytes", (int64_t)info->state_bytes);
    fig_emit_integer(&emit, "exec_bytes", (int64_t)info->exec_bytes);
    fig_emit_integer(&emit, "device_bytes", (int64_t)device_bytes(info));
    fig_emit_integer(&emit, "pinned_bytes", (int64_t)info->pinned_bytes);
    fig_emit_integer(&emit, "token_bytes", (int64_t)info->token_bytes);
    fig_emit_object(&emit, "together");
    fig_emit_integer(&emit, "ranks", ranks);
    fig_emit_integer(&emit, "device_bytes", ranks * (int64_t)device_bytes(info));
    fig_emit_integer(&emit, "pinned_bytes", ranks * (int64_t)info->pinned_bytes);
    fig_emit_integer(&emit, "token_bytes", ranks * (int64_t)info->token_bytes);
    fig_emit_close(&emit);
    fig_emit_close(&emit);
}

static void print_bytes(const char *name, uint64_t bytes, const char *what) {
    char number[FIG_REPORT_NUMBER], size[FIG_PRINT_NUMBER];
    const int column =
        printf("  %-10s%15s %11s   ", name, fig_report_number(number, (int64_t)bytes),
               fig_print_bytes(size, bytes));
    fig_columns_words(column, column, what);
}

static void print_together(const told_memory *memory) {
    const uint64_t ranks = (uint64_t)memory->ranks;
    if (ranks == 1) return;
    printf("\nall %d ranks together\n\n", memory->ranks);
    print_bytes("device", ranks * device_bytes(&memory->info), "on all devices");
    print_bytes("pinned", ranks * memory->info.pinned_bytes, "on the host, or on all hosts");
    print_bytes("token", ranks * memory->info.token_bytes,
                memory->is_latent
                    ? "in all KV caches: each rank holds the whole latent cache; if ranks "
                      "divided the requests, one of them would hold a token"
                    : "in all KV caches; a kv head that several ranks hold counts for each");
}

static void print_memory(const told_memory *memory) {
    const fig_memory_info *info = &memory->info;
    fig_report_name(memory->name);
    if (memory->ranks > 1) printf(": one of %d ranks", memory->ranks);
    printf(": bytes in addition to the tensors that the caller binds\n\n");
    print_bytes("workspace", info->workspace_bytes, "partial results and their counters");
    print_bytes("plans", info->plan_bytes, "a plan of the largest bucket, and a prefetched one");
    print_bytes("state", info->state_bytes, "tensors that the engine owns, such as page tables");
    print_bytes("graphs", info->exec_bytes, "of all buckets; estimated from one H200");
    print_bytes("device", device_bytes(info), "the sum of the lines above");
    print_bytes("pinned", info->pinned_bytes, "on the host: plans and pages in flight");
    print_bytes("token", info->token_bytes, "in the KV cache: one token in all layers");
    print_together(memory);
}

static int is_latent(const fig_graphs *graphs) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(graphs, &info);
    return info.spec->latent_dim > 0;
}

static int load(const fig_arguments *arguments, fig_graphs **graphs) {
    if (fig_arguments_text(arguments, "--traits") != NULL ||
        fig_arguments_text(arguments, "--device") != NULL)
        return fig_report_refuse("memory: --traits and --device are for --preset, --config and "
                                 "--q-heads; a file names its machine");
    if (fig_graphs_load(graphs, arguments->operand) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status(arguments->operand);
}

static int lower(const fig_arguments *arguments, const char **name, fig_graphs **graphs) {
    fig_source source;
    fig_source_machine machine;
    int code = fig_source_read(arguments, &source);
    if (code != FIG_EXIT_FINE) return code;
    *name = source.name;
    code = fig_source_read_machine(arguments, &machine);
    return code == FIG_EXIT_FINE ? fig_source_lower(&source, &machine.traits, graphs) : code;
}

/* Loads the file or lowers the model. Returns FIG_EXIT_*. */
static int open_graphs(const fig_arguments *arguments, told_memory *memory, fig_graphs **graphs) {
    const int code = fig_source_check_named(arguments);
    if (code != FIG_EXIT_FINE) return code;
    return memory->is_file ? load(arguments, graphs) : lower(arguments, &memory->name, graphs);
}

static int run(const fig_arguments *arguments) {
    fig_integer range = {.name = "--slots", .least = 1, .most = INT32_MAX, .fallback = 0};
    told_memory memory = {.name = arguments->operand,
                          .is_file = arguments->operand != NULL,
                          .info = {.size = sizeof memory.info}};
    fig_graphs *graphs = NULL;
    int64_t slots;
    int code = fig_arguments_integer(arguments, &range, &slots);
    if (code == FIG_EXIT_FINE) code = fig_source_read_ranks(arguments, &memory.ranks);
    if (code == FIG_EXIT_FINE) code = open_graphs(arguments, &memory, &graphs);
    if (code == FIG_EXIT_FINE) code = fig_source_divide(arguments, memory.ranks, &graphs);
    if (code != FIG_EXIT_FINE) return code;
    memory.is_latent = is_latent(graphs);
    if (fig_graphs_memory(graphs, (int32_t)slots, &memory.info) != FIG_OK) {
        code = fig_report_status("memory: --slots");
    } else if (fig_arguments_text(arguments, "--json") != NULL) {
        emit_memory(&memory);
    } else {
        print_memory(&memory);
    }
    fig_graphs_destroy(graphs);
    return code;
}

const fig_command fig_cmd_memory = {
    .name = "memory",
    .summary = "tell how much memory an engine for a .fig file or a model takes",
    .operand = "[FILE]",
    .notes = FIG_SOURCE_NOTES,
    .example = "figraph memory --preset llama-3.1-8b --traits a100",
    .run = run,
    .options =
        {
            FIG_SOURCE_NAMES(FIG_OPTION_ONE_OF),
            FIG_SOURCE_CHANGES,
            {"--slots", "N", "plans in flight at once, 2 to 64; default 4"},
            FIG_SOURCE_RANKS,
            FIG_SOURCE_DEVICE,
            FIG_SOURCE_TRAITS,
            {"--json", NULL, "print an object"},
        },
};

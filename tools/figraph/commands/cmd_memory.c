/* cmd_memory.c: figraph memory, what a .fig file will take of a device, before one is opened.
 *
 * So that the owner of the device can size the KV cache by what is left. */
#include <stdio.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/step/source.h"

typedef struct told_memory {
    const char *path;
    int32_t ranks;
    fig_memory_info info; /* of one rank */
} told_memory;

static uint64_t device_bytes(const fig_memory_info *memory) {
    return memory->workspace_bytes + memory->plan_bytes + memory->state_bytes + memory->exec_bytes;
}

static void emit_memory(const told_memory *memory) {
    const fig_memory_info *info = &memory->info;
    const int64_t ranks = memory->ranks;
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "file", memory->path);
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
    char number[FIG_REPORT_NUMBER];
    printf("  %-10s%15s   %s\n", name, fig_report_number(number, (int64_t)bytes), what);
}

static void print_together(const told_memory *memory) {
    const uint64_t ranks = (uint64_t)memory->ranks;
    if (ranks == 1) return;
    printf("\nall %d ranks together\n\n", memory->ranks);
    print_bytes("device", ranks * device_bytes(&memory->info), "of all devices");
    print_bytes("pinned", ranks * memory->info.pinned_bytes, "of the host, or of all hosts");
    print_bytes("token", ranks * memory->info.token_bytes,
                "of all KV caches; kv heads that ranks share count for each");
}

static void print_memory(const told_memory *memory) {
    const fig_memory_info *info = &memory->info;
    fig_report_name(memory->path);
    if (memory->ranks > 1) printf(": one of %d ranks", memory->ranks);
    printf(": bytes beside what the caller binds\n\n");
    print_bytes("workspace", info->workspace_bytes, "partial results and their counters");
    print_bytes("plans", info->plan_bytes, "one of the largest bucket, and one taken ahead");
    print_bytes("state", info->state_bytes, "tensors that the engine owns, page tables say");
    print_bytes("graphs", info->exec_bytes, "of all buckets; estimated from one H200");
    print_bytes("device", device_bytes(info), "all of these");
    print_bytes("pinned", info->pinned_bytes, "of the host: plans and pages on their way");
    print_bytes("token", info->token_bytes, "of the KV cache, one token in all layers");
    print_together(memory);
}

static int run(const fig_arguments *arguments) {
    fig_integer range = {.name = "--slots", .least = 1, .most = INT32_MAX, .fallback = 0};
    told_memory memory = {.path = arguments->operand, .info = {.size = sizeof memory.info}};
    fig_graphs *graphs;
    int64_t slots;
    int code = fig_arguments_integer(arguments, &range, &slots);
    if (code == FIG_EXIT_FINE) code = fig_source_read_ranks(arguments, &memory.ranks);
    if (code != FIG_EXIT_FINE) return code;
    if (fig_graphs_load(&graphs, memory.path) != FIG_OK) return fig_report_status(memory.path);
    code = fig_source_divide(arguments, memory.ranks, &graphs);
    if (code != FIG_EXIT_FINE) return code;
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
    .summary = "tell what a .fig file will take of a device",
    .operand = "FILE",
    .example = "figraph memory llama.fig --slots 8",
    .run = run,
    .options =
        {
            {"--slots", "N", "plans on their way at once, 2 to 64; without it 4"},
            FIG_SOURCE_RANKS,
            {"--json", NULL, "print an object"},
        },
};

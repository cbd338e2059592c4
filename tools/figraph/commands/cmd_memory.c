/* cmd_memory.c: figraph memory, what a .fig file will take of a device, before one is opened.
 *
 * So that the owner of the device can size the KV cache by what is left. */
#include <stdio.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

static uint64_t device_bytes(const fig_memory_info *memory) {
    return memory->workspace_bytes + memory->plan_bytes + memory->state_bytes + memory->exec_bytes;
}

static void emit_memory(const char *path, const fig_memory_info *memory) {
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "file", path);
    fig_emit_integer(&emit, "workspace_bytes", (int64_t)memory->workspace_bytes);
    fig_emit_integer(&emit, "plans_bytes", (int64_t)memory->plan_bytes);
    fig_emit_integer(&emit, "state_bytes", (int64_t)memory->state_bytes);
    fig_emit_integer(&emit, "exec_bytes", (int64_t)memory->exec_bytes);
    fig_emit_integer(&emit, "device_bytes", (int64_t)device_bytes(memory));
    fig_emit_integer(&emit, "pinned_bytes", (int64_t)memory->pinned_bytes);
    fig_emit_integer(&emit, "token_bytes", (int64_t)memory->token_bytes);
    fig_emit_close(&emit);
}

static void print_bytes(const char *name, uint64_t bytes, const char *what) {
    char number[FIG_REPORT_NUMBER];
    printf("  %-10s%15s   %s\n", name, fig_report_number(number, (int64_t)bytes), what);
}

static void print_memory(const char *path, const fig_memory_info *memory) {
    fig_report_name(path);
    printf(": bytes beside what the caller binds\n\n");
    print_bytes("workspace", memory->workspace_bytes, "partial results and their counters");
    print_bytes("plans", memory->plan_bytes, "one of the largest bucket, and one taken ahead");
    print_bytes("state", memory->state_bytes, "tensors that the engine owns, page tables say");
    print_bytes("graphs", memory->exec_bytes, "of all buckets; estimated from one H200");
    print_bytes("device", device_bytes(memory), "all of these");
    print_bytes("pinned", memory->pinned_bytes, "of the host: plans and pages on their way");
    print_bytes("token", memory->token_bytes, "of the KV cache, one token in all layers");
}

static int run(const fig_arguments *arguments) {
    fig_integer range = {.name = "--slots", .least = 1, .most = INT32_MAX, .fallback = 0};
    fig_memory_info memory = {.size = sizeof memory};
    fig_graphs *graphs;
    int64_t slots;
    int code = fig_arguments_integer(arguments, &range, &slots);
    if (code != FIG_EXIT_FINE) return code;
    if (fig_graphs_load(&graphs, arguments->operand) != FIG_OK) {
        return fig_report_status(arguments->operand);
    }
    if (fig_graphs_memory(graphs, (int32_t)slots, &memory) != FIG_OK) {
        code = fig_report_status("memory: --slots");
    } else if (fig_arguments_text(arguments, "--json") != NULL) {
        emit_memory(arguments->operand, &memory);
    } else {
        print_memory(arguments->operand, &memory);
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
            {"--json", NULL, "print an object"},
        },
};

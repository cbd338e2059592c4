/* traits.c: the machines that graphs are lowered for, and the variants measured on them.
 *
 * Owns two tables and their checks; the cost they feed is bucket.c's. Invariant: rows are only ever
 * added at the end, since a file stores a variant's index. */
#include "planner/traits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/status.h"

/* Figures of an H200 with 32 q heads, 8 kv heads, head_dim 128 and bf16. One worker per SM moves a
 * tile of 32 KB, one head's, in 1.07 us, and one of 64 KB, eight heads', in 1.97 us. */
const fig_variant fig_variant_table[FIG_VARIANT_COUNT] = {
    {.name = "head",
     .heads = 1,
     .tile_tokens = 64,
     .workers_per_sm = 1,
     .start_ns = 5000,
     .bytes_per_us = 30700,
     .piece_ns = 110,
     .segment_ns = 900},
    {.name = "page",
     .heads = 8,
     .tile_tokens = 16,
     .workers_per_sm = 1,
     .start_ns = 8500,
     .bytes_per_us = 33300,
     .piece_ns = 270,
     .segment_ns = 1000},
};

/* "host" has SMs so that its work is cut as a GPU's is, and the shared memory of the largest GPU so
 * that whatever is lowered for one lowers for it. */
static const fig_traits machines[] = {
    {sizeof(fig_traits), "h200", 90, 132, 232448},
    {sizeof(fig_traits), "h100", 90, 132, 232448},
    {sizeof(fig_traits), "a100", 80, 108, 166912},
    {sizeof(fig_traits), "host", 0, 8, 232448},
};
enum { MACHINE_COUNT = sizeof machines / sizeof machines[0] };

enum { COMPUTE_CAPABILITY_LIMIT = 999, SHARED_BYTES_LIMIT = 1 << 20 };

static int is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static fig_status check_name(const char name[16]) {
    size_t length = 0;
    while (length < 16 && is_name_character(name[length]))
        length++;
    if (length > 0 && length < 16 && name[length] == '\0') return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "traits: name is \"%.16s\", it must be 1 to 15 characters of [A-Za-z0-9._-]",
                    name);
}

static fig_status check_range(const char *field, int32_t value, int32_t least, int32_t most) {
    if (value >= least && value <= most) return FIG_OK;
    return fig_fail(FIG_INVALID, "traits: %s is %" PRId32 ", limits %" PRId32 " to %" PRId32, field,
                    value, least, most);
}

fig_status fig_traits_check(const fig_traits *traits) {
    int32_t workers_per_sm = 1;
    for (int i = 0; i < FIG_VARIANT_COUNT; i++) {
        if (fig_variant_table[i].workers_per_sm > workers_per_sm)
            workers_per_sm = fig_variant_table[i].workers_per_sm;
    }
    FIG_TRY(check_name(traits->name));
    FIG_TRY(
        check_range("compute_capability", traits->compute_capability, 0, COMPUTE_CAPABILITY_LIMIT));
    FIG_TRY(check_range("sm_count", traits->sm_count, 1, FIG_WORKER_LIMIT / workers_per_sm));
    return check_range("shared_bytes", traits->shared_bytes, 0, SHARED_BYTES_LIMIT);
}

fig_status fig_traits_named(fig_traits *traits, const char *name) {
    char known[128] = "";
    static const fig_traits none;
    for (int i = 0; i < MACHINE_COUNT; i++) {
        if (name != NULL && strcmp(name, machines[i].name) == 0)
            return fig_status_give(traits, &machines[i], sizeof *traits, "fig_traits");
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", machines[i].name);
    }
    FIG_TRY(fig_status_give(traits, &none, sizeof none, "fig_traits"));
    return fig_fail(FIG_INVALID, "traits %s are unknown, there are %s",
                    name != NULL ? name : "NULL", known);
}

const char *fig_traits_name(int32_t index) {
    return index >= 0 && index < MACHINE_COUNT ? machines[index].name : NULL;
}

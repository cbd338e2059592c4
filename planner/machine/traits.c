/* traits.c: lists the machines for which graphs are lowered, and the ways to read the cache on
 * each.
 *
 * Owns machines, candidates and their checks; costs.c has the costs of a candidate, and bucket.c
 * chooses the cheapest. Invariant: candidates are only ever added at the end, because a file may
 * name a candidate by its number alone. */
#include "planner/machine/traits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/machine/costs.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* Few heads and long tiles suit few rows; whole pages suit many rows. */
static const fig_variant candidates[] = {
    {.name = "head", .heads = 1, .tile_tokens = 64, .workers_per_sm = 1},
    {.name = "page", .heads = 8, .tile_tokens = 16, .workers_per_sm = 1},
    {.name = "pair", .heads = 2, .tile_tokens = 64, .workers_per_sm = 1},
    {.name = "four", .heads = 4, .tile_tokens = 32, .workers_per_sm = 1},
};
enum { CANDIDATE_COUNT = sizeof candidates / sizeof candidates[0], ENDS_OF_ALL = 2 };
static_assert(5 * (int)CANDIDATE_COUNT <= (int)FIG_VARIANT_LIMIT,
              "a set of variants, five forms of each candidate, is a word's bits");

typedef struct machine {
    fig_traits traits;
    int32_t variant_count; /* the machine has candidates [0, variant_count) */
} machine;

/* "host" has a number of SMs so that its work is split as on a GPU. It has the shared memory of the
 * largest GPU so that graphs that lower for a GPU also lower for the host. */
static const machine machines[] = {
    {{sizeof(fig_traits), "h200", 90, 132, 232448}, CANDIDATE_COUNT},
    {{sizeof(fig_traits), "h100", 90, 132, 232448}, CANDIDATE_COUNT},
    {{sizeof(fig_traits), "a100", 80, 108, 166912}, ENDS_OF_ALL},
    {{sizeof(fig_traits), "host", 0, 8, 232448}, ENDS_OF_ALL},
};
enum { MACHINE_COUNT = sizeof machines / sizeof machines[0] };

/* Returns the machine of that name, else the first with the same compute capability, else the first
 * of all. */
static const machine *find_machine(const fig_traits *traits) {
    for (int i = 0; i < MACHINE_COUNT; i++)
        if (strcmp(traits->name, machines[i].traits.name) == 0) return &machines[i];
    for (int i = 0; i < MACHINE_COUNT; i++)
        if (traits->compute_capability == machines[i].traits.compute_capability)
            return &machines[i];
    return &machines[0];
}

int32_t fig_traits_variant_count(const fig_traits *traits) {
    return find_machine(traits)->variant_count;
}

fig_variant fig_traits_variant(const fig_traits *traits, int32_t number, int32_t value_bytes) {
    const machine *found = find_machine(traits);
    assert(number >= 0 && number < found->variant_count);
    fig_variant variant = candidates[number];
    fig_costs_take(found->traits.name, value_bytes, &variant);
    return variant;
}

enum { COMPUTE_CAPABILITY_LIMIT = 999, SHARED_BYTES_LIMIT = 1 << 20 };
/* Limits on a variant from a file. Costs have a limit so that their sums fit 64 bits. */
enum { WORKERS_PER_SM_LIMIT = 16, STAGE_LIMIT = 64, COST_LIMIT = 100000000 };

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

static fig_status check_range(const char *of, const char *field, int32_t value, int32_t least,
                              int32_t most) {
    if (value >= least && value <= most) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s: %s is %" PRId32 ", limits %" PRId32 " to %" PRId32, of, field,
                    value, least, most);
}

fig_status fig_traits_check(const fig_traits *traits) {
    FIG_TRY(check_name(traits->name));
    FIG_TRY(check_range("traits", "compute_capability", traits->compute_capability, 0,
                        COMPUTE_CAPABILITY_LIMIT));
    FIG_TRY(check_range("traits", "sm_count", traits->sm_count, 1, FIG_WORKER_LIMIT));
    return check_range("traits", "shared_bytes", traits->shared_bytes, 0, SHARED_BYTES_LIMIT);
}

fig_status fig_traits_check_variant(const fig_variant *variant) {
    const size_t length = strnlen(variant->name, sizeof variant->name);
    for (size_t i = 0; i < length; i++) {
        if (!is_name_character(variant->name[i]))
            return fig_fail(FIG_INVALID, "variant: its name is not a word of [A-Za-z0-9._-]");
    }
    if (length == 0 || length == sizeof variant->name)
        return fig_fail(FIG_INVALID, "variant: its name must have 1 to %zu characters",
                        sizeof variant->name - 1);
    for (size_t i = length; i < sizeof variant->name; i++) {
        if (variant->name[i] != '\0')
            return fig_fail(FIG_INVALID, "variant %s: its name must be followed by zeros",
                            variant->name);
    }
    FIG_TRY(check_range("variant", "heads", variant->heads, 1, FIG_HEAD_LIMIT));
    FIG_TRY(check_range("variant", "tile_tokens", variant->tile_tokens, 16, FIG_TILE_TOKENS_LIMIT));
    FIG_TRY(
        check_range("variant", "workers_per_sm", variant->workers_per_sm, 1, WORKERS_PER_SM_LIMIT));
    FIG_TRY(check_range("variant", "stages", variant->stages, 0, STAGE_LIMIT));
    FIG_TRY(check_range("variant", "start_ns", variant->start_ns, 0, COST_LIMIT));
    FIG_TRY(check_range("variant", "bytes_per_us", variant->bytes_per_us, 1, COST_LIMIT));
    FIG_TRY(check_range("variant", "piece_ns", variant->piece_ns, 0, COST_LIMIT));
    FIG_TRY(check_range("variant", "segment_ns", variant->segment_ns, 0, COST_LIMIT));
    FIG_TRY(check_range("variant", "once", variant->once, 0, FIG_UNITS_ONCE_LIMIT));
    return check_range("variant", "tile_ns", variant->tile_ns, 0, COST_LIMIT);
}

fig_status fig_traits_named(fig_traits *traits, const char *name) {
    char known[128] = "";
    static const fig_traits none;
    for (int i = 0; i < MACHINE_COUNT; i++) {
        if (name != NULL && strcmp(name, machines[i].traits.name) == 0)
            return fig_status_give(traits, &machines[i].traits, sizeof *traits, "fig_traits");
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                 machines[i].traits.name);
    }
    FIG_TRY(fig_status_give(traits, &none, sizeof none, "fig_traits"));
    return fig_fail(FIG_INVALID, "traits %s are unknown, there are %s",
                    name != NULL ? name : "NULL", known);
}

const char *fig_traits_name(int32_t index) {
    return index >= 0 && index < MACHINE_COUNT ? machines[index].traits.name : NULL;
}

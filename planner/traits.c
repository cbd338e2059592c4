/* traits.c: the machines that graphs are lowered for, and the variants measured on them.
 *
 * Owns the tables and their checks; the cost they feed is bucket.c's. Invariant: rows are only ever
 * added at the end, since a file may store no more than a row's number. */
#include "planner/traits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/spec.h"
#include "planner/status.h"

/* Figures of an H200 with 32 q heads, 8 kv heads, head_dim 128 and bf16. One worker per SM moves a
 * tile of 32 KB, one head's, in 1.07 us, and one of 64 KB, eight heads', in 1.97 us. */
static const fig_variant h200_variants[] = {
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

typedef struct machine {
    fig_traits traits;
    const fig_variant *variants; /* [variant_count] */
    int32_t variant_count;
} machine;

#define VARIANTS(rows) rows, sizeof(rows) / sizeof(rows)[0]

/* "host" has SMs so that its work is cut as a GPU's is, and the shared memory of the largest GPU so
 * that whatever is lowered for one lowers for it. */
static const machine machines[] = {
    {{sizeof(fig_traits), "h200", 90, 132, 232448}, VARIANTS(h200_variants)},
    {{sizeof(fig_traits), "h100", 90, 132, 232448}, VARIANTS(h200_variants)},
    {{sizeof(fig_traits), "a100", 80, 108, 166912}, VARIANTS(h200_variants)},
    {{sizeof(fig_traits), "host", 0, 8, 232448}, VARIANTS(h200_variants)},
};
enum { MACHINE_COUNT = sizeof machines / sizeof machines[0] };

/* A machine of another name gets the variants of the first that has its compute capability, or of
 * the first of all. */
const fig_variant *fig_traits_variants(const fig_traits *traits, int32_t *count) {
    const machine *found = NULL;
    for (int i = 0; i < MACHINE_COUNT && found == NULL; i++)
        if (strcmp(traits->name, machines[i].traits.name) == 0) found = &machines[i];
    for (int i = 0; i < MACHINE_COUNT && found == NULL; i++)
        if (traits->compute_capability == machines[i].traits.compute_capability)
            found = &machines[i];
    if (found == NULL) found = &machines[0];
    *count = found->variant_count;
    return found->variants;
}

enum { COMPUTE_CAPABILITY_LIMIT = 999, SHARED_BYTES_LIMIT = 1 << 20 };
/* Of a variant: what a file may claim, and costs whose sums fit 64 bits. */
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
            return fig_fail(FIG_INVALID, "variant: its name is no word of [A-Za-z0-9._-]");
    }
    if (length == 0 || length == sizeof variant->name)
        return fig_fail(FIG_INVALID, "variant: its name has no 1 to %zu characters",
                        sizeof variant->name - 1);
    for (size_t i = length; i < sizeof variant->name; i++) {
        if (variant->name[i] != '\0')
            return fig_fail(FIG_INVALID, "variant %s: its name does not end where it ends",
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
    return check_range("variant", "segment_ns", variant->segment_ns, 0, COST_LIMIT);
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

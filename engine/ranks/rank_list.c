/* rank_list.c: writes runs of ranks, joined by commas and a last "and".
 *
 * Invariant: see rank_list.h. */
#include "engine/ranks/rank_list.h"

#include <inttypes.h>
#include <stdio.h>

enum { RUN_LIMIT = 6 };

typedef struct run {
    int32_t first, last;
} run;

/* Finds the next run at or after `from`. If there is none, the result's `first` is `count`. Two
 * neighbouring ranks count as two runs of one rank each. */
static run next_run(const uint8_t *is_in, int32_t count, int32_t from) {
    run out;
    while (from < count && !is_in[from])
        from++;
    out.first = from;
    while (from < count && is_in[from])
        from++;
    out.last = from - out.first == 2 ? out.first : from - 1;
    return out;
}

void fig_rank_list_write(char out[FIG_RANK_LIST_BYTES], const uint8_t *is_in, int32_t count) {
    run runs[RUN_LIMIT];
    int32_t run_count = 0, named = 0, total = 0;
    for (int32_t i = 0; i < count; i++)
        total += is_in[i] != 0;
    for (int32_t at = 0; at < count && run_count < RUN_LIMIT; run_count++) {
        runs[run_count] = next_run(is_in, count, at);
        if (runs[run_count].first == count) break;
        at = runs[run_count].last + 1;
        named += at - runs[run_count].first;
    }
    int used = snprintf(out, FIG_RANK_LIST_BYTES, total == 1 ? "rank" : "ranks");
    for (int32_t i = 0; i < run_count; i++) {
        const char *joint = i == 0 ? " " : i + 1 == run_count && named == total ? " and " : ", ";
        const size_t left = FIG_RANK_LIST_BYTES - (size_t)used;
        char *at = out + used;
        if (runs[i].first == runs[i].last)
            used += snprintf(at, left, "%s%" PRId32, joint, runs[i].first);
        else
            used +=
                snprintf(at, left, "%s%" PRId32 " to %" PRId32, joint, runs[i].first, runs[i].last);
    }
    if (named < total)
        snprintf(out + used, FIG_RANK_LIST_BYTES - (size_t)used, " and %" PRId32 " more",
                 total - named);
}

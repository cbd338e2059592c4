/* inspect_buckets.c: prints the buckets of graphs as a table for people.
 *
 * A model has hundreds of buckets, so consecutive buckets with one batch share a line, unless the
 * user asks for all buckets. Invariant: values that differ among the buckets of a line are printed
 * as a range; of upper bounds only the largest is printed. */
#include "tools/figraph/inspect/inspect_buckets.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/figraph/terminal/report.h"

enum {
    HEAD_LIMIT = 256,
    WORDS = 40,
    WIDE = 91 /* the least number of columns for which the table also has the number of launches */
};

/* The buckets that share one line. */
typedef struct stretch {
    uint32_t first, end;
    int32_t kv_least, kv_most, launches_least, launches_most, workers_least, workers_most;
    uint64_t plan_bytes, workspace_bytes; /* the largest of these buckets */
    int relowered;
} stretch;

static void take_in(int32_t *least, int32_t *most, int32_t value) {
    if (*least == 0 || value < *least) *least = value;
    if (value > *most) *most = value;
}

static stretch stretch_at(const fig_inspect_summary *summary, uint32_t first) {
    const fig_inspection *view = summary->view;
    const int32_t batch = summary->infos[first].bucket.batch;
    stretch s = {.first = first, .end = first};
    while (s.end < view->bucket_count && summary->infos[s.end].bucket.batch == batch) {
        const fig_bucket_info *info = &summary->infos[s.end];
        s.relowered |= view->digests[s.end] != view->made_digests[s.end];
        take_in(&s.kv_least, &s.kv_most, info->bucket.kv);
        take_in(&s.launches_least, &s.launches_most, info->launch_count);
        take_in(&s.workers_least, &s.workers_most, info->workers);
        if (info->plan_bytes > s.plan_bytes) s.plan_bytes = info->plan_bytes;
        if (info->workspace_bytes > s.workspace_bytes) s.workspace_bytes = info->workspace_bytes;
        s.end++;
        if (summary->all_buckets) break;
    }
    return s;
}

/* Writes "128", or "128 to 131 072". */
static const char *range(char text[WORDS], int32_t least, int32_t most) {
    char a[FIG_PRINT_NUMBER], b[FIG_PRINT_NUMBER];
    fig_print_count(a, (uint64_t)least);
    fig_print_count(b, (uint64_t)most);
    if (least == most) snprintf(text, WORDS, "%.12s", a);
    if (least != most) snprintf(text, WORDS, "%.12s to %.12s", a, b);
    return text;
}

static int reads_alike(const fig_bucket_info *a, const fig_bucket_info *b) {
    return a->heads == b->heads && a->tile_tokens == b->tile_tokens;
}

/* Writes "2x64": the heads that a worker serves at once (fig_report_heads()), and the tokens of a
 * tile. For several variants writes only their heads: "1, 2, 4". */
static const char *variants(char text[WORDS], const fig_inspect_summary *summary,
                            const stretch *s) {
    const fig_bucket_info *only = &summary->infos[s->first];
    const int32_t group_heads = fig_report_group_heads(summary->graphs);
    const int32_t unit = group_heads > 0 ? group_heads : 1;
    size_t used = 0;
    int several = 0;
    for (uint32_t i = s->first; i < s->end; i++)
        several |= !reads_alike(&summary->infos[i], only);
    if (only->workers == 0) return "none";
    if (!several)
        snprintf(text, WORDS, "%" PRId32 "x%" PRId32, only->heads * unit, only->tile_tokens);
    for (int32_t heads = unit; several && heads <= HEAD_LIMIT; heads += unit) {
        int seen = 0;
        for (uint32_t i = s->first; i < s->end; i++)
            seen |= summary->infos[i].heads * unit == heads;
        if (!seen || used + 8 > WORDS) continue;
        used +=
            (size_t)snprintf(text + used, WORDS - used, "%s%" PRId32, used > 0 ? ", " : "", heads);
    }
    return text;
}

static void print_line(fig_print *print, const fig_inspect_summary *summary, const stretch *s) {
    char number[WORDS], kv[WORDS], variant[WORDS], workers[WORDS], launches[WORDS];
    char plan[FIG_PRINT_NUMBER], workspace[FIG_PRINT_NUMBER];
    range(number, (int32_t)s->first + 1, (int32_t)s->end);
    fig_print_text(print, "%c %10s %5" PRId32 " %16s  %-12s", s->relowered ? '*' : ' ', number,
                   summary->infos[s->first].bucket.batch, range(kv, s->kv_least, s->kv_most),
                   variants(variant, summary, s));
    fig_print_text(print, " %10s %8s %10s", range(workers, s->workers_least, s->workers_most),
                   fig_print_bytes(plan, s->plan_bytes),
                   fig_print_bytes(workspace, s->workspace_bytes));
    if (print->columns >= WIDE)
        fig_print_text(print, " %10s", range(launches, s->launches_least, s->launches_most));
    fig_print_end_line(print);
}

void fig_inspect_buckets_print(fig_print *print, const fig_inspect_summary *summary) {
    const uint32_t count = summary->view->bucket_count;
    fig_print_text(print, "\nbuckets: %" PRIu32 "%s\n", count,
                   summary->all_buckets ? "" : ", a line for each batch");
    fig_print_text(print, "  %10s %5s %16s  %-12s %10s %8s %10s", "", "batch", "kv",
                   fig_report_group_heads(summary->graphs) > 0 ? "q heads/tile" : "heads x tile",
                   "workers", "plan", "workspace");
    if (print->columns >= WIDE) fig_print_text(print, " %10s", "launches");
    fig_print_end_line(print);
    for (uint32_t first = 0; first < count;) {
        const stretch s = stretch_at(summary, first);
        print_line(print, summary, &s);
        first = s.end;
    }
}

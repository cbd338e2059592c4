/* group_list.c: prints the groups of a step as lines and as JSON.
 *
 * Invariant: a line has at most 80 columns, however many groups there are. */
#include "tools/figraph/commands/group_list.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/report.h"

enum { SHOWN = 8 }; /* groups that have a line each */

int fig_group_list_make(fig_group_list *list, fig_plan_report *report) {
    const size_t groups = (size_t)report->shared_groups, workers = (size_t)report->strip_workers;
    list->rows = calloc(groups + 1, sizeof *list->rows);
    list->firsts = calloc(groups + 1, sizeof *list->firsts);
    list->ends = calloc(groups + 1, sizeof *list->ends);
    list->prefix_tiles = calloc(workers + 1, sizeof *list->prefix_tiles);
    if (list->rows == NULL || list->firsts == NULL || list->ends == NULL ||
        list->prefix_tiles == NULL)
        return fig_report_refuse("plan: no memory for %zu groups", groups);
    report->group_rows = list->rows;
    report->group_firsts = list->firsts;
    report->group_ends = list->ends;
    report->group_capacity = report->shared_groups;
    report->strip_worker_prefix_tiles = list->prefix_tiles;
    return FIG_EXIT_FINE;
}

void fig_group_list_finish(fig_group_list *list) {
    free(list->rows);
    free(list->firsts);
    free(list->ends);
    free(list->prefix_tiles);
    *list = (fig_group_list){0};
}

static void print_tails(const fig_plan_report *report) {
    char number[FIG_REPORT_NUMBER];
    if (report->tails == 0) return;
    printf("  tails     %s, read by ", fig_report_number(number, report->tails));
    if (report->readers == 0) printf("all workers\n");
    if (report->readers > 0)
        printf("%d of %d workers; the others multiply prefixes\n", report->readers,
               report->workers);
}

void fig_group_list_print(const fig_group_list *list, const fig_plan_report *report) {
    char a[FIG_REPORT_COUNT], b[FIG_REPORT_COUNT], sentence[320];
    if (report->shared_groups == 0) {
        snprintf(sentence, sizeof sentence, "nothing: %s", report->unshared);
        fig_columns_words(printf("  shared    "), 12, sentence);
        return;
    }
    printf("  shared    %s in %s: ", fig_report_count(a, report->shared_rows, "row"),
           fig_report_count(b, report->shared_groups, "group"));
    printf("%s read", fig_report_count(a, report->shared_read, "token"));
    printf(", %s saved\n", fig_report_number(b, report->shared_saved));
    for (int32_t g = 0; g < report->shared_groups && g < SHOWN; g++) {
        printf("  group     %s: ", fig_report_count(a, list->rows[g], "row"));
        printf("tokens %s to ", fig_report_number(a, list->firsts[g]));
        printf("%s\n", fig_report_number(a, list->ends[g] - 1));
    }
    if (report->shared_groups > SHOWN)
        printf("  group     and %d more\n", report->shared_groups - SHOWN);
    print_tails(report);
}

static void emit_groups(fig_emit *emit, const fig_group_list *list, int32_t count) {
    fig_emit_array(emit, "groups");
    for (int32_t g = 0; g < count; g++) {
        fig_emit_object(emit, NULL);
        fig_emit_integer(emit, "rows", list->rows[g]);
        fig_emit_integer(emit, "first_token", list->firsts[g]);
        fig_emit_integer(emit, "end_token", list->ends[g]);
        fig_emit_close(emit);
    }
    fig_emit_close(emit);
}

void fig_group_list_emit(fig_emit *emit, const fig_group_list *list,
                         const fig_plan_report *report) {
    fig_emit_object(emit, "shared");
    if (report->unshared != NULL) fig_emit_text(emit, "refusal", report->unshared);
    emit_groups(emit, list, report->shared_groups);
    fig_emit_integer(emit, "rows", report->shared_rows);
    fig_emit_integer(emit, "tokens_read", report->shared_read);
    fig_emit_integer(emit, "tokens_saved", report->shared_saved);
    fig_emit_integer(emit, "tails", report->tails);
    fig_emit_integer(emit, "strips", report->prefix_strips);
    fig_emit_integer(emit, "tiles", report->prefix_tiles);
    fig_emit_array(emit, "worker_tiles");
    for (int32_t worker = 0; worker < report->strip_workers; worker++)
        fig_emit_integer(emit, NULL, list->prefix_tiles[worker]);
    fig_emit_close(emit);
    fig_emit_close(emit);
}

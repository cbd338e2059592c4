/* tune_lean.c: adjusts the figures of a class's variants so that the predicted choice is the
 * fastest.
 *
 * The fit minimises the error of each variant separately. If two variants take about the same time,
 * the remaining errors may make the model choose the slower one. So this file changes the figures,
 * one at a time and by up to a quarter, and keeps the values whose choices lose the least time. If
 * several values lose equally little, it keeps those that predict the times best. The rate is not
 * changed, because it must also hold for steps larger than any that was measured. Invariant: the
 * same trials and fitted figures give the same results. */
#include "tools/figraph/tune/tune_lean.h"

#include <math.h>
#include <string.h>

/* A figure is tried at fitted * (PARTS + i) / PARTS, for i from -STEPS to STEPS. */
enum { PARTS = 32, STEPS = 8, ROUNDS = 3 };

typedef struct score {
    double lost, squares; /* squares: the sum of squared relative errors */
} score;

double fig_tune_lean_lost(const fig_tune_trials *trials, const fig_tune_costs *costs) {
    double lost = 0;
    for (int32_t i = 0; i < trials->count;) {
        const int32_t cell = trials->rows[i].cell;
        double least = INFINITY, fastest = INFINITY, chosen = 0;
        for (; i < trials->count && trials->rows[i].cell == cell; i++) {
            const fig_tune_point *point = &trials->rows[i].point;
            const double ns = fig_tune_fit_predict(&costs[trials->rows[i].variant], point);
            if (point->ns < fastest) fastest = point->ns;
            if (ns >= least) continue;
            least = ns;
            chosen = point->ns;
        }
        lost += log(chosen / fastest);
    }
    return lost;
}

static score score_of(const fig_tune_trials *trials, const fig_tune_costs *costs) {
    score of = {fig_tune_lean_lost(trials, costs), 0};
    for (int32_t i = 0; i < trials->count; i++) {
        const fig_tune_trial *row = &trials->rows[i];
        const double ns = fig_tune_fit_predict(&costs[row->variant], &row->point);
        of.squares += (ns / row->point.ns - 1) * (ns / row->point.ns - 1);
    }
    return of;
}

static int is_better(const score *a, const score *b) {
    return a->lost < b->lost || (a->lost == b->lost && a->squares < b->squares);
}

/* Sets *figure, one figure of costs, to the value that scores best. fitted: the fitted value of
 * that figure. */
static void lean_figure(const fig_tune_trials *trials, const fig_tune_costs *costs, int32_t fitted,
                        int32_t *figure, score *best) {
    int32_t kept = *figure;
    for (int step = -STEPS; step <= STEPS; step++) {
        const int64_t leaned = (int64_t)fitted * (PARTS + step) / PARTS;
        *figure = leaned < FIG_TUNE_FIT_MOST ? (int32_t)leaned : FIG_TUNE_FIT_MOST;
        const score of = score_of(trials, costs);
        if (!is_better(&of, best)) continue;
        *best = of;
        kept = *figure;
    }
    *figure = kept;
}

void fig_tune_lean(const fig_tune_trials *trials, const fig_tune_costs *fitted, int count,
                   fig_tune_costs *leaned) {
    memcpy(leaned, fitted, (size_t)count * sizeof *leaned);
    score best = score_of(trials, leaned);
    for (int round = 0; round < ROUNDS; round++)
        for (int v = 0; v < count; v++) {
            const fig_tune_costs *from = &fitted[v];
            lean_figure(trials, leaned, from->start_ns, &leaned[v].start_ns, &best);
            lean_figure(trials, leaned, from->piece_ns, &leaned[v].piece_ns, &best);
            lean_figure(trials, leaned, from->segment_ns, &leaned[v].segment_ns, &best);
        }
}

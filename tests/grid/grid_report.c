/* grid_report.c: keeps and compares the results of a case of the grid.
 *
 * Invariant: the first failure is kept, with its first wrong element. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/grid/grid.h"
#include "tools/figraph/truth/truth.h"

enum { STRETCH = 256 };

void grid_fail(grid_report *report, const char *format, ...) {
    va_list arguments;
    if (grid_failed(report)) return;
    va_start(arguments, format);
    vsnprintf(report->failure, sizeof report->failure, format, arguments);
    va_end(arguments);
}

int grid_failed(const grid_report *report) {
    return report->failure[0] != '\0';
}

void grid_measured(grid_report *report, const char *name, double share) {
    int32_t i = 0;
    while (i < report->measure_count && strcmp(report->measures[i].name, name) != 0)
        i++;
    if (i == GRID_MEASURE_LIMIT) {
        grid_fail(report, "more than %d measures", GRID_MEASURE_LIMIT);
        return;
    }
    grid_measure *measure = &report->measures[i];
    if (i == report->measure_count) {
        report->measure_count++;
        *measure = (grid_measure){.worst = 0};
        snprintf(measure->name, sizeof measure->name, "%s", name);
    }
    if (share > measure->worst) measure->worst = share;
}

double grid_peer(fig_dtype dtype) {
    return dtype == FIG_BF16 ? 1e-2 : 1e-3;
}

/* In f32, sums lose far more than a unit in the last place, so 2e-5 of the magnitude counts as a
 * unit. */
static double tolerance_of(const grid_output *o, double want, double magnitude) {
    double peer = o->peer + o->peer * fabs(want);
    double own = o->dtype == FIG_F32 ? 2e-5 * magnitude : truth_ulp(o->dtype, magnitude);
    return fmin(peer, o->units * own);
}

/* Works in stretches, so that many elements are converted and compared together. */
void grid_compare(grid_report *report, const grid_output *o) {
    double worst = 0, got[STRETCH], share[STRETCH];
    for (int32_t first = 0, count; first < o->count; first += count) {
        count = o->count - first < STRETCH ? o->count - first : STRETCH;
        truth_load_row(o->base, o->dtype, o->first + first, count, got);
        for (int32_t i = 0; i < count; i++) {
            const double want = o->want[first + i];
            const double tolerance = tolerance_of(o, want, fabs(o->magnitude[first + i]));
            /* Equal infinities have error 0 too. */
            const double error = got[i] == want ? 0 : fabs(got[i] - want);
            if (!(error <= tolerance)) {
                grid_fail(report, "%s: element %lld: %.9g, want %.9g within %.3g", o->name,
                          (long long)(o->first + first + i), got[i], want, tolerance);
                return;
            }
            share[i] = error > 0 ? error / tolerance : 0;
        }
        for (int32_t i = 0; i < count; i++)
            worst = share[i] > worst ? share[i] : worst;
    }
    grid_measured(report, o->name, worst);
}

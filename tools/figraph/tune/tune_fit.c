/* tune_fit.c: fits the figures of a variant's cost model to measured times.
 *
 * Least squares of relative errors give the start, rate, piece and segment. Probes are steps whose
 * time the memory does not limit; they take no part in this, because their many short segments
 * would bend these figures. No figure may be negative, so the fit solves for every subset of the
 * figures that contains the rate, and takes the best solution without a negative figure. Then
 * `once` and tile_ns are fitted to the probes. Invariant: the same points give the same figures. */
#include "tools/figraph/tune/tune_fit.h"

#include <math.h>

enum { START, BYTES, PIECES, SEGMENTS, TERMS };
/* UNITS_OF_TILE is as in planner/split/units.h. With fewer than PROBES_LEAST probes, nothing is
 * fitted to them. */
enum { UNITS_OF_TILE = 16, PROBES_LEAST = 4, ROUNDS = 16 };

static void terms_of(const fig_tune_point *point, double terms[TERMS]) {
    terms[START] = 1;
    terms[BYTES] = point->bytes;
    terms[PIECES] = point->pieces;
    terms[SEGMENTS] = point->segments;
}

/* The normal equations of relative errors: sums[i][j] x[j] = sums[i][TERMS]. */
static void add_up(const fig_tune_point *points, int count, double sums[TERMS][TERMS + 1]) {
    for (int i = 0; i < TERMS; i++)
        for (int j = 0; j <= TERMS; j++)
            sums[i][j] = 0;
    for (int p = 0; p < count; p++) {
        double terms[TERMS];
        if (points[p].is_probe) continue;
        terms_of(&points[p], terms);
        for (int i = 0; i < TERMS; i++) {
            const double relative = terms[i] / points[p].ns;
            for (int j = 0; j < TERMS; j++)
                sums[i][j] += relative * terms[j] / points[p].ns;
            sums[i][TERMS] += relative;
        }
    }
}

/* Solves for the terms in `set`; all others are 0. Returns 0 if the points cannot tell the terms
 * apart. */
static int solve(double sums[TERMS][TERMS + 1], int set, double x[TERMS]) {
    double rows[TERMS][TERMS + 1];
    for (int i = 0; i < TERMS; i++)
        for (int j = 0; j <= TERMS; j++) {
            const int is_in = (set >> i & 1) && (j == TERMS || (set >> j & 1));
            rows[i][j] = is_in ? sums[i][j] : i == j;
        }
    for (int pivot = 0; pivot < TERMS; pivot++) {
        /* The pivot is the part of the term that no other term explains. */
        if (!(rows[pivot][pivot] > sums[pivot][pivot] * 1e-9) && (set >> pivot & 1)) return 0;
        for (int i = pivot + 1; i < TERMS; i++) {
            const double factor = rows[i][pivot] / rows[pivot][pivot];
            for (int j = pivot; j <= TERMS; j++)
                rows[i][j] -= factor * rows[pivot][j];
        }
    }
    for (int i = TERMS - 1; i >= 0; i--) {
        x[i] = rows[i][TERMS];
        for (int j = i + 1; j < TERMS; j++)
            x[i] -= rows[i][j] * x[j];
        x[i] /= rows[i][i];
    }
    return 1;
}

static double squares(const fig_tune_point *points, int count, const double x[TERMS]) {
    double sum = 0;
    for (int p = 0; p < count; p++) {
        double terms[TERMS], ns = 0;
        if (points[p].is_probe) continue;
        terms_of(&points[p], terms);
        for (int i = 0; i < TERMS; i++)
            ns += terms[i] * x[i];
        sum += (ns / points[p].ns - 1) * (ns / points[p].ns - 1);
    }
    return sum;
}

static int32_t whole(double x, double least) {
    return (int32_t)lround(x < least ? least : x > FIG_TUNE_FIT_MOST ? FIG_TUNE_FIT_MOST : x);
}

/* Predicts a time by the model of units (fig_bucket_cost): the time of the fullest worker's units
 * or the time of its bytes at the fitted rate, whichever is longer. The last tile of a segment is
 * half full on average. */
static double predict_units(const fig_tune_costs *costs, const fig_tune_point *point) {
    const double read = point->bytes - point->segments * point->tile_bytes / 2;
    const double units = UNITS_OF_TILE * point->tiles + costs->once * point->begins;
    const double by_bytes = read * 1000 / costs->bytes_per_us;
    const double by_units = units * costs->tile_ns / UNITS_OF_TILE;
    return costs->start_ns + point->pieces * costs->piece_ns +
           (by_bytes > by_units ? by_bytes : by_units);
}

double fig_tune_fit_predict(const fig_tune_costs *costs, const fig_tune_point *point) {
    if (point->is_by_units && costs->once > 0 && costs->tile_ns > 0)
        return predict_units(costs, point);
    return costs->start_ns + point->bytes * 1000 / costs->bytes_per_us +
           point->pieces * costs->piece_ns + point->segments * costs->segment_ns;
}

double fig_tune_fit_off(const fig_tune_costs *costs, const fig_tune_point *points, int count) {
    double off = 0;
    for (int p = 0; p < count; p++)
        off += fabs(fig_tune_fit_predict(costs, &points[p]) / points[p].ns - 1);
    return off / count;
}

double fig_tune_fit(const fig_tune_point *points, int count, fig_tune_costs *costs) {
    double sums[TERMS][TERMS + 1], best[TERMS] = {0}, least = INFINITY;
    add_up(points, count, sums);
    for (int set = 0; set < 1 << TERMS && count > 0; set++) {
        double x[TERMS];
        if (!(set >> BYTES & 1) || !solve(sums, set, x)) continue;
        const double sum = squares(points, count, x);
        if (x[START] < 0 || x[BYTES] <= 0 || x[PIECES] < 0 || x[SEGMENTS] < 0 || sum >= least)
            continue;
        least = sum;
        for (int i = 0; i < TERMS; i++)
            best[i] = x[i];
    }
    if (!(least < INFINITY)) return -1;
    costs->start_ns = whole(best[START], 0);
    costs->bytes_per_us = whole(1000 / best[BYTES], 1);
    costs->piece_ns = whole(best[PIECES], 0);
    costs->segment_ns = whole(best[SEGMENTS], 0);
    return fig_tune_fit_off(costs, points, count);
}

/* ---- Units */

static double squares_of_probes(const fig_tune_point *points, int count,
                                const fig_tune_costs *costs) {
    double sum = 0;
    for (int p = 0; p < count; p++) {
        if (!points[p].is_probe) continue;
        const double off = predict_units(costs, &points[p]) / points[p].ns - 1;
        sum += off * off;
    }
    return sum;
}

/* Fits x[0] * tiles + x[1] * begins by least squares to the probes whose time the memory does not
 * limit, according to the model with *costs. Returns 0 if these probes cannot tell tiles and begins
 * apart. */
static int solve_units(const fig_tune_point *points, int count, const fig_tune_costs *costs,
                       double x[2]) {
    double tt = 0, tb = 0, bb = 0, tn = 0, bn = 0;
    fig_tune_costs by_bytes = *costs;
    int used = 0;
    by_bytes.once = by_bytes.tile_ns = 0;
    for (int p = 0; p < count; p++) {
        const fig_tune_point *point = &points[p];
        if (!point->is_probe || predict_units(costs, point) <= predict_units(&by_bytes, point))
            continue;
        const double tiles = point->tiles / point->ns, begins = point->begins / point->ns;
        const double due = 1 - (costs->start_ns + point->pieces * costs->piece_ns) / point->ns;
        tt += tiles * tiles;
        tb += tiles * begins;
        bb += begins * begins;
        tn += tiles * due;
        bn += begins * due;
        used++;
    }
    const double apart = tt * bb - tb * tb;
    if (used < PROBES_LEAST || !(apart > 1e-6 * tt * bb)) return 0;
    x[0] = (tn * bb - bn * tb) / apart;
    x[1] = (bn * tt - tn * tb) / apart;
    return x[0] > 0 && x[1] > 0;
}

/* Tries values near costs->once and costs->tile_ns, and keeps the pair that predicts the probes
 * best. */
static void polish(const fig_tune_point *points, int count, fig_tune_costs *costs) {
    fig_tune_costs best = *costs;
    double least = squares_of_probes(points, count, &best);
    for (int32_t once = costs->once - 3; once <= costs->once + 3; once++)
        for (int32_t part = -8; part <= 8; part++) {
            fig_tune_costs tried = *costs;
            tried.once = once;
            tried.tile_ns += costs->tile_ns / 100 * part;
            if (once < 1 || once > FIG_TUNE_FIT_ONCE_MOST || tried.tile_ns < 1 ||
                tried.tile_ns > FIG_TUNE_FIT_MOST)
                continue;
            const double sum = squares_of_probes(points, count, &tried);
            if (sum >= least) continue;
            least = sum;
            best = tried;
        }
    *costs = best;
}

static int32_t count_probes(const fig_tune_point *points, int count, int32_t *by_units) {
    int32_t probes = 0;
    *by_units = 0;
    for (int p = 0; p < count; p++) {
        probes += points[p].is_probe;
        *by_units += points[p].is_probe && points[p].is_by_units;
    }
    return probes;
}

int fig_tune_fit_units(const fig_tune_point *points, int count, const fig_tune_costs *standing,
                       fig_tune_costs *costs) {
    int32_t by_units;
    const int32_t probes = count_probes(points, count, &by_units);
    fig_tune_costs kept = *costs, fitted = *costs;
    costs->once = costs->tile_ns = 0;
    if (probes < PROBES_LEAST || by_units == 0 || standing->once < 1 || standing->tile_ns < 1)
        return 0;
    kept.once = fitted.once = standing->once;
    kept.tile_ns = fitted.tile_ns = standing->tile_ns;
    double least = squares_of_probes(points, count, &kept);
    /* The figures decide which probes the memory limits, and the other probes decide the figures.
     * So the fit is repeated. */
    for (int round = 0; round < ROUNDS; round++) {
        double x[2];
        if (!solve_units(points, count, &fitted, x)) break;
        const int32_t once = whole(UNITS_OF_TILE * x[1] / x[0], 1), tile_ns = whole(x[0], 1);
        fitted.once = once < FIG_TUNE_FIT_ONCE_MOST ? once : FIG_TUNE_FIT_ONCE_MOST;
        fitted.tile_ns = tile_ns;
        fig_tune_costs polished = fitted;
        polish(points, count, &polished);
        const double sum = squares_of_probes(points, count, &polished);
        if (sum >= least) continue;
        least = sum;
        kept = polished;
    }
    costs->once = kept.once;
    costs->tile_ns = kept.tile_ns;
    return 1;
}

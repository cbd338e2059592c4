/* tune_fit.c: the four figures of a variant's model that come nearest to what was measured.
 *
 * Least squares of relative errors, and no figure below 0: of every set of figures that may differ
 * from 0 the best are found, and of those that are none below it the nearest. The rate is in every
 * set. Invariant: the same points give the same figures. */
#include "tools/figraph/tune/tune_fit.h"

#include <math.h>

enum { START, BYTES, PIECES, SEGMENTS, TERMS };

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
        terms_of(&points[p], terms);
        for (int i = 0; i < TERMS; i++) {
            const double relative = terms[i] / points[p].ns;
            for (int j = 0; j < TERMS; j++)
                sums[i][j] += relative * terms[j] / points[p].ns;
            sums[i][TERMS] += relative;
        }
    }
}

/* Of the terms of a set alone; 0: they do not tell each other apart. */
static int solve(double sums[TERMS][TERMS + 1], int set, double x[TERMS]) {
    double rows[TERMS][TERMS + 1];
    for (int i = 0; i < TERMS; i++)
        for (int j = 0; j <= TERMS; j++) {
            const int is_in = (set >> i & 1) && (j == TERMS || (set >> j & 1));
            rows[i][j] = is_in ? sums[i][j] : i == j;
        }
    for (int pivot = 0; pivot < TERMS; pivot++) {
        /* Of a sum of squares nothing is left but what no other term explains. */
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

double fig_tune_fit_predict(const fig_tune_costs *costs, const fig_tune_point *point) {
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

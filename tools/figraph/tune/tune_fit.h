/* tune_fit.h: fits the figures of a variant's cost model to measured times. */
#ifndef FIG_TOOLS_TUNE_FIT_H
#define FIG_TOOLS_TUNE_FIT_H

#include <figraph_tune.h>

enum {
    FIG_TUNE_FIT_MOST = 100000000, /* the library's limit of every figure except `once` */
    FIG_TUNE_FIT_ONCE_MOST = 1 << 14
};

/* One measured step in one variant. */
typedef struct fig_tune_point {
    double bytes, pieces, segments, ns; /* the first three as in fig_tune_work; ns is the time */
    /* Work of the fullest worker: it reads `tiles` tiles of `begins` segments. */
    double tiles, begins, tile_bytes;
    int32_t is_by_units; /* 1: the library predicts this step by units */
    int32_t is_probe;    /* 1: the memory does not limit the time; for fitting once and tile_ns */
} fig_tune_point;

/* Returns the predicted time in ns. A step is predicted by units only if once and tile_ns are not
 * 0. */
double fig_tune_fit_predict(const fig_tune_costs *costs, const fig_tune_point *point);
/* Returns the mean relative error of the predictions, 0.1 for 10 %. */
double fig_tune_fit_off(const fig_tune_costs *costs, const fig_tune_point *points, int count);
/* Fits start_ns, bytes_per_us, piece_ns and segment_ns to all points except the probes that are
 * predicted by units. Returns the mean relative error over all points, or -1 if there is no point
 * to fit. */
double fig_tune_fit(const fig_tune_point *points, int count, fig_tune_costs *costs);
/* Fits once and tile_ns to the probes and leaves the other figures of *costs as they are. If the
 * once and tile_ns of `standing` predict the probes at least as well, *costs gets those. If there
 * are too few probes, both become 0, so that the table's values are used. Returns 1 if there were
 * enough probes. */
int fig_tune_fit_units(const fig_tune_point *points, int count, const fig_tune_costs *standing,
                       fig_tune_costs *costs);

#endif

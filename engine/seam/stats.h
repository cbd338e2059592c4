/* stats.h: counters that one thread writes and any thread may read.
 *
 * This file owns the functions that write and read counters. Readers need whole values but no
 * ordering with other memory, so relaxed atomics suffice; they cost the same as plain loads and
 * stores. Invariant: only the engine's thread writes, except that any thread may call
 * fig_stats_count(). */
#ifndef FIG_ENGINE_STATS_H
#define FIG_ENGINE_STATS_H

#include "planner/histogram.h"

static inline int64_t fig_stats_get(const int64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void fig_stats_set(int64_t *counter, int64_t value) {
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline void fig_stats_add(int64_t *counter, int64_t more) {
    fig_stats_set(counter, *counter + more);
}

/* Adds one to the counter and returns its new value. Any thread may call this. */
static inline int64_t fig_stats_count(int64_t *counter) {
    return __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static inline void fig_stats_record(fig_histogram *histogram, int64_t ns) {
    if (histogram->count == 0 || ns < histogram->least) fig_stats_set(&histogram->least, ns);
    if (ns > histogram->most) fig_stats_set(&histogram->most, ns);
    fig_stats_add(&histogram->sum, ns);
    fig_stats_add(&histogram->bins[fig_histogram_bin(ns)], 1);
    fig_stats_add(&histogram->count, 1);
}

static inline void fig_stats_read(const fig_histogram *from, fig_histogram *to) {
    to->count = fig_stats_get(&from->count);
    to->sum = fig_stats_get(&from->sum);
    to->least = fig_stats_get(&from->least);
    to->most = fig_stats_get(&from->most);
    for (int32_t bin = 0; bin < FIG_HISTOGRAM_BINS; bin++)
        to->bins[bin] = fig_stats_get(&from->bins[bin]);
}

#endif

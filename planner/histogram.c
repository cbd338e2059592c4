/* histogram.c: counts times in bins that are an eighth of their octave wide.
 *
 *     bin    0 .. 15       16 .. 23         24 .. 31
 *     ns     0 .. 15       16, 18 .. 30     32, 36 .. 60     and so on; the last: all above 14 s
 *
 * Invariant: bins are in ascending order of time, and each time belongs to exactly one bin. */
#include "planner/histogram.h"

#include <assert.h>

enum { LINEAR = 16, PARTS = 8, PART_BITS = 3, LINEAR_BITS = 4, LAST = FIG_HISTOGRAM_BINS - 1 };

int32_t fig_histogram_bin(int64_t ns) {
    if (ns < LINEAR) return ns < 0 ? 0 : (int32_t)ns;
    const int32_t octave = 63 - __builtin_clzll((unsigned long long)ns);
    const int32_t part = (int32_t)(ns >> (octave - PART_BITS)) - PARTS;
    const int32_t bin = LINEAR + (octave - LINEAR_BITS) * PARTS + part;
    return bin < LAST ? bin : LAST;
}

/* Returns the longest time that belongs to a bin. */
static int64_t end_of(int32_t bin) {
    if (bin < LINEAR) return bin;
    const int32_t octave = LINEAR_BITS + (bin - LINEAR) / PARTS, part = (bin - LINEAR) % PARTS;
    return ((int64_t)(PARTS + part + 1) << (octave - PART_BITS)) - 1;
}

void fig_histogram_add(fig_histogram *histogram, int64_t ns) {
    if (ns < 0) ns = 0;
    if (histogram->count == 0 || ns < histogram->least) histogram->least = ns;
    if (ns > histogram->most) histogram->most = ns;
    histogram->count++;
    histogram->sum += ns;
    histogram->bins[fig_histogram_bin(ns)]++;
}

int64_t fig_histogram_percentile(const fig_histogram *histogram, double percent) {
    int64_t count = 0, below = 0;
    for (int32_t bin = 0; bin < FIG_HISTOGRAM_BINS; bin++)
        count += histogram->bins[bin];
    for (int32_t bin = 0; bin < FIG_HISTOGRAM_BINS; bin++) {
        below += histogram->bins[bin];
        if (below == 0 || (double)below < (double)count * percent / 100) continue;
        const int64_t end = end_of(bin);
        return end < histogram->most && bin < LAST ? end : histogram->most;
    }
    return 0;
}

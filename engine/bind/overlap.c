/* overlap.c: decides whether two strided arrays share a byte.
 *
 * An array is a contiguous run of bytes, repeated at up to four levels of strides. Invariant:
 * levels are sorted by stride, largest first, and each stride is at least as large as the reach of
 * the levels below it. */
#include "engine/bind/overlap.h"

#include <assert.h>

typedef struct level {
    int64_t count, stride; /* count: more than 1; stride: in bytes */
} level;

typedef struct runs {
    int64_t begin, bytes; /* begin: address of the first run; bytes: length of each run */
    level levels[4];
    int32_t level_count;
} runs;

/* Sorts the dimensions into levels. Merges levels that continue each other, and merges innermost
 * levels without gaps into the run. */
static runs runs_of(const fig_overlap_array *array) {
    runs r = {.begin = (int64_t)array->address, .bytes = (int64_t)array->item_bytes};
    level sorted[4];
    int32_t count = 0;
    for (int32_t i = 0; i < array->rank; i++) {
        if (array->dims[i] == 1) continue;
        const level one = {array->dims[i], array->strides[i] * (int64_t)array->item_bytes};
        int32_t place = count;
        for (; place > 0 && sorted[place - 1].stride > one.stride; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = one;
        count++;
    }
    int32_t first = 0; /* `sorted` has the smallest stride first */
    for (; first < count && sorted[first].stride == r.bytes; first++)
        r.bytes *= sorted[first].count;
    for (int32_t i = count - 1; i >= first; i--) {
        level *last = r.level_count > 0 ? &r.levels[r.level_count - 1] : NULL;
        if (last != NULL && last->stride == sorted[i].stride * sorted[i].count) {
            *last = (level){last->count * sorted[i].count, sorted[i].stride};
        } else {
            r.levels[r.level_count++] = sorted[i];
        }
    }
    return r;
}

static int64_t run_count(const runs *r) {
    int64_t count = 1;
    for (int32_t i = 0; i < r->level_count; i++)
        count *= r->levels[i].count;
    return count;
}

/* Returns the distance from the first byte to the end of the last byte. */
static int64_t reach_of(const runs *r) {
    int64_t reach = r->bytes;
    for (int32_t i = 0; i < r->level_count; i++)
        reach += (r->levels[i].count - 1) * r->levels[i].stride;
    return reach;
}

/* Returns 1 if a byte of r lies in [begin, end). At each level it is enough to look at the last
 * repetition that begins before `end`, because all earlier repetitions end before that one
 * begins. */
static int has_byte_in(const runs *r, int64_t begin, int64_t end) {
    int64_t left = end - 1 - r->begin, at = r->begin;
    if (left < 0) return 0;
    for (int32_t i = 0; i < r->level_count; i++) {
        const level *l = &r->levels[i];
        int64_t index = left / l->stride;
        if (index > l->count - 1) index = l->count - 1;
        at += index * l->stride;
        left -= index * l->stride;
    }
    return at + r->bytes > begin;
}

/* Returns 1 if any run of `few` shares a byte with any run of `many`. */
static int any_run_meets(const runs *few, const runs *many) {
    int64_t index[4] = {0}, begin = few->begin;
    for (;;) {
        int32_t i = few->level_count - 1;
        if (has_byte_in(many, begin, begin + few->bytes)) return 1;
        for (; i >= 0; i--) { /* advance to the next run of `few` */
            begin += few->levels[i].stride;
            if (++index[i] < few->levels[i].count) break;
            begin -= few->levels[i].count * few->levels[i].stride;
            index[i] = 0;
        }
        if (i < 0) return 0;
    }
}

static int runs_meet(const runs *a, const runs *b) {
    if (a->begin + reach_of(a) <= b->begin || b->begin + reach_of(b) <= a->begin) return 0;
    return run_count(a) <= run_count(b) ? any_run_meets(a, b) : any_run_meets(b, a);
}

static runs without_outermost(const runs *r) {
    runs inner = {.begin = r->begin, .bytes = r->bytes, .level_count = r->level_count - 1};
    for (int32_t i = 0; i < inner.level_count; i++)
        inner.levels[i] = r->levels[i + 1];
    return inner;
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

/* Compares two arrays that repeat at the same stride, so only the difference of their repetition
 * indices matters. Two repetitions can share a byte only if they begin close together, so it is
 * enough to try a few values of that difference. */
static int repetitions_meet(const runs *a, const runs *b) {
    const int64_t stride = a->levels[0].stride;
    const runs one_a = without_outermost(a), one_b = without_outermost(b);
    int64_t between = floor_div(a->begin - b->begin, stride);
    for (int64_t apart = between - 1; apart <= between + 2; apart++) {
        runs moved = one_b;
        if (apart <= -a->levels[0].count || apart >= b->levels[0].count) continue;
        moved.begin += apart * stride;
        if (runs_meet(&one_a, &moved)) return 1;
    }
    return 0;
}

int fig_overlap_meets(const fig_overlap_array *a, const fig_overlap_array *b) {
    assert(a->rank >= 1 && a->rank <= 4 && b->rank >= 1 && b->rank <= 4);
    const runs runs_a = runs_of(a), runs_b = runs_of(b);
    if (runs_a.level_count > 0 && runs_b.level_count > 0 &&
        runs_a.levels[0].stride == runs_b.levels[0].stride)
        return repetitions_meet(&runs_a, &runs_b);
    return runs_meet(&runs_a, &runs_b);
}

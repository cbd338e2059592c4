/* overlap.c: see overlap.h for what it answers.
 *
 * An array is runs of neighbouring bytes, repeated at up to four distances. Invariant: levels are
 * sorted by stride, largest first, and each stride is at least what the levels below it reach. */
#include "engine/overlap.h"

#include <assert.h>

typedef struct level {
    int64_t count, stride; /* > 1; in bytes */
} level;

typedef struct runs {
    int64_t begin, bytes; /* of the first run; a run */
    level levels[4];
    int32_t level_count;
} runs;

/* Levels that continue each other become one, and the innermost become the run. */
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
    int32_t first = 0; /* smallest first */
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

/* From the first byte to behind the last. */
static int64_t reach_of(const runs *r) {
    int64_t reach = r->bytes;
    for (int32_t i = 0; i < r->level_count; i++)
        reach += (r->levels[i].count - 1) * r->levels[i].stride;
    return reach;
}

/* 1: a byte of r lies in [begin, end). Going down the levels, the furthest repetition that begins
 * before `end` is the only one worth a look: all others end before it begins. */
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

/* Each run of `few` against all of `many`. */
static int any_run_meets(const runs *few, const runs *many) {
    int64_t index[4] = {0}, begin = few->begin;
    for (;;) {
        int32_t i = few->level_count - 1;
        if (has_byte_in(many, begin, begin + few->bytes)) return 1;
        for (; i >= 0; i--) { /* counts on */
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

/* Both repeat at one distance, so only how many repetitions lie between them matters, and one of
 * each meets only where they are less than a distance apart. */
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

/* offer.c: chooses the fewest variants that serve each step of a bucket well.
 *
 * Owns the list of steps to try. Invariant: among sets of equal size, the set with the lowest mean
 * cost wins; if costs are equal too, the first such set wins. */
#include "planner/plans/offer.h"

#include <stdlib.h>

#include "planner/spec/spec.h"

enum { STEP_LIMIT = 1024, WHOLE = 1000, SLACK = WHOLE / 80 };

fig_offer_range fig_offer_range_of(const fig_bucket *buckets, int32_t index, int32_t kv_limit) {
    const fig_bucket *own = &buckets[index];
    fig_offer_range range = {.kv_limit = kv_limit};
    for (int32_t i = 0; i < index; i++) {
        const fig_bucket *before = &buckets[i];
        const int64_t capacity = (int64_t)before->batch * before->kv;
        if (before->batch == own->batch) range.tokens_before = capacity;
        /* Steps with fewer rows reach this bucket only if the earlier bucket cannot hold them. */
        if (before->batch < own->batch && (capacity >= (int64_t)own->batch * own->kv ||
                                           capacity >= (int64_t)before->batch * kv_limit))
            range.rows_before = before->batch;
    }
    return range;
}

/* The cost of each candidate at each step tried, in thousandths of the cost of the cheapest
 * candidate. */
typedef struct trial {
    const fig_bucket_shape *candidates;
    int32_t count, step_count;
    int64_t costs[STEP_LIMIT][FIG_VARIANT_LIMIT];
} trial;

static void try_step(trial *of, const fig_plan_step *step) {
    int64_t *costs = of->costs[of->step_count], least = INT64_MAX;
    if (of->step_count == STEP_LIMIT) return;
    for (int32_t i = 0; i < of->count; i++) {
        costs[i] = fig_bucket_cost(&of->candidates[i], step);
        if (costs[i] < least) least = costs[i];
    }
    for (int32_t i = 0; i < of->count; i++)
        costs[i] = least > 0 ? costs[i] * WHOLE / least : WHOLE;
    of->step_count++;
}

/* Tries a step whose first row has `longest` tokens; the other rows share the rest evenly. */
static void try_rows(trial *of, int32_t rows, int64_t tokens, int64_t longest) {
    int32_t lengths[FIG_BATCH_LIMIT];
    const int64_t others = rows > 1 ? (tokens - longest) / (rows - 1) : 0;
    const fig_plan_step step = {.rows = rows, .lengths = lengths, .horizon = 1};
    const fig_plan_shape *plan = &of->candidates[0].plan;
    const int has_chunks = fig_plan_strips_room(plan) > 0;
    const int is_any = of->candidates[0].form == FIG_FORM_ANY;
    const int32_t narrow = is_any ? FIG_NARROW_TOKENS_LIMIT : 1;
    const int32_t least = has_chunks ? narrow : plan->row_tokens;
    if (longest < least || (rows > 1 && others < least)) return;
    lengths[0] = (int32_t)longest;
    for (int32_t row = 1; row < rows; row++)
        lengths[row] = (int32_t)others;
    try_step(of, &step);
}

/* Returns 1 if each row may have its own workers; the longest row then decides the time. */
static int may_be_short(const trial *of) {
    int is_short = 0;
    for (int32_t i = 0; i < of->count; i++)
        for (int32_t c = 0; c < of->candidates[i].plan.class_count; c++)
            is_short |= of->candidates[i].is_short[c];
    return is_short;
}

static void try_tokens(trial *of, int32_t rows, int64_t tokens, const fig_offer_range *range) {
    const int64_t even = (tokens + rows - 1) / rows, half = (tokens + 1) / 2;
    if (even > range->kv_limit) return;
    try_rows(of, rows, tokens, even);
    if (rows > 2) try_rows(of, rows, tokens, half < range->kv_limit ? half : range->kv_limit);
    if (rows > 2 && may_be_short(of)) try_rows(of, rows, tokens, tokens - tokens / 8);
}

static void try_all_tokens(trial *of, int32_t rows, const fig_offer_range *range) {
    const fig_bucket *caps = &of->candidates[0].caps;
    int64_t tokens = (int64_t)caps->batch * caps->kv;
    for (; tokens > range->tokens_before && tokens >= rows; tokens /= 2)
        try_tokens(of, rows, tokens, range);
    try_tokens(of, rows, range->tokens_before + 1, range);
}

static int32_t members_of(uint32_t set) {
    int32_t count = 0;
    for (; set != 0; set &= set - 1)
        count++;
    return count;
}

/* Returns the total cost of all steps if each step takes the cheapest variant of the set. Returns
 * -1 if the cost of some step exceeds the best candidate's by more than SLACK. */
static int64_t cost_of(const trial *of, uint32_t set) {
    int64_t sum = 0;
    const int32_t slack = members_of(set) == of->count ? INT32_MAX - WHOLE : SLACK;
    for (int32_t step = 0; step < of->step_count; step++) {
        int64_t least = INT64_MAX;
        for (int32_t i = 0; i < of->count; i++)
            if (set >> i & 1 && of->costs[step][i] < least) least = of->costs[step][i];
        if (least > WHOLE + slack) return -1;
        sum += least;
    }
    return sum;
}

static uint32_t choose(const trial *of) {
    for (int32_t members = 1; members <= of->count; members++) {
        uint32_t best = 0;
        int64_t least = INT64_MAX;
        for (uint32_t set = 1; set < UINT32_C(1) << of->count; set++) {
            const int64_t cost = members_of(set) == members ? cost_of(of, set) : -1;
            if (cost < 0 || cost >= least) continue;
            best = set;
            least = cost;
        }
        if (best != 0) return best;
    }
    return 1;
}

uint32_t fig_offer_choose(const fig_bucket_shape *candidates, int32_t count,
                          const fig_offer_range *range) {
    trial *of = malloc(sizeof *of);
    assert(count >= 1 && count <= FIG_VARIANT_LIMIT);
    if (of == NULL) return 0;
    of->candidates = candidates;
    of->count = count;
    of->step_count = 0;
    for (int32_t rows = candidates[0].caps.batch; rows > range->rows_before; rows /= 2)
        try_all_tokens(of, rows, range);
    try_all_tokens(of, range->rows_before + 1, range);
    const uint32_t chosen = choose(of);
    free(of);
    return chosen;
}

/* bucket.c: makes the ladder of buckets and chooses the bucket of a step.
 *
 * Owns the cost model; costs.c has its measured figures. Invariant: the choice depends only on the
 * step's numbers of rows, busy rows and tokens, on its longest row, and on the query tokens and
 * groups of its rows, so equal steps get the same bucket on every machine. */
#include "planner/plans/bucket.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/spec/spec.h"
#include "planner/status.h"

int32_t fig_bucket_ladder(int32_t batch_limit, int32_t kv_limit, fig_bucket *buckets,
                          int32_t capacity) {
    assert(batch_limit >= 1 && kv_limit >= 1 && capacity >= 0);
    int32_t count = 0;
    for (int64_t batch = 1;; batch *= 2) {
        if (batch > batch_limit) batch = batch_limit;
        for (int64_t kv = FIG_BUCKET_KV_LEAST;; kv *= 2) {
            if (kv > kv_limit) kv = kv_limit;
            if (count < capacity) buckets[count] = (fig_bucket){(int32_t)batch, (int32_t)kv};
            count++;
            if (kv == kv_limit) break;
        }
        if (batch == batch_limit) return count;
    }
}

static int compare(const void *left, const void *right) {
    const fig_bucket *a = left, *b = right;
    if (a->batch != b->batch) return a->batch < b->batch ? -1 : 1;
    return (a->kv > b->kv) - (a->kv < b->kv);
}

int32_t fig_bucket_query_limit(const fig_bucket_shape *bucket) {
    return bucket->form == FIG_FORM_ONES ? bucket->caps.batch : bucket->plan.query_limit;
}

int fig_bucket_compare(const fig_bucket_shape *a, const fig_bucket_shape *b) {
    const int by_caps = compare(&a->caps, &b->caps);
    /* 0 means "as many query tokens as the rows may have", so it comes last. */
    const uint32_t x = (uint32_t)a->queries - 1, y = (uint32_t)b->queries - 1;
    return by_caps != 0 ? by_caps : (x > y) - (x < y);
}

fig_status fig_bucket_normalise(fig_bucket *buckets, int32_t *count, int32_t batch_limit,
                                int32_t kv_limit) {
    if (*count < 1 || *count > FIG_BUCKET_LIMIT)
        return fig_fail(FIG_INVALID, "bucket_count is %" PRId32 ", limits 1 to %d", *count,
                        FIG_BUCKET_LIMIT);
    for (int32_t i = 0; i < *count; i++) {
        if (buckets[i].batch < 1 || buckets[i].batch > batch_limit)
            return fig_fail(FIG_INVALID,
                            "bucket %" PRId32 ": batch is %" PRId32 ", limits 1 to %" PRId32, i,
                            buckets[i].batch, batch_limit);
        if (buckets[i].kv < 1 || buckets[i].kv > kv_limit)
            return fig_fail(FIG_INVALID,
                            "bucket %" PRId32 ": kv is %" PRId32 ", limits 1 to %" PRId32, i,
                            buckets[i].kv, kv_limit);
    }
    qsort(buckets, (size_t)*count, sizeof *buckets, compare);
    int32_t kept = 1;
    for (int32_t i = 1; i < *count; i++) {
        if (compare(&buckets[kept - 1], &buckets[i]) != 0) buckets[kept++] = buckets[i];
    }
    *count = kept;
    return FIG_OK;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Estimates the totals of a step whose lengths only the device knows: its rows share token_limit
 * evenly. */
static fig_split_totals count_of_limit(const fig_split_shape *split, const fig_plan_step *step) {
    if (step->rows == 0 || step->token_limit == 0) return (fig_split_totals){0, 0, 0};
    int64_t length = ceil_div(step->token_limit, step->rows);
    int32_t tiles = fig_split_tiles(split, length < INT32_MAX ? (int32_t)length : INT32_MAX);
    return (fig_split_totals){(int64_t)tiles * step->rows, tiles, step->rows};
}

static fig_split_totals count_of(const fig_split_shape *split, const fig_plan_step *step) {
    const fig_split_rows rows = {step->lengths, step->rows, fig_plan_ahead(step), step->queries,
                                 NULL};
    return step->lengths != NULL ? fig_split_count(split, &rows) : count_of_limit(split, step);
}

/* Returns the bytes to count for rows that are not cut, and for short rows. If some places are
 * idle, each busy place gets up to twice its share of the memory bandwidth; the model counts this
 * as fewer bytes. */
static int64_t bytes_of_whole(const fig_bucket_shape *bucket, int32_t split_class, int64_t bytes) {
    const int64_t places = bucket->places[split_class];
    const int64_t workers = bucket->plan.splits[split_class].workers, half = ceil_div(places, 2);
    if (workers >= places) return bytes;
    return bytes * (workers > half ? workers : half) / places;
}

/* Returns the tiles of the fullest worker. Each short row has its own workers, and those of the
 * longest short row are the fullest. Other rows form one line, which workers share evenly. */
static int64_t fullest_of(const fig_bucket_shape *bucket, int32_t split_class,
                          const fig_split_totals *of) {
    const fig_split_shape *split = &bucket->plan.splits[split_class];
    const int64_t segments = (int64_t)split->row_limit * split->groups;
    if (bucket->is_short[split_class]) return ceil_div(of->longest, split->workers / segments);
    return ceil_div(of->tiles * split->groups, split->workers);
}

/* Estimates the units of the fullest worker, as if all workers had equal units and each began
 * inside a segment. Returns 0 if the line is cut by tiles. */
static int64_t units_of(const fig_bucket_shape *bucket, int32_t split_class,
                        const fig_split_totals *of) {
    const fig_split_shape *split = &bucket->plan.splits[split_class];
    const int64_t once = bucket->plan.once[split_class], tiles = of->tiles * split->groups;
    if (of->tiles > INT32_MAX ||
        !fig_units_may_cut(split, (int32_t)once, (int32_t)of->tiles, of->longest, of->busy))
        return 0;
    const int64_t all = FIG_UNITS_OF_TILE * tiles + once * of->busy * split->groups;
    return ceil_div(all - once, split->workers) + once;
}

fig_bucket_work fig_bucket_work_of(const fig_bucket_shape *bucket, int32_t split_class,
                                   const fig_plan_step *step) {
    const fig_split_shape *split = &bucket->plan.splits[split_class];
    const fig_split_totals of = count_of(split, step);
    const int64_t line = of.tiles * split->groups;
    if (line == 0) return (fig_bucket_work){0, 0, 0, 0};
    const int64_t even = ceil_div(line, split->workers), active = ceil_div(line, even);
    const int64_t bytes = fullest_of(bucket, split_class, &of) * split->tile_tokens *
                          bucket->token_bytes[split_class];
    const int64_t pieces = ceil_div(of.longest * active, line);
    const int is_merged = pieces > 1 && !bucket->is_short[split_class];
    return (fig_bucket_work){
        .bytes = is_merged ? bytes : bytes_of_whole(bucket, split_class, bytes),
        .pieces = pieces,
        .segments = ceil_div((int64_t)of.busy * split->groups, active),
        .units = units_of(bucket, split_class, &of),
    };
}

/* Returns the time of tiles and segments. If the line is cut by units, this is the longer of two
 * times: the time of the fullest worker's units, and the time to read the bytes from memory. The
 * last tile of a segment is half full on average, so half a tile per segment is subtracted from the
 * bytes. Neither time depends on the order of rows. */
static int64_t line_ns(const fig_bucket_shape *bucket, int32_t split_class,
                       const fig_bucket_work *work) {
    const fig_variant *variant = &bucket->variants[split_class];
    const fig_split_shape *split = &bucket->plan.splits[split_class];
    const int64_t tile_bytes = (int64_t)split->tile_tokens * bucket->token_bytes[split_class];
    const int64_t read = work->bytes - work->segments * tile_bytes / 2;
    if (work->units == 0)
        return work->bytes * 1000 / variant->bytes_per_us + work->segments * variant->segment_ns;
    const int64_t by_bytes = read * 1000 / variant->bytes_per_us;
    const int64_t by_units = work->units * variant->tile_ns / FIG_UNITS_OF_TILE;
    return by_bytes > by_units ? by_bytes : by_units;
}

int64_t fig_bucket_cost(const fig_bucket_shape *bucket, const fig_plan_step *step) {
    int64_t cost = 0;
    for (int32_t i = 0; i < bucket->plan.class_count; i++) {
        const fig_variant *variant = &bucket->variants[i];
        const fig_bucket_work work = fig_bucket_work_of(bucket, i, step);
        cost += variant->start_ns + line_ns(bucket, i, &work) + work.pieces * variant->piece_ns;
    }
    return cost;
}

static int64_t capacity_of(const fig_bucket *caps) {
    return (int64_t)caps->batch * caps->kv;
}

/* Returns all tokens that the step's split may have to cover, including growth within the
 * horizon. */
static int64_t tokens_of(const fig_plan_step *step) {
    int64_t tokens = 0;
    int32_t busy = 0;
    if (step->lengths == NULL) return step->token_limit;
    for (int32_t row = 0; row < step->rows && step->queries == NULL; row++) {
        tokens += step->lengths[row];
        busy += step->lengths[row] > 0;
    }
    for (int32_t row = 0; row < step->rows && step->queries != NULL; row++)
        tokens += step->queries[row] > 0 ? step->lengths[row] : 0;
    return tokens + (int64_t)busy * fig_plan_ahead(step);
}

/* Returns the words that precede the number of tokens in error messages. */
static const char *tokens_phrase(const fig_plan_step *step) {
    if (step->lengths == NULL) return "there may be";
    return fig_plan_ahead(step) > 0 ? "kv_lengths and horizon make" : "kv_lengths sum to";
}

/* Fails with a message that says why no bucket holds the step. */
static fig_status refuse(const fig_bucket_shape *buckets, int32_t count, const fig_plan_step *step,
                         int64_t tokens) {
    const int32_t rows = step->rows;
    int64_t row_limit = 0, token_limit = 0;
    for (int32_t i = 0; i < count; i++) {
        const fig_bucket *caps = &buckets[i].caps;
        if (caps->batch > row_limit) row_limit = caps->batch;
        if (caps->batch >= rows && capacity_of(caps) > token_limit) token_limit = capacity_of(caps);
    }
    if (rows > row_limit)
        return fig_fail(FIG_TOO_LARGE,
                        "step: rows is %" PRId32 ", the largest bucket takes %" PRId64, rows,
                        row_limit);
    return fig_fail(FIG_TOO_LARGE,
                    "step: %s %" PRId64 " tokens, the largest bucket of %" PRId32
                    " row%s takes %" PRId64,
                    tokens_phrase(step), tokens, rows, FIG_PLURAL(rows), token_limit);
}

/* What a bucket must have room for. It is computed once, since a step may look at many buckets. */
typedef struct needs {
    int64_t tokens;  /* see tokens_of() */
    int64_t queries; /* query tokens, if the step tells each row's number */
} needs;

static needs needs_of(const fig_plan_step *step) {
    needs of = {tokens_of(step), 0};
    for (int32_t row = 0; row < step->rows && step->queries != NULL; row++)
        of.queries += step->queries[row];
    return of;
}

/* Returns the number of query tokens to compare with the bucket's limit. The number is 0 if the
 * bucket has no such limit, and above every limit if only the device knows the query tokens. */
static int64_t queries_of(const fig_bucket_shape *bucket, const fig_plan_step *step,
                          const needs *of) {
    if (bucket->queries == 0) return 0;
    if (step->lengths == NULL) return INT64_MAX;
    if (step->queries == NULL) return (int64_t)step->rows * bucket->plan.row_tokens;
    return of->queries;
}

/* Returns the number of a row's query tokens. */
static int32_t own_queries(const fig_plan_step *step, int32_t row) {
    return step->queries != NULL ? step->queries[row] : step->row_tokens;
}

/* Returns the first row that is not a chunk and has more than one query token, or -1 if there is
 * none. Buckets for single query tokens exist only where rows may be chunks and the host knows the
 * lengths. */
static int32_t first_draft(const fig_plan_step *step) {
    for (int32_t row = 0; row < step->rows && step->queries != NULL; row++)
        if (step->queries[row] > 1 && step->queries[row] <= FIG_NARROW_TOKENS_LIMIT) return row;
    return -1;
}

/* Returns the first row that a bucket of ones does not take, or -1 if it takes all rows. The plan
 * of such a bucket tells idle rows by their length alone. So it takes no row that has a length but
 * no query tokens. */
static int32_t first_other(const fig_plan_step *step) {
    int32_t before = 1;
    if (step->queries == NULL) return step->row_tokens == 1 || step->rows == 0 ? -1 : 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t queries = step->queries[row];
        if (queries > before || (queries == 0 && step->lengths[row] > 0)) return row;
        before = queries;
    }
    return -1;
}

/* Returns the number of rows in groups. Groups of the first level hold those of others, and have no
 * row in common. */
static int32_t count_grouped(const fig_plan_groups *groups) {
    int32_t rows = 0;
    for (int32_t g = 0; g < groups->count; g++)
        if (groups->of[g].from == 0) rows += groups->of[g].rows;
    return rows;
}

/* Sets bit r of `bits` if row r is in a group. */
static void mark_groups(const fig_plan_groups *groups, uint64_t *bits) {
    for (int32_t g = 0; g < groups->count; g++) {
        const fig_strip_group *group = &groups->of[g];
        for (int32_t n = 0; n < group->rows && group->from == 0; n++) {
            const int32_t row = groups->order[group->first + n];
            bits[row / 64] |= UINT64_C(1) << row % 64;
        }
    }
}

/* Returns the first row for which the split's launch has work, or -1 if it has no work. It has none
 * for chunks, for rows in groups, and for rows without query tokens. If a row has query tokens but
 * no length, this launch writes their results. Rows share pages in one class only: in programs of
 * several classes, the launches of the others read rows in groups. */
static int32_t first_on_line(const fig_bucket_shape *bucket, const fig_plan_step *step) {
    uint64_t grouped[(FIG_BATCH_LIMIT + 63) / 64];
    const int has_groups = step->groups != NULL && bucket->plan.class_count == 1;
    if (has_groups && count_grouped(step->groups) == step->rows) return -1;
    if (has_groups) {
        memset(grouped, 0, sizeof grouped);
        mark_groups(step->groups, grouped);
    }
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t queries = own_queries(step, row);
        if (queries == 0 || (queries > FIG_NARROW_TOKENS_LIMIT && step->lengths[row] > 0)) continue;
        if (!has_groups || !(grouped[row / 64] >> row % 64 & 1)) return row;
    }
    return -1;
}

/* Returns the first chunk among the rows, or -1 if no row is a chunk. */
static int32_t first_chunk(const fig_plan_step *step) {
    if (step->queries == NULL) return step->row_tokens > FIG_NARROW_TOKENS_LIMIT ? 0 : -1;
    for (int32_t row = 0; row < step->rows; row++)
        if (step->queries[row] > FIG_NARROW_TOKENS_LIMIT) return row;
    return -1;
}

/* Fails if a bucket of drafts is named for a step with a chunk. */
static fig_status check_drafts(const fig_bucket_shape *bucket, const fig_plan_step *step) {
    const int32_t row = bucket->form == FIG_FORM_DRAFTS ? first_chunk(step) : -1;
    if (row < 0) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE,
                    "step: row %" PRId32 " has %" PRId32 " query tokens, bucket %" PRId32
                    " takes at most %d",
                    row, own_queries(step, row), step->bucket, FIG_NARROW_TOKENS_LIMIT);
}

/* Fails if a bucket of strips is named for another step. */
static fig_status check_strips(const fig_bucket_shape *bucket, const fig_plan_step *step) {
    const int32_t row = bucket->form == FIG_FORM_STRIPS ? first_on_line(bucket, step) : -1;
    if (row < 0) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE,
                    "step: row %" PRId32 " is no chunk and shares no pages, bucket %" PRId32
                    " takes no such row",
                    row, step->bucket);
}

/* Fails if a bucket of ones is named for another step. */
static fig_status check_ones(const fig_bucket_shape *bucket, const fig_plan_step *step) {
    const int32_t row = bucket->form == FIG_FORM_ONES ? first_other(step) : -1;
    if (row < 0) return FIG_OK;
    const int32_t queries = own_queries(step, row);
    return fig_fail(FIG_TOO_LARGE,
                    "step: row %" PRId32 " has %" PRId32
                    " query token%s, each row of bucket %" PRId32
                    " has 1, or none and no tokens if no later row has any",
                    row, queries, FIG_PLURAL(queries), step->bucket);
}

/* Fails if a bucket for single query tokens is named for a step that has a row of more. */
static fig_status check_singles(const fig_bucket_shape *bucket, const fig_plan_step *step) {
    const int32_t row = bucket->form == FIG_FORM_SINGLES ? first_draft(step) : -1;
    if (row < 0) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE,
                    "step: row %" PRId32 " has %" PRId32 " query tokens, bucket %" PRId32
                    " takes 1, or %d and more",
                    row, step->queries[row], step->bucket, FIG_NARROW_TOKENS_LIMIT + 1);
}

static int holds(const fig_bucket_shape *bucket, const fig_plan_step *step, const needs *of) {
    return bucket->caps.batch >= step->rows && capacity_of(&bucket->caps) >= of->tokens &&
           queries_of(bucket, step, of) <= fig_bucket_query_limit(bucket);
}

/* Takes the bucket that the step names, or fails and says why that bucket does not hold the
 * step. */
static fig_status take_named(const fig_bucket_shape *buckets, int32_t count,
                             const fig_plan_step *step, const needs *of, int32_t *index) {
    const int64_t tokens = of->tokens;
    if (step->bucket < 1 || step->bucket > count)
        return fig_fail(FIG_INVALID, "step: bucket is %" PRId32 ", limits 0 to %" PRId32,
                        step->bucket, count);
    const fig_bucket_shape *bucket = &buckets[step->bucket - 1];
    /* If only the device knows the query tokens, the device checks them. */
    if (holds(bucket, step, of) || (step->lengths == NULL && bucket->caps.batch >= step->rows &&
                                    capacity_of(&bucket->caps) >= tokens)) {
        FIG_TRY(check_singles(bucket, step));
        FIG_TRY(check_ones(bucket, step));
        FIG_TRY(check_strips(bucket, step));
        FIG_TRY(check_drafts(bucket, step));
        *index = step->bucket - 1;
        return FIG_OK;
    }
    if (step->rows > bucket->caps.batch)
        return fig_fail(FIG_TOO_LARGE,
                        "step: rows is %" PRId32 ", bucket %" PRId32 " takes %" PRId32, step->rows,
                        step->bucket, bucket->caps.batch);
    if (capacity_of(&bucket->caps) < tokens)
        return fig_fail(FIG_TOO_LARGE,
                        "step: %s %" PRId64 " tokens, bucket %" PRId32 " takes %" PRId64,
                        tokens_phrase(step), tokens, step->bucket, capacity_of(&bucket->caps));
    FIG_TRY(check_ones(bucket, step));
    FIG_TRY(check_drafts(bucket, step));
    return fig_fail(FIG_TOO_LARGE,
                    "step: it has %" PRId64 " query tokens, bucket %" PRId32 " takes %" PRId32,
                    queries_of(bucket, step, of), step->bucket, fig_bucket_query_limit(bucket));
}

/* Returns the first bucket whose batch is at least `batch`. */
static int32_t first_of_batch(const fig_bucket_shape *buckets, int32_t count, int32_t batch) {
    int32_t first = 0;
    while (count > 0) {
        const int32_t half = count / 2;
        if (buckets[first + half].caps.batch < batch) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

/* Fails if rows grow by more tokens than any bucket has partials for. In deterministic graphs, a
 * tile that the window has left behind still needs a partial. */
static fig_status check_ahead(const fig_bucket_shape *bucket, const fig_plan_step *step) {
    for (int32_t i = 0; i < bucket->plan.class_count; i++) {
        const int32_t limit = fig_split_ahead_limit(&bucket->plan.splits[i]);
        if (fig_plan_ahead(step) <= limit) continue;
        return fig_fail(FIG_TOO_LARGE,
                        "step: rows grow by %" PRId32 " tokens within the horizon, limit %" PRId32
                        " where layers have a window and graphs are deterministic",
                        fig_plan_ahead(step), limit);
    }
    return FIG_OK;
}

/* Returns one past the last bucket of the same size as bucket `first`. */
static int32_t end_of_size(const fig_bucket_shape *buckets, int32_t count, int32_t first) {
    int32_t end = first + 1;
    while (end < count && fig_bucket_compare(&buckets[end], &buckets[first]) == 0)
        end++;
    return end;
}

/* Buckets [first, end) of one size and form. */
typedef struct choices {
    int32_t first, end;
} choices;

/* Narrows the choices to those of a form, which are neighbours. Returns 0 if there are none. */
static int narrow(const fig_bucket_shape *buckets, fig_bucket_form form, choices *of) {
    choices own = *of;
    while (own.first < own.end && buckets[own.first].form != form)
        own.first++;
    while (own.end > own.first && buckets[own.end - 1].form != form)
        own.end--;
    if (own.first == own.end) return 0;
    *of = own;
    return 1;
}

/* Returns the tokens of all tails of a step whose rows with a single query token are all in groups.
 * Other rows have no tails. Mostly there are no others, and then no row of a group is looked at. */
static int64_t count_tails(const fig_plan_step *step) {
    int64_t tokens = 0;
    int32_t singles = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const int is_single = own_queries(step, row) == 1;
        tokens += is_single ? step->lengths[row] : 0;
        singles += is_single;
    }
    for (int32_t g = 0; g < step->groups->count; g++) {
        const fig_strip_group *group = &step->groups->of[g];
        int32_t rows = group->rows;
        for (int32_t n = 0; n < group->rows && singles < step->rows; n++)
            rows -= own_queries(step, step->groups->order[group->first + n]) != 1;
        tokens -= (int64_t)rows * (group->to - group->from);
    }
    return tokens;
}

/* Returns 1 if the step, whose rows are chunks or in groups, had better take one of the buckets for
 * singles: its rows then have tails, which the launch of the split reads. */
static int is_for_tails(const fig_bucket_shape *buckets, choices of_size,
                        const fig_plan_step *step) {
    const fig_bucket_shape *bucket = &buckets[of_size.first];
    if (step->groups == NULL || bucket->plan.class_count != 1 || first_draft(step) >= 0 ||
        !narrow(buckets, FIG_FORM_SINGLES, &of_size))
        return 0;
    for (bucket = &buckets[of_size.first]; !bucket->paces[0].serves_tails; bucket++)
        if (++of_size.first == of_size.end) return 0;
    return fig_division_is_for_tails(count_tails(step), (int64_t)bucket->token_bytes[0] *
                                                            bucket->plan.splits[0].groups);
}

/* Returns the buckets among which the step chooses. `first` is the first bucket that holds it. The
 * more a form demands, the sooner a step of it ends. Only one of the sizes with a batch and kv has
 * buckets of ones and of drafts. */
static choices choices_of(const fig_bucket_shape *buckets, int32_t count, int32_t first,
                          const fig_plan_step *step) {
    choices of = {first, first + 1}, of_size = {first, end_of_size(buckets, count, first)};
    while (of.end < count && compare(&buckets[of.end].caps, &buckets[first].caps) == 0)
        of.end++;
    if (step->groups == NULL && first_other(step) < 0 && narrow(buckets, FIG_FORM_ONES, &of))
        return of;
    if (first_on_line(&buckets[first], step) < 0 && !is_for_tails(buckets, of_size, step) &&
        narrow(buckets, FIG_FORM_STRIPS, &of_size))
        return of_size;
    if (step->groups == NULL && first_draft(step) >= 0 && first_chunk(step) < 0 &&
        narrow(buckets, FIG_FORM_DRAFTS, &of))
        return of;
    if (first_draft(step) < 0 && narrow(buckets, FIG_FORM_SINGLES, &of_size)) return of_size;
    narrow(buckets, FIG_FORM_ANY, &of_size);
    return of_size;
}

/* If rows are in groups, narrows the choices to those from the first to the last whose launches can
 * read tails. */
static void narrow_to_tails(const fig_bucket_shape *buckets, const fig_plan_step *step,
                            choices *of) {
    choices own = *of;
    while (own.first < own.end && !buckets[own.first].paces[0].serves_tails)
        own.first++;
    while (own.end > own.first && !buckets[own.end - 1].paces[0].serves_tails)
        own.end--;
    if (step->groups != NULL && own.first < own.end) *of = own;
}

/* Returns the cheapest of the buckets. A single one needs no costs, which take a microsecond or
 * more with hundreds of rows. */
static int32_t cheapest_of(const fig_bucket_shape *buckets, choices of, const fig_plan_step *step) {
    int32_t best = -1;
    int64_t least = INT64_MAX;
    narrow_to_tails(buckets, step, &of);
    if (of.end - of.first == 1) return of.first;
    for (int32_t i = of.first; i < of.end; i++) {
        const int64_t cost = fig_bucket_cost(&buckets[i], step);
        if (cost >= least) continue;
        best = i;
        least = cost;
    }
    return best;
}

fig_status fig_bucket_choose(const fig_bucket_shape *buckets, int32_t count,
                             const fig_plan_step *step, int32_t *index) {
    const needs needed = needs_of(step);
    int32_t first = first_of_batch(buckets, count, step->rows);
    *index = -1;
    if (step->horizon > 1 && count > 0) FIG_TRY(check_ahead(&buckets[0], step));
    if (step->bucket != 0) return take_named(buckets, count, step, &needed, index);
    while (first < count && !holds(&buckets[first], step, &needed))
        first++;
    if (first == count) return refuse(buckets, count, step, needed.tokens);
    *index = cheapest_of(buckets, choices_of(buckets, count, first, step), step);
    return FIG_OK;
}

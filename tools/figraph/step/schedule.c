/* schedule.c: makes ragged lengths that grow and cross buckets.
 *
 * Knows buckets only through fig_graphs_bucket(). */
#include "tools/figraph/step/schedule.h"

#include <assert.h>
#include <stdlib.h>

#include "tools/figraph/terminal/report.h"

/* Rows of a packed program that have more query tokens than NARROW_TOKENS, or over a latent cache
 * LATENT_TOKENS, are chunks. */
enum { PAUSE_EVERY = 16, PAUSE_APART = 5, NARROW_TOKENS = 8, LATENT_TOKENS = 16 };

/* Finds the tokens of the smallest bucket that holds `rows` rows; with one more token the step
 * needs the next bucket. */
static int find_border(const fig_schedule_options *options, int64_t *least) {
    fig_graphs_info about = {.size = sizeof about};
    fig_bucket_info info = {.size = sizeof info};
    *least = 0;
    if (fig_graphs_read_info(options->graphs, &about) != FIG_OK) return fig_report_status("replay");
    for (int32_t n = 1; n <= about.bucket_count; n++) {
        if (fig_graphs_bucket(options->graphs, n, &info) != FIG_OK)
            return fig_report_status("replay");
        const int64_t tokens = (int64_t)info.bucket.batch * info.bucket.kv;
        if (info.bucket.batch >= options->rows && (*least == 0 || tokens < *least)) *least = tokens;
    }
    return FIG_EXIT_FINE;
}

static int32_t clamp(int64_t length, const fig_schedule *schedule) {
    if (length < schedule->least) return schedule->least;
    return length > schedule->kv_limit ? schedule->kv_limit : (int32_t)length;
}

/* The rows join at even distances over the first three quarters of the steps. Their starting
 * lengths are ragged, with a sum such that all rows together reach the border an eighth of the
 * steps before the end. */
static int make_up(fig_schedule *schedule, const fig_schedule_options *options) {
    int32_t rows = options->rows, steps = options->steps;
    int32_t joining = steps - steps / 4, crossing = steps - steps / 8;
    int64_t left;
    fig_synthetic synthetic;
    const int code = find_border(options, &left);
    if (code != FIG_EXIT_FINE) return code;
    fig_synthetic_seed(&synthetic, options->seed);
    for (int32_t r = 0; r < rows; r++) {
        schedule->joins[r] = (int32_t)((int64_t)joining * r / rows);
        left -= crossing - schedule->joins[r];
    }
    for (int32_t r = 0; r < rows; r++) {
        int32_t mean = clamp(left / (rows - r), schedule);
        int32_t start = mean / 2 + fig_synthetic_below(&synthetic, mean);
        schedule->grown[r] = clamp(r == rows - 1 ? left : start, schedule);
        left -= schedule->grown[r];
    }
    schedule->pauses = 1;
    return FIG_EXIT_FINE;
}

int32_t fig_schedule_narrow(const fig_spec *spec) {
    return spec->latent_dim > 0 ? LATENT_TOKENS : NARROW_TOKENS;
}

int32_t fig_schedule_least(const fig_spec *spec) {
    const int32_t narrow = fig_schedule_narrow(spec);
    const int may_be_chunks = spec->query_limit > 0 && spec->row_tokens > narrow;
    return may_be_chunks ? narrow : spec->row_tokens;
}

int fig_schedule_init(fig_schedule *schedule, const fig_schedule_options *options) {
    fig_graphs_info info = {.size = sizeof info};
    size_t rows = (size_t)options->rows;
    assert(options->rows >= 1);
    fig_graphs_read_info(options->graphs, &info);
    *schedule = (fig_schedule){.row_limit = options->rows,
                               .kv_limit = info.spec->kv_limit,
                               .least = fig_schedule_least(info.spec),
                               .row_tokens = info.spec->row_tokens,
                               .query_limit = (int32_t)info.spec->query_limit,
                               .grown = calloc(rows, sizeof(int32_t)),
                               .joins = calloc(rows, sizeof(int32_t)),
                               .lengths = calloc(rows, sizeof(int32_t)),
                               .queries = calloc(rows, sizeof(int32_t)),
                               .is_packed = info.spec->query_limit > 0};
    if (schedule->grown == NULL || schedule->joins == NULL || schedule->lengths == NULL ||
        schedule->queries == NULL) {
        return fig_report_refuse("no memory for a schedule of %zu rows", rows);
    }
    if (options->start == NULL) {
        const int code = make_up(schedule, options);
        if (code != FIG_EXIT_FINE) return code;
    } else {
        assert(options->start->count == options->rows);
        for (size_t r = 0; r < rows; r++)
            schedule->grown[r] = options->start->values[r];
    }
    /* advance_row() adds this step's token first */
    for (size_t r = 0; r < rows; r++)
        schedule->grown[r]--;
    return FIG_EXIT_FINE;
}

void fig_schedule_finish(fig_schedule *schedule) {
    free(schedule->grown);
    free(schedule->joins);
    free(schedule->lengths);
    free(schedule->queries);
    *schedule = (fig_schedule){0};
}

int32_t fig_schedule_count(const fig_schedule *schedule) {
    int32_t count = 0;
    for (int32_t row = 0; row < schedule->rows; row++)
        count += schedule->queries[row];
    return count;
}

fig_schedule_query fig_schedule_find(const fig_schedule *schedule, int32_t number) {
    fig_schedule_query query = {0, number};
    while (query.number >= schedule->queries[query.row])
        query.number -= schedule->queries[query.row++];
    return query;
}

/* A row that should start with 0 tokens has -1 here and stays idle. */
static int32_t advance_row(fig_schedule *schedule, int32_t row) {
    int32_t age = schedule->step - schedule->joins[row];
    int32_t *grown = &schedule->grown[row];
    if (*grown < 0) return 0;
    if (schedule->pauses && (age + PAUSE_APART * row) % PAUSE_EVERY == PAUSE_EVERY - 1) return 0;
    if (*grown >= schedule->kv_limit) {
        *grown = schedule->least - 1;
        return 0;
    }
    return ++*grown;
}

/* Returns the number of a row's query tokens, which differs from row to row and step to step. In
 * programs that have chunks, one row in three is a chunk. left: the query tokens that the step
 * still has for this row and all later ones; each later row needs at least one. */
static int32_t draw_queries(const fig_schedule *schedule, int32_t row, int32_t left) {
    if (!schedule->is_packed) return schedule->least;
    if (schedule->lengths[row] == 0) return 0;
    int32_t count = 1 + (schedule->step * 5 + row * 3 + schedule->step / 7) % schedule->least;
    const int32_t more = schedule->row_tokens - schedule->least;
    if (more > 0 && (schedule->step + row) % 3 == 0)
        count = schedule->least + 1 + (schedule->step * 37 + row * 101) % more;
    const int32_t room = left - (schedule->row_limit - 1 - row);
    if (count > room) count = room > 0 ? room : 0;
    return count < schedule->lengths[row] ? count : schedule->lengths[row];
}

void fig_schedule_advance(fig_schedule *schedule) {
    int32_t rows = 0, left = schedule->query_limit;
    while (rows < schedule->row_limit && schedule->joins[rows] <= schedule->step) {
        schedule->lengths[rows] = advance_row(schedule, rows);
        schedule->queries[rows] = draw_queries(schedule, rows, left);
        left -= schedule->queries[rows];
        rows++;
    }
    schedule->rows = rows;
    schedule->step++;
}

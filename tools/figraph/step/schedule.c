/* schedule.c: ragged lengths that grow and cross buckets.
 *
 * Knows buckets only by what fig_graphs_bucket says of them. */
#include "tools/figraph/step/schedule.h"

#include <assert.h>
#include <stdlib.h>

#include "tools/figraph/terminal/report.h"

enum { PAUSE_EVERY = 16, PAUSE_APART = 5 };

/* Tokens of the smallest bucket that takes `rows`: one more, and the step needs the next. */
static int64_t border_of(const fig_graphs *graphs, int32_t rows) {
    int64_t least = 0;
    fig_bucket_info info = {.size = sizeof info};
    for (int32_t n = 1; fig_graphs_bucket(graphs, n, &info) == FIG_OK; n++) {
        int64_t tokens = (int64_t)info.bucket.batch * info.bucket.kv;
        if (info.bucket.batch >= rows && (least == 0 || tokens < least)) least = tokens;
    }
    return least;
}

static int32_t clamp(int64_t length, const fig_schedule *schedule) {
    if (length < schedule->least) return schedule->least;
    return length > schedule->kv_limit ? schedule->kv_limit : (int32_t)length;
}

/* Row r joins at an even share of the first three quarters. Starts are ragged, and their sum is
 * such that all rows together reach the border an eighth before the end. */
static void make_up(fig_schedule *schedule, const fig_schedule_options *options) {
    int32_t rows = options->rows, steps = options->steps;
    int32_t joining = steps - steps / 4, crossing = steps - steps / 8;
    int64_t left = border_of(options->graphs, rows);
    fig_synthetic synthetic;
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
}

int fig_schedule_init(fig_schedule *schedule, const fig_schedule_options *options) {
    fig_graphs_info info = {.size = sizeof info};
    size_t rows = (size_t)options->rows;
    assert(options->rows >= 1);
    fig_graphs_read_info(options->graphs, &info);
    *schedule = (fig_schedule){.row_limit = options->rows,
                               .kv_limit = info.spec->kv_limit,
                               .least = info.spec->row_tokens,
                               .grown = calloc(rows, sizeof(int32_t)),
                               .joins = calloc(rows, sizeof(int32_t)),
                               .lengths = calloc(rows, sizeof(int32_t))};
    if (schedule->grown == NULL || schedule->joins == NULL || schedule->lengths == NULL) {
        return fig_report_refuse("no memory for a schedule of %zu rows", rows);
    }
    if (options->start == NULL) {
        make_up(schedule, options);
    } else {
        assert(options->start->count == options->rows);
        for (size_t r = 0; r < rows; r++)
            schedule->grown[r] = options->start->values[r];
    }
    /* advance adds this step's token first. */
    for (size_t r = 0; r < rows; r++)
        schedule->grown[r]--;
    return FIG_EXIT_FINE;
}

void fig_schedule_finish(fig_schedule *schedule) {
    free(schedule->grown);
    free(schedule->joins);
    free(schedule->lengths);
    *schedule = (fig_schedule){0};
}

/* A row that was asked to start at 0, kept as -1, stays idle. */
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

void fig_schedule_advance(fig_schedule *schedule) {
    int32_t rows = 0;
    while (rows < schedule->row_limit && schedule->joins[rows] <= schedule->step) {
        schedule->lengths[rows] = advance_row(schedule, rows);
        rows++;
    }
    schedule->rows = rows;
    schedule->step++;
}

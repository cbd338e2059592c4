/* serve_batch.c: join, leave, give way. */
#include "tools/figraph/serve/serve_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "tools/figraph/terminal/report.h"

int fig_serve_batch_init(fig_serve_batch *batch, const fig_serve_batch_options *options) {
    const int32_t rows = options->pages.sequence_count;
    const size_t bytes = (size_t)rows * sizeof(int32_t);
    *batch = (fig_serve_batch){.trace = options->trace,
                               .row_limit = rows,
                               .row_tokens = options->row_tokens,
                               .lengths = malloc(bytes),
                               .requests = malloc(bytes),
                               .sequences = malloc(bytes),
                               .preempted = malloc(bytes),
                               .made = calloc((size_t)options->trace->count, sizeof(int32_t))};
    if (batch->lengths == NULL || batch->requests == NULL || batch->sequences == NULL ||
        batch->preempted == NULL || batch->made == NULL) {
        return fig_report_refuse("serve: no memory for %d rows and %d requests", rows,
                                 options->trace->count);
    }
    for (int32_t i = 0; i < rows; i++)
        batch->sequences[i] = i;
    return fig_serve_pages_init(&batch->pages, &options->pages);
}

void fig_serve_batch_finish(fig_serve_batch *batch) {
    free(batch->lengths);
    free(batch->requests);
    free(batch->sequences);
    free(batch->preempted);
    free(batch->made);
    fig_serve_pages_finish(&batch->pages);
    *batch = (fig_serve_batch){0};
}

static int32_t tokens_left(const fig_serve_batch *batch, int32_t row) {
    const int32_t request = batch->requests[row];
    return batch->trace->requests[request].output - batch->made[request];
}

static int32_t steps_left(const fig_serve_batch *batch, int32_t row) {
    return (tokens_left(batch, row) + batch->row_tokens - 1) / batch->row_tokens;
}

/* ---- In line ------------------------------------------------------------------------------- */

void fig_serve_batch_arrive(fig_serve_batch *batch, int64_t now_ns) {
    const fig_serve_trace *trace = batch->trace;
    while (batch->arrived < trace->count && trace->requests[batch->arrived].arrival_ns <= now_ns)
        batch->arrived++;
}

int32_t fig_serve_batch_waiting(const fig_serve_batch *batch) {
    return batch->preempted_count + batch->arrived - batch->next;
}

/* There is one. */
static int32_t first_in_line(const fig_serve_batch *batch) {
    assert(fig_serve_batch_waiting(batch) > 0);
    return batch->preempted_count > 0 ? batch->preempted[batch->preempted_count - 1] : batch->next;
}

/* With the tokens of its next step: who was preempted comes back with all that was made. */
static int32_t length_of(const fig_serve_batch *batch, int32_t request) {
    return batch->trace->requests[request].prompt + batch->made[request] + batch->row_tokens;
}

/* Of those who run, how many will need another page; one kept for each keeps a joiner from being
 * preempted by the next step. */
static int32_t growing_count(const fig_serve_batch *batch) {
    int32_t count = 0;
    for (int32_t row = 0; row < batch->rows; row++) {
        const int32_t last = batch->lengths[row] + (steps_left(batch, row) - 1) * batch->row_tokens;
        count += fig_serve_pages_missing(&batch->pages, batch->sequences[row], last) > 0;
    }
    return count;
}

int fig_serve_batch_can_join(const fig_serve_batch *batch) {
    if (fig_serve_batch_waiting(batch) == 0 || batch->rows == batch->row_limit) return 0;
    const int32_t length = length_of(batch, first_in_line(batch));
    const int32_t pages =
        fig_serve_pages_missing(&batch->pages, batch->sequences[batch->rows], length);
    return pages + growing_count(batch) <= batch->pages.free_count;
}

void fig_serve_batch_join(fig_serve_batch *batch, fig_pages *change) {
    assert(fig_serve_batch_can_join(batch));
    const int32_t request = first_in_line(batch), row = batch->rows++;
    if (batch->preempted_count > 0) {
        batch->preempted_count--;
    } else {
        batch->next++;
    }
    batch->requests[row] = request;
    batch->lengths[row] = length_of(batch, request);
    const int given =
        fig_serve_pages_grow(&batch->pages, batch->sequences[row], batch->lengths[row], change);
    assert(given);
    (void)given;
}

/* ---- Leaving ------------------------------------------------------------------------------- */

/* The pages may go to another at once, though steps that read them still run: what will write them
 * is launched behind those. */
static void remove_row(fig_serve_batch *batch, int32_t row) {
    const int32_t last = --batch->rows, sequence = batch->sequences[row];
    fig_serve_pages_release(&batch->pages, sequence);
    batch->sequences[row] = batch->sequences[last];
    batch->sequences[last] = sequence;
    batch->lengths[row] = batch->lengths[last];
    batch->requests[row] = batch->requests[last];
}

void fig_serve_batch_preempt(fig_serve_batch *batch) {
    int32_t youngest = 0;
    assert(batch->rows > 0);
    for (int32_t row = 1; row < batch->rows; row++)
        if (batch->requests[row] > batch->requests[youngest]) youngest = row;
    batch->preempted[batch->preempted_count++] = batch->requests[youngest];
    batch->preemptions++;
    remove_row(batch, youngest);
}

/* ---- Steps --------------------------------------------------------------------------------- */

int32_t fig_serve_batch_horizon(const fig_serve_batch *batch, int32_t most) {
    const int32_t row_tokens = batch->row_tokens;
    int64_t missing = 0;
    for (int32_t row = 0; row < batch->rows; row++) {
        const int32_t steps = steps_left(batch, row), sequence = batch->sequences[row];
        assert(fig_serve_pages_missing(&batch->pages, sequence, batch->lengths[row]) == 0);
        if (steps < most) most = steps;
    }
    for (int32_t row = 0; row < batch->rows; row++)
        missing += fig_serve_pages_missing(&batch->pages, batch->sequences[row],
                                           batch->lengths[row] + (most - 1) * row_tokens);
    return missing <= batch->pages.free_count ? most : 1;
}

int32_t fig_serve_batch_advance(fig_serve_batch *batch) {
    int32_t tokens = 0;
    for (int32_t row = 0; row < batch->rows;) {
        const int32_t left = tokens_left(batch, row), row_tokens = batch->row_tokens;
        const int32_t made = left < row_tokens ? left : row_tokens;
        batch->made[batch->requests[row]] += made;
        tokens += made;
        if (made == left) {
            remove_row(batch, row);
        } else {
            batch->lengths[row++] += row_tokens;
        }
    }
    return tokens;
}

/* serve_batch.c: lets requests join, leave and give up their pages. */
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
                               .chunk = options->chunk,
                               .lengths = malloc(bytes),
                               .queries = calloc((size_t)rows, sizeof(int32_t)),
                               .cached = calloc((size_t)rows, sizeof(int32_t)),
                               .requests = malloc(bytes),
                               .sequences = malloc(bytes),
                               .preempted = malloc(bytes),
                               .made = calloc((size_t)options->trace->count, sizeof(int32_t))};
    if (batch->lengths == NULL || batch->queries == NULL || batch->cached == NULL ||
        batch->requests == NULL || batch->sequences == NULL || batch->preempted == NULL ||
        batch->made == NULL) {
        return fig_report_refuse("serve: no memory for %d rows and %d requests", rows,
                                 options->trace->count);
    }
    for (int32_t i = 0; i < rows; i++)
        batch->sequences[i] = i;
    return fig_serve_pages_init(&batch->pages, &options->pages);
}

void fig_serve_batch_finish(fig_serve_batch *batch) {
    free(batch->lengths);
    free(batch->queries);
    free(batch->cached);
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

/* ---- The queue ----------------------------------------------------------------------------- */

void fig_serve_batch_arrive(fig_serve_batch *batch, int64_t now_ns) {
    const fig_serve_trace *trace = batch->trace;
    while (batch->arrived < trace->count && trace->requests[batch->arrived].arrival_ns <= now_ns)
        batch->arrived++;
}

int32_t fig_serve_batch_waiting(const fig_serve_batch *batch) {
    return batch->preempted_count + batch->arrived - batch->next;
}

/* Returns the first request in line; there must be one. */
static int32_t first_in_line(const fig_serve_batch *batch) {
    assert(fig_serve_batch_waiting(batch) > 0);
    return batch->preempted_count > 0 ? batch->preempted[batch->preempted_count - 1] : batch->next;
}

/* Returns the tokens of the request that are known: its prompt and the output so far. */
static int32_t known_of(const fig_serve_batch *batch, int32_t request) {
    return batch->trace->requests[request].prompt + batch->made[request];
}

/* Returns the tokens that the request's pages must hold. Without chunks these include the tokens of
 * its next step; with chunks they are the known tokens. A preempted request comes back with all
 * tokens that it has made. */
static int32_t length_of(const fig_serve_batch *batch, int32_t request) {
    return known_of(batch, request) + (batch->chunk > 0 ? 0 : batch->row_tokens);
}

/* Returns the tokens that a row will have in its last step. */
static int32_t last_length(const fig_serve_batch *batch, int32_t row) {
    const int32_t request = batch->requests[row];
    if (batch->chunk > 0)
        return batch->trace->requests[request].prompt + batch->trace->requests[request].output - 1;
    return batch->lengths[row] + (steps_left(batch, row) - 1) * batch->row_tokens;
}

/* Counts the running requests that will need another page. One page stays free for each of them,
 * so that the next step does not preempt a request that has just joined. */
static int32_t growing_count(const fig_serve_batch *batch) {
    int32_t count = 0;
    for (int32_t row = 0; row < batch->rows; row++) {
        count += fig_serve_pages_missing(&batch->pages, batch->sequences[row],
                                         last_length(batch, row)) > 0;
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
    batch->cached[row] = batch->queries[row] = 0;
    const int given =
        fig_serve_pages_grow(&batch->pages, batch->sequences[row], batch->lengths[row], change);
    assert(given);
    (void)given;
}

/* ---- Leaving ------------------------------------------------------------------------------- */

/* Another sequence may get the pages at once, although steps that read them still run: the steps
 * that write to the pages are launched after those steps. */
static void remove_row(fig_serve_batch *batch, int32_t row) {
    const int32_t last = --batch->rows, sequence = batch->sequences[row];
    fig_serve_pages_release(&batch->pages, sequence);
    batch->sequences[row] = batch->sequences[last];
    batch->sequences[last] = sequence;
    batch->lengths[row] = batch->lengths[last];
    batch->requests[row] = batch->requests[last];
    batch->cached[row] = batch->cached[last];
    batch->queries[row] = batch->queries[last];
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

/* Returns, among the rows that have tokens left of their prompt but none in this step, the row
 * whose request arrived first. -1: there is none. */
static int32_t next_prompt(const fig_serve_batch *batch) {
    int32_t first = -1;
    for (int32_t row = 0; row < batch->rows; row++) {
        if (batch->queries[row] > 0) continue;
        if (first < 0 || batch->requests[row] < batch->requests[first]) first = row;
    }
    return first;
}

int32_t fig_serve_batch_share(fig_serve_batch *batch) {
    int32_t left = batch->chunk;
    if (batch->chunk == 0) return 0;
    for (int32_t row = 0; row < batch->rows; row++) {
        const int32_t pending = known_of(batch, batch->requests[row]) - batch->cached[row];
        assert(pending > 0);
        batch->queries[row] = pending == 1 ? 1 : 0;
    }
    for (int32_t row = next_prompt(batch); row >= 0 && left > 0; row = next_prompt(batch)) {
        const int32_t pending = known_of(batch, batch->requests[row]) - batch->cached[row];
        const int32_t most = left < batch->row_tokens ? left : batch->row_tokens;
        batch->queries[row] = pending < most ? pending : most;
        left -= batch->queries[row];
    }
    for (int32_t row = 0; row < batch->rows; row++)
        batch->lengths[row] = batch->cached[row] + batch->queries[row];
    return batch->chunk - left;
}

/* Advances rows that also compute their prompts. A row makes a token when all known tokens of its
 * request are in the cache. */
static fig_serve_batch_made advance_chunks(fig_serve_batch *batch, int32_t *requests) {
    fig_serve_batch_made all = {0, 0};
    for (int32_t row = 0; row < batch->rows;) {
        const int32_t request = batch->requests[row];
        batch->cached[row] += batch->queries[row];
        if (batch->cached[row] < known_of(batch, request)) {
            row++;
            continue;
        }
        batch->made[request]++;
        requests[all.rows++] = request;
        all.tokens++;
        if (batch->made[request] == batch->trace->requests[request].output) {
            remove_row(batch, row);
        } else {
            batch->lengths[row] = batch->cached[row] + 1;
            row++;
        }
    }
    return all;
}

fig_serve_batch_made fig_serve_batch_advance(fig_serve_batch *batch, int32_t *requests) {
    fig_serve_batch_made all = {0, 0};
    if (batch->chunk > 0) return advance_chunks(batch, requests);
    for (int32_t row = 0; row < batch->rows;) {
        const int32_t left = tokens_left(batch, row), row_tokens = batch->row_tokens;
        const int32_t made = left < row_tokens ? left : row_tokens;
        batch->made[batch->requests[row]] += made;
        requests[all.rows++] = batch->requests[row];
        all.tokens += made;
        if (made == left) {
            remove_row(batch, row);
        } else {
            batch->lengths[row++] += row_tokens;
        }
    }
    return all;
}

/* serve_loop.c: runs continuous batching over one engine, without the model's own work.
 *
 * Each turn of the loop has these parts:
 *
 *     settle   note the steps that have ended; wait while AHEAD steps are in flight
 *     join     the first requests in line get a row and the pages of their prompt
 *     share    with a budget of prompt tokens: rows get chunks of their prompts, or one token
 *     grow     a row whose next token begins a page gets one; if no page is free, the request that
 *              arrived last is preempted
 *     stage    plan the step, or all steps of a horizon
 *     launch   queue it behind the running step, and count its tokens while it runs
 *
 * A loop that serves a model has the same form. It adds its GEMMs as calls of the program, or
 * launches its own graph instead of fig_engine_launch, and samples in note_end. Here tokens are
 * synthetic: inputs do not change. Without a budget of prompt tokens, the keys and values of a
 * prompt count as already cached.
 *
 * On several ranks each rank runs this loop. Its decisions depend only on the requests and on the
 * time, so the ranks must agree only on the time. Rank 0 sends its time once a turn while requests
 * are still to come.
 *
 * Invariant: the host stays ahead of the device: while a step runs, the next one already waits on
 * the stream. */
#include "tools/figraph/serve/serve_loop.h"

#include <assert.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/figraph/serve/serve_batch.h"
#include "tools/figraph/serve/serve_outs.h"
#include "tools/figraph/serve/serve_score.h"
#include "tools/figraph/step/standard.h"
#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"

/* One running step and two more in the queue, because a GPU may report the end of a step only while
 * the next step runs. */
enum { AHEAD = 3 };
static const int64_t SECOND_NS = 1000000000;
/* The loop sleeps for at most this long between two checks for Ctrl-C: the signal may come just
 * before it sleeps, or to another thread. */
static const int64_t NAP_NS = 50000000;
static const int64_t HOST_NAP_NS = 50000; /* less than a small step of the host device takes */
static const int64_t STEP_LIMIT_NS = 60000000000; /* a longer step counts as hung */
/* the longest wait of fig_engine_stage(); AHEAD steps never fill the ring, so it does not wait */
static const int32_t BUSY_US = 1000000;

/* A step that was launched and whose end the host has not yet seen. */
typedef struct launched_step {
    int64_t launched_ns;
    int32_t prompt_tokens; /* prompt tokens that the step computes */
    fig_serve_batch_made made;
    int32_t *requests; /* [row_limit], made.rows of them */
} launched_step;

typedef struct serve_loop {
    const fig_serve_options *options;
    fig_graphs_info info;
    fig_engine *engine;
    fig_serve_score score;
    fig_serve_batch batch;
    fig_serve_outs outs;          /* used with a budget and --check */
    int32_t prompt_tokens;        /* prompt tokens of the step that is being planned */
    launched_step flights[AHEAD]; /* step n at n % AHEAD */
    int64_t launched, ended;      /* numbers of steps */
    /* steps that were staged but not launched: the rest of a horizon */
    int64_t planned;
    int64_t began_ns, skipped_ns, ended_ns;
    int64_t *token_ns; /* [request] the time when its last step ended; -1: no step yet */
    fig_report_progress progress;
    fig_serve_result *result;
} serve_loop;

static int64_t now_ns(const serve_loop *loop) {
    return fig_report_now_ns() - loop->began_ns + loop->skipped_ns;
}

/* ---- Opening ------------------------------------------------------------------------------- */

/* Returns the bytes to allocate for a tensor: enough rows for the largest step, or the pages of the
 * whole cache. The engine itself owns the page tables. */
static size_t bytes_of(const serve_loop *loop, const fig_tensor_info *tensor) {
    int64_t count = tensor->dims[0];
    if (count == FIG_DIM_BATCH) count = (int64_t)loop->info.spec->batch_limit * tensor->multiple;
    if (count == FIG_DIM_QUERIES) count = loop->info.spec->query_limit * tensor->multiple;
    if (count == FIG_DIM_PAGES) count = (int64_t)loop->options->page_count * tensor->multiple;
    size_t bytes = (size_t)count * fig_synthetic_bytes(tensor->dtype);
    for (int32_t i = 1; i < tensor->rank; i++)
        bytes *= (size_t)tensor->dims[i];
    return bytes;
}

/* Returns 1 if each step waits for its end and has its outputs compared. */
static int checks_outs(const serve_loop *loop) {
    return loop->options->check && loop->options->chunk > 0;
}

static int open_engine(serve_loop *loop) {
    const fig_serve_options *options = loop->options;
    const fig_engine_options engine_options = {.size = sizeof engine_options,
                                               .device = options->device,
                                               .ordinal = options->ordinal,
                                               .ranks = options->ranks,
                                               .busy_us = BUSY_US,
                                               .check_plans = options->check,
                                               .compile_scores = options->compiled.compile_scores,
                                               .score_cache = options->compiled.score_cache};
    fig_tensor_info tensor = {.size = sizeof tensor};
    if (fig_engine_open(&loop->engine, options->graphs, &engine_options) != FIG_OK)
        return fig_report_status("serve");
    for (int32_t i = 0; fig_graphs_tensor(options->graphs, i, &tensor) == FIG_OK; i++) {
        if (tensor.role != FIG_ROLE_BOUND) continue;
        const fig_binding binding = {
            .size = sizeof binding, .name = tensor.name, .bytes = bytes_of(loop, &tensor)};
        if (fig_engine_bind(loop->engine, &binding) != FIG_OK) return fig_report_status("serve");
    }
    /* All buckets are prepared before the clock starts, as a server does before it takes requests.
     * Otherwise the first step of each bucket would wait milliseconds, which would show in the
     * percentiles. */
    if (fig_engine_prepare(loop->engine, 0) != FIG_OK) return fig_report_status("serve");
    loop->result->device = fig_engine_device(loop->engine);
    const int code = fig_serve_score_open(&loop->score, loop->engine);
    if (code != FIG_EXIT_FINE || !checks_outs(loop)) return code;
    return fig_serve_outs_open(&loop->outs, loop->engine, options->graphs, &loop->score);
}

static int open_loop(serve_loop *loop) {
    const fig_spec *spec = loop->info.spec;
    const int32_t page_tokens = spec->page_size > 0 ? spec->page_size : spec->kv_limit;
    const int32_t rows =
        spec->batch_limit < spec->sequence_limit ? spec->batch_limit : spec->sequence_limit;
    const fig_serve_batch_options options = {
        .trace = loop->options->trace,
        .pages = {.page_count = loop->options->page_count,
                  .page_tokens = page_tokens,
                  .sequence_count = rows,
                  .sequence_pages = (spec->kv_limit + page_tokens - 1) / page_tokens},
        .row_tokens = spec->row_tokens,
        .chunk = loop->options->chunk};
    int code = fig_serve_batch_init(&loop->batch, &options);
    if (code != FIG_EXIT_FINE) return code;
    const size_t requests = (size_t)options.trace->count;
    loop->token_ns = malloc(requests * sizeof *loop->token_ns);
    int held = loop->token_ns != NULL;
    for (int32_t i = 0; i < AHEAD; i++) {
        loop->flights[i].requests = malloc((size_t)rows * sizeof(int32_t));
        held = held && loop->flights[i].requests != NULL;
    }
    if (!held) return fig_report_refuse("serve: no memory for %zu requests", requests);
    for (size_t i = 0; i < requests; i++)
        loop->token_ns[i] = -1;
    return open_engine(loop);
}

static void close_loop(serve_loop *loop) {
    fig_engine_close(loop->engine);
    fig_serve_score_close(&loop->score);
    fig_serve_batch_finish(&loop->batch);
    fig_serve_outs_close(&loop->outs);
    for (int32_t i = 0; i < AHEAD; i++)
        free(loop->flights[i].requests);
    free(loop->token_ns);
}

/* ---- Settling ------------------------------------------------------------------------------ */

/* Notes the end of the oldest step in flight: each of its requests has a token. A server would
 * sample here. */
static void note_end(serve_loop *loop, int64_t now) {
    const launched_step *flight = &loop->flights[loop->ended++ % AHEAD];
    fig_serve_result *result = loop->result;
    const int64_t before = loop->ended_ns;
    fig_histogram_add(&result->step,
                      now - (before > flight->launched_ns ? before : flight->launched_ns));
    for (int32_t row = 0; row < flight->made.rows; row++) {
        const int32_t request = flight->requests[row];
        int64_t *last = &loop->token_ns[request];
        if (*last < 0) {
            const int64_t arrival = loop->options->trace->requests[request].arrival_ns;
            fig_histogram_add(&result->first, now - arrival);
        } else {
            fig_histogram_add(&result->between, now - *last);
            if (flight->prompt_tokens > 0) fig_histogram_add(&result->beside, now - *last);
        }
        *last = now;
    }
    result->tokens += flight->made.tokens;
    result->prompt_tokens += flight->prompt_tokens;
    result->prompt_steps += flight->prompt_tokens > 0;
    loop->ended_ns = now;
}

/* If several steps are seen to end at once, they share the time since the previous end. */
static void note_ends(serve_loop *loop, int64_t completed) {
    const int64_t count = completed - loop->ended, now = now_ns(loop);
    if (count == 0) return;
    int64_t began = loop->flights[loop->ended % AHEAD].launched_ns;
    if (began < loop->ended_ns) began = loop->ended_ns;
    for (int64_t i = 1; i <= count; i++)
        note_end(loop, began + (now - began) * i / count);
}

/* fig_engine_poll() saw a fault; fig_engine_wait() returns it with its message. */
static int report_fault(serve_loop *loop) {
    fig_engine_wait(loop->engine, -1);
    return fig_report_failure("serve: one of %" PRId64 " steps failed: %s", loop->launched,
                              fig_message());
}

/* Pauses between two looks at the device. A GPU's step may end at any moment. The host device runs
 * steps on cores, which it or another program may need. */
static void look_away(const serve_loop *loop) {
    const struct timespec nap = {.tv_nsec = HOST_NAP_NS};
    if (fig_engine_device(loop->engine) == FIG_DEVICE_HOST)
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

/* Notes the steps that have ended, and waits until at most `most` steps are in flight. */
static int settle(serve_loop *loop, int64_t most) {
    fig_progress progress = {.size = sizeof progress};
    const int64_t began = now_ns(loop);
    for (;;) {
        if (fig_engine_poll(loop->engine, &progress) != FIG_OK) return fig_report_status("serve");
        if (progress.fault != FIG_OK) return report_fault(loop);
        note_ends(loop, progress.completed);
        if (loop->launched - loop->ended <= most) return FIG_EXIT_FINE;
        if (now_ns(loop) - began > STEP_LIMIT_NS)
            return fig_report_failure("serve: step %" PRId64 " has not ended within a minute",
                                      loop->ended + 1);
        look_away(loop);
    }
}

/* ---- Rows ---------------------------------------------------------------------------------- */

/* One or two new pages travel with the next plan; the pages of a prompt are sent before it. A dense
 * cache has no table: sequence s always has page s. */
static int set_pages(serve_loop *loop, const fig_pages *change) {
    if (change->count == 0 || loop->info.spec->page_size == 0) return FIG_EXIT_FINE;
    if (fig_engine_set_pages(loop->engine, change) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status("serve");
}

static int join(serve_loop *loop) {
    fig_pages change;
    while (fig_serve_batch_can_join(&loop->batch)) {
        fig_serve_batch_join(&loop->batch, &change);
        const int code = set_pages(loop, &change);
        if (code != FIG_EXIT_FINE) return code;
    }
    return FIG_EXIT_FINE;
}

/* Gives every row the pages for its next step and `more` further steps. A preempted row swaps
 * places with the last row, so all rows are looked at again. */
static int grow(serve_loop *loop, int32_t more) {
    fig_serve_batch *batch = &loop->batch;
    fig_pages change;
    for (int32_t row = 0; row < batch->rows; row++) {
        if (fig_serve_pages_grow(&batch->pages, batch->sequences[row], batch->lengths[row] + more,
                                 &change)) {
            const int code = set_pages(loop, &change);
            if (code != FIG_EXIT_FINE) return code;
        } else {
            fig_serve_batch_preempt(batch);
            row = -1;
        }
    }
    return FIG_EXIT_FINE;
}

/* ---- Steps --------------------------------------------------------------------------------- */

/* Stages one plan for as many launches as possible: until a row leaves or pages run out. */
static int stage(serve_loop *loop) {
    const fig_serve_batch *batch = &loop->batch;
    const int32_t horizon = fig_serve_batch_horizon(batch, loop->options->horizon);
    const int code = grow(loop, (horizon - 1) * batch->row_tokens);
    if (code != FIG_EXIT_FINE) return code;
    const fig_step step = {.size = sizeof step,
                           .rows = batch->rows,
                           .kv_lengths = batch->lengths,
                           .sequences = batch->sequences,
                           .query_counts = batch->chunk > 0 ? batch->queries : NULL,
                           .horizon = horizon};
    if (fig_engine_stage(loop->engine, &step) != FIG_OK) return fig_report_status("serve");
    loop->planned = horizon;
    loop->result->plans++;
    return FIG_EXIT_FINE;
}

/* Takes back the rest of a horizon, because it does not include a request that has arrived. */
static int take_back(serve_loop *loop) {
    if (fig_engine_take_back(loop->engine) != FIG_OK) return fig_report_status("serve");
    loop->planned = 0;
    return FIG_EXIT_FINE;
}

static int launch(serve_loop *loop) {
    fig_serve_batch *batch = &loop->batch;
    fig_serve_result *result = loop->result;
    launched_step *flight = &loop->flights[loop->launched % AHEAD];
    flight->launched_ns = now_ns(loop);
    if (fig_engine_launch(loop->engine) != FIG_OK) return fig_report_status("serve");
    loop->launched++;
    loop->planned--;
    result->rows += batch->rows;
    if (batch->rows > result->rows_most) result->rows_most = batch->rows;
    flight->prompt_tokens = loop->prompt_tokens;
    if (checks_outs(loop)) {
        const int code = fig_serve_outs_check(&loop->outs, batch);
        if (code != FIG_EXIT_FINE) return code;
    }
    flight->made = fig_serve_batch_advance(batch, flight->requests);
    return FIG_EXIT_FINE;
}

/* Called when no request runs and all requests that arrived have joined, so every page is free. */
static int idle(serve_loop *loop) {
    const fig_serve_batch *batch = &loop->batch;
    const int code = settle(loop, 0);
    if (code != FIG_EXIT_FINE || batch->next == batch->trace->count) return code;
    const int64_t wait_ns = batch->trace->requests[batch->next].arrival_ns - now_ns(loop);
    if (wait_ns <= 0) return FIG_EXIT_FINE;
    if (loop->options->fast) {
        loop->skipped_ns += wait_ns;
    } else {
        const struct timespec wait = {.tv_nsec = (long)(wait_ns < NAP_NS ? wait_ns : NAP_NS)};
        nanosleep(&wait, NULL);
    }
    return FIG_EXIT_FINE;
}

/* Sets *now to the time of this turn, which is the same on all ranks. */
static int tell_time(const serve_loop *loop, int64_t *now) {
    fig_ranks *ranks = loop->options->ranks;
    int64_t all[FIG_RANKS_LIMIT];
    *now = now_ns(loop);
    if (ranks == NULL) return FIG_EXIT_FINE;
    const int is_asked = loop->batch.next < loop->batch.trace->count;
    const fig_status status =
        is_asked ? fig_ranks_all_gather(ranks, now, sizeof *now, all) : fig_ranks_check(ranks);
    if (status != FIG_OK) return fig_report_failure("serve: %s", fig_message());
    if (is_asked) *now = all[0];
    return FIG_EXIT_FINE;
}

static int turn(serve_loop *loop) {
    fig_serve_batch *batch = &loop->batch;
    int64_t now;
    int code = settle(loop, AHEAD - 1);
    if (code == FIG_EXIT_FINE) code = tell_time(loop, &now);
    if (code != FIG_EXIT_FINE) return code;
    fig_serve_batch_arrive(batch, now);
    if (loop->planned > 0 && fig_serve_batch_can_join(batch)) code = take_back(loop);
    if (code == FIG_EXIT_FINE && loop->planned == 0) {
        code = join(loop);
        if (code == FIG_EXIT_FINE && batch->rows == 0) return idle(loop);
        loop->prompt_tokens = fig_serve_batch_share(batch);
        if (code == FIG_EXIT_FINE) code = grow(loop, 0);
        if (code == FIG_EXIT_FINE) code = stage(loop);
    }
    return code == FIG_EXIT_FINE ? launch(loop) : code;
}

/* ---- Running ------------------------------------------------------------------------------- */

static int64_t done_count(const serve_loop *loop) {
    const fig_serve_batch *batch = &loop->batch;
    return batch->next - batch->preempted_count - batch->rows;
}

static int is_over(const serve_loop *loop) {
    return done_count(loop) == loop->options->trace->count && loop->ended == loop->launched;
}

static void draw(serve_loop *loop) {
    const fig_serve_batch *batch = &loop->batch;
    const double seconds = (double)now_ns(loop) / (double)SECOND_NS;
    fig_report_draw(&loop->progress,
                    "%d running, %d waiting, %" PRId64 " of %d done, %.0f tokens/s, %d of %d pages",
                    batch->rows, fig_serve_batch_waiting(batch), done_count(loop),
                    batch->trace->count, (double)loop->result->tokens / seconds,
                    fig_serve_pages_used(&batch->pages), batch->pages.page_count);
}

/* Compares each entry with the page that the batch gave; nothing else ever writes the tables. */
static int check_table(serve_loop *loop, const fig_tensor_info *table) {
    const fig_serve_pages *pages = &loop->batch.pages;
    const size_t count = (size_t)pages->sequence_count * (size_t)pages->sequence_pages;
    int32_t *found = malloc(count * sizeof *found);
    const fig_span span = {
        .size = sizeof span, .name = table->name, .bytes = count * sizeof *found};
    int code = FIG_EXIT_FINE;
    if (found == NULL) return fig_report_refuse("serve: no memory for %zu entries", count);
    if (fig_engine_read(loop->engine, &span, found) != FIG_OK) code = fig_report_status("serve");
    for (size_t i = 0; code == FIG_EXIT_FINE && i < count; i++) {
        if (found[i] == pages->table[i]) continue;
        code = fig_report_failure("serve: %s[%zu][%zu] is %d on the device, %d was given",
                                  table->name, i / (size_t)pages->sequence_pages,
                                  i % (size_t)pages->sequence_pages, found[i], pages->table[i]);
    }
    free(found);
    return code;
}

/* Checks that all ranks did the same and have the same pages for the same sequences. */
static int check_ranks(const serve_loop *loop) {
    const fig_serve_result *result = loop->result;
    const fig_serve_pages *pages = &loop->batch.pages;
    const int64_t done[] = {loop->launched, result->tokens, result->plans, result->rows,
                            loop->batch.preemptions};
    const uint64_t count = (uint64_t)pages->sequence_count * (uint64_t)pages->sequence_pages;
    const fig_ranks_field fields[] = {
        {.name = "what was served", .bytes = done, .count = sizeof done},
        {.name = "the page table", .bytes = pages->table, .count = count * sizeof *pages->table}};
    if (loop->options->ranks == NULL || !loop->options->check ||
        fig_ranks_agree(loop->options->ranks, fields, 2) == FIG_OK)
        return FIG_EXIT_FINE;
    return fig_report_failure("serve: %s", fig_message());
}

/* Checks that every step was launched once, ran once, and found its plan. */
static int check(serve_loop *loop) {
    const fig_engine_stats *stats = &loop->result->stats;
    fig_progress progress = {.size = sizeof progress};
    fig_tensor_info tensor = {.size = sizeof tensor};
    if (fig_engine_poll(loop->engine, &progress) != FIG_OK) return fig_report_status("serve");
    if (stats->missed != 0 || stats->staged != loop->launched ||
        stats->launched != loop->launched || progress.completed != loop->launched) {
        return fig_report_failure("serve: %" PRId64 " steps, but %" PRId64 " staged, %" PRId64
                                  " launched, %" PRId64 " ended, %" PRId64 " without rows",
                                  loop->launched, stats->staged, stats->launched,
                                  progress.completed, stats->missed);
    }
    for (int32_t i = 0; fig_graphs_tensor(loop->options->graphs, i, &tensor) == FIG_OK; i++) {
        if (!loop->options->check || strncmp(tensor.name, "page_table", 10) != 0) continue;
        const int code = check_table(loop, &tensor);
        if (code != FIG_EXIT_FINE) return code;
    }
    return check_ranks(loop);
}

static int is_stopped(const serve_loop *loop) {
    return loop->options->stop != NULL && *loop->options->stop != 0;
}

/* Waits for running steps, and drops steps that were only planned. */
static int wind_up(serve_loop *loop) {
    loop->result->stopped = 1;
    int code = loop->planned > 0 ? take_back(loop) : FIG_EXIT_FINE;
    if (code == FIG_EXIT_FINE) code = settle(loop, 0);
    return code;
}

int fig_serve_run(const fig_serve_options *options, fig_serve_result *result) {
    serve_loop loop = {.options = options, .result = result, .info = {.size = sizeof loop.info}};
    *result = (fig_serve_result){.stats = {.size = sizeof result->stats}};
    assert(options->horizon >= 1);
    fig_graphs_read_info(options->graphs, &loop.info);
    int code = options->has_sums ? FIG_EXIT_FINE
                                 : fig_standard_check(options->graphs, "serve", &loop.score.score);
    if (code == FIG_EXIT_FINE) code = open_loop(&loop);
    if (code == FIG_EXIT_FINE) {
        loop.began_ns = fig_report_now_ns();
        fig_report_begin(&loop.progress, "step", 0);
        while (code == FIG_EXIT_FINE && !is_over(&loop) && !is_stopped(&loop)) {
            code = turn(&loop);
            if (options->live) draw(&loop);
        }
        if (code == FIG_EXIT_FINE && !is_over(&loop)) code = wind_up(&loop);
        fig_report_end(&loop.progress);
        fig_engine_read_stats(loop.engine, &result->stats);
        if (code == FIG_EXIT_FINE) code = check(&loop);
    }
    result->done = done_count(&loop);
    result->compared = loop.outs.compared;
    result->preemptions = loop.batch.preemptions;
    result->pages_most = loop.batch.pages.most_used;
    result->steps = loop.ended;
    result->ns = loop.ended_ns;
    close_loop(&loop);
    return code;
}

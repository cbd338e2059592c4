/* measure.c: measures the time of a step and of its parts.
 *
 * fig_engine_measure() runs one step many times. It uses the engine's own exec of the step's bucket
 * ("own" below), and makes four more execs. `bare` has the step's nodes without the fetch and the
 * look ahead, and runs under the plan that the device holds. `chain` has several copies of the
 * nodes of `bare` in one graph. `empty` has as many launches as the own exec, but they do nothing;
 * `empty_chain` has as many copies of `empty` as `chain` has of `bare`. The two empty execs show
 * the least time that the driver needs. On cuda the program's callbacks are called once more for
 * each copy of the nodes.
 *
 * The host. In every step the rows are one token longer than in the previous step, as in a decode
 * loop. The parts of fig_engine_stage() (check, choose and plan) are timed separately, on memory
 * that the engine does not use. A whole step (stage and launch) and a bare launch (only the
 * driver's call) take turns:
 *
 *     plan for 2  launch  wait  BARE LAUNCH    step  wait  STAGE LAUNCH
 *
 * Both launch the same exec. In the first series the host waits for a slot of the ring, like a loop
 * that runs ahead of the device. In the second series the host waits for the end of the previous
 * step, like a loop that needs the step's tokens. The timed calls of the second series then find an
 * idle device and, because of the wait, colder caches. The cost of reading the clock is subtracted.
 * RESULT is the time from staging a step on an idle device to the end of the wait for that step.
 * EMPTY_RESULT is the same time for an empty graph.
 *
 * The device. A batch is a number of replays of one kind between two marks on the stream. A sample
 * is the time between the marks divided by the number of replays; nothing is subtracted:
 *
 *     chain  own  MARK 0  replay replay ..  MARK 1
 *
 *     fetched   own execs, each with its own plan; the host stages as far as the ring allows
 *     resident  own execs under the plan of the own exec before mark 0; they fetch no new plan
 *     bare      bare execs
 *     chain     as many copies of the nodes as in a batch of bare, but in fewer graphs
 *     empty     empty execs; empty_chain: as many launches, but in fewer graphs
 *     waited    one own exec, staged when the device is idle: nothing else lies between the marks,
 *               so the time includes the launch and the transfer over the bus
 *
 * All kinds of replays use the same lengths, because a few tokens cost more time than the
 * differences to be measured. Each plan is sent whole, as if everything had changed. The chain
 * before mark 0 runs long enough for the host to get ahead, so the device never waits for a launch.
 * The own exec after that chain prefetches the plan of the batch's first replay, as each own replay
 * does for the next one. All batches begin and end alike, so the cost of the marks cancels out in
 * differences. The time of bare minus chain, or of empty minus empty_chain, gives the gaps between
 * graphs. The time of fetched minus resident, or minus bare, gives the cost of a fetch. The kinds
 * take turns batch by batch. Each median is taken over all samples of a kind.
 *
 * Afterwards the engine's counters include all these steps. This file is cold. Invariant: when
 * fig_engine_measure() returns, even after a failure, no step stays staged and nothing runs. */
#include "engine/replay.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/seam/clock.h"
#include "engine/execs/exec_bare.h"
#include "include/figraph_unstable.h"
#include "planner/status.h"

enum {
    STEPS_DEFAULT = 10000,
    STEPS_LIMIT = 1000000,
    GROWTH_LIMIT = 64, /* limit on the number of lengths of a row */
    BATCH = 16,        /* replays between two marks */
    COPIES_LIMIT = 8,  /* copies of the nodes in one graph; BATCH is a multiple of it */
    COPIES_LEAST = 2,
    NODES_LIMIT = 256, /* nodes in a chain; COPIES_LEAST copies may have more */
    /* the largest number of steps that the host runs ahead, even if the ring has more slots */
    DEPTH_LIMIT = 16,
    CLOCK_LOOKS = 255,
    LOOKS_BEFORE_YIELD = 2048 /* in a wait for a slot: some tens of microseconds */
};
static const int64_t PATIENCE_NS = 1000000000;

typedef enum kind {
    CHECK,
    CHOOSE,
    PLAN,
    STEP,
    LAUNCH,
    BARE_LAUNCH,
    IDLE_STEP,
    IDLE_BARE,
    RESULT,
    EMPTY_RESULT,
    FETCHED,
    RESIDENT,
    BARE,
    CHAIN,
    EMPTY,
    EMPTY_CHAIN,
    WAITED,
    KIND_COUNT
} kind;

typedef struct measuring {
    fig_engine *engine;
    fig_step step;        /* the caller's step, with kv_lengths replaced by `lengths` */
    const int32_t *given; /* [rows] the caller's kv_lengths */
    int32_t *lengths;     /* [rows] */
    int32_t base, period; /* lengths run from given + base to given + base + period - 1 */
    int32_t at;           /* index of the next step's lengths in the period */
    uint32_t bucket;
    uint32_t exec; /* launches the bucket's steps */
    int32_t steps;
    int64_t never_fetched; /* launches that found no plan, before measuring began */
    fig_dev_exec *bare, *chain, *empty, *empty_chain;
    int32_t copies; /* number of copies of the nodes in a chain */
    fig_plan_held held;
    uint8_t *slot;   /* scratch for a plan */
    double clock;    /* time to read the clock, in ns */
    double *samples; /* [KIND_COUNT][steps] */
    int32_t counts[KIND_COUNT];
} measuring;

/* ---- Samples ------------------------------------------------------------------------------- */

static void note(measuring *m, kind of, double ns) {
    assert(m->counts[of] < m->steps);
    m->samples[(size_t)of * (size_t)m->steps + (size_t)m->counts[of]++] = ns > 0 ? ns : 0;
}

/* Adds a sample of the time between two readings of the clock. */
static void note_host(measuring *m, kind of, int64_t ns) {
    note(m, of, (double)ns - m->clock);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples, int32_t count) {
    qsort(samples, (size_t)count, sizeof *samples, compare);
    return samples[count / 2];
}

static double median_of(measuring *m, kind of) {
    assert(m->counts[of] > 0);
    return median(m->samples + (size_t)of * (size_t)m->steps, m->counts[of]);
}

static void time_clock(measuring *m) {
    double looks[CLOCK_LOOKS];
    for (int i = 0; i < CLOCK_LOOKS; i++) {
        const int64_t begin_ns = fig_clock_ns();
        looks[i] = (double)(fig_clock_ns() - begin_ns);
    }
    m->clock = median(looks, CLOCK_LOOKS);
}

/* ---- Which lengths, which bucket ----------------------------------------------------------- */

static void lengthen(measuring *m, int32_t tokens) {
    for (int32_t row = 0; row < m->step.rows; row++)
        m->lengths[row] = m->given[row] > 0 ? m->given[row] + tokens : 0;
}

/* Sets the lengths of the next step. */
static void advance(measuring *m) {
    lengthen(m, m->base + m->at);
    m->at = (m->at + 1) % m->period;
}

/* Chooses the bucket for the caller's step after each row that has tokens has grown by `tokens`. */
static fig_status choose(measuring *m, int32_t tokens, int32_t *bucket) {
    fig_plan_step planned;
    *bucket = -1;
    lengthen(m, tokens);
    FIG_TRY(fig_step_check(m->engine->program, &m->step, &m->engine->stamps, &planned));
    return fig_replay_choose(m->engine, &planned, bucket);
}

/* Counts the successive lengths, from `base` on, that stay in one bucket. */
static fig_status count_lengths(measuring *m, int32_t base) {
    int32_t first, next;
    m->base = base;
    m->period = 1;
    FIG_TRY(choose(m, base, &first));
    m->bucket = (uint32_t)first;
    while (m->period < GROWTH_LIMIT && choose(m, base + m->period, &next) == FIG_OK &&
           next == first)
        m->period++;
    return FIG_OK;
}

/* Chooses the lengths to measure. All steps use one bucket, because otherwise the samples would
 * include the time of changing graphs. There are at least two different lengths, so that each step
 * changes them. If the given step fills its bucket, measuring starts one token later. */
static fig_status settle_lengths(measuring *m) {
    const int32_t limit = m->engine->program->spec.kv_limit - 1;
    FIG_TRY(count_lengths(m, 0));
    for (int32_t row = 0; row < m->step.rows; row++)
        if (m->given[row] > limit)
            return fig_fail(FIG_TOO_LARGE,
                            "measure: kv_lengths[%" PRId32 "] is %" PRId32 ", limit %" PRId32
                            ": rows grow by a token in every step",
                            row, m->given[row], limit);
    if (m->period == 1) FIG_TRY(count_lengths(m, 1));
    if (m->period > 1) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE,
                    "measure: bucket %" PRIu32 " holds the step with 1 token more in each row, but "
                    "not with 2",
                    m->bucket + 1);
}

/* ---- Open and finish ----------------------------------------------------------------------- */

static fig_status check_options(const fig_engine *engine, const fig_measure_options *options) {
    if (options->steps < 0 || options->steps > STEPS_LIMIT)
        return fig_fail(FIG_INVALID, "measure: steps is %" PRId32 ", limits 0 to %d",
                        options->steps, STEPS_LIMIT);
    if (!fig_program_view_reads_lengths(engine->program)) return FIG_OK;
    return fig_fail(FIG_UNSUPPORTED,
                    "measure: the program reads lengths on the device, but measuring must change "
                    "them in every step");
}

static fig_status check_step(fig_engine *engine, const fig_step *step) {
    fig_plan_step planned;
    int32_t tokens = 0;
    FIG_TRY(fig_step_check(engine->program, step, &engine->stamps, &planned));
    if (planned.horizon > 1)
        return fig_fail(FIG_INVALID, "measure: horizon is %" PRId32 ", it must be 0 or 1",
                        planned.horizon);
    for (int32_t row = 0; row < planned.rows; row++)
        tokens |= planned.lengths[row];
    if (tokens > 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "measure: rows is %" PRId32 ", and none of them has tokens",
                    planned.rows);
}

static fig_status check_idle(fig_engine *engine) {
    fig_engine_catch_up(engine);
    if (engine->staged == engine->launched) return fig_engine_wait(engine, -1);
    return fig_fail(
        FIG_ORDER, "measure: the engine must be idle, and has %" PRId64 " staged step%s to launch",
        engine->staged - engine->launched, FIG_PLURAL(engine->staged - engine->launched));
}

/* Allocates the host memory for measuring. The caller's options and step have been checked. */
static fig_status open_memory(measuring *m) {
    const size_t rows = (size_t)m->step.rows, samples = (size_t)m->steps * KIND_COUNT;
    m->lengths = calloc(rows, sizeof *m->lengths);
    m->samples = calloc(samples, sizeof *m->samples);
    m->slot = aligned_alloc(64, m->engine->ring.slot_bytes);
    if (m->lengths == NULL || m->samples == NULL || m->slot == NULL)
        return fig_fail(FIG_NOMEM, "measure: %zu samples, %zu rows and a plan of %" PRIu32 " bytes",
                        samples, rows, m->engine->ring.slot_bytes);
    m->step.kv_lengths = m->lengths;
    const fig_plan_held_limits limits = fig_graphs_held_limits(m->engine->graphs);
    return fig_plan_held_init(&m->held, &limits);
}

static fig_status open_empty(measuring *m, int32_t copies, fig_dev_exec **exec) {
    const fig_execs *execs = &m->engine->execs;
    const uint32_t launches = fig_execs_launch_count(execs, m->exec);
    const fig_exec_reading nothing = {.blocks = 1, .launches = launches * (uint32_t)copies};
    return fig_exec_bare_readings(execs, &nothing, exec);
}

/* Chooses the number of copies so that a batch is a whole number of chains, and makes the execs.
 * Every last node of a copy has an edge to every first node of the next copy, so a program of many
 * nodes gets few copies. */
static fig_status open_execs(measuring *m) {
    const fig_execs *execs = &m->engine->execs;
    const int32_t nodes = (int32_t)m->engine->program->node_count;
    FIG_TRY(fig_engine_prepare(m->engine, (int32_t)m->bucket + 1));
    m->exec = fig_engine_exec_of(m->engine, m->bucket);
    m->copies = COPIES_LIMIT;
    while (m->copies > COPIES_LEAST && m->copies * nodes > NODES_LIMIT)
        m->copies /= 2;
    const fig_exec_bare once = {.exec = m->exec, .copies = 1};
    const fig_exec_bare chained = {.exec = m->exec, .copies = (uint32_t)m->copies};
    FIG_TRY(fig_exec_bare_nodes(execs, &once, &m->bare));
    FIG_TRY(fig_exec_bare_nodes(execs, &chained, &m->chain));
    FIG_TRY(open_empty(m, 1, &m->empty));
    return open_empty(m, m->copies, &m->empty_chain);
}

/* Takes back staged steps and frees everything. The status of the wait is ignored: if the wait
 * succeeds nothing runs any more, and if it fails the caller already gets an earlier failure. */
static void finish(measuring *m) {
    fig_engine *engine = m->engine;
    const fig_device_api *api = engine->api;
    while (engine->launched < engine->staged) {
        const int64_t staged = engine->staged;
        fig_engine_take_back(engine);
        if (engine->staged == staged) break;
    }
    api->stream_wait(engine->dev, engine->stream, -1);
    api->exec_destroy(engine->dev, m->bare);
    api->exec_destroy(engine->dev, m->chain);
    api->exec_destroy(engine->dev, m->empty);
    api->exec_destroy(engine->dev, m->empty_chain);
    fig_plan_held_finish(&m->held);
    free(m->slot);
    free(m->samples);
    free(m->lengths);
}

/* ---- Replays ------------------------------------------------------------------------------- */

static int64_t count_ahead(const measuring *m) {
    return m->engine->launched - m->never_fetched - (int64_t)fig_ring_replays(&m->engine->ring);
}

/* Waits until the ring has a slot for one more step. If that takes too long, a plan may be lost;
 * fig_engine_wait() then reports the loss. For a GPU the loop first checks without a pause, and
 * later yields its core after each check. For the host device the loop yields after every check,
 * because the thread that runs the steps, or another process, may need the core. */
static fig_status wait_for_slot(measuring *m) {
    const uint32_t slots = m->engine->ring.slot_count;
    const int64_t depth = slots < DEPTH_LIMIT ? slots : DEPTH_LIMIT;
    const int64_t deadline = fig_clock_ns() + PATIENCE_NS;
    const int32_t patience = m->engine->api->kind == FIG_DEVICE_HOST ? 0 : LOOKS_BEFORE_YIELD;
    for (int32_t looks = 0; count_ahead(m) >= depth && fig_clock_ns() < deadline; looks++)
        if (looks >= patience) sched_yield();
    return count_ahead(m) < depth ? FIG_OK : fig_engine_wait(m->engine, -1);
}

static fig_status replay(measuring *m, fig_dev_exec *exec) {
    return m->engine->api->exec_launch(m->engine->dev, exec, m->engine->stream);
}

static fig_status run_step(measuring *m) {
    advance(m);
    FIG_TRY(wait_for_slot(m));
    FIG_TRY(fig_engine_stage(m->engine, &m->step));
    return fig_engine_launch(m->engine);
}

/* Stages the step for `horizon` launches, all with the current lengths. The rows do not grow, so if
 * the first launch is within the bucket and the limits, the last launch is too. The plan is sent
 * whole. */
static fig_status put(measuring *m, int32_t horizon) {
    fig_plan_step planned;
    int32_t bucket;
    FIG_TRY(wait_for_slot(m));
    FIG_TRY(fig_step_check(m->engine->program, &m->step, &m->engine->stamps, &planned));
    FIG_TRY(fig_replay_choose(m->engine, &planned, &bucket));
    assert(bucket == (int32_t)m->bucket);
    planned.horizon = horizon;
    planned.row_tokens = 0;
    m->engine->held.exec = -1;
    return fig_replay_put(m->engine, &planned, bucket);
}

static fig_status mark(measuring *m, int32_t which) {
    return m->engine->api->stream_mark(m->engine->dev, m->engine->stream, which);
}

/* Launches everything once, so that no sample includes the driver's work at a first launch. The
 * step comes first, because it leaves the plan under which the other execs run. */
static fig_status warm_up(measuring *m) {
    FIG_TRY(run_step(m));
    FIG_TRY(replay(m, m->bare));
    FIG_TRY(replay(m, m->chain));
    FIG_TRY(replay(m, m->empty));
    FIG_TRY(replay(m, m->empty_chain));
    return fig_engine_wait(m->engine, -1);
}

/* ---- The host ------------------------------------------------------------------------------ */

static fig_status time_stage(measuring *m) {
    const fig_plan_shape *shape = &m->engine->graphs->buckets[m->bucket].plan;
    fig_plan_step planned;
    int32_t bucket;
    advance(m);
    const int64_t begin_ns = fig_clock_ns();
    FIG_TRY(fig_step_check(m->engine->program, &m->step, &m->engine->stamps, &planned));
    const int64_t checked_ns = fig_clock_ns();
    FIG_TRY(fig_replay_choose(m->engine, &planned, &bucket));
    const int64_t chosen_ns = fig_clock_ns();
    fig_replay_complete(m->engine, bucket, &planned);
    const uint32_t sections = fig_plan_settle(shape, &planned, &m->held);
    fig_plan_write(shape, &planned, sections, &m->held, m->slot);
    const int64_t planned_ns = fig_clock_ns();
    assert(bucket == (int32_t)m->bucket);
    note_host(m, CHECK, checked_ns - begin_ns);
    note_host(m, CHOOSE, chosen_ns - checked_ns);
    note_host(m, PLAN, planned_ns - chosen_ns);
    return FIG_OK;
}

/* The event that a loop waits for before its next step. */
typedef enum pace {
    AHEAD, /* wait for a free slot of the ring; the device still runs */
    IDLE   /* wait for the end of the previous step */
} pace;

static fig_status keep_pace(measuring *m, pace at) {
    return at == IDLE ? fig_engine_wait(m->engine, -1) : wait_for_slot(m);
}

/* Stages a plan for two launches and times the second launch, which needs no fig_engine_stage(). */
static fig_status time_bare_launch(measuring *m, pace at) {
    fig_engine *engine = m->engine;
    fig_dev_exec *exec = engine->execs.of[m->exec].exec;
    advance(m);
    FIG_TRY(put(m, 2));
    FIG_TRY(fig_engine_launch(m->engine));
    FIG_TRY(keep_pace(m, at));
    const int64_t begin_ns = fig_clock_ns();
    FIG_TRY(engine->api->exec_launch(engine->dev, exec, engine->stream));
    note_host(m, at == IDLE ? IDLE_BARE : BARE_LAUNCH, fig_clock_ns() - begin_ns);
    fig_engine_pass(engine, 1);
    engine->own_launched = engine->launched;
    return FIG_OK;
}

static fig_status time_step(measuring *m, pace at) {
    FIG_TRY(run_step(m));
    FIG_TRY(keep_pace(m, at));
    advance(m);
    const int64_t begin_ns = fig_clock_ns();
    FIG_TRY(fig_engine_stage(m->engine, &m->step));
    const int64_t staged_ns = fig_clock_ns();
    FIG_TRY(fig_engine_launch(m->engine));
    const int64_t end_ns = fig_clock_ns();
    note(m, at == IDLE ? IDLE_STEP : STEP, (double)(end_ns - begin_ns) - 2 * m->clock);
    if (at == AHEAD) note_host(m, LAUNCH, end_ns - staged_ns);
    return FIG_OK;
}

static fig_status time_result(measuring *m) {
    FIG_TRY(fig_engine_wait(m->engine, -1));
    advance(m);
    const int64_t begin_ns = fig_clock_ns();
    FIG_TRY(fig_engine_stage(m->engine, &m->step));
    FIG_TRY(fig_engine_launch(m->engine));
    FIG_TRY(fig_engine_wait(m->engine, -1));
    const int64_t end_ns = fig_clock_ns();
    FIG_TRY(replay(m, m->empty));
    FIG_TRY(fig_engine_wait(m->engine, -1));
    note_host(m, RESULT, end_ns - begin_ns);
    note_host(m, EMPTY_RESULT, fig_clock_ns() - end_ns);
    return FIG_OK;
}

static fig_status time_host(measuring *m) {
    time_clock(m);
    for (int32_t i = 0; i < m->steps; i++)
        FIG_TRY(time_stage(m));
    for (int32_t i = 0; i < m->steps; i++) {
        FIG_TRY(time_bare_launch(m, AHEAD));
        FIG_TRY(time_step(m, AHEAD));
    }
    for (int32_t i = 0; i < m->steps; i++) {
        FIG_TRY(time_bare_launch(m, IDLE));
        FIG_TRY(time_step(m, IDLE));
    }
    for (int32_t i = 0; i < m->steps; i++)
        FIG_TRY(time_result(m));
    return fig_engine_wait(m->engine, -1);
}

/* ---- The device ---------------------------------------------------------------------------- */

static fig_status begin_batch(measuring *m, int32_t horizon) {
    FIG_TRY(replay(m, m->chain));
    FIG_TRY(put(m, horizon));
    FIG_TRY(fig_engine_launch(m->engine));
    return mark(m, 0);
}

static fig_status end_batch(measuring *m, kind of, int32_t replays) {
    double ns;
    FIG_TRY(mark(m, 1));
    FIG_TRY(m->engine->api->stream_between(m->engine->dev, m->engine->stream, &ns));
    note(m, of, ns / replays);
    return FIG_OK;
}

static fig_status time_fetched(measuring *m) {
    FIG_TRY(begin_batch(m, 1));
    for (int32_t i = 0; i < BATCH; i++) {
        FIG_TRY(put(m, 1));
        FIG_TRY(fig_engine_launch(m->engine));
    }
    return end_batch(m, FETCHED, BATCH);
}

static fig_status time_resident(measuring *m) {
    FIG_TRY(begin_batch(m, 1 + BATCH));
    for (int32_t i = 0; i < BATCH; i++)
        FIG_TRY(fig_engine_launch(m->engine));
    return end_batch(m, RESIDENT, BATCH);
}

static fig_status time_nodes(measuring *m, kind of) {
    fig_dev_exec *const execs[] = {
        [BARE] = m->bare, [CHAIN] = m->chain, [EMPTY] = m->empty, [EMPTY_CHAIN] = m->empty_chain};
    const int32_t launches = of == CHAIN || of == EMPTY_CHAIN ? BATCH / m->copies : BATCH;
    FIG_TRY(begin_batch(m, 1));
    for (int32_t i = 0; i < launches; i++)
        FIG_TRY(replay(m, execs[of]));
    return end_batch(m, of, BATCH);
}

static fig_status time_waited(measuring *m) {
    FIG_TRY(fig_engine_wait(m->engine, -1));
    FIG_TRY(put(m, 1));
    FIG_TRY(mark(m, 0));
    FIG_TRY(fig_engine_launch(m->engine));
    return end_batch(m, WAITED, 1);
}

static fig_status time_device(measuring *m) {
    lengthen(m, m->base);
    for (int32_t done = 0; done < m->steps; done += BATCH) {
        FIG_TRY(time_fetched(m));
        FIG_TRY(time_resident(m));
        FIG_TRY(time_nodes(m, BARE));
        FIG_TRY(time_nodes(m, CHAIN));
        FIG_TRY(time_nodes(m, EMPTY));
        FIG_TRY(time_nodes(m, EMPTY_CHAIN));
        for (int32_t i = 0; i < BATCH && done + i < m->steps; i++)
            FIG_TRY(time_waited(m));
    }
    return fig_engine_wait(m->engine, -1);
}

/* ---- The whole measurement ----------------------------------------------------------------- */

/* Returns the gap between two graphs. A batch of single graphs has more gaps than a batch of
 * chains; the difference of their times is the time of the additional gaps. */
static double gap_of(measuring *m, kind graph, kind chain) {
    const int32_t gaps = BATCH - BATCH / m->copies;
    return (median_of(m, graph) - median_of(m, chain)) * BATCH / gaps;
}

static void sum_up(measuring *m, fig_measured *measured) {
    *measured = (fig_measured){
        .bucket = (int32_t)m->bucket + 1,
        .launches = (int32_t)fig_execs_launch_count(&m->engine->execs, m->exec),
        .check_ns = median_of(m, CHECK),
        .choose_ns = median_of(m, CHOOSE),
        .plan_ns = median_of(m, PLAN),
        .launch_ns = median_of(m, LAUNCH),
        .step_ns = median_of(m, STEP),
        .bare_launch_ns = median_of(m, BARE_LAUNCH),
        .idle_step_ns = median_of(m, IDLE_STEP),
        .idle_bare_launch_ns = median_of(m, IDLE_BARE),
        .fetched_ns = median_of(m, FETCHED),
        .waited_ns = median_of(m, WAITED),
        .resident_ns = median_of(m, RESIDENT),
        .bare_ns = median_of(m, BARE),
        .gap_ns = gap_of(m, BARE, CHAIN),
        .empty_gap_ns = gap_of(m, EMPTY, EMPTY_CHAIN),
        .result_ns = median_of(m, RESULT),
        .empty_result_ns = median_of(m, EMPTY_RESULT),
    };
}

static fig_status measure(measuring *m, fig_measured *measured) {
    FIG_TRY(open_memory(m));
    FIG_TRY(settle_lengths(m));
    FIG_TRY(open_execs(m));
    FIG_TRY(warm_up(m));
    FIG_TRY(time_host(m));
    FIG_TRY(time_device(m));
    sum_up(m, measured);
    return FIG_OK;
}

fig_status fig_engine_measure(fig_engine *engine, const fig_measure_options *options,
                              fig_measured *measured) {
    fig_measure_options ours;
    fig_measured result = {0};
    measuring m = {.engine = engine};
    FIG_TRY(fig_status_give(measured, &result, sizeof result, "fig_measured"));
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_measure_options"));
    FIG_TRY(check_options(engine, &ours));
    FIG_TRY(check_idle(engine));
    FIG_TRY(fig_status_take_options(&m.step, sizeof m.step, ours.step, "fig_step"));
    FIG_TRY(check_step(engine, &m.step));
    m.given = m.step.kv_lengths;
    m.steps = ours.steps > 0 ? ours.steps : STEPS_DEFAULT;
    m.never_fetched = engine->launched - (int64_t)fig_ring_replays(&engine->ring);
    fig_status status = measure(&m, &result);
    finish(&m);
    if (status != FIG_OK) return status;
    return fig_status_give(measured, &result, sizeof result, "fig_measured");
}

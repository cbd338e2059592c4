/* race.c: see race.h. */
#include "tests/support/hang.h"
#include "tests/support/steps/race.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/place.h"

enum {
    ROWS = FIG_RACE_ROWS,
    HEAD_DIM = FIG_RACE_HEAD_DIM,
    SEQUENCES = FIG_RACE_SEQUENCES,
    SEQUENCE_PAGES = FIG_RACE_SEQUENCE_PAGES,
    HASTY = 8, /* how many replays are launched while one plan is staged */
    /* a spin yields after this many turns, since both threads may share one core */
    YIELD_AFTER = 64
};

/* ---- The program --------------------------------------------------------------------------- */

static fig_tensor bound(fig_program *program, const char *name, int rank, int64_t d0, int64_t d1,
                        int64_t d2, int64_t d3) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_F32,
                                                   .rank = rank, .dims = {d0, d1, d2, d3}));
}

static void record(fig_program *program) {
    const fig_tensor k = bound(program, "k", 3, FIG_DIM_BATCH, 1, HEAD_DIM, 0);
    const fig_tensor q = bound(program, "q", 3, FIG_DIM_BATCH, 1, HEAD_DIM, 0);
    const fig_tensor out = bound(program, "out", 3, FIG_DIM_BATCH, 1, HEAD_DIM, 0);
    const fig_tensor lse = bound(program, "lse", 2, FIG_DIM_BATCH, 1, 0, 0);
    const fig_tensor table = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                             .dtype = FIG_I32, .rank = 2, .dims = {SEQUENCES, SEQUENCE_PAGES}));
    const fig_cache cache = {
        .k = bound(program, "k_cache", 4, FIG_DIM_PAGES, FIG_RACE_PAGE, 1, HEAD_DIM),
        .v = bound(program, "v_cache", 4, FIG_DIM_PAGES, FIG_RACE_PAGE, 1, HEAD_DIM),
        .page_table = table};
    fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = k, .cache = cache));
    fig_attention(program,
                  FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .lse = lse, .cache = cache));
}

fig_graphs *fig_race_graphs(void) {
    static const fig_bucket buckets[] = {{2, FIG_RACE_KV}, {4, FIG_RACE_KV}, {ROWS, FIG_RACE_KV}};
    fig_program *program;
    fig_graphs *graphs;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = HEAD_DIM,
                           .page_size = FIG_RACE_PAGE,
                           .batch_limit = ROWS,
                           .kv_limit = FIG_RACE_KV,
                           .sequence_limit = SEQUENCES};
    if (fig_program_create(&program, &spec) != FIG_OK) fail_msg("%s", fig_message());
    record(program);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_lower_options how = {.size = sizeof how,
                                   .traits = fig_place_traits(),
                                   .buckets = buckets,
                                   .bucket_count = sizeof buckets / sizeof buckets[0]};
    if (fig_graphs_lower(&graphs, program, &how) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* ---- Errors -------------------------------------------------------------------------------- */

/* Keeps the message if it is the first. Returns 0, which the caller returns too. */
static int wrong(fig_race *race, const char *format, ...) {
    va_list values;
    if (race->sentence[0] != '\0') return 0;
    const int said =
        snprintf(race->sentence, sizeof race->sentence, "launch %" PRId64 ", stretch %" PRId32 ": ",
                 race->launches, race->stretch);
    va_start(values, format);
    vsnprintf(race->sentence + said, sizeof race->sentence - (size_t)said, format, values);
    va_end(values);
    return 0;
}

static int is_ok(fig_race *race, fig_status status, const char *what) {
    if (status == FIG_OK) return 1;
    return wrong(race, "%s: %s: %s", what, fig_status_name(status), fig_message());
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- Open ---------------------------------------------------------------------------------- */

static int bind_zeros(fig_race *race, const char *name, size_t bytes) {
    return is_ok(
        race, fig_engine_bind(race->engine, FIG_OPTIONS(fig_binding, .name = name, .bytes = bytes)),
        name);
}

static int set_pages(fig_race *race, int32_t sequence, int32_t first, int32_t count) {
    const fig_pages pages = {.size = sizeof pages,
                             .sequence = sequence,
                             .first = first,
                             .count = count,
                             .pages = &race->table[sequence][first]};
    return is_ok(race, fig_engine_set_pages(race->engine, &pages), "set_pages");
}

int fig_race_open(fig_race *race, const fig_graphs *graphs, const fig_engine_options *options,
                  uint64_t seed) {
    const size_t row_bytes = HEAD_DIM * sizeof(float), cache_bytes = sizeof race->cache;
    memset(race, 0, sizeof *race);
    race->random = fig_random_seed(seed);
    if (!is_ok(race, fig_engine_open(&race->engine, graphs, options), "open")) return 0;
    if (!bind_zeros(race, "k", ROWS * row_bytes) || !bind_zeros(race, "q", ROWS * row_bytes) ||
        !bind_zeros(race, "out", ROWS * row_bytes) ||
        !bind_zeros(race, "lse", ROWS * sizeof(float)) ||
        !bind_zeros(race, "k_cache", cache_bytes) || !bind_zeros(race, "v_cache", cache_bytes))
        return 0;
    for (int32_t s = 0; s < SEQUENCES; s++) {
        for (int32_t i = 0; i < SEQUENCE_PAGES; i++)
            race->table[s][i] = s * SEQUENCE_PAGES + i;
        if (!set_pages(race, s, 0, SEQUENCE_PAGES)) return 0;
    }
    return is_ok(race, fig_engine_prepare(race->engine, 0), "prepare");
}

void fig_race_close(fig_race *race) {
    fig_engine_close(race->engine);
    race->engine = NULL;
}

/* ---- The model ----------------------------------------------------------------------------- */

/* Returns the contents of a row of k. They differ from those of all other rows, and from those of
 * the same row in the seven stretches before. */
static float number_of(int32_t stretch, int32_t row) {
    return (float)(1 + row + ROWS * (stretch % 8));
}

/* Updates the model by the next launch of the oldest plan. */
static void note_launch(fig_race *race) {
    fig_race_plan *plan = &race->plans[0];
    const int32_t grown = plan->launched++;
    race->launches++;
    race->rows = plan->rows;
    for (int32_t row = 0; row < plan->rows; row++) {
        const int32_t token = plan->tokens[grown][row];
        race->lse[row] = token < 0 ? -INFINITY : log2f((float)(plan->lengths[row] + grown));
        if (token >= 0) race->written[token] = number_of(race->stretch, row);
    }
    if (plan->launched < plan->horizon) return;
    race->plan_count--;
    memmove(race->plans, race->plans + 1, (size_t)race->plan_count * sizeof race->plans[0]);
}

/* ---- Drawing ------------------------------------------------------------------------------- */

/* A step's arrays. They are overwritten as soon as the step is staged. */
typedef struct drawn {
    int32_t lengths[ROWS], sequences[ROWS], positions[ROWS];
    fig_step step;
} drawn;

static int32_t token_of(const fig_race *race, int32_t sequence, int32_t length) {
    const int32_t last = length - 1;
    return race->table[sequence][last / FIG_RACE_PAGE] * FIG_RACE_PAGE + last % FIG_RACE_PAGE;
}

/* Draws rows of any length, some of them idle. Their sequences may be in any order. */
static void draw_rows(fig_race *race, fig_race_rows *rows) {
    int32_t order[SEQUENCES];
    fig_random *random = &race->random;
    for (int32_t i = 0; i < SEQUENCES; i++) { /* shuffles while it fills the array */
        const int32_t j = fig_random_range(random, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    rows->count = fig_random_range(random, 0, ROWS);
    rows->in_place = fig_random_range(random, 0, 1);
    for (int32_t row = 0; row < rows->count; row++) {
        const int32_t length = fig_random_range(random, -8, FIG_RACE_KV - FIG_RACE_HORIZON);
        rows->lengths[row] = length > 0 ? length : 0;
        rows->sequences[row] = rows->in_place ? row : order[row];
    }
}

/* In two of three steps, rows only grow by a token each. The plans of such steps can leave out most
 * sections. */
static void next_rows(fig_race *race, fig_race_rows *rows) {
    const int32_t longest = FIG_RACE_KV - FIG_RACE_HORIZON;
    if (fig_random_range(&race->random, 0, 2) == 0) {
        draw_rows(race, rows);
        return;
    }
    for (int32_t row = 0; row < rows->count; row++)
        if (rows->lengths[row] > 0 && rows->lengths[row] < longest) rows->lengths[row]++;
}

static void draw_step(fig_race *race, drawn *d, fig_race_plan *plan) {
    const fig_race_rows *rows = &race->drawn;
    next_rows(race, &race->drawn);
    const int32_t horizon = fig_random_range(&race->random, -8, FIG_RACE_HORIZON);
    const int32_t stands = fig_random_range(&race->random, 0, 3);
    *plan = (fig_race_plan){.rows = rows->count, .horizon = horizon > 1 ? horizon : 1};
    for (int32_t row = 0; row < rows->count; row++) {
        const int32_t length = rows->lengths[row];
        d->lengths[row] = plan->lengths[row] = length;
        d->sequences[row] = rows->sequences[row];
        d->positions[row] = fig_random_range(&race->random, 0, 1000);
        for (int32_t i = 0; i < plan->horizon; i++)
            plan->tokens[i][row] = length > 0 ? token_of(race, d->sequences[row], length + i) : -1;
    }
    d->step = (fig_step){.size = sizeof d->step,
                         .rows = rows->count,
                         .kv_lengths = d->lengths,
                         .sequences = rows->in_place ? NULL : d->sequences,
                         .positions = stands == 0 ? d->positions : NULL,
                         .horizon = plan->horizon};
}

/* ---- Making steps -------------------------------------------------------------------------- */

/* Makes one turn of a spin. Returns 0 if the spin has lasted too long. */
static int spin(fig_race *race, int64_t *turns, int64_t *deadline_us, const char *what) {
    if (++*turns % YIELD_AFTER != 0) return 1;
    sched_yield();
    const int64_t now = now_us();
    if (*deadline_us == 0) *deadline_us = now + FIG_HANG_US;
    return now < *deadline_us || wrong(race, "%s is FIG_BUSY for ever", what);
}

static int launch_one(fig_race *race) {
    int64_t turns = 0, deadline_us = 0;
    fig_status status = fig_engine_launch(race->engine);
    while (status == FIG_BUSY) {
        if (!spin(race, &turns, &deadline_us, "launch")) return 0;
        status = fig_engine_launch(race->engine);
    }
    if (!is_ok(race, status, "launch")) return 0;
    note_launch(race);
    return 1;
}

static int launch_all(fig_race *race) {
    while (race->plan_count > 0)
        if (!launch_one(race)) return 0;
    return 1;
}

/* If the ring is full, launches a staged step before it tries again, since only launches empty the
 * ring. */
static int stage(fig_race *race, drawn *d, const fig_race_plan *plan) {
    int64_t turns = 0, deadline_us = 0;
    fig_status status = fig_engine_stage(race->engine, &d->step);
    while (status == FIG_BUSY) {
        if (race->plan_count > 0) {
            if (!launch_one(race)) return 0;
        } else if (!spin(race, &turns, &deadline_us, "stage")) {
            return 0;
        }
        status = fig_engine_stage(race->engine, &d->step);
    }
    if (!is_ok(race, status, "stage")) return 0;
    memset(d, 0x7f, sizeof *d); /* staging has read the arrays before it returned */
    if (race->plan_count == FIG_RACE_PLANS)
        return wrong(race, "more is staged than there are slots");
    race->plans[race->plan_count++] = *plan;
    return 1;
}

/* Launches all plans before the newest one, and then `count` launches of that plan, which has more
 * than these. If `count` is 0, launches nothing. */
static int launch_some(fig_race *race, int32_t count) {
    while (count > 0 && (race->plan_count > 1 || race->plans[0].launched < count))
        if (!launch_one(race)) return 0;
    return 1;
}

/* Takes back the newest plan after `kept` of its launches. settled 1: first waits until everything
 * that was staged before has ended, so that the device has already prefetched this plan. */
static int take_back(fig_race *race, int32_t kept, int32_t settled) {
    while (settled && race->plan_count > 1)
        if (!launch_one(race)) return 0;
    if (!launch_some(race, kept)) return 0;
    if (settled && !is_ok(race, fig_engine_wait(race->engine, FIG_HANG_US), "wait")) return 0;
    race->plan_count--;
    race->taken_back++;
    return is_ok(race, fig_engine_take_back(race->engine), "take_back");
}

/* Swaps two entries of any sequences, or sets all entries of two sequences, which are then copied
 * ahead of plans. Whether a staged step sees such a copy is undefined, so all staged steps are
 * launched before. */
static int change_pages(fig_race *race) {
    fig_random *random = &race->random;
    const int32_t what = fig_random_range(random, 0, 15);
    const int32_t s = fig_random_range(random, 0, SEQUENCES - 1);
    const int32_t t = fig_random_range(random, 0, SEQUENCES - 1);
    const int32_t i = fig_random_range(random, 0, SEQUENCE_PAGES - 1);
    const int32_t j = fig_random_range(random, 0, SEQUENCE_PAGES - 1);
    if (what > 4) return 1;
    if (what == 0 && !launch_all(race)) return 0;
    const int32_t page = race->table[s][i];
    race->table[s][i] = race->table[t][j];
    race->table[t][j] = page;
    if (what == 0)
        return set_pages(race, s, 0, SEQUENCE_PAGES) && set_pages(race, t, 0, SEQUENCE_PAGES);
    return set_pages(race, s, i, 1) && set_pages(race, t, j, 1);
}

static void pause_us(int32_t us) {
    const int64_t until = us > 0 ? now_us() + us : 0;
    while (us > 0 && now_us() < until)
        ;
}

static int look(fig_race *race) {
    fig_progress progress = {.size = sizeof progress};
    if (!is_ok(race, fig_engine_poll(race->engine, &progress), "poll")) return 0;
    if (progress.fault != FIG_OK)
        return wrong(race, "poll finds %s", fig_status_name(progress.fault));
    if (progress.launched == race->launches && progress.completed <= progress.launched) return 1;
    return wrong(race, "poll: %" PRId64 " launched, %" PRId64 " completed", progress.launched,
                 progress.completed);
}

/* Makes one step. Some steps are taken back, at once or after their first launches; some are
 * launched; and some stay staged. */
static int make_step(fig_race *race) {
    drawn d;
    fig_race_plan plan;
    if (!change_pages(race)) return 0;
    draw_step(race, &d, &plan);
    const int32_t then = fig_random_range(&race->random, 0, 15);
    const int32_t drawn_kept = fig_random_range(&race->random, 0, FIG_RACE_HORIZON - 1);
    const int32_t kept = drawn_kept < plan.horizon ? drawn_kept : 0;
    /* A pause now and then lets the device wait for the host, which is ahead otherwise. */
    pause_us(fig_random_range(&race->random, -200, 40));
    if (!stage(race, &d, &plan)) return 0;
    if (then < 2) return take_back(race, kept, drawn_kept % 2);
    if (then == 2 && !look(race)) return 0;
    if (then < 6) return launch_some(race, kept);
    return then < 9 ? 1 : launch_all(race);
}

/* ---- The end of a stretch ------------------------------------------------------------------ */

static int read_tensor(fig_race *race, const char *name, void *to, size_t bytes) {
    const fig_span span = {.size = sizeof span, .name = name, .bytes = bytes};
    return is_ok(race, fig_engine_read(race->engine, &span, to), name);
}

static int compare(fig_race *race, const char *when) {
    float lse[ROWS];
    if (!read_tensor(race, "lse", lse, sizeof lse)) return 0;
    if (!read_tensor(race, "k_cache", race->cache, sizeof race->cache)) return 0;
    for (int32_t row = 0; row < race->rows; row++) {
        const float want = race->lse[row];
        if (lse[row] == want || fabsf(lse[row] - want) < 1e-3f) continue;
        return wrong(race, "%s: lse[%" PRId32 "] is %g, want %g", when, row, (double)lse[row],
                     (double)want);
    }
    for (int32_t token = 0; token < FIG_RACE_TOKENS; token++) {
        const float *found = race->cache[token], want = race->written[token];
        if (found[0] == want && found[HEAD_DIM - 1] == want) continue;
        return wrong(race, "%s: token %" PRId32 " of the cache is %g .. %g, want %g", when, token,
                     (double)found[0], (double)found[HEAD_DIM - 1], (double)want);
    }
    return 1;
}

static int check_counts(fig_race *race) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine_read_stats(race->engine, &stats);
    const uint64_t torn = fig_ring_torn(&race->engine->ring);
    if (torn != 0) return wrong(race, "%" PRIu64 " plans were torn", torn);
    if (stats.missed == race->early && stats.launched == race->launches) return 1;
    return wrong(race, "%" PRId64 " missed, want %" PRId64 "; %" PRId64 " launched, want %" PRId64,
                 stats.missed, race->early, stats.launched, race->launches);
}

/* Launches a bucket's graph without a staged plan and without telling the engine, as a caller's
 * graph might be launched. */
static int replay_bare(fig_race *race, int32_t bucket, int32_t times) {
    fig_engine *engine = race->engine;
    fig_dev_exec *exec = engine->execs.of[fig_engine_exec_of(engine, (uint32_t)bucket - 1)].exec;
    for (int32_t i = 0; i < times; i++)
        if (!is_ok(race, engine->api->exec_launch(engine->dev, exec, engine->stream), "replay"))
            return 0;
    return 1;
}

static int wait_for_misses(fig_race *race) {
    const fig_status status = fig_engine_wait(race->engine, FIG_HANG_US);
    if (status == FIG_DRIVER) return 1;
    return wrong(race, "a replay of nothing: wait says %s", fig_status_name(status));
}

/* Uses the bucket of the last step, since stale plans belong to that bucket too. */
static int replay_early(fig_race *race) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine_read_stats(race->engine, &stats);
    if (stats.last_bucket == 0) return 1;
    race->early++;
    return replay_bare(race, stats.last_bucket, 1) && wait_for_misses(race) &&
           compare(race, "a replay of nothing");
}

/* Stages a plan while replays are arriving that may take it. Elsewhere a launch makes sure that the
 * replay comes after the plan; here only the plan's tag protects it. */
static int replay_hastily(fig_race *race) {
    drawn d;
    fig_race_plan plan;
    fig_plan_report report = {.size = sizeof report};
    fig_progress progress = {.size = sizeof progress};
    draw_step(race, &d, &plan);
    d.step.horizon = plan.horizon = 1;
    if (!is_ok(race, fig_graphs_plan(race->engine->graphs, &d.step, &report), "plan")) return 0;
    if (!replay_bare(race, report.bucket, HASTY) || !stage(race, &d, &plan)) return 0;
    if (!wait_for_misses(race)) return 0;
    if (!is_ok(race, fig_engine_poll(race->engine, &progress), "poll")) return 0;
    const int taken = progress.launched == race->launches + 1;
    race->early += HASTY - taken;
    race->hasty += taken;
    if (taken) note_launch(race);
    return launch_all(race) && is_ok(race, fig_engine_wait(race->engine, FIG_HANG_US), "wait") &&
           compare(race, "a hasty replay");
}

/* Gives the rows other numbers. Call it while nothing runs. */
static int begin_stretch(fig_race *race) {
    float k[ROWS][HEAD_DIM];
    const fig_span span = {.size = sizeof span, .name = "k", .bytes = sizeof k};
    race->stretch++;
    for (int32_t i = 0; i < ROWS * HEAD_DIM; i++)
        k[i / HEAD_DIM][i % HEAD_DIM] = number_of(race->stretch, i / HEAD_DIM);
    return is_ok(race, fig_engine_write(race->engine, &span, k), "write");
}

static int end_stretch(fig_race *race) {
    const int32_t then = fig_random_range(&race->random, 0, 3);
    if (!launch_all(race)) return 0;
    if (!is_ok(race, fig_engine_wait(race->engine, FIG_HANG_US), "wait")) return 0;
    if (!check_counts(race) || !compare(race, "at the end")) return 0;
    if (then == 0 && !replay_early(race)) return 0;
    if (then == 1 && !replay_hastily(race)) return 0;
    return check_counts(race);
}

int fig_race_run(fig_race *race, int64_t steps, int32_t stretch) {
    while (steps > 0) {
        if (!begin_stretch(race)) return 0;
        int32_t count = fig_random_range(&race->random, 1, stretch);
        for (; count > 0 && steps > 0; count--, steps--)
            if (!make_step(race)) return 0;
        if (!end_stretch(race)) return 0;
    }
    return race->sentence[0] == '\0';
}

/* cmd_replay.c: figraph replay, which loads a .fig file and runs steps of synthetic data.
 *
 * For each step the command writes inputs, runs the step, waits for its end and, with --check,
 * compares the outputs. Only the step and its wait are timed. The engine refuses programs with
 * calls, because this command has no callbacks. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/step/check.h"
#include "tools/figraph/step/session.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/step/trusted.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/lengths.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/vocabulary.h"

enum { STEPS_LIMIT = 1000000, DEFAULT_ROWS = 8 };
static const int64_t WAIT_US = 60000000;

/* The measurements of one step. */
typedef struct sample {
    int32_t bucket;
    double worst_ulp;
    int64_t ns;
} sample;

/* The measurements of all steps of one bucket. */
typedef struct bucket_summary {
    fig_bucket_info info;
    int32_t bucket, steps;
    double worst_ulp;
    int64_t median_ns;
} bucket_summary;

typedef struct replay {
    const char *path;
    fig_device device;
    fig_trusted trusted;
    const fig_trust *trust; /* the file's kernels that may run; NULL: use the library's own */
    fig_compiled compiled;
    int32_t rows, steps;
    uint64_t seed;
    int checked, json;
    fig_lengths start;
    fig_graphs *graphs;
    fig_session session;
    fig_schedule schedule;
    fig_check check;
    sample *samples; /* [steps]; summarise sorts the first `ran` of them by bucket */
    int32_t ran, idle_rows;
    int64_t tokens, row_count;
    bucket_summary *summaries; /* [summary_count] */
    int32_t summary_count;
} replay_run;

/* Finds the most rows of a step. The buckets may take fewer than the spec allows. */
static int find_most_rows(const fig_graphs *graphs, const fig_graphs_info *info, int32_t *most) {
    fig_bucket_info of = {.size = sizeof of};
    *most = 0;
    for (int32_t n = 1; n <= info->bucket_count; n++) {
        if (fig_graphs_bucket(graphs, n, &of) != FIG_OK) return fig_report_status("replay");
        if (of.bucket.batch > *most) *most = of.bucket.batch;
    }
    if (info->spec->sequence_limit < *most) *most = info->spec->sequence_limit;
    return FIG_EXIT_FINE;
}

static int read_rows(const fig_arguments *arguments, replay_run *replay) {
    fig_graphs_info info = {.size = sizeof info};
    int32_t most;
    fig_graphs_read_info(replay->graphs, &info);
    int code = find_most_rows(replay->graphs, &info, &most);
    if (code != FIG_EXIT_FINE) return code;
    fig_integer range = {.name = "--rows", .least = 1, .most = most, .fallback = DEFAULT_ROWS};
    const char *text = fig_arguments_text(arguments, "--kv");
    int64_t rows;
    if (text != NULL) {
        code = fig_lengths_parse(&replay->start, text, "replay: --kv");
        if (code != FIG_EXIT_FINE) return code;
        range.fallback = replay->start.count;
    }
    if (range.fallback > most && text == NULL) range.fallback = most;
    code = fig_arguments_integer(arguments, &range, &rows);
    if (code != FIG_EXIT_FINE) return code;
    if (rows > most) {
        return fig_report_refuse("replay: --kv: %" PRId64 " lengths, %s takes at most %d rows",
                                 rows, replay->path, most);
    }
    replay->rows = (int32_t)rows;
    if (text == NULL) return FIG_EXIT_FINE;
    code = fig_lengths_repeat(&replay->start, replay->rows, "replay: --kv");
    for (int32_t r = 0; code == FIG_EXIT_FINE && r < replay->rows; r++) {
        int32_t length = replay->start.values[r];
        if (length > 0 && length < fig_schedule_least(info.spec))
            code = fig_report_refuse("replay: --kv: %d tokens, but a row of %s has %d queries",
                                     length, replay->path, fig_schedule_least(info.spec));
        if (length > info.spec->kv_limit)
            code = fig_report_refuse("replay: --kv: %d tokens, a sequence of %s has at most %d",
                                     length, replay->path, info.spec->kv_limit);
    }
    return code;
}

static int read_arguments(const fig_arguments *arguments, replay_run *replay) {
    fig_integer steps_range = {.name = "--steps", .least = 1, .most = STEPS_LIMIT};
    fig_integer seed_range = {.name = "--seed", .least = 0, .most = INT64_MAX, .fallback = 1};
    int64_t steps, seed;
    int code = fig_arguments_integer(arguments, &steps_range, &steps);
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &seed_range, &seed);
    if (code == FIG_EXIT_FINE) code = fig_source_read_device(arguments, &replay->device);
    if (code == FIG_EXIT_FINE) code = fig_compiled_read(arguments, &replay->compiled);
    if (code != FIG_EXIT_FINE) return code;
    replay->path = arguments->operand;
    replay->steps = (int32_t)steps;
    replay->seed = (uint64_t)seed;
    replay->checked = fig_arguments_text(arguments, "--check") != NULL;
    replay->json = fig_arguments_text(arguments, "--json") != NULL;
    const char *list = fig_arguments_text(arguments, "--trust");
    if (list != NULL) code = fig_trusted_read(&replay->trusted, list, "replay: --trust");
    if (code != FIG_EXIT_FINE) return code;
    if (list != NULL) replay->trust = &replay->trusted.trust;
    if (fig_graphs_load(&replay->graphs, replay->path) != FIG_OK) {
        return fig_report_status(replay->path);
    }
    return read_rows(arguments, replay);
}

static int open_replay(replay_run *replay) {
    fig_session_options options = {
        .graphs = replay->graphs,
        .device = replay->device,
        .trust = replay->trust,
        .compiled = replay->compiled,
        .schedule = {.graphs = replay->graphs,
                     .rows = replay->rows,
                     .steps = replay->steps,
                     .start = replay->start.count > 0 ? &replay->start : NULL,
                     .seed = replay->seed}};
    replay->samples = calloc((size_t)replay->steps, sizeof *replay->samples);
    replay->summaries = calloc((size_t)replay->steps, sizeof *replay->summaries);
    if (replay->samples == NULL || replay->summaries == NULL) {
        return fig_report_refuse("replay: no memory for %d steps", replay->steps);
    }
    int code = fig_schedule_init(&replay->schedule, &options.schedule);
    return code == FIG_EXIT_FINE ? fig_session_open(&replay->session, &options) : code;
}

/* The step names the sequence of each row, because rows and sequences are in different orders. */
static int run_step(replay_run *replay) {
    fig_session *session = &replay->session;
    const fig_schedule *schedule = &replay->schedule;
    sample *sample_of = &replay->samples[replay->ran];
    fig_engine_stats stats = {.size = sizeof stats};
    fig_step step = {.size = sizeof step,
                     .rows = schedule->rows,
                     .kv_lengths = schedule->lengths,
                     .query_counts = schedule->is_packed ? schedule->queries : NULL,
                     .sequences = session->sequences};
    int code = fig_session_prepare(session, &step);
    if (code != FIG_EXIT_FINE) return code;
    int64_t began = fig_report_now_ns();
    fig_status status = fig_engine_step(session->engine, &step);
    if (status == FIG_OK) status = fig_engine_wait(session->engine, WAIT_US);
    if (status != FIG_OK) return fig_report_status("replay");
    sample_of->ns = fig_report_now_ns() - began;
    fig_engine_read_stats(session->engine, &stats);
    sample_of->bucket = stats.last_bucket;
    for (int32_t r = 0; r < schedule->rows; r++) {
        replay->tokens += schedule->lengths[r];
        replay->idle_rows += schedule->lengths[r] == 0;
    }
    replay->row_count += schedule->rows;
    replay->ran++;
    if (!replay->checked) return FIG_EXIT_FINE;
    double worst_before = replay->check.worst_ulp;
    replay->check.worst_ulp = 0;
    code = fig_check_step(&replay->check, session, schedule);
    sample_of->worst_ulp = replay->check.worst_ulp;
    if (worst_before > replay->check.worst_ulp) replay->check.worst_ulp = worst_before;
    return code;
}

static int run_steps(replay_run *replay) {
    fig_report_progress progress;
    int code = FIG_EXIT_FINE;
    fig_report_begin(&progress, "step", replay->steps);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < replay->steps; i++) {
        fig_schedule_advance(&replay->schedule);
        code = fig_session_feed(&replay->session, &replay->schedule);
        if (code == FIG_EXIT_FINE) code = run_step(replay);
        fig_report_advance(&progress, i + 1);
    }
    if (code == FIG_EXIT_FINE && replay->checked) {
        code = fig_check_caches(&replay->check, &replay->session);
    }
    fig_report_end(&progress);
    return code;
}

static int compare_samples(const void *a, const void *b) {
    const sample *x = a, *y = b;
    if (x->bucket != y->bucket) return x->bucket < y->bucket ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

static int summarise(replay_run *replay) {
    qsort(replay->samples, (size_t)replay->ran, sizeof(sample), compare_samples);
    for (int32_t i = 0; i < replay->ran;) {
        int32_t first = i;
        bucket_summary *summary = &replay->summaries[replay->summary_count++];
        summary->bucket = replay->samples[first].bucket;
        summary->info.size = sizeof summary->info;
        if (fig_graphs_bucket(replay->graphs, summary->bucket, &summary->info) != FIG_OK)
            return fig_report_status("replay");
        for (; i < replay->ran && replay->samples[i].bucket == summary->bucket; i++) {
            double worst = replay->samples[i].worst_ulp;
            if (worst > summary->worst_ulp) summary->worst_ulp = worst;
        }
        summary->steps = i - first;
        summary->median_ns = replay->samples[first + summary->steps / 2].ns;
    }
    return FIG_EXIT_FINE;
}

static void print_buckets(const replay_run *replay) {
    char tokens[FIG_REPORT_NUMBER], us[FIG_REPORT_NUMBER];
    printf("  bucket: rows     tokens   worker: heads  tile   steps   %11s   %s\n",
           replay->checked ? "worst error" : "", fig_report_wide() ? "µs/step" : "us/step");
    for (int32_t i = 0; i < replay->summary_count; i++) {
        const bucket_summary *summary = &replay->summaries[i];
        const fig_bucket *caps = &summary->info.bucket;
        char worst[24] = "";
        if (replay->checked) snprintf(worst, sizeof worst, "%.2f ulp", summary->worst_ulp);
        printf("  %12d %10s   %13d  %4d   %5d   %11s   %7s\n", caps->batch,
               fig_report_number(tokens, (int64_t)caps->batch * caps->kv),
               fig_report_heads(replay->graphs, &summary->info), summary->info.tile_tokens,
               summary->steps, worst, fig_report_number(us, (summary->median_ns + 500) / 1000));
    }
}

static void print_replay(const replay_run *replay) {
    char a[FIG_REPORT_COUNT], b[FIG_REPORT_COUNT];
    fig_report_name(replay->path);
    printf(" on %s\n\n", fig_source_device_name(fig_engine_device(replay->session.engine)));
    print_buckets(replay);
    printf("\n  %s, %s, ", fig_report_count(a, replay->ran, "step"),
           fig_report_count(b, replay->row_count, "row"));
    printf("%s of them idle, %s read\n", fig_report_number(a, replay->idle_rows),
           fig_report_count(b, replay->tokens, "token"));
    if (replay->checked)
        printf("  %s compared with float64: all right\n",
               fig_report_count(a, replay->check.elements, "number"));
}

static void emit_replay(const replay_run *replay, int code) {
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "file", replay->path);
    fig_emit_text(&emit, "device",
                  fig_source_device_name(fig_engine_device(replay->session.engine)));
    fig_emit_integer(&emit, "steps", replay->ran);
    fig_emit_integer(&emit, "all_rows", replay->row_count);
    fig_emit_integer(&emit, "idle_rows", replay->idle_rows);
    fig_emit_integer(&emit, "kv_tokens", replay->tokens);
    fig_emit_truth(&emit, "checked", replay->checked);
    if (replay->checked) {
        fig_emit_truth(&emit, "passed", code == FIG_EXIT_FINE);
        fig_emit_integer(&emit, "compared", replay->check.elements);
        fig_emit_number(&emit, "worst_ulp", replay->check.worst_ulp);
    }
    fig_emit_array(&emit, "buckets");
    for (int32_t i = 0; i < replay->summary_count; i++) {
        const bucket_summary *summary = &replay->summaries[i];
        fig_vocabulary_open_bucket(&emit, NULL, summary->bucket, &summary->info);
        fig_emit_integer(&emit, "steps", summary->steps);
        if (replay->checked) fig_emit_number(&emit, "worst_ulp", summary->worst_ulp);
        fig_emit_object(&emit, "step_ns");
        fig_emit_integer(&emit, "p50", summary->median_ns);
        fig_emit_close(&emit);
        fig_emit_close(&emit);
    }
    fig_emit_close(&emit);
    fig_emit_close(&emit);
}

static int run(const fig_arguments *arguments) {
    replay_run replay = {0};
    int code = read_arguments(arguments, &replay);
    if (code == FIG_EXIT_FINE) code = open_replay(&replay);
    if (code == FIG_EXIT_FINE) {
        code = run_steps(&replay);
        if (code != FIG_EXIT_BAD && summarise(&replay) != FIG_EXIT_FINE) code = FIG_EXIT_BAD;
        if (code != FIG_EXIT_BAD && replay.json) emit_replay(&replay, code);
        if (code == FIG_EXIT_FINE && !replay.json) print_replay(&replay);
    }
    fig_session_close(&replay.session);
    fig_schedule_finish(&replay.schedule);
    fig_graphs_destroy(replay.graphs);
    fig_lengths_finish(&replay.start);
    free(replay.summaries);
    free(replay.samples);
    return code;
}

const fig_command fig_cmd_replay = {
    .name = "replay",
    .summary = "load a .fig file and run steps of synthetic data",
    .operand = "FILE",
    .notes =
        "Each sequence grows by one token per step. Without --kv, sequences join one after "
        "another, so that the steps go through several buckets. When a sequence reaches the kv "
        "limit, it ends and a new one begins in its row.",
    .failure = "--check found a wrong number",
    .example = "figraph replay tutorial.fig --steps 64 --check",
    .run = run,
    .options =
        {
            {"--steps", "N", "the number of steps", FIG_OPTION_REQUIRED},
            {"--check", NULL, "compare every output of every step with float64"},
            {"--rows", "N",
             "rows of a step; default: the number of lengths in --kv, or 8 if a bucket takes as "
             "many"},
            {"--kv", "LENS", "kv lengths of the first step; see figraph plan --help"},
            FIG_SOURCE_DEVICE,
            {"--trust", "LIST", "run kernels stored in FILE; LIST is a file of their SHA-256"},
            FIG_COMPILED_OPTIONS,
            {"--seed", "S", "the seed of the synthetic data; default 1"},
            {"--json", NULL, "print an object"},
        },
};

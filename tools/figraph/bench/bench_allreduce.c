/* bench_allreduce.c: figraph bench allreduce, which times all-reduces by each route.
 *
 * Ranks are threads of this process, each with its own GPU. A program is a chain of sums, each of
 * which reads the result of the one before. Every rank first runs it once and compares the result
 * with float64; then all ranks replay it equally often. Invariant: all ranks open, check and time
 * the same programs in the same order, so that they meet in each of them. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_parallel.h>
#include <figraph_ranks.h>
#include <figraph_unstable.h>

#include "tools/figraph/bench/bench_parts.h"
#include "tools/figraph/bench/bench_rig.h"
#include "tools/figraph/terminal/lengths.h"
#include "tools/figraph/terminal/report.h"

enum {
    CHAIN = 20, /* sums in a program */
    REPLAYS = 10,
    SAMPLES = 9,
    RANK_LIMIT = 8,
    SIZE_LIMIT = 32,
    ROW_LIMIT = 1024, /* of a spec */
    WIDTH = 4096,
    KV_LIMIT = 16,
    TIMEOUT_US = 20000000
};
static const char DEFAULT_ROWS[] = "1,2,4,8,16,32,64,128,256,512";
static const char HOST_ROWS[] = "1,3";
/* The tolerance relative to the expected value: all sums of a chain may round in one direction. */
static const double TOLERANCE = CHAIN / 256.0;

/* The routes in the order of their columns: first each forced route, then the library's choice
 * without a norm and with one. */
enum { WAY_CHOSEN = 3, WAY_NORMED, WAY_COUNT };
static const struct way {
    const char *column;
    uint32_t routes;
    int normed;
} ways[WAY_COUNT] = {
    {"one_shot_us", FIG_ROUTE_ONE_SHOT, 0},
    {"two_shot_us", FIG_ROUTE_TWO_SHOT, 0},
    {"nccl_us", FIG_ROUTE_NCCL, 0},
    {"us", 0, 0},
    {"normed_us", 0, 1},
};

static const fig_bench_column columns[] = {
    {"device", 0, -1},   {"chip", 6, -1},         {"ranks", 5, 0},        {"width", 6, 0},
    {"rows", 5, 0},      {"bytes", 9, 0},         {"one_shot_us", 11, 2}, {"two_shot_us", 11, 2},
    {"nccl_us", 8, 2},   {"family", 9, -1},       {"us", 7, 2},           {"of_nccl", 7, 3},
    {"normed_us", 9, 2}, {"norm_adds_us", 12, 2}, {NULL, 0, 0},
};

typedef struct bench {
    fig_bench_machine machine;
    int32_t ranks, width;
    fig_lengths rows;      /* the rows of each message */
    fig_graphs *graphs[2]; /* [normed] */
    fig_bench_table table;
} bench;

/* One rank, a thread. */
typedef struct member {
    const bench *of;
    fig_ranks *group;
    int32_t rank;
    pthread_t thread;
    int code;                         /* FIG_EXIT_* */
    double us[WAY_COUNT][SIZE_LIMIT]; /* NAN: this group does not have the route */
    char family[SIZE_LIMIT][16];      /* the family that the library chose */
} member;

/* ---- Programs ------------------------------------------------------------------------------ */

static fig_tensor rows_of(const bench *b, fig_program *program, const char *name) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, b->width}));
}

static void record(const bench *b, fig_program *program, int normed) {
    const fig_tensor ends[] = {rows_of(b, program, "a"), rows_of(b, program, "b")};
    fig_rms_norm_op norm = {.size = sizeof norm};
    if (normed) {
        norm.residual = rows_of(b, program, "residual");
        norm.weight = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = "weight", .role = FIG_ROLE_BOUND,
                                 .dtype = FIG_BF16, .rank = 1, .dims = {b->width}));
    }
    for (int i = 0; i < CHAIN; i++) {
        norm.in = ends[i % 2];
        norm.out = ends[1 - i % 2];
        if (normed) {
            fig_all_reduce_add_rms_norm(program, &norm);
        } else {
            fig_all_reduce(program, FIG_OPTIONS(fig_all_reduce_op, .in = norm.in, .out = norm.out));
        }
    }
}

static int32_t most_rows(const bench *b) {
    int32_t most = 1;
    for (int32_t i = 0; i < b->rows.count; i++)
        if (b->rows.values[i] > most) most = b->rows.values[i];
    return most;
}

/* Lowers a program with one bucket for each message size. */
static fig_status lower(bench *b, int normed) {
    fig_bucket buckets[SIZE_LIMIT];
    fig_program *program;
    for (int32_t i = 0; i < b->rows.count; i++)
        buckets[i] = (fig_bucket){b->rows.values[i], KV_LIMIT};
    const fig_lower_options options = {.size = sizeof options,
                                       .traits = &b->machine.traits,
                                       .buckets = buckets,
                                       .bucket_count = b->rows.count};
    fig_status status = fig_program_create(&program, FIG_OPTIONS(fig_spec, .dtype = FIG_BF16,
                                                                 .batch_limit = most_rows(b),
                                                                 .kv_limit = KV_LIMIT));
    if (status != FIG_OK) return status;
    record(b, program, normed);
    status = fig_program_finish(program);
    if (status == FIG_OK) status = fig_graphs_lower(&b->graphs[normed], program, &options);
    fig_program_destroy(program);
    return status;
}

/* ---- One rank ------------------------------------------------------------------------------ */

static fig_status bind_all(fig_engine *engine, const fig_graphs *graphs) {
    fig_tensor_info info = {.size = sizeof info};
    fig_status status = FIG_OK;
    for (int32_t i = 0; status == FIG_OK && fig_graphs_tensor(graphs, i, &info) == FIG_OK; i++)
        status = fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = info.name));
    return status;
}

/* Converts to bf16 a number that bf16 holds exactly. */
static uint16_t exactly(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Returns the value of element i; rank r contributes r + 1 times this value. */
static float given(int64_t i) {
    return 1.0f + (float)(i % 4) / 4;
}

/* Fills elements with `times` times given(i), or with 1 if `times` is 0. */
static fig_status fill(fig_engine *engine, const char *name, int64_t count, int32_t times) {
    const fig_span span = {.size = sizeof span, .name = name, .bytes = (uint64_t)count * 2};
    uint16_t *values = malloc(span.bytes);
    for (int64_t i = 0; values != NULL && i < count; i++)
        values[i] = exactly(times > 0 ? (float)times * given(i) : 1.0f);
    const fig_status status = values != NULL ? fig_engine_write(engine, &span, values) : FIG_NOMEM;
    free(values);
    return status;
}

/* Computes the result of a chain for the four elements that every row repeats. */
static void sum_in_float64(const bench *b, int normed, double due[4]) {
    double residual[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++)
        due[i] = (double)given(i) * (b->ranks + 1) / 2; /* the mean over the ranks */
    for (int n = 0; n < CHAIN; n++) {
        double square = 0;
        for (int i = 0; i < 4; i++) {
            due[i] *= b->ranks;
            residual[i] += due[i];
            square += residual[i] * residual[i] / 4;
        }
        for (int i = 0; normed && i < 4; i++)
            due[i] = residual[i] / sqrt(square + 1e-6);
    }
}

/* Checks the last row of a chain's result once, before the chain is timed. */
static fig_status check_size(member *m, fig_engine *engine, int way, const fig_step *step) {
    const bench *b = m->of;
    const fig_span span = {.size = sizeof span,
                           .name = "a",
                           .offset = (uint64_t)(step->rows - 1) * (uint64_t)b->width * 2,
                           .bytes = (uint64_t)b->width * 2};
    double due[4];
    uint16_t *got = malloc(span.bytes);
    fig_status status = got != NULL ? FIG_OK : FIG_NOMEM;
    if (status == FIG_OK) status = fill(engine, "a", (int64_t)step->rows * b->width, m->rank + 1);
    if (status == FIG_OK && ways[way].normed)
        status = fill(engine, "residual", (int64_t)step->rows * b->width, 0);
    if (status == FIG_OK) status = fig_engine_step(engine, step);
    if (status == FIG_OK) status = fig_engine_wait(engine, TIMEOUT_US);
    if (status == FIG_OK) status = fig_engine_read(engine, &span, got);
    sum_in_float64(b, ways[way].normed, due);
    for (int32_t i = 0; status == FIG_OK && i < b->width; i++) {
        const uint32_t bits = (uint32_t)got[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        if (fabs((double)value / due[i % 4] - 1) <= TOLERANCE) continue;
        m->code =
            fig_report_failure("bench allreduce: %s: rank %d, %d rows: element %d of the last "
                               "is %.9g and must be %.9g",
                               ways[way].column, m->rank, step->rows, i, (double)value, due[i % 4]);
        break;
    }
    free(got);
    return status;
}

static fig_status time_size(member *m, fig_engine *engine, int way, int32_t size) {
    const int32_t rows = m->of->rows.values[size];
    int32_t *lengths = malloc((size_t)rows * sizeof *lengths);
    fig_timed timed = {.size = sizeof timed};
    fig_launch_info info = {.size = sizeof info};
    for (int32_t i = 0; lengths != NULL && i < rows; i++)
        lengths[i] = 1;
    const fig_step step = {.size = sizeof step, .rows = rows, .kv_lengths = lengths};
    const int is_host = m->of->machine.device == FIG_DEVICE_HOST;
    const fig_timing_options options = {.size = sizeof options,
                                        .samples = is_host ? 1 : SAMPLES,
                                        .replays = is_host ? 1 : REPLAYS,
                                        .step = &step};
    fig_status status = check_size(m, engine, way, &step);
    if (status == FIG_OK && m->code == FIG_EXIT_FINE)
        status = fig_engine_time(engine, &options, &timed);
    if (status == FIG_OK && m->code == FIG_EXIT_FINE)
        status = fig_engine_launch_info(engine, timed.bucket, 1, &info);
    free(lengths);
    if (status != FIG_OK || m->code != FIG_EXIT_FINE) return status;
    if (!is_host) m->us[way][size] = timed.median_ns / 1e3 / CHAIN;
    if (way == WAY_CHOSEN) snprintf(m->family[size], sizeof m->family[size], "%s", info.family);
    return FIG_OK;
}

/* Routes that this group does not have are left out. */
static fig_status time_way(member *m, int way) {
    const bench *b = m->of;
    const fig_graphs *graphs = b->graphs[ways[way].normed];
    const int is_host = b->machine.device == FIG_DEVICE_HOST;
    fig_engine *engine;
    if (is_host && way < WAY_CHOSEN) return FIG_OK;
    fig_status status = fig_engine_open(
        &engine, graphs,
        FIG_OPTIONS(fig_engine_options, .device = b->machine.device,
                    .ordinal = is_host ? 0 : m->rank, .numa_node = -1, .ranks = m->group,
                    .test = FIG_OPTIONS(fig_test_options, .routes = ways[way].routes)));
    if (status == FIG_UNSUPPORTED && way < WAY_CHOSEN) return FIG_OK;
    if (status != FIG_OK) return status;
    status = bind_all(engine, graphs);
    if (status == FIG_OK && ways[way].normed) status = fill(engine, "weight", b->width, 0);
    for (int32_t size = 0; status == FIG_OK && m->code == FIG_EXIT_FINE && size < b->rows.count;
         size++)
        status = time_size(m, engine, way, size);
    const fig_status closed = fig_engine_close(engine);
    return status == FIG_OK ? closed : status;
}

/* A rank that fails aborts the group, so the first failure is reported. */
static void *run_member(void *user) {
    member *m = user;
    for (int way = 0; m->code == FIG_EXIT_FINE && way < WAY_COUNT; way++) {
        for (int32_t size = 0; size < SIZE_LIMIT; size++)
            m->us[way][size] = (double)NAN;
        const fig_status status = time_way(m, way);
        if (status != FIG_OK)
            m->code = status == FIG_LOST ? FIG_EXIT_BAD : fig_report_status("bench allreduce");
        if (m->code != FIG_EXIT_FINE)
            fig_ranks_abort(m->group, status != FIG_OK ? fig_message() : "its sums are wrong");
    }
    return NULL;
}

/* ---- All ranks ----------------------------------------------------------------------------- */

/* Returns the time of the slowest rank. */
static double slowest(const member *members, const bench *b, int way, int32_t size) {
    double us = members[0].us[way][size];
    for (int32_t r = 1; r < b->ranks; r++)
        if (members[r].us[way][size] > us) us = members[r].us[way][size];
    return us;
}

static void add_size(bench *b, const member *members, int32_t size) {
    fig_bench_table *table = &b->table;
    const double us = slowest(members, b, WAY_CHOSEN, size);
    fig_bench_table_add(table);
    fig_bench_table_word(table, "device", "%s", fig_source_device_name(b->machine.device));
    fig_bench_table_word(table, "chip", "%s", b->machine.traits.name);
    fig_bench_table_number(table, "ranks", b->ranks);
    fig_bench_table_number(table, "width", b->width);
    fig_bench_table_number(table, "rows", b->rows.values[size]);
    fig_bench_table_number(table, "bytes", 2.0 * b->rows.values[size] * b->width);
    fig_bench_table_word(table, "family", "%s", members[0].family[size]);
    for (int way = 0; way < WAY_COUNT; way++)
        fig_bench_table_number(table, ways[way].column, slowest(members, b, way, size));
    fig_bench_table_number(table, "of_nccl", us / slowest(members, b, 2, size));
    fig_bench_table_number(table, "norm_adds_us", slowest(members, b, WAY_NORMED, size) - us);
}

static int run_members(bench *b, member *members) {
    int32_t begun = 0;
    int code = FIG_EXIT_FINE;
    for (; begun < b->ranks; begun++) {
        members[begun].of = b;
        members[begun].rank = begun;
        if (pthread_create(&members[begun].thread, NULL, run_member, &members[begun]) != 0) break;
    }
    if (begun < b->ranks) {
        code = fig_report_refuse("bench allreduce: no thread for rank %d", (int)begun);
        fig_ranks_abort(members[begun].group, "it has no thread");
    }
    for (int32_t r = 0; r < begun; r++) {
        pthread_join(members[r].thread, NULL);
        if (members[r].code != FIG_EXIT_FINE && code != FIG_EXIT_FAILED) code = members[r].code;
    }
    for (int32_t size = 0; code == FIG_EXIT_FINE && size < b->rows.count; size++)
        add_size(b, members, size);
    return code;
}

static int measure(bench *b) {
    fig_ranks *groups[RANK_LIMIT] = {NULL};
    member *members = calloc((size_t)b->ranks, sizeof *members);
    int code = FIG_EXIT_FINE;
    if (members == NULL) return fig_report_refuse("bench allreduce: no memory");
    const fig_status status = fig_ranks_open_local(
        groups, b->ranks, FIG_OPTIONS(fig_ranks_options, .timeout_us = TIMEOUT_US));
    if (status != FIG_OK || lower(b, 0) != FIG_OK || lower(b, 1) != FIG_OK)
        code = fig_report_status("bench allreduce");
    for (int32_t r = 0; r < b->ranks; r++)
        members[r].group = groups[r];
    if (code == FIG_EXIT_FINE) code = run_members(b, members);
    for (int32_t r = 0; r < b->ranks; r++)
        fig_ranks_close(groups[r]);
    free(members);
    return code;
}

/* ---- Options ------------------------------------------------------------------------------- */

static int read_options(const fig_arguments *arguments, bench *b) {
    const fig_integer ranks = {"--ranks", 1, RANK_LIMIT, 2};
    const fig_integer width = {"--width", 8, 1 << 20, WIDTH};
    const char *rows = fig_arguments_text(arguments, "--rows");
    int64_t number = 0;
    int code = fig_arguments_integer(arguments, &ranks, &number);
    b->ranks = (int32_t)number;
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &width, &number);
    b->width = (int32_t)number;
    if (code != FIG_EXIT_FINE) return code;
    if (b->width % 8 != 0)
        return fig_report_refuse("bench allreduce: --width: %d is no multiple of 8", b->width);
    if (rows == NULL) rows = b->machine.device == FIG_DEVICE_HOST ? HOST_ROWS : DEFAULT_ROWS;
    code = fig_lengths_parse(&b->rows, rows, "bench allreduce: --rows");
    if (code == FIG_EXIT_FINE && b->rows.count > SIZE_LIMIT)
        code = fig_report_refuse("bench allreduce: --rows: %d of them, limit %d", b->rows.count,
                                 SIZE_LIMIT);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < b->rows.count; i++)
        if (b->rows.values[i] < 1 || b->rows.values[i] > ROW_LIMIT)
            code = fig_report_refuse("bench allreduce: --rows: %d is outside 1..%d",
                                     b->rows.values[i], ROW_LIMIT);
    return code;
}

static int run(const fig_arguments *arguments) {
    bench b = {.ranks = 0};
    int code = fig_bench_rig_read_machine(arguments, &b.machine);
    if (code == FIG_EXIT_FINE) code = read_options(arguments, &b);
    if (code == FIG_EXIT_FINE) code = fig_bench_table_open(&b.table, columns, b.rows.count);
    if (code == FIG_EXIT_FINE) code = measure(&b);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_show(&b.machine, &b.table, arguments);
    fig_bench_table_close(&b.table);
    fig_graphs_destroy(b.graphs[0]);
    fig_graphs_destroy(b.graphs[1]);
    fig_lengths_finish(&b.rows);
    return code;
}

const fig_command fig_bench_allreduce = {
    .name = "bench allreduce",
    .summary = "all-reduces over ranks by each route, and with a norm: us",
    .notes = "Each rank is a thread with its own GPU. us is the time of the route that the library "
             "chooses, of_nccl is us as a share of NCCL's time, and norm_adds is the additional "
             "time for residual and RMSNorm.",
    .example = "figraph bench allreduce --ranks 2 --csv allreduce.csv",
    .run = run,
    .options =
        {
            {"--ranks", "N", "the number of ranks; default 2"},
            {"--width", "N", "bf16 numbers per row; default 4096"},
            {"--rows", "LIST", "rows of each message to time, such as 1,2,4"},
            FIG_BENCH_MACHINE_OPTIONS,
        },
};

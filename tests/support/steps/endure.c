/* endure.c: see endure.h. */
#include "tests/support/steps/endure.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/driver/caller.h"
#include "tests/support/fault.h"
#include "tests/support/hang.h"
#include "tests/support/place.h"
#include "tests/support/steps/race.h"

enum {
    STRETCHES = 10,
    SAMPLES = 1 << 14, /* how many times are kept per stretch, at equal distances */
    LAUNCH_EVERY = 64,
    ROWS = 4, /* rows have few tokens, since this test is not about kernels */
    LONGEST = 32,
    DESCRIPTORS = 4096, /* the highest descriptor to be checked */
    TRIES = 8           /* how often the last stretch is repeated if it was slow */
};

/* Growth up to this does not count. The allocator keeps freed memory, and libc and the driver have
 * pools that fill slowly. If the long run lost one byte in a hundred turns, it would exceed
 * this. */
static const int64_t slack_bytes = 192 << 10;
/* how much a turn's time may grow; noise may add as much again */
static const double tolerance = 0.05;
/* how many times as long as a turn of a fresh engine a turn may take */
static const double young_limit = 3;

typedef struct stretch {
    int64_t resident_bytes, free_bytes; /* of the process; of the GPU (0 on the host) */
    int descriptors, threads;
    double turn_us; /* median */
} stretch;

typedef struct endurance {
    const fig_endure_options *options;
    fig_race race; /* only the race's engine and tables are used */
    /* a fresh engine, idle until the last stretch, in which both engines take turns */
    fig_race young;
    fig_graphs *graphs;
    int32_t lengths[ROWS];
    stretch stretches[STRETCHES];
    int64_t samples[SAMPLES];       /* ns */
    int64_t young_samples[SAMPLES]; /* ns, in the last stretch */
    double young_us;                /* median */
    int64_t begin_ns;               /* when the turn began, by clock_ns() */
} endurance;

/* ---- Measurements of the process ----------------------------------------------------------- */

/* Reads a file without stdio or directory streams: they allocate, and asan never gives freed memory
 * back. */
static void read_file(const char *path, char *text, size_t size) {
    const int file = open(path, O_RDONLY);
    if (file < 0) fail_msg("no %s", path);
    const ssize_t bytes = read(file, text, size - 1);
    close(file);
    assert_true(bytes > 0);
    text[bytes] = '\0';
}

static int64_t resident_bytes(void) {
    char text[256];
    read_file("/proc/self/statm", text, sizeof text);
    const char *second = strchr(text, ' ');
    assert_non_null(second);
    return strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE);
}

static int count_threads(void) {
    char text[4096];
    read_file("/proc/self/status", text, sizeof text);
    const char *threads = strstr(text, "Threads:");
    assert_non_null(threads);
    return (int)strtol(threads + strlen("Threads:"), NULL, 10);
}

static int count_descriptors(void) {
    int count = 0;
    for (int file = 0; file < DESCRIPTORS; file++)
        count += fcntl(file, F_GETFD) != -1;
    return count;
}

/* The driver reports the free memory of the whole GPU. */
static int64_t free_bytes(void) {
    if (fig_place_device() == FIG_DEVICE_HOST) return 0;
    const int64_t left = fig_caller_free_bytes();
    assert_true(left >= 0);
    return left;
}

/* On the host, measures this thread's processor time. That leaves out waits for other threads, such
 * as the device's, since waits do not show whether the engine grows. On a GPU, measures wall-clock
 * time. */
static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(fig_place_device() == FIG_DEVICE_HOST ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                  &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns the number that sorting would put at index `rank`, and reorders the numbers. qsort would
 * allocate. */
static int64_t select_rank(int64_t *numbers, int64_t count, int64_t rank) {
    int64_t first = 0, last = count - 1;
    while (first < last) {
        const int64_t pivot = numbers[first + (last - first) / 2];
        int64_t low = first - 1, high = last + 1;
        for (;;) {
            while (numbers[++low] < pivot)
                ;
            while (numbers[--high] > pivot)
                ;
            if (low >= high) break;
            const int64_t number = numbers[low];
            numbers[low] = numbers[high];
            numbers[high] = number;
        }
        if (rank <= high) {
            last = high;
        } else {
            first = high + 1;
        }
    }
    return numbers[rank];
}

static void close_stretch(endurance *e, const char *what, int index, int64_t sample_count) {
    stretch *s = &e->stretches[index];
    *s = (stretch){.resident_bytes = resident_bytes(),
                   .free_bytes = free_bytes(),
                   .descriptors = count_descriptors(),
                   .threads = count_threads(),
                   .turn_us =
                       (double)select_rank(e->samples, sample_count, sample_count / 2) * 1e-3};
    print_message("soak: %s, %3d %%: resident %" PRId64 " KB, %d descriptors, %d threads, free on "
                  "the GPU %" PRId64 " KB, %.2f us\n",
                  what, (index + 1) * 100 / STRETCHES, s->resident_bytes >> 10, s->descriptors,
                  s->threads, s->free_bytes >> 10, s->turn_us);
}

/* The difference between neighbouring stretches is taken as noise, up to the tolerance. If the time
 * really grew from turn to turn, the difference between the second and the last stretch would be
 * eight times as large. */
static double noise_of(const endurance *e) {
    double noise = 0;
    for (int i = 2; i < STRETCHES; i++) {
        const double ratio = e->stretches[i].turn_us / e->stretches[i - 1].turn_us;
        const double apart = ratio > 1 ? ratio - 1 : 1 - ratio;
        if (apart > noise) noise = apart;
    }
    return noise < tolerance ? noise : tolerance;
}

static void judge(const endurance *e) {
    const stretch *second = &e->stretches[1], *last = &e->stretches[STRETCHES - 1];
    assert_int_equal(last->descriptors, second->descriptors);
    assert_int_equal(last->threads, second->threads);
    const int64_t grown = last->resident_bytes - second->resident_bytes;
    if (grown > slack_bytes) fail_msg("resident memory has grown by %" PRId64 " bytes", grown);
    /* Other processes slow down both engines alike. So if the test is not alone, a turn is compared
     * with a turn that a fresh engine makes at the same moment. If earlier turns left something
     * behind that each turn walks through, a turn takes many times as long. A GPU that other
     * processes share is an exception: an engine with a full ring waits for their time slices, but
     * a fresh engine does not. On a GPU, only tests/gpu/soak.c, which runs alone, compares
     * times. */
    const int alone = e->options->alone;
    if (!alone && fig_place_device() != FIG_DEVICE_HOST) return;
    const double ratio = last->turn_us / (alone ? second->turn_us : e->young_us);
    const double most = alone ? 1 + tolerance + noise_of(e) : young_limit;
    if (ratio > most) fail_msg("a turn takes %.2f times as long, limit %.2f", ratio, most);
    if (!alone) return;
    const int64_t lost = second->free_bytes - last->free_bytes;
    if (lost > 0) fail_msg("the GPU has %" PRId64 " bytes less", lost);
}

/* ---- The work ------------------------------------------------------------------------------ */

static endurance *begin(const fig_endure_options *options) {
    endurance *e = calloc(1, sizeof *e);
    fig_engine_options engine = fig_place_options();
    assert_non_null(e);
    e->options = options;
    e->graphs = fig_race_graphs();
    if (!fig_race_open(&e->race, e->graphs, &engine, 1)) fail_msg("%s", e->race.sentence);
    if (!fig_race_open(&e->young, e->graphs, &engine, 1)) fail_msg("%s", e->young.sentence);
    for (int64_t i = 0; i < SAMPLES; i++)
        /* touches all samples in advance, so that no stretch is the first to touch them */
        e->samples[i] = e->young_samples[i] = 1;
    return e;
}

static void end(endurance *e) {
    if (fig_engine_wait(e->race.engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
    judge(e);
    fig_race_close(&e->young);
    fig_race_close(&e->race);
    fig_graphs_destroy(e->graphs);
    free(e);
}

/* Every row grows by a token, and starts again when it reaches the limit. Pages change when tokens
 * cross page borders, and from time to time a sequence gets all new pages. */
static fig_step next_step(endurance *e, const fig_race *race, int64_t turn) {
    const int32_t sequence = (int32_t)(turn % FIG_RACE_SEQUENCES);
    const int32_t count = turn % 1024 == 0 ? FIG_RACE_SEQUENCE_PAGES : 1;
    for (int32_t i = 0; i < ROWS; i++)
        e->lengths[i] = 1 + (int32_t)((turn + 13 * i) % LONGEST);
    if (turn % FIG_RACE_PAGE == 0 &&
        fig_engine_set_pages(race->engine,
                             FIG_OPTIONS(fig_pages, .sequence = sequence, .count = count,
                                         .pages = race->table[sequence])) != FIG_OK)
        fail_msg("%s", fig_message());
    return (fig_step){.size = sizeof(fig_step), .rows = ROWS, .kv_lengths = e->lengths};
}

static void wait(const fig_race *race) {
    if (fig_engine_wait(race->engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
}

/* Taking back a plan launches a small piece of work. If the host device's queue is full of such
 * work, this waits. */
static void stage_once(endurance *e, const fig_race *race, int64_t turn) {
    const fig_step step = next_step(e, race, turn);
    fig_status status = fig_engine_stage(race->engine, &step);
    while (status == FIG_BUSY) {
        wait(race);
        status = fig_engine_stage(race->engine, &step);
    }
    if (status == FIG_OK && turn % LAUNCH_EVERY != 0) {
        status = fig_engine_take_back(race->engine);
    } else if (status == FIG_OK) {
        while ((status = fig_engine_launch(race->engine)) == FIG_BUSY)
            wait(race);
    }
    if (status != FIG_OK) fail_msg("turn %" PRId64 ": %s", turn, fig_message());
}

/* If the ring is full, the wait counts only on a GPU, where it is the kernels' time; see
 * clock_ns(). */
static void step_once(endurance *e, const fig_race *race, int64_t turn) {
    const int on_host = fig_place_device() == FIG_DEVICE_HOST;
    const fig_step step = next_step(e, race, turn);
    fig_status status = fig_engine_step(race->engine, &step);
    while (status == FIG_BUSY) {
        if (on_host) wait(race);
        if (on_host) e->begin_ns = clock_ns();
        status = fig_engine_step(race->engine, &step);
    }
    if (status != FIG_OK) fail_msg("turn %" PRId64 ": %s", turn, fig_message());
}

typedef void turn_function(endurance *e, const fig_race *race, int64_t turn);

static int64_t time_turn(endurance *e, const fig_race *race, int64_t turn, turn_function *once) {
    e->begin_ns = clock_ns();
    once(e, race, turn);
    return clock_ns() - e->begin_ns;
}

/* Makes the turns of a stretch. compares: the fresh engine makes them, too. */
static void run_stretch(endurance *e, int index, int64_t each, turn_function *once, int compares,
                        const char *what) {
    const int64_t every = (each + SAMPLES - 1) / SAMPLES;
    int64_t sample_count = 0;
    fig_fault_arm(0);
    for (int64_t i = 0; i < each; i++) {
        const int64_t turn = index * each + i, ns = time_turn(e, &e->race, turn, once);
        if (compares && i % every == 0)
            e->young_samples[sample_count] = time_turn(e, &e->young, turn, once);
        if (i % every == 0) e->samples[sample_count++] = ns;
    }
    wait(&e->race);
    wait(&e->young);
    const int64_t gated = fig_fault_disarm();
    if (gated > 0) fail_msg("%" PRId64 " calls to memory, files or threads", gated);
    if (compares)
        e->young_us = (double)select_rank(e->young_samples, sample_count, sample_count / 2) * 1e-3;
    close_stretch(e, what, index, sample_count);
}

static int is_slow(const endurance *e) {
    return !e->options->alone && e->stretches[STRETCHES - 1].turn_us > young_limit * e->young_us;
}

/* What other processes do may slow down one engine more than the other. Something that earlier
 * turns left behind does so whenever the last stretch is repeated. */
static void go(const fig_endure_options *options, int64_t turns, const char *what,
               turn_function *once) {
    endurance *e = begin(options);
    const int64_t each = turns / STRETCHES;
    assert_true(each >= 100);
    for (int index = 0; index < STRETCHES - 1; index++)
        run_stretch(e, index, each, once, 0, what);
    for (int tries = 0; tries < TRIES && (tries == 0 || is_slow(e)); tries++)
        run_stretch(e, STRETCHES - 1, each, once, !options->alone, what);
    end(e);
}

void fig_endure_stagings(const fig_endure_options *options) {
    go(options, options->stagings, "stagings", stage_once);
}

void fig_endure_steps(const fig_endure_options *options) {
    go(options, options->steps, "steps", step_once);
}

/* endure.c: see endure.h for what it is for. */
#include "tests/support/endure.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/caller.h"
#include "tests/support/fault.h"
#include "tests/support/hang.h"
#include "tests/support/place.h"
#include "tests/support/race.h"

enum {
    STRETCHES = 10,
    SAMPLES = 1 << 14, /* times kept of a stretch, evenly spread */
    LAUNCH_EVERY = 64,
    ROWS = 4, /* of few tokens: it is not the kernels that are to be worn out */
    LONGEST = 32,
    DESCRIPTORS = 4096 /* looked at */
};

/* The allocator keeps what it has, and libc and driver have pools that fill in their own time: less
 * than this is no growth. One byte lost in a hundred turns of the long run is more. */
static const int64_t slack_bytes = 192 << 10;
static const double tolerance = 0.05; /* of a turn's time, and as much again for noise */

typedef struct stretch {
    int64_t resident_bytes, free_bytes; /* of the process; of the GPU, 0 on the host */
    int descriptors, threads;
    double turn_us; /* median */
} stretch;

typedef struct endurance {
    const fig_endure_options *options;
    fig_race race; /* of which only the engine and its tables are used */
    fig_graphs *graphs;
    int32_t lengths[ROWS];
    stretch stretches[STRETCHES];
    int64_t samples[SAMPLES]; /* ns */
    int64_t begin_ns;         /* of the turn, as its time is counted */
} endurance;

/* ---- Looking at the process ---------------------------------------------------------------- */

/* Without stdio and directory streams: those allocate, and what asan is given back it keeps. */
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

/* The driver's count is of the whole GPU. */
static int64_t free_bytes(void) {
    if (fig_place_device() == FIG_DEVICE_HOST) return 0;
    const int64_t left = fig_caller_free_bytes();
    assert_true(left >= 0);
    return left;
}

/* On the host, of the processor's time that this thread takes: how long others keep it waiting, the
 * device's thread among them, is none of the engine's growth. On a GPU, by the wall. */
static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(fig_place_device() == FIG_DEVICE_HOST ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                  &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The number that would stand at `rank` if all were sorted; they change places. qsort allocates. */
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

/* What two neighbouring stretches differ by is noise, as far as it is not more than the tolerance
 * itself: what grows from turn to turn differs eight times as much from the second to the last. */
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
    /* Beside others' work a turn may take twice as long; one that walks what turns before it have
     * left takes many times as long. */
    const double ratio = last->turn_us / second->turn_us;
    const double most = e->options->alone ? 1 + tolerance + noise_of(e) : 3;
    if (ratio > most) fail_msg("a turn takes %.2f times as long, limit %.2f", ratio, most);
    if (!e->options->alone) return;
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
    for (int64_t i = 0; i < SAMPLES; i++)
        e->samples[i] = 1; /* touched, so that no stretch is the first to do so */
    return e;
}

static void end(endurance *e) {
    if (fig_engine_wait(e->race.engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
    judge(e);
    fig_race_close(&e->race);
    fig_graphs_destroy(e->graphs);
    free(e);
}

/* Every row is a token longer, from the limit on anew; pages change at their borders, as where
 * tokens are decoded, and now and then all pages of a sequence. */
static fig_step next_step(endurance *e, int64_t turn) {
    const int32_t sequence = (int32_t)(turn % FIG_RACE_SEQUENCES);
    const int32_t count = turn % 1024 == 0 ? FIG_RACE_SEQUENCE_PAGES : 1;
    for (int32_t i = 0; i < ROWS; i++)
        e->lengths[i] = 1 + (int32_t)((turn + 13 * i) % LONGEST);
    if (turn % FIG_RACE_PAGE == 0 &&
        fig_engine_set_pages(e->race.engine,
                             FIG_OPTIONS(fig_pages, .sequence = sequence, .count = count,
                                         .pages = e->race.table[sequence])) != FIG_OK)
        fail_msg("%s", fig_message());
    return (fig_step){.size = sizeof(fig_step), .rows = ROWS, .kv_lengths = e->lengths};
}

static void wait(endurance *e) {
    if (fig_engine_wait(e->race.engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
}

/* To take back a plan launches a little, and where the host device is full of that, it waits. */
static void stage_once(endurance *e, int64_t turn) {
    const fig_step step = next_step(e, turn);
    fig_status status = fig_engine_stage(e->race.engine, &step);
    while (status == FIG_BUSY) {
        wait(e);
        status = fig_engine_stage(e->race.engine, &step);
    }
    if (status == FIG_OK && turn % LAUNCH_EVERY != 0) {
        status = fig_engine_take_back(e->race.engine);
    } else if (status == FIG_OK) {
        while ((status = fig_engine_launch(e->race.engine)) == FIG_BUSY)
            wait(e);
    }
    if (status != FIG_OK) fail_msg("turn %" PRId64 ": %s", turn, fig_message());
}

/* A full ring counts on a GPU alone, where it is the kernels' time; see clock_ns. */
static void step_once(endurance *e, int64_t turn) {
    const int on_host = fig_place_device() == FIG_DEVICE_HOST;
    const fig_step step = next_step(e, turn);
    fig_status status = fig_engine_step(e->race.engine, &step);
    while (status == FIG_BUSY) {
        if (on_host) wait(e);
        if (on_host) e->begin_ns = clock_ns();
        status = fig_engine_step(e->race.engine, &step);
    }
    if (status != FIG_OK) fail_msg("turn %" PRId64 ": %s", turn, fig_message());
}

static void go(const fig_endure_options *options, int64_t turns, const char *what,
               void (*once)(endurance *e, int64_t turn)) {
    endurance *e = begin(options);
    const int64_t each = turns / STRETCHES, every = (each + SAMPLES - 1) / SAMPLES;
    assert_true(each >= 100);
    for (int index = 0; index < STRETCHES; index++) {
        int64_t sample_count = 0;
        fig_fault_arm(0);
        for (int64_t i = 0; i < each; i++) {
            e->begin_ns = clock_ns();
            once(e, index * each + i);
            if (i % every == 0) e->samples[sample_count++] = clock_ns() - e->begin_ns;
        }
        wait(e);
        const int64_t gated = fig_fault_disarm();
        if (gated > 0) fail_msg("%" PRId64 " calls to memory, files or threads", gated);
        close_stretch(e, what, index, sample_count);
    }
    end(e);
}

void fig_endure_stagings(const fig_endure_options *options) {
    go(options, options->stagings, "stagings", stage_once);
}

void fig_endure_steps(const fig_endure_options *options) {
    go(options, options->steps, "steps", step_once);
}

/* grid.c: runs every case of every section, and records the results.
 *
 * Cases run in blocks, on as many threads as there are processors. Each finished block becomes a
 * line of the results file, so a run that was stopped can continue from there. A block with a
 * failure is run again. FIG_DEVICE=cuda runs on the GPU, with a results file of its own and fewer
 * threads. Invariant: the summary is written only if every case of the share has passed.
 *
 * Usage: grid [--restart] [--jobs N] [--share N] [--section NAME] [--case N] [--list]
 *        --share N: only every N-th block */
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/grid/grid.h"
#include "tests/grid/ledger.h"
#include "tests/support/place.h"

enum { JOB_LIMIT = 64, CUDA_JOBS = 16, PATH_LIMIT = 128 };
static const double truth_s = 0.1; /* about how long comparing a case may take */

typedef struct options {
    int restart, list;
    int32_t jobs, section; /* -1: all sections */
    int64_t one;           /* a single case of the section; -1: all cases */
    int64_t share;
    char results[PATH_LIMIT], summary[PATH_LIMIT];
} options;

/* The data that the threads share. */
typedef struct race {
    pthread_mutex_t mutex;
    ledger ledger;
    int32_t section, last_section;
    int64_t next; /* the next case of the section */
    int64_t done_work, all_work, failures;
    double start_s;
    int terminal;
} race;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Blocks -------------------------------------------------------------------------------- */

static int64_t block_work(const grid_section *section, int64_t first, int64_t count) {
    int64_t work = 0;
    for (int64_t i = first; i < first + count; i++)
        work += grid_section_work(section, i) + 1000000; /* opening an engine takes time too */
    return work;
}

/* Sets *block to the next block that must be run. Returns 0 if there is none. The caller holds
 * the mutex. */
static int take_block(race *r, ledger_block *block) {
    for (; r->section <= r->last_section; r->section++, r->next = 0) {
        int64_t cases = grid_section_cases(grid_section_at(r->section));
        while (r->next < cases) {
            int64_t left = cases - r->next;
            *block = (ledger_block){.section = r->section, .first = r->next};
            block->count = left < BLOCK_CASES ? left : BLOCK_CASES;
            r->next += block->count;
            if (ledger_wants(&r->ledger, block) && !ledger_has(&r->ledger, block)) return 1;
        }
    }
    return 0;
}

static void show_progress(race *r) {
    double spent = now_s() - r->start_s;
    double share = r->all_work > 0 ? (double)r->done_work / (double)r->all_work : 1;
    double left = share > 0 ? spent / share - spent : 0;
    if (!r->terminal) return;
    fprintf(stderr, "\r%5.1f %%  %6.0f s, about %6.0f s to go, %" PRId64 " failed, %-24s",
            100 * share, spent, left, r->failures,
            r->section <= r->last_section ? grid_section_at(r->section)->name : "");
    fflush(stderr);
}

static void run_case(race *r, const grid_section *section, int64_t index, ledger_block *block) {
    grid_report report = {.truth_s = truth_s};
    grid_section_run(section, index, &report);
    ledger_merge(block, &report);
    if (!grid_failed(&report)) return;
    block->failed++;
    pthread_mutex_lock(&r->mutex);
    r->failures++;
    printf("%s%s, case %" PRId64 ": %s\n    %s\n", r->terminal ? "\n" : "", section->name, index,
           report.failure, report.shape);
    fflush(stdout);
    pthread_mutex_unlock(&r->mutex);
}

static void *run_blocks(void *user) {
    race *r = user;
    ledger_block block;
    for (;;) {
        pthread_mutex_lock(&r->mutex);
        int taken = take_block(r, &block);
        pthread_mutex_unlock(&r->mutex);
        if (!taken) return NULL;
        const grid_section *section = grid_section_at(block.section);
        double start = now_s();
        for (int64_t i = block.first; i < block.first + block.count; i++)
            run_case(r, section, i, &block);
        block.seconds = now_s() - start;
        pthread_mutex_lock(&r->mutex);
        r->done_work += block_work(section, block.first, block.count);
        ledger_add(&r->ledger, &block);
        show_progress(r);
        pthread_mutex_unlock(&r->mutex);
    }
}

/* ---- The program --------------------------------------------------------------------------- */

static int32_t find_section(const char *name) {
    for (int32_t i = 0; i < grid_section_count(); i++)
        if (strcmp(grid_section_at(i)->name, name) == 0) return i;
    fprintf(stderr, "grid: no section is called \"%s\"; --list names them\n", name);
    exit(2);
}

/* Returns options with the defaults of the device. */
static options default_options(void) {
    options o = {.section = -1, .one = -1, .share = 1};
    o.jobs = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (fig_place_device() == FIG_DEVICE_HOST) {
        snprintf(o.results, sizeof o.results, "build/grid/results.txt");
        snprintf(o.summary, sizeof o.summary, "tests/grid/RESULTS.md");
        return o;
    }
    /* each thread needs half a gigabyte of pinned memory */
    if (o.jobs > CUDA_JOBS) o.jobs = CUDA_JOBS;
    snprintf(o.results, sizeof o.results, "build/grid/results.%s.txt", fig_place_name());
    snprintf(o.summary, sizeof o.summary, "tests/gpu/GRID.%s.md", fig_place_name());
    return o;
}

static options read_options(int argc, char **argv) {
    options o = default_options();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--restart") == 0) {
            o.restart = 1;
        } else if (strcmp(argv[i], "--list") == 0) {
            o.list = 1;
        } else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc) {
            o.jobs = (int32_t)strtol(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--share") == 0 && i + 1 < argc) {
            o.share = strtoll(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--section") == 0 && i + 1 < argc) {
            o.section = find_section(argv[++i]);
        } else if (strcmp(argv[i], "--case") == 0 && i + 1 < argc) {
            o.one = strtoll(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "grid: \"%s\" is no option, or lacks its value\n", argv[i]);
            exit(2);
        }
    }
    if (o.jobs < 1) o.jobs = 1;
    if (o.jobs > JOB_LIMIT) o.jobs = JOB_LIMIT;
    return o;
}

static int list_sections(void) {
    int64_t all = 0;
    for (int32_t i = 0; i < grid_section_count(); i++) {
        const grid_section *section = grid_section_at(i);
        int64_t cases = grid_section_cases(section);
        printf("%7" PRId64 "  %8.1f G  %-18s %s\n", cases,
               1e-9 * (double)block_work(section, 0, cases), section->name, section->covers);
        all += cases;
    }
    printf("%7" PRId64 "  cases\n", all);
    return 0;
}

static int run_one(const options *o) {
    const grid_section *section = grid_section_at(o->section);
    grid_report report = {.truth_s = 10 * truth_s};
    if (o->one >= grid_section_cases(section)) {
        fprintf(stderr, "grid: %s has %" PRId64 " cases\n", section->name,
                grid_section_cases(section));
        return 2;
    }
    grid_section_run(section, o->one, &report);
    printf("%s\n", report.shape);
    for (int32_t i = 0; i < report.measure_count; i++)
        printf("    %-34s %.3f of what is tolerated\n", report.measures[i].name,
               report.measures[i].worst);
    if (grid_failed(&report)) printf("FAILED: %s\n", report.failure);
    return grid_failed(&report);
}

static void add_up_work(race *r) {
    for (int32_t i = r->section; i <= r->last_section; i++) {
        const grid_section *section = grid_section_at(i);
        int64_t cases = grid_section_cases(section);
        for (int64_t first = 0; first < cases; first += BLOCK_CASES) {
            int64_t count = cases - first < BLOCK_CASES ? cases - first : BLOCK_CASES;
            const ledger_block block = {.section = i, .first = first, .count = count};
            if (ledger_wants(&r->ledger, &block) && !ledger_has(&r->ledger, &block))
                r->all_work += block_work(section, first, count);
        }
    }
}

static void run_all(race *r, int32_t jobs) {
    pthread_t threads[JOB_LIMIT];
    int32_t started = 0;
    r->start_s = now_s();
    add_up_work(r);
    show_progress(r);
    while (started < jobs && pthread_create(&threads[started], NULL, run_blocks, r) == 0)
        started++;
    if (started == 0) run_blocks(r);
    for (int32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (r->terminal) fprintf(stderr, "\n");
}

int main(int argc, char **argv) {
    const options o = read_options(argc, argv);
    if (o.list) return list_sections();
    if (o.one >= 0 && o.section >= 0) return run_one(&o);
    /* Each case allocates and frees megabytes. Memory that the process keeps need not be cleared by
     * the kernel for the next case. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    static race r;
    pthread_mutex_init(&r.mutex, NULL);
    r.terminal = isatty(STDERR_FILENO);
    r.section = o.section >= 0 ? o.section : 0;
    r.last_section = o.section >= 0 ? o.section : grid_section_count() - 1;
    mkdir("build", 0777);
    mkdir("build/grid", 0777);
    if (o.restart) remove(o.results);
    if (ledger_open(&r.ledger, o.results, o.share) != 0) return 2;
    run_all(&r, o.jobs);
    const int complete = ledger_print(&r.ledger, stdout);
    if (complete && r.failures == 0 && ledger_save(&r.ledger, o.summary) == 0)
        printf("every case has passed: %s\n", o.summary);
    ledger_close(&r.ledger);
    return r.failures > 0;
}

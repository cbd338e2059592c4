/* stage_bench.c: times the parts of staging a step whose rows begin with the same pages, on the
 * host alone: it needs no GPU, and plans for an H200.
 *
 *     build/release/tests/gpu/stage_bench [STEPS [ROWS PREFIX [OWN]]]        default 2000
 *
 * ROWS and PREFIX select a single cell. A row has 1 to OWN tokens of its own behind the prefix,
 * drawn at random, 512 by default. In each step every row grows by a token, so some rows grow into
 * another tile. Prints CSV: for each cell, the nanoseconds of choosing a bucket and finding groups,
 * of noting what they lend, of settling the plan, of writing it into a slot of the ring, and of all
 * of it at once, with groups and without; then the bytes of a plan, for both, and whether rows have
 * tails. A time is the median of all steps. `cold`
 * is the median of all of it with groups, if the slot is in no cache of this processor: a GPU that
 * has read the slot leaves less of it in caches than a warm slot has, and more than a cold one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/plans/sharing.h"
#include "engine/seam/clock.h"
#include "tests/support/driver/gpu_caller.h"
#include "tests/support/random.h"
#include "tests/support/steps/layer_bench.h"

enum {
    PAGE = FIG_LAYER_BENCH_PAGE,
    ROW_LIMIT = 256,
    SLOTS = FIG_SLOT_DEFAULT,
    LINE = 64,   /* bytes of a line of a cache */
    ROUND = 200, /* steps after which rows begin again */
    SAMPLE_LIMIT = 1 << 16
};

/* FIND to WRITE are parts of a step; ALL is timed in steps of its own. */
enum { FIND, NOTE, SETTLE, WRITE, ALL, COLD, TIMES };

typedef struct cell {
    int32_t rows, prefix;
} cell;

static const cell cells[] = {{16, 2048}, {64, 2048}, {256, 2048}, {256, 8192}, {256, 32768}};

static struct bench {
    cell c;
    int32_t own;
    fig_graphs *graphs;
    size_t slot_bytes;
    fig_binding_table bindings;
    fig_table_mirror mirrors[32];
    fig_table_mirrors tables;
    fig_sharing sharing;
    fig_plan_held held;
    uint8_t *slots; /* [SLOTS][slot_bytes] */
    uint64_t number;
    fig_random random;
    int32_t lengths[ROW_LIMIT], queries[ROW_LIMIT];
    int32_t *pages; /* of the longest row */
    int64_t samples[TIMES][SAMPLE_LIMIT];
    uint32_t bytes;
} b;

/* All rows begin with the pages of row 0. */
static void set_pages(fig_page_order *order) {
    const int32_t shared = b.c.prefix / PAGE, own = (b.own + ROUND) / PAGE + 1;
    b.pages = fig_layer_bench_allocate((size_t)(shared + own) * sizeof *b.pages);
    for (int32_t row = 0; row < b.c.rows; row++) {
        for (int32_t i = 0; i < shared + own; i++)
            b.pages[i] = i < shared ? i : i + row * own;
        fig_page_order_set(order, row, 0, shared + own, b.pages);
    }
    free(b.pages);
}

static void open_cell(const cell *c, int32_t own) {
    fig_traits traits = {.size = sizeof traits};
    b.c = *c;
    b.own = own;
    OK(fig_traits_named(&traits, "h200"));
    const fig_layer_bench of = {.rows = c->rows,
                                .kv_limit = c->prefix + own + ROUND + PAGE,
                                .row_tokens = 16,
                                .tokens = c->rows,
                                .layers = 1,
                                .traits = &traits};
    b.graphs = fig_layer_bench_lower(&of);
    b.slot_bytes = 0;
    for (uint32_t i = 0; i < b.graphs->bucket_count; i++) {
        const size_t bytes = fig_size_align(b.graphs->buckets[i].plan.layout.bytes, LINE);
        if (bytes > b.slot_bytes) b.slot_bytes = bytes;
    }
    b.bindings = (fig_binding_table){.graphs = b.graphs};
    b.tables = (fig_table_mirrors){.bindings = &b.bindings, .of = b.mirrors};
    OK(fig_sharing_init(&b.sharing, &b.tables, 1));
    if (b.sharing.off != NULL) fail_msg("nothing is shared: %s", b.sharing.off);
    fig_table_mirror *mirror = &b.mirrors[b.sharing.table - 1];
    mirror->page_tokens = PAGE;
    mirror->version = 1;
    const fig_page_order_limits limits = {.sequences = c->rows,
                                          .pages = (of.kv_limit + PAGE - 1) / PAGE};
    OK(fig_page_order_init(&mirror->order, &limits));
    set_pages(&mirror->order);
    const fig_plan_held_limits held = fig_graphs_held_limits(b.graphs);
    OK(fig_plan_held_init(&b.held, &held));
    b.slots = aligned_alloc(LINE, SLOTS * b.slot_bytes);
    if (b.slots == NULL) fail_msg("no memory for slots");
    for (int32_t row = 0; row < c->rows; row++)
        b.queries[row] = 1;
    b.random = fig_random_seed(7);
}

static void close_cell(void) {
    free(b.slots);
    fig_plan_held_finish(&b.held);
    fig_page_order_finish(&b.mirrors[b.sharing.table - 1].order);
    fig_sharing_finish(&b.sharing);
    fig_graphs_destroy(b.graphs);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void grow(int32_t n) {
    for (int32_t row = 0; row < b.c.rows; row++)
        b.lengths[row] =
            n % ROUND > 0 ? b.lengths[row] + 1 : b.c.prefix + fig_random_range(&b.random, 1, b.own);
}

static uint8_t *next_slot(void) {
    return b.slots + b.number++ % SLOTS * b.slot_bytes;
}

static int64_t lap(int64_t *since_ns) {
    const int64_t now_ns = fig_clock_ns(), ns = now_ns - *since_ns;
    *since_ns = now_ns;
    return ns;
}

/* Chooses the step's bucket and finds its groups, as replay.c does. */
static const fig_bucket_shape *choose(fig_plan_step *step, int32_t shares) {
    const fig_bucket_shape *buckets = b.graphs->buckets;
    const int32_t count = (int32_t)b.graphs->bucket_count;
    const int had_groups = shares && fig_sharing_had_groups(&b.sharing);
    int32_t index;
    if (had_groups) step->groups = &b.sharing.found;
    OK(fig_bucket_choose(buckets, count, step, &index));
    if (shares) step->groups = fig_sharing_find(&b.sharing, &buckets[index].plan, step);
    if (shares && (!had_groups || b.sharing.is_new))
        OK(fig_bucket_choose(buckets, count, step, &index));
    return &buckets[index];
}

/* Stages a step as replay.c does, and takes the times of parts if `n` is not negative. */
static void stage(int32_t n, int32_t shares) {
    fig_plan_step step = {.rows = b.c.rows,
                          .lengths = b.lengths,
                          .queries = b.queries,
                          .sequence_limit = b.c.rows,
                          .horizon = 1};
    uint8_t *slot = next_slot();
    int64_t now_ns = n < 0 ? 0 : fig_clock_ns();
    const fig_bucket_shape *bucket = choose(&step, shares);
    step.paces = bucket->paces;
    step.serves_tails = 1;
    if (n >= 0) b.samples[FIND][n] = lap(&now_ns);
    const fig_sharing_plans plans = {b.number, b.number};
    const fig_sharing_counts counts = fig_sharing_note(&b.sharing, &step, &plans);
    if (shares && counts.groups == 0) fail_msg("rows share nothing");
    if (n >= 0) b.samples[NOTE][n] = lap(&now_ns);
    const uint32_t sections = fig_plan_settle(&bucket->plan, &step, &b.held);
    if (n >= 0) b.samples[SETTLE][n] = lap(&now_ns);
    b.bytes = fig_plan_write(&bucket->plan, &step, sections, &b.held, slot);
    if (n >= 0) b.samples[WRITE][n] = lap(&now_ns);
}

/* Takes the next slot out of this processor's caches. */
static void cool(void) {
#ifdef __x86_64__
    uint8_t *slot = b.slots + b.number % SLOTS * b.slot_bytes;
    for (size_t i = 0; i < b.slot_bytes; i += LINE)
        __builtin_ia32_clflush(slot + i);
    __builtin_ia32_mfence();
#endif
}

static void stage_all(int32_t n, int32_t shares, int32_t time) {
    if (time == COLD) cool();
    const int64_t begin_ns = fig_clock_ns();
    stage(-1, shares);
    b.samples[time][n] = fig_clock_ns() - begin_ns;
}

static int is_less(const void *a, const void *c) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)c;
    return (x > y) - (x < y);
}

static double median(int64_t *samples, int32_t count) {
    qsort(samples, (size_t)count, sizeof *samples, is_less);
    return (double)samples[count / 2];
}

/* Returns the shortest time between two looks at the clock, which every sample contains. */
static int64_t clock_ns(void) {
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < 1000; i++) {
        int64_t now_ns = fig_clock_ns();
        const int64_t ns = lap(&now_ns);
        if (ns < least) least = ns;
    }
    return least;
}

static void run_way(int32_t steps, int32_t shares, double ns[TIMES]) {
    const int64_t clock = clock_ns();
    for (int32_t pass = 0; pass < 3; pass++) {
        for (int32_t n = 0; n < steps; n++) {
            grow(n);
            if (pass == 0) {
                stage(n, shares);
            } else {
                stage_all(n, shares, pass == 1 ? ALL : COLD);
            }
        }
    }
    for (int32_t i = 0; i < TIMES; i++)
        ns[i] = median(b.samples[i], steps) - (double)clock;
}

static void run_cell(const cell *c, int32_t own, int32_t steps) {
    double alone[TIMES], shared[TIMES];
    open_cell(c, own);
    run_way(steps, 0, alone);
    const uint32_t bytes = b.bytes;
    run_way(steps, 1, shared);
    printf("%d,%d,%d,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%u,%u,%d\n", c->rows, c->prefix, own,
           shared[FIND], shared[NOTE], shared[SETTLE], shared[WRITE], shared[ALL], alone[ALL],
           shared[COLD], alone[COLD], b.bytes, bytes, b.held.has_tails);
    fflush(stdout);
    close_cell();
}

int main(int argc, char **argv) {
    int32_t steps = argc > 1 ? atoi(argv[1]) : 2000;
    if (steps > SAMPLE_LIMIT) steps = SAMPLE_LIMIT;
    printf("rows,prefix,own,find_ns,note_ns,settle_ns,write_ns,all_ns,all_ns_alone,cold_ns,"
           "cold_ns_alone,plan_bytes,plan_bytes_alone,tails\n");
    if (argc > 3) {
        const cell asked = {fig_size_min(atoi(argv[2]), ROW_LIMIT), atoi(argv[3])};
        run_cell(&asked, argc > 4 ? atoi(argv[4]) : 512, steps);
        return 0;
    }
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        run_cell(&cells[i], 512, steps);
    return 0;
}

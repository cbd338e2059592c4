/* fetch_bench.h: a ring, the device's end of it, and what must become of both.
 *
 * A test publishes plans and runs fetches and look aheads; beside each run goes the dumber truth,
 * word by word from what plan.h and params.h say, and after it all that the device has is compared.
 * Each memory is a block of its own from place.h, exactly as large as it must be. Invariant: is,
 * told, expected and entries are what the device's state, words, plan and page table must be. */
#ifndef FIG_TESTS_SUPPORT_FETCH_BENCH_H
#define FIG_TESTS_SUPPORT_FETCH_BENCH_H

#include "kernels/params.h"
#include "tests/support/random.h"

enum {
    FIG_FETCH_BENCH_SLOTS = 3,
    FIG_FETCH_BENCH_ROWS = 1500,
    FIG_FETCH_BENCH_WORKERS = 150,
    FIG_FETCH_BENCH_PAGES = 200, /* entries of the page table */
    FIG_FETCH_BENCH_BUCKETS = 2,
    FIG_FETCH_BENCH_ALL =
        FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_POSITIONS | FIG_PLAN_HAS_SPLITS
};

typedef enum fig_fetch_flaw {
    FIG_FETCH_FLAWLESS = 0,
    FIG_FETCH_UNSOUND, /* says of itself what no slot can be */
    FIG_FETCH_BROKEN   /* its checksum is another's */
} fig_fetch_flaw;

/* What a slot says. */
typedef struct fig_fetch_bench_plan {
    uint64_t number; /* 0: nothing is published */
    fig_fetch_flaw flaw;
    fig_plan_head head; /* as it is in the slot */
    int32_t lengths[FIG_FETCH_BENCH_ROWS], sequences[FIG_FETCH_BENCH_ROWS];
    int32_t positions[FIG_FETCH_BENCH_ROWS], tokens[FIG_FETCH_BENCH_ROWS];
    int32_t prefix[FIG_CLASS_LIMIT][FIG_FETCH_BENCH_ROWS + 1];
    fig_split_start starts[FIG_CLASS_LIMIT][FIG_FETCH_BENCH_WORKERS];
    uint32_t entries[FIG_FETCH_BENCH_PAGES]; /* of the page table, and what they become */
    int32_t pages[FIG_FETCH_BENCH_PAGES];
} fig_fetch_bench_plan;

typedef struct fig_fetch_bench {
    fig_random random;
    fig_plan_shape shapes[FIG_FETCH_BENCH_BUCKETS];
    uint32_t slot_bytes, plan_bytes;
    /* The device's: */
    uint8_t *ring, *plan;
    fig_fetch_state *state; /* and a slot behind it */
    fig_fetch_words *words;
    int32_t *table; /* [FIG_FETCH_BENCH_PAGES] */
    /* What they must be: */
    fig_fetch_bench_plan slots[FIG_FETCH_BENCH_SLOTS], ahead;
    fig_fetch_state is;
    fig_fetch_words told;
    uint8_t *expected;
    int32_t entries[FIG_FETCH_BENCH_PAGES];
} fig_fetch_bench;

/* Two buckets whose plans have up to so many rows, workers and classes; the first one's rows have
 * several tokens. */
typedef struct fig_fetch_bench_scale {
    int32_t rows, workers, classes;
} fig_fetch_bench_scale;

/* One for all tests of a program, opened by each anew; it stands behind plan number `number`. */
fig_fetch_bench *fig_fetch_bench_open(uint64_t seed, fig_fetch_bench_scale scale, uint64_t number);
void fig_fetch_bench_close(fig_fetch_bench *bench);
/* Slots of so many bytes, and nothing published in them. */
void fig_fetch_bench_resize(fig_fetch_bench *bench, uint32_t slot_bytes);

/* A plan of random words for one launch, with every section. bucket: which shape. */
void fig_fetch_bench_draw(fig_fetch_bench *bench, fig_fetch_bench_plan *plan, uint32_t bucket);
/* Gives it so many entries of the page table to change. */
void fig_fetch_bench_add_pages(fig_fetch_bench *bench, fig_fetch_bench_plan *plan, uint32_t count);
/* Writes the sections that plan->head names into the slot of that number; then the head with its
 * bytes, and publishes it. Returns the slot, for a test that does something to it. */
uint8_t *fig_fetch_bench_write(fig_fetch_bench *bench, fig_fetch_bench_plan *plan, uint64_t number);
uint8_t *fig_fetch_bench_publish(fig_fetch_bench *bench, fig_fetch_bench_plan *plan,
                                 uint64_t number);
/* The slot's head is another, and says of itself that it is sound as far as its tag goes. */
void fig_fetch_bench_spoil(fig_fetch_bench *bench, uint64_t number, const fig_plan_head *head);

/* Each runs, and checks all. */
void fig_fetch_bench_fetch(fig_fetch_bench *bench, uint32_t bucket, uint32_t tells);
void fig_fetch_bench_look(fig_fetch_bench *bench);
void fig_fetch_bench_drop(fig_fetch_bench *bench);

#endif

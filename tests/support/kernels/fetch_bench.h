/* fetch_bench.h: a ring and the device's end of it, with the expected state of both.
 *
 * A test publishes plans and runs fetches and look-aheads. For each run, a simpler implementation
 * computes the expected state word by word, from the definitions in plan.h and params.h. Then
 * everything on the device is compared. Each array is a separate block from place.h, of exactly the
 * size that it needs. Invariant: `is`, `told`, `expected` and `entries` are what the device's
 * state, words, plan and page table must be. */
#ifndef FIG_TESTS_SUPPORT_FETCH_BENCH_H
#define FIG_TESTS_SUPPORT_FETCH_BENCH_H

#include "kernels/common/params.h"
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
    FIG_FETCH_UNSOUND, /* the head states something that is impossible for a slot */
    FIG_FETCH_BROKEN   /* the checksum is that of another plan */
} fig_fetch_flaw;

/* The contents of a slot. */
typedef struct fig_fetch_bench_plan {
    uint64_t number; /* 0: nothing is published */
    fig_fetch_flaw flaw;
    fig_plan_head head; /* as it is in the slot */
    uint32_t late;      /* damaged plans of which the host did not know when it staged this one */
    int32_t lengths[FIG_FETCH_BENCH_ROWS], sequences[FIG_FETCH_BENCH_ROWS];
    int32_t positions[FIG_FETCH_BENCH_ROWS], tokens[FIG_FETCH_BENCH_ROWS];
    int32_t prefix[FIG_CLASS_LIMIT][FIG_FETCH_BENCH_ROWS + 1];
    fig_split_start starts[FIG_CLASS_LIMIT][FIG_FETCH_BENCH_WORKERS];
    /* indices in the page table; their new values are in `pages` */
    uint32_t entries[FIG_FETCH_BENCH_PAGES];
    int32_t pages[FIG_FETCH_BENCH_PAGES];
} fig_fetch_bench_plan;

typedef struct fig_fetch_bench {
    fig_random random;
    fig_plan_shape shapes[FIG_FETCH_BENCH_BUCKETS];
    uint32_t slot_bytes, plan_bytes;
    /* The device's memory: */
    uint8_t *ring, *plan;
    fig_fetch_state *state; /* followed by a slot */
    fig_fetch_words *words;
    int32_t *table; /* [FIG_FETCH_BENCH_PAGES] */
    /* The expected contents: */
    fig_fetch_bench_plan slots[FIG_FETCH_BENCH_SLOTS], ahead;
    fig_fetch_state is;
    fig_fetch_words told;
    uint8_t *expected;
    int32_t entries[FIG_FETCH_BENCH_PAGES];
} fig_fetch_bench;

/* The largest numbers of rows, workers and classes in the plans of two buckets. Rows of the first
 * bucket have several tokens. */
typedef struct fig_fetch_bench_scale {
    int32_t rows, workers, classes;
} fig_fetch_bench_scale;

/* Opens the bench that all tests of a program share, and resets it, as if plan `number` had been
 * taken last. */
fig_fetch_bench *fig_fetch_bench_open(uint64_t seed, fig_fetch_bench_scale scale, uint64_t number);
void fig_fetch_bench_close(fig_fetch_bench *bench);
/* Makes slots of `slot_bytes` bytes. No plan is published. */
void fig_fetch_bench_resize(fig_fetch_bench *bench, uint32_t slot_bytes);

/* Draws a plan of random words with every section, for one launch of a bucket's shape. */
void fig_fetch_bench_draw(fig_fetch_bench *bench, fig_fetch_bench_plan *plan, uint32_t bucket);
/* Adds `count` changed entries of the page table to the plan. */
void fig_fetch_bench_add_pages(fig_fetch_bench *bench, fig_fetch_bench_plan *plan, uint32_t count);
/* write fills slot `number` with the sections that plan->head names. publish does this too, then
 * writes the head and so publishes the plan. Both return the slot, so that a test can change it. */
uint8_t *fig_fetch_bench_write(fig_fetch_bench *bench, fig_fetch_bench_plan *plan, uint64_t number);
uint8_t *fig_fetch_bench_publish(fig_fetch_bench *bench, fig_fetch_bench_plan *plan,
                                 uint64_t number);
/* Replaces the slot's head with one whose tag is sound, even if the rest of the head is not. */
void fig_fetch_bench_spoil(fig_fetch_bench *bench, uint64_t number, const fig_plan_head *head);

/* Each runs one launch and then checks all memory. */
void fig_fetch_bench_fetch(fig_fetch_bench *bench, uint32_t bucket, uint32_t tells);
void fig_fetch_bench_look(fig_fetch_bench *bench);
void fig_fetch_bench_drop(fig_fetch_bench *bench);

#endif

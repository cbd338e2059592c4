/* race.h: lets a host stage as fast as it can while the device takes plans, and checks the results.
 *
 *     append k to k_cache, v_cache    in f32; row r of k is computed from r and the stretch
 *     attention, q = 0                lse = log2(length), for every length and every split
 *
 * Lengths, sequences, positions, horizons and pages change at random from step to step. Some steps
 * are taken back, completely or for the rest of their horizon. Several plans may be staged at once.
 * After each stretch of steps, a model of the cache shows where every token must be and which row
 * wrote it. After some stretches, a graph is also launched without a staged plan, which must change
 * nothing and must be counted. Or it is launched while a plan is being staged, and must take the
 * whole plan or nothing. Invariant: all random choices follow from the seed and never from the
 * timing, so two runs with one seed end with the same bits. */
#ifndef FIG_TESTS_SUPPORT_RACE_H
#define FIG_TESTS_SUPPORT_RACE_H

#include "engine/engine.h"
#include "tests/support/random.h"

enum {
    FIG_RACE_ROWS = 8,
    FIG_RACE_KV = 128,
    FIG_RACE_HEAD_DIM = 64,
    FIG_RACE_PAGE = 4,
    FIG_RACE_SEQUENCES = FIG_RACE_ROWS + 2,
    FIG_RACE_SEQUENCE_PAGES = FIG_RACE_KV / FIG_RACE_PAGE,
    FIG_RACE_TOKENS = FIG_RACE_SEQUENCES * FIG_RACE_KV,
    FIG_RACE_HORIZON = 4,
    FIG_RACE_SLOTS = 4, /* the most slots that a ring has here */
    FIG_RACE_PLANS = FIG_RACE_SLOTS + 2
};

typedef struct fig_race_rows {
    /* in_place 1: row r is sequence r, and the step gives no `sequences` */
    int32_t count, in_place;
    int32_t lengths[FIG_RACE_ROWS], sequences[FIG_RACE_ROWS];
} fig_race_rows;

/* A staged plan. tokens: where in the cache each launch writes each row's token; -1: nowhere. */
typedef struct fig_race_plan {
    int32_t rows, horizon, launched;
    int32_t lengths[FIG_RACE_ROWS]; /* the lengths at the first launch */
    int32_t tokens[FIG_RACE_HORIZON][FIG_RACE_ROWS];
} fig_race_plan;

typedef struct fig_race {
    fig_engine *engine;
    fig_random random;
    int32_t table[FIG_RACE_SEQUENCES][FIG_RACE_SEQUENCE_PAGES];
    /* the expected contents of the cache, in the order of its pages */
    float written[FIG_RACE_TOKENS];
    float lse[FIG_RACE_ROWS];            /* the expected lse after the last launch */
    int32_t rows;                        /* the number of rows in the last launch */
    fig_race_rows drawn;                 /* the rows that were drawn last */
    fig_race_plan plans[FIG_RACE_PLANS]; /* staged plans with launches left, oldest first */
    int32_t plan_count;
    int32_t stretch; /* the stretch's number; it changes the numbers in k */
    int64_t launches, early, taken_back;
    /* how many plans a replay took although the replay was launched before they were staged */
    int64_t hasty;
    char sentence[320];                              /* "": no fault so far */
    float cache[FIG_RACE_TOKENS][FIG_RACE_HEAD_DIM]; /* k_cache, as last read */
} fig_race;

/* Lowers buckets {2, 128}, {4, 128} and {8, 128}. Fails the test if it cannot. */
fig_graphs *fig_race_graphs(void);

/* Opens an engine with everything bound. If that fails, returns 0 and sets the sentence. Any thread
 * may call these three functions. They do not assert, since CMocka's assertions work in one thread
 * only. */
int fig_race_open(fig_race *race, const fig_graphs *graphs, const fig_engine_options *options,
                  uint64_t seed);
/* Runs `steps` steps in stretches of at most `stretch` steps, and compares with the model at the
 * end of each stretch. At the first fault, returns 0 and sets the sentence. */
int fig_race_run(fig_race *race, int64_t steps, int32_t stretch);
void fig_race_close(fig_race *race);

#endif

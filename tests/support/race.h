/* race.h: a host that stages as fast as it can against a device that takes plans, and what must
 * come of it.
 *
 *     append k to k_cache, v_cache    in f32, row r of k is a number of the row and the stretch
 *     attention, q = 0                lse = log2(length), for every length and every split
 *
 * Lengths, sequences, positions, horizons and pages change at random in every step; some steps are
 * taken back, whole or for what is left of their horizon; some stay staged while others are staged
 * behind them. A model of the cache says after each stretch where every token must lie, and who
 * wrote it. After some stretches a graph is also launched with no plan staged, and must change
 * nothing and be counted; or before one is staged, and must take all of it or nothing. Invariant:
 * what is drawn follows from the seed alone, never from who was faster, so that two runs of a seed
 * end with the same bits. */
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
    FIG_RACE_SLOTS = 4, /* most that a ring has here */
    FIG_RACE_PLANS = FIG_RACE_SLOTS + 2
};

typedef struct fig_race_rows {
    int32_t count, in_place; /* 1: row r is sequence r, and the step says no sequences */
    int32_t lengths[FIG_RACE_ROWS], sequences[FIG_RACE_ROWS];
} fig_race_rows;

/* One plan that was staged: for each of its launches the tokens that it writes; -1: none. */
typedef struct fig_race_plan {
    int32_t rows, horizon, launched;
    int32_t lengths[FIG_RACE_ROWS]; /* at the first launch */
    int32_t tokens[FIG_RACE_HORIZON][FIG_RACE_ROWS];
} fig_race_plan;

typedef struct fig_race {
    fig_engine *engine;
    fig_random random;
    int32_t table[FIG_RACE_SEQUENCES][FIG_RACE_SEQUENCE_PAGES];
    float written[FIG_RACE_TOKENS];      /* what the cache must hold, token by token as pages lie */
    float lse[FIG_RACE_ROWS];            /* of the last launch */
    int32_t rows;                        /* of the last launch */
    fig_race_rows drawn;                 /* last */
    fig_race_plan plans[FIG_RACE_PLANS]; /* staged, not launched to their end; oldest first */
    int32_t plan_count;
    int32_t stretch; /* makes k's numbers differ from those of a stretch before */
    int64_t launches, early, taken_back;
    int64_t hasty;      /* launches by a replay that began before its plan was staged */
    char sentence[320]; /* "" where all is well */
    float cache[FIG_RACE_TOKENS][FIG_RACE_HEAD_DIM]; /* k_cache, as it was read last */
} fig_race;

/* Buckets {2, 128}, {4, 128} and {8, 128}. Fails the test where it cannot. */
fig_graphs *fig_race_graphs(void);

/* Opens an engine with all of it bound; 0 with a sentence where that fails. Any thread may call
 * these three; none asserts, since CMocka's assertions belong to one thread. */
int fig_race_open(fig_race *race, const fig_graphs *graphs, const fig_engine_options *options,
                  uint64_t seed);
/* So many steps, compared with the model at the end of stretches of `stretch` steps at most. 0 with
 * a sentence at the first thing that is wrong. */
int fig_race_run(fig_race *race, int64_t steps, int32_t stretch);
void fig_race_close(fig_race *race);

#endif

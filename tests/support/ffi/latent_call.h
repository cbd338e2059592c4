/* latent_call.h: describes calls over latent caches as XLA makes them.
 *
 * There are three kinds of calls: each row has one token; each row has as many as a dim of q; or
 * query_start_loc gives the number for each row. Invariant: all calls of a world have the same
 * arrays. */
#ifndef FIG_TESTS_SUPPORT_LATENT_CALL_H
#define FIG_TESTS_SUPPORT_LATENT_CALL_H

#include "tests/support/ffi/xla_host.h"
#include "tools/figraph/truth/truth_latent.h"

enum {
    FIG_LATENT_CALL_ROWS = 3,
    FIG_LATENT_CALL_MOST = 2, /* tokens of a row */
    FIG_LATENT_CALL_HEADS = 8,
    FIG_LATENT_CALL_PAGE = 16,
    FIG_LATENT_CALL_WIDTH = 3, /* pages of a row */
    FIG_LATENT_CALL_ROOM = FIG_LATENT_CALL_PAGE * FIG_LATENT_CALL_WIDTH,
    FIG_LATENT_CALL_PAGES = FIG_LATENT_CALL_ROWS * FIG_LATENT_CALL_WIDTH,
    FIG_LATENT_CALL_TOKENS = FIG_LATENT_CALL_ROWS * FIG_LATENT_CALL_MOST
};

typedef enum fig_latent_rows {
    FIG_LATENT_SINGLE,
    FIG_LATENT_EQUAL,
    FIG_LATENT_PACKED,
    FIG_LATENT_KINDS
} fig_latent_rows;

typedef struct fig_latent_way {
    const char *platform;
    fig_latent_rows kind;
    int codes;  /* 0: the cache is bf16, like q */
    int dense;  /* 1: there is no page table */
    int plan;   /* 1: under a plan */
    int placed; /* 1: positions are given */
    int norm, decode;
} fig_latent_way;

typedef struct fig_latent_world {
    uint16_t q[FIG_LATENT_CALL_TOKENS * FIG_LATENT_CALL_HEADS * TRUTH_LATENT_KEY_DIM],
        latent[FIG_LATENT_CALL_TOKENS * TRUTH_LATENT_KEY_DIM],
        out[FIG_LATENT_CALL_TOKENS * FIG_LATENT_CALL_HEADS * TRUTH_LATENT_DIM],
        norm[TRUTH_LATENT_DIM];
    uint16_t q_given[FIG_LATENT_CALL_TOKENS * FIG_LATENT_CALL_HEADS * TRUTH_LATENT_KEY_DIM];
    uint8_t cache[FIG_LATENT_CALL_PAGES * FIG_LATENT_CALL_PAGE * TRUTH_LATENT_CODES * 2];
    float lse[FIG_LATENT_CALL_TOKENS * FIG_LATENT_CALL_HEADS], sinks[FIG_LATENT_CALL_HEADS];
    int32_t table[FIG_LATENT_CALL_ROWS * FIG_LATENT_CALL_WIDTH], lengths[FIG_LATENT_CALL_ROWS],
        starts[FIG_LATENT_CALL_ROWS + 1], positions[FIG_LATENT_CALL_TOKENS];
    _Alignas(64) uint8_t planned[1 << 14], scratch[1 << 20];
} fig_latent_world;

/* The contents of a new world. */
extern const int32_t fig_latent_call_lengths[FIG_LATENT_CALL_ROWS];
extern const int32_t fig_latent_call_starts[FIG_LATENT_CALL_ROWS + 1];

fig_latent_world *fig_latent_call_make(const fig_latent_way *of); /* the caller frees it */
/* Returns the values or the bytes of a token of the cache. */
int32_t fig_latent_call_width(const fig_latent_way *of);
/* Describes a call of `plan` that makes the plan of such calls. */
void fig_latent_call_describe_plan(fig_xla_host *host, const fig_latent_way *of,
                                   fig_latent_world *w);
/* Describes a call of latent_attention or latent_decode. Its arguments: q, [latent,] cache,
 * lengths, page_table, plan, scratch, sinks, [norm, positions, cos_sin,] [query_start_loc]. */
void fig_latent_call_describe(fig_xla_host *host, const fig_latent_way *of, fig_latent_world *w);

#endif

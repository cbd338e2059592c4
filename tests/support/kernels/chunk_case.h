/* chunk_case.h: an engine whose steps hold decode rows, drafts and chunks of prompts, and the
 * comparison of its attention with float64.
 *
 *     append k, v to the caches; attention of q over them, with lse
 *
 * Sequences grow from step to step, so that a chunk sees what earlier steps appended. Query tokens
 * that belong to no row are NaN. Each step runs twice and must leave the same bits. Invariant: each
 * array lies in memory of place.h. */
#ifndef FIG_TESTS_SUPPORT_CHUNK_CASE_H
#define FIG_TESTS_SUPPORT_CHUNK_CASE_H

#include "include/figraph.h"
#include "tests/support/kernels/reference.h"
#include "tools/figraph/truth/truth_score.h"

enum { FIG_CHUNK_ROW_LIMIT = 24 };

typedef struct fig_chunk_form {
    fig_dtype dtype, kv_dtype;
    int32_t q_heads, kv_heads, head_dim;
    int32_t page_size; /* 0: dense caches */
    int32_t rows, kv;  /* batch_limit and kv_limit */
    int32_t row_tokens, query_limit;
    int32_t window;
    float soft_cap;
    int32_t sinks, alibi, scales; /* scales: 0, 1 or kv_heads */
    int32_t deterministic;
    int32_t hnd;
    int32_t share; /* fig_engine_options.share */
    /* The text of the score, whose arrays all have a count; NULL: no score. An array of floats gets
     * small numbers, an i32 array numbers of tokens, and the i32 array `sees` any bits. */
    const char *score;
    int32_t on_device;        /* 1: the device reads lengths and query tokens, and makes the plan */
    int32_t twice;            /* 1: a second node computes the attention without the score */
    const fig_traits *traits; /* the machine to lower for; NULL: fig_place_traits() */
} fig_chunk_form;

typedef struct fig_chunk_step {
    int32_t rows;
    int32_t counts[FIG_CHUNK_ROW_LIMIT], lengths[FIG_CHUNK_ROW_LIMIT];
    int32_t sequences[FIG_CHUNK_ROW_LIMIT];
    int32_t bucket; /* the bucket to name; 0: none */
} fig_chunk_step;

typedef struct fig_chunk_case {
    fig_chunk_form form;
    fig_graphs *graphs;
    fig_engine *engine;
    int32_t columns;
    int64_t pages;
    int32_t table[FIG_CHUNK_ROW_LIMIT * 4096]; /* [rows][columns] */
    fig_reference_array q, k, v, out, lse, k_cache, v_cache, sinks, alibi, k_scale, v_scale;
    fig_reference_array lengths, starts;               /* what the device reads */
    fig_reference_array plain_out, plain_lse;          /* of the node without the score */
    fig_score *score;                                  /* NULL: none */
    fig_reference_array arrays[FIG_SCORE_ARRAY_LIMIT]; /* of the score */
    truth_score truth;
} fig_chunk_case;

/* Draws a row's number of query tokens. left: those of the step that no row has yet. */
typedef int32_t fig_chunk_count(const fig_chunk_form *form, fig_random *random, int32_t left);
/* Draws a step, of which some rows are idle. ends: [rows] the tokens of each sequence, which grow
 * by the step's. */
fig_chunk_step fig_chunk_case_draw(const fig_chunk_form *form, fig_random *random, int32_t *ends,
                                   fig_chunk_count *count);

void fig_chunk_case_open(fig_chunk_case *c, const fig_chunk_form *form, uint64_t seed);
void fig_chunk_case_close(fig_chunk_case *c);
/* Fills q, k and v of the step's tokens. The numbers of a token depend on the `content` of its row
 * and on its index in the row. */
void fig_chunk_case_fill(fig_chunk_case *c, const fig_chunk_step *step, const int32_t *contents,
                         uint64_t seed);
/* Describes the bucket of the last step. */
fig_bucket_info fig_chunk_case_bucket(const fig_chunk_case *c);
/* Runs the step twice and checks that nothing but the step's tokens was written. */
void fig_chunk_case_run(fig_chunk_case *c, const fig_chunk_step *step);
/* Makes K and V of all older tokens that the mask or the score, by -inf, hides from all queries of
 * their row NaN. Returns the number of these tokens. */
int32_t fig_chunk_case_spoil(fig_chunk_case *c, const fig_chunk_step *step);
/* Compares up to `most` vectors of each row with float64. */
void fig_chunk_case_check(fig_chunk_case *c, const fig_chunk_step *step, int32_t most);
/* Draws, fills, runs and checks `steps` steps, in which sequences grow. */
void fig_chunk_case_try(fig_chunk_case *c, fig_random *random, uint64_t seed, uint64_t steps,
                        int32_t most, fig_chunk_count *count);

#endif

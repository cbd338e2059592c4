/* prompt_case.h: one run of attention over rows with many query tokens, and its comparison with
 * float64.
 *
 * Everything that is not an input or a result is NaN: outputs before the run, query tokens of no
 * row, and pages and tokens after a row's end or before its window. The contents of a row depend
 * only on its `content`, so that two cases can have the same row among different other rows. The
 * run is made twice and must give the same bits both times. Invariant: every array is in memory
 * from place.h, and has exactly the size that the run may use. */
#ifndef FIG_TESTS_SUPPORT_PROMPT_CASE_H
#define FIG_TESTS_SUPPORT_PROMPT_CASE_H

#include "include/figraph_prompts.h"
#include "tests/support/kernels/reference.h"

enum { FIG_PROMPT_ROW_LIMIT = 64, FIG_PROMPT_PREFIX_LIMIT = 96 };

typedef struct fig_prompt_form {
    fig_dtype dtype;
    int32_t q_heads, kv_heads, head_dim, page_size, window;
    float soft_cap, sm_scale;
    int32_t deterministic, sees_all, hnd, sinks, early_reads;
    int32_t between; /* dims between two heads; V may lie there, between the heads of K */
    int32_t apart;   /* 1: pages are spaced so that the copy engine's maps do not fit them */
    /* the number of query tokens before the first row and after the last; they belong to no row */
    int32_t gap;
    int32_t rows;
    int32_t queries[FIG_PROMPT_ROW_LIMIT], lengths[FIG_PROMPT_ROW_LIMIT];
    int32_t contents[FIG_PROMPT_ROW_LIMIT];
    int32_t prefix_count;
    fig_prompts_prefix prefixes[FIG_PROMPT_PREFIX_LIMIT]; /* their rows have the same pages */
    int32_t finds;        /* 1: the plan finds the prefixes in the page table */
    int32_t shared_limit; /* 0: the query tokens of rows with prefixes */
} fig_prompt_form;

typedef struct fig_prompt_case {
    fig_prompt_form form;
    fig_prompts *prompts;
    int32_t starts[FIG_PROMPT_ROW_LIMIT + 1];
    int32_t tokens, columns;
    int64_t pages;
    fig_prompts_memory memory;
    void *plan;
    fig_reference_array q, k, v, table, out, lse, sinks, scratch;
    fig_prompts_call call;
} fig_prompt_case;

/* Makes a form without rows. The rows added to it have contents 0, 1, 2, ... */
fig_prompt_form fig_prompt_form_of(fig_dtype dtype, int32_t q_heads, int32_t kv_heads,
                                   int32_t head_dim);
void fig_prompt_form_add(fig_prompt_form *form, int32_t queries, int32_t length);
/* Lets `rows` rows from first_row on begin with the same tokens: whole pages. */
void fig_prompt_form_share(fig_prompt_form *form, int32_t first_row, int32_t rows, int32_t tokens);
void fig_prompt_case_open(fig_prompt_case *c, const fig_prompt_form *form, uint64_t seed);
void fig_prompt_case_close(fig_prompt_case *c);
/* Runs twice. Fails if a byte was written that must not be, if bits differ, or if a counter was not
 * reset. */
void fig_prompt_case_run(fig_prompt_case *c);
/* Compares about `most` pairs of a query and a head with float64; if there are more, draws them at
 * random. Returns the rms error as a fraction of the rms of the true values. */
double fig_prompt_case_check(fig_prompt_case *c, int32_t most);
/* Runs with prefixes and without them, and fails if the results differ by more than the rounding of
 * a merge. */
void fig_prompt_case_compare(fig_prompt_case *c);
/* Opens a case, runs it, checks it and closes it. Returns the rms error. */
double fig_prompt_case_try(const fig_prompt_form *form, uint64_t seed, int32_t most);

#endif

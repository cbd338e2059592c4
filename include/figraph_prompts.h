/* figraph_prompts.h: attention of rows with many query tokens over a paged cache.
 *
 * figraph.h and figraph_runner.h are for decoding, where each row has a few query tokens. Here each
 * row of a step has any number of query tokens, and the rows are packed one behind the other. A row
 * may be a whole prompt, a chunk of a prompt whose earlier tokens are in the cache, or a single
 * token. K and V of all tokens must be in the cache when attention begins (fig_append_kv puts them
 * there).
 *
 * The host makes a plan from the number of query tokens and the length of each row. The plan
 * divides the work into equal parts for all SMs. The caller copies the plan to the device. Any
 * number of runs, such as all layers of a model, can use the same plan.
 *
 *     fig_prompts *prompts;
 *     fig_prompts_open(&prompts, FIG_OPTIONS(fig_prompts_options, .dtype = FIG_BF16,
 *                      .q_heads = 32, .kv_heads = 8, .head_dim = 128, .page_size = 16));
 *     fig_prompts_measure(prompts, rows, tokens, &memory); // the most that such steps need
 *     fig_prompts_plan(prompts, FIG_OPTIONS(fig_prompts_step, .rows = rows,
 *                      .query_start = starts, .lengths = lengths, .page_columns = columns),
 *                      plan, memory.plan_bytes);
 *     // copy the plan to the device; set the first memory.zero_bytes of scratch to 0, once
 *     fig_prompts_run(prompts, FIG_OPTIONS(fig_prompts_call, .tokens = tokens, .q = q, ...));
 *
 * On compute capability 9.0, kernels on warpgroups do the work. Other GPUs, head_dim 80, and caches
 * with strides that the TMA unit does not support use plain instructions, which are correct but
 * much slower.
 *
 * Threads: fig_prompts is immutable. Any number of threads may use it at the same time. Runs that
 * may overlap on the device must share neither scratch nor outputs. */
#ifndef FIGRAPH_PROMPTS_H
#define FIGRAPH_PROMPTS_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels of one shape of attention, loaded on one device. */
typedef struct fig_prompts fig_prompts;

typedef struct fig_prompts_options {
    uint32_t size; /* sizeof(fig_prompts_options) */
    /* The device that runs use, as in fig_runner_options. */
    fig_device device;
    /* CUDA: the number of the GPU, as the driver counts GPUs. */
    int32_t ordinal;
    /* FIG_F16 or FIG_BF16, of q, out and the cache. */
    fig_dtype dtype;
    /* The number of query heads: a multiple of kv_heads, at most 64 times as many. */
    int32_t q_heads;
    /* The number of KV heads. */
    int32_t kv_heads;
    /* The number of elements of each head: 64, 80, 96, 128 or 256. */
    int32_t head_dim;
    /* The number of tokens of a page. */
    int32_t page_size;
    /* The number of tokens that a query sees, its own included. 0: all. */
    int32_t window;
    /* The factor of q.k in a logit. 0: 1 / sqrt(head_dim). */
    float sm_scale;
    /* Logits x become soft_cap * tanh(x / soft_cap). 0: none. */
    float soft_cap;
    /* 1: the library cuts the work of each row independently of other rows, so the bits of a row's
     * result do not depend on other rows. Steps of few tokens are then slower. */
    uint32_t deterministic;
    /* For tests only; see fig_test_options in figraph_unstable.h. NULL: no test options. */
    const struct fig_test_options *test;
    /* The most query tokens that all rows with shared prefixes may have together in a step; see
     * fig_prompts_prefix. For each q head of each of these tokens, scratch has room for 4 more
     * vectors. 0: no rows share a prefix. */
    int32_t shared_limit;
} fig_prompts_options;

/* Loads the kernels of a shape. The caller owns *prompts. FIG_INVALID: the sentence names the
 * field, its value and the limit. FIG_NO_DEVICE: as for fig_engine_open(). */
FIG_API fig_status fig_prompts_open(fig_prompts **prompts, const fig_prompts_options *options);
/* Frees the kernels without waiting; runs may still be in flight. Accepts NULL. */
FIG_API void fig_prompts_close(fig_prompts *prompts);
/* Returns the device that runs use. */
FIG_API fig_device fig_prompts_device(const fig_prompts *prompts);

/* Memory of a step. */
typedef struct fig_prompts_memory {
    uint32_t size; /* sizeof(fig_prompts_memory) */
    /* The most bytes that the plan of such a step has. */
    uint64_t plan_bytes;
    /* The bytes of scratch, which is aligned to 16 bytes. */
    uint64_t scratch_bytes;
    /* The bytes at the beginning of scratch that must be 0 before the first run with it. Each run
     * leaves them 0. */
    uint64_t zero_bytes;
} fig_prompts_memory;
/* Computes the memory of any step of at most `rows` rows and `tokens` query tokens. FIG_INVALID,
 * FIG_TOO_LARGE: the sentence names the number and the limit. */
FIG_API fig_status fig_prompts_measure(const fig_prompts *prompts, int32_t rows, int32_t tokens,
                                       fig_prompts_memory *memory);

/* Rows [first_row, first_row + rows) of a step begin with the same `tokens` tokens, in the same
 * pages. Attention then reads these tokens once for all query tokens of the rows, instead of once
 * for each row. */
typedef struct fig_prompts_prefix {
    /* The first of the rows. */
    int32_t first_row;
    /* The number of rows. */
    int32_t rows;
    /* The number of tokens that the rows have in common. */
    int32_t tokens;
} fig_prompts_prefix;

/* The rows of a step. Row r is row r of the page table. */
typedef struct fig_prompts_step {
    uint32_t size; /* sizeof(fig_prompts_step) */
    /* The number of rows. */
    int32_t rows;
    /* [rows + 1] Row r has query tokens [query_start[r], query_start[r + 1]), and may have none.
     * The first entry need not be 0; tokens outside all rows are neither read nor written. */
    const int32_t *query_start;
    /* [rows] The number of tokens of each row in the cache, including the row's query tokens, which
     * are its last ones. Not read for a row without queries. */
    const int32_t *lengths;
    /* The number of entries in each row of the page table. No length may need more entries. */
    int32_t page_columns;
    /* 1: each query sees all tokens of its row. 0: attention is causal; query i of n sees the
     * tokens up to length - n + i. */
    uint32_t sees_all;
    /* The number of shared prefixes. It is 0 if a window or `deterministic` was given. */
    int32_t prefix_count;
    /* [prefix_count] The rows of two prefixes are equal, nested or disjoint. A nested prefix comes
     * later in the array and has more tokens than the prefix around it; prefixes nest at most three
     * deep. A prefix must end before the first query token of each of its rows that has query
     * tokens. */
    const fig_prompts_prefix *prefixes;
    /* [rows][table_stride] The page table, in host memory. If it is given, prefix_count must be 0,
     * and fig_prompts_plan finds the prefixes itself: it looks for rows that begin with the same
     * pages, and shares these pages if that costs less and shared_limit allows it. With a window or
     * `deterministic` it shares none. NULL: the plan has only the prefixes of `prefixes`. */
    const int32_t *page_table;
    /* The stride between rows of page_table: at least page_columns. */
    int64_t table_stride;
} fig_prompts_step;
/* Writes the plan of a step to host memory, aligned to 16 bytes. FIG_INVALID: a row is wrong, or
 * plan_bytes is too small. */
FIG_API fig_status fig_prompts_plan(const fig_prompts *prompts, const fig_prompts_step *step,
                                    void *plan, uint64_t plan_bytes);

/* One run. Addresses are device pointers; on the host device they are host pointers. Strides are in
 * elements; 0 stands for the stride of an array without gaps. */
typedef struct fig_prompts_call {
    uint32_t size; /* sizeof(fig_prompts_call) */
    /* The number of tokens that q and out have memory for: at least query_start[rows] of the plan's
     * step. */
    int32_t tokens;
    /* The plan, on the device. */
    const void *plan;
    /* [tokens][q_heads][head_dim] Tokens outside all rows may have any contents. */
    const void *q;
    /* [tokens][q_heads][head_dim] It may not overlap q, the caches or lse. */
    void *out;
    /* [tokens][q_heads] The log-sum-exp of the logits, base 2, sinks included. It may not overlap
     * another array. NULL: not written. */
    float *lse;
    /* [pages][page_size][kv_heads][head_dim] V must be finite for all tokens of a row, even for
     * tokens that a query does not see. Memory behind the last token of a row may hold any
     * bytes. */
    const void *k_cache;
    /* The shape of k_cache; the same rules hold. */
    const void *v_cache;
    /* The number of pages of the caches. */
    int64_t pages;
    /* [rows][page_columns] The number in the cache of each page of each row. */
    const int32_t *page_table;
    /* [q_heads] The sink of each head: one more logit, without a value vector, that counts in the
     * sum of the weights. NULL: no sinks. */
    const float *sinks;
    /* {token, head} of q, and of out. */
    int64_t q_strides[2], out_strides[2];
    /* {page, token, head} of the caches. */
    int64_t k_strides[3], v_strides[3];
    /* The stride between tokens of lse. */
    int64_t lse_stride;
    /* The stride between rows of the page table, which must be given. */
    int64_t table_stride;
    /* Memory that only this run uses until it has ended. */
    void *scratch;
    /* The size of scratch: at least scratch_bytes, as fig_prompts_measure() gave it for this
     * step. */
    uint64_t scratch_bytes;
    /* 1: the run may read the plan, the page table, and K and V of the tokens before each row's
     * queries while the preceding work on the stream still runs. They must have been written before
     * that work began. If that work is a run with early_reads, it may itself begin early, so they
     * must have been written before the work in front of it began. */
    uint32_t early_reads;
    uint32_t reserved; /* 0 */
    /* As in fig_run. */
    void *stream;
} fig_prompts_call;
/* Launches attention. On CUDA this only launches one kernel, so it may be captured. Elements of
 * `out` for tokens outside all rows do not change. FIG_INVALID: the sentence names the field;
 * nothing was launched. */
FIG_API fig_status fig_prompts_run(const fig_prompts *prompts, const fig_prompts_call *call);

#ifdef __cplusplus
}
#endif
#endif

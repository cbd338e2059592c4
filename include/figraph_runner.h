/* figraph_runner.h: run recorded programs at once, without an engine: no ring, no slots, no state.
 *
 * An engine (figraph.h) owns a stream, plans on the host and replays. A runner is stateless apart
 * from its loaded kernels: each call launches kernels on the caller's stream, with the addresses
 * that the caller passes, and enqueues nothing else. So a caller may capture a run, and replay the
 * capture any number of times with other contents in the same arrays. A run can also implement a
 * custom call of XLA or a function of TVM.
 *
 *     fig_runner *runner;
 *     fig_runner_open(&runner, graphs, NULL);
 *     const fig_binding bindings[] = {{.size = sizeof *bindings, .address = in, .bytes = in_bytes},
 *                                     {.size = sizeof *bindings, .address = out,
 *                                      .bytes = out_bytes}};
 *     fig_runner_run(runner, FIG_OPTIONS(fig_run, .rows = rows, .bindings = bindings,
 *                                        .binding_count = 2, .stream = stream));
 *
 * Record and lower the program as for an engine. A program of one operation is cheap to make. It
 * needs a spec without heads (only dtype), its tensors, one recorder call, and any one bucket: runs
 * ignore buckets.
 *
 *     fig_program_create(&program, FIG_OPTIONS(fig_spec, .dtype = FIG_BF16));
 *     in = fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "in",
 *              .role = FIG_ROLE_BOUND, .dtype = FIG_BF16, .rank = 2,
 *              .dims = {FIG_DIM_BATCH, 2 * width}));
 *     ...
 *     fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
 *     fig_program_finish(program);
 *     fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options,
 *              .buckets = &(fig_bucket){1, 1}, .bucket_count = 1));
 *
 * Threads: a runner is immutable. Any number of threads may use it at the same time, each with its
 * own scratch. Runs that may overlap on the device must share neither scratch nor outputs. */
#ifndef FIGRAPH_RUNNER_H
#define FIGRAPH_RUNNER_H

#include <figraph_archive.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Graphs whose kernels are loaded on one device. */
typedef struct fig_runner fig_runner;

typedef struct fig_runner_options {
    uint32_t size; /* sizeof(fig_runner_options) */
    /* The device that runs use. FIG_DEVICE_AUTO: CUDA; or the host, if there is no driver or no GPU
     * and no ordinal is given. */
    fig_device device;
    /* CUDA: the number of the GPU, as the driver counts GPUs. The runner uses the GPU's primary
     * context. */
    int32_t ordinal;
    /* CUDA: the largest number of runs that all runners of this process together may have on the
     * GPU at once, on different streams; up to 1024. 0: 12. If the GPU has at least 23 SMs for each
     * of them, attention spreads the workers of a long row among those of short rows, which is
     * faster. If the GPU has fewer than 7 SMs for each, as a small MIG slice has, attention uses a
     * slower merge in which no block waits for another. If more runs are on the GPU at once than
     * this number, a run may never end: after some seconds its launch fails, and the context is
     * lost with it (FIG_LOST). */
    int32_t concurrent_runs;
    /* For tests only; see fig_test_options in figraph_unstable.h. NULL: no test options. */
    const struct fig_test_options *test;
    /* As in fig_engine_options. Scores are compiled when the runner is opened, for every kernel
     * that some run may need, so that no run compiles; this takes a few seconds. FIG_UNSUPPORTED,
     * from fig_runner_open(): the driver does not compile a score. */
    int32_t compile_scores;
    /* As in fig_engine_options. */
    const char *score_cache;
} fig_runner_options;

/* Opens a runner, and loads every kernel that a run of these graphs may need. Loading takes
 * milliseconds. A kernel is loaded once for all runners of a device and stays until the process
 * ends. The calling thread may be capturing: nothing of this call becomes part of the capture. The
 * caller owns *runner; `graphs` must outlive it. options may be NULL. FIG_UNSUPPORTED: the program
 * has a call, an operation without a kernel in this library, or rows that may be chunks of prompts
 * (row_tokens above 8, and the device does not read the lengths). FIG_NO_DEVICE: as for
 * fig_engine_open(). */
FIG_API fig_status fig_runner_open(fig_runner **runner, const fig_graphs *graphs,
                                   const fig_runner_options *options);
/* Frees a runner without waiting. Runs may still be in flight, and captures of them may be launched
 * until the process ends. */
FIG_API void fig_runner_close(fig_runner *runner);
/* Saves the runner's graphs as fig_graphs_archive() does, and embeds the scores that the runner has
 * compiled, in place of those that the graphs carry. Engines load them if their caller trusts them;
 * see fig_trust. FIG_UNSUPPORTED: the runner has compiled nothing, because it runs on the host, was
 * opened without compile_scores, or has no score that is compiled. Otherwise fails as
 * fig_graphs_archive() does. */
FIG_API fig_status fig_runner_archive(const fig_runner *runner, const char *path,
                                      const fig_archive_options *options);
/* Returns the device that the runner uses. If the runner was opened with FIG_DEVICE_AUTO, this is
 * the device that it chose. */
FIG_API fig_device fig_runner_device(const fig_runner *runner);
/* Fills *traits for the runner's device. Pass them to fig_graphs_scratch(). */
FIG_API fig_status fig_runner_read_traits(const fig_runner *runner, fig_traits *traits);

/* One run. Launches take their arguments by value: the caller may free this struct, its bindings
 * and their names when the call returns. The memory at the addresses must stay until the run has
 * ended. */
typedef struct fig_run {
    uint32_t size; /* sizeof(fig_run) */
    /* The number of rows, up to the spec's batch_limit. A program without a cache takes any number.
     * 0: the call launches nothing. A row must not read tokens that another row of the same run
     * appends. */
    int32_t rows;
    /* If the program reads lengths on the device: the largest number of tokens that any row may
     * have; a row with more is idle. 0: the spec's kv_limit, or the capacity of the dense caches
     * and page tables if that is less. If the program reads no lengths: the length of every row,
     * including the tokens of this run. */
    int64_t kv_length;
    /* [binding_count] Binding i is for tensor i of fig_graphs_tensor(). Its name is the name of
     * that tensor, or NULL. Strides are as in fig_engine_bind(). Each address must be a multiple of
     * the element size; if an address or a stride is not a multiple of 16 bytes, the run uses
     * slower kernels. If no node of the run uses a tensor, its address may be NULL. */
    const fig_binding *bindings;
    /* The number of bindings. */
    int32_t binding_count;
    /* The segment to run. NULL: every node of the program. Temporary tensors do not keep their
     * contents from run to run. */
    const char *segment;
    /* A plan that fig_runner_plan() wrote for the same rows, kv_length and query_tokens. NULL: the
     * run makes its own plan, in scratch. */
    void *plan;
    /* The size of `plan` in bytes. The call fails if the plan needs more. */
    uint64_t plan_bytes;
    /* Memory that only this run uses until it has ended, aligned to 16 bytes. May be NULL if
     * least_bytes of fig_scratch is 0. If `plan` is NULL, the contents do not matter before or
     * after the run. If `plan` is given, scratch must have the contents that fig_runner_plan(), or
     * an earlier run with that plan, left there. */
    void *scratch;
    /* The size of `scratch`. With less than best_bytes the work is cut into fewer pieces. A run
     * with a given plan needs best_bytes. */
    uint64_t scratch_bytes;
    /* On CUDA, a CUstream by value, of the device's primary context; NULL is that context's default
     * stream. On the host, NULL; the run has ended when the call returns. */
    void *stream;
    /* For a packed program (fig_spec.query_limit): the number of query tokens that q, k, v, out and
     * all other tensors of query tokens have memory for. 0: row_tokens for each row, but at most
     * the spec's query_limit. If the rows have more query tokens together, the run does nothing.
     * For any other program: 0. */
    int64_t query_tokens;
} fig_run;

/* Launches a run. On CUDA the call only launches kernels, so it may be captured: it allocates
 * nothing, loads nothing, waits for nothing and queries no device. It restores the caller's current
 * context. If a run has no names, and its arguments equal those of a recent run byte for byte, it
 * takes little more host time than its launches. On the host device the calling thread does the
 * work.
 *
 * Row r is sequence r: row r of a page table, or page r of a dense cache. The size of a dense cache
 * gives its length: if strides are 0, each sequence has bytes / (rows * heads * head_dim * element)
 * tokens, contiguous, and nothing behind them is read. A page table needs only the run's rows. Its
 * bytes or its row stride decide how many pages of each row are used. A row is idle if its length
 * is 0 or exceeds the limit: its output is zeros, with -inf in lse. If RoPE has indptr and offsets,
 * the bytes of these bindings decide how many segments there are, but there are at most as many as
 * in the program.
 *
 * In a packed program that reads query_starts, a row has as many query tokens as query_starts says,
 * and a run reads only the first rows + 1 entries of query_starts. So one capture serves every mix
 * of rows: padding rows have no query tokens. A packed program that does not read query_starts has
 * row_tokens query tokens in each row. In every output, the contents behind the last query token of
 * the step are unspecified.
 *
 * Nodes run as if one after the other, so one node's output may overlap another node's tensor. This
 * does not hold for caches and page tables: attention may read them before the preceding node has
 * ended. So they must not overlap any other tensor that the run writes. On CUDA any node of the run
 * may read weights of norms before the work in front of the run on the stream has ended. So that
 * work must not write them, unless it has ended when fig_runner_run() is called.
 *
 * After these failures nothing was launched. FIG_UNBOUND: a tensor that the run needs has no
 * address. FIG_INVALID: a binding is wrong, an output overlaps another tensor of its node, or
 * scratch is smaller than least_bytes. FIG_TOO_LARGE: rows, kv_length or query_tokens exceed the
 * spec. After FIG_DRIVER and FIG_LOST, whose sentences quote the driver, a part of the run may have
 * been launched. */
FIG_API fig_status fig_runner_run(const fig_runner *runner, const fig_run *run);

/* Makes a plan in one launch: writes run->plan from the lengths on the device, and zeroes
 * run->scratch if that is not NULL. Any number of runs may then share that plan and, one after the
 * other, that scratch. They may be runs of other graphs, if attention there has the same heads,
 * windows, row_tokens and element sizes, and if both are packed or neither is. Bindings are as in
 * the run, but only those of lengths, positions and query_starts are used. FIG_ORDER: no node of
 * the program needs a plan. */
FIG_API fig_status fig_runner_plan(const fig_runner *runner, const fig_run *run);

/* Memory that a run needs in addition to its tensors. */
typedef struct fig_scratch {
    uint32_t size; /* sizeof(fig_scratch) */
    /* The size of run->plan, which is aligned to 16 bytes. 0: no node needs a plan. */
    uint64_t plan_bytes;
    /* The best size of run->scratch. It is enough whether or not the run makes its plan there. */
    uint64_t best_bytes;
    /* The smallest size of run->scratch that fig_runner_run() accepts. */
    uint64_t least_bytes;
} fig_scratch;
/* Computes the memory of a run with `rows` rows and the given kv_length, on a device with the given
 * traits. traits may be NULL: the traits that the graphs were lowered for. The call only computes
 * and queries no device, so one machine can lay out runs for any chip that fig_traits_name() lists.
 * FIG_TOO_LARGE: rows or kv_length exceed the spec. */
FIG_API fig_status fig_graphs_scratch(const fig_graphs *graphs, const fig_traits *traits,
                                      int32_t rows, int64_t kv_length, fig_scratch *scratch);
/* Computes the memory of *run; it reads only the fields rows, kv_length and query_tokens.
 * fig_graphs_scratch() computes the same for query_tokens 0. FIG_INVALID: query_tokens is not 0,
 * and the program is not packed. FIG_TOO_LARGE: rows, kv_length or query_tokens exceed the spec. */
FIG_API fig_status fig_graphs_run_scratch(const fig_graphs *graphs, const fig_traits *traits,
                                          const fig_run *run, fig_scratch *scratch);

#ifdef __cplusplus
}
#endif
#endif

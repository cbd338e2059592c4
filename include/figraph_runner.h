/* figraph_runner.h: run recorded programs at once, without an engine: no ring, no slot, no state.
 *
 * An engine (figraph.h) owns a stream, plans on the host and replays. A runner owns nothing but
 * loaded kernels: each run says all that there is to know, its kernels are put on the caller's
 * stream, and they are all that is put there. So a run may be captured, by whomever and at any
 * addresses, and the capture replayed any number of times with other contents in the same arrays;
 * it may stand behind a custom call of XLA's, or behind a function of TVM's.
 *
 *     fig_runner *runner;
 *     fig_runner_open(&runner, graphs, NULL);
 *     const fig_binding bindings[] = {{.size = sizeof *bindings, .address = in, .bytes = in_bytes},
 *                                     {.size = sizeof *bindings, .address = out,
 *                                      .bytes = out_bytes}};
 *     fig_runner_run(runner, FIG_OPTIONS(fig_run, .rows = rows, .bindings = bindings,
 *                                        .binding_count = 2, .stream = stream));
 *
 * The program is recorded and lowered as for an engine. One that has a single operation is cheap to
 * make: a spec without heads (dtype alone), its tensors, one recorder call, and any one bucket, as
 * runs do not look at buckets:
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
 * Threads: a runner is immutable, and any number of threads may use it at the same time, each with
 * scratch of its own. Runs that may overlap on the device share neither scratch nor outputs. */
#ifndef FIGRAPH_RUNNER_H
#define FIGRAPH_RUNNER_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Graphs whose kernels are loaded on one device. */
typedef struct fig_runner fig_runner;
typedef struct fig_runner_options {
    uint32_t size;
    fig_device device; /* AUTO: cuda; host where there is no driver or no GPU at all, and no ordinal
                          is given */
    int32_t ordinal;   /* cuda: which GPU, as the driver counts them; its primary context is used */
    int32_t reserved;  /* 0 */
    const struct fig_test_options *test; /* for tests alone, of figraph_unstable.h; NULL: none */
} fig_runner_options;

/* Loads every kernel that any run of these graphs may need, which takes milliseconds; a kernel is
 * loaded once for all runners of a device and stays for as long as the process lives. The calling
 * thread may be capturing: nothing here becomes part of it. `graphs` must outlive the runner.
 * FIG_UNSUPPORTED: the program has a call, or an operation for which this library has no kernel. */
FIG_API fig_status fig_runner_open(fig_runner **runner, const fig_graphs *graphs,
                                   const fig_runner_options *options);
/* Nothing is waited for: runs may still be under way, and what was captured of them may be launched
 * as long as the process lives. */
FIG_API void fig_runner_close(fig_runner *runner);
FIG_API fig_device fig_runner_device(const fig_runner *runner); /* what AUTO became */
/* Of its device: what fig_graphs_scratch is to be asked with. */
FIG_API fig_status fig_runner_read_traits(const fig_runner *runner, fig_traits *traits);

/* Arguments go into the launches by value: all that is pointed to here, bindings and names too, may
 * go when the call returns; what the addresses hold must stay until the run has ended. */
typedef struct fig_run {
    uint32_t size;
    int32_t
        rows; /* up to the spec's batch_limit; any number where the program has no cache. 0: there
                     is nothing to do, and nothing is launched */
    int64_t kv_length; /* The program reads lengths on the device: the most that any of them may be;
                          0: the spec's kv_limit, or as much as its dense caches and page tables
                          hold where that is less. A row with more is idle. The program reads none:
                          the length of every row, this run's tokens included */
    const fig_binding *bindings; /* [binding_count] Number i is of the tensor of that number in
                                    fig_graphs_tensor; its name is that tensor's, or NULL. Strides
                                    as in a bind. Addresses are multiples of their elements' size:
                                    where one is none of 16 bytes, or a stride is, slower kernels
                                    serve. A tensor that no node of the run names may have the
                                    address NULL */
    int32_t binding_count;
    const char *segment; /* NULL: every node of the program. Temps do not live from run to run */
    void *plan; /* what fig_runner_plan wrote for equal rows and kv_length; NULL: the run makes its
                   own, in scratch */
    uint64_t plan_bytes; /* of plan; fewer than it has are refused */
    void *scratch; /* of this run alone until it has ended, aligned to 16 bytes. May be NULL where
                      the least bytes are 0. Where plan is NULL its contents do not matter, before
                      or after; else they are as fig_runner_plan, or a run under it, left them */
    uint64_t scratch_bytes; /* With less than the best the work is cut into fewer pieces; a run
                               under a plan that is given has the best */
    void *stream;           /* cuda: a CUstream by value, of the device's primary context; NULL is
                               its default stream. Host: NULL; the run has ended on return */
} fig_run;

/* Launches a run. On cuda nothing else is done, so that it is legal under capture: nothing is
 * allocated, loaded, waited for or asked of a device. The caller's current context is left as it
 * was. A run that says the same as one of the latest, byte for byte and without names, costs the
 * host little more than its launches. On the host the calling thread does the work.
 *
 * Row r is sequence r: row r of a page table, page r of a dense cache. A dense cache is as long as
 * its bytes say: where strides are 0, bytes / (rows * heads * head_dim * element) tokens of each
 * sequence lie back to back, and nothing behind them is read. Of a page table only the run's rows,
 * and as many pages of each as its bytes or its row stride hold, need be there. A row whose length
 * is 0 or more than it may be is idle: zeros, and -inf in lse.
 *
 * Nodes run as if one after the other, so that what one writes may lie where another's tensor is.
 * But caches and page tables, of which attention reads before the node before it has ended, lie on
 * nothing that the run writes as another tensor.
 *
 * FIG_UNBOUND: a tensor that the run needs has no address. FIG_INVALID: a binding is wrong, an
 * output lies on another tensor of its node, or scratch is less than the least. FIG_TOO_LARGE: more
 * rows or a longer kv_length than the spec allows. The run then launched nothing. FIG_DRIVER,
 * FIG_LOST: the driver's words; it may have launched a part. */
FIG_API fig_status fig_runner_run(const fig_runner *runner, const fig_run *run);

/* One launch: writes run->plan from the lengths, where they lie, and puts run->scratch to zeros, if
 * it is there. Any number of runs may then share that plan, and one after the other that scratch:
 * of these graphs, or of others whose nodes of attention have the same heads, windows, row_tokens
 * and element sizes. Bindings are as in the run, but lengths and positions alone are looked at.
 * FIG_ORDER: the program has nothing that is planned. */
FIG_API fig_status fig_runner_plan(const fig_runner *runner, const fig_run *run);

typedef struct fig_scratch {
    uint32_t size;
    uint64_t plan_bytes;  /* of run->plan, 16-byte aligned; 0: there is nothing to plan */
    uint64_t best_bytes;  /* of run->scratch, whether the plan is made there or not */
    uint64_t least_bytes; /* fewer are refused */
} fig_scratch;
/* What a run of so many rows with that kv_length needs on a device of such traits (NULL: those that
 * the graphs were lowered for). Nothing but arithmetic: no device is there or asked, so that a run
 * can be laid out on another machine, for each chip that fig_traits_name lists. */
FIG_API fig_status fig_graphs_scratch(const fig_graphs *graphs, const fig_traits *traits,
                                      int32_t rows, int64_t kv_length, fig_scratch *scratch);

#ifdef __cplusplus
}
#endif
#endif

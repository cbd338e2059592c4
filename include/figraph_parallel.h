/* figraph_parallel.h: split one model over several ranks, and record the collectives that join it.
 *
 * Each rank holds its share of the q heads, the KV heads and the ffn columns, and runs its own
 * graph. The ranks exchange results in collectives, which are nodes of the program:
 *
 *     fig_graphs_load(&model, "model.fig"); // one file serves every rank
 *     fig_graphs_rank(&graphs, model, 2);   // the share of one of two ranks
 *     fig_engine_open(&engine, graphs, FIG_OPTIONS(fig_engine_options, .ranks = ranks));
 *
 * If a share has n q heads, rank r has the model's q heads [r * n, (r + 1) * n). The same holds for
 * KV heads and ffn columns. If there are fewer KV heads than ranks, each rank has the KV head that
 * its q heads read. All shares are alike, so no call here asks for the number of a rank. */
#ifndef FIGRAPH_PARALLEL_H
#define FIGRAPH_PARALLEL_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FIG_PARALLEL_RANK_LIMIT = 256 };

/* Makes the spec of one of `ranks` ranks: it divides q_heads, kv_heads and ffn_width, and fills in
 * every default. FIG_INVALID: a field cannot be divided; the sentence names the field, its value
 * and the limit. */
FIG_API fig_status fig_spec_rank(fig_spec *share, const fig_spec *model, int32_t ranks);

/* Makes the graphs of one rank's share of a model. The call divides the heads and columns in the
 * operations of the model's program. It does not divide tensors that only callbacks touch. The
 * share has the buckets and the machine of the model. The caller owns *share, which may outlive the
 * model. A share cannot be saved (FIG_UNSUPPORTED): save the model instead.
 *
 * FIG_INVALID: a field cannot be divided, or a tensor would be divided for one operation but
 * another operation needs all of it. */
FIG_API fig_status fig_graphs_rank(fig_graphs **share, const fig_graphs *model, int32_t ranks);

/* ---- Collectives, recorded like any other operation ------------------------------------------ */
/* Every rank runs the collectives of its program in recorded order, even if other nodes run beside
 * them. Rows of a collective's tensors are contiguous, and the size of a row is a multiple of 16
 * bytes. A program that runs without a group behaves as in a group of one rank.
 *
 * If fig_engine_options.ranks names a group, fig_engine_open() is a collective call: all ranks
 * check that they agree on spec, buckets and file. While steps run, fig_engine_wait() returns a
 * fault on every rank if one rank runs another collective than the others, is late or gone, or if
 * its callback fails. FIG_INVALID: two ranks disagree; the sentence names them, the step and the
 * bucket. FIG_TIMEOUT: a rank did not reach the collective within the group's timeout; the sentence
 * names it. FIG_LOST: the sentence says how the group was lost. After any of these failures the
 * engine can only be closed.
 *
 * Each rank has its own GPU. If there are at most 8 GPUs, all on one host, and each can access the
 * memory of the others, the ranks write into one another's memory. For this purpose each engine
 * allocates device memory for each rank: four times the largest message, but at most 16 MB if NCCL
 * is available. Because another rank may be late and still write into this memory, it stays
 * allocated after fig_engine_close(), until the process ends. NCCL carries larger messages, and all
 * messages of groups that do not meet these conditions. FIG_UNSUPPORTED: libnccl.so.2 of version
 * 2.14 or later is missing.
 *
 * If a rank is gone, any call of this library that waits for the engine aborts NCCL's work.
 * fig_engine_close() gives that work two seconds to end. A caller that waits for the stream by
 * other means, and makes no such call, waits forever. */

/* out = the sum of `in` over all ranks */
typedef struct fig_all_reduce_op {
    uint32_t size; /* sizeof(fig_all_reduce_op) */
    /* [rows][width] */
    fig_tensor in;
    /* [rows][width] May be the same tensor as `in`. */
    fig_tensor out;
} fig_all_reduce_op;
/* Adds numbers in the order of the ranks, in f32, and rounds once, so the result has the same bits
 * on every rank. NCCL chooses the order itself and may round more often, but its result also has
 * the same bits on every rank. */
FIG_API void fig_all_reduce(fig_program *program, const fig_all_reduce_op *op);

/* Does fig_all_reduce() of `in`, and fig_add_rms_norm() of the result, in one node. It costs less
 * than two nodes and leaves the same bits in `residual`. In `out`, a GPU may round some 16-bit
 * numbers differently than two nodes would, but every rank rounds alike. */
FIG_API void fig_all_reduce_add_rms_norm(fig_program *program, const fig_rms_norm_op *op);

/* out[row] = in[row] of all ranks, one behind the other in the order of the ranks. */
typedef struct fig_all_gather_op {
    uint32_t size; /* sizeof(fig_all_gather_op) */
    /* [rows][width] */
    fig_tensor in;
    /* [rows][ranks * width] In the program of a whole model, which serves any number of ranks:
     * [rows][width]. */
    fig_tensor out;
} fig_all_gather_op;
/* Gathers the rows of all ranks on every rank. */
FIG_API void fig_all_gather(fig_program *program, const fig_all_gather_op *op);

#ifdef __cplusplus
}
#endif
#endif

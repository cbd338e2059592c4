/* figraph_ranks.h: join several ranks, each on a GPU of its own, into a group that runs one step.
 *
 * Every rank opens the same group and gives it to an engine (fig_engine_options.ranks). The engine
 * then runs the program's collectives with the engines of the other ranks:
 *
 *     fig_ranks *ranks;
 *     fig_ranks_open(&ranks, NULL); // the launcher has put this rank's number into the environment
 *     fig_ranks_read_info(ranks, &info);
 *     fig_engine_open(&engine, graphs,
 *                     FIG_OPTIONS(fig_engine_options, .ordinal = info.local_rank, .ranks = ranks));
 *     ...
 *     fig_engine_close(engine);
 *     fig_ranks_close(ranks);
 *
 * Every rank makes the calls that are marked collective, in the same order and with the same sizes.
 * Such a call always returns on every rank. If one rank does not make the call in time
 * (FIG_TIMEOUT), makes another collective call (FIG_INVALID), or dies, closes or aborts (FIG_LOST),
 * the call fails on every rank, and the sentence names the rank at fault. The group is then lost:
 * every later call returns FIG_LOST, and fig_ranks_close() returns at once.
 *
 * Threads: one thread at a time makes collective calls and closes; any thread may make all other
 * calls. A group starts one thread, which only listens to the other ranks. In a forked child every
 * call returns FIG_LOST, and fig_ranks_close() frees nothing. */
#ifndef FIGRAPH_RANKS_H
#define FIGRAPH_RANKS_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* The largest number of ranks in a group. */
    FIG_RANKS_LIMIT = 256,
    /* The largest number of ranks in a group within one process. */
    FIG_RANKS_LOCAL_LIMIT = 64,
    /* The largest number of bytes that one rank can give to fig_ranks_all_gather(). */
    FIG_RANKS_BYTES_LIMIT = 65536,
    /* The largest number of fields that fig_ranks_agree() takes. */
    FIG_RANKS_FIELD_LIMIT = 32
};

typedef struct fig_ranks fig_ranks;

/* If `count` is 0, the library reads the number of this rank from the environment. The library
 * takes the first of these sets in which every variable is set:
 *
 *     torchrun, figraph-launch  RANK  WORLD_SIZE  LOCAL_RANK  MASTER_ADDR  MASTER_PORT
 *     Open MPI                  OMPI_COMM_WORLD_RANK  _SIZE  _LOCAL_RANK
 *     Slurm                     SLURM_PROCID  SLURM_STEP_NUM_TASKS  SLURM_LOCALID
 *
 * Without any of them the rank is alone, a group of one. The library refuses RANK without
 * WORLD_SIZE, and WORLD_SIZE without RANK. Under every launcher it also reads these variables:
 *
 *     MASTER_ADDR     The host of rank 0. Default: Slurm's first node. If the launcher says that
 *                     all ranks are on one host: this host.
 *     FIG_PORT        The port where rank 0 listens. Default: MASTER_PORT + 1, since the launcher
 *                     itself uses MASTER_PORT; without MASTER_PORT, a port from 20000 to 31999
 *                     that follows from the number of the job.
 *     FIG_SECRET      A secret that every rank of the job knows and no stranger does. Use 16 random
 *                     bytes as text, because a stranger may try to guess it: if MASTER_ADDR leads a
 *                     rank to a stranger's host, that host can test its guesses against the rank's
 *                     proof. Either all ranks have a secret or none has one. If none has one, all
 *                     ranks must belong to one user on one host, and no process of another user can
 *                     join.
 *     FIG_TIMEOUT_MS  The same as timeout_us, in milliseconds.
 *
 * A field that is set overrides the environment. */
typedef struct fig_ranks_options {
    uint32_t size; /* sizeof(fig_ranks_options) */
    /* The number of ranks. 0: the environment gives it, and the next two fields must be 0. */
    int32_t count;
    /* The number of this rank, from 0. */
    int32_t rank;
    /* The number of this rank among those of its host, from 0. */
    int32_t local_rank;
    /* The port of rank 0. 0: the environment's, or the default above. */
    int32_t port;
    int32_t reserved; /* 0 */
    /* The host of rank 0. NULL: the environment's, or this host. */
    const char *address;
    /* The secret of the job. NULL: the environment's. */
    const char *secret;
    /* The longest time, in microseconds, that any call waits for another rank. If ranks are
     * missing, rank 0 reports them shortly before this time is over: an eighth of the time before,
     * but at most one second. 0: 60 s. */
    int64_t timeout_us;
} fig_ranks_options;

/* Collective. Opens a group, with one rank in this process. The caller owns *ranks and closes it
 * with fig_ranks_close(). options may be NULL. A stranger is a process that does not know the
 * secret or, if there is no secret, belongs to another user. If a stranger connects, rank 0 rejects
 * the connection and continues to wait for its ranks.
 *
 * FIG_TIMEOUT: a rank did not connect in time; the sentence names it. FIG_INVALID: a variable or a
 * field is wrong, the port is in use, two ranks have the same number, or two ranks differ in count,
 * secret or version of the library. */
FIG_API fig_status fig_ranks_open(fig_ranks **ranks, const fig_ranks_options *options);
/* Opens a group of `count` ranks within this process. Each rank is used by a thread of its own.
 * ranks: [count]. The caller closes each of them. The call uses only timeout_us of the options. */
FIG_API fig_status fig_ranks_open_local(fig_ranks **ranks, int32_t count,
                                        const fig_ranks_options *options);
/* Leaves the group and frees *ranks. The call is not collective: it tells the other ranks, and
 * waits for them at most 0.2 s. Close the engines that use the group first. */
FIG_API void fig_ranks_close(fig_ranks *ranks);

typedef struct fig_ranks_info {
    uint32_t size; /* sizeof(fig_ranks_info) */
    /* The number of ranks. */
    int32_t count;
    /* The number of this rank, from 0. */
    int32_t rank;
    /* The number of ranks on this host. */
    int32_t local_count;
    /* The number of this rank among those of its host, from 0. */
    int32_t local_rank;
    /* The number of ranks in this process: 1 after fig_ranks_open(), all after
     * fig_ranks_open_local(). */
    int32_t process_count;
    /* The longest time that a call waits for another rank. */
    int64_t timeout_us;
} fig_ranks_info;
/* Describes the group and this rank's place in it. */
FIG_API fig_status fig_ranks_read_info(const fig_ranks *ranks, fig_ranks_info *info);

/* Collective. Each rank gives `bytes` bytes and receives the bytes of all ranks in `all`,
 * [count][bytes]. Ranks use it to exchange NCCL's id, handles of memory and other small data.
 * FIG_INVALID: two ranks gave different sizes. */
FIG_API fig_status fig_ranks_all_gather(fig_ranks *ranks, const void *mine, size_t bytes,
                                        void *all);
/* Collective. Returns when every rank has called it. */
FIG_API fig_status fig_ranks_barrier(fig_ranks *ranks);

/* Bytes that must be equal on all ranks, or different on each rank. No later version adds a member
 * to this struct. */
typedef struct fig_ranks_field {
    /* The name of the field in the sentence of a failure, such as "file". */
    const char *name;
    /* [count] The bytes. Only a digest of them travels. */
    const void *bytes;
    /* The number of bytes. */
    uint64_t count;
    /* 0: the bytes must be equal on all ranks. 1: no two ranks may have equal bytes, as for the
     * identity of a GPU. */
    int32_t distinct;
    int32_t reserved; /* 0 */
} fig_ranks_field;
/* Collective. Checks that the ranks agree on each field. fields: [field_count]. FIG_INVALID names
 * the first field in which they differ, and the ranks that differ. */
FIG_API fig_status fig_ranks_agree(fig_ranks *ranks, const fig_ranks_field *fields,
                                   int32_t field_count);

/* Tells all other ranks that this rank cannot continue, and why: `reason` is one line of text. The
 * group is then lost. If several ranks abort, the first reason is kept. Any thread may call this,
 * but a signal handler must not. */
FIG_API void fig_ranks_abort(fig_ranks *ranks, const char *reason);
/* Returns FIG_OK, or FIG_LOST with the reason as soon as the group is lost. It only reads one word,
 * so it may be called often. */
FIG_API fig_status fig_ranks_check(const fig_ranks *ranks);

#ifdef __cplusplus
}
#endif
#endif

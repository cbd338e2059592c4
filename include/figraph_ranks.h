/* figraph_ranks.h: ranks, which run one step together, each on a GPU of its own.
 *
 * Every rank opens the same group, and an engine that is given it (fig_engine_options.ranks) runs
 * the program's collectives with the engines of the others:
 *
 *     fig_ranks *ranks;
 *     fig_ranks_open(&ranks, NULL); // who am I? The launcher has put it into the environment
 *     fig_ranks_read_info(ranks, &info);
 *     fig_engine_open(&engine, graphs,
 *                     FIG_OPTIONS(fig_engine_options, .ordinal = info.local_rank, .ranks = ranks));
 *     ...
 *     fig_engine_close(engine);
 *     fig_ranks_close(ranks);
 *
 * Calls marked collective are made by every rank, in the same order and with the same sizes. They
 * end on every rank: where a rank does not come in time (FIG_TIMEOUT), comes for something else
 * (FIG_INVALID), dies, closes or aborts (FIG_LOST), each rank's call says so and names it. Such a
 * group is lost: every later call answers FIG_LOST, and fig_ranks_close returns at once.
 *
 * Threads: collective calls and close are one thread's at a time; all else is any thread's. A group
 * has one thread of its own, which listens to the other ranks and does nothing else. In a child
 * that was forked, every call answers FIG_LOST and close frees nothing. */
#ifndef FIGRAPH_RANKS_H
#define FIGRAPH_RANKS_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FIG_RANKS_LIMIT = 256,         /* ranks of a group */
    FIG_RANKS_LOCAL_LIMIT = 64,    /* of one within a process */
    FIG_RANKS_BYTES_LIMIT = 65536, /* of one rank in fig_ranks_all_gather */
    FIG_RANKS_FIELD_LIMIT = 32     /* of fig_ranks_agree */
};

typedef struct fig_ranks fig_ranks;

/* Where `count` is 0 the environment says who this rank is, by the first of these that is whole:
 *
 *     torchrun, figraph-launch  RANK  WORLD_SIZE  LOCAL_RANK  MASTER_ADDR  MASTER_PORT
 *     Open MPI                  OMPI_COMM_WORLD_RANK  _SIZE  _LOCAL_RANK
 *     Slurm                     SLURM_PROCID  SLURM_STEP_NUM_TASKS  SLURM_LOCALID
 *
 * and without any it is alone, a group of one; RANK without WORLD_SIZE, or the other way round, is
 * refused. Further, whoever launched it:
 *
 *     MASTER_ADDR     rank 0's host; else Slurm's first node. Where the launcher says that all
 *                     ranks are on one host, it is this one
 *     FIG_PORT        where rank 0 listens; else MASTER_PORT + 1, as MASTER_PORT is the launcher's
 *                     own; else one of 20000 to 31999, taken from the job's number
 *     FIG_SECRET      what every rank of the job knows and no stranger; else the job's name, which
 *                     serves between ranks of one host alone
 *     FIG_TIMEOUT_MS  as timeout_us
 *
 * A field that is set counts for more than the environment. */
typedef struct fig_ranks_options {
    uint32_t size;
    int32_t count;       /* of ranks; 0: the environment says it, and the next two fields are 0 */
    int32_t rank;        /* this one, from 0 */
    int32_t local_rank;  /* among those of its host, from 0 */
    int32_t port;        /* of rank 0; 0: the environment says it, or the default above */
    int32_t reserved;    /* 0 */
    const char *address; /* rank 0's host; NULL: the environment, or this host */
    const char *secret;  /* NULL: the environment */
    int64_t timeout_us;  /* the longest that any call waits for another rank, of which rank 0 says
                            who is missing an eighth ahead, a second at most; 0: 60 s */
} fig_ranks_options;

/* Collective. FIG_TIMEOUT: a rank did not come, which the sentence names. FIG_INVALID: a variable
 * or field is wrong, the port is in use, or two ranks differ in count, secret or the library's
 * version, or are the same rank. Whoever connects without knowing the secret is turned away, and
 * the ranks wait on. */
FIG_API fig_status fig_ranks_open(fig_ranks **ranks, const fig_ranks_options *options);
/* `count` ranks in this process, each for a thread of its own; ranks: [count]. Of the options
 * timeout_us alone is looked at. */
FIG_API fig_status fig_ranks_open_local(fig_ranks **ranks, int32_t count,
                                        const fig_ranks_options *options);
/* Not collective: the others learn of it, and are waited for 0.2 s at most. Engines that use the
 * group are closed before it. */
FIG_API void fig_ranks_close(fig_ranks *ranks);

typedef struct fig_ranks_info {
    uint32_t size;
    int32_t count, rank;
    int32_t local_count, local_rank; /* of its host */
    int32_t process_count;           /* ranks in this process: 1, or all of fig_ranks_open_local */
    int64_t timeout_us;
} fig_ranks_info;
FIG_API fig_status fig_ranks_read_info(const fig_ranks *ranks, fig_ranks_info *info);

/* Collective: each rank gives `bytes` bytes and gets those of all, [count][bytes]. For NCCL's id,
 * handles of peers and the like. FIG_INVALID: two ranks gave different sizes. */
FIG_API fig_status fig_ranks_all_gather(fig_ranks *ranks, const void *mine, size_t bytes,
                                        void *all);
/* Collective: returns when every rank has called it. */
FIG_API fig_status fig_ranks_barrier(fig_ranks *ranks);

/* Collective: what all ranks must have alike, or, where it is distinct, no two of them. Only a
 * digest of the bytes travels. FIG_INVALID names the first field that is not so, and the ranks. */
typedef struct fig_ranks_field { /* closed */
    const char *name;            /* "file", for the sentence */
    const void *bytes;
    uint64_t count;
    int32_t distinct; /* 1: a GPU's identity, say */
    int32_t reserved; /* 0 */
} fig_ranks_field;
FIG_API fig_status fig_ranks_agree(fig_ranks *ranks, const fig_ranks_field *fields,
                                   int32_t field_count);

/* Tells every rank that this one cannot go on and why, one line. Any thread may call it, but no
 * signal handler. The group is lost then; the first reason stays. */
FIG_API void fig_ranks_abort(fig_ranks *ranks, const char *reason);
/* FIG_OK; FIG_LOST and the reason as soon as the group is lost. It reads one word. */
FIG_API fig_status fig_ranks_check(const fig_ranks *ranks);

#ifdef __cplusplus
}
#endif
#endif

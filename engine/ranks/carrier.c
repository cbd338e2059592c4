/* carrier.c: memory that the ranks of a host share, and exchanges over it.
 *
 *     [rank 0: post][rank 1: post]... [even: rank 0, rank 1, ...][odd: rank 0, rank 1, ...]
 *
 * Rank 0 creates the memory, without a name in any file system. The other ranks open it through
 * /proc while rank 0 holds it open. The system frees it when the last rank has unmapped it, even if
 * that rank was killed. A rank is never a whole exchange ahead of another, so two sets of bytes
 * suffice, and the fields of a post belong to the exchange whose number the post shows. Invariant:
 * see carrier.h. */
#define _GNU_SOURCE /* memfd_create, syscall */
#include "engine/ranks/carrier.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/seam/clock.h"
#include "engine/ranks/group.h"
#include "engine/ranks/rank_list.h"
#include "planner/size.h"
#include "planner/status.h"

enum {
    LINE_BYTES = 64,
    SPINS = 200,     /* the number of checks of a peer's number before the thread sleeps */
    NAP_NS = 5000000 /* longest sleep, so that a rank soon notices that the group is lost */
};

/* Describes the exchange that a rank is in. Its peers read these fields after they see the
 * exchange's number. */
typedef struct call_head {
    int64_t step, count;
    int32_t bucket, node;
} call_head;
typedef struct post {
    uint32_t number;    /* atomic and a futex: the exchange whose bytes this rank has written */
    uint32_t is_closed; /* atomic */
    call_head heads[2]; /* for even and odd exchanges */
    uint8_t padding[LINE_BYTES * 2 - 8 - 2 * 24];
} post;
static_assert(sizeof(call_head) == 24 && sizeof(post) == 2 * LINE_BYTES, "no false sharing");

struct fig_carrier {
    fig_ranks *ranks;
    int32_t count, rank;
    post *posts;   /* [count], at the start of the memory */
    size_t bytes;  /* size of the memory */
    uint8_t *lots; /* [2][count][lot_bytes] */
    size_t lot_bytes;
    size_t byte_limit;
    uint32_t number; /* the number of the last exchange */
};

/* ---- Open and close ------------------------------------------------------------------------ */

/* The message that each rank sends to the others in fig_carrier_open(). */
typedef struct offer {
    uint64_t byte_limit;
    int64_t process;
    int32_t file; /* descriptor of the memory in that process; -1: the process has none */
    fig_status status;
    char sentence[FIG_GROUP_REASON_BYTES];
} offer;

static fig_status lay_out(fig_carrier *c, size_t byte_limit) {
    size_t lots = 0;
    c->byte_limit = byte_limit;
    if (byte_limit > SIZE_MAX / 2 ||
        fig_size_multiply(&lots, fig_size_align(byte_limit, LINE_BYTES), 2 * (size_t)c->count) ||
        fig_size_add(&c->bytes, lots, (size_t)c->count * sizeof(post)) || c->bytes > INT64_MAX)
        return fig_fail(FIG_TOO_LARGE,
                        "ranks: %zu bytes for each of %" PRId32 " ranks is too large", byte_limit,
                        c->count);
    c->lot_bytes = fig_size_align(byte_limit, LINE_BYTES);
    return FIG_OK;
}

static fig_status make_file(const fig_carrier *c, int *file) {
    *file = (int)syscall(SYS_memfd_create, "figraph ranks", 1u /* closed on exec */);
    if (*file >= 0 && ftruncate(*file, (off_t)c->bytes) == 0) return FIG_OK;
    return fig_fail(FIG_NOMEM, "ranks: %zu bytes of shared memory: %s", c->bytes, strerror(errno));
}

static fig_status open_file(const offer *of, int *file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId32, of->process, of->file);
    *file = open(path, O_RDWR | O_CLOEXEC);
    if (*file >= 0) return FIG_OK;
    return fig_fail(FIG_IO, "ranks: cannot open rank 0's memory %s: %s", path, strerror(errno));
}

static fig_status map_file(fig_carrier *c, int file) {
    void *memory = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return fig_fail(FIG_NOMEM, "ranks: %zu bytes of shared memory: %s", c->bytes,
                        strerror(errno));
    c->posts = memory;
    c->lots = (uint8_t *)memory + (size_t)c->count * sizeof(post);
    return FIG_OK;
}

/* Each rank sends its result to the others, so that either all ranks have the memory or none
 * does. */
static fig_status tell(fig_carrier *c, offer *own, offer *all, fig_status status) {
    own->status = status;
    if (status != FIG_OK) snprintf(own->sentence, sizeof own->sentence, "%s", fig_message());
    FIG_TRY(fig_group_meet(c->ranks, FIG_GROUP_CARRIER, own, sizeof *own, all));
    for (int32_t i = 0; i < c->count; i++)
        if (all[i].status != FIG_OK) return fig_status_relay(all[i].status, all[i].sentence);
    return FIG_OK;
}

static fig_status check_limits(const fig_carrier *c, const offer *all) {
    for (int32_t i = 1; i < c->count; i++)
        if (all[i].byte_limit != all[0].byte_limit)
            return fig_fail(FIG_INVALID,
                            "ranks: rank 0 exchanges up to %" PRIu64 " bytes, rank %" PRId32
                            " up to %" PRIu64,
                            all[0].byte_limit, i, all[i].byte_limit);
    return FIG_OK;
}

static fig_status share_memory(fig_carrier *c, offer *all) {
    offer own = {.byte_limit = c->byte_limit, .process = getpid(), .file = -1};
    int file = -1;
    fig_status status = FIG_OK;
    if (c->rank == 0) status = make_file(c, &file);
    own.file = file;
    status = tell(c, &own, all, status);
    if (status == FIG_OK) status = check_limits(c, all); /* same result on every rank */
    if (status == FIG_OK) {
        if (c->rank != 0) status = open_file(&all[0], &file);
        if (status == FIG_OK) status = map_file(c, file);
        status = tell(c, &own, all, status);
    }
    if (file >= 0) close(file);
    return status;
}

fig_status fig_carrier_open(fig_carrier **out, fig_ranks *ranks, size_t byte_limit) {
    const fig_ranks_info *info = &ranks->info;
    *out = NULL;
    if (info->local_count != info->count)
        return fig_fail(FIG_UNSUPPORTED,
                        "ranks: %" PRId32 " of %" PRId32
                        " are on this host, and host ranks share its memory",
                        info->local_count, info->count);
    fig_carrier *c = calloc(1, sizeof *c);
    offer *all = calloc((size_t)info->count, sizeof *all);
    fig_status status = FIG_OK;
    if (c == NULL || all == NULL) {
        status = fig_fail(FIG_NOMEM, "ranks: rank %" PRId32 " has no memory", info->rank);
    } else {
        *c = (fig_carrier){.ranks = ranks, .count = info->count, .rank = info->rank};
        status = lay_out(c, byte_limit);
    }
    if (status != FIG_OK)
        fig_group_lose(ranks, status, "%s", fig_message()); /* the others are waiting */
    else
        status = share_memory(c, all);
    free(all);
    if (status == FIG_OK) {
        *out = c;
        return FIG_OK;
    }
    fig_carrier_close(c);
    return status;
}

/* ---- Exchange ------------------------------------------------------------------------------ */

/* The word is shared between processes, so the futex must not be private. */
static void wake_all(uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void nap_while(uint32_t *word, uint32_t value) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &nap, NULL, 0);
}

static int has_come(const fig_carrier *c, int32_t rank) {
    /* partner: lay_down. Numbers wrap around, and a peer is at most one ahead. */
    const uint32_t number = __atomic_load_n(&c->posts[rank].number, __ATOMIC_ACQUIRE);
    return (int32_t)(number - c->number) >= 0;
}

static void lay_down(fig_carrier *c, const fig_carrier_call *call) {
    post *own = &c->posts[c->rank];
    const uint32_t number = ++c->number, odd = number % 2;
    own->heads[odd] = (call_head){call->step, (int64_t)call->count, call->bucket, call->node};
    if (call->count > 0)
        memcpy(c->lots + ((size_t)odd * (size_t)c->count + (size_t)c->rank) * c->lot_bytes,
               call->bytes, call->count);
    __atomic_store_n(&own->number, number, __ATOMIC_RELEASE); /* partner: has_come */
    wake_all(&own->number);
}

static fig_status lose_missing(fig_carrier *c, const fig_carrier_call *call, int32_t rank) {
    uint8_t is_missing[FIG_RANKS_LIMIT];
    char names[FIG_RANK_LIST_BYTES];
    for (int32_t i = 0; i < c->count; i++)
        is_missing[i] = i == rank || !has_come(c, i);
    fig_rank_list_write(names, is_missing, c->count);
    fig_group_lose(c->ranks, FIG_TIMEOUT,
                   "ranks: %s did not come to node %" PRId32 " of step %" PRId64 " within %.9g s",
                   names, call->node, call->step, (double)c->ranks->info.timeout_us / 1e6);
    return fig_group_tell_lost(c->ranks);
}

static fig_status await_rank(fig_carrier *c, const fig_carrier_call *call, int32_t rank,
                             int64_t deadline_ns) {
    uint32_t *word = &c->posts[rank].number;
    for (int32_t looks = 0; !has_come(c, rank); looks++) {
        if (looks < SPINS) continue;
        if (fig_group_is_lost(c->ranks)) return fig_group_tell_lost(c->ranks);
        if (__atomic_load_n(&c->posts[rank].is_closed, __ATOMIC_ACQUIRE) && !has_come(c, rank)) {
            fig_group_lose(c->ranks, FIG_LOST,
                           "ranks: rank %" PRId32 " has closed its engine, others are at step "
                           "%" PRId64,
                           rank, call->step);
            return fig_group_tell_lost(c->ranks);
        }
        if (fig_clock_ns() >= deadline_ns) return lose_missing(c, call, rank);
        const uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if ((int32_t)(seen - c->number) < 0) nap_while(word, seen);
    }
    return FIG_OK;
}

typedef struct difference {
    const char *name;
    int64_t first, other;
} difference;

static fig_status check_heads(fig_carrier *c) {
    const uint32_t odd = c->number % 2;
    const call_head *first = &c->posts[0].heads[odd];
    for (int32_t i = 1; i < c->count; i++) {
        const call_head *other = &c->posts[i].heads[odd];
        const difference all[] = {{"step", first->step, other->step},
                                  {"bucket", first->bucket, other->bucket},
                                  {"node", first->node, other->node},
                                  {"bytes", first->count, other->count}};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            if (all[k].first == all[k].other) continue;
            fig_group_lose(c->ranks, FIG_INVALID,
                           "ranks: in an exchange of step %" PRId64 " rank 0 has %s %" PRId64
                           ", rank %" PRId32 " has %" PRId64,
                           first->step, all[k].name, all[k].first, i, all[k].other);
            return fig_group_tell_lost(c->ranks);
        }
    }
    return FIG_OK;
}

fig_status fig_carrier_exchange(fig_carrier *c, const fig_carrier_call *call, const void **parts) {
    const int64_t deadline = fig_clock_ns() + c->ranks->info.timeout_us * 1000;
    for (int32_t i = 0; i < c->count; i++)
        parts[i] = NULL;
    if (fig_fork_check_is_child(&c->ranks->fork))
        return fig_fail(FIG_LOST, "ranks: this process was forked from the one that opened them, "
                                  "which alone may use them");
    if (fig_group_is_lost(c->ranks)) return fig_group_tell_lost(c->ranks);
    if (call->count > c->byte_limit) {
        fig_group_lose(c->ranks, FIG_TOO_LARGE,
                       "ranks: rank %" PRId32 " exchanges %zu bytes, limit %zu", c->rank,
                       call->count, c->byte_limit);
        return fig_group_tell_lost(c->ranks);
    }
    lay_down(c, call);
    for (int32_t i = 0; i < c->count; i++)
        FIG_TRY(await_rank(c, call, i, deadline));
    FIG_TRY(check_heads(c));
    const uint8_t *lots = c->lots + (size_t)(c->number % 2) * (size_t)c->count * c->lot_bytes;
    for (int32_t i = 0; i < c->count; i++)
        parts[i] = lots + (size_t)i * c->lot_bytes;
    return FIG_OK;
}

void fig_carrier_close(fig_carrier *c) {
    if (c == NULL) return;
    /* If the group is lost, the others learn the reason from the group; closing here would hide
     * it. */
    if (c->posts != NULL && !fig_fork_check_is_child(&c->ranks->fork) &&
        !fig_group_is_lost(c->ranks)) {
        /* partner: await_rank */
        __atomic_store_n(&c->posts[c->rank].is_closed, 1, __ATOMIC_RELEASE);
        wake_all(&c->posts[c->rank].number);
    }
    if (c->posts != NULL) munmap(c->posts, c->bytes);
    free(c);
}

/* ranks.c: the public calls on a group of ranks.
 *
 * Invariant: a group that a caller gets is complete: its ranks have met, and each knows how many
 * ranks share its host. */
#include "include/figraph_ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/ranks/environment.h"
#include "engine/ranks/member.h"
#include "engine/ranks/post.h"
#include "engine/ranks/rendezvous.h"
#include "engine/ranks/rank_list.h"
#include "engine/ranks/wire.h"
#include "graphs/view/hash.h"
#include "planner/status.h"

enum { DIGEST_BYTES = 32 };

/* ---- Open and close ------------------------------------------------------------------------ */

/* Computes a number that identifies the host. Ranks with equal numbers can see each other's
 * processes and loopback: they run on one machine since the same boot, in one process namespace and
 * one network namespace. */
static uint64_t name_host(void) {
    char boot[64] = "";
    struct stat process, network;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(boot, sizeof boot, file) == NULL) boot[0] = '\0';
        fclose(file);
    }
    uint64_t name = fig_hash_mix(1, boot, strlen(boot));
    if (stat("/proc/self/ns/pid", &process) == 0)
        name = fig_hash_mix(name, &process.st_ino, sizeof process.st_ino);
    if (stat("/proc/self/ns/net", &network) == 0)
        name = fig_hash_mix(name, &network.st_ino, sizeof network.st_ino);
    return name;
}

static fig_status count_host(fig_ranks *ranks) {
    uint64_t hosts[FIG_RANKS_LIMIT];
    const uint64_t own = name_host();
    FIG_TRY(fig_group_meet(ranks, FIG_GROUP_OPEN, &own, sizeof own, hosts));
    ranks->info.local_count = 0;
    for (int32_t i = 0; i < ranks->info.count; i++)
        ranks->info.local_count += hosts[i] == own;
    return FIG_OK;
}

fig_status fig_ranks_open(fig_ranks **ranks, const fig_ranks_options *given) {
    fig_ranks_options options;
    fig_environment environment;
    int links[FIG_RANKS_LIMIT];
    *ranks = NULL;
    FIG_TRY(fig_status_take_options(&options, sizeof options, given, "fig_ranks_options"));
    FIG_TRY(fig_environment_read(&environment, &options, NULL));
    FIG_TRY(fig_rendezvous_meet(&environment, links));
    const fig_ranks_info info = {.count = environment.count,
                                 .rank = environment.rank,
                                 .local_rank = environment.local_rank,
                                 .process_count = 1,
                                 .timeout_us = environment.timeout_us};
    FIG_TRY(fig_member_open(ranks, &info, links));
    const fig_status status = count_host(*ranks);
    if (status == FIG_OK) return FIG_OK;
    fig_member_close(*ranks);
    *ranks = NULL;
    return status;
}

/* Connects each rank to rank 0 within this process. links: [count][count]; row r holds the links of
 * rank r. */
static fig_status pair_up(int *links, int32_t count) {
    for (int32_t i = 0; i < count * count; i++)
        links[i] = -1;
    for (int32_t rank = 1; rank < count; rank++) {
        int ends[2];
        FIG_TRY(fig_wire_pair(ends));
        links[rank] = ends[0];
        links[rank * count] = ends[1];
    }
    return FIG_OK;
}

fig_status fig_ranks_open_local(fig_ranks **ranks, int32_t count, const fig_ranks_options *given) {
    fig_ranks_options options;
    int64_t timeout_us;
    int links[FIG_RANKS_LOCAL_LIMIT * FIG_RANKS_LOCAL_LIMIT];
    for (int32_t i = 0; i < count; i++)
        ranks[i] = NULL;
    if (count < 1 || count > FIG_RANKS_LOCAL_LIMIT)
        return fig_fail(FIG_INVALID, "ranks: %" PRId32 " in a process, limits 1 to %d", count,
                        FIG_RANKS_LOCAL_LIMIT);
    FIG_TRY(fig_status_take_options(&options, sizeof options, given, "fig_ranks_options"));
    FIG_TRY(fig_environment_read_timeout(&timeout_us, &options, NULL));
    fig_status status = pair_up(links, count);
    for (int32_t rank = 0; rank < count && status == FIG_OK; rank++) {
        const fig_ranks_info info = {.count = count,
                                     .rank = rank,
                                     .local_count = count,
                                     .local_rank = rank,
                                     .process_count = count,
                                     .timeout_us = timeout_us};
        status = fig_member_open(&ranks[rank], &info, &links[rank * count]);
    }
    if (status == FIG_OK) return FIG_OK;
    fig_post_drop_links(links, count * count);
    for (int32_t i = 0; i < count; i++) {
        fig_member_close(ranks[i]);
        ranks[i] = NULL;
    }
    return status;
}

void fig_ranks_close(fig_ranks *ranks) {
    fig_member_close(ranks);
}

fig_status fig_ranks_read_info(const fig_ranks *ranks, fig_ranks_info *info) {
    return fig_status_give(info, &ranks->info, sizeof ranks->info, "fig_ranks_info");
}

/* ---- Meet ---------------------------------------------------------------------------------- */

fig_status fig_ranks_all_gather(fig_ranks *ranks, const void *mine, size_t bytes, void *all) {
    if (bytes > FIG_RANKS_BYTES_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "ranks: %zu bytes of each, limit %d", bytes,
                        FIG_RANKS_BYTES_LIMIT);
    return fig_group_meet(ranks, FIG_GROUP_GATHER, mine, bytes, all);
}

fig_status fig_ranks_barrier(fig_ranks *ranks) {
    return fig_group_meet(ranks, FIG_GROUP_BARRIER, NULL, 0, NULL);
}

void fig_ranks_abort(fig_ranks *ranks, const char *reason) {
    if (fig_fork_check_is_child(&ranks->fork)) return;
    fig_group_lose(ranks, FIG_LOST, "ranks: rank %" PRId32 " gave up: %s", ranks->info.rank,
                   reason == NULL ? "no reason given" : reason);
}

fig_status fig_ranks_check(const fig_ranks *ranks) {
    if (fig_fork_check_is_child(&ranks->fork))
        return fig_fail(FIG_LOST, "ranks: this process was forked from the one that opened them, "
                                  "which alone may use them");
    return fig_group_is_lost(ranks) ? fig_status_relay(FIG_LOST, ranks->reason) : FIG_OK;
}

/* ---- Agree --------------------------------------------------------------------------------- */

/* The bytes that each rank gives to fig_ranks_agree(): a digest of its field names, then a digest
 * of each field. */
typedef struct ballot {
    uint8_t fields[DIGEST_BYTES];
    uint8_t digests[FIG_RANKS_FIELD_LIMIT][DIGEST_BYTES];
} ballot;

static void fill_ballot(ballot *out, const fig_ranks_field *fields, int32_t count) {
    fig_hash_sha256 names, hash;
    fig_hash_sha256_init(&names);
    for (int32_t i = 0; i < count; i++) {
        const fig_ranks_field *each = &fields[i];
        fig_hash_sha256_add(&names, each->name, strlen(each->name) + 1);
        fig_hash_sha256_add(&names, &each->distinct, sizeof each->distinct);
        fig_hash_sha256_init(&hash);
        fig_hash_sha256_add(&hash, each->bytes, each->count);
        fig_hash_sha256_finish(&hash, out->digests[i]);
    }
    fig_hash_sha256_finish(&names, out->fields);
}

/* One digest per rank, `stride` bytes apart. */
typedef struct column {
    const uint8_t *first;
    size_t stride;
    int32_t count;
} column;

static const uint8_t *digest_of(const column *of, int32_t rank) {
    return of->first + (size_t)rank * of->stride;
}

/* Marks the ranks whose digest equals the digest of `rank`, and returns the number of those
 * ranks. */
static int32_t mark_like(const column *of, int32_t rank, uint8_t is_like[FIG_RANKS_LIMIT]) {
    int32_t count = 0;
    for (int32_t i = 0; i < of->count; i++) {
        is_like[i] = memcmp(digest_of(of, i), digest_of(of, rank), DIGEST_BYTES) == 0;
        count += is_like[i];
    }
    return count;
}

static fig_status check_alike(const column *of, const char *name) {
    uint8_t is_like[FIG_RANKS_LIMIT];
    char some[FIG_RANK_LIST_BYTES], others[FIG_RANK_LIST_BYTES];
    int32_t other = 0;
    if (mark_like(of, 0, is_like) == of->count) return FIG_OK;
    fig_rank_list_write(some, is_like, of->count);
    while (is_like[other])
        other++;
    mark_like(of, other, is_like);
    fig_rank_list_write(others, is_like, of->count);
    return fig_fail(FIG_INVALID, "ranks: %s differs between %s and %s", name, some, others);
}

static fig_status check_distinct(const column *of, const char *name) {
    uint8_t is_like[FIG_RANKS_LIMIT];
    char names[FIG_RANK_LIST_BYTES];
    for (int32_t rank = 0; rank < of->count; rank++) {
        if (mark_like(of, rank, is_like) == 1) continue;
        fig_rank_list_write(names, is_like, of->count);
        return fig_fail(FIG_INVALID, "ranks: %s is the same on %s", name, names);
    }
    return FIG_OK;
}

static fig_status check_fields(const fig_ranks_field *fields, int32_t count) {
    if (count < 1 || count > FIG_RANKS_FIELD_LIMIT)
        return fig_fail(FIG_INVALID, "ranks: field_count is %" PRId32 ", limits 1 to %d", count,
                        FIG_RANKS_FIELD_LIMIT);
    for (int32_t i = 0; i < count; i++) {
        const fig_ranks_field *each = &fields[i];
        if (each->name == NULL || (each->bytes == NULL && each->count > 0))
            return fig_fail(FIG_INVALID, "ranks: field %" PRId32 " has no %s", i,
                            each->name == NULL ? "name" : "bytes");
        if ((each->distinct != 0 && each->distinct != 1) || each->reserved != 0)
            return fig_fail(FIG_INVALID,
                            "ranks: %.40s: distinct is %" PRId32 ", it is 0 or 1; reserved is "
                            "%" PRId32 ", it is 0",
                            each->name, each->distinct, each->reserved);
    }
    return FIG_OK;
}

fig_status fig_ranks_agree(fig_ranks *ranks, const fig_ranks_field *fields, int32_t field_count) {
    const int32_t count = ranks->info.count;
    ballot own = {{0}, {{0}}};
    FIG_TRY(check_fields(fields, field_count));
    fill_ballot(&own, fields, field_count);
    ballot *all = calloc((size_t)count, sizeof *all);
    if (all == NULL) return fig_fail(FIG_NOMEM, "ranks: the ballots of %" PRId32 " ranks", count);
    fig_status status = fig_group_meet(ranks, FIG_GROUP_AGREE, &own, sizeof own, all);
    column of = {all->fields, sizeof *all, count};
    if (status == FIG_OK) status = check_alike(&of, "the list of fields to agree on");
    for (int32_t i = 0; i < field_count && status == FIG_OK; i++) {
        of.first = all->digests[i];
        status = fields[i].distinct ? check_distinct(&of, fields[i].name)
                                    : check_alike(&of, fields[i].name);
    }
    free(all);
    return status;
}

/* post.c: frames between ranks.
 *
 *     rank r  ── give: what it gives to a call ──→  rank 0
 *             ←── result: what all gave ─────────
 *             ←── lost: a status and a reason ──→
 *             ←── bye: it closes its group ─────→
 *
 * Rank 0 has one call open at a time: nobody gives to the next before it has the result of this
 * one. Invariant: that of post.h. */
#include "engine/ranks/post.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "engine/clock.h"
#include "engine/ranks/roll.h"
#include "engine/ranks/wire.h"
#include "planner/status.h"

enum {
    PARTING_MS = 200, /* for peers to end their side of a connection too */
    FRAME_MAGIC = 0x4b4e5246
};

typedef enum frame_kind { FRAME_GIVE = 1, FRAME_RESULT, FRAME_LOST, FRAME_BYE } frame_kind;
typedef struct frame {
    uint32_t magic, kind;
    uint32_t call; /* FRAME_LOST: a status */
    uint32_t bytes;
} frame;
static_assert(sizeof(frame) == 16, "no padding");

typedef struct peer {
    int socket; /* -1: ended */
    int32_t rank;
    int has_parted; /* 1: the peer said bye */
    frame head;
    uint8_t *body; /* [capacity] */
    size_t got, capacity;
} peer;

struct fig_post {
    fig_ranks_info info;
    peer *peers; /* [peer_count] */
    int32_t peer_count;
    int has_told; /* 1: peers know that the group is lost */
    /* The call that is open, where came_count is above 0. Elsewhere than on rank 0 that counts this
     * rank alone, and the next two lines are not used. */
    uint32_t call;
    int32_t came_count;
    uint8_t came[FIG_RANKS_LIMIT];
    uint32_t bytes;
    int64_t deadline_ns;
    uint8_t *given; /* [count][bytes] of given_capacity */
    size_t given_capacity;
};

static int64_t patience(const fig_post *post) {
    return fig_clock_ns() + post->info.timeout_us * 1000;
}

static fig_status reserve(uint8_t **memory, size_t *capacity, size_t bytes) {
    if (bytes <= *capacity) return FIG_OK;
    uint8_t *larger = realloc(*memory, bytes);
    if (larger == NULL) return fig_fail(FIG_NOMEM, "ranks: %zu bytes of other ranks", bytes);
    *memory = larger;
    *capacity = bytes;
    return FIG_OK;
}

/* A connection that takes no more is noticed where it is read. */
static void send_frame(const fig_post *post, const peer *to, frame head, const void *body) {
    head.magic = FRAME_MAGIC;
    if (to->socket < 0) return;
    if (fig_wire_send(to->socket, &head, sizeof head, patience(post)) == FIG_OK)
        (void)fig_wire_send(to->socket, body, head.bytes, patience(post));
}

/* ---- A call -------------------------------------------------------------------------------- */

/* Gives the owner what all gave, where that is what it waits for. */
static void deliver(fig_post *post, fig_ranks *ranks, const uint8_t *all, size_t bytes) {
    fig_group_request *request = &ranks->request;
    post->came_count = 0;
    memset(post->came, 0, sizeof post->came);
    pthread_mutex_lock(&ranks->mutex);
    const size_t want = (size_t)request->bytes * (size_t)post->info.count;
    const int is_right = request->state == FIG_GROUP_TAKEN && bytes == want;
    if (is_right) {
        if (bytes > 0) memcpy(request->all, all, bytes);
        request->state = FIG_GROUP_DONE;
        pthread_cond_broadcast(&ranks->done);
    }
    pthread_mutex_unlock(&ranks->mutex);
    if (!is_right)
        fig_group_lose(ranks, FIG_LOST,
                       "ranks: rank 0 answers rank %" PRId32 " what it did not ask",
                       post->info.rank);
}

static void finish_call(fig_post *post, fig_ranks *ranks) {
    const size_t bytes = (size_t)post->bytes * (size_t)post->info.count;
    const frame head = {.kind = FRAME_RESULT, .call = post->call, .bytes = (uint32_t)bytes};
    for (int32_t i = 0; i < post->peer_count; i++)
        send_frame(post, &post->peers[i], head, post->given);
    deliver(post, ranks, post->given, bytes);
}

/* A call that a rank which has closed its group can never join. */
static void check_parted(fig_post *post, fig_ranks *ranks) {
    if (post->came_count == 0) return;
    for (int32_t i = 0; i < post->peer_count; i++) {
        const peer *each = &post->peers[i];
        if (each->has_parted && !post->came[each->rank])
            fig_group_lose(ranks, FIG_LOST,
                           "ranks: rank %" PRId32 " has closed its ranks, others are in %s",
                           each->rank, fig_group_call_name(post->call));
    }
}

static int32_t first_that_came(const fig_post *post) {
    int32_t rank = 0;
    while (!post->came[rank])
        rank++;
    return rank;
}

/* Rank 0: what a rank gave, its own included. */
static void take_given(fig_post *post, fig_ranks *ranks, int32_t rank, const frame *head,
                       const void *body) {
    if (post->came_count == 0) {
        post->call = head->call;
        post->bytes = head->bytes;
        post->deadline_ns = fig_clock_ns() + fig_group_judging_us(post->info.timeout_us) * 1000;
    } else if (post->came[rank]) {
        fig_group_lose(ranks, FIG_LOST, "ranks: rank %" PRId32 " gives to %s twice", rank,
                       fig_group_call_name(post->call));
        return;
    } else if (head->call != post->call || head->bytes != post->bytes) {
        const int32_t first = first_that_came(post);
        fig_group_lose(ranks, FIG_INVALID,
                       "ranks: rank %" PRId32 " is in %s with %" PRIu32 " bytes, rank %" PRId32
                       " in %s with %" PRIu32,
                       first, fig_group_call_name(post->call), post->bytes, rank,
                       fig_group_call_name(head->call), head->bytes);
        return;
    }
    if (reserve(&post->given, &post->given_capacity,
                (size_t)post->bytes * (size_t)post->info.count) != FIG_OK) {
        fig_group_lose(ranks, FIG_NOMEM, "%s", fig_message());
        return;
    }
    if (post->bytes > 0) memcpy(post->given + (size_t)rank * post->bytes, body, post->bytes);
    post->came[rank] = 1;
    post->came_count++;
    if (post->came_count == post->info.count)
        finish_call(post, ranks);
    else
        check_parted(post, ranks);
}

static void check_deadline(fig_post *post, fig_ranks *ranks) {
    uint8_t is_missing[FIG_RANKS_LIMIT];
    char names[FIG_ROLL_BYTES];
    if (post->info.rank != 0 || post->came_count == 0) return;
    if (fig_wire_ms_until(post->deadline_ns) > 0) return;
    for (int32_t rank = 0; rank < post->info.count; rank++)
        is_missing[rank] = !post->came[rank];
    fig_roll_write(names, is_missing, post->info.count);
    fig_group_lose(ranks, FIG_TIMEOUT, "ranks: %s did not come to %s within %.9g s", names,
                   fig_group_call_name(post->call),
                   (double)fig_group_judging_us(post->info.timeout_us) / 1e6);
}

/* What the owner posted goes to rank 0; rank 0's own stays here. */
static void take_request(fig_post *post, fig_ranks *ranks) {
    uint8_t mine[FIG_RANKS_BYTES_LIMIT];
    frame head = {.kind = FRAME_GIVE};
    pthread_mutex_lock(&ranks->mutex);
    const int is_posted = ranks->request.state == FIG_GROUP_POSTED;
    if (is_posted) {
        head.call = ranks->request.call;
        head.bytes = ranks->request.bytes;
        if (head.bytes > 0) memcpy(mine, ranks->request.mine, head.bytes);
        ranks->request.state = FIG_GROUP_TAKEN;
    }
    pthread_mutex_unlock(&ranks->mutex);
    if (!is_posted) return;
    if (post->info.rank == 0) {
        take_given(post, ranks, 0, &head, mine);
        return;
    }
    post->call = head.call;
    post->came[post->info.rank] = 1;
    post->came_count = 1;
    check_parted(post, ranks);
    send_frame(post, &post->peers[0], head, mine);
}

/* ---- Frames -------------------------------------------------------------------------------- */

static void end_peer(peer *of) {
    fig_wire_close(&of->socket);
    of->got = 0;
}

static void take_frame(fig_post *post, fig_ranks *ranks, peer *from) {
    const frame *head = &from->head;
    if (head->kind == FRAME_GIVE && post->info.rank == 0) {
        take_given(post, ranks, from->rank, head, from->body);
    } else if (head->kind == FRAME_RESULT && post->info.rank != 0) {
        deliver(post, ranks, from->body, head->bytes);
    } else if (head->kind == FRAME_LOST) {
        fig_group_lose(ranks, head->call != FIG_OK ? head->call : FIG_LOST, "%.*s",
                       (int)head->bytes, (const char *)from->body);
    } else {
        from->has_parted = 1;
        end_peer(from); /* so that the peer sees that its words were taken */
        check_parted(post, ranks);
    }
}

/* A peer has proved that it is of this job, so this guards against faults, not strangers. */
static int is_sound(const fig_post *post, const frame *head) {
    const uint64_t parts = head->kind == FRAME_RESULT ? (uint64_t)post->info.count : 1;
    const uint64_t most = FIG_RANKS_BYTES_LIMIT * parts;
    return head->magic == FRAME_MAGIC && head->kind >= FRAME_GIVE && head->kind <= FRAME_BYE &&
           head->bytes <= most;
}

static void lose_peer(fig_ranks *ranks, peer *of) {
    end_peer(of);
    fig_group_lose(ranks, FIG_LOST, "ranks: rank %" PRId32 " is gone: its connection ended",
                   of->rank);
}

/* Takes what is there. 1: there may be more. */
static int read_peer(fig_post *post, fig_ranks *ranks, peer *from) {
    const size_t head_bytes = sizeof from->head;
    uint8_t *at = (uint8_t *)&from->head + from->got;
    size_t want = head_bytes - from->got;
    if (from->got >= head_bytes) {
        at = from->body + (from->got - head_bytes);
        want = head_bytes + from->head.bytes - from->got;
    }
    const int64_t got = fig_wire_take(from->socket, at, want);
    if (got == 0) return 0;
    if (got > 0) from->got += (size_t)got;
    if (got < 0 || (from->got >= head_bytes && !is_sound(post, &from->head))) {
        lose_peer(ranks, from);
        return 0;
    }
    if (from->got == head_bytes &&
        reserve(&from->body, &from->capacity, from->head.bytes) != FIG_OK) {
        fig_group_lose(ranks, FIG_NOMEM, "%s", fig_message());
        end_peer(from);
        return 0;
    }
    if (from->got < head_bytes || from->got < head_bytes + from->head.bytes) return 1;
    from->got = 0;
    take_frame(post, ranks, from);
    return from->socket >= 0;
}

/* ---- Thread -------------------------------------------------------------------------------- */

/* The last words of this side; the connection ends when the peer's side does. */
static void part(const fig_post *post, frame head, const void *body) {
    for (int32_t i = 0; i < post->peer_count; i++) {
        send_frame(post, &post->peers[i], head, body);
        if (post->peers[i].socket >= 0) (void)shutdown(post->peers[i].socket, SHUT_WR);
    }
}

static void tell_lost(fig_post *post, const fig_ranks *ranks) {
    const frame head = {
        .kind = FRAME_LOST, .call = ranks->lost_status, .bytes = (uint32_t)strlen(ranks->reason)};
    if (post->has_told) return;
    post->has_told = 1;
    post->came_count = 0;
    part(post, head, ranks->reason);
}

/* Until something is to be read, the owner wants something, or `deadline_ns`; 0: none. */
static void wait_for_any(const fig_post *post, int wake, int64_t deadline_ns) {
    struct pollfd all[1 + FIG_RANKS_LIMIT];
    nfds_t count = 0;
    eventfd_t times;
    all[count++] = (struct pollfd){.fd = wake, .events = POLLIN};
    for (int32_t i = 0; i < post->peer_count; i++)
        all[count++] = (struct pollfd){.fd = post->peers[i].socket, .events = POLLIN};
    (void)poll(all, count, deadline_ns == 0 ? -1 : fig_wire_ms_until(deadline_ns));
    (void)eventfd_read(wake, &times);
}

static void read_peers(fig_post *post, fig_ranks *ranks) {
    for (int32_t i = 0; i < post->peer_count; i++)
        while (post->peers[i].socket >= 0 && read_peer(post, ranks, &post->peers[i])) {
        }
}

static int is_closing(fig_ranks *ranks) {
    pthread_mutex_lock(&ranks->mutex);
    const int out = ranks->is_closing;
    pthread_mutex_unlock(&ranks->mutex);
    return out;
}

/* Bytes that a peer sent and nobody took would make the system drop what was said last. */
static void await_partings(fig_post *post, fig_ranks *ranks) {
    const int64_t deadline = fig_clock_ns() + (int64_t)PARTING_MS * 1000000;
    for (;;) {
        int32_t open = 0;
        read_peers(post, ranks);
        for (int32_t i = 0; i < post->peer_count; i++)
            open += post->peers[i].socket >= 0;
        if (open == 0 || fig_wire_ms_until(deadline) == 0) return;
        wait_for_any(post, -1, deadline);
    }
}

void *fig_post_main(void *user) {
    fig_ranks *ranks = user;
    fig_post *post = ranks->post;
    while (!is_closing(ranks)) {
        const int is_bound = post->info.rank == 0 && post->came_count > 0 && !post->has_told;
        wait_for_any(post, ranks->wake, is_bound ? post->deadline_ns : 0);
        read_peers(post, ranks);
        if (!fig_group_is_lost(ranks)) take_request(post, ranks);
        check_deadline(post, ranks);
        if (fig_group_is_lost(ranks)) tell_lost(post, ranks);
    }
    if (fig_group_is_lost(ranks))
        tell_lost(post, ranks);
    else
        part(post, (frame){.kind = FRAME_BYE}, NULL);
    await_partings(post, ranks);
    return NULL;
}

/* ---- Open and close ------------------------------------------------------------------------ */

void fig_post_drop_links(int *links, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        fig_wire_close(&links[i]);
}

fig_status fig_post_open(fig_post **out, const fig_ranks_info *info, int *links) {
    fig_post *post = calloc(1, sizeof *post);
    peer *made = calloc((size_t)info->count, sizeof *made);
    *out = post;
    if (post == NULL || made == NULL) {
        fig_post_drop_links(links, info->count);
        free(made);
        return fig_fail(FIG_NOMEM, "ranks: %" PRId32 " connections", info->count);
    }
    post->info = *info;
    post->peers = made;
    for (int32_t i = 0; i < info->count; i++) {
        if (links[i] < 0) continue;
        made[post->peer_count].socket = links[i];
        made[post->peer_count++].rank = info->rank == 0 ? i : 0;
        links[i] = -1;
    }
    return FIG_OK;
}

void fig_post_close(fig_post *post) {
    if (post == NULL) return;
    for (int32_t i = 0; i < post->peer_count; i++) {
        fig_wire_close(&post->peers[i].socket);
        free(post->peers[i].body);
    }
    free(post->peers);
    free(post->given);
    free(post);
}

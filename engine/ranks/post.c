/* post.c: sends and receives frames between ranks.
 *
 *     rank r  ── give: the bytes of one rank ───→  rank 0
 *             ←── result: the bytes of all ────────
 *             ←── lost: a status and a reason ──→
 *             ←── bye: the sender closes ───────→
 *
 * Rank 0 has only one call open at a time: no rank gives bytes to the next call before it has the
 * result of the current one. So a peer may have yet to receive the results of at most two calls.
 * The post keeps the bytes of both calls, one copy for all peers. No function here waits for a
 * single peer: bytes that a connection does not accept at once are sent later, and meanwhile the
 * thread reads other frames. Invariant: see post.h. */
#include "engine/ranks/post.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "engine/seam/clock.h"
#include "engine/ranks/rank_list.h"
#include "engine/ranks/wire.h"
#include "planner/status.h"

enum {
    PARTING_MS = 200, /* time for peers to close their side of a connection */
    FRAME_MAGIC = 0x4b4e5246
};

typedef enum frame_kind { FRAME_GIVE = 1, FRAME_RESULT, FRAME_LOST, FRAME_BYE } frame_kind;
typedef struct frame {
    uint32_t magic, kind;
    uint32_t call; /* fig_group_call; in a FRAME_LOST, a status */
    uint32_t bytes;
} frame;
static_assert(sizeof(frame) == 16, "no padding");

/* A frame that is being sent. Its body must not change until all of it is sent. */
typedef struct parcel {
    frame head;
    const void *body; /* [head.bytes] */
} parcel;
enum { PARCEL_LIMIT = 3 }; /* a result or a give, a LOST, and the last frame */

typedef struct peer {
    int socket; /* -1: ended */
    int32_t rank;
    int has_parted; /* 1: the peer sent a BYE */
    parcel parcels[PARCEL_LIMIT];
    int32_t parcel_count;
    size_t sent;        /* the number of bytes of the first parcel sent so far */
    int64_t take_by_ns; /* time by which all parcels must have been sent */
    frame head;
    uint8_t *body; /* [capacity] */
    size_t got, capacity;
} peer;

struct fig_post {
    fig_ranks_info info;
    peer *peers; /* [peer_count] */
    int32_t peer_count;
    int has_told;   /* 1: a LOST was queued for the peers */
    int is_parting; /* 1: no more frames will be queued */
    /* The open call, if came_count is above 0. On ranks other than 0, came_count counts only this
     * rank, and the deadline is not used. */
    uint32_t call;
    int32_t came_count;
    uint8_t came[FIG_RANKS_LIMIT];
    uint32_t bytes;
    int64_t deadline_ns;
    /* The bytes that ranks gave to calls. Calls use the two buffers in turn, because peers may
     * still be receiving the result of the previous call. On ranks other than 0, the buffers hold
     * only this rank's bytes. */
    uint8_t *given[2]; /* [count][bytes], with room for given_capacity bytes */
    size_t given_capacity[2];
    int turn;
};

/* Returns rank 0's deadline, which is earlier than the deadlines of the ranks that wait for rank
 * 0. */
static int64_t patience(const fig_post *post) {
    return fig_clock_ns() + fig_group_judging_us(post->info.timeout_us) * 1000;
}

static fig_status reserve(uint8_t **memory, size_t *capacity, size_t bytes) {
    if (bytes <= *capacity) return FIG_OK;
    uint8_t *larger = realloc(*memory, bytes);
    if (larger == NULL)
        return fig_fail(FIG_NOMEM, "ranks: %zu bytes for the messages of other ranks", bytes);
    *memory = larger;
    *capacity = bytes;
    return FIG_OK;
}

/* ---- On the way out ------------------------------------------------------------------------- */

/* Closes both directions of a peer's connection. */
static void end_peer(peer *of) {
    fig_wire_close(&of->socket);
    of->got = 0;
    of->parcel_count = 0;
}

/* Finds the next bytes to send: the rest of the head or of the body of the first parcel. */
static size_t next_piece(const peer *to, const uint8_t **piece) {
    const parcel *first = &to->parcels[0];
    const size_t head_bytes = sizeof first->head;
    *piece = (const uint8_t *)&first->head + to->sent;
    if (to->sent < head_bytes) return head_bytes - to->sent;
    *piece = (const uint8_t *)first->body + (to->sent - head_bytes);
    return head_bytes + first->head.bytes - to->sent;
}

/* Sends as much as the socket takes without waiting. If the connection has ended, read_peer()
 * notices. */
static void flush_peer(const fig_post *post, peer *to) {
    while (to->socket >= 0 && to->parcel_count > 0) {
        const uint8_t *piece;
        const size_t count = next_piece(to, &piece);
        const int64_t went = fig_wire_give(to->socket, piece, count);
        if (went < 0) to->parcel_count = 0;
        if (went <= 0) break;
        to->sent += (size_t)went;
        if (to->sent < sizeof(frame) + to->parcels[0].head.bytes) continue;
        to->sent = 0;
        memmove(&to->parcels[0], &to->parcels[1], (PARCEL_LIMIT - 1) * sizeof to->parcels[0]);
        to->parcel_count--;
    }
    if (post->is_parting && to->socket >= 0 && to->parcel_count == 0)
        (void)shutdown(to->socket, SHUT_WR); /* the connection ends when the peer closes its side */
}

/* Queues a frame and sends what the socket takes. `body` must stay unchanged until all of it is
 * sent. */
static void send_frame(const fig_post *post, peer *to, frame head, const void *body) {
    head.magic = FRAME_MAGIC;
    if (to->socket < 0 || to->parcel_count == PARCEL_LIMIT) return;
    if (to->parcel_count == 0) to->take_by_ns = patience(post);
    to->parcels[to->parcel_count++] = (parcel){head, body};
    flush_peer(post, to);
}

/* Only on rank 0: loses the group if peers did not take a result in time, and names them. The other
 * ranks wait for the next call meanwhile. */
static void check_takers(fig_post *post, fig_ranks *ranks) {
    uint8_t is_slow[FIG_RANKS_LIMIT] = {0};
    char names[FIG_RANK_LIST_BYTES];
    int32_t count = 0;
    for (int32_t i = 0; i < post->peer_count && post->info.rank == 0; i++) {
        const peer *each = &post->peers[i];
        if (each->socket < 0 || each->parcel_count == 0) continue;
        if (fig_wire_ms_until(each->take_by_ns) > 0) continue;
        is_slow[each->rank] = 1;
        count++;
    }
    if (count == 0) return;
    fig_rank_list_write(names, is_slow, post->info.count);
    fig_group_lose(ranks, FIG_TIMEOUT, "ranks: %s did not take the result of a call within %.9g s",
                   names, (double)fig_group_judging_us(post->info.timeout_us) / 1e6);
}

/* ---- A call -------------------------------------------------------------------------------- */

/* Copies the bytes of all ranks to the owner, if the owner still waits in the call to which they
 * belong. */
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
                       "ranks: rank 0 answers rank %" PRId32
                       " with a result that it did not ask for",
                       post->info.rank);
}

static void finish_call(fig_post *post, fig_ranks *ranks) {
    const size_t bytes = (size_t)post->bytes * (size_t)post->info.count;
    const frame head = {.kind = FRAME_RESULT, .call = post->call, .bytes = (uint32_t)bytes};
    const uint8_t *given = post->given[post->turn];
    post->turn = !post->turn;
    for (int32_t i = 0; i < post->peer_count; i++)
        send_frame(post, &post->peers[i], head, given);
    deliver(post, ranks, given, bytes);
}

/* Loses the group if the open call lacks a rank that has closed its group, because that rank will
 * never join the call. */
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

/* Only on rank 0: takes the bytes that a rank, possibly rank 0 itself, gave to the open call. */
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
    if (reserve(&post->given[post->turn], &post->given_capacity[post->turn],
                (size_t)post->bytes * (size_t)post->info.count) != FIG_OK) {
        fig_group_lose(ranks, FIG_NOMEM, "%s", fig_message());
        return;
    }
    if (post->bytes > 0)
        memcpy(post->given[post->turn] + (size_t)rank * post->bytes, body, post->bytes);
    post->came[rank] = 1;
    post->came_count++;
    if (post->came_count == post->info.count)
        finish_call(post, ranks);
    else
        check_parted(post, ranks);
}

static void check_deadline(fig_post *post, fig_ranks *ranks) {
    uint8_t is_missing[FIG_RANKS_LIMIT];
    char names[FIG_RANK_LIST_BYTES];
    if (post->info.rank != 0 || post->came_count == 0) return;
    if (fig_wire_ms_until(post->deadline_ns) > 0) return;
    for (int32_t rank = 0; rank < post->info.count; rank++)
        is_missing[rank] = !post->came[rank];
    fig_rank_list_write(names, is_missing, post->info.count);
    fig_group_lose(ranks, FIG_TIMEOUT, "ranks: %s did not come to %s within %.9g s", names,
                   fig_group_call_name(post->call),
                   (double)fig_group_judging_us(post->info.timeout_us) / 1e6);
}

/* Sends the owner's request to rank 0. On rank 0, takes the request directly instead. */
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
    if (reserve(&post->given[0], &post->given_capacity[0], head.bytes) != FIG_OK) {
        fig_group_lose(ranks, FIG_NOMEM, "%s", fig_message());
        return;
    }
    if (head.bytes > 0) memcpy(post->given[0], mine, head.bytes);
    send_frame(post, &post->peers[0], head, post->given[0]);
}

/* ---- Frames -------------------------------------------------------------------------------- */

static void refuse_frame(fig_ranks *ranks, peer *from) {
    const frame *head = &from->head;
    fig_group_lose(ranks, FIG_LOST,
                   "ranks: rank %" PRId32 " sent a frame out of place, of kind %" PRIu32
                   " with %" PRIu32 " bytes",
                   from->rank, head->kind, head->bytes);
    end_peer(from);
}

/* Takes a frame that a peer sent. A give proves that its sender has received the whole result of
 * the previous call, and a result proves that rank 0 has received all bytes that this rank gave.
 * After such a frame the bytes sent before may be overwritten, so the frame is an error if this
 * rank is still sending to that peer. */
static void take_frame(fig_post *post, fig_ranks *ranks, peer *from) {
    const frame *head = &from->head;
    const int is_early = from->parcel_count > 0 && !post->is_parting;
    if (head->kind == FRAME_GIVE && post->info.rank == 0 && !is_early) {
        if (!post->is_parting) take_given(post, ranks, from->rank, head, from->body);
    } else if (head->kind == FRAME_RESULT && post->info.rank != 0 && !is_early) {
        deliver(post, ranks, from->body, head->bytes);
    } else if (head->kind == FRAME_LOST) {
        fig_group_lose(ranks, head->call != FIG_OK ? head->call : FIG_LOST, "%.*s",
                       (int)head->bytes, (const char *)from->body);
    } else if (head->kind == FRAME_BYE && head->bytes == 0) {
        from->has_parted = 1;
        end_peer(from); /* this tells the peer that its BYE has arrived */
        check_parted(post, ranks);
    } else {
        refuse_frame(ranks, from);
    }
}

/* Checks a frame's head. The peer has proved that it belongs to this job, so this check guards
 * against faults, not against attackers. */
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

/* Reads bytes that have arrived. Returns 1 if there may be more. */
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

/* Sends this side's last frame. */
static void part(fig_post *post, frame head, const void *body) {
    post->is_parting = 1;
    for (int32_t i = 0; i < post->peer_count; i++)
        send_frame(post, &post->peers[i], head, body);
}

static void tell_lost(fig_post *post, const fig_ranks *ranks) {
    const frame head = {
        .kind = FRAME_LOST, .call = ranks->lost_status, .bytes = (uint32_t)strlen(ranks->reason)};
    if (post->has_told) return;
    post->has_told = 1;
    post->came_count = 0;
    part(post, head, ranks->reason);
}

/* Returns the earliest deadline of rank 0, or 0 if there is none. */
static int64_t next_deadline(const fig_post *post) {
    int64_t first = post->came_count > 0 ? post->deadline_ns : 0;
    if (post->info.rank != 0 || post->has_told) return 0;
    for (int32_t i = 0; i < post->peer_count; i++) {
        const peer *each = &post->peers[i];
        if (each->socket < 0 || each->parcel_count == 0) continue;
        if (first == 0 || each->take_by_ns < first) first = each->take_by_ns;
    }
    return first;
}

/* Waits until a socket can be read or written, the owner wakes the thread, or deadline_ns passes; 0
 * means no deadline. */
static void wait_for_any(const fig_post *post, int wake, int64_t deadline_ns) {
    struct pollfd all[1 + FIG_RANKS_LIMIT];
    nfds_t count = 0;
    eventfd_t times;
    all[count++] = (struct pollfd){.fd = wake, .events = POLLIN};
    for (int32_t i = 0; i < post->peer_count; i++) {
        const peer *each = &post->peers[i];
        const short sends = each->parcel_count > 0 ? POLLOUT : 0;
        all[count++] = (struct pollfd){.fd = each->socket, .events = (short)(POLLIN | sends)};
    }
    (void)poll(all, count, deadline_ns == 0 ? -1 : fig_wire_ms_until(deadline_ns));
    (void)eventfd_read(wake, &times);
}

/* Serves all peers in turn without waiting, so that a stopped peer holds up none of the others. */
static void serve_peers(fig_post *post, fig_ranks *ranks) {
    for (int32_t i = 0; i < post->peer_count; i++)
        flush_peer(post, &post->peers[i]);
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

static int32_t count_open(const fig_post *post, int on_the_way) {
    int32_t count = 0;
    for (int32_t i = 0; i < post->peer_count; i++)
        count += post->peers[i].socket >= 0 && (!on_the_way || post->peers[i].parcel_count > 0);
    return count;
}

/* First sends the frames that are still queued, to all peers in parallel; if the group is lost, it
 * does not wait until they are sent. Then reads from the peers until they close their side, because
 * unread bytes would make the system reset the connection and drop this rank's last frame. */
static void await_partings(fig_post *post, fig_ranks *ranks) {
    int64_t deadline = fig_group_is_lost(ranks) ? 0 : patience(post);
    while (count_open(post, 1) > 0 && fig_wire_ms_until(deadline) > 0) {
        wait_for_any(post, -1, deadline);
        serve_peers(post, ranks);
    }
    deadline = fig_clock_ns() + (int64_t)PARTING_MS * 1000000;
    for (;;) {
        serve_peers(post, ranks);
        if (count_open(post, 0) == 0 || fig_wire_ms_until(deadline) == 0) return;
        wait_for_any(post, -1, deadline);
    }
}

void *fig_post_main(void *user) {
    fig_ranks *ranks = user;
    fig_post *post = ranks->post;
    while (!is_closing(ranks)) {
        wait_for_any(post, ranks->wake, next_deadline(post));
        serve_peers(post, ranks);
        if (!fig_group_is_lost(ranks)) take_request(post, ranks);
        check_deadline(post, ranks);
        if (!post->has_told) check_takers(post, ranks);
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
    free(post->given[0]);
    free(post->given[1]);
    free(post);
}

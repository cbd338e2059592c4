/* rendezvous.c: exchanges a greeting, a claim and a verdict on each connection, in that order.
 *
 *     rank 0 ── greeting: a number that it drew ───────────────────────→ rank r
 *            ←── claim: version, count, rank, a number, and the proof ──
 *            ── verdict: come in, or a sentence; and the proof ────────→
 *
 * Rank r proves itself first, to the process at the given address. Rank 0 proves itself only to
 * ranks that have proved themselves: if the proof of a claim is wrong, the verdict carries no
 * proof. Otherwise a stranger that connects would get a proof over bytes that it chose, and could
 * use that proof for a dictionary attack on the secret. A verdict without a proof can only be a
 * refusal. Each proof covers a name for the side that proves, and then the numbers that both sides
 * drew, so no proof can be replayed or used for the other side.
 *
 * Rank 0 gives its verdict when all ranks have come, when one does not fit, or when a rank that
 * came can wait no longer; each claim says how long its rank waits. Rank 0 serves all connections
 * at once, so a process that connects and stays silent delays no rank. Invariant: see
 * rendezvous.h. */
#include "engine/ranks/rendezvous.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/seam/clock.h"
#include "engine/ranks/group.h"
#include "engine/ranks/rank_list.h"
#include "engine/ranks/secret.h"
#include "engine/ranks/wire.h"
#include "planner/status.h"

enum {
    CALLER_LIMIT = 64, /* the largest number of connections that have sent no claim yet */
    SAY_MS = 2000,     /* time to send a few bytes to a peer that is ready for them */
    /* how long rank 0 stays after a rank did not fit, to tell ranks that come later */
    LINGER_MS = 1000,
    RETRY_MS = 10
};
static const char magic[8] = {'F', 'I', 'G', 'R', 'A', 'N', 'K', 'S'};

/* These three structs must be the same in every version, so that different versions can recognise
 * each other. */
typedef struct greeting {
    char magic[8];
    uint8_t number[FIG_SECRET_BYTES];
} greeting;
typedef struct claim {
    char magic[8];
    int32_t version, count, rank;
    int32_t wait_ms; /* how long the rank will wait for the verdict */
    uint8_t number[FIG_SECRET_BYTES];
    uint8_t proof[FIG_SECRET_BYTES]; /* over all fields above it */
} claim;
typedef struct verdict {
    fig_status status;
    int32_t reserved;
    char sentence[216];
    uint8_t proof[FIG_SECRET_BYTES]; /* over all fields above it, and the claim's number */
} verdict;
static_assert(sizeof(greeting) == 40 && sizeof(claim) == 88 && sizeof(verdict) == 256,
              "no padding");

static int64_t in_ms(int64_t ms) {
    return fig_clock_ns() + ms * 1000000;
}

static fig_wire_place place_of(const fig_environment *environment) {
    return (fig_wire_place){environment->address, environment->port, environment->one_host,
                            environment->own_user};
}

static fig_secret_claim claimed(const char *secret, const greeting *hello, const claim *said) {
    return (fig_secret_claim){secret,        "figraph ranks: claim of a rank",
                              hello,         said,
                              sizeof *hello, offsetof(claim, proof)};
}

static fig_secret_claim judged(const char *secret, const claim *said, const verdict *answer) {
    return (fig_secret_claim){secret,       "figraph ranks: verdict of rank 0",
                              said,         answer,
                              sizeof *said, offsetof(verdict, proof)};
}

/* ---- Rank 0 -------------------------------------------------------------------------------- */

/* A process that has connected but has not sent its whole claim. */
typedef struct caller {
    int socket;
    greeting hello;
    claim said;
    size_t got; /* bytes of `said` received */
} caller;

typedef struct meeting {
    const fig_environment *environment;
    int listener;
    int *links;                    /* [count] */
    claim claims[FIG_RANKS_LIMIT]; /* the claims of the ranks that came */
    caller callers[CALLER_LIMIT];  /* oldest first */
    int32_t caller_count, came, strangers;
    int64_t began_ns, deadline_ns;
    verdict answer; /* verdict for all ranks; it is about the first rank that did not fit */
} meeting;

/* Turns a stranger away without waiting; bytes that cannot be sent at once are dropped. The verdict
 * carries no proof. */
static void turn_away(int *socket) {
    const verdict answer = {.status = FIG_INVALID, .sentence = "the secret is another"};
    (void)fig_wire_send(*socket, &answer, sizeof answer, in_ms(0));
    fig_wire_close(socket);
}

/* Sends a verdict, with a proof, to a rank that has proved itself. */
static void tell(const meeting *m, int *socket, const claim *said, fig_status status,
                 const char *sentence) {
    verdict answer = {.status = status};
    snprintf(answer.sentence, sizeof answer.sentence, "%s", sentence);
    const fig_secret_claim judgement = judged(m->environment->secret, said, &answer);
    fig_secret_prove(&judgement, answer.proof);
    (void)fig_wire_send(*socket, &answer, sizeof answer, in_ms(0));
    if (status != FIG_OK) fig_wire_close(socket);
}

/* Removes a caller and keeps the order of the others. */
static void drop(meeting *m, int32_t index) {
    fig_wire_close(&m->callers[index].socket);
    m->caller_count--;
    memmove(&m->callers[index], &m->callers[index + 1],
            (size_t)(m->caller_count - index) * sizeof m->callers[0]);
}

static fig_status greet(meeting *m) {
    for (int i = 0; i < CALLER_LIMIT; i++) { /* further connections wait for the next round */
        const int socket = fig_wire_accept(m->listener);
        if (socket == FIG_WIRE_NONE) return FIG_OK;
        m->strangers += socket == FIG_WIRE_STRANGER;
        if (socket == FIG_WIRE_STRANGER) continue;
        if (m->caller_count == CALLER_LIMIT) drop(m, 0); /* a rank that is dropped tries again */
        caller *each = &m->callers[m->caller_count++];
        *each = (caller){.socket = socket};
        memcpy(each->hello.magic, magic, sizeof magic);
        FIG_TRY(fig_secret_draw(each->hello.number));
        (void)fig_wire_send(socket, &each->hello, sizeof each->hello, in_ms(0));
    }
    return FIG_OK;
}

/* Checks the claim of a rank that has proved that it knows the secret. Rank 0 trusts such a rank,
 * so a wrong claim ends the rendezvous for all ranks. */
static fig_status check_claim(const meeting *m, const claim *said) {
    const int32_t count = m->environment->count;
    if (said->version != FIG_VERSION)
        return fig_fail(FIG_INVALID,
                        "ranks: rank %" PRId32 " has version %" PRId32
                        " of the library, rank 0 has %d",
                        said->rank, said->version, FIG_VERSION);
    if (said->count != count)
        return fig_fail(FIG_INVALID,
                        "ranks: rank %" PRId32 " has count %" PRId32 ", rank 0 has count %" PRId32,
                        said->rank, said->count, count);
    if (said->rank < 0 || said->rank >= count)
        return fig_fail(FIG_INVALID, "ranks: a process claims rank %" PRId32 " of %" PRId32,
                        said->rank, count);
    if (said->rank == 0 || (m->links[said->rank] >= 0 && !fig_wire_is_closed(m->links[said->rank])))
        return fig_fail(FIG_INVALID, "ranks: two processes say that they are rank %" PRId32,
                        said->rank);
    return FIG_OK;
}

/* Moves rank 0's deadline forward, because rank 0 must not wait longer than any rank that came. */
static void hurry(meeting *m, int64_t deadline_ns) {
    if (deadline_ns < m->deadline_ns) m->deadline_ns = deadline_ns;
}

static fig_status take_in(meeting *m, caller *from) {
    const fig_status status = check_claim(m, &from->said);
    if (status != FIG_OK) {
        tell(m, &from->socket, &from->said, status, fig_message());
        return status;
    }
    const int32_t rank = from->said.rank;
    if (m->links[rank] < 0) m->came++;
    fig_wire_close(&m->links[rank]);
    m->links[rank] = from->socket;
    m->claims[rank] = from->said;
    hurry(m, in_ms(from->said.wait_ms));
    from->socket = -1;
    return FIG_OK;
}

/* Reads from caller number `index`. Sets *is_gone to 1 if the caller was removed from the list. */
static fig_status hear(meeting *m, int32_t index, int *is_gone) {
    caller *from = &m->callers[index];
    const int64_t got =
        fig_wire_take(from->socket, (uint8_t *)&from->said + from->got, sizeof(claim) - from->got);
    fig_status status = FIG_OK;
    *is_gone = 0;
    if (got >= 0) from->got += (size_t)got;
    if (got >= 0 && from->got < sizeof(claim)) return FIG_OK;
    const fig_secret_claim proof = claimed(m->environment->secret, &from->hello, &from->said);
    if (got < 0) {
        m->strangers += from->got > 0;
    } else if (memcmp(from->said.magic, magic, sizeof magic) == 0 &&
               fig_secret_is_proof(&proof, from->said.proof)) {
        status = take_in(m, from);
    } else {
        m->strangers++;
        turn_away(&from->socket);
    }
    *is_gone = 1;
    drop(m, index);
    return status;
}

static void forget_dead(meeting *m) {
    for (int32_t rank = 1; rank < m->environment->count; rank++) {
        if (m->links[rank] < 0 || !fig_wire_is_closed(m->links[rank])) continue;
        fig_wire_close(&m->links[rank]);
        m->came--;
    }
}

/* Waits until a process connects, sends or closes, or the deadline passes. */
static void wait_for_any(const meeting *m, int64_t deadline_ns) {
    struct pollfd all[1 + CALLER_LIMIT + FIG_RANKS_LIMIT];
    nfds_t count = 0;
    all[count++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
    for (int32_t i = 0; i < m->caller_count; i++)
        all[count++] = (struct pollfd){.fd = m->callers[i].socket, .events = POLLIN};
    for (int32_t rank = 1; rank < m->environment->count; rank++)
        all[count++] = (struct pollfd){.fd = m->links[rank], .events = POLLIN};
    (void)poll(all, count, fig_wire_ms_until(deadline_ns));
}

static fig_status name_missing(const meeting *m) {
    uint8_t is_missing[FIG_RANKS_LIMIT] = {0};
    char names[FIG_RANK_LIST_BYTES], strangers[64] = "";
    const fig_environment *own = m->environment;
    for (int32_t rank = 1; rank < own->count; rank++)
        is_missing[rank] = m->links[rank] < 0;
    fig_rank_list_write(names, is_missing, own->count);
    if (m->strangers > 0)
        snprintf(strangers, sizeof strangers, "; %" PRId32 " that did not know the secret came",
                 m->strangers);
    return fig_fail(FIG_TIMEOUT, "ranks: %s did not come within %.3g s%s", names,
                    (double)(m->deadline_ns - m->began_ns) / 1e9, strangers);
}

/* Makes a refusal the verdict for all ranks. The first refusal stays. */
static void refuse(meeting *m, fig_status status) {
    if (status == FIG_OK || m->answer.status != FIG_OK) return;
    m->answer.status = status;
    snprintf(m->answer.sentence, sizeof m->answer.sentence, "%s", fig_message());
    hurry(m, in_ms(LINGER_MS));
}

static fig_status gather_all(meeting *m) {
    m->began_ns = fig_clock_ns();
    m->deadline_ns = m->began_ns + m->environment->timeout_us * 1000;
    while (m->came + 1 < m->environment->count && fig_wire_ms_until(m->deadline_ns) > 0) {
        wait_for_any(m, m->deadline_ns);
        forget_dead(m);
        FIG_TRY(greet(m));
        for (int32_t i = 0; i < m->caller_count;) {
            int is_gone;
            refuse(m, hear(m, i, &is_gone));
            i += !is_gone;
        }
    }
    if (m->answer.status != FIG_OK) return fig_status_relay(m->answer.status, m->answer.sentence);
    return m->came + 1 == m->environment->count ? FIG_OK : name_missing(m);
}

static fig_status receive_all(const fig_environment *environment, int *links) {
    const fig_wire_place place = place_of(environment);
    meeting m = {.environment = environment, .links = links};
    FIG_TRY(fig_wire_listen(&m.listener, &place));
    const fig_status status = gather_all(&m);
    refuse(&m, status);
    for (int32_t rank = 1; rank < environment->count; rank++)
        if (links[rank] >= 0) tell(&m, &links[rank], &m.claims[rank], status, m.answer.sentence);
    while (m.caller_count > 0)
        drop(&m, 0);
    fig_wire_close(&m.listener);
    return status;
}

/* ---- The others ---------------------------------------------------------------------------- */

static void sleep_ms(int64_t ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Reads rank 0's greeting. FIG_BUSY: the connection ended before the greeting; the caller tries
 * again. */
static fig_status read_greeting(const fig_environment *environment, int link, greeting *hello,
                                int64_t deadline_ns) {
    const fig_status status = fig_wire_receive(link, hello, sizeof *hello, deadline_ns);
    if (status == FIG_LOST) return fig_fail(FIG_BUSY, "ranks: rank 0 ended the connection");
    if (status == FIG_TIMEOUT)
        return fig_fail(FIG_TIMEOUT,
                        "ranks: the listener at %s port %" PRId32 " says nothing within %.9g s: "
                        "rank 0 is stopped, or another program is there",
                        environment->address, environment->port,
                        (double)environment->timeout_us / 1e6);
    if (status == FIG_OK && memcmp(hello->magic, magic, sizeof magic) == 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "ranks: the listener at %s port %" PRId32 " is not rank 0",
                    environment->address, environment->port);
}

/* Makes this rank's claim. This rank waits until deadline_ns; rank 0 must give its verdict earlier,
 * by the same margin as in any other call. */
static fig_status make_claim(const fig_environment *environment, const greeting *hello, claim *said,
                             int64_t deadline_ns) {
    const int64_t time_us = environment->timeout_us;
    const int64_t due_ns = deadline_ns - (time_us - fig_group_judging_us(time_us)) * 1000;
    *said = (claim){.version = FIG_VERSION,
                    .count = environment->count,
                    .rank = environment->rank,
                    .wait_ms = fig_wire_ms_until(due_ns)};
    memcpy(said->magic, magic, sizeof magic);
    FIG_TRY(fig_secret_draw(said->number));
    const fig_secret_claim proof = claimed(environment->secret, hello, said);
    fig_secret_prove(&proof, said->proof);
    return FIG_OK;
}

static fig_status read_verdict(const fig_environment *environment, int link, const claim *said,
                               int64_t deadline_ns) {
    verdict answer;
    const fig_status status = fig_wire_receive(link, &answer, sizeof answer, deadline_ns);
    if (status == FIG_LOST) return fig_fail(FIG_BUSY, "ranks: rank 0 ended the connection");
    if (status != FIG_OK)
        return fig_fail(FIG_TIMEOUT,
                        "ranks: rank 0 is there and did not let rank %" PRId32 " in within %.9g s",
                        environment->rank, (double)environment->timeout_us / 1e6);
    const fig_secret_claim proof = judged(environment->secret, said, &answer);
    if (!fig_secret_is_proof(&proof, answer.proof))
        return fig_fail(FIG_INVALID,
                        "ranks: rank 0 at %s port %" PRId32 " knows another %s than rank %" PRId32
                        "; FIG_SECRET is the same for all ranks of a job",
                        environment->address, environment->port,
                        environment->own_user ? "job" : "secret", environment->rank);
    answer.sentence[sizeof answer.sentence - 1] = '\0';
    return answer.status == FIG_OK ? FIG_OK : fig_status_relay(answer.status, answer.sentence);
}

static fig_status try_once(const fig_environment *environment, int *link, int64_t deadline_ns) {
    const fig_wire_place place = place_of(environment);
    greeting hello;
    claim said;
    FIG_TRY(fig_wire_connect(link, &place, deadline_ns));
    FIG_TRY(read_greeting(environment, *link, &hello, deadline_ns));
    FIG_TRY(make_claim(environment, &hello, &said, deadline_ns));
    const fig_status status = fig_wire_send(*link, &said, sizeof said, in_ms(SAY_MS));
    if (status != FIG_OK) return fig_fail(FIG_BUSY, "ranks: rank 0 ended the connection");
    return read_verdict(environment, *link, &said, deadline_ns);
}

static fig_status join(const fig_environment *environment, int *link) {
    const int64_t deadline = fig_clock_ns() + environment->timeout_us * 1000;
    for (;;) {
        const fig_status status = try_once(environment, link, deadline);
        if (status == FIG_OK) return FIG_OK;
        fig_wire_close(link);
        if (status != FIG_BUSY) return status;
        if (fig_wire_ms_until(deadline) == 0) break;
        sleep_ms(RETRY_MS);
    }
    return fig_fail(FIG_TIMEOUT,
                    "ranks: rank 0 did not come within %.9g s; rank %" PRId32
                    " looked for it at %s port %" PRId32 "%s",
                    (double)environment->timeout_us / 1e6, environment->rank, environment->address,
                    environment->port,
                    environment->own_user ? ", without FIG_SECRET, which all have or none" : "");
}

fig_status fig_rendezvous_meet(const fig_environment *environment, int *links) {
    for (int32_t i = 0; i < environment->count; i++)
        links[i] = -1;
    if (environment->count == 1) return FIG_OK;
    if (environment->rank > 0) return join(environment, links);
    return receive_all(environment, links);
}

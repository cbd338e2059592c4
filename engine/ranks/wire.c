/* wire.c: TCP between ranks, Unix sockets on one host, and socket pairs within a process, all
 * non-blocking.
 *
 * Invariant: every descriptor is non-blocking, so only poll waits, and every poll has a bound. */
#define _GNU_SOURCE /* accept4, struct ucred, TCP_USER_TIMEOUT */
#include "engine/ranks/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/seam/clock.h"
#include "planner/status.h"

enum {
    BACKLOG = 256,
    SILENCE_MS = 30000 /* a host that acknowledges nothing for this time counts as gone */
};

int fig_wire_ms_until(int64_t deadline_ns) {
    const int64_t left = (deadline_ns - fig_clock_ns() + 999999) / 1000000;
    if (left <= 0) return 0;
    return left > INT_MAX ? INT_MAX : (int)left;
}

/* Returns 1 if the socket is readable or writable, or has an error, and 0 if the deadline has
 * passed. */
static int wait_for(int socket, short events, int64_t deadline_ns) {
    struct pollfd one = {.fd = socket, .events = events};
    for (;;) {
        const int count = poll(&one, 1, fig_wire_ms_until(deadline_ns));
        if (count > 0) return 1;
        if (count == 0 && fig_wire_ms_until(deadline_ns) == 0) return 0;
        if (count < 0 && errno != EINTR) return 0;
    }
}

static void set_number(int socket, int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof value);
}

/* Sets the options of a connection: small frames are sent at once, and the system detects a host
 * that has vanished. */
static void tune_connection(int socket) {
    set_number(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_number(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_number(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_number(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_number(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS);
}

/* ---- Listen -------------------------------------------------------------------------------- */

typedef struct endpoint {
    struct sockaddr_storage address;
    socklen_t bytes;
} endpoint;

/* Returns the name of an abstract Unix socket, which is in no file system. The name vanishes when
 * its listener ends in any way. Processes of one network namespace share such names, as they share
 * the loopback. The name contains the user, so each user has separate ports. */
static endpoint own_endpoint(const fig_wire_place *place) {
    endpoint out = {.bytes = 0};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int length =
        snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "figraph ranks of %ju at %" PRId32,
                 (uintmax_t)geteuid(), place->port);
    memcpy(&out.address, &name, sizeof name);
    out.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return out;
}

static endpoint endpoint_of(int family, const fig_wire_place *place) {
    endpoint out = {.bytes = 0};
    if (family == AF_UNIX) {
        out = own_endpoint(place);
    } else if (family == AF_INET) {
        const struct sockaddr_in four = {.sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)place->port),
                                         .sin_addr.s_addr =
                                             htonl(place->one_host ? INADDR_LOOPBACK : INADDR_ANY)};
        memcpy(&out.address, &four, sizeof four);
        out.bytes = sizeof four;
    } else {
        const struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                                         .sin6_port = htons((uint16_t)place->port),
                                         .sin6_addr = IN6ADDR_ANY_INIT};
        memcpy(&out.address, &six, sizeof six);
        out.bytes = sizeof six;
    }
    return out;
}

/* Returns 0 or an error number. */
static int try_listen(int *out, int family, const fig_wire_place *place) {
    const endpoint at = endpoint_of(family, place);
    *out = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*out < 0) return errno;
    if (family != AF_UNIX) /* connections of an earlier job may linger */
        set_number(*out, SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) set_number(*out, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(*out, (const struct sockaddr *)&at.address, at.bytes) == 0 &&
        listen(*out, BACKLOG) == 0)
        return 0;
    const int error = errno;
    close(*out);
    *out = -1;
    return error;
}

fig_status fig_wire_listen(int *socket, const fig_wire_place *place) {
    int error = EAFNOSUPPORT;
    *socket = -1;
    if (place->own_user) {
        error = try_listen(socket, AF_UNIX, place);
    } else {
        if (!place->one_host) error = try_listen(socket, AF_INET6, place);
        if (error != 0 && error != EADDRINUSE) error = try_listen(socket, AF_INET, place);
    }
    if (error == 0) return FIG_OK;
    if (error == EADDRINUSE)
        return fig_fail(FIG_INVALID,
                        "ranks: port %" PRId32 " is in use on this host; FIG_PORT names another",
                        place->port);
    return fig_fail(FIG_IO, "ranks: cannot listen at port %" PRId32 ": %s", place->port,
                    strerror(error));
}

/* Finds the user that connected or, for a connection made here, the user that listened. If this
 * process's namespace has no number for that user, the system reports the overflow user. Returns 0
 * for a TCP connection, for which the user is unknown. */
static int user_of(int socket, uid_t *user) {
    struct ucred other;
    int domain = 0;
    socklen_t domain_bytes = sizeof domain, bytes = sizeof other;
    *user = (uid_t)-1;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) == 0 && domain != AF_UNIX)
        return 0;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0) *user = other.uid;
    return 1;
}

int fig_wire_accept(int listener) {
    uid_t user;
    int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return FIG_WIRE_NONE;
    if (user_of(socket, &user) && user != geteuid()) {
        fig_wire_close(&socket);
        return FIG_WIRE_STRANGER;
    }
    tune_connection(socket);
    return socket;
}

/* ---- Connect ------------------------------------------------------------------------------- */

/* Returns 0 or an error number. */
static int try_connect(int *out, const struct addrinfo *to, int64_t deadline_ns) {
    int error = 0;
    socklen_t bytes = sizeof error;
    *out = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*out < 0) return errno;
    if (connect(*out, to->ai_addr, to->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
        error = ETIMEDOUT;
        if (wait_for(*out, POLLOUT, deadline_ns))
            (void)getsockopt(*out, SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    if (error == 0) tune_connection(*out);
    if (error != 0) fig_wire_close(out);
    return error;
}

static fig_status connect_own(int *out, const fig_wire_place *place) {
    const endpoint at = own_endpoint(place);
    uid_t user;
    *out = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*out < 0) return fig_fail(FIG_IO, "ranks: a socket: %s", strerror(errno));
    if (connect(*out, (const struct sockaddr *)&at.address, at.bytes) != 0) {
        const int error = errno; /* EAGAIN: the listener's queue is full */
        fig_wire_close(out);
        return fig_fail(FIG_BUSY, "ranks: rank 0 at port %" PRId32 " of this host: %s", place->port,
                        strerror(error));
    }
    if (!user_of(*out, &user) || user == geteuid()) return FIG_OK;
    fig_wire_close(out);
    return fig_fail(FIG_INVALID,
                    "ranks: user %ju listens at port %" PRId32 " of this host, this rank is user "
                    "%ju's; FIG_SECRET lets ranks of several users meet",
                    (uintmax_t)user, place->port, (uintmax_t)geteuid());
}

fig_status fig_wire_connect(int *socket, const fig_wire_place *place, int64_t deadline_ns) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[16];
    *socket = -1;
    if (place->own_user) return connect_own(socket, place);
    snprintf(port, sizeof port, "%" PRId32, place->port);
    int error = getaddrinfo(place->address, port, &hints, &found);
    if (error != 0)
        return fig_fail(error == EAI_AGAIN ? FIG_BUSY : FIG_INVALID, "ranks: rank 0's host %s: %s",
                        place->address, gai_strerror(error));
    error = ECONNREFUSED;
    for (const struct addrinfo *to = found; to != NULL && *socket < 0; to = to->ai_next)
        error = try_connect(socket, to, deadline_ns);
    freeaddrinfo(found);
    if (*socket >= 0) return FIG_OK;
    return fig_fail(FIG_BUSY, "ranks: rank 0 at %s port %" PRId32 ": %s", place->address,
                    place->port, strerror(error));
}

fig_status fig_wire_pair(int ends[2]) {
    ends[0] = ends[1] = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0)
        return FIG_OK;
    return fig_fail(FIG_IO, "ranks: a pair of sockets: %s", strerror(errno));
}

/* ---- Bytes --------------------------------------------------------------------------------- */

fig_status fig_wire_send(int socket, const void *bytes, size_t count, int64_t deadline_ns) {
    for (size_t done = 0; done < count;) {
        const ssize_t sent =
            send(socket, (const uint8_t *)bytes + done, count - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) done += (size_t)sent;
        if (sent >= 0 || errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return fig_fail(FIG_LOST, "ranks: the connection ended: %s", strerror(errno));
        if (!wait_for(socket, POLLOUT, deadline_ns))
            return fig_fail(FIG_TIMEOUT, "ranks: the other end takes no bytes");
    }
    return FIG_OK;
}

int64_t fig_wire_give(int socket, const void *bytes, size_t count) {
    for (;;) {
        const ssize_t sent = send(socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) return sent;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
        if (errno != EINTR) return -1;
    }
}

int64_t fig_wire_take(int socket, void *bytes, size_t count) {
    for (;;) {
        const ssize_t got = recv(socket, bytes, count, MSG_DONTWAIT);
        if (got > 0) return got;
        if (got == 0) return -1;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
        if (errno != EINTR) return -1;
    }
}

fig_status fig_wire_receive(int socket, void *bytes, size_t count, int64_t deadline_ns) {
    for (size_t done = 0; done < count;) {
        const int64_t got = fig_wire_take(socket, (uint8_t *)bytes + done, count - done);
        if (got < 0) return fig_fail(FIG_LOST, "ranks: the connection ended");
        done += (size_t)got;
        if (got == 0 && !wait_for(socket, POLLIN, deadline_ns))
            return fig_fail(FIG_TIMEOUT, "ranks: the other end sends no bytes");
    }
    return FIG_OK;
}

int fig_wire_is_closed(int socket) {
    char byte;
    const ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void fig_wire_close(int *socket) {
    if (*socket < 0) return;
    (void)shutdown(*socket, SHUT_RDWR);
    close(*socket);
    *socket = -1;
}

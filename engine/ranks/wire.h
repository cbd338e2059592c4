/* wire.h: sockets on which every call has a deadline.
 *
 * Over TCP, any process that reaches the port can connect. Processes of one user on one host use an
 * abstract Unix socket, for which the system reports the user at the other end.
 *
 * This file moves bytes only; rendezvous.c and post.c give them their meaning. All sockets are
 * closed on exec, and none raises SIGPIPE. Invariant: no call here waits past its deadline, in ns
 * of fig_clock_ns. The one exception is the resolver: if the address is a name, the resolver
 * applies its own time limit. */
#ifndef FIG_ENGINE_RANKS_WIRE_H
#define FIG_ENGINE_RANKS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

typedef struct fig_wire_place {
    const char *address;
    int32_t port;
    int32_t one_host; /* 1: only this host can connect */
    int32_t own_user; /* 1: accept only this user's processes, and ignore the address */
} fig_wire_place;

enum { FIG_WIRE_NONE = -1, FIG_WIRE_STRANGER = -2 }; /* returned instead of a connection */

/* Opens a listener. FIG_INVALID: the port is in use. */
fig_status fig_wire_listen(int *socket, const fig_wire_place *place);
/* Tries once to connect. FIG_BUSY: no process listens there yet, or the host cannot be reached.
 * FIG_INVALID: with own_user, another user listens there. */
fig_status fig_wire_connect(int *socket, const fig_wire_place *place, int64_t deadline_ns);
/* Accepts a waiting connection. FIG_WIRE_STRANGER: it came from another user, and was closed. */
int fig_wire_accept(int listener);
/* Makes the two ends of one connection within this process. */
fig_status fig_wire_pair(int ends[2]);

/* Send or receive all of the bytes. FIG_TIMEOUT: the deadline passed first. FIG_LOST: the other end
 * is closed. */
fig_status fig_wire_send(int socket, const void *bytes, size_t count, int64_t deadline_ns);
fig_status fig_wire_receive(int socket, void *bytes, size_t count, int64_t deadline_ns);
/* Sends as many of `count` bytes as the socket takes without waiting. Returns the number of bytes
 * sent, or -1 if the other end is closed. */
int64_t fig_wire_give(int socket, const void *bytes, size_t count);
/* Receives up to `count` bytes that have already arrived. Returns their number, 0 if none have
 * arrived yet, or -1 if the other end is closed. */
int64_t fig_wire_take(int socket, void *bytes, size_t count);
/* Returns 1 if the other end is closed and all its bytes have been received. */
int fig_wire_is_closed(int socket);
/* Ends the connection for both sides, even if a forked child also holds the socket. Accepts -1. */
void fig_wire_close(int *socket);

/* Returns the milliseconds to the deadline, as poll() takes them, or 0 if the deadline has
 * passed. */
int fig_wire_ms_until(int64_t deadline_ns);

#endif

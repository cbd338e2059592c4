/* wire.h: sockets, every call of which ends in time.
 *
 * Knows bytes alone; what they mean is rendezvous.c's and group.c's. All sockets are closed on exec
 * and none makes SIGPIPE. Invariant: no call here waits past its deadline, in ns of fig_clock_ns,
 * but for the resolver's own bound where an address is a name. */
#ifndef FIG_ENGINE_RANKS_WIRE_H
#define FIG_ENGINE_RANKS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

typedef struct fig_wire_place {
    const char *address;
    int32_t port;
    int32_t one_host; /* 1: listen where this host alone can reach */
} fig_wire_place;

/* FIG_INVALID: the port is in use. */
fig_status fig_wire_listen(int *socket, const fig_wire_place *place);
/* One try. FIG_BUSY: nobody listens there as yet, or cannot be reached. */
fig_status fig_wire_connect(int *socket, const fig_wire_place *place, int64_t deadline_ns);
/* A connection that waits to be taken; -1 where there is none. */
int fig_wire_accept(int listener);
/* Two ends of one connection within this process. */
fig_status fig_wire_pair(int ends[2]);

/* All of the bytes. FIG_TIMEOUT: not in time. FIG_LOST: the other end is closed. */
fig_status fig_wire_send(int socket, const void *bytes, size_t count, int64_t deadline_ns);
fig_status fig_wire_receive(int socket, void *bytes, size_t count, int64_t deadline_ns);
/* What is there without waiting, up to `count`: how many bytes; 0: none as yet; -1: the other end
 * is closed. */
int64_t fig_wire_take(int socket, void *bytes, size_t count);
int fig_wire_is_closed(int socket); /* 1: the other end is, and all it sent was taken */
/* Ends the connection for both, even where a forked child holds it too. Takes -1. */
void fig_wire_close(int *socket);

/* ms to the deadline, as poll takes them; 0 where it has passed. */
int fig_wire_ms_until(int64_t deadline_ns);

#endif

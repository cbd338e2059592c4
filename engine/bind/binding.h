/* binding.h: keeps the memory of each tensor of an engine, and the callback of each call.
 *
 * This file checks bindings and owns the memory that the engine allocates for tensors; execs.c puts
 * addresses and callbacks into launches. Invariant: for every tensor in the table the address is
 * aligned, no two indices reach the same element, and the bytes hold every row that any step may
 * touch. */
#ifndef FIG_ENGINE_BINDING_H
#define FIG_ENGINE_BINDING_H

#include "engine/seam/device.h"
#include "engine/bind/places.h"
#include "graphs/graphs.h"

enum { FIG_BINDING_ALIGNMENT = 16 };

typedef struct fig_bound {
    fig_bound_place place;
    /* Memory that the engine allocated; zeroed if the caller gave the memory. owned: the memory of
     * the current binding. held: the memory of the binding with which launches were prepared;
     * fig_binding_settle() frees `held` when no launch uses it. The two are often the same
     * block. */
    fig_block owned, held;
    /* for a cache: the number of pages that its nodes need at least; for other tensors: 0 */
    int64_t pages_least;
    /* needed: 1 if some node names the tensor. written: 1 if some node writes it. called: 1 if a
     * call node names it. */
    uint8_t needed, written, called;
    uint8_t tables; /* 1: the tensor is the page table of some node */
    uint8_t sent;   /* 1: a collective sends the tensor, so its rows must have no gaps */
    uint8_t marked; /* 1: a caller's graph may hold the tensor's address */
} fig_bound;

typedef struct fig_bound_call {
    const char *name;      /* a string of the program */
    fig_callback callback; /* NULL: not registered yet */
    void *user;
} fig_bound_call;

typedef struct fig_bound_range {
    uintptr_t begin, end;
    uint32_t tensor, written;
} fig_bound_range;

typedef struct fig_binding_table {
    const fig_graphs *graphs;
    const fig_program_view *program;
    const fig_device_api *api;
    fig_dev *dev;
    fig_dev_stream *stream;  /* the engine's own */
    fig_bound *tensors;      /* [tensor_count]; tensor id t is tensors[t - 1] */
    fig_bound_call *calls;   /* [call_count] */
    fig_bound_range *ranges; /* [tensor_count] scratch for the overlap check */
    uint32_t call_count;
    int marks; /* 1: some tensor is marked */
    /* changes when a callback, or the binding of a tensor that launches use, is accepted */
    uint64_t version;
    /* changes with a call's callback, or with the address of a tensor that a call names */
    uint64_t calls_version;
} fig_binding_table;

/* fig_binding_init() copies graphs, api, dev and stream from `on`, and places temps in `workspace`,
 * which has graphs->workspace.bytes bytes. fig_binding_finish() accepts a zeroed or half-made
 * table; the device must be idle. */
fig_status fig_binding_init(fig_binding_table *table, const fig_binding_table *on,
                            uint8_t *workspace);
void fig_binding_finish(fig_binding_table *table);

/* Binds a tensor, or registers the callback of a call. A failure leaves the table unchanged. */
fig_status fig_binding_bind(fig_binding_table *table, const fig_binding *binding);
fig_status fig_binding_register(fig_binding_table *table, const char *call, fig_callback callback,
                                void *user);

/* fig_binding_mark() marks the tensors that nodes [first, first + count) name. A marked tensor
 * cannot be bound again. fig_binding_unmark() removes all marks. */
void fig_binding_mark(fig_binding_table *table, uint32_t first, uint32_t count);
void fig_binding_unmark(fig_binding_table *table);

/* Finds the id of a tensor that callers may bind, and makes sure that it has memory: a tensor of
 * role FIG_ROLE_STATE that the caller has not bound is allocated here. */
fig_status fig_binding_find(fig_binding_table *table, const char *name, uint32_t *tensor);
/* Returns the number of pages of the smallest bound cache that nodes read through this page table,
 * or INT64_MAX if no such cache is bound. */
int64_t fig_binding_page_limit(const fig_binding_table *table, uint32_t page_table);
const fig_bound_call *fig_binding_call(const fig_binding_table *table, const char *name);

/* Checks that every tensor and callback that a node needs is bound, and that no output overlaps
 * another tensor. Returns FIG_UNBOUND if a tensor or callback is missing; the message names it. */
fig_status fig_binding_complete(fig_binding_table *table);
/* Frees the memory that the engine allocated for earlier bindings. The caller must make sure that
 * no launch still uses that memory. */
void fig_binding_settle(fig_binding_table *table);
/* Returns 1 if fig_binding_settle() would free memory; the caller must then first wait for launched
 * work to end. */
int fig_binding_unsettled(const fig_binding_table *table);

uint64_t fig_binding_owned_bytes(const fig_binding_table *table);

#endif

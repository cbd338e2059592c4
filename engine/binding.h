/* binding.h: which memory stands behind each tensor of an engine, and which callback behind each
 * call.
 *
 * Owns the check of a binding and the memory that the engine allocates for one; execs.c makes
 * launches of it. Invariant: an address in the table is aligned, its strides reach no element
 * twice, and its bytes hold every row that any step may touch. */
#ifndef FIG_ENGINE_BINDING_H
#define FIG_ENGINE_BINDING_H

#include "engine/device.h"
#include "engine/places.h"
#include "graphs/graphs.h"

enum { FIG_BINDING_ALIGNMENT = 16 };

typedef struct fig_bound {
    fig_bound_place place;
    /* The engine's memory, zeroed where it is the caller's: of this binding, and of the one that
     * launches were prepared with, which is freed when they no longer use it. Often the same. */
    fig_block owned, held;
    int64_t pages_least;             /* of a cache: that its nodes need; 0 of any other tensor */
    uint8_t needed, written, called; /* by any node; by any node's write; by a call */
    uint8_t tables;                  /* 1: it is the page table of some node */
    uint8_t sent;                    /* 1: by a collective, so its rows lie close together */
    uint8_t marked;                  /* 1: a graph of the caller's may hold it */
} fig_bound;

typedef struct fig_bound_call {
    const char *name;      /* the program's */
    fig_callback callback; /* NULL: nobody yet */
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
    fig_dev_stream *stream;  /* the engine's */
    fig_bound *tensors;      /* [tensor_count]; tensor id t is tensors[t - 1] */
    fig_bound_call *calls;   /* [call_count] */
    fig_bound_range *ranges; /* [tensor_count] scratch of the overlap check */
    uint32_t call_count;
    int marks;              /* 1: some tensor is marked */
    uint64_t version;       /* changes with every binding and callback accepted */
    uint64_t calls_version; /* changes with those that a call sees */
} fig_binding_table;

/* `on` gives graphs, api, dev and stream. Temps lie in `workspace`, graphs->workspace.bytes of it.
 * finish takes a zeroed table and a half-made one; nothing runs by then. */
fig_status fig_binding_init(fig_binding_table *table, const fig_binding_table *on,
                            uint8_t *workspace);
void fig_binding_finish(fig_binding_table *table);

/* On failure the table is as it was. */
fig_status fig_binding_bind(fig_binding_table *table, const fig_binding *binding);
fig_status fig_binding_register(fig_binding_table *table, const char *call, fig_callback callback,
                                void *user);

/* Marks what nodes [first, first + count) name, so that it is not bound again; and takes all marks
 * away. */
void fig_binding_mark(fig_binding_table *table, uint32_t first, uint32_t count);
void fig_binding_unmark(fig_binding_table *table);

/* The place of a tensor that a caller may bind; a FIG_ROLE_STATE that nobody bound gets its memory
 * here. *tensor: its id. */
fig_status fig_binding_find(fig_binding_table *table, const char *name, uint32_t *tensor);
/* Pages of the smallest cache bound so far of those behind a page table; INT64_MAX: none is. */
int64_t fig_binding_page_limit(const fig_binding_table *table, uint32_t page_table);
const fig_bound_call *fig_binding_call(const fig_binding_table *table, const char *name);

/* All that any node needs is there, and no output lies on another tensor. FIG_UNBOUND names what is
 * missing. */
fig_status fig_binding_complete(fig_binding_table *table);
/* No launch uses anything but the bindings in force: frees the engine's memory of those before. */
void fig_binding_settle(fig_binding_table *table);
/* 1: settle would free something, so what was launched must have ended. */
int fig_binding_unsettled(const fig_binding_table *table);

uint64_t fig_binding_owned_bytes(const fig_binding_table *table);

#endif

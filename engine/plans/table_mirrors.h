/* table_mirrors.h: keeps a copy of each page table that changes only through the engine.
 *
 * The engine can then tell which pages a sequence has, and which sequences have the same pages. A
 * table has no copy if its memory is the caller's, if a node of the program writes it, or if the
 * caller has asked for its address. Invariant: a copy holds what the device's table will hold when
 * the next plan runs; an entry that a failed call left unknown is negative, and equals no other
 * sequence's. */
#ifndef FIG_ENGINE_TABLE_MIRRORS_H
#define FIG_ENGINE_TABLE_MIRRORS_H

#include "engine/bind/binding.h"
#include "planner/prefixes/page_order.h"

typedef struct fig_table_mirror {
    fig_page_order order; /* entries is NULL if there is no copy, or no use of the table yet */
    int32_t page_tokens;  /* of the caches; 0: these differ, or no node reads the table */
    const char *lost;     /* why this memory can have no copy; NULL: it can */
    uint64_t version;     /* number of copies made so far */
} fig_table_mirror;

typedef struct fig_table_mirrors {
    const fig_binding_table *bindings;
    fig_table_mirror *of; /* [count] table t is of[t - 1] */
    uint32_t count;       /* tensors of the program */
} fig_table_mirrors;

/* fig_table_mirrors_finish() accepts a zeroed struct, and needs no bindings. */
fig_status fig_table_mirrors_init(fig_table_mirrors *mirrors, const fig_binding_table *bindings);
void fig_table_mirrors_finish(fig_table_mirrors *mirrors);

/* Returns why table t has no copy, or NULL if it has or may have one. */
const char *fig_table_mirrors_refuse(const fig_table_mirrors *mirrors, uint32_t t);
/* Makes sure that table t, which has memory, has a copy if it may have one. FIG_NOMEM. */
fig_status fig_table_mirrors_prepare(fig_table_mirrors *mirrors, uint32_t t);

/* Each of these tells a copy what happened to its table. They do nothing for a table without a
 * copy. fig_table_mirrors_set(): entries were set. fig_table_mirrors_lose(): a call that set them
 * failed half-way. */
void fig_table_mirrors_set(fig_table_mirrors *mirrors, uint32_t t, const fig_pages *pages);
void fig_table_mirrors_lose(fig_table_mirrors *mirrors, uint32_t t, const fig_pages *pages);
/* The caller wrote bytes of the tensor; or a write failed half-way, if `from` is NULL. */
void fig_table_mirrors_write(fig_table_mirrors *mirrors, uint32_t t, const fig_span *span,
                             const void *from);
/* The tensor was bound anew; or the caller asked for its address. */
void fig_table_mirrors_forget(fig_table_mirrors *mirrors, uint32_t t);
void fig_table_mirrors_give(fig_table_mirrors *mirrors, uint32_t t);

#endif

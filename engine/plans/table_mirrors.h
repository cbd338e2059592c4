/* table_mirrors.h: keeps a copy of each page table that changes only through the engine.
 *
 * The engine can then tell which pages a sequence has, and which sequences have the same pages. A
 * table has no copy if its memory is the caller's, if a node of the program writes it, or if the
 * caller has asked for its address. Invariant: a copy has the entries that the device's table will
 * have when the next plan runs. An entry that a failed call left unknown is negative, and differs
 * from the entries of all other sequences. */
#ifndef FIG_ENGINE_TABLE_MIRRORS_H
#define FIG_ENGINE_TABLE_MIRRORS_H

#include "engine/bind/binding.h"
#include "planner/prefixes/page_order.h"

typedef struct fig_table_mirror {
    fig_page_order order; /* entries is NULL if there is no copy, or no use of the table yet */
    int32_t page_tokens;  /* tokens of a page; 0: the caches differ, or no node reads the table */
    const char *lost;     /* the reason why this table can have no copy; NULL: it can */
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

/* Returns the reason why table t can have no copy, or NULL if it has one or may get one. */
const char *fig_table_mirrors_refuse(const fig_table_mirrors *mirrors, uint32_t t);
/* Makes a copy of table t, unless it has one already or can have none. The table must have memory.
 * May fail with FIG_NOMEM. */
fig_status fig_table_mirrors_prepare(fig_table_mirrors *mirrors, uint32_t t);

/* The functions below update a copy after its table has changed. They do nothing for a table
 * without a copy. fig_table_mirrors_set(): entries were set. fig_table_mirrors_lose(): a call that
 * sets entries failed half-way. */
void fig_table_mirrors_set(fig_table_mirrors *mirrors, uint32_t t, const fig_pages *pages);
void fig_table_mirrors_lose(fig_table_mirrors *mirrors, uint32_t t, const fig_pages *pages);
/* The caller wrote bytes of the tensor. If `from` is NULL, the write failed half-way. */
void fig_table_mirrors_write(fig_table_mirrors *mirrors, uint32_t t, const fig_span *span,
                             const void *from);
/* The tensor was bound to other memory, or the caller asked for its address. */
void fig_table_mirrors_forget(fig_table_mirrors *mirrors, uint32_t t);
void fig_table_mirrors_give(fig_table_mirrors *mirrors, uint32_t t);

#endif

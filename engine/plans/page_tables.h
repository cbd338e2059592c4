/* page_tables.h: sends changes of page tables to the device.
 *
 * If a call sets a few entries, they wait for the next plan and travel in its slot. If a call sets
 * many entries, they are copied through pinned memory on the engine's stream, ahead of the plans.
 * This file owns both paths and chooses between them; replay.c owns the use of the ring's slots. It
 * records the entries of each plan until the device has reported that the plan arrived undamaged,
 * so that a damaged plan loses no entry. Invariant: the waiting list has each entry at most once,
 * and waiting and recorded entries hold their newest pages. If a plan in the ring overwrites a
 * newer entry with an older page, a later plan restores the newer page. */
#ifndef FIG_ENGINE_PAGE_TABLES_H
#define FIG_ENGINE_PAGE_TABLES_H

#include "engine/bind/binding.h"
#include "engine/plans/ring.h"
#include "engine/plans/table_mirrors.h"

typedef struct fig_page_tables {
    fig_binding_table *bindings;
    fig_dev_stream *stream;
    const fig_ring *ring;
    fig_plan_page *waiting; /* [waiting_limit] entries that wait for a plan, oldest first */
    uint32_t waiting_count, waiting_limit;
    uint32_t slot_limit; /* entries that one plan can carry */
    /* [slot_count][slot_limit] the entries of plan n are at index (n - 1) % slot_count */
    fig_plan_page *carried;
    uint32_t *carried_counts; /* [slot_count] */
    /* every plan up to this number arrived undamaged, or its entries wait again */
    uint64_t sound;
    /* number of damaged plans whose entries wait again; the stamp of the next plan */
    uint64_t torn;
    uint8_t *bulk; /* [FIG_GRAPHS_BULK_BYTES] pinned, in two halves */
    /* half: the half that is being filled. used: the bytes of that half that are in use. When the
     * stream has passed fence n, half n is free. */
    uint32_t half, used;
    /* [tensor_count] for each page table, the number of pages in the smallest cache that nodes read
     * through the table */
    int64_t *limits;
    uint64_t limits_version; /* version of the bindings from which `limits` was found; 0: none */
    fig_table_mirrors mirrors;
} fig_page_tables;

/* Bytes of the device's memory. */
typedef struct fig_page_bytes {
    uint64_t address, count;
    const uint8_t *from; /* [count] their new values */
} fig_page_bytes;

/* fig_page_tables_finish() accepts a zeroed struct. */
fig_status fig_page_tables_init(fig_page_tables *tables, fig_binding_table *bindings,
                                fig_dev_stream *stream, const fig_ring *ring, uint8_t *bulk);
void fig_page_tables_finish(fig_page_tables *tables);

/* Does the work of fig_engine_set_pages. *ahead_bytes: the number of bytes that went ahead of the
 * plans. Here and below, `first` is the number of the oldest plan that has launches left. */
fig_status fig_page_tables_set(fig_page_tables *tables, const fig_pages *pages, uint64_t first,
                               uint64_t *ahead_bytes);
/* Does the work of fig_engine_fork. The arguments are those of fig_page_tables_set(). */
fig_status fig_page_tables_fork(fig_page_tables *tables, const fig_fork *fork, uint64_t first,
                                uint64_t *ahead_bytes);

/* Makes sure that all waiting entries fit into the next plan. The caller has claimed its slot. If
 * too many entries wait, this function first writes them to the device. An entry for which a staged
 * plan carries an older page still waits after that. Returns FIG_BUSY if one plan cannot carry all
 * entries of this kind. */
fig_status fig_page_tables_make_fit(fig_page_tables *tables, uint64_t first);
/* fig_page_tables_carry() appends the waiting entries, which must fit, to the plan in the slot.
 * `bytes` is the plan's size; the function returns the new size. After the ring has taken its
 * newest plan back, fig_page_tables_restore() returns the entries of that plan to the waiting
 * list. */
uint32_t fig_page_tables_carry(fig_page_tables *tables, uint8_t *slot, uint32_t bytes);
void fig_page_tables_restore(fig_page_tables *tables);

/* Writes all waiting entries to the device, behind all work launched so far, and blocks until they
 * are written. If a plan that has yet to be launched carries an older page for an entry, the entry
 * also stays in the waiting list. If the device refuses a copy, the entries that are not written
 * stay there too. */
fig_status fig_page_tables_flush(fig_page_tables *tables, uint64_t first);
/* Notes that the caller has written bytes of any tensor, behind a flush. They may be a part of an
 * entry. If a plan that has yet to be launched carries an older page for an entry, the newest page
 * waits for a later plan. */
void fig_page_tables_write(fig_page_tables *tables, const fig_page_bytes *written, uint64_t first);
/* Drops the waiting entries that lie in no bound page table. The engine calls this after a bind. */
void fig_page_tables_forget(fig_page_tables *tables);
/* Returns 1 if the next plan can carry all waiting entries. */
static inline int fig_page_tables_fit(const fig_page_tables *tables) {
    return tables->waiting_count <= tables->slot_limit;
}

#endif

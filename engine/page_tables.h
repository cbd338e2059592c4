/* page_tables.h: changes to page tables on their way to the device.
 *
 * A few entries wait for the next plan and travel in its slot; many at once pass through pinned
 * memory and go ahead on the engine's stream. Owns both, and which of them a change takes; leaves
 * the ring's slots to replay.c. A record of what each plan carries is kept until the plan is known
 * to have arrived whole, so that nothing is lost with one that did not. Invariant: an entry waits
 * at most once, waiting and recorded entries have their newest page, and what goes ahead of plans
 * is not undone by one that waits, in the ring or here. */
#ifndef FIG_ENGINE_PAGE_TABLES_H
#define FIG_ENGINE_PAGE_TABLES_H

#include "engine/binding.h"
#include "engine/ring.h"

typedef struct fig_page_tables {
    fig_binding_table *bindings;
    fig_dev_stream *stream;
    const fig_ring *ring;
    fig_plan_page *waiting; /* [waiting_limit], oldest first */
    uint32_t waiting_count, waiting_limit;
    uint32_t slot_limit;      /* that one plan can carry */
    fig_plan_page *carried;   /* [slot_count][slot_limit] by plan n at (n - 1) % slot_count, whose
                               slot the plan has as well */
    uint32_t *carried_counts; /* [slot_count] */
    uint64_t sound;           /* every plan up to this number is known to have arrived whole */
    uint64_t torn;            /* plans that did not, whose entries wait again */
    uint8_t *bulk;       /* [FIG_GRAPHS_BULK_BYTES], pinned; in two halves, one of them in use */
    uint32_t half, used; /* which; bytes of it. Fence n of the stream: half n is free again */
    int64_t *limits;     /* [tensor_count] pages behind each table, as of `limits_version` */
    uint64_t limits_version; /* of the bindings; 0: of none */
} fig_page_tables;

/* finish takes a zeroed struct. */
fig_status fig_page_tables_init(fig_page_tables *tables, fig_binding_table *bindings,
                                fig_dev_stream *stream, const fig_ring *ring, uint8_t *bulk);
void fig_page_tables_finish(fig_page_tables *tables);

/* fig_engine_set_pages; *ahead_bytes: that went ahead of the plans. Here and below, first: number
 * of the oldest plan that was not launched as often as it is to be. */
fig_status fig_page_tables_set(fig_page_tables *tables, const fig_pages *pages, uint64_t first,
                               uint64_t *ahead_bytes);

/* Makes all that waits fit into the next plan, whose slot is claimed.
 * FIG_BUSY: plans that wait for their launch carry older pages of more entries than one plan can
 * carry again behind them. */
fig_status fig_page_tables_make_fit(fig_page_tables *tables, uint64_t first);
/* Adds what waits to the next plan's slot, behind the plan, and returns the slot's bytes then; it
 * fits. restore: the ring has just taken its newest plan back; what that carried waits again. */
uint32_t fig_page_tables_carry(fig_page_tables *tables, uint8_t *slot, uint32_t bytes);
void fig_page_tables_restore(fig_page_tables *tables);

/* All that waits goes to the device, after all that was launched; blocks. An entry of which a plan
 * not launched carries an older page goes on waiting too. */
fig_status fig_page_tables_flush(fig_page_tables *tables, uint64_t first);
/* After a bind: what waits for memory that is no table any more is nobody's. */
void fig_page_tables_forget(fig_page_tables *tables);
/* 1: the next plan can carry all that waits. */
static inline int fig_page_tables_fit(const fig_page_tables *tables) {
    return tables->waiting_count <= tables->slot_limit;
}

#endif

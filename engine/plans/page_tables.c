/* page_tables.c: sends changes of page tables to the device.
 *
 * Invariant: a call that fails its checks changes nothing. If the device refuses half-way, some of
 * the named tables may lack the entries, and the caller must set the entries again. */
#include "engine/plans/page_tables.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

/* If a call sets at most INLINE_LIMIT entries, for example when a sequence grows by a page, the
 * entries wait for the next plan. If a call sets more, for example when a sequence joins, the
 * entries are copied to the device ahead of the plans. */
enum { INLINE_LIMIT = 16, HALF_BYTES = FIG_GRAPHS_BULK_BYTES / 2 };

/* Waiting entries are either new or were carried by plans in the ring. waiting_limit allows for
 * slot_limit new entries and for slot_limit entries of each slot in the ring. */
fig_status fig_page_tables_init(fig_page_tables *tables, fig_binding_table *bindings,
                                fig_dev_stream *stream, const fig_ring *ring, uint8_t *bulk) {
    const uint32_t slot_limit = fig_graphs_page_limit(bindings->graphs);
    *tables = (fig_page_tables){.bindings = bindings,
                                .stream = stream,
                                .ring = ring,
                                .slot_limit = slot_limit,
                                .waiting_limit = slot_limit * (ring->slot_count + 1),
                                .bulk = bulk};
    tables->waiting = calloc(tables->waiting_limit, sizeof *tables->waiting);
    tables->carried = calloc((size_t)ring->slot_count * slot_limit + 1, sizeof *tables->carried);
    tables->carried_counts = calloc(ring->slot_count, sizeof *tables->carried_counts);
    tables->limits = calloc((size_t)bindings->program->tensor_count + 1, sizeof *tables->limits);
    if (tables->waiting != NULL && tables->carried != NULL && tables->carried_counts != NULL &&
        tables->limits != NULL)
        return fig_table_mirrors_init(&tables->mirrors, bindings);
    return fig_fail(FIG_NOMEM, "engine: %" PRIu32 " entries of page tables", tables->waiting_limit);
}

void fig_page_tables_finish(fig_page_tables *tables) {
    free(tables->waiting);
    free(tables->carried);
    free(tables->carried_counts);
    free(tables->limits);
    fig_table_mirrors_finish(&tables->mirrors);
    *tables = (fig_page_tables){0};
}

/* ---- Checks -------------------------------------------------------------------------------- */

/* Returns the number of pages of the smallest cache that nodes read through the table. The limits
 * of all tables are computed once for each version of the bindings. */
static int64_t page_limit_of(fig_page_tables *tables, uint32_t table) {
    const fig_binding_table *bindings = tables->bindings;
    if (tables->limits_version != bindings->version) {
        for (uint32_t t = 1; t <= bindings->program->tensor_count; t++)
            if (bindings->tensors[t - 1].tables)
                tables->limits[t - 1] = fig_binding_page_limit(bindings, t);
        tables->limits_version = bindings->version;
    }
    return tables->limits[table - 1];
}

static fig_status check(fig_page_tables *tables, const fig_pages *pages, uint32_t table) {
    const fig_tensor_record *record = &tables->bindings->program->tensors[table - 1];
    assert(record->rank == 2 && record->dtype == FIG_I32);
    if (pages->sequence < 0 || pages->sequence >= record->dims[0])
        return fig_fail(FIG_INVALID, "pages: sequence is %" PRId32 ", limit %" PRId64,
                        pages->sequence, record->dims[0] - 1);
    if (pages->first < 0 || pages->count < 0 ||
        (int64_t)pages->first + pages->count > record->dims[1])
        return fig_fail(FIG_INVALID,
                        "pages: %" PRId32 " entries from %" PRId32 ", a sequence has %" PRId64,
                        pages->count, pages->first, record->dims[1]);
    if (pages->count > 0 && pages->pages == NULL)
        return fig_fail(FIG_INVALID, "pages: pages is NULL");
    const int64_t limit = page_limit_of(tables, table);
    for (int32_t i = 0; i < pages->count; i++)
        if (pages->pages[i] < 0 || pages->pages[i] >= limit)
            return fig_fail(FIG_INVALID,
                            "pages: pages[%" PRId32 "] is %" PRId32 ", the caches hold %" PRId64, i,
                            pages->pages[i], limit);
    return FIG_OK;
}

/* Returns the next page table behind tensor t that the call applies to, or 0 at the end. */
static uint32_t next_table(const fig_page_tables *tables, const fig_pages *pages, uint32_t t) {
    const fig_binding_table *bindings = tables->bindings;
    for (t++; t <= bindings->program->tensor_count; t++) {
        if (!bindings->tensors[t - 1].tables) continue;
        if (pages->table == NULL) return t;
        if (strcmp(pages->table, fig_program_view_tensor_name(bindings->program, t)) == 0) return t;
    }
    return 0;
}

/* Checks the call against a table. Allocates the table if the caller has not bound it. */
static fig_status find_table(fig_page_tables *tables, const fig_pages *pages, uint32_t t) {
    const char *name = fig_program_view_tensor_name(tables->bindings->program, t);
    if (tables->bindings->tensors[t - 1].place.address == NULL)
        FIG_TRY(fig_binding_find(tables->bindings, name, &t));
    FIG_TRY(check(tables, pages, t));
    return fig_table_mirrors_prepare(&tables->mirrors, t);
}

/* Checks a fork against a table, and finds the entries that it sets. */
static fig_status find_fork(fig_page_tables *tables, const fig_fork *fork, uint32_t t,
                            fig_pages *pages) {
    const fig_table_mirror *mirror = &tables->mirrors.of[t - 1];
    const int64_t *dims = tables->bindings->program->tensors[t - 1].dims;
    const char *refusal = fig_table_mirrors_refuse(&tables->mirrors, t);
    const int64_t token_limit = dims[1] * mirror->page_tokens;
    *pages = (fig_pages){.sequence = fork->target};
    if (refusal != NULL)
        return fig_fail(FIG_UNSUPPORTED, "fork: page table %s: %s",
                        fig_program_view_tensor_name(tables->bindings->program, t), refusal);
    if (fork->source < 0 || fork->source >= dims[0] || fork->target < 0 || fork->target >= dims[0])
        return fig_fail(FIG_INVALID,
                        "fork: source is %" PRId32 " and target %" PRId32 ", limits 0 to %" PRId64,
                        fork->source, fork->target, dims[0] - 1);
    if (fork->source == fork->target)
        return fig_fail(FIG_INVALID, "fork: source and target are both %" PRId32, fork->target);
    if (fork->length < 0 || fork->length > token_limit)
        return fig_fail(FIG_INVALID, "fork: length is %" PRId32 ", limits 0 to %" PRId64,
                        fork->length, token_limit);
    FIG_TRY(find_table(tables, pages, t));
    const int32_t *entries = fig_page_order_row(&mirror->order, fork->source);
    pages->count = fork->length / mirror->page_tokens;
    pages->pages = entries;
    for (int32_t i = 0; i < pages->count; i++)
        if (i >= mirror->order.known[fork->source] || entries[i] < 0)
            return fig_fail(FIG_INVALID,
                            "fork: length is %" PRId32 ", but entry %" PRId32
                            " of sequence %" PRId32
                            " was never set, or the call that set it failed",
                            fork->length, i, fork->source);
    return check(tables, pages, t);
}

/* ---- Entries that plans carry -------------------------------------------------------------- */

/* The entries that a plan carries, kept while the plan has a slot. */
typedef struct page_record {
    fig_plan_page *pages;
    uint32_t *count;
} page_record;

static page_record record_of(const fig_page_tables *tables, uint64_t number) {
    const uint64_t slot = (number - 1) % tables->ring->slot_count;
    return (page_record){tables->carried + slot * tables->slot_limit,
                         tables->carried_counts + slot};
}

/* Returns the number of the oldest plan, not older than `first`, whose slot has not been reused. */
static uint64_t first_record(const fig_page_tables *tables, uint64_t first) {
    const fig_ring *ring = tables->ring;
    const uint64_t oldest = ring->next > ring->slot_count ? ring->next - ring->slot_count : 1;
    return first > oldest ? first : oldest;
}

/* Returns 1 if a plan from number `first` on carries the entry. */
static int is_carried(const fig_page_tables *tables, uint64_t address, uint64_t first) {
    for (uint64_t n = first_record(tables, first); n < tables->ring->next; n++) {
        const page_record record = record_of(tables, n);
        for (uint32_t i = 0; i < *record.count; i++)
            if (record.pages[i].address == address) return 1;
    }
    return 0;
}

/* Sets each item of `pages` to its newest page if its entry is one of the `count` entries from
 * `address` on. */
static void overwrite(fig_plan_page *pages, uint32_t page_count, uint64_t address,
                      const int32_t *newest, int32_t count) {
    for (uint32_t i = 0; i < page_count; i++) {
        const uint64_t entry = (pages[i].address - address) / sizeof *newest;
        if (pages[i].address >= address && entry < (uint64_t)count) pages[i].page = newest[entry];
    }
}

/* Updates the records of earlier plans to the newest pages. If such a plan arrives damaged, the
 * entries in its record are sent again, and they must not restore older pages. */
static void overwrite_carried(fig_page_tables *tables, uint64_t address, const int32_t *pages,
                              int32_t count) {
    for (uint64_t n = first_record(tables, tables->sound + 1); n < tables->ring->next; n++) {
        const page_record record = record_of(tables, n);
        overwrite(record.pages, *record.count, address, pages, count);
    }
}

/* ---- Waiting for a plan -------------------------------------------------------------------- */

static fig_plan_page *find_waiting(const fig_page_tables *tables, uint64_t address) {
    for (uint32_t i = 0; i < tables->waiting_count; i++)
        if (tables->waiting[i].address == address) return &tables->waiting[i];
    return NULL;
}

static void add_waiting(fig_page_tables *tables, uint64_t address, const int32_t *pages,
                        int32_t count) {
    for (int32_t i = 0; i < count; i++, address += sizeof(int32_t)) {
        fig_plan_page *page = find_waiting(tables, address);
        assert(page != NULL || tables->waiting_count < tables->waiting_limit);
        if (page == NULL) page = &tables->waiting[tables->waiting_count++];
        *page = (fig_plan_page){.address = address, .page = pages[i]};
    }
}

/* Returns 1 if the entry lies in a bound table. */
static int is_entry(const fig_page_tables *tables, const fig_plan_page *page) {
    const fig_binding_table *bindings = tables->bindings;
    for (uint32_t t = 0; t < bindings->program->tensor_count; t++) {
        const fig_bound *bound = &bindings->tensors[t];
        const uint64_t base = (uint64_t)(uintptr_t)bound->place.address;
        if (bound->tables && page->address - base < bound->place.bytes) return 1;
    }
    return 0;
}

static void drop_what_is_no_entry(const fig_page_tables *tables, fig_plan_page *pages,
                                  uint32_t *count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *count; i++)
        if (is_entry(tables, &pages[i])) pages[kept++] = pages[i];
    *count = kept;
}

void fig_page_tables_forget(fig_page_tables *tables) {
    drop_what_is_no_entry(tables, tables->waiting, &tables->waiting_count);
    for (uint32_t slot = 0; slot < tables->ring->slot_count; slot++)
        drop_what_is_no_entry(tables, tables->carried + (size_t)slot * tables->slot_limit,
                              &tables->carried_counts[slot]);
}

static void requeue(fig_page_tables *tables, uint64_t number) {
    const page_record record = record_of(tables, number);
    for (uint32_t i = 0; i < *record.count; i++)
        add_waiting(tables, record.pages[i].address, &record.pages[i].page, 1);
}

void fig_page_tables_restore(fig_page_tables *tables) {
    const uint64_t number = tables->ring->next;
    requeue(tables, number);
    *record_of(tables, number).count = 0;
}

/* The device reports how many plans arrived damaged, but not which ones. If the number has grown,
 * the entries of every plan that may be damaged are queued again. `consumed` is read before `torn`,
 * so `torn` counts every damaged plan up to `consumed`; see kernels/step/fetch.c. */
static void requeue_torn(fig_page_tables *tables) {
    const uint64_t consumed = fig_ring_consumed(tables->ring);
    const uint64_t torn = fig_ring_torn(tables->ring);
    if (torn != tables->torn)
        for (uint64_t n = first_record(tables, tables->sound + 1); n < tables->ring->next; n++)
            requeue(tables, n);
    tables->torn = torn;
    tables->sound = consumed;
}

fig_status fig_page_tables_flush(fig_page_tables *tables, uint64_t first) {
    const fig_binding_table *bindings = tables->bindings;
    fig_status status = FIG_OK;
    uint32_t kept = 0, i = 0;
    requeue_torn(tables);
    for (; i < tables->waiting_count; i++) {
        const fig_plan_page page = tables->waiting[i];
        status =
            bindings->api->copy_in(bindings->dev, tables->stream, (void *)(uintptr_t)page.address,
                                   &page.page, sizeof page.page);
        if (status != FIG_OK) break;
        if (is_carried(tables, page.address, first)) tables->waiting[kept++] = page;
    }
    const uint32_t left = tables->waiting_count - i;
    memmove(tables->waiting + kept, tables->waiting + i, left * sizeof *tables->waiting);
    tables->waiting_count = kept + left;
    return status;
}

/* Puts those bytes that lie in the entry into its page. Returns 0 if there are none. */
static int patch(fig_plan_page *entry, const fig_page_bytes *written) {
    const uint64_t entry_end = entry->address + sizeof entry->page;
    const uint64_t written_end = written->address + written->count;
    const uint64_t begin = entry->address > written->address ? entry->address : written->address;
    const uint64_t end = entry_end < written_end ? entry_end : written_end;
    if (begin >= end) return 0;
    memcpy((uint8_t *)&entry->page + (begin - entry->address),
           written->from + (begin - written->address), end - begin);
    return 1;
}

/* Plans up to `sound` overwrite nothing any more, and their records may hold older pages. */
void fig_page_tables_write(fig_page_tables *tables, const fig_page_bytes *written, uint64_t first) {
    for (uint32_t i = 0; i < tables->waiting_count; i++)
        patch(&tables->waiting[i], written);
    for (uint64_t n = first_record(tables, tables->sound + 1); n < tables->ring->next; n++) {
        const page_record record = record_of(tables, n);
        for (uint32_t i = 0; i < *record.count; i++) {
            fig_plan_page *entry = &record.pages[i];
            if (patch(entry, written) && n >= first)
                add_waiting(tables, entry->address, &entry->page, 1);
        }
    }
}

/* The caller has claimed the slot of the next plan, so the device has already reported whether the
 * previous plan in that slot arrived damaged. */
fig_status fig_page_tables_make_fit(fig_page_tables *tables, uint64_t first) {
    requeue_torn(tables);
    if (fig_page_tables_fit(tables)) return FIG_OK;
    FIG_TRY(fig_page_tables_flush(tables, first));
    if (fig_page_tables_fit(tables)) return FIG_OK;
    return fig_fail(FIG_BUSY,
                    "staged plans carry older values of %" PRIu32 " page table entries, and one "
                    "plan carries %" PRIu32 " at most: launch the staged steps first",
                    tables->waiting_count, tables->slot_limit);
}

uint32_t fig_page_tables_carry(fig_page_tables *tables, uint8_t *slot, uint32_t bytes) {
    const uint32_t count = tables->waiting_count;
    const page_record record = record_of(tables, tables->ring->next);
    assert(fig_page_tables_fit(tables));
    *record.count = count;
    if (count == 0) return bytes;
    memcpy(record.pages, tables->waiting, count * sizeof *record.pages);
    tables->waiting_count = 0;
    return fig_plan_add_pages(slot, record.pages, count);
}

/* ---- Ahead of plans ------------------------------------------------------------------------ */

/* Finds `bytes` bytes of pinned memory that no copy reads any more. The host fills one half while
 * earlier copies on the stream may still read the other half. */
static fig_status take_bulk(fig_page_tables *tables, uint32_t bytes, uint8_t **out) {
    const fig_binding_table *bindings = tables->bindings;
    FIG_TRY_OURS(bytes <= HALF_BYTES, "pages: %" PRIu32 " bytes in one copy, limit %d", bytes,
                 HALF_BYTES);
    if (tables->used + bytes > HALF_BYTES) {
        FIG_TRY(bindings->api->stream_fence(bindings->dev, tables->stream, tables->half));
        FIG_TRY(bindings->api->stream_pass(bindings->dev, tables->stream, tables->half ^ 1));
        tables->half ^= 1;
        tables->used = 0;
    }
    *out = tables->bulk + tables->half * HALF_BYTES + tables->used;
    tables->used += (bytes + 15) / 16 * 16;
    return FIG_OK;
}

/* Queues each entry for which a plan that has yet to be launched carries an older page, although
 * the entry is about to go ahead of the plans: that plan will overwrite the newest page, so a later
 * plan must carry it again. */
static void requeue_carried(fig_page_tables *tables, uint64_t address, const int32_t *pages,
                            int32_t count, uint64_t first) {
    for (int32_t i = 0; i < count && first < tables->ring->next; i++) {
        const uint64_t entry = address + (uint64_t)i * sizeof *pages;
        if (is_carried(tables, entry, first)) add_waiting(tables, entry, &pages[i], 1);
    }
}

static fig_status send_ahead(fig_page_tables *tables, uint64_t address, const int32_t *pages,
                             int32_t count, uint64_t first) {
    const fig_binding_table *bindings = tables->bindings;
    overwrite(tables->waiting, tables->waiting_count, address, pages, count);
    requeue_carried(tables, address, pages, count, first);
    while (count > 0) {
        const int32_t most = HALF_BYTES / (int32_t)sizeof *pages;
        const int32_t part = count < most ? count : most;
        const size_t bytes = (size_t)part * sizeof *pages;
        uint8_t *from;
        FIG_TRY(take_bulk(tables, (uint32_t)bytes, &from));
        memcpy(from, pages, bytes);
        FIG_TRY(bindings->api->push(bindings->dev, tables->stream, (void *)(uintptr_t)address, from,
                                    bytes));
        address += bytes;
        pages += part;
        count -= part;
    }
    return FIG_OK;
}

static fig_status set_table(fig_page_tables *tables, const fig_pages *pages, uint32_t t,
                            uint64_t first, uint64_t *ahead_bytes) {
    const fig_bound_place *place = &tables->bindings->tensors[t - 1].place;
    const int64_t entry = pages->sequence * place->strides[0] + pages->first;
    const uint64_t address =
        (uint64_t)(uintptr_t)place->address + (uint64_t)entry * sizeof(int32_t);
    overwrite_carried(tables, address, pages->pages, pages->count);
    if (pages->count <= INLINE_LIMIT &&
        tables->waiting_count + (uint32_t)pages->count <= tables->slot_limit) {
        add_waiting(tables, address, pages->pages, pages->count);
        fig_table_mirrors_set(&tables->mirrors, t, pages);
        return FIG_OK;
    }
    *ahead_bytes += (uint64_t)pages->count * sizeof(int32_t);
    const fig_status status = send_ahead(tables, address, pages->pages, pages->count, first);
    if (status == FIG_OK) {
        fig_table_mirrors_set(&tables->mirrors, t, pages);
    } else {
        fig_table_mirrors_lose(&tables->mirrors, t, pages);
    }
    return status;
}

fig_status fig_page_tables_set(fig_page_tables *tables, const fig_pages *pages, uint64_t first,
                               uint64_t *ahead_bytes) {
    const uint32_t table = next_table(tables, pages, 0);
    *ahead_bytes = 0;
    if (table == 0)
        return fig_fail(FIG_INVALID, "pages: the program has no page table%s%s",
                        pages->table != NULL ? " called " : "",
                        pages->table != NULL ? pages->table : "");
    for (uint32_t t = table; t != 0; t = next_table(tables, pages, t))
        FIG_TRY(find_table(tables, pages, t));
    for (uint32_t t = table; t != 0 && pages->count > 0; t = next_table(tables, pages, t))
        FIG_TRY(set_table(tables, pages, t, first, ahead_bytes));
    return FIG_OK;
}

fig_status fig_page_tables_fork(fig_page_tables *tables, const fig_fork *fork, uint64_t first,
                                uint64_t *ahead_bytes) {
    fig_pages pages = {.table = fork->table};
    const uint32_t table = next_table(tables, &pages, 0);
    *ahead_bytes = 0;
    if (table == 0)
        return fig_fail(FIG_INVALID, "fork: the program has no page table%s%s",
                        fork->table != NULL ? " called " : "",
                        fork->table != NULL ? fork->table : "");
    const fig_pages named = pages;
    for (uint32_t t = table; t != 0; t = next_table(tables, &named, t))
        FIG_TRY(find_fork(tables, fork, t, &pages));
    for (uint32_t t = table; t != 0; t = next_table(tables, &named, t)) {
        FIG_TRY(find_fork(tables, fork, t, &pages));
        if (pages.count > 0) FIG_TRY(set_table(tables, &pages, t, first, ahead_bytes));
    }
    return FIG_OK;
}

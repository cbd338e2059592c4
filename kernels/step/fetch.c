/* fetch.c: makes the next plan the device's plan.
 *
 * This is the device's end of the plan ring; ring.c is the host's end. Owns every word that both
 * sides access. look_ahead.c uses these functions too, to do the slow part of the next fetch while
 * a step still runs. Invariant: a plan is used whole or not at all, and the rest of the graph never
 * sees a plan made for another step or bucket. */
#include "kernels/step/fetch.h"

#include "kernels/table/reference_kernels.h"

enum { THREADS = 256 };

void fig_fetch_shape(const void *params, fig_launch_shape *shape) {
    (void)params;
    *shape = (fig_launch_shape){.grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
}

/* ---- Reports to the host ------------------------------------------------------------------- */

/* Adds 1 to the word. Partner: the acquire in fig_ring_missed(). Only the device writes these
 * words, one kernel at a time. */
static void count(uint64_t *word) {
    __atomic_store_n(word, *word + 1, __ATOMIC_RELEASE);
}

void fig_fetch_miss(fig_fetch_words *words) {
    count(&words->missed);
}

/* Partner: the acquires in fig_ring_consumed() and fig_ring_replays(). The release store completes
 * all reads of a slot before the host reuses the slot. */
void fig_fetch_tell(const fig_fetch_state *state, fig_fetch_words *words) {
    __atomic_store_n(&words->consumed, state->number, __ATOMIC_RELEASE);
    __atomic_store_n(&words->replays, state->replays, __ATOMIC_RELEASE);
}

/* ---- Taking a plan ------------------------------------------------------------------------- */

const uint8_t *fig_fetch_find(const fig_fetch_ring *ring, uint64_t number, uint32_t *bytes) {
    const uint8_t *slot = ring->slots + (number - 1) % ring->slot_count * ring->slot_bytes;
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    /* Partner: the release in fig_ring_publish(). The rest of a slot is read only after its
     * publication. */
    const uint64_t tag = __atomic_load_n(&head->tag, __ATOMIC_ACQUIRE);
    *bytes = fig_plan_tag_bytes(tag, ring->slot_bytes);
    return fig_plan_tag_number(tag) == number ? slot : NULL;
}

/* Returns 0 for a slot with impossible data. */
static int is_sound(const fig_fetch_params *p, const fig_plan_head *head, uint64_t number) {
    if (!fig_plan_is_tagged(head, number, p->slot_bytes)) return 0;
    if (head->rows < 0 || head->rows > p->shape.row_limit || head->horizon < 1) return 0;
    if (head->page_count > p->slot_bytes / sizeof(fig_plan_page)) return 0;
    if (!fig_plan_has_places(&p->shape, head)) return 0;
    const fig_plan_places places = fig_plan_places_of(&p->shape, head);
    return places.bytes == head->bytes;
}

/* Returns 1 if the device already has every section that the plan leaves out. After a torn plan
 * this is not certain: the next plan may bring sequences, because they changed, but leave out
 * splits that only the torn plan brought. */
static int is_complete(const fig_fetch_params *p, const fig_plan_head *head) {
    const fig_fetch_state *state = p->state;
    const uint32_t all = fig_plan_all_sections(&p->shape, head);
    if ((head->sections & all) == all) return 1;
    return state->held == head->exec + 1 && state->rows == head->rows;
}

static int is_whole(const uint8_t *slot, uint64_t number) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    return fig_plan_sum(slot, head->bytes, number) == head->checksum;
}

static void change_pages(const fig_fetch_params *p, const uint8_t *slot) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    const fig_plan_places places = fig_plan_places_of(&p->shape, head);
    const fig_plan_page *pages = (const void *)(slot + places.pages);
    for (uint32_t i = 0; i < head->page_count; i++)
        *(int32_t *)(uintptr_t)pages[i].address = pages[i].page;
}

static void miss(const fig_fetch_params *p) {
    ((fig_plan_head *)(void *)p->plan)->rows = 0;
    fig_fetch_miss(p->words);
}

static void finish(const fig_fetch_params *p) {
    p->state->replays++;
    if (p->tells) fig_fetch_tell(p->state, p->words);
}

/* Discards a plan, which then runs no rows, and counts it in `word`. The plan still counts for all
 * its launches; otherwise the device's count of launches would differ from the host's. */
static void discard(const fig_fetch_params *p, uint64_t *word) {
    p->state->held = 0;
    p->state->replays++;
    miss(p);
    count(word);
    fig_fetch_tell(p->state, p->words);
}

static void tear(const fig_fetch_params *p) {
    p->state->torn++;
    discard(p, &p->words->torn);
}

/* Takes the next plan. A plan for another bucket stays in its slot: the launch of that plan is
 * still to come, and the host staged no plan for this launch. But if its checksum is wrong, its
 * bucket may be too, and no launch might ever take it. A damaged plan is judged as such even if it
 * is also late, because the host must learn of every damaged plan. If an incomplete plan is
 * dropped, every section that later plans leave out is lost as well. */
static void take(const fig_fetch_params *p) {
    fig_fetch_state *state = p->state;
    const fig_fetch_ring ring = {p->ring, p->slot_count, p->slot_bytes};
    const uint64_t next = state->number + 1;
    uint32_t bytes;
    const uint8_t *slot =
        state->ahead == next ? fig_fetch_slot_ahead(state) : fig_fetch_find(&ring, next, &bytes);
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    if (slot == NULL) {
        miss(p);
        return;
    }
    const int is_own = head->exec == p->shape.exec;
    const int sound =
        is_own ? is_sound(p, head, next) : fig_plan_is_tagged(head, next, p->slot_bytes);
    /* A GPU may read a short plan from the ring by one round of unordered loads, glance() in
     * fetch.cu, while the host writes. Only the checksum then tells whether all loads saw this
     * plan, so it is compared here too. */
    const int needs_sum = (state->ahead != next || !is_own) && head->bytes <= FIG_PLAN_SHORT_BYTES;
    const int is_summed = (head->sections & FIG_PLAN_HAS_CHECKSUM) != 0 || needs_sum;
    const int whole = sound && (!is_summed || is_whole(slot, next));
    if (whole && !is_own) {
        miss(p);
        return;
    }
    state->number = next;
    state->left = sound && is_own ? head->horizon - 1 : 0;
    if (whole && fig_plan_is_late(head, state->torn)) {
        discard(p, &p->words->late);
    } else if (!whole || !is_complete(p, head)) {
        tear(p);
    } else {
        fig_plan_unpack(&p->shape, slot, p->plan);
        change_pages(p, slot);
        state->held = head->exec + 1;
        state->rows = head->rows;
        finish(p);
    }
}

/* Begins the next launch of a horizon: adds row_tokens to the length and the position of every row
 * that is not idle. A launch of another bucket has no staged plan, and uses up nothing of the
 * horizon. If the last plan was torn, any launch may be the one for which that plan was staged. */
static void grow(const fig_fetch_params *p) {
    fig_fetch_state *state = p->state;
    fig_plan_head *head = (fig_plan_head *)(void *)p->plan;
    int32_t *lengths = (int32_t *)(void *)(p->plan + p->shape.layout.lengths);
    int32_t *positions = (int32_t *)(void *)(p->plan + p->shape.layout.positions);
    if (state->held != p->shape.exec + 1) {
        miss(p);
        if (state->held != 0) return;
        state->left--;
        finish(p);
        return;
    }
    for (int32_t row = 0; row < state->rows && head->row_tokens > 0; row++) {
        if (lengths[row] == 0) continue;
        lengths[row] += head->row_tokens;
        positions[row] += head->row_tokens;
    }
    head->rows = state->rows;
    head->advanced += head->row_tokens;
    state->left--;
    finish(p);
}

void fig_fetch_reference(const void *params, const uint32_t block[3]) {
    (void)block;
    const fig_fetch_params *p = params;
    if (p->shape.exec >= FIG_FETCH_FORGET) {
        if (p->shape.exec == FIG_FETCH_DROP) p->state->left = 0;
        p->state->ahead = 0;
    } else if (p->state->left > 0) {
        grow(p);
    } else {
        take(p);
    }
}

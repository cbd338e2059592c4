/* lender.c: asks the caller for memory.
 *
 * Invariant: see lender.h. */
#include "engine/seam/lender.h"

#include "planner/status.h"

fig_status fig_lender_init(fig_lender *lender, const fig_engine_options *options) {
    *lender = (fig_lender){options->allocate, options->release, options->memory_user};
    if ((lender->allocate == NULL) == (lender->release == NULL)) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "engine: %s is NULL, but allocate and release must be set together",
                    lender->allocate == NULL ? "allocate" : "release");
}

static fig_status check(const fig_allocation *lent) {
    const int pinned = lent->kind == FIG_MEMORY_PINNED;
    if (lent->device == NULL || (pinned && lent->host == NULL))
        return fig_fail(FIG_INVALID, "engine: allocate left %s NULL",
                        lent->device == NULL ? "device" : "host");
    if ((uintptr_t)lent->device % FIG_LENDER_ALIGNMENT == 0 &&
        (!pinned || (uintptr_t)lent->host % FIG_LENDER_ALIGNMENT == 0))
        return FIG_OK;
    return fig_fail(FIG_INVALID, "engine: allocate gave %p, it must be a multiple of %d",
                    lent->device, FIG_LENDER_ALIGNMENT);
}

fig_status fig_lender_take(const fig_lender *lender, fig_block *block, fig_memory kind,
                           size_t bytes) {
    fig_allocation lent = {.size = sizeof lent, .kind = kind, .bytes = bytes};
    const int answer = lender->allocate(lender->user, &lent);
    if (answer != 0)
        return fig_fail(FIG_NOMEM, "engine: allocate returned %d for %zu bytes", answer, bytes);
    const fig_status status = check(&lent);
    if (status != FIG_OK) {
        lender->release(lender->user, &lent);
        return status;
    }
    *block = (fig_block){
        .device = lent.device,
        .host = kind == FIG_MEMORY_PINNED ? lent.host : NULL,
        .bytes = bytes,
        .kind = kind,
    };
    return FIG_OK;
}

void fig_lender_give_back(const fig_lender *lender, fig_block *block) {
    fig_allocation lent = {.size = sizeof lent,
                           .kind = block->kind,
                           .bytes = block->bytes,
                           .device = block->device,
                           .host = block->host};
    if (block->device != NULL) lender->release(lender->user, &lent);
    *block = (fig_block){0};
}

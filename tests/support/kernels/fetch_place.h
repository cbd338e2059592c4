/* fetch_place.h: a ring of one slot and the device's end of it. It is for tests that need some
 * kernel with a visible effect; that kernel is a fetch.
 *
 * The slot holds plan number 1, of five rows. Invariant: with these params, a fetch takes the plan
 * if state.number is 0, and finds no plan if it is 1. */
#ifndef FIG_TESTS_SUPPORT_FETCH_PLACE_H
#define FIG_TESTS_SUPPORT_FETCH_PLACE_H

#include "engine/seam/device.h"
#include "kernels/common/params.h"

enum { FIG_FETCH_PLACE_ROWS = 5, FIG_FETCH_PLACE_BYTES = 64 + 2 * 32 };

typedef struct fig_fetch_place {
    _Alignas(16) uint8_t slot[FIG_FETCH_PLACE_BYTES];
    fig_plan_head plan; /* the device's plan */
    int32_t sections[3][8];
    fig_fetch_state state;
    uint8_t ahead[FIG_FETCH_PLACE_BYTES];
    fig_fetch_words words;
    fig_fetch_params params;
} fig_fetch_place;

/* The struct must not move afterwards, since the params point into it. */
void fig_fetch_place_init(fig_fetch_place *place);
fig_dev_launch fig_fetch_place_launch(const fig_fetch_place *place);

#endif

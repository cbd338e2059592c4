/* fetch_place.c: see fetch_place.h. */
#include "tests/support/kernels/fetch_place.h"

#include <stddef.h>
#include <string.h>

static_assert(offsetof(fig_fetch_place, ahead) ==
                  offsetof(fig_fetch_place, state) + sizeof(fig_fetch_state),
              "the slot taken ahead lies behind the state");
static_assert(offsetof(fig_fetch_place, state) % 16 == 0, "a device's memory is aligned");

static fig_plan_shape shape_of_place(void) {
    fig_plan_shape shape = {.row_limit = 8};
    fig_plan_lay_out(&shape);
    return shape;
}

void fig_fetch_place_init(fig_fetch_place *place) {
    static const int32_t lengths[FIG_FETCH_PLACE_ROWS] = {1, 2, 3, 4, 5};
    const fig_plan_step step = {
        .rows = FIG_FETCH_PLACE_ROWS, .lengths = lengths, .horizon = 1, .row_tokens = 1};
    int32_t sequences[] = {0, 1, 2, 3, 4};
    const fig_plan_held held = {.sequences = sequences};
    const uint32_t sections = FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_SPLITS;
    memset(place, 0, sizeof *place);
    place->params = (fig_fetch_params){.ring = place->slot,
                                       .plan = (uint8_t *)&place->plan,
                                       .state = &place->state,
                                       .words = &place->words,
                                       .shape = shape_of_place(),
                                       .slot_count = 1,
                                       .slot_bytes = sizeof place->slot,
                                       .tells = 1};
    const uint32_t bytes =
        fig_plan_write(&place->params.shape, &step, sections, &held, place->slot);
    fig_plan_head *head = (fig_plan_head *)(void *)place->slot;
    head->checksum = fig_plan_sum(place->slot, bytes, 1);
    head->tag = fig_plan_tag(1, bytes);
}

fig_dev_launch fig_fetch_place_launch(const fig_fetch_place *place) {
    return (fig_dev_launch){.op = FIG_OP_FETCH,
                            .grid = {1, 1, 1},
                            .block = {32, 1, 1},
                            .params = &place->params,
                            .params_bytes = sizeof place->params};
}

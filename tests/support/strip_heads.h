/* strip_heads.h: makes a plan of strips in which each item has one head, for tests that look at
 * items one by one.
 *
 * Invariant: a worker does the heads of its items in the order of the new items. */
#ifndef FIG_TESTS_SUPPORT_STRIP_HEADS_H
#define FIG_TESTS_SUPPORT_STRIP_HEADS_H

#include <string.h>

#include "planner/plans/strips.h"

/* Writes the plan with one head per item to `to`, members included. Returns the items. */
static inline int32_t fig_strip_heads_unfold(const uint8_t *plan, uint8_t *to) {
    const fig_strips_head *from = (const fig_strips_head *)(const void *)plan;
    const int32_t workers = from->workers, *ranges = fig_strips_ranges(plan);
    const fig_strips_item *items = fig_strips_items(plan, workers);
    fig_strips_head *head = (fig_strips_head *)(void *)to;
    int32_t *new_ranges = (int32_t *)(void *)(to + sizeof *head);
    memcpy(to, plan, (size_t)((const uint8_t *)items - plan));
    fig_strips_item *new_items = (fig_strips_item *)(void *)(to + ((const uint8_t *)items - plan));
    int32_t count = 0;
    for (int32_t worker = 0; worker < workers; worker++) {
        new_ranges[worker] = count;
        for (int32_t i = ranges[worker]; i < ranges[worker + 1]; i++)
            for (int32_t number = 0; number < items[i].heads; number++)
                new_items[count++] = fig_strips_of_head(&items[i], number);
    }
    new_ranges[workers] = count;
    head->items = count;
    if (from->members > 0)
        memcpy(new_items + count, fig_strips_members(plan),
               (size_t)from->members * sizeof(fig_strips_member));
    return count;
}

#endif

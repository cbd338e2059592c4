/* segment.c: checks the segments of a program: named parts that a caller may enqueue separately.
 *
 * Invariant: nothing here changes a program. */
#include "graphs/view/segment.h"

#include <assert.h>
#include <string.h>

#include "planner/status.h"

fig_status fig_segment_check_name(const char *name) {
    FIG_TRY(fig_strings_check_name(name, "segment"));
    if (strcmp(name, "fetch") == 0)
        return fig_fail(FIG_INVALID, "segment fetch: the engine itself uses this name");
    return FIG_OK;
}

/* Returns the index of the earlier segment that has the same name as segment `index`. */
static uint32_t find_before(const fig_program_view *view, uint32_t index) {
    uint32_t i = 0;
    while (view->segments[i].name != view->segments[index].name)
        i++;
    return i;
}

/* Checks a segment's name. Each name is stored once, so two segments with the same name would share
 * a slot. */
static fig_status check_name(const fig_program_view *view, fig_strings *names, uint32_t index) {
    const uint32_t offset = view->segments[index].name;
    if (!fig_strings_begins(view->strings, view->string_bytes, offset))
        return fig_fail(FIG_FORMAT, "segment %u: no name begins at byte %u of %u", index, offset,
                        view->string_bytes);
    fig_string_slot *slot = fig_strings_at(names, offset);
    if (slot->uses & FIG_STRING_SEGMENT)
        return fig_fail(FIG_FORMAT, "segment %u: name %s is taken by segment %u", index,
                        view->strings + offset, find_before(view, index));
    slot->uses |= FIG_STRING_SEGMENT;
    return fig_segment_check_name(view->strings + offset);
}

/* Checks a segment's nodes. `end` is one past the nodes of the previous segment. */
static fig_status check_nodes(const fig_program_view *view, const fig_segment *segment,
                              uint32_t end) {
    const char *name = view->strings + segment->name;
    if (segment->node_count == 0 || segment->node >= view->node_count ||
        segment->node_count > view->node_count - segment->node)
        return fig_fail(FIG_FORMAT, "segment %s: %u nodes from %u, the program has %u", name,
                        segment->node_count, segment->node, view->node_count);
    if (segment->node < end)
        return fig_fail(FIG_FORMAT, "segment %s: begins at node %u, the one before ends at %u",
                        name, segment->node, end);
    if (fig_program_view_makes_plan(&view->nodes[segment->node]))
        return fig_fail(FIG_FORMAT, "segment %s: node %u makes the plans, it must be in no segment",
                        name, segment->node);
    return FIG_OK;
}

fig_status fig_segment_check(const fig_program_view *view, fig_strings *names) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < view->segment_count; i++) {
        const fig_segment *segment = &view->segments[i];
        FIG_TRY(check_name(view, names, i));
        FIG_TRY(check_nodes(view, segment, end));
        end = segment->node + segment->node_count;
    }
    return FIG_OK;
}

const fig_segment *fig_segment_of(const fig_program_view *view, uint32_t node) {
    uint32_t low = 0, high = view->segment_count;
    assert(node < view->node_count);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const fig_segment *segment = &view->segments[middle];
        if (node < segment->node) {
            high = middle;
        } else if (node - segment->node >= segment->node_count) {
            low = middle + 1;
        } else {
            return segment;
        }
    }
    return NULL;
}

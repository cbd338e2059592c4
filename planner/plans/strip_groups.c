/* strip_groups.c: cuts prefixes into pieces, counts the slots of each row, then lists the segments
 * of groups and of rows.
 *
 * A query token has one slot for each piece of the prefixes of its row's groups, the outermost
 * group first, and then one for the row's own segment. Invariant: slots and tokens are numbered
 * without gaps, in the order of the rows. */
#include "planner/plans/strip_groups.h"

#include <string.h>

static int32_t row_of(const fig_strip_groups *step, const fig_strip_group *group, int32_t n) {
    return step->order != NULL ? step->order[group->first + n] : group->first + n;
}

static int32_t queries_of(const fig_strip_groups *step, int32_t row) {
    return step->starts[row + 1] - step->starts[row];
}

static int32_t sequence_of(const fig_strip_groups *step, int32_t row) {
    return step->sequences != NULL ? step->sequences[row] : row;
}

/* Returns 1 if the launch for rows that are not chunks reads the row's own tokens. */
static int is_tail(const fig_strip_groups *step, const fig_strip_groups_row *row, int32_t r) {
    return step->has_tails && row->from > 0 && queries_of(step, r) == 1;
}

int64_t fig_strip_groups_members(const fig_strip_groups *step) {
    int64_t members = 0;
    for (int32_t g = 0; g < step->count; g++)
        for (int32_t n = 0; n < step->groups[g].rows; n++)
            members += queries_of(step, row_of(step, &step->groups[g], n));
    /* Each of these rows is in at least one group, and has one further segment of its own. So a
     * row's own segment at most doubles the number of its members. */
    return 2 * members;
}

/* Finds where each row's groups end, and what its own tokens cost. */
static void find_rows(const fig_strip_groups *step, fig_strip_groups_work *work) {
    const fig_strips_shape *shape = step->shape;
    memset(work->rows, 0, (size_t)step->rows * sizeof *work->rows);
    work->fixed_units = 0;
    for (int32_t g = 0; g < step->count; g++)
        for (int32_t n = 0; n < step->groups[g].rows; n++)
            work->rows[row_of(step, &step->groups[g], n)].from = step->groups[g].to;
    for (int32_t r = 0; r < step->rows; r++) {
        fig_strip_groups_row *row = &work->rows[r];
        if (row->from == 0 || queries_of(step, r) == 0 || is_tail(step, row, r)) continue;
        const int64_t units = fig_strips_row_units(shape, queries_of(step, r), 0);
        const int64_t more = fig_strips_row_units(shape, queries_of(step, r), 1) - units;
        row->tile_units = (int32_t)more;
        work->fixed_units += units + more * (1 - row->from / shape->tile_tokens);
    }
}

/* Returns the units of the own tokens of rows in groups, rounded: so prefixes rarely need to be cut
 * again while rows grow. */
static int64_t line_units_of(const fig_strip_groups *step, const fig_strip_groups_work *work) {
    const int32_t tile_bits = fig_strips_tile_bits(step->shape);
    int64_t units = work->fixed_units;
    for (int32_t r = 0; r < step->rows; r++)
        units += (int64_t)work->rows[r].tile_units * ((step->lengths[r] - 1) >> tile_bits);
    return fig_size_rounded(units);
}

/* Begins the segments of groups. */
static void cut_prefixes(const fig_strip_groups *step, fig_strip_groups_work *work) {
    for (int32_t g = 0; g < step->count; g++) {
        const fig_strip_group *group = &step->groups[g];
        work->segments[g] = (fig_strips_segment){.first_token = group->from, .end = group->to};
        for (int32_t n = 0; n < group->rows; n++)
            work->segments[g].queries += queries_of(step, row_of(step, group, n));
    }
    work->line_units = line_units_of(step, work);
    const fig_strips_beside beside = {.line_units = work->line_units,
                                      .workers =
                                          step->workers > 0 ? step->workers : step->shape->workers};
    fig_strip_prefixes_cut(step->shape, &beside, work->segments, step->count);
}

static void count_slots(const fig_strip_groups *step, fig_strip_groups_work *work) {
    int32_t tokens = 0, slots = 0;
    for (int32_t g = 0; g < step->count; g++) {
        for (int32_t n = 0; n < step->groups[g].rows; n++) {
            fig_strip_groups_row *row = &work->rows[row_of(step, &step->groups[g], n)];
            row->slots += work->segments[g].pieces + (row->slots == 0 ? 1 : 0);
        }
    }
    for (int32_t r = 0; r < step->rows; r++) {
        if (work->rows[r].slots == 0) continue;
        work->rows[r].token = tokens;
        work->rows[r].first_slot = slots;
        tokens += queries_of(step, r);
        slots += queries_of(step, r) * work->rows[r].slots;
    }
    work->shared = (fig_strips_shared){.members = work->members, .tokens = tokens, .slots = slots};
}

/* Adds a member for each query token of a row, with the next slots of that row. */
static void add_members(const fig_strip_groups *step, fig_strip_groups_work *work, int32_t r,
                        int32_t pieces) {
    fig_strip_groups_row *row = &work->rows[r];
    for (int32_t i = 0; i < queries_of(step, r); i++)
        work->members[work->shared.count++] =
            (fig_strips_member){.query = step->starts[r] + i,
                                .token = row->token + i,
                                .first_slot = row->first_slot + i * row->slots,
                                .slot = (int16_t)row->next,
                                .slots = (int16_t)row->slots};
    row->next += pieces;
}

static void list_group(const fig_strip_groups *step, fig_strip_groups_work *work, int32_t g) {
    const fig_strip_group *group = &step->groups[g];
    fig_strips_segment *segment = &work->segments[g];
    int32_t reader = -1; /* a row without queries may have no pages */
    segment->is_shared = 1;
    segment->visible = FIG_STRIPS_OLD;
    segment->first_member = work->shared.count;
    for (int32_t n = 0; n < group->rows; n++) {
        const int32_t r = row_of(step, group, n);
        if (reader < 0 && queries_of(step, r) > 0) reader = r;
        add_members(step, work, r, segment->pieces);
    }
    segment->sequence = reader < 0 ? 0 : sequence_of(step, reader);
}

/* Returns 1 if the row has a segment of its own. */
static int has_segment(const fig_strip_groups *step, const fig_strip_groups_row *row, int32_t r) {
    if (is_tail(step, row, r)) return 0;
    return step->least == 0 || row->slots > 0 ||
           (queries_of(step, r) >= step->least && step->lengths[r] > 0);
}

static void list_row(const fig_strip_groups *step, fig_strip_groups_work *work, int32_t r) {
    fig_strip_groups_row *row = &work->rows[r];
    row->segment = has_segment(step, row, r) ? work->segment_count++ : -1;
    if (row->segment < 0) return;
    fig_strips_segment *segment = &work->segments[row->segment];
    *segment = (fig_strips_segment){.first_query = step->starts[r],
                                    .queries = queries_of(step, r),
                                    .sequence = sequence_of(step, r),
                                    .first_token = row->from,
                                    .end = step->lengths[r],
                                    .visible = step->visible};
    if (row->slots == 0) return;
    segment->is_shared = 1;
    segment->first_member = work->shared.count;
    add_members(step, work, r, 1);
}

void fig_strip_groups_list(const fig_strip_groups *step, fig_strip_groups_work *work) {
    find_rows(step, work);
    cut_prefixes(step, work);
    count_slots(step, work);
    for (int32_t g = 0; g < step->count; g++)
        list_group(step, work, g);
    work->segment_count = step->count;
    for (int32_t r = 0; r < step->rows; r++)
        list_row(step, work, r);
}

int fig_strip_groups_lengthen(const fig_strip_groups *step, fig_strip_groups_work *work) {
    const fig_strip_groups_row *row = work->rows;
    if (line_units_of(step, work) != work->line_units) return 0;
    for (int32_t r = 0; r < step->rows; r++, row++) {
        /* A row in a group always has a segment. */
        if (row->slots == 0 && has_segment(step, row, r) != (row->segment >= 0)) return 0;
        if (row->segment >= 0) work->segments[row->segment].end = step->lengths[r];
    }
    return 1;
}

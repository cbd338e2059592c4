/* plan.c: computes the offsets of a plan's sections and writes the sections.
 *
 * split.c makes the split, plan_tails.c settles tails, and the ring owns the slots and their tags.
 * Invariant: the offset of a section on the device depends on the bucket and never on the step, so
 * the params of kernels can hold the offset. */
#include "planner/plans/plan_tails.h"

#include <inttypes.h>
#include <string.h>

#include "planner/status.h"

/* Places a section of `count` items at *end and returns its offset. Moves *end to the next multiple
 * of 16 behind the section. */
static uint32_t take_section(uint32_t *end, int32_t count, size_t item_bytes) {
    uint32_t offset = *end;
    *end = (uint32_t)fig_size_align(offset + (uint64_t)count * item_bytes, 16);
    return offset;
}

void fig_plan_lay_out(fig_plan_shape *shape) {
    assert(shape->row_limit >= 1);
    assert(shape->class_count >= 0 && shape->class_count <= FIG_CLASS_LIMIT);
    fig_plan_layout layout = {0};
    uint32_t end = sizeof(fig_plan_head);
    layout.lengths = take_section(&end, shape->row_limit, sizeof(int32_t));
    layout.positions = take_section(&end, shape->row_limit, sizeof(int32_t));
    layout.sequences = take_section(&end, shape->row_limit, sizeof(int32_t));
    if (shape->row_tokens > 1)
        layout.tokens = take_section(&end, shape->row_limit, sizeof(int32_t));
    if (shape->query_limit > 0)
        layout.queries = take_section(&end, shape->row_limit + 2, sizeof(int32_t));
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_split_shape *split = &shape->splits[i];
        assert(split->row_limit == shape->row_limit);
        layout.prefix[i] = take_section(&end, shape->row_limit + 1, sizeof(int32_t));
        layout.starts[i] = take_section(&end, split->workers, sizeof(fig_split_start));
    }
    layout.bytes = end;
    shape->layout = layout;
}

/* A query token of a row that is in groups belongs to at most FIG_STRIPS_SHARED_LIMIT segments:
 * those of up to three groups, and the row's own. Unlike chunks, these segments may have any number
 * of query tokens. */
fig_strips_limits fig_plan_strips_limits(const fig_plan_shape *shape,
                                         const fig_strips_shape *strips, int32_t least) {
    fig_strips_limits limits = {
        .segments = shape->row_limit, .queries = shape->query_limit, .least = least};
    if (!strips->shares) return limits;
    limits.least = 1;
    limits.shared = fig_plan_shared_limit(shape);
    limits.segments += fig_plan_group_limit(shape->row_limit);
    limits.queries += FIG_STRIP_GROUPS_LEVEL_LIMIT * limits.shared;
    return limits;
}

fig_status fig_plan_add_strips(fig_plan_shape *shape, const fig_strips_shape *strips,
                               int32_t least) {
    uint64_t bytes = shape->layout.bytes + (uint64_t)FIG_PLAN_STRIPS_HEAD;
    assert(shape->query_limit > 0 && least >= 1);
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_strips_limits limits = fig_plan_strips_limits(shape, &strips[i], least);
        bytes += (uint64_t)fig_strip_sizes_bound(&strips[i], &limits).plan_bytes;
        if (strips[i].shares) bytes += fig_plan_tails_bytes(shape->row_limit);
    }
    if (bytes > FIG_PLAN_BYTES_LIMIT)
        return fig_fail(FIG_TOO_LARGE,
                        "plan: %" PRIu64 " bytes for %" PRId32 " rows and %" PRId32
                        " query tokens, limit %" PRIu32,
                        bytes, shape->row_limit, shape->query_limit, FIG_PLAN_BYTES_LIMIT);
    if (shape->class_count > 0) shape->layout.bytes = (uint32_t)bytes;
    return FIG_OK;
}

/* ---- Deciding which sections a slot gets ----------------------------------------------------- */

/* Copies the step's sequences to held->sequences. Returns 1 if they changed. */
static int settle_sequences(const fig_plan_step *step, fig_plan_held *held) {
    const int32_t *given = step->sequences, rows = step->rows;
    int32_t *sequences = held->sequences, changed = 0;
    for (int32_t row = 0; row < rows && given != NULL; row++) {
        changed |= sequences[row] ^ given[row];
        sequences[row] = given[row];
    }
    const int32_t limit = step->sequence_limit > 0 ? step->sequence_limit : rows;
    for (int32_t row = 0; row < rows && given == NULL; row++) {
        const int32_t own = row < limit ? row : 0;
        changed |= sequences[row] ^ own;
        sequences[row] = own;
    }
    return changed != 0;
}

/* Returns the number of a row's query tokens. */
static int32_t queries_of(const fig_plan_shape *shape, const fig_plan_step *step, int32_t row) {
    return step->queries != NULL ? step->queries[row] : shape->row_tokens;
}

/* Returns 1 if `queries` [rows + 2] is the step's section of query tokens. Unlike the sum that
 * makes this section, the loop can be vectorised. */
static int has_queries(const fig_plan_shape *shape, const fig_plan_step *step,
                       const int32_t *queries) {
    const int32_t rows = step->rows, each = shape->row_tokens, *given = step->queries;
    int32_t differs = queries[1] | (queries[0] ^ queries[1 + rows]);
    for (int32_t row = 0; row < rows && given != NULL; row++)
        differs |= (queries[2 + row] - queries[1 + row]) ^ given[row];
    for (int32_t row = 0; row < rows && given == NULL; row++)
        differs |= (queries[2 + row] - queries[1 + row]) ^ each;
    return differs == 0;
}

/* Writes the step's section of query tokens to `queries` [rows + 2]. Returns 1 if it changed. */
static int settle_queries(const fig_plan_shape *shape, const fig_plan_step *step,
                          int32_t *queries) {
    int32_t sum = 0;
    if (has_queries(shape, step, queries)) return 0;
    for (int32_t row = 0; row < step->rows; row++) {
        queries[1 + row] = sum;
        sum += queries_of(shape, step, row);
    }
    queries[0] = queries[1 + step->rows] = sum;
    return 1;
}

static int32_t group_count_of(const fig_plan_step *step) {
    return step->groups != NULL ? step->groups->count : 0;
}

/* Returns 1 if strips of this class serve the rows that share tokens. */
static int has_groups(const fig_plan_step *step, const fig_plan_held *held, int32_t split_class) {
    return group_count_of(step) > 0 && held->chunk_shapes[split_class].shares;
}

/* Copies the step's groups to held->groups. Returns 1 if they changed. */
static int settle_group_list(const fig_plan_step *step, fig_plan_held *held) {
    const int32_t count = group_count_of(step);
    const fig_strip_group *of = count > 0 ? step->groups->of : NULL;
    int32_t rows = 0;
    for (int32_t g = 0; g < count; g++)
        if (of[g].first + of[g].rows > rows) rows = of[g].first + of[g].rows;
    const size_t bytes = (size_t)count * sizeof *of, order_bytes = (size_t)rows * sizeof(int32_t);
    if (count == held->group_count &&
        (count == 0 || (memcmp(held->groups, of, bytes) == 0 &&
                        memcmp(held->group_order, step->groups->order, order_bytes) == 0)))
        return 0;
    held->group_count = count;
    if (count == 0) return 1;
    memcpy(held->groups, of, bytes);
    memcpy(held->group_order, step->groups->order, order_bytes);
    return 1;
}

/* Writes held->narrow. It gives a row in a group 0 query tokens if the row's work is done by
 * strips: for the split of a class that shares, the row is idle. Mostly all rows are in groups. */
static void settle_narrow(const fig_plan_shape *shape, const fig_plan_step *step,
                          fig_plan_held *held) {
    for (int32_t row = 0; row < step->rows; row++)
        held->narrow[row] = queries_of(shape, step, row);
    for (int32_t g = 0; g < group_count_of(step); g++) {
        const fig_strip_group *group = &step->groups->of[g];
        for (int32_t n = 0; n < group->rows; n++)
            held->narrow[step->groups->order[group->first + n]] = 0;
    }
    fig_plan_tails_find(shape, step, held);
    held->all_idle = 1;
    for (int32_t row = 0; row < step->rows; row++)
        held->all_idle &= held->narrow[row] == 0;
}

/* Computes the step's prefix for every class. Returns 1 if a prefix changed. */
static int settle_splits(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held) {
    const fig_split_rows narrow = {step->lengths, step->rows, 0, held->narrow,
                                   held->has_tails ? held->hidden : NULL};
    const int is_kept = held->is_listed && held->all_idle;
    int changed = 0;
    if (held->group_count > 0 && !held->is_listed) settle_narrow(shape, step, held);
    for (int32_t i = 0; i < shape->class_count; i++) {
        if (is_kept && has_groups(step, held, i)) continue; /* the line has no tiles, as before */
        const fig_split_rows rows = {step->lengths, step->rows, fig_plan_ahead(step), step->queries,
                                     step->hidden != NULL ? step->hidden[i] : NULL};
        changed |= fig_split_prefix(&shape->splits[i], has_groups(step, held, i) ? &narrow : &rows,
                                    held->prefix[i]);
    }
    return changed;
}

/* Divides the workers of each class between the step's rows and its chunks, or between tails and
 * prefixes. Returns 1 if a division changed. */
static int settle_division(const fig_plan_shape *shape, const fig_plan_step *step,
                           fig_plan_held *held) {
    int changed = 0;
    for (int32_t i = 0; i < held->chunk_classes; i++) {
        const fig_division_work work = {.tiles = (int64_t)held->prefix[i][step->rows] *
                                                 shape->splits[i].groups,
                                        .segments = held->chunks,
                                        .count = held->group_count == 0 ? held->chunk_count : 0};
        int32_t readers = 0;
        if (step->paces != NULL && has_groups(step, held, i) && held->has_tails) {
            readers = fig_plan_tails_readers(shape, step, i, held);
        } else if (step->paces != NULL) {
            readers = fig_division_readers(&step->paces[i], &held->chunk_shapes[i], &work);
        }
        changed |= readers != held->readers[i];
        held->readers[i] = readers;
    }
    return changed;
}

/* Cuts the line of a class. Returns 1 if it counts as cut by units. */
static int cut_line(const fig_plan_shape *shape, int32_t split_class, int32_t rows,
                    fig_plan_held *held) {
    fig_split_start *starts = held->starts[split_class];
    const int32_t *prefix = held->prefix[split_class], readers = held->readers[split_class];
    const int32_t once = shape->once[split_class];
    fig_split_shape split = shape->splits[split_class];
    if (readers == 0) return fig_split_starts(&split, once, prefix, rows, starts);
    memset(starts + readers, 0, (size_t)(split.workers - readers) * sizeof *starts);
    split.workers = readers;
    fig_split_starts(&split, once, prefix, rows, starts);
    return 1;
}

/* Cuts the line of every class. */
static void settle_starts(const fig_plan_shape *shape, const fig_plan_step *step,
                          fig_plan_held *held) {
    held->by_units = 0;
    for (int32_t i = 0; i < shape->class_count; i++)
        if (cut_line(shape, i, step->rows, held)) held->by_units = FIG_PLAN_BY_UNITS;
}

/* Returns the most query tokens of a row. */
static int32_t most_queries(const fig_plan_held *held) {
    const int32_t *starts = held->queries + 1, rows = held->rows;
    int32_t most = 0;
    for (int32_t row = 0; row < rows; row++) {
        const int32_t queries = starts[row + 1] - starts[row];
        most = queries > most ? queries : most;
    }
    return most;
}

/* The rows of a step, among which chunks have at least `least` query tokens. */
typedef struct chunk_rows {
    int32_t rows, least;
    const int32_t *starts, *lengths, *sequences;
} chunk_rows;

/* Moves *row to the next row that is a chunk, and makes its segment. Returns 0 behind the last
 * chunk. */
static int next_chunk(const chunk_rows *of, int32_t *row, fig_strips_segment *chunk) {
    for (; *row < of->rows; (*row)++) {
        const int32_t first = of->starts[*row], queries = of->starts[*row + 1] - first;
        if (queries < of->least || of->lengths[*row] == 0) continue;
        *chunk = (fig_strips_segment){.first_query = first,
                                      .queries = queries,
                                      .sequence = of->sequences[*row],
                                      .end = of->lengths[*row]};
        return 1;
    }
    return 0;
}

/* Lists the step's chunks in held->chunks; returns 1 if they changed. */
static int settle_chunks(const fig_plan_step *step, fig_plan_held *held) {
    const chunk_rows of = {step->rows, held->chunk_least, held->queries + 1, step->lengths,
                           held->sequences};
    int32_t count = 0, changed = 0;
    fig_strips_segment chunk;
    if (held->chunk_count == 0 && most_queries(held) < held->chunk_least) return 0;
    for (int32_t row = 0; next_chunk(&of, &row, &chunk); row++) {
        changed |=
            count >= held->chunk_count || memcmp(&held->chunks[count], &chunk, sizeof chunk) != 0;
        held->chunks[count++] = chunk;
    }
    changed |= count != held->chunk_count;
    held->chunk_count = count;
    return changed;
}

/* Lists the segments of the step's groups and rows. Returns 1 if the section of strips must be
 * written again. It is not compared with the last one, because in almost every step some row with
 * a segment has grown. If all rows in groups have tails, the segments are those of groups alone. */
static int settle_groups(const fig_plan_step *step, fig_plan_held *held) {
    const fig_strips_shape *shape = fig_plan_held_sharer(held);
    const int32_t workers = shape->workers - held->readers[shape - held->chunk_shapes];
    const fig_strip_groups groups = {.shape = shape,
                                     .rows = step->rows,
                                     .count = held->group_count,
                                     .starts = held->queries + 1,
                                     .lengths = step->lengths,
                                     .sequences = held->sequences,
                                     .order = held->group_order,
                                     .groups = held->groups,
                                     .least = held->chunk_least,
                                     .workers = workers,
                                     .has_tails = held->has_tails};
    if (held->is_listed && fig_strip_groups_lengthen(&groups, &held->work))
        return held->work.segment_count > held->group_count;
    fig_strip_groups_list(&groups, &held->work);
    fig_strip_rows_take(&held->rows_of_groups, held->work.segments, held->work.segment_count,
                        workers);
    held->is_listed = 1;
    return 1;
}

/* Sets what the queries of all chunks see. Classes differ in it; between plans it is CAUSAL. */
static void see(fig_plan_held *held, int32_t visible) {
    for (int32_t i = 0; i < held->chunk_count; i++)
        held->chunks[i].visible = visible;
}

/* Writes the strips of a class without groups; returns their bytes. */
static uint32_t make_chunks(fig_plan_held *held, int32_t split_class, uint8_t *plan) {
    const fig_strips_shape *shape = &held->chunk_shapes[split_class];
    const int32_t workers = shape->workers - held->readers[split_class];
    see(held, shape->visible);
    return (uint32_t)fig_strips_make_within(shape, held->chunks, held->chunk_count, workers, plan)
        .plan_bytes;
}

/* Writes the strips of the class with groups; returns their bytes. */
static uint32_t make_shared(fig_plan_held *held, uint8_t *plan) {
    const fig_strip_groups_work *work = &held->work;
    fig_strip_rows_make(&held->rows_of_groups, work->segments, work->segment_count, plan);
    return (uint32_t)fig_strips_share(&work->shared, plan).plan_bytes;
}

/* Writes the strips of all classes to held->strips, in the form of the section. */
static void settle_strips(const fig_plan_shape *shape, const fig_plan_step *step,
                          fig_plan_held *held) {
    uint32_t *places = (uint32_t *)(void *)held->strips, end = FIG_PLAN_STRIPS_HEAD;
    fig_plan_tail *tails = (fig_plan_tail *)(void *)(held->strips + end);
    memset(places, 0, FIG_PLAN_STRIPS_HEAD);
    if (held->has_tails) end += fig_plan_tails_bytes(step->rows);
    for (int32_t i = 0; i < held->chunk_classes; i++) {
        uint8_t *plan = held->strips + end;
        const int is_shared = has_groups(step, held, i);
        assert(!is_shared || &held->chunk_shapes[i] == fig_plan_held_sharer(held));
        places[i] = end;
        end += is_shared ? make_shared(held, plan) : make_chunks(held, i, plan);
        if (is_shared && held->has_tails) fig_plan_tails_write(held, step->rows, plan, tails);
    }
    see(held, FIG_STRIPS_CAUSAL);
    held->strips_bytes = end;
    assert(end <= fig_plan_strips_room(shape));
    (void)shape;
}

uint32_t fig_plan_settle(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held) {
    const int held_none = held->exec != (int32_t)shape->exec || held->rows != step->rows;
    uint32_t sections = step->positions != NULL ? FIG_PLAN_HAS_POSITIONS : 0;
    assert(step->rows >= 0 && step->rows <= shape->row_limit && step->horizon >= 1);
    assert(step->queries == NULL || shape->query_limit > 0 || shape->row_tokens == 1);
    assert(group_count_of(step) == 0 || held->narrow != NULL);
    held->exec = (int32_t)shape->exec;
    held->rows = step->rows;
    if (step->tokens != NULL) sections |= FIG_PLAN_HAS_TOKENS;
    if (settle_sequences(step, held) | held_none) sections |= FIG_PLAN_HAS_SEQUENCES;
    if (step->lengths == NULL) {
        held->is_listed = 0;
        return sections;
    }
    sections |= FIG_PLAN_HAS_LENGTHS;
    if (step->hidden != NULL) sections |= FIG_PLAN_BY_MASKS;
    if (shape->query_limit > 0 && (settle_queries(shape, step, held->queries) | held_none))
        sections |= FIG_PLAN_HAS_QUERIES;
    const int is_regrouped = settle_group_list(step, held) | fig_plan_tails_note(step, held);
    if (is_regrouped | (int)(sections & (FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_QUERIES)))
        held->is_listed = 0;
    const int has_strips = fig_plan_strips_room(shape) > 0;
    const int is_recut = settle_splits(shape, step, held) | held_none;
    const int is_rechunked = has_strips && settle_chunks(step, held);
    const int is_divided = (is_recut | is_rechunked | is_regrouped) && has_strips &&
                           settle_division(shape, step, held);
    if (!has_strips) memset(held->readers, 0, sizeof held->readers);
    if (is_recut | is_divided) {
        sections |= FIG_PLAN_HAS_SPLITS;
        settle_starts(shape, step, held);
    }
    if (!has_strips) return sections | held->by_units;
    if (held->has_tails) sections |= FIG_PLAN_BY_TAILS;
    if (is_divided && held->has_tails) held->is_listed = 0;
    const int is_regrown = held->group_count > 0 && settle_groups(step, held);
    if (is_rechunked | is_divided | is_regrouped | is_regrown | held_none) {
        sections |= FIG_PLAN_HAS_STRIPS;
        settle_strips(shape, step, held);
    }
    return sections | held->by_units;
}

/* ---- Writing a slot ------------------------------------------------------------------------ */

static void write_words(uint8_t *to, const int32_t *words, int32_t count) {
    if (count > 0) memcpy(to, words, (size_t)count * sizeof *words);
}

/* Writes the lengths. A row without query tokens is idle, so 0 is written as its length. */
static void write_lengths(uint8_t *to, const fig_plan_step *step) {
    const int32_t *given = step->lengths, *queries = step->queries, rows = step->rows;
    int32_t *lengths = (int32_t *)(void *)to;
    if (queries == NULL) write_words(to, given, rows);
    for (int32_t row = 0; row < rows && queries != NULL; row++)
        lengths[row] = queries[row] == 0 ? 0 : given[row];
}

uint32_t fig_plan_write(const fig_plan_shape *shape, const fig_plan_step *step, uint32_t sections,
                        const fig_plan_held *held, uint8_t *slot) {
    assert((uintptr_t)slot % 16 == 0);
    const int grows = step->horizon > 1 && step->lengths != NULL;
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    fig_plan_head ours = {.exec = shape->exec,
                          .rows = step->rows,
                          .sections = sections,
                          .horizon = step->horizon,
                          .row_tokens = grows ? step->row_tokens : 0};
    const fig_plan_places places = fig_plan_places_of(shape, &ours);
    assert(fig_plan_has_places(shape, &ours));
    ours.bytes = places.bytes;
    if (sections & FIG_PLAN_HAS_STRIPS) ours.bytes += held->strips_bytes;
    for (int32_t i = 0; i < shape->class_count; i++)
        ours.tile_limits[i] = shape->splits[i].tile_limit;
    /* Only the ring writes the tag, because the device may be reading the tag at this moment. */
    memcpy(slot + sizeof head->tag, (const uint8_t *)&ours + sizeof head->tag,
           sizeof ours - sizeof head->tag);
    if (sections & FIG_PLAN_HAS_LENGTHS) write_lengths(slot + places.lengths, step);
    if (sections & FIG_PLAN_HAS_SEQUENCES)
        write_words(slot + places.sequences, held->sequences, step->rows);
    if (sections & FIG_PLAN_HAS_POSITIONS)
        write_words(slot + places.positions, step->positions, step->rows);
    if (sections & FIG_PLAN_HAS_TOKENS) write_words(slot + places.tokens, step->tokens, step->rows);
    if (sections & FIG_PLAN_HAS_QUERIES)
        write_words(slot + places.queries, held->queries, step->rows + 2);
    for (int32_t i = 0; i < shape->class_count && (sections & FIG_PLAN_HAS_SPLITS); i++) {
        write_words(slot + places.prefix[i], held->prefix[i], step->rows + 1);
        memcpy(slot + places.starts[i], held->starts[i],
               (size_t)shape->splits[i].workers * sizeof(fig_split_start));
    }
    if (sections & FIG_PLAN_HAS_STRIPS)
        memcpy(slot + places.strips, held->strips, held->strips_bytes);
    return ours.bytes;
}

uint32_t fig_plan_add_pages(uint8_t *slot, const fig_plan_page *pages, uint32_t count) {
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    assert(head->page_count == 0);
    memcpy(slot + head->bytes, pages, count * sizeof *pages);
    head->page_count = count;
    head->bytes += count * (uint32_t)sizeof *pages;
    return head->bytes;
}

uint64_t fig_plan_sum(const uint8_t *slot, uint32_t bytes, uint64_t number) {
    const uint32_t *words = (const uint32_t *)(const void *)slot;
    const uint32_t head = sizeof(fig_plan_head) / 4;
    uint64_t sum = fig_plan_number_term(number);
    for (uint32_t n = 0; n < head; n++)
        if (fig_plan_is_summed(n)) sum += fig_plan_term(n, words[n]);
    for (uint32_t n = head; n < bytes / 4; n++)
        sum += fig_plan_term(n, words[n]);
    return sum;
}

/* ---- A plan on the device ------------------------------------------------------------------ */

void fig_plan_write_lengths(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan) {
    const fig_plan_layout *layout = &shape->layout;
    const fig_split_rows rows = {step->lengths, step->rows, 0, step->queries, NULL};
    int32_t *lengths = (int32_t *)(void *)(plan + layout->lengths);
    int32_t *positions = (int32_t *)(void *)(plan + layout->positions);
    uint32_t *sections = &((fig_plan_head *)(void *)plan)->sections;
    *sections &= ~(uint32_t)FIG_PLAN_BY_UNITS;
    if (shape->query_limit > 0)
        settle_queries(shape, step, (int32_t *)(void *)(plan + layout->queries));
    for (int32_t row = 0; row < step->rows; row++) {
        lengths[row] = step->queries != NULL && step->queries[row] == 0 ? 0 : step->lengths[row];
        positions[row] =
            step->positions != NULL ? step->positions[row] : fig_plan_last_token(lengths[row]);
    }
    for (int32_t i = 0; i < shape->class_count; i++) {
        int32_t *prefix = (int32_t *)(void *)(plan + layout->prefix[i]);
        fig_split_start *starts = (fig_split_start *)(void *)(plan + layout->starts[i]);
        fig_split_prefix(&shape->splits[i], &rows, prefix);
        if (fig_split_starts(&shape->splits[i], shape->once[i], prefix, step->rows, starts))
            *sections |= FIG_PLAN_BY_UNITS;
    }
}

void fig_plan_write_strips(const fig_plan_shape *shape, const fig_strips_shape *strips,
                           int32_t least, int32_t rows, fig_strips_segment *chunks, uint8_t *plan) {
    const fig_plan_layout *layout = &shape->layout;
    const chunk_rows of = {rows, least, (const int32_t *)(const void *)(plan + layout->queries) + 1,
                           (const int32_t *)(const void *)(plan + layout->lengths),
                           (const int32_t *)(const void *)(plan + layout->sequences)};
    uint8_t *section = plan + fig_plan_strips_place(shape);
    uint32_t places[FIG_CLASS_LIMIT] = {0}, end = FIG_PLAN_STRIPS_HEAD;
    int32_t count = 0;
    for (int32_t row = 0; next_chunk(&of, &row, &chunks[count]); row++)
        count++;
    for (int32_t i = 0; i < shape->class_count; i++) {
        for (int32_t n = 0; n < count; n++)
            chunks[n].visible = strips[i].visible;
        places[i] = end;
        end += (uint32_t)fig_strips_make(&strips[i], chunks, count, section + end).plan_bytes;
    }
    memcpy(section, places, sizeof places);
    assert(end <= fig_plan_strips_room(shape));
}

/* Copies whole pieces of 16 bytes, as the kernel does. A section on the device has room for them,
 * because it ends at a multiple of 16 bytes. */
static void unpack_words(uint8_t *plan, uint32_t to, const uint8_t *slot, uint32_t from,
                         int32_t count) {
    memcpy(plan + to, slot + from, fig_size_align((uint64_t)count * sizeof(int32_t), 16));
}

/* Copies the positions. If the slot has lengths but no positions, computes the positions from the
 * lengths. */
static void unpack_positions(const fig_plan_shape *shape, const fig_plan_head *head,
                             const fig_plan_places *places, const uint8_t *slot, uint8_t *plan) {
    const int32_t *lengths = (const int32_t *)(const void *)(plan + shape->layout.lengths);
    int32_t *positions = (int32_t *)(void *)(plan + shape->layout.positions);
    if (head->sections & FIG_PLAN_HAS_POSITIONS) {
        unpack_words(plan, shape->layout.positions, slot, places->positions, head->rows);
    } else if (head->sections & FIG_PLAN_HAS_LENGTHS) {
        for (int32_t row = 0; row < head->rows; row++)
            positions[row] = fig_plan_last_token(lengths[row]);
    }
}

void fig_plan_unpack(const fig_plan_shape *shape, const uint8_t *slot, uint8_t *plan) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    const fig_plan_layout *layout = &shape->layout;
    const fig_plan_places places = fig_plan_places_of(shape, head);
    memcpy(plan, head, sizeof *head);
    if (head->sections & FIG_PLAN_HAS_LENGTHS)
        unpack_words(plan, layout->lengths, slot, places.lengths, head->rows);
    if (head->sections & FIG_PLAN_HAS_SEQUENCES)
        unpack_words(plan, layout->sequences, slot, places.sequences, head->rows);
    unpack_positions(shape, head, &places, slot, plan);
    if (head->sections & FIG_PLAN_HAS_TOKENS)
        unpack_words(plan, layout->tokens, slot, places.tokens, head->rows);
    if (head->sections & FIG_PLAN_HAS_QUERIES)
        unpack_words(plan, layout->queries, slot, places.queries, head->rows + 2);
    for (int32_t i = 0; i < shape->class_count && (head->sections & FIG_PLAN_HAS_SPLITS); i++) {
        const int32_t workers = shape->splits[i].workers;
        unpack_words(plan, layout->prefix[i], slot, places.prefix[i], head->rows + 1);
        unpack_words(plan, layout->starts[i], slot, places.starts[i],
                     workers * (int32_t)(sizeof(fig_split_start) / sizeof(int32_t)));
    }
    memcpy(plan + fig_plan_strips_place(shape), slot + places.strips, places.pages - places.strips);
}

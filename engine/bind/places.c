/* places.c: finds the strides, extent and size of a bound tensor.
 *
 * Invariant: nothing here reads the memory of a tensor. */
#include "engine/bind/places.h"

#include <inttypes.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

/* Computes the distance, in elements, from the first element to the end of the last element, with
 * `extent` in place of dims[0]. Returns FIG_INVALID if two indices may reach the same element,
 * which is possible if a stride is smaller than the combined reach of all dimensions with smaller
 * strides. */
static fig_status measure_span(const fig_tensor_record *record, const char *name, int64_t extent,
                               const int64_t strides[4], size_t *span) {
    int order[4], count = 0;
    for (int i = 0; i < record->rank; i++) {
        int place = count;
        if ((i == 0 ? extent : record->dims[i]) == 1) continue;
        for (; place > 0 && strides[order[place - 1]] > strides[i]; place--)
            order[place] = order[place - 1];
        order[place] = i;
        count++;
    }
    *span = 1;
    for (int i = 0; i < count; i++) {
        int64_t dim = order[i] == 0 ? extent : record->dims[order[i]];
        size_t stride = (size_t)strides[order[i]], reach;
        if (stride < *span)
            return fig_fail(FIG_INVALID, "tensor %s: strides[%d] is %zu, it must be %zu or more",
                            name, order[i], stride, *span);
        if (fig_size_multiply(&reach, stride, (size_t)dim - 1) || fig_size_add(span, *span, reach))
            return fig_fail(FIG_INVALID, "tensor %s: strides[%d] is %zu, more than memory holds",
                            name, order[i], stride);
    }
    return FIG_OK;
}

/* Returns 1 if dims[i] has only one index, so that its stride is never used. The stride of a
 * dimension of pages is always used, because the number of pages follows from it. */
static int is_single(const fig_tensor_record *record, const fig_bound_place *place, int i) {
    if (i == 0) return record->symbol != FIG_SYMBOL_PAGES && place->extent == 1;
    return record->dims[i] == 1;
}

/* Reads the caller's strides. For a dimension with one index the caller may give any stride, even
 * 0; the default stride replaces it. */
static fig_status read_strides(const fig_tensor_record *record, const char *name,
                               const int64_t given[4], fig_bound_place *place) {
    int any = 0;
    fig_places_default_strides(record, place->strides);
    for (int i = 0; i < record->rank; i++)
        any |= given[i] != 0;
    if (!any) return FIG_OK;
    for (int i = 0; i < record->rank; i++) {
        if (is_single(record, place, i)) continue;
        if (given[i] < 1)
            return fig_fail(FIG_INVALID,
                            "tensor %s: strides[%d] is %" PRId64 ", it must be positive", name, i,
                            given[i]);
        place->strides[i] = given[i];
    }
    if (place->strides[record->rank - 1] == 1) return FIG_OK;
    return fig_fail(FIG_INVALID, "tensor %s: strides[%d] is %" PRId64 ", the last must be 1", name,
                    record->rank - 1, place->strides[record->rank - 1]);
}

/* The bounds, in elements, that the other dimensions set for the dimension of pages. below: reach
 * of the dimensions whose stride is smaller than that of pages. above: smallest stride of the
 * remaining dimensions; all pages must fit within this stride. It is SIZE_MAX if pages have the
 * largest stride. */
typedef struct page_room {
    size_t below, above;
} page_room;

static page_room room_of(const fig_tensor_record *record, const int64_t strides[4]) {
    page_room room = {1, SIZE_MAX};
    for (int i = 1; i < record->rank; i++) {
        size_t stride = (size_t)strides[i];
        if (record->dims[i] == 1) continue;
        if (strides[i] < strides[0]) {
            room.below += stride * ((size_t)record->dims[i] - 1);
        } else if (stride < room.above) {
            room.above = stride;
        }
    }
    return room;
}

/* Sets the extent to the number of whole pages that the bytes hold. If another dimension has a
 * larger stride than pages, as heads do in [heads][pages][page_size][head_dim], the pages must also
 * fit within one such stride. `span` is the span of one page. */
static fig_status count_pages(const fig_tensor_record *record, const char *name, size_t span,
                              int64_t least, fig_bound_place *place) {
    size_t elements = place->bytes / fig_program_view_dtype_bytes(record->dtype);
    size_t stride = (size_t)place->strides[0], one = (size_t)fig_program_view_extent(record, 1);
    const page_room room = room_of(record, place->strides);
    if (stride < room.below)
        return fig_fail(FIG_INVALID, "tensor %s: strides[0] is %zu, it must be %zu or more", name,
                        stride, room.below);
    size_t extent = elements < span ? 0 : (elements - span) / stride + one;
    if (room.above != SIZE_MAX && extent > (room.above - room.below) / stride + 1)
        extent = (room.above - room.below) / stride + 1;
    place->extent = (int64_t)(extent - extent % one);
    if (place->extent / (int64_t)one >= least) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "tensor %s: bytes is %zu, which holds %" PRId64 " of %" PRId64 " pages", name,
                    place->bytes, place->extent / (int64_t)one, least);
}

/* ---- Capacity of smaller memory ------------------------------------------------------------ */

static int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int has_strides(const fig_places_wish *wish) {
    int any = 0;
    for (int i = 0; i < wish->record->rank; i++)
        any |= wish->binding->strides[i] != 0;
    return any;
}

static int64_t elements_of(const fig_places_wish *wish) {
    const uint64_t elements =
        wish->binding->bytes / fig_program_view_dtype_bytes(wish->record->dtype);
    return elements < INT64_MAX ? (int64_t)elements : INT64_MAX;
}

/* Returns the distance from index 0 to the last index of a dimension. If the stride is not positive
 * or the distance exceeds any memory, returns INT64_MAX / 4, so that the sum of four distances does
 * not overflow. */
static int64_t reach_of(int64_t count, int64_t stride) {
    size_t reach;
    if (count == 1) return 0;
    if (stride < 1 || fig_size_multiply(&reach, (size_t)stride, (size_t)count - 1) ||
        reach > INT64_MAX / 4)
        return INT64_MAX / 4;
    return (int64_t)reach;
}

int64_t fig_places_dense_tokens(const fig_places_wish *wish) {
    const fig_tensor_record *record = wish->record;
    const int64_t *strides = wish->binding->strides, elements = elements_of(wish);
    const int64_t counts[4] = {wish->rows, 1, record->dims[2], record->dims[3]};
    int64_t last = 0;
    if (!has_strides(wish))
        return min_of(record->dims[1], elements / (counts[0] * counts[2] * counts[3]));
    if (strides[1] < 1) return record->dims[1]; /* fig_places_measure refuses this stride */
    for (int i = 0; i < 4; i++)
        last += reach_of(counts[i], strides[i]);
    if (last >= elements) return 0;
    int64_t tokens = min_of(record->dims[1], (elements - 1 - last) / strides[1] + 1);
    /* If the stride of sequences or heads is not less than the stride of tokens, the tokens of one
     * sequence or head must end before the next begins. */
    for (int i = 0; i < 3; i++) {
        int64_t below = 1;
        if (counts[i] == 1 || i == 1 || strides[i] < strides[1]) continue;
        for (int j = 0; j < 4; j++)
            if (strides[j] < strides[i]) below += reach_of(counts[j], strides[j]);
        if (below <= strides[i]) tokens = min_of(tokens, (strides[i] - below) / strides[1] + 1);
    }
    return tokens;
}

int64_t fig_places_table_columns(const fig_places_wish *wish) {
    const int64_t limit = wish->record->dims[1], elements = elements_of(wish);
    if (!has_strides(wish)) return min_of(limit, elements / wish->rows);
    const int64_t stride = wish->binding->strides[0], last = reach_of(wish->rows, stride);
    if (last >= elements) return 0;
    const int64_t columns = min_of(limit, elements - last);
    return wish->rows > 1 ? min_of(columns, stride) : columns;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

int64_t fig_places_extent(const fig_tensor_record *record, int64_t rows) {
    return fig_program_view_extent(record, record->symbol == FIG_SYMBOL_PAGES ? 1 : rows);
}

fig_status fig_places_measure(const fig_places_wish *wish, fig_bound_place *place) {
    const fig_tensor_record *record = wish->record;
    const size_t item = fig_program_view_dtype_bytes(record->dtype);
    size_t needed;
    *place = (fig_bound_place){.address = wish->binding->address, .bytes = wish->binding->bytes};
    place->extent = fig_places_extent(record, wish->rows);
    FIG_TRY(read_strides(record, wish->name, wish->binding->strides, place));
    FIG_TRY(measure_span(record, wish->name, place->extent, place->strides, &place->span));
    if (record->symbol == FIG_SYMBOL_PAGES) {
        FIG_TRY(count_pages(record, wish->name, place->span, wish->pages_least, place));
        if (place->extent == 0) return FIG_OK;
        return measure_span(record, wish->name, place->extent, place->strides, &place->span);
    }
    if (fig_size_multiply(&needed, place->span, item))
        return fig_fail(FIG_INVALID, "tensor %s: %zu elements, more than memory holds", wish->name,
                        place->span);
    if (place->address == NULL && place->bytes == 0) place->bytes = needed;
    if (place->bytes >= needed) return FIG_OK;
    return fig_fail(FIG_INVALID, "tensor %s: bytes is %zu, it must be %zu or more", wish->name,
                    place->bytes, needed);
}

void fig_places_default_strides(const fig_tensor_record *record, int64_t strides[4]) {
    const int heads_first = record->layout == FIG_HND;
    const int order[4] = {0, heads_first ? 2 : 1, heads_first ? 1 : 2, 3};
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        strides[order[i]] = stride;
        if (i > 0) stride *= record->dims[order[i]];
    }
}

fig_overlap_array fig_places_array(const fig_tensor_record *record, const fig_bound_place *place) {
    fig_overlap_array array = {.address = (uintptr_t)place->address,
                               .item_bytes = fig_program_view_dtype_bytes(record->dtype),
                               .rank = record->rank};
    memcpy(array.dims, record->dims, sizeof array.dims);
    memcpy(array.strides, place->strides, sizeof array.strides);
    array.dims[0] = place->extent;
    return array;
}

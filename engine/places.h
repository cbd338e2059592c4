/* places.h: where a tensor lies, as a caller binds it.
 *
 * Owns strides, extents and what bytes hold, for bindings that an engine keeps and for those of one
 * run. Invariant: in a place that was measured no two indices meet, and its bytes hold all of
 * them. */
#ifndef FIG_ENGINE_PLACES_H
#define FIG_ENGINE_PLACES_H

#include "engine/overlap.h"
#include "graphs/program.h"

/* Where a tensor lies. */
typedef struct fig_bound_place {
    uint8_t *address; /* NULL: nowhere yet */
    size_t bytes;
    int64_t strides[4]; /* in elements */
    int64_t extent;     /* along dims[0]: of all rows, or of whole pages */
    size_t span;        /* elements from the first to behind the last */
} fig_bound_place;

/* What is to be measured. */
typedef struct fig_places_wish {
    const fig_tensor_record *record;
    const char *name; /* the tensor's */
    const fig_binding *binding;
    int64_t rows;        /* of the batch, where dims[0] counts it */
    int64_t pages_least; /* where dims[0] counts pages */
} fig_places_wish;

/* Fills all of *place; bytes too, where neither address nor bytes are given. */
fig_status fig_places_measure(const fig_places_wish *wish, fig_bound_place *place);

/* dims[0] of so many rows of the batch; of pages, one page's. */
int64_t fig_places_extent(const fig_tensor_record *record, int64_t rows);
/* Without gaps, in the order that the tensor's layout gives its dims. */
void fig_places_default_strides(const fig_tensor_record *record, int64_t strides[4]);

/* How much less than dims[1] a binding may hold, which a run takes for what there is: tokens of
 * each of the first `rows` sequences of a dense cache, and columns of the first `rows` rows of a
 * page table; 0 where not even one fits. Of a binding whose strides are 0 so many lie back to
 * back. */
int64_t fig_places_dense_tokens(const fig_places_wish *wish);
int64_t fig_places_table_columns(const fig_places_wish *wish);

/* As the overlap check reads it. */
fig_overlap_array fig_places_array(const fig_tensor_record *record, const fig_bound_place *place);

#endif

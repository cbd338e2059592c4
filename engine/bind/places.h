/* places.h: finds the strides, extent and size of a tensor that a caller binds.
 *
 * These functions serve both the bindings that an engine keeps and the bindings of a single run. A
 * place is the memory of one tensor. Invariant: in a measured place no two indices share an
 * element, and the place's bytes hold all indices. */
#ifndef FIG_ENGINE_PLACES_H
#define FIG_ENGINE_PLACES_H

#include "engine/bind/overlap.h"
#include "graphs/record/program.h"

/* The memory of a tensor. */
typedef struct fig_bound_place {
    uint8_t *address; /* NULL: no memory yet */
    size_t bytes;
    int64_t strides[4]; /* in elements */
    /* the actual dims[0], which counts all rows of the batch or all whole pages */
    int64_t extent;
    /* distance from the first element to the end of the last element, in elements */
    size_t span;
} fig_bound_place;

/* Input of the functions below. */
typedef struct fig_places_wish {
    const fig_tensor_record *record;
    const char *name; /* name of the tensor, for messages */
    const fig_binding *binding;
    int64_t rows;        /* rows of the batch, if dims[0] counts rows */
    int64_t pages_least; /* least number of pages, if dims[0] counts pages */
} fig_places_wish;

/* Checks the binding and sets every field of *place. If the binding gives neither address nor
 * bytes, bytes becomes the size that the tensor needs. */
fig_status fig_places_measure(const fig_places_wish *wish, fig_bound_place *place);

/* Returns the actual dims[0] for `rows` rows of the batch. For a tensor of pages, returns dims[0]
 * of one page. */
int64_t fig_places_extent(const fig_tensor_record *record, int64_t rows);
/* Computes strides without gaps, for dimensions in the order of the tensor's layout. */
void fig_places_default_strides(const fig_tensor_record *record, int64_t strides[4]);

/* Return the largest dims[1] for which the binding has memory, but at most the recorded dims[1]; a
 * run uses this size. fig_places_dense_tokens() counts tokens in each of the first `rows` sequences
 * of a dense cache. fig_places_table_columns() counts columns in the first `rows` rows of a page
 * table. Both return 0 if not even one token or column fits. If all strides of a binding are 0, its
 * memory has no gaps. */
int64_t fig_places_dense_tokens(const fig_places_wish *wish);
int64_t fig_places_table_columns(const fig_places_wish *wish);

/* Returns the place as the array that the overlap check reads. */
fig_overlap_array fig_places_array(const fig_tensor_record *record, const fig_bound_place *place);

#endif

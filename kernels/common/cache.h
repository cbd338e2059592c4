/* cache.h: finds a token in a paged or dense cache, and the scale of its stored values, for the
 * reference kernels and the kernels.
 *
 * The callers handle a page number outside the cache: a reader takes page 0, a writer writes
 * nothing. Invariant: `token` is below the KV limit, so its table entry exists. */
#ifndef FIG_KERNELS_CACHE_H
#define FIG_KERNELS_CACHE_H

#include "kernels/common/params.h"

/* Holds the page numbers of one sequence. A sequence of a dense cache has a single page, whose
 * number is that of the sequence. */
typedef struct fig_cache_sequence {
    const int32_t *pages; /* NULL: dense */
    int32_t number, page_size;
} fig_cache_sequence;

FIG_BOTH fig_cache_sequence fig_cache_sequence_of(const int32_t *page_table, int64_t table_stride,
                                                  int32_t number, int32_t page_size) {
    fig_cache_sequence sequence;
    sequence.pages = page_table == NULL ? NULL : page_table + number * table_stride;
    sequence.number = number;
    sequence.page_size = page_size;
    return sequence;
}

/* Returns the page that holds the token, without a check that the cache has this page. */
FIG_BOTH int32_t fig_cache_page(const fig_cache_sequence *sequence, int32_t token) {
    if (sequence->pages == NULL) return sequence->number;
    return sequence->pages[token / sequence->page_size];
}

/* Returns the number of elements from the cache's start to head 0 of a token. */
FIG_BOTH int64_t fig_cache_offset(const fig_cache_strides *strides,
                                  const fig_cache_sequence *sequence, int32_t page, int32_t token) {
    return page * strides->page + token % sequence->page_size * strides->token;
}

/* Returns the scale in value = stored * scale. scales: [count], one for all heads or one for each;
 * NULL: the scale is 1. */
FIG_BOTH float fig_cache_scale(const float *scales, int32_t count, int32_t kv_head) {
    if (scales == NULL) return 1.0f;
    return scales[count > 1 ? kv_head : 0];
}

#endif

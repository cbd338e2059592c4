/* known_scores.c: keeps the scores that calls name by a number. */
#include "ffi/known_scores.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "graphs/view/hash.h"
#include "planner/status.h"

static _Atomic(fig_score *) scores[FIG_KNOWN_SCORE_LIMIT]; /* NULL after the last score */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* Returns the number of a score from the text of its normal form. It is never 0, because 0 means
 * that a call has no score. */
static int64_t number_of(const char *text) {
    const int64_t number = (int64_t)(fig_hash_mix(0, text, strlen(text)) >> 1);
    return number != 0 ? number : 1;
}

/* Finds a score. *count: the number of scores before it. */
static const fig_score *find(int64_t number, int32_t *count) {
    for (*count = 0; *count < FIG_KNOWN_SCORE_LIMIT; ++*count) {
        /* pairs with keep() */
        const fig_score *score = atomic_load_explicit(&scores[*count], memory_order_acquire);
        if (score == NULL) return NULL;
        if (number_of(score->text) == number) return score;
    }
    return NULL;
}

/* Keeps a score unless an equal one is kept already. Sets *kept to 1 if it took ownership of the
 * score. The caller holds the lock `adding`. */
static fig_status keep(fig_score *score, int *kept) {
    int32_t count;
    const fig_score *known = find(number_of(score->text), &count);
    *kept = 0;
    if (known != NULL && strcmp(known->text, score->text) == 0) return FIG_OK;
    if (known != NULL)
        return fig_fail(FIG_UNSUPPORTED, "the score %s has the number of the score %s", score->text,
                        known->text);
    if (count == FIG_KNOWN_SCORE_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "%d scores are known, which is the limit",
                        FIG_KNOWN_SCORE_LIMIT);
    *kept = 1;
    atomic_store_explicit(&scores[count], score, memory_order_release); /* pairs with find() */
    return FIG_OK;
}

fig_status fig_known_scores_add(const char *text, int64_t *number) {
    fig_score *score;
    int kept;
    *number = 0;
    FIG_TRY(fig_score_parse(&score, text));
    const int64_t made = number_of(score->text);
    pthread_mutex_lock(&adding);
    const fig_status status = keep(score, &kept);
    pthread_mutex_unlock(&adding);
    if (!kept) fig_score_destroy(score);
    if (status == FIG_OK) *number = made;
    return status;
}

fig_status fig_known_scores_find(int64_t number, const fig_score **score) {
    int32_t count;
    *score = find(number, &count);
    if (*score != NULL) return FIG_OK;
    return fig_fail(FIG_ORDER,
                    "score is %" PRId64 ", and this process has no score of this number: "
                    "fig_ffi_add_score() makes it known",
                    number);
}

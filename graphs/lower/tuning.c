/* tuning.c: the costs of variants as figraph tune measured them.
 *
 * Invariant: records that pass the check can be written to a file and read back unchanged. */
#include "graphs/lower/tuning.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

static int compare(const fig_tuned *a, const fig_tuned *b) {
    const int machines = memcmp(a->machine, b->machine, sizeof a->machine);
    if (machines != 0) return machines;
    if (a->compute_capability != b->compute_capability)
        return a->compute_capability < b->compute_capability ? -1 : 1;
    if (a->sm_count != b->sm_count) return a->sm_count < b->sm_count ? -1 : 1;
    if (a->maker != b->maker) return a->maker < b->maker ? -1 : 1;
    if (a->split_class != b->split_class) return a->split_class < b->split_class ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static fig_status check_record(const fig_tuned *record, uint32_t index) {
    fig_traits traits = {.size = sizeof traits,
                         .compute_capability = record->compute_capability,
                         .sm_count = record->sm_count};
    memcpy(traits.name, record->machine, sizeof traits.name);
    FIG_TRY(fig_traits_check(&traits));
    for (size_t i = strlen(traits.name); i < sizeof traits.name; i++)
        if (record->machine[i] != '\0')
            return fig_fail(FIG_INVALID, "record %" PRIu32 ": machine is not followed by zeros",
                            index);
    if (record->split_class < 0 || record->split_class >= FIG_CLASS_LIMIT)
        return fig_fail(FIG_INVALID,
                        "record %" PRIu32 ": split_class is %" PRId32 ", limits 0 to %d", index,
                        record->split_class, FIG_CLASS_LIMIT - 1);
    if (record->number < 0 || record->number >= FIG_VARIANT_LIMIT)
        return fig_fail(FIG_INVALID, "record %" PRIu32 ": variant is %" PRId32 ", limits 0 to %d",
                        index, record->number, FIG_VARIANT_LIMIT - 1);
    return fig_traits_check_variant(&record->variant);
}

fig_status fig_tuning_check(const fig_tuning *tuning) {
    if (tuning->count > FIG_TUNING_LIMIT)
        return fig_fail(FIG_INVALID, "%" PRIu32 " records, limit %d", tuning->count,
                        FIG_TUNING_LIMIT);
    for (uint32_t i = 0; i < tuning->count; i++) {
        FIG_TRY(check_record(&tuning->records[i], i));
        if (i > 0 && compare(&tuning->records[i - 1], &tuning->records[i]) >= 0)
            return fig_fail(FIG_INVALID, "record %" PRIu32 " does not come after the one before it",
                            i);
    }
    return FIG_OK;
}

fig_status fig_tuning_clone(fig_tuning *copy, const fig_tuning *tuning) {
    *copy = (fig_tuning){NULL, 0};
    if (tuning->count == 0) return FIG_OK;
    copy->records = malloc(tuning->count * sizeof *copy->records);
    if (copy->records == NULL)
        return fig_fail(FIG_NOMEM, "tuning: %" PRIu32 " records", tuning->count);
    memcpy(copy->records, tuning->records, tuning->count * sizeof *copy->records);
    copy->count = tuning->count;
    return FIG_OK;
}

void fig_tuning_finish(fig_tuning *tuning) {
    free(tuning->records);
    *tuning = (fig_tuning){NULL, 0};
}

int fig_tuning_is_of(const fig_tuned *tuned, const fig_traits *traits) {
    return strncmp(tuned->machine, traits->name, sizeof tuned->machine) == 0 &&
           tuned->compute_capability == traits->compute_capability &&
           tuned->sm_count == traits->sm_count;
}

const fig_tuned *fig_tuning_find(const fig_tuning *tuning, const fig_traits *traits,
                                 int32_t split_class, int32_t number) {
    for (uint32_t i = 0; i < tuning->count; i++) {
        const fig_tuned *tuned = &tuning->records[i];
        if (tuned->maker == FIG_VERSION && tuned->split_class == split_class &&
            tuned->number == number && fig_tuning_is_of(tuned, traits))
            return tuned;
    }
    return NULL;
}

int fig_tuning_fits(const fig_tuned *tuned, const fig_variant *resolved) {
    fig_variant variant = *resolved;
    variant.start_ns = tuned->variant.start_ns;
    variant.bytes_per_us = tuned->variant.bytes_per_us;
    variant.piece_ns = tuned->variant.piece_ns;
    variant.segment_ns = tuned->variant.segment_ns;
    variant.once = tuned->variant.once;
    variant.tile_ns = tuned->variant.tile_ns;
    return memcmp(&variant, &tuned->variant, sizeof variant) == 0;
}

static int compare_records(const void *a, const void *b) {
    return compare(a, b);
}

void fig_tuning_sort(fig_tuning *tuning) {
    if (tuning->count > 0)
        qsort(tuning->records, tuning->count, sizeof *tuning->records, compare_records);
}

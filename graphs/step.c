/* step.c: whether a caller's step is one that the spec allows.
 *
 * Runs once per step on the hot path: no allocation, one pass over the rows. Invariant: kernels
 * read what passes here without looking again, so every index is checked, of idle rows too. */
#include "graphs/step.h"

#include <inttypes.h>
#include <string.h>

#include "planner/status.h"

static fig_status check_rows(const fig_spec *spec, const fig_step *step) {
    if (step->rows < 0)
        return fig_fail(FIG_INVALID, "step: rows is %" PRId32 ", it must be at least 0",
                        step->rows);
    if (step->rows > spec->batch_limit)
        return fig_fail(FIG_TOO_LARGE, "step: rows is %" PRId32 ", limit %" PRId32, step->rows,
                        spec->batch_limit);
    if (step->rows > 0 && step->kv_lengths == NULL)
        return fig_fail(FIG_INVALID, "step: kv_lengths is NULL for %" PRId32 " rows", step->rows);
    return FIG_OK;
}

static fig_status check_length(const fig_spec *spec, int32_t row, int32_t length) {
    if (length < 0)
        return fig_fail(FIG_INVALID,
                        "step: kv_lengths[%" PRId32 "] is %" PRId32 ", it must be at least 0", row,
                        length);
    if (length > spec->kv_limit)
        return fig_fail(FIG_TOO_LARGE,
                        "step: kv_lengths[%" PRId32 "] is %" PRId32 ", limit %" PRId32, row, length,
                        spec->kv_limit);
    return FIG_OK;
}

/* An idle row's sequence may be named by another; where no sequences are given it has none. */
static fig_status check_sequence(const fig_spec *spec, const fig_step *step, int32_t row,
                                 fig_step_stamps *stamps) {
    const int idle = step->kv_lengths[row] == 0;
    if (step->sequences == NULL && (idle || row < spec->sequence_limit)) return FIG_OK;
    if (step->sequences == NULL)
        return fig_fail(FIG_INVALID,
                        "step: sequences is NULL, so row %" PRId32
                        " is a sequence beyond the limit of %" PRId32,
                        row, spec->sequence_limit);
    const int32_t sequence = step->sequences[row];
    if (sequence < 0 || sequence >= spec->sequence_limit)
        return fig_fail(FIG_INVALID,
                        "step: sequences[%" PRId32 "] is %" PRId32 ", limits 0 to %" PRId32, row,
                        sequence, spec->sequence_limit - 1);
    if (idle) return FIG_OK;
    if (stamps->of[sequence] == stamps->last)
        return fig_fail(FIG_INVALID,
                        "step: sequences[%" PRId32 "] is %" PRId32
                        ", which an earlier row is, and both have tokens",
                        row, sequence);
    stamps->of[sequence] = stamps->last;
    return FIG_OK;
}

fig_status fig_step_check(const fig_spec *spec, const fig_step *step, fig_step_stamps *stamps,
                          fig_plan_step *plan) {
    fig_step ours;
    memset(plan, 0, sizeof *plan);
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, step, "fig_step"));
    FIG_TRY(check_rows(spec, &ours));
    if (++stamps->last == 0) {
        memset(stamps->of, 0, (size_t)spec->sequence_limit * sizeof *stamps->of);
        stamps->last = 1;
    }
    for (int32_t row = 0; row < ours.rows; row++) {
        FIG_TRY(check_length(spec, row, ours.kv_lengths[row]));
        FIG_TRY(check_sequence(spec, &ours, row, stamps));
        if (ours.positions != NULL && ours.positions[row] < 0)
            return fig_fail(FIG_INVALID,
                            "step: positions[%" PRId32 "] is %" PRId32 ", it must be at least 0",
                            row, ours.positions[row]);
    }
    *plan = (fig_plan_step){ours.rows, ours.kv_lengths, ours.positions, ours.sequences};
    return FIG_OK;
}

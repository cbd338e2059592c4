/* step.c: checks that a caller's step is valid for the program.
 *
 * Runs once per step on the hot path, so it allocates nothing and takes a few cycles per row of a
 * correct step. If a step is wrong, a second pass checks row by row to name the error. Invariant:
 * kernels use values that pass this check without checking them again, so this file checks every
 * index, including those of idle rows. */
#include "graphs/step.h"

#include <inttypes.h>
#include <string.h>

#include "planner/spec/spec.h"
#include "planner/status.h"

/* Checks which arrays are NULL and which are not. */
static fig_status check_arrays(const fig_step *step, int on_device) {
    if (!on_device) {
        if (step->rows > 0 && step->kv_lengths == NULL)
            return fig_fail(FIG_INVALID, "step: kv_lengths is NULL for %" PRId32 " rows",
                            step->rows);
        if (step->token_limit != 0)
            return fig_fail(FIG_INVALID,
                            "step: token_limit is %" PRId64
                            ", it is for programs that read lengths on the device",
                            step->token_limit);
        return FIG_OK;
    }
    if (step->kv_lengths != NULL || step->positions != NULL)
        return fig_fail(FIG_INVALID,
                        "step: %s must be NULL, the program reads lengths and positions on the "
                        "device",
                        step->kv_lengths != NULL ? "kv_lengths" : "positions");
    if (step->token_limit < 0)
        return fig_fail(FIG_INVALID, "step: token_limit is %" PRId64 ", it must be at least 0",
                        step->token_limit);
    return FIG_OK;
}

/* Checks the step's horizon. Sets *ahead to the number of tokens by which a row that is not idle
 * may grow under the split of this step. */
static fig_status check_horizon(const fig_program_view *program, const fig_step *step,
                                int32_t *ahead) {
    const fig_spec *spec = &program->spec;
    *ahead = 0;
    if (step->horizon < 0)
        return fig_fail(FIG_INVALID, "step: horizon is %" PRId32 ", it must be at least 0",
                        step->horizon);
    if (step->horizon <= 1 || step->kv_lengths == NULL) return FIG_OK;
    if (fig_program_view_has_chunks(program))
        return fig_fail(FIG_INVALID,
                        "step: horizon is %" PRId32
                        ", it must be 1 where the spec's row_tokens, %" PRId32 ", is above %d",
                        step->horizon, spec->row_tokens, FIG_NARROW_TOKENS_LIMIT);
    const int32_t limit = (spec->kv_limit - 1) / spec->row_tokens + 1;
    if (step->horizon > limit)
        return fig_fail(FIG_TOO_LARGE, "step: horizon is %" PRId32 ", limit %" PRId32,
                        step->horizon, limit);
    *ahead = (step->horizon - 1) * spec->row_tokens;
    return FIG_OK;
}

static fig_status check_rows(const fig_spec *spec, const fig_step *step) {
    if (step->rows < 0)
        return fig_fail(FIG_INVALID, "step: rows is %" PRId32 ", it must be at least 0",
                        step->rows);
    if (step->rows > spec->batch_limit)
        return fig_fail(FIG_TOO_LARGE, "step: rows is %" PRId32 ", limit %" PRId32, step->rows,
                        spec->batch_limit);
    return FIG_OK;
}

/* Returns 1 if the host knows that the row is idle. */
static int is_idle(const fig_step *step, int32_t row) {
    if (step->query_counts != NULL && step->query_counts[row] == 0) return 1;
    return step->kv_lengths != NULL && step->kv_lengths[row] == 0;
}

/* Checks the number of query tokens of one row, and that its sequence has at least as many
 * tokens. */
static fig_status check_query_count(const fig_spec *spec, const fig_step *step, int32_t row) {
    const int32_t count = step->query_counts[row], length = step->kv_lengths[row];
    if (count < 0 || count > spec->row_tokens)
        return fig_fail(FIG_INVALID,
                        "step: query_counts[%" PRId32 "] is %" PRId32 ", limits 0 to %" PRId32, row,
                        count, spec->row_tokens);
    if (length == 0 || length >= count) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "step: kv_lengths[%" PRId32 "] is %" PRId32
                    ", it must be 0 or at least query_counts[%" PRId32 "], %" PRId32,
                    row, length, row, count);
}

/* Checks one row's length. A row that is not idle needs at least one token for each of its
 * queries. */
static fig_status check_length(const fig_spec *spec, const fig_step *step, int32_t row,
                               int32_t ahead) {
    const int32_t length = step->kv_lengths[row];
    if (length < 0)
        return fig_fail(FIG_INVALID,
                        "step: kv_lengths[%" PRId32 "] is %" PRId32 ", it must be at least 0", row,
                        length);
    if (length > 0 && step->query_counts == NULL && length < spec->row_tokens)
        return fig_fail(FIG_INVALID,
                        "step: kv_lengths[%" PRId32 "] is %" PRId32
                        ", it must be 0 or at least the spec's row_tokens, %" PRId32,
                        row, length, spec->row_tokens);
    if (length > spec->kv_limit)
        return fig_fail(FIG_TOO_LARGE,
                        "step: kv_lengths[%" PRId32 "] is %" PRId32 ", limit %" PRId32, row, length,
                        spec->kv_limit);
    if (length > 0 && length > spec->kv_limit - ahead)
        return fig_fail(FIG_TOO_LARGE,
                        "step: kv_lengths[%" PRId32 "] is %" PRId32 " and grows by %" PRId32
                        " within the horizon, limit %" PRId32,
                        row, length, ahead, spec->kv_limit);
    return FIG_OK;
}

/* Checks one row's sequence. An idle row may name the same sequence as another row. If the step
 * gives no sequences, row r is sequence r. */
static fig_status check_sequence(const fig_spec *spec, const fig_step *step, int32_t row,
                                 fig_step_stamps *stamps) {
    const int idle = is_idle(step, row);
    if (step->sequences == NULL && (idle || row < spec->sequence_limit)) return FIG_OK;
    if (step->sequences == NULL)
        return fig_fail(FIG_INVALID,
                        "step: sequences is NULL, so row %" PRId32
                        " needs a sequence of its own number, beyond the limit of %" PRId32,
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
                        ", which an earlier row names too, and both have tokens",
                        row, sequence);
    stamps->of[sequence] = stamps->last;
    return FIG_OK;
}

static fig_status check_position(int32_t row, int32_t position, int32_t ahead) {
    if (position < 0)
        return fig_fail(FIG_INVALID,
                        "step: positions[%" PRId32 "] is %" PRId32 ", it must be at least 0", row,
                        position);
    if (position <= FIG_POSITION_LIMIT - ahead) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE,
                    "step: positions[%" PRId32 "] is %" PRId32 " and grows by %" PRId32
                    " within the horizon, limit %d",
                    row, position, ahead, FIG_POSITION_LIMIT);
}

/* Checks one row. A row whose length only the device knows counts as a row with tokens. */
static fig_status check_row(const fig_spec *spec, const fig_step *step, int32_t row, int32_t ahead,
                            fig_step_stamps *stamps) {
    if (step->kv_lengths != NULL) FIG_TRY(check_length(spec, step, row, ahead));
    FIG_TRY(check_sequence(spec, step, row, stamps));
    if (step->positions == NULL) return FIG_OK;
    return check_position(row, step->positions[row], ahead);
}

/* Checks the rows' counts of tokens. Sets *tokens to the counts, or to NULL if every row has
 * row_tokens. Ignores the count of an idle row. */
static fig_status check_tokens(const fig_spec *spec, const fig_step *step, const int32_t **tokens) {
    int fewer = 0;
    *tokens = NULL;
    if (step->row_tokens == NULL) return FIG_OK;
    if (spec->query_limit > 0)
        return fig_fail(FIG_INVALID,
                        "step: row_tokens must be NULL, the spec has a query_limit; give "
                        "query_counts");
    if (step->horizon > 1)
        return fig_fail(FIG_INVALID,
                        "step: horizon is %" PRId32 ", it must be 1 where row_tokens is given",
                        step->horizon);
    for (int32_t row = 0; row < step->rows; row++) {
        if (step->kv_lengths != NULL && step->kv_lengths[row] == 0) continue;
        const int32_t count = step->row_tokens[row];
        if (count < 1 || count > spec->row_tokens)
            return fig_fail(FIG_INVALID,
                            "step: row_tokens[%" PRId32 "] is %" PRId32 ", limits 1 to %" PRId32,
                            row, count, spec->row_tokens);
        fewer |= count < spec->row_tokens;
    }
    if (fewer) *tokens = step->row_tokens;
    return FIG_OK;
}

/* Checks that a step of this program may have query_counts. */
static fig_status check_query_source(const fig_spec *spec, const fig_step *step) {
    if (spec->query_limit == 0)
        return fig_fail(FIG_INVALID,
                        "step: query_counts must be NULL where the spec's query_limit is 0");
    if (step->kv_lengths == NULL && step->rows > 0)
        return fig_fail(FIG_INVALID,
                        "step: query_counts must be NULL, the program reads lengths on the device");
    if (step->horizon <= 1) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "step: horizon is %" PRId32 ", it must be 1 where query_counts is given",
                    step->horizon);
}

/* Checks the query tokens of a step. If only the device knows them, the device checks them. */
static fig_status check_queries(const fig_spec *spec, const fig_step *step) {
    int64_t queries = 0;
    if (step->query_counts != NULL) FIG_TRY(check_query_source(spec, step));
    for (int32_t row = 0; row < step->rows && step->query_counts != NULL; row++) {
        FIG_TRY(check_query_count(spec, step, row));
        queries += step->query_counts[row];
    }
    if (step->query_counts == NULL && step->kv_lengths != NULL)
        queries = (int64_t)step->rows * spec->row_tokens;
    if (spec->query_limit == 0 || queries <= spec->query_limit) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE, "step: %s %" PRId64 " query tokens, limit %" PRId64,
                    step->query_counts != NULL ? "query_counts sum to" : "its rows have", queries,
                    spec->query_limit);
}

/* ---- All rows at once ------------------------------------------------------------------------ */

/* Returns 1 if check_length() accepts every row. */
static int are_lengths_sound(const fig_spec *spec, const fig_step *step, int32_t ahead) {
    const uint32_t most = (uint32_t)(spec->kv_limit - ahead);
    const uint32_t too_few = step->query_counts == NULL ? (uint32_t)spec->row_tokens - 1 : 0;
    int bad = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const uint32_t length = (uint32_t)step->kv_lengths[row];
        bad |= (length > most) | (length - 1 < too_few); /* length 0 wraps to UINT32_MAX */
    }
    return !bad;
}

/* Returns 1 if check_position() accepts every row. */
static int are_positions_sound(const fig_step *step, int32_t ahead) {
    const uint32_t most = (uint32_t)(FIG_POSITION_LIMIT - ahead);
    int bad = 0;
    for (int32_t row = 0; row < step->rows; row++)
        bad |= (uint32_t)step->positions[row] > most;
    return !bad;
}

/* Returns 1 if the sequences equal those of an earlier step in which no row was idle. Such
 * sequences are valid, whichever rows are idle in this step. */
static int are_sequences_known(const fig_step *step, const fig_step_stamps *stamps) {
    return stamps->known != NULL && stamps->known_rows == step->rows && step->rows > 0 &&
           memcmp(stamps->known, step->sequences, (size_t)step->rows * sizeof *stamps->known) == 0;
}

static void keep_sequences(const fig_step *step, fig_step_stamps *stamps) {
    if (stamps->known == NULL) return;
    stamps->known_rows = step->rows;
    if (step->rows > 0)
        memcpy(stamps->known, step->sequences, (size_t)step->rows * sizeof *stamps->known);
}

/* Returns 1 if check_sequence() accepts every row. Does not stamp the sequence of an idle row. */
static int are_sequences_sound(const fig_spec *spec, const fig_step *step,
                               fig_step_stamps *stamps) {
    const int32_t limit = spec->sequence_limit;
    if (step->sequences == NULL) {
        int busy = 0;
        for (int32_t row = limit; row < step->rows; row++)
            busy |= !is_idle(step, row);
        return !busy;
    }
    if (are_sequences_known(step, stamps)) return 1;
    const uint32_t last = stamps->last; /* a local variable, which the stores below cannot change */
    uint32_t *of = stamps->of;
    int twice = 0, all_busy = 1;
    for (int32_t row = 0; row < step->rows; row++) {
        const uint32_t sequence = (uint32_t)step->sequences[row];
        if (sequence >= (uint32_t)limit) return 0;
        const uint32_t stamp = of[sequence];
        const int busy = !is_idle(step, row);
        twice |= busy & (stamp == last);
        of[sequence] = busy ? last : stamp;
        all_busy &= busy;
    }
    if (!twice && all_busy) keep_sequences(step, stamps);
    return !twice;
}

static void take_stamp(const fig_spec *spec, fig_step_stamps *stamps) {
    if (++stamps->last != 0) return;
    memset(stamps->of, 0, (size_t)spec->sequence_limit * sizeof *stamps->of);
    stamps->last = 1;
}

static fig_status check_all_rows(const fig_spec *spec, const fig_step *step, int32_t ahead,
                                 fig_step_stamps *stamps) {
    take_stamp(spec, stamps);
    if ((step->kv_lengths == NULL || are_lengths_sound(spec, step, ahead)) &&
        (step->positions == NULL || are_positions_sound(step, ahead)) &&
        are_sequences_sound(spec, step, stamps))
        return FIG_OK;
    take_stamp(spec, stamps);
    for (int32_t row = 0; row < step->rows; row++)
        FIG_TRY(check_row(spec, step, row, ahead, stamps));
    return FIG_OK;
}

fig_status fig_step_check(const fig_program_view *program, const fig_step *step,
                          fig_step_stamps *stamps, fig_plan_step *plan) {
    const fig_spec *spec = &program->spec;
    fig_step ours;
    const int32_t *tokens;
    int32_t ahead;
    memset(plan, 0, sizeof *plan);
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, step, "fig_step"));
    FIG_TRY(check_rows(spec, &ours));
    FIG_TRY(check_arrays(&ours, fig_program_view_reads_lengths(program)));
    FIG_TRY(check_horizon(program, &ours, &ahead));
    FIG_TRY(check_queries(spec, &ours));
    FIG_TRY(check_all_rows(spec, &ours, ahead, stamps));
    FIG_TRY(check_tokens(spec, &ours, &tokens));
    const int64_t most = (int64_t)ours.rows * spec->kv_limit;
    *plan = (fig_plan_step){.rows = ours.rows,
                            .lengths = ours.kv_lengths,
                            .positions = ours.positions,
                            .sequences = ours.sequences,
                            .sequence_limit = spec->sequence_limit,
                            .tokens = tokens,
                            .queries = ours.query_counts,
                            .token_limit = most,
                            .bucket = ours.bucket,
                            .horizon = ours.horizon > 0 ? ours.horizon : 1,
                            .row_tokens = ours.kv_lengths != NULL ? spec->row_tokens : 0};
    if (ours.token_limit > 0 && ours.token_limit < most) plan->token_limit = ours.token_limit;
    return FIG_OK;
}

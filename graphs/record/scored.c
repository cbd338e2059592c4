/* scored.c: records attention with a score.
 *
 * Invariant: each array of a program's score has a count, at most that of the array's tensor. */
#include "graphs/record/scored.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/record/program.h"
#include "planner/scores/score.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* The fields of attention and of decode_attention that this file reads and changes. */
typedef struct request {
    const char *operation;
    const fig_score *score;
    const fig_tensor *given; /* [array] the caller's score_arrays */
    fig_tensor q;
    fig_tensor *alibi;
    float *soft_cap;
} request;

/* A score with the tensors of its arrays. */
typedef struct resolved {
    fig_score *score; /* every array has a count */
    uint32_t tensors[FIG_SCORE_ARRAY_LIMIT];
    int is_plain; /* 1: alibi and soft_cap can express the score */
} resolved;

/* Returns the id of an array's tensor, or 0. */
static uint32_t find_tensor(const fig_program *program, const request *asked, uint32_t array) {
    char name[sizeof asked->score->arrays[array].name + 8];
    const char *stem = asked->score->arrays[array].name;
    if (asked->given[array].id != 0) return asked->given[array].id;
    snprintf(name, sizeof name, "%s.%d", stem, fig_program_layer_of(program));
    const uint32_t id = fig_program_find(program, name).id;
    return id != 0 ? id : fig_program_find(program, stem).id;
}

/* Finds the tensor of an array and takes the array's count from it. */
static fig_status resolve_array(const fig_program *program, const request *asked, uint32_t number,
                                fig_score_array *array, uint32_t *tensor) {
    const fig_program_view *view = fig_program_view_of(program);
    *tensor = find_tensor(program, asked, number);
    if (*tensor == 0)
        return fig_fail(FIG_INVALID,
                        "%s: score: array %s has no tensor: score_arrays[%" PRIu32
                        "] is absent, and no tensor is named %s.%d or %s",
                        asked->operation, array->name, number, array->name,
                        fig_program_layer_of(program), array->name);
    if (*tensor > view->tensor_count)
        return fig_fail(FIG_INVALID, "%s: score: array %s is tensor %" PRIu32 " of %" PRIu32,
                        asked->operation, array->name, *tensor, view->tensor_count);
    const fig_tensor_record *record = &view->tensors[*tensor - 1];
    if (record->rank != 1 || record->symbol != FIG_SYMBOL_NONE || record->dims[0] > INT32_MAX)
        return fig_fail(FIG_INVALID,
                        "%s: score: array %s is tensor %s, which must have one dim, a number below "
                        "2^31",
                        asked->operation, array->name, fig_program_view_tensor_name(view, *tensor));
    if (array->count == 0) array->count = (int32_t)record->dims[0];
    return FIG_OK;
}

static fig_status resolve(const fig_program *program, const request *asked, resolved *found) {
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT];
    fig_score_parts parts = {.size = sizeof parts};
    FIG_TRY(fig_score_read(asked->score, &parts));
    for (int32_t i = 0; i < parts.array_count; i++) {
        arrays[i] = parts.arrays[i];
        FIG_TRY(resolve_array(program, asked, (uint32_t)i, &arrays[i], &found->tensors[i]));
    }
    parts.arrays = arrays;
    return fig_score_create(&found->score, &parts);
}

/* Refuses alibi and soft_cap beside a score, which replaces them, and tensors for arrays that the
 * score does not have. */
static fig_status check_request(const request *asked) {
    const uint32_t count = asked->score->array_count;
    if (asked->alibi->id != 0)
        return fig_fail(FIG_INVALID,
                        "%s: alibi is tensor %" PRIu32 " beside a score: write "
                        "slope[head] * (kv_pos - q_pos) into the score",
                        asked->operation, asked->alibi->id);
    if (*asked->soft_cap != 0.0f)
        return fig_fail(FIG_INVALID,
                        "%s: soft_cap is %g beside a score: write cap * tanh(x / cap) "
                        "into the score",
                        asked->operation, (double)*asked->soft_cap);
    for (uint32_t i = count; i < FIG_SCORE_ARRAY_LIMIT; i++)
        if (asked->given[i].id != 0)
            return fig_fail(FIG_INVALID,
                            "%s: score_arrays[%" PRIu32 "] is tensor %" PRIu32
                            ", the score has %" PRIu32 " arrays",
                            asked->operation, i, asked->given[i].id, count);
    return FIG_OK;
}

/* Returns 1 if the slopes have the form of alibi: f32, one for each head. */
static int are_slopes(const fig_program *program, const request *asked, uint32_t tensor) {
    const fig_program_view *view = fig_program_view_of(program);
    if (asked->q.id == 0 || asked->q.id > view->tensor_count) return 0;
    const fig_tensor_record *slopes = &view->tensors[tensor - 1];
    const fig_tensor_record *q = &view->tensors[asked->q.id - 1];
    return slopes->dtype == FIG_F32 && q->rank == 3 && slopes->dims[0] == q->dims[1];
}

/* Finds the tensors of the score, or turns the score into alibi and soft_cap. The caller destroys
 * found->score. */
static fig_status take_score(fig_program *program, const request *asked, resolved *found) {
    *found = (resolved){.is_plain = 0};
    FIG_TRY(check_request(asked));
    FIG_TRY(resolve(program, asked, found));
    const fig_score_form form = fig_score_recognise(found->score);
    if (!form.is_known) return FIG_OK;
    if (form.slope_array >= 0 && !are_slopes(program, asked, found->tensors[form.slope_array]))
        return FIG_OK;
    found->is_plain = 1;
    *asked->soft_cap = form.soft_cap;
    if (form.slope_array >= 0) asked->alibi->id = found->tensors[form.slope_array];
    return FIG_OK;
}

static void record(fig_program *program, const fig_attention_op *op, const resolved *found) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    fig_scored_attributes attributes = {
        {op->sm_scale != 0.0f ? op->sm_scale : spec->sm_scale, 0.0f, op->window}, 0};
    uint32_t operands[FIG_SCORED_OPERAND_COUNT] = {
        [FIG_ATTENTION_Q] = op->q.id,
        [FIG_ATTENTION_K_CACHE] = op->cache.k.id,
        [FIG_ATTENTION_V_CACHE] = op->cache.v.id,
        [FIG_ATTENTION_TABLE] = op->cache.page_table.id,
        [FIG_ATTENTION_K_SCALE] = op->cache.k_scale.id,
        [FIG_ATTENTION_V_SCALE] = op->cache.v_scale.id,
        [FIG_ATTENTION_SINKS] = op->sinks.id,
        [FIG_ATTENTION_OUT] = op->out.id,
        [FIG_ATTENTION_LSE] = op->lse.id,
    };
    memcpy(operands + FIG_SCORED_ARRAY, found->tensors, sizeof found->tensors);
    attributes.score = fig_program_score(program, found->score);
    fig_program_node(program, FIG_OP_SCORED_ATTENTION, operands, FIG_SCORED_OPERAND_COUNT,
                     &attributes, sizeof attributes);
}

int fig_scored_replace(fig_program *program, fig_attention_op *op) {
    resolved found;
    if (op->score == NULL) return 1;
    const request asked = {.operation = "attention",
                           .score = op->score,
                           .given = op->score_arrays,
                           .q = op->q,
                           .alibi = &op->alibi,
                           .soft_cap = &op->soft_cap};
    const fig_status status = take_score(program, &asked, &found);
    fig_program_refuse(program, status);
    if (status == FIG_OK && !found.is_plain) record(program, op, &found);
    fig_score_destroy(found.score);
    return status == FIG_OK && found.is_plain;
}

/* Refuses a decode_attention whose work cannot be recorded as several nodes. */
static fig_status check_apart(const fig_decode_attention_op *op) {
    if (op->out.id == 0)
        return fig_fail(FIG_INVALID, "decode_attention: score is given without out");
    if (op->plain && (op->q_norm.id != 0 || op->k_norm.id != 0))
        return fig_fail(FIG_UNSUPPORTED,
                        "decode_attention: a score beside plain and %s: record the norms and "
                        "fig_attention yourself",
                        op->q_norm.id != 0 ? "q_norm" : "k_norm");
    return FIG_OK;
}

static void record_apart(fig_program *program, const fig_decode_attention_op *op,
                         const resolved *found) {
    if (!op->plain)
        fig_rope(program,
                 FIG_OPTIONS(fig_rope_op, .q = op->q, .k = op->k, .positions = op->positions,
                             .cos_sin = op->cos_sin, .q_norm = op->q_norm, .k_norm = op->k_norm,
                             .norm_epsilon = op->norm_epsilon, .rope = op->rope,
                             .rope_table = op->rope_table));
    fig_append_kv(program,
                  FIG_OPTIONS(fig_append_kv_op, .k = op->k, .v = op->v, .cache = op->cache));
    record(program,
           FIG_OPTIONS(fig_attention_op, .q = op->q, .out = op->out, .lse = op->lse,
                       .sinks = op->sinks, .cache = op->cache, .window = op->window,
                       .sm_scale = op->sm_scale),
           found);
}

int fig_scored_replace_decode(fig_program *program, fig_decode_attention_op *op) {
    resolved found = {.is_plain = 0};
    if (op->score == NULL) return 1;
    const request asked = {.operation = "decode_attention",
                           .score = op->score,
                           .given = op->score_arrays,
                           .q = op->q,
                           .alibi = &op->alibi,
                           .soft_cap = &op->soft_cap};
    fig_status status = take_score(program, &asked, &found);
    if (status == FIG_OK && !found.is_plain) status = check_apart(op);
    fig_program_refuse(program, status);
    if (status == FIG_OK && !found.is_plain) record_apart(program, op, &found);
    fig_score_destroy(found.score);
    return status == FIG_OK && found.is_plain;
}

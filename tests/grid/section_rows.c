/* section_rows.c: runs the grids of the peer's tests of row operations: gated activations and
 * norms.
 *
 * Only norms have widths that are not multiples of 8. Invariant: a step has as few plan rows as
 * possible, so that a tensor's multiple always matters. */
#include "tests/grid/grid_sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/inspect/inspect_names.h"
#include "tools/figraph/truth/truth.h"

enum { TRUTH_PER_S = 4000000 };

typedef struct rows_form {
    fig_dtype dtype;
    int32_t rows, multiple, width;
    int32_t activation; /* fig_activation; -1: a norm */
    int32_t residual, in_place, strided;
    float weight_offset;
} rows_form;

typedef struct scene {
    const rows_form *form;
    grid_report *report;
    grid_bench bench;
    fig_random random;
    grid_array in, before, weight, out, residual, residual_before;
    int64_t tokens, in_width, strides[2];
    double *want, *magnitude; /* [width] */
} scene;

static fig_tensor rows(scene *s, const char *name, int64_t width, const grid_array *array,
                       const int64_t *strides) {
    const fig_tensor_info info = {.name = name,
                                  .dtype = s->form->dtype,
                                  .dims = {FIG_DIM_BATCH, width},
                                  .multiple = s->form->multiple};
    return grid_bench_tensor(&s->bench, &info, &(grid_place){.array = array, .strides = strides});
}

static void record_gated(scene *s) {
    fig_gated_op op = {.size = sizeof op};
    op.in = rows(s, "in", s->in_width, &s->in, s->strides);
    op.out = rows(s, "out", s->form->width, &s->out, NULL);
    if (grid_failed(s->report)) return;
    switch (s->form->activation) {
    case FIG_SILU: fig_silu_and_mul(s->bench.program, &op); break;
    case FIG_GELU: fig_gelu_and_mul(s->bench.program, &op); break;
    case FIG_GELU_TANH: fig_gelu_tanh_and_mul(s->bench.program, &op); break;
    default: fig_swiglu_limited(s->bench.program, &op); break;
    }
}

static void record_norm(scene *s) {
    const rows_form *form = s->form;
    const fig_tensor_info weight = {.name = "weight", .dtype = form->dtype, .dims = {form->width}};
    fig_rms_norm_op op = {.size = sizeof op, .weight_offset = form->weight_offset};
    op.in = rows(s, "in", s->in_width, &s->in, s->strides);
    op.weight = grid_bench_tensor(&s->bench, &weight, &(grid_place){.array = &s->weight});
    op.out = form->in_place ? op.in : rows(s, "out", form->width, &s->out, NULL);
    if (form->residual) op.residual = rows(s, "residual", form->width, &s->residual, NULL);
    if (grid_failed(s->report)) return;
    if (form->residual) {
        fig_add_rms_norm(s->bench.program, &op);
    } else {
        fig_rms_norm(s->bench.program, &op);
    }
}

/* Makes some inputs larger, since the noise alone stays below the limits of swiglu_limited. */
static void reach_limits(scene *s) {
    for (int64_t i = 0; i < s->tokens * s->strides[0]; i += 13)
        grid_store(&s->in, s->form->dtype, i, 8 * fig_random_normal(&s->random));
}

/* Makes only the arrays that the case uses. */
static void make_memory(scene *s) {
    const rows_form *form = s->form;
    const int64_t elements = s->tokens * form->width, residual = form->residual ? elements : 0;
    grid_array_make(s->report, &s->in, s->tokens * s->strides[0], form->dtype);
    grid_array_make(s->report, &s->weight, form->width, form->dtype);
    grid_array_make(s->report, &s->out, form->in_place ? 0 : elements, form->dtype);
    grid_array_noise(s->report, &s->residual, residual, form->dtype, &s->random);
    s->want = calloc((size_t)form->width, sizeof *s->want);
    s->magnitude = calloc((size_t)form->width, sizeof *s->magnitude);
    if (s->want == NULL || s->magnitude == NULL)
        grid_fail(s->report, "no memory for %d numbers", (int)form->width);
    if (grid_failed(s->report)) return;
    for (int64_t row = 0; row < s->tokens; row++)
        grid_fill(&s->in, form->dtype, row * s->strides[0], s->in_width, &s->random);
    if (form->activation == FIG_SWIGLU_LIMITED) reach_limits(s);
    grid_fill(&s->weight, form->dtype, 0, form->width, &s->random);
    if (form->activation >= 0) return;
    grid_array_copy(s->report, &s->before, &s->in);
    grid_array_copy(s->report, &s->residual_before, &s->residual);
}

static void scene_close(scene *s) {
    grid_array *const arrays[] = {&s->in,  &s->before,   &s->weight,
                                  &s->out, &s->residual, &s->residual_before};
    grid_bench_close(&s->bench);
    free(s->want);
    free(s->magnitude);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        grid_array_free(arrays[i]);
}

/* ---- Truth --------------------------------------------------------------------------------- */

static void compare(scene *s, const char *what, const grid_array *out, int64_t first) {
    char name[40];
    snprintf(name, sizeof name, "%s %s", what, fig_inspect_names_dtype(s->form->dtype));
    grid_compare(s->report, &(grid_output){name, out->bytes, s->form->dtype, first, s->form->width,
                                           s->want, s->magnitude, grid_peer(s->form->dtype), 1});
}

static void check_gated(scene *s, int64_t row) {
    static const char *const names[] = {"silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul",
                                        "swiglu_limited"};
    const truth_gated_args args = {.in = {s->in.bytes, s->form->dtype, s->strides[0], 0},
                                   .activation = (fig_activation)s->form->activation,
                                   .row = row,
                                   .width = s->form->width};
    truth_gated(&args, s->want);
    /* Where gelu nearly cancels to 0, its error is that of erf or tanh near -1, times gate and
     * up. */
    const int cancels = s->form->activation == FIG_GELU || s->form->activation == FIG_GELU_TANH;
    for (int32_t i = 0; i < s->form->width; i++) {
        int64_t at = row * s->strides[0] + i;
        double gate = truth_load(s->in.bytes, s->form->dtype, at);
        double up = truth_load(s->in.bytes, s->form->dtype, at + s->form->width);
        s->magnitude[i] = fmax(fabs(s->want[i]), cancels ? fabs(gate * up) * 0x1p-10 : 0);
    }
    compare(s, names[s->form->activation], &s->out, row * s->form->width);
}

static void check_sum(scene *s, int64_t row) {
    const fig_dtype dtype = s->form->dtype;
    for (int32_t i = 0; i < s->form->width; i++) {
        s->want[i] = truth_load(s->before.bytes, dtype, row * s->strides[0] + i) +
                     truth_load(s->residual_before.bytes, dtype, row * s->form->width + i);
        s->magnitude[i] = s->want[i];
    }
    compare(s, "residual", &s->residual, row * s->form->width);
}

/* Checks the norm of the rounded sum, after check_sum() has checked that sum. */
static void check_norm(scene *s, int64_t row) {
    const rows_form *form = s->form;
    if (form->residual) check_sum(s, row);
    const truth_rows in = {s->before.bytes, form->dtype, s->strides[0], 0};
    const truth_rows sum = {s->residual.bytes, form->dtype, form->width, 0};
    const truth_rms_norm_args args = {.x = form->residual ? sum : in,
                                      .weight = s->weight.bytes,
                                      .epsilon = 1e-6,
                                      .weight_offset = (double)form->weight_offset,
                                      .row = row,
                                      .width = form->width};
    truth_rms_norm(&args, s->want);
    for (int32_t i = 0; i < form->width; i++)
        s->magnitude[i] = s->want[i];
    compare(s, form->residual ? "add_rms_norm" : "rms_norm", form->in_place ? &s->in : &s->out,
            row * (form->in_place ? s->strides[0] : form->width));
}

static void check_unchanged(scene *s) {
    if (s->form->activation >= 0 || s->form->in_place) return;
    if (memcmp(s->in.bytes, s->before.bytes, s->in.count) != 0)
        grid_fail(s->report, "the input of a norm has changed");
}

static void check(scene *s) {
    double left = s->report->truth_s * TRUTH_PER_S;
    const int whole = (double)(s->tokens * s->form->width) <= left;
    for (int64_t i = 0; i < s->tokens && left > 0 && !grid_failed(s->report); i++) {
        int64_t row = i;
        if (!whole && i > 1) row = fig_random_range(&s->random, 0, (int32_t)s->tokens - 1);
        if (!whole && i == 1) row = s->tokens - 1;
        if (s->form->activation >= 0) {
            check_gated(s, row);
        } else {
            check_norm(s, row);
        }
        if (!whole) left -= s->form->width;
    }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

static int64_t run(const rows_form *form, grid_report *report) {
    scene s = {.form = form, .report = report, .random = fig_random_seed(11)};
    s.tokens = (int64_t)form->rows * form->multiple;
    s.in_width = form->activation >= 0 ? 2 * (int64_t)form->width : form->width;
    s.strides[0] = s.in_width * (form->strided ? 2 : 1);
    s.strides[1] = 1;
    int64_t work = s.tokens * form->width * 16;
    if (report == NULL) return work;
    snprintf(report->shape, sizeof report->shape,
             "rows: %s, %d x %d rows of %d, activation %d, residual %d, in place %d, strided %d, "
             "weight offset %g",
             fig_inspect_names_dtype(form->dtype), (int)form->rows, (int)form->multiple,
             (int)form->width, (int)form->activation, (int)form->residual, (int)form->in_place,
             (int)form->strided, (double)form->weight_offset);
    make_memory(&s);
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = form->dtype,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .batch_limit = form->rows,
                           .kv_limit = 16};
    grid_bench_open(&s.bench, report, &spec);
    if (form->activation >= 0) {
        record_gated(&s);
    } else {
        record_norm(&s);
    }
    grid_bench_ready(&s.bench, NULL);
    static const int32_t idle[GRID_ROW_LIMIT];
    grid_bench_step(&s.bench, FIG_OPTIONS(fig_step, .rows = form->rows, .kv_lengths = idle));
    if (!grid_failed(report)) check(&s);
    if (!grid_failed(report)) check_unchanged(&s);
    scene_close(&s);
    return work;
}

static fig_dtype pick_dtype(grid_cursor *cursor) {
    return (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16, FIG_F32);
}

int64_t grid_run_activations(grid_cursor *cursor, grid_report *report) {
    rows_form form = {0};
    form.dtype = pick_dtype(cursor);
    form.activation = GRID_PICK(cursor, FIG_SILU, FIG_GELU, FIG_GELU_TANH, FIG_SWIGLU_LIMITED);
    form.width = GRID_PICK(cursor, 128, 256, 512, 2048, 4096, 11008, 14336, 16384, 28672);
    form.rows = GRID_PICK(cursor, 1, 2, 4, 8, 16);
    int32_t tokens = GRID_PICK(cursor, 1, 2, 4, 8, 16, 32, 64, 128, 512);
    for (form.multiple = tokens; form.multiple > 64; form.multiple /= 2)
        form.rows *= 2;
    return run(&form, report);
}

int64_t grid_run_norms(grid_cursor *cursor, grid_report *report) {
    rows_form form = {.activation = -1, .multiple = 1};
    form.dtype = pick_dtype(cursor);
    form.residual = GRID_PICK(cursor, 0, 1);
    form.weight_offset = (float)GRID_PICK(cursor, 0, 1);
    form.in_place = GRID_PICK(cursor, 0, 1);
    form.strided = GRID_PICK(cursor, 0, 1);
    form.width = GRID_PICK(cursor, 111, 500, 1024, 3072, 3584, 4096, 8192, 16384);
    form.rows = GRID_PICK(cursor, 1, 19, 99, 989);
    return run(&form, report);
}

/* Each head is a row that is normalised separately. */
int64_t grid_run_head_norms(grid_cursor *cursor, grid_report *report) {
    rows_form form = {.activation = -1};
    form.dtype = pick_dtype(cursor);
    form.in_place = GRID_PICK(cursor, 0, 1);
    form.strided = GRID_PICK(cursor, 0, 1);
    form.multiple = GRID_PICK(cursor, 4, 7, 16);
    form.width = GRID_PICK(cursor, 64, 128, 256);
    form.rows = GRID_PICK(cursor, 1, 19, 99, 989);
    return run(&form, report);
}

/* section_rope.c: runs the grids of FlashInfer's RoPE tests: packed segments, positions per row,
 * a table of cosines and sines, partial and llama3 frequencies, in place and not.
 *
 * A decode step has at most 1024 rows of 8 queries. Some of FlashInfer's cases are larger, up to
 * 989 x 204 tokens; only their first 8192 tokens are run. Invariant: q and k are views of one
 * packed array, so their strides are never the default. */
#include "tests/grid/grid_sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/figraph_rope.h"
#include "planner/spec/rope_spec.h"
#include "tools/figraph/inspect/inspect_names.h"
#include "tools/figraph/truth/truth.h"

enum { TOKEN_LIMIT = 1 << 13, TRUTH_PER_S = 2000000 };

typedef enum source { STEP, POSITIONS_32, POSITIONS_64, PACKED } source;

typedef struct rope_form {
    fig_dtype dtype;
    int32_t sequences, length, offset; /* token t of every sequence has position offset + t */
    int32_t q_heads, k_heads, head_dim, in_place, norms;
    int32_t cos_sin_rows; /* 0: cosines and sines are computed */
    source source;
    fig_rope_spec rope;
    const fig_rope_table *table; /* NULL: none */
} rope_form;

typedef struct scene {
    const rope_form *form;
    grid_report *report;
    grid_bench bench;
    fig_random random, noise; /* noise: the generator that filled `packed` */
    grid_array packed, before, q_out, k_out, positions, indptr, offsets, cos_sin, q_norm, k_norm;
    int64_t tokens, strides[3];
    int32_t rows, multiple;
    fig_rope_spec rope; /* with defaults filled in */
    double *turns;      /* [length][rotary_dim / 2][2], in float64; NaN: not computed yet */
} scene;

static int64_t position_of(const scene *s, int64_t token) {
    return s->form->offset + token % s->form->length;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void fill_cos_sin(scene *s) {
    const int32_t dim = s->rope.rotary_dim;
    for (int32_t p = 0; p < s->form->cos_sin_rows; p++)
        for (int32_t i = 0; i < dim / 2; i++) {
            double angle = p * pow((double)s->rope.theta, -2.0 * i / dim);
            grid_store(&s->cos_sin, FIG_F32, (int64_t)p * dim + i, cos(angle));
            grid_store(&s->cos_sin, FIG_F32, (int64_t)p * dim + dim / 2 + i, sin(angle));
        }
}

static void fill(scene *s) {
    const rope_form *form = s->form;
    for (int64_t token = 0; token < s->tokens; token++)
        grid_store(&s->positions, form->source == POSITIONS_64 ? FIG_I64 : FIG_I32, token,
                   (double)position_of(s, token));
    for (int32_t i = 0; i <= form->sequences; i++) {
        int64_t end = (int64_t)i * form->length;
        grid_store(&s->indptr, FIG_I32, i, (double)(end < s->tokens ? end : s->tokens));
        if (i < form->sequences) grid_store(&s->offsets, FIG_I32, i, form->offset);
    }
    fill_cos_sin(s);
    for (int32_t i = 0; form->norms && i < form->head_dim; i++) {
        grid_store(&s->q_norm, form->dtype, i, 1 + 0.25 * fig_random_normal(&s->random));
        grid_store(&s->k_norm, form->dtype, i, 1 + 0.25 * fig_random_normal(&s->random));
    }
}

static void make_turns(scene *s) {
    const size_t count = (size_t)(s->form->length * s->rope.rotary_dim);
    s->turns = malloc(count * sizeof *s->turns);
    if (s->turns == NULL) grid_fail(s->report, "no memory for %zu cosines and sines", count);
    for (size_t i = 0; s->turns != NULL && i < count; i++)
        s->turns[i] = NAN;
}

/* Makes all arrays. If `packed` is rotated in place, keeps a copy to compare with; other inputs do
 * not change. */
static void make_memory(scene *s) {
    const rope_form *form = s->form;
    const fig_dtype positions = form->source == POSITIONS_64 ? FIG_I64 : FIG_I32;
    const int64_t rows = (int64_t)s->rows * s->multiple, outs = form->in_place ? 0 : rows;
    s->noise = s->random;
    grid_array_noise(s->report, &s->packed, rows * s->strides[0], form->dtype, &s->random);
    if (form->in_place) grid_array_copy(s->report, &s->before, &s->packed);
    grid_array_make(s->report, &s->q_out, outs * form->q_heads * form->head_dim, form->dtype);
    grid_array_make(s->report, &s->k_out, outs * form->k_heads * form->head_dim, form->dtype);
    grid_array_make(s->report, &s->positions, rows, positions);
    grid_array_make(s->report, &s->indptr, form->sequences + 1, FIG_I32);
    grid_array_make(s->report, &s->offsets, form->sequences, FIG_I32);
    grid_array_make(s->report, &s->cos_sin, (int64_t)form->cos_sin_rows * s->rope.rotary_dim,
                    FIG_F32);
    grid_array_make(s->report, &s->q_norm, form->head_dim, form->dtype);
    grid_array_make(s->report, &s->k_norm, form->head_dim, form->dtype);
    make_turns(s);
}

static void scene_close(scene *s) {
    grid_array *const arrays[] = {&s->packed, &s->before,  &s->q_out,   &s->k_out,  &s->positions,
                                  &s->indptr, &s->offsets, &s->cos_sin, &s->q_norm, &s->k_norm};
    grid_bench_close(&s->bench);
    free(s->turns);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        grid_array_free(arrays[i]);
}

/* ---- The program --------------------------------------------------------------------------- */

static fig_tensor heads(scene *s, const char *name, int32_t count, const grid_place *place) {
    const fig_tensor_info info = {.name = name,
                                  .dtype = s->form->dtype,
                                  .dims = {FIG_DIM_BATCH, count, s->form->head_dim},
                                  .multiple = s->multiple};
    return grid_bench_tensor(&s->bench, &info, place);
}

static fig_tensor plain(scene *s, const char *name, fig_dtype dtype, const int64_t dims[2],
                        const grid_array *array) {
    const fig_tensor_info info = {.name = name,
                                  .dtype = dtype,
                                  .dims = {dims[0], dims[1]},
                                  .multiple = dims[0] == FIG_DIM_BATCH ? s->multiple : 0};
    return grid_bench_tensor(&s->bench, &info, &(grid_place){.array = array});
}

static void record(scene *s) {
    const rope_form *form = s->form;
    const int64_t k_first = (int64_t)form->q_heads * form->head_dim;
    fig_rope_op op = {.size = sizeof op, .rope = &form->rope, .rope_table = form->table};
    op.q = heads(s, "q", form->q_heads, &(grid_place){&s->packed, 0, s->strides});
    op.k = heads(s, "k", form->k_heads, &(grid_place){&s->packed, k_first, s->strides});
    if (!form->in_place) {
        op.q_out = heads(s, "q_out", form->q_heads, &(grid_place){.array = &s->q_out});
        op.k_out = heads(s, "k_out", form->k_heads, &(grid_place){.array = &s->k_out});
    }
    if (form->source == POSITIONS_32 || form->source == POSITIONS_64)
        op.positions = plain(s, "positions", form->source == POSITIONS_64 ? FIG_I64 : FIG_I32,
                             (int64_t[2]){FIG_DIM_BATCH}, &s->positions);
    if (form->source == PACKED) {
        op.indptr = plain(s, "indptr", FIG_I32, (int64_t[2]){form->sequences + 1}, &s->indptr);
        op.offsets = plain(s, "offsets", FIG_I32, (int64_t[2]){form->sequences}, &s->offsets);
    }
    if (form->cos_sin_rows > 0)
        op.cos_sin = plain(s, "cos_sin", FIG_F32,
                           (int64_t[2]){form->cos_sin_rows, s->rope.rotary_dim}, &s->cos_sin);
    if (form->norms) {
        op.q_norm = plain(s, "q_norm", form->dtype, (int64_t[2]){form->head_dim}, &s->q_norm);
        op.k_norm = plain(s, "k_norm", form->dtype, (int64_t[2]){form->head_dim}, &s->k_norm);
    }
    if (!grid_failed(s->report)) fig_rope(s->bench.program, &op);
}

/* ---- Truth --------------------------------------------------------------------------------- */

/* RoPE keeps the length of a pair, so an element's error is measured relative to its pair's length.
 * The error of an element that does not rotate is relative to that element. */
static void magnitudes(const scene *s, const double *want, double *magnitude) {
    const int32_t half = s->rope.rotary_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        const int32_t first = s->rope.interleaved ? 2 * i : i;
        const int32_t second = s->rope.interleaved ? 2 * i + 1 : i + half;
        magnitude[first] = magnitude[second] = hypot(want[first], want[second]);
    }
    for (int32_t i = 2 * half; i < s->form->head_dim; i++)
        magnitude[i] = fabs(want[i]);
}

/* A case has few positions and many heads, so each position's cosines and sines are computed only
 * once. */
static const double *turns_of(scene *s, const truth_rope_args *args) {
    double *turns = s->turns + (args->position - s->form->offset) * (int64_t)s->rope.rotary_dim;
    if (isnan(turns[0])) truth_rope_turns(args, turns);
    return turns;
}

static void check_head(scene *s, int64_t token, int32_t head) {
    const rope_form *form = s->form;
    const int is_k = head >= form->q_heads;
    const int32_t own = is_k ? head - form->q_heads : head;
    const int32_t count = is_k ? form->k_heads : form->q_heads;
    const float *cos_sin = (const float *)(const void *)s->cos_sin.bytes;
    const int64_t at = token * s->strides[0] + head * s->strides[1];
    double want[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT];
    char name[40];
    truth_rope_args args = {.x = {form->in_place ? s->before.bytes : s->packed.bytes, form->dtype,
                                  s->strides[0], s->strides[1]},
                            .rope = s->rope,
                            .table = form->table,
                            .row = token,
                            .position = position_of(s, token),
                            .head = head, /* k's heads come after q's */
                            .head_dim = form->head_dim,
                            .cos_sin = form->cos_sin_rows == 0
                                           ? NULL
                                           : cos_sin + position_of(s, token) * s->rope.rotary_dim,
                            .norm = !form->norms ? NULL
                                    : is_k       ? s->k_norm.bytes
                                                 : s->q_norm.bytes,
                            .norm_epsilon = 1e-6};
    args.turns = turns_of(s, &args);
    truth_rope(&args, want);
    magnitudes(s, want, magnitude);
    snprintf(name, sizeof name, "rope %s%s%s", fig_inspect_names_dtype(form->dtype),
             form->norms ? ", normalised" : "", form->table != NULL ? ", table" : "");
    const grid_array *out = is_k ? &s->k_out : &s->q_out;
    grid_compare(s->report,
                 &(grid_output){name, form->in_place ? s->packed.bytes : out->bytes, form->dtype,
                                form->in_place ? at : (token * count + own) * form->head_dim,
                                form->head_dim, want, magnitude, grid_peer(form->dtype), 1});
}

static void check(scene *s) {
    const rope_form *form = s->form;
    const int32_t count = form->q_heads + form->k_heads;
    double left = s->report->truth_s * TRUTH_PER_S;
    const int whole = (double)(s->tokens * count * form->head_dim) <= left;
    for (int64_t i = 0; i < s->tokens * count && left > 0 && !grid_failed(s->report); i++) {
        int64_t at = i;
        if (!whole && i > 1) at = fig_random_range(&s->random, 0, (int32_t)(s->tokens * count) - 1);
        if (!whole && i == 1) at = s->tokens * count - 1;
        check_head(s, at / count, (int32_t)(at % count));
        if (!whole) left -= form->head_dim;
    }
}

/* Checks that v, which follows q and k in each packed row, is unchanged. If there are separate
 * outputs, q and k must be unchanged too. */
static void check_unchanged(scene *s) {
    const rope_form *form = s->form;
    const size_t item = s->packed.count / (size_t)(s->rows * s->multiple * s->strides[0]);
    const int64_t first = (form->q_heads + form->k_heads) * form->head_dim;
    if (!form->in_place) {
        const int64_t at = grid_array_changed(&s->packed, form->dtype, s->noise);
        if (at >= 0)
            grid_fail(s->report, "byte %lld of the packed input has changed", (long long)at);
        return;
    }
    for (int64_t token = 0; token < s->tokens; token++) {
        size_t at = (size_t)(token * s->strides[0] + first) * item;
        size_t bytes = (size_t)(s->strides[0] - first) * item;
        if (memcmp(s->packed.bytes + at, s->before.bytes + at, bytes) == 0) continue;
        grid_fail(s->report, "row %lld of the packed input has changed", (long long)token);
        return;
    }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

static void describe(const scene *s) {
    const rope_form *form = s->form;
    snprintf(s->report->shape, sizeof s->report->shape,
             "rope: %s, %d x %d tokens from %d, heads %d and %d x %d, rotary %d, %s, theta %g, "
             "scale %g, llama3 %g, table's factor %g, source %d, in place %d, cos_sin rows %d, "
             "norms %d",
             fig_inspect_names_dtype(form->dtype), (int)form->sequences, (int)form->length,
             (int)form->offset, (int)form->q_heads, (int)form->k_heads, (int)form->head_dim,
             (int)s->rope.rotary_dim, s->rope.interleaved ? "interleaved" : "NeoX",
             (double)s->rope.theta, (double)s->rope.scale, (double)s->rope.llama3_factor,
             form->table != NULL ? form->table->factor : 0, (int)form->source, (int)form->in_place,
             (int)form->cos_sin_rows, (int)form->norms);
}

/* A form with source STEP has at most 1024 tokens, one in each row: a step gives each row one
 * position. */
static int64_t run(const rope_form *form, grid_report *report) {
    scene s = {.form = form, .report = report, .random = fig_random_seed(5)};
    int64_t tokens = (int64_t)form->sequences * form->length;
    s.tokens = tokens < TOKEN_LIMIT ? tokens : TOKEN_LIMIT;
    int64_t work = s.tokens * (form->q_heads + form->k_heads) * form->head_dim * 8;
    if (report == NULL) return work;
    while ((1 << s.multiple) * INT64_C(1024) < s.tokens)
        s.multiple++;
    s.multiple = 1 << s.multiple;
    s.rows = (int32_t)((s.tokens + s.multiple - 1) / s.multiple);
    s.strides[0] = (form->q_heads + 2 * form->k_heads) * form->head_dim;
    s.strides[1] = form->head_dim;
    s.strides[2] = 1;
    if (fig_rope_spec_resolve(&form->rope, form->head_dim, &s.rope) != FIG_OK)
        grid_fail(report, "rope: %s", fig_message());
    describe(&s);
    make_memory(&s);
    if (!grid_failed(report)) fill(&s);
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = form->dtype,
                           .q_heads = form->q_heads,
                           .kv_heads = form->k_heads,
                           .head_dim = 128,
                           .batch_limit = s.rows,
                           .kv_limit = 4096};
    grid_bench_open(&s.bench, report, &spec);
    record(&s);
    grid_bench_ready(&s.bench, NULL);
    static const int32_t ones[GRID_ROW_LIMIT];
    int32_t positions[GRID_ROW_LIMIT];
    for (int32_t row = 0; row < s.rows; row++)
        positions[row] = (int32_t)position_of(&s, row);
    grid_bench_step(&s.bench, FIG_OPTIONS(fig_step, .rows = s.rows, .kv_lengths = ones,
                                          .positions = form->source == STEP ? positions : NULL));
    if (!grid_failed(report)) check(&s);
    if (!grid_failed(report)) check_unchanged(&s);
    scene_close(&s);
    return work;
}

static void pick_common(grid_cursor *cursor, rope_form *form) {
    static const fig_rope_spec llama31 = {.theta = 5e5f,
                                          .llama3_factor = 8,
                                          .llama3_low = 1,
                                          .llama3_high = 4,
                                          .llama3_context = 8192};
    form->dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16);
    form->q_heads = GRID_PICK(cursor, 8, 16);
    form->k_heads = 8;
    form->offset = GRID_PICK(cursor, 0, 15, 99);
    form->head_dim = GRID_PICK(cursor, 64, 128, 256);
    if (GRID_PICK(cursor, 0, 1)) form->rope = llama31;
    form->rope.rotary_dim = form->head_dim * GRID_PICK(cursor, 1, 2, 3, 4) / 4;
    form->in_place = GRID_PICK(cursor, 0, 1);
    form->sequences = GRID_PICK(cursor, 1, 19, 99, 989);
    form->length = GRID_PICK(cursor, 1, 4, 19, 204);
}

int64_t grid_run_rope_packed(grid_cursor *cursor, grid_report *report) {
    rope_form form = {.source = PACKED};
    pick_common(cursor, &form);
    form.rope.interleaved = 1;
    return run(&form, report);
}

int64_t grid_run_rope_positions(grid_cursor *cursor, grid_report *report) {
    rope_form form = {0};
    form.source = (source)GRID_PICK(cursor, POSITIONS_32, POSITIONS_64);
    form.rope.interleaved = GRID_PICK(cursor, 0, 1);
    const int32_t interleaved = form.rope.interleaved;
    pick_common(cursor, &form);
    form.rope.interleaved = interleaved;
    return run(&form, report);
}

int64_t grid_run_rope_cache(grid_cursor *cursor, grid_report *report) {
    static const int32_t tuples[9][9] = {
        {64, 64, 32, 8000, 0, 32, 32, 1, 1},     {256, 128, 4096, 10000, 0, 2, 512, 4, 2},
        {64, 32, 2048, 8432, 0, 2, 199, 4, 1},   {64, 64, 32, 8000, 1, 32, 32, 1, 1},
        {256, 128, 4096, 9231, 1, 3, 231, 4, 2}, {192, 128, 4096, 9231, 0, 3, 231, 3, 1},
        {80, 64, 1024, 10000, 1, 4, 64, 2, 2},   {112, 64, 2048, 12000, 0, 5, 77, 2, 1},
        {160, 96, 8192, 10000, 1, 2, 128, 6, 3}};
    rope_form form = {0};
    const int32_t *tuple = tuples[GRID_PICK(cursor, 0, 1, 2, 3, 4, 5, 6, 7, 8)];
    form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16, FIG_F32);
    form.source = (source)GRID_PICK(cursor, POSITIONS_32, POSITIONS_64, PACKED);
    form.in_place = GRID_PICK(cursor, 0, 1);
    form.head_dim = tuple[0];
    form.rope =
        (fig_rope_spec){.rotary_dim = tuple[1], .theta = (float)tuple[3], .interleaved = tuple[4]};
    form.cos_sin_rows = tuple[2];
    form.sequences = tuple[5];
    form.length = tuple[6];
    form.q_heads = tuple[7];
    form.k_heads = tuple[8];
    return run(&form, report);
}

/* As in qwen3, each head is normalised before RoPE. The positions are those of the step. */
int64_t grid_run_rope_norm(grid_cursor *cursor, grid_report *report) {
    rope_form form = {.norms = 1, .length = 1, .source = STEP};
    form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16, FIG_F32);
    form.rope.interleaved = GRID_PICK(cursor, 0, 1);
    form.head_dim = GRID_PICK(cursor, 64, 80, 128, 256);
    form.q_heads = GRID_PICK(cursor, 4, 16);
    form.k_heads = GRID_PICK(cursor, 1, 2, 4);
    form.in_place = GRID_PICK(cursor, 0, 1);
    form.offset = GRID_PICK(cursor, 0, 99, 4000, 1000003);
    form.sequences = GRID_PICK(cursor, 1, 19, 99, 989);
    return run(&form, report);
}

enum { LINEAR = FIG_ROPE_LONGROPE + 1, LONGROPE_SHORT };

/* Gives the form one of the kinds of RoPE scaling that the config files of models name. Linear
 * scaling sets the rope's own scale; every other kind needs a table. */
static void scale(grid_report *report, rope_form *form, int32_t kind, fig_rope_table *table) {
    float factors[TRUTH_HEAD_DIM_LIMIT / 2];
    fig_rope_scaling scaling = {.size = sizeof scaling,
                                .kind = kind == LONGROPE_SHORT ? FIG_ROPE_LONGROPE
                                                               : (fig_rope_kind)kind,
                                .factor = 32,
                                .context = 4096,
                                .tokens = kind == LONGROPE_SHORT ? 4096 : 131072,
                                .short_factors = factors,
                                .long_factors = factors};
    if (kind == LINEAR) {
        form->rope.scale = 4;
        return;
    }
    for (int32_t i = 0; i < form->rope.rotary_dim / 2; i++)
        factors[i] = 1 + (kind == LONGROPE_SHORT ? 0.01f : 0.75f) * (float)i;
    if (fig_rope_scale(table, &form->rope, form->head_dim, &scaling) != FIG_OK)
        grid_fail(report, "rope: %s", fig_message());
    form->table = table;
}

int64_t grid_run_rope_tables(grid_cursor *cursor, grid_report *report) {
    rope_form form = {.q_heads = 4, .k_heads = 2, .sequences = 19, .length = 19};
    fig_rope_table table;
    form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16, FIG_F32);
    const int32_t kind = GRID_PICK(cursor, LINEAR, FIG_ROPE_DYNAMIC, FIG_ROPE_YARN,
                                   FIG_ROPE_LONGROPE, LONGROPE_SHORT);
    form.rope.interleaved = GRID_PICK(cursor, 0, 1);
    form.source = (source)GRID_PICK(cursor, POSITIONS_32, POSITIONS_64, PACKED);
    form.head_dim = GRID_PICK(cursor, 64, 96, 256);
    form.rope.rotary_dim = form.head_dim / GRID_PICK(cursor, 1, 2);
    form.norms = form.in_place = GRID_PICK(cursor, 0, 1);
    form.offset = GRID_PICK(cursor, 4090, 131000);
    if (report != NULL) scale(report, &form, kind, &table);
    return run(&form, report);
}

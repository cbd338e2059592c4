/* test_scores.c: tests programs with scores: the recorded nodes, the contents of a file, the
 * results of an engine, and refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "graphs/files/codec.h"
#include "graphs/files/sections.h"
#include "graphs/record/program.h"
#include "graphs/view/score_units.h"
#include "include/figraph_inspect.h"
#include "include/figraph_parallel.h"
#include "include/figraph_scores.h"
#include "tests/support/files/forgery.h"
#include "tests/support/random.h"

enum { ROWS = 3, Q_HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, KV_LIMIT = 64, PAGES = 16 };

/* ALiBi, in words that have no form of their own. */
static const char apart[] = "score + slope[head] * float(kv_pos) - slope[head] * float(q_pos)";

static fig_spec spec_of(int32_t row_tokens) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_F32,
                      .q_heads = Q_HEADS,
                      .kv_heads = KV_HEADS,
                      .head_dim = HEAD_DIM,
                      .page_size = 16,
                      .batch_limit = ROWS,
                      .kv_limit = KV_LIMIT,
                      .row_tokens = row_tokens};
}

/* The tensors of a program. */
typedef struct tensors {
    fig_tensor q, k, v, out, lse, slope, sinks;
    fig_cache cache;
} tensors;

static fig_tensor declare(fig_program *program, const char *name, fig_dtype dtype, int64_t a,
                          int64_t b, int64_t c, int64_t d) {
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = dtype,
                            .dims = {a, b, c, d}};
    while (info.rank < 4 && info.dims[info.rank] != 0)
        info.rank++;
    return fig_program_tensor(program, &info);
}

static fig_program *begin(const fig_spec *spec, tensors *t) {
    fig_program *program;
    assert_int_equal(fig_program_create(&program, spec), FIG_OK);
    t->q = declare(program, "q", FIG_F32, FIG_DIM_BATCH, Q_HEADS, HEAD_DIM, 0);
    t->k = declare(program, "k", FIG_F32, FIG_DIM_BATCH, KV_HEADS, HEAD_DIM, 0);
    t->v = declare(program, "v", FIG_F32, FIG_DIM_BATCH, KV_HEADS, HEAD_DIM, 0);
    t->out = declare(program, "out", FIG_F32, FIG_DIM_BATCH, Q_HEADS, HEAD_DIM, 0);
    t->lse = declare(program, "lse", FIG_F32, FIG_DIM_BATCH, Q_HEADS, 0, 0);
    t->slope = declare(program, "slope", FIG_F32, Q_HEADS, 0, 0, 0);
    t->sinks = declare(program, "sinks", FIG_F32, Q_HEADS, 0, 0, 0);
    t->cache = (fig_cache){
        .k = declare(program, "k_cache", FIG_F32, FIG_DIM_PAGES, 16, KV_HEADS, HEAD_DIM),
        .v = declare(program, "v_cache", FIG_F32, FIG_DIM_PAGES, 16, KV_HEADS, HEAD_DIM),
        .page_table = declare(program, "page_table", FIG_I32, ROWS, KV_LIMIT / 16, 0, 0)};
    return program;
}

static fig_score *parse(const char *text) {
    fig_score *score;
    if (fig_score_parse(&score, text) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    return score;
}

/* Records attention with the score, and RoPE and append if `is_decode`. */
static fig_program *record(const char *text, int is_decode, int has_alibi) {
    const fig_spec spec = spec_of(1);
    tensors t;
    fig_program *program = begin(&spec, &t);
    fig_score *score = text == NULL ? NULL : parse(text);
    const fig_tensor alibi = has_alibi ? t.slope : (fig_tensor){0};
    if (is_decode) {
        fig_decode_attention(program,
                             FIG_OPTIONS(fig_decode_attention_op, .q = t.q, .k = t.k, .v = t.v,
                                         .out = t.out, .lse = t.lse, .cache = t.cache,
                                         .alibi = alibi, .score = score));
    } else {
        fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = t.k, .v = t.v, .cache = t.cache));
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = t.q, .out = t.out, .lse = t.lse,
                                           .cache = t.cache, .alibi = alibi, .score = score));
    }
    fig_score_destroy(score);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

/* ---- Recording */

static uint16_t op_of(const fig_program *program, uint32_t node) {
    return fig_program_view_of(program)->nodes[node].op;
}

static void a_score_that_attention_has_fields_for_is_recorded_as_those(void **state) {
    (void)state;
    fig_program *score = record("score + slope[head] * (kv_pos - q_pos)", 0, 0);
    fig_program *fields = record(NULL, 0, 1);
    const fig_program_view *a = fig_program_view_of(score), *b = fig_program_view_of(fields);
    assert_int_equal(op_of(score, 1), FIG_OP_ATTENTION);
    assert_int_equal(a->score_units, 0);
    assert_memory_equal(a->operands, b->operands, a->operand_count * sizeof *a->operands);
    assert_int_equal(a->attribute_bytes, b->attribute_bytes);
    assert_memory_equal(a->attributes, b->attributes, a->attribute_bytes);
    fig_program_destroy(score);
    fig_program_destroy(fields);
    score = record("30.0 * tanh(score / 30.0)", 1, 0);
    assert_int_equal(op_of(score, 0), FIG_OP_DECODE_ATTENTION);
    fig_attention_attributes attributes;
    fig_program_view_attributes(fig_program_view_of(score), fig_program_view_of(score)->nodes, 0,
                                &attributes, sizeof attributes);
    assert_true(attributes.soft_cap == 30.0f);
    fig_program_destroy(score);
}

static void other_scores_are_nodes_of_their_own(void **state) {
    (void)state;
    fig_program *alone = record(apart, 0, 0), *decode = record(apart, 1, 0);
    assert_int_equal(op_of(alone, 1), FIG_OP_SCORED_ATTENTION);
    assert_int_equal(fig_program_view_of(decode)->node_count, 3);
    assert_int_equal(op_of(decode, 0), FIG_OP_ROPE);
    assert_int_equal(op_of(decode, 1), FIG_OP_APPEND_KV);
    assert_int_equal(op_of(decode, 2), FIG_OP_SCORED_ATTENTION);
    assert_int_equal(fig_score_units_count(fig_program_view_of(decode)), 1);
    fig_score score;
    assert_int_equal(fig_score_units_read(fig_program_view_of(decode), 1, &score), FIG_OK);
    assert_int_equal(score.arrays[0].count, Q_HEADS); /* from the tensor */
    fig_program_destroy(alone);
    fig_program_destroy(decode);
}

static void equal_scores_are_held_once(void **state) {
    const fig_spec spec = spec_of(1);
    tensors t;
    (void)state;
    fig_program *program = begin(&spec, &t);
    static const char *const texts[] = {"score * 2.0", "2.0 * score", "score * 3.0"};
    for (int i = 0; i < 3; i++) {
        fig_score *score = parse(texts[i]);
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = t.q, .out = t.out,
                                           .cache = t.cache, .score = score));
        fig_score_destroy(score);
    }
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_score_units_count(fig_program_view_of(program)), 2);
    fig_program_destroy(program);
}

/* ---- Refusals */

typedef struct refusal {
    const char *text, *says;
    fig_status status;
    void (*change)(tensors *t, fig_attention_op *op);
} refusal;

static void give_alibi(tensors *t, fig_attention_op *op) {
    op->alibi = t->slope;
}
static void give_cap(tensors *t, fig_attention_op *op) {
    (void)t;
    op->soft_cap = 30;
}
static void give_sinks(tensors *t, fig_attention_op *op) {
    op->sinks = t->sinks;
}
static void give_array(tensors *t, fig_attention_op *op) {
    op->score_arrays[0] = t->q;
}
static void give_more(tensors *t, fig_attention_op *op) {
    op->score_arrays[1] = t->slope;
}
static void give_wrong(tensors *t, fig_attention_op *op) {
    (void)t;
    op->score_arrays[0].id = 1000;
}

static void fields_that_a_score_excludes_are_refused_by_name(void **state) {
    static const refusal cases[] = {
        {"score * 2.0", "alibi is tensor", FIG_INVALID, give_alibi},
        {"score * 2.0", "soft_cap is 30", FIG_INVALID, give_cap},
        {"30.0 * tanh(score / 30.0)", "soft_cap is 30", FIG_INVALID, give_cap},
        {"weights sigmoid; score", "sinks are given", FIG_INVALID, give_sinks},
        {"score + bias[kv_pos]", "array bias has no tensor", FIG_INVALID, NULL},
        {"score + bias[kv_pos]", "which must have one dim", FIG_INVALID, give_array},
        {"score + bias[kv_pos]", "is tensor 1000 of", FIG_INVALID, give_wrong},
        {"score + slope[kv_pos]", "score_arrays[1] is tensor", FIG_INVALID, give_more},
        {"f32 slope[5]; score + slope[kv_pos]", "at least the 5 elements", FIG_INVALID, NULL},
        {"i32 slope[]; score + slope[kv_pos]", "dtype", FIG_INVALID, NULL},
    };
    const fig_spec spec = spec_of(1);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tensors t;
        fig_program *program = begin(&spec, &t);
        fig_score *score = parse(cases[i].text);
        fig_attention_op op = {
            .size = sizeof op, .q = t.q, .out = t.out, .cache = t.cache, .score = score};
        if (cases[i].change != NULL) cases[i].change(&t, &op);
        fig_attention(program, &op);
        fig_score_destroy(score);
        assert_int_equal(fig_program_finish(program), cases[i].status);
        if (strstr(fig_message(), cases[i].says) == NULL) fail_msg("%zu: %s", i, fig_message());
        fig_program_destroy(program);
    }
}

static void ranks_refuse_a_score(void **state) {
    (void)state;
    fig_graphs *graphs, *share;
    fig_program *program = record(apart, 0, 0);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    assert_int_equal(fig_graphs_rank(&share, graphs, 2), FIG_UNSUPPORTED);
    assert_non_null(strstr(fig_message(), "ranks cannot divide it"));
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

static void the_standard_step_refuses_what_it_cannot_give_a_score(void **state) {
    static const struct {
        const char *preset, *text, *says;
        fig_status status;
    } cases[] = {
        {"llama-3.1-8b", "score + slope[head]", "array slope has no number", FIG_INVALID},
        {"llama-3.1-8b", "i32 start[]; see start[q_pos]:q_pos; score", "such as i32 start[32];",
         FIG_INVALID},
        {"gemma-2-9b", "score * 2.0", "soft_cap is 50 beside a score", FIG_INVALID},
        {"deepseek-v3", "score * 2.0", "latent attention evaluates no score", FIG_UNSUPPORTED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = {.size = sizeof spec};
        fig_program *program;
        fig_score *score = parse(cases[i].text);
        if (fig_spec_preset(&spec, cases[i].preset)) fail_msg("%s", fig_message());
        if (fig_program_create(&program, &spec)) fail_msg("%s", fig_message());
        fig_program_decode_step_score(program, score);
        assert_int_equal(fig_program_finish(program), cases[i].status);
        if (strstr(fig_message(), cases[i].says) == NULL) fail_msg("%zu: %s", i, fig_message());
        fig_program_destroy(program);
        fig_score_destroy(score);
    }
}

/* ---- Steps */

/* The memory of an engine; the same for every program. */
typedef struct memory {
    float q[ROWS * Q_HEADS * HEAD_DIM], out[ROWS * Q_HEADS * HEAD_DIM], lse[ROWS * Q_HEADS];
    float k[ROWS * KV_HEADS * HEAD_DIM], v[ROWS * KV_HEADS * HEAD_DIM];
    float slope[Q_HEADS], sinks[Q_HEADS];
    float k_cache[PAGES * 16 * KV_HEADS * HEAD_DIM], v_cache[PAGES * 16 * KV_HEADS * HEAD_DIM];
    int32_t page_table[ROWS * KV_LIMIT / 16];
} memory;

static memory *fill(void) {
    memory *m = calloc(1, sizeof *m);
    fig_random random = fig_random_seed(7);
    float *const floats[] = {m->q, m->k, m->v, m->k_cache, m->v_cache};
    const size_t counts[] = {sizeof m->q, sizeof m->k, sizeof m->v, sizeof m->k_cache,
                             sizeof m->v_cache};
    for (size_t i = 0; i < 5; i++)
        for (size_t n = 0; n < counts[i] / sizeof(float); n++)
            floats[i][n] = (float)fig_random_range(&random, -1000, 1000) / 500;
    for (int i = 0; i < Q_HEADS; i++)
        m->slope[i] = 0.03f * (float)(i + 1);
    for (int i = 0; i < ROWS * KV_LIMIT / 16; i++)
        m->page_table[i] = (i * 5 + 3) % PAGES;
    return m;
}

/* Runs a step of the graphs on the host device. */
static memory *run(const fig_graphs *graphs) {
    static const int32_t lengths[ROWS] = {48, 0, 17};
    memory *m = fill();
    fig_engine *engine;
    const struct {
        const char *name;
        void *address;
        size_t bytes;
    } all[] = {{"q", m->q, sizeof m->q},
               {"k", m->k, sizeof m->k},
               {"v", m->v, sizeof m->v},
               {"out", m->out, sizeof m->out},
               {"lse", m->lse, sizeof m->lse},
               {"slope", m->slope, sizeof m->slope},
               {"sinks", m->sinks, sizeof m->sinks},
               {"k_cache", m->k_cache, sizeof m->k_cache},
               {"v_cache", m->v_cache, sizeof m->v_cache},
               {"page_table", m->page_table, sizeof m->page_table}};
    if (fig_engine_open(&engine, graphs,
                        FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)))
        fail_msg("%s", fig_message());
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = all[i].name,
                                                .address = all[i].address, .bytes = all[i].bytes)))
            fail_msg("%s", fig_message());
    if (fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths)) ||
        fig_engine_wait(engine, 60000000))
        fail_msg("%s", fig_message());
    fig_engine_close(engine);
    return m;
}

static memory *run_program(fig_program *program) {
    fig_graphs *graphs;
    if (fig_graphs_lower(&graphs, program, NULL) != FIG_OK) fail_msg("%s", fig_message());
    memory *m = run(graphs);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
    return m;
}

static void assert_near(const memory *a, const memory *b) {
    for (size_t i = 0; i < sizeof a->out / sizeof a->out[0]; i++)
        if (!(fabsf(a->out[i] - b->out[i]) < 1e-4f)) fail_msg("out[%zu]", i);
    for (size_t i = 0; i < sizeof a->lse / sizeof a->lse[0]; i++)
        if (a->lse[i] != b->lse[i] && !(fabsf(a->lse[i] - b->lse[i]) < 1e-4f))
            fail_msg("lse[%zu]", i);
}

static void a_step_with_a_score_is_the_step_with_the_fields_it_expresses(void **state) {
    (void)state;
    for (int is_decode = 0; is_decode < 2; is_decode++) {
        memory *score = run_program(record(apart, is_decode, 0));
        memory *fields = run_program(record(NULL, is_decode, 1));
        memory *plain = run_program(record(NULL, is_decode, 0));
        assert_near(score, fields);
        assert_true(fabsf(score->lse[0] - plain->lse[0]) > 1e-2f); /* the score does something */
        free(score);
        free(fields);
        free(plain);
    }
}

/* ---- Files */

static void a_file_keeps_the_score_and_its_bytes(void **state) {
    fig_graphs *graphs, *again;
    uint8_t *bytes, *twice;
    size_t count, counted;
    (void)state;
    fig_program *program = record(apart, 1, 0);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    if (fig_graphs_parse(&again, bytes, count) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_write(again, &twice, &counted), FIG_OK);
    assert_int_equal(count, counted);
    assert_memory_equal(bytes, twice, count);
    memory *a = run(graphs), *b = run(again);
    assert_memory_equal(a->out, b->out, sizeof a->out);
    free(a);
    free(b);
    free(bytes);
    free(twice);
    fig_graphs_destroy(graphs);
    fig_graphs_destroy(again);
    fig_program_destroy(program);
}

/* Writes a word of the section of scores and parses the file. */
static fig_status parse_changed(const uint8_t *bytes, size_t count, size_t word, uint32_t value,
                                size_t units) {
    fig_forgery image;
    fig_graphs *graphs;
    size_t made;
    uint32_t s = 0;
    fig_forgery_open(&image, bytes, count);
    while (memcmp(image.sections[s].entry.name, "SCOR", 4) != 0)
        s++;
    memcpy(image.sections[s].raw + word * 4, &value, sizeof value);
    if (units > 0) image.sections[s].raw_bytes -= units * sizeof(fig_score_unit);
    uint8_t *file = fig_forgery_write(&image, 0, &made);
    const fig_status status = fig_graphs_parse(&graphs, file, made);
    fig_graphs_destroy(graphs);
    free(file);
    fig_forgery_close(&image);
    return status;
}

static void a_damaged_score_is_refused_by_name(void **state) {
    static const struct {
        size_t word;
        uint32_t value;
        size_t units;
        const char *says;
    } cases[] = {
        {0, 0, 0, "its counts are beyond their limits"},
        {0, 129, 0, "its counts are beyond their limits"},
        {1, 9, 0, "its counts are beyond their limits"},
        {3, 1, 0, "its counts are beyond their limits"},
        {2, 2, 0, "weights are 2"},
        {2, 1, 1, "its counts are beyond their limits, or its units end"},
        {4, 0x20, 0, "is code 32"},                              /* the array's name */
        {10, FIG_F16, 0, "dtype is 2"},                          /* its dtype */
        {11, 0, 0, "has no count"},                              /* its count */
        {11, Q_HEADS + 1, 0, "at least the 5 elements"},         /* more than its tensor */
        {12, 0, 0, "op is 0"},                                   /* the first node */
        {12, FIG_SCORE_Q_POS | FIG_F32 << 16, 0, "normal form"}, /* its type */
    };
    fig_graphs *graphs;
    uint8_t *bytes;
    size_t count;
    (void)state;
    fig_program *program = record(apart, 1, 0);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse_changed(bytes, count, cases[i].word, cases[i].value, cases[i].units),
                         FIG_FORMAT);
        if (strstr(fig_message(), cases[i].says) == NULL) fail_msg("%zu: %s", i, fig_message());
    }
    free(bytes);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

static void an_inspection_tells_the_text(void **state) {
    const fig_inspection *told;
    fig_graphs *graphs;
    (void)state;
    fig_program *program = record(apart, 1, 0);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    assert_int_equal(fig_inspection_open(&told, graphs, 1), FIG_OK);
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    const int32_t count = fig_inspection_node_fields(told, 2, fields);
    assert_string_equal(fields[count - 1].name, "score");
    assert_int_equal(fields[count - 1].kind, FIG_INSPECT_SCORE);
    fig_score *score = parse("f32 slope[4]; score + slope[head] * float(kv_pos) - "
                             "slope[head] * float(q_pos)");
    assert_string_equal(fields[count - 1].word, fig_score_text(score));
    fig_score_destroy(score);
    fig_inspection_close(told);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_score_that_attention_has_fields_for_is_recorded_as_those),
        cmocka_unit_test(other_scores_are_nodes_of_their_own),
        cmocka_unit_test(equal_scores_are_held_once),
        cmocka_unit_test(fields_that_a_score_excludes_are_refused_by_name),
        cmocka_unit_test(ranks_refuse_a_score),
        cmocka_unit_test(the_standard_step_refuses_what_it_cannot_give_a_score),
        cmocka_unit_test(a_step_with_a_score_is_the_step_with_the_fields_it_expresses),
        cmocka_unit_test(a_file_keeps_the_score_and_its_bytes),
        cmocka_unit_test(a_damaged_score_is_refused_by_name),
        cmocka_unit_test(an_inspection_tells_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

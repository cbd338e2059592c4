/* test_check.c: tests how figraph replay --check judges a step's q and k: they must be rotated, or
 * unchanged if attention rotates its own copies.
 *
 * Attention rotates its own copies only on a GPU. Here the fake driver stands in for the GPU, and
 * runs reference kernels. */
#include "tools/figraph/step/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/fault.h"
#include "tests/support/place.h"
#include "tools/figraph/step/standard.h"
#include "tools/figraph/step/standard_score.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth_latent.h"

enum { HEAD_DIM = 64, KV_HEADS = 2, ROWS = 3, STEPS = 6, WAIT_US = 60000000 };

static const fig_spec plain = {.size = sizeof plain,
                               .layers = 2,
                               .dtype = FIG_F16,
                               .q_heads = 4,
                               .kv_heads = KV_HEADS,
                               .head_dim = HEAD_DIM,
                               .ffn_width = 16,
                               .batch_limit = 4,
                               .kv_limit = 64,
                               .page_size = 16};

typedef struct bench {
    fig_graphs *graphs;
    fig_session session;
    fig_schedule schedule;
    fig_check check;
} bench;

/* A step over latent caches. */
static const fig_spec latent = {.size = sizeof latent,
                                .layers = 2,
                                .dtype = FIG_BF16,
                                .q_heads = 8,
                                .kv_heads = 1,
                                .head_dim = TRUTH_LATENT_KEY_DIM,
                                .latent_dim = TRUTH_LATENT_DIM,
                                .latent_norm_epsilon = 1e-5f,
                                .sm_scale = 0.0625f,
                                .rope = {.rotary_dim = TRUTH_LATENT_KEY_DIM - TRUTH_LATENT_DIM},
                                .batch_limit = 4,
                                .kv_limit = 64,
                                .page_size = 16};
static const char parts[] = "q and q_rope"; /* stands for a score */

/* text: the score of the attention; NULL: none; parts: q is in two tensors */
static void record(fig_program *program, const char *text) {
    fig_score *score = NULL;
    if (text == NULL || text == parts) {
        (text == parts ? fig_program_decode_step_parts : fig_program_decode_step)(program);
        return;
    }
    if (fig_score_parse(&score, text) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_decode_step_score(program, score);
    fig_score_destroy(score);
}

static fig_graphs *make_scored(const fig_spec *spec, const char *text) {
    fig_program *program;
    fig_graphs *graphs;
    fig_traits traits = {.size = sizeof traits};
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    assert_int_equal(fig_program_create(&program, spec), FIG_OK);
    record(program, text);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_lower_options options = {.size = sizeof options, .traits = &traits};
    if (fig_graphs_lower(&graphs, program, &options) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

static fig_graphs *make_graphs(const fig_spec *spec) {
    return make_scored(spec, NULL);
}

static void open_graphs(bench *b, fig_graphs *graphs, fig_device device) {
    *b = (bench){.graphs = graphs};
    const fig_session_options options = {
        .graphs = b->graphs,
        .device = device,
        .schedule = {.graphs = b->graphs, .rows = ROWS, .steps = STEPS, .seed = 1}};
    assert_int_equal(fig_session_open(&b->session, &options), FIG_EXIT_FINE);
    assert_int_equal(fig_schedule_init(&b->schedule, &options.schedule), FIG_EXIT_FINE);
}

static void open_bench(bench *b, const fig_spec *spec, fig_device device) {
    open_graphs(b, make_graphs(spec), device);
}

static void close_bench(bench *b) {
    fig_schedule_finish(&b->schedule);
    fig_session_close(&b->session);
    fig_graphs_destroy(b->graphs);
}

static void step(bench *b) {
    fig_schedule_advance(&b->schedule);
    const fig_step step = {.size = sizeof step,
                           .rows = b->schedule.rows,
                           .kv_lengths = b->schedule.lengths,
                           .sequences = b->session.sequences};
    assert_int_equal(fig_session_feed(&b->session, &b->schedule), FIG_EXIT_FINE);
    assert_int_equal(fig_engine_step(b->session.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(b->session.engine, WAIT_US), FIG_OK);
}

/* Runs steps, and checks all but the last one. In that one, row 0 is past its first token, so that
 * RoPE changes it. */
static void step_until_last(bench *b) {
    step(b);
    for (int i = 1; i < STEPS; i++) {
        assert_int_equal(fig_check_step(&b->check, &b->session, &b->schedule), FIG_EXIT_FINE);
        step(b);
    }
    assert_true(b->schedule.lengths[0] > 1);
}

static int check(bench *b) {
    return fig_check_step(&b->check, &b->session, &b->schedule);
}

/* Returns 1 if q or k of row 0 is unchanged by the step. */
static int stayed(bench *b, fig_session_kind kind) {
    const fig_session_tensor *tensor = fig_session_find(&b->session, 1, kind);
    uint8_t *got = malloc(tensor->row_bytes);
    assert_non_null(got);
    assert_int_equal(fig_session_read(&b->session, tensor, 0, tensor->row_bytes, got),
                     FIG_EXIT_FINE);
    const int same = memcmp(got, tensor->mirror, tensor->row_bytes) == 0;
    free(got);
    return same;
}

static void put(bench *b, const fig_session_tensor *tensor, size_t offset, size_t bytes,
                const void *from) {
    const fig_span span = {
        .size = sizeof span, .name = tensor->info.name, .offset = offset, .bytes = bytes};
    assert_int_equal(fig_engine_write(b->session.engine, &span, from), FIG_OK);
}

/* ---- Attention applies RoPE itself --------------------------------------------------------- */

static void heads_that_stay_as_they_were_are_judged_as_if_they_had_turned(void **state) {
    (void)state;
    static const fig_dtype dtypes[] = {FIG_F16, FIG_BF16}, stored[] = {0, FIG_E4M3};
    for (int i = 0; i < 16; i++) {
        bench b;
        fig_spec spec = plain;
        spec.dtype = dtypes[i & 1];
        spec.kv_dtype = stored[i >> 1 & 1];
        spec.head_dim = spec.kv_dtype == FIG_E4M3 ? 128 : HEAD_DIM;
        spec.qk_norm_epsilon = i & 4 ? 1e-6f : 0;
        spec.row_tokens = i & 8 ? 2 : 1;
        open_bench(&b, &spec, FIG_DEVICE_CUDA);
        step_until_last(&b);
        assert_true(stayed(&b, FIG_SESSION_Q));
        assert_true(stayed(&b, FIG_SESSION_K));
        assert_int_equal(check(&b), FIG_EXIT_FINE);
        assert_int_equal(fig_check_caches(&b.check, &b.session), FIG_EXIT_FINE);
        close_bench(&b);
    }
}

/* Rotates `count` heads of row 0 of the last layer's q or k in float64. */
static void turn_heads(bench *b, fig_session_kind kind, int32_t count) {
    const fig_session_tensor *tensor = fig_session_find(&b->session, 1, kind);
    uint16_t turned[HEAD_DIM];
    for (int32_t head = 0; head < count; head++) {
        double due[HEAD_DIM];
        const truth_rope_args args = {
            .x = {.base = tensor->mirror, .dtype = FIG_F16, .head_stride = HEAD_DIM},
            .rope = b->session.info.spec->rope,
            .position = b->schedule.lengths[0] - 1,
            .head = head,
            .head_dim = HEAD_DIM};
        truth_rope(&args, due);
        for (int32_t i = 0; i < HEAD_DIM; i++)
            truth_store(turned, FIG_F16, i, due[i]);
        put(b, tensor, (size_t)head * sizeof turned, sizeof turned, turned);
    }
}

static void a_head_that_turned_beside_others_that_did_not_is_a_fault(void **state) {
    (void)state;
    static const fig_session_kind kinds[] = {FIG_SESSION_Q, FIG_SESSION_K};
    for (int i = 0; i < 2; i++) {
        bench b;
        open_bench(&b, &plain, FIG_DEVICE_CUDA);
        step_until_last(&b);
        turn_heads(&b, kinds[i], 1);
        assert_int_equal(check(&b), FIG_EXIT_FAILED);
        close_bench(&b);
    }
}

/* Copies the f16 numbers of row 0's newest token from the cache. */
static size_t newest(bench *b, const fig_session_tensor *cache, uint16_t head[HEAD_DIM]) {
    const int32_t token = b->schedule.lengths[0] - 1;
    const int32_t *pages =
        b->session.page_table + (ptrdiff_t)b->session.sequences[0] * b->session.sequence_pages;
    const size_t row = (size_t)pages[token / 16] * 16 + (size_t)(token % 16);
    const size_t offset = row * KV_HEADS * HEAD_DIM * sizeof *head;
    assert_int_equal(fig_session_read(&b->session, cache, offset, HEAD_DIM * sizeof *head, head),
                     FIG_EXIT_FINE);
    return offset;
}

static void appended_keys_are_rotated_to_the_unit(void **state) {
    (void)state;
    for (int wrong = 0; wrong < 3; wrong++) {
        bench b;
        uint16_t head[HEAD_DIM];
        open_bench(&b, &plain, FIG_DEVICE_CUDA);
        step_until_last(&b);
        const fig_session_tensor *cache = fig_session_find(&b.session, 1, FIG_SESSION_K_CACHE);
        const size_t offset = newest(&b, cache, head);
        if (wrong == 1) head[HEAD_DIM - 1] ^= 1;
        if (wrong == 2)
            memcpy(head, fig_session_find(&b.session, 1, FIG_SESSION_K)->mirror, sizeof head);
        put(&b, cache, offset, sizeof head, head);
        assert_int_equal(check(&b), wrong ? FIG_EXIT_FAILED : FIG_EXIT_FINE);
        close_bench(&b);
    }
}

/* ---- RoPE is a launch of its own ----------------------------------------------------------- */

static void where_rope_writes_a_head_that_stayed_is_a_fault(void **state) {
    (void)state;
    static const fig_session_kind kinds[] = {FIG_SESSION_Q, FIG_SESSION_K};
    for (int i = 0; i < 2; i++) {
        bench b;
        open_bench(&b, &plain, FIG_DEVICE_HOST);
        step_until_last(&b);
        assert_false(stayed(&b, kinds[i]));
        const fig_session_tensor *tensor = fig_session_find(&b.session, 1, kinds[i]);
        put(&b, tensor, 0, ROWS * tensor->row_bytes, tensor->mirror);
        assert_int_equal(check(&b), FIG_EXIT_FAILED);
        close_bench(&b);
    }
}

/* ---- Latent caches ------------------------------------------------------------------------- */

/* A fault in the newest step: q_rope that stayed, or a changed value of a tensor. */
static void spoil(bench *b, fig_session_kind kind, int stays) {
    const fig_session_tensor *tensor = fig_session_find(&b->session, 1, kind);
    uint16_t value;
    if (stays) {
        put(b, tensor, 0, ROWS * tensor->row_bytes, tensor->mirror);
        return;
    }
    assert_int_equal(fig_session_read(&b->session, tensor, 0, sizeof value, &value), FIG_EXIT_FINE);
    value ^= 1 << 10;
    put(b, tensor, 0, sizeof value, &value);
}

static void q_in_two_tensors_is_checked_in_both(void **state) {
    (void)state;
    static const struct {
        fig_session_kind kind;
        int stays, code;
    } faults[] = {
        {FIG_SESSION_K_SCALE, 0, FIG_EXIT_FINE}, /* the step has none: no fault */
        {FIG_SESSION_Q, 0, FIG_EXIT_FAILED},      {FIG_SESSION_Q, 1, FIG_EXIT_FINE},
        {FIG_SESSION_Q_ROPE, 0, FIG_EXIT_FAILED}, {FIG_SESSION_Q_ROPE, 1, FIG_EXIT_FAILED},
        {FIG_SESSION_OUT, 0, FIG_EXIT_FAILED}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        bench b;
        open_graphs(&b, make_scored(&latent, parts), FIG_DEVICE_HOST);
        step_until_last(&b);
        if (fig_session_find(&b.session, 1, faults[i].kind) != NULL)
            spoil(&b, faults[i].kind, faults[i].stays);
        assert_int_equal(check(&b), faults[i].code);
        close_bench(&b);
    }
}

/* ---- Scores -------------------------------------------------------------------------------- */

/* The first is a node of its own; the second becomes attention's alibi and soft_cap. */
static const char *const scores[] = {
    "f32 slope[4]; f32 cap; score * cap + slope[head] * (kv_pos - q_pos)",
    "f32 slope[4]; 20 * tanh((score + slope[head] * (kv_pos - q_pos)) / 20)"};

static void a_score_is_checked_with_its_arrays(void **state) {
    (void)state;
    static const float wrong[4] = {1, -1, 1, -1};
    for (int i = 0; i < 2; i++) {
        for (int is_wrong = 0; is_wrong < 2; is_wrong++) {
            bench b;
            open_graphs(&b, make_scored(&plain, scores[i]), FIG_DEVICE_HOST);
            step_until_last(&b);
            assert_int_equal(check(&b), FIG_EXIT_FINE);
            if (is_wrong) put(&b, fig_session_array(&b.session, "slope"), 0, sizeof wrong, wrong);
            step(&b);
            assert_int_equal(check(&b), is_wrong ? FIG_EXIT_FAILED : FIG_EXIT_FINE);
            close_bench(&b);
        }
    }
}

/* A program whose layers have the scores of two texts; NULL: none. */
static fig_graphs *make_layers(const char *const texts[2]) {
    fig_program *program;
    fig_graphs *graphs, *standard = make_graphs(&plain);
    fig_tensor_info info = {.size = sizeof info};
    fig_score *score[2] = {NULL, NULL};
    assert_int_equal(fig_program_create(&program, &plain), FIG_OK);
    for (int32_t i = 0; fig_graphs_tensor(standard, i, &info) == FIG_OK; i++)
        fig_program_tensor(program, &info);
    for (int32_t i = 0; i < 2; i++) {
        char name[16];
        fig_decode_attention_op op = {.size = sizeof op};
        const struct {
            const char *stem;
            fig_tensor *at;
        } operands[] = {{"q", &op.q},
                        {"k", &op.k},
                        {"v", &op.v},
                        {"out", &op.out},
                        {"k_cache", &op.cache.k},
                        {"v_cache", &op.cache.v}};
        fig_program_layer(program, i);
        for (size_t t = 0; t < sizeof operands / sizeof *operands; t++) {
            snprintf(name, sizeof name, "%s.%d", operands[t].stem, (int)i);
            *operands[t].at = fig_program_find(program, name);
        }
        op.cache.page_table = fig_program_find(program, "page_table");
        if (texts[i] != NULL) assert_int_equal(fig_score_parse(&score[i], texts[i]), FIG_OK);
        op.score = score[i];
        fig_decode_attention(program, &op);
        fig_score_destroy(score[i]);
    }
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_bucket bucket = {4, 64};
    const fig_lower_options options = {
        .size = sizeof options, .buckets = &bucket, .bucket_count = 1};
    if (fig_graphs_lower(&graphs, program, &options) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    fig_graphs_destroy(standard);
    return graphs;
}

static void layers_with_different_scores_are_refused(void **state) {
    (void)state;
    static const char *const pairs[][2] = {{"score * 2.0", "score * 3.0"},
                                           {"score * 2.0", NULL},
                                           {NULL, "30 * tanh(score / 30)"},
                                           {"20 * tanh(score / 20)", "30 * tanh(score / 30)"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        fig_score *score;
        fig_graphs *graphs = make_layers(pairs[i]);
        assert_int_equal(fig_standard_score(graphs, "replay", &score), FIG_EXIT_BAD);
        fig_score_destroy(score);
        assert_int_equal(fig_standard_check(graphs, "replay", &score), FIG_EXIT_BAD);
        assert_null(score);
        fig_graphs_destroy(graphs);
    }
}

/* ---- Failing allocations ------------------------------------------------------------------- */

/* Returns the number of messages that were printed on stderr since the last call, and empties the
 * file. */
static int take_sentences(FILE *said) {
    int sentences = 0, c;
    fflush(stderr);
    rewind(said);
    while ((c = getc(said)) != EOF)
        sentences += c == '\n';
    assert_int_equal(ftruncate(fileno(said), 0), 0);
    rewind(said);
    return sentences;
}

/* Fails every allocation of a schedule and a session in turn. Each failure gives an error with one
 * message, or no error if the allocation was not necessary. */
static void fail_each_allocation(fig_graphs *graphs) {
    FILE *said = tmpfile();
    const int own = dup(STDERR_FILENO);
    assert_non_null(said);
    assert_true(dup2(fileno(said), STDERR_FILENO) >= 0);
    int failures = 0, wrong = 0;
    for (int64_t n = 1;; n += FIG_FAULT_STRIDE) {
        fig_session session = {0};
        fig_schedule schedule = {0};
        const fig_session_options options = {
            .graphs = graphs,
            .device = FIG_DEVICE_HOST,
            .schedule = {.graphs = graphs, .rows = ROWS, .steps = STEPS, .seed = 1}};
        fig_fault_arm(n);
        int code = fig_schedule_init(&schedule, &options.schedule);
        if (code == FIG_EXIT_FINE) code = fig_session_open(&session, &options);
        const int64_t seen = fig_fault_disarm();
        fig_session_close(&session);
        fig_schedule_finish(&schedule);
        const int sentences = take_sentences(said);
        if (seen < n) break;
        failures++;
        wrong += sentences != (code != FIG_EXIT_FINE);
    }
    dup2(own, STDERR_FILENO);
    close(own);
    fclose(said);
    fig_graphs_destroy(graphs);
    assert_true(failures * FIG_FAULT_STRIDE > 20);
    assert_int_equal(wrong, 0);
}

static void running_out_of_memory_is_reported_in_one_sentence(void **state) {
    (void)state;
    fail_each_allocation(make_graphs(&plain));
    for (int i = 0; i < 2; i++)
        fail_each_allocation(make_scored(&plain, scores[i]));
    fail_each_allocation(make_scored(&latent, parts));
}

/* If memory runs out while the schedule lists the buckets, it must not take the last one that it
 * found for the largest. */
static void a_schedule_is_complete_or_refused(void **state) {
    (void)state;
    const fig_spec spec = plain;
    fig_graphs *graphs = make_graphs(&spec);
    const fig_schedule_options options = {
        .graphs = graphs, .rows = ROWS, .steps = STEPS, .seed = 1};
    fig_schedule whole;
    int different = 0;
    assert_int_equal(fig_schedule_init(&whole, &options), FIG_EXIT_FINE);
    for (int64_t n = 1;; n++) {
        fig_schedule other = {0};
        fig_fault_arm(n);
        const int code = fig_schedule_init(&other, &options);
        const int64_t seen = fig_fault_disarm();
        if (code == FIG_EXIT_FINE)
            different += memcmp(other.grown, whole.grown, ROWS * sizeof *whole.grown) != 0;
        fig_schedule_finish(&other);
        if (seen < n) break;
    }
    fig_schedule_finish(&whole);
    fig_graphs_destroy(graphs);
    assert_int_equal(different, 0);
}

int main(void) {
    fig_place_host_program("the GPU is a fake");
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(heads_that_stay_as_they_were_are_judged_as_if_they_had_turned),
        FIG_CUDA_BENCH_TEST(a_head_that_turned_beside_others_that_did_not_is_a_fault),
        FIG_CUDA_BENCH_TEST(appended_keys_are_rotated_to_the_unit),
        cmocka_unit_test(where_rope_writes_a_head_that_stayed_is_a_fault),
        cmocka_unit_test(q_in_two_tensors_is_checked_in_both),
        cmocka_unit_test(a_score_is_checked_with_its_arrays),
        cmocka_unit_test(layers_with_different_scores_are_refused),
        cmocka_unit_test(running_out_of_memory_is_reported_in_one_sentence),
        cmocka_unit_test(a_schedule_is_complete_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

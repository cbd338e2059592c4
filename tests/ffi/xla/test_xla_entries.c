/* test_xla_entries.c: calls every XLA target from a host program that imitates XLA on a CPU.
 *
 * The results are compared with double-precision sums computed here. test_jax.sh tests the same
 * with the real JAX. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ffi/registry.h"
#include "include/figraph_ffi.h"
#include "tests/support/ffi/xla_host.h"

enum { ROWS = 3, CAP = 24, Q_HEADS = 4, KV_HEADS = 2, DIM = 64 };
enum { Q_COUNT = ROWS * Q_HEADS * DIM, CACHE_COUNT = ROWS * CAP * KV_HEADS * DIM };

/* The arrays of a step, in f32. */
typedef struct step {
    float q[Q_COUNT], out[Q_COUNT], lse[ROWS * Q_HEADS];
    float k[ROWS * KV_HEADS * DIM], v[ROWS * KV_HEADS * DIM];
    float k_cache[CACHE_COUNT], v_cache[CACHE_COUNT];
    int32_t lengths[ROWS];
    uint8_t *plan, *scratch;
    fig_ffi_scratch needs;
} step;

static void fill(float *to, int count, uint32_t seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
}

static step *make_step(uint32_t seed) {
    step *s = calloc(1, sizeof *s);
    assert_non_null(s);
    fill(s->q, Q_COUNT, seed);
    fill(s->k, ROWS * KV_HEADS * DIM, seed + 1);
    fill(s->v, ROWS * KV_HEADS * DIM, seed + 2);
    fill(s->k_cache, CACHE_COUNT, seed + 3);
    fill(s->v_cache, CACHE_COUNT, seed + 4);
    for (int r = 0; r < ROWS; r++)
        s->lengths[r] = 1 + 7 * r;
    const fig_ffi_attention shape = {.size = sizeof shape,
                                     .dtype = FIG_F32,
                                     .q_heads = Q_HEADS,
                                     .kv_heads = KV_HEADS,
                                     .head_dim = DIM,
                                     .rows = ROWS,
                                     .kv_length = CAP};
    s->needs.size = sizeof s->needs;
    assert_int_equal(fig_ffi_read_scratch(&shape, &s->needs), FIG_OK);
    assert_int_equal(posix_memalign((void **)&s->plan, 64, s->needs.plan_bytes), 0);
    assert_int_equal(posix_memalign((void **)&s->scratch, 64, s->needs.best_bytes), 0);
    memset(s->scratch, 0xa5, s->needs.best_bytes);
    return s;
}

static void free_step(step *s) {
    free(s->plan);
    free(s->scratch);
    free(s);
}

static void call_soundly(fig_xla_host *host) {
    fig_xla_host_call(host);
    if (host->code != 0) fail_msg("%d: %s", host->code, host->message);
}

static void expect_refusal(fig_xla_host *host, const char *words) {
    fig_xla_host_call(host);
    if (host->code == 0 || strstr(host->message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, host->message);
}

/* ---- Calls that are right -------------------------------------------------------------------- */

static void append_call(fig_xla_host *host, step *s) {
    const int64_t rows[] = {ROWS, KV_HEADS, DIM}, cache[] = {ROWS, CAP, KV_HEADS, DIM};
    const int64_t bytes = (int64_t)s->needs.best_bytes, count = ROWS;
    fig_xla_host_init(host, fig_xla_host_find("figraph.append_kv", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_F32, s->k, 3, rows);
    fig_xla_host_arg(host, FIG_XLA_F32, s->v, 3, rows);
    fig_xla_host_arg(host, FIG_XLA_F32, s->k_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_F32, s->v_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_S32, s->lengths, 1, &count);
    fig_xla_host_ret(host, FIG_XLA_F32, s->k_cache, 4, cache);
    fig_xla_host_ret(host, FIG_XLA_F32, s->v_cache, 4, cache);
    fig_xla_host_ret(host, FIG_XLA_U8, s->scratch, 1, &bytes);
}

static void attention_call(fig_xla_host *host, step *s) {
    const int64_t rows[] = {ROWS, Q_HEADS, DIM}, cache[] = {ROWS, CAP, KV_HEADS, DIM};
    const int64_t bytes = (int64_t)s->needs.best_bytes, count = ROWS, lse[] = {ROWS, Q_HEADS};
    fig_xla_host_init(host, fig_xla_host_find("figraph.attention", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_F32, s->q, 3, rows);
    fig_xla_host_arg(host, FIG_XLA_F32, s->k_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_F32, s->v_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_S32, s->lengths, 1, &count);
    fig_xla_host_ret(host, FIG_XLA_F32, s->out, 3, rows);
    fig_xla_host_ret(host, FIG_XLA_U8, s->scratch, 1, &bytes);
    fig_xla_host_ret(host, FIG_XLA_F32, s->lse, 2, lse);
}

static void plan_call(fig_xla_host *host, step *s) {
    const int64_t count = ROWS, bytes = (int64_t)s->needs.plan_bytes;
    fig_xla_host_init(host, fig_xla_host_find("figraph.plan", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_S32, s->lengths, 1, &count);
    const int64_t scratch = (int64_t)s->needs.best_bytes;
    fig_xla_host_ret(host, FIG_XLA_U8, s->plan, 1, &bytes);
    fig_xla_host_ret(host, FIG_XLA_U8, s->scratch, 1, &scratch);
    fig_xla_host_integer(host, "dtype", FIG_F32);
    fig_xla_host_integer(host, "q_heads", Q_HEADS);
    fig_xla_host_integer(host, "kv_heads", KV_HEADS);
    fig_xla_host_integer(host, "head_dim", DIM);
    fig_xla_host_integer(host, "kv_length", CAP);
}

static void share_plan(fig_xla_host *host, step *s) {
    const int64_t none[] = {0, 0}, bytes = (int64_t)s->needs.plan_bytes;
    fig_xla_host_arg(host, FIG_XLA_S32, NULL, 2, none);
    fig_xla_host_arg(host, FIG_XLA_U8, s->plan, 1, &bytes);
}

/* Passes scratch as the operand after the plan; the call returns it. */
static void share_scratch(fig_xla_host *host, step *s) {
    const int64_t bytes = (int64_t)s->needs.best_bytes;
    fig_xla_host_arg(host, FIG_XLA_U8, s->scratch, 1, &bytes);
}

/* Appends the step's token and computes attention in one call. */
static void decode_call(fig_xla_host *host, step *s) {
    const int64_t q[] = {ROWS, Q_HEADS, DIM}, k[] = {ROWS, KV_HEADS, DIM};
    const int64_t cache[] = {ROWS, CAP, KV_HEADS, DIM}, count = ROWS, lse[] = {ROWS, Q_HEADS};
    const int64_t bytes = (int64_t)s->needs.best_bytes;
    fig_xla_host_init(host, fig_xla_host_find("figraph.decode_attention", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_F32, s->q, 3, q);
    fig_xla_host_arg(host, FIG_XLA_F32, s->k, 3, k);
    fig_xla_host_arg(host, FIG_XLA_F32, s->v, 3, k);
    fig_xla_host_arg(host, FIG_XLA_F32, s->k_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_F32, s->v_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_S32, s->lengths, 1, &count);
    fig_xla_host_ret(host, FIG_XLA_F32, s->out, 3, q);
    fig_xla_host_ret(host, FIG_XLA_F32, s->q, 3, q);
    fig_xla_host_ret(host, FIG_XLA_F32, s->k, 3, k);
    fig_xla_host_ret(host, FIG_XLA_F32, s->k_cache, 4, cache);
    fig_xla_host_ret(host, FIG_XLA_F32, s->v_cache, 4, cache);
    fig_xla_host_ret(host, FIG_XLA_U8, s->scratch, 1, &bytes);
    fig_xla_host_ret(host, FIG_XLA_F32, s->lse, 2, lse);
    fig_xla_host_real(host, "rope_theta", 500);
}

static void rope_call(fig_xla_host *host, step *s, int32_t *positions) {
    const int64_t q[] = {ROWS, Q_HEADS, DIM}, k[] = {ROWS, KV_HEADS, DIM}, count = ROWS;
    fig_xla_host_init(host, fig_xla_host_find("figraph.rope", "cpu"));
    fig_xla_host_arg(host, FIG_XLA_F32, s->q, 3, q);
    fig_xla_host_arg(host, FIG_XLA_F32, s->k, 3, k);
    fig_xla_host_arg(host, FIG_XLA_S32, positions, 1, &count);
    fig_xla_host_ret(host, FIG_XLA_F32, s->q, 3, q);
    fig_xla_host_ret(host, FIG_XLA_F32, s->k, 3, k);
    fig_xla_host_real(host, "rope_theta", 500);
}

/* Computes attention of one head over the first `length` tokens. */
static void check_head(const step *s, int row, int head, int length) {
    const float *q = s->q + (row * Q_HEADS + head) * DIM;
    const int kv_head = head / (Q_HEADS / KV_HEADS);
    double logits[CAP], most = -INFINITY, sum = 0, expected[DIM] = {0};
    for (int t = 0; t < length; t++) {
        const float *k = s->k_cache + ((row * CAP + t) * KV_HEADS + kv_head) * DIM;
        logits[t] = 0;
        for (int d = 0; d < DIM; d++)
            logits[t] += (double)q[d] * (double)k[d];
        logits[t] /= sqrt(DIM);
        most = fmax(most, logits[t]);
    }
    for (int t = 0; t < length; t++) {
        const float *v = s->v_cache + ((row * CAP + t) * KV_HEADS + kv_head) * DIM;
        const double weight = exp(logits[t] - most);
        sum += weight;
        for (int d = 0; d < DIM; d++)
            expected[d] += weight * (double)v[d];
    }
    const float *out = s->out + (row * Q_HEADS + head) * DIM;
    for (int d = 0; d < DIM; d++)
        assert_true(fabs((double)out[d] - (sum > 0 ? expected[d] / sum : 0)) < 1e-5);
    const double lse = sum > 0 ? log2(sum) + most / log(2) : -INFINITY;
    const double got = (double)s->lse[row * Q_HEADS + head];
    assert_true(got == lse || fabs(got - lse) < 1e-5);
}

static void check_attention(const step *s) {
    for (int row = 0; row < ROWS; row++) {
        const int length = s->lengths[row];
        for (int head = 0; head < Q_HEADS; head++)
            check_head(s, row, head, length < 0 || length > CAP ? 0 : length);
    }
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void every_target_has_a_handler_for_both_platforms(void **state) {
    (void)state;
    fig_ffi_target target = {.size = sizeof target};
    int32_t count = 0;
    for (; fig_ffi_read_target(count, &target) == FIG_OK; count++) {
        fig_xla_metadata metadata = {.struct_size = sizeof metadata};
        fig_xla_query query = {{sizeof query, FIG_XLA_METADATA, NULL}, &metadata};
        fig_xla_frame frame = {.struct_size = sizeof frame, .extension = &query.base};
        assert_int_equal(strncmp(target.name, "figraph.", 8), 0);
        for (int p = 0; p < 2; p++) {
            metadata = (fig_xla_metadata){.struct_size = sizeof metadata};
            assert_null(fig_xla_host_find(target.name, p == 0 ? "cpu" : "CUDA")(&frame));
            assert_int_equal(metadata.version.minor, 1);
            assert_int_equal(metadata.traits, FIG_XLA_COMMAND_BUFFER_COMPATIBLE);
        }
    }
    assert_int_equal(count, 11);
    assert_int_equal(fig_ffi_read_target(-1, &target), FIG_INVALID);
}

static void activations_take_rows_of_any_rank(void **state) {
    (void)state;
    static const char *const names[] = {"figraph.silu_and_mul", "figraph.gelu_and_mul",
                                        "figraph.gelu_tanh_and_mul"};
    enum { WIDTH = 10, COUNT = 6 };
    float in[COUNT * 2 * WIDTH], out[COUNT * WIDTH];
    fill(in, COUNT * 2 * WIDTH, 5);
    for (int n = 0; n < 3; n++) {
        fig_xla_host host;
        fig_xla_host_init(&host, fig_xla_host_find(names[n], "cpu"));
        fig_xla_host_arg(&host, FIG_XLA_F32, in, FIG_XLA_HOST_DIMS(2, 3, 2 * WIDTH));
        fig_xla_host_ret(&host, FIG_XLA_F32, out, FIG_XLA_HOST_DIMS(2, 3, WIDTH));
        call_soundly(&host);
        for (int i = 0; i < COUNT * WIDTH; i++) {
            const double gate = (double)in[i / WIDTH * 2 * WIDTH + i % WIDTH];
            const double up = (double)in[i / WIDTH * 2 * WIDTH + WIDTH + i % WIDTH];
            const double tanh_of =
                tanh(sqrt(2 / 3.14159265358979) * (gate + 0.044715 * gate * gate * gate));
            const double activated = n == 0   ? gate / (1 + exp(-gate))
                                     : n == 1 ? gate * 0.5 * (1 + erf(gate / sqrt(2)))
                                              : gate * 0.5 * (1 + tanh_of);
            assert_true(fabs((double)out[i] - activated * up) < 1e-5);
        }
    }
}

static void a_call_without_rows_does_nothing(void **state) {
    (void)state;
    fig_xla_host host;
    fig_xla_host_init(&host, fig_xla_host_find("figraph.silu_and_mul", "cpu"));
    fig_xla_host_arg(&host, FIG_XLA_F32, NULL, FIG_XLA_HOST_DIMS(0, 16));
    fig_xla_host_ret(&host, FIG_XLA_F32, NULL, FIG_XLA_HOST_DIMS(0, 8));
    call_soundly(&host);
}

static void attention_sees_what_was_appended(void **state) {
    (void)state;
    step *s = make_step(1);
    fig_xla_host host;
    append_call(&host, s);
    call_soundly(&host);
    for (int row = 0; row < ROWS; row++) {
        const int at = (row * CAP + s->lengths[row] - 1) * KV_HEADS * DIM;
        const size_t bytes = KV_HEADS * DIM * sizeof(float);
        assert_memory_equal(s->k_cache + at, s->k + row * KV_HEADS * DIM, bytes);
        assert_memory_equal(s->v_cache + at, s->v + row * KV_HEADS * DIM, bytes);
    }
    attention_call(&host, s);
    call_soundly(&host);
    check_attention(s);
    free_step(s);
}

static void a_shared_plan_gives_the_same_bits(void **state) {
    (void)state;
    step *own = make_step(2), *shared = make_step(2);
    fig_xla_host host;
    append_call(&host, own);
    call_soundly(&host);
    attention_call(&host, own);
    call_soundly(&host);
    plan_call(&host, shared);
    call_soundly(&host);
    append_call(&host, shared);
    share_plan(&host, shared);
    host.ret_count--; /* with a plan passed in, the call needs no scratch to make one */
    call_soundly(&host);
    /* scratch passes unchanged from one call to the next */
    for (int layer = 0; layer < 2; layer++) {
        memset(shared->out, 0xff, sizeof shared->out);
        attention_call(&host, shared);
        share_plan(&host, shared);
        share_scratch(&host, shared);
        call_soundly(&host);
        assert_memory_equal(own->out, shared->out, sizeof own->out);
        assert_memory_equal(own->lse, shared->lse, sizeof own->lse);
    }
    assert_memory_equal(own->k_cache, shared->k_cache, sizeof own->k_cache);
    free_step(own);
    free_step(shared);
}

static void one_call_gives_the_results_of_separate_calls(void **state) {
    (void)state;
    step *apart = make_step(7), *one = make_step(7), *shared = make_step(7);
    fig_xla_host host;
    int32_t positions[ROWS];
    for (int row = 0; row < ROWS; row++)
        positions[row] = apart->lengths[row] - 1;
    rope_call(&host, apart, positions);
    call_soundly(&host);
    append_call(&host, apart);
    call_soundly(&host);
    attention_call(&host, apart);
    call_soundly(&host);
    check_attention(apart);
    decode_call(&host, one);
    call_soundly(&host);
    plan_call(&host, shared);
    call_soundly(&host);
    decode_call(&host, shared);
    share_plan(&host, shared);
    share_scratch(&host, shared);
    call_soundly(&host);
    for (int i = 0; i < 2; i++) {
        const step *s = i == 0 ? one : shared;
        assert_memory_equal(s->out, apart->out, sizeof s->out);
        assert_memory_equal(s->lse, apart->lse, sizeof s->lse);
        assert_memory_equal(s->k_cache, apart->k_cache, sizeof s->k_cache);
        assert_memory_equal(s->v_cache, apart->v_cache, sizeof s->v_cache);
    }
    free_step(apart);
    free_step(one);
    free_step(shared);
}

static void arguments_of_only_one_target_are_checked(void **state) {
    (void)state;
    step *s = make_step(8);
    fig_xla_host host;
    decode_call(&host, s);
    host.args[2].dims[1]++;
    expect_refusal(&host, "v is [3, 3, 64], its dim 1 must be 2");
    decode_call(&host, s);
    host.args[5].dims[0] = 0; /* an empty array stands for omitted lengths */
    expect_refusal(&host, "lengths is [0], its dim 0 must be 3");
    decode_call(&host, s);
    host.rets[1].buffer.data = s->out;
    expect_refusal(&host, "q_out is not the memory of argument q");
    attention_call(&host, s);
    share_plan(&host, s);
    expect_refusal(&host, "plan and scratch: one is given, the other is not");
    attention_call(&host, s);
    share_plan(&host, s);
    share_scratch(&host, s);
    host.rets[1].buffer.data = s->plan;
    expect_refusal(&host, "scratch is not the memory of argument scratch");
    free_step(s);
}

static void an_impossible_length_makes_a_row_idle(void **state) {
    (void)state;
    static const int32_t lengths[] = {CAP + 1, 0, INT32_MAX};
    step *s = make_step(3);
    float before[CACHE_COUNT];
    fig_xla_host host;
    memcpy(s->lengths, lengths, sizeof lengths);
    memcpy(before, s->k_cache, sizeof before);
    append_call(&host, s);
    call_soundly(&host);
    assert_memory_equal(s->k_cache, before, sizeof before);
    memset(s->out, 0x7f, sizeof s->out);
    attention_call(&host, s);
    call_soundly(&host);
    check_attention(s); /* idle rows: out is 0, lse is -inf */
    free_step(s);
}

static void a_cache_that_is_not_aliased_is_refused(void **state) {
    (void)state;
    step *s = make_step(4);
    fig_xla_host host;
    append_call(&host, s);
    host.rets[1].buffer.data = s->k_cache;
    expect_refusal(&host, "v_cache_out is not the memory of argument v_cache: the call must say "
                          "input_output_aliases");
    free_step(s);
}

static void scratch_and_plans_that_are_too_small_are_refused(void **state) {
    (void)state;
    step *s = make_step(5);
    fig_xla_host host;
    attention_call(&host, s);
    host.ret_count = 1;
    expect_refusal(&host, "scratch_bytes is 0, it must be");
    plan_call(&host, s);
    host.rets[0].dims[0] = 16;
    expect_refusal(&host, "figraph.plan: run: plan_bytes is 16, this run's plan has ");
    plan_call(&host, s);
    host.rets[1].dims[0] = 16;
    expect_refusal(&host, "figraph.plan: plan: scratch_bytes is 16, it must be ");
    attention_call(&host, s);
    share_plan(&host, s);
    share_scratch(&host, s);
    host.args[5].dims[0] = 16;
    expect_refusal(&host, "figraph.attention: run: plan_bytes is 16, this run's plan has ");
    attention_call(&host, s);
    share_plan(&host, s);
    share_scratch(&host, s);
    host.args[6].dims[0] = host.rets[1].dims[0] = 16;
    expect_refusal(&host, "scratch_bytes is 16, it must be ");
    free_step(s);
}

static void wrong_shapes_and_types_are_refused_by_name(void **state) {
    (void)state;
    step *s = make_step(6);
    fig_xla_host host;
    attention_call(&host, s);
    host.args[0].buffer.rank = 1;
    expect_refusal(&host, "q is [3], it must have 3 dims");
    attention_call(&host, s);
    host.args[1].buffer.rank = 2;
    expect_refusal(&host, "k_cache is [3, 24], it must have 4 dims");
    attention_call(&host, s);
    host.args[2].dims[1] = CAP - 1;
    expect_refusal(&host, "v_cache is [3, 23, 2, 64], it must be [3, 24, 2, 64] like k_cache");
    attention_call(&host, s);
    host.args[1].dims[0] = host.args[2].dims[0] = ROWS - 1;
    expect_refusal(&host, "k_cache is [2, 24, 2, 64], its dim 0 must be at least 3");
    attention_call(&host, s);
    fig_xla_host_integer(&host, "deterministic", 1);
    fig_xla_host_integer(&host, "plain", 1);
    expect_refusal(&host, "plain");
    attention_call(&host, s);
    host.args[3].buffer.type = FIG_XLA_S64;
    expect_refusal(&host, "lengths is int64, it must be int32");
    attention_call(&host, s);
    host.args[0].buffer.type = FIG_XLA_S32;
    expect_refusal(&host, "q is int32, it must be float32, float16 or bfloat16");
    attention_call(&host, s);
    host.args[1].buffer.type = FIG_XLA_F16;
    expect_refusal(&host, "k_cache is float16, it must have the type of q");
    attention_call(&host, s);
    host.rets[2].buffer.type = FIG_XLA_F16;
    expect_refusal(&host, "lse is float16, it must be float32");
    attention_call(&host, s);
    fig_xla_host_integer(&host, "kv_layout", 2);
    expect_refusal(&host, "kv_layout_code is 2, it must be 0, NHD, or 1, HND");
    free_step(s);
}

static void the_recorders_refusal_is_passed_on_unchanged(void **state) {
    (void)state;
    step *s = make_step(7);
    fig_xla_host host;
    attention_call(&host, s);
    host.args[0].dims[2] = host.args[1].dims[3] = host.args[2].dims[3] = 48;
    host.rets[0].dims[2] = 48;
    expect_refusal(&host, "head_dim is 48, this library has 64, 80, 96, 128 and 256");
    free_step(s);
}

static void initialize_makes_the_runner_and_runs_nothing(void **state) {
    (void)state;
    enum { WIDTH = 1234 }; /* no other case has this width, so no runner exists for it */
    float in[2 * WIDTH] = {0}, out[WIDTH];
    fig_ffi_counts before = {.size = sizeof before}, after = before;
    fig_xla_host host;
    for (int i = 0; i < WIDTH; i++)
        out[i] = 7.0f;
    fig_xla_host_init(&host, fig_xla_host_find("figraph.silu_and_mul", "cpu"));
    fig_xla_host_arg(&host, FIG_XLA_F32, in, FIG_XLA_HOST_DIMS(1, 2 * WIDTH));
    fig_xla_host_ret(&host, FIG_XLA_F32, out, FIG_XLA_HOST_DIMS(1, WIDTH));
    fig_ffi_read_counts(&before);
    host.stage = FIG_XLA_INSTANTIATE;
    call_soundly(&host);
    fig_ffi_read_counts(&after);
    assert_int_equal(after.missed, before.missed);
    host.stage = FIG_XLA_INITIALIZE;
    call_soundly(&host);
    fig_ffi_read_counts(&after);
    assert_int_equal(after.missed, before.missed + 1);
    assert_int_equal(after.eager, before.eager);
    assert_true(out[0] == 7.0f);
    host.stage = FIG_XLA_EXECUTE;
    call_soundly(&host);
    fig_ffi_read_counts(&after);
    assert_int_equal(after.missed, before.missed + 1);
    assert_int_equal(after.eager, before.eager + 1);
    assert_int_equal(after.captured, before.captured);
    assert_true(out[0] == 0.0f);
}

static void *serve(void *seed) {
    step *s = make_step(*(uint32_t *)seed);
    fig_xla_host *host = calloc(1, sizeof *host);
    for (int i = 0; i < 20; i++) {
        s->lengths[i % ROWS] = 1 + (i + (int32_t) * (uint32_t *)seed) % CAP;
        append_call(host, s);
        call_soundly(host);
        attention_call(host, s);
        call_soundly(host);
        check_attention(s);
    }
    free(host);
    free_step(s);
    return NULL;
}

static void four_threads_call_at_once(void **state) {
    (void)state;
    uint32_t seeds[] = {11, 12, 13, 14};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, serve, &seeds[i]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_target_has_a_handler_for_both_platforms),
        cmocka_unit_test(four_threads_call_at_once), /* runs first, while no runner exists */
        cmocka_unit_test(activations_take_rows_of_any_rank),
        cmocka_unit_test(a_call_without_rows_does_nothing),
        cmocka_unit_test(attention_sees_what_was_appended),
        cmocka_unit_test(a_shared_plan_gives_the_same_bits),
        cmocka_unit_test(one_call_gives_the_results_of_separate_calls),
        cmocka_unit_test(arguments_of_only_one_target_are_checked),
        cmocka_unit_test(an_impossible_length_makes_a_row_idle),
        cmocka_unit_test(a_cache_that_is_not_aliased_is_refused),
        cmocka_unit_test(scratch_and_plans_that_are_too_small_are_refused),
        cmocka_unit_test(wrong_shapes_and_types_are_refused_by_name),
        cmocka_unit_test(the_recorders_refusal_is_passed_on_unchanged),
        cmocka_unit_test(initialize_makes_the_runner_and_runs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

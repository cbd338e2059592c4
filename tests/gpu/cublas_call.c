/* cublas_call.c: compares, on a GPU, a layer whose matrix products are calls to cuBLAS with
 * float64.
 *
 *     q, k, v = x Wq, x Wk, x Wv           call "gemm", tag QKV
 *     rope(q, k), append, attention        o
 *     gate_up = o Wg                       call "gemm", tag UP
 *     a = silu_and_mul(gate_up)
 *     y = a Wd                             call "gemm", tag DOWN
 *
 * Everything is in f32, and cuBLAS sums in f32. cuBLAS is opened at run time, before the library is
 * used, as in a caller's program. Invariant: the reference keeps its own cache of every token, so
 * an error in one step also shows in the next. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/driver/gpu_caller.h"
#include "tests/support/place.h"
#include "tests/support/random.h"

enum {
    ROWS = 3,
    KV_LIMIT = 64,
    STEPS = 40,
    HIDDEN = 96,
    Q_HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 64,
    Q_WIDTH = Q_HEADS * HEAD_DIM,
    KV_WIDTH = KV_HEADS * HEAD_DIM,
    FFN = 80,
    SCRATCH_BYTES = 32 << 20,
    QKV = 1,
    UP = 2,
    DOWN = 3
};
static const double tolerance = 2e-4; /* relative to the largest number that is compared */

/* ---- cuBLAS -------------------------------------------------------------------------------- */

typedef struct blas {
    void *handle, *scratch;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *workspace, size_t bytes);
    int (*sgemm)(void *handle, int op_a, int op_b, int m, int n, int k, const float *alpha,
                 const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                 int ldc);
} blas;

static blas cublas;
static void find(void *library, const char *name, void *entry) {
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL) fail_msg("cuBLAS: no %s", name);
    memcpy(entry, &found, sizeof found);
}

/* Computes y = x w, [rows][width] = [rows][depth] [depth][width]. cuBLAS is column-major and sees
 * the transpose of each matrix. */
static int multiply(const float *x, const float *w, float *y, int rows, int depth, int width) {
    const float one = 1, zero = 0;
    return cublas.sgemm(cublas.handle, 0, 0, width, rows, depth, &one, w, width, x, depth, &zero, y,
                        width);
}

/* Setting the stream takes cuBLAS's workspace away, and cuBLAS would allocate another one during
 * the capture; so the workspace is set again. */
static int32_t gemm(void *user, const fig_call_args *args) {
    const float *x = args->reads[0], *w = args->reads[1];
    (void)user;
    int bad = cublas.set_stream(cublas.handle, args->stream);
    bad |= cublas.set_workspace(cublas.handle, cublas.scratch, SCRATCH_BYTES);
    if (args->tag == QKV) {
        bad |= multiply(x, w, args->writes[0], args->rows, HIDDEN, Q_WIDTH);
        bad |= multiply(x, args->reads[2], args->writes[1], args->rows, HIDDEN, KV_WIDTH);
        bad |= multiply(x, args->reads[3], args->writes[2], args->rows, HIDDEN, KV_WIDTH);
    }
    if (args->tag == UP) bad |= multiply(x, w, args->writes[0], args->rows, Q_WIDTH, 2 * FFN);
    if (args->tag == DOWN) bad |= multiply(x, w, args->writes[0], args->rows, FFN, HIDDEN);
    return bad;
}

static int set_up(void **state) {
    fig_cu_address scratch;
    (void)state;
    void *library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("no cuBLAS: %s", dlerror());
    find(library, "cublasCreate_v2", &cublas.create);
    find(library, "cublasDestroy_v2", &cublas.destroy);
    find(library, "cublasSetStream_v2", &cublas.set_stream);
    find(library, "cublasSetWorkspace_v2", &cublas.set_workspace);
    find(library, "cublasSgemm_v2", &cublas.sgemm);
    if (fig_caller_open(&fig_gpu_caller) != 0) return 1;
    if (fig_gpu_caller.cu->MemAlloc(&scratch, SCRATCH_BYTES) != FIG_CU_SUCCESS) return 1;
    cublas.scratch = (void *)(uintptr_t)scratch;
    return cublas.create(&cublas.handle);
}

static int tear_down(void **state) {
    (void)state;
    if (fig_gpu_caller.stream == NULL) return 1; /* set_up failed before it made the stream */
    int bad = cublas.handle != NULL ? cublas.destroy(cublas.handle) : 1;
    fig_gpu_caller.cu->MemFree((fig_cu_address)(uintptr_t)cublas.scratch);
    return bad | fig_caller_close(&fig_gpu_caller);
}

/* ---- The layer ----------------------------------------------------------------------------- */

typedef enum kind { X, WQ, WK, WV, WG, WD, KC, VC, Y, KIND_COUNT } kind;
static const char *const names[KIND_COUNT] = {"x", "wq", "wk", "wv", "wg", "wd", "kc", "vc", "y"};
static const size_t counts[KIND_COUNT] = {
    ROWS * HIDDEN,     HIDDEN *Q_WIDTH, HIDDEN *KV_WIDTH,         HIDDEN *KV_WIDTH,
    Q_WIDTH * 2 * FFN, FFN *HIDDEN,     ROWS *KV_LIMIT *KV_WIDTH, ROWS *KV_LIMIT *KV_WIDTH,
    ROWS *HIDDEN};

typedef struct layer {
    fig_graphs *graphs;
    fig_engine *engine;
    float *of[KIND_COUNT];
    int32_t lengths[ROWS];
    /* the reference's caches */
    double keys[ROWS][KV_LIMIT][KV_WIDTH], values[ROWS][KV_LIMIT][KV_WIDTH];
    double worst;
} layer;

static fig_tensor tensor(fig_program *program, const char *name, fig_role role, int rank,
                         int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
    fig_tensor_info info = {
        .size = sizeof info, .name = name, .role = role, .dtype = FIG_F32, .rank = rank};
    const int64_t dims[4] = {d0, d1, d2, d3};
    memcpy(info.dims, dims, (size_t)rank * sizeof dims[0]);
    return fig_program_tensor(program, &info);
}

static fig_tensor rows(fig_program *program, const char *name, fig_role role, int64_t width) {
    return tensor(program, name, role, 2, FIG_DIM_BATCH, width, 0, 0);
}

static fig_tensor heads(fig_program *program, const char *name, int64_t count) {
    return tensor(program, name, FIG_ROLE_TEMP, 3, FIG_DIM_BATCH, count, HEAD_DIM, 0);
}

static fig_tensor weight(fig_program *program, const char *name, int64_t depth, int64_t width) {
    return tensor(program, name, FIG_ROLE_BOUND, 2, depth, width, 0, 0);
}

static void call(fig_program *program, const fig_tensor *reads, int32_t read_count,
                 const fig_tensor *writes, int32_t write_count, uint64_t tag) {
    fig_call(program,
             FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = reads, .read_count = read_count,
                         .writes = writes, .write_count = write_count, .tag = tag));
}

static void record(fig_program *p) {
    const fig_tensor x = rows(p, "x", FIG_ROLE_BOUND, HIDDEN);
    const fig_tensor reads[] = {x, weight(p, "wq", HIDDEN, Q_WIDTH),
                                weight(p, "wk", HIDDEN, KV_WIDTH),
                                weight(p, "wv", HIDDEN, KV_WIDTH)};
    const fig_tensor q = heads(p, "q", Q_HEADS), k = heads(p, "k", KV_HEADS);
    const fig_tensor v = heads(p, "v", KV_HEADS), o = heads(p, "o", Q_HEADS);
    const fig_tensor qkv[] = {q, k, v};
    const fig_cache cache = {
        .k = tensor(p, "kc", FIG_ROLE_BOUND, 4, FIG_DIM_PAGES, KV_LIMIT, KV_HEADS, HEAD_DIM),
        .v = tensor(p, "vc", FIG_ROLE_BOUND, 4, FIG_DIM_PAGES, KV_LIMIT, KV_HEADS, HEAD_DIM)};
    const fig_tensor gate_up = rows(p, "gate_up", FIG_ROLE_TEMP, (int64_t)2 * FFN);
    const fig_tensor a = rows(p, "a", FIG_ROLE_TEMP, FFN), y = rows(p, "y", FIG_ROLE_BOUND, HIDDEN);
    const fig_tensor up[] = {o, weight(p, "wg", Q_WIDTH, (int64_t)2 * FFN)};
    const fig_tensor down[] = {a, weight(p, "wd", FFN, HIDDEN)};
    call(p, reads, 4, qkv, 3, QKV);
    fig_rope(p, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
    fig_append_kv(p, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
    fig_attention(p, FIG_OPTIONS(fig_attention_op, .q = q, .out = o, .cache = cache));
    call(p, up, 2, &gate_up, 1, UP);
    fig_silu_and_mul(p, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = a));
    call(p, down, 2, &y, 1, DOWN);
}

static void open_layer(layer *l) {
    static const fig_bucket buckets[] = {{ROWS, KV_LIMIT}};
    fig_random random = fig_random_seed(3);
    fig_program *program;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = HEAD_DIM,
                           .ffn_width = FFN,
                           .batch_limit = ROWS,
                           .kv_limit = KV_LIMIT};
    memset(l, 0, sizeof *l);
    OK(fig_program_create(&program, &spec));
    record(program);
    OK(fig_program_finish(program));
    OK(fig_graphs_lower(&l->graphs, program,
                        FIG_OPTIONS(fig_lower_options, .traits = fig_place_traits(),
                                    .buckets = buckets, .bucket_count = 1)));
    fig_program_destroy(program);
    OK(fig_place_open(&l->engine, l->graphs));
    OK(fig_engine_register(l->engine, "gemm", gemm, NULL));
    for (int i = 0; i < KIND_COUNT; i++) {
        const size_t bytes = counts[i] * sizeof(float);
        l->of[i] = fig_place_allocate(bytes);
        assert_non_null(l->of[i]);
        for (size_t n = 0; i >= WQ && i <= WD && n < counts[i]; n++)
            l->of[i][n] = (float)fig_random_range(&random, -100, 100) / 700;
        OK(fig_engine_bind(l->engine, FIG_OPTIONS(fig_binding, .name = names[i],
                                                  .address = l->of[i], .bytes = bytes)));
    }
}

static void close_layer(layer *l) {
    print_message("worst error %.2e of %.0e\n", l->worst, tolerance);
    fig_engine_close(l->engine);
    fig_graphs_destroy(l->graphs);
    for (int i = 0; i < KIND_COUNT; i++)
        fig_place_free(l->of[i]);
}

/* ---- The truth ----------------------------------------------------------------------------- */

static void multiply_row(const double *x, const float *w, double *y, int depth, int width) {
    for (int c = 0; c < width; c++) {
        y[c] = 0;
        for (int d = 0; d < depth; d++)
            y[c] += x[d] * (double)w[d * width + c];
    }
}

/* Applies RoPE to pairs of elements i and i + d / 2. */
static void turn(double *head, int32_t position) {
    for (int i = 0; i < HEAD_DIM / 2; i++) {
        const double angle = position * pow(10000, -2.0 * i / HEAD_DIM);
        const double a = head[i], b = head[i + HEAD_DIM / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + HEAD_DIM / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void attend(const layer *l, int row, const double *q, double *o) {
    double weights[KV_LIMIT];
    for (int head = 0; head < Q_HEADS; head++) {
        const int from = head / (Q_HEADS / KV_HEADS) * HEAD_DIM;
        const double *query = q + head * HEAD_DIM;
        double sum = 0, *out = o + head * HEAD_DIM;
        for (int32_t t = 0; t < l->lengths[row]; t++) {
            double logit = 0;
            for (int i = 0; i < HEAD_DIM; i++)
                logit += query[i] * l->keys[row][t][from + i];
            weights[t] = exp(logit / sqrt(HEAD_DIM));
            sum += weights[t];
        }
        for (int i = 0; i < HEAD_DIM; i++) {
            out[i] = 0;
            for (int32_t t = 0; t < l->lengths[row]; t++)
                out[i] += weights[t] / sum * l->values[row][t][from + i];
        }
    }
}

static void row_truth(layer *l, int row, double *y) {
    double x[HIDDEN], q[Q_WIDTH], o[Q_WIDTH], gate_up[2 * FFN], a[FFN];
    const int32_t last = l->lengths[row] - 1;
    double *key = l->keys[row][last], *value = l->values[row][last];
    for (int i = 0; i < HIDDEN; i++)
        x[i] = (double)l->of[X][row * HIDDEN + i];
    multiply_row(x, l->of[WQ], q, HIDDEN, Q_WIDTH);
    multiply_row(x, l->of[WK], key, HIDDEN, KV_WIDTH);
    multiply_row(x, l->of[WV], value, HIDDEN, KV_WIDTH);
    for (int head = 0; head < Q_HEADS; head++)
        turn(q + head * HEAD_DIM, last);
    for (int head = 0; head < KV_HEADS; head++)
        turn(key + head * HEAD_DIM, last);
    attend(l, row, q, o);
    multiply_row(o, l->of[WG], gate_up, Q_WIDTH, 2 * FFN);
    for (int i = 0; i < FFN; i++)
        a[i] = gate_up[i] / (1 + exp(-gate_up[i])) * gate_up[FFN + i];
    multiply_row(a, l->of[WD], y, FFN, HIDDEN);
}

static void check(layer *l) {
    for (int row = 0; row < ROWS; row++) {
        double y[HIDDEN], largest = 0;
        row_truth(l, row, y);
        for (int i = 0; i < HIDDEN; i++)
            if (fabs(y[i]) > largest) largest = fabs(y[i]);
        assert_true(largest > 0);
        for (int i = 0; i < HIDDEN; i++) {
            const double got = (double)l->of[Y][row * HIDDEN + i];
            const double error = fabs(got - y[i]) / largest;
            if (!(error <= tolerance))
                fail_msg("row %d of length %d, y[%d]: %.9g, want %.9g within %.1e", row,
                         (int)l->lengths[row], i, got, y[i], tolerance * largest);
            if (error > l->worst) l->worst = error;
        }
    }
}

/* ---- Tests --------------------------------------------------------------------------------- */

/* Rows begin at different steps, so that their lengths differ. */
static fig_step next(layer *l, fig_random *random, int step) {
    for (size_t i = 0; i < counts[X]; i++)
        l->of[X][i] = (float)fig_random_range(random, -1000, 1000) / 500;
    memset(l->of[Y], 0xff, counts[Y] * sizeof(float));
    for (int row = 0; row < ROWS; row++)
        l->lengths[row] = step + 1 - row > 1 ? step + 1 - row : 1;
    return (fig_step){
        .size = sizeof(fig_step), .rows = ROWS, .kv_lengths = l->lengths, .bucket = 1};
}

static void products_by_cublas_are_part_of_a_step(void **state) {
    (void)state;
    static layer l;
    fig_random random = fig_random_seed(1);
    open_layer(&l);
    for (int i = 0; i < STEPS; i++) {
        const fig_step step = next(&l, &random, i);
        OK(fig_engine_step(l.engine, &step));
        OK(fig_engine_wait(l.engine, -1));
        check(&l);
    }
    close_layer(&l);
}

static void cublas_products_run_in_a_callers_capture(void **state) {
    (void)state;
    static layer l;
    fig_random random = fig_random_seed(2);
    fig_cu_graph graph;
    fig_cu_exec exec;
    fig_cu_instantiate_params params = {.flags = 0};
    open_layer(&l);
    assert_int_equal(fig_gpu_caller.cu->StreamBeginCapture(fig_gpu_caller.stream, 0),
                     FIG_CU_SUCCESS);
    void *const on = fig_gpu_caller.stream;
    OK(fig_engine_append(l.engine, FIG_OPTIONS(fig_append, .bucket = 1, .stream = &on)));
    assert_int_equal(fig_gpu_caller.cu->StreamEndCapture(fig_gpu_caller.stream, &graph),
                     FIG_CU_SUCCESS);
    assert_int_equal(fig_gpu_caller.cu->GraphInstantiateWithParams(&exec, graph, &params),
                     FIG_CU_SUCCESS);
    for (int i = 0; i < STEPS; i++) {
        const fig_step step = next(&l, &random, i);
        OK(fig_engine_stage(l.engine, &step));
        assert_int_equal(fig_gpu_caller.cu->GraphLaunch(exec, fig_gpu_caller.stream),
                         FIG_CU_SUCCESS);
        assert_int_equal(fig_gpu_caller.cu->StreamSynchronize(fig_gpu_caller.stream),
                         FIG_CU_SUCCESS);
        check(&l);
    }
    assert_int_equal(fig_gpu_caller.cu->GraphExecDestroy(exec), FIG_CU_SUCCESS);
    assert_int_equal(fig_gpu_caller.cu->GraphDestroy(graph), FIG_CU_SUCCESS);
    close_layer(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_by_cublas_are_part_of_a_step),
        cmocka_unit_test(cublas_products_run_in_a_callers_capture),
    };
    if (fig_place_device() != FIG_DEVICE_CUDA) {
        fprintf(stderr, "cublas_call: FIG_DEVICE must be cuda\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

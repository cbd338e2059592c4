/* test_invoke_latent_parts.c: tests calls over latent caches whose q is in two arrays. They must
 * leave the bits of calls with one array, through TVM FFI's functions with any strides, and through
 * XLA's targets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ffi/tvm/tvm.h"
#include "include/figraph_ffi.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/ffi/latent_call.h"
#include "tests/support/kernels/reference.h"

/* Short names. */
enum {
    ROWS = FIG_LATENT_CALL_ROWS,
    MOST = FIG_LATENT_CALL_MOST,
    HEADS = FIG_LATENT_CALL_HEADS,
    PAGE = FIG_LATENT_CALL_PAGE,
    WIDTH = FIG_LATENT_CALL_WIDTH,
    PAGES = FIG_LATENT_CALL_PAGES,
    TOKENS = FIG_LATENT_CALL_TOKENS,
    KEY = TRUTH_LATENT_KEY_DIM,
    DIM = TRUTH_LATENT_DIM,
    ROPE = KEY - DIM,
    GAP = 24 /* more values than any gap has */
};

static uint64_t seed;

static int install(void **state) {
    (void)state;
    fig_fake_cuda_install();
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    return 0;
}

/* ---- The parts of q */

/* A part of q in memory of its own: [tokens][heads][width] with these strides. */
typedef struct part {
    int64_t row, head, width;
    uint16_t values[TOKENS * HEADS * (DIM + GAP)];
} part;

/* Draws strides, with tokens or heads outermost. */
static part *make_part(fig_random *random, int64_t width, int64_t tokens) {
    part *made = calloc(1, sizeof *made);
    assert_non_null(made);
    made->width = width;
    const int64_t gap = fig_random_range(random, 0, 1) * fig_random_range(random, 1, GAP / 2);
    if (fig_random_range(random, 0, 1)) {
        made->row = width + gap;
        made->head = tokens * made->row;
    } else {
        made->head = width + gap;
        made->row = HEADS * made->head;
    }
    return made;
}

/* Copies the values [first, first + width) of each head of q to the part, or back. */
static void move(part *p, uint16_t *q, int64_t first, int64_t tokens, int is_back) {
    for (int64_t i = 0; i < tokens * HEADS; i++) {
        uint16_t *here = p->values + i / HEADS * p->row + i % HEADS * p->head;
        uint16_t *there = q + i * KEY + first;
        memcpy(is_back ? there : here, is_back ? here : there, (size_t)p->width * sizeof *q);
    }
}

/* ---- Calls */

typedef struct tvm_call {
    fig_tvm_value values[32];
    fig_dl_tensor tensors[32];
    int64_t dims[32][4], strides[32][4];
    int32_t count;
} tvm_call;

static void put(tvm_call *c, void *data, uint8_t code, uint8_t bits, const int64_t dims[4]) {
    const int32_t at = c->count++;
    int32_t rank = 0;
    for (; rank < 4 && dims[rank] > 0; rank++)
        c->dims[at][rank] = dims[rank];
    c->tensors[at] = (fig_dl_tensor){.data = data,
                                     .device = FIG_DL_CPU,
                                     .rank = rank,
                                     .code = code,
                                     .bits = bits,
                                     .lanes = 1,
                                     .dims = c->dims[at]};
    c->values[at] = (fig_tvm_value){.kind = FIG_TVM_TENSOR_POINTER, .as.pointer = &c->tensors[at]};
}
#define PUT(c, data, code, bits, ...) put(c, data, code, bits, (int64_t[4]){__VA_ARGS__})
#define HALF(c, data, ...) PUT(c, data, FIG_DL_BFLOAT, 16, __VA_ARGS__)

/* Puts an array with a vector for each token: [tokens][heads][width], or [rows][tokens][heads]
 * [width] if the rows of a call have a dim of tokens. heads 0, width 0: there is no such dim. */
static void put_tokens(tvm_call *c, const fig_latent_way *of, void *data, int64_t heads,
                       int64_t width) {
    int64_t dims[4] = {of->kind == FIG_LATENT_PACKED ? TOKENS : ROWS};
    int32_t rank = 1;
    if (of->kind == FIG_LATENT_EQUAL) dims[rank++] = MOST;
    if (heads > 0) dims[rank++] = heads;
    if (width > 0) dims[rank++] = width;
    put(c, data, width > 0 ? FIG_DL_BFLOAT : FIG_DL_FLOAT, width > 0 ? 16 : 32, dims);
}

static void put_part(tvm_call *c, const fig_latent_way *of, part *p) {
    const int32_t at = c->count;
    const int64_t strides[] = {MOST * p->row, p->row, p->head, 1};
    const int32_t first = of->kind == FIG_LATENT_EQUAL ? 0 : 1;
    put_tokens(c, of, p->values, HEADS, p->width);
    memcpy(c->strides[at], strides + first, sizeof strides - (size_t)first * sizeof *strides);
    c->tensors[at].strides = c->strides[at];
}

static void put_integer(tvm_call *c, int64_t value) {
    c->values[c->count++] = (fig_tvm_value){.kind = FIG_TVM_INT, .as.integer = value};
}

static void put_real(tvm_call *c, double value) {
    c->values[c->count++] = (fig_tvm_value){.kind = FIG_TVM_FLOAT, .as.real = value};
}

static void put_absent(tvm_call *c) {
    c->values[c->count++] = (fig_tvm_value){.kind = FIG_TVM_NONE};
}

static void put_logits(tvm_call *c, const fig_latent_way *of) {
    for (int i = 0; i < 9 && of->decode; i++) { /* rotary_dim to norm_epsilon */
        static const double angles[] = {ROPE, 0, 1, 10000, 0, 0, 0, 0, 1e-5};
        if (i < 2 || i == 7) put_integer(c, (int64_t)angles[i]);
        if (i >= 2 && i != 7) put_real(c, angles[i]);
    }
    put_integer(c, 29);
    put_real(c, 0.0625);
    put_integer(c, 0);
    for (int i = 0; i < 2 && of->decode; i++)
        put_absent(c); /* positions, cos_sin_cache */
}

static int64_t tokens_of(const fig_latent_way *of) {
    return of->kind == FIG_LATENT_SINGLE ? ROWS : TOKENS;
}

/* Describes a call, with q in one array if rope is NULL. *c is zero before. */
static void build(tvm_call *c, fig_latent_world *w, const fig_latent_way *of, part *latent,
                  part *rope) {
    if (rope == NULL) put_tokens(c, of, w->q, HEADS, KEY);
    if (rope != NULL) put_part(c, of, latent);
    if (of->decode) put_tokens(c, of, w->latent, 0, KEY);
    if (of->codes) PUT(c, w->cache, FIG_DL_UINT, 8, PAGES, PAGE, TRUTH_LATENT_CODES);
    if (!of->codes) HALF(c, w->cache, PAGES, PAGE, KEY);
    PUT(c, w->lengths, FIG_DL_INT, 32, ROWS);
    PUT(c, w->table, FIG_DL_INT, 32, ROWS, WIDTH);
    put_absent(c);
    PUT(c, w->sinks, FIG_DL_FLOAT, 32, HEADS);
    if (of->decode) HALF(c, w->norm, DIM);
    put_tokens(c, of, w->out, HEADS, DIM);
    PUT(c, w->scratch, FIG_DL_UINT, 8, sizeof w->scratch);
    put_tokens(c, of, w->lse, HEADS, 0);
    put_logits(c, of);
    if (of->kind == FIG_LATENT_PACKED) {
        PUT(c, w->starts, FIG_DL_INT, 32, ROWS + 1);
        put_integer(c, MOST);
    } else {
        put_absent(c), put_absent(c);
    }
    if (rope != NULL) put_part(c, of, rope);
}

static fig_status call_by_name(const tvm_call *c, const fig_latent_way *of) {
    return fig_ffi_run(FIG_OPTIONS(fig_ffi_call,
                                   .function = of->decode ? "latent_decode" : "latent_attention",
                                   .arguments = c->values, .argument_count = c->count));
}

static void run(const tvm_call *c, const fig_latent_way *of) {
    if (call_by_name(c, of) != FIG_OK) fail_msg("%s", fig_ffi_message());
}

/* ---- Tests */

static void two_arrays_with_any_strides_leave_the_bits_of_one(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    for (int n = 0; n < 12 * FIG_LATENT_KINDS; n++) {
        const fig_latent_way of = {.platform = "cpu",
                                   .kind = (fig_latent_rows)(n % FIG_LATENT_KINDS),
                                   .codes = n / FIG_LATENT_KINDS & 1,
                                   .decode = n / FIG_LATENT_KINDS >> 1 & 1,
                                   .norm = n / FIG_LATENT_KINDS >> 1 & 1};
        fig_latent_world *one = fig_latent_call_make(&of), *two = fig_latent_call_make(&of);
        part *latent = make_part(&random, DIM, tokens_of(&of));
        part *rope = make_part(&random, ROPE, tokens_of(&of));
        tvm_call c = {.count = 0}, d = {.count = 0};
        move(latent, two->q, 0, tokens_of(&of), 0);
        move(rope, two->q, DIM, tokens_of(&of), 0);
        build(&c, one, &of, NULL, NULL);
        build(&d, two, &of, latent, rope);
        run(&c, &of);
        run(&d, &of);
        move(latent, two->q, 0, tokens_of(&of), 1);
        move(rope, two->q, DIM, tokens_of(&of), 1);
        assert_memory_equal(one->q, two->q, sizeof one->q);
        assert_memory_equal(one->out, two->out, sizeof one->out);
        assert_memory_equal(one->lse, two->lse, sizeof one->lse);
        assert_memory_equal(one->cache, two->cache, sizeof one->cache);
        free(one), free(two), free(latent), free(rope);
    }
}

/* Arrays of no rows, or of no tokens, are empty. */
static void a_call_without_rows_or_tokens_succeeds(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    for (int n = 0; n < 4 * FIG_LATENT_KINDS; n++) {
        const int is_apart = n & 1;
        const fig_latent_way of = {.platform = "cpu",
                                   .kind = (fig_latent_rows)(n / 4),
                                   .decode = n >> 1 & 1,
                                   .norm = n >> 1 & 1};
        const int64_t all = of.kind == FIG_LATENT_PACKED ? TOKENS : ROWS;
        fig_latent_world *w = fig_latent_call_make(&of), *was = fig_latent_call_make(&of);
        part *latent = make_part(&random, DIM, tokens_of(&of));
        part *rope = make_part(&random, ROPE, tokens_of(&of));
        tvm_call c = {.count = 0};
        build(&c, w, &of, latent, is_apart ? rope : NULL);
        for (int32_t i = 0; i < c.count; i++)
            if (c.dims[i][0] == all) c.dims[i][0] = 0;
        memset(w->starts, 0, sizeof w->starts);
        run(&c, &of);
        assert_memory_equal(w->out, was->out, sizeof w->out);
        assert_memory_equal(w->cache, was->cache, sizeof w->cache);
        free(w), free(was), free(latent), free(rope);
    }
}

/* ---- XLA's targets */

/* The two parts of q without gaps, as a call of XLA's target has them. */
typedef struct parts {
    part *latent, *rope;
    int64_t dims[4]; /* of q_rope */
    int rank;
} parts;

static parts part_q(const fig_latent_way *of, const fig_xla_host *host, fig_latent_world *w) {
    parts made = {.latent = calloc(1, sizeof(part)),
                  .rope = calloc(1, sizeof(part)),
                  .rank = of->kind == FIG_LATENT_EQUAL ? 4 : 3};
    assert_true(made.latent != NULL && made.rope != NULL);
    *made.latent = (part){.row = HEADS * DIM, .head = DIM, .width = DIM};
    *made.rope = (part){.row = HEADS * ROPE, .head = ROPE, .width = ROPE};
    move(made.latent, w->q, 0, tokens_of(of), 0);
    move(made.rope, w->q, DIM, tokens_of(of), 0);
    memcpy(made.dims, host->args[0].dims, sizeof made.dims);
    made.dims[made.rank - 1] = ROPE;
    return made;
}

/* Describes a call whose q is in two arrays. Of the arguments, q is the first and q_rope the last;
 * of the results of a decode, q_rope_out is number 1. */
static parts describe_parts(fig_xla_host *host, const fig_latent_way *of, fig_latent_world *w) {
    const int64_t none = 0;
    fig_latent_call_describe(host, of, w);
    const parts made = part_q(of, host, w);
    host->args[0].dims[made.rank - 1] = DIM;
    host->args[0].buffer.data = made.latent->values;
    if (of->kind != FIG_LATENT_PACKED) fig_xla_host_arg(host, FIG_XLA_S32, NULL, 1, &none);
    fig_xla_host_arg(host, FIG_XLA_BF16, made.rope->values, made.rank, made.dims);
    if (!of->decode) return made;
    host->rets[1].dims[made.rank - 1] = ROPE;
    host->rets[1].buffer.data = made.rope->values;
    return made;
}

static void free_parts(parts *made) {
    free(made->latent), free(made->rope);
}

static void call_soundly(fig_xla_host *host) {
    fig_xla_host_call(host);
    if (host->code != 0) fail_msg("%s", host->message);
    if (host->stream != NULL) fig_fake_cuda_stream_destroy(host->stream);
}

static void make_plan(const fig_latent_way *of, fig_latent_world *w) {
    fig_xla_host host;
    if (!of->plan) return;
    fig_latent_call_describe_plan(&host, of, w);
    call_soundly(&host);
}

static void xla_s_targets_take_two_arrays(void **state) {
    (void)state;
    for (int n = 0; n < 16 * FIG_LATENT_KINDS; n++) {
        const fig_latent_way of = {.platform = n & 8 ? "CUDA" : "cpu",
                                   .kind = (fig_latent_rows)(n / 16),
                                   .codes = n & 1,
                                   .plan = n >> 1 & 1,
                                   .decode = n >> 2 & 1,
                                   .norm = n >> 2 & 1};
        fig_latent_world *one = fig_latent_call_make(&of), *two = fig_latent_call_make(&of);
        fig_xla_host host;
        make_plan(&of, one);
        make_plan(&of, two);
        fig_latent_call_describe(&host, &of, one);
        call_soundly(&host);
        parts made = describe_parts(&host, &of, two);
        call_soundly(&host);
        move(made.latent, two->q, 0, tokens_of(&of), 1);
        move(made.rope, two->q, DIM, tokens_of(&of), 1);
        assert_memory_equal(one->q, two->q, sizeof one->q);
        assert_memory_equal(one->out, two->out, sizeof one->out);
        assert_memory_equal(one->lse, two->lse, sizeof one->lse);
        assert_memory_equal(one->cache, two->cache, sizeof one->cache);
        free(one), free(two), free_parts(&made);
    }
}

/* An empty q_rope counts as absent, and its result is empty too. */
static void xla_s_targets_take_two_arrays_of_no_rows(void **state) {
    (void)state;
    for (int n = 0; n < 2 * FIG_LATENT_KINDS; n++) {
        const fig_latent_way of = {
            .platform = "cpu", .kind = (fig_latent_rows)(n / 2), .decode = n % 2, .norm = n % 2};
        const int64_t all = of.kind == FIG_LATENT_PACKED ? TOKENS : ROWS;
        fig_latent_world *w = fig_latent_call_make(&of), *was = fig_latent_call_make(&of);
        fig_xla_host host;
        parts made = describe_parts(&host, &of, w);
        for (int i = 0; i < host.arg_count; i++)
            if (host.args[i].dims[0] == all) host.args[i].dims[0] = 0;
        for (int i = 0; i < host.ret_count; i++)
            if (host.rets[i].dims[0] == all) host.rets[i].dims[0] = 0;
        memset(w->starts, 0, sizeof w->starts);
        call_soundly(&host);
        assert_memory_equal(w->out, was->out, sizeof w->out);
        assert_memory_equal(w->cache, was->cache, sizeof w->cache);
        free(w), free(was), free_parts(&made);
    }
}

/* Makes a call with a change of one number of q_rope, or of q_rope_out. */
typedef struct change {
    int is_result, dim; /* dim OTHER_TYPE: the type; OTHER_RANK: the rank; MOVED: the memory */
    int64_t value;
    const char *words;
} change;
enum { OTHER_TYPE = -1, OTHER_RANK = -2, MOVED = -3 };

static void expect_refusal(const fig_latent_way *of, const change *wrong) {
    fig_latent_world *w = fig_latent_call_make(of), *was = fig_latent_call_make(of);
    fig_xla_host host;
    parts made = describe_parts(&host, of, w);
    for (int is_result = wrong->is_result; is_result <= of->decode; is_result++) {
        fig_xla_host_array *array = is_result ? &host.rets[1] : &host.args[host.arg_count - 1];
        switch (wrong->dim) {
        case OTHER_TYPE: array->buffer.type = (int)wrong->value; break;
        case OTHER_RANK: array->buffer.rank = wrong->value; break;
        case MOVED: array->buffer.data = w->q; break;
        default: array->dims[wrong->dim] = wrong->value; break;
        }
    }
    fig_xla_host_call(&host);
    if (host.code == 0 || strstr(host.message, wrong->words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", wrong->words, host.code == 0 ? "" : host.message);
    assert_memory_equal(w->out, was->out, sizeof w->out);
    assert_memory_equal(w->cache, was->cache, sizeof w->cache);
    free(w), free(was), free_parts(&made);
}

static void xla_s_targets_report_mistakes_in_q_rope_by_its_name(void **state) {
    (void)state;
    static const change wrong[] = {
        {0, OTHER_RANK, 2, "q_rope is [3, 8], it must have 3 dims"},
        {0, OTHER_TYPE, FIG_XLA_F16, "q_rope is float16, it must be bfloat16"},
        {0, OTHER_TYPE, FIG_XLA_S32, "q_rope is int32, it must be bfloat16"},
        {0, 0, 2, "q_rope is [2, 8, 64], its dim 0 must be 3"},
        {0, 1, 16, "q_rope is [3, 16, 64], its dim 1 must be 8"},
        {0, 2, 128, "q_rope is [3, 8, 128], its dim 2 must be 64"},
        /* of latent_decode alone */
        {1, 2, 512, "q_rope_out is [3, 8, 512], it must be [3, 8, 64] like q_rope"},
        {1, MOVED, 0, "q_rope_out is not the memory of argument q_rope"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (int decode = wrong[i].is_result; decode < 2; decode++)
            expect_refusal(&(fig_latent_way){.platform = "cpu", .decode = decode, .norm = decode},
                           &wrong[i]);
}

/* ---- Mistakes in calls of TVM FFI's functions */

typedef struct mistake {
    int32_t dim; /* TYPE: the type; STRIDE: the last stride */
    int64_t value;
    const char *words;
} mistake;
enum { TYPE = -1, STRIDE = -2, RANK = -3, ROW_STRIDE = -4, TABLE = -5 };

static void expect_mistake(const fig_latent_way *of, const mistake *wrong) {
    fig_random random = fig_random_seed(seed);
    fig_latent_world *w = fig_latent_call_make(of);
    part *latent = make_part(&random, DIM, ROWS), *rope = make_part(&random, ROPE, ROWS);
    tvm_call c = {.count = 0};
    build(&c, w, of, latent, rope);
    fig_dl_tensor *array = &c.tensors[c.count - 1];
    int64_t *strides = c.strides[c.count - 1];
    switch (wrong->dim) {
    case TYPE: array->code = (uint8_t)wrong->value; break;
    case STRIDE: strides[2] = wrong->value; break;
    case ROW_STRIDE: strides[0] = wrong->value; break;
    case RANK: array->rank = (int32_t)wrong->value; break;
    case TABLE: c.tensors[0].dims[2] = wrong->value; break;
    default: array->dims[wrong->dim] = wrong->value; break;
    }
    assert_int_equal(call_by_name(&c, of), FIG_INVALID);
    if (strstr(fig_ffi_message(), wrong->words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", wrong->words, fig_ffi_message());
    free(w), free(latent), free(rope);
}

static void mistakes_in_q_rope_are_reported_by_its_name(void **state) {
    (void)state;
    static const mistake wrong[] = {
        {RANK, 2, "q_rope is [3, 8], it must have 3 dims"},
        {TYPE, FIG_DL_FLOAT, "q_rope is float16, it must be bfloat16"},
        {0, 2, "q_rope is [2, 8, 64], its dim 0 must be 3"},
        {1, 16, "q_rope is [3, 16, 64], its dim 1 must be 8"},
        {2, 128, "q_rope is [3, 8, 128], its dim 2 must be 64"},
        {STRIDE, 2, "q_rope: the elements of its last dim must lie side by side"},
        {ROW_STRIDE, 0, "q_rope: strides[0] is 0, it must be positive"},
        {TABLE, KEY, "q is [3, 8, 576], its dim 2 must be 512"},
    };
    for (size_t i = 0; i < 2 * sizeof wrong / sizeof *wrong; i++) {
        const fig_latent_way of = {.platform = "cpu", .decode = i % 2, .norm = i % 2};
        expect_mistake(&of, &wrong[i / 2]);
    }
}

/* The tokens of all rows must lie equally far apart, as those of q must. */
static void rows_of_q_rope_must_follow_each_other(void **state) {
    (void)state;
    const fig_latent_way of = {.platform = "cpu", .kind = FIG_LATENT_EQUAL};
    fig_random random = fig_random_seed(seed);
    fig_latent_world *w = fig_latent_call_make(&of);
    part *latent = make_part(&random, DIM, TOKENS), *rope = make_part(&random, ROPE, TOKENS);
    tvm_call c = {.count = 0};
    build(&c, w, &of, latent, rope);
    c.strides[c.count - 1][0]++;
    assert_int_equal(call_by_name(&c, &of), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "q_rope has strides"));
    free(w), free(latent), free(rope);
}

/* The call writes q_rope, so no other array may lie there. */
static void a_decode_whose_q_rope_overlaps_is_refused(void **state) {
    (void)state;
    static const char *const others[] = {"tensor q", "tensor out", "tensor latent"};
    const fig_latent_way of = {.platform = "cpu", .decode = 1, .norm = 1};
    fig_random random = fig_random_seed(seed);
    for (int i = 0; i < 3; i++) {
        fig_latent_world *w = fig_latent_call_make(&of);
        part *latent = make_part(&random, DIM, ROWS), *rope = make_part(&random, ROPE, ROWS);
        tvm_call c = {.count = 0};
        build(&c, w, &of, latent, rope);
        if (i < 2) c.tensors[c.count - 1].data = i ? w->out : latent->values;
        if (i == 2) c.tensors[1].data = rope->values;
        assert_int_equal(call_by_name(&c, &of), FIG_INVALID);
        assert_non_null(strstr(fig_ffi_message(), "q_rope"));
        assert_non_null(strstr(fig_ffi_message(), others[i]));
        assert_non_null(strstr(fig_ffi_message(), "overlaps"));
        free(w), free(latent), free(rope);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_arrays_with_any_strides_leave_the_bits_of_one),
        cmocka_unit_test(a_call_without_rows_or_tokens_succeeds),
        cmocka_unit_test(xla_s_targets_take_two_arrays),
        cmocka_unit_test(xla_s_targets_take_two_arrays_of_no_rows),
        cmocka_unit_test(xla_s_targets_report_mistakes_in_q_rope_by_its_name),
        cmocka_unit_test(mistakes_in_q_rope_are_reported_by_its_name),
        cmocka_unit_test(rows_of_q_rope_must_follow_each_other),
        cmocka_unit_test(a_decode_whose_q_rope_overlaps_is_refused),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, install, NULL);
}

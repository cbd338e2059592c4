/* test_far.c: tests arrays with more elements than 32 bits can count: pools of pages, dense
 * sequences and rows of activations.
 *
 * A step runs at the near end of its memory, and again with the same numbers at the far end, beyond
 * 2^31 elements and 4 GiB. On the host, only the touched part takes memory; on a GPU, the arrays
 * take up to 33 GB. Sanitizers need as much memory again, so the test is smaller under them.
 * Invariant: both ends have the same rows in the same order, so outputs and appended tokens have
 * the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/hang.h"
#include "tests/support/place.h"
#include "tests/support/random.h"

enum { ROWS = 4, KV_LIMIT = 131072, DENSE_SEQUENCES = 16, KIB = 1024, OUT_BYTES = 512 * KIB };
typedef enum end { NEAR, FAR } end;

/* The fields of a spec that differ from 0, and the size of the memory. */
typedef struct scene {
    fig_spec spec;
    int64_t pages;        /* pages of a pool; 0: dense */
    int64_t row_elements; /* the distance between rows of activations; 0: no gaps */
    int heads_first;      /* 1: pools are [heads][pages][page_size][head_dim] */
    int32_t lengths[ROWS];
} scene;

typedef struct bench {
    const scene *scene;
    fig_spec spec;
    fig_graphs *graphs;
    fig_engine *engine;
    int64_t pages;
    uint8_t *outs[2], *appended[2]; /* each [OUT_BYTES]; one for each end */
    size_t out_bytes, appended_bytes;
} bench;

#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
static const int64_t divide = 200;
#else
static const int64_t divide = 1;
#endif

/* Fails on an error, but skips the test if memory was refused: a small machine may refuse that
 * much, even if little of it is touched. */
static void must(fig_status status) {
    if (status == FIG_NOMEM) {
        printf("skipped: %s\n", fig_message());
        skip();
    }
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

/* ---- Numbers ------------------------------------------------------------------------------- */

static size_t item_of(fig_dtype dtype) {
    return dtype == FIG_F32 ? 4 : dtype == FIG_F16 || dtype == FIG_BF16 ? 2 : 1;
}

/* Fills memory with numbers of magnitude 1/4 to 1/2, with any sign and mantissa. */
static void fill(uint8_t *to, size_t bytes, fig_dtype dtype, fig_random *random) {
    static const struct {
        uint32_t keeps, exponent;
    } forms[] = {[FIG_F32] = {0x807fffff, 0x3e800000},
                 [FIG_F16] = {0x83ff83ff, 0x34003400},
                 [FIG_BF16] = {0x807f807f, 0x3e803e80},
                 [FIG_E4M3] = {0x87878787, 0x28282828}};
    for (size_t at = 0; at < bytes; at += sizeof(uint32_t)) {
        const uint32_t word =
            ((uint32_t)fig_random_bits(random) & forms[dtype].keeps) | forms[dtype].exponent;
        memcpy(to + at, &word, sizeof word);
    }
}

static void write_numbers(bench *b, const char *name, uint64_t offset, size_t bytes,
                          fig_dtype dtype, fig_random *random) {
    uint8_t *numbers = malloc(bytes);
    assert_non_null(numbers);
    fill(numbers, bytes, dtype, random);
    must(fig_engine_write(
        b->engine, FIG_OPTIONS(fig_span, .name = name, .offset = offset, .bytes = bytes), numbers));
    free(numbers);
}

/* ---- Places -------------------------------------------------------------------------------- */

static int32_t page_tokens(const bench *b) {
    return b->spec.page_size > 0 ? b->spec.page_size : b->spec.kv_limit;
}

/* Returns the offset of one head of a token in a page. */
static uint64_t cache_offset(const bench *b, int64_t page, int64_t token, int64_t head) {
    const int64_t heads = b->spec.kv_heads, dim = b->spec.head_dim, tokens = page_tokens(b);
    int64_t at = ((page * tokens + token) * heads + head) * dim;
    if (b->spec.kv_layout == FIG_HND) at = ((page * heads + head) * tokens + token) * dim;
    if (b->scene->heads_first) at = ((head * b->pages + page) * tokens + token) * dim;
    return (uint64_t)at * item_of(b->spec.kv_dtype);
}

/* These two return the first row at an end, and the page that is the n-th at that end. */
static int32_t first_row(const bench *b, end at) {
    return at == NEAR ? 0 : b->spec.batch_limit - ROWS;
}

static int64_t page_of(const bench *b, end at, int64_t n) {
    return at == NEAR ? n : b->pages - 1 - n;
}

static int64_t page_count(const bench *b, int32_t row) {
    return (b->scene->lengths[row] + page_tokens(b) - 1) / page_tokens(b);
}

/* These return the number of elements in a row of an activation, and the distance between rows. */
static int64_t row_width(const fig_tensor_info *info) {
    return info->dims[1] * (info->rank == 3 ? info->dims[2] : 1);
}

static int64_t row_stride(const bench *b, const fig_tensor_info *info) {
    return b->scene->row_elements > 0 ? b->scene->row_elements / divide : row_width(info);
}

static int is_cache(const fig_tensor_info *info) {
    return strstr(info->name, "cache") != NULL;
}

static int is_output(const fig_tensor_info *info) {
    return strncmp(info->name, "out", 3) == 0 || strncmp(info->name, "act", 3) == 0;
}

/* ---- Open ---------------------------------------------------------------------------------- */

static void bind_cache(bench *b, const char *name) {
    fig_binding binding = {.size = sizeof binding, .name = name};
    const int64_t dim = b->spec.head_dim, tokens = page_tokens(b);
    binding.bytes =
        (uint64_t)(b->pages * tokens * b->spec.kv_heads * dim) * item_of(b->spec.kv_dtype);
    if (b->scene->heads_first)
        memcpy(binding.strides, (int64_t[4]){tokens * dim, dim, b->pages * tokens * dim, 1},
               sizeof binding.strides);
    must(fig_engine_bind(b->engine, &binding));
}

static void bind_rows(bench *b, const fig_tensor_info *info) {
    const int64_t rows = (int64_t)b->spec.batch_limit * b->spec.row_tokens;
    fig_binding binding = {.size = sizeof binding, .name = info->name};
    binding.strides[0] = row_stride(b, info);
    binding.strides[1] = info->rank == 3 ? info->dims[2] : 1;
    binding.strides[2] = info->rank == 3;
    binding.bytes =
        (uint64_t)((rows - 1) * binding.strides[0] + row_width(info)) * item_of(b->spec.dtype);
    must(fig_engine_bind(b->engine, &binding));
}

static void bind_scale(bench *b, const char *name) {
    const float one = 1;
    must(fig_engine_bind(b->engine, FIG_OPTIONS(fig_binding, .name = name, .bytes = sizeof one)));
    must(fig_engine_write(b->engine, FIG_OPTIONS(fig_span, .name = name, .bytes = sizeof one),
                          &one));
}

static void bind_all(bench *b) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(b->graphs, i, &info) == FIG_OK; i++) {
        if (info.role != FIG_ROLE_BOUND) continue;
        if (is_cache(&info)) {
            bind_cache(b, info.name);
        } else if (info.rank == 1) {
            bind_scale(b, info.name);
        } else {
            bind_rows(b, &info);
        }
    }
}

/* Lowers one bucket, so that the steps at both ends are split alike. */
static void lower(bench *b) {
    fig_program *program;
    fig_graphs_info info = {.size = sizeof info};
    fig_bucket bucket = {b->spec.batch_limit, 0};
    for (int32_t row = 0; row < ROWS; row++)
        if (b->scene->lengths[row] > bucket.kv) bucket.kv = b->scene->lengths[row];
    must(fig_program_create(&program, &b->spec));
    fig_program_decode_step(program);
    must(fig_program_finish(program));
    must(fig_graphs_lower(&b->graphs, program,
                          FIG_OPTIONS(fig_lower_options, .traits = fig_place_traits(),
                                      .buckets = &bucket, .bucket_count = 1)));
    fig_program_destroy(program);
    must(fig_graphs_read_info(b->graphs, &info));
    b->spec = *info.spec;
}

static void open_bench(bench *b, const scene *of) {
    *b = (bench){.scene = of, .spec = of->spec, .pages = of->pages / divide};
    b->spec.size = sizeof b->spec;
    b->spec.batch_limit = of->row_elements > 0 ? 40 : ROWS;
    b->spec.sequence_limit = of->pages > 0 ? b->spec.batch_limit : DENSE_SEQUENCES;
    b->spec.kv_limit = of->pages > 0 ? KV_LIMIT : (int32_t)((1 << 20) / divide);
    if (of->pages == 0) b->pages = DENSE_SEQUENCES;
    lower(b);
    must(fig_place_open(&b->engine, b->graphs));
    bind_all(b);
    for (end at = NEAR; at <= FAR; at++) {
        b->outs[at] = calloc(1, OUT_BYTES);
        b->appended[at] = calloc(1, OUT_BYTES);
        assert_true(b->outs[at] != NULL && b->appended[at] != NULL);
    }
}

static void close_bench(bench *b) {
    must(fig_engine_close(b->engine));
    fig_graphs_destroy(b->graphs);
    for (end at = NEAR; at <= FAR; at++) {
        free(b->outs[at]);
        free(b->appended[at]);
    }
}

/* ---- A step at one end --------------------------------------------------------------------- */

/* Writes a page head by head, in any cache layout. */
static void write_page(bench *b, int64_t page, int32_t tokens, fig_random *random) {
    static const char *const names[] = {"k_cache.0", "v_cache.0"};
    const size_t bytes = (size_t)b->spec.head_dim * item_of(b->spec.kv_dtype);
    const int is_run = b->scene->heads_first || b->spec.kv_layout == FIG_HND;
    for (int which = 0; which < 2; which++) {
        if (!is_run) {
            write_numbers(b, names[which], cache_offset(b, page, 0, 0),
                          bytes * (size_t)(tokens * b->spec.kv_heads), b->spec.kv_dtype, random);
            continue;
        }
        for (int32_t head = 0; head < b->spec.kv_heads; head++)
            write_numbers(b, names[which], cache_offset(b, page, 0, head), bytes * (size_t)tokens,
                          b->spec.kv_dtype, random);
    }
}

static void write_sequence(bench *b, int32_t sequence, int32_t row, int64_t before, end at,
                           fig_random *random) {
    const int64_t count = page_count(b, row);
    int32_t *pages = calloc((size_t)count, sizeof *pages);
    assert_non_null(pages);
    for (int64_t n = 0; n < count; n++) {
        pages[n] = (int32_t)page_of(b, at, before + n);
        write_page(b, pages[n], b->scene->pages > 0 ? page_tokens(b) : b->scene->lengths[row],
                   random);
    }
    if (b->scene->pages > 0)
        must(fig_engine_set_pages(b->engine, FIG_OPTIONS(fig_pages, .sequence = sequence,
                                                         .count = (int32_t)count, .pages = pages)));
    free(pages);
}

static void write_rows(bench *b, end at, fig_random *random) {
    fig_tensor_info info = {.size = sizeof info};
    const size_t item = item_of(b->spec.dtype);
    const int64_t first = (int64_t)first_row(b, at) * b->spec.row_tokens;
    for (int32_t i = 0; fig_graphs_tensor(b->graphs, i, &info) == FIG_OK; i++) {
        if (info.role != FIG_ROLE_BOUND || is_cache(&info) || is_output(&info) || info.rank == 1)
            continue;
        for (int64_t row = first; row < first + ROWS * b->spec.row_tokens; row++)
            write_numbers(b, info.name, (uint64_t)(row * row_stride(b, &info)) * item,
                          (size_t)row_width(&info) * item, b->spec.dtype, random);
    }
}

static void read_outs(bench *b, end at) {
    fig_tensor_info info = {.size = sizeof info};
    const size_t item = item_of(b->spec.dtype);
    const int64_t first = (int64_t)first_row(b, at) * b->spec.row_tokens;
    b->out_bytes = 0;
    for (int32_t i = 0; fig_graphs_tensor(b->graphs, i, &info) == FIG_OK; i++) {
        const size_t bytes = (size_t)row_width(&info) * item;
        if (!is_output(&info)) continue;
        for (int64_t row = first; row < first + ROWS * b->spec.row_tokens; row++) {
            const uint64_t offset = (uint64_t)(row * row_stride(b, &info)) * item;
            assert_true(b->out_bytes + bytes <= OUT_BYTES);
            must(fig_engine_read(
                b->engine,
                FIG_OPTIONS(fig_span, .name = info.name, .offset = offset, .bytes = bytes),
                b->outs[at] + b->out_bytes));
            b->out_bytes += bytes;
        }
    }
}

/* Reads a row's newest token from both caches. */
static void read_appended(bench *b, int64_t page, int32_t row, end at) {
    const size_t bytes = (size_t)b->spec.head_dim * item_of(b->spec.kv_dtype);
    const int64_t token = (b->scene->lengths[row] - 1) % page_tokens(b);
    for (int32_t head = 0; head < 2 * b->spec.kv_heads; head++) {
        const char *name = head % 2 == 0 ? "k_cache.0" : "v_cache.0";
        const uint64_t offset = cache_offset(b, page, token, head / 2);
        assert_true(b->appended_bytes + bytes <= OUT_BYTES);
        must(fig_engine_read(b->engine,
                             FIG_OPTIONS(fig_span, .name = name, .offset = offset, .bytes = bytes),
                             b->appended[at] + b->appended_bytes));
        b->appended_bytes += bytes;
    }
}

static void run(bench *b, end at) {
    int32_t lengths[64] = {0}, sequences[64] = {0};
    const int32_t first = first_row(b, at);
    fig_random random = fig_random_seed(7);
    int64_t pages = 0;
    write_rows(b, at, &random);
    for (int32_t row = 0; row < ROWS; row++) {
        const int64_t dense = page_of(b, at, row);
        lengths[first + row] = b->scene->lengths[row];
        sequences[first + row] = b->scene->pages > 0 ? first + row : (int32_t)dense;
        write_sequence(b, sequences[first + row], row, b->scene->pages > 0 ? pages : row, at,
                       &random);
        pages += page_count(b, row);
    }
    must(fig_engine_step(b->engine, FIG_OPTIONS(fig_step, .rows = first + ROWS,
                                                .kv_lengths = lengths, .sequences = sequences)));
    must(fig_engine_wait(b->engine, FIG_HANG_US));
    read_outs(b, at);
    b->appended_bytes = 0;
    pages = 0;
    for (int32_t row = 0; row < ROWS; row++) {
        pages += page_count(b, row);
        read_appended(b, page_of(b, at, b->scene->pages > 0 ? pages - 1 : row), row, at);
    }
}

static void compare(const scene *of) {
    bench b;
    open_bench(&b, of);
    run(&b, NEAR);
    run(&b, FAR);
    assert_memory_equal(b.outs[NEAR], b.outs[FAR], b.out_bytes);
    assert_memory_equal(b.appended[NEAR], b.appended[FAR], b.appended_bytes);
    close_bench(&b);
}

/* ---- Cases --------------------------------------------------------------------------------- */

#define LLAMA .q_heads = 32, .kv_heads = 8, .head_dim = 128

static void pools_may_have_two_billion_numbers(void **state) {
    (void)state;
    compare(&(scene){.spec = {.dtype = FIG_BF16, LLAMA, .page_size = 16, .ffn_width = 256},
                     .pages = 150000,
                     .lengths = {600, 90, 300, 1}});
    compare(&(scene){.spec = {.dtype = FIG_F16, LLAMA, .page_size = 16, .kv_layout = FIG_HND},
                     .pages = 150000,
                     .lengths = {100, 80, 90, 70}});
    compare(&(scene){.spec = {.dtype = FIG_F16, LLAMA, .page_size = 16, .row_tokens = 3},
                     .pages = 150000,
                     .lengths = {300, 90, 40, 7}});
}

static void a_pool_may_have_four_billion_codes(void **state) {
    (void)state;
    compare(&(scene){.spec = {.dtype = FIG_BF16, .kv_dtype = FIG_E4M3, LLAMA, .page_size = 16},
                     .pages = 300000,
                     .lengths = {600, 90, 30, 17}});
}

static void a_cache_may_have_eighty_million_pages(void **state) {
    (void)state;
    compare(&(scene){.spec = {.dtype = FIG_BF16,
                              .kv_dtype = FIG_E4M3,
                              .q_heads = 4,
                              .kv_heads = 1,
                              .head_dim = 64,
                              .page_size = 1},
                     .pages = 80000000,
                     .lengths = {300, 20, 1, 64}});
}

static void pages_of_five_tokens_in_f32_are_right(void **state) {
    (void)state;
    compare(&(scene){
        .spec = {.dtype = FIG_F32, .q_heads = 8, .kv_heads = 2, .head_dim = 64, .page_size = 5},
        .pages = 3300000,
        .lengths = {300, 20, 1, 64}});
}

static void heads_may_lie_a_pool_apart(void **state) {
    (void)state;
    compare(&(scene){.spec = {.dtype = FIG_BF16, LLAMA, .page_size = 16},
                     .pages = 150000,
                     .heads_first = 1,
                     .lengths = {600, 90, 300, 1}});
}

static void dense_sequences_may_have_a_million_tokens(void **state) {
    (void)state;
    for (fig_kv_layout layout = FIG_NHD; layout <= FIG_HND; layout++)
        compare(&(scene){.spec = {.dtype = FIG_BF16,
                                  .q_heads = 8,
                                  .kv_heads = 2,
                                  .head_dim = 128,
                                  .kv_layout = layout},
                         .lengths = {900, 90, 40, 1}});
}

static void rows_may_lie_67_million_numbers_apart(void **state) {
    (void)state;
    compare(&(scene){.spec = {.dtype = FIG_BF16, LLAMA, .page_size = 16, .ffn_width = 256},
                     .pages = 4000 * divide,
                     .row_elements = 1 << 26,
                     .lengths = {200, 300, 3, 16}});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_may_have_two_billion_numbers),
        cmocka_unit_test(a_pool_may_have_four_billion_codes),
        cmocka_unit_test(a_cache_may_have_eighty_million_pages),
        cmocka_unit_test(pages_of_five_tokens_in_f32_are_right),
        cmocka_unit_test(heads_may_lie_a_pool_apart),
        cmocka_unit_test(dense_sequences_may_have_a_million_tokens),
        cmocka_unit_test(rows_may_lie_67_million_numbers_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

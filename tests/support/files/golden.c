/* golden.c: see golden.h. */
#include "tests/support/files/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two rows, whose sequences are neither the first ones nor in order. Their lengths span several
 * pages and exceed a window. Either the host gives the lengths or the program reads them on the
 * device. */
enum { ROWS = 2, STEPS = 2, PAGES_OF_ROW = 7, PAGES = 2 * PAGES_OF_ROW };
static const int32_t lengths[ROWS] = {91, 42}, sequences[ROWS] = {2, 0};

static void must(fig_status status, const char *what) {
    if (status == FIG_OK) return;
    fprintf(stderr, "golden: %s: %s: %s\n", what, fig_status_name(status), fig_message());
    exit(1);
}

/* ---- Inputs -------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Draws a multiple of 1/64 from -1 to 1, which every 16-bit dtype can represent. */
static float number(uint32_t *state) {
    return (float)(int32_t)(draw(state) % 129) / 64 - 1;
}

/* Stores x, without any rounding: the bf16 is the upper half of the f32. The f16 has a smaller
 * range of exponents and fewer digits, and the dropped digits are zeros. */
static void put_number(uint8_t *to, fig_dtype dtype, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t bf16 = (uint16_t)(bits >> 16);
    const uint16_t f16 =
        (uint16_t)((bits >> 16 & 0x8000) | (x == 0 ? 0 : (bits >> 13 & 0x3ffff) - (112u << 10)));
    if (dtype == FIG_F32) memcpy(to, &x, sizeof x);
    if (dtype == FIG_BF16) memcpy(to, &bf16, sizeof bf16);
    if (dtype == FIG_F16) memcpy(to, &f16, sizeof f16);
}

static void put_integer(uint8_t *to, fig_dtype dtype, int32_t n) {
    const int64_t wide = n;
    memcpy(to, dtype == FIG_I64 ? (const void *)&wide : (const void *)&n,
           dtype == FIG_I64 ? sizeof wide : sizeof n);
}

/* Integers are indices, so the tensor's name determines them. Rows after the step's last have
 * length and position 0. */
static int32_t integer_of(const char *name, int64_t i) {
    static const int32_t indptr[] = {0, 1, 3, 4}, offsets[] = {5, 0, 77};
    if (strcmp(name, "indptr") == 0) return indptr[i];
    if (strcmp(name, "offsets") == 0) return offsets[i];
    if (i >= ROWS) return 0;
    return strcmp(name, "lengths") == 0 ? lengths[i] : lengths[i] - 1;
}

static void fill(fig_golden_tensor *tensor) {
    const fig_dtype dtype = tensor->info.dtype;
    const int is_scale = strstr(tensor->info.name, "_scale") != NULL;
    uint32_t state = 1;
    for (const char *c = tensor->info.name; *c != '\0'; c++)
        state = state * 31 + (uint32_t)(unsigned char)*c;
    for (int64_t i = 0; i < tensor->count; i++) {
        uint8_t *to = tensor->given + (size_t)i * tensor->number_bytes;
        if (dtype == FIG_I32 || dtype == FIG_I64) {
            put_integer(to, dtype, integer_of(tensor->info.name, i));
        } else if (dtype == FIG_E4M3) {
            *to = (uint8_t)(draw(&state) & 0xbf); /* below 2 in magnitude, and never a NaN */
        } else {
            const float x = number(&state);
            put_number(to, dtype, is_scale ? 1 + x / 2 : x);
        }
    }
}

/* ---- Calls --------------------------------------------------------------------------------- */

static int is_marked(const fig_call_args *args) {
    return args->tag == UINT64_MAX && args->byte_count == 7 &&
           memcmp(args->bytes, "weights", 7) == 0;
}

/* up[r][c] = x[r][c * 5 + 3], modulo the width of x */
static int32_t gemm(void *user, const fig_call_args *args) {
    const uint16_t *x = args->reads[0];
    uint16_t *up = args->writes[0];
    (void)user;
    for (int32_t r = 0; r < args->rows; r++)
        for (int32_t c = 0; c < 128; c++)
            up[r * 128 + c] = x[r * 64 + (c * 5 + 3) % 64];
    return !is_marked(args);
}

/* x[r][c] = act[r][63 - c] */
static int32_t project(void *user, const fig_call_args *args) {
    const uint16_t *act = args->reads[0];
    uint16_t *x = args->writes[0];
    (void)user;
    for (int32_t r = 0; r < args->rows; r++)
        for (int32_t c = 0; c < 64; c++)
            x[r * 64 + c] = act[r * 64 + 63 - c];
    return !is_marked(args);
}

static int32_t count(void *user, const fig_call_args *args) {
    (void)args;
    ++*(int32_t *)user;
    return 0;
}

/* ---- Running ------------------------------------------------------------------------------- */

static size_t bytes_of(fig_dtype dtype) {
    if (dtype == FIG_I64) return 8;
    if (dtype == FIG_F32 || dtype == FIG_I32) return 4;
    return dtype == FIG_F16 || dtype == FIG_BF16 ? 2 : 1;
}

static void add_tensor(fig_golden *golden, const fig_tensor_info *info, int32_t batch_limit) {
    fig_golden_tensor *tensor = &golden->tensors[golden->tensor_count++];
    const int64_t multiple = info->multiple > 1 ? info->multiple : 1;
    *tensor = (fig_golden_tensor){.info = *info, .number_bytes = bytes_of(info->dtype), .count = 1};
    for (int32_t i = 0; i < info->rank; i++)
        tensor->count *= info->dims[i] == FIG_DIM_BATCH   ? batch_limit * multiple
                         : info->dims[i] == FIG_DIM_PAGES ? PAGES
                                                          : info->dims[i];
    const size_t bytes = (size_t)tensor->count * tensor->number_bytes;
    tensor->given = malloc(bytes);
    tensor->made = malloc(bytes);
    fill(tensor);
    fig_span span = {.size = sizeof span, .name = info->name, .bytes = bytes};
    must(fig_engine_bind(golden->engine,
                         FIG_OPTIONS(fig_binding, .name = info->name, .bytes = bytes)),
         info->name);
    must(fig_engine_write(golden->engine, &span, tensor->given), info->name);
}

static void open_all(fig_golden *golden, const char *path) {
    fig_graphs_info info = {.size = sizeof info};
    fig_tensor_info tensor = {.size = sizeof tensor};
    must(fig_graphs_load(&golden->graphs, path), path);
    fig_graphs_read_info(golden->graphs, &info);
    must(fig_engine_open(&golden->engine, golden->graphs,
                         FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)),
         path);
    for (int32_t i = 0; fig_graphs_tensor(golden->graphs, i, &tensor) == FIG_OK; i++) {
        if (tensor.role == FIG_ROLE_TEMP || strncmp(tensor.name, "page_table", 10) == 0) continue;
        if (golden->tensor_count == FIG_GOLDEN_TENSOR_LIMIT) abort();
        add_tensor(golden, &tensor, info.spec->batch_limit);
    }
}

/* Interleaves the pages of both rows, in a scattered order. */
static void set_pages(fig_golden *golden) {
    for (int32_t row = 0; row < ROWS; row++) {
        int32_t pages[PAGES_OF_ROW];
        for (int32_t i = 0; i < PAGES_OF_ROW; i++)
            pages[i] = (5 * (2 * i + row) + 3) % PAGES;
        must(fig_engine_set_pages(golden->engine,
                                  FIG_OPTIONS(fig_pages, .sequence = sequences[row],
                                              .count = PAGES_OF_ROW, .pages = pages)),
             "pages");
    }
}

static void run_step(fig_golden *golden, int32_t grown) {
    const fig_golden_tensor *on_device = NULL;
    int32_t own[ROWS];
    for (int32_t i = 0; i < golden->tensor_count; i++)
        if (strcmp(golden->tensors[i].info.name, "lengths") == 0) on_device = &golden->tensors[i];
    for (int32_t row = 0; row < ROWS; row++)
        own[row] = lengths[row] + grown;
    if (on_device != NULL)
        must(fig_engine_write(golden->engine,
                              FIG_OPTIONS(fig_span, .name = "lengths", .bytes = sizeof own), own),
             "lengths");
    must(fig_engine_step(golden->engine, FIG_OPTIONS(fig_step, .rows = ROWS, .sequences = sequences,
                                                     .kv_lengths = on_device == NULL ? own : NULL)),
         "step");
    must(fig_engine_wait(golden->engine, -1), "wait");
}

void fig_golden_run(fig_golden *golden, const char *path) {
    int32_t samples = 0;
    *golden = (fig_golden){.tensor_count = 0};
    open_all(golden, path);
    /* In files without such calls, registering the callback fails. */
    const int is_sampled = fig_engine_register(golden->engine, "sample", count, &samples) == FIG_OK;
    (void)fig_engine_register(golden->engine, "gemm", gemm, NULL);
    (void)fig_engine_register(golden->engine, "project", project, NULL);
    set_pages(golden);
    for (int32_t step = 0; step < STEPS; step++)
        run_step(golden, 2 * step);
    if (samples != (is_sampled ? STEPS : 0)) abort();
    for (int32_t i = 0; i < golden->tensor_count; i++) {
        fig_golden_tensor *tensor = &golden->tensors[i];
        fig_span span = {.size = sizeof span,
                         .name = tensor->info.name,
                         .bytes = (size_t)tensor->count * tensor->number_bytes};
        must(fig_engine_read(golden->engine, &span, tensor->made), tensor->info.name);
    }
}

void fig_golden_close(fig_golden *golden) {
    for (int32_t i = 0; i < golden->tensor_count; i++) {
        free(golden->tensors[i].given);
        free(golden->tensors[i].made);
    }
    fig_engine_close(golden->engine);
    fig_graphs_destroy(golden->graphs);
}

/* session.c: finds the tensors of a standard step, allocates their memory and fills it.
 *
 * The engine owns all memory, and this file reaches it only through fig_engine_write() and
 * fig_engine_read(), so it works on any device. Caches are sized for the steps that will be
 * replayed, not for the spec's limits. */
#include "tools/figraph/step/session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/step/standard.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth_latent.h"

/* The moment when a tensor gets synthetic data. */
typedef enum filling {
    FILL_NEVER,
    FILL_EACH_STEP,
    FILL_ONCE,
    FILL_SCALES_ONCE,
    FILL_ARRAY_ONCE,
    FILL_BY_PAGE /* each page once, when a sequence gets it */
} filling;

static const struct kind {
    const char *stem; /* "q" of "q.7"; NULL: a score gives the name */
    filling filled;
} kinds[FIG_SESSION_KIND_COUNT] = {
    [FIG_SESSION_GATE_UP] = {"gate_up", FILL_EACH_STEP},
    [FIG_SESSION_ACT] = {"act", FILL_NEVER},
    [FIG_SESSION_Q] = {"q", FILL_EACH_STEP},
    [FIG_SESSION_K] = {"k", FILL_EACH_STEP},
    [FIG_SESSION_V] = {"v", FILL_EACH_STEP},
    [FIG_SESSION_K_CACHE] = {"k_cache", FILL_BY_PAGE},
    [FIG_SESSION_V_CACHE] = {"v_cache", FILL_BY_PAGE},
    [FIG_SESSION_OUT] = {"out", FILL_NEVER},
    [FIG_SESSION_Q_NORM] = {"q_norm", FILL_ONCE},
    [FIG_SESSION_K_NORM] = {"k_norm", FILL_ONCE},
    [FIG_SESSION_K_SCALE] = {"k_scale", FILL_SCALES_ONCE},
    [FIG_SESSION_V_SCALE] = {"v_scale", FILL_SCALES_ONCE},
    [FIG_SESSION_SINKS] = {"sinks", FILL_ONCE},
    [FIG_SESSION_LATENT] = {"latent", FILL_EACH_STEP},
    [FIG_SESSION_LATENT_NORM] = {"latent_norm", FILL_ONCE},
    [FIG_SESSION_Q_ROPE] = {"q_rope", FILL_EACH_STEP},
    [FIG_SESSION_ARRAY] = {NULL, FILL_ARRAY_ONCE},
    [FIG_SESSION_PAGE_TABLE] = {"page_table", FILL_NEVER},
    [FIG_SESSION_WINDOW_TABLE] = {"page_table.window", FILL_NEVER},
};

/* Reads the kind and the layer of a standard step's tensor from its name. */
static void read_name(fig_session_tensor *tensor, int32_t layers) {
    const char *name = tensor->info.name, *dot = strchr(name, '.');
    const long layer = dot != NULL ? strtol(dot + 1, NULL, 10) : 0;
    for (int i = 0; i < FIG_SESSION_KIND_COUNT; i++) {
        char whole[96];
        const int of_layer = i < FIG_SESSION_ARRAY;
        if (kinds[i].stem == NULL) continue;
        snprintf(whole, sizeof whole, of_layer ? "%s.%ld" : "%s", kinds[i].stem, layer);
        if (strcmp(whole, name) != 0) continue;
        tensor->kind = (fig_session_kind)i;
        tensor->layer = of_layer ? (int32_t)layer : 0;
        assert(layer >= 0 && layer < layers);
        return;
    }
    tensor->kind = FIG_SESSION_ARRAY; /* the step is a standard one, so no other name is left */
}

static size_t row_bytes_of(const fig_tensor_info *info) {
    size_t bytes = fig_synthetic_bytes(info->dtype);
    for (int32_t i = 1; i < info->rank; i++)
        bytes *= (size_t)info->dims[i];
    return bytes;
}

fig_session_tensor *fig_session_find(const fig_session *session, int32_t layer,
                                     fig_session_kind kind) {
    int32_t index = session->places[layer * FIG_SESSION_KIND_COUNT + (int32_t)kind];
    return index < 0 ? NULL : &session->tensors[index];
}

const fig_session_tensor *fig_session_array(const fig_session *session, const char *name) {
    const fig_session_tensor *tensor = session->tensors;
    while (tensor->kind != FIG_SESSION_ARRAY || strcmp(tensor->info.name, name) != 0)
        tensor++;
    return tensor;
}

/* Lists the tensors that can be bound and finds each one's place in the standard step. */
static int read_tensors(fig_session *session) {
    int32_t layers = session->info.spec->layers;
    int32_t place_count = layers * FIG_SESSION_KIND_COUNT;
    fig_tensor_info info = {.size = sizeof info};
    while (fig_graphs_tensor(session->graphs, session->tensor_count, &info) == FIG_OK)
        session->tensor_count++;
    session->tensors = calloc((size_t)session->tensor_count + 1, sizeof *session->tensors);
    session->places = malloc((size_t)place_count * sizeof *session->places);
    if (session->tensors == NULL || session->places == NULL) {
        return fig_report_refuse("replay: no memory for %d tensors", session->tensor_count);
    }
    for (int32_t i = 0; i < place_count; i++)
        session->places[i] = -1;
    for (int32_t i = 0; i < session->tensor_count; i++) {
        fig_session_tensor *tensor = &session->tensors[i];
        tensor->info.size = sizeof tensor->info;
        if (fig_graphs_tensor(session->graphs, i, &tensor->info) != FIG_OK) {
            return fig_report_status("replay");
        }
        read_name(tensor, layers);
        tensor->row_bytes = row_bytes_of(&tensor->info);
        session->places[tensor->layer * FIG_SESSION_KIND_COUNT + (int32_t)tensor->kind] = i;
    }
    return FIG_EXIT_FINE;
}

/* Runs the schedule in advance to find the length that each row's sequence reaches. */
static int count_pages(fig_session *session, const fig_schedule_options *options) {
    fig_schedule schedule;
    int32_t *longest = calloc((size_t)options->rows, sizeof *longest);
    if (longest == NULL) return fig_report_refuse("replay: no memory for %d rows", options->rows);
    int code = fig_schedule_init(&schedule, options);
    for (int32_t step = 0; code == FIG_EXIT_FINE && step < options->steps; step++) {
        fig_schedule_advance(&schedule);
        for (int32_t r = 0; r < schedule.rows; r++) {
            if (schedule.lengths[r] > longest[r]) longest[r] = schedule.lengths[r];
        }
    }
    session->page_count = 0;
    for (int32_t r = 0; code == FIG_EXIT_FINE && r < options->rows; r++)
        session->page_count += (longest[r] + session->page_tokens - 1) / session->page_tokens;
    /* A dense cache holds sequence s at page s, even if s is idle. */
    if (session->info.spec->page_size == 0) session->page_count = session->sequence_count;
    fig_schedule_finish(&schedule);
    free(longest);
    return code;
}

static int make_pages(fig_session *session, const fig_schedule_options *options) {
    const fig_session_tensor *cache = fig_session_find(session, 0, FIG_SESSION_K_CACHE);
    session->page_tokens = (int32_t)cache->info.dims[1];
    session->sequence_pages =
        (session->info.spec->kv_limit + session->page_tokens - 1) / session->page_tokens;
    session->sequence_count = options->rows;
    int code = count_pages(session, options);
    if (code != FIG_EXIT_FINE) return code;
    size_t sequences = (size_t)session->sequence_count, pages = (size_t)session->page_count;
    session->sequences = calloc(sequences, sizeof(int32_t));
    session->held = calloc(sequences, sizeof(int32_t));
    session->page_table = calloc(sequences * (size_t)session->sequence_pages, sizeof(int32_t));
    session->page_order = calloc(pages + 1, sizeof(int32_t));
    if (session->sequences == NULL || session->held == NULL || session->page_table == NULL ||
        session->page_order == NULL) {
        return fig_report_refuse("replay: no memory for a table of %zu pages", pages);
    }
    fig_synthetic_permutation(&session->synthetic, session->sequences, session->sequence_count);
    fig_synthetic_permutation(&session->synthetic, session->page_order, session->page_count);
    return FIG_EXIT_FINE;
}

/* Returns the size of dims[0] in the mirror, which covers only the replayed steps. */
static int64_t mirror_count(const fig_session *session, const fig_tensor_info *info) {
    if (info->dims[0] == FIG_DIM_PAGES) return session->page_count;
    const int64_t rows = (int64_t)session->sequence_count * info->multiple;
    if (info->dims[0] == FIG_DIM_QUERIES) {
        const int64_t all = rows * session->info.spec->row_tokens;
        const int64_t most = session->info.spec->query_limit * info->multiple;
        return all < most ? all : most;
    }
    return info->dims[0] == FIG_DIM_BATCH ? rows : info->dims[0];
}

/* Returns the size of dims[0] that the engine must get: the rows of the largest step, or the pages
 * of the table, or in a dense cache one page for each sequence that the spec allows. */
static int64_t bound_count(const fig_session *session, const fig_tensor_info *info) {
    const fig_spec *spec = session->info.spec;
    if (info->dims[0] == FIG_DIM_BATCH) return (int64_t)spec->batch_limit * info->multiple;
    if (info->dims[0] == FIG_DIM_QUERIES) return spec->query_limit * info->multiple;
    if (info->dims[0] != FIG_DIM_PAGES) return info->dims[0];
    if (spec->page_size == 0) return spec->sequence_limit;
    return session->page_count > 0 ? session->page_count : 1;
}

/* Has the engine allocate every tensor that a caller must bind. */
static int bind_tensors(fig_session *session) {
    for (int32_t i = 0; i < session->tensor_count; i++) {
        fig_session_tensor *tensor = &session->tensors[i];
        if (tensor->kind >= FIG_SESSION_PAGE_TABLE) continue;
        int64_t bound = bound_count(session, &tensor->info);
        tensor->count = mirror_count(session, &tensor->info);
        tensor->mirror = calloc((size_t)tensor->count + 1, tensor->row_bytes);
        if (tensor->mirror == NULL) {
            return fig_report_refuse("replay: no memory for %s, %lld of %zu bytes",
                                     tensor->info.name, (long long)tensor->count,
                                     tensor->row_bytes);
        }
        fig_status status = fig_engine_bind(
            session->engine, FIG_OPTIONS(fig_binding, .name = tensor->info.name,
                                         .bytes = (size_t)bound * tensor->row_bytes));
        if (status != FIG_OK) return fig_report_status("replay");
    }
    return FIG_EXIT_FINE;
}

/* Writes the mirror's rows or pages [first, first + count) to the device. */
static int write_rows(fig_session *session, const fig_session_tensor *tensor, int64_t first,
                      int64_t count) {
    size_t offset = (size_t)first * tensor->row_bytes;
    fig_span span = {.size = sizeof span,
                     .name = tensor->info.name,
                     .offset = offset,
                     .bytes = (size_t)count * tensor->row_bytes};
    if (fig_engine_write(session->engine, &span, tensor->mirror + offset) == FIG_OK) {
        return FIG_EXIT_FINE;
    }
    return fig_report_status("replay");
}

/* Random bytes are not valid tokens of a latent cache of codes. This function keeps each token's
 * codes, and sets a scale for each 128 codes and the 64 bf16 values. */
static void mend_codes(fig_session *session, uint8_t *tokens, size_t count) {
    enum { CODES = 512, SCALES = 4 };
    for (size_t i = 0; i < count; i++) {
        uint8_t *token = tokens + i * TRUTH_LATENT_CODES;
        float scales[SCALES];
        fig_synthetic_scales(&session->synthetic, scales, SCALES);
        memcpy(token + CODES, scales, sizeof scales);
        fig_synthetic_fill(&session->synthetic, FIG_BF16, token + CODES + sizeof scales,
                           TRUTH_LATENT_KEY_DIM - TRUTH_LATENT_DIM);
    }
}

/* Fills [first, first + count) with synthetic data, in the mirror and on the device. */
static int fill_rows(fig_session *session, fig_session_tensor *tensor, int64_t first,
                     int64_t count) {
    size_t elements = (size_t)count * tensor->row_bytes / fig_synthetic_bytes(tensor->info.dtype);
    uint8_t *mirror = tensor->mirror + (size_t)first * tensor->row_bytes;
    assert(first + count <= tensor->count);
    if (kinds[tensor->kind].filled == FILL_SCALES_ONCE) {
        assert(tensor->info.dtype == FIG_F32);
        fig_synthetic_scales(&session->synthetic, (float *)(void *)mirror, elements);
    } else if (kinds[tensor->kind].filled == FILL_ARRAY_ONCE) {
        fig_synthetic_array(&session->synthetic, tensor->info.dtype, mirror, elements);
    } else {
        fig_synthetic_fill(&session->synthetic, tensor->info.dtype, mirror, elements);
    }
    if (tensor->kind == FIG_SESSION_K_CACHE && session->info.spec->latent_dim > 0 &&
        tensor->info.dtype == FIG_E4M3)
        mend_codes(session, mirror, elements / TRUTH_LATENT_CODES);
    return write_rows(session, tensor, first, count);
}

/* Fills the tensors that do not change between steps: weights of norms, sinks, scales of caches and
 * arrays of a score. */
static int fill_once(fig_session *session) {
    for (int32_t i = 0; i < session->tensor_count; i++) {
        fig_session_tensor *tensor = &session->tensors[i];
        filling filled = kinds[tensor->kind].filled;
        if (filled != FILL_ONCE && filled != FILL_SCALES_ONCE && filled != FILL_ARRAY_ONCE)
            continue;
        int code = fill_rows(session, tensor, 0, tensor->count);
        if (code != FIG_EXIT_FINE) return code;
    }
    return FIG_EXIT_FINE;
}

int fig_session_open(fig_session *session, const fig_session_options *options) {
    *session = (fig_session){.graphs = options->graphs, .info = {.size = sizeof session->info}};
    fig_graphs_read_info(session->graphs, &session->info);
    fig_synthetic_seed(&session->synthetic, options->schedule.seed);
    int code = fig_standard_check(session->graphs, "replay", &session->score);
    if (code == FIG_EXIT_FINE) code = read_tensors(session);
    if (code == FIG_EXIT_FINE) code = make_pages(session, &options->schedule);
    if (code != FIG_EXIT_FINE) return code;
    const fig_engine_options engine_options = {.size = sizeof engine_options,
                                               .device = options->device,
                                               .trust = options->trust,
                                               .compile_scores = options->compiled.compile_scores,
                                               .score_cache = options->compiled.score_cache};
    if (fig_engine_open(&session->engine, session->graphs, &engine_options) != FIG_OK) {
        return fig_report_status("replay");
    }
    code = bind_tensors(session);
    return code == FIG_EXIT_FINE ? fill_once(session) : code;
}

int fig_session_prepare(fig_session *session, const fig_step *step) {
    fig_plan_report report = {.size = sizeof report};
    if (fig_graphs_plan(session->graphs, step, &report) != FIG_OK ||
        fig_engine_prepare(session->engine, report.bucket) != FIG_OK)
        return fig_report_status("replay");
    return FIG_EXIT_FINE;
}

void fig_session_close(fig_session *session) {
    fig_engine_close(session->engine);
    fig_score_destroy(session->score);
    for (int32_t i = 0; session->tensors != NULL && i < session->tensor_count; i++)
        free(session->tensors[i].mirror);
    free(session->tensors);
    free(session->places);
    free(session->sequences);
    free(session->held);
    free(session->page_table);
    free(session->page_order);
    *session = (fig_session){0};
}

/* Gives a sequence one more page in the table, and fills that page in every cache as if it had
 * been prefilled. */
static int add_page(fig_session *session, int32_t sequence) {
    int dense = session->info.spec->page_size == 0;
    int32_t index = session->held[sequence]++;
    int32_t page = dense ? sequence : session->page_order[session->pages_used];
    assert(session->pages_used < session->page_count);
    session->pages_used++;
    session->page_table[(int64_t)sequence * session->sequence_pages + index] = page;
    for (int32_t layer = 0; layer < session->info.spec->layers; layer++) {
        fig_session_tensor *v = fig_session_find(session, layer, FIG_SESSION_V_CACHE);
        int code =
            fill_rows(session, fig_session_find(session, layer, FIG_SESSION_K_CACHE), page, 1);
        if (code == FIG_EXIT_FINE && v != NULL) code = fill_rows(session, v, page, 1);
        if (code != FIG_EXIT_FINE) return code;
    }
    if (dense) return FIG_EXIT_FINE;
    fig_pages pages = {
        .size = sizeof pages, .sequence = sequence, .first = index, .count = 1, .pages = &page};
    if (fig_engine_set_pages(session->engine, &pages) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status("replay");
}

int32_t fig_session_rows(const fig_schedule *schedule, const fig_session_tensor *tensor) {
    const int is_packed = tensor->info.dims[0] == FIG_DIM_QUERIES;
    return (is_packed ? fig_schedule_count(schedule) : schedule->rows) * tensor->info.multiple;
}

int fig_session_feed(fig_session *session, const fig_schedule *schedule) {
    for (int32_t row = 0; row < schedule->rows; row++) {
        int32_t sequence = session->sequences[row];
        int32_t pages = (schedule->lengths[row] + session->page_tokens - 1) / session->page_tokens;
        while (session->held[sequence] < pages) {
            int code = add_page(session, sequence);
            if (code != FIG_EXIT_FINE) return code;
        }
    }
    for (int32_t i = 0; i < session->tensor_count; i++) {
        fig_session_tensor *tensor = &session->tensors[i];
        if (kinds[tensor->kind].filled != FILL_EACH_STEP) continue;
        int code = fill_rows(session, tensor, 0, fig_session_rows(schedule, tensor));
        if (code != FIG_EXIT_FINE) return code;
    }
    return FIG_EXIT_FINE;
}

int fig_session_read(fig_session *session, const fig_session_tensor *tensor, size_t offset,
                     size_t bytes, void *to) {
    fig_span span = {
        .size = sizeof span, .name = tensor->info.name, .offset = offset, .bytes = bytes};
    if (fig_engine_read(session->engine, &span, to) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status("replay");
}

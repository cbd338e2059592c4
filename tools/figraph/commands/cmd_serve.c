/* cmd_serve.c: figraph serve, which serves requests from the first arrival to the last token.
 *
 * Reads the requests, the step and the size of the cache; serve_loop.c does the serving. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <figraph.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/serve/serve_loop.h"
#include "tools/figraph/serve/serve_report.h"
#include "tools/figraph/step/ranked.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/text.h"

enum { DEFAULT_REQUESTS = 64 };
static const double GIB = 1 << 30;
static const double DEFAULT_GIB = 1;

typedef struct serving {
    fig_ranked ranked;
    fig_graphs *graphs; /* this rank's share */
    const fig_spec *spec;
    const char *name; /* the file or the model */
    fig_device device;
    int has_sums;
    int32_t chunk; /* the most prompt tokens of a step; 0: prompts count as cached */
    int32_t page_tokens;
    uint64_t page_bytes;
    int32_t page_limit; /* the most pages that the cache may have */
    fig_serve_trace trace;
} serving;

/* Reads a number of at least `least`; leaves *value unchanged if the option was not given. */
static int read_number(const fig_arguments *arguments, const char *name, double least,
                       double *value) {
    const char *text = fig_arguments_text(arguments, name);
    char *end;
    if (text == NULL) return FIG_EXIT_FINE;
    *value = strtod(text, &end);
    if (fig_text_is_decimal(text) && *end == '\0' && isfinite(*value) && *value >= least)
        return FIG_EXIT_FINE;
    return fig_report_refuse("serve: %s: \"%s\" is not a number of at least %g", name, text, least);
}

static int is_given(const fig_arguments *arguments, const char *name) {
    return fig_arguments_text(arguments, name) != NULL;
}

/* ---- The step ---------------------------------------------------------------------------- */

/* Finds out whether there is a GPU, because each rank must name its GPU when it opens the
 * engine. */
static int find_device(const fig_arguments *arguments, serving *serve, fig_traits *traits) {
    const int code = fig_source_device_traits(arguments, serve->device, traits);
    if (code == FIG_EXIT_FINE)
        serve->device = traits->compute_capability > 0 ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST;
    return code;
}

/* The most query tokens that a row may have. */
enum { CHUNK_LIMIT = 4096, LATENT_CHUNK_LIMIT = 16 };

/* Makes the spec that of a packed program, in which all rows decode beside a budget of prompts.
 * With --query-limit it already is that of one, whose budget find_chunk() checks. */
static int pack(const serving *serve, fig_spec *spec) {
    const int32_t limit = spec->latent_dim > 0 ? LATENT_CHUNK_LIMIT : CHUNK_LIMIT;
    if (serve->chunk == 0 || spec->query_limit > 0) return FIG_EXIT_FINE;
    if (spec->row_tokens > 0)
        return fig_report_refuse("serve: --row-tokens: %d, but --chunk already fixes it; with "
                                 "--query-limit it does not",
                                 spec->row_tokens);
    spec->row_tokens = serve->chunk < limit ? serve->chunk : limit;
    if (spec->row_tokens > spec->kv_limit) spec->row_tokens = spec->kv_limit;
    spec->query_limit = (int64_t)spec->batch_limit + serve->chunk;
    return FIG_EXIT_FINE;
}

/* Finds the budget of a packed program: the query tokens that a step holds beside those of rows
 * that decode. */
static int find_chunk(serving *serve) {
    const fig_spec *spec = serve->spec;
    const int32_t rows =
        spec->batch_limit < spec->sequence_limit ? spec->batch_limit : spec->sequence_limit;
    const int64_t room = spec->query_limit - rows;
    if (spec->query_limit == 0 && serve->chunk > 0)
        return fig_report_refuse("serve: --chunk: the step of %s is not packed; capture it with "
                                 "--query-limit",
                                 serve->name);
    if (spec->query_limit == 0) return FIG_EXIT_FINE;
    if (room < 1)
        return fig_report_refuse("serve: %s: %" PRId64 " query tokens in a step leave none for "
                                 "prompts beside %d rows",
                                 serve->name, spec->query_limit, rows);
    if (serve->chunk > room)
        return fig_report_refuse("serve: --chunk: %d tokens, but a step of %s has room for %" PRId64
                                 " beside %d rows",
                                 serve->chunk, serve->name, room, rows);
    if (serve->chunk == 0) serve->chunk = room < INT32_MAX ? (int32_t)room : INT32_MAX;
    return FIG_EXIT_FINE;
}

/* Reads the budget of prompt tokens. A step under a budget is a plan of its own. */
static int read_chunk(const fig_arguments *arguments, serving *serve) {
    const fig_integer range = {.name = "--chunk", .least = 0, .most = 1 << 16, .fallback = 0};
    int64_t chunk;
    const int code = fig_arguments_integer(arguments, &range, &chunk);
    serve->chunk = (int32_t)chunk;
    return code;
}

/* Returns the most tokens that the last step of a row may make in addition to those that its
 * request still needs. */
static int32_t tail_of(const serving *serve) {
    return serve->chunk > 0 ? 0 : serve->spec->row_tokens - 1;
}

static int lower_model(const fig_arguments *arguments, serving *serve) {
    fig_source source;
    fig_traits traits = {.size = sizeof traits};
    int code = fig_source_read(arguments, &source);
    if (code == FIG_EXIT_FINE) code = pack(serve, &source.spec);
    if (code != FIG_EXIT_FINE) return code;
    serve->name = source.name;
    serve->has_sums = serve->ranked.count > 1;
    if (serve->has_sums) source.sum_width = source.spec.q_heads * source.spec.head_dim;
    code = find_device(arguments, serve, &traits);
    return code == FIG_EXIT_FINE ? fig_source_lower(&source, &traits, &serve->graphs) : code;
}

static int open_graphs(const fig_arguments *arguments, serving *serve) {
    fig_graphs_info info = {.size = sizeof info};
    fig_memory_info memory = {.size = sizeof memory};
    fig_traits traits = {.size = sizeof traits};
    serve->name = arguments->operand;
    int code = fig_source_check_named(arguments);
    if (code == FIG_EXIT_FINE) code = fig_source_read_device(arguments, &serve->device);
    if (code == FIG_EXIT_FINE) code = read_chunk(arguments, serve);
    if (code != FIG_EXIT_FINE) return code;
    if (serve->name == NULL) {
        code = lower_model(arguments, serve);
    } else if (fig_graphs_load(&serve->graphs, serve->name) != FIG_OK) {
        code = fig_report_status(serve->name);
    } else if (serve->ranked.count > 1) {
        code = find_device(arguments, serve, &traits);
    }
    if (code == FIG_EXIT_FINE)
        code = fig_source_divide(arguments, serve->ranked.count, &serve->graphs);
    if (code != FIG_EXIT_FINE) return code;
    fig_graphs_read_info(serve->graphs, &info);
    if (fig_graphs_memory(serve->graphs, 0, &memory) != FIG_OK) return fig_report_status("serve");
    serve->spec = info.spec;
    serve->page_tokens = info.spec->page_size > 0 ? info.spec->page_size : info.spec->kv_limit;
    serve->page_bytes = memory.token_bytes * (uint64_t)serve->page_tokens;
    return find_chunk(serve);
}

/* ---- The cache --------------------------------------------------------------------------- */

/* Returns the most pages that all sequences together can hold. */
static int64_t pages_of_all(const fig_spec *spec, int32_t page_tokens) {
    return (int64_t)spec->sequence_limit * ((spec->kv_limit + page_tokens - 1) / page_tokens);
}

/* Reads the most pages of the cache. A dense cache has one page for each sequence, so there is no
 * choice. */
static int read_page_limit(const fig_arguments *arguments, serving *serve) {
    const int counted = is_given(arguments, "--kv-pages"), sized = is_given(arguments, "--kv-gib");
    const int64_t all = pages_of_all(serve->spec, serve->page_tokens);
    const int64_t most = all < INT32_MAX ? all : INT32_MAX;
    fig_integer range = {.name = "--kv-pages", .least = 1, .most = most, .fallback = most};
    double gib = DEFAULT_GIB;
    int64_t pages;
    if (counted && sized)
        return fig_report_refuse("serve: --kv-pages and --kv-gib: both were given; give one of "
                                 "them");
    if ((counted || sized) && serve->spec->page_size == 0)
        return fig_report_refuse("serve: %s: the cache of %s is dense: its size is fixed",
                                 counted ? "--kv-pages" : "--kv-gib", serve->name);
    int code = fig_arguments_integer(arguments, &range, &pages);
    if (code == FIG_EXIT_FINE) code = read_number(arguments, "--kv-gib", 0, &gib);
    if (code != FIG_EXIT_FINE) return code;
    const double held = floor(gib * GIB / (double)serve->page_bytes);
    if (!counted && serve->spec->page_size > 0 && held < (double)pages) pages = (int64_t)held;
    serve->page_limit = (int32_t)pages;
    if (pages >= 1) return FIG_EXIT_FINE;
    return fig_report_refuse("serve: --kv-gib: %g GiB do not hold one page of %" PRIu64 " bytes",
                             gib, serve->page_bytes);
}

static int compare_lengths(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x < y) - (x > y);
}

/* Chooses the number of pages. By default it is enough for the longest requests that can run at the
 * same time, up to the limit. */
static int choose_pages(const fig_arguments *arguments, const serving *serve, int32_t *pages) {
    const fig_serve_trace *trace = &serve->trace;
    const int32_t tail = tail_of(serve);
    int32_t *lengths = malloc((size_t)trace->count * sizeof *lengths);
    int64_t wanted = 0;
    *pages = serve->page_limit;
    if (lengths == NULL) return fig_report_refuse("serve: no memory for %d lengths", trace->count);
    for (int32_t i = 0; i < trace->count; i++)
        lengths[i] = trace->requests[i].prompt + trace->requests[i].output + tail;
    qsort(lengths, (size_t)trace->count, sizeof *lengths, compare_lengths);
    for (int32_t i = 0; i < trace->count && i < serve->spec->sequence_limit; i++)
        wanted += (lengths[i] + serve->page_tokens - 1) / serve->page_tokens;
    free(lengths);
    if (is_given(arguments, "--kv-pages") || is_given(arguments, "--kv-gib") ||
        serve->spec->page_size == 0)
        return FIG_EXIT_FINE;
    if (wanted < *pages) *pages = (int32_t)wanted;
    return FIG_EXIT_FINE;
}

/* ---- The requests ------------------------------------------------------------------------ */

/* Computes the largest request. The last step of a row may make more tokens than its request still
 * needs; these need room too. */
static int read_limit(const serving *serve, fig_serve_limit *limit) {
    const int64_t room = (int64_t)serve->page_limit * serve->page_tokens;
    const int32_t tail = tail_of(serve);
    *limit =
        (fig_serve_limit){serve->spec->kv_limit - tail, "this is the longest sequence of the step"};
    if (room < serve->spec->kv_limit)
        *limit = (fig_serve_limit){(int32_t)room - tail, "the cache has no room for more"};
    if (limit->tokens >= 2) return FIG_EXIT_FINE;
    return fig_report_refuse("serve: %s: a request has at least 2 tokens, but the limit is %d: %s",
                             serve->name, limit->tokens, limit->why);
}

static int read_requests(const fig_arguments *arguments, serving *serve) {
    static const char *const made[] = {"--requests", "--rate", "--seed", "--save-trace"};
    const char *path = fig_arguments_text(arguments, "--trace");
    const char *saved = fig_arguments_text(arguments, "--save-trace");
    const fig_integer count_range = {.name = "--requests",
                                     .least = 1,
                                     .most = FIG_SERVE_REQUEST_LIMIT,
                                     .fallback = DEFAULT_REQUESTS};
    const fig_integer seed_range = {.name = "--seed", .least = 0, .most = INT64_MAX, .fallback = 1};
    fig_serve_limit limit;
    int64_t count, seed;
    double rate = 0;
    int code = read_limit(serve, &limit);
    if (code != FIG_EXIT_FINE) return code;
    for (size_t i = 0; path != NULL && i < sizeof made / sizeof *made; i++)
        if (is_given(arguments, made[i]))
            return fig_report_refuse("serve: %s: it applies to generated requests, but --trace was "
                                     "given",
                                     made[i]);
    if (path != NULL) return fig_serve_trace_read(&serve->trace, path, &limit);
    code = fig_arguments_integer(arguments, &count_range, &count);
    if (code == FIG_EXIT_FINE) code = fig_arguments_integer(arguments, &seed_range, &seed);
    if (code == FIG_EXIT_FINE) code = read_number(arguments, "--rate", 0, &rate);
    if (code != FIG_EXIT_FINE) return code;
    const fig_serve_mix mix = {
        .count = (int32_t)count, .rate = rate, .seed = (uint64_t)seed, .token_limit = limit.tokens};
    code = fig_serve_trace_make(&serve->trace, &mix);
    if (code != FIG_EXIT_FINE || saved == NULL || serve->ranked.rank > 0) return code;
    return fig_serve_trace_write(&serve->trace, saved);
}

/* ---- Serving ----------------------------------------------------------------------------- */

static volatile sig_atomic_t stop;

static void ask_to_stop(int signal) {
    (void)signal;
    stop = 1;
}

/* The first Ctrl-C ends serving but not the program, so that the results are still printed; the
 * second ends the program. With several ranks Ctrl-C ends the program at once: if one rank stopped
 * serving by itself, the others would wait for it. */
static void take_interrupts(const serving *serve) {
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = (int)SA_RESETHAND};
    if (serve->ranked.count > 1) return;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

static int serve_requests(const fig_arguments *arguments, const serving *serve) {
    const fig_integer range = {
        .name = "--horizon", .least = 1, .most = serve->spec->kv_limit, .fallback = 1};
    const int json = is_given(arguments, "--json");
    fig_serve_options options = {.graphs = serve->graphs,
                                 .trace = &serve->trace,
                                 .device = serve->device,
                                 .ordinal = fig_ranked_ordinal(&serve->ranked, serve->device),
                                 .ranks = serve->ranked.ranks,
                                 .has_sums = serve->has_sums,
                                 .fast = is_given(arguments, "--fast"),
                                 .check = is_given(arguments, "--check"),
                                 .stop = &stop,
                                 .live = !json};
    fig_serve_result result;
    int64_t horizon;
    int code = fig_arguments_integer(arguments, &range, &horizon);
    if (code == FIG_EXIT_FINE) code = fig_compiled_read(arguments, &options.compiled);
    if (code == FIG_EXIT_FINE) code = choose_pages(arguments, serve, &options.page_count);
    if (code != FIG_EXIT_FINE) return code;
    if (horizon > 1 && serve->chunk > 0)
        return fig_report_refuse("serve: --horizon: %" PRId64
                                 " steps, but a plan under a budget of "
                                 "prompt tokens serves one",
                                 horizon);
    options.horizon = (int32_t)horizon;
    options.chunk = serve->chunk;
    if (serve->ranked.must_start) return fig_ranked_start(&serve->ranked);
    take_interrupts(serve);
    code = fig_serve_run(&options, &result);
    const fig_serve_report report = {.options = &options,
                                     .result = &result,
                                     .name = serve->name,
                                     .is_file = arguments->operand != NULL,
                                     .ranks = serve->ranked.count,
                                     .page_tokens = serve->page_tokens,
                                     .page_bytes = serve->page_bytes,
                                     .passed = code == FIG_EXIT_FINE};
    if (code != FIG_EXIT_BAD && json) fig_serve_report_emit(&report);
    if (code == FIG_EXIT_FINE && !json) fig_serve_report_print(&report);
    if (code == FIG_EXIT_FINE && result.stopped)
        return fig_report_failure("serve: interrupted after %" PRId64 " of %d requests",
                                  result.done, serve->trace.count);
    return code;
}

static int run(const fig_arguments *arguments) {
    serving serve = {0};
    int code = fig_ranked_open(arguments, &serve.ranked);
    if (code == FIG_EXIT_FINE) code = open_graphs(arguments, &serve);
    if (code == FIG_EXIT_FINE) code = read_page_limit(arguments, &serve);
    if (code == FIG_EXIT_FINE) code = read_requests(arguments, &serve);
    if (code == FIG_EXIT_FINE) code = serve_requests(arguments, &serve);
    fig_serve_trace_finish(&serve.trace);
    fig_graphs_destroy(serve.graphs);
    fig_ranked_close(&serve.ranked);
    return code;
}

const fig_command fig_cmd_serve = {
    .name = "serve",
    .summary = "serve requests with continuous batching, and report the speed",
    .operand = "[FILE]",
    .notes =
        "Requests join while others run, grow by one token per step, and leave. Each row holds the "
        "pages of its tokens. When no page is free, the request that came last gives up its pages "
        "and waits. There is no model: tokens are synthetic. Without --chunk there is no prefill "
        "either: the keys and values of a prompt count as already in the cache. With --chunk N, "
        "each step also takes up to N tokens of prompts, in order of arrival, through append and "
        "attention, beside one token of every row that decodes; a preempted request computes its "
        "tokens again. If FILE has a packed program, or --query-limit makes one, steps always take "
        "prompts; the default of N is then the number of query tokens for which a step has room "
        "beside its rows.\n\n" FIG_SOURCE_NOTES "\n\nA trace "
        "is a CSV file with the header arrival_s,prompt_tokens,output_tokens and one line for each "
        "request. Without a trace, lengths are lognormal with ShareGPT's means, 220 and 200 "
        "tokens, cut to fit, and arrivals are a Poisson process.\n\nWith --check each plan carries "
        "a checksum, which the device verifies before it runs a row. The command checks that the "
        "engine staged, launched and completed as many steps as the loop counted, and that no step "
        "ran without rows. In the end it compares every entry of every page table on the device. "
        "With --chunk it also waits for each step and compares every element of every out.N: q is "
        "0, so attention is the mean of V over the tokens that a query sees, and the host computes "
        "this mean in float64. The reported times then include the check. Without --chunk it does "
        "not check the results of attention: figraph replay --check does that.\n\n" FIG_RANKED_NOTES
        " All ranks use the clock of rank 0, so they make the same decisions; --check compares "
        "them. The size of the cache is given per rank. The step of a model also has "
        "two all-reduces with residual and norm in each layer, as wide as all q heads together. "
        "The step of a file is run as it is.\n\nPercentiles come from bins that are an eighth of "
        "an octave wide, so only their first two digits are significant.\n\nCtrl-C ends serving "
        "and prints the figures so far. With --ranks it ends the ranks at once, and nothing is "
        "printed.",
    .failure = "a step failed or ran no rows, --check found an error, or Ctrl-C ended it early",
    .example = "figraph serve --preset tutorial --requests 64 --rate 20 --check",
    .run = run,
    .options =
        {
            FIG_SOURCE_NAMES(FIG_OPTION_ONE_OF),
            FIG_SOURCE_CHANGES,
            {"--trace", "FILE", "a CSV file with the requests"},
            {"--requests", "N", "the number of requests to generate; default 64"},
            {"--rate", "R", "generated requests per second; default 0: all arrive at once"},
            {"--seed", "S", "the seed of the generated requests; default 1"},
            {"--save-trace", "FILE", "write the generated requests to FILE"},
            {"--kv-pages", "N", "pages of the cache"},
            {"--kv-gib", "G",
             "GiB of the cache; without this and --kv-pages: as many pages as the requests need, "
             "at most 1 GiB"},
            {"--chunk", "N",
             "prompt tokens that a step computes at most; default 0: prompts count as cached"},
            {"--horizon", "N", "steps that one plan may serve while no request leaves; default 1"},
            {"--fast", NULL, "jump to the next arrival when no request runs"},
            {"--check", NULL, "check plans, page tables and, with --chunk, outputs; see below"},
            FIG_SOURCE_DEVICE,
            FIG_COMPILED_OPTIONS,
            FIG_RANKED_OPTION,
            {"--json", NULL, "print an object"},
        },
};

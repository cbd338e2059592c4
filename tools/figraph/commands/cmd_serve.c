/* cmd_serve.c: figraph serve, requests from the first arrival to the last token.
 *
 * Reads what is served, by what, and how large the cache is; serve_loop.c serves it. */
#include <inttypes.h>
#include <math.h>
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
    const char *name; /* of the file or the preset */
    fig_device device;
    int has_sums;
    int32_t page_tokens;
    uint64_t page_bytes;
    int32_t page_limit; /* that may be bound */
    fig_serve_trace trace;
} serving;

/* A number from `least` on; *value stays as it is where the option was not given. */
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

/* A rank names its GPU, so that whether there is one is to be known before. */
static int find_device(const fig_arguments *arguments, serving *serve, fig_traits *traits) {
    const int code = fig_source_device_traits(arguments, serve->device, traits);
    if (code == FIG_EXIT_FINE)
        serve->device = traits->compute_capability > 0 ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST;
    return code;
}

static int lower_preset(const fig_arguments *arguments, serving *serve) {
    fig_source source = {.name = serve->name, .spec.size = sizeof source.spec};
    fig_traits traits = {.size = sizeof traits};
    if (fig_spec_preset(&source.spec, source.name) != FIG_OK) return fig_report_status("--preset");
    serve->has_sums = serve->ranked.count > 1;
    if (serve->has_sums) source.sum_width = source.spec.q_heads * source.spec.head_dim;
    const int code = find_device(arguments, serve, &traits);
    return code == FIG_EXIT_FINE ? fig_source_lower(&source, &traits, &serve->graphs) : code;
}

static int open_graphs(const fig_arguments *arguments, serving *serve) {
    const char *preset = fig_arguments_text(arguments, "--preset");
    fig_graphs_info info = {.size = sizeof info};
    fig_memory_info memory = {.size = sizeof memory};
    fig_traits traits = {.size = sizeof traits};
    if ((preset == NULL) == (arguments->operand == NULL))
        return fig_report_refuse("serve: %s, and one of FILE and --preset NAME names the step",
                                 preset == NULL ? "neither was given" : "both were given");
    serve->name = preset != NULL ? preset : arguments->operand;
    int code = fig_source_read_device(arguments, &serve->device);
    if (code != FIG_EXIT_FINE) return code;
    if (preset != NULL) {
        code = lower_preset(arguments, serve);
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
    return FIG_EXIT_FINE;
}

/* ---- The cache --------------------------------------------------------------------------- */

/* Most pages that any rows can hold. */
static int64_t pages_of_all(const fig_spec *spec, int32_t page_tokens) {
    return (int64_t)spec->sequence_limit * ((spec->kv_limit + page_tokens - 1) / page_tokens);
}

/* How many pages there may be. A dense cache has one for each sequence, so nothing is to choose. */
static int read_page_limit(const fig_arguments *arguments, serving *serve) {
    const int counted = is_given(arguments, "--kv-pages"), sized = is_given(arguments, "--kv-gib");
    const int64_t all = pages_of_all(serve->spec, serve->page_tokens);
    const int64_t most = all < INT32_MAX ? all : INT32_MAX;
    fig_integer range = {.name = "--kv-pages", .least = 1, .most = most, .fallback = most};
    double gib = DEFAULT_GIB;
    int64_t pages;
    if (counted && sized)
        return fig_report_refuse("serve: --kv-pages and --kv-gib: both were given, one sizes the "
                                 "cache");
    if ((counted || sized) && serve->spec->page_size == 0)
        return fig_report_refuse("serve: %s: %s is dense, a sequence has its page",
                                 counted ? "--kv-pages" : "--kv-gib", serve->name);
    int code = fig_arguments_integer(arguments, &range, &pages);
    if (code == FIG_EXIT_FINE) code = read_number(arguments, "--kv-gib", 0, &gib);
    if (code != FIG_EXIT_FINE) return code;
    const double held = floor(gib * GIB / (double)serve->page_bytes);
    if (!counted && serve->spec->page_size > 0 && held < (double)pages) pages = (int64_t)held;
    serve->page_limit = (int32_t)pages;
    if (pages >= 1) return FIG_EXIT_FINE;
    return fig_report_refuse("serve: --kv-gib: %g holds no page of %" PRIu64 " bytes", gib,
                             serve->page_bytes);
}

static int compare_lengths(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x < y) - (x > y);
}

/* Without being told, pages for the longest requests that can run side by side. */
static int choose_pages(const fig_arguments *arguments, const serving *serve, int32_t *pages) {
    const fig_serve_trace *trace = &serve->trace;
    const int32_t tail = serve->spec->row_tokens - 1;
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

/* The last step of a row may make more tokens than its output still lacks, and they need room. */
static int read_limit(const serving *serve, fig_serve_limit *limit) {
    const int64_t room = (int64_t)serve->page_limit * serve->page_tokens;
    const int32_t tail = serve->spec->row_tokens - 1;
    *limit = (fig_serve_limit){serve->spec->kv_limit - tail,
                               "that is the longest sequence a step takes"};
    if (room < serve->spec->kv_limit)
        *limit = (fig_serve_limit){(int32_t)room - tail, "the cache has no room for more"};
    if (limit->tokens >= 2) return FIG_EXIT_FINE;
    return fig_report_refuse("serve: %s: a request has 2 tokens at least, and %d may be: %s",
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
            return fig_report_refuse("serve: %s: it is for requests that are made up, and --trace "
                                     "was given",
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
                                 .live = !json};
    fig_serve_result result;
    int64_t horizon;
    int code = fig_arguments_integer(arguments, &range, &horizon);
    if (code == FIG_EXIT_FINE) code = choose_pages(arguments, serve, &options.page_count);
    if (code != FIG_EXIT_FINE) return code;
    options.horizon = (int32_t)horizon;
    if (serve->ranked.must_start) return fig_ranked_start(&serve->ranked);
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
    .summary = "serve requests in one changing batch, and tell how fast",
    .operand = "[FILE]",
    .notes =
        "Requests join while others run, grow by a token a step, and leave; each row's pages are "
        "those of its tokens, and where none is free who came last gives its own up and waits. "
        "Tokens are made up, and a prompt's keys and values are taken to be in the cache: there "
        "is no model and no prefill.\n\nA trace has the line "
        "arrival_s,prompt_tokens,output_tokens and behind it a line for each request. Without "
        "one, lengths are lognormal with ShareGPT's means, 220 and 200 tokens, cut to what fits, "
        "and arrivals are a Poisson process.\n\nWith --check each plan carries a checksum that the "
        "device verifies before it runs a row; it is checked that as many steps were staged, "
        "launched and ended as the loop counted, that none ran without rows, and in the end that "
        "every entry of every page table on the device is the page that was given. Attention's "
        "numbers are not compared: figraph "
        "replay --check does that.\n\n" FIG_RANKED_NOTES
        " Each takes rank 0's time for its own, and so all decide alike; with --check they compare "
        "what they did. The sizes of the cache are those of one rank. Of a preset the step has, "
        "beside what is the rank's own, two all-reduces with residual and norm a layer, as wide as "
        "all q heads together; a file's step is run as it is.\n\nPercentiles are of bins an eighth "
        "of an octave wide, so "
        "that their first two digits are all that they tell.",
    .failure = "a step failed, ran no rows, or --check found something",
    .example = "figraph serve --preset tutorial --requests 64 --rate 20 --check",
    .run = run,
    .options =
        {
            {"--preset", "NAME", "a model that the library knows, lowered for the device",
             FIG_OPTION_ONE_OF},
            {"--trace", "FILE", "the requests, as CSV"},
            {"--requests", "N", "how many are made up; without it 64"},
            {"--rate", "R", "requests that come in a second; without it, or 0: all at once"},
            {"--seed", "S", "of what is made up; without it 1"},
            {"--save-trace", "FILE", "where to write the requests that were made up"},
            {"--kv-pages", "N", "pages of the cache"},
            {"--kv-gib", "G",
             "GiB of the cache; without this and --kv-pages as many pages as the requests need, of "
             "at most 1 GiB"},
            {"--horizon", "N", "steps that one plan may serve, where nobody leaves; without it 1"},
            {"--fast", NULL, "the clock jumps to the next arrival where nothing runs"},
            {"--check", NULL, "check plans and page tables; see below"},
            FIG_SOURCE_DEVICE,
            FIG_RANKED_OPTION,
            {"--json", NULL, "print an object"},
        },
};

/* layers.c: runs whole layers of a model, with matrix products by cuBLAS, on one or several GPUs.
 *
 *     layers record --preset llama-3.1-70b --layers 8 -o model.fig
 *     layers run model.fig --kv 8x8192
 *     figraph-launch -n 2 -- layers run model.fig --kv 8x8192 --check
 *
 * One file serves any number of ranks. run generates weights and caches, runs steps, and prints the
 * time of a step. On several ranks it also prints the share of communication, found by timing the
 * same step without it. For each shape of product it uses the fastest algorithm that it tried or,
 * with --first-way, the first that cuBLASLt names. --check then runs the whole model on each rank
 * and compares the numbers of the first step; on a single GPU it compares them with the host's.
 * Without a GPU everything runs on the host. Exit code: 0; 1: the numbers differ; 2: any other
 * error, with a message on stderr. */
#include <errno.h>
#include <figraph_parallel.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/layers_trial.h"

enum { FAILED = 1, REFUSED = 2, STEPS_OF_GPU = 100, STEPS_OF_HOST = 10 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) return fprintf(stderr, "layers: %s\n", fig_message()), REFUSED;      \
    } while (0)

typedef struct words {
    const char *preset, *config, *file, *device;
    int32_t layers, hidden, batch_limit, kv_limit;
    int32_t rows, kv, steps;
    int check, first_way;
} words;

/* The state of one rank's process. */
typedef struct process {
    fig_ranks *ranks;
    fig_ranks_info who;
    layers_trial_options options;
    /* share: the rank's part of the model; the model itself if there is one rank */
    fig_graphs *model, *share;
    layers_part part;
    double meet_s, cuda_s, products_s, file_s;
} process;

/* ---- Record -------------------------------------------------------------------------------- */

static int read_spec(const words *given, fig_spec *spec) {
    *spec = (fig_spec){.size = sizeof *spec, .page_size = 16, .batch_limit = 64, .kv_limit = 32768};
    if (given->preset != NULL) TRY(fig_spec_preset(spec, given->preset));
    if (given->config != NULL) TRY(fig_spec_read_config(spec, given->config));
    if (given->layers > 0) spec->layers = given->layers;
    if (given->batch_limit > 0) spec->batch_limit = given->batch_limit;
    if (given->kv_limit > 0) spec->kv_limit = given->kv_limit;
    spec->sequence_limit = spec->batch_limit;
    spec->dtype = FIG_BF16;
    if (spec->activation == FIG_SILU && spec->window == 0 && spec->qk_norm_epsilon == 0 &&
        spec->soft_cap == 0)
        return 0;
    return fprintf(stderr, "layers: only models with layers like llama's are supported\n"), REFUSED;
}

/* In most models hidden equals q_heads * head_dim, so that is the default. */
static int record(const words *given) {
    fig_spec spec;
    fig_program *program = NULL;
    fig_graphs *graphs = NULL;
    fig_traits traits = {.size = sizeof traits};
    const int code = read_spec(given, &spec);
    if (code != 0) return code;
    const int32_t hidden = given->hidden > 0 ? given->hidden : spec.q_heads * spec.head_dim;
    TRY(fig_traits_named(&traits, given->device));
    TRY(layers_record(&program, &spec, hidden));
    TRY(fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options, .traits = &traits)));
    fig_program_destroy(program);
    TRY(fig_graphs_save(graphs, given->file));
    fig_graphs_destroy(graphs);
    return 0;
}

/* ---- Run ----------------------------------------------------------------------------------- */

static int open_machine(process *p, const words *given) {
    const int32_t gpus = strcmp(given->device, "host") == 0 ? 0 : blas_cuda_count();
    const int on_gpu = gpus > 0 || strcmp(given->device, "cuda") == 0;
    const blas *by = on_gpu ? &blas_cuda : &blas_host;
    const double began = layers_trial_now_s();
    p->who.size = sizeof p->who;
    TRY(fig_ranks_open(&p->ranks, NULL));
    TRY(fig_ranks_read_info(p->ranks, &p->who));
    p->options = (layers_trial_options){.blas = by,
                                        .device = on_gpu ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST,
                                        .rows = given->rows,
                                        .kv = given->kv,
                                        .steps = given->steps > 0 ? given->steps
                                                 : on_gpu         ? STEPS_OF_GPU
                                                                  : STEPS_OF_HOST,
                                        .first_way = given->first_way};
    const double met = layers_trial_now_s();
    if (by->open(p->who.local_rank, &p->options.ordinal) != 0) return REFUSED;
    const double opened = layers_trial_now_s();
    if (by->open_products() != 0) return REFUSED;
    p->meet_s = met - began;
    p->cuda_s = opened - met;
    p->products_s = layers_trial_now_s() - opened;
    return 0;
}

static int find_hidden(const fig_graphs *graphs, int32_t *hidden) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &info) == FIG_OK; i++)
        if (strcmp(info.name, "state") == 0) return *hidden = (int32_t)info.dims[1], 0;
    return fprintf(stderr, "layers: the file is not one that layers record has written\n"), REFUSED;
}

static int open_file(process *p, const char *path) {
    fig_graphs_info info = {.size = sizeof info};
    const double began = layers_trial_now_s();
    TRY(fig_graphs_load(&p->model, path));
    TRY(fig_graphs_rank(&p->share, p->model, p->who.count));
    p->file_s = layers_trial_now_s() - began;
    fig_graphs_read_info(p->model, &info);
    p->part = (layers_part){.model = *info.spec, .rank = p->who.rank, .ranks = p->who.count};
    fig_graphs_read_info(p->share, &info);
    p->part.share = *info.spec;
    return find_hidden(p->model, &p->part.hidden);
}

static void report(const process *p, const layers_trial *t, const char *file) {
    const int32_t layers = p->part.model.layers, ranks = p->who.count;
    printf("%s: %d layers, %d rows of %d tokens, %d rank%s, %s\n", file, (int)layers,
           (int)p->options.rows, (int)p->options.kv, (int)ranks, ranks == 1 ? "" : "s",
           p->options.device == FIG_DEVICE_CUDA ? "cuda" : "host");
    printf("  first     %.3f s from the file to the end of the first step, %.3f s to meet; beside\n"
           "            that %.3f s of CUDA's, %.3f s of cuBLAS's and %.3f s to make up weights\n",
           p->file_s + t->first_s, p->meet_s, p->cuda_s, p->products_s + t->tune_s, t->weights_s);
    printf("  step      %.3f ms, %.1f us a layer\n", 1e3 * t->step_s, 1e6 * t->step_s / layers);
}

/* Gathers the time that each rank measured. *most_s is the time of the slowest rank, which counts
 * if ranks wait for one another. *mean_s is the mean of all ranks, which counts if they do not. */
static int gather_times(const process *p, double own_s, double *most_s, double *mean_s) {
    double all[FIG_RANKS_LIMIT];
    TRY(fig_ranks_all_gather(p->ranks, &own_s, sizeof own_s, all));
    *most_s = *mean_s = 0;
    for (int32_t i = 0; i < p->who.count; i++) {
        if (all[i] > *most_s) *most_s = all[i];
        *mean_s += all[i] / p->who.count;
    }
    return 0;
}

/* Times the same step without waits between ranks. The difference from step_s is the time of
 * communication. */
static int time_share(const process *p, double step_s) {
    fig_graphs_info info = {.size = sizeof info};
    fig_program *program = NULL;
    fig_graphs *graphs = NULL;
    layers_trial t = {.options = &p->options, .part = p->part, .quiet = p->who.rank > 0};
    fig_graphs_read_info(p->share, &info);
    TRY(layers_record(&program, info.spec, p->part.hidden));
    TRY(fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options, .traits = info.traits)));
    fig_program_destroy(program);
    t.graphs = graphs;
    double most_s = 0, mean_s;
    int code = layers_trial_run(&t);
    fig_graphs_destroy(graphs);
    if (code == 0) code = gather_times(p, t.step_s, &most_s, &mean_s);
    if (code == 0 && p->who.rank == 0)
        printf("  share     %.3f ms where no rank waits for another: %.1f %% of a step is "
               "communication\n",
               1e3 * most_s, 100 * (1 - most_s / step_s));
    return code;
}

static double number_of(uint16_t bf16) {
    const uint32_t bits = (uint32_t)bf16 << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return (double)number;
}

/* Each layer rounds the residual twice, by at most 2^-9, and each time also rounds the values that
 * are added to it. A single number may be further off than the mean of all. */
static int compare(const process *p, const uint16_t *got, const uint16_t *due, int64_t count) {
    const double limit = ldexp(sqrt(2.0 * p->part.model.layers), -8);
    double squares = 0, error = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        const double off = fabs(number_of(got[i]) - number_of(due[i]));
        squares += number_of(due[i]) * number_of(due[i]);
        error += off * off;
        if (!(off <= most)) most = off; /* a NaN stays */
    }
    const double size = sqrt(squares / (double)count);
    const double mean = sqrt(error / (double)count) / size;
    const int right = mean <= limit && most <= 8 * limit * size;
    printf("  check     %lld numbers are %.2g off in the mean and %.2g at most, by their size; %s: "
           "%.2g and %.2g may be\n",
           (long long)count, mean, most / size, right ? "right" : "WRONG", limit, 8 * limit);
    return right ? 0 : FAILED;
}

/* Runs the whole model on each rank and compares the results. A single rank has already run the
 * whole model, so it runs the model on the host instead. */
static int run_whole(const process *p, double step_s, const uint16_t *got) {
    const int64_t count = (int64_t)p->options.rows * p->part.hidden;
    const int on_host = p->who.count == 1;
    double most_s, mean_s;
    layers_trial_options options = p->options;
    layers_trial t = {
        .options = &options, .graphs = p->model, .part = p->part, .quiet = p->who.rank > 0};
    if (on_host) {
        options.blas = &blas_host;
        options.device = FIG_DEVICE_HOST;
        options.ordinal = 0;
    }
    t.part.rank = 0;
    t.part.ranks = 1;
    t.part.share = t.part.model;
    t.result = malloc((size_t)count * sizeof *t.result);
    int code = t.result != NULL ? layers_trial_run(&t) : REFUSED;
    if (code == 0) code = gather_times(p, t.step_s, &most_s, &mean_s);
    if (code == 0 && p->who.rank == 0) {
        printf("  whole     %.3f ms a step %s: here it was %.3f times as fast\n", 1e3 * mean_s,
               on_host ? "on the host" : "on one rank", mean_s / step_s);
        code = compare(p, got, t.result, count);
    }
    free(t.result);
    return code;
}

static int run_all(const process *p, const words *given) {
    const size_t count = (size_t)given->rows * (size_t)p->part.hidden;
    layers_trial t = {
        .options = &p->options, .graphs = p->share, .ranks = p->ranks, .part = p->part};
    t.result = malloc(count * sizeof *t.result);
    t.quiet = p->who.rank > 0;
    int code = t.result != NULL ? layers_trial_run(&t) : REFUSED;
    if (code == 0 && p->who.rank == 0) report(p, &t, given->file);
    if (code == 0 && p->who.count > 1) code = time_share(p, t.step_s);
    if (code == 0 && given->check) code = run_whole(p, t.step_s, t.result);
    free(t.result);
    return code;
}

static int run(const words *given) {
    process p = {0};
    int code = open_machine(&p, given);
    if (code == 0) code = open_file(&p, given->file);
    if (code == 0) code = run_all(&p, given);
    if (p.options.blas != NULL) p.options.blas->close();
    fig_graphs_destroy(p.share);
    fig_graphs_destroy(p.model);
    fig_ranks_close(p.ranks);
    return code;
}

/* ---- Words --------------------------------------------------------------------------------- */

static int print_usage(void) {
    printf(
        "usage: layers record (--preset NAME | --config FILE) [--layers N] [--hidden N]\n"
        "                     [--batch-limit N] [--kv-limit N] [--traits NAME] -o FILE\n"
        "       layers run FILE [--kv ROWSxTOKENS] [--steps N] [--check] [--first-way]\n"
        "                       [--device auto|cuda|host]\n\n"
        "record saves a step of whole layers, their matrix products as calls, for any number of\n"
        "ranks. run makes random weights, runs steps and prints their times. To run on N ranks:\n"
        "figraph-launch -n N -- layers run FILE\n\n"
        "  --layers N       layers of the step; default: all layers of the model\n"
        "  --hidden N       values of a token between layers; default: q heads x head_dim\n"
        "  --batch-limit N  the most rows of a step; default: the preset's, else 64\n"
        "  --kv-limit N     the most tokens of a sequence; default: the preset's, else 32768\n"
        "  --traits NAME    the machine to record for; default h200\n"
        "  --kv RxT         R rows of T tokens each; default 8x1024\n"
        "  --steps N        steps to time; default 100, on the host 10\n"
        "  --check          also run the whole model alone, and compare the results\n"
        "  --first-way      multiply by cuBLASLt's first choice and measure no others\n"
        "  --device NAME    where to run; default: the GPU if there is one\n\n"
        "exit code: 0 fine, 1 --check found a difference, 2 bad usage or another error\n");
    return 0;
}

__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "layers: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs("; see layers --help\n", stderr);
    return REFUSED;
}

static int wants_help(int count, char *const *arguments) {
    for (int i = 1; i < count; i++)
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) return 1;
    return 0;
}

static int is_number(const char *text, int32_t *number) {
    char *end;
    const long value = strtol(text, &end, 10);
    *number = (int32_t)value;
    return *end == '\0' && value >= 1 && value <= INT32_MAX;
}

/* Returns 1 if the text names rows and tokens. */
static int read_kv(words *given, const char *text) {
    char *end;
    given->rows = (int32_t)strtol(text, &end, 10);
    return *end == 'x' && given->rows >= 1 && given->rows <= LAYERS_ROW_LIMIT &&
           is_number(end + 1, &given->kv);
}

/* Reads the value of option `name`. value: NULL if the option is the last word. */
static int read_option(words *given, const char *name, const char *value) {
    const struct {
        const char *name;
        const char **text;
        int32_t *number;
    } options[] = {{"--preset", &given->preset, NULL}, {"--config", &given->config, NULL},
                   {"-o", &given->file, NULL},         {"--traits", &given->device, NULL},
                   {"--device", &given->device, NULL}, {"--layers", NULL, &given->layers},
                   {"--hidden", NULL, &given->hidden}, {"--batch-limit", NULL, &given->batch_limit},
                   {"--steps", NULL, &given->steps},   {"--kv-limit", NULL, &given->kv_limit},
                   {"--kv", NULL, &given->kv}};
    size_t i = 0;
    while (i < sizeof options / sizeof *options && strcmp(options[i].name, name) != 0)
        i++;
    if (i == sizeof options / sizeof *options) return refuse("unknown option %s", name);
    if (value == NULL) return refuse("%s needs a value", name);
    if (options[i].text != NULL) return *options[i].text = value, 0;
    if (strcmp(name, "--kv") == 0)
        return read_kv(given, value) ? 0
                                     : refuse("--kv: %s is not ROWSxTOKENS with 1 to %d rows",
                                              value, LAYERS_ROW_LIMIT);
    return is_number(value, options[i].number)
               ? 0
               : refuse("%s: %s is no whole number from 1 on", name, value);
}

static int read_words(words *given, int records, int count, char *const *arguments) {
    for (int i = records ? 2 : 3; i < count; i++) {
        if (strcmp(arguments[i], "--check") == 0) {
            given->check = 1;
        } else if (!records && strcmp(arguments[i], "--first-way") == 0) {
            given->first_way = 1;
        } else {
            const int code = read_option(given, arguments[i], arguments[i + 1]);
            if (code != 0) return code;
            i++;
        }
    }
    if (given->file == NULL) return refuse("-o FILE is required");
    if (strcmp(given->file, "-") == 0) return refuse("\"-\" names no file; stdout is not used");
    if (records && (given->preset == NULL) == (given->config == NULL))
        return refuse("one of --preset and --config is required");
    return 0;
}

static int start(int count, char *const *arguments) {
    const int records = count > 1 && strcmp(arguments[1], "record") == 0;
    words given = {.rows = 8, .kv = 1024, .device = records ? "h200" : "auto"};
    if (wants_help(count, arguments)) return print_usage();
    if (count < 2) return refuse("record or run is missing");
    if (!records && strcmp(arguments[1], "run") != 0)
        return refuse("unknown command %s", arguments[1]);
    if (!records && count < 3) return refuse("run: FILE is required");
    if (!records) given.file = arguments[2];
    const int code = read_words(&given, records, count, arguments);
    if (code != 0) return code;
    return records ? record(&given) : run(&given);
}

int main(int count, char **arguments) {
    const int code = start(count, arguments);
    int failed = ferror(stdout);
    errno = 0;
    if (fclose(stdout) != 0) failed = 1;
    if (!failed) return code;
    return fprintf(stderr, "layers: stdout: %s\n", errno != 0 ? strerror(errno) : "a write failed"),
           REFUSED;
}

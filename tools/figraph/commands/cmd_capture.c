/* cmd_capture.c: figraph capture, which makes a .fig file from a model's shape.
 *
 * Records the standard step, lowers it for every bucket and saves the file. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <figraph_archive.h>
#include <figraph_runner.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/vocabulary.h"

enum { NOTE_LIMIT = 64, KEY_BYTES = 128 };

/* The notes given by --note KEY=VALUE. */
typedef struct given_notes {
    fig_note of[NOTE_LIMIT];
    char keys[NOTE_LIMIT][KEY_BYTES];
    int32_t count;
} given_notes;

typedef struct captured {
    const char *path, *why; /* why: a phrase that tells why the file is for this machine */
    fig_archive_options archive;
    int64_t bytes;
    fig_graphs_info info;
    const fig_source *share; /* the share of one rank that will use the file */
    const fig_score *score;  /* NULL: none */
    /* the chip that compiled scores are for; NULL: none are compiled */
    const fig_traits *compiles_for;
} captured;

static void emit_capture(const captured *file) {
    fig_emit emit = {0};
    fig_emit_object(&emit, NULL);
    fig_emit_text(&emit, "file", file->path);
    fig_emit_integer(&emit, "bytes", file->bytes);
    fig_emit_integer(&emit, "layers", file->info.spec->layers);
    if (file->score != NULL) fig_emit_text(&emit, "score", fig_score_text(file->score));
    fig_vocabulary_share(&emit, &file->share->model, file->share->ranks);
    fig_vocabulary_graphs(&emit, &file->info);
    fig_emit_close(&emit);
}

static void print_capture(const captured *file) {
    const fig_graphs_info *info = &file->info;
    char a[FIG_REPORT_COUNT], b[FIG_REPORT_COUNT], c[FIG_REPORT_COUNT];
    fig_report_name(file->path);
    printf("\n");
    printf("  bytes     %s\n", fig_report_number(a, file->bytes));
    printf("  step      %s, %s over %s\n", fig_report_count(a, info->spec->layers, "layer"),
           fig_report_count(b, info->node_count, "node"),
           fig_report_count(c, info->tensor_count, "tensor"));
    fig_source_print_score(file->score);
    fig_source_print_share(&file->share->model, &file->share->spec, file->share->ranks);
    printf("  machine   %s, %s\n", info->traits->name, file->why);
    printf("  buckets   %d: up to %s, a sequence up to %s\n", info->bucket_count,
           fig_report_count(a, info->spec->batch_limit, "row"),
           fig_report_count(b, info->spec->kv_limit, "token"));
    printf("  content   %s\n", info->content_id);
}

static int read_notes(const fig_arguments *arguments, given_notes *notes) {
    int at = 0;
    notes->count = 0;
    for (const char *word; (word = fig_arguments_next(arguments, "--note", &at)) != NULL;) {
        const size_t key = strcspn(word, "=");
        if (word[key] == '\0' || key >= KEY_BYTES)
            return fig_report_refuse("capture: --note: %s: it must be KEY=VALUE", word);
        if (notes->count == NOTE_LIMIT)
            return fig_report_refuse("capture: --note: more than %d notes", NOTE_LIMIT);
        char *own = notes->keys[notes->count];
        memcpy(own, word, key);
        own[key] = '\0';
        for (int32_t i = 0; i < notes->count; i++)
            if (strcmp(notes->keys[i], own) == 0)
                return fig_report_refuse("capture: --note: %s was given twice", own);
        notes->of[notes->count++] =
            (fig_note){.size = sizeof(fig_note), .key = own, .value = word + key + 1};
    }
    return FIG_EXIT_FINE;
}

/* Reads --q-rope, which only a step over latent caches can have, and no such step has a score. */
static int read_q_rope(const fig_arguments *arguments, fig_source *source) {
    source->has_q_rope = fig_arguments_text(arguments, "--q-rope") != NULL;
    if (!source->has_q_rope) return FIG_EXIT_FINE;
    if (source->spec.latent_dim == 0)
        return fig_report_refuse("capture: --q-rope: %s has no latent attention", source->name);
    if (source->score != NULL)
        return fig_report_refuse("capture: --q-rope: latent attention takes no --score or --mask");
    return FIG_EXIT_FINE;
}

/* Refuses --compile-scores where there is nothing to compile, or nothing would be stored. */
static int check_compiling(const fig_arguments *arguments, const captured *file) {
    if (fig_arguments_text(arguments, "--compile-scores") == NULL) return FIG_EXIT_FINE;
    if (file->score == NULL)
        return fig_report_refuse("capture: --compile-scores: there is no --score to compile");
    if (!file->archive.embed)
        return fig_report_refuse("capture: --compile-scores: only --embed stores compiled scores");
    return FIG_EXIT_FINE;
}

/* Refuses to compile for another chip than that of the file. */
static int check_chip(const fig_runner *runner, const fig_traits *wanted) {
    fig_traits own = {.size = sizeof own};
    fig_runner_read_traits(runner, &own);
    if (own.compute_capability == wanted->compute_capability) return FIG_EXIT_FINE;
    return fig_report_refuse("capture: --compile-scores: this GPU has compute capability %d.%d, "
                             "but the file is for %d.%d",
                             own.compute_capability / 10, own.compute_capability % 10,
                             wanted->compute_capability / 10, wanted->compute_capability % 10);
}

/* Has the driver of a GPU compile the score, and saves the file with the code. */
static int save_compiled(const fig_graphs *graphs, const captured *file) {
    const fig_runner_options options = {
        .size = sizeof options, .device = FIG_DEVICE_CUDA, .compile_scores = 1};
    fig_runner *runner;
    const fig_status status = fig_runner_open(&runner, graphs, &options);
    if (status == FIG_NO_DEVICE)
        return fig_report_refuse("capture: --compile-scores: %s; only a GPU's driver compiles: "
                                 "leave the option out, and engines compile the score",
                                 fig_message());
    if (status != FIG_OK) return fig_report_status("capture: --compile-scores");
    int code = check_chip(runner, file->compiles_for);
    if (code == FIG_EXIT_FINE && fig_runner_archive(runner, file->path, &file->archive) != FIG_OK)
        code = fig_report_status(file->path);
    fig_runner_close(runner);
    return code;
}

static int save_file(const fig_graphs *graphs, const captured *file) {
    if (file->compiles_for != NULL) return save_compiled(graphs, file);
    if (fig_graphs_archive(graphs, file->path, &file->archive) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status(file->path);
}

static int save(const fig_graphs *graphs, captured *file, int json) {
    struct stat status;
    const int code = save_file(graphs, file);
    if (code != FIG_EXIT_FINE) return code;
    if (stat(file->path, &status) != 0)
        return fig_report_refuse("%s: the file was saved, and then disappeared", file->path);
    file->bytes = (int64_t)status.st_size;
    fig_graphs_read_info(graphs, &file->info);
    if (json) {
        emit_capture(file);
    } else {
        print_capture(file);
    }
    return FIG_EXIT_FINE;
}

/* Refuses a program that ranks cannot divide, as inspect --ranks would. */
static int check_ranks(const fig_graphs *graphs, int32_t ranks) {
    fig_graphs *share = NULL;
    if (ranks == 1) return FIG_EXIT_FINE;
    if (fig_graphs_rank(&share, graphs, ranks) != FIG_OK)
        return fig_report_status("capture: --ranks");
    fig_graphs_destroy(share);
    return FIG_EXIT_FINE;
}

static int run(const fig_arguments *arguments) {
    given_notes notes;
    captured file = {.path = fig_arguments_text(arguments, "-o"),
                     .info = {.size = sizeof file.info},
                     .archive = {.size = sizeof file.archive,
                                 .notes = notes.of,
                                 .embed = fig_arguments_text(arguments, "--embed") != NULL}};
    fig_integer range = {.name = "--layers", .least = 1, .most = INT32_MAX};
    fig_source source, share;
    fig_source_machine machine;
    fig_graphs *graphs = NULL;
    int64_t layers;
    int code = read_notes(arguments, &notes);
    file.archive.note_count = notes.count;
    if (code == FIG_EXIT_FINE) code = fig_source_read(arguments, &source);
    if (code != FIG_EXIT_FINE) return code;
    range.fallback = source.spec.layers;
    code = fig_arguments_integer(arguments, &range, &layers);
    if (code == FIG_EXIT_FINE) code = fig_source_read_machine(arguments, &machine);
    if (code != FIG_EXIT_FINE) return code;
    code = fig_source_keep_layers(arguments, &source, (int32_t)layers);
    share = source;
    if (code == FIG_EXIT_FINE) code = fig_source_take_share(arguments, &share);
    if (code == FIG_EXIT_FINE) code = fig_source_read_score(arguments, &source);
    file.why = machine.why;
    file.share = &share;
    file.score = source.score;
    if (code == FIG_EXIT_FINE) code = read_q_rope(arguments, &source);
    if (code == FIG_EXIT_FINE) code = check_compiling(arguments, &file);
    if (fig_arguments_text(arguments, "--compile-scores") != NULL)
        file.compiles_for = &machine.traits;
    if (code == FIG_EXIT_FINE) code = fig_source_lower(&source, &machine.traits, &graphs);
    if (code == FIG_EXIT_FINE) code = check_ranks(graphs, share.ranks);
    if (code == FIG_EXIT_FINE)
        code = save(graphs, &file, fig_arguments_text(arguments, "--json") != NULL);
    fig_graphs_destroy(graphs);
    fig_score_destroy(source.score);
    return code;
}

const fig_command fig_cmd_capture = {
    .name = "capture",
    .summary = "record and lower a model's decode step, and save it as a .fig file",
    .notes = FIG_SOURCE_NOTES "\n\nThe file is written whole or not at all. An existing file of "
                              "that name stays until the new one is complete.",
    .example = "figraph capture --preset llama-3.1-8b-layer -o llama.fig",
    .run = run,
    .options =
        {
            FIG_SOURCE_NAMES(FIG_OPTION_ONE_OF),
            FIG_SOURCE_CHANGES,
            {"--ranks", "N", "also print the share of one of N ranks; the file is the same"},
            {"--layers", "N", "layers of the step; default: all layers of the model"},
            FIG_SOURCE_SCORE,
            {"--q-rope", NULL,
             "over a latent cache, divide q of layer N into q.N, the first 512 values of each "
             "head, and q_rope.N, the last 64"},
            FIG_SOURCE_DEVICE,
            FIG_SOURCE_TRAITS,
            {"-o", "FILE", "the file to write", FIG_OPTION_REQUIRED},
            {"--note", "KEY=VALUE", "a note to store in the file; may be repeated", .repeats = 1},
            {"--embed", NULL, "store the kernels' images in the file; see inspect --images"},
            {"--compile-scores", NULL,
             "with --embed, also store the score as this GPU's driver compiles it"},
            {"--json", NULL, "print an object"},
        },
};

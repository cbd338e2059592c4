/* cmd_capture.c: figraph capture, which makes a .fig file from a model's shape.
 *
 * Records the standard step, lowers it for every bucket and saves the file. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <figraph_archive.h>

#include "tools/figraph/commands/commands.h"
#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/columns.h"
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
    if (file->score != NULL)
        fig_columns_words(printf("  score     "), 12, fig_score_text(file->score));
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

static int save(const fig_graphs *graphs, captured *file, int json) {
    struct stat status;
    if (fig_graphs_archive(graphs, file->path, &file->archive) != FIG_OK)
        return fig_report_status(file->path);
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
    if (code == FIG_EXIT_FINE) code = fig_source_lower(&source, &machine.traits, &graphs);
    if (code == FIG_EXIT_FINE) code = check_ranks(graphs, share.ranks);
    file.why = machine.why;
    file.share = &share;
    file.score = source.score;
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
            {"--score", "TEXT",
             "an expression for attention's scores; docs/scores.md has the words"},
            {"--mask", "TEXT",
             "the ranges of tokens that a query sees, such as 'q_pos - 1023:q_pos + 1, 0:4'"},
            FIG_SOURCE_DEVICE,
            FIG_SOURCE_TRAITS,
            {"-o", "FILE", "the file to write", FIG_OPTION_REQUIRED},
            {"--note", "KEY=VALUE", "a note to store in the file; may be repeated", .repeats = 1},
            {"--embed", NULL, "store the kernels' images in the file; see inspect --images"},
            {"--json", NULL, "print an object"},
        },
};

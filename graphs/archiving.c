/* archiving.c: saves graphs with their notes and images, and lists those notes and images.
 *
 * The formats of notes and images are in notes.h and archive.h of graphs/files. Invariant: notes
 * and images are not part of the graphs' meaning, so nothing here changes the content id. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/files/file.h"
#include "graphs/graphs.h"
#include "planner/status.h"

/* ---- Saving */

/* Embeds this library's images in `archive`, whose records are replaced by records of these
 * images. */
static fig_status embed(const fig_graphs *graphs, fig_archive *archive) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    if (graphs->changed_kernels != 0)
        return fig_fail(FIG_UNSUPPORTED,
                        "embed: the graphs' maker, version %" PRIu32
                        ", had other kernels than this library, %d: capture the graphs anew",
                        graphs->maker.version, FIG_VERSION);
    FIG_TRY(fig_archive_record(archive, fig_codec_kernels_of(view), fig_images_of));
    return fig_archive_embed(archive, fig_images_of);
}

/* Writes `graphs` with copies of their notes and images, changed as the options request. The caller
 * must free the contents of `changed`, even after a failure. */
static fig_status write_changed(const fig_graphs *graphs, const fig_archive_options *options,
                                const fig_embedded *compiled, fig_graphs *changed, uint8_t **bytes,
                                size_t *count) {
    *changed = *graphs;
    memset(&changed->notes, 0, sizeof changed->notes);
    memset(&changed->archive, 0, sizeof changed->archive);
    FIG_TRY(fig_notes_clone(&changed->notes, &graphs->notes));
    FIG_TRY(fig_notes_change(&changed->notes, options->notes, options->note_count));
    if (options->embed) {
        FIG_TRY(embed(graphs, &changed->archive));
    } else {
        FIG_TRY(fig_archive_clone(&changed->archive, &graphs->archive));
    }
    fig_embedded_finish(&changed->archive.compiled);
    FIG_TRY(fig_embedded_clone(&changed->archive.compiled, compiled));
    return fig_graphs_write(changed, bytes, count);
}

static fig_status check_given(const fig_graphs *graphs, const char *path,
                              const fig_archive_options *options) {
    if (graphs == NULL || path == NULL)
        return fig_fail(FIG_INVALID, "save: %s is NULL", graphs == NULL ? "graphs" : "path");
    if (graphs->ranks > 1)
        return fig_fail(FIG_UNSUPPORTED,
                        "save: %s: these are the share of one of %" PRId32
                        " ranks; a file holds the model, which serves them all",
                        path, graphs->ranks);
    if (options->embed != 0 && options->embed != 1)
        return fig_fail(FIG_INVALID, "fig_archive_options: embed is %" PRId32 ", it must be 0 or 1",
                        options->embed);
    return FIG_OK;
}

fig_status fig_archiving_save(const fig_graphs *graphs, const char *path,
                              const fig_archive_options *given, const fig_embedded *compiled) {
    fig_archive_options options;
    fig_graphs changed;
    uint8_t *bytes = NULL;
    size_t count;
    FIG_TRY(fig_status_take_options(&options, sizeof options, given, "fig_archive_options"));
    FIG_TRY(check_given(graphs, path, &options));
    const fig_embedded *code = compiled != NULL ? compiled : &graphs->archive.compiled;
    fig_status status = write_changed(graphs, &options, code, &changed, &bytes, &count);
    if (status == FIG_OK) status = fig_file_write(path, bytes, count);
    free(bytes);
    fig_notes_finish(&changed.notes);
    fig_archive_finish(&changed.archive);
    return status;
}

fig_status fig_graphs_archive(const fig_graphs *graphs, const char *path,
                              const fig_archive_options *options) {
    return fig_archiving_save(graphs, path, options, NULL);
}

fig_status fig_graphs_save(const fig_graphs *graphs, const char *path) {
    return fig_graphs_archive(graphs, path, NULL);
}

/* ---- Listing */

fig_status fig_graphs_note(const fig_graphs *graphs, int32_t index, fig_note *note) {
    fig_note ours = {.size = sizeof ours};
    fig_status status = FIG_OK;
    if (index < 0 || !fig_notes_at(&graphs->notes, index, &ours))
        status = fig_fail(FIG_INVALID, "there is no note %" PRId32, index);
    FIG_TRY(fig_status_give(note, &ours, sizeof ours, "fig_note"));
    return status;
}

static fig_status fill_image(const fig_graphs *graphs, int32_t index, fig_image_info *info) {
    const fig_archive *archive = &graphs->archive;
    if (index < 0 || (uint32_t)index >= archive->image_count)
        return fig_fail(FIG_INVALID, "image: index is %" PRId32 ", limits 0 to %" PRId32, index,
                        (int32_t)archive->image_count - 1);
    const fig_archive_image *image = &archive->images[index];
    info->operation = fig_archive_operation(image);
    info->family = image->family;
    info->compute_capability = image->compute_capability;
    info->bytes = image->bytes;
    fig_archive_hex(image->sha256, info->sha256);
    info->is_embedded = archive->code != NULL;
    info->is_own = fig_archive_is_own(image, fig_images_of);
    return FIG_OK;
}

fig_status fig_graphs_image(const fig_graphs *graphs, int32_t index, fig_image_info *info) {
    fig_image_info ours = {.size = sizeof ours};
    const fig_status status = fill_image(graphs, index, &ours);
    FIG_TRY(fig_status_give(info, &ours, sizeof ours, "fig_image_info"));
    return status;
}

static fig_status fill_compiled(const fig_graphs *graphs, int32_t index, fig_compiled_info *info) {
    const fig_embedded *compiled = &graphs->archive.compiled;
    if (index < 0 || (uint32_t)index >= compiled->count)
        return fig_fail(FIG_INVALID, "compiled score: index is %" PRId32 ", limits 0 to %" PRId32,
                        index, (int32_t)compiled->count - 1);
    const fig_embedded_record *record = &compiled->records[index];
    info->family = record->family;
    info->compute_capability = record->compute_capability;
    info->driver = record->driver;
    info->bytes = record->bytes;
    fig_embedded_seal(record, info->sha256);
    return FIG_OK;
}

fig_status fig_graphs_compiled(const fig_graphs *graphs, int32_t index, fig_compiled_info *info) {
    fig_compiled_info ours = {.size = sizeof ours};
    const fig_status status = fill_compiled(graphs, index, &ours);
    FIG_TRY(fig_status_give(info, &ours, sizeof ours, "fig_compiled_info"));
    return status;
}

/* figraph_archive.h: what a file carries for those who keep it: notes, and the kernels themselves.
 *
 * Neither changes what graphs mean, or their content id. A file records the SHA-256 of the images
 * of kernels that its maker had, and holds the images where somebody embedded them. They are
 * machine code, so nothing loads them unless a caller who opens an engine passes their hashes:
 *
 *     const char *const hashes[] = {"9f86d081884c7d65..."};     as `figraph inspect --images` says
 *     const fig_trust trust = {.size = sizeof trust, .images = hashes, .image_count = 1};
 *     fig_engine_open(&engine, graphs, FIG_OPTIONS(fig_engine_options, .trust = &trust));
 *
 * Launches are lowered by the library in any case: an image takes the params of the library's own
 * table, or is refused. */
#ifndef FIGRAPH_ARCHIVE_H
#define FIGRAPH_ARCHIVE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A note. The key has 1 to 64 letters, digits, '.', '_' and '-'; the value up to 4096 printable
 * ASCII characters. 256 notes at most, and 64 KiB in all. */
typedef struct fig_note {
    uint32_t size;
    const char *key, *value;
} fig_note;
/* In order of their keys; FIG_INVALID past the last. Words last as long as the graphs. */
FIG_API fig_status fig_graphs_note(const fig_graphs *graphs, int32_t index, fig_note *note);

/* An image of kernels, as the maker of the graphs had it. */
typedef struct fig_image_info {
    uint32_t size;
    const char *operation, *family; /* that it serves: "attention", "bulk" */
    int32_t compute_capability;     /* 90: for 9.0 alone; 80: for any chip since 8.0 */
    uint64_t bytes;
    char sha256[65];     /* in hex */
    int32_t is_embedded; /* 1: the file holds it */
    int32_t is_own;      /* 1: this library has the same */
} fig_image_info;
/* FIG_INVALID past the last. A library that was built without nvcc records none. */
FIG_API fig_status fig_graphs_image(const fig_graphs *graphs, int32_t index, fig_image_info *info);

typedef struct fig_archive_options {
    uint32_t size;
    const fig_note *notes; /* [note_count] in place of those of the same key; value NULL: removed */
    int32_t note_count;
    int32_t embed; /* 1: with this library's images, some 10 MB */
} fig_archive_options;
/* Saves as fig_graphs_save does, with what options add to what the graphs carry already.
 * FIG_UNSUPPORTED: this library has no images to embed, or other kernels than the graphs' maker. */
FIG_API fig_status fig_graphs_archive(const fig_graphs *graphs, const char *path,
                                      const fig_archive_options *options);

/* Of an engine on a GPU: the images that the file holds stand in place of the library's own, each
 * of them on this list or the same as the library's. FIG_INVALID names the first that is not on the
 * list. FIG_UNSUPPORTED: the file holds none, the device is the host, or the library's kernels take
 * other params by now. */
typedef struct fig_trust {
    uint32_t size;
    const char *const *images; /* [image_count] SHA-256 in hex */
    int32_t image_count;
} fig_trust;

#ifdef __cplusplus
}
#endif
#endif

/* figraph_archive.h: add notes, kernel images and compiled scores to a .fig file, and decide which
 * of this code to trust.
 *
 * Notes and images change neither the meaning of graphs nor their content id. A file records the
 * SHA-256 of each kernel image of the library that made it. It holds the images themselves only if
 * they were embedded on purpose. Images are machine code, so an engine loads them only if its
 * caller passes their hashes, which `figraph inspect --images` prints:
 *
 *     const char *const hashes[] = {"9f86d081884c7d65..."};
 *     const fig_trust trust = {.size = sizeof trust, .images = hashes, .image_count = 1};
 *     fig_engine_open(&engine, graphs, FIG_OPTIONS(fig_engine_options, .trust = &trust));
 *
 * The library itself always lowers the launches. It refuses an image whose parameters differ from
 * those of its own kernel table. */
#ifndef FIGRAPH_ARCHIVE_H
#define FIGRAPH_ARCHIVE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A note: a value under a key. A file has at most 256 notes and 64 KiB of them in all. */
typedef struct fig_note {
    uint32_t size; /* sizeof(fig_note) */
    /* The key: 1 to 64 letters, digits, '.', '_' and '-'. */
    const char *key;
    /* The value: up to 4096 printable ASCII characters. */
    const char *value;
} fig_note;
/* Reads note `index`, from 0, in the order of the keys. The graphs own both texts. FIG_INVALID:
 * index is past the last. */
FIG_API fig_status fig_graphs_note(const fig_graphs *graphs, int32_t index, fig_note *note);

/* A kernel image of the library that made the graphs. */
typedef struct fig_image_info {
    uint32_t size; /* sizeof(fig_image_info) */
    /* The operation that the image serves, such as "attention". */
    const char *operation;
    /* The family of kernels in the image, such as "bulk". */
    const char *family;
    /* 90: the image runs on chips of compute capability 9.0 only. 80: it runs on any chip of 8.0 or
     * later. */
    int32_t compute_capability;
    /* The size of the image. */
    uint64_t bytes;
    /* The hash of the image, in hex. */
    char sha256[65];
    /* 1: the file holds the image itself, not only its hash. */
    int32_t is_embedded;
    /* 1: this library was built with the same image. */
    int32_t is_own;
} fig_image_info;
/* Describes image `index`, from 0. A library that was built without nvcc records no images.
 * FIG_INVALID: index is past the last. */
FIG_API fig_status fig_graphs_image(const fig_graphs *graphs, int32_t index, fig_image_info *info);

/* A compiled score that a file embeds; fig_runner_archive() puts them in. */
typedef struct fig_compiled_info {
    uint32_t size; /* sizeof(fig_compiled_info) */
    /* The compute capability of the GPUs that the code is for, such as 90. */
    int32_t compute_capability;
    /* The family of kernels into which the score was compiled, such as "bulk". */
    const char *family;
    /* The driver that compiled it, as a version of CUDA, major * 1000 + minor * 10. An engine whose
     * driver is older compiles the score itself. */
    int32_t driver;
    /* What fig_trust.images must list: the hash, in hex, of the file's record of this code, which
     * has the hash of the code and all that the code is for. */
    char sha256[65];
    /* The size of the code. */
    uint64_t bytes;
} fig_compiled_info;
/* Describes compiled score `index`, from 0. FIG_INVALID: index is past the last. */
FIG_API fig_status fig_graphs_compiled(const fig_graphs *graphs, int32_t index,
                                       fig_compiled_info *info);

typedef struct fig_archive_options {
    uint32_t size; /* sizeof(fig_archive_options) */
    /* [note_count] Notes to add. Each replaces the note of the same key; if its value is NULL, the
     * note of that key is removed. */
    const fig_note *notes;
    /* The number of notes to add. */
    int32_t note_count;
    /* 1: embed this library's kernel images, about 10 MB. */
    int32_t embed;
} fig_archive_options;
/* Saves graphs as fig_graphs_save() does, with the notes and images of the options in addition to
 * those that the graphs already carry. FIG_INVALID: a note is malformed or too large.
 * FIG_UNSUPPORTED: this library has no images to embed, or its kernels differ from those of the
 * library that made the graphs. */
FIG_API fig_status fig_graphs_archive(const fig_graphs *graphs, const char *path,
                                      const fig_archive_options *options);

/* The images that a caller trusts. If a caller passes this struct to fig_engine_open(), an engine
 * on a GPU loads the images of the file in place of the library's own. Each image of the file must
 * be on this list or be identical to the library's own. The record of each compiled score of the
 * file must be on the list too; an engine with compile_scores then loads the code instead of
 * compiling, if it is for its GPU, for a driver that is no newer, and of the same PTX.
 *
 * If an image is neither on the list nor the library's own, fig_engine_open() fails with
 * FIG_INVALID and names the first such image. So it does if an image is the library's own of
 * another operation, family or compute capability, on the list or not. The hash of an image covers
 * its bytes and not what they are for: of images of another library, list only those of a file that
 * you know to be unchanged since its maker wrote it.
 *
 * fig_engine_open() fails with FIG_UNSUPPORTED if the file holds no images, if the device is the
 * host, or if the parameters of the library's kernels have changed since the file was made. */
typedef struct fig_trust {
    uint32_t size; /* sizeof(fig_trust) */
    /* [image_count] In hex, the SHA-256 of each trusted image, and of the record of each trusted
     * compiled score: fig_image_info.sha256 and fig_compiled_info.sha256. */
    const char *const *images;
    /* The number of hashes. */
    int32_t image_count;
} fig_trust;

#ifdef __cplusplus
}
#endif
#endif

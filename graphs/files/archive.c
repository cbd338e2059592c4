/* archive.c: records, embeds and admits the images of kernels that a file holds.
 *
 * archive.h says what this file owns. Invariant: records are sorted and none occurs twice, so that
 * equal images give equal bytes. */
#include "graphs/files/archive.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "graphs/view/hash.h"
#include "kernels/table/families.h"
#include "planner/size.h"
#include "planner/status.h"

enum { IMAGE_ALIGNMENT = 16, CODE_LEVEL = 3, HEX_DIGITS = 64 };

/* ---- Records of images ----------------------------------------------------------------------- */

static int compare_images(const void *left, const void *right) {
    const fig_archive_image *a = left, *b = right;
    if (a->op != b->op) return a->op < b->op ? -1 : 1;
    const int families = memcmp(a->family, b->family, sizeof a->family);
    if (families != 0) return families;
    return (a->compute_capability > b->compute_capability) -
           (a->compute_capability < b->compute_capability);
}

/* Returns the bytes that an image occupies in the content of the zstd frame. */
static uint64_t room_of(const fig_archive_image *image) {
    return fig_size_align(image->bytes, IMAGE_ALIGNMENT);
}

fig_status fig_archive_check(const fig_archive *archive) {
    uint64_t code_bytes = 0;
    for (uint32_t i = 0; i < archive->image_count; i++) {
        const fig_archive_image *image = &archive->images[i];
        if (!fig_embedded_is_family(image->family))
            return fig_fail(FIG_INVALID, "image %" PRIu32 ": family is not a name of [a-z0-9_]", i);
        if (image->bytes < 1 || image->bytes > FIG_ARCHIVE_CODE_LIMIT)
            return fig_fail(FIG_INVALID, "image %" PRIu32 ": bytes is %" PRIu64 ", limits 1 to %d",
                            i, image->bytes, FIG_ARCHIVE_CODE_LIMIT);
        if (i > 0 && compare_images(image - 1, image) >= 0)
            return fig_fail(FIG_INVALID, "image %" PRIu32 " does not come after the one before", i);
        code_bytes += room_of(image);
    }
    if (archive->code != NULL && code_bytes != archive->code_bytes)
        return fig_fail(FIG_INVALID, "the images take %" PRIu64 " bytes, there are %" PRIu32,
                        code_bytes, archive->code_bytes);
    return FIG_OK;
}

/* Finds this library's index of the recorded family and capability. Returns 0 if this library has
 * no family of that name. */
static int find_place(const fig_archive_image *image, fig_image_given *place) {
    if (image->op >= FIG_OP_KERNEL_COUNT) return 0;
    place->op = (fig_op)image->op;
    for (place->path = 0; place->path < FIG_IMAGE_PATH_COUNT; place->path++)
        if (fig_images_capability(place->path) == image->compute_capability) break;
    if (place->path == FIG_IMAGE_PATH_COUNT) return 0;
    for (place->family = 0;; place->family++) {
        const fig_family *family = fig_families_of(place->op, place->family);
        if (family == NULL) return 0;
        if (strcmp(family->name, image->family) == 0) return 1;
    }
}

static fig_image find_own(const fig_archive_image *image, fig_image_source source) {
    fig_image_given place;
    if (!find_place(image, &place)) return (fig_image){NULL, 0, NULL};
    return source(place.op, place.family, place.path);
}

int fig_archive_is_own(const fig_archive_image *image, fig_image_source source) {
    const fig_image own = find_own(image, source);
    return own.bytes != NULL && memcmp(own.sha256, image->sha256, sizeof image->sha256) == 0;
}

const char *fig_archive_operation(const fig_archive_image *image) {
    return image->op < FIG_OP_KERNEL_COUNT ? fig_kernel_table[image->op].name : "unknown";
}

void fig_archive_hex(const uint8_t sha256[32], char text[65]) {
    for (int i = 0; i < HEX_DIGITS; i++) {
        const uint8_t byte = sha256[i / 2];
        text[i] = "0123456789abcdef"[i % 2 == 0 ? byte >> 4 : byte & 15];
    }
    text[HEX_DIGITS] = '\0';
}

static void forget_images(fig_archive *archive) {
    free(archive->images);
    free(archive->code);
    archive->images = NULL;
    archive->code = NULL;
    archive->stored_bytes = 0;
    archive->image_count = archive->code_bytes = 0;
}

static fig_status record_family(fig_archive *archive, fig_op op, uint32_t family,
                                fig_image_source source) {
    for (fig_image_path path = 0; path < FIG_IMAGE_PATH_COUNT; path++) {
        const fig_image own = source(op, family, path);
        if (own.bytes == NULL) continue;
        FIG_TRY_OURS(archive->image_count < FIG_ARCHIVE_IMAGE_LIMIT, "archive: %d images, limit %d",
                     FIG_ARCHIVE_IMAGE_LIMIT + 1, FIG_ARCHIVE_IMAGE_LIMIT);
        fig_archive_image *image = &archive->images[archive->image_count++];
        const char *name = fig_families_of(op, family)->name;
        *image = (fig_archive_image){
            .op = op, .compute_capability = fig_images_capability(path), .bytes = own.count};
        assert(strlen(name) < sizeof image->family);
        memcpy(image->family, name, strlen(name));
        memcpy(image->sha256, own.sha256, sizeof image->sha256);
    }
    return FIG_OK;
}

fig_status fig_archive_record(fig_archive *archive, uint32_t ops, fig_image_source source) {
    forget_images(archive);
    archive->images = calloc(FIG_ARCHIVE_IMAGE_LIMIT, sizeof *archive->images);
    if (archive->images == NULL)
        return fig_fail(FIG_NOMEM, "archive: %d images", FIG_ARCHIVE_IMAGE_LIMIT);
    for (fig_op op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        for (uint32_t family = 0; ops >> op & 1 && fig_families_of(op, family) != NULL; family++)
            FIG_TRY(record_family(archive, op, family, source));
    qsort(archive->images, archive->image_count, sizeof *archive->images, compare_images);
    return FIG_OK;
}

/* ---- The images themselves ------------------------------------------------------------------- */

/* Lays out all images as the zstd frame contains them. The caller frees *raw. */
static fig_status gather(const fig_archive *archive, fig_image_source source, uint8_t **raw,
                         size_t *raw_bytes) {
    *raw_bytes = 0;
    for (uint32_t i = 0; i < archive->image_count; i++)
        *raw_bytes += (size_t)room_of(&archive->images[i]);
    assert(*raw_bytes <= FIG_ARCHIVE_CODE_LIMIT);
    *raw = calloc(1, *raw_bytes);
    if (*raw == NULL) return fig_fail(FIG_NOMEM, "archive: %zu bytes of images", *raw_bytes);
    uint8_t *at = *raw;
    for (uint32_t i = 0; i < archive->image_count; i++) {
        const fig_image own = find_own(&archive->images[i], source);
        assert(own.count == archive->images[i].bytes);
        memcpy(at, own.bytes, own.count);
        at += room_of(&archive->images[i]);
    }
    return FIG_OK;
}

static fig_status compress(fig_archive *archive, const uint8_t *raw, size_t raw_bytes) {
    const size_t capacity = ZSTD_compressBound(raw_bytes);
    uint8_t *frame = malloc(capacity);
    if (frame == NULL) return fig_fail(FIG_NOMEM, "archive: a frame of %zu bytes", capacity);
    const size_t stored = ZSTD_compress(frame, capacity, raw, raw_bytes, CODE_LEVEL);
    if (ZSTD_isError(stored)) {
        free(frame);
        return fig_fail(FIG_NOMEM, "archive: zstd: %s", ZSTD_getErrorName(stored));
    }
    archive->code = frame;
    archive->stored_bytes = stored;
    archive->code_bytes = (uint32_t)raw_bytes;
    return FIG_OK;
}

fig_status fig_archive_embed(fig_archive *archive, fig_image_source source) {
    uint8_t *raw;
    size_t raw_bytes;
    assert(archive->code == NULL);
    if (archive->image_count == 0)
        return fig_fail(FIG_UNSUPPORTED,
                        "embed: this library has no images of kernels: it was built without nvcc");
    FIG_TRY(gather(archive, source, &raw, &raw_bytes));
    const fig_status status = compress(archive, raw, raw_bytes);
    free(raw);
    return status;
}

/* ---- Trust ----------------------------------------------------------------------------------- */

static fig_status check_list(const fig_trust *trust) {
    static const char digits[] = "0123456789abcdef";
    if (trust->image_count < 0 || (trust->images == NULL && trust->image_count > 0))
        return fig_fail(FIG_INVALID, "fig_trust: image_count is %" PRId32 "%s", trust->image_count,
                        trust->images == NULL ? ", images is NULL" : "");
    for (int32_t i = 0; i < trust->image_count; i++) {
        const char *word = trust->images[i];
        if (word == NULL || strlen(word) != HEX_DIGITS || strspn(word, digits) != HEX_DIGITS)
            return fig_fail(FIG_INVALID, "fig_trust: image %" PRId32 " is not a SHA-256 in hex", i);
    }
    return FIG_OK;
}

static int is_listed(const fig_trust *trust, const char *hex) {
    for (int32_t i = 0; i < trust->image_count; i++)
        if (strcmp(trust->images[i], hex) == 0) return 1;
    return 0;
}

static fig_status judge(const fig_archive_image *image, const fig_trust *trust,
                        fig_image_source source) {
    char hex[HEX_DIGITS + 1];
    fig_archive_hex(image->sha256, hex);
    if (is_listed(trust, hex) || fig_archive_is_own(image, source)) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "the file's image of %s (%s, %" PRId32 ".%" PRId32
                    ") is not trusted, SHA-256 %s: if you know its origin, add that to "
                    "fig_trust.images, or open without trust for the library's own kernels",
                    fig_kernel_table[image->op].name, image->family, image->compute_capability / 10,
                    image->compute_capability % 10, hex);
}

/* Finds a place of this library's that has the image. */
static int find_known(const fig_archive_image *image, fig_image_source source,
                      fig_image_given *place) {
    for (place->op = 0; place->op < FIG_OP_KERNEL_COUNT; place->op++)
        for (place->family = 0; fig_families_of(place->op, place->family) != NULL; place->family++)
            for (place->path = 0; place->path < FIG_IMAGE_PATH_COUNT; place->path++) {
                place->image = source(place->op, place->family, place->path);
                if (place->image.bytes != NULL &&
                    memcmp(place->image.sha256, image->sha256, sizeof image->sha256) == 0)
                    return 1;
            }
    return 0;
}

/* The list names bytes, not what they are for. So an image that this library has elsewhere alone is
 * refused: the one of 8.0 has the same entries as that of 9.0, but does not wait for the kernel in
 * front of it. */
static fig_status check_place(const fig_archive_image *image, fig_image_source source) {
    fig_image_given known;
    if (fig_archive_is_own(image, source) || !find_known(image, source, &known)) return FIG_OK;
    const int32_t capability = fig_images_capability(known.path);
    return fig_fail(FIG_INVALID,
                    "the file's image of %s (%s, %" PRId32 ".%" PRId32
                    ") is this library's image of %s (%s, %" PRId32 ".%" PRId32
                    "): in that place it is refused, whether it is trusted or not",
                    fig_kernel_table[image->op].name, image->family, image->compute_capability / 10,
                    image->compute_capability % 10, fig_kernel_table[known.op].name,
                    fig_families_of(known.op, known.family)->name, capability / 10,
                    capability % 10);
}

/* Checks that the bytes have the recorded hash. */
static fig_status check_hash(const fig_archive_image *image, const uint8_t *bytes) {
    uint8_t sha256[32];
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, bytes, (size_t)image->bytes);
    fig_hash_sha256_finish(&hash, sha256);
    if (memcmp(sha256, image->sha256, sizeof sha256) == 0) return FIG_OK;
    return fig_fail(
        FIG_FORMAT,
        "section CODE: the image of %s (%s) does not have the SHA-256 that IMAG records",
        fig_kernel_table[image->op].name, image->family);
}

static fig_status admit_images(const fig_archive *archive, const fig_trust *trust,
                               fig_image_source source, fig_archive_admitted *admitted) {
    const fig_embedded_frame frame = {archive->code, archive->stored_bytes, archive->code_bytes,
                                      "CODE"};
    fig_image_given place;
    if (archive->code == NULL) return FIG_OK;
    for (uint32_t i = 0; i < archive->image_count; i++) {
        if (!find_place(&archive->images[i], &place)) continue;
        FIG_TRY(check_place(&archive->images[i], source));
        FIG_TRY(judge(&archive->images[i], trust, source));
    }
    admitted->set.images = calloc(archive->image_count, sizeof *admitted->set.images);
    if (admitted->set.images == NULL)
        return fig_fail(FIG_NOMEM, "trust: %" PRIu32 " images", archive->image_count);
    FIG_TRY(fig_embedded_unpack(&frame, &admitted->code));
    const uint8_t *at = admitted->code;
    for (uint32_t i = 0; i < archive->image_count; i++) {
        const fig_archive_image *image = &archive->images[i];
        if (find_place(image, &place)) {
            FIG_TRY(check_hash(image, at));
            place.image = (fig_image){at, (size_t)image->bytes, image->sha256};
            admitted->set.images[admitted->set.count++] = place;
        }
        at += room_of(image);
    }
    return FIG_OK;
}

fig_status fig_archive_admit(const fig_archive *archive, const fig_trust *given,
                             fig_image_source source, fig_archive_admitted *admitted) {
    fig_trust trust;
    memset(admitted, 0, sizeof *admitted);
    FIG_TRY(fig_status_take_options(&trust, sizeof trust, given, "fig_trust"));
    FIG_TRY(check_list(&trust));
    if (archive->code == NULL && archive->compiled.count == 0)
        return fig_fail(FIG_UNSUPPORTED,
                        "trust: the file holds no images; figraph capture --embed puts them in");
    fig_status status = admit_images(archive, &trust, source, admitted);
    if (status == FIG_OK)
        status = fig_embedded_admit(&archive->compiled, &trust, &admitted->set,
                                    &admitted->compiled_code);
    if (status != FIG_OK) fig_archive_admitted_finish(admitted);
    return status;
}

void fig_archive_admitted_finish(fig_archive_admitted *admitted) {
    free(admitted->set.images);
    free(admitted->set.compiled);
    free(admitted->code);
    free(admitted->compiled_code);
    memset(admitted, 0, sizeof *admitted);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Copies `bytes` bytes of memory. Sets *to to NULL if `bytes` is 0. */
static fig_status copy(void **to, const void *from, size_t bytes) {
    *to = NULL;
    if (bytes == 0) return FIG_OK;
    *to = malloc(bytes);
    if (*to == NULL) return fig_fail(FIG_NOMEM, "archive: %zu bytes", bytes);
    memcpy(*to, from, bytes);
    return FIG_OK;
}

fig_status fig_archive_clone(fig_archive *clone, const fig_archive *archive) {
    void *images, *code = NULL;
    const size_t image_bytes = archive->image_count * sizeof *archive->images;
    memset(clone, 0, sizeof *clone);
    fig_status status = copy(&images, archive->images, image_bytes);
    if (status == FIG_OK) status = copy(&code, archive->code, archive->stored_bytes);
    *clone = *archive;
    clone->images = images;
    clone->code = code;
    memset(&clone->compiled, 0, sizeof clone->compiled);
    if (status == FIG_OK) status = fig_embedded_clone(&clone->compiled, &archive->compiled);
    if (status == FIG_OK) return FIG_OK;
    fig_archive_finish(clone);
    return status;
}

void fig_archive_finish(fig_archive *archive) {
    forget_images(archive);
    fig_embedded_finish(&archive->compiled);
    memset(archive, 0, sizeof *archive);
}

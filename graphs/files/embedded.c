/* embedded.c: records, embeds and admits compiled scores.
 *
 * embedded.h says what this file owns. Invariant: records are sorted and none occurs twice, so that
 * equal code gives equal bytes. */
#include "graphs/files/embedded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "graphs/files/archive.h"
#include "graphs/view/hash.h"
#include "planner/size.h"
#include "planner/status.h"

enum { ALIGNMENT = 16, LEVEL = 3, HEX_BYTES = 65 };

static uint64_t room_of(const fig_embedded_record *record) {
    return fig_size_align(record->bytes, ALIGNMENT);
}

static void hash_of(const void *bytes, uint64_t count, uint8_t sha256[32]) {
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, bytes, (size_t)count);
    fig_hash_sha256_finish(&hash, sha256);
}

/* ---- Records --------------------------------------------------------------------------------- */

static int compare_records(const fig_embedded_record *a, const fig_embedded_record *b) {
    const int texts = memcmp(a->ptx, b->ptx, sizeof a->ptx);
    if (texts != 0) return texts;
    if (a->compute_capability != b->compute_capability)
        return a->compute_capability < b->compute_capability ? -1 : 1;
    return (a->driver > b->driver) - (a->driver < b->driver);
}

int fig_embedded_is_family(const char name[16]) {
    const size_t length = strnlen(name, 16);
    if (length == 0 || length == 16) return 0;
    for (size_t i = 0; i < 16; i++) {
        const char c = name[i];
        const int is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        if (i < length ? !is_letter : c != '\0') return 0;
    }
    return 1;
}

fig_status fig_embedded_check(const fig_embedded *compiled) {
    uint64_t code_bytes = 0;
    for (uint32_t i = 0; i < compiled->count; i++) {
        const fig_embedded_record *record = &compiled->records[i];
        if (!fig_embedded_is_family(record->family))
            return fig_fail(FIG_INVALID, "score %" PRIu32 ": family is not a name of [a-z0-9_]", i);
        if (record->bytes < 1 || record->bytes > FIG_EMBEDDED_CODE_LIMIT)
            return fig_fail(FIG_INVALID, "score %" PRIu32 ": bytes is %" PRIu64 ", limits 1 to %d",
                            i, record->bytes, FIG_EMBEDDED_CODE_LIMIT);
        if (i > 0 && compare_records(record - 1, record) >= 0)
            return fig_fail(FIG_INVALID, "score %" PRIu32 " does not come after the one before", i);
        code_bytes += room_of(record);
    }
    if (code_bytes != compiled->code_bytes)
        return fig_fail(FIG_INVALID,
                        "the compiled scores take %" PRIu64 " bytes, there are %" PRIu32,
                        code_bytes, compiled->code_bytes);
    return FIG_OK;
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* A record and the code that it describes. */
typedef struct made {
    fig_embedded_record record;
    const void *bytes;
} made;

static int compare_made(const void *left, const void *right) {
    const made *a = left, *b = right;
    return compare_records(&a->record, &b->record);
}

static made made_of(const fig_image_compiled *image) {
    made one = {.bytes = image->image.bytes};
    one.record.bytes = image->image.count;
    one.record.compute_capability = image->compute_capability;
    one.record.driver = image->driver;
    memcpy(one.record.ptx, image->ptx, sizeof one.record.ptx);
    memcpy(one.record.family, image->family, sizeof one.record.family);
    hash_of(one.bytes, one.record.bytes, one.record.sha256);
    return one;
}

/* Copies records and code from the sorted list. raw: [compiled->code_bytes], zeros. */
static void lay_out(fig_embedded *compiled, const made *list, uint8_t *raw) {
    for (uint32_t i = 0; i < compiled->count; i++) {
        compiled->records[i] = list[i].record;
        memcpy(raw, list[i].bytes, (size_t)list[i].record.bytes);
        raw += room_of(&list[i].record);
    }
}

static fig_status compress(fig_embedded *compiled, const made *list) {
    const size_t capacity = ZSTD_compressBound(compiled->code_bytes);
    uint8_t *raw = calloc(1, compiled->code_bytes + (size_t)1);
    compiled->records = calloc(compiled->count + (size_t)1, sizeof *compiled->records);
    compiled->code = malloc(capacity);
    if (raw == NULL || compiled->records == NULL || compiled->code == NULL) {
        free(raw);
        return fig_fail(FIG_NOMEM, "compiled scores: %" PRIu32 " bytes", compiled->code_bytes);
    }
    lay_out(compiled, list, raw);
    compiled->stored_bytes =
        ZSTD_compress(compiled->code, capacity, raw, compiled->code_bytes, LEVEL);
    free(raw);
    if (!ZSTD_isError(compiled->stored_bytes)) return FIG_OK;
    return fig_fail(FIG_NOMEM, "compiled scores: zstd: %s",
                    ZSTD_getErrorName(compiled->stored_bytes));
}

/* Keeps each of the equal ones once. Returns their number. */
static uint32_t drop_equals(made *list, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || compare_made(&list[kept - 1], &list[i]) != 0) list[kept++] = list[i];
    return kept;
}

fig_status fig_embedded_make(fig_embedded *compiled, const fig_image_compiled *images,
                             uint32_t count) {
    uint64_t code_bytes = 0;
    memset(compiled, 0, sizeof *compiled);
    if (count == 0) return FIG_OK;
    made *list = calloc(count, sizeof *list);
    if (list == NULL) return fig_fail(FIG_NOMEM, "compiled scores: %" PRIu32, count);
    for (uint32_t i = 0; i < count; i++)
        list[i] = made_of(&images[i]);
    qsort(list, count, sizeof *list, compare_made);
    compiled->count = drop_equals(list, count);
    for (uint32_t i = 0; i < compiled->count; i++)
        code_bytes += room_of(&list[i].record);
    fig_status status = FIG_OK;
    if (compiled->count > FIG_EMBEDDED_LIMIT || code_bytes > FIG_EMBEDDED_CODE_LIMIT)
        status = fig_fail(FIG_TOO_LARGE,
                          "embed: %" PRIu32 " compiled scores of %" PRIu64
                          " bytes, limits %d of %d bytes",
                          compiled->count, code_bytes, FIG_EMBEDDED_LIMIT, FIG_EMBEDDED_CODE_LIMIT);
    compiled->code_bytes = (uint32_t)code_bytes;
    if (status == FIG_OK) status = compress(compiled, list);
    free(list);
    if (status != FIG_OK) fig_embedded_finish(compiled);
    return status;
}

/* ---- Trust ----------------------------------------------------------------------------------- */

fig_status fig_embedded_unpack(const fig_embedded_frame *frame, uint8_t **code) {
    ZSTD_DCtx *context = ZSTD_createDCtx();
    *code = malloc(frame->count + (size_t)1);
    if (context == NULL || *code == NULL) {
        ZSTD_freeDCtx(context);
        return fig_fail(FIG_NOMEM, "trust: %" PRIu32 " bytes of images", frame->count);
    }
    const size_t done =
        ZSTD_decompressDCtx(context, *code, frame->count, frame->bytes, frame->stored_bytes);
    ZSTD_freeDCtx(context);
    if (done == frame->count) return FIG_OK;
    return fig_fail(FIG_FORMAT, "section %s: zstd: %s", frame->section, ZSTD_getErrorName(done));
}

void fig_embedded_seal(const fig_embedded_record *record, char hex[HEX_BYTES]) {
    uint8_t sha256[32];
    hash_of(record, sizeof *record, sha256);
    fig_archive_hex(sha256, hex);
}

static fig_status judge(const fig_embedded_record *record, const fig_trust *trust) {
    char hex[HEX_BYTES];
    fig_embedded_seal(record, hex);
    for (int32_t i = 0; i < trust->image_count; i++)
        if (strcmp(trust->images[i], hex) == 0) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "the file's compiled score (%s, %" PRId32 ".%" PRId32
                    ") is not trusted, SHA-256 %s: if you know its origin, add that to "
                    "fig_trust.images, or open without trust and have it compiled",
                    record->family, record->compute_capability / 10,
                    record->compute_capability % 10, hex);
}

static fig_status take_code(const fig_embedded_record *record, const uint8_t *bytes,
                            fig_image_compiled *image) {
    uint8_t sha256[32];
    hash_of(bytes, record->bytes, sha256);
    if (memcmp(sha256, record->sha256, sizeof sha256) != 0)
        return fig_fail(FIG_FORMAT,
                        "section SCOD: the compiled score (%s) does not have the SHA-256 that SIMG "
                        "records",
                        record->family);
    image->compute_capability = record->compute_capability;
    image->driver = record->driver;
    image->image = (fig_image){bytes, (size_t)record->bytes, record->sha256};
    memcpy(image->ptx, record->ptx, sizeof image->ptx);
    memcpy(image->family, record->family, sizeof image->family);
    return FIG_OK;
}

fig_status fig_embedded_admit(const fig_embedded *compiled, const fig_trust *trust,
                              fig_image_set *set, uint8_t **code) {
    const fig_embedded_frame frame = {compiled->code, compiled->stored_bytes, compiled->code_bytes,
                                      "SCOD"};
    *code = NULL;
    set->compiled = NULL;
    set->compiled_count = 0;
    for (uint32_t i = 0; i < compiled->count; i++)
        FIG_TRY(judge(&compiled->records[i], trust));
    if (compiled->count == 0) return FIG_OK;
    set->compiled = calloc(compiled->count, sizeof *set->compiled);
    if (set->compiled == NULL)
        return fig_fail(FIG_NOMEM, "trust: %" PRIu32 " compiled scores", compiled->count);
    FIG_TRY(fig_embedded_unpack(&frame, code));
    const uint8_t *at = *code;
    for (uint32_t i = 0; i < compiled->count; i++) {
        FIG_TRY(take_code(&compiled->records[i], at, &set->compiled[i]));
        set->compiled_count++;
        at += room_of(&compiled->records[i]);
    }
    return FIG_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

fig_status fig_embedded_clone(fig_embedded *clone, const fig_embedded *compiled) {
    memset(clone, 0, sizeof *clone);
    if (compiled->count == 0) return FIG_OK;
    const size_t bytes = compiled->count * sizeof *compiled->records;
    *clone = *compiled;
    clone->records = malloc(bytes);
    clone->code = malloc(compiled->stored_bytes + 1);
    if (clone->records == NULL || clone->code == NULL) {
        fig_embedded_finish(clone);
        return fig_fail(FIG_NOMEM, "archive: %" PRIu32 " compiled scores", compiled->count);
    }
    memcpy(clone->records, compiled->records, bytes);
    memcpy(clone->code, compiled->code, compiled->stored_bytes);
    return FIG_OK;
}

void fig_embedded_finish(fig_embedded *compiled) {
    free(compiled->records);
    free(compiled->code);
    memset(compiled, 0, sizeof *compiled);
}

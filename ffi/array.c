/* array.c: checks a foreign caller's array and computes its sizes.
 *
 * Invariant: no product here overflows. Decoders refuse arrays whose count would overflow, and
 * spans, which depend on strides, saturate. */
#include "ffi/array.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/status.h"

enum { SHAPE_TEXT = 128 };

int fig_array_is_present(const fig_array *array) {
    return array->name != NULL;
}

void fig_array_pack(fig_array *array) {
    int64_t stride = 1;
    for (int32_t i = array->rank - 1; i >= 0; i--) {
        array->strides[i] = stride;
        if (__builtin_mul_overflow(stride, array->dims[i], &stride)) stride = INT64_MAX;
    }
}

int64_t fig_array_count(const fig_array *array) {
    int64_t count = 1;
    for (int32_t i = 0; i < array->rank; i++)
        if (array->dims[i] == 0) return 0;
    for (int32_t i = 0; i < array->rank; i++)
        if (__builtin_mul_overflow(count, array->dims[i], &count)) return INT64_MAX;
    return count;
}

static uint64_t bytes_of(uint64_t elements, uint32_t bits) {
    uint64_t total;
    if (__builtin_mul_overflow(elements, bits, &total)) return UINT64_MAX;
    return total / 8 + (total % 8 != 0);
}

uint64_t fig_array_bytes(const fig_array *array) {
    return bytes_of((uint64_t)fig_array_count(array), array->bits);
}

uint64_t fig_array_span(const fig_array *array) {
    uint64_t last = 0;
    if (fig_array_count(array) == 0) return 0;
    for (int32_t i = 0; i < array->rank; i++) {
        uint64_t reach;
        if (__builtin_mul_overflow((uint64_t)(array->dims[i] - 1), (uint64_t)array->strides[i],
                                   &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return UINT64_MAX;
    }
    return last == UINT64_MAX ? last : bytes_of(last + 1, array->bits);
}

fig_status fig_array_check_size(const fig_array *array) {
    const uint64_t span = fig_array_span(array);
    if (fig_array_count(array) == INT64_MAX || fig_array_bytes(array) == UINT64_MAX)
        return fig_fail(FIG_INVALID, "%s has more bytes than can be counted", array->name);
    if (array->data == NULL || span <= UINTPTR_MAX - (uintptr_t)array->data) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s: %" PRIu64 " bytes at %p end behind the last address",
                    array->name, span, array->data);
}

static const char *shape_of(const fig_array *array, char text[SHAPE_TEXT]) {
    int at = snprintf(text, SHAPE_TEXT, "[");
    for (int32_t i = 0; i < array->rank && at < SHAPE_TEXT - 1; i++)
        at += snprintf(text + at, (size_t)(SHAPE_TEXT - at), "%s%" PRId64, i == 0 ? "" : ", ",
                       array->dims[i]);
    if (at < SHAPE_TEXT - 1) snprintf(text + at, (size_t)(SHAPE_TEXT - at), "]");
    return text;
}

fig_status fig_array_check_rank(const fig_array *array, int32_t rank) {
    char shape[SHAPE_TEXT];
    if (array->rank == rank) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is %s, it must have %d dims", array->name,
                    shape_of(array, shape), rank);
}

fig_status fig_array_check_dim(const fig_array *array, int32_t dim, int64_t extent) {
    char shape[SHAPE_TEXT];
    assert(dim < array->rank);
    if (array->dims[dim] == extent) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is %s, its dim %d must be %" PRId64, array->name,
                    shape_of(array, shape), dim, extent);
}

fig_status fig_array_check_least(const fig_array *array, int32_t dim, int64_t least) {
    char shape[SHAPE_TEXT];
    assert(dim < array->rank);
    if (array->dims[dim] >= least) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is %s, its dim %d must be at least %" PRId64, array->name,
                    shape_of(array, shape), dim, least);
}

fig_status fig_array_check_alike(const fig_array *array, const fig_array *other) {
    char shape[SHAPE_TEXT], wanted[SHAPE_TEXT];
    int is_alike = array->rank == other->rank;
    for (int32_t i = 0; is_alike && i < array->rank; i++)
        is_alike = array->dims[i] == other->dims[i];
    if (is_alike) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is %s, it must be %s like %s", array->name,
                    shape_of(array, shape), shape_of(other, wanted), other->name);
}

static const char *name_of(fig_dtype dtype) {
    switch (dtype) {
    case FIG_F32: return "float32";
    case FIG_F16: return "float16";
    case FIG_BF16: return "bfloat16";
    case FIG_E4M3: return "float8_e4m3fn";
    case FIG_E5M2: return "float8_e5m2";
    case FIG_I32: return "int32";
    case FIG_I64: return "int64";
    default: return "none";
    }
}

fig_status fig_array_read_dtype(const char *what, int64_t number, fig_dtype *dtype) {
    static const fig_dtype known[] = {FIG_F32, FIG_F16, FIG_BF16, FIG_E4M3, FIG_E5M2};
    *dtype = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((int64_t)known[i] == number) *dtype = known[i];
    if (*dtype != 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is %" PRId64 ", which is no fig_dtype of q or of a cache",
                    what, number);
}

fig_status fig_array_check_dtype(const fig_array *array, fig_dtype dtype) {
    if (array->dtype == dtype) return FIG_OK;
    return fig_fail(FIG_ARRAY_WRONG_TYPE, "%s is %s, it must be %s", array->name, array->type,
                    name_of(dtype));
}

fig_status fig_array_check_integers(const fig_array *array) {
    if (array->dtype == FIG_I32 || array->dtype == FIG_I64) return FIG_OK;
    return fig_fail(FIG_ARRAY_WRONG_TYPE, "%s is %s, it must be int32 or int64", array->name,
                    array->type);
}

fig_status fig_array_check_activation(const fig_array *array) {
    if (array->dtype == FIG_F32 || array->dtype == FIG_F16 || array->dtype == FIG_BF16)
        return FIG_OK;
    return fig_fail(FIG_ARRAY_WRONG_TYPE, "%s is %s, it must be float32, float16 or bfloat16",
                    array->name, array->type);
}

int fig_array_is_bytes(const fig_array *array) {
    return strcmp(array->type, "uint8") == 0;
}

/* The stride of a dim of size 1 is never used, so callers may fill in anything. */
static int is_packed_from(const fig_array *array, int32_t first) {
    int64_t stride = 1;
    if (fig_array_count(array) == 0) return 1;
    for (int32_t i = array->rank - 1; i >= first; i--) {
        if (array->dims[i] != 1 && array->strides[i] != stride) return 0;
        stride *= array->dims[i];
    }
    return 1;
}

int fig_array_is_dense(const fig_array *array) {
    return is_packed_from(array, 0);
}

fig_status fig_array_check_dense(const fig_array *array) {
    if (fig_array_is_dense(array)) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s has gaps or another order of dims, it must be row-major",
                    array->name);
}

fig_status fig_array_check_rows(const fig_array *array) {
    if (array->rank > 0 && is_packed_from(array, array->rank - 1)) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s: the elements of its last dim must lie side by side",
                    array->name);
}

fig_status fig_array_join(fig_array *array) {
    const int64_t rows = array->dims[0], tokens = array->dims[1];
    assert(array->rank >= 2);
    if (rows > 1 && tokens > 1 && fig_array_count(array) > 0 &&
        (array->strides[0] % tokens != 0 || array->strides[0] / tokens != array->strides[1]))
        return fig_fail(FIG_INVALID,
                        "%s has strides %" PRId64 " and %" PRId64
                        " between rows and between the %" PRId64
                        " tokens of a row, the first must be %" PRId64 " times the second",
                        array->name, array->strides[0], array->strides[1], tokens, tokens);
    array->dims[1] = rows * tokens; /* at most the number of elements, which was checked */
    if (tokens == 1) array->strides[1] = array->strides[0];
    array->rank--;
    memmove(array->dims, array->dims + 1, (size_t)array->rank * sizeof *array->dims);
    memmove(array->strides, array->strides + 1, (size_t)array->rank * sizeof *array->strides);
    return FIG_OK;
}

fig_status fig_array_halve(const fig_array *array, const char *const names[2],
                           fig_array *const halves[2]) {
    const fig_array both = *array;
    FIG_TRY(fig_array_check_dim(&both, 1, 2));
    const int64_t apart = both.strides[1] * both.bits / 8;
    for (int half = 0; half < 2; half++) {
        fig_array *one = halves[half];
        *one = both;
        one->name = names[half];
        if (both.data != NULL) one->data = (uint8_t *)both.data + half * apart;
        one->rank--;
        memmove(one->dims + 1, both.dims + 2, (size_t)(both.rank - 2) * sizeof *one->dims);
        memmove(one->strides + 1, both.strides + 2, (size_t)(both.rank - 2) * sizeof *one->strides);
    }
    return FIG_OK;
}

static const char *place_of(const fig_array *array, char text[SHAPE_TEXT]) {
    if (array->device == FIG_DEVICE_CUDA)
        snprintf(text, SHAPE_TEXT, "GPU %d", array->ordinal);
    else
        snprintf(text, SHAPE_TEXT, "the CPU");
    return text;
}

fig_status fig_array_check_device(const fig_array *array, const fig_array *first) {
    char here[SHAPE_TEXT], there[SHAPE_TEXT];
    if (array->device == first->device && array->ordinal == first->ordinal) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is on %s, %s is on %s", array->name, place_of(array, here),
                    first->name, place_of(first, there));
}

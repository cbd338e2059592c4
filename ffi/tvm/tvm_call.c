/* tvm_call.c: decodes TVM FFI's packed arguments into arrays and numbers, and raises errors.
 *
 * This library does not link libtvm_ffi. `import tvm_ffi` puts libtvm_ffi into the process's global
 * scope. This file looks up the two functions that it needs at first use, not earlier, because this
 * library may be opened first. In a process without libtvm_ffi, errors are not raised in Python and
 * every call uses the default stream. Invariant: nothing of an argument is kept after the call. */
#include "ffi/tvm/tvm_call.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/status.h"

/* Finds a function in the process and stores its address. C does not convert void * to a function
 * pointer, so the bytes are copied. */
static void find_in_process(const char *name, void *function) {
    void *process = dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    void *found = process == NULL ? NULL : dlsym(process, name);
    memcpy(function, &found, sizeof found);
    if (process != NULL) dlclose(process);
}

/* Counts the names before `end`, or all of them. */
static int32_t count_names(const char *names, char end) {
    int32_t count = *names != '\0';
    for (; *names != '\0' && *names != end; names++)
        count += *names == ',';
    return count;
}

void fig_tvm_call_begin(fig_tvm_call *call, const char *parameters) {
    const int32_t least = count_names(parameters, '['), most = count_names(parameters, '\0');
    char limits[32];
    if (call->count >= least && call->count <= most) return;
    snprintf(limits, sizeof limits, least < most ? "%d to %d" : "%d", least, most);
    call->status = fig_fail(FIG_ARRAY_WRONG_TYPE, "%d arguments, it takes %s: %s", call->count,
                            limits, parameters);
}

static const fig_tvm_value *next_of(fig_tvm_call *call) {
    static const fig_tvm_value none = {.kind = FIG_TVM_NONE};
    if (call->status != FIG_OK) return NULL;
    return call->next < call->count ? &call->args[call->next++] : &none;
}

static const char *kind_of(const fig_tvm_value *value) {
    switch (value->kind) {
    case FIG_TVM_NONE: return "None";
    case FIG_TVM_INT: return "an int";
    case FIG_TVM_BOOL: return "a bool";
    case FIG_TVM_FLOAT: return "a float";
    case FIG_TVM_TENSOR_POINTER:
    case FIG_TVM_TENSOR_OBJECT: return "a tensor";
    default: return "no tensor and no number";
    }
}

static const fig_dl_tensor *tensor_of(const fig_tvm_value *value) {
    const void *object = value->as.pointer;
    if (value->kind == FIG_TVM_TENSOR_POINTER) return object;
    if (value->kind == FIG_TVM_TENSOR_OBJECT && object != NULL)
        return (const void *)((const char *)object + FIG_TVM_OBJECT_HEADER);
    return NULL;
}

static void take_type(fig_array *array, const fig_dl_tensor *tensor) {
    static const struct {
        uint8_t code, bits;
        fig_dtype dtype;
        char name[FIG_ARRAY_TYPE_TEXT]; /* of fixed size: copied on every call */
    } known[] = {
        {FIG_DL_FLOAT, 32, FIG_F32, "float32"},    {FIG_DL_FLOAT, 16, FIG_F16, "float16"},
        {FIG_DL_BFLOAT, 16, FIG_BF16, "bfloat16"}, {FIG_DL_E4M3FN, 8, FIG_E4M3, "float8_e4m3fn"},
        {FIG_DL_E5M2, 8, FIG_E5M2, "float8_e5m2"}, {FIG_DL_INT, 32, FIG_I32, "int32"},
        {FIG_DL_INT, 64, FIG_I64, "int64"},        {FIG_DL_UINT, 8, 0, "uint8"},
        {FIG_DL_FLOAT, 64, 0, "float64"}};
    array->bits = (uint32_t)tensor->bits * tensor->lanes;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (tensor->code != known[i].code || tensor->bits != known[i].bits || tensor->lanes != 1)
            continue;
        array->dtype = known[i].dtype;
        memcpy(array->type, known[i].name, sizeof array->type);
        return;
    }
    snprintf(array->type, sizeof array->type, "DLPack type %u/%u/%u", tensor->code, tensor->bits,
             tensor->lanes);
}

static fig_status take_device(fig_array *array, const fig_dl_tensor *tensor) {
    array->ordinal = tensor->device == FIG_DL_CUDA ? tensor->ordinal : 0;
    array->device = tensor->device == FIG_DL_CUDA ? FIG_DEVICE_CUDA : FIG_DEVICE_HOST;
    if (tensor->device == FIG_DL_CPU || tensor->device == FIG_DL_CUDA) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is on a device of DLPack's type %d, it must be cpu or cuda",
                    array->name, tensor->device);
}

static fig_status take_tensor(fig_array *array, const fig_dl_tensor *tensor) {
    if (tensor->rank < 0 || tensor->rank > FIG_ARRAY_RANK_LIMIT)
        return fig_fail(FIG_INVALID, "%s has %d dims, at most %d are taken", array->name,
                        tensor->rank, FIG_ARRAY_RANK_LIMIT);
    array->rank = tensor->rank;
    for (int32_t i = 0; i < tensor->rank; i++) {
        array->dims[i] = tensor->dims[i];
        if (array->dims[i] < 0)
            return fig_fail(FIG_INVALID, "%s: dim %d is %" PRId64, array->name, i, array->dims[i]);
    }
    take_type(array, tensor);
    fig_array_pack(array);
    for (int32_t i = 0; tensor->strides != NULL && i < tensor->rank; i++) {
        if (tensor->dims[i] == 1) continue; /* stride never used; callers may fill in anything */
        array->strides[i] = tensor->strides[i];
        if (array->strides[i] < 0)
            return fig_fail(FIG_INVALID, "%s: stride %d is %" PRId64, array->name, i,
                            array->strides[i]);
    }
    if (tensor->byte_offset > UINTPTR_MAX - (uintptr_t)tensor->data)
        return fig_fail(FIG_INVALID, "%s: byte_offset is %" PRIu64 ", past the last address",
                        array->name, tensor->byte_offset);
    if (tensor->data != NULL) array->data = (char *)tensor->data + tensor->byte_offset;
    if (array->data == NULL && fig_array_count(array) > 0)
        return fig_fail(FIG_INVALID, "%s has no memory", array->name);
    FIG_TRY(fig_array_check_size(array));
    return take_device(array, tensor);
}

static void read_array(fig_tvm_call *call, const char *name, fig_array *array, int is_option) {
    *array = (fig_array){0};
    const fig_tvm_value *value = next_of(call);
    if (value == NULL || (is_option && value->kind == FIG_TVM_NONE)) return;
    const fig_dl_tensor *tensor = tensor_of(value);
    if (tensor == NULL) {
        call->status = fig_fail(FIG_ARRAY_WRONG_TYPE, "%s is %s, it must be a tensor%s", name,
                                kind_of(value), is_option ? " or None" : "");
        return;
    }
    if (is_option && tensor->rank > 0 && tensor->dims[0] == 0) return;
    array->name = name;
    call->status = take_tensor(array, tensor);
    if (call->status != FIG_OK) return;
    if (!fig_array_is_present(&call->first)) call->first = *array;
    call->status = fig_array_check_device(array, &call->first);
}

void fig_tvm_call_array(fig_tvm_call *call, const char *name, fig_array *array) {
    read_array(call, name, array, 0);
}

void fig_tvm_call_option(fig_tvm_call *call, const char *name, fig_array *array) {
    read_array(call, name, array, 1);
}

static int64_t integer_of(fig_tvm_call *call, const char *name, const fig_tvm_value *value) {
    if (value == NULL) return 0;
    if (value->kind == FIG_TVM_INT) return value->as.integer;
    if (value->kind == FIG_TVM_BOOL) return value->as.integer != 0;
    call->status = fig_fail(FIG_ARRAY_WRONG_TYPE, "%s is %s, it must be an int or a bool", name,
                            kind_of(value));
    return 0;
}

int64_t fig_tvm_call_integer(fig_tvm_call *call, const char *name) {
    return integer_of(call, name, next_of(call));
}

int64_t fig_tvm_call_integer_or(fig_tvm_call *call, const char *name, int64_t otherwise) {
    const fig_tvm_value *value = next_of(call);
    if (value != NULL && value->kind == FIG_TVM_NONE) return otherwise;
    return integer_of(call, name, value);
}

double fig_tvm_call_real(fig_tvm_call *call, const char *name) {
    const fig_tvm_value *value = next_of(call);
    if (value == NULL) return 0;
    if (value->kind == FIG_TVM_FLOAT) return value->as.real;
    if (value->kind == FIG_TVM_INT) return (double)value->as.integer;
    if (value->kind == FIG_TVM_BOOL) return value->as.integer != 0;
    call->status =
        fig_fail(FIG_ARRAY_WRONG_TYPE, "%s is %s, it must be a number", name, kind_of(value));
    return 0;
}

fig_dtype fig_tvm_call_dtype(fig_tvm_call *call, const char *name) {
    const int64_t number = fig_tvm_call_integer(call, name);
    fig_dtype dtype = 0;
    if (call->status == FIG_OK) call->status = fig_array_read_dtype(name, number, &dtype);
    return dtype;
}

void fig_tvm_call_skip(fig_tvm_call *call) {
    next_of(call);
}

/* A lookup takes the loader's lock, for which a fast call should not wait. So each thread stops
 * looking the function up once it has found it. */
void *fig_tvm_call_stream(const fig_tvm_call *call) {
    static _Thread_local void *(*stream_of)(int32_t, int32_t);
    if (call->first.device != FIG_DEVICE_CUDA) return NULL;
    if (call->stream != NULL) return *call->stream;
    if (stream_of == NULL) find_in_process("TVMFFIEnvGetStream", &stream_of);
    return stream_of == NULL ? NULL : stream_of(FIG_DL_CUDA, call->first.ordinal);
}

static const char *error_of(fig_status status) {
    if (status == FIG_ARRAY_WRONG_TYPE) return "TypeError";
    return status < 20 ? "ValueError" : "RuntimeError";
}

int fig_tvm_call_finish(const fig_tvm_call *call, fig_status status) {
    void (*raise)(const char *, const char *) = NULL;
    char sentence[640];
    if (status == FIG_OK) return 0;
    snprintf(sentence, sizeof sentence, "%s: %s", call->name, fig_message());
    find_in_process("TVMFFIErrorSetRaisedFromCStr", &raise);
    if (raise != NULL) raise(error_of(status), sentence);
    return -1;
}

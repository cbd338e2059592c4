/* xla_call.c: decodes XLA FFI's call frames into arrays and numbers, and encodes errors.
 *
 * A frame's api may be NULL in a query, and an older runtime's api lacks newer functions.
 * Invariant: nothing of a frame, and no error from XLA, is kept after the call. */
#include "ffi/xla/xla_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/status.h"

int fig_xla_call_answer(const fig_xla_frame *frame) {
    if (frame->extension == NULL || frame->extension->type != FIG_XLA_METADATA) return 0;
    fig_xla_query query;
    memcpy(&query, frame->extension, sizeof query);
    query.metadata->version.major = FIG_XLA_MAJOR;
    query.metadata->version.minor = FIG_XLA_MINOR;
    query.metadata->traits = FIG_XLA_COMMAND_BUFFER_COMPATIBLE;
    return 1;
}

static void drop_error(const fig_xla_api *api, fig_xla_error *error) {
    fig_xla_error_destroy args = {.struct_size = sizeof args, .error = error};
    api->error_destroy(&args);
}

static int has(const fig_xla_api *api, size_t offset) {
    return api->struct_size >= offset + sizeof(void (*)(void));
}

void fig_xla_call_begin(fig_xla_call *call, const fig_xla_frame *frame, fig_device device) {
    const char *name = call->name;
    *call = (fig_xla_call){.name = name, .frame = frame, .device = device, .ordinal = -1};
    const fig_xla_api *api = frame->api;
    if (device == FIG_DEVICE_HOST) {
        call->ordinal = 0;
    } else if (has(api, offsetof(fig_xla_api, ordinal_get)) && api->ordinal_get != NULL) {
        fig_xla_ordinal_get args = {.struct_size = sizeof args, .context = frame->context};
        fig_xla_error *error = api->ordinal_get(&args);
        if (error != NULL) drop_error(api, error);
        if (error == NULL) call->ordinal = args.ordinal;
    }
    if (frame->attrs.size > FIG_XLA_CALL_ATTRIBUTE_LIMIT)
        call->status = fig_fail(FIG_INVALID, "%" PRId64 " attributes, at most %d are taken",
                                frame->attrs.size, FIG_XLA_CALL_ATTRIBUTE_LIMIT);
}

static void take_type(fig_array *array, int type) {
    static const struct {
        fig_xla_type type;
        uint32_t bits;
        fig_dtype dtype;
        char name[FIG_ARRAY_TYPE_TEXT]; /* of fixed size: copied on every call */
    } known[] = {{FIG_XLA_F32, 32, FIG_F32, "float32"},
                 {FIG_XLA_F16, 16, FIG_F16, "float16"},
                 {FIG_XLA_BF16, 16, FIG_BF16, "bfloat16"},
                 {FIG_XLA_E4M3FN, 8, FIG_E4M3, "float8_e4m3fn"},
                 {FIG_XLA_E5M2, 8, FIG_E5M2, "float8_e5m2"},
                 {FIG_XLA_S32, 32, FIG_I32, "int32"},
                 {FIG_XLA_S64, 64, FIG_I64, "int64"},
                 {FIG_XLA_U8, 8, 0, "uint8"},
                 {FIG_XLA_S8, 8, 0, "int8"},
                 {FIG_XLA_PRED, 8, 0, "bool"},
                 {FIG_XLA_F64, 64, 0, "float64"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (type != (int)known[i].type) continue;
        array->bits = known[i].bits;
        array->dtype = known[i].dtype;
        memcpy(array->type, known[i].name, sizeof array->type);
        return;
    }
    snprintf(array->type, sizeof array->type, "XLA's type %d", type);
}

static fig_status take_buffer(const fig_xla_call *call, fig_array *array,
                              const fig_xla_buffer *buffer) {
    array->device = call->device;
    array->ordinal = call->ordinal;
    array->data = buffer->data;
    take_type(array, buffer->type);
    if (buffer->rank < 0 || buffer->rank > FIG_ARRAY_RANK_LIMIT)
        return fig_fail(FIG_INVALID, "%s has %" PRId64 " dims, at most %d are taken", array->name,
                        buffer->rank, FIG_ARRAY_RANK_LIMIT);
    array->rank = (int32_t)buffer->rank;
    for (int32_t i = 0; i < array->rank; i++) {
        array->dims[i] = buffer->dims[i];
        if (array->dims[i] < 0)
            return fig_fail(FIG_INVALID, "%s: dim %d is %" PRId64, array->name, i, array->dims[i]);
    }
    fig_array_pack(array);
    if (array->data == NULL && fig_array_count(array) > 0 && call->frame->stage == FIG_XLA_EXECUTE)
        return fig_fail(FIG_INVALID, "%s has no memory", array->name);
    return fig_array_check_size(array);
}

static void read_array(fig_xla_call *call, const fig_xla_list *list, int64_t index,
                       const char *name, fig_array *array) {
    *array = (fig_array){0};
    if (call->status != FIG_OK) return;
    const char *role = list == &call->frame->args ? "argument" : "result";
    if (index >= list->size) {
        call->status =
            fig_fail(FIG_INVALID, "%" PRId64 " %ss, the one of number %" PRId64 ", %s, is missing",
                     list->size, role, index, name);
        return;
    }
    if (list->kinds[index] != FIG_XLA_BUFFER) {
        call->status = fig_fail(FIG_ARRAY_WRONG_TYPE, "%s %s is no buffer", role, name);
        return;
    }
    array->name = name;
    call->status = take_buffer(call, array, list->values[index]);
}

static void forget_empty(fig_array *array) {
    if (array->rank > 0 && array->dims[0] == 0) *array = (fig_array){0};
}

void fig_xla_call_argument(fig_xla_call *call, const char *name, fig_array *array) {
    read_array(call, &call->frame->args, call->next_arg++, name, array);
}

void fig_xla_call_result(fig_xla_call *call, const char *name, fig_array *array) {
    read_array(call, &call->frame->rets, call->next_ret++, name, array);
}

void fig_xla_call_option(fig_xla_call *call, const char *name, fig_array *array) {
    if (call->next_arg >= call->frame->args.size) {
        *array = (fig_array){0};
    } else {
        fig_xla_call_argument(call, name, array);
        forget_empty(array);
    }
}

void fig_xla_call_optional_result(fig_xla_call *call, const char *name, fig_array *array) {
    if (call->next_ret >= call->frame->rets.size) {
        *array = (fig_array){0};
    } else {
        fig_xla_call_result(call, name, array);
        forget_empty(array);
    }
}

void fig_xla_call_alias(fig_xla_call *call, const char *name, const fig_array *array) {
    fig_array result;
    fig_xla_call_result(call, name, &result);
    if (call->status != FIG_OK) return;
    call->status = fig_array_check_alike(&result, array);
    if (call->status == FIG_OK && result.data != array->data)
        call->status = fig_fail(FIG_INVALID,
                                "%s is not the memory of argument %s: the call must say "
                                "input_output_aliases, and where the argument is a slice XLA must "
                                "have --xla_gpu_enable_dynamic_slice_fusion=false",
                                name, array->name);
}

/* Returns the index of an attribute and marks it as read, or -1 if it is absent. */
static int64_t find(fig_xla_call *call, const char *name) {
    const fig_xla_attributes *attributes = &call->frame->attrs;
    const size_t length = strlen(name);
    if (call->status != FIG_OK) return -1;
    for (int64_t i = 0; i < attributes->size; i++) {
        const fig_xla_span *own = attributes->names[i];
        if (own->length != length || memcmp(own->text, name, length) != 0) continue;
        call->asked |= UINT64_C(1) << i;
        return i;
    }
    return -1;
}

#define READ_AS(c_type)                                                                            \
    do {                                                                                           \
        c_type read_as_value;                                                                      \
        memcpy(&read_as_value, scalar->value, sizeof read_as_value);                               \
        *integer = (int64_t)read_as_value;                                                         \
        *real = (double)read_as_value;                                                             \
    } while (0)

/* Returns 1 for an integer, 2 for a real, 0 for any other type. */
static int read_scalar(const fig_xla_scalar *scalar, int64_t *integer, double *real) {
    switch (scalar->type) {
    case FIG_XLA_PRED:
    case FIG_XLA_U8: READ_AS(uint8_t); return 1;
    case FIG_XLA_S8: READ_AS(int8_t); return 1;
    case FIG_XLA_S16: READ_AS(int16_t); return 1;
    case FIG_XLA_U16: READ_AS(uint16_t); return 1;
    case FIG_XLA_S32: READ_AS(int32_t); return 1;
    case FIG_XLA_U32: READ_AS(uint32_t); return 1;
    case FIG_XLA_S64:
    case FIG_XLA_U64: READ_AS(int64_t); return 1;
    default: *integer = 0;
    }
    if (scalar->type == FIG_XLA_F32) {
        float value;
        memcpy(&value, scalar->value, sizeof value);
        *real = (double)value;
        return 2;
    }
    if (scalar->type != FIG_XLA_F64) return 0;
    memcpy(real, scalar->value, sizeof *real);
    return 2;
}

/* Reads attribute `name`. Returns 0 if it is absent or wrong; a wrong one sets the call's error. */
static int read_number(fig_xla_call *call, const char *name, int most, int64_t *integer,
                       double *real) {
    const int64_t index = find(call, name);
    if (index < 0) return 0;
    const fig_xla_attributes *attributes = &call->frame->attrs;
    const int kind = attributes->kinds[index] == FIG_XLA_SCALAR
                         ? read_scalar(attributes->values[index], integer, real)
                         : 0;
    if (kind != 0 && kind <= most) return kind;
    call->status = fig_fail(FIG_ARRAY_WRONG_TYPE, "attribute %s must be %s", name,
                            most == 1 ? "an integer or a bool" : "a number");
    return 0;
}

int64_t fig_xla_call_integer(fig_xla_call *call, const char *name, int64_t otherwise) {
    int64_t integer;
    double real;
    return read_number(call, name, 1, &integer, &real) != 0 ? integer : otherwise;
}

double fig_xla_call_real(fig_xla_call *call, const char *name, double otherwise) {
    int64_t integer;
    double real;
    return read_number(call, name, 2, &integer, &real) != 0 ? real : otherwise;
}

void fig_xla_call_need(fig_xla_call *call, const char *name) {
    if (find(call, name) < 0 && call->status == FIG_OK)
        call->status = fig_fail(FIG_INVALID, "attribute %s is missing", name);
}

fig_status fig_xla_call_end(fig_xla_call *call) {
    const fig_xla_frame *frame = call->frame;
    if (call->status != FIG_OK) return call->status;
    if (call->next_arg < frame->args.size)
        return call->status = fig_fail(FIG_INVALID, "%" PRId64 " arguments, it takes %" PRId64,
                                       frame->args.size, call->next_arg);
    if (call->next_ret < frame->rets.size)
        return call->status = fig_fail(FIG_INVALID, "%" PRId64 " results, it has %" PRId64,
                                       frame->rets.size, call->next_ret);
    for (int64_t i = 0; i < frame->attrs.size; i++) {
        if ((call->asked >> i & 1) != 0) continue;
        return call->status =
                   fig_fail(FIG_INVALID, "there is no attribute %.*s",
                            (int)frame->attrs.names[i]->length, frame->attrs.names[i]->text);
    }
    return FIG_OK;
}

fig_status fig_xla_call_stream(const fig_xla_call *call, void **stream) {
    const fig_xla_frame *frame = call->frame;
    fig_xla_stream_get args = {.struct_size = sizeof args, .context = frame->context};
    *stream = NULL;
    if (call->device == FIG_DEVICE_HOST) return FIG_OK;
    fig_xla_error *error = frame->api->stream_get(&args);
    if (error != NULL) {
        drop_error(frame->api, error);
        return fig_fail(FIG_ORDER, "XLA gives no stream: this handler is for the platform CUDA");
    }
    *stream = args.stream;
    return FIG_OK;
}

static fig_xla_code code_of(fig_status status) {
    switch (status) {
    case FIG_NOMEM: return FIG_XLA_RESOURCE_EXHAUSTED;
    case FIG_UNSUPPORTED: return FIG_XLA_UNIMPLEMENTED;
    case FIG_ORDER:
    case FIG_NO_DEVICE: return FIG_XLA_FAILED_PRECONDITION;
    default: return status < 20 ? FIG_XLA_INVALID_ARGUMENT : FIG_XLA_INTERNAL;
    }
}

fig_xla_error *fig_xla_call_finish(const fig_xla_call *call, fig_status status) {
    char sentence[640];
    if (status == FIG_OK) return NULL;
    snprintf(sentence, sizeof sentence, "%s: %s", call->name, fig_message());
    fig_xla_error_create args = {
        .struct_size = sizeof args, .message = sentence, .code = (int)code_of(status)};
    return call->frame->api->error_create(&args);
}

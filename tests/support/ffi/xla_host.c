/* xla_host.c: builds a call's frame in fresh memory, makes the call, and frees all of the frame.
 *
 * Invariant: attributes reach the handler sorted by name, as XLA sorts them, and no NUL follows a
 * name. */
#include "tests/support/ffi/xla_host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>

#include <cmocka.h>

#include "include/figraph_ffi.h"

/* What a context points to. Handlers cannot look into it, as with XLA's own. */
struct fig_xla_context {
    fig_xla_host *host;
};

struct fig_xla_error {
    fig_xla_host *host;
    int code;
    char message[FIG_XLA_HOST_TEXT];
};

/* The functions of the table take no user data, so the host of this thread's current call is kept
 * here. */
static _Thread_local fig_xla_host *calling;

static fig_xla_error *create_error(fig_xla_error_create *args) {
    assert_true(args->struct_size >= sizeof *args);
    assert_non_null(args->message);
    fig_xla_error *error = malloc(sizeof *error);
    assert_non_null(error);
    error->host = calling;
    error->code = args->code;
    snprintf(error->message, sizeof error->message, "%s", args->message);
    calling->errors_alive++;
    return error;
}

static void destroy_error(fig_xla_error_destroy *args) {
    assert_true(args->struct_size >= sizeof *args);
    args->error->host->errors_alive--;
    free(args->error);
}

static fig_xla_error *refuse(int code, const char *message) {
    return create_error(&(fig_xla_error_create){
        .struct_size = sizeof(fig_xla_error_create), .message = message, .code = code});
}

static fig_xla_error *get_stream(fig_xla_stream_get *args) {
    assert_true(args->struct_size >= sizeof *args);
    assert_ptr_equal(args->context->host, calling);
    if (calling->stream == NULL) return refuse(FIG_XLA_UNIMPLEMENTED, "no stream on this platform");
    args->stream = calling->stream;
    return NULL;
}

static fig_xla_error *get_ordinal(fig_xla_ordinal_get *args) {
    assert_true(args->struct_size >= sizeof *args);
    args->ordinal = calling->ordinal;
    return NULL;
}

void fig_xla_host_init(fig_xla_host *host, fig_xla_handler *handler) {
    memset(host, 0, sizeof *host);
    host->handler = handler;
    host->stage = FIG_XLA_EXECUTE;
    host->api = (fig_xla_api){.struct_size = sizeof host->api,
                              .error_create = create_error,
                              .error_destroy = destroy_error,
                              .stream_get = get_stream,
                              .ordinal_get = get_ordinal};
}

fig_xla_handler *fig_xla_host_find(const char *name, const char *platform) {
    fig_ffi_target target = {.size = sizeof target};
    fig_xla_handler *handler = NULL;
    for (int32_t i = 0; fig_ffi_read_target(i, &target) == FIG_OK; i++) {
        if (strcmp(target.name, name) != 0) continue;
        void *found = strcmp(platform, "cpu") == 0 ? target.host : target.cuda;
        memcpy(&handler, &found, sizeof handler);
    }
    assert_non_null(handler);
    return handler;
}

static void add(fig_xla_host_array *array, fig_xla_type type, void *data, int rank,
                const int64_t *dims) {
    assert_true(rank <= FIG_XLA_HOST_RANK);
    array->kind = FIG_XLA_BUFFER;
    array->buffer = (fig_xla_buffer){
        .struct_size = sizeof array->buffer, .type = (int)type, .data = data, .rank = rank};
    memcpy(array->dims, dims, (size_t)rank * sizeof *dims);
}

void fig_xla_host_arg(fig_xla_host *host, fig_xla_type type, void *data, int rank,
                      const int64_t *dims) {
    add(&host->args[host->arg_count++], type, data, rank, dims);
}

void fig_xla_host_ret(fig_xla_host *host, fig_xla_type type, void *data, int rank,
                      const int64_t *dims) {
    add(&host->rets[host->ret_count++], type, data, rank, dims);
}

void fig_xla_host_integer(fig_xla_host *host, const char *name, int64_t value) {
    host->attributes[host->attribute_count++] = (fig_xla_host_attribute){
        .name = name, .kind = FIG_XLA_SCALAR, .type = FIG_XLA_S64, .integer = value};
}

void fig_xla_host_real(fig_xla_host *host, const char *name, double value) {
    host->attributes[host->attribute_count++] = (fig_xla_host_attribute){
        .name = name, .kind = FIG_XLA_SCALAR, .type = FIG_XLA_F64, .real = value};
}

void fig_xla_host_text(fig_xla_host *host, const char *name, const char *text) {
    host->attributes[host->attribute_count++] =
        (fig_xla_host_attribute){.name = name, .kind = FIG_XLA_STRING, .text = text};
}

static void *fresh(size_t count, size_t size) {
    void *memory = calloc(count > 0 ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

/* Copies the text without its NUL, so that asan catches a handler that looks for a NUL. */
static fig_xla_span *copy_span(const char *text) {
    fig_xla_span *span = fresh(1, sizeof *span);
    char *copy = fresh(strlen(text), 1);
    memcpy(copy, text, strlen(text));
    *span = (fig_xla_span){copy, strlen(text)};
    return span;
}

static void free_span(fig_xla_span *span) {
    free((void *)(uintptr_t)span->text);
    free(span);
}

static fig_xla_list build_list(const fig_xla_host_array *arrays, int count) {
    fig_xla_list list = {.struct_size = sizeof list, .size = count};
    list.kinds = fresh((size_t)count, sizeof *list.kinds);
    list.values = fresh((size_t)count, sizeof *list.values);
    for (int i = 0; i < count; i++) {
        fig_xla_buffer *buffer = fresh(1, sizeof *buffer);
        *buffer = arrays[i].buffer;
        const size_t dims = (size_t)(buffer->rank > 0 ? buffer->rank : 0);
        buffer->dims = fresh(dims, sizeof *buffer->dims);
        memcpy(buffer->dims, arrays[i].dims, dims * sizeof *buffer->dims);
        list.kinds[i] = arrays[i].kind;
        list.values[i] = buffer;
    }
    return list;
}

static void free_list(fig_xla_list *list) {
    for (int64_t i = 0; i < list->size; i++) {
        fig_xla_buffer *buffer = list->values[i];
        free(buffer->dims);
        free(buffer);
    }
    free(list->kinds);
    free(list->values);
}

static int by_name(const void *a, const void *b) {
    const fig_xla_host_attribute *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static void *build_value(const fig_xla_host_attribute *attribute) {
    if (attribute->kind == FIG_XLA_STRING) return copy_span(attribute->text);
    fig_xla_scalar *scalar = fresh(1, sizeof *scalar);
    scalar->type = attribute->type;
    scalar->value = fresh(1, 8);
    if (attribute->type == FIG_XLA_F64)
        memcpy(scalar->value, &attribute->real, 8);
    else if (attribute->type == FIG_XLA_F32)
        memcpy(scalar->value, &attribute->narrow, 4);
    else
        memcpy(scalar->value, &attribute->integer, 8); /* a narrower integer is the low bytes */
    return scalar;
}

static fig_xla_attributes build_attributes(fig_xla_host *host) {
    const size_t count = (size_t)host->attribute_count;
    fig_xla_attributes list = {.struct_size = sizeof list, .size = host->attribute_count};
    qsort(host->attributes, count, sizeof host->attributes[0], by_name);
    list.kinds = fresh(count, sizeof *list.kinds);
    list.names = fresh(count, sizeof *list.names);
    list.values = fresh(count, sizeof *list.values);
    for (size_t i = 0; i < count; i++) {
        list.kinds[i] = host->attributes[i].kind;
        list.names[i] = copy_span(host->attributes[i].name);
        list.values[i] = build_value(&host->attributes[i]);
    }
    return list;
}

static void free_attributes(fig_xla_attributes *list) {
    for (int64_t i = 0; i < list->size; i++) {
        free_span(list->names[i]);
        if (list->kinds[i] == FIG_XLA_STRING) {
            free_span(list->values[i]);
            continue;
        }
        fig_xla_scalar *scalar = list->values[i];
        free(scalar->value);
        free(scalar);
    }
    free(list->kinds);
    free(list->names);
    free(list->values);
}

void fig_xla_host_call(fig_xla_host *host) {
    struct fig_xla_context context = {host};
    fig_xla_frame *frame = fresh(1, sizeof *frame);
    if (host->ordinal < 0) { /* an old runtime's table ends before this function */
        host->api.struct_size = offsetof(fig_xla_api, run_get);
        memset(&host->api.ordinal_get, 0xee, sizeof host->api.ordinal_get);
    }
    *frame = (fig_xla_frame){.struct_size = sizeof *frame,
                             .api = &host->api,
                             .context = &context,
                             .stage = host->stage,
                             .args = build_list(host->args, host->arg_count),
                             .rets = build_list(host->rets, host->ret_count),
                             .attrs = build_attributes(host)};
    calling = host;
    fig_xla_error *error = host->handler(frame);
    host->code = error == NULL ? 0 : error->code;
    snprintf(host->message, sizeof host->message, "%s", error == NULL ? "" : error->message);
    if (error != NULL)
        destroy_error(
            &(fig_xla_error_destroy){.struct_size = sizeof(fig_xla_error_destroy), .error = error});
    calling = NULL;
    assert_int_equal(host->errors_alive, 0);
    free_list(&frame->args);
    free_list(&frame->rets);
    free_attributes(&frame->attrs);
    free(frame);
}

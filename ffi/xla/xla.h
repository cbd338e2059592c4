/* xla.h: declares the part of XLA FFI's C API 0.1 that a handler without state needs.
 *
 * XLA renames its declarations from version to version, but the layout in memory is the same from
 * API 0.1 (jaxlib 0.5) to 0.5 (jaxlib 0.12). All these versions accept a handler that declares 0.1
 * and uses only the fields below. This library neither includes nor links XLA. tests/jax/abi_xla.c
 * compares the layouts with the installed headers. */
#ifndef FIG_FFI_XLA_H
#define FIG_FFI_XLA_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum { FIG_XLA_MAJOR = 0, FIG_XLA_MINOR = 1 }; /* the version that handlers declare */
enum { FIG_XLA_METADATA = 1 };                 /* this extension marks a query, not a call */
enum { FIG_XLA_COMMAND_BUFFER_COMPATIBLE = 1 };

typedef enum fig_xla_stage {
    FIG_XLA_INSTANTIATE = 0,
    FIG_XLA_PREPARE,
    FIG_XLA_INITIALIZE,
    FIG_XLA_EXECUTE
} fig_xla_stage;

typedef enum fig_xla_code {
    FIG_XLA_INVALID_ARGUMENT = 3,
    FIG_XLA_RESOURCE_EXHAUSTED = 8,
    FIG_XLA_FAILED_PRECONDITION = 9,
    FIG_XLA_UNIMPLEMENTED = 12,
    FIG_XLA_INTERNAL = 13
} fig_xla_code;

typedef enum fig_xla_type {
    FIG_XLA_PRED = 1,
    FIG_XLA_S8 = 2,
    FIG_XLA_S16 = 3,
    FIG_XLA_S32 = 4,
    FIG_XLA_S64 = 5,
    FIG_XLA_U8 = 6,
    FIG_XLA_U16 = 7,
    FIG_XLA_U32 = 8,
    FIG_XLA_U64 = 9,
    FIG_XLA_F16 = 10,
    FIG_XLA_F32 = 11,
    FIG_XLA_F64 = 12,
    FIG_XLA_BF16 = 16,
    FIG_XLA_E5M2 = 19,
    FIG_XLA_E4M3FN = 20
} fig_xla_type;

typedef struct fig_xla_extension {
    size_t struct_size;
    int type;
    struct fig_xla_extension *next;
} fig_xla_extension;

/* ---- XLA's function table: only the functions called here have a type ------------------------ */
typedef struct fig_xla_error fig_xla_error;
typedef struct fig_xla_context fig_xla_context;

typedef struct fig_xla_error_create {
    size_t struct_size;
    fig_xla_extension *extension;
    const char *message; /* XLA copies it */
    int code;
} fig_xla_error_create;

typedef struct fig_xla_error_destroy {
    size_t struct_size;
    fig_xla_extension *extension;
    fig_xla_error *error;
} fig_xla_error_destroy;

typedef struct fig_xla_stream_get {
    size_t struct_size;
    fig_xla_extension *extension;
    fig_xla_context *context;
    void *stream; /* out */
} fig_xla_stream_get;

typedef struct fig_xla_ordinal_get {
    size_t struct_size;
    fig_xla_extension *extension;
    fig_xla_context *context;
    int32_t ordinal; /* out */
} fig_xla_ordinal_get;

typedef struct fig_xla_version {
    size_t struct_size;
    fig_xla_extension *extension;
    int major, minor; /* out */
} fig_xla_version;

typedef struct fig_xla_api {
    size_t struct_size; /* an older runtime has a shorter table */
    fig_xla_extension *extension;
    fig_xla_version version;
    const void *internal;
    fig_xla_error *(*error_create)(fig_xla_error_create *);
    void (*error_get)(void *); /* its name and its struct differ between versions */
    void (*error_destroy)(fig_xla_error_destroy *);
    void (*handler_register)(void);
    fig_xla_error *(*stream_get)(fig_xla_stream_get *);
    void (*others[11])(void); /* types, state, memory, threads, futures */
    void (*run_get)(void);    /* from 0.2 on */
    fig_xla_error *(*ordinal_get)(fig_xla_ordinal_get *);
} fig_xla_api;

/* ---- The arguments of a call ----------------------------------------------------------------- */
typedef struct fig_xla_buffer {
    size_t struct_size;
    fig_xla_extension *extension;
    int type; /* fig_xla_type */
    void *data;
    int64_t rank;
    int64_t *dims; /* [rank]; row-major */
} fig_xla_buffer;

typedef struct fig_xla_span {
    const char *text; /* without a NUL */
    size_t length;
} fig_xla_span;

typedef struct fig_xla_scalar {
    int type; /* fig_xla_type */
    void *value;
} fig_xla_scalar;

enum { FIG_XLA_BUFFER = 1 };                     /* the kind of arguments and results */
enum { FIG_XLA_SCALAR = 3, FIG_XLA_STRING = 4 }; /* kinds of attributes */

typedef struct fig_xla_list { /* a list of arguments or of results */
    size_t struct_size;
    fig_xla_extension *extension;
    int64_t size;
    int *kinds;    /* [size] */
    void **values; /* [size] */
} fig_xla_list;

typedef struct fig_xla_attributes { /* sorted by name */
    size_t struct_size;
    fig_xla_extension *extension;
    int64_t size;
    int *kinds;           /* [size] */
    fig_xla_span **names; /* [size] */
    void **values;        /* [size] */
} fig_xla_attributes;

typedef struct fig_xla_frame {
    size_t struct_size;
    fig_xla_extension *extension;
    const fig_xla_api *api; /* NULL in a query of jaxlib 0.5.0 */
    fig_xla_context *context;
    int stage; /* fig_xla_stage */
    fig_xla_list args, rets;
    fig_xla_attributes attrs;
    void *future;
} fig_xla_frame;

typedef struct fig_xla_metadata {
    size_t struct_size;
    fig_xla_version version;
    uint32_t traits;
} fig_xla_metadata;

typedef struct fig_xla_query {
    fig_xla_extension base;
    fig_xla_metadata *metadata;
} fig_xla_query;

typedef fig_xla_error *fig_xla_handler(fig_xla_frame *frame);

#endif

/* tvm.h: declares the parts of the stable ABIs of TVM FFI and DLPack that a callee needs.
 *
 * This library neither includes nor links TVM, so any process can load it, with or without TVM.
 * tests/jax/abi_tvm.c compares the layouts with the released headers if they are installed. */
#ifndef FIG_FFI_TVM_H
#define FIG_FFI_TVM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* ---- DLPack ---------------------------------------------------------------------------------- */
enum { FIG_DL_CPU = 1, FIG_DL_CUDA = 2 };
enum {
    FIG_DL_INT = 0,
    FIG_DL_UINT = 1,
    FIG_DL_FLOAT = 2,
    FIG_DL_BFLOAT = 4,
    FIG_DL_COMPLEX = 5,
    FIG_DL_BOOL = 6,
    FIG_DL_E4M3FN = 10,
    FIG_DL_E5M2 = 12
};

typedef struct fig_dl_tensor {
    void *data;
    int32_t device, ordinal;
    int32_t rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *dims;    /* [rank] */
    int64_t *strides; /* [rank] in elements; NULL: row-major */
    uint64_t byte_offset;
} fig_dl_tensor;
static_assert(sizeof(fig_dl_tensor) == 48, "DLTensor");

/* ---- Values ---------------------------------------------------------------------------------- */
enum {
    FIG_TVM_NONE = 0,
    FIG_TVM_INT = 1,
    FIG_TVM_BOOL = 2,
    FIG_TVM_FLOAT = 3,
    FIG_TVM_TENSOR_POINTER = 7, /* a pointer to a DLTensor */
    FIG_TVM_TENSOR_OBJECT = 70  /* a pointer to an object: the header below, then a DLTensor */
};
enum { FIG_TVM_OBJECT_HEADER = 24 };

typedef struct fig_tvm_value {
    int32_t kind;
    uint32_t padding;
    union {
        int64_t integer;
        double real;
        void *pointer;
    } as;
} fig_tvm_value;
static_assert(sizeof(fig_tvm_value) == 16, "TVMFFIAny");

/* The type of an exported function __tvm_ffi_<name>. It borrows its arguments. If it
 * writes no result, the caller gets None. On failure it sets the thread's error and returns -1. */
typedef int fig_tvm_function(void *self, const fig_tvm_value *args, int32_t count,
                             fig_tvm_value *result);

#endif

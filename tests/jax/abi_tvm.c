/* abi_tvm.c: checks that the declarations in ffi/tvm/tvm.h have the same layout as those in the
 * headers of tvm-ffi and DLPack.
 *
 * test_jax.sh only compiles it, with the headers of the package that it installs. */
#include "ffi/tvm/tvm.h"

#include <tvm/ffi/c_api.h>

#define SAME_PLACE(ours, field, theirs, their_field)                                               \
    static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&                        \
                      sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field),            \
                  #theirs "." #their_field)
#define SAME_VALUE(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)

static_assert(sizeof(fig_dl_tensor) == sizeof(DLTensor), "DLTensor");
SAME_PLACE(fig_dl_tensor, data, DLTensor, data);
SAME_PLACE(fig_dl_tensor, device, DLTensor, device.device_type);
SAME_PLACE(fig_dl_tensor, ordinal, DLTensor, device.device_id);
SAME_PLACE(fig_dl_tensor, rank, DLTensor, ndim);
SAME_PLACE(fig_dl_tensor, code, DLTensor, dtype.code);
SAME_PLACE(fig_dl_tensor, bits, DLTensor, dtype.bits);
SAME_PLACE(fig_dl_tensor, lanes, DLTensor, dtype.lanes);
SAME_PLACE(fig_dl_tensor, dims, DLTensor, shape);
SAME_PLACE(fig_dl_tensor, strides, DLTensor, strides);
SAME_PLACE(fig_dl_tensor, byte_offset, DLTensor, byte_offset);
SAME_VALUE(FIG_DL_CPU, kDLCPU);
SAME_VALUE(FIG_DL_CUDA, kDLCUDA);
SAME_VALUE(FIG_DL_INT, kDLInt);
SAME_VALUE(FIG_DL_UINT, kDLUInt);
SAME_VALUE(FIG_DL_FLOAT, kDLFloat);
SAME_VALUE(FIG_DL_BFLOAT, kDLBfloat);
SAME_VALUE(FIG_DL_COMPLEX, kDLComplex);
SAME_VALUE(FIG_DL_BOOL, kDLBool);
SAME_VALUE(FIG_DL_E4M3FN, kDLFloat8_e4m3fn);
SAME_VALUE(FIG_DL_E5M2, kDLFloat8_e5m2);

static_assert(sizeof(fig_tvm_value) == sizeof(TVMFFIAny), "TVMFFIAny");
SAME_PLACE(fig_tvm_value, kind, TVMFFIAny, type_index);
SAME_PLACE(fig_tvm_value, as.integer, TVMFFIAny, v_int64);
SAME_PLACE(fig_tvm_value, as.real, TVMFFIAny, v_float64);
SAME_PLACE(fig_tvm_value, as.pointer, TVMFFIAny, v_obj);
static_assert(FIG_TVM_OBJECT_HEADER == sizeof(TVMFFIObject), "TVMFFIObject");
SAME_VALUE(FIG_TVM_NONE, kTVMFFINone);
SAME_VALUE(FIG_TVM_INT, kTVMFFIInt);
SAME_VALUE(FIG_TVM_BOOL, kTVMFFIBool);
SAME_VALUE(FIG_TVM_FLOAT, kTVMFFIFloat);
SAME_VALUE(FIG_TVM_TENSOR_POINTER, kTVMFFIDLTensorPtr);
SAME_VALUE(FIG_TVM_TENSOR_OBJECT, kTVMFFITensor);

/* abi_xla.c: checks that the declarations in ffi/xla/xla.h have the same layout as those in XLA's
 * own header.
 *
 * test_jax.sh only compiles it, with the header of every jaxlib that it installs. For names that
 * changed with API 0.4, it uses the names of the installed header. */
#include "ffi/xla/xla.h"

#include <xla/ffi/api/c_api.h>

#if XLA_FFI_API_MINOR >= 4
typedef XLA_FFI_InternalExtension extension;
#else
typedef XLA_FFI_Extension_Base extension;
#endif

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_PLACE(ours, field, theirs, their_field)                                               \
    static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&                        \
                      sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field),            \
                  #theirs "." #their_field)
#define SAME_VALUE(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)

SAME_SIZE(fig_xla_extension, extension);
SAME_PLACE(fig_xla_extension, type, extension, type);
SAME_PLACE(fig_xla_extension, next, extension, next);
SAME_SIZE(fig_xla_error_create, XLA_FFI_Error_Create_Args);
SAME_PLACE(fig_xla_error_create, message, XLA_FFI_Error_Create_Args, message);
SAME_PLACE(fig_xla_error_create, code, XLA_FFI_Error_Create_Args, errc);
SAME_SIZE(fig_xla_error_destroy, XLA_FFI_Error_Destroy_Args);
SAME_PLACE(fig_xla_error_destroy, error, XLA_FFI_Error_Destroy_Args, error);
SAME_SIZE(fig_xla_stream_get, XLA_FFI_Stream_Get_Args);
SAME_PLACE(fig_xla_stream_get, context, XLA_FFI_Stream_Get_Args, ctx);
SAME_PLACE(fig_xla_stream_get, stream, XLA_FFI_Stream_Get_Args, stream);
SAME_PLACE(fig_xla_version, minor, XLA_FFI_Api_Version, minor_version);
SAME_PLACE(fig_xla_api, struct_size, XLA_FFI_Api, struct_size);
SAME_PLACE(fig_xla_api, version, XLA_FFI_Api, api_version);
SAME_PLACE(fig_xla_api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME_PLACE(fig_xla_api, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME_PLACE(fig_xla_api, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get);
#if XLA_FFI_API_MINOR >= 2
SAME_SIZE(fig_xla_ordinal_get, XLA_FFI_DeviceOrdinal_Get_Args);
SAME_PLACE(fig_xla_ordinal_get, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);
SAME_PLACE(fig_xla_api, ordinal_get, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
#else
static_assert(sizeof(XLA_FFI_Api) <= offsetof(fig_xla_api, run_get), "the table of 0.1 ends here");
#endif

SAME_SIZE(fig_xla_buffer, XLA_FFI_Buffer);
SAME_PLACE(fig_xla_buffer, type, XLA_FFI_Buffer, dtype);
SAME_PLACE(fig_xla_buffer, data, XLA_FFI_Buffer, data);
SAME_PLACE(fig_xla_buffer, rank, XLA_FFI_Buffer, rank);
SAME_PLACE(fig_xla_buffer, dims, XLA_FFI_Buffer, dims);
SAME_SIZE(fig_xla_span, XLA_FFI_ByteSpan);
SAME_PLACE(fig_xla_span, length, XLA_FFI_ByteSpan, len);
SAME_SIZE(fig_xla_scalar, XLA_FFI_Scalar);
SAME_PLACE(fig_xla_scalar, value, XLA_FFI_Scalar, value);
SAME_SIZE(fig_xla_list, XLA_FFI_Args);
SAME_PLACE(fig_xla_list, size, XLA_FFI_Args, size);
SAME_PLACE(fig_xla_list, kinds, XLA_FFI_Args, types);
SAME_PLACE(fig_xla_list, values, XLA_FFI_Args, args);
SAME_SIZE(fig_xla_list, XLA_FFI_Rets);
SAME_PLACE(fig_xla_list, values, XLA_FFI_Rets, rets);
SAME_SIZE(fig_xla_attributes, XLA_FFI_Attrs);
SAME_PLACE(fig_xla_attributes, kinds, XLA_FFI_Attrs, types);
SAME_PLACE(fig_xla_attributes, names, XLA_FFI_Attrs, names);
SAME_PLACE(fig_xla_attributes, values, XLA_FFI_Attrs, attrs);
SAME_SIZE(fig_xla_frame, XLA_FFI_CallFrame);
SAME_PLACE(fig_xla_frame, extension, XLA_FFI_CallFrame, extension_start);
SAME_PLACE(fig_xla_frame, api, XLA_FFI_CallFrame, api);
SAME_PLACE(fig_xla_frame, context, XLA_FFI_CallFrame, ctx);
SAME_PLACE(fig_xla_frame, stage, XLA_FFI_CallFrame, stage);
SAME_PLACE(fig_xla_frame, args, XLA_FFI_CallFrame, args);
SAME_PLACE(fig_xla_frame, rets, XLA_FFI_CallFrame, rets);
SAME_PLACE(fig_xla_frame, attrs, XLA_FFI_CallFrame, attrs);
SAME_PLACE(fig_xla_metadata, version, XLA_FFI_Metadata, api_version);
SAME_PLACE(fig_xla_metadata, traits, XLA_FFI_Metadata, traits);
SAME_PLACE(fig_xla_query, metadata, XLA_FFI_Metadata_Extension, metadata);

SAME_VALUE(FIG_XLA_METADATA, XLA_FFI_Extension_Metadata);
SAME_VALUE(FIG_XLA_COMMAND_BUFFER_COMPATIBLE, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
SAME_VALUE(FIG_XLA_INITIALIZE, XLA_FFI_ExecutionStage_INITIALIZE);
SAME_VALUE(FIG_XLA_EXECUTE, XLA_FFI_ExecutionStage_EXECUTE);
SAME_VALUE(FIG_XLA_INVALID_ARGUMENT, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_VALUE(FIG_XLA_RESOURCE_EXHAUSTED, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
SAME_VALUE(FIG_XLA_FAILED_PRECONDITION, XLA_FFI_Error_Code_FAILED_PRECONDITION);
SAME_VALUE(FIG_XLA_UNIMPLEMENTED, XLA_FFI_Error_Code_UNIMPLEMENTED);
SAME_VALUE(FIG_XLA_INTERNAL, XLA_FFI_Error_Code_INTERNAL);
SAME_VALUE(FIG_XLA_PRED, XLA_FFI_DataType_PRED);
SAME_VALUE(FIG_XLA_S8, XLA_FFI_DataType_S8);
SAME_VALUE(FIG_XLA_S16, XLA_FFI_DataType_S16);
SAME_VALUE(FIG_XLA_S32, XLA_FFI_DataType_S32);
SAME_VALUE(FIG_XLA_S64, XLA_FFI_DataType_S64);
SAME_VALUE(FIG_XLA_U8, XLA_FFI_DataType_U8);
SAME_VALUE(FIG_XLA_U16, XLA_FFI_DataType_U16);
SAME_VALUE(FIG_XLA_U32, XLA_FFI_DataType_U32);
SAME_VALUE(FIG_XLA_U64, XLA_FFI_DataType_U64);
SAME_VALUE(FIG_XLA_F16, XLA_FFI_DataType_F16);
SAME_VALUE(FIG_XLA_F32, XLA_FFI_DataType_F32);
SAME_VALUE(FIG_XLA_F64, XLA_FFI_DataType_F64);
SAME_VALUE(FIG_XLA_BF16, XLA_FFI_DataType_BF16);
SAME_VALUE(FIG_XLA_E5M2, XLA_FFI_DataType_F8E5M2);
SAME_VALUE(FIG_XLA_E4M3FN, XLA_FFI_DataType_F8E4M3FN);
SAME_VALUE(FIG_XLA_BUFFER, XLA_FFI_ArgType_BUFFER);
SAME_VALUE(FIG_XLA_BUFFER, XLA_FFI_RetType_BUFFER);
SAME_VALUE(FIG_XLA_SCALAR, XLA_FFI_AttrType_SCALAR);
SAME_VALUE(FIG_XLA_STRING, XLA_FFI_AttrType_STRING);

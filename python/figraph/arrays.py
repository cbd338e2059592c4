"""arrays.py: reads the address, shape and strides of an array of torch, JAX, CuPy or numpy.

Uses __array_interface__, DLPack or __cuda_array_interface__, whichever the array has, and imports
none of those libraries. Invariant: nothing is copied, and a Place keeps its array alive.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
from typing import Any

from .integers import INT64, UINT64, integer

HOST, CUDA = "host", "cuda"
# The DLPack device numbers of memory that an engine on this device can use directly.
DEVICES = {HOST: {1, 3, 13}, CUDA: {2, 13}}
# Dtypes by DLPack's (code, bits), and by the type strings of numpy's array interface.
DLPACK_DTYPES = {
    (2, 32): "f32",
    (2, 16): "f16",
    (4, 16): "bf16",
    (10, 8): "e4m3",
    (12, 8): "e5m2",
    (0, 32): "i32",
    (0, 64): "i64",
}
INTERFACE_DTYPES = {"f4": "f32", "f2": "f16", "i4": "i32", "i8": "i64"}


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


@dataclasses.dataclass(frozen=True)
class Place:
    """Memory of an array. strides count elements; dtype is "" if only the element size is known."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    item_bytes: int
    device: int  # DLPack's device number
    ordinal: int
    is_constant: bool
    holds: Any = dataclasses.field(repr=False)

    def is_on(self, device: str) -> bool:
        """Returns True if an engine on that device can use this memory."""
        return self.device in DEVICES[device]

    def reach_bytes(self) -> int:
        """Returns the bytes from the start of the first element to the end of the last."""
        reach = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        return (reach + 1) * self.item_bytes


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides of a row-major array without gaps."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def element_of(typestr: str) -> tuple[str, int]:
    """Splits numpy's type string into the kind of the element and its bytes."""
    kind, item = typestr[1:2], typestr[2:]
    if kind not in tuple("biufcV") or not item.isdigit() or int(item) < 1:
        raise ValueError(f"the array's elements are of the type {typestr!r}, they must be numbers")
    if typestr[0] == ">" and int(item) > 1:
        raise ValueError("the array's bytes are in the other order than this machine's")
    return kind, int(item)


def of_interface(array: Any, interface: dict[str, Any], device: int) -> Place:
    """Reads the dict that numpy's and CUDA's array interfaces share."""
    if not isinstance(interface.get("data"), tuple):
        raise ValueError("the array does not say at which address it lies")
    address, is_constant = interface["data"]
    kind, item = element_of(interface["typestr"])
    shape = tuple(integer("the array's dim", dim, INT64) for dim in interface["shape"])
    given = interface.get("strides")
    if given is not None and len(given) != len(shape):
        raise ValueError(f"the array has {len(shape)} dims and {len(given)} strides")
    if given is not None and any(stride % item for stride in given):
        raise ValueError(f"the array's strides, {given} bytes, are not of whole elements")
    return Place(
        address=integer("the array's address", address or 0, UINT64),
        shape=shape,
        strides=dense(shape) if given is None else tuple(
            integer("the array's stride", stride // item, INT64) for stride in given),
        dtype=INTERFACE_DTYPES.get(f"{kind}{item}", ""),
        item_bytes=item,
        device=device,
        ordinal=0,
        is_constant=bool(is_constant),
        holds=array,
    )


def of_dlpack(array: Any) -> Place:
    """Reads a DLPack capsule. The capsule owns the memory. This function never consumes the
    capsule, so the capsule's destructor releases the memory."""
    device, ordinal = (int(number) for number in array.__dlpack_device__())
    # Stream 1 is CUDA's default stream. The array's library orders its own pending work before
    # later work on that stream.
    capsule = array.__dlpack__(stream=1) if device in (2, 13) else array.__dlpack__()
    tensor = DLTensor.from_address(capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.dtype.lanes != 1:
        raise ValueError(f"the array's elements are vectors of {tensor.dtype.lanes}")
    return Place(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.strides else dense(shape),
        dtype=DLPACK_DTYPES.get((tensor.dtype.code, tensor.dtype.bits), ""),
        item_bytes=(tensor.dtype.bits + 7) // 8,
        device=device,
        ordinal=ordinal,
        is_constant=False,
        holds=(array, capsule),
    )


def place_of(array: Any, field: str) -> Place:
    """Returns the Place of an array. field: its name, for the message."""
    if hasattr(array, "__array_interface__"):
        return of_interface(array, array.__array_interface__, 1)
    if hasattr(array, "__dlpack__"):
        return of_dlpack(array)
    if hasattr(array, "__cuda_array_interface__"):
        return of_interface(array, array.__cuda_array_interface__, 2)
    raise TypeError(
        f"{field} is of type {type(array).__name__}, which has none of __array_interface__, "
        "__dlpack__ and __cuda_array_interface__, as arrays of numpy, torch, JAX and CuPy have"
    )

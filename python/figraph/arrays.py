"""arrays.py: where an array of torch, JAX, CuPy or numpy lies, and what form it has.

Asks by __array_interface__, DLPack or __cuda_array_interface__, whichever the array has; nothing of
those libraries is imported. Invariant: nothing is copied, and what was asked lives as long as the
answer.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
from typing import Any

HOST, CUDA = "host", "cuda"
# DLPack's numbers of devices: those whose memory a host engine or one on a GPU can use as it is.
DEVICES = {HOST: {1, 3, 13}, CUDA: {2, 13}}
# DLPack's pairs of code and bits, and what the interfaces of numpy's kind call the same.
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
    """Where an array lies. strides count elements; dtype is "" where only the size is known."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    item_bytes: int
    device: int  # DLPack's number
    ordinal: int
    is_constant: bool
    holds: Any = dataclasses.field(repr=False)

    def is_on(self, device: str) -> bool:
        """Whether an engine on that device can use the memory."""
        return self.device in DEVICES[device]

    def reach_bytes(self) -> int:
        """From the first element to behind the last."""
        reach = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        return (reach + 1) * self.item_bytes


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array whose elements lie one behind the other."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def of_interface(array: Any, interface: dict[str, Any], device: int) -> Place:
    """By what numpy's protocol and CUDA's both have."""
    address, is_constant = interface["data"]
    kind, item = interface["typestr"][1:2], int(interface["typestr"][2:])
    shape, given = tuple(interface["shape"]), interface.get("strides")
    if interface["typestr"][0] == ">":
        raise ValueError("the array's bytes are in the other order than this machine's")
    if given is not None and any(stride % item for stride in given):
        raise ValueError(f"the array's strides, {given} bytes, are not of whole elements")
    return Place(
        address=address or 0,
        shape=shape,
        strides=dense(shape) if given is None else tuple(stride // item for stride in given),
        dtype=INTERFACE_DTYPES.get(f"{kind}{item}", ""),
        item_bytes=item,
        device=device,
        ordinal=0,
        is_constant=bool(is_constant),
        holds=array,
    )


def of_dlpack(array: Any) -> Place:
    """By DLPack. The capsule keeps the memory; nobody takes it over, so its end gives it back."""
    device, ordinal = (int(number) for number in array.__dlpack_device__())
    # 1 is CUDA's default stream: what the array's library has enqueued is done before what that
    # stream does later.
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


def place_of(array: Any) -> Place:
    """Where an array lies."""
    if hasattr(array, "__array_interface__"):
        return of_interface(array, array.__array_interface__, 1)
    if hasattr(array, "__dlpack__"):
        return of_dlpack(array)
    if hasattr(array, "__cuda_array_interface__"):
        return of_interface(array, array.__cuda_array_interface__, 2)
    raise TypeError(
        f"{type(array).__name__} has none of __array_interface__, __dlpack__ and "
        "__cuda_array_interface__"
    )

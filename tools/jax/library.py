"""library.py: libfigraph_ffi.so as Python sees it: its XLA targets, and how much scratch they take.

Needs ctypes alone until register_targets() is called, which needs jax. The structs are those of
include/figraph_ffi.h.
"""

import ctypes
import os

DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "float8_e4m3fn": 4, "float8_e5m2": 5}


class Target(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("host", ctypes.c_void_p),
        ("cuda", ctypes.c_void_p),
    ]


class Attention(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("dtype", ctypes.c_uint32),
        ("kv_dtype", ctypes.c_uint32),
        ("q_heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("page_size", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("kv_length", ctypes.c_int64),
        ("window", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("traits", ctypes.c_void_p),
    ]


class Scratch(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("plan_bytes", ctypes.c_uint64),
        ("best_bytes", ctypes.c_uint64),
        ("least_bytes", ctypes.c_uint64),
    ]


class Counts(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("eager", ctypes.c_int64),
        ("captured", ctypes.c_int64),
        ("missed", ctypes.c_int64),
    ]


def sized(type, **fields):
    return type(size=ctypes.sizeof(type), **fields)


class Library:
    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.c = ctypes.CDLL(self.path)
        self.c.fig_ffi_message.restype = ctypes.c_char_p
        self.c.fig_ffi_load.argtypes = [ctypes.c_char_p, ctypes.c_char_p]

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.c.fig_ffi_message().decode())

    def targets(self):
        target = sized(Target)
        index = 0
        while self.c.fig_ffi_read_target(index, ctypes.byref(target)) == 0:
            yield target.name.decode(), target.host, target.cuda
            index += 1

    def register_targets(self, platform, initialize=True):
        """All XLA targets, for "cpu" or for "CUDA". There XLA asks for initialize at every step, so
        that kernels are loaded before the first execute, which may be captured. Without it that
        execute loads them, and no step costs the asking."""
        import jax.ffi

        for name, host, cuda in self.targets():
            if platform == "CUDA":
                capsule = jax.ffi.pycapsule(ctypes.c_void_p(cuda))
                handler = {"initialize": capsule, "execute": capsule} if initialize else capsule
            else:
                handler = jax.ffi.pycapsule(ctypes.c_void_p(host))
            jax.ffi.register_ffi_target(name, handler, platform=platform)

    def scratch(self, dtype, q_heads, kv_heads, head_dim, rows, kv_length, page_size=0, window=0):
        """Bytes of scratch and of a plan, enough for every chip that the library knows."""
        asked = sized(
            Attention,
            dtype=DTYPES[str(dtype)],
            q_heads=q_heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            page_size=page_size,
            rows=rows,
            kv_length=kv_length,
            window=window,
        )
        told = sized(Scratch)
        self.check(self.c.fig_ffi_read_scratch(ctypes.byref(asked), ctypes.byref(told)))
        return told

    def plan(self, lengths, dtype, q_heads, kv_heads, head_dim, kv_length, page_size=0, window=0):
        """The plan that layers of such attention share, and the scratch that goes through them."""
        import jax
        import jax.numpy as jnp

        needs = self.scratch(
            dtype, q_heads, kv_heads, head_dim, lengths.shape[0], kv_length, page_size, window
        )
        outs = (needs.plan_bytes,), (needs.best_bytes,)
        call = jax.ffi.ffi_call(
            "figraph.plan", tuple(jax.ShapeDtypeStruct(shape, jnp.uint8) for shape in outs)
        )
        return call(
            lengths,
            dtype=str(dtype),
            q_heads=q_heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            page_size=page_size,
            kv_length=kv_length,
            window_left=window - 1,
        )

    def load(self, path):
        """A .fig file for figraph.program; returns its content_id."""
        content_id = ctypes.create_string_buffer(65)
        self.check(self.c.fig_ffi_load(os.fsencode(path), content_id))
        return content_id.value.decode()

    def program_scratch(self, content_id, rows, kv_length):
        told = sized(Scratch)
        self.check(
            self.c.fig_ffi_read_program_scratch(
                content_id.encode(), rows, ctypes.c_int64(kv_length), ctypes.byref(told)
            )
        )
        return told

    def counts(self):
        told = sized(Counts)
        self.check(self.c.fig_ffi_read_counts(ctypes.byref(told)))
        return told

"""structs.py: the structs that tools/jax/library.py writes down are those of figraph_ffi.h.

    tests/jax/structs.py BINDING.py     a module that tools/binding.py made of the headers
"""

import ctypes
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tools/jax"))
import library  # noqa: E402

spec = importlib.util.spec_from_file_location("binding", sys.argv[1])
binding = importlib.util.module_from_spec(spec)
spec.loader.exec_module(binding)


def layout(type):
    names = [name for name, *_ in type._fields_]
    return [(n, getattr(type, n).offset, getattr(type, n).size) for n in names]


for name in ("Target", "Attention", "Scratch", "Counts"):
    ours, theirs = getattr(library, name), getattr(binding, "fig_ffi_" + name.lower())
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs), name
    assert layout(ours) == layout(theirs), f"{layout(ours)} is not {layout(theirs)}"

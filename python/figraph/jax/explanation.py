"""explanation.py: tells how XLA launches a compiled function and whether it copies donated arrays.

The custom calls themselves count the launches. The reasons come from XLA_FLAGS and from the
compiled function. Invariant: the caller's arrays do not change.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from typing import Any, Optional

import jax
import jax.numpy as jnp

from .. import ffi

RUNS = 4  # run 1 may load kernels, run 2 may capture, run 3 may see new addresses
COMMANDS = ("FUSION", "CUBLAS", "CUBLASLT", "CUSTOM_CALL", "CUDNN")  # XLA's defaults
LEAST = 5  # XLA's default for the fewest commands of a graph
NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3fn",
         "float8_e5m2": "f8e5m2", "int32": "s32", "uint8": "u8"}


@dataclasses.dataclass(frozen=True)
class Explanation:
    """How XLA launches a step; str() returns a readable text."""

    how: str  # "replayed", "captured" or "eager"
    why: str
    calls: int  # figraph's custom calls in the compiled function
    others: tuple[str, ...]  # other custom calls in it
    eager: int  # figraph's calls that the last run made eagerly
    captured: int  # figraph's calls that the last run captured into a graph
    donated_bytes: int  # on each device
    aliased_bytes: int
    copies: tuple[str, ...]  # copy operations whose type and shape are those of a cache

    @property
    def copies_cache(self) -> bool:
        """True if XLA copies a cache."""
        return self.aliased_bytes < self.donated_bytes or len(self.copies) > 0

    def __str__(self) -> str:
        copied = "no cache is copied"
        if self.copies_cache:
            copied = f"XLA copies caches: {'; '.join(self.copies) or 'they are not aliased'}"
        return (f"{self.how}: {self.why}\n{self.calls} calls, {self.eager} at once and "
                f"{self.captured} captured in the last of {RUNS} runs\n"
                f"{self.aliased_bytes} of {self.donated_bytes} donated bytes are aliased; {copied}")


def flag(name: str) -> Optional[str]:
    """Returns the last value of a flag in XLA_FLAGS, or None."""
    found = re.findall(rf"--{name}=(\S*)", os.environ.get("XLA_FLAGS", ""))
    return found[-1].strip("\"'") if found else None


def commands() -> set[str]:
    """Returns the kinds of commands that XLA may capture. The flag contains a list, or changes to
    XLA's defaults."""
    said, kinds = flag("xla_gpu_enable_command_buffer"), set(COMMANDS)
    if said is None:
        return kinds
    words = [word.upper() for word in said.split(",") if word]
    if not words or words[0][0] not in "+-":
        return set(words)
    for word in words:
        kinds = kinds | {word[1:]} if word[0] == "+" else kinds - {word[1:]}
    return kinds


def _is_profiled() -> bool:
    """Returns True if a profiler is on. JAX has no public function for this. If JAX has moved its
    private record, the answer is False."""
    state = getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)
    return getattr(state, "profile_session", None) is not None


def why_eager(platform: str, calls: int, others: tuple[str, ...]) -> str:
    """Returns the first reason why XLA runs a function with this number of figraph's calls
    eagerly."""
    if calls == 0:
        return "the compiled function has no call of figraph's"
    if platform == "cpu":
        return "XLA captures nothing on a CPU"
    if "CUSTOM_CALL" not in commands():
        said = flag("xla_gpu_enable_command_buffer")
        return f"XLA_FLAGS has --xla_gpu_enable_command_buffer={said}, without CUSTOM_CALL"
    if _is_profiled():
        return ("a profiler is on, and XLA then launches call by call, unless XLA_FLAGS has "
                "--xla_enable_command_buffers_during_profiling")
    least = int(flag("xla_gpu_graph_min_graph_size") or LEAST)
    if calls < least:
        return (f"a graph needs at least {least} commands, and figraph makes only {calls} calls: "
                "--xla_gpu_graph_min_graph_size=1 lifts this limit")
    between = f"; other custom calls may lack the trait: {', '.join(others)}" if others else ""
    return f"there are never {least} commands in a row{between}"


def _why(how: str, platform: str, calls: int, others: tuple[str, ...]) -> str:
    if how == "eager":
        return why_eager(platform, calls, others)
    if how == "captured":
        return ("addresses changed from run to run: donate the arrays that are written, and drop "
                "results before the next step")
    return "every call is part of a graph that was launched as it was"


def _copies(text: str, moving: Any) -> tuple[str, ...]:
    """Returns the copy operations in the compiled text whose type and shape are those of a
    cache."""
    wanted = set()
    for x in jax.tree_util.tree_leaves(moving[0]):
        dims = x.sharding.shard_shape(x.shape) if hasattr(x, "sharding") else x.shape
        wanted.add(f"{NAMES[str(x.dtype)]}[{','.join(map(str, dims))}]")
    lines = re.findall(r"(\S+) = (\w+\[[\d,]*\])\S* copy(?:-start)?\(", text)
    return tuple(f"{name} {shape}" for name, shape in lines if shape in wanted)


def _bytes(moving: Any) -> int:
    """Returns the bytes of these arrays on one device."""
    total = 0
    for x in jax.tree_util.tree_leaves(moving):
        dims = x.sharding.shard_shape(x.shape) if hasattr(x, "sharding") else x.shape
        count = 1
        for dim in dims:
            count *= dim
        total += count * x.dtype.itemsize
    return total


def explain(compiled: Any, params: Any, moving: Any, staying: Any, inputs: Any) -> Explanation:
    """Explains a compiled step by running it."""
    text, memory = compiled.as_text(), compiled.memory_analysis()
    targets = re.findall(r'custom_call_target="([^"]*)"', text)
    calls = sum(target.startswith("figraph.") for target in targets)
    others = tuple(sorted({t for t in targets if not t.startswith("figraph.")}))
    held = jax.tree_util.tree_map(jnp.copy, moving)
    donated, platform = _bytes(held), next(iter(held[1].devices())).platform
    for _ in range(RUNS):
        before = ffi.counts()
        out, held = compiled(params, held, staying, *inputs)
        jax.block_until_ready((out, held))
        del out  # so that the next run gets the same memory
        after = ffi.counts()
    eager, captured = after.eager - before.eager, after.captured - before.captured
    how = "eager" if eager > 0 or calls == 0 else "captured" if captured > 0 else "replayed"
    return Explanation(how, _why(how, platform, calls, others), calls, others, eager, captured,
                       donated, memory.alias_size_in_bytes, _copies(text, moving))

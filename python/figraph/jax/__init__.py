"""figraph.jax: operations of a decode step and whole steps inside jax.jit, on CPU and GPUs.

1. Operations are functions of arrays, each one custom call. A row is a sequence; lengths are int32
and lie on the device, the token of this step counted, so one compiled function serves all of them.
A row whose length is 0, or more than its cache holds, is idle, and its out is zeros.

>>> import jax, jax.numpy as jnp
>>> import figraph.jax as fj
>>> q, kv = jnp.ones((2, 8, 64)), jnp.ones((2, 4, 64))          # [rows, heads, head_dim]
>>> cache = fj.Cache(jnp.zeros((2, 16, 4, 64)), jnp.zeros((2, 16, 4, 64)))
>>> lengths = jnp.array([1, 0], jnp.int32)
>>> out, cache, _, _ = jax.jit(fj.decode_attention)(q, kv, kv, cache, lengths)
>>> out[:, 0, 0].tolist()
[1.0, 0.0]

A cache is [rows, tokens, kv_heads, head_dim], or, with a page_table [rows, pages of a row] int32,
[pages, tokens of a page, kv_heads, head_dim]; under layout="hnd" tokens and heads change places.
It grows in place where it is donated; XLA copies all of it where it is not. It is no slice of a
larger array: on GPUs some versions of XLA (jaxlib 0.11.2, of those that were tried) then hand over
the larger one and a result elsewhere, which is refused, unless
--xla_gpu_enable_dynamic_slice_fusion=false is in XLA_FLAGS.

How rows are cut for the GPU is a plan. It is made once a step, by plan(), and read by all layers
that have the same rows, heads and windows: each takes it and gives it on. Without one, each makes
its own.

2. A whole step keeps plans, donation and compiling in one place. The model is yours: it is given a
State, which holds the caches of all layers and the lengths, and gives it back.

>>> def model(params, state, x):                                # x: [rows, width]
...     for n, weights in enumerate(params):
...         q, k, v = jnp.split(jnp.einsum("rw,whd->rhd", x, weights), (8, 12), axis=1)
...         out, state = state.attend(n, q, k, v)               # RoPE, append, attention
...         x = x + out.mean(axis=1)
...     return x, state
>>> params = [jnp.ones((64, 16, 64)) / 64 for _ in range(2)]
>>> state = fj.State.empty(2, rows=2, tokens=16, kv_heads=4, head_dim=64, dtype=jnp.float32)
>>> state = state.serving(jnp.array([1, 0], jnp.int32))         # row 0 is about to begin
>>> step, x = fj.DecodeStep(model, check=True), jnp.ones((2, 64))
>>> step.warmup((params, state, x))                             # each bucket, before the first step
>>> for _ in range(3):
...     out, state = step(params, state, x)                     # state is donated, and grown
>>> state.lengths.tolist(), state.cap
([4, 0], 16)

3. What XLA makes of it: whether its calls are part of a graph that is replayed, and if not, why;
and whether it copies a cache.

>>> print(step.explain(params, state, x))
eager: XLA captures nothing on a CPU
3 calls, 3 at once and 0 captured in the last of 4 runs
131080 of 131080 donated bytes are aliased; no cache is copied

4. Ranks: with mesh and axis, DecodeStep gives each device its share of the heads, and the model
adds up what they give by jax.lax.psum(part, axis). State.over_heads(axis) has the PartitionSpecs.

5. A recorded file runs inside jax.jit as well: program(load("model.fig"), ...). What jax.export
makes of it names files by what is in them: a process that has the function first asks missing().
jax.export takes these functions where its disabled_checks name the targets, as custom_calls() lists
them.

6. flash_attention() has the arguments of Flax's attention functions, for one token of each
sequence, and masks of any pattern.

What cannot be is refused while JAX traces, in words:

>>> fj.attention(q, cache, lengths, layout="nkd")
Traceback (most recent call last):
ValueError: layout is "nkd", it must be nhd or hnd

Under jax.vmap the activations, apply_rope and flash_attention have more rows; the others raise
NotImplementedError, since rows are their batch. Importing registers the custom calls for both
platforms; XLA loads a kernel when it first meets it, be it while it captures a command buffer.
"""

from .decode_step import DecodeStep
from .explanation import Explanation
from .files import File, load, missing, program
from .flash import flash_attention
from .operations import (Attended, Decoded, Logits, Rope, append_kv, apply_rope, attention,
                             decode_attention, gelu_and_mul, gelu_tanh_and_mul, plan, silu_and_mul)
from .state import State
from .targets import Cache, Plan, custom_calls

__all__ = [
    "Attended",
    "Cache",
    "DecodeStep",
    "Decoded",
    "Explanation",
    "File",
    "Logits",
    "Plan",
    "Rope",
    "State",
    "append_kv",
    "apply_rope",
    "attention",
    "custom_calls",
    "decode_attention",
    "flash_attention",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "load",
    "missing",
    "plan",
    "program",
    "silu_and_mul",
]

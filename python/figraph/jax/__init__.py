"""figraph.jax: operations of a decode step and whole steps inside jax.jit, on CPU and GPUs.

1. Each operation is a function of arrays and becomes one custom call. Each row is one sequence.
Lengths are an int32 array on the device and count this step's token, so one compiled function
serves any lengths. A row is idle if its length is 0 or exceeds the capacity of its cache; the
output of an idle row is zeros.

>>> import jax, jax.numpy as jnp
>>> import figraph.jax as fj
>>> q, kv = jnp.ones((2, 8, 64)), jnp.ones((2, 4, 64))          # [rows, heads, head_dim]
>>> cache = fj.Cache(jnp.zeros((2, 16, 4, 64)), jnp.zeros((2, 16, 4, 64)))
>>> lengths = jnp.array([1, 0], jnp.int32)
>>> out, cache, _, _ = jax.jit(fj.decode_attention)(q, kv, kv, cache, lengths)
>>> out[:, 0, 0].tolist()
[1.0, 0.0]

A dense cache is [rows, tokens, kv_heads, head_dim]. A paged cache is [pages, tokens per page,
kv_heads, head_dim] and has a page_table, int32 [rows, pages per row]. With layout="hnd", heads come
before tokens. A donated cache is updated in place; XLA copies the whole cache if you do not donate
it. Do not pass a slice of a larger array as a cache: on GPUs some versions of XLA (of those tried,
jaxlib 0.11.2) pass the larger array and put the result elsewhere. The call then raises an
exception, unless XLA_FLAGS has --xla_gpu_enable_dynamic_slice_fusion=false.

A plan divides the rows' work among the GPU's thread blocks. plan() makes it once per step. All
layers with the same rows, heads and window can share it: each operation takes the plan and returns
it for the next one. An operation without a plan makes its own.

2. DecodeStep takes care of plans, donation and compilation. You write the model. It receives a
State, which holds the caches of all layers and the lengths, and returns the State.

>>> def model(params, state, x):                                # x: [rows, width]
...     for n, weights in enumerate(params):
...         q, k, v = jnp.split(jnp.einsum("rw,whd->rhd", x, weights), (8, 12), axis=1)
...         out, state = state.attend(n, q, k, v)               # RoPE, append, attention
...         x = x + out.mean(axis=1)
...     return x, state
>>> params = [jnp.ones((64, 16, 64)) / 64 for _ in range(2)]
>>> state = fj.State.empty(2, rows=2, tokens=16, kv_heads=4, head_dim=64, dtype=jnp.float32)
>>> state = state.serving(jnp.array([1, 0], jnp.int32))         # row 0 is at its first token
>>> step, x = fj.DecodeStep(model, check=True), jnp.ones((2, 64))
>>> step.warmup((params, state, x))                             # compile each bucket first
>>> for _ in range(3):
...     out, state = step(params, state, x)                     # donates state, returns the next
>>> state.lengths.tolist(), state.cap
([4, 0], 16)

3. explain() tells how XLA launches the step: whether the calls are part of a replayed graph, the
reason if they are not, and whether XLA copies a cache.

>>> print(step.explain(params, state, x))
eager: XLA captures nothing on a CPU
3 calls, 3 at once and 0 captured in the last of 4 runs
131080 of 131080 donated bytes are aliased; no cache is copied

4. Several devices: with mesh and axis, DecodeStep gives each device its share of the heads, and the
model adds the partial results with jax.lax.psum(part, axis). State.over_heads(axis) returns the
PartitionSpecs.

5. A recorded file also runs inside jax.jit: program(load("model.fig"), ...). An exported function
names each file by its content. Before a process calls such a function, missing() tells which files
it must load. jax.export accepts these functions if its disabled_checks name the targets, which
custom_calls() lists.

6. flash_attention() takes the arguments of Flax's attention functions. One query token per sequence
may have a mask of any pattern; several may have causal, window and lengths. It has a gradient.
tokamax_attention is an implementation of tokamax's dot_product_attention.

7. A latent cache (MLA) has one vector for each token, which all heads share: 512 values of the
latent, then 64 values that RoPE rotates. In LatentCache(latents, page_table), latents is [pages,
tokens per page, 576] of q's dtype, or uint8 [pages, tokens per page, 656] of codes; without a page
table it is [rows, tokens, ...]. latent_decode normalises and rotates the new tokens, appends them
and computes attention:

>>> latents = fj.LatentCache(jnp.zeros((2, 16, 656), jnp.uint8))
>>> heads, latent = jnp.ones((2, 16, 576), jnp.bfloat16), jnp.ones((2, 576), jnp.bfloat16)
>>> got = fj.latent_decode(heads, latent, latents, lengths, logits=fj.Logits(scale=192**-0.5))
>>> got.out.shape, got.out[0, 0, 0].item()
((2, 16, 512), 1.0)

Wrong arguments raise an exception while JAX traces:

>>> fj.attention(q, cache, lengths, layout="nkd")
Traceback (most recent call last):
ValueError: layout is "nkd", it must be nhd or hnd

Under jax.vmap the activations, apply_rope and flash_attention run over more rows. The other
operations raise NotImplementedError, because their rows already are the batch. Importing this
module registers the custom calls for both platforms. XLA may load a kernel at its first use, even
while it captures a command buffer.
"""

from ..lent_plans import Plan
from ..operands import Cache, LatentCache, Logits, Rope
from .decode_step import DecodeStep
from .explanation import Explanation
from .files import File, load, missing, program
from .flash import flash_attention, tokamax_attention
from .latent_operations import latent_attention, latent_decode
from .operations import (Attended, Decoded, append_kv, apply_rope, attention, decode_attention,
                         gelu_and_mul, gelu_tanh_and_mul, plan, silu_and_mul)
from .state import State
from .targets import custom_calls

__all__ = [
    "Attended",
    "Cache",
    "DecodeStep",
    "Decoded",
    "Explanation",
    "File",
    "LatentCache",
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
    "latent_attention",
    "latent_decode",
    "load",
    "missing",
    "plan",
    "program",
    "silu_and_mul",
    "tokamax_attention",
]

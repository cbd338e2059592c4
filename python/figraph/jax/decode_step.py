"""decode_step.py: compiles whole decode steps, one function for each bucket.

Invariant: keys, values and lengths are donated and come back in the same memory. Page tables and
scales stay with the caller; a step only reads them.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from .. import errors
from .explanation import Explanation, explain
from .state import State


def _shard_map(function: Callable[..., Any], mesh: Any, given: Any, made: Any) -> Any:
    """Applies shard_map without the check of replicated outputs, since custom calls tell JAX
    nothing about replication."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=given, out_specs=made, check_vma=False)
    from jax.experimental.shard_map import shard_map

    return shard_map(function, mesh, in_specs=given, out_specs=made, check_rep=False)


class DecodeStep:
    """A decode step, compiled once for each bucket and then called with any lengths.

        def model(params, state, tokens):              # takes a pytree, a State, and more pytrees
            ...
            out, state = state.attend(n, q, k, v)      # once for each layer
            ...
            return logits, state

        step = DecodeStep(model)
        step.warmup((params, state, tokens))           # one tuple for each bucket
        logits, state = step(params, state, tokens)    # donates state; lengths grow by one

    Arguments of the same shapes and dtypes belong to one bucket. A row's length may be anything
    from 1 to state.cap. The step adds one to each length on the device, or as many as the row has
    tokens by the query_start_loc of state.attend, except for idle rows and for rows that the model
    has set to 0.

    check: raise figraph.errors.TooLarge if a length exceeds the cap; the check waits for the
    lengths. Without it such a row is idle and its output is zeros. mesh, axis: tensor parallelism
    by shard_map. The model then sees its device's share of the heads, and uses axis in
    jax.lax.psum. params, inputs, outputs: PartitionSpecs of all that is not the state; the default
    is replicated.
    """

    def __init__(self, model: Callable[..., Any], *, check: bool = False, mesh: Any = None,
                 axis: Optional[str] = None, params: Any = PartitionSpec(),
                 inputs: Any = PartitionSpec(), outputs: Any = PartitionSpec()) -> None:
        if (mesh is None) != (axis is None):
            raise ValueError("mesh and axis: one is given, the other is not")
        if mesh is not None and axis not in mesh.shape:
            raise ValueError(f'axis is "{axis}", the mesh has {", ".join(mesh.shape)}')
        self.model, self.check = model, check
        self.mesh, self.axis = mesh, axis
        self.specs = params, inputs, outputs
        self.buckets: dict[Any, Any] = {}  # compiled functions, by shapes and dtypes

    def __call__(self, params: Any, state: State, *inputs: Any) -> tuple[Any, State]:
        leaves = jax.tree_util.tree_leaves((state.lengths, inputs))
        is_traced = any(isinstance(x, jax.core.Tracer) for x in leaves)
        if self.check:
            _check_lengths(state, is_traced)
        staying = state.staying()
        run = self._step if is_traced else self._bucket(params, state, inputs)
        out, moving = run(params, state.moving(), staying, *inputs)
        return out, staying.joined(moving)

    def warmup(self, *buckets: tuple[Any, ...]) -> None:
        """Compiles the given buckets. Each is a tuple of a step's arguments: arrays, or
        jax.ShapeDtypeStruct in their place. Call it before the first step, because compiling makes
        XLA drop the graphs that it has captured."""
        for params, state, *inputs in buckets:
            self._bucket(params, state, tuple(inputs))

    def explain(self, params: Any, state: State, *inputs: Any) -> Explanation:
        """Explains how XLA launches the step and whether it copies caches. Runs the step a few
        times on a copy of the state; the copy needs as much memory as the state itself."""
        bucket = self._bucket(params, state, inputs)
        return explain(bucket, params, state.moving(), state.staying(), inputs)

    def _bucket(self, params: Any, state: State, inputs: tuple[Any, ...]) -> Any:
        leaves = jax.tree_util.tree_leaves(inputs)
        looks = [(np.shape(x), getattr(x, "dtype", type(x))) for x in leaves]
        bucket = (state.bucket, *looks)
        if bucket not in self.buckets:
            self._check_shares(state)
            jitted = jax.jit(self._step, donate_argnums=1)
            lowered = jitted.lower(params, state.moving(), state.staying(), *inputs)
            self.buckets[bucket] = lowered.compile()
        return self.buckets[bucket]

    def _check_shares(self, state: State) -> None:
        """Checks that the ranks can share the heads or, without ranks and over latent caches, that
        no cache is sharded."""
        if self.mesh is not None and not state.is_latent:
            ranks = self.mesh.shape[self.axis]
            heads = state.pairs[0][0].shape[2 if state.layout == "nhd" else 1]
            if heads % ranks != 0:
                raise ValueError(f"{heads} kv heads cannot be shared by {ranks} of axis "
                                 f"{self.axis}")
            return
        for x in jax.tree_util.tree_leaves(state):
            sharding = getattr(x, "sharding", None)
            if sharding is not None and not sharding.is_fully_replicated:
                raise ValueError("the caches are spread over several devices, and XLA would gather "
                                 "them for every call: "
                                 + ("each device must have whole latent caches" if state.is_latent
                                    else "give mesh and axis"))

    def _step(self, params: Any, moving: Any, staying: State, *inputs: Any) -> Any:
        def run(params: Any, moving: Any, staying: State, *inputs: Any) -> Any:
            out, state = self.model(params, staying.joined(moving), *inputs)
            if not isinstance(state, State):
                raise TypeError(f"the model gave {type(state).__name__}, it must give its outputs "
                                "and the State")
            caches, lengths = state.moving()
            grown = 1 if state.counts is None else state.counts
            return out, (caches, jnp.where(lengths > 0, lengths + grown, 0))

        if self.mesh is None:
            return run(params, moving, staying, *inputs)
        specs = staying.joined(moving).over_heads(self.axis)
        own, others, outputs = self.specs
        given = own, specs.moving(), specs.staying(), *(others for _ in inputs)
        shared = _shard_map(run, self.mesh, given, (outputs, specs.moving()))
        return shared(params, moving, staying, *inputs)


def _check_lengths(state: State, is_traced: bool) -> None:
    if is_traced:
        raise TypeError("DecodeStep(check=True) needs lengths that are known: call it outside of "
                        "jax.jit, or without check")
    lengths = np.asarray(state.lengths)
    for row in np.flatnonzero(lengths > state.cap)[:1]:
        raise errors.TooLarge(f"lengths[{row}] is {lengths[row]}, its cache holds {state.cap} "
                              "tokens")

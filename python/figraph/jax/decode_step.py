"""decode_step.py: whole decode steps, one compiled function for each bucket.

Invariant: keys and values, and lengths, are donated and come back in the same memory; page tables
and scales are the caller's, and a step reads them.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from .. import errors
from .explanation import Explanation, explain
from .state import State


def _shard_map(function: Callable[..., Any], mesh: Any, given: Any, made: Any) -> Any:
    """What a rank makes is not looked at: a custom call tells JAX nothing of replicas."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=given, out_specs=made, check_vma=False)
    from jax.experimental.shard_map import shard_map

    return shard_map(function, mesh, in_specs=given, out_specs=made, check_rep=False)


class DecodeStep:
    """A decode step, compiled once for each bucket and then called with any lengths.

        def model(params, state, tokens):              # yours: a pytree, a State, and more pytrees
            ...
            out, state = state.attend(n, q, k, v)      # of each layer
            ...
            return logits, state

        step = DecodeStep(model)
        step.warmup((params, state, tokens))           # of each bucket
        logits, state = step(params, state, tokens)    # state is donated, and grown by a token

    A bucket is what the arrays' shapes are; a row's length may be all from 1 to state.cap. Lengths
    grow by one on the device, but for idle rows and those that the model has set to 0.

    check: raises figraph.errors.TooLarge where a length passes the cap, for which it waits for the
    lengths; else such a row is idle, and its out zeros. mesh, axis: tensor parallel by shard_map:
    the model sees its rank's share of the heads, and has axis for jax.lax.psum; params, inputs and
    outputs are PartitionSpecs of what is not the state, replicas unless given.
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
        self.buckets: dict[Any, Any] = {}  # compiled, by what their arrays look like

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
        """Compiles all buckets, each told by what a step is called with: arrays, or what stands for
        them in jax.eval_shape. Compiling makes XLA forget what it captured, so it comes first."""
        for params, state, *inputs in buckets:
            self._bucket(params, state, tuple(inputs))

    def explain(self, params: Any, state: State, *inputs: Any) -> Explanation:
        """How XLA launches such a step, and whether it copies caches. Runs it a few times on a copy
        of the state, which takes as much memory again."""
        bucket = self._bucket(params, state, inputs)
        return explain(bucket, params, state.moving(), state.staying(), inputs)

    def _bucket(self, params: Any, state: State, inputs: tuple[Any, ...]) -> Any:
        looks = [(x.shape, x.dtype) for x in jax.tree_util.tree_leaves(inputs)]
        bucket = (state.bucket, *looks)
        if bucket not in self.buckets:
            self._check_shares(state)
            jitted = jax.jit(self._step, donate_argnums=1, **self._placed(state, inputs))
            lowered = jitted.lower(params, state.moving(), state.staying(), *inputs)
            self.buckets[bucket] = lowered.compile()
        return self.buckets[bucket]

    def _check_shares(self, state: State) -> None:
        """What a rank would have of the heads; and without ranks, that nothing is spread."""
        if self.mesh is not None:
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
                                 "them for every call: give mesh and axis")

    def _specs(self, state: State, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        """Of what _step takes and of what it gives."""
        specs = state.over_heads(self.axis)
        params, others, outputs = self.specs
        given = (params, specs.moving(), specs.staying(), *(others for _ in inputs))
        return given, (outputs, specs.moving())

    def _placed(self, state: State, inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Where jax.jit has arguments, as it cannot tell from what stands for them."""
        if self.mesh is None:
            return {}
        place = lambda spec: NamedSharding(self.mesh, spec)
        given, _ = self._specs(state, inputs)
        is_spec = lambda x: isinstance(x, PartitionSpec)
        return dict(in_shardings=jax.tree_util.tree_map(place, given, is_leaf=is_spec))

    def _step(self, params: Any, moving: Any, staying: State, *inputs: Any) -> Any:
        def run(params: Any, moving: Any, staying: State, *inputs: Any) -> Any:
            out, state = self.model(params, staying.joined(moving), *inputs)
            if not isinstance(state, State):
                raise TypeError(f"the model gave {type(state).__name__}, it must give its outputs "
                                "and the State")
            caches, lengths = state.moving()
            return out, (caches, jnp.where(lengths > 0, lengths + 1, 0))

        if self.mesh is None:
            return run(params, moving, staying, *inputs)
        specs = self._specs(staying.joined(moving), inputs)
        return _shard_map(run, self.mesh, *specs)(params, moving, staying, *inputs)


def _check_lengths(state: State, is_traced: bool) -> None:
    if is_traced:
        raise TypeError("DecodeStep(check=True) needs lengths that are known: call it outside of "
                        "jax.jit, or without check")
    lengths = np.asarray(state.lengths)
    for row in np.flatnonzero(lengths > state.cap)[:1]:
        raise errors.TooLarge(f"lengths[{row}] is {lengths[row]}, its cache holds {state.cap} "
                              "tokens")

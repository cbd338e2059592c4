"""jax_step.py: whole decode steps: what sequences hold between two of them, and one compiled
function for each bucket.

Invariant: keys and values, and lengths, are donated and come back in the same memory; page tables
and scales are the caller's, and a step reads them.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import NamedSharding, PartitionSpec

from . import errors
from .jax_calls import LAYOUTS, Array, Cache, Plan, shaped, typed
from .jax_explain import Explanation, explain
from .jax_operations import (Logits, Rope, append_kv, apply_rope, attention, decode_attention, plan)


@jax.tree_util.register_pytree_node_class
class State:
    """What sequences hold: a cache for each layer, and int32 lengths [rows], each with the token of
    the step to come counted; 0 is an idle row. A pytree, which is never changed: methods give
    another."""

    def __init__(self, caches: Sequence[Cache], lengths: Array, *, layout: str = "nhd",
                 plans: Optional[dict[Any, Plan]] = None) -> None:
        self.caches = tuple(caches)
        self.lengths = lengths
        self.layout = layout
        self.plans = plans or {}

    @classmethod
    def empty(cls, layers: int, rows: int, tokens: int, *, kv_heads: int, head_dim: int, dtype: Any,
              pages: int = 0, page_size: int = 16, layout: str = "nhd") -> State:
        """Zeros, and idle rows. pages: dense, unless given; then `tokens` is what a row's pages may
        hold, and their table is zeros. Under jax.eval_shape it takes no memory."""
        if layout not in LAYOUTS:
            raise ValueError(f'layout is "{layout}", it must be {" or ".join(LAYOUTS)}')
        places, table = (rows, tokens), None
        if pages > 0:
            if tokens % page_size != 0:
                raise ValueError(f"tokens is {tokens}, it must be a multiple of {page_size}")
            places, table = (pages, page_size), jnp.zeros((rows, tokens // page_size), jnp.int32)
        shape = (*places, kv_heads, head_dim)
        if layout == "hnd":
            shape = (places[0], kv_heads, places[1], head_dim)
        caches = [Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), table)
                  for _ in range(layers)]
        return cls(caches, jnp.zeros(rows, jnp.int32), layout=layout)

    def serving(self, lengths: Array, page_table: Optional[Array] = None) -> State:
        """The same caches with other lengths and, where it is given, another page table: of as many
        rows as the lengths have."""
        caches = self.caches
        if page_table is not None:
            caches = tuple(cache._replace(page_table=page_table) for cache in caches)
        return State(caches, lengths, layout=self.layout)

    @property
    def bucket(self) -> Any:
        """Equal where one compiled function serves."""
        first = self.caches[0]
        table = None if first.page_table is None else first.page_table.shape
        return (self.lengths.shape, len(self.caches), first.k.shape, first.k.dtype, table,
                self.layout)

    @property
    def rows(self) -> int:
        """How many sequences a step has."""
        return int(self.lengths.shape[0])

    @property
    def cap(self) -> int:
        """The most tokens of a row."""
        axis = 1 if self.layout == "nhd" else 2
        return min(int(c.k.shape[axis]) * (1 if c.page_table is None else c.page_table.shape[1])
                   for c in self.caches)

    def attend(self, layer: int, q: Array, k: Array, v: Array, *, rope: Optional[Rope] = Rope(),
               logits: Logits = Logits(), positions: Optional[Array] = None,
               alibi: Optional[Array] = None, sinks: Optional[Array] = None) -> tuple[Array, State]:
        """RoPE, append and attention of a layer: out, [rows, heads, head_dim], and the state to go
        on with. rope None: q and k stay as they are; positions: int32 [rows], lengths - 1 unless
        given. Layers whose rows, heads and windows are the same read one plan."""
        cache = self.caches[layer]
        kind = (str(q.dtype), q.shape[1], logits.window, cache.k.shape, str(cache.k.dtype))
        given = self.plans.get(kind)
        if given is None:
            given = plan(self.lengths, dtype=q.dtype, q_heads=q.shape[1], cache=cache,
                         window=logits.window, layout=self.layout)
        options = dict(logits=logits, alibi=alibi, sinks=sinks, layout=self.layout)
        if rope is not None and positions is None:
            out, cache, given, _ = decode_attention(q, k, v, cache, self.lengths, plan=given,
                                                    rope=rope, **options)
        else:
            if rope is not None:
                q, k = apply_rope(q, k, positions, rope)
            cache = append_kv(k, v, cache, self.lengths, plan=given, layout=self.layout)
            out, given, _ = attention(q, cache, self.lengths, plan=given, **options)
        caches = (*self.caches[:layer], cache, *self.caches[layer + 1 :])
        return out, State(caches, self.lengths, layout=self.layout,
                          plans={**self.plans, kind: given})

    def over_heads(self, axis: Optional[str]) -> State:
        """The PartitionSpecs of this state, its heads over an axis of a mesh; for shard_map."""
        spread = PartitionSpec(*([None, None, axis] if self.layout == "nhd" else [None, axis]))
        scale = lambda x: PartitionSpec(axis) if x.shape[0] > 1 else PartitionSpec()
        caches = [
            Cache(spread, spread, None if c.page_table is None else PartitionSpec(),
                  *(None if x is None else scale(x) for x in (c.k_scale, c.v_scale)))
            for c in self.caches
        ]
        return State(caches, PartitionSpec(), layout=self.layout)

    # What moves through a step in place, and what it only reads.

    def moving(self) -> tuple[Any, Array]:
        """What a step is given donated, and gives."""
        return tuple((c.k, c.v) for c in self.caches), self.lengths

    def staying(self) -> State:
        """The rest."""
        return State([c._replace(k=None, v=None) for c in self.caches], None, layout=self.layout)

    def joined(self, moving: tuple[Any, Array]) -> State:
        """The rest, with what moves."""
        caches, lengths = moving
        pairs = zip(self.caches, caches)
        return State([c._replace(k=k, v=v) for c, (k, v) in pairs], lengths, layout=self.layout)

    def tree_flatten(self) -> tuple[Any, Any]:
        """For JAX."""
        return (self.caches, self.lengths, self.plans), self.layout

    @classmethod
    def tree_unflatten(cls, layout: str, children: Any) -> State:
        """For JAX."""
        caches, lengths, plans = children
        return cls(caches, lengths, layout=layout, plans=plans)


# So that jax.export writes functions of a state.
export.register_namedtuple_serialization(Cache, serialized_name="figraph.jax.Cache")
export.register_namedtuple_serialization(Plan, serialized_name="figraph.jax.Plan")
export.register_pytree_node_serialization(State, serialized_name="figraph.jax.State",
                                          serialize_auxdata=str.encode,
                                          deserialize_auxdata=bytes.decode)


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
            heads = state.caches[0].k.shape[2 if state.layout == "nhd" else 1]
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

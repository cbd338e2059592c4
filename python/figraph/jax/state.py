"""state.py: what sequences hold between two decode steps: caches of all layers, and lengths.

Invariant: a State is never changed; what a step is given donated is apart from what it only reads,
so that neither has to be taken to pieces for a step.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import jax
import jax.numpy as jnp
from jax import export
from jax.sharding import PartitionSpec

from .operations import Logits, Rope, append_kv, apply_rope, attention, decode_attention, plan
from .targets import LAYOUTS, Array, Cache, Plan


@jax.tree_util.register_pytree_node_class
class State:
    """What sequences hold: a cache for each layer, and int32 lengths [rows], each with the token of
    the step to come counted; 0 is an idle row. A pytree, which is never changed: methods give
    another."""

    pairs: tuple[tuple[Array, Array], ...]  # of each layer what moves: keys and values
    rests: tuple[tuple[Any, ...], ...]  # and what stays: page table and scales
    lengths: Array
    layout: str
    plans: dict[Any, Plan]  # of this step, by what reads them

    def __init__(self, caches: Sequence[Cache], lengths: Array, *, layout: str = "nhd") -> None:
        pairs, rests = tuple((c.k, c.v) for c in caches), tuple(tuple(c[2:]) for c in caches)
        self._set(pairs, rests, lengths, layout, {})

    def _set(self, pairs: Any, rests: Any, lengths: Any, layout: str, plans: Any) -> State:
        self.pairs, self.rests, self.lengths = pairs, rests, lengths
        self.layout, self.plans = layout, plans
        return self

    def _with(self, pairs: Any, lengths: Any, plans: Any) -> State:
        return object.__new__(State)._set(pairs, self.rests, lengths, self.layout, plans)

    @property
    def caches(self) -> tuple[Cache, ...]:
        """Of each layer."""
        return tuple(Cache(*pair, *rest) for pair, rest in zip(self.pairs, self.rests))

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
        (k, _), (page_table, *_) = self.pairs[0], self.rests[0]
        table = None if page_table is None else page_table.shape
        return self.lengths.shape, len(self.pairs), k.shape, k.dtype, table, self.layout

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
        cache = Cache(*self.pairs[layer], *self.rests[layer])
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
        pairs = (*self.pairs[:layer], (cache.k, cache.v), *self.pairs[layer + 1 :])
        return out, self._with(pairs, self.lengths, {**self.plans, kind: given})

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
        return self.pairs, self.lengths

    def staying(self) -> State:
        """The rest."""
        return self._with(None, None, {})

    def joined(self, moving: tuple[Any, Array]) -> State:
        """The rest, with what moves."""
        return self._with(*moving, {})

    def tree_flatten(self) -> tuple[Any, Any]:
        """For JAX."""
        return (self.pairs, self.rests, self.lengths, self.plans), self.layout

    @classmethod
    def tree_unflatten(cls, layout: str, children: Any) -> State:
        """For JAX."""
        pairs, rests, lengths, plans = children
        return object.__new__(cls)._set(pairs, rests, lengths, layout, plans)


# So that jax.export writes functions of a state.
export.register_namedtuple_serialization(Plan, serialized_name="figraph.jax.Plan")
export.register_pytree_node_serialization(State, serialized_name="figraph.jax.State",
                                          serialize_auxdata=str.encode,
                                          deserialize_auxdata=bytes.decode)

"""state.py: the state of sequences between two decode steps: caches of all layers, and lengths.

Invariant: a State never changes. A State stores the arrays that a step donates apart from the
arrays that the step only reads.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import jax
import jax.numpy as jnp
from jax import export
from jax.sharding import PartitionSpec

from ..operands import LAYOUTS, Array, Cache, Logits, Plan, Rope
from .operations import append_kv, apply_rope, attention, decode_attention, plan


@jax.tree_util.register_pytree_node_class
class State:
    """The caches of all layers, and lengths, int32 [rows]. Each length counts the token of the next
    step; 0 is an idle row. A State is an immutable pytree: methods return a new one."""

    pairs: tuple[tuple[Array, Array], ...]  # keys and values of each layer; a step donates them
    rests: tuple[tuple[Any, ...], ...]  # page table and scales of each layer; a step only reads
    lengths: Array
    layout: str
    plans: dict[Any, Plan]  # this step's plans, by the kind of attention that reads them
    counts: Optional[Array]  # the new tokens of each row in this step; None: one

    def __init__(self, caches: Sequence[Cache], lengths: Array, *, layout: str = "nhd") -> None:
        if len(caches) == 0:
            raise ValueError("caches is empty, it must have one of each layer")
        pairs, rests = tuple((c.k, c.v) for c in caches), tuple(tuple(c[2:]) for c in caches)
        self._set(pairs, rests, lengths, layout, {})

    def _set(self, pairs: Any, rests: Any, lengths: Any, layout: str, plans: Any,
             counts: Any = None) -> State:
        self.pairs, self.rests, self.lengths = pairs, rests, lengths
        self.layout, self.plans, self.counts = layout, plans, counts
        return self

    def _with(self, pairs: Any, lengths: Any, plans: Any, counts: Any = None) -> State:
        return object.__new__(State)._set(pairs, self.rests, lengths, self.layout, plans, counts)

    @property
    def caches(self) -> tuple[Cache, ...]:
        """Returns the cache of each layer."""
        return tuple(Cache(*pair, *rest) for pair, rest in zip(self.pairs, self.rests))

    @classmethod
    def empty(cls, layers: int, rows: int, tokens: int, *, kv_heads: int, head_dim: int, dtype: Any,
              pages: int = 0, page_size: int = 16, layout: str = "nhd") -> State:
        """Makes a State of zeros, with idle rows. The caches are dense unless you give pages. With
        pages, `tokens` is the capacity of one row's pages, and the page table is zeros. Under
        jax.eval_shape this takes no memory."""
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
        """Returns the same caches with other lengths and, if given, another page table. Both have
        one entry per row."""
        caches = self.caches
        if page_table is not None:
            caches = tuple(cache._replace(page_table=page_table) for cache in caches)
        return State(caches, lengths, layout=self.layout)

    @property
    def bucket(self) -> Any:
        """Returns a key that is equal for all states that one compiled function serves."""
        (k, _), (page_table, *_) = self.pairs[0], self.rests[0]
        table = None if page_table is None else page_table.shape
        return self.lengths.shape, len(self.pairs), k.shape, k.dtype, table, self.layout

    @property
    def rows(self) -> int:
        """Returns the number of rows of a step."""
        return int(self.lengths.shape[0])

    @property
    def cap(self) -> int:
        """Returns the largest number of tokens of a row."""
        axis = 1 if self.layout == "nhd" else 2
        return min(int(c.k.shape[axis]) * (1 if c.page_table is None else c.page_table.shape[1])
                   for c in self.caches)

    def attend(self, layer: int, q: Array, k: Array, v: Array, *, rope: Optional[Rope] = Rope(),
               logits: Logits = Logits(), positions: Optional[Array] = None,
               alibi: Optional[Array] = None, sinks: Optional[Array] = None,
               query_start_loc: Optional[Array] = None,
               row_tokens: int = 0) -> tuple[Array, State]:
        """Does the RoPE, append and attention of a layer. Returns out, [rows, heads, head_dim], and
        the state for the next layer. rope: None leaves q and k as they are. positions: int32
        [rows]; the default is lengths - 1. Layers with the same rows, heads and window share one
        plan. query_start_loc and row_tokens, the same for all layers, are as in attention: q, k and
        v are then [tokens, heads, head_dim], positions [tokens], and the step makes each row as
        much longer as it has tokens."""
        cache = Cache(*self.pairs[layer], *self.rests[layer])
        kind = (str(q.dtype), q.shape[1], logits.window, cache.k.shape, str(cache.k.dtype))
        given, rows = self.plans.get(kind), {}
        if query_start_loc is not None or row_tokens != 0:
            rows = dict(query_start_loc=query_start_loc, row_tokens=row_tokens)
        if given is None:
            room = dict(rows, tokens=q.shape[0]) if query_start_loc is not None else rows
            given = plan(self.lengths, dtype=q.dtype, q_heads=q.shape[1], cache=cache,
                         window=logits.window, layout=self.layout, **room)
        options = dict(logits=logits, alibi=alibi, sinks=sinks, layout=self.layout, **rows)
        if rope is not None and positions is None:
            out, cache, given, _ = decode_attention(q, k, v, cache, self.lengths, plan=given,
                                                    rope=rope, **options)
        else:
            if rope is not None:
                q, k = apply_rope(q, k, positions, rope)
            cache = append_kv(k, v, cache, self.lengths, plan=given, layout=self.layout, **rows)
            out, given, _ = attention(q, cache, self.lengths, plan=given, **options)
        pairs = (*self.pairs[:layer], (cache.k, cache.v), *self.pairs[layer + 1 :])
        counts = None if query_start_loc is None else jnp.diff(jnp.asarray(query_start_loc))
        return out, self._with(pairs, self.lengths, {**self.plans, kind: given}, counts)

    def over_heads(self, axis: Optional[str]) -> State:
        """Returns the PartitionSpecs of this state for shard_map, with the heads over an axis of a
        mesh."""
        spread = PartitionSpec(*([None, None, axis] if self.layout == "nhd" else [None, axis]))
        scale = lambda x: PartitionSpec(axis) if x.shape[0] > 1 else PartitionSpec()
        caches = [
            Cache(spread, spread, None if c.page_table is None else PartitionSpec(),
                  *(None if x is None else scale(x) for x in (c.k_scale, c.v_scale)))
            for c in self.caches
        ]
        return State(caches, PartitionSpec(), layout=self.layout)

    # The next methods separate the arrays that a step updates in place from the others.

    def moving(self) -> tuple[Any, Array]:
        """Returns the arrays that a step donates and returns: keys, values and lengths."""
        return self.pairs, self.lengths

    def staying(self) -> State:
        """Returns a State with only the arrays that a step reads: page tables and scales."""
        return self._with(None, None, {})

    def joined(self, moving: tuple[Any, Array]) -> State:
        """Adds the moving arrays to a State made by staying()."""
        return self._with(*moving, {})

    def tree_flatten(self) -> tuple[Any, Any]:
        """Called by JAX."""
        return (self.pairs, self.rests, self.lengths, self.plans, self.counts), self.layout

    @classmethod
    def tree_unflatten(cls, layout: str, children: Any) -> State:
        """Called by JAX."""
        pairs, rests, lengths, plans, counts = children
        return object.__new__(cls)._set(pairs, rests, lengths, layout, plans, counts)


# jax.export needs these to write functions that take a State.
export.register_namedtuple_serialization(Plan, serialized_name="figraph.jax.Plan")
export.register_pytree_node_serialization(State, serialized_name="figraph.jax.State",
                                          serialize_auxdata=str.encode,
                                          deserialize_auxdata=bytes.decode)

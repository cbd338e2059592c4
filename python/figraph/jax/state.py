"""state.py: the state of sequences between two decode steps: caches of all layers, and lengths.

Invariant: a State never changes. A State stores the arrays that a step donates apart from the
arrays that the step only reads.
"""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional, Sequence, Union

import jax
import jax.numpy as jnp
from jax import export
from jax.sharding import PartitionSpec

from .. import operands
from ..latents import CODE_BYTES, KEY_DIM
from ..lent_plans import MadeFor, Plan
from ..operands import LAYOUTS, ROW_TOKENS, Array, Cache, LatentCache, Logits, Rope
from .latent_operations import latent_decode
from ..scores import Masked
from .operations import Variant, append_kv, apply_rope, attention, decode_attention, plan

AnyCache = Union[Cache, LatentCache]


def _cache_of(pair: tuple[Array, ...], rest: tuple[Any, ...]) -> AnyCache:
    return LatentCache(*pair, *rest) if len(pair) == 1 else Cache(*pair, *rest)


def _check_kinds(caches: Sequence[AnyCache], layout: str) -> None:
    """Raises unless all caches are of one kind, which has the layout."""
    if len(caches) == 0:
        raise ValueError("caches is empty, it must have one of each layer")
    for n, cache in enumerate(caches):
        if type(cache) is not type(caches[0]):
            raise TypeError(f"caches[{n}] is a {type(cache).__name__}, but caches[0] is a "
                            f"{type(caches[0]).__name__}")
    if isinstance(caches[0], LatentCache) and layout != "nhd":
        raise ValueError("layout is given, but a latent cache has none")


def _places(rows: int, tokens: int, pages: int, page_size: int) -> Any:
    """Returns the first two dims of a cache, and its page table."""
    if pages == 0:
        return (rows, tokens), None
    if tokens % page_size != 0:
        raise ValueError(f"tokens is {tokens}, it must be a multiple of {page_size}")
    return (pages, page_size), jnp.zeros((rows, tokens // page_size), jnp.int32)


def _rows_of(query_start_loc: Optional[Array], row_tokens: int) -> dict[str, Any]:
    """Returns the arguments that say how many tokens each row has; none if each has one."""
    if query_start_loc is None and row_tokens == 0:
        return {}
    return dict(query_start_loc=query_start_loc, row_tokens=row_tokens)


def _made_for_bytes(made_for: Optional[MadeFor]) -> bytes:
    return json.dumps(made_for).encode()


def _made_for_of(text: bytes) -> Optional[MadeFor]:
    fields = json.loads(text)
    return None if fields is None else MadeFor(*fields)


@jax.tree_util.register_pytree_node_class
class State:
    """The caches of all layers, and lengths, int32 [rows]. Each length counts the token of the next
    step; 0 is an idle row. Caches are LatentCaches for a model with latent attention (MLA). A State
    is an immutable pytree: methods return a new one."""

    # keys and values of each layer, or its latents alone; a step donates them
    pairs: tuple[tuple[Array, ...], ...]
    rests: tuple[tuple[Any, ...], ...]  # page table and scales of each layer; a step only reads
    lengths: Array
    layout: str
    plans: dict[Any, Plan]  # this step's plans, by the kind of attention that reads them
    counts: Optional[Array]  # the tokens that this step appends to each row; None: one

    def __init__(self, caches: Sequence[AnyCache], lengths: Array, *,
                 layout: str = "nhd") -> None:
        _check_kinds(caches, layout)
        moving = 1 if isinstance(caches[0], LatentCache) else 2
        pairs = tuple(tuple(c[:moving]) for c in caches)
        self._set(pairs, tuple(tuple(c[moving:]) for c in caches), lengths, layout, {})

    def _set(self, pairs: Any, rests: Any, lengths: Any, layout: str, plans: Any,
             counts: Any = None) -> State:
        self.pairs, self.rests, self.lengths = pairs, rests, lengths
        self.layout, self.plans, self.counts = layout, plans, counts
        return self

    def _with(self, pairs: Any, lengths: Any, plans: Any, counts: Any = None) -> State:
        return object.__new__(State)._set(pairs, self.rests, lengths, self.layout, plans, counts)

    @property
    def caches(self) -> tuple[AnyCache, ...]:
        """Returns the cache of each layer."""
        return tuple(_cache_of(pair, rest) for pair, rest in zip(self.pairs, self.rests))

    @property
    def is_latent(self) -> bool:
        """Returns True if the caches are LatentCaches."""
        return len(self.pairs[0]) == 1

    @classmethod
    def empty(cls, layers: int, rows: int, tokens: int, *, kv_heads: int, head_dim: int, dtype: Any,
              pages: int = 0, page_size: int = 16, layout: str = "nhd") -> State:
        """Makes a State of zeros, with idle rows. The caches are dense unless you give pages. With
        pages, `tokens` is the capacity of one row's pages, and the page table is zeros. Under
        jax.eval_shape this takes no memory."""
        if layout not in LAYOUTS:
            raise ValueError(f'layout is "{layout}", it must be {" or ".join(LAYOUTS)}')
        places, table = _places(rows, tokens, pages, page_size)
        shape = (*places, kv_heads, head_dim)
        if layout == "hnd":
            shape = (places[0], kv_heads, places[1], head_dim)
        caches = [Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), table)
                  for _ in range(layers)]
        return cls(caches, jnp.zeros(rows, jnp.int32), layout=layout)

    @classmethod
    def empty_latents(cls, layers: int, rows: int, tokens: int, *, dtype: Any, pages: int = 0,
                      page_size: int = 64) -> State:
        """Makes a State of latent caches of zeros, with idle rows. dtype: that of q, or uint8 for
        codes. The other arguments are as in empty."""
        places, table = _places(rows, tokens, pages, page_size)
        width = CODE_BYTES if jnp.dtype(dtype) == jnp.uint8 else KEY_DIM
        caches = [LatentCache(jnp.zeros((*places, width), dtype), table) for _ in range(layers)]
        return cls(caches, jnp.zeros(rows, jnp.int32))

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
        k, page_table = self.pairs[0][0], self.rests[0][0]
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
        return min(int(c[0].shape[axis]) * (1 if c.page_table is None else c.page_table.shape[1])
                   for c in self.caches)

    def attend(self, layer: int, q: Array, k: Array, v: Array, *, rope: Optional[Rope] = Rope(),
               logits: Logits = Logits(), positions: Optional[Array] = None,
               alibi: Optional[Array] = None, sinks: Optional[Array] = None,
               query_start_loc: Optional[Array] = None, row_tokens: int = 0,
               score: Optional[Variant] = None,
               score_arrays: Optional[Mapping[str, Array]] = None,
               mask: Optional[Masked] = None) -> tuple[Array, State]:
        """Does the RoPE, append and attention of a layer. Returns out, [rows, heads, head_dim], and
        the state for the next layer. rope: None leaves q and k as they are. positions: int32
        [rows]; the default is lengths - 1. Layers with the same rows, heads and window share one
        plan. query_start_loc and row_tokens, the same for all layers, are as in attention: q, k and
        v are then [tokens, heads, head_dim], positions [tokens], and the step makes each row as
        much longer as it has tokens. score, score_arrays and mask are as in attention; a layer that
        has them makes its own plan."""
        if self.is_latent:
            raise TypeError(f"caches[{layer}] is a LatentCache: call attend_latent")
        cache = self.caches[layer]
        rows = _rows_of(query_start_loc, row_tokens)
        has_score = score is not None or mask is not None
        kind, given = (None, None) if has_score else self._planned(layer, q, logits.window, rows)
        options = dict(logits=logits, alibi=alibi, sinks=sinks, layout=self.layout, score=score,
                       score_arrays=score_arrays, mask=mask, **rows)
        if rope is not None and positions is None:
            out, cache, given, _ = decode_attention(q, k, v, cache, self.lengths, plan=given,
                                                    rope=rope, **options)
        else:
            if rope is not None:
                q, k = apply_rope(q, k, positions, rope)
            cache = append_kv(k, v, cache, self.lengths, plan=given, layout=self.layout, **rows)
            out, given, _ = attention(q, cache, self.lengths, plan=given, **options)
        counts = self._appended(q.shape[0], query_start_loc, row_tokens)
        return out, self._after(layer, (cache.k, cache.v), kind, given, counts)

    def attend_latent(self, layer: int, q: Array, latent: Array, *, rope: Rope = Rope(),
                      norm: Optional[Array] = None, norm_epsilon: float = 1e-6, logits: Logits,
                      positions: Optional[Array] = None, cos_sin_cache: Optional[Array] = None,
                      sinks: Optional[Array] = None, query_start_loc: Optional[Array] = None,
                      row_tokens: int = 0,
                      q_rope: Optional[Array] = None) -> tuple[Array, State]:
        """Does the norm, RoPE, append and attention of a layer over a latent cache (MLA). Returns
        out, [rows, heads, 512], and the state for the next layer. q, [rows, heads, 576], latent,
        [rows, 576], and the other arguments are as in latent_decode; query_start_loc and row_tokens
        are as in attend. With q_rope, [rows, heads, 64], q is [rows, heads, 512]."""
        if not self.is_latent:
            raise TypeError(f"caches[{layer}] is a Cache: call attend")
        rows = _rows_of(query_start_loc, row_tokens)
        kind, given = self._planned(layer, q, logits.window, rows)
        out, cache, given, _ = latent_decode(
            q, latent, self.caches[layer], self.lengths, plan=given, rope=rope, norm=norm,
            norm_epsilon=norm_epsilon, logits=logits, positions=positions,
            cos_sin_cache=cos_sin_cache, sinks=sinks, q_rope=q_rope, **rows)
        counts = self._appended(q.shape[0], query_start_loc, row_tokens)
        return out, self._after(layer, (cache.latents,), kind, given, counts)

    def _planned(self, layer: int, q: Array, window: int, rows: Any) -> tuple[Any, Plan]:
        """Returns the key of a layer's plan, and the plan."""
        cache = self.caches[layer]
        columns = 0 if cache.page_table is None else cache.page_table.shape[1]
        kind = (str(q.dtype), q.shape[1], window, cache[0].shape, str(cache[0].dtype), columns)
        if kind in self.plans:
            return kind, self.plans[kind]
        room = dict(rows, tokens=q.shape[0]) if rows.get("query_start_loc") is not None else rows
        return kind, plan(self.lengths, dtype=q.dtype, q_heads=q.shape[1], cache=cache,
                          window=window, layout=self.layout, **room)

    def _appended(self, tokens: int, starts: Optional[Array],
                  row_tokens: int) -> Optional[Array]:
        """Returns how many of the `tokens` of q a layer appends to each row, or None if each row
        has one. A row has none if its number is more than row_tokens, more than its length or
        negative, or if all rows together have more tokens than q."""
        if starts is None:
            return None
        starts = jnp.asarray(starts)
        counts = jnp.diff(starts)
        most = jnp.minimum(self.lengths, row_tokens or ROW_TOKENS)
        return jnp.where((counts >= 0) & (counts <= most) & (starts[-1] <= tokens), counts, 0)

    def _after(self, layer: int, pair: tuple[Array, ...], kind: Any, given: Any,
               counts: Optional[Array]) -> State:
        """Returns the state after a layer whose arrays are `pair` from now on. kind: None if the
        layer has no plan for others."""
        pairs = (*self.pairs[:layer], pair, *self.pairs[layer + 1 :])
        plans = self.plans if kind is None else {**self.plans, kind: given}
        return self._with(pairs, self.lengths, plans, counts)

    def over_heads(self, axis: Optional[str]) -> State:
        """Returns the PartitionSpecs of this state for shard_map, with the heads over an axis of a
        mesh. Each rank has whole latent caches."""
        spread = PartitionSpec(*([None, None, axis] if self.layout == "nhd" else [None, axis]))
        scale = lambda x: PartitionSpec(axis) if x.shape[0] > 1 else PartitionSpec()
        if self.is_latent:  # all heads read the same tokens, so each rank has all of them
            whole = [LatentCache(*(None if x is None else PartitionSpec() for x in c))
                     for c in self.caches]
            return State(whole, PartitionSpec())
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


# jax.export needs these to write functions that take a State or a Plan. An exported function may
# also have plans that do not say what they were made for.
export.register_namedtuple_serialization(operands.Plan, serialized_name="figraph.jax.Plan")
export.register_pytree_node_serialization(Plan, serialized_name="figraph.jax.LentPlan",
                                          serialize_auxdata=_made_for_bytes,
                                          deserialize_auxdata=_made_for_of)
export.register_pytree_node_serialization(State, serialized_name="figraph.jax.State",
                                          serialize_auxdata=str.encode,
                                          deserialize_auxdata=bytes.decode)

"""operands.py: checks the shapes and dtypes of the arrays that figraph.jax and figraph.torch take.

The checks read only an array's shape and the name of its dtype, so they work for arrays of any
library and for abstract arrays. Invariant: no check reads the contents of an array.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, Optional, Sequence

from . import ffi
from .scores import arrays_of

ACTIVATIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
NARROW_NAMES = {  # the names of 8-bit caches in this library, in torch and JAX, and in vLLM
    "e4m3": "float8_e4m3fn",
    "float8_e4m3fn": "float8_e4m3fn",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "float8_e5m2": "float8_e5m2",
    "fp8_e5m2": "float8_e5m2",
}
NARROW = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
CACHES = {**ACTIVATIONS, **NARROW}
LAYOUTS = {"nhd": 0, "hnd": 1}
ROW_TOKENS_LIMIT = 16  # query tokens of a row
ROWS_LIMIT = 1024  # of a call
KV_LIMIT = 1 << 20  # tokens of a row; longer rows are idle
HEAD_TOKENS_LIMIT = 1 << 34  # rows times KV heads times tokens of a row, rounded up
ROW_TOKENS = 8  # of a row where a call does not say: every kernel takes as many at full speed

Array = Any


class Cache(NamedTuple):
    """The keys and values of all rows, with their page table and scales."""

    k: Array
    v: Array
    page_table: Optional[Array] = None
    k_scale: Optional[Array] = None  # for 8-bit caches: float32 [], [1] or [kv_heads]
    v_scale: Optional[Array] = None


class LatentCache(NamedTuple):
    """A latent cache (MLA): one vector for each token of all rows, with their page table."""

    latents: Array  # [..., 576] of q's dtype, or uint8 [..., 656]
    page_table: Optional[Array] = None


class Plan(NamedTuple):
    """How the rows of a step are cut, and scratch memory that its layers use in turn."""

    plan: Array
    scratch: Array


class Rope(NamedTuple):
    """The parameters of RoPE. rotary_dim 0 rotates the whole head; llama3_factor 0 turns Llama 3's
    scaling off."""

    rotary_dim: int = 0
    interleaved: bool = False
    scale: float = 1.0
    theta: float = 1e4
    llama3_factor: float = 0.0
    llama3_low: float = 0.0
    llama3_high: float = 0.0
    llama3_context: int = 0


class Logits(NamedTuple):
    """How attention treats its logits. window: the number of tokens that a row sees, its own token
    included; 0 means all."""

    scale: float = 0.0  # 0 means head_dim ** -0.5
    soft_cap: float = 0.0  # 0 turns the soft cap off
    window: int = 0


class Form(NamedTuple):
    """The shape of a cache and its rows."""

    rows: int
    kv_heads: int
    head_dim: int
    page_size: int  # 0 means a dense cache
    kv_length: int  # the largest number of tokens of a row
    kv_dtype: str
    row_tokens: int = 1  # query tokens of a row; of packed rows, the most that one may have
    tokens: Optional[int] = None  # the room of packed rows for query tokens; None: not packed
    latent_dim: int = 0  # of a latent cache; 0: each KV head has its own K and V

    @property
    def is_packed(self) -> bool:
        """Returns True if query_start_loc says where each row's query tokens begin."""
        return self.tokens is not None


def dtype_name(dtype: Any) -> str:
    """Returns the dtype's name in numpy."""
    return str(dtype).removeprefix("torch.")


def typed(name: str, array: Array, known: Sequence[str]) -> str:
    """Returns the name of the array's dtype, or raises if it is not one of the known names."""
    own = dtype_name(array.dtype)
    if own not in known:
        raise TypeError(f"{name} is {own}, it must be {' or '.join(known)}")
    return own


def shaped(name: str, array: Array, *shape: Optional[int], like: str = "") -> None:
    """Raises if the array does not have this shape; None matches any number. like: the argument
    that the shape follows from."""
    fits = array.ndim == len(shape) and all(
        n is None or n == own for n, own in zip(shape, array.shape)
    )
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        because = f" like {like}" if like else ""
        raise ValueError(f"{name} is {list(array.shape)}, it must be [{wanted}]{because}")


def at_least(name: str, array: Array, rows: int) -> None:
    """Raises if the array has fewer than `rows` rows."""
    if array.shape[0] < rows:
        raise ValueError(f"{name} is {list(array.shape)}, its dim 0 must be at least {rows}")


def rows_at_most(kv_heads: int, kv_length: int) -> int:
    """Returns the most rows that a call takes if a row has room for kv_length tokens. The library
    rounds this room up to a power of two."""
    room = 1
    while room < min(kv_length, KV_LIMIT):
        room *= 2
    return max(min(ROWS_LIMIT, HEAD_TOKENS_LIMIT // (room * kv_heads)), 1)


def of_kind(name: str, given: Any, *kinds: type) -> None:
    """Raises if an argument that has fields is of another type, such as a number or a tuple."""
    if not isinstance(given, kinds):
        raise TypeError(f"{name} is a {type(given).__name__}, it must be a "
                        f"{' or '.join(kind.__name__ for kind in kinds)}")


def layout_code(layout: str) -> int:
    """Returns the library's number of a layout."""
    if layout not in LAYOUTS:
        raise ValueError(f'layout is "{layout}", it must be {" or ".join(LAYOUTS)}')
    return LAYOUTS[layout]


def gated(x: Array) -> list[int]:
    """Checks the input of an activation and returns the shape of its output."""
    typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1 or x.shape[-1] % 2 != 0:
        raise ValueError(f"input is {list(x.shape)}, its last dim must be 2 * width")
    return [*x.shape[:-1], x.shape[-1] // 2]


def normed(x: Array, residual: Optional[Array], weight: Array) -> None:
    """Checks the arguments of rms_norm."""
    dtype = typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1:
        raise ValueError("input is [], its last dim is what is normalised")
    typed("weight", weight, [dtype])
    shaped("weight", weight, x.shape[-1], like="input")
    if residual is not None:
        typed("residual", residual, [dtype])
        shaped("residual", residual, *x.shape, like="input")


def heads(name: str, array: Array) -> str:
    """Checks an array [rows, heads, head_dim] and returns the name of its dtype."""
    shaped(name, array, None, None, None)
    return typed(name, array, list(ACTIVATIONS))


def queries(name: str, array: Array) -> tuple[str, int]:
    """Checks an array [rows, heads, head_dim] or [rows, tokens, heads, head_dim], and returns the
    name of its dtype and the tokens of a row."""
    if array.ndim not in (3, 4):
        raise ValueError(f"{name} is {list(array.shape)}, it must be [rows, heads, head_dim] or "
                         "[rows, tokens, heads, head_dim]")
    row_tokens = array.shape[1] if array.ndim == 4 else 1
    if row_tokens < 1:
        raise ValueError(f"{name} is {list(array.shape)}, its rows must have at least one token")
    return typed(name, array, list(ACTIVATIONS)), row_tokens


class Starts(NamedTuple):
    """Where the query tokens of each row begin, for rows with different numbers of them."""

    query_start_loc: Optional[Array] = None  # int32 [rows + 1]; None: rows have equally many
    row_tokens: int = 0  # the most query tokens of a row; 0 means ROW_TOKENS


def _most(row_tokens: int, kv_length: int) -> int:
    """Returns the most query tokens of a row, by default ROW_TOKENS."""
    return row_tokens or max(min(ROW_TOKENS, kv_length), 1)


def started(starts: Starts, lengths: Array) -> None:
    """Checks query_start_loc beside lengths."""
    typed("query_start_loc", starts.query_start_loc, ["int32"])
    lengths_of(lengths, None)
    shaped("query_start_loc", starts.query_start_loc, lengths.shape[0] + 1, like="lengths")


def rows_of(name: str, array: Array, lengths: Array, starts: Starts) -> tuple[str, int, int]:
    """Checks the dims of q, or of the k of an append. Returns the name of its dtype, the number of
    rows, and the query tokens of a row, which are 0 if the caller left them open."""
    if starts.query_start_loc is None:
        if starts.row_tokens != 0:
            raise ValueError(f"row_tokens is {starts.row_tokens}, but query_start_loc is not "
                             f"given: {name} says how many tokens a row has")
        dtype, row_tokens = queries(name, array)
        return dtype, array.shape[0], row_tokens
    dtype = heads(name, array)
    started(starts, lengths)
    return dtype, lengths.shape[0], starts.row_tokens


def _form_of_rows(name: str, array: Array, cache: Cache, lengths: Array, layout: int,
                  kv_dtype: Optional[str], starts: Starts) -> Form:
    dtype, rows, row_tokens = rows_of(name, array, lengths, starts)
    form = form_of(dtype, rows, cache, layout, kv_dtype, row_tokens)
    if starts.query_start_loc is None:
        lengths_of(lengths, rows, name)
    return packed_form(form, starts, array.shape[0])


def packed_form(form: Form, starts: Starts, tokens: Any) -> Form:
    """Returns the form with the query tokens of packed rows, whose arrays have room for `tokens`; 0
    means as many as the rows can have."""
    if starts.query_start_loc is None:
        return form
    row_tokens = _most(starts.row_tokens, form.kv_length)
    most = int(form.rows) * row_tokens
    return form._replace(row_tokens=row_tokens, tokens=min(int(tokens), most) if tokens else most)


def turned(q: Array, k: Array, positions: Array) -> None:
    """Checks the arguments of apply_rope."""
    typed("k", k, [heads("q", q)])
    shaped("k", k, q.shape[0], None, q.shape[2], like="q")
    typed("positions", positions, ["int32", "int64"])
    shaped("positions", positions, q.shape[0], like="q")


def _scales(cache: Cache, kv_heads: int) -> None:
    """Checks the scales: one for all heads or one per head, and the same number for k and v."""
    if (cache.k_scale is None) != (cache.v_scale is None):
        raise ValueError("cache.k_scale and cache.v_scale: one is given, the other is not")
    if cache.k_scale is None or cache.v_scale is None:
        return
    typed("cache.k_scale", cache.k_scale, ["float32"])
    if tuple(cache.k_scale.shape) not in ((), (1,)):
        shaped("cache.k_scale", cache.k_scale, kv_heads, like="cache.k")
    typed("cache.v_scale", cache.v_scale, ["float32"])
    shaped("cache.v_scale", cache.v_scale, *cache.k_scale.shape, like="cache.k_scale")


def kv_name(kv_dtype: Any) -> Optional[str]:
    """Returns the numpy name of an 8-bit cache's dtype, given in any form; None and "auto" mean the
    dtype of the cache."""
    if kv_dtype is None or kv_dtype == "auto":
        return None
    name = kv_dtype if isinstance(kv_dtype, str) else dtype_name(kv_dtype)
    if name not in NARROW_NAMES:
        raise ValueError(f"kv_dtype is {name}, it must be {' or '.join(NARROW_NAMES)}")
    return NARROW_NAMES[name]


def _cache_dtype(dtype: str, cache: Cache, kv_dtype: Optional[str]) -> str:
    """Checks the dtype of a cache for q of this dtype, and returns it. Caches of bytes have the
    dtype that kv_dtype names."""
    known = [dtype, *NARROW]
    if kv_dtype is not None:
        known = ["uint8", kv_dtype]
    elif dtype_name(cache.k.dtype) == "uint8":
        raise TypeError("cache.k is uint8, kv_dtype must say what its bytes are: "
                        f"{' or '.join(NARROW)}")
    own = typed("cache.k", cache.k, known)
    typed("cache.v", cache.v, [own])
    return own if kv_dtype is None else kv_dtype


def table_pages(page_table: Array, rows: int) -> int:
    """Checks a page table, which may have more rows, and returns the pages of a row."""
    typed("cache.page_table", page_table, ["int32"])
    shaped("cache.page_table", page_table, None, None)
    at_least("cache.page_table", page_table, rows)
    return page_table.shape[1]


def form_of(dtype: str, rows: int, cache: Cache, layout: int, kv_dtype: Optional[str] = None,
            row_tokens: int = 1) -> Form:
    """Checks a cache for rows of this dtype and returns its form. The cache may have more rows."""
    shaped("cache.k", cache.k, None, None, None, None)
    kind = CACHES[_cache_dtype(dtype, cache, kv_dtype)]
    shaped("cache.v", cache.v, *cache.k.shape, like="cache.k")
    _, tokens, kv_heads, dim = cache.k.shape
    if layout == LAYOUTS["hnd"]:
        tokens, kv_heads = kv_heads, tokens
    _scales(cache, kv_heads)
    if cache.page_table is None:
        at_least("cache.k", cache.k, rows)
        return Form(rows, kv_heads, dim, 0, tokens, kind, row_tokens)
    kv_length = table_pages(cache.page_table, rows) * tokens
    return Form(rows, kv_heads, dim, tokens, kv_length, kind, row_tokens)


@functools.lru_cache(maxsize=256)
def sound_rope(head_dim: int, *angles: Any) -> None:
    """Raises if the RoPE is impossible for this head_dim; angles are the fields of a Rope."""
    ffi.check_rope(head_dim, **Rope(*angles)._asdict())


def sound_logits(logits: Logits) -> None:
    """Raises if a field is negative, infinite or NaN."""
    for name, value in logits._asdict().items():
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"logits.{name} is {value}, it must be finite and at least 0")


def lengths_of(lengths: Array, rows: Optional[int], like: str = "") -> None:
    """Checks lengths: int32, one number per row; None is any number of rows."""
    typed("lengths", lengths, ["int32"])
    shaped("lengths", lengths, rows, like=like)


def tokens(name: str, array: Array, first: str, like: Array, form: Form) -> None:
    """Checks the keys or values of the new tokens. They must have the same rows as the argument
    named `first`, and the heads of the cache."""
    typed(name, array, [dtype_name(like.dtype)])
    shaped(name, array, *like.shape[:-2], form.kv_heads, form.head_dim,
           like=f"{first} and cache.k" if first != name else "cache.k")


def appended(k: Array, v: Array, cache: Cache, lengths: Array, layout: int,
             kv_dtype: Optional[str] = None, starts: Starts = Starts()) -> Form:
    """Checks the arguments of append_kv and returns the cache's form."""
    form = _form_of_rows("k", k, cache, lengths, layout, kv_dtype, starts)
    tokens("k", k, "k", k, form)
    tokens("v", v, "k", k, form)
    return form


def written(k: Array, v: Array, cache: Cache, slots: Array, layout: int,
            kv_dtype: Optional[str] = None) -> Form:
    """Checks the arguments of write_kv and returns the form of the cache, in which each token is a
    row of one page."""
    form = form_of(heads("k", k), 0, cache._replace(page_table=None), layout, kv_dtype)
    tokens("k", k, "k", k, form)
    tokens("v", v, "k", k, form)
    typed("slots", slots, ["int32", "int64"])
    shaped("slots", slots, k.shape[0], like="k")
    return form._replace(rows=k.shape[0], page_size=form.kv_length)


def per_head(name: str, array: Optional[Array], q: Array) -> None:
    """Checks an array with a number for each head of q."""
    if array is not None:
        typed(name, array, ["float32"])
        shaped(name, array, q.shape[-2], like="q")


def attended(q: Array, cache: Cache, lengths: Array, layout: int, alibi: Optional[Array],
             sinks: Optional[Array], kv_dtype: Optional[str] = None,
             starts: Starts = Starts()) -> Form:
    """Checks the arguments of attention and returns the cache's form."""
    form = _form_of_rows("q", q, cache, lengths, layout, kv_dtype, starts)
    shaped("q", q, *q.shape[:-1], form.head_dim, like="cache.k")
    per_head("alibi", alibi, q)
    per_head("sinks", sinks, q)
    return form


def placed(positions: Optional[Array], count: int, cos_sin: Optional[Array], rope: Rope,
           head_dim: int) -> None:
    """Checks the positions of `count` tokens, and a table of their cosines and sines."""
    if positions is not None:
        typed("positions", positions, ["int32", "int64"])
        shaped("positions", positions, count, like="q")
    if cos_sin is None:
        return
    if positions is None:
        raise ValueError("cos_sin_cache is given without positions")
    typed("cos_sin_cache", cos_sin, ["float32"])
    shaped("cos_sin_cache", cos_sin, None, rope.rotary_dim or None, like="rope.rotary_dim")
    width = int(cos_sin.shape[1])
    if width % 2 != 0 or not 0 < width <= head_dim:
        raise ValueError(f"cos_sin_cache is {list(cos_sin.shape)}, its dim 1 must be even, above 0 "
                         f"and at most head_dim, {head_dim}")
    bare = Rope(rope.rotary_dim, rope.interleaved)
    for name, value, wanted in zip(Rope._fields, rope, bare):
        if value != wanted:
            raise ValueError(f"rope.{name} is {value}, but cos_sin_cache gives the angles")


def lent_plan(plan: Array) -> None:
    """Checks the plan that append_kv takes; the library checks its size."""
    typed("plan.plan", plan, ["uint8"])
    shaped("plan.plan", plan, None)


def scored(text: str, arrays: Sequence[Array], logits: Logits, alibi: Optional[Array]) -> int:
    """Checks a score and its arrays. Returns the number by which calls name the score."""
    if alibi is not None:
        raise ValueError("alibi is given beside a score: write slope[head] * (kv_pos - q_pos) into "
                         "the score")
    if logits.soft_cap != 0:
        raise ValueError(f"logits.soft_cap is {logits.soft_cap} beside a score: write "
                         "cap * tanh(x / cap) into the score")
    known = arrays_of(text)
    if len(arrays) != len(known):
        raise ValueError(f"score_arrays has {len(arrays)} arrays, the score {len(known)}")
    for of, array in zip(known, arrays):
        typed(of.name, array, [of.dtype])
        shaped(of.name, array, None)
        if array.shape[0] < max(of.count, 1):
            raise ValueError(f"{of.name} is {list(array.shape)}, it must have at least "
                             f"{max(of.count, 1)} elements, as the score says")
    return ffi.score_number(text)


def planned(plan: Plan, needs: tuple[int, int], form: Form) -> None:
    """Checks that a plan and its scratch have the size that this attention needs."""
    if form.tokens is not None and plan.plan.ndim == 1 and plan.plan.shape[0] != needs[0]:
        other = plan.plan.shape[0] - needs[0] + form.tokens
        if 0 < other <= form.rows * form.row_tokens:
            raise ValueError(f"plan.plan was made for {other} query tokens, and there is room for "
                             f"{form.tokens}: say tokens=q.shape[0] to plan()")
    for name, array, count in zip(("plan.plan", "plan.scratch"), plan, needs):
        typed(name, array, ["uint8"])
        shaped(name, array, count)


def scratch_bytes(dtype: Any, q_heads: Any, form: Form, window: int, deterministic: bool = False,
                  score: int = 0) -> tuple[int, int]:
    """Returns the bytes of a plan and of its scratch. Raises if no kernel serves these heads. The
    numbers may be symbolic integers with a known value. q_heads is 0 if the call only appends. A
    plan of packed rows has one more byte for each query token, so its size tells for which q it
    was made: no launch looks whether the plan's tokens end within q."""
    plan, scratch = ffi.scratch_of(ACTIVATIONS[dtype_name(dtype)], form.kv_dtype, int(q_heads),
                                   int(form.kv_heads), int(form.head_dim), int(form.rows),
                                   int(form.kv_length), int(form.page_size), int(window),
                                   int(form.row_tokens), bool(deterministic), form.is_packed,
                                   form.latent_dim, score)
    return plan + (form.tokens or 0), scratch

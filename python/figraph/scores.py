"""Scores: variants of attention as expressions, from a text or from a Python function.

>>> import figraph
>>> from figraph import scores
>>> print(figraph.score("slope[head] * (kv_pos - q_pos) + score"))
f32 slope[]; score + (kv_pos - q_pos) * slope[head]

A function is called once, with a part of an expression for each of its parameters. Parameters are
named as the terms are; q and kv stand for q_pos and kv_pos:

>>> slope = scores.array("slope", 32)
>>> print(figraph.score(lambda score, q, kv, head: score + slope[head] * (kv - q)))
f32 slope[32]; score + (kv_pos - q_pos) * slope[head]

Operators mean what they mean in a text; this module has the functions. Python's if, and, or, not,
min() and max() would look at a value that is not there yet, and are refused:

>>> print(figraph.score(lambda score, kv: scores.select(kv < 4, score, -scores.inf)))
select(kv_pos < 4, score, -inf)

A mask says which tokens a query sees, by one or two ranges. It is a score too, and can be joined
with another one:

>>> print(figraph.mask("q_pos - 1023:q_pos + 1, 0:4"))
see q_pos - 1023:q_pos + 1, 0:4; score
>>> recent = figraph.mask(lambda q: [(q - 1023, q + 1)])
>>> print(figraph.score("score * 2.0", mask=recent))
see q_pos - 1023:q_pos + 1; score * 2.0
"""

import ctypes
import functools
import inspect
import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Optional, Union

from .integers import integer
from .native import abi, encoded, library, must, text

inf = math.inf
DTYPES = {abi.FIG_F32: "float32", abi.FIG_BF16: "bfloat16", abi.FIG_I32: "int32"}
TERMS = ("score", "q_pos", "kv_pos", "kv_length", "head", "kv_head", "row")
MASK_TERMS = ("q_pos", "kv_length", "head", "kv_head", "row")
SHORT = {"q": "q_pos", "kv": "kv_pos"}
ARRAY_DTYPES = ("f32", "bf16", "i32")


class Part:
    """A part of an expression that a function makes."""

    __slots__ = ("form", "operands")
    __hash__ = object.__hash__

    def __init__(self, form: str, *operands: "Operand") -> None:
        """form: the text, with {} for each operand."""
        self.form = form
        self.operands = tuple(part_of(operand) for operand in operands)

    def __bool__(self) -> bool:
        raise TypeError("a part of a score has no value yet: use scores.select(condition, a, b), "
                        "scores.minimum, scores.maximum, & and |")

    def __float__(self) -> float:  # asked for by float() and the functions of math
        raise TypeError("a part of a score has no value yet: use the functions of scores, such as "
                        "scores.tanh, in place of those of math; scores.to_float is float()")

    def __pow__(self, other: "Operand") -> "Part":
        raise TypeError("a score has no power: write x * x, or scores.exp2(y * scores.log2(x))")

    def __add__(self, other: "Operand") -> "Part":
        return Part("({} + {})", self, other)

    def __radd__(self, other: "Operand") -> "Part":
        return Part("({} + {})", other, self)

    def __sub__(self, other: "Operand") -> "Part":
        return Part("({} - {})", self, other)

    def __rsub__(self, other: "Operand") -> "Part":
        return Part("({} - {})", other, self)

    def __mul__(self, other: "Operand") -> "Part":
        return Part("({} * {})", self, other)

    def __rmul__(self, other: "Operand") -> "Part":
        return Part("({} * {})", other, self)

    def __truediv__(self, other: "Operand") -> "Part":
        return Part("({} / {})", self, other)

    def __rtruediv__(self, other: "Operand") -> "Part":
        return Part("({} / {})", other, self)

    def __floordiv__(self, other: "Operand") -> "Part":
        return Part("({} // {})", self, other)

    def __rfloordiv__(self, other: "Operand") -> "Part":
        return Part("({} // {})", other, self)

    def __mod__(self, other: "Operand") -> "Part":
        return Part("({} % {})", self, other)

    def __rmod__(self, other: "Operand") -> "Part":
        return Part("({} % {})", other, self)

    def __and__(self, other: "Operand") -> "Part":
        return Part("({} & {})", self, other)

    def __rand__(self, other: "Operand") -> "Part":
        return Part("({} & {})", other, self)

    def __or__(self, other: "Operand") -> "Part":
        return Part("({} | {})", self, other)

    def __ror__(self, other: "Operand") -> "Part":
        return Part("({} | {})", other, self)

    def __xor__(self, other: "Operand") -> "Part":
        return Part("({} ^ {})", self, other)

    def __rxor__(self, other: "Operand") -> "Part":
        return Part("({} ^ {})", other, self)

    def __lshift__(self, other: "Operand") -> "Part":
        return Part("({} << {})", self, other)

    def __rlshift__(self, other: "Operand") -> "Part":
        return Part("({} << {})", other, self)

    def __rshift__(self, other: "Operand") -> "Part":
        return Part("({} >> {})", self, other)

    def __rrshift__(self, other: "Operand") -> "Part":
        return Part("({} >> {})", other, self)

    def __lt__(self, other: "Operand") -> "Part":
        return Part("({} < {})", self, other)

    def __le__(self, other: "Operand") -> "Part":
        return Part("({} <= {})", self, other)

    def __gt__(self, other: "Operand") -> "Part":
        return Part("({} > {})", self, other)

    def __ge__(self, other: "Operand") -> "Part":
        return Part("({} >= {})", self, other)

    def __eq__(self, other: object) -> "Part":  # type: ignore[override]
        return Part("({} == {})", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> "Part":  # type: ignore[override]
        return Part("({} != {})", self, other)  # type: ignore[arg-type]

    def __neg__(self) -> "Part":
        return Part("(-{})", self)

    def __abs__(self) -> "Part":
        return Part("abs({})", self)


Operand = Union[Part, int, float]


def part_of(operand: Any) -> Part:
    """Returns a part, also for a number."""
    if isinstance(operand, Array):
        return operand[0] if operand.count == 1 else operand.refuse()
    if isinstance(operand, Part):
        return operand
    if isinstance(operand, bool) or not isinstance(operand, (int, float)):
        raise TypeError(f"{operand!r} is in a score, which has parts, int and float; bring other "
                        "values as arrays")
    if operand != operand:
        raise ValueError("a score has no NaN")
    number = repr(abs(operand))
    return Part(f"(-{number})" if math.copysign(1, operand) < 0 else number)


class Array:
    """An array that a score reads; index it by a part. An array of one element is a scalar."""

    def __init__(self, name: str, count: Optional[int], dtype: str) -> None:
        self.name, self.count, self.dtype = name, count, dtype

    def __getitem__(self, index: Operand) -> Part:
        part = Part(self.name + "[{}]", index)
        return ArrayPart(self, part)

    def refuse(self) -> Part:
        raise TypeError(f"array {self.name} is in a score without an index")

    __iter__ = None  # else Python would try every index

    @property
    def statement(self) -> str:
        return f"{self.dtype} {self.name}[{self.count or ''}]; "


class ArrayPart(Part):
    """An element of an array."""

    __slots__ = ("array",)
    __hash__ = object.__hash__

    def __init__(self, of: Array, part: Part) -> None:
        super().__init__(part.form, *part.operands)
        self.array = of


def array(name: str, count: Optional[int] = None, dtype: str = "f32") -> Array:
    """Names an array of a score. dtype: f32, bf16 or i32. count None: as many elements as its
    tensor has; 1: a scalar."""
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise ValueError(f"the array's name is {name!r}, it must be letters, digits and _")
    if count is not None and integer("count", count) < 1:
        raise ValueError(f"array {name}: count is {count}, it must be at least 1")
    if dtype not in ARRAY_DTYPES:
        raise ValueError(f"array {name}: dtype is {dtype!r}, it must be f32, bf16 or i32")
    return Array(name, count, dtype)


def minimum(a: Operand, b: Operand) -> Part:
    """The smaller of a and b."""
    return Part("min({}, {})", a, b)


def maximum(a: Operand, b: Operand) -> Part:
    """The larger of a and b."""
    return Part("max({}, {})", a, b)


def select(condition: Operand, a: Operand, b: Operand) -> Part:
    """a where the condition is not 0, else b."""
    return Part("select({}, {}, {})", condition, a, b)


def exp2(x: Operand) -> Part:
    """2 to the power of x."""
    return Part("exp2({})", x)


def log2(x: Operand) -> Part:
    """The logarithm of x to base 2."""
    return Part("log2({})", x)


def tanh(x: Operand) -> Part:
    """The hyperbolic tangent of x."""
    return Part("tanh({})", x)


def sigmoid(x: Operand) -> Part:
    """1 / (1 + exp(-x))"""
    return Part("sigmoid({})", x)


def sin(x: Operand) -> Part:
    """The sine of x."""
    return Part("sin({})", x)


def cos(x: Operand) -> Part:
    """The cosine of x."""
    return Part("cos({})", x)


def to_float(x: Operand) -> Part:
    """x as f32."""
    return Part("float({})", x)


def to_int(x: Operand) -> Part:
    """x rounded towards 0, as i32."""
    return Part("int({})", x)


def walk(root: Part) -> Iterator[Part]:
    """Yields each part once, operands first."""
    seen: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        part, is_done = waiting.pop()
        if id(part) in seen:
            continue
        if is_done:
            seen.add(id(part))
            yield part
            continue
        waiting.append((part, True))
        waiting.extend((operand, False) for operand in reversed(part.operands))


def written(root: Part) -> str:
    """Returns the text of an expression. A part that several others use gets a name."""
    parts = list(walk(root))
    uses: dict[int, int] = {}
    arrays: dict[str, Array] = {}
    for part in parts:
        for operand in part.operands:
            uses[id(operand)] = uses.get(id(operand), 0) + 1
        if isinstance(part, ArrayPart):
            known = arrays.setdefault(part.array.name, part.array)
            if known.statement != part.array.statement:
                raise ValueError(f"array {known.name} is in a score twice, as "
                                 f"\"{known.statement.strip()}\" and "
                                 f"\"{part.array.statement.strip()}\"")
    texts: dict[int, str] = {}
    statements = "".join(each.statement for each in arrays.values())
    for part in parts:
        made = part.form.format(*(texts[id(operand)] for operand in part.operands))
        if part.operands and uses.get(id(part), 0) > 1:
            name = f"part_{len(texts)}"
            statements += f"{name} = {made}; "
            made = name
        texts[id(part)] = made
    return statements + texts[id(root)]


def called(function: Callable[..., Any], what: str, terms: tuple[str, ...]) -> Any:
    """Calls a function with the terms that its parameters name."""
    names = list(inspect.signature(function).parameters)
    short = [name for name in SHORT if SHORT[name] in terms]
    for name in names:
        if SHORT.get(name, name) not in terms:
            raise TypeError(f"a {what}'s function has the parameter {name}; they are "
                            f"{', '.join(terms)} and {' and '.join(short)}")
    return function(*(Part(SHORT.get(name, name)) for name in names))


def traced(function: Callable[..., Any], weights: str) -> str:
    """Returns the text of a score that a function makes."""
    if weights not in ("softmax", "sigmoid"):
        raise ValueError(f"weights is {weights!r}, it must be softmax or sigmoid")
    return f"weights {weights}; {written(part_of(called(function, 'score', TERMS)))}"


def pair_of(what: str, pair: Any) -> Part:
    """Returns the part `a:b` of a range, or `a, b` of bits."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{what} is {pair!r}, it must be a pair (a, b)")
    return Part("{}, {}" if what == "bits" else "{}:{}", *pair)


def traced_mask(function: Callable[..., Any], bits: Optional[Callable[..., Any]]) -> str:
    """Returns the text of a mask that a function makes."""
    ranges = called(function, "mask", MASK_TERMS)
    if not isinstance(ranges, (tuple, list)) or not ranges:
        raise TypeError(f"a mask's function gave {ranges!r}, it must give a list of pairs "
                        "(begin, end)")
    parts = [pair_of("a range", each) for each in ranges]
    form = ", ".join(["{}"] * len(parts))
    if bits is not None:
        if not callable(bits):
            raise TypeError(f"bits is {bits!r}, it must be a function")
        parts.insert(0, pair_of("bits", called(bits, "mask", MASK_TERMS)))
        form = "bits {}; " + form
    return written(Part(form, *parts))


class Named(NamedTuple):
    """An array that a score names. count 0: as many elements as its tensor has."""

    name: str
    dtype: str
    count: int


class Score:
    """A variant of attention as an expression, in its normal form. text is the normal form, and
    arrays are the arrays that it names, in order."""

    def __init__(self, of: Union[str, Callable[..., Any]], weights: str = "softmax") -> None:
        handle = ctypes.POINTER(abi.fig_score)()
        given = of if isinstance(of, str) else traced(of, weights)
        must(library.fig_score_parse(handle, encoded("a score", given)))
        self._keep(handle)

    def _keep(self, handle: Any) -> None:
        """Takes a score of the library, and reads it."""
        self.handle = handle
        self.end = weakref.finalize(self, library.fig_score_destroy, handle)
        self.text = text(library.fig_score_text(handle))
        parts = abi.options(abi.fig_score_parts)
        must(library.fig_score_read(handle, parts))
        self.arrays = tuple(Named(text(one.name), DTYPES[one.dtype], one.count)
                            for one in parts.arrays[: parts.array_count])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"figraph.score({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Score) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _parsed(source: str, base: Optional[Score]) -> Any:
    handle = ctypes.POINTER(abi.fig_score)()
    must(library.fig_score_parse_mask(handle, encoded("a mask", source),
                                      None if base is None else base.handle))
    return handle


class Mask(Score):
    """The score that is the logit itself, with a mask. source is the text of the mask alone."""

    def __init__(self, source: str) -> None:
        handle = _parsed(source, None)
        self.source = source
        self._keep(handle)


class _Masked(Score):
    """A score with the mask of a text."""

    def __init__(self, source: str, base: Score) -> None:
        self._keep(_parsed(source, base))


def mask(of: Union[str, Callable[..., Any]], *,
         bits: Optional[Callable[..., Any]] = None) -> Mask:
    """Makes a mask from a text such as "q_pos - 1023:q_pos + 1, 0:4", or from a function of q_pos,
    kv_length, head, kv_head and row that gives a list of one or two pairs (begin, end). bits: for a
    function, another function that gives a pair of words (low, high) for the row's last 64
    tokens; a text says it itself."""
    if not isinstance(of, str) and not callable(of):
        raise TypeError(f"a mask is {of!r}, it must be a str or a function")
    if isinstance(of, str) and bits is not None:
        raise ValueError("bits is given beside a text: write \"bits low, high;\" into the text")
    return Mask(of if isinstance(of, str) else traced_mask(of, bits))


Masked = Union[str, Mask, Callable[..., Any]]


def joined(of: Any, given: Optional[Masked]) -> Score:
    """Returns the score `of`, a Score or what makes one, with a mask. Either may be None."""
    base = of if of is None or isinstance(of, Score) else score(of)
    if given is None:
        if base is None:
            raise TypeError("neither a score nor a mask is given")
        return base
    if isinstance(given, Score) and not isinstance(given, Mask):
        raise TypeError(f"mask is {given!r}, a score; figraph.mask makes masks")
    made = given if isinstance(given, Mask) else mask(given)
    return made if base is None else Score(_Masked(made.source, base).text)


def score(of: Union[str, Callable[..., Any]], *, weights: str = "softmax",
          mask: Optional[Masked] = None) -> Score:
    """Makes a score from a text or from a function of its terms. weights: softmax or sigmoid, for a
    function; a text says it itself. mask: from figraph.mask, or what would make one."""
    if not isinstance(of, str) and not callable(of):
        raise TypeError(f"a score is {of!r}, it must be a str or a function")
    if isinstance(of, str) and weights != "softmax":
        raise ValueError(f"weights is {weights!r} beside a text: write \"weights {weights};\" "
                         "into the text")
    return joined(Score(of, weights), mask)


def sized(of: Score, counts: Mapping[str, int]) -> Score:
    """Returns the score with a number of elements for each array; counts has it for those that do
    not state their own."""
    text = of.text
    for one in of.arrays:
        if one.count == 0:
            text = text.replace(f" {one.name}[];", f" {one.name}[{counts[one.name]}];", 1)
    return of if text == of.text else Score(text)


@functools.lru_cache(maxsize=1024)
def arrays_of(normal: str) -> tuple[Named, ...]:
    """Returns the arrays that a text names, in order."""
    return Score(normal).arrays


def picked(of: Score, arrays: Optional[Mapping[str, Any]]) -> list[Any]:
    """Returns the values of a score's arrays, in the score's order."""
    given = {} if arrays is None else dict(arrays)
    for one in of.arrays:
        if one.name not in given:
            raise ValueError(f"score_arrays lacks {one.name}, an array of the score {of.text}")
    names = [one.name for one in of.arrays]
    for name in given:
        if name not in names:
            raise ValueError(f"score_arrays has {name}, which is no array of the score {of.text}")
    return [given[name] for name in names]

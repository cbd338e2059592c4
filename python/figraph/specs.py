"""specs.py: makes the fixed shape of a step from a preset, from a config.json or by hand.

The library checks all limits of values. Invariant: a Spec that goes to the library and back stays
the same, except that the library fills in defaults.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from typing import Any, Protocol, Sequence, Union

from . import abi, errors, keywords
from .integers import integer, options, put
from .native import encoded, library, must, path_bytes, text

DTYPES = {
    "f32": abi.FIG_F32,
    "f16": abi.FIG_F16,
    "bf16": abi.FIG_BF16,
    "e4m3": abi.FIG_E4M3,
    "e5m2": abi.FIG_E5M2,
    "i32": abi.FIG_I32,
    "i64": abi.FIG_I64,
}
# The names of the same dtypes in torch, JAX and numpy.
DTYPE_NAMES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int32": "i32",
    "int64": "i64",
}
ACTIVATIONS = {
    "silu": abi.FIG_SILU,
    "gelu": abi.FIG_GELU,
    "gelu_tanh": abi.FIG_GELU_TANH,
    "swiglu_limited": abi.FIG_SWIGLU_LIMITED,
}
LAYOUTS = {"nhd": abi.FIG_NHD, "hnd": abi.FIG_HND}
LAYER_BITS = ("window_layers", "plain_layers")  # tuples of layer numbers here, bit sets in C
NAMED = {"dtype": DTYPES, "kv_dtype": DTYPES, "activation": ACTIVATIONS, "kv_layout": LAYOUTS}

# Defaults for the fields that a config.json does not have, and the cap on its number of positions.
# The command line uses the same numbers.
CONFIG_PAGE_SIZE, CONFIG_BATCH_LIMIT, CONFIG_KV_LIMIT = 16, 256, 32768


def number_of(names: dict[str, int], field: str, name: str) -> int:
    """Returns the number of a name in figraph.h; "" is 0, the default."""
    if name == "":
        return 0
    if name not in names:
        raise ValueError(f'{field} is "{name}", it is one of {", ".join(names)}')
    return names[name]


def dtype_of(dtype: Any) -> str:
    """Returns the short name, such as "bf16", of a dtype given by name or as a type of torch, JAX
    or numpy."""
    name = dtype
    if not isinstance(dtype, str):
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).removeprefix("torch.")
    return DTYPE_NAMES.get(name, name)


def name_of(names: dict[str, int], number: int) -> str:
    """Returns the name of a number, or "" if the number has no name."""
    return next((name for name, known in names.items() if known == number), "")


@dataclasses.dataclass(frozen=True)
class Rope:
    """The parameters of RoPE. figraph.h explains each field; 0 is the default."""

    interleaved: int = 0
    rotary_dim: int = 0
    theta: float = 0.0
    scale: float = 0.0
    llama3_factor: float = 0.0
    llama3_low: float = 0.0
    llama3_high: float = 0.0
    llama3_context: int = 0


@dataclasses.dataclass(frozen=True)
class RopeTable:
    """A table of RoPE frequencies: radians per position for each rotated pair, and a factor for
    every cosine and sine. Without frequencies the table is absent, and the Rope of the same spec
    gives them."""

    frequencies: tuple[float, ...] = ()
    factor: float = 0.0

    def to_c(self) -> abi.fig_rope_table:
        """Returns the struct of the C library."""
        made = abi.fig_rope_table(factor=self.factor)
        if len(self.frequencies) > len(made.frequencies):
            raise ValueError(f"the table has {len(self.frequencies)} frequencies, limit "
                             f"{len(made.frequencies)}")
        for pair, frequency in enumerate(self.frequencies):
            made.frequencies[pair] = frequency
        return made

    @classmethod
    def of_c(cls, made: abi.fig_rope_table) -> RopeTable:
        """Converts the struct of the C library."""
        return cls(tuple(frequency for frequency in made.frequencies if frequency), made.factor)


def set_bits(field: str, layers: Sequence[int], words: Any) -> None:
    """Sets the C bit of each named layer."""
    for layer in layers:
        number = integer(field, layer)
        if not 0 <= number < 64 * len(words):
            raise ValueError(f"{field} names layer {number}, limit {64 * len(words) - 1}")
        words[number // 64] |= 1 << number % 64


@dataclasses.dataclass(frozen=True)
class Spec:
    """The fixed shape of a step. figraph.h explains each field; 0 and "" are the default.

    figraph.spec makes it from a model's name or file, or you make it by hand:

    >>> Spec(dtype="f16", q_heads=8, kv_heads=2, head_dim=64, batch_limit=4, kv_limit=128).layers
    0
    """

    dtype: str = ""
    kv_dtype: str = ""
    layers: int = 0
    q_heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    ffn_width: int = 0
    activation: str = "silu"
    page_size: int = 0
    kv_layout: str = "nhd"
    kv_scales: int = 0
    batch_limit: int = 0
    kv_limit: int = 0
    sequence_limit: int = 0
    row_tokens: int = 0
    soft_cap: float = 0.0
    window: int = 0
    window_layers: tuple[int, ...] = ()
    sm_scale: float = 0.0
    qk_norm_epsilon: float = 0.0
    rope: Rope = Rope()
    plain_layers: tuple[int, ...] = ()
    ffn_rows: int = 0
    sinks: int = 0
    rope_table: RopeTable = RopeTable()
    window_rope: Rope = Rope()
    window_table: RopeTable = RopeTable()
    query_limit: int = 0
    latent_dim: int = 0
    latent_norm_epsilon: float = 0.0
    dense_layers: int = 0
    dense_width: int = 0

    def __post_init__(self) -> None:
        for name in ("dtype", "kv_dtype"):
            object.__setattr__(self, name, dtype_of(getattr(self, name)))

    def to_c(self) -> abi.fig_spec:
        """Returns the struct of the C library."""
        made = options(abi.fig_spec)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in NAMED:
                value = number_of(NAMED[field.name], field.name, value)
            if field.name in LAYER_BITS:
                set_bits(field.name, value, getattr(made, field.name))
            elif isinstance(value, RopeTable):
                setattr(made, field.name, value.to_c())
            elif isinstance(value, Rope):
                setattr(made, field.name, put(abi.fig_rope_spec(), **dataclasses.asdict(value)))
            else:
                put(made, **{field.name: value})
        return made

    @classmethod
    def of_c(cls, made: abi.fig_spec) -> Spec:
        """Converts the struct of the C library."""
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = getattr(made, field.name)
            fields[field.name] = (
                name_of(NAMED[field.name], value) if field.name in NAMED else value
            )
        for name in LAYER_BITS:
            bits = [word >> bit & 1 for word in getattr(made, name) for bit in range(64)]
            fields[name] = tuple(layer for layer, bit in enumerate(bits) if bit)
        for name in ("rope", "window_rope"):
            rope = getattr(made, name)
            fields[name] = Rope(
                **{field.name: getattr(rope, field.name) for field in dataclasses.fields(Rope)}
            )
        for name in ("rope_table", "window_table"):
            fields[name] = RopeTable.of_c(getattr(made, name))
        return cls(**fields)

    def of_layers(self, layers: int) -> Spec:
        """Returns the spec of the model's first layers. Each layer keeps its window, or has no
        window."""
        windows = tuple(layer for layer in self.window_layers if layer < layers)
        plain = tuple(layer for layer in self.plain_layers if layer < layers)
        if (self.window_layers or self.plain_layers) and layers > self.layers:
            raise ValueError(f"layers is {layers}, the model has {self.layers}")
        return dataclasses.replace(
            self,
            layers=layers,
            dense_layers=min(self.dense_layers, max(layers, 1)),
            window_layers=windows,
            plain_layers=plain,
            # An empty window_layers would give the window to every layer.
            window=0 if self.window_layers and not windows else self.window,
        )


class Config(Protocol):
    """A configuration object of the transformers library."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the contents of its config.json."""


Model = Union[str, "os.PathLike[str]", Spec, Config]


def presets() -> list[str]:
    """Returns the names of the library's presets.

    >>> "llama-3.1-8b" in presets()
    True
    """
    names = []
    while (name := library.fig_spec_preset_name(len(names))) is not None:
        names.append(text(name))
    return names


def read_config(path: Any, kv_limit: int, dtype: Any = "") -> Spec:
    """Returns the spec of a Hugging Face config.json, or of a folder that has one, with defaults
    for the missing fields. kv_limit: the longest sequence, which some kinds of RoPE depend on; 0
    takes the model's number of positions, at most CONFIG_KV_LIMIT. dtype: overrides the file's
    dtype; the file then need not give one."""
    name = path_bytes(path)
    if os.path.isdir(name):
        name = os.path.join(name, b"config.json")
    made = options(
        abi.fig_spec,
        page_size=CONFIG_PAGE_SIZE,
        batch_limit=CONFIG_BATCH_LIMIT,
        kv_limit=kv_limit,
    )
    given = options(abi.fig_config_options, dtype=number_of(DTYPES, "dtype", dtype_of(dtype)))
    must(library.fig_spec_read_config_with(made, name, given))
    if kv_limit == 0 and not 0 < made.kv_limit <= CONFIG_KV_LIMIT:
        made.kv_limit = CONFIG_KV_LIMIT
        must(library.fig_spec_read_config_with(made, name, given))
    return Spec.of_c(made)


def take_config(config: Any, kv_limit: int, dtype: Any = "") -> Spec:
    """Returns the spec of a configuration object. Writes the object to a temporary config.json,
    without default values if the object can leave them out, and reads that file."""
    contents = getattr(config, "to_diff_dict", config.to_dict)()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(contents, file, default=lambda value: str(value).removeprefix("torch."))
        try:
            return read_config(path, kv_limit, dtype)
        except errors.Error as error:
            words = str(error).replace(path, type(config).__name__)
            raise errors.of(error.status, words) from None


def is_path(model: Any) -> bool:
    """Returns True if the model is a path, and False if it is the name of a preset. A path contains
    a separator, ends in .json, or exists and is not a preset's name."""
    name = os.fsdecode(model)
    if not isinstance(model, str) or os.sep in name or name.endswith(".json"):
        return True
    return name not in presets() and "\0" not in name and os.path.exists(name)


def spec(model: Model, **changes: Any) -> Spec:
    """Makes the spec of a model, and changes fields of it.

    model: the name of a preset; the path of a Hugging Face config.json or of a folder that has one;
    a configuration object of transformers; or a Spec. A config.json lacks the limits that a server
    chooses. The defaults are pages of 16 tokens, 256 rows, and the model's number of positions per
    sequence, at most 32768. A dtype may be "bf16", "bfloat16", torch.bfloat16 and so on.

    >>> spec("tutorial", layers=2, kv_dtype="e4m3").kv_dtype
    'e4m3'
    """
    keywords.check("a spec", changes, [field.name for field in dataclasses.fields(Spec)])
    if isinstance(model, Spec):
        found = model
    elif hasattr(model, "to_dict"):
        found = take_config(model, changes.get("kv_limit", 0), changes.get("dtype", ""))
    elif not isinstance(model, (str, bytes, os.PathLike)):
        raise TypeError(f"the model is {model!r}, it must be the name of a preset, the path of a "
                        "config.json, a configuration of transformers or a Spec")
    elif is_path(model):
        found = read_config(model, changes.get("kv_limit", 0), changes.get("dtype", ""))
    else:
        made = options(abi.fig_spec)
        must(library.fig_spec_preset(made, encoded("model", str(model))))
        found = Spec.of_c(made)
    if "layers" in changes:
        found = found.of_layers(integer("layers", changes.pop("layers")))
    return dataclasses.replace(found, **changes)

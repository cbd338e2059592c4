"""specs.py: the fixed shape of a step, by the name of a preset, from a config.json or by hand.

Leaves every limit on a value to the library. Invariant: a Spec goes to the library and back without
a change, but that defaults are filled in.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Union

from . import abi
from .native import library, must, text

DTYPES = {
    "f32": abi.FIG_F32,
    "f16": abi.FIG_F16,
    "bf16": abi.FIG_BF16,
    "e4m3": abi.FIG_E4M3,
    "e5m2": abi.FIG_E5M2,
    "i32": abi.FIG_I32,
    "i64": abi.FIG_I64,
}
ACTIVATIONS = {
    "silu": abi.FIG_SILU,
    "gelu": abi.FIG_GELU,
    "gelu_tanh": abi.FIG_GELU_TANH,
    "swiglu_limited": abi.FIG_SWIGLU_LIMITED,
}
LAYOUTS = {"nhd": abi.FIG_NHD, "hnd": abi.FIG_HND}
LAYER_BITS = ("window_layers", "plain_layers")  # numbers of layers here, bits in C
NAMED = {"dtype": DTYPES, "kv_dtype": DTYPES, "activation": ACTIVATIONS, "kv_layout": LAYOUTS}

# What a config.json leaves open, and most of the positions that it names, as the command line has.
CONFIG_PAGE_SIZE, CONFIG_BATCH_LIMIT, CONFIG_KV_LIMIT = 16, 256, 32768


def number_of(names: dict[str, int], field: str, name: str) -> int:
    """The number that figraph.h has for a name; "" is 0, the default."""
    if name == "":
        return 0
    if name not in names:
        raise ValueError(f'{field} is "{name}", it is one of {", ".join(names)}')
    return names[name]


def name_of(names: dict[str, int], number: int) -> str:
    """The name of a number, "" where it has none."""
    return next((name for name, known in names.items() if known == number), "")


@dataclasses.dataclass(frozen=True)
class Rope:
    """How heads turn; figraph.h says what each number means. 0 is the default."""

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
    """Radians per position of each pair that turns, and a factor of every cosine and sine; without
    frequencies there is none, and the Rope beside it says what they are."""

    frequencies: tuple[float, ...] = ()
    factor: float = 0.0

    def to_c(self) -> abi.fig_rope_table:
        """As the library takes it."""
        made = abi.fig_rope_table(factor=self.factor)
        for pair, frequency in enumerate(self.frequencies):
            made.frequencies[pair] = frequency
        return made

    @classmethod
    def of_c(cls, made: abi.fig_rope_table) -> RopeTable:
        """From what the library has."""
        return cls(tuple(frequency for frequency in made.frequencies if frequency), made.factor)


@dataclasses.dataclass(frozen=True)
class Spec:
    """The fixed shape of a step; figraph.h says what each field means. 0 and "" are the default.

    Made by figraph.spec from a model's name or file, or by hand:

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

    def to_c(self) -> abi.fig_spec:
        """As the library takes it."""
        made = abi.options(abi.fig_spec)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in NAMED:
                value = number_of(NAMED[field.name], field.name, value)
            if field.name in LAYER_BITS:
                for layer in value:
                    getattr(made, field.name)[layer // 64] |= 1 << layer % 64
            elif isinstance(value, RopeTable):
                setattr(made, field.name, value.to_c())
            elif isinstance(value, Rope):
                setattr(made, field.name, abi.fig_rope_spec(**dataclasses.asdict(value)))
            else:
                setattr(made, field.name, value)
        return made

    @classmethod
    def of_c(cls, made: abi.fig_spec) -> Spec:
        """From what the library has."""
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
        """The first layers of a model, of which each keeps its window or its lack of one."""
        windows = tuple(layer for layer in self.window_layers if layer < layers)
        plain = tuple(layer for layer in self.plain_layers if layer < layers)
        if (self.window_layers or self.plain_layers) and layers > self.layers:
            raise ValueError(f"layers is {layers}, the model has {self.layers}")
        return dataclasses.replace(
            self,
            layers=layers,
            window_layers=windows,
            plain_layers=plain,
            # No layer named would give the window to every one.
            window=0 if self.window_layers and not windows else self.window,
        )


Model = Union[str, "os.PathLike[str]", Spec]


def presets() -> list[str]:
    """The models that the library knows by name.

    >>> "llama-3.1-8b" in presets()
    True
    """
    names = []
    while (name := library.fig_spec_preset_name(len(names))) is not None:
        names.append(text(name))
    return names


def read_config(path: str, kv_limit: int) -> Spec:
    """What a Hugging Face config.json says, or one in a folder, and what it leaves open. kv_limit:
    the longest sequence, by which some kinds of RoPE turn; 0: as many tokens as are served.
    """
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    made = abi.options(
        abi.fig_spec,
        page_size=CONFIG_PAGE_SIZE,
        batch_limit=CONFIG_BATCH_LIMIT,
        kv_limit=kv_limit,
    )
    must(library.fig_spec_read_config(made, os.fsencode(path)))
    if kv_limit == 0 and not 0 < made.kv_limit <= CONFIG_KV_LIMIT:
        made.kv_limit = CONFIG_KV_LIMIT
        must(library.fig_spec_read_config(made, os.fsencode(path)))
    return Spec.of_c(made)


def spec(model: Model, **changes: Any) -> Spec:
    """The spec of a model, with fields changed.

    model: the name of a preset; the path of a Hugging Face config.json, or of a folder that has
    one; or a Spec. A config.json leaves open what a server decides: it gets pages of 16 tokens, up
    to 256 rows, and as many tokens of a sequence as the model has positions, 32768 at most.

    >>> spec("tutorial", layers=2, kv_dtype="e4m3").kv_dtype
    'e4m3'
    """
    if isinstance(model, Spec):
        found = model
    elif os.path.exists(model) and model not in presets():
        found = read_config(os.fspath(model), changes.get("kv_limit", 0))
    else:
        made = abi.options(abi.fig_spec)
        must(library.fig_spec_preset(made, os.fsencode(model)))
        found = Spec.of_c(made)
    if "layers" in changes:
        found = found.of_layers(changes.pop("layers"))
    return dataclasses.replace(found, **changes)

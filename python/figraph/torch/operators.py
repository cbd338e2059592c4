"""operators.py: defines the custom operators that work row by row: activations, norms and RoPE.

Each operator has a schema that names the tensors it writes, a function that runs it, and a fake
kernel that makes results from shapes alone. An operator whose name ends in _out writes its result
into tensors of the caller. Invariant: every returned tensor is new and shares no memory with an
argument.
"""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from .. import operands
from ..operands import Rope, dtype_name, shaped, typed
from .calls import call
from .schemas import define

ANGLES = ("int rotary_dim, bool interleaved, float scale, float theta, float llama3_factor, "
          "float llama3_low, float llama3_high, int llama3_context")


def side_by_side(name: str, tensor: Tensor) -> None:
    """Raises if the elements of the last dim have gaps between them."""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name} has strides {list(tensor.stride())}, the elements of its last "
                         "dim must lie side by side")


def has_steps(name: str, tensor: Tensor) -> None:
    """Raises if elements share an address, because the library takes a stride of 0 for a stride
    that was not given, and writing would be a race."""
    if any(n > 1 and stride == 0 for n, stride in zip(tensor.shape, tensor.stride())):
        raise ValueError(f"{name} has strides {list(tensor.stride())}, none may be 0")


def without_gaps(name: str, tensor: Tensor) -> None:
    """Raises if the tensor is not contiguous."""
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {list(tensor.stride())}, it must be row-major and "
                         "without gaps")


def result(name: str, out: Tensor, first: str, like: Tensor, shape: Any) -> None:
    """Raises unless `out` has this shape and the dtype of the argument named `first`."""
    typed(name, out, [dtype_name(like.dtype)])
    shaped(name, out, *shape, like=first)


def _rows(x: Tensor) -> Tensor:
    return x.flatten(0, -2) if x.ndim > 1 else x[None]


# ---- Activations ---------------------------------------------------------------------------------


def _gated(name: str) -> None:
    def fake_out(x: Tensor, out: Tensor) -> None:
        result("out", out, "input", x, operands.gated(x))
        without_gaps("out", out)

    def run_out(x: Tensor, out: Tensor) -> None:
        fake_out(x, out)
        call(name, _rows(out), _rows(x.contiguous()), False)

    def fake(x: Tensor) -> Tensor:
        return x.new_empty(operands.gated(x))

    def run(x: Tensor) -> Tensor:
        out = fake(x)
        call(name, _rows(out), _rows(x.contiguous()), False)
        return out

    define(f"{name}(Tensor input) -> Tensor", run, fake)
    define(f"{name}_out(Tensor input, Tensor(a!) out) -> ()", run_out, fake_out)


for _name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
    _gated(_name)

# ---- Norms ---------------------------------------------------------------------------------------


def _norm_fake(x: Tensor, residual: Optional[Tensor], weight: Tensor, *rest: float) -> Tensor:
    operands.normed(x, residual, weight)
    if residual is not None:
        without_gaps("residual", residual)
    return x.new_empty(x.shape)


def _norm_to(x: Tensor, residual: Optional[Tensor], weight: Tensor, out: Tensor,
             *rest: float) -> None:
    sums = None if residual is None else _rows(residual)
    call("rms_norm", _rows(x.contiguous()), sums, weight.contiguous(), _rows(out), *rest)


def _norm(x: Tensor, residual: Optional[Tensor], weight: Tensor, *rest: float) -> Tensor:
    out = _norm_fake(x, residual, weight)
    _norm_to(x, residual, weight, out, *rest)
    return out


def _norm_out_fake(x: Tensor, residual: Optional[Tensor], weight: Tensor, epsilon: float,
                   weight_offset: float, out: Tensor) -> None:
    _norm_fake(x, residual, weight)
    result("out", out, "input", x, x.shape)
    without_gaps("out", out)


def _norm_out(x: Tensor, residual: Optional[Tensor], weight: Tensor, epsilon: float,
              weight_offset: float, out: Tensor) -> None:
    _norm_out_fake(x, residual, weight, epsilon, weight_offset, out)
    _norm_to(x, residual, weight, out, epsilon, weight_offset)


NORM = "Tensor input, Tensor(a!)? residual, Tensor weight, float epsilon, float weight_offset"
define(f"rms_norm({NORM}) -> Tensor", _norm, _norm_fake)
define(f"rms_norm_out({NORM}, Tensor(b!) out) -> ()", _norm_out, _norm_out_fake)

# ---- RoPE ----------------------------------------------------------------------------------------


def turned(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Optional[Tensor],
           *angles: Any) -> None:
    """Checks the arguments of apply_rope."""
    operands.turned(q, k, positions)
    operands.placed(positions, q.shape[0], cos_sin, Rope(*angles), int(q.shape[2]))
    operands.sound_rope(int(q.shape[2]), *angles)
    for name, x in (("q", q), ("k", k)):
        side_by_side(name, x)


def _rope_fake(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Optional[Tensor],
               *angles: Any) -> tuple[Tensor, Tensor]:
    turned(q, k, positions, cos_sin, *angles)
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _rope_to(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Optional[Tensor],
             outs: tuple[Tensor, Tensor], *angles: Any) -> None:
    call("rope", q, k, positions, *outs, *angles, cos_sin)


def _rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Optional[Tensor],
          *angles: Any) -> tuple[Tensor, Tensor]:
    outs = _rope_fake(q, k, positions, cos_sin, *angles)
    _rope_to(q, k, positions, cos_sin, outs, *angles)
    return outs


def _rope_out_fake(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Optional[Tensor],
                   *rest: Any) -> None:
    *angles, q_out, k_out = rest
    turned(q, k, positions, cos_sin, *angles)
    for name, out, first, like in (("out[0]", q_out, "q", q), ("out[1]", k_out, "k", k)):
        result(name, out, first, like, like.shape)
        side_by_side(name, out)
        has_steps(name, out)


def _rope_out(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Optional[Tensor],
              *rest: Any) -> None:
    _rope_out_fake(q, k, positions, cos_sin, *rest)
    *angles, q_out, k_out = rest
    _rope_to(q, k, positions, cos_sin, (q_out, k_out), *angles)


ROPE = f"Tensor q, Tensor k, Tensor positions, Tensor? cos_sin_cache, {ANGLES}"
define(f"apply_rope({ROPE}) -> (Tensor, Tensor)", _rope, _rope_fake)
define(f"apply_rope_out({ROPE}, Tensor(a!) q_out, Tensor(b!) k_out) -> ()", _rope_out,
       _rope_out_fake)

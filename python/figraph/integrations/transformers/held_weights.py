"""held_weights.py: the weights that a Decoder's captured step reads.

Most of them are the model's own tensors, which the graph knows by their addresses. Some have
another dtype or form in the step, so the Decoder reads copies of them. Invariant: neither moves
while the Decoder lives. So weights that are written in place reach the step, the copies at the next
prompt; weights that were replaced by other tensors never would, and are refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import torch
from torch import Tensor

from ... import abi, errors


class Copy(NamedTuple):
    """A tensor made of one of the model's weights."""

    tensor: Tensor
    owner: Any  # the module that has the weight
    attribute: str
    offset: float = 0.0  # added to the weight
    is_exact: bool = False  # the tensor may not lose bits of the weight

    def source(self) -> Tensor:
        """Returns what the tensor should hold, in the dtype of the weight or in float32."""
        weight: Tensor = getattr(self.owner, self.attribute).data
        return weight if self.is_exact else weight.float() + self.offset


def held(model: Any) -> dict[str, Tensor]:
    """Returns the memory of all weights by their names. Holding it means that a graph never reads
    memory that was freed."""
    return {name: weight.data
            for name, weight in model.named_parameters(remove_duplicate=False)}


def refuse_replaced(model: Any, known: dict[str, Tensor]) -> None:
    """Raises if a weight lies at another address than the one that the graph reads."""
    now = held(model)
    for name, weight in known.items():
        if name not in now or now[name].data_ptr() != weight.data_ptr():
            raise errors.of(abi.FIG_STALE, "the model's weights were replaced: make a new Decoder "
                            f"({name} is another tensor than before)")


def refresh(copies: Sequence[Copy]) -> None:
    """Writes the model's present weights into the copies."""
    sources = [copy.source() for copy in copies]
    kept = [(copy.tensor.dtype, source) for copy, source in zip(copies, sources) if copy.is_exact]
    are_exact = [(source.to(dtype).to(source.dtype) == source).all() for dtype, source in kept]
    if are_exact and not bool(torch.stack(are_exact).all()):
        raise errors.of(abi.FIG_STALE, "a norm of the model has new weights that the model's dtype "
                        f"{kept[0][0]} cannot hold exactly: make a new Decoder")
    for copy, source in zip(copies, sources):
        copy.tensor.copy_(source)

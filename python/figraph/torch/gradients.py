"""gradients.py: refuses tensors that require a gradient, since no operator here has one.

Otherwise torch would return results with requires_grad set, and backward would skip the operator.
"""

from __future__ import annotations

from typing import Iterable, Optional

from torch import Tensor


def refuse_gradients(operator: str, named: Iterable[tuple[str, Optional[Tensor]]]) -> None:
    """Raises if a tensor requires a gradient. `named` has the name of each tensor. The caller has
    checked that gradients are enabled."""
    for name, x in named:
        if x is not None and x.requires_grad:
            raise NotImplementedError(f"{operator} has no gradient, and {name}, {list(x.shape)}, "
                                      "requires one: call it under torch.no_grad() or "
                                      "torch.inference_mode()")

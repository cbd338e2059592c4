"""backend_choice.py: the class that vLLM finds under the name CUSTOM. It chooses between figraph's
two backends.

vLLM up to 0.29 has a single name for backends of others. Layers with latent attention (MLA) and
other layers need different classes, and one model may have both. vLLM asks the class under the name
whether it is valid for a layer, and then for the name of the class to use. Invariant: the second
answer belongs to the question before it; vLLM makes its layers in one thread.
"""

from __future__ import annotations

from typing import Any

from .attention_backend import FigraphBackend


class FigraphChoice(FigraphBackend):
    """Answers as the backend for the layer that vLLM asks about."""

    _chosen: Any = FigraphBackend

    @classmethod
    def validate_configuration(cls, **asked: Any) -> list[str]:
        """Returns the reasons why figraph does not take a layer."""
        FigraphChoice._chosen = FigraphBackend
        if asked["use_mla"]:
            from .latent_backend import FigraphLatentBackend  # other models need not load it

            FigraphChoice._chosen = FigraphLatentBackend
        reasons: list[str] = FigraphChoice._chosen.validate_configuration(**asked)
        return reasons

    @classmethod
    def full_cls_name(cls) -> tuple[str, str]:
        """Returns the module and the name of the class that vLLM uses for the layer."""
        name: tuple[str, str] = FigraphChoice._chosen.full_cls_name()
        return name

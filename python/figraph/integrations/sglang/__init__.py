"""figraph.integrations.sglang: figraph as an attention backend of SGLang.

    pip install figraph
    python -m sglang.launch_server --model-path MODEL --attention-backend figraph --page-size 64

The wheel of figraph has the entry point that SGLang looks for, so nothing else is needed. Decode
steps go to figraph, also inside SGLang's CUDA graphs. Everything else goes to SGLang's Triton
backend. docs/integrations-sglang.md says what this was tested with and what it does not do.
"""

from __future__ import annotations

from typing import Any

from ..counts import Counts, counts

__all__ = ["Counts", "counts", "register"]

NAME = "figraph"


def register() -> None:
    """Registers the backend. SGLang calls this entry point in each of its processes, before it
    parses its arguments."""
    from sglang.srt.arg_groups.choices import (
        ATTENTION_BACKEND_CHOICES,
        add_attention_backend_choices,
    )
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    register_attention_backend(NAME)(create)
    if NAME not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices([NAME])


def create(runner: Any) -> Any:
    """Makes the backend of a model runner."""
    from .decode_backend import FigraphAttnBackend

    return FigraphAttnBackend(runner)

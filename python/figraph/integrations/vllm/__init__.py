"""figraph.integrations.vllm: figraph as an attention backend of vLLM.

    pip install figraph
    vllm serve MODEL --attention-backend CUSTOM

The wheel of figraph has the entry point that vLLM looks for, so nothing else is needed. Decode
steps go to figraph, also inside vLLM's full CUDA graphs, and so do prompts and batches that mix
prompts with decode steps, if the host knows the lengths. What figraph does not support goes to
vLLM's Triton backend, over the same pages. In models with latent attention (MLA) decode steps go to
figraph, and prompts to vLLM's own code.
docs/integrations-vllm.md says what this was run with and what it does not do.

    from figraph.integrations.vllm import counts
    counts.attended, counts.captured, counts.passed_on   # calls of layers, in this process
"""

from __future__ import annotations

import logging

from ..counts import Counts, counts

__all__ = ["Counts", "counts", "register"]

BACKEND = f"{__name__}.backend_choice.FigraphChoice"
logger = logging.getLogger(__name__)


def register() -> None:
    """Registers the backends as CUSTOM. vLLM calls this entry point in each of its processes."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    custom = AttentionBackendEnum.CUSTOM
    if custom.is_overridden() and custom.get_path() != BACKEND:
        logger.warning("figraph: the attention backend CUSTOM is already %s, and stays so; to use "
                       "figraph's, let VLLM_PLUGINS name only figraph", custom.get_path())
        return
    register_backend(custom, BACKEND)

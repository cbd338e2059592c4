"""peer_torch.py: times PyTorch's own attention in a torch.cuda.CUDAGraph.

    sdpa, sdpa.flash, sdpa.cudnn    scaled_dot_product_attention with enable_gqa, by the backend
                                    that torch chooses or the named one; equal rows, dense caches
    flex                            flex_attention, compiled; ragged rows are padded and masked

Neither supports pages in a decode step, so the caches are dense here. That is at most as much work
as with pages.
"""

import contextlib
import math
import sys

import peer_cells
import peer_rig
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {
    "sdpa": None,
    "sdpa.flash": SDPBackend.FLASH_ATTENTION,
    "sdpa.cudnn": SDPBackend.CUDNN_ATTENTION,
}


class Dense:
    """Caches [row][kv head][token][head_dim], as long as the longest row."""

    def __init__(self, cell, pool, copies):
        self.cell = cell
        dtype, longest = peer_rig.DTYPES[cell.dtype], max(cell.lengths)
        shape = (cell.rows, cell.kv_heads, longest, cell.head_dim)
        count = math.prod(shape)
        flat = pool.take(dtype, count * copies)
        parts = [slice(i * count, (i + 1) * count) for i in range(copies)]
        self.caches = [tuple(t[part].view(shape) for t in flat) for part in parts]
        generator = torch.Generator().manual_seed(11)
        q = torch.randn(cell.rows, cell.q_heads, 1, cell.head_dim, generator=generator)
        self.q = q.to(dtype).cuda()
        shape = (cell.rows, cell.q_heads, cell.head_dim)
        self.outs = [torch.empty(shape, dtype=dtype, device="cuda") for _ in range(2)]

    def due(self, r, copy):
        k, v = (t[r, :, : self.cell.lengths[r]].transpose(0, 1) for t in self.caches[copy])
        return peer_rig.attend(self.cell, self.q[r, :, 0], k, v)


class Torch:
    """Runs the paths of SDPA, or FlexAttention."""

    version = torch.__version__

    def __init__(self, paths):
        self.paths, self.pool = paths, peer_rig.Pool()
        torch.set_grad_enabled(False)
        torch._dynamo.config.recompile_limit = 256  # one kernel for each shape of cell

    def measure(self, cell):
        held = cell.rows * max(cell.lengths) * cell.token_bytes
        copies = cell.copies(held) if cell.kv_dtype == cell.dtype else 0
        if copies == 0:
            yield peer_cells.row("", note="not possible: 8 bits, or no room for two caches")
            return
        dense = Dense(cell, self.pool, copies)
        for path in self.paths:
            if cell.is_ragged and path != "flex":
                yield peer_cells.row(path, note="not possible: rows of unequal length")
                continue
            call, within = self.open(path, dense)

            # The call allocates its results; a result that is compared is copied to `out`.
            def enqueue(copy, out, is_last):
                got = call(dense.q, *dense.caches[copy])
                if is_last:
                    out.copy_(got[:, :, 0])

            with within:
                yield peer_rig.measure(cell, path, copies, enqueue, dense.outs, dense.due)

    def open(self, path, dense):
        """Returns a function that calls the path, and the context for the calls."""
        if path == "flex":
            return open_flex(dense), contextlib.nullcontext()
        backend = BACKENDS[path]
        within = contextlib.nullcontext() if backend is None else sdpa_kernel(backend)
        return lambda q, k, v: scaled_dot_product_attention(q, k, v, enable_gqa=True), within


def open_flex(dense):
    cell, mask = dense.cell, None
    if cell.is_ragged:
        lengths = torch.tensor(cell.lengths, device="cuda")
        within = lambda b, h, q, kv: kv < lengths[b]
        mask = create_block_mask(within, cell.rows, None, 1, max(cell.lengths), device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=True)


if __name__ == "__main__":
    peer_cells.serve(lambda _: Torch(("flex",) if "flex" in sys.argv else tuple(BACKENDS)))

"""peer_flashinfer.py: times FlashInfer's decode attention by each path that runs on a Hopper GPU.

    cc, tc        BatchDecodeWithPagedKVCacheWrapper, on CUDA cores and on tensor cores (fa2)
    cudnn         the same wrapper over cuDNN, in a separate process, which it may crash
    xqa           trtllm_batch_decode_with_kv_cache, which on 9.0 is XQA
    ba            BatchAttention, the persistent scheduler
    .hnd, .ng     .hnd: pages are [head][token]; .ng: a wrapper without use_cuda_graph

The calls are those of a user: plan() once, then calls in a graph, with programmatic edges if the
path has them. The wrapper does not choose among its paths, and no path is the fastest everywhere.
"""

import math
import sys

import flashinfer
import peer_cells
import peer_rig
import torch

PATHS = ("cc", "cc.hnd", "cc.ng", "tc", "tc.hnd", "tc.ng", "xqa", "xqa.hnd", "ba", "ba.hnd")
CUDNN_PATHS = ("cudnn", "cudnn.hnd")
INT, WORKSPACE_BYTES = torch.int32, 768 << 20


def why_not(path, cell):
    """Returns the reason why the path cannot run the cell; None if it can."""
    way = path.split(".")[0]
    if way == "cc" and cell.group not in (1, 2, 3, 4, 6, 8):
        return f"groups of {cell.group} are none of 1, 2, 3, 4, 6, 8"
    if way == "xqa" and cell.page not in (16, 32, 64, 128):
        return f"pages of {cell.page} are none of 16, 32, 64, 128"
    if way == "cudnn" and cell.kv_dtype != cell.dtype:
        return "q and the cache share a type of 16 bits"
    return None


class Paged:
    """The cell's shuffled page table and its caches, one copy after another."""

    def __init__(self, cell, pool, copies):
        self.cell, self.copies = cell, copies
        generator = torch.Generator().manual_seed(11)
        dtype = peer_rig.DTYPES[cell.dtype]
        shape = (cell.rows, cell.q_heads, cell.head_dim)
        self.q = torch.randn(shape, generator=generator).to(dtype).cuda()
        self.counts = [-(-length // cell.page) for length in cell.lengths]
        self.pages = sum(self.counts)
        self.count = self.pages * cell.page * cell.kv_heads * cell.head_dim
        kv_dtype = peer_rig.DTYPES[cell.kv_dtype]
        self.k, self.v = pool.take(kv_dtype, self.count * copies)
        order = torch.randperm(self.pages, generator=generator).to(INT)
        self.begins = torch.zeros(cell.rows + 1, dtype=INT)
        self.begins[1:] = torch.tensor(self.counts).cumsum(0).to(INT)
        self.table = torch.zeros(cell.rows, max(self.counts), dtype=INT)
        for r, begin in enumerate(self.begins.tolist()[:-1]):
            self.table[r, : self.counts[r]] = order[begin : begin + self.counts[r]]
        self.order, self.table_there = order.cuda(), self.table.cuda()
        lengths = torch.tensor(cell.lengths, dtype=INT)
        self.last, self.lengths = (lengths - 1) % cell.page + 1, lengths.cuda()
        self.outs = [torch.empty(shape, dtype=dtype, device="cuda") for _ in range(4)]

    def caches(self, copy, layout):
        cell = self.cell
        inner = (cell.page, cell.kv_heads) if layout == "NHD" else (cell.kv_heads, cell.page)
        part = slice(copy * self.count, (copy + 1) * self.count)
        return tuple(t[part].view(self.pages, *inner, cell.head_dim) for t in (self.k, self.v))

    def due(self, layout):
        def of(r, copy):
            pages = self.table[r, : self.counts[r]].long().cuda()
            rows = []
            for tensor in self.caches(copy, layout):  # types of 8 bits are taken as bytes
                rows.append(tensor.view(torch.uint8)[pages].view(tensor.dtype).float())
                if layout == "HND":
                    rows[-1] = rows[-1].transpose(1, 2)
            k, v = (t.reshape(-1, *t.shape[2:])[: self.cell.lengths[r]] for t in rows)
            return peer_rig.attend(self.cell, self.q[r], k, v)

        return of


class FlashInfer:
    """Runs all paths, or only those over cuDNN."""

    version = flashinfer.__version__

    def __init__(self, paths):
        self.paths, self.pool, self.workspaces = paths, peer_rig.Pool(), {}
        torch.set_grad_enabled(False)

    def measure(self, cell):
        copies = cell.copies(cell.bytes)
        if copies == 0:
            yield peer_cells.row("", note="memory has no room for two caches")
            return
        paged = Paged(cell, self.pool, copies)
        for path in self.paths:
            reason = why_not(path, cell)
            if reason is not None:
                yield peer_cells.row(path, note=f"not possible: {reason}")
                continue
            layout = "HND" if ".hnd" in path else "NHD"
            try:
                call = self.open(path, layout, paged)
            except Exception as error:
                yield peer_cells.row(path, note=peer_cells.short(error))
                continue

            def enqueue(copy, out, _):
                call(paged.caches(copy, layout), out)

            yield peer_rig.measure(cell, path, copies, enqueue, paged.outs, paged.due(layout))

    def workspace(self, name):
        if name not in self.workspaces:
            self.workspaces[name] = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        return self.workspaces[name]

    def open(self, path, layout, paged):
        """Returns a function that calls the path with given caches and output."""
        way = path.split(".")[0]
        if way == "xqa":
            return self.open_xqa(layout, paged)
        if way == "ba":
            return self.open_persistent(layout, paged)
        return self.open_wrapper(way, layout, paged, ".ng" not in path)

    def open_wrapper(self, way, layout, paged, is_graph):
        cell, held = paged.cell, {}
        if is_graph:
            held = {
                "paged_kv_indptr_buffer": torch.zeros(cell.rows + 1, dtype=INT, device="cuda"),
                "paged_kv_indices_buffer": torch.zeros(paged.pages, dtype=INT, device="cuda"),
                "paged_kv_last_page_len_buffer": torch.ones(cell.rows, dtype=INT, device="cuda"),
            }
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            self.workspace("float"),
            layout,
            use_cuda_graph=is_graph,
            use_tensor_cores=way == "tc",
            backend="cudnn" if way == "cudnn" else "fa2",
            **held,
        )
        types = {
            "q_data_type": peer_rig.DTYPES[cell.dtype],
            "kv_data_type": peer_rig.DTYPES[cell.kv_dtype],
            "o_data_type": peer_rig.DTYPES[cell.dtype],
        }
        if way == "cudnn":
            types["block_tables"] = paged.table_there
        heads = (cell.q_heads, cell.kv_heads, cell.head_dim, cell.page)
        wrapper.plan(paged.begins, paged.order, paged.last, *heads, **types)
        edges = {} if way == "cudnn" else {"enable_pdl": True}
        return lambda caches, out: wrapper.run(paged.q, caches, out=out, **edges)

    def open_xqa(self, layout, paged):
        cell, space = paged.cell, self.workspace("xqa")
        scales = {"bmm1_scale": 1.0 / math.sqrt(cell.head_dim), "bmm2_scale": 1.0}
        most = max(paged.counts) * cell.page
        decode = flashinfer.decode.trtllm_batch_decode_with_kv_cache

        def call(caches, out):
            given = (paged.q, caches, space, paged.table_there, paged.lengths, most)
            decode(*given, out=out, kv_layout=layout, enable_pdl=True, backend="auto", **scales)

        return call

    def open_persistent(self, layout, paged):
        cell = paged.cell
        if layout not in self.workspaces:
            self.workspaces[layout] = flashinfer.BatchAttention(kv_layout=layout, device="cuda")
        attention = self.workspaces[layout]
        rows = torch.arange(cell.rows + 1, dtype=INT, device="cuda")
        lse = torch.empty(cell.rows, cell.q_heads, dtype=torch.float32, device="cuda")
        sizes = (cell.q_heads, cell.kv_heads, cell.head_dim, cell.head_dim, cell.page)
        attention.plan(
            rows,
            paged.begins.cuda(),
            paged.order,
            paged.lengths,
            *sizes,
            causal=False,
            sm_scale=1.0 / math.sqrt(cell.head_dim),
            q_data_type=peer_rig.DTYPES[cell.dtype],
            kv_data_type=peer_rig.DTYPES[cell.kv_dtype],
        )
        return lambda caches, out: attention.run(paged.q, caches, out=out, lse=lse)


if __name__ == "__main__":
    peer_cells.serve(lambda _: FlashInfer(CUDNN_PATHS if "cudnn" in sys.argv else PATHS))

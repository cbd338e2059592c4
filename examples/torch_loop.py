"""torch_loop.py: whole layers of a model in torch, its products by cuBLAS, in one CUDA graph.

    examples/torch_loop.py --rows 8 --kv 2048
    examples/torch_loop.py --device cpu --layers 2 --kv 64 --steps 2 --check

The same step as `build/layers run` takes: RMSNorm, q, k and v by one product, RoPE, append and
attention, the output's product, RMSNorm, gate and up by one product, the activation, and down. What
stands between the products is figraph.torch's. What multiplies quickest is tried before, as there.
Weights and caches are made up. It tells what a step takes; --check compares one with plain torch in
float32.
"""

import argparse
import time

import figraph
import figraph.torch as ft
import torch

PAGE, GROWTH = 16, 64  # tokens of a page; by which rows grow, and then they start over
LIBRARIES, PADDED_ROWS = ("cublas", "cublaslt"), (0, 32, 64)  # what is tried
TRIED_LAYERS = 8  # whose weights are more than a cache holds


def read_words():
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--model", default="llama-3.1-8b")
    words.add_argument("--layers", type=int, default=32)
    words.add_argument("--rows", type=int, default=8)
    words.add_argument("--kv", type=int, default=2048)
    words.add_argument("--steps", type=int, default=300)
    words.add_argument("--device", default="cuda")
    words.add_argument("--check", action="store_true")
    return words.parse_args()


class Layer:
    """Weights as [out][in], whose products keep numbers near one."""

    def __init__(self, spec, make):
        hidden, width = spec.q_heads * spec.head_dim, spec.ffn_width
        heads = (spec.q_heads + 2 * spec.kv_heads) * spec.head_dim
        added = (2 * spec.layers) ** -0.5
        self.qkv = make(heads, hidden) * (2 * hidden**-0.5)
        self.output = make(hidden, hidden) * (added * hidden**-0.5)
        self.gate_up = make(2 * width, hidden) * hidden**-0.5
        self.down = make(hidden, width) * (added * width**-0.5)


class Product:
    """One of a layer's products: by which library, and of how many rows. Rows behind the step's own
    are zeros, and with some of them the libraries take quicker ways."""

    def __init__(self, weights, rows):
        self.rows, self.library = rows, None
        self.inputs = weights[0].new_zeros(rows, weights[0].shape[1])
        if weights[0].is_cuda:
            ways = [(library, padded) for library in LIBRARIES for padded in PADDED_ROWS
                    if padded == 0 or padded > rows]
            took = {way: self.time(way, weights[:TRIED_LAYERS]) for way in ways}
            self.take(min(took, key=took.get))

    def take(self, way):
        self.library = way[0]
        self.inputs = self.inputs.new_zeros(max(way[1], self.rows), self.inputs.shape[1])

    def time(self, way, weights):
        self.take(way)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph = torch.cuda.CUDAGraph()
        self.of(weights[0])
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for weight in weights:
                self.of(weight)
        graph.replay()
        began.record()
        for _ in range(3):
            graph.replay()
        ended.record()
        ended.synchronize()
        return began.elapsed_time(ended)

    def input(self):
        """Where rows are written that are to be multiplied."""
        return self.inputs[: self.rows]

    def of(self, weight):
        if self.library is not None:
            torch.backends.cuda.preferred_blas_library(self.library)
        return (self.inputs @ weight.T)[: self.rows]


class Model:
    """Made-up layers, and caches as if each row's prompt had gone before."""

    def __init__(self, words):
        self.spec = figraph.spec(words.model, layers=words.layers)
        self.rows, self.kv = words.rows, words.kv
        self.device = torch.device(words.device)
        self.layers = [Layer(self.spec, self.make) for _ in range(words.layers)]
        row_pages = -(-(words.kv + GROWTH) // PAGE)
        self.table = torch.arange(words.rows * row_pages, dtype=torch.int32, device=self.device)
        self.table = self.table.view(words.rows, row_pages)
        shape = (words.rows * row_pages, PAGE, self.spec.kv_heads, self.spec.head_dim)
        self.caches = [ft.Cache(self.make(*shape), self.make(*shape), self.table)
                       for _ in range(words.layers)]
        self.state = self.make(words.rows, self.spec.q_heads * self.spec.head_dim)
        self.norm = torch.ones_like(self.state[0])
        self.step = ft.DecodeStep(self.spec, self.caches, rows=words.rows, dtype="bf16")
        self.output = Product([layer.output for layer in self.layers], words.rows)
        self.down = Product([layer.down for layer in self.layers], words.rows)

    def make(self, *shape):
        return torch.randn(shape, dtype=torch.bfloat16, device=self.device)

    def normed(self, added, residual):
        return ft.rms_norm(added, self.norm, residual=residual)

    def split(self, qkv):
        """q, k and v, views of one array."""
        q, kv = self.spec.q_heads, self.spec.kv_heads
        return qkv.view(self.rows, -1, self.spec.head_dim).split((q, kv, kv), 1)

    def loop(self):
        """The step that is captured: what it leaves in state, the next begins with."""
        residual = self.state.clone()
        normed = ft.rms_norm(residual, self.norm)
        self.step.plan()
        for n, layer in enumerate(self.layers):
            out = self.output.input().view(self.rows, -1, self.spec.head_dim)
            self.step.attend(n, *self.split(normed @ layer.qkv.T), out)
            normed = self.normed(self.output.of(layer.output), residual)
            self.step.act(n, normed @ layer.gate_up.T, self.down.input())
            normed = self.normed(self.down.of(layer.down), residual)
        self.state.copy_(normed)
        self.step.lengths.add_(1)


# ---- The same in plain torch, in float32 ---------------------------------------------------------


def turn(x, position, rope):
    """Halves i and i + d / 2 turn together; llama 3 turns long waves slower."""
    half = x.shape[-1] // 2
    i = torch.arange(half, dtype=torch.float64, device=x.device)
    frequency = rope.theta ** (-i / half)
    if rope.llama3_factor:
        turns = rope.llama3_context * frequency / (2 * torch.pi)
        share = (turns - rope.llama3_low) / (rope.llama3_high - rope.llama3_low)
        share = share.clamp(0, 1)
        frequency = frequency * ((1 - share) / rope.llama3_factor + share)
    angle = position * frequency
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def plain_norm(x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], None, 1e-6)  # all weights are one


def expected(model, caches, length):
    """What a step of that length leaves, from caches that end before it."""
    h = model.state.float()
    for layer, cache in zip(model.layers, caches):
        q, k, v = model.split(plain_norm(h) @ layer.qkv.float().T)
        q, k = (turn(x, length - 1, model.step.spec.rope) for x in (q, k))
        past = [x[model.table.long()].flatten(1, 2)[:, : length - 1].float() for x in cache[:2]]
        keys, values = (torch.cat((old, new[:, None]), 1) for old, new in zip(past, (k, v)))
        group = q.shape[1] // k.shape[1]
        logits = torch.einsum("rhd,rthd->rht", q, keys.repeat_interleave(group, 2))
        weights = (logits * q.shape[-1] ** -0.5).softmax(-1)
        out = torch.einsum("rht,rthd->rhd", weights, values.repeat_interleave(group, 2))
        h = h + out.flatten(1) @ layer.output.float().T
        gate, up = (plain_norm(h) @ layer.gate_up.float().T).chunk(2, -1)
        h = h + (torch.nn.functional.silu(gate) * up) @ layer.down.float().T
    return plain_norm(h)


def check(model):
    caches = [ft.Cache(cache.k.clone(), cache.v.clone()) for cache in model.caches]
    wanted = expected(model, caches, model.kv)
    model.step([model.kv] * model.rows)
    off = (model.state.float() - wanted).norm() / wanted.norm()
    limit = 2**-8 * (2 * model.spec.layers) ** 0.5  # each residual is rounded twice
    print(f"  check     off by {off:.2g} in the mean, {limit:.2g} may be")
    if not off <= limit:
        raise SystemExit(1)


# ---- Steps ---------------------------------------------------------------------------------------


def take_steps(model, count):
    for n in range(count):
        model.step([model.kv] * model.rows if n % GROWTH == 0 else None)
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def main():
    words = read_words()
    torch.manual_seed(1)
    with torch.inference_mode():
        model = Model(words)
        model.step.capture(model.loop)
        if words.check:
            check(model)
        take_steps(model, 3)
        began = time.perf_counter()
        take_steps(model, words.steps)
        step_s = (time.perf_counter() - began) / words.steps
    print(f"{words.model}: {words.layers} layers, {words.rows} rows of {words.kv} tokens, torch "
          f"{torch.__version__}, {words.device}")
    print(f"  step      {1e3 * step_s:.3f} ms, {1e6 * step_s / words.layers:.1f} us a layer")


if __name__ == "__main__":
    main()

"""torch_loop.py: runs whole layers of a model in torch, with cuBLAS, in one CUDA graph.

    examples/torch_loop.py --rows 8 --kv 2048
    examples/torch_loop.py --device cpu --layers 2 --kv 64 --steps 2 --check

It runs the same step as `build/layers run`: RMSNorm, one product for q, k and v, RoPE, append and
attention, the output's product, RMSNorm, one product for gate and up, the activation, and down.
figraph.torch does the work between the products. Weights and caches are random. The script prints
the time of a step; --check compares a step with plain torch in float32.
"""

import argparse
import time

import figraph
import figraph.torch as ft
import torch

PAGE, GROWTH = 16, 64  # tokens of a page; tokens that rows grow by before they start over


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
    """The weights of a layer, [out][in], scaled so that products keep numbers near one."""

    def __init__(self, spec, make):
        hidden, width = spec.q_heads * spec.head_dim, spec.ffn_width
        heads = (spec.q_heads + 2 * spec.kv_heads) * spec.head_dim
        added = (2 * spec.layers) ** -0.5
        self.qkv = make(heads, hidden) * (2 * hidden**-0.5)
        self.output = make(hidden, hidden) * (added * hidden**-0.5)
        self.gate_up = make(2 * width, hidden) * hidden**-0.5
        self.down = make(hidden, width) * (added * width**-0.5)


class Model:
    """Random layers, with caches as if the prompt of each row had been processed."""

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

    def make(self, *shape):
        return torch.randn(shape, dtype=torch.bfloat16, device=self.device)

    def normed(self, added, residual):
        return ft.rms_norm(added, self.norm, residual=residual)

    def split(self, qkv):
        """Returns q, k and v as views of one array."""
        q, kv = self.spec.q_heads, self.spec.kv_heads
        return qkv.view(self.rows, -1, self.spec.head_dim).split((q, kv, kv), 1)

    def loop(self):
        """Runs one step, which capture() captures. Leaves its result in state for the next step."""
        residual = self.state.clone()
        normed = ft.rms_norm(residual, self.norm)
        self.step.plan()
        for n, layer in enumerate(self.layers):
            out = self.step.attend(n, *self.split(normed @ layer.qkv.T))
            normed = self.normed(out.view(self.rows, -1) @ layer.output.T, residual)
            act = self.step.act(n, normed @ layer.gate_up.T)
            normed = self.normed(act @ layer.down.T, residual)
        self.state.copy_(normed)
        self.step.advance()


# ---- The same in plain torch, in float32 ---------------------------------------------------------


def turn(x, position, rope):
    """Rotates element i of each head with element i + d / 2. Llama 3 slows long wavelengths
    down."""
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
    """Returns the result of a step of that length, from caches that end before the step's token."""
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

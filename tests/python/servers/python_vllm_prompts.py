"""python_vllm_prompts.py: tests prompts and mixed batches in figraph.integrations.vllm.

    tests/python/servers/python_vllm_prompts.py

Run where torch and figraph can be imported. The stubs and the comparison are those of
python_vllm.py.
"""

import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import torch  # noqa: E402
from python_vllm import DIM, KV, PAGE, PAGES, Q, Setting, attended, batch, builder  # noqa: E402
from python_vllm import impl, ours, paged_decode, pool, run  # noqa: E402

from figraph.integrations import prompt_batch  # noqa: E402

HALF = torch.float16
COUNTS, LENGTHS = (30, 1, 9), (40, 20, 77)  # a chunk of a prompt, a decode step, another chunk


def known(lengths=LENGTHS, counts=COUNTS, padding=0, **changes):
    """Returns a batch whose numbers the host knows, with padding as vLLM has it."""
    given = batch(lengths, counts, padding)
    given.query_start_loc_cpu = given.query_start_loc.clone()
    given.seq_lens_cpu_upper_bound = given.seq_lens.clone()
    given.max_seq_len = max(lengths)
    for name, value in changes.items():
        setattr(given, name, value)
    return given


def setting_of(given, made=None, dtype=HALF, layout="nhd"):
    return Setting(made or impl(), pool(dtype, layout), given.num_actual_tokens + 2, dtype)


def is_figraphs(given, setting=None, tolerance=4e-3, counts=COUNTS, **options):
    setting = setting or setting_of(given)
    metadata = builder().build(0, given)
    assert isinstance(metadata.figraph, prompt_batch.PromptBatch)
    assert attended(lambda: setting.is_right(metadata, tolerance, rows=sum(counts),
                                             **options)) == (1, 0)


def is_tritons(given, setting=None, **options):
    metadata = builder(**options).build(0, given)
    assert attended(lambda: (setting or setting_of(given)).is_right(metadata, 4e-3,
                                                                    rows=sum(COUNTS))) == (0, 1)


def figraph_serves_prompts_and_mixed_batches_correctly():
    for counts in (COUNTS, (17, 1, 1), (40, 20, 77), (1, 1, 17), (17, 0, 3)):
        for layout in ("nhd", "hnd"):
            for dtype, tolerance in ((HALF, 4e-3), (torch.bfloat16, 3e-2)):
                for padding in (0, 2):
                    given = known(counts=counts, padding=padding)
                    is_figraphs(given, setting_of(given, None, dtype, layout), tolerance, counts)


def windows_caps_and_sinks_are_right():
    for changes in (dict(sliding_window=9), dict(logits_soft_cap=3.0), dict(sinks=torch.randn(Q)),
                    dict(sliding_window=20, sinks=torch.randn(Q), logits_soft_cap=5.0)):
        given = known()
        is_figraphs(given, setting_of(given, impl(**changes)))


def layers_share_one_plan_for_each_window():
    given = known()
    metadata = builder().build(0, given)
    was = paged_decode.counts.plans
    for _ in range(2):
        for window in (None, 9, None, 9):
            setting = setting_of(given, impl(sliding_window=window))
            assert attended(lambda: setting.is_right(metadata, 4e-3)) == (1, 0)
    assert paged_decode.counts.plans - was == 2


def lengths_that_may_be_bounds_are_not_taken():
    """Rejected drafts, and builders of local attention and of static sinks, make rows shorter or
    longer than the host's bounds."""
    is_tritons(known(), speculation=types.SimpleNamespace())
    cut = torch.tensor([40, 20, 77, 5], dtype=torch.int32)
    for changes in (dict(seq_lens_cpu_upper_bound=None), dict(max_seq_len=76),
                    dict(num_actual_tokens=sum(COUNTS) - 1),
                    dict(seq_lens_cpu_upper_bound=cut[:2]),
                    dict(seq_lens_cpu_upper_bound=torch.tensor([29, 20, 77]))):
        assert not hasattr(builder().build(0, known(**changes)), "figraph"), changes
    assert hasattr(builder().build(0, known(seq_lens_cpu_upper_bound=cut)), "figraph")
    sinks = builder()
    sinks.sink_len = 16
    assert not hasattr(sinks.build(0, known()), "figraph")
    assert not hasattr(builder().build(0, known(causal=False)), "figraph")
    assert not hasattr(builder().build(16, known()), "figraph")


def the_host_reads_lengths_when_the_batch_is_built():
    """vLLM fills the same memory for its next step while this one runs."""
    given = known()
    metadata, setting = builder().build(0, given), setting_of(given)
    given.seq_lens_cpu_upper_bound.fill_(1)
    given.query_start_loc_cpu.fill_(0)
    assert attended(lambda: setting.is_right(metadata, 4e-3, rows=sum(COUNTS))) == (1, 0)


def no_graph_captures_prompts():
    given = known()
    assert not hasattr(builder().build_for_cudagraph_capture(known()), "figraph")
    assert isinstance(builder().build(0, given).figraph, prompt_batch.PromptBatch)
    decode = builder().build_for_cudagraph_capture(batch())
    assert isinstance(decode.figraph, paged_decode.Batch)


def tokens_without_a_slot_are_not_stored():
    """Tests tokens of a trial step, and tokens after the end of the batch, whose slots are
    stale."""
    given = known()
    given.slot_mapping[sum(COUNTS) :] = 3
    given.num_actual_tokens += 2
    setting = setting_of(given)
    was = setting.kv_cache.clone()
    out = torch.full(setting.q.shape, 7.0, dtype=HALF)

    def stepped():
        setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache,
                             builder().build(0, given), out)

    stepped()
    assert torch.equal(setting.kv_cache[0], was[0]) and not torch.equal(setting.kv_cache, was)
    assert bool((out[sum(COUNTS) :] == 7.0).all())
    was = setting.kv_cache.clone()
    given.slot_mapping.fill_(-1)
    stepped()
    assert torch.equal(setting.kv_cache, was)


def a_batch_without_tokens_is_a_batch():
    given = known()
    given.query_start_loc_cpu.fill_(0)
    metadata, setting = builder().build(0, given), setting_of(given)
    out, was = torch.full(setting.q.shape, 7.0, dtype=HALF), setting.kv_cache.clone()
    setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache, metadata,
                         out)
    assert bool((out == 7.0).all()) and torch.equal(setting.kv_cache, was)


def a_layer_that_reads_anothers_cache_appends_nothing():
    given = known()
    setting = setting_of(given, impl(attn_type="decoder", kv_sharing_target_layer_name="0"))
    is_figraphs(given, setting, append=False)


def batch_invariance_plans_each_row_by_itself():
    ours.envs.VLLM_BATCH_INVARIANT = True
    try:
        made = builder().build(0, known())
    finally:
        ours.envs.VLLM_BATCH_INVARIANT = False
    assert made.figraph._deterministic and not builder().build(0, known()).figraph._deterministic
    given = known()
    setting = setting_of(given)
    setting.is_right(made, 4e-3)
    assert all(plan.shape.deterministic for plan in made.figraph._plans.values())


def layers_that_cannot_take_prompts_go_to_triton_and_the_log_says_why():
    slopes = [0.5] * Q
    for made, dtype, words in ((impl(alibi_slopes=slopes), HALF, "prompts with ALiBi"),
                               (impl(), torch.float32, "prompts of float32 over a cache of fl"),
                               (impl(kv_cache_dtype="fp8"), HALF, "over a cache of float8_e4m3fn")):
        ours.logger.said.clear()
        given = known()
        kv_cache = pool(torch.uint8 if made.kv_cache_dtype == "fp8" else dtype)
        setting = Setting(made, kv_cache, given.num_actual_tokens, dtype)
        is_tritons(given, setting)
        assert len(ours.logger.said) == 1 and words in ours.logger.said[0], ours.logger.said
        # the decode steps of the same layer stay figraph's
        steps = Setting(made, kv_cache, 3, dtype)
        assert attended(lambda: steps.is_right(builder().build(0, batch()), 5e-3)) == (1, 0)
    refused = prompt_batch.refusal(paged_decode.Layer(130, 2, DIM, paged_decode.ft.Logits(1.0)),
                                   HALF, HALF, impl()._sides(pool(HALF)))
    assert "q_heads is 130" in refused, refused


def on_gpus_only_the_fast_kernels_serve_prompts():
    """The other kernels are correct but slower than Triton."""
    layer = paged_decode.Layer(Q, KV, DIM, paged_decode.ft.Logits(1.0))
    odd = paged_decode.Layer(Q, KV, 80, paged_decode.ft.Logits(1.0))
    alone = paged_decode.Layer(Q, 1, DIM, paged_decode.ft.Logits(1.0))

    def slowness(pages, capability=(9, 0), of=layer):
        return prompt_batch.slowness(of, impl()._sides(pages).k, capability)

    for layout in ("nhd", "hnd"):
        assert slowness(pool(HALF, layout)) is None
        assert slowness(pool(HALF, layout), (10, 0)) == \
            "prompts with heads of 64 on compute capability (10, 0)"
    assert "heads of 80" in slowness(pool(HALF), of=odd)
    apart = torch.zeros(PAGES, KV + 1, PAGE, 2 * DIM, dtype=HALF)[:, :KV]  # no equal parts of pages
    assert f"strides [{(KV + 1) * PAGE * 2 * DIM}, 128, 2048, 1]" in slowness(apart)
    between = torch.zeros(PAGES, PAGE, KV, 2 * DIM + 8, dtype=HALF).transpose(1, 2)
    assert "strides" in slowness(between[..., : 2 * DIM])
    one = apart.as_strided((PAGES, 1, PAGE, 2 * DIM), (PAGE * 2 * DIM + 8, 7, 2 * DIM, 1))
    assert slowness(one, of=alone) is None


CASES = [
    figraph_serves_prompts_and_mixed_batches_correctly,
    windows_caps_and_sinks_are_right,
    layers_share_one_plan_for_each_window,
    lengths_that_may_be_bounds_are_not_taken,
    the_host_reads_lengths_when_the_batch_is_built,
    no_graph_captures_prompts,
    tokens_without_a_slot_are_not_stored,
    a_batch_without_tokens_is_a_batch,
    a_layer_that_reads_anothers_cache_appends_nothing,
    batch_invariance_plans_each_row_by_itself,
    layers_that_cannot_take_prompts_go_to_triton_and_the_log_says_why,
    on_gpus_only_the_fast_kernels_serve_prompts,
]

if __name__ == "__main__":
    run(CASES)

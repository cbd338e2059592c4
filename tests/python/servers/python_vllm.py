"""python_vllm.py: tests figraph.integrations.vllm on the CPU, with stubs for vLLM's classes.

    tests/python/servers/python_vllm.py

Run where torch and figraph can be imported. Each result of figraph is compared with the stubs'
attention, which computes in float64 in place of vLLM's Triton kernels.
"""

import importlib
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../support"), HERE]
import torch  # noqa: E402
import vllm_stubs as stubs  # noqa: E402

stubs.install()
from figraph.integrations import paged_decode, vllm as figraph_vllm  # noqa: E402
from figraph.integrations.vllm import attention_backend as ours  # noqa: E402
from sentences import run  # noqa: E402

PAGES, PAGE, Q, KV, DIM = 24, 16, 8, 2, 64
LONGEST = 16  # queries of a row that decode kernels take with these heads
WIDTH = 5  # the number of pages of a row
torch.manual_seed(3)


def config(tokens=4096, speculation=None, kv_heads=KV):
    model = types.SimpleNamespace(max_model_len=tokens, get_num_attention_heads=lambda ranks: Q,
                                  get_num_kv_heads=lambda ranks: kv_heads)
    return types.SimpleNamespace(model_config=model, parallel_config=None,
                                 speculative_config=speculation)


def builder(**options):
    return ours.FigraphMetadataBuilder(None, ["0"], config(**options), torch.device("cpu"))


def impl(**changes):
    given = dict(alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, num_kv_heads=KV)
    options = {name: changes.pop(name) for name in ("sinks", "chunk_lookback", "use_alibi_sqrt")
               if name in changes}
    given.update(changes)
    made = ours.FigraphImpl(Q, DIM, 0.2, given.pop("num_kv_heads"), given.pop("alibi_slopes"),
                            given.pop("sliding_window"), given.pop("kv_cache_dtype"),
                            given.pop("logits_soft_cap"), *given.values(), **options)
    made.process_weights_after_loading(torch.float32)
    return made


def pool(dtype=torch.float32, layout="nhd"):
    """Returns packed pages in vLLM's logical order, [pages, kv_heads, tokens, 2 * dim]."""
    if layout == "nhd":
        made = torch.randn(PAGES, PAGE, KV, 2 * DIM).transpose(1, 2)
    else:
        made = torch.randn(PAGES, KV, PAGE, 2 * DIM)
    if dtype == torch.uint8:
        return made.to(torch.float8_e4m3fn).view(dtype)
    return made.to(dtype)


def slots_of(table, lengths, counts):
    """Returns the slots in which vLLM stores the last tokens of each row."""
    made = []
    for row, (length, count) in enumerate(zip(lengths, counts)):
        for at in range(length - count, length):
            made.append(int(table[row, at // PAGE]) * PAGE + at % PAGE)
    return made


def batch(lengths=(40, 1, 77), counts=(1, 1, 1), padding=0, **changes):
    """Returns the metadata that vLLM passes to a builder. counts: the number of queries of each
    row. padding: the number of idle rows at the end of a full graph, which have as many slots as
    the others but no queries."""
    rows = len(lengths) + padding
    table = torch.zeros(rows, WIDTH, dtype=torch.int32)
    order = torch.randperm(PAGES - 1)[: len(lengths) * WIDTH] + 1  # no row uses page 0
    table[: len(lengths)] = order.view(-1, WIDTH).int()
    starts = torch.tensor([0, *counts, *([0] * padding)]).cumsum(0).int()
    tokens = sum(counts) + padding * max(counts)
    slots = torch.full((tokens + 3,), -1, dtype=torch.int64)
    slots[: sum(counts)] = torch.tensor(slots_of(table, lengths, counts))
    given = dict(query_start_loc=starts, num_reqs=rows, num_actual_tokens=tokens,
                 seq_lens=torch.tensor([*lengths, *([0] * padding)], dtype=torch.int32),
                 max_query_len=max(counts), block_table_tensor=table, slot_mapping=slots)
    return stubs.CommonAttentionMetadata(**{**given, **changes})


class Setting:
    """A layer with its cache and inputs."""

    def __init__(self, made, kv_cache, tokens, dtype=torch.float32):
        self.impl, self.kv_cache, self.dtype = made, kv_cache, dtype
        self.layer = types.SimpleNamespace(_k_scale=torch.tensor(0.5), _v_scale=torch.tensor(2.0))
        qkv = torch.randn(tokens, Q + 2 * KV, DIM).to(dtype)
        self.q, self.k, self.v = qkv.split((Q, KV, KV), 1)  # views, as from a fused projection

    def step(self, metadata, append=True):
        """Makes the calls that vLLM's layer makes, and returns figraph's output and the
        reference."""
        twin, cache = self.kv_cache.clone(), self.kv_cache
        out = torch.full(self.q.shape, 7.0, dtype=self.dtype)
        got = self.impl.forward(self.layer, self.q, self.k if append else None,
                                self.v if append else None, cache, metadata, out)
        assert got is out
        wanted = torch.full(self.q.shape, 7.0, dtype=torch.float64)
        if append:
            stubs.TritonAttentionImpl.do_kv_cache_update(self.impl, self.layer, self.k, self.v,
                                                         twin, metadata.slot_mapping)
        stubs.TritonAttentionImpl.forward(self.impl, self.layer, self.q, None, None, twin, metadata,
                                          wanted)
        assert torch.equal(cache, twin), "the caches differ"
        return out, wanted

    def is_right(self, metadata, tolerance=1e-5, rows=None, **options):
        out, wanted = self.step(metadata, **options)
        difference = (out.double() - wanted).abs()[:rows].max().item()
        assert difference < tolerance, difference


def attended(call):
    """Returns the number of attention calls that figraph computed, and the number that it passed
    on."""
    was = paged_decode.counts.attended, paged_decode.counts.passed_on
    call()
    return paged_decode.counts.attended - was[0], paged_decode.counts.passed_on - was[1]


def figraph_serves_decode_steps_correctly():
    for layout in ("nhd", "hnd"):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2),
                                 (torch.float16, 3e-3)):
            setting = Setting(impl(), pool(dtype, layout), 3, dtype)
            metadata = builder().build(0, batch())
            assert attended(lambda: setting.is_right(metadata, tolerance)) == (1, 0)


def windows_caps_sinks_and_slopes_are_right():
    slopes = [2.0 ** -n for n in range(Q)]
    for changes in (dict(sliding_window=9), dict(logits_soft_cap=3.0), dict(alibi_slopes=slopes),
                    dict(sinks=torch.randn(Q)), dict(sinks=torch.randn(Q).bfloat16()),
                    dict(sliding_window=20, sinks=torch.randn(Q), logits_soft_cap=5.0)):
        setting = Setting(impl(**changes), pool(), 3)
        assert attended(lambda: setting.is_right(builder().build(0, batch()))) == (1, 0), changes


def sinks_loaded_again_reach_the_tensor_of_captured_graphs():
    sinks = torch.nn.Parameter(torch.randn(Q))
    setting = Setting(impl(sinks=sinks), pool(), 3)
    setting.is_right(builder().build(0, batch()))
    held = setting.impl._layer.sinks
    with torch.no_grad():
        sinks += 3
    setting.impl.process_weights_after_loading(torch.float32)
    assert setting.impl._layer.sinks is held and torch.equal(held, sinks.detach())
    setting.is_right(builder().build(0, batch()))


def caches_of_8_bits_are_right_with_scales():
    for name in ("fp8", "fp8_e4m3"):
        for layout in ("nhd", "hnd"):
            setting = Setting(impl(kv_cache_dtype=name), pool(torch.uint8, layout), 3,
                              torch.float16)
            metadata = builder().build(0, batch())
            assert attended(lambda: setting.is_right(metadata, 5e-3)) == (1, 0)


def idle_rows_of_a_full_graph_are_zeros():
    setting = Setting(impl(), pool(), 8)
    metadata = builder().build(0, batch(padding=5))
    out, wanted = setting.step(metadata)
    assert (out[:3].double() - wanted[:3]).abs().max() < 1e-5
    assert not out[3:].any()


def tokens_behind_the_batch_stay_as_they_are():
    setting = Setting(impl(), pool(), 6)
    out, _ = setting.step(builder().build(0, batch()))
    assert (out[3:] == 7).all()


def a_row_without_a_slot_writes_nothing():
    """vLLM makes such trial steps while it serves; their page tables belong to rows that have
    ended."""
    setting = Setting(impl(), pool(), 3)
    given = batch()
    given.slot_mapping.fill_(-1)
    was = setting.kv_cache.clone()
    out = torch.full(setting.q.shape, 7.0)
    setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache,
                         builder().build(0, given), out)
    assert torch.equal(setting.kv_cache, was) and not out.any()


def rows_without_a_slot_are_idle_in_one_kernel():
    lengths = torch.tensor([5, 9, 1, 4096], dtype=torch.int32)
    slots = torch.tensor([17, -1, 0, (1 << 31) + 5, -1, -1])
    busy = paged_decode.Batch(lengths, torch.zeros(4, 1).int(), slots)._busy_lengths()
    assert busy.dtype == torch.int32 and busy.tolist() == [5, 0, 1, 4096]
    assert paged_decode.Batch(lengths, torch.zeros(4, 1).int())._busy_lengths() is lengths
    drafts = torch.tensor([1, 2, 3, -1, -1, -1, 7, 8, 9, -1, -1, -1])
    busy = paged_decode.Batch(lengths, torch.zeros(4, 1).int(), drafts, row_tokens=3)
    assert busy._busy_lengths().tolist() == [5, 0, 1, 0]


def layers_share_one_plan_for_each_window_and_pass():
    layers = [Setting(impl(sliding_window=window), pool(), 3) for window in (None, 9, None, 9)]
    metadata = builder().build(0, batch())
    was = paged_decode.counts.plans
    for n, _ in enumerate(("a pass", "a second pass with the same metadata")):
        for setting in layers:
            setting.is_right(metadata)
        assert paged_decode.counts.plans - was == 2 * (n + 1)
        # a loop over draft tokens does this
        metadata.seq_lens += torch.tensor([1, 1, -1], dtype=torch.int32)
        metadata.slot_mapping[:3] = torch.tensor(
            slots_of(metadata.block_table, metadata.seq_lens.tolist(), (1, 1, 1)))


def a_layer_that_reads_anothers_cache_appends_nothing():
    setting = Setting(impl(attn_type="decoder", kv_sharing_target_layer_name="0"), pool(), 3)
    metadata = builder().build(0, batch())
    assert attended(lambda: setting.is_right(metadata, append=False)) == (1, 0)
    was = setting.kv_cache.clone()
    for given in (metadata, builder().build(0, batch(counts=(3, 1, 1))),
                  builder().build(0, batch(counts=(17, 1, 1)))):
        setting = Setting(setting.impl, setting.kv_cache, given.num_actual_tokens)
        setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache,
                             given, torch.empty_like(setting.q))
    assert torch.equal(setting.kv_cache, was)


def prompts_whose_lengths_the_host_does_not_know_go_to_triton():
    for counts in ((17, 1, 1), (3, 1, 70), (17, 17, 17), (2, 20, 1)):
        lengths = (40, 1 + counts[1], 77)
        setting = Setting(impl(), pool(), sum(counts))
        metadata = builder().build(0, batch(lengths, counts))
        assert getattr(metadata, "figraph", None) is None
        assert attended(lambda: setting.is_right(metadata)) == (0, 1)


def figraph_serves_rows_of_unequal_numbers_of_queries():
    """Tests drafts and ends of prompts beside rows that decode, with idle rows and padding as in a
    graph."""
    for counts in ((5, 1, 1), (2, 3, 1), (16, 1, 7), (1, 4, 4)):
        for layout in ("nhd", "hnd"):
            for padding in (0, 2):
                lengths = (40, 1 + counts[1], 77)
                given = batch(lengths, counts, padding)
                setting = Setting(impl(), pool(layout=layout), given.num_actual_tokens + 2)
                metadata = builder().build(0, given)
                assert attended(lambda: setting.is_right(metadata, rows=sum(counts))) == (1, 0)
    for changes, name in ((dict(sliding_window=9), "auto"), (dict(sinks=torch.randn(Q)), "auto"),
                          (dict(logits_soft_cap=3.0), "auto"), ({}, "fp8"),
                          (dict(alibi_slopes=[0.5] * Q), "auto")):
        dtype, cache = ((torch.float32, pool()) if name == "auto" else
                        (torch.float16, pool(torch.uint8)))
        setting = Setting(impl(kv_cache_dtype=name, **changes), cache, 9, dtype)
        metadata = builder().build(0, batch((40, 9, 77), (4, 1, 4)))
        assert attended(lambda: setting.is_right(metadata, 5e-3)) == (1, 0), changes


def a_graph_of_drafts_serves_every_batch():
    """A graph reads tensors that vLLM fills before each replay. So metadata that was built for rows
    of equal numbers of queries must also serve rows of other numbers, whatever the host knew."""
    first = batch((40, 20, 77, 31), (4, 4, 4, 4))
    setting, metadata = Setting(impl(), pool(), 16), builder().build(0, first)
    table, page = first.block_table_tensor, PAGE
    assert page == setting.kv_cache.shape[2]
    for lengths, counts in (((41, 20, 77, 31), (1, 4, 3, 2)), ((9, 0, 70, 5), (4, 0, 4, 1)),
                            ((7, 33, 60, 0), (2, 2, 1, 0)), ((40, 20, 77, 31), (4, 4, 4, 4))):
        used = sum(counts)
        metadata.seq_lens.copy_(torch.tensor(lengths))
        metadata.query_start_loc.copy_(torch.tensor([0, *counts]).cumsum(0))
        metadata.slot_mapping.fill_(-1)
        metadata.slot_mapping[:used] = torch.tensor(slots_of(table, lengths, counts))
        assert attended(lambda: setting.is_right(metadata, rows=used)) == (1, 0)
    was = setting.kv_cache.clone()
    metadata.slot_mapping.fill_(-1)  # a trial step
    setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache, metadata,
                         torch.empty_like(setting.q))
    assert torch.equal(setting.kv_cache, was)


def padded_keys_of_a_mixed_batch_are_not_stored():
    counts = (17, 1, 1)
    setting = Setting(impl(), pool(), sum(counts) + 9)
    given = batch((40, 2, 77), counts)
    out, wanted = setting.step(builder().build(0, given))
    tokens = sum(counts)
    assert (out[:tokens].double() - wanted[:tokens]).abs().max() < 1e-5
    given.slot_mapping[tokens:] = 3  # slots that an earlier batch left there
    was = setting.kv_cache[0, :, 3].clone()
    setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache,
                         builder().build(0, given), out)
    assert torch.equal(setting.kv_cache[0, :, 3], was)


def all_keys_of_an_encoder_are_stored():
    """An encoder's keys do not belong to the batch's tokens, so their number may differ."""
    setting = Setting(impl(attn_type="encoder_decoder"), pool(), 30)
    given = batch(slot_mapping=torch.arange(30) + PAGE)
    setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache,
                         builder().build(0, given), torch.empty_like(setting.q))
    stored = setting.kv_cache[1:3, ..., :DIM].transpose(1, 2).flatten(0, 1)
    assert torch.equal(stored[:30], setting.k)


def unsupported_batches_of_one_query_per_row_go_to_triton():
    """Tests masks that are not causal, shared prefixes, rows without a token, and models whose
    context is too long."""
    doubt = (dict(causal=False), dict(causal=torch.ones(3, dtype=torch.bool)),
             dict(mm_req_doc_ranges={0: [(1, 4)]}), dict(rswa_prefix_lens=torch.ones(3)),
             dict(num_actual_tokens=2), dict(max_query_len=LONGEST + 1))
    for changes in doubt:
        assert not hasattr(builder().build(0, batch(**changes)), "figraph"), changes
    assert not hasattr(builder().build(16, batch()), "figraph")
    assert not hasattr(builder(tokens=(1 << 20) + 1).build(0, batch()), "figraph")
    assert hasattr(builder(tokens=1 << 20).build(0, batch()), "figraph")


def a_batch_of_more_rows_than_a_call_takes_goes_to_triton():
    made, kv_cache = impl(), pool()
    for counts in ((1,), (2, 1)):
        for rows, served in ((1024, True), (1025, False)):
            one = batch((3,) * len(counts), counts)
            given = batch((3,) * len(counts), counts, padding=rows - len(counts),
                          num_actual_tokens=sum(counts))
            given.block_table_tensor[: len(counts)] = one.block_table_tensor
            given.slot_mapping[: sum(counts)] = one.slot_mapping[: sum(counts)]
            if max(counts) == 1:
                given.num_actual_tokens = rows
            setting = Setting(made, kv_cache, given.num_actual_tokens)
            metadata = builder().build(0, given)
            assert hasattr(metadata, "figraph")
            ours.logger.said.clear()
            assert attended(lambda: setting.is_right(metadata, rows=sum(counts))) == \
                (served, not served), (counts, rows)
            assert ours.logger.said == ([] if served else [
                "figraph leaves batches to Triton: a batch of more than 1024 rows"])
    wide = paged_decode.Batch(torch.zeros(513, dtype=torch.int32), torch.zeros(513, 1 << 16))
    heads = paged_decode.Layer(32, 32, DIM, paged_decode.ft.Logits(1.0))
    assert wide.excess(heads, 16) == "a batch of more than 512 rows"
    assert wide.excess(heads, 8) is None


def a_layer_that_figraph_refuses_goes_to_triton_and_the_log_says_why():
    slopes = [0.5] * Q
    cases = (
        (dict(kv_cache_dtype="int8_per_token_head"), "a cache of int8_per_token_head"),
        (dict(attn_type="encoder_decoder"), "attention of type encoder_decoder"),
        (dict(use_alibi_sqrt=True, alibi_slopes=slopes), "square roots in ALiBi"),
        (dict(chunk_lookback=2), "chunks that look back"),
        (dict(alibi_slopes=slopes, logits_soft_cap=2.0), "ALiBi beside a soft cap"),
        (dict(alibi_slopes=slopes, sinks=torch.zeros(Q)), "ALiBi beside a soft cap or sinks"),
    )
    for changes, words in cases:
        ours.logger.said.clear()
        setting = Setting(impl(**changes), pool(), 3)
        metadata = builder().build(0, batch())
        assert attended(lambda: setting.step(metadata)) == (0, 1), changes
        # figraph's class has appended once, and the reference once
        assert setting.impl.appended == 2
        setting.step(metadata)
        assert len(ours.logger.said) == 1 and words in ours.logger.said[0], ours.logger.said
    ours.logger.said.clear()
    setting = Setting(impl(num_kv_heads=Q), torch.randn(PAGES, Q, PAGE, 2 * DIM), 3)
    assert setting.impl._refusal(1, setting.q.double(), setting.kv_cache) == \
        "queries of float64 over a cache of float32"
    words = setting.impl._refusal(1, setting.q, torch.zeros(2, PAGES, PAGE, Q, DIM))
    assert "it must be [pages, kv_heads, tokens, 128]" in words, words
    wide = paged_decode.Layer(16, 1, DIM, paged_decode.ft.Logits(1.0))
    assert wide.refusal(torch.float16, torch.float16, PAGE, 4, 4) is None
    words = wide.refusal(torch.float16, torch.float16, PAGE, 5, 5)
    assert words == "80 queries of a kv head in a row, limit 64", words
    odd = paged_decode.Layer(6, 4, DIM, paged_decode.ft.Logits(1.0))
    assert "q_heads" in odd.refusal(torch.float32, torch.float32, PAGE)


def figraph_serves_rows_of_several_queries():
    """Tests the same number of draft tokens in each row, with and without idle rows after them, as
    in a graph."""
    for tokens in (2, 5, LONGEST):
        for padding in (0, 2):
            setting = Setting(impl(), pool(), (3 + padding) * tokens)
            given = batch((40, tokens, 77), 3 * (tokens,), padding)
            metadata = builder().build(0, given)
            assert attended(lambda: setting.is_right(metadata, rows=3 * tokens)) == (1, 0)
    for changes, name in ((dict(sliding_window=9), "auto"), (dict(sinks=torch.randn(Q)), "auto"),
                          (dict(logits_soft_cap=3.0), "auto"), ({}, "fp8")):
        dtype, cache = ((torch.float32, pool()) if name == "auto" else
                        (torch.float16, pool(torch.uint8)))
        setting = Setting(impl(kv_cache_dtype=name, **changes), cache, 12, dtype)
        metadata = builder().build(0, batch((40, 9, 77), (4, 4, 4)))
        assert attended(lambda: setting.is_right(metadata, 5e-3)) == (1, 0), changes


def drafts_may_move_between_rows():
    """Adaptive verification changes the number of a row's queries on the GPU, unknown to the host,
    which only knows a bound."""
    moving = types.SimpleNamespace(enable_adaptive_verification=True)
    drafts = batch((40, 14, 77), (1, 5, 3), max_query_len=6)
    setting, metadata = Setting(impl(), pool(), 9), builder(speculation=moving).build(0, drafts)
    assert attended(lambda: setting.is_right(metadata)) == (1, 0)


def batch_invariance_plans_each_row_by_itself():
    """A row's bits do not depend on the other rows."""
    ours.envs.VLLM_BATCH_INVARIANT = True
    try:
        setting = Setting(impl(), pool(), 3)
        made = builder().build(0, batch())
        assert made.figraph._deterministic
        setting.is_right(made)
        alone = stubs.CommonAttentionMetadata(
            query_start_loc=torch.tensor([0, 1]), num_reqs=1, num_actual_tokens=1, max_query_len=1,
            seq_lens=made.seq_lens[:1], block_table_tensor=made.block_table[:1],
            slot_mapping=made.slot_mapping[:1])
        outs = []
        for metadata in (made, builder().build(0, alone)):
            out = torch.zeros_like(setting.q)
            setting.impl.forward(setting.layer, setting.q, setting.k, setting.v, setting.kv_cache,
                                 metadata, out)
            outs.append(out[0])
        assert torch.equal(*outs)
    finally:
        ours.envs.VLLM_BATCH_INVARIANT = False
    assert not builder().build(0, batch()).figraph._deterministic


def vllms_trial_without_metadata_goes_to_triton():
    setting = Setting(impl(), pool(), 3)
    out = torch.ones(3, Q, DIM)
    assert attended(lambda: setting.impl.forward(setting.layer, setting.q, setting.k, setting.v,
                                                 setting.kv_cache, None, out)) == (0, 1)
    assert not out.any() and setting.impl.appended == 0


def a_capture_is_built_like_a_step():
    metadata = builder().build_for_cudagraph_capture(batch(padding=1))
    assert metadata.figraph.lengths.tolist() == [1, 1, 1, 1]


def the_classes_say_what_figraph_does():
    backend = ours.FigraphBackend
    assert backend.get_name() == "CUSTOM"
    assert backend.get_impl_cls() is ours.FigraphImpl
    assert backend.get_builder_cls() is ours.FigraphMetadataBuilder
    assert backend.supports_batch_invariance() and backend.forward_includes_kv_cache_update
    assert not ours.FigraphImpl.lse_base_on_e and not ours.FigraphImpl.supports_dcp
    made = impl()
    assert not made.supports_quant_query_input and not made.fused_output_quant_supported(None)
    support = ours.FigraphMetadataBuilder._cudagraph_support
    assert support is stubs.AttentionCGSupport.UNIFORM_BATCH
    for kv_heads, longest in ((Q, 16), (KV, LONGEST), (1, 64 // Q)):
        asked = ours.FigraphMetadataBuilder.get_varlen_cudagraph_max_query_len
        assert asked(config(kv_heads=kv_heads), None) == longest
        made = builder(kv_heads=kv_heads)
        for queries in (longest, longest + 1):
            is_ours = hasattr(made.build(0, batch(max_query_len=queries)), "figraph")
            assert is_ours == (queries == longest), (kv_heads, queries)
    assert [ours.row_limit(*heads) for heads in ((96, 1), (8, 0), (1, 2))] == [1, 8, 16]


def the_entry_point_registers_once_and_leaves_others_alone():
    custom = stubs.AttentionBackendEnum.CUSTOM
    figraph_vllm.register()
    figraph_vllm.register()
    path = stubs.overrides.pop(custom)
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name)  # as vLLM does for each layer
    assert issubclass(found, ours.FigraphBackend) and found.get_name() == custom.name
    stubs.overrides[custom] = "other.Backend"
    with_log = []
    figraph_vllm.logger.warning = lambda *words: with_log.append(words[0] % words[1:])
    figraph_vllm.register()
    assert stubs.overrides.pop(custom) == "other.Backend"
    assert "already other.Backend" in with_log[0]


CASES = [
    figraph_serves_decode_steps_correctly,
    windows_caps_sinks_and_slopes_are_right,
    sinks_loaded_again_reach_the_tensor_of_captured_graphs,
    caches_of_8_bits_are_right_with_scales,
    idle_rows_of_a_full_graph_are_zeros,
    tokens_behind_the_batch_stay_as_they_are,
    a_row_without_a_slot_writes_nothing,
    rows_without_a_slot_are_idle_in_one_kernel,
    layers_share_one_plan_for_each_window_and_pass,
    a_layer_that_reads_anothers_cache_appends_nothing,
    prompts_whose_lengths_the_host_does_not_know_go_to_triton,
    figraph_serves_rows_of_unequal_numbers_of_queries,
    a_graph_of_drafts_serves_every_batch,
    padded_keys_of_a_mixed_batch_are_not_stored,
    all_keys_of_an_encoder_are_stored,
    unsupported_batches_of_one_query_per_row_go_to_triton,
    a_batch_of_more_rows_than_a_call_takes_goes_to_triton,
    a_layer_that_figraph_refuses_goes_to_triton_and_the_log_says_why,
    figraph_serves_rows_of_several_queries,
    drafts_may_move_between_rows,
    batch_invariance_plans_each_row_by_itself,
    vllms_trial_without_metadata_goes_to_triton,
    a_capture_is_built_like_a_step,
    the_classes_say_what_figraph_does,
    the_entry_point_registers_once_and_leaves_others_alone,
]
if __name__ == "__main__":
    run(CASES)

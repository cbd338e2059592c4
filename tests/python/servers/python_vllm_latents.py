"""python_vllm_latents.py: tests latent attention (MLA) of figraph.integrations.vllm on the CPU,
with stubs for vLLM's classes.

    tests/python/servers/python_vllm_latents.py

Run where torch and figraph can be imported. Results are compared with attention in float64.
"""

import importlib
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../support"), os.path.join(HERE, "../../jax"), HERE]
import cases  # noqa: E402
import torch  # noqa: E402
import vllm_latent_stubs as latent_stubs  # noqa: E402
import vllm_stubs as stubs  # noqa: E402

latent_stubs.install()
from figraph.integrations.counts import counts  # noqa: E402
from figraph.integrations.vllm import attention_backend, backend_choice  # noqa: E402
from figraph.integrations.vllm import latent_backend as ours  # noqa: E402
from figraph.torch import latent_operators  # noqa: E402
from sentences import refused, run  # noqa: E402

PAGES, WIDTH = 24, 5  # pages in all; pages of a row
HEADS, SCALE = 16, 192**-0.5
BF16, F16 = torch.bfloat16, torch.float16
TOLERANCE = {BF16: 3e-2, F16: 4e-3}
ROOM = {"auto": 576, "fp8_ds_mla": 656}  # of a token
torch.manual_seed(7)


def config(tokens=4096, drafts=None, rows=256):
    speculation = None if drafts is None else types.SimpleNamespace(num_speculative_tokens=drafts)
    return types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=tokens),
                                 scheduler_config=types.SimpleNamespace(max_num_seqs=rows),
                                 speculative_config=speculation)


def builder(**options):
    return ours.FigraphLatentMetadataBuilder(None, ["0"], config(**options), torch.device("cpu"))


def impl(heads=HEADS, **changes):
    given = dict(alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, attn_type="decoder", kv_sharing_target_layer_name=None,
                 q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
                 qk_head_dim=192, v_head_dim=128, kv_b_proj=None, indexer=None)
    return ours.FigraphLatentImpl(num_heads=heads, head_size=576, scale=SCALE, num_kv_heads=1,
                                  **{**given, **changes})


def pool(dtype=BF16, page=16):
    if dtype is not torch.uint8:
        return torch.randn(PAGES, page, 576).to(dtype)
    made = torch.randint(0, 0x78, (PAGES, page, 656), dtype=torch.uint8)
    made[..., 512:528] = (torch.rand(PAGES, page, 4) / 50 + 0.01).view(torch.uint8)
    made[..., 528:] = torch.randn(PAGES, page, 64).bfloat16().view(torch.uint8)
    return made


def batch(lengths=(40, 1, 77), numbers=(1, 1, 1), padding=0, page=16, **changes):
    """Returns the metadata that vLLM passes to a builder. numbers: the queries of each row.
    padding: the number of idle rows at the end of a full graph, which have as many slots as the
    others but no queries."""
    rows = len(lengths) + padding
    table = torch.zeros(rows, WIDTH, dtype=torch.int32)
    order = torch.randperm(PAGES - 1)[: len(lengths) * WIDTH] + 1  # no row uses page 0
    table[: len(lengths)] = order.view(-1, WIDTH).int()
    starts = torch.tensor([0, *numbers, *([0] * padding)]).cumsum(0).int()
    tokens = sum(numbers) + padding * max(numbers)
    slots = torch.full((tokens,), -1, dtype=torch.int64)
    slots[: sum(numbers)] = torch.arange(sum(numbers)) + page
    given = dict(query_start_loc=starts, query_start_loc_cpu=starts.clone(), num_reqs=rows,
                 num_actual_tokens=tokens, max_query_len=max(numbers),
                 seq_lens=torch.tensor([*lengths, *([0] * padding)], dtype=torch.int32),
                 block_table_tensor=table, slot_mapping=slots)
    return stubs.CommonAttentionMetadata(**{**given, **changes})


def queries(tokens, heads=HEADS, dtype=BF16):
    return torch.randn(tokens, heads, 576).to(dtype)


def attend(made, q, pages, metadata):
    """Makes the call that vLLM's layer makes: the parts of q come from different products."""
    parts = q[..., :512].transpose(0, 1).contiguous().transpose(0, 1), q[..., 512:].contiguous()
    return made.forward_mqa(parts, pages, metadata, None)


def numbers_of(tensor):
    return tensor.numpy() if tensor.dtype == torch.uint8 else tensor.double().numpy()


def is_right(made, q, pages, metadata, result=None):
    """Compares each query with attention in float64 over the tokens that it sees."""
    out, lse = result or attend(made, q, pages, metadata)
    heads = q.shape[1]
    tokens = metadata.num_decode_tokens
    assert out.shape == (tokens, heads, 512) and out.dtype == q.dtype and out.is_contiguous()
    assert lse.shape == (tokens, heads) and lse.dtype == torch.float32
    starts, compared = metadata.query_start_loc.tolist(), 0
    for row in range(metadata.num_decodes):
        length, first, end = int(metadata.decode.seq_lens[row]), *starts[row : row + 2]
        held = pages[metadata.decode.block_table[row].long()].flatten(0, 1)
        for n in range(first, end):
            seen = length - (end - 1 - n)
            wanted = cases.latent_attention(numbers_of(q[n]), numbers_of(held[:seen]), SCALE)
            cases.close(numbers_of(out[n]), wanted[0], TOLERANCE[q.dtype])
            cases.close(numbers_of(lse[n]), wanted[1], 1e-3)
            compared += 1
    assert compared == starts[metadata.num_decodes] > 0


def decode_steps_are_right_for_every_number_of_heads_and_page_size():
    for heads in (8, 16, 128):
        for page in (16, 32, 64):
            for dtype in (BF16, F16):
                metadata = builder().build(0, batch((40, 1, 5 * page - 3), page=page))
                is_right(impl(heads), queries(3, heads, dtype), pool(dtype, page), metadata)


def queries_in_one_tensor_give_the_same_bits():
    made, q, pages, metadata = impl(), queries(3), pool(), builder().build(0, batch())
    whole = made.forward_mqa(q, pages, metadata, None)
    is_right(made, q, pages, metadata, whole)
    for one, other in zip(whole, attend(made, q, pages, metadata)):
        assert torch.equal(one, other)


def passed(parts, pages, metadata):
    """Returns the results of a call, and the tensors that reach the library as q and q_rope."""
    seen, was = [], latent_operators.call

    def call(name, q, *rest):
        seen.append((q, rest[-1]))
        was(name, q, *rest)

    latent_operators.call = call
    try:
        result = impl().forward_mqa(parts, pages, metadata, None)
    finally:
        latent_operators.call = was
    return result, *seen[0]


def the_parts_of_q_are_read_in_place():
    """The part with RoPE lies behind another part of each head, as vLLM's layer leaves it."""
    for numbers in ((1, 1, 1), (1,), (3, 1, 2)):
        lengths = (40, 7, 77)[: len(numbers)]
        metadata, pages = builder().build(0, batch(lengths, numbers)), pool()
        q, whole = queries(sum(numbers)), torch.randn(sum(numbers), HEADS, 192).bfloat16()
        whole[..., 128:] = q[..., 512:]
        parts = q[..., :512].transpose(0, 1).contiguous().transpose(0, 1), whole[..., 128:]
        if len(numbers) == 1:  # a stride that nobody uses
            parts = parts[0], whole.as_strided((1, HEADS, 64), (3, 192, 1), 128)
        result, first, rope = passed(parts, pages, metadata)
        assert first.data_ptr() == parts[0].data_ptr() and first.stride() == parts[0].stride()
        assert rope.data_ptr() == parts[1].data_ptr() and rope.stride() == parts[1].stride()
        is_right(impl(), q, pages, metadata, result)
        _, first, rope = passed(q, pages, metadata)
        assert first.data_ptr() == q.data_ptr() and rope is None


def parts_that_the_fast_kernels_cannot_read_are_joined():
    metadata, q, pages = builder().build(0, batch()), queries(3), pool()
    skewed = torch.empty(3 * HEADS * 64 + 4).bfloat16()[4:].view(3, HEADS, 64)
    odd = torch.empty(3, HEADS, 68).bfloat16()[..., :64]
    spread = torch.empty(3, HEADS, 64, 2).bfloat16()[..., 0]
    q[..., 512:] = q[:, :1, 512:]  # all heads of a query are alike
    for room in (skewed, odd, spread, q[:, :1, 512:].expand(3, HEADS, 64)):
        if room.stride(1) > 0:
            room.copy_(q[..., 512:])
        result, first, rope = passed((q[..., :512].contiguous(), room), pages, metadata)
        assert rope is None and torch.equal(first, q)
        is_right(impl(), q, pages, metadata, result)


def codes_are_read():
    made, pages = impl(kv_cache_dtype="fp8_ds_mla"), pool(torch.uint8)
    for numbers in ((1, 1, 1), (2, 1, 4)):
        metadata = builder().build(0, batch(numbers=numbers, lengths=(40, 1, 77)))
        is_right(made, queries(sum(numbers)), pages, metadata)


def pages_may_have_gaps_between_them():
    """vLLM may store the pages of all layers in one tensor."""
    whole = torch.randn(PAGES, 3, 16, 576).bfloat16()
    is_right(impl(), queries(3), whole[:, 1], builder().build(0, batch()))


def idle_rows_of_a_full_graph_are_zeros():
    q, pages, metadata = queries(8), pool(), builder().build(0, batch(padding=5))
    result = attend(impl(), q, pages, metadata)
    is_right(impl(), q, pages, metadata, result)
    assert not result[0][3:].any()


def a_row_without_a_slot_is_idle():
    """While it serves, vLLM makes trial steps whose page tables belong to rows that have ended."""
    for numbers in ((1, 1, 1), (2, 1, 3)):
        given = batch((40, 7, 77), numbers)
        given.slot_mapping[numbers[0] : numbers[0] + 1] = -1
        out, _ = attend(impl(), queries(sum(numbers)), pool(), builder().build(0, given))
        assert not out[numbers[0]].any() and out[0].any() and out[-1].any()


def rows_of_several_queries_are_right():
    for heads in (16, 128):
        # With (2, 1, 0), there are as many queries as rows.
        for numbers in ((2, 2, 2), (16, 16, 16), (5, 1, 1), (2, 3, 1), (16, 1, 7), (2, 1, 0)):
            for padding in (0, 2):
                given = batch((40, numbers[1], 77), numbers, padding)
                metadata = builder().build(0, given)
                assert metadata.num_decode_tokens == given.num_actual_tokens
                is_right(impl(heads), queries(given.num_actual_tokens, heads), pool(), metadata)
        if heads == 16:
            metadata = builder().build(0, batch((40, 3, 77), (4, 3, 2), page=64))
            is_right(impl(), queries(9, dtype=F16), pool(F16, 64), metadata)


def tokens_of_padding_without_rows_get_an_output():
    """vLLM may round the number of tokens up and leave the number of rows as it is."""
    for numbers in ((1, 1, 1), (3, 1, 2)):
        tokens = sum(numbers) + 4
        given = batch(numbers=numbers, num_actual_tokens=tokens,
                      slot_mapping=torch.arange(tokens) + 16)
        is_right(impl(), queries(tokens), pool(), builder().build(0, given))


def a_graph_of_drafts_serves_every_batch():
    """A graph reads tensors that vLLM fills before each replay. So metadata that was built for rows
    of equal numbers of queries must also serve rows of other numbers, whatever the host knew."""
    made, pages, told = impl(), pool(), torch.tensor([0, 1, 2, 3, 4])
    for drafts, known in ((3, {}), (None, {}), (None, dict(query_start_loc_cpu=told))):
        metadata = builder(drafts=drafts).build_for_cudagraph_capture(
            batch((40, 20, 77, 31), (4, 4, 4, 4), **known))
        for lengths, numbers in (((41, 20, 77, 31), (1, 4, 3, 2)), ((9, 0, 70, 5), (4, 0, 4, 1)),
                                 ((7, 33, 60, 0), (2, 2, 1, 0)), ((40, 20, 77, 31), (4, 4, 4, 4))):
            metadata.decode.seq_lens.copy_(torch.tensor(lengths))
            metadata.query_start_loc.copy_(torch.tensor([0, *numbers]).cumsum(0))
            metadata.slot_mapping.fill_(-1)
            metadata.slot_mapping[: sum(numbers)] = 16
            is_right(made, queries(16), pages, metadata)


def rows_beside_prompts_are_served_with_a_small_bound():
    """The rows that decode come first; vLLM's bound is that of the prompts."""
    for numbers, drafts, longest in (((1, 1, 30), None, 1), ((1, 3, 30), None, 3),
                                     ((1, 3, 17), 3, 16), ((16, 1, 17), None, 16)):
        metadata = builder(drafts=drafts).build(0, batch((40, 20, 77), numbers))
        rows = metadata.decode.figraph
        assert (metadata.num_decodes, metadata.num_prefills) == (2, 1)
        assert (rows.row_tokens, rows.tokens) == (longest, sum(numbers[:2])), numbers
        is_right(impl(), queries(sum(numbers[:2])), pool(), metadata)
    metadata = builder().build(0, batch((40, 20, 77), (30, 17, 20)))
    assert metadata.decode is None and metadata.num_prefills == 3


def layers_share_one_plan_for_each_pass():
    layers, q, pages = [impl() for _ in range(3)], queries(3), pool()
    metadata, was = builder().build(0, batch()), (counts.plans, counts.attended)
    for n in range(2):
        for made in layers:
            is_right(made, q, pages, metadata)
        assert counts.plans - was[0] == n + 1
        metadata.decode.seq_lens += torch.tensor([1, 1, -1], dtype=torch.int32)
    assert counts.attended - was[1] == 6


def batch_invariance_gives_each_row_its_own_bits():
    ours.envs.VLLM_BATCH_INVARIANT = True
    try:
        q, pages, metadata = queries(3), pool(), builder().build(0, batch())
        is_right(impl(), q, pages, metadata)
        assert metadata.decode.figraph._deterministic
        alone = builder().build(0, stubs.CommonAttentionMetadata(
            query_start_loc=torch.tensor([0, 1]), num_reqs=1, num_actual_tokens=1, max_query_len=1,
            seq_lens=metadata.decode.seq_lens[:1], slot_mapping=metadata.slot_mapping[:1],
            block_table_tensor=metadata.decode.block_table[:1]))
        one, three = attend(impl(), q[:1], pages, alone), attend(impl(), q, pages, metadata)
        assert torch.equal(one[0][0], three[0][0]) and torch.equal(one[1][0], three[1][0])
    finally:
        ours.envs.VLLM_BATCH_INVARIANT = False
    assert not builder().build(0, batch()).decode.figraph._deterministic


def layers_that_figraph_cannot_serve_are_refused_by_a_sentence():
    start = "figraph's backend for MLA does not take "
    for words, changes in (
        ("12 query heads, they must be a multiple of 8, limit 128", dict(heads=12)),
        ("136 query heads, they must be a multiple of 8, limit 128", dict(heads=136)),
        ("0 query heads", dict(heads=0)),
        ("tokens of 256 + 64 values, they must have 512 + 64", dict(kv_lora_rank=256)),
        ("tokens of 512 + 0 values, they must have 512 + 64", dict(qk_rope_head_dim=0)),
        ("a cache of fp8", dict(kv_cache_dtype="fp8")),
        ("a cache of nvfp4_ds_mla", dict(kv_cache_dtype="nvfp4_ds_mla")),
        ("tokens that an indexer chooses (DSA)", dict(indexer=object())),
        ("attention of type encoder_only", dict(attn_type="encoder_only")),
        ("ALiBi, windows or soft caps", dict(alibi_slopes=[0.5] * HEADS)),
        ("ALiBi, windows or soft caps", dict(sliding_window=128)),
        ("ALiBi, windows or soft caps", dict(logits_soft_cap=30.0)),
    ):
        refused(start + words, lambda: impl(**changes), (NotImplementedError,))
    for field in ("dcp", "pcp"):
        setattr(latent_stubs.ranks, field, 2)
        try:
            refused(start + "context parallelism", impl, (NotImplementedError,))
        finally:
            setattr(latent_stubs.ranks, field, 1)
    impl(logits_soft_cap=0.0)  # vLLM writes 0 for no cap


def batches_that_figraph_cannot_serve_are_refused_by_a_sentence():
    kinds = (NotImplementedError,)
    refused("rows of 17 queries, limit 16: choose fewer speculative tokens",
            lambda: builder(drafts=16), kinds)
    assert builder(drafts=15).reorder_batch_threshold == 16
    refused("a context of 1048577 tokens, limit 1048576: choose a smaller max_model_len",
            lambda: builder(tokens=(1 << 20) + 1), kinds)
    refused("batches of 1025 rows, limit 1024: lower max_num_seqs", lambda: builder(rows=1025),
            kinds)
    builder(tokens=1 << 20, rows=1024)
    for causal in (False, torch.ones(3, dtype=torch.bool)):
        refused("queries that see later tokens",
                lambda: builder().build(0, batch(causal=causal)), kinds)


def asked(**changes):
    """Returns the reasons that the class under the name CUSTOM gives against a layer."""
    given = dict(head_size=576, dtype=BF16, kv_cache_dtype="auto", block_size=None, use_mla=True,
                 has_sink=False, use_sparse=False, use_mm_prefix=False,
                 use_per_head_quant_scales=False, attn_type="decoder",
                 device_capability=types.SimpleNamespace(major=9, minor=0))
    return backend_choice.FigraphChoice.validate_configuration(**{**given, **changes})


def the_backend_says_which_models_it_takes():
    for taken in (dict(), dict(kv_cache_dtype=None), dict(kv_cache_dtype="bfloat16"),
                  dict(dtype=F16), dict(dtype=F16, kv_cache_dtype="float16"),
                  dict(kv_cache_dtype="fp8_ds_mla"), dict(block_size=16), dict(block_size=64),
                  dict(block_size=48), dict(use_batch_invariant=True),
                  dict(device_capability=types.SimpleNamespace(major=8, minor=0))):
        assert asked(**taken) == [], taken
    for changes, words in (
        (dict(head_size=320), ["head_size not supported"]),
        (dict(dtype=torch.float32), ["dtype not supported"]),
        (dict(block_size=8), ["block_size not supported"]),
        (dict(device_capability=types.SimpleNamespace(major=7, minor=5)),
         ["compute capability not supported"]),
        (dict(use_pcp=True), ["PCP not supported"]),
        (dict(use_dcp=True), ["DCP not supported"]),
        (dict(has_sliding_window=True), ["sliding window not supported"]),
        (dict(use_sparse=True), ["sparse not supported",
                                 "figraph does not take tokens that an indexer chooses (DSA)"]),
        (dict(kv_cache_dtype="fp8"),
         ["kv_cache_dtype not supported",
          "figraph does not read latents of fp8, but of auto, float16, bfloat16 and fp8_ds_mla"]),
        (dict(kv_cache_dtype="float16"),
         ["figraph reads a cache of float16 only in a model of torch.float16, not of "
          "torch.bfloat16"]),
        (dict(dtype=F16, kv_cache_dtype="fp8_ds_mla"),
         ["figraph reads a cache of fp8_ds_mla only in a model of torch.bfloat16, not of "
          "torch.float16"]),
    ):
        assert asked(**changes) == words, (changes, asked(**changes))


def the_classes_say_what_figraph_does():
    backend, builds = ours.FigraphLatentBackend, ours.FigraphLatentMetadataBuilder
    assert backend.get_name() == "CUSTOM" and backend.is_mla()
    assert backend.get_impl_cls() is ours.FigraphLatentImpl
    assert backend.get_builder_cls() is builds
    for name, room in ROOM.items():
        assert backend.get_kv_cache_shape(9, 32, 1, 576, name) == (9, 32, room)
        held = pool(torch.uint8 if room == 656 else BF16, 32)
        assert backend.get_kv_cache_shape(PAGES, 32, 1, 576, name) == held.shape
    made = impl()
    assert made.can_return_lse_for_decode and not made.lse_base_on_e
    assert not made.supports_dcp and not made.supports_pcp
    assert not made.supports_quant_query_input
    assert type(made).forward_mha is latent_stubs.MLACommonImpl.forward_mha
    assert builds._cudagraph_support is stubs.AttentionCGSupport.UNIFORM_BATCH
    assert builds.query_len_support is latent_stubs.QueryLenSupport.VARLEN
    assert builds.reorder_batch_threshold == 16
    assert builds.get_varlen_cudagraph_max_query_len(config(), None) == 16


def one_name_stands_for_both_backends():
    choice = backend_choice.FigraphChoice

    def chosen():
        module, name = choice.full_cls_name()
        return getattr(importlib.import_module(module), name)

    for _ in range(2):
        assert asked() == [] and chosen() is ours.FigraphLatentBackend
        assert asked(head_size=128, use_mla=False) == []
        assert chosen() is attention_backend.FigraphBackend
    assert asked(head_size=128) == ["head_size not supported"]
    assert choice.get_name() == "CUSTOM" == attention_backend.FigraphBackend.get_name()
    for own in (ours.FigraphLatentBackend, attention_backend.FigraphBackend):
        assert own.full_cls_name() == (own.__module__, own.__name__)


CASES = [
    decode_steps_are_right_for_every_number_of_heads_and_page_size,
    queries_in_one_tensor_give_the_same_bits,
    the_parts_of_q_are_read_in_place,
    parts_that_the_fast_kernels_cannot_read_are_joined,
    codes_are_read,
    pages_may_have_gaps_between_them,
    idle_rows_of_a_full_graph_are_zeros,
    a_row_without_a_slot_is_idle,
    rows_of_several_queries_are_right,
    tokens_of_padding_without_rows_get_an_output,
    a_graph_of_drafts_serves_every_batch,
    rows_beside_prompts_are_served_with_a_small_bound,
    layers_share_one_plan_for_each_pass,
    batch_invariance_gives_each_row_its_own_bits,
    layers_that_figraph_cannot_serve_are_refused_by_a_sentence,
    batches_that_figraph_cannot_serve_are_refused_by_a_sentence,
    the_backend_says_which_models_it_takes,
    the_classes_say_what_figraph_does,
    one_name_stands_for_both_backends,
]
if __name__ == "__main__":
    run(CASES)

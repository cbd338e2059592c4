"""python_sglang.py: tests figraph.integrations.sglang on the CPU, with stubs for SGLang's classes.

    tests/python/servers/python_sglang.py

Run where torch and figraph can be imported. Each result of figraph is compared with the stubs'
attention, which computes in float64.
"""

import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../support"), HERE]
import sglang_stubs as stubs  # noqa: E402
import torch  # noqa: E402

stubs.install()
from figraph.integrations import paged_decode, sglang as figraph_sglang  # noqa: E402
from figraph.integrations.sglang import decode_backend as ours  # noqa: E402
from sentences import run  # noqa: E402

PAGE, PAGES, REQUESTS, CONTEXT, Q, KV, DIM = 16, 40, 6, 96, 8, 2, 64
torch.manual_seed(4)


def runner(dtype=torch.float32, page=PAGE, context=CONTEXT, **changes):
    """Returns a model runner in which each request has pages of its own, in random order."""
    pages = torch.randperm(PAGES * PAGE // page)[: REQUESTS * (CONTEXT // page)] + 1
    slots = pages[:, None] * page + torch.arange(page)
    return types.SimpleNamespace(
        req_to_token=slots.view(REQUESTS, CONTEXT).int(), page_size=page, changes=changes,
        max_context_len=context,
        token_to_kv_pool=stubs.MHATokenToKVPool(PAGES * PAGE, page, dtype, KV, DIM, 3))


def layer(layer_id=0, **changes):
    return stubs.RadixAttention(Q, DIM, 0.2, KV, layer_id, **changes)


def batch(held, lengths=(40, 1, 77), requests=(4, 0, 2), known=True, **changes):
    """Returns a decode step of some requests; lengths include this step's token."""
    lengths, requests = torch.tensor(lengths), torch.tensor(requests)
    given = dict(forward_mode=stubs.ForwardMode.DECODE, batch_size=len(lengths), seq_lens=lengths,
                 req_pool_indices=requests, seq_lens_cpu=lengths.clone() if known else None,
                 out_cache_loc=held.req_to_token[requests, lengths - 1].long())
    return stubs.ForwardBatch(**{**given, **changes})


def inputs(rows=3, dtype=torch.float32):
    qkv = torch.randn(rows, Q + 2 * KV, DIM).to(dtype)
    q, k, v = qkv.split((Q, KV, KV), 1)
    return q.reshape(rows, -1), k, v


def attended(call):
    was = paged_decode.counts.attended, paged_decode.counts.passed_on
    call()
    return paged_decode.counts.attended - was[0], paged_decode.counts.passed_on - was[1]


def is_right(backend, one, given, tolerance=1e-5, dtype=torch.float32, sinks=None, rows=None):
    """Runs a layer, and compares it with the stub's attention over the same cache."""
    q, k, v = inputs(given.batch_size, dtype)
    got = backend.forward_decode(q, k, v, one, given, sinks=sinks)
    wanted = stubs.TritonAttnBackend.forward_decode(backend, q, k, v, one, given, sinks=sinks)
    difference = (got.double() - wanted).abs()[:rows].max().item()
    assert got.shape == q.shape and difference < tolerance, difference
    assert got.dtype in (dtype, wanted.dtype)


def figraph_serves_eager_steps_correctly():
    for page in (1, 16, 32):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
            for known in (True, False):
                held = runner(dtype, page)
                backend, given = ours.FigraphAttnBackend(held), batch(held, known=known)
                backend.init_forward_metadata(given)
                assert backend.prepared == ["eager"]
                assert attended(lambda: is_right(backend, layer(), given, tolerance, dtype)) == \
                    (1, 0)


def deterministic_inference_plans_each_row_by_itself():
    held = runner(enable_deterministic=True)
    backend, given = ours.FigraphAttnBackend(held), batch(held)
    backend.init_forward_metadata(given)
    assert backend._batch._deterministic
    assert attended(lambda: is_right(backend, layer(), given)) == (1, 0)


def windows_caps_and_sinks_are_right():
    held = runner()
    backend, given = ours.FigraphAttnBackend(held), batch(held)
    backend.init_forward_metadata(given)
    for n, (changes, sinks) in enumerate(((dict(sliding_window_size=8), None),
                                          (dict(logit_cap=3.0), None),
                                          (dict(sliding_window_size=0), torch.randn(Q)))):
        one = layer(n, **changes)
        assert attended(lambda: is_right(backend, one, given, sinks=sinks)) == (1, 0)


def sinks_that_change_in_place_are_read_in_the_next_step():
    held, sinks, one = runner(), torch.zeros(Q), layer()
    backend, given = ours.FigraphAttnBackend(held), batch(held)
    kept = None
    for value in (0.0, 5.0, -2.0):
        sinks.fill_(value)
        backend.init_forward_metadata(given)
        assert attended(lambda: is_right(backend, one, given, sinks=sinks)) == (1, 0)
        own = backend._layers[0].sinks
        assert own is not sinks and (kept is None or own is kept)  # captured graphs read it
        kept = own


def caches_of_8_bits_are_right_with_and_without_scales():
    held = runner(torch.float8_e4m3fn)
    backend, given = ours.FigraphAttnBackend(held), batch(held)
    backend.init_forward_metadata(given)
    for n, scale in enumerate((None, torch.tensor(0.5))):
        one = layer(n)
        one.k_scale = one.v_scale = scale
        assert attended(lambda: is_right(backend, one, given, 5e-3, torch.float16)) == (1, 0)


def a_graph_reads_tensors_that_later_steps_fill():
    """Runs the three parts of a step: one capture, and two replays with other rows."""
    held = runner()
    backend, one = ours.FigraphAttnBackend(held), layer()
    backend.init_cuda_graph_state(4, 4)
    given = batch(held, (1, 1, 1), (0, 0, 0))
    backend.init_forward_metadata_out_graph(given, in_capture=True)
    captured = backend._batch
    for lengths, requests in (((40, 1, 77), (4, 0, 2)), ((3, 96, 2), (1, 5, 3))):
        later = batch(held, lengths, requests)
        backend.init_forward_metadata_out_graph(later)
        assert backend._batch.lengths.data_ptr() == captured.lengths.data_ptr()
        assert backend._batch.page_table.data_ptr() == captured.page_table.data_ptr()
        backend._batch = captured  # the batch whose tensors the graph reads
        was = paged_decode.counts.plans
        for _ in range(2):
            backend.init_forward_metadata_in_graph(later)
            is_right(backend, one, later)
            is_right(backend, layer(1), later)
        assert paged_decode.counts.plans - was == 2
    assert backend.prepared == ["state", "out", "out", "out"]


def a_layer_without_keys_or_that_may_not_store_stores_nothing():
    held = runner()
    backend, given, one = ours.FigraphAttnBackend(held), batch(held), layer()
    backend.init_forward_metadata(given)
    was = held.token_to_kv_pool.buffers[0].clone()
    q, k, v = inputs()
    backend.forward_decode(q, None, None, one, given)
    backend.forward_decode(q, k, v, one, given, save_kv_cache=False)
    assert torch.equal(was, held.token_to_kv_pool.buffers[0])


def prompts_drafts_and_encoders_go_to_triton():
    for changes in (dict(forward_mode=stubs.ForwardMode.EXTEND), dict(spec_info=object()),
                    dict(encoder_lens=torch.ones(3))):
        held = runner()
        backend, given = ours.FigraphAttnBackend(held), batch(held, **changes)
        backend.init_forward_metadata(given)
        assert attended(lambda: is_right(backend, layer(), given)) == (0, 1)
        backend.init_cuda_graph_state(4, 4)
        backend.init_forward_metadata_out_graph(given)
        backend.init_forward_metadata_in_graph(given)
        assert backend._batch is None
    held = runner()
    backend, given = ours.FigraphAttnBackend(held), batch(held)
    backend.init_forward_metadata(given)
    q, k, v = inputs()
    assert attended(lambda: backend.forward_decode(q, k, v, layer(), given,
                                                   score_mod=print)) == (0, 1)


def a_step_of_more_rows_than_a_call_takes_goes_to_triton():
    for rows, served in ((1024, True), (1025, False)):
        held = runner()
        backend = ours.FigraphAttnBackend(held)
        given = batch(held, [5] * rows, [n % REQUESTS for n in range(rows)])
        one = layer()
        ours.logger.said.clear()
        backend.init_forward_metadata(given)
        q, k, v = inputs(rows)
        assert attended(lambda: backend.forward_decode(q, k, v, one, given)) == \
            (served, not served)
        assert backend.attended == (not served)
        words = "figraph leaves steps to Triton: a batch of more than 1024 rows"
        assert (words in ours.logger.said) == (not served)


def layers_that_figraph_refuses_go_to_triton_and_the_log_says_why():
    translating = types.SimpleNamespace(is_translating=True)
    for changes, words in ((dict(use_mla=True), "multi-head latent attention"),
                           (dict(dcp_size=2), "context parallelism"),
                           (dict(kv_index_translator=translating), "a unified pool"),
                           (dict(max_context_len=1 << 21), "2097152 tokens of context"),
                           (dict(token_to_kv_pool=object()), "a cache of object")):
        ours.logger.said.clear()
        held = runner(**changes)
        backend, given = ours.FigraphAttnBackend(held), batch(held)
        backend.init_cuda_graph_state(4, 4)
        backend.init_forward_metadata(given)
        assert backend._batch is None and any(words in one for one in ours.logger.said), words
    fp4 = runner()
    fp4.token_to_kv_pool.is_quantized_kv_cache = True
    assert not ours.FigraphAttnBackend(fp4)._serves_runner
    held = runner()
    backend, given = ours.FigraphAttnBackend(held), batch(held)
    backend.init_forward_metadata(given)
    for n, (changes, words) in enumerate((
            (dict(attn_type=stubs.AttentionType.ENCODER_ONLY), "not a decoder's"),
            (dict(is_cross_attention=True), "not a decoder's"),
            (dict(v_head_dim=32), "of unlike size"), (dict(use_irope=True), "temperatures"),
            (dict(logit_cap=2.0, logit_capping_method="sigmoid"), "a cap of logits by sigmoid"))):
        one = layer(0, **changes)
        one.layer_id = 0
        backend._refused.clear()
        ours.logger.said.clear()
        q, k, v = inputs()
        for _ in range(2):
            assert not backend._serves(one, q), words
        assert any(words in said for said in ours.logger.said), ours.logger.said
    assert not backend._serves(layer(1), inputs()[0].double())


def the_entry_point_registers_a_backend_and_its_name():
    for _ in range(2):
        figraph_sglang.register()
    assert stubs.ATTENTION_BACKEND_CHOICES == ["triton", "figraph"]
    made = stubs.ATTENTION_BACKENDS["figraph"](runner())
    assert type(made) is ours.FigraphAttnBackend


CASES = [
    figraph_serves_eager_steps_correctly,
    deterministic_inference_plans_each_row_by_itself,
    windows_caps_and_sinks_are_right,
    sinks_that_change_in_place_are_read_in_the_next_step,
    caches_of_8_bits_are_right_with_and_without_scales,
    a_graph_reads_tensors_that_later_steps_fill,
    a_layer_without_keys_or_that_may_not_store_stores_nothing,
    prompts_drafts_and_encoders_go_to_triton,
    a_step_of_more_rows_than_a_call_takes_goes_to_triton,
    layers_that_figraph_refuses_go_to_triton_and_the_log_says_why,
    the_entry_point_registers_a_backend_and_its_name,
]
if __name__ == "__main__":
    run(CASES)

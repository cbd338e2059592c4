"""server_modules.py: the modules of vLLM and SGLang that our classes for them build on.

server_signatures.py describes these modules and compares them with our files.
"""

# The described modules, and the names that are described in each.
SERVERS = {
    "vllm": {
        "vllm/plugins/__init__.py": ["DEFAULT_PLUGINS_GROUP"],
        "vllm/envs.py": ["VLLM_BATCH_INVARIANT"],
        "vllm/logger.py": ["init_logger", "_VllmLogger"],
        "vllm/model_executor/layers/attention/mla_attention.py": [
            "MLACommonBackend", "MLACommonBaseImpl", "MLACommonDecodeMetadata", "MLACommonImpl",
            "MLACommonMetadata", "MLACommonMetadataBuilder", "QueryLenSupport"],
        "vllm/v1/attention/backend.py": [
            "AttentionBackend", "AttentionCGSupport", "AttentionImpl", "AttentionImplBase",
            "AttentionLayer", "AttentionMetadataBuilder", "AttentionType",
            "CommonAttentionMetadata", "MLAAttentionImpl", "MultipleOf"],
        "vllm/v1/attention/backends/registry.py": ["AttentionBackendEnum", "register_backend"],
        "vllm/v1/attention/backends/triton_attn.py": [
            "TritonAttentionBackend", "TritonAttentionImpl", "TritonAttentionMetadata",
            "TritonAttentionMetadataBuilder"],
    },
    "sglang": {
        "sglang/srt/plugins/__init__.py": ["GENERAL_PLUGINS_GROUP"],
        "sglang/srt/arg_groups/choices.py": [
            "ATTENTION_BACKEND_CHOICES", "add_attention_backend_choices"],
        "sglang/srt/layers/attention/attention_registry.py": ["register_attention_backend"],
        "sglang/srt/layers/attention/base_attn_backend.py": ["AttentionBackend"],
        "sglang/srt/layers/attention/triton_backend.py": ["TritonAttnBackend"],
        "sglang/srt/layers/radix_attention.py": ["AttentionType", "RadixAttention"],
        "sglang/srt/mem_cache/layout/paged_view.py": ["paged_kv_view"],
        "sglang/srt/mem_cache/memory_pool.py": ["KVWriteLoc", "MHATokenToKVPool"],
        "sglang/srt/model_executor/forward_batch_info.py": ["ForwardBatch"],
    },
}
# The files in which a server calls us, and which of our methods each expression calls.
CALLS = {
    "vllm": {
        "vllm/model_executor/layers/attention/attention.py": {
            "impl_cls": "FigraphImpl.__init__",
            "self.impl.forward": "FigraphImpl.forward",
            "self.impl.process_weights_after_loading":
                "FigraphImpl.process_weights_after_loading"},
        "vllm/model_executor/layers/attention/mla_attention.py": {
            "self.impl.forward_mqa": "FigraphLatentImpl.forward_mqa"},
        "vllm/platforms/cuda.py": {
            "backend_class.validate_configuration": "FigraphChoice.validate_configuration",
            "backend_cls.full_cls_name": "FigraphChoice.full_cls_name"},
    },
    "sglang": {
        "sglang/srt/layers/attention/base_attn_backend.py": {
            "self.forward_decode": "FigraphAttnBackend.forward_decode",
            "self.init_forward_metadata_in_graph":
                "FigraphAttnBackend.init_forward_metadata_in_graph"},
        "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py": {
            "attn_backend.init_forward_metadata_out_graph":
                "FigraphAttnBackend.init_forward_metadata_out_graph"},
    },
}
# Our files for each server, in python/figraph/integrations.
OURS = {
    "vllm": ["vllm/__init__.py", "vllm/attention_backend.py", "vllm/backend_choice.py",
             "vllm/latent_backend.py"],
    "sglang": ["sglang/__init__.py", "sglang/decode_backend.py"],
}
STUBS = {"vllm": ["vllm_stubs.py", "vllm_latent_stubs.py"], "sglang": ["sglang_stubs.py"]}

# Methods of ours that a server calls only from a version on, or only before a version.
SINCE = {
    "FigraphMetadataBuilder.get_varlen_cudagraph_max_query_len": "0.33.0",
    "FigraphLatentMetadataBuilder.get_varlen_cudagraph_max_query_len": "0.33.0",
}
BEFORE = {"FigraphLatentBackend.get_kv_cache_shape": "0.29.0"}

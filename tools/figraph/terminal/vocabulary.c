/* vocabulary.c: prints the JSON records that several commands share, so that each has one form.
 *
 * A list has a plural name ("buckets"), a count ends in _count, a size in _bytes, a bound in
 * _limit. Invariant: keys and their meaning are those of inspect/inspect_json.c. */
#include "tools/figraph/terminal/vocabulary.h"

void fig_vocabulary_traits(fig_emit *emit, const fig_traits *traits) {
    fig_emit_object(emit, "traits");
    fig_emit_text(emit, "name", traits->name);
    fig_emit_integer(emit, "compute_capability", traits->compute_capability);
    fig_emit_integer(emit, "sm_count", traits->sm_count);
    fig_emit_integer(emit, "shared_bytes", traits->shared_bytes);
    fig_emit_close(emit);
}

void fig_vocabulary_share(fig_emit *emit, const fig_spec *model, int32_t ranks) {
    fig_emit_object(emit, "share");
    fig_emit_integer(emit, "ranks", ranks);
    fig_emit_integer(emit, "q_heads", model->q_heads);
    fig_emit_integer(emit, "kv_heads", model->kv_heads);
    fig_emit_integer(emit, "ffn_width", model->ffn_width);
    fig_emit_close(emit);
}

void fig_vocabulary_open_bucket(fig_emit *emit, const char *key, int32_t number,
                                const fig_bucket_info *info) {
    fig_emit_object(emit, key);
    fig_emit_integer(emit, "number", number);
    fig_emit_integer(emit, "batch", info->bucket.batch);
    fig_emit_integer(emit, "kv", info->bucket.kv);
    fig_emit_object(emit, "variant");
    fig_emit_integer(emit, "heads", info->heads);
    fig_emit_integer(emit, "tile_tokens", info->tile_tokens);
    fig_emit_close(emit);
    fig_emit_integer(emit, "workers", info->workers);
}

void fig_vocabulary_graphs(fig_emit *emit, const fig_graphs_info *info) {
    fig_vocabulary_traits(emit, info->traits);
    fig_emit_integer(emit, "bucket_count", info->bucket_count);
    fig_emit_integer(emit, "relowered_count", info->relowered_count);
    fig_emit_integer(emit, "tensor_count", info->tensor_count);
    fig_emit_integer(emit, "node_count", info->node_count);
    fig_emit_text(emit, "content_id", info->content_id);
}

/* share.c: computes the part of a model that one of several ranks holds.
 *
 * Invariant: a share is a spec like any other, so its users need not know that it is one. */
#include "planner/spec/share.h"

#include <assert.h>
#include <inttypes.h>

#include "planner/spec/spec.h"
#include "planner/status.h"

static_assert((int)FIG_PARALLEL_RANK_LIMIT == (int)FIG_HEAD_LIMIT,
              "each rank has a q head at least");

fig_status fig_share_check_ranks(int32_t ranks) {
    if (ranks >= 1 && ranks <= FIG_PARALLEL_RANK_LIMIT) return FIG_OK;
    return fig_fail(FIG_INVALID, "ranks is %" PRId32 ", limits 1 to %d", ranks,
                    FIG_PARALLEL_RANK_LIMIT);
}

int fig_share_divide(fig_share_rule rule, int64_t whole, int32_t ranks, int64_t *part) {
    const int replicated = rule == FIG_SHARE_KV_HEADS && whole < ranks;
    if (rule == FIG_SHARE_WHOLE) {
        *part = whole;
        return 1;
    }
    *part = replicated ? whole : ranks;
    if (replicated ? ranks % whole != 0 : whole % ranks != 0) return 0;
    *part = replicated ? 1 : whole / ranks;
    return 1;
}

static fig_status divide(fig_share_rule rule, const char *field, int32_t ranks, int32_t *extent) {
    int64_t part;
    if (*extent == 0) return FIG_OK; /* a spec without heads, or without an activation */
    if (!fig_share_divide(rule, *extent, ranks, &part)) {
        if (part != ranks)
            return fig_fail(FIG_INVALID,
                            "spec: %s is %" PRId32 ", and ranks, %" PRId32
                            ", must be a multiple of it",
                            field, *extent, ranks);
        return fig_fail(FIG_INVALID,
                        "spec: %s is %" PRId32 ", it must be a multiple of ranks, %" PRId32, field,
                        *extent, ranks);
    }
    *extent = (int32_t)part;
    return FIG_OK;
}

static fig_status find_share(const fig_spec *model, int32_t ranks, fig_spec *share) {
    fig_spec part;
    FIG_TRY(fig_share_check_ranks(ranks));
    FIG_TRY(fig_spec_resolve(model, &part));
    FIG_TRY(divide(FIG_SHARE_Q_HEADS, "q_heads", ranks, &part.q_heads));
    FIG_TRY(divide(FIG_SHARE_KV_HEADS, "kv_heads", ranks, &part.kv_heads));
    FIG_TRY(divide(FIG_SHARE_COLUMNS, "ffn_width", ranks, &part.ffn_width));
    FIG_TRY(divide(FIG_SHARE_COLUMNS, "dense_width", ranks, &part.dense_width));
    if (fig_spec_resolve(&part, share) == FIG_OK) return FIG_OK;
    return fig_fail(FIG_INVALID, "the share of one of %" PRId32 " ranks: %s", ranks, fig_message());
}

fig_status fig_spec_rank(fig_spec *share, const fig_spec *model, int32_t ranks) {
    fig_spec ours = {0};
    const fig_status status = find_share(model, ranks, &ours);
    FIG_TRY(fig_status_give(share, &ours, sizeof ours, "fig_spec"));
    return status;
}

/* apart.c: records the standard step with RoPE, append and attention as three nodes per layer. Old
 * files hold such steps. A caller that puts its own work between the three nodes records them
 * too. */
#include "tests/support/apart.h"

#include "graphs/record/decode_step.h"

static void record_attention(fig_program *program, const fig_decode_attention_op *op) {
    if (!op->plain)
        fig_rope(program,
                 FIG_OPTIONS(fig_rope_op, .q = op->q, .k = op->k, .q_norm = op->q_norm,
                             .k_norm = op->k_norm, .rope = op->rope, .rope_table = op->rope_table));
    fig_append_kv(program,
                  FIG_OPTIONS(fig_append_kv_op, .k = op->k, .v = op->v, .cache = op->cache));
    fig_attention(program,
                  FIG_OPTIONS(fig_attention_op, .q = op->q, .out = op->out, .cache = op->cache,
                              .sinks = op->sinks, .window = op->window, .soft_cap = op->soft_cap));
}

void fig_apart_decode_step(fig_program *program) {
    fig_decode_step_record(program, record_attention);
}

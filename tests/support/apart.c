/* apart.c: the standard step as three operations a layer, as files hold it that were made before it
 * was one, and as who needs something between them records it. */
#include "tests/support/apart.h"

#include "graphs/decode_step.h"

static void record_attention(fig_program *program, const fig_decode_attention_op *op) {
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

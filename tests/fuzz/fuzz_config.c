/* fuzz_config.c: records and lowers the spec of an accepted config.json. */
#include <stdlib.h>

#include "include/figraph_unstable.h"
#include "tests/fuzz/fuzz.h"

/* more layers would reach no more code */
enum { LAYERS = 4, KV_LIMIT = 32768 };

int fig_fuzz_config(const uint8_t *bytes, size_t count) {
    static const fig_bucket smallest = {1, 1};
    fig_spec spec = {.size = sizeof spec, .batch_limit = 8, .page_size = 16};
    fig_program *program;
    fig_graphs *graphs;
    const char *path = fig_fuzz_place_bytes(bytes, count);
    fig_status status = fig_spec_read_config(&spec, path);
    if (status == FIG_INVALID) /* a file without a dtype is refused, so give one */
        status = fig_spec_read_config_with(&spec, path,
                                           FIG_OPTIONS(fig_config_options, .dtype = FIG_F16));
    if (status == FIG_OK && (spec.kv_limit == 0 || spec.kv_limit > KV_LIMIT))
        spec.kv_limit = KV_LIMIT;
    if (status == FIG_OK) status = fig_spec_check(&spec);
    if (status == FIG_INVALID || status == FIG_UNSUPPORTED || status == FIG_TOO_LARGE) return 0;
    if (status != FIG_OK) abort();
    if (spec.layers > LAYERS) {
        spec.layers = LAYERS;
        for (int i = 0; i < 8; i++) {
            const uint64_t kept = i == 0 ? (1u << LAYERS) - 1 : 0;
            spec.window_layers[i] &= kept;
            spec.plain_layers[i] &= kept;
        }
    }
    if (fig_program_create(&program, &spec) != FIG_OK) abort();
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) abort();
    if (fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = &smallest, .bucket_count = 1)) !=
        FIG_OK)
        abort();
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
    return 0;
}

/* ceiling.c: reads memory from end to end as fast as the device can; that speed is the ceiling.
 *
 * All 64-bit words are combined into one by exclusive or, so no byte can be skipped unnoticed.
 * Blocks take stretches in turn. Invariant: the memory that is read does not change. */
#include <string.h>

#include "kernels/table/reference_kernels.h"

enum { THREADS = 256, STRETCH_BYTES = 8192, PIECE_BYTES = 16 };

void fig_ceiling_shape(const void *params, fig_launch_shape *shape) {
    const fig_ceiling_params *p = params;
    *shape = (fig_launch_shape){.grid = {p->blocks, 1, 1}, .block = {THREADS, 1, 1}};
}

static uint64_t fold_stretch(const uint8_t *from, int64_t bytes) {
    uint64_t folded = 0, word;
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof word) {
        memcpy(&word, from + at, sizeof word);
        folded ^= word;
    }
    return folded;
}

void fig_ceiling_reference(const void *params, const uint32_t block[3]) {
    const fig_ceiling_params *p = params;
    const int64_t bytes = (int64_t)p->pieces * PIECE_BYTES;
    const int64_t stride = (int64_t)p->blocks * STRETCH_BYTES;
    for (int64_t at = (int64_t)block[0] * STRETCH_BYTES; at < bytes; at += stride) {
        const int64_t left = bytes - at;
        *p->out ^= fold_stretch(p->in + at, left < STRETCH_BYTES ? left : STRETCH_BYTES);
    }
}

/* hash.c: SHA-256 as FIPS 180-4 defines it, and a hash that mixes eight bytes at a time.
 *
 * Owns only the two algorithms. Invariant: neither result depends on the alignment of the bytes.
 * SHA-256 is also independent of how the bytes are divided among calls; the fast hash is not. */
#include "graphs/view/hash.h"

#include <string.h>

#include "graphs/view/hash_blocks.h"

void fig_hash_sha256_init(fig_hash_sha256 *hash) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(hash, 0, sizeof *hash);
    memcpy(hash->state, initial, sizeof initial);
}

void fig_hash_sha256_add(fig_hash_sha256 *hash, const void *bytes, size_t count) {
    const uint8_t *next = bytes;
    size_t held = hash->bytes % sizeof hash->block;
    hash->bytes += count;
    if (held > 0) {
        size_t room = sizeof hash->block - held;
        size_t taken = count < room ? count : room;
        if (taken > 0) memcpy(hash->block + held, next, taken);
        if (taken < room) return;
        fig_hash_blocks_add(hash->state, hash->block, 1);
        next += taken;
        count -= taken;
    }
    const size_t blocks = count / sizeof hash->block;
    if (blocks > 0) fig_hash_blocks_add(hash->state, next, blocks);
    next += blocks * sizeof hash->block;
    count %= sizeof hash->block;
    if (count > 0) memcpy(hash->block, next, count);
}

void fig_hash_sha256_finish(fig_hash_sha256 *hash, uint8_t digest[32]) {
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = hash->bytes * 8;
    /* Padding: a one bit, zeros up to byte 56 of 64, then the length in bits, big-endian. */
    size_t held = hash->bytes % 64;
    fig_hash_sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    fig_hash_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 32; i++)
        digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* Both are odd, so that no step loses information; otherwise they are arbitrary. */
static const uint64_t word_factor = 0x9e3779b97f4a7c15;
static const uint64_t state_factor = 0xd6e8feb86659fd93;

static uint64_t mix_word(uint64_t state, uint64_t word) {
    state ^= word * word_factor;
    state = state << 29 | state >> 35;
    return state * state_factor;
}

uint64_t fig_hash_mix(uint64_t seed, const void *bytes, size_t count) {
    const uint8_t *next = bytes;
    uint64_t word;
    /* Hash the count first, so that trailing zeros, and the division into calls, change the
     * result. */
    uint64_t state = mix_word(seed, count + 1);
    for (; count >= sizeof word; count -= sizeof word) {
        memcpy(&word, next, sizeof word);
        state = mix_word(state, word);
        next += sizeof word;
    }
    if (count > 0) {
        word = 0;
        memcpy(&word, next, count);
        state = mix_word(state, word);
    }
    /* Mix the last words into the low bits. */
    state ^= state >> 32;
    state *= state_factor;
    return state ^ state >> 29;
}

/* hash.c: SHA-256 as FIPS 180-4 has it, and a mix of eight bytes at a time.
 *
 * Owns both and nothing about what is hashed. Invariant: neither depends on how the bytes are
 * aligned; SHA-256 does not depend on how they are cut into calls either, the mix does. */
#include "graphs/hash.h"

#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}

static void expand(uint32_t schedule[64], const uint8_t *block) {
    for (int i = 0; i < 16; i++) {
        schedule[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                      (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t early = schedule[i - 15], late = schedule[i - 2];
        uint32_t early_mix = rotate_right(early, 7) ^ rotate_right(early, 18) ^ early >> 3;
        uint32_t late_mix = rotate_right(late, 17) ^ rotate_right(late, 19) ^ late >> 10;
        schedule[i] = schedule[i - 16] + early_mix + schedule[i - 7] + late_mix;
    }
}

/* One 64-byte block; a to h are the standard's. */
static void compress(uint32_t state[8], const uint8_t *block) {
    uint32_t schedule[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    expand(schedule, block);
    for (int i = 0; i < 64; i++) {
        const uint32_t sum1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        const uint32_t choice = (e & f) ^ (~e & g);
        const uint32_t first = h + sum1 + choice + round_constants[i] + schedule[i];
        const uint32_t sum0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        h = g, g = f, f = e, e = d + first;
        d = c, c = b, b = a, a = first + sum0 + majority;
    }
    const uint32_t after[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++)
        state[i] += after[i];
}

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
        compress(hash->state, hash->block);
        next += taken;
        count -= taken;
    }
    for (; count >= sizeof hash->block; count -= sizeof hash->block) {
        compress(hash->state, next);
        next += sizeof hash->block;
    }
    if (count > 0) memcpy(hash->block, next, count);
}

void fig_hash_sha256_finish(fig_hash_sha256 *hash, uint8_t digest[32]) {
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = hash->bytes * 8;
    /* A one bit, zeros up to 56 of 64, and the length in bits, big-endian. */
    size_t held = hash->bytes % 64;
    fig_hash_sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    fig_hash_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 32; i++)
        digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* Both are odd, so that a step loses nothing; otherwise they are arbitrary. */
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
    /* The count comes first, so that zeros at the end, and where calls are cut, count too. */
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
    /* The last words have yet to reach the low bits. */
    state ^= state >> 32;
    state *= state_factor;
    return state ^ state >> 29;
}

/* hash_blocks.c: the rounds of SHA-256 over whole blocks, as FIPS 180-4 defines them.
 *
 * Hashing dominates the time to read a small file, and with a processor's SHA instructions it takes
 * an eighth of the time. Invariant: both implementations give the same state. */
#include "graphs/view/hash_blocks.h"

/* The instructions are detected through the C library, because not every compiler has a built-in
 * for them. */
#if defined(__x86_64__) && __has_include(<sys/platform/x86.h>)
#define HAS_OWN 1
#include <immintrin.h>
#include <sys/platform/x86.h>
#else
#define HAS_OWN 0
#endif

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

/* Hashes one 64-byte block; a to h are the names of the standard. */
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

void fig_hash_blocks_add_plain(uint32_t state[8], const uint8_t *blocks, size_t count) {
    for (size_t i = 0; i < count; i++)
        compress(state, blocks + i * 64);
}

#if HAS_OWN

/* Four rounds at a time; w[n % 4] holds words 4n to 4n + 3 of the schedule. The halves of the state
 * hold a, b, e, f and c, d, g, h, from the top down. */
__attribute__((target("sha,sse4.1"))) static void compress_own(__m128i *abef, __m128i *cdgh,
                                                               const uint8_t *block) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i abef_before = *abef, cdgh_before = *cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; i++)
        w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(block + 16 * i)), big_endian);
    for (int n = 0; n < 16; n++) {
        const __m128i constants = _mm_loadu_si128((const void *)(round_constants + 4 * n));
        const __m128i sums = _mm_add_epi32(w[n % 4], constants);
        *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sums);
        *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sums, 0x0e));
        /* Words 4n + 16 to 4n + 19, each from the words 16, 15, 7 and 2 places before it. */
        const __m128i seven = _mm_alignr_epi8(w[(n + 3) % 4], w[(n + 2) % 4], 4);
        const __m128i early = _mm_add_epi32(_mm_sha256msg1_epu32(w[n % 4], w[(n + 1) % 4]), seven);
        w[n % 4] = _mm_sha256msg2_epu32(early, w[(n + 3) % 4]);
    }
    *abef = _mm_add_epi32(*abef, abef_before);
    *cdgh = _mm_add_epi32(*cdgh, cdgh_before);
}

__attribute__((target("sha,sse4.1"))) static void hash_own(uint32_t state[8], const uint8_t *blocks,
                                                           size_t count) {
    __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
    __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
    for (size_t i = 0; i < count; i++)
        compress_own(&abef, &cdgh, blocks + i * 64);
    state[0] = (uint32_t)_mm_extract_epi32(abef, 3);
    state[1] = (uint32_t)_mm_extract_epi32(abef, 2);
    state[2] = (uint32_t)_mm_extract_epi32(cdgh, 3);
    state[3] = (uint32_t)_mm_extract_epi32(cdgh, 2);
    state[4] = (uint32_t)_mm_extract_epi32(abef, 1);
    state[5] = (uint32_t)_mm_extract_epi32(abef, 0);
    state[6] = (uint32_t)_mm_extract_epi32(cdgh, 1);
    state[7] = (uint32_t)_mm_extract_epi32(cdgh, 0);
}

void fig_hash_blocks_add(uint32_t state[8], const uint8_t *blocks, size_t count) {
    if (CPU_FEATURE_ACTIVE(SHA) && CPU_FEATURE_ACTIVE(SSE4_1)) {
        hash_own(state, blocks, count);
    } else {
        fig_hash_blocks_add_plain(state, blocks, count);
    }
}

#else

void fig_hash_blocks_add(uint32_t state[8], const uint8_t *blocks, size_t count) {
    fig_hash_blocks_add_plain(state, blocks, count);
}

#endif

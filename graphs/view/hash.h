/* hash.h: SHA-256 for identity, and a fast 64-bit hash to detect changes. */
#ifndef FIG_GRAPHS_HASH_H
#define FIG_GRAPHS_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct fig_hash_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} fig_hash_sha256;

void fig_hash_sha256_init(fig_hash_sha256 *hash);
void fig_hash_sha256_add(fig_hash_sha256 *hash, const void *bytes, size_t count);
void fig_hash_sha256_finish(fig_hash_sha256 *hash, uint8_t digest[32]);

/* Computes the fast hash, which does not protect against forgery. `seed` chains calls. */
uint64_t fig_hash_mix(uint64_t seed, const void *bytes, size_t count);

#endif

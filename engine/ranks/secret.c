/* secret.c: HMAC-SHA256 (RFC 2104) over a claim, and random numbers that no process can guess.
 *
 * Invariant: see secret.h. */
#include "engine/ranks/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "graphs/view/hash.h"
#include "planner/status.h"

enum { BLOCK_BYTES = 64 };

fig_status fig_secret_draw(uint8_t out[FIG_SECRET_BYTES]) {
    memset(out, 0, FIG_SECRET_BYTES);
    const ssize_t got = getrandom(out, FIG_SECRET_BYTES, 0);
    if (got == FIG_SECRET_BYTES) return FIG_OK;
    return fig_fail(FIG_IO, "ranks: the system has no random numbers: %s",
                    got < 0 ? strerror(errno) : "too few");
}

/* Starts a hash with the key, XORed with one of HMAC's two pad bytes. */
static void begin(fig_hash_sha256 *hash, const char *secret, uint8_t turn) {
    uint8_t block[BLOCK_BYTES] = {0};
    const size_t bytes = strlen(secret);
    fig_hash_sha256_init(hash);
    if (bytes > BLOCK_BYTES) {
        fig_hash_sha256_add(hash, secret, bytes);
        fig_hash_sha256_finish(hash, block);
        fig_hash_sha256_init(hash);
    } else {
        memcpy(block, secret, bytes);
    }
    for (size_t i = 0; i < BLOCK_BYTES; i++)
        block[i] ^= turn;
    fig_hash_sha256_add(hash, block, sizeof block);
}

void fig_secret_prove(const fig_secret_claim *claim, uint8_t proof[FIG_SECRET_BYTES]) {
    fig_hash_sha256 hash;
    uint8_t inner[FIG_SECRET_BYTES];
    begin(&hash, claim->secret, 0x36);
    fig_hash_sha256_add(&hash, claim->who, strlen(claim->who) + 1);
    fig_hash_sha256_add(&hash, claim->first, claim->first_bytes);
    fig_hash_sha256_add(&hash, claim->second, claim->second_bytes);
    fig_hash_sha256_finish(&hash, inner);
    begin(&hash, claim->secret, 0x5c);
    fig_hash_sha256_add(&hash, inner, sizeof inner);
    fig_hash_sha256_finish(&hash, proof);
}

int fig_secret_is_proof(const fig_secret_claim *claim, const uint8_t proof[FIG_SECRET_BYTES]) {
    uint8_t right[FIG_SECRET_BYTES];
    unsigned difference = 0;
    fig_secret_prove(claim, right);
    for (size_t i = 0; i < FIG_SECRET_BYTES; i++)
        difference |= (unsigned)(right[i] ^ proof[i]);
    return difference == 0;
}

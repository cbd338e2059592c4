/* secret.h: proofs that a peer knows the job's secret. The secret itself is never sent.
 *
 * A proof is an HMAC-SHA256 of bytes that both sides have seen. These bytes include numbers that
 * each side drew for this connection, so a proof is useless on any other connection. Invariant:
 * comparing a proof takes the same time whether it is right or wrong. */
#ifndef FIG_ENGINE_RANKS_SECRET_H
#define FIG_ENGINE_RANKS_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_SECRET_BYTES = 32 };

fig_status fig_secret_draw(uint8_t out[FIG_SECRET_BYTES]);

/* The bytes that a proof covers: the name of the side that proves, then the bytes that both sides
 * have seen. */
typedef struct fig_secret_claim {
    const char *secret, *who;
    const void *first, *second;
    size_t first_bytes, second_bytes;
} fig_secret_claim;
void fig_secret_prove(const fig_secret_claim *claim, uint8_t proof[FIG_SECRET_BYTES]);
int fig_secret_is_proof(const fig_secret_claim *claim, const uint8_t proof[FIG_SECRET_BYTES]);

#endif

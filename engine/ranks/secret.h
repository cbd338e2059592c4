/* secret.h: proofs that who speaks knows the job's secret, which itself never travels.
 *
 * HMAC-SHA256 of what both sides have seen, numbers that each drew for this connection among them,
 * so that no proof serves twice. Invariant: comparing takes as long for a wrong proof as for a
 * right one. */
#ifndef FIG_ENGINE_RANKS_SECRET_H
#define FIG_ENGINE_RANKS_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_SECRET_BYTES = 32 };

fig_status fig_secret_draw(uint8_t out[FIG_SECRET_BYTES]);

/* What is proved: who says it, then what both have seen. */
typedef struct fig_secret_claim {
    const char *secret, *who;
    const void *first, *second;
    size_t first_bytes, second_bytes;
} fig_secret_claim;
void fig_secret_prove(const fig_secret_claim *claim, uint8_t proof[FIG_SECRET_BYTES]);
int fig_secret_is_proof(const fig_secret_claim *claim, const uint8_t proof[FIG_SECRET_BYTES]);

#endif

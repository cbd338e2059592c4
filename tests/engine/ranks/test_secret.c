/* test_secret.c: tests the proofs of a secret. */
#include "engine/ranks/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/fault.h"

static fig_secret_claim claim_of(const char *secret) {
    return (fig_secret_claim){secret, "rank", "greeting", "claim", 8, 5};
}

/* The results of Python's hmac for b"rank\0greetingclaim", with a key shorter and a key longer than
 * a block of SHA-256. */
static void a_proof_is_hmac_sha256(void **state) {
    (void)state;
    static const uint8_t of_short[FIG_SECRET_BYTES] = {
        0x7d, 0x65, 0x35, 0x57, 0x90, 0xb3, 0xb2, 0x94, 0x76, 0xf8, 0x08,
        0xd1, 0x5a, 0x8b, 0xa4, 0x5c, 0x33, 0xc6, 0x54, 0x26, 0x09, 0xc0,
        0x47, 0x12, 0x75, 0xb8, 0xc6, 0x0a, 0x18, 0xfa, 0x8a, 0xd0};
    static const uint8_t of_long[FIG_SECRET_BYTES] = {
        0x92, 0xa8, 0x4e, 0xbf, 0xb0, 0xc9, 0xe1, 0x6a, 0xd5, 0x6b, 0xe1,
        0x3e, 0xe5, 0xb4, 0xe1, 0x04, 0x56, 0xc6, 0x73, 0xcf, 0xcc, 0x14,
        0x9b, 0xd5, 0xdf, 0x58, 0xba, 0x46, 0x94, 0x3f, 0x3c, 0xa1};
    char key[101];
    uint8_t proof[FIG_SECRET_BYTES];
    memset(key, 'k', 100);
    key[100] = '\0';
    fig_secret_claim claim = claim_of("secret");
    fig_secret_prove(&claim, proof);
    assert_memory_equal(proof, of_short, sizeof proof);
    claim = claim_of(key);
    fig_secret_prove(&claim, proof);
    assert_memory_equal(proof, of_long, sizeof proof);
}

static void another_secret_or_claim_has_another_proof(void **state) {
    (void)state;
    uint8_t proof[FIG_SECRET_BYTES];
    fig_secret_claim claim = claim_of("secret"), other = claim_of("secres");
    fig_secret_prove(&claim, proof);
    assert_true(fig_secret_is_proof(&claim, proof));
    assert_false(fig_secret_is_proof(&other, proof));
    other = claim_of("secret");
    other.who = "rank 0";
    assert_false(fig_secret_is_proof(&other, proof));
    other = claim_of("secret");
    other.second = "clain";
    assert_false(fig_secret_is_proof(&other, proof));
    for (size_t i = 0; i < sizeof proof; i++) {
        proof[i] ^= 1;
        assert_false(fig_secret_is_proof(&claim, proof));
        proof[i] ^= 1;
    }
}

static void each_draw_gives_other_numbers(void **state) {
    (void)state;
    uint8_t one[FIG_SECRET_BYTES], two[FIG_SECRET_BYTES];
    assert_int_equal(fig_secret_draw(one), FIG_OK);
    assert_int_equal(fig_secret_draw(two), FIG_OK);
    assert_memory_not_equal(one, two, sizeof one);
    fig_fault_arm(1);
    const fig_status status = fig_secret_draw(one);
    fig_fault_disarm();
    assert_int_equal(status, FIG_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proof_is_hmac_sha256),
        cmocka_unit_test(another_secret_or_claim_has_another_proof),
        cmocka_unit_test(each_draw_gives_other_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

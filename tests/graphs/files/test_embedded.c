/* test_embedded.c: tests that trust in a compiled score covers what its code is for.
 *
 * The codes are made up, and nothing loads them. tests/engine/cuda/test_embedded_scores.c tests
 * them in files and engines. */
#include "graphs/files/embedded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graphs/files/archive.h"
#include "graphs/view/hash.h"
#include "tests/support/files/sample.h"

enum { SCORES = 2 };

/* [SCORES] of one length, so that nothing but their hashes tells them apart */
static const char *const codes[SCORES] = {"code of score A", "code of score B"};

/* Makes two compiled scores. `first` is the index of the code that serves the first. */
static void make(fig_embedded *compiled, int first) {
    fig_image_compiled images[SCORES];
    memset(images, 0, sizeof images);
    for (int i = 0; i < SCORES; i++) {
        images[i].ptx[0] = (uint8_t)(0xa0 + i);
        images[i].compute_capability = 90;
        images[i].driver = 12040;
        memcpy(images[i].family, "bulk", 4);
        images[i].image = (fig_image){codes[i ^ first], strlen(codes[0]) + 1, NULL};
    }
    if (fig_embedded_make(compiled, images, SCORES) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(compiled->count, SCORES);
    assert_int_equal(fig_embedded_check(compiled), FIG_OK);
}

static fig_status admit(const fig_embedded *compiled, char hex[SCORES][65], fig_image_set *set,
                        uint8_t **code) {
    const char *const list[SCORES] = {hex[0], hex[1]};
    const fig_trust trust = {.size = sizeof trust, .images = list, .image_count = SCORES};
    return fig_embedded_admit(compiled, &trust, set, code);
}

static void assert_refused(const fig_embedded *compiled, char hex[SCORES][65]) {
    fig_image_set set = {0};
    uint8_t *code;
    FIG_SAMPLE_REFUSES(admit(compiled, hex, &set, &code), FIG_INVALID, "is not trusted, SHA-256 ");
    assert_null(code);
    assert_int_equal(set.compiled_count, 0);
}

static void seal_all(const fig_embedded *compiled, char hex[SCORES][65]) {
    for (int i = 0; i < SCORES; i++)
        fig_embedded_seal(&compiled->records[i], hex[i]);
}

static void a_seal_is_the_hash_of_the_record(void **state) {
    (void)state;
    fig_embedded compiled;
    uint8_t sha256[32];
    char hex[SCORES][65], due[65];
    make(&compiled, 0);
    seal_all(&compiled, hex);
    for (int i = 0; i < SCORES; i++) {
        fig_hash_sha256 hash;
        fig_hash_sha256_init(&hash);
        fig_hash_sha256_add(&hash, &compiled.records[i], 96);
        fig_hash_sha256_finish(&hash, sha256);
        fig_archive_hex(sha256, due);
        assert_string_equal(hex[i], due);
    }
    fig_embedded_finish(&compiled);
}

static void sealed_scores_are_served_by_their_code(void **state) {
    (void)state;
    fig_embedded compiled;
    fig_image_set set = {0};
    uint8_t *code;
    char hex[SCORES][65];
    make(&compiled, 0);
    seal_all(&compiled, hex);
    if (admit(&compiled, hex, &set, &code) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(set.compiled_count, SCORES);
    for (int i = 0; i < SCORES; i++) {
        assert_int_equal(set.compiled[i].ptx[0], 0xa0 + i);
        assert_string_equal(set.compiled[i].image.bytes, codes[i]);
    }
    free(set.compiled);
    free(code);
    fig_embedded_finish(&compiled);
}

/* Each code is one that the caller trusts, and has its recorded hash. */
static void a_file_that_exchanges_two_trusted_codes_is_refused(void **state) {
    (void)state;
    fig_embedded compiled, forged;
    char hex[SCORES][65];
    make(&compiled, 0);
    make(&forged, 1);
    seal_all(&compiled, hex);
    assert_refused(&forged, hex);
    fig_archive_hex(compiled.records[0].sha256, hex[0]);
    fig_archive_hex(compiled.records[1].sha256, hex[1]);
    assert_refused(&compiled, hex); /* hashes of code alone are no trust */
    fig_embedded_finish(&forged);
    fig_embedded_finish(&compiled);
}

static void a_record_with_any_changed_byte_is_not_trusted(void **state) {
    (void)state;
    fig_embedded compiled;
    char hex[SCORES][65];
    make(&compiled, 0);
    seal_all(&compiled, hex);
    uint8_t *bytes = (uint8_t *)&compiled.records[1];
    for (size_t i = 0; i < sizeof compiled.records[1]; i++) {
        bytes[i] ^= 1;
        assert_refused(&compiled, hex);
        bytes[i] ^= 1;
    }
    fig_embedded_finish(&compiled);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seal_is_the_hash_of_the_record),
        cmocka_unit_test(sealed_scores_are_served_by_their_code),
        cmocka_unit_test(a_file_that_exchanges_two_trusted_codes_is_refused),
        cmocka_unit_test(a_record_with_any_changed_byte_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_hash.c: tests that SHA-256 gives the results of the standard's own examples, however the
 * bytes are cut into pieces, and that the mix reacts to each bit, to the length and to the order.
 *
 * At lengths around 56 and 64 the padding needs another block. The digests of these lengths come
 * from another implementation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/view/hash.h"
#include "graphs/view/hash_blocks.h"
#include "tests/support/random.h"

static void hex_of(const uint8_t digest[32], char hex[65]) {
    for (int i = 0; i < 32; i++)
        snprintf(hex + (size_t)i * 2, 3, "%02x", digest[i]);
}

static void digest_of(const void *bytes, size_t count, char hex[65]) {
    fig_hash_sha256 hash;
    uint8_t digest[32];
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, bytes, count);
    fig_hash_sha256_finish(&hash, digest);
    hex_of(digest, hex);
}

static void the_examples_of_the_standard_come_out(void **state) {
    (void)state;
    static const struct {
        const char *text, *digest;
    } examples[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
         "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char hex[65];
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        digest_of(examples[i].text, strlen(examples[i].text), hex);
        assert_string_equal(hex, examples[i].digest);
    }
}

static void lengths_around_a_block_are_padded_right(void **state) {
    (void)state;
    static const struct {
        size_t length;
        const char *digest;
    } examples[] = {
        {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
        {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
        {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
    };
    char text[128], hex[65];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        digest_of(text, examples[i].length, hex);
        assert_string_equal(hex, examples[i].digest);
    }
}

static void a_million_bytes_in_any_cuts_give_one_digest(void **state) {
    (void)state;
    static char text[1000];
    fig_random random = fig_random_seed(7);
    fig_hash_sha256 hash;
    uint8_t digest[32];
    char hex[65];
    memset(text, 'a', sizeof text);
    for (int round = 0; round < 3; round++) {
        fig_hash_sha256_init(&hash);
        for (int32_t left = 1000000; left > 0;) {
            int32_t count = fig_random_range(&random, 0, left < 1000 ? left : 1000);
            fig_hash_sha256_add(&hash, text, (size_t)count);
            left -= count;
        }
        fig_hash_sha256_finish(&hash, digest);
        hex_of(digest, hex);
        assert_string_equal(hex,
                            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

/* This machine may use special instructions or plain code. Both must give the same state. */
static void special_instructions_and_plain_code_give_one_state(void **state) {
    (void)state;
    static uint8_t blocks[5 * 64 + 3];
    fig_random random = fig_random_seed(9);
    for (int round = 0; round < 200; round++) {
        uint32_t own[8], plain[8];
        const uint8_t *from = blocks + round % 4; /* at any alignment */
        for (size_t i = 0; i < sizeof blocks; i++)
            blocks[i] = (uint8_t)fig_random_range(&random, 0, 255);
        for (int i = 0; i < 8; i++)
            own[i] = plain[i] = (uint32_t)fig_random_range(&random, 0, INT32_MAX) * 3u;
        fig_hash_blocks_add(own, from, (size_t)round % 6);
        fig_hash_blocks_add_plain(plain, from, (size_t)round % 6);
        assert_memory_equal(own, plain, sizeof own);
    }
}

static void the_mix_changes_with_each_bit(void **state) {
    (void)state;
    uint8_t bytes[41] = {0};
    uint64_t seen[41 * 8 + 1];
    size_t count = 0;
    seen[count++] = fig_hash_mix(0, bytes, sizeof bytes);
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] = (uint8_t)(1u << bit % 8);
        seen[count++] = fig_hash_mix(0, bytes, sizeof bytes);
        bytes[bit / 8] = 0;
    }
    for (size_t a = 0; a < count; a++) {
        for (size_t b = 0; b < a; b++)
            assert_true(seen[a] != seen[b]);
    }
}

static void the_mix_changes_with_length_seed_and_cuts(void **state) {
    (void)state;
    const uint8_t zeros[64] = {0};
    uint64_t seen[65];
    for (size_t length = 0; length <= 64; length++) {
        seen[length] = fig_hash_mix(0, zeros, length);
        for (size_t shorter = 0; shorter < length; shorter++)
            assert_true(seen[length] != seen[shorter]);
        assert_true(seen[length] != fig_hash_mix(1, zeros, length));
    }
    uint64_t cut = fig_hash_mix(fig_hash_mix(0, zeros, 8), zeros, 16);
    assert_true(cut != fig_hash_mix(0, zeros, 24));
    assert_true(cut != fig_hash_mix(fig_hash_mix(0, zeros, 16), zeros, 8));
}

/* Tables use the low bits as an index, so consecutive names must not collide there. */
static void the_mix_fills_the_low_bits_evenly(void **state) {
    (void)state;
    static int hits[1024];
    for (int i = 0; i < 65536; i++) {
        char name[32];
        int length = snprintf(name, sizeof name, "k_cache.%d", i);
        hits[fig_hash_mix(0, name, (size_t)length) % 1024]++;
    }
    for (int i = 0; i < 1024; i++) {
        assert_true(hits[i] > 16);
        assert_true(hits[i] < 144);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard_come_out),
        cmocka_unit_test(lengths_around_a_block_are_padded_right),
        cmocka_unit_test(a_million_bytes_in_any_cuts_give_one_digest),
        cmocka_unit_test(special_instructions_and_plain_code_give_one_state),
        cmocka_unit_test(the_mix_changes_with_each_bit),
        cmocka_unit_test(the_mix_changes_with_length_seed_and_cuts),
        cmocka_unit_test(the_mix_fills_the_low_bits_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

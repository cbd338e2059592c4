/* test_ceiling.c: tests that the kernel reads every word once, and no other word, whatever the
 * number of blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/place.h"
#include "tests/support/kernels/reference.h"

enum { PIECE = 16 };

/* Runs the kernel over random bytes. Its result must be the exclusive or of all words and of the
 * value that *folded had before the launch. */
static void check_size(fig_random *random, int64_t bytes, uint32_t blocks) {
    uint8_t *from = fig_place_allocate((size_t)bytes + PIECE);
    uint64_t *folded = fig_place_allocate(sizeof *folded), due = 7, word;
    for (int64_t i = 0; i < bytes + PIECE; i++)
        from[i] = (uint8_t)fig_random_bits(random);
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof word) {
        memcpy(&word, from + at, sizeof word);
        due ^= word;
    }
    *folded = 7;
    const fig_ceiling_params params = {
        .in = from, .out = folded, .pieces = (uint32_t)(bytes / PIECE), .blocks = blocks};
    fig_reference_launch(FIG_OP_CEILING, &params, random);
    assert_true(*folded == due);
    fig_place_free(folded);
    fig_place_free(from);
}

static void every_word_is_read_once(void **state) {
    static const int64_t sizes[] = {0,    PIECE,    8192 - PIECE,      8192,
                                    8208, 5 * 8192, 11 * 8192 + PIECE, 1 << 20};
    fig_random random = fig_random_seed(1);
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t blocks = 1; blocks < 300; blocks += 131)
            check_size(&random, sizes[i], blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_word_is_read_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_strings.c: tests that a name is stored once and found again, and that text from a file is
 * accepted only if it is sound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/view/strings.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

enum { NAME_COUNT = 10000 };

static const char *name_of(int i) {
    static char name[32];
    snprintf(name, sizeof name, "t.%d", i);
    return name;
}

static void ten_thousand_names_are_each_kept_once(void **state) {
    (void)state;
    fig_strings strings = {0};
    fig_string_slot *slot;
    assert_int_equal(fig_strings_init(&strings), FIG_OK);
    assert_null(fig_strings_find(&strings, "t.0"));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < NAME_COUNT; i++) {
            assert_int_equal(fig_strings_add(&strings, name_of(i), &slot), FIG_OK);
            assert_int_equal(slot->owner, round == 0 ? 0 : i + 1);
            slot->owner = (uint32_t)i + 1;
        }
        assert_int_equal(strings.count, NAME_COUNT);
    }
    for (int i = 0; i < NAME_COUNT; i++) {
        slot = fig_strings_find(&strings, name_of(i));
        assert_non_null(slot);
        assert_string_equal(strings.text + slot->offset, name_of(i));
        assert_true(fig_strings_begins(strings.text, strings.bytes, slot->offset));
    }
    assert_null(fig_strings_find(&strings, name_of(NAME_COUNT)));
    assert_null(fig_strings_find(&strings, ""));
    fig_strings_finish(&strings);
}

static void a_copy_of_text_finds_the_same_names(void **state) {
    (void)state;
    static const char text[] = "\0q.0\0k.0\0gemm";
    fig_strings strings = {0};
    assert_int_equal(fig_strings_load(&strings, text, sizeof text), FIG_OK);
    assert_int_equal(strings.bytes, sizeof text);
    assert_memory_equal(strings.text, text, sizeof text);
    assert_int_equal(fig_strings_find(&strings, "q.0")->offset, 1);
    assert_int_equal(fig_strings_find(&strings, "gemm")->offset, 9);
    assert_false(fig_strings_begins(text, sizeof text, 0));
    assert_false(fig_strings_begins(text, sizeof text, 2));
    assert_false(fig_strings_begins(text, sizeof text, sizeof text));
    fig_strings_finish(&strings);
}

/* Makes the longest paths that a forger could: names that differ only in their last bits, and names
 * that are prefixes of others. The layout of slots and forks bounds the path. */
static void no_names_make_a_search_path_longer_than_the_bits_of_a_name(void **state) {
    (void)state;
    enum { NAMES = 12000 };
    fig_strings strings = {0};
    fig_string_slot *slot;
    char name[FIG_NAME_LIMIT + 1];
    assert_int_equal(fig_strings_init(&strings), FIG_OK);
    for (int i = 1; i <= FIG_NAME_LIMIT; i++) {
        memset(name, 'x', sizeof name);
        name[i] = '\0';
        assert_int_equal(fig_strings_add(&strings, name, &slot), FIG_OK);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "%063d", i);
        assert_int_equal(fig_strings_add(&strings, name, &slot), FIG_OK);
    }
    for (uint32_t i = 0; i < strings.count; i++) {
        const char *own = strings.text + strings.slots[i].offset;
        uint32_t side = strings.root, steps = 0, last = 0;
        for (; side & 1; steps++) {
            const fig_string_fork *fork = &strings.forks[side >> 1];
            assert_true(steps == 0 || fork->bit > last);
            last = fork->bit;
            const size_t byte = last / 8;
            const int bit = byte < strlen(own) ? own[byte] >> (7 - last % 8) & 1 : 0;
            side = fork->sides[bit];
        }
        assert_int_equal(side >> 1, i);
        assert_true(steps < 8 * (FIG_NAME_LIMIT + 1));
        assert_ptr_equal(fig_strings_find(&strings, own), &strings.slots[i]);
        assert_ptr_equal(fig_strings_at(&strings, strings.slots[i].offset), &strings.slots[i]);
        assert_null(fig_strings_at(&strings, strings.slots[i].offset + 1));
    }
    fig_strings_finish(&strings);
}

/* Compares with a linear search of a list. */
static void only_added_names_are_found(void **state) {
    (void)state;
    enum { ROUNDS = 3000, BYTES = 4 };
    fig_random random = fig_random_seed(5);
    static char kept[ROUNDS][BYTES + 1];
    int count = 0;
    fig_strings strings = {0};
    fig_string_slot *slot;
    assert_int_equal(fig_strings_init(&strings), FIG_OK);
    for (int round = 0; round < ROUNDS; round++) {
        char name[BYTES + 1] = "";
        for (int32_t i = fig_random_range(&random, 1, BYTES) - 1; i >= 0; i--)
            name[i] = "aAbz_-.0"[fig_random_range(&random, 0, 7)];
        int at = 0;
        while (at < count && strcmp(kept[at], name) != 0)
            at++;
        slot = fig_strings_find(&strings, name);
        assert_int_equal(slot != NULL, at < count);
        if (slot != NULL) assert_int_equal(slot - strings.slots, at);
        if (round % 2 == 0) continue;
        assert_int_equal(fig_strings_add(&strings, name, &slot), FIG_OK);
        assert_int_equal(slot - strings.slots, at);
        if (at == count) memcpy(kept[count++], name, sizeof name);
    }
    assert_true(count > 300);
    fig_strings_finish(&strings);
}

/* The text is in memory of exactly its size, so asan notices a read past its end. */
static void refuse_text(const char *text, uint32_t bytes, const char *part) {
    fig_strings strings = {0};
    char *exact = malloc(bytes > 0 ? bytes : 1);
    memcpy(exact, text, bytes);
    fig_status status = fig_strings_load(&strings, exact, bytes);
    assert_true(status == FIG_FORMAT || status == FIG_INVALID);
    assert_non_null(strstr(fig_message(), part));
    fig_strings_finish(&strings);
    free(exact);
}

static void unsound_text_is_refused(void **state) {
    (void)state;
    refuse_text("", 0, "0 bytes");
    refuse_text("a", 1, "byte 0 is not NUL");
    refuse_text("\0a", 2, "byte 1 is not NUL");
    refuse_text("\0abc\0abd", 8, "byte 7 is not NUL");
    refuse_text("\0a\0\0", 4, "is not 1 to 63 characters");
    refuse_text("\0a b\0", 5, "\"a b\" is not 1 to 63 characters");
    refuse_text("\0a\0b\0a\0", 7, "\"a\" occurs twice");
    char longest[1 + 64 + 1] = "";
    memset(longest + 1, 'x', 64);
    refuse_text(longest, sizeof longest, "is longer than 63 bytes");
}

static void names_end_at_their_limit(void **state) {
    (void)state;
    char name[FIG_NAME_LIMIT + 2];
    memset(name, 'x', sizeof name);
    name[FIG_NAME_LIMIT + 1] = '\0';
    assert_int_equal(fig_strings_check_name(name, "tensor"), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "longer than 63 bytes"));
    name[FIG_NAME_LIMIT] = '\0';
    assert_int_equal(fig_strings_check_name(name, "tensor"), FIG_OK);
    assert_int_equal(fig_strings_check_name("aZ09._-", "tensor"), FIG_OK);
    assert_int_equal(fig_strings_check_name("", "tensor"), FIG_INVALID);
    assert_int_equal(fig_strings_check_name(NULL, "tensor"), FIG_INVALID);
    for (int c = 1; c < 256; c++) {
        const char one[2] = {(char)c, '\0'};
        const int valid = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        assert_int_equal(fig_strings_check_name(one, "tensor") == FIG_OK, valid);
    }
}

/* 2^14 names of 63 bytes and a NUL fill the limit; the text's first byte exceeds it. */
static void text_ends_at_its_limit(void **state) {
    (void)state;
    fig_strings strings = {0};
    fig_string_slot *slot;
    char name[FIG_NAME_LIMIT + 1];
    int added = 0;
    assert_int_equal(fig_strings_init(&strings), FIG_OK);
    for (;; added++) {
        snprintf(name, sizeof name, "%063d", added);
        if (fig_strings_add(&strings, name, &slot) != FIG_OK) break;
    }
    assert_int_equal(added, (1 << 14) - 1);
    assert_non_null(strstr(fig_message(), "limit 1048576"));
    assert_null(fig_strings_find(&strings, name));
    assert_int_equal(fig_strings_add(&strings, "short", &slot), FIG_OK);
    fig_strings_finish(&strings);
}

static void add_all(fig_strings *strings, fig_status *status) {
    fig_string_slot *slot;
    *status = fig_strings_init(strings);
    for (int i = 0; i < 100 && *status == FIG_OK; i++)
        *status = fig_strings_add(strings, name_of(i), &slot);
}

static void each_allocation_that_fails_is_reported(void **state) {
    (void)state;
    int64_t n = 1;
    for (;; n++) {
        fig_strings strings = {0};
        fig_status status;
        fig_fault_arm(n);
        add_all(&strings, &status);
        int64_t calls = fig_fault_disarm();
        if (calls >= n) {
            assert_int_equal(status, FIG_NOMEM);
            assert_non_null(strstr(fig_message(), "names: "));
        }
        fig_strings_finish(&strings);
        if (calls < n) break;
        assert_int_not_equal(status, FIG_OK);
    }
    assert_true(n > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_names_are_each_kept_once),
        cmocka_unit_test(a_copy_of_text_finds_the_same_names),
        cmocka_unit_test(no_names_make_a_search_path_longer_than_the_bits_of_a_name),
        cmocka_unit_test(only_added_names_are_found),
        cmocka_unit_test(unsound_text_is_refused),
        cmocka_unit_test(names_end_at_their_limit),
        cmocka_unit_test(text_ends_at_its_limit),
        cmocka_unit_test(each_allocation_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

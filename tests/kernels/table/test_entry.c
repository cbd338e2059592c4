/* test_entry.c: tests that the names of kernel entries equal those that printf would make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/table/entry.h"
#include "kernels/table/families.h"

static void each_text_or_number_begins_where_the_last_ended(void **state) {
    (void)state;
    static const int32_t numbers[] = {0, 1, 9, 10, 99, 100, 128, 65536, 1000000000, INT32_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char made[FIG_ENTRY_BYTES], due[FIG_ENTRY_BYTES];
        fig_entry_name name = {made, made};
        memset(made, 'x', sizeof made);
        fig_entry_put(&name, "fig_");
        fig_entry_put_number(&name, numbers[i]);
        fig_entry_put(&name, "");
        fig_entry_put(&name, "_a");
        snprintf(due, sizeof due, "fig_%d_a", (int)numbers[i]);
        assert_string_equal(made, due);
        assert_ptr_equal(name.at, made + strlen(due));
    }
}

/* Behind the name the array is zeros, since names are compared and hashed as whole arrays. */
static void a_family_without_names_uses_those_of_the_operation(void **state) {
    (void)state;
    for (fig_op op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        char made[FIG_ENTRY_BYTES], due[FIG_ENTRY_BYTES] = {0};
        if (fig_families_of(op, 0)->entry != NULL) continue;
        memset(made, 'x', sizeof made);
        fig_families_entry(op, 0, NULL, made);
        snprintf(due, sizeof due, "fig_kernel_%s", fig_kernel_table[op].name);
        assert_memory_equal(made, due, sizeof due);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_text_or_number_begins_where_the_last_ended),
        cmocka_unit_test(a_family_without_names_uses_those_of_the_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

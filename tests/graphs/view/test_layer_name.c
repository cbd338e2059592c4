/* test_layer_name.c: tests that a layer is read from a name only if that layer gives back the same
 * name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "graphs/view/layer_name.h"

static void a_name_splits_at_its_last_number(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t stem_bytes;
        int32_t number;
    } names[] = {
        {"q.0", 1, 0},        {"q.17", 1, 17},         {"k_cache.255", 7, 255}, {"a.1.2", 3, 2},
        {"q", 1, -1},         {"q.", 2, -1},           {"q.x", 3, -1},          {"q.07", 4, -1},
        {"q.1234567", 9, -1}, {"q.999999", 1, 999999}, {"q.-1", 4, -1},         {".3", 0, 3},
        {"", 0, -1},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const fig_layer_name split = fig_layer_name_split(names[i].name);
        if (split.stem_bytes != names[i].stem_bytes || split.number != names[i].number)
            fail_msg("\"%s\": %u and %d", names[i].name, split.stem_bytes, split.number);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_name_splits_at_its_last_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

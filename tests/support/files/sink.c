/* sink.c: see sink.h. */
#include "tests/support/files/sink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void fig_sink_take(void *user, const char *bytes, size_t count) {
    fig_sink *s = user;
    assert_true(s->count + count < sizeof s->text);
    memcpy(s->text + s->count, bytes, count);
    s->count += count;
    s->text[s->count] = '\0';
}

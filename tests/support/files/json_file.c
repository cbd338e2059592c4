/* json_file.c: writes a JSON file anew for each case of a test. */
#include "tests/support/files/json_file.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static char path[] = "/tmp/fig_json_file_XXXXXX";
static int made;

static void make_path(void) {
    if (made) return;
    int handle = mkstemp(path);
    assert_true(handle >= 0);
    close(handle);
    made = 1;
}

static json_t *parse(const char *text) {
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    if (value == NULL) fail_msg("%s: %s", text, error.text);
    return value;
}

static json_t *load(const char *base) {
    json_error_t error;
    json_t *value = json_load_file(base, 0, &error);
    if (value == NULL) fail_msg("%s: %s", base, error.text);
    return value;
}

static const char *dump(json_t *value) {
    make_path();
    assert_int_equal(json_dump_file(value, path, 0), 0);
    json_decref(value);
    return path;
}

const char *fig_json_file_write(const char *bytes, size_t count) {
    make_path();
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *fig_json_file_change(const fig_json_change *change) {
    json_t *whole = load(change->base);
    json_t *inner = change->object != NULL ? json_object_get(whole, change->object) : whole;
    assert_non_null(inner);
    if (change->value == NULL) {
        json_object_del(inner, change->field);
    } else {
        json_object_set_new(inner, change->field, parse(change->value));
    }
    return dump(whole);
}

const char *fig_json_file_update(const char *base, const char *fields) {
    json_t *whole = load(base), *changed = parse(fields);
    assert_int_equal(json_object_update(whole, changed), 0);
    json_decref(changed);
    return dump(whole);
}

void fig_json_file_remove(void) {
    if (made) unlink(path);
    made = 0;
}

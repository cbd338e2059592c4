/* json_file.h: writes a JSON file anew for each case of a test.
 *
 * A process has one such file, under /tmp, until fig_json_file_remove(). Each call returns the
 * file's path. */
#ifndef FIG_TESTS_SUPPORT_JSON_FILE_H
#define FIG_TESTS_SUPPORT_JSON_FILE_H

#include <stddef.h>

const char *fig_json_file_write(const char *bytes, size_t count);
/* Writes `base` with a changed field (a field of `object`, if this is not NULL): it gets `value`,
 * which is JSON, or is removed if `value` is NULL. */
typedef struct fig_json_change {
    const char *base, *object, *field, *value;
} fig_json_change;
const char *fig_json_file_change(const fig_json_change *change);
/* Writes `base`, in which the fields of the JSON object `fields` replace those of the same
 * names. */
const char *fig_json_file_update(const char *base, const char *fields);
void fig_json_file_remove(void);

#endif

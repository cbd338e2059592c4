/* json_file.h: a JSON file of a test's own, written anew for every case.
 *
 * One per process, under /tmp until fig_json_file_remove. Each call returns its path. */
#ifndef FIG_TESTS_SUPPORT_JSON_FILE_H
#define FIG_TESTS_SUPPORT_JSON_FILE_H

#include <stddef.h>

const char *fig_json_file_write(const char *bytes, size_t count);
/* `base` with one field, of `object` where given, set to `value` (JSON), or gone (NULL). */
typedef struct fig_json_change {
    const char *base, *object, *field, *value;
} fig_json_change;
const char *fig_json_file_change(const fig_json_change *change);
/* `base` with every field of the object `fields` (JSON) as it is there. */
const char *fig_json_file_update(const char *base, const char *fields);
void fig_json_file_remove(void);

#endif

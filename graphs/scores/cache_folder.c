/* cache_folder.c: finds the folder of compiled scores, and makes the user's own.
 *
 * Nothing here changes a folder that exists: one that others may write is refused, not mended,
 * since somebody may have put entries there. Invariant: that of cache_folder.h. */
#include "graphs/scores/cache_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "graphs/scores/score_cache.h"
#include "planner/status.h"

/* Returns the value of a variable. The specification says to ignore a relative path. */
static const char *absolute(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] == '/' ? value : NULL;
}

static fig_status put_path(const char *named, char path[PATH_MAX]) {
    const char *cache = absolute("XDG_CACHE_HOME"), *home = absolute("HOME");
    int count;
    if (named[0] != '\0')
        count = snprintf(path, PATH_MAX, "%s", named);
    else if (cache != NULL)
        count = snprintf(path, PATH_MAX, "%s/figraph/scores", cache);
    else if (home != NULL)
        count = snprintf(path, PATH_MAX, "%s/.cache/figraph/scores", home);
    else
        return fig_fail(FIG_INVALID, "score_cache: neither XDG_CACHE_HOME nor HOME is an absolute "
                                     "path: name a folder");
    if (count > 0 && count < PATH_MAX) return FIG_OK;
    path[0] = '\0';
    return fig_fail(FIG_INVALID, "score_cache: a path of %d bytes, limit %d", count, PATH_MAX - 1);
}

/* Two processes may make a folder at once, so one that is there after all is no failure. */
static fig_status make_one(const char *path) {
    struct stat info;
    if (mkdir(path, S_IRWXU) == 0) return FIG_OK;
    const int reason = errno;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return FIG_OK;
    return fig_fail(FIG_IO, "score_cache: %s: mkdir: %s", path, strerror(reason));
}

/* Makes each folder of the path that is missing. */
static fig_status make_all(char path[PATH_MAX]) {
    fig_status status = FIG_OK;
    for (char *at = path + 1; status == FIG_OK && (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        status = make_one(path);
        *at = '/';
    }
    return status == FIG_OK ? make_one(path) : status;
}

fig_status fig_cache_folder_find(const char *named, char path[PATH_MAX]) {
    FIG_TRY(put_path(named, path));
    if (named[0] == '\0') FIG_TRY(make_all(path));
    return fig_score_cache_check(path);
}

fig_status fig_cache_folder_take(const char *named, char **path) {
    char found[PATH_MAX];
    *path = NULL;
    if (named == NULL) return FIG_OK;
    FIG_TRY(fig_cache_folder_find(named, found));
    *path = strdup(found);
    return *path != NULL ? FIG_OK : fig_fail(FIG_NOMEM, "score_cache: a path");
}

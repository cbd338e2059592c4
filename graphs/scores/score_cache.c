/* score_cache.c: keeps compiled scores in a folder.
 *
 *     entry   "figscore" [8], key [32], SHA-256 of the code [32], bytes of the code [8], code
 *
 * The folder is checked again for every entry, because a long-lived process may outlive its mode.
 * An entry is judged once it is open: the owner of a folder above may exchange the files there at
 * any time. Invariant: that of score_cache.h. */
#define _XOPEN_SOURCE 700 /* realpath, S_ISVTX */
#include "graphs/scores/score_cache.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graphs/files/archive.h"
#include "graphs/files/file.h"
#include "graphs/view/hash.h"
#include "planner/status.h"

typedef struct entry_head {
    char magic[8];
    uint8_t key[FIG_SCORE_CACHE_KEY_BYTES];
    uint8_t sha256[32];
    uint64_t count;
} entry_head;
static_assert(sizeof(entry_head) == 80, "file format");

static const char magic[8] = {'f', 'i', 'g', 's', 'c', 'o', 'r', 'e'};

/* Returns 1 if only this user, or root, may write the file. */
static int is_ours(const struct stat *info) {
    return (info->st_uid == geteuid() || info->st_uid == 0) &&
           (info->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* In a folder above that everybody may write, anybody could replace ours: they could not have their
 * code loaded, but lead what we write elsewhere. In a sticky folder, such as /tmp, only owners may
 * rename. `real` is the folder without links. */
static fig_status check_above(const char *folder, const char *real) {
    char path[PATH_MAX];
    struct stat info;
    int is_sound = 1;
    memcpy(path, real, strlen(real) + 1);
    while (is_sound && path[1] != '\0') {
        char *slash = strrchr(path, '/');
        slash[slash == path] = '\0';
        is_sound = stat(path, &info) == 0 && (info.st_mode & (S_IWOTH | S_ISVTX)) != S_IWOTH;
    }
    if (is_sound) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "score_cache: %s: everybody may rename what lies in %s: name a folder that "
                    "stands elsewhere",
                    folder, path);
}

/* Sets `real` to the path of the folder without links. A caller that goes on with this path uses
 * the folder that was checked, even if a link now points elsewhere. */
static fig_status check(const char *folder, char real[PATH_MAX]) {
    struct stat info;
    if (realpath(folder, real) == NULL || stat(real, &info) != 0 || !S_ISDIR(info.st_mode))
        return fig_fail(FIG_INVALID, "score_cache: %s is no folder", folder);
    if (!is_ours(&info))
        return fig_fail(FIG_INVALID,
                        "score_cache: others may write in %s: name a folder that only you may "
                        "write, such as one of mode 700",
                        folder);
    return check_above(folder, real);
}

fig_status fig_score_cache_check(const char *folder) {
    char real[PATH_MAX];
    return check(folder, real);
}

/* Checks the folder. Sets `path` to that of the key's entry. */
static fig_status path_of(const char *folder, const uint8_t *key, char path[PATH_MAX]) {
    char hex[65], real[PATH_MAX];
    FIG_TRY(check(folder, real));
    fig_archive_hex(key, hex);
    const int count = snprintf(path, PATH_MAX, "%s/%s.score", real, hex);
    if (count < 0 || count >= PATH_MAX)
        return fig_fail(FIG_INVALID, "score_cache: %s is too long a path", folder);
    return FIG_OK;
}

static void hash_of(const uint8_t *bytes, size_t count, uint8_t sha256[32]) {
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, bytes, count);
    fig_hash_sha256_finish(&hash, sha256);
}

/* Returns 1 if the file holds the code of the key and nothing else. */
static int is_sound(const uint8_t *file, size_t count, const uint8_t *key) {
    entry_head head;
    uint8_t sha256[32];
    if (count <= sizeof head) return 0;
    memcpy(&head, file, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.count != count - sizeof head ||
        memcmp(head.key, key, sizeof head.key) != 0)
        return 0;
    hash_of(file + sizeof head, count - sizeof head, sha256);
    return memcmp(head.sha256, sha256, sizeof sha256) == 0;
}

fig_status fig_score_cache_read(const char *folder, const uint8_t key[FIG_SCORE_CACHE_KEY_BYTES],
                                uint8_t **code, size_t *count) {
    char path[PATH_MAX];
    uint8_t *file;
    *code = NULL;
    *count = 0;
    FIG_TRY(path_of(folder, key, path));
    const fig_status status = fig_file_read_ours(
        path, FIG_SCORE_CACHE_CODE_LIMIT + sizeof(entry_head), is_ours, &file, count);
    if (status != FIG_OK) *count = 0;
    if (status != FIG_OK) return status == FIG_NOMEM ? status : FIG_OK;
    if (is_sound(file, *count, key)) {
        *count -= sizeof(entry_head);
        memmove(file, file + sizeof(entry_head), *count);
        *code = file;
        return FIG_OK;
    }
    free(file);
    *count = 0;
    return FIG_OK;
}

fig_status fig_score_cache_write(const char *folder, const uint8_t key[FIG_SCORE_CACHE_KEY_BYTES],
                                 const uint8_t *code, size_t count) {
    char path[PATH_MAX];
    entry_head head = {.count = count};
    FIG_TRY(path_of(folder, key, path));
    uint8_t *file = malloc(sizeof head + count);
    if (file == NULL) return fig_fail(FIG_NOMEM, "score_cache: %zu bytes", sizeof head + count);
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.key, key, sizeof head.key);
    hash_of(code, count, head.sha256);
    memcpy(file, &head, sizeof head);
    memcpy(file + sizeof head, code, count);
    const fig_status status = fig_file_write_private(path, file, sizeof head + count);
    free(file);
    return status;
}

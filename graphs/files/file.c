/* file.c: reads a whole file, or replaces one atomically.
 *
 * If the file system supports it, bytes are written to a file without a name. When the bytes are on
 * disk the file gets a temporary name, and a rename then gives it the target's name. A saving
 * process holds a lock on its temporary file, so any temporary file that is not locked was left by
 * a killed process. Invariant: whichever call fails, no descriptor and no temporary file is
 * left. */
#define _GNU_SOURCE /* O_TMPFILE, O_PATH */
#include "graphs/files/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/status.h"

enum { LINK_LIMIT = 40, TEMPORARY_LIMIT = 8 };

/* A temporary file's name is name_before, 16 random digits and name_behind. */
static const char name_before[] = ".figraph-", name_behind[] = ".tmp";
enum { NAME_DIGITS = 16, NAME_BYTES = sizeof name_before - 1 + NAME_DIGITS + sizeof name_behind };

static fig_status refuse(const char *path, const char *call) {
    return fig_fail(FIG_IO, "%s: %s: %s", path, call, strerror(errno));
}

/* ---- Reading --------------------------------------------------------------------------------- */

static fig_status measure(int fd, const char *path, size_t limit, size_t *count) {
    struct stat info;
    if (fstat(fd, &info) != 0) return refuse(path, "fstat");
    if (!S_ISREG(info.st_mode)) return fig_fail(FIG_IO, "%s: not a regular file", path);
    if ((uintmax_t)info.st_size > limit)
        return fig_fail(FIG_TOO_LARGE, "%s: %" PRIdMAX " bytes, limit %zu", path,
                        (intmax_t)info.st_size, limit);
    *count = (size_t)info.st_size;
    return FIG_OK;
}

static fig_status read_all(int fd, const char *path, uint8_t *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        const ssize_t got = read(fd, bytes + done, count - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return refuse(path, "read");
        if (got == 0) return fig_fail(FIG_IO, "%s: ends at byte %zu of %zu", path, done, count);
        done += (size_t)got;
    }
    return FIG_OK;
}

static fig_status read_open(int fd, const char *path, size_t limit, uint8_t **bytes,
                            size_t *count) {
    size_t held = 0;
    FIG_TRY(measure(fd, path, limit, &held));
    uint8_t *read_bytes = malloc(held + 1); /* not NULL for an empty file either */
    if (read_bytes == NULL) return fig_fail(FIG_NOMEM, "%s: %zu bytes", path, held);
    const fig_status status = read_all(fd, path, read_bytes, held);
    if (status != FIG_OK) {
        free(read_bytes);
        return status;
    }
    *bytes = read_bytes;
    *count = held;
    return FIG_OK;
}

static fig_status check_ours(int fd, const char *path, int (*is_ours)(const struct stat *info)) {
    struct stat info;
    if (fstat(fd, &info) != 0) return refuse(path, "fstat");
    return is_ours(&info) ? FIG_OK : fig_fail(FIG_IO, "%s: others may write it", path);
}

fig_status fig_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *count) {
    *bytes = NULL;
    *count = 0;
    /* O_NONBLOCK: do not wait for the other end of a pipe. The pipe is refused below. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return refuse(path, "open");
    const fig_status status = read_open(fd, path, limit, bytes, count);
    close(fd);
    return status;
}

fig_status fig_file_read_ours(const char *path, size_t limit,
                              int (*is_ours)(const struct stat *info), uint8_t **bytes,
                              size_t *count) {
    *bytes = NULL;
    *count = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return refuse(path, "open");
    fig_status status = check_ours(fd, path, is_ours);
    if (status == FIG_OK) status = read_open(fd, path, limit, bytes, count);
    close(fd);
    return status;
}

/* ---- Writing: the place ---------------------------------------------------------------------- */

/* The target of a save: a name in a directory that is held open. */
typedef struct place {
    char path[PATH_MAX]; /* with links resolved, unless they change meanwhile or it is private */
    const char *name;    /* the last part of the path */
    int directory;       /* its file descriptor */
    int readable;        /* 0: this process may write in the directory but not read it */
    int exists;          /* 1: the path is a regular file, and `old` describes it */
    int is_private;      /* 1: the new file gets a mode of its own, and replaces a link */
    struct stat old;
} place;

static size_t folder_bytes(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* Replaces a link by its target until the path is not a link or names no file. */
static fig_status follow_links(char path[PATH_MAX]) {
    char target[PATH_MAX];
    for (int i = 0; i < LINK_LIMIT; i++) {
        const ssize_t length = readlink(path, target, sizeof target);
        if (length < 0) return FIG_OK;
        const size_t folder = target[0] == '/' ? 0 : folder_bytes(path);
        if (folder + (size_t)length >= PATH_MAX)
            return fig_fail(FIG_IO, "%s: points at a path of more than %d bytes", path, PATH_MAX);
        memcpy(path + folder, target, (size_t)length);
        path[folder + (size_t)length] = '\0';
    }
    return fig_fail(FIG_IO, "%s: more than %d symbolic links", path, LINK_LIMIT);
}

/* Describes the old file, if there is one. Fails if the path is a device, a pipe or a directory. */
static fig_status look_at_old(place *at, const char *path) {
    at->exists = stat(path, &at->old) == 0;
    if (!at->exists && errno != ENOENT) return refuse(path, "stat");
    if (at->exists && !S_ISREG(at->old.st_mode))
        return fig_fail(FIG_IO, "%s: not a regular file", path);
    return FIG_OK;
}

/* Opens the directory. This happens before writing, so that after the rename only the disk can
 * fail. */
static fig_status open_directory(place *at) {
    const size_t folder = folder_bytes(at->path);
    const char first = at->path[folder];
    at->name = at->path + folder;
    at->path[folder] = '\0';
    const char *path = folder == 0 ? "." : at->path;
    at->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    at->readable = at->directory >= 0;
    if (at->directory < 0 && errno == EACCES)
        at->directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const fig_status status = at->directory < 0 ? refuse(path, "open") : FIG_OK;
    at->path[folder] = first;
    return status;
}

static fig_status open_place(place *at, const char *path) {
    if (strlen(path) >= PATH_MAX)
        return fig_fail(FIG_IO, "%.64s...: a path of more than %d bytes", path, PATH_MAX);
    memcpy(at->path, path, strlen(path) + 1);
    at->exists = 0;
    if (!at->is_private) FIG_TRY(look_at_old(at, path));
    if (!at->is_private) FIG_TRY(follow_links(at->path));
    return open_directory(at);
}

/* ---- Writing: temporaries -------------------------------------------------------------------- */

static int is_temporary(const char *name) {
    const size_t before = sizeof name_before - 1;
    return strlen(name) == NAME_BYTES - 1 && strncmp(name, name_before, before) == 0 &&
           strspn(name + before, "0123456789abcdef") == NAME_DIGITS &&
           strcmp(name + before + NAME_DIGITS, name_behind) == 0;
}

static void remove_unheld(int directory, const char *name) {
    struct stat info;
    const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(directory, name, 0);
    close(fd);
}

/* Removes temporary files of killed processes. Nothing depends on the removal, so failures are not
 * reported. */
static void sweep(const place *at) {
    if (!at->readable) return;
    const int fd = openat(at->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (listing == NULL) {
        if (fd >= 0) close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (is_temporary(entry->d_name)) remove_unheld(at->directory, entry->d_name);
    }
    closedir(listing);
}

static fig_status make_name(const place *at, char name[NAME_BYTES]) {
    uint64_t digits;
    if (getrandom(&digits, sizeof digits, 0) != (ssize_t)sizeof digits)
        return refuse(at->path, "getrandom");
    snprintf(name, NAME_BYTES, "%s%0*" PRIx64 "%s", name_before, NAME_DIGITS, digits, name_behind);
    return FIG_OK;
}

/* Returns 1 if this process holds the file's lock, or if the file system has no locks: then no
 * sweep() can lock the file either. */
static int hold(int fd) {
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* Returns the mode of a new file, before the process's mask. */
static mode_t mode_of(const place *at) {
    return at->is_private ? 0600 : 0666;
}

/* Opens a file without a name, which the system removes if this process is killed. Returns -1 if
 * the file system does not support such files, or if there is no /proc through which to name the
 * file later. */
static int open_unnamed(const place *at, char from[32]) {
    const int fd = openat(at->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode_of(at));
    if (fd < 0) return -1;
    snprintf(from, 32, "/proc/self/fd/%d", fd);
    if (access(from, F_OK) == 0 && hold(fd)) return fd;
    close(fd);
    return -1;
}

/* Returns 1 if no sweep() removed the file before this process locked the file. */
static int is_there(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

static fig_status open_named(const place *at, char name[NAME_BYTES], int *fd) {
    for (int i = 0; i < TEMPORARY_LIMIT; i++) {
        FIG_TRY(make_name(at, name));
        *fd = openat(at->directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_of(at));
        if (*fd < 0 && errno != EEXIST) return refuse(at->path, "open a file beside it");
        if (*fd >= 0 && hold(*fd) && is_there(*fd)) return FIG_OK;
        if (*fd < 0) continue;
        unlinkat(at->directory, name, 0);
        close(*fd);
        *fd = -1; /* the caller closes what is left here, whichever call fails next */
    }
    return fig_fail(FIG_IO, "%s: no file beside it could be locked", at->path);
}

/* ---- Writing: bytes -------------------------------------------------------------------------- */

/* Copies the owner and mode of the replaced file. Only a privileged process may change an owner. */
static fig_status keep_mode(const place *at, int fd) {
    struct stat info;
    if (!at->exists) return FIG_OK;
    if (fstat(fd, &info) != 0) return refuse(at->path, "fstat");
    mode_t mode = at->old.st_mode & 07777;
    const int same = info.st_uid == at->old.st_uid && info.st_gid == at->old.st_gid;
    if (!same && fchown(fd, at->old.st_uid, at->old.st_gid) != 0) mode &= 0777;
    return fchmod(fd, mode) == 0 ? FIG_OK : refuse(at->path, "fchmod");
}

static fig_status write_all(const place *at, int fd, const uint8_t *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        const ssize_t put = write(fd, bytes + done, count - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return refuse(at->path, "write");
        done += (size_t)put;
    }
    return fsync(fd) == 0 ? FIG_OK : refuse(at->path, "fsync");
}

static fig_status give_name(const place *at, const char *from, char name[NAME_BYTES]) {
    FIG_TRY(make_name(at, name));
    if (linkat(AT_FDCWD, from, at->directory, name, AT_SYMLINK_FOLLOW) == 0) return FIG_OK;
    const fig_status status = refuse(at->path, "link a file beside it");
    name[0] = '\0';
    return status;
}

static fig_status rename_over(const place *at, const char *name) {
    if (renameat(at->directory, name, at->directory, at->name) != 0)
        return refuse(at->path, "rename");
    return FIG_OK;
}

/* Closes the file only after the rename, because the lock must last until then. The result of close
 * is ignored, because fsync has already reported any error. */
static fig_status replace(const place *at, const uint8_t *bytes, size_t count) {
    char name[NAME_BYTES] = "", from[32];
    fig_status status = FIG_OK;
    int fd = open_unnamed(at, from);
    const int unnamed = fd >= 0;
    if (!unnamed) status = open_named(at, name, &fd);
    if (status == FIG_OK) status = keep_mode(at, fd);
    if (status == FIG_OK) status = write_all(at, fd, bytes, count);
    if (status == FIG_OK && unnamed) status = give_name(at, from, name);
    if (status == FIG_OK) status = rename_over(at, name);
    if (status != FIG_OK && fd >= 0 && name[0] != '\0') unlinkat(at->directory, name, 0);
    if (fd >= 0) close(fd);
    FIG_TRY(status);
    /* The rename is on disk only after the directory is flushed. An unreadable directory cannot be
     * flushed. */
    if (at->readable && fsync(at->directory) != 0) return refuse(at->path, "fsync its directory");
    return FIG_OK;
}

static fig_status write_file(const char *path, const uint8_t *bytes, size_t count, int is_private) {
    place at;
    at.is_private = is_private;
    FIG_TRY(open_place(&at, path));
    sweep(&at);
    const fig_status status = replace(&at, bytes, count);
    close(at.directory);
    return status;
}

fig_status fig_file_write(const char *path, const uint8_t *bytes, size_t count) {
    return write_file(path, bytes, count, 0);
}

fig_status fig_file_write_private(const char *path, const uint8_t *bytes, size_t count) {
    return write_file(path, bytes, count, 1);
}

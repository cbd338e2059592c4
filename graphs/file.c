/* file.c: a whole file read, or replaced in one piece.
 *
 * A file appears under its name by rename alone, after its bytes are on the disk. Invariant:
 * whatever fails, no descriptor and no temporary file is left. */
#include "graphs/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/status.h"

enum { SUFFIX_BYTES = 32, TEMPORARY_LIMIT = 100 };

static fig_status refuse(const char *path, const char *call) {
    return fig_fail(FIG_IO, "%s: %s: %s", path, call, strerror(errno));
}

/* ---- Reading --------------------------------------------------------------------------------- */

static fig_status measure(int fd, const char *path, size_t limit, size_t *count) {
    struct stat info;
    if (fstat(fd, &info) != 0) return refuse(path, "fstat");
    if (!S_ISREG(info.st_mode)) return fig_fail(FIG_IO, "%s: not a regular file", path);
    if ((uintmax_t)info.st_size > limit)
        return fig_fail(FIG_FORMAT, "%s: %" PRIdMAX " bytes, limit %zu", path,
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
    uint8_t *read_bytes = malloc(held + 1); /* of an empty file, too, something to free */
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

fig_status fig_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *count) {
    *bytes = NULL;
    *count = 0;
    /* Not to wait for the other end of a pipe, which is then refused. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return refuse(path, "open");
    const fig_status status = read_open(fd, path, limit, bytes, count);
    close(fd);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Opens a file of its own beside `path`, whoever else saves there, and leaves its name in
 * `temporary`, which has room for path and SUFFIX_BYTES. */
static fig_status open_beside(const char *path, char *temporary, int *fd) {
    for (int i = 0; i < TEMPORARY_LIMIT; i++) {
        snprintf(temporary, strlen(path) + SUFFIX_BYTES, "%s.%ld.%d.tmp", path, (long)getpid(), i);
        *fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0) return FIG_OK;
        if (errno != EEXIST) break;
    }
    return refuse(temporary, "open");
}

static fig_status write_all(int fd, const char *path, const uint8_t *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        const ssize_t put = write(fd, bytes + done, count - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return refuse(path, "write");
        done += (size_t)put;
    }
    if (fsync(fd) != 0) return refuse(path, "fsync");
    return FIG_OK;
}

/* A rename is on the disk once its directory is. */
static fig_status flush_directory(const char *path) {
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    char *directory = malloc(length + 2);
    if (directory == NULL) return fig_fail(FIG_NOMEM, "%s: %zu bytes", path, length + 2);
    memcpy(directory, length == 0 ? "." : path, length == 0 ? 1 : length);
    directory[length == 0 ? 1 : length] = '\0';
    fig_status status = FIG_OK;
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        status = refuse(directory, "open");
    } else {
        if (fsync(fd) != 0) status = refuse(directory, "fsync");
        close(fd);
    }
    free(directory);
    return status;
}

/* Writes, closes and renames what open_beside() opened; ends it on failure. */
static fig_status finish_beside(int fd, const char *path, const char *temporary,
                                const uint8_t *bytes, size_t count) {
    fig_status status = write_all(fd, temporary, bytes, count);
    if (close(fd) != 0 && status == FIG_OK) status = refuse(temporary, "close");
    if (status == FIG_OK && rename(temporary, path) != 0) status = refuse(path, "rename");
    if (status != FIG_OK) unlink(temporary);
    return status;
}

fig_status fig_file_write(const char *path, const uint8_t *bytes, size_t count) {
    int fd = -1;
    char *temporary = malloc(strlen(path) + SUFFIX_BYTES);
    if (temporary == NULL) return fig_fail(FIG_NOMEM, "%s: name of a file beside it", path);
    fig_status status = open_beside(path, temporary, &fd);
    if (status == FIG_OK) status = finish_beside(fd, path, temporary, bytes, count);
    free(temporary);
    FIG_TRY(status);
    return flush_directory(path);
}

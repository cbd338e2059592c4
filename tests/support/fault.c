/* fault.c: gates in front of functions that can fail.
 *
 * The linker turns each call of a gated function into a call of __wrap_<name>; __real_<name> is the
 * function itself. A gated close or fclose still closes when it fails, as on Linux, so that a test
 * of the failure leaks nothing. If an armed thread closes a descriptor twice, the test ends,
 * because the second close might close what another thread has opened meanwhile. Invariant: a
 * disarmed gate only passes calls on. */
#include "tests/support/fault.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hwloc.h>

/* Declares both of the linker's names and begins the definition of the gate. */
#define GATE(type, name, arguments)                                                                \
    type __real_##name arguments;                                                                  \
    type __wrap_##name arguments;                                                                  \
    type __wrap_##name arguments

/* FAIL_WITH(ENOMEM, NULL) sets errno and returns from the gate if this is the call that must
 * fail. */
#define FAIL_WITH(code, value)                                                                     \
    do {                                                                                           \
        if (fault_is_due()) {                                                                      \
            errno = (code);                                                                        \
            return (value);                                                                        \
        }                                                                                          \
    } while (0)

/* Which of the coming calls fails, counted from 1; 0: none. */
static _Thread_local int64_t fault_due;
static _Thread_local int64_t fault_seen;
static _Thread_local int fault_armed, fault_kills;
static _Thread_local uint64_t fault_bytes; /* the bytes that were requested while armed */
static _Thread_local size_t fault_most_bytes;
static _Thread_local void (*fault_act)(void); /* what happens before the next open */
static _Thread_local void (*fault_act_lock)(void);
static _Thread_local int64_t fault_owner = -1;

static void count_bytes(size_t bytes) {
    if (fault_armed) fault_bytes += bytes;
}

static int fault_is_due(void) {
    if (!fault_armed) return 0;
    fault_seen++;
    const int is_due = fault_due > 0 && --fault_due == 0;
    if (is_due && fault_kills) raise(SIGKILL);
    return is_due;
}

static size_t shortened(size_t bytes) {
    return fault_most_bytes > 0 && bytes > fault_most_bytes ? fault_most_bytes : bytes;
}

void fig_fault_arm(int64_t n) {
    fault_due = n;
    fault_seen = 0;
    fault_bytes = 0;
    fault_armed = 1;
}

void fig_fault_arm_kill(int64_t n) {
    fault_kills = 1;
    fig_fault_arm(n);
}

int64_t fig_fault_disarm(void) {
    fault_armed = fault_kills = 0;
    fault_due = 0;
    return fault_seen;
}

uint64_t fig_fault_bytes(void) {
    return fault_bytes;
}

void fig_fault_shorten(size_t bytes) {
    fault_most_bytes = bytes;
}

void fig_fault_intrude(void (*act)(void)) {
    fault_act = act;
}

void fig_fault_intrude_lock(void (*act)(void)) {
    fault_act_lock = act;
}

void fig_fault_own(int64_t user) {
    fault_owner = user;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

GATE(void *, malloc, (size_t bytes)) {
    count_bytes(bytes);
    FAIL_WITH(ENOMEM, NULL);
    return __real_malloc(bytes);
}

GATE(void *, calloc, (size_t count, size_t bytes)) {
    count_bytes(count * bytes);
    FAIL_WITH(ENOMEM, NULL);
    return __real_calloc(count, bytes);
}

GATE(void *, realloc, (void *block, size_t bytes)) {
    count_bytes(bytes);
    FAIL_WITH(ENOMEM, NULL);
    return __real_realloc(block, bytes);
}

GATE(void *, aligned_alloc, (size_t unit, size_t bytes)) {
    count_bytes(bytes);
    FAIL_WITH(ENOMEM, NULL);
    return __real_aligned_alloc(unit, bytes);
}

GATE(int, posix_memalign, (void **block, size_t unit, size_t bytes)) {
    count_bytes(bytes);
    if (fault_is_due()) return ENOMEM;
    return __real_posix_memalign(block, unit, bytes);
}

GATE(char *, strdup, (const char *text)) {
    FAIL_WITH(ENOMEM, NULL);
    return __real_strdup(text);
}

GATE(void *, mmap, (void *address, size_t bytes, int access, int flags, int file, off_t offset)) {
    FAIL_WITH(ENOMEM, MAP_FAILED);
    return __real_mmap(address, bytes, access, flags, file, offset);
}

/* ---- hwloc ----------------------------------------------------------------------------------- */

/* If hwloc is linked statically, it allocates through these gates too. Within hwloc's functions
 * nothing is made to fail, since hwloc does not survive every failed allocation. */
#define SHIELD(type, name, arguments)                                                              \
    const int armed = fault_armed;                                                                 \
    fault_armed = 0;                                                                               \
    type result = __real_##name arguments;                                                         \
    fault_armed = armed;                                                                           \
    return result

GATE(int, hwloc_topology_init, (hwloc_topology_t * topology)) {
    FAIL_WITH(ENOMEM, -1);
    SHIELD(int, hwloc_topology_init, (topology));
}

/* Never fails: if the library lacks these components, there is nothing to exclude. */
GATE(int, hwloc_topology_set_components,
     (hwloc_topology_t topology, unsigned long flags, const char *name)) {
    SHIELD(int, hwloc_topology_set_components, (topology, flags, name));
}

GATE(int, hwloc_topology_load, (hwloc_topology_t topology)) {
    FAIL_WITH(EINVAL, -1);
    SHIELD(int, hwloc_topology_load, (topology));
}

GATE(hwloc_bitmap_t, hwloc_bitmap_alloc, (void)) {
    FAIL_WITH(ENOMEM, NULL);
    SHIELD(hwloc_bitmap_t, hwloc_bitmap_alloc, ());
}

GATE(void *, hwloc_alloc, (hwloc_topology_t topology, size_t bytes)) {
    FAIL_WITH(ENOMEM, NULL);
    SHIELD(void *, hwloc_alloc, (topology, bytes));
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, mode_t);
        va_end(list);
    }
    FAIL_WITH(EMFILE, -1);
    void (*act)(void) = fault_act;
    fault_act = NULL; /* before the call, which may open files itself */
    if (act != NULL) act();
    return __real_open(path, flags, mode);
}

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    /* O_TMPFILE consists of several bits, of which O_WRONLY is always set with it here. Like
     * O_CREAT, it takes a mode. */
    const mode_t mode = flags & O_WRONLY ? va_arg(list, mode_t) : 0;
    va_end(list);
    FAIL_WITH(EMFILE, -1);
    return __real_openat(directory, path, flags, mode);
}

GATE(int, flock, (int file, int operation)) {
    FAIL_WITH(ENOLCK, -1);
    void (*act)(void) = fault_act_lock;
    fault_act_lock = NULL; /* before the call, which may lock files itself */
    if (act != NULL) act();
    return __real_flock(file, operation);
}

GATE(int, fchmod, (int file, mode_t mode)) {
    FAIL_WITH(EPERM, -1);
    return __real_fchmod(file, mode);
}

GATE(ssize_t, getrandom, (void *to, size_t bytes, unsigned int flags)) {
    FAIL_WITH(ENOSYS, -1);
    return __real_getrandom(to, bytes, flags);
}

GATE(int, mkstemp, (char *path)) {
    FAIL_WITH(EACCES, -1);
    return __real_mkstemp(path);
}

GATE(ssize_t, read, (int file, void *to, size_t bytes)) {
    FAIL_WITH(EIO, -1);
    return __real_read(file, to, shortened(bytes));
}

GATE(ssize_t, write, (int file, const void *from, size_t bytes)) {
    FAIL_WITH(ENOSPC, -1);
    return __real_write(file, from, shortened(bytes));
}

GATE(ssize_t, pread, (int file, void *to, size_t bytes, off_t offset)) {
    FAIL_WITH(EIO, -1);
    return __real_pread(file, to, shortened(bytes), offset);
}

GATE(ssize_t, pwrite, (int file, const void *from, size_t bytes, off_t offset)) {
    FAIL_WITH(ENOSPC, -1);
    return __real_pwrite(file, from, shortened(bytes), offset);
}

GATE(off_t, lseek, (int file, off_t offset, int whence)) {
    FAIL_WITH(ESPIPE, -1);
    return __real_lseek(file, offset, whence);
}

GATE(int, fstat, (int file, struct stat *out)) {
    FAIL_WITH(EIO, -1);
    const int result = __real_fstat(file, out);
    if (fault_owner >= 0) out->st_uid = (uid_t)fault_owner;
    return result;
}

GATE(int, fsync, (int file)) {
    FAIL_WITH(EIO, -1);
    return __real_fsync(file);
}

GATE(int, ftruncate, (int file, off_t bytes)) {
    FAIL_WITH(EIO, -1);
    return __real_ftruncate(file, bytes);
}

GATE(int, close, (int file)) {
    int fails = fault_is_due();
    int result = __real_close(file);
    if (fault_armed && result != 0 && errno == EBADF) {
        fprintf(stderr, "descriptor %d is closed, and was closed again\n", file);
        abort();
    }
    if (!fails) return result;
    errno = EIO;
    return -1;
}

/* ---- Names ----------------------------------------------------------------------------------- */

GATE(int, rename, (const char *from, const char *to)) {
    FAIL_WITH(EACCES, -1);
    return __real_rename(from, to);
}

GATE(int, linkat,
     (int from_directory, const char *from, int to_directory, const char *to, int flags)) {
    FAIL_WITH(ENOSPC, -1);
    return __real_linkat(from_directory, from, to_directory, to, flags);
}

GATE(int, renameat, (int from_directory, const char *from, int to_directory, const char *to)) {
    FAIL_WITH(EACCES, -1);
    return __real_renameat(from_directory, from, to_directory, to);
}

GATE(int, unlinkat, (int directory, const char *path, int flags)) {
    FAIL_WITH(EACCES, -1);
    return __real_unlinkat(directory, path, flags);
}

GATE(int, unlink, (const char *path)) {
    FAIL_WITH(EACCES, -1);
    return __real_unlink(path);
}

/* ---- Streams --------------------------------------------------------------------------------- */

GATE(FILE *, fopen, (const char *path, const char *mode)) {
    FAIL_WITH(EMFILE, NULL);
    return __real_fopen(path, mode);
}

GATE(FILE *, fdopen, (int file, const char *mode)) {
    FAIL_WITH(ENOMEM, NULL);
    return __real_fdopen(file, mode);
}

GATE(size_t, fread, (void *to, size_t bytes, size_t count, FILE *file)) {
    FAIL_WITH(EIO, 0);
    return __real_fread(to, bytes, count, file);
}

GATE(size_t, fwrite, (const void *from, size_t bytes, size_t count, FILE *file)) {
    FAIL_WITH(ENOSPC, 0);
    return __real_fwrite(from, bytes, count, file);
}

GATE(int, fflush, (FILE * file)) {
    FAIL_WITH(ENOSPC, EOF);
    return __real_fflush(file);
}

GATE(int, fclose, (FILE * file)) {
    int fails = fault_is_due();
    int result = __real_fclose(file);
    if (!fails) return result;
    errno = ENOSPC;
    return EOF;
}

/* ---- Threads --------------------------------------------------------------------------------- */

GATE(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)) {
    if (fault_is_due()) return EAGAIN;
    return __real_pthread_create(thread, attributes, run, user);
}

GATE(int, pthread_mutex_init, (pthread_mutex_t * mutex, const pthread_mutexattr_t *attributes)) {
    if (fault_is_due()) return ENOMEM;
    return __real_pthread_mutex_init(mutex, attributes);
}

GATE(int, pthread_cond_init, (pthread_cond_t * condition, const pthread_condattr_t *attributes)) {
    if (fault_is_due()) return ENOMEM;
    return __real_pthread_cond_init(condition, attributes);
}

/* ---- Checked forms --------------------------------------------------------------------------- */

/* If the system's compiler adds checks of sizes by default, calls use these names of glibc. */
#define CHECKED(type, name, arguments)                                                             \
    type __wrap_##name arguments;                                                                  \
    type __wrap_##name arguments

CHECKED(ssize_t, __read_chk, (int file, void *to, size_t bytes, size_t room)) {
    assert(bytes <= room);
    return __wrap_read(file, to, bytes);
}

CHECKED(ssize_t, __pread_chk, (int file, void *to, size_t bytes, off_t offset, size_t room)) {
    assert(bytes <= room);
    return __wrap_pread(file, to, bytes, offset);
}

CHECKED(int, __open_2, (const char *path, int flags)) {
    assert((flags & O_CREAT) == 0);
    return __wrap_open(path, flags);
}

CHECKED(int, __openat_2, (int directory, const char *path, int flags)) {
    assert((flags & O_CREAT) == 0);
    return __wrap_openat(directory, path, flags);
}

CHECKED(size_t, __fread_chk, (void *to, size_t room, size_t bytes, size_t count, FILE *file)) {
    assert(count == 0 || bytes <= room / count);
    return __wrap_fread(to, bytes, count, file);
}

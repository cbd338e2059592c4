/* fuzz_place.c: writes a fuzzer's bytes to a file, for functions that read paths. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/figraph_fuzz.XXXXXX";

static void remove_file(void) {
    unlink(path);
}

const char *fig_fuzz_place_bytes(const uint8_t *bytes, size_t count) {
    static int fd = -1;
    if (fd < 0) {
        fd = mkstemp(path);
        atexit(remove_file);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, bytes, count, 0) != (ssize_t)count) {
        perror(path);
        abort();
    }
    return path;
}

/* pack.c: compresses its input, which the build puts into the library, by zstd.
 *
 * Usage: pack < FILE > FRAME    Exit: 0; 1 if anything fails */
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

enum { LEVEL = 19, INPUT_LIMIT = 1 << 26 };

int main(void) {
    char *text = malloc(INPUT_LIMIT);
    if (text == NULL) return 1;
    const size_t count = fread(text, 1, INPUT_LIMIT, stdin);
    if (count == INPUT_LIMIT || ferror(stdin)) return 1;
    const size_t limit = ZSTD_compressBound(count);
    char *frame = malloc(limit);
    if (frame == NULL) return 1;
    const size_t bytes = ZSTD_compress(frame, limit, text, count, LEVEL);
    if (ZSTD_isError(bytes) || fwrite(frame, 1, bytes, stdout) != bytes) return 1;
    return fclose(stdout) == 0 ? 0 : 1;
}

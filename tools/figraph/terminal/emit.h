/* emit.h: prints JSON on stdout, for programs that read the output.
 *
 * Owns commas, indentation and escapes. Invariant: the output between the first open and its close
 * is one JSON value in valid UTF-8, whatever bytes a path holds. */
#ifndef FIG_TOOLS_EMIT_H
#define FIG_TOOLS_EMIT_H

#include <stdint.h>

enum { FIG_EMIT_DEPTH_LIMIT = 8 };

typedef struct fig_emit { /* starts zeroed */
    char brackets[FIG_EMIT_DEPTH_LIMIT];
    int depth;
    int filled; /* 1: the innermost bracket holds something */
} fig_emit;

/* key: NULL inside an array and for the outermost value. */
void fig_emit_object(fig_emit *emit, const char *key);
void fig_emit_array(fig_emit *emit, const char *key);
void fig_emit_close(fig_emit *emit); /* closes the innermost; ends the line after the outermost */
void fig_emit_text(fig_emit *emit, const char *key, const char *value);
void fig_emit_integer(fig_emit *emit, const char *key, int64_t value);
void fig_emit_number(fig_emit *emit, const char *key, double value); /* null if not finite */
/* The shortest decimals that read back as `value`. */
void fig_emit_float(fig_emit *emit, const char *key, float value);
void fig_emit_truth(fig_emit *emit, const char *key, int value);

#endif

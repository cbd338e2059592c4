/* fuzz.h: the entry points that fuzzers call with their own bytes, and test_fuzz.c with stored
 * ones.
 *
 * An entry point returns if everything worked, whether the bytes were accepted or refused.
 * Otherwise it ends the process. It keeps nothing between calls. */
#ifndef FIG_TESTS_FUZZ_FUZZ_H
#define FIG_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Parses a .fig file. If it is accepted, saves it and parses it again; prints some of them too. */
int fig_fuzz_parse(const uint8_t *bytes, size_t count);
/* Parses a .fig file. If it is accepted, binds it on the host device and runs a step. */
int fig_fuzz_step(const uint8_t *bytes, size_t count);
/* Reads a model's config.json. If it is accepted, records and lowers its spec. */
int fig_fuzz_config(const uint8_t *bytes, size_t count);
/* Reads a trace of requests for figraph serve. If it is accepted, writes it and reads it again. */
int fig_fuzz_trace(const uint8_t *bytes, size_t count);
/* Parses a score or makes one from nodes, by the first byte. An accepted one is printed, parsed and
 * made again, and evaluated over arrays of few elements. */
int fig_fuzz_score(const uint8_t *bytes, size_t count);

/* Writes these bytes to a file, for functions that read paths. A process has one such file, which
 * each call overwrites. Returns the file's path. */
const char *fig_fuzz_place_bytes(const uint8_t *bytes, size_t count);

#endif

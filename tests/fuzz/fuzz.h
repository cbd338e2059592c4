/* fuzz.h: what fuzzers call with bytes of their own, tests/test_fuzz.c with those that are kept.
 *
 * An entry returns where all went well, be the bytes refused or taken; it ends the process where it
 * did not. Each keeps nothing from call to call. */
#ifndef FIG_TESTS_FUZZ_FUZZ_H
#define FIG_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* A .fig file: parsed, and what was accepted saved and parsed again; some is shown as well. */
int fig_fuzz_parse(const uint8_t *bytes, size_t count);
/* A .fig file: what is accepted is bound on the host device and runs a step. */
int fig_fuzz_step(const uint8_t *bytes, size_t count);
/* A model's config.json: what is accepted is recorded and lowered. */
int fig_fuzz_config(const uint8_t *bytes, size_t count);
/* A trace of requests for figraph serve: what is accepted is written and read again. */
int fig_fuzz_trace(const uint8_t *bytes, size_t count);

/* A file of these bytes, for what reads paths: one for a process, written anew each time. */
const char *fig_fuzz_place_bytes(const uint8_t *bytes, size_t count);

#endif

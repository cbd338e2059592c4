/* gate.h: a small program around a call, an engine with all of it bound, and a callback that a test
 * can hold up.
 *
 *     up = call "gemm"(x)        tag 5, bytes "scale"; up is FIG_ROLE_TEMP
 *     act = silu_and_mul(up)
 *     spare                      FIG_ROLE_STATE that no node names
 *
 * "gemm" writes up[r][c] = x[r][0] * (c + 1) in f32. Invariant: the callback touches the gate only
 * while a step runs, so a test reads and writes it after a wait, or while a call is held. */
#ifndef FIG_TESTS_SUPPORT_GATE_H
#define FIG_TESTS_SUPPORT_GATE_H

#include <semaphore.h>

#include "include/figraph.h"
#include "tests/support/hang.h"

enum { FIG_GATE_ROWS = 4, FIG_GATE_WIDTH = 16, FIG_GATE_KV = 256 };

typedef float fig_gate_x[FIG_GATE_ROWS * 4];
typedef float fig_gate_act[FIG_GATE_ROWS * FIG_GATE_WIDTH];

typedef struct fig_gate {
    sem_t entered, leave; /* posted by each call; by the test, where calls are held */
    int held;             /* 1: a call waits for `leave` */
    int answer;           /* what a call returns */
    int calls;
    fig_call_args last; /* of the last call, whose arrays are gone */
    const void *last_read;
    char last_bytes[8];

    fig_graphs *graphs;
    fig_engine *engine;
    _Alignas(16) fig_gate_x x;
    _Alignas(16) fig_gate_act act;
} fig_gate;

/* Alone: to give to fig_gate_callback as its user. */
void fig_gate_init(fig_gate *gate);
int32_t fig_gate_callback(void *user, const fig_call_args *args);

/* Buckets {2, 256} and {4, 256}. */
fig_graphs *fig_gate_graphs(void);

/* The host, wherever other tests run: on cuda a call enqueues work once and does none in a step. */
fig_engine_options fig_gate_options(void);
/* Opens an engine on the host, whatever the options' device, and binds x and act to the gate's own,
 * and the call to the gate. */
void fig_gate_open(fig_gate *gate, const fig_engine_options *options);
void fig_gate_close(fig_gate *gate);
fig_status fig_gate_bind(fig_engine *engine, const char *name, void *address, size_t bytes);

/* A step of so many rows, whose arrays live for ever. */
fig_step fig_gate_step(int32_t rows);
fig_status fig_gate_stage(fig_gate *gate, int32_t rows);
/* These fail the test where they cannot. */
void fig_gate_run(fig_gate *gate, int32_t rows);
void fig_gate_wait(fig_gate *gate);
/* Lets one held call go after a while, from a thread of its own. */
void fig_gate_leave_later(fig_gate *gate);

fig_engine_stats fig_gate_stats(const fig_engine *engine);
fig_progress fig_gate_progress(fig_engine *engine);

/* Rows that differ from each other, and from those of another `first`. */
void fig_gate_fill(float *x, float first);
/* Fails at the first element of rows [0, rows) of act that is not what x makes. */
void fig_gate_check(const float *x, const float *act, int32_t rows);

#endif

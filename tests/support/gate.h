/* gate.h: a small program around a call, an engine with all of the program's tensors bound, and a
 * callback that a test can hold up.
 *
 *     up = call "gemm"(x)        tag 5, bytes "scale"; up is FIG_ROLE_TEMP
 *     act = silu_and_mul(up)
 *     spare                      FIG_ROLE_STATE that no node uses
 *
 * "gemm" writes up[r][c] = x[r][0] * (c + 1) in f32. Invariant: the callback touches the gate only
 * while a step runs. So a test may read and write the gate after a wait, or while a call is held
 * up. */
#ifndef FIG_TESTS_SUPPORT_GATE_H
#define FIG_TESTS_SUPPORT_GATE_H

#include <semaphore.h>

#include "include/figraph.h"
#include "tests/support/hang.h"

enum { FIG_GATE_ROWS = 4, FIG_GATE_WIDTH = 16, FIG_GATE_KV = 256 };

typedef float fig_gate_x[FIG_GATE_ROWS * 4];
typedef float fig_gate_act[FIG_GATE_ROWS * FIG_GATE_WIDTH];

typedef struct fig_gate {
    /* Each call posts `entered`. If calls are held up, the test posts `leave`. */
    sem_t entered, leave;
    int held;   /* 1: each call waits for `leave` */
    int answer; /* what a call returns */
    int calls;
    fig_call_args last; /* the arguments of the last call, whose arrays are no longer valid */
    const void *last_read;
    char last_bytes[8];

    fig_graphs *graphs;
    fig_engine *engine;
    _Alignas(16) fig_gate_x x;
    _Alignas(16) fig_gate_act act;
} fig_gate;

/* Initialises the gate alone, for a test that passes it to fig_gate_callback() as the user. */
void fig_gate_init(fig_gate *gate);
int32_t fig_gate_callback(void *user, const fig_call_args *args);

/* Lowers buckets {2, 256} and {4, 256}. */
fig_graphs *fig_gate_graphs(void);

/* Returns options for the host, even if other tests run on cuda. On cuda a callback only enqueues
 * work once, and is not called in a step. */
fig_engine_options fig_gate_options(void);
/* Opens an engine on the host, whatever device the options name. Binds x and act to the gate's
 * arrays, and the call to the gate. */
void fig_gate_open(fig_gate *gate, const fig_engine_options *options);
void fig_gate_close(fig_gate *gate);
fig_status fig_gate_bind(fig_engine *engine, const char *name, void *address, size_t bytes);

/* Returns a step of `rows` rows, whose arrays stay valid. */
fig_step fig_gate_step(int32_t rows);
fig_status fig_gate_stage(fig_gate *gate, int32_t rows);
/* run and wait fail the test if the library returns an error. */
void fig_gate_run(fig_gate *gate, int32_t rows);
void fig_gate_wait(fig_gate *gate);
/* Releases one held call after a while, from another thread. */
void fig_gate_leave_later(fig_gate *gate);

fig_engine_stats fig_gate_stats(const fig_engine *engine);
fig_progress fig_gate_progress(fig_engine *engine);

/* Fills rows with numbers that differ from row to row, and from one value of `first` to another. */
void fig_gate_fill(float *x, float first);
/* Checks rows [0, rows) of act against x. Fails at the first wrong element. */
void fig_gate_check(const float *x, const float *act, int32_t rows);

#endif

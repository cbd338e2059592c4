/* figraph_ffi.h: libfigraph_ffi.so, which Python's frameworks load, as C sees it.
 *
 * The library is a second one, beside libfigraph.so: it needs libc, libm and libpthread alone, and
 * touches CUDA at the first CUDA tensor. Most of it is not called from here:
 *
 *     TVM FFI    tvm_ffi.load_module("libfigraph_ffi.so").silu_and_mul(out, input, False)
 *     XLA FFI    jax.ffi.register_ffi_target(target->name, capsule of target->cuda, "CUDA")
 *
 * README.md has both. What is here is what such a caller needs beside: which targets there are, how
 * large scratch must be, files to run, and counters; and the functions of the first kind for who
 * has arrays and a stream, but no TVM FFI. */
#ifndef FIGRAPH_FFI_H
#define FIGRAPH_FFI_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fig_message() of this library: it exports no function of figraph.h. */
FIG_API const char *fig_ffi_message(void);

/* An XLA FFI target: handlers of API 0.1 and later, of type XLA_FFI_Handler, compatible with
 * command buffers. `host` is for the platform "cpu"; `cuda` for "CUDA", for the stages initialize
 * and execute: where only execute is registered, the first call also loads kernels. */
typedef struct fig_ffi_target {
    uint32_t size;
    const char *name; /* "figraph.silu_and_mul" */
    void *host, *cuda;
} fig_ffi_target;
/* FIG_INVALID: there is no target of that index. */
FIG_API fig_status fig_ffi_read_target(int32_t index, fig_ffi_target *target);

/* One call of a function that TVM FFI would find here, as tools/jax/TARGETS.md lists them. */
typedef struct fig_ffi_call {
    uint32_t size;
    int32_t argument_count;
    const char *function;  /* "decode_attention" */
    const void *arguments; /* [argument_count] of type TVMFFIAny: None, int, float or a DLTensor's
                              address; borrowed until the call returns */
    void *stream;          /* cuda: a CUstream by value; CPU: the calling thread does the work */
} fig_ffi_call;
FIG_API fig_status fig_ffi_run(const fig_ffi_call *call);

/* Attention as run, batch_decode and figraph.attention do it, and what it takes of a device. */
typedef struct fig_ffi_attention {
    uint32_t size;
    fig_dtype dtype;    /* of q and out */
    fig_dtype kv_dtype; /* of the caches; 0: dtype */
    int32_t q_heads, kv_heads, head_dim;
    int32_t page_size; /* tokens of a page; 0: dense */
    int32_t rows;
    int64_t
        kv_length;    /* the most tokens of a row: what its cache, or its row of the page table, can
                          hold */
    int32_t window;   /* tokens seen; 0: all */
    int32_t reserved; /* 0 */
    const fig_traits *traits; /* NULL: the most that any chip needs that fig_traits_name lists, and
                                 the host */
} fig_ffi_attention;
typedef struct fig_ffi_scratch {
    uint32_t size;
    uint32_t reserved;
    uint64_t plan_bytes;  /* of a plan of figraph.plan */
    uint64_t best_bytes;  /* of scratch: more gains nothing; attention with a plan needs it */
    uint64_t least_bytes; /* fewer are refused */
} fig_ffi_scratch;
FIG_API fig_status fig_ffi_read_scratch(const fig_ffi_attention *attention,
                                        fig_ffi_scratch *scratch);

/* Loads a .fig file, and gives its content id: 64 digits and a NUL. figraph.program names it by the
 * first 16 of them as one number, of 64 bits in two's complement. A file is kept for as long as the
 * process lives; loading it again costs only the reading. */
FIG_API fig_status fig_ffi_load(const char *path, char *content_id);
/* The same of a run of `rows` with kv_length: as fig_run has them. */
FIG_API fig_status fig_ffi_read_program_scratch(const char *content_id, int32_t rows,
                                                int64_t kv_length, fig_ffi_scratch *scratch);

/* A segment of a loaded file, by its number in attributes of figraph.program: from 1 on, in the
 * order recorded. FIG_INVALID: there is none of that number. */
typedef struct fig_ffi_segment {
    uint32_t size;
    uint32_t reserved;
    const char *name; /* lives as long as the process */
} fig_ffi_segment;
FIG_API fig_status fig_ffi_read_segment(const char *content_id, int32_t number,
                                        fig_ffi_segment *segment);

/* What the targets would say of RoPE for heads of so many numbers. */
FIG_API fig_status fig_ffi_check_rope(const fig_rope_spec *rope, int32_t head_dim);

/* Since the process began. XLA replays what it captured without a call. */
typedef struct fig_ffi_counts {
    uint32_t size;
    uint32_t reserved;
    int64_t eager;    /* runs that began at once */
    int64_t captured; /* runs that became part of a capture */
    int64_t missed;   /* runners that were made because none served a call yet */
} fig_ffi_counts;
FIG_API fig_status fig_ffi_read_counts(fig_ffi_counts *counts);

#ifdef __cplusplus
}
#endif
#endif

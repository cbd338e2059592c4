/* figraph_ffi.h: the C interface of libfigraph_ffi.so, which Python's frameworks load.
 *
 * libfigraph_ffi.so is a second library beside libfigraph.so. It needs only the library of kernels
 * in its own folder, libc, libm and libpthread, and touches CUDA at the first CUDA tensor.
 * Frameworks call most of it through their own interfaces:
 *
 *     TVM FFI    tvm_ffi.load_module("libfigraph_ffi.so").silu_and_mul(out, input, False)
 *     XLA FFI    jax.ffi.register_ffi_target(target->name, capsule of target->cuda, "CUDA")
 *
 * docs/jax-tvm.md describes both. This header declares the other functions that users of these
 * frameworks need: for the list of targets, sizes of scratch, files to run, and counters.
 * fig_ffi_run() calls the TVM FFI functions for a caller that has arrays and a stream, but no TVM
 * FFI. */
#ifndef FIGRAPH_FFI_H
#define FIGRAPH_FFI_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the sentence of the calling thread's last failure. Use it instead of fig_message(),
 * because libfigraph_ffi.so exports no function of figraph.h. */
FIG_API const char *fig_ffi_message(void);

/* An XLA FFI target. Its handlers are of type XLA_FFI_Handler, for API 0.1 and later, and are
 * compatible with command buffers. */
typedef struct fig_ffi_target {
    uint32_t size; /* sizeof(fig_ffi_target) */
    /* The name, such as "figraph.silu_and_mul". */
    const char *name;
    /* The handler for the platform "cpu". */
    void *host;
    /* The handler for the platform "CUDA". Register it for the stages initialize and execute. If
     * only execute is registered, the first call also loads kernels. */
    void *cuda;
} fig_ffi_target;
/* Describes target `index`, from 0. FIG_INVALID: index is past the last. */
FIG_API fig_status fig_ffi_read_target(int32_t index, fig_ffi_target *target);

/* One call of a function that TVM FFI finds in this library. tools/jax/TARGETS.md lists these
 * functions. */
typedef struct fig_ffi_call {
    uint32_t size; /* sizeof(fig_ffi_call) */
    /* The number of arguments. */
    int32_t argument_count;
    /* The name of the function, such as "decode_attention". */
    const char *function;
    /* [argument_count] The arguments, of type TVMFFIAny: None, int, float or the address of a
     * DLTensor. The library uses them only until the call returns. */
    const void *arguments;
    /* If the tensors are on CUDA, a CUstream by value. If they are on the CPU, the stream is
     * ignored, and the calling thread does the work. */
    void *stream;
} fig_ffi_call;
/* Calls a function. FIG_INVALID: there is no such function, or an argument is wrong. */
FIG_API fig_status fig_ffi_run(const fig_ffi_call *call);

/* The shape of attention in figraph.attention, in figraph.latent_attention, and in the functions
 * `run` and `batch_decode`. */
typedef struct fig_ffi_attention {
    uint32_t size; /* sizeof(fig_ffi_attention) */
    /* The dtype of q and out. */
    fig_dtype dtype;
    /* The dtype of the caches. 0: the same as `dtype`. */
    fig_dtype kv_dtype;
    /* The number of query heads. 0: the call only appends. */
    int32_t q_heads;
    /* The number of KV heads. */
    int32_t kv_heads;
    /* The number of elements of each head. */
    int32_t head_dim;
    /* The number of tokens of a page. 0: the caches are dense. */
    int32_t page_size;
    /* The number of rows. */
    int32_t rows;
    /* The largest number of tokens that a row's cache, or its row of the page table, can hold. A
     * plan covers at most 1,048,576 tokens; a larger number counts as 1,048,576. */
    int64_t kv_length;
    /* The number of tokens that a query sees. 0: all. */
    int32_t window;
    /* The number of query tokens of a row, or the most that a row may have. 0: 1. */
    int32_t row_tokens;
    /* The machine that the sizes are for. NULL: the sizes are enough for the host and for every
     * chip that fig_traits_name() lists. */
    const fig_traits *traits;
    /* 1: the result of a row, bit for bit, depends on the row's own length but not on other
     * rows. */
    int32_t deterministic;
    /* 1: rows have different numbers of query tokens, at most row_tokens each, as query_start_loc
     * says. */
    int32_t packed;
    /* 512: the cache is latent, as in fig_spec; with kv_dtype FIG_E4M3 it holds codes. 0: each KV
     * head has its own K and V. */
    int32_t latent_dim;
    /* The number of a score, from fig_ffi_add_score(). 0: none. */
    int64_t score;
} fig_ffi_attention;

/* Memory that a call needs in addition to its tensors. */
typedef struct fig_ffi_scratch {
    uint32_t size;     /* sizeof(fig_ffi_scratch) */
    uint32_t reserved; /* 0 */
    /* The size of a plan of figraph.plan. */
    uint64_t plan_bytes;
    /* The best size of scratch: a larger one makes no call faster. Attention with a plan needs this
     * much. */
    uint64_t best_bytes;
    /* The smallest size of scratch: the library refuses a call with less. */
    uint64_t least_bytes;
} fig_ffi_scratch;
/* Computes how much memory an attention call needs. It queries no device. FIG_INVALID,
 * FIG_TOO_LARGE: the sentence names the field, its value and the limit. */
FIG_API fig_status fig_ffi_read_scratch(const fig_ffi_attention *attention,
                                        fig_ffi_scratch *scratch);

/* Makes a score known, for as long as the process lives, and sets *number to the number by which
 * calls name it. The number is above 0, and each process computes the same one for scores with the
 * same normal form. FIG_INVALID: the text is not a valid score, see figraph_scores.h.
 * FIG_TOO_LARGE: 256 scores are known. */
FIG_API fig_status fig_ffi_add_score(const char *text, int64_t *number);

/* How calls run scores on a GPU. */
typedef struct fig_ffi_score_options {
    uint32_t size; /* sizeof(fig_ffi_score_options) */
    /* 1: a GPU compiles each score without a mask into attention on tensor cores; the first call
     * with a score, or XLA's stage initialize, then takes a few seconds. 0: scores are interpreted.
     * This option has not run on a GPU yet. The host always interprets. */
    int32_t compile_scores;
    /* As in fig_engine_options: a folder that keeps compiled scores, or FIG_SCORE_CACHE_DEFAULT.
     * NULL: they are kept in memory. The first call that needs the folder checks it. */
    const char *score_cache;
} fig_ffi_score_options;
/* Sets how later calls of this process run scores, also calls of loaded files. Without it scores
 * are interpreted. Captured calls stay as they are. FIG_INVALID: compile_scores is neither 0 nor 1,
 * or score_cache is given though compile_scores is 0. */
FIG_API fig_status fig_ffi_compile_scores(const fig_ffi_score_options *options);

/* Loads a .fig file and writes its content id to content_id, [65]: 64 digits and a NUL. The target
 * figraph.program names a file by the first 16 of these digits, read as one signed 64-bit number. A
 * loaded file stays loaded until the process ends; loading the same file again only reads it. The
 * function fails as fig_graphs_load() does. */
FIG_API fig_status fig_ffi_load(const char *path, char *content_id);
/* Computes how much memory a run of a loaded file needs; `rows` and kv_length are as in fig_run. */
FIG_API fig_status fig_ffi_read_program_scratch(const char *content_id, int32_t rows,
                                                int64_t kv_length, fig_ffi_scratch *scratch);

/* A segment of a loaded file. */
typedef struct fig_ffi_segment {
    uint32_t size;     /* sizeof(fig_ffi_segment) */
    uint32_t reserved; /* 0 */
    /* The name, which stays valid until the process ends. */
    const char *name;
} fig_ffi_segment;
/* Describes segment `number` of a loaded file. Attributes of figraph.program use the same numbers:
 * from 1, in recorded order. FIG_INVALID: there is no segment of that number. */
FIG_API fig_status fig_ffi_read_segment(const char *content_id, int32_t number,
                                        fig_ffi_segment *segment);

/* Checks a kind of RoPE for heads of head_dim elements, as the targets do. FIG_INVALID: the
 * sentence names the field, its value and the limit. */
FIG_API fig_status fig_ffi_check_rope(const fig_rope_spec *rope, int32_t head_dim);

/* Counters since the process began. XLA replays captured work without calling this library, so the
 * counters do not include replays. */
typedef struct fig_ffi_counts {
    uint32_t size;     /* sizeof(fig_ffi_counts) */
    uint32_t reserved; /* 0 */
    /* The number of runs that were launched outside any capture. */
    int64_t eager;
    /* The number of runs that became part of a capture. */
    int64_t captured;
    /* The number of runners that this library made because no existing runner could serve a
     * call. */
    int64_t missed;
} fig_ffi_counts;
/* Reads the counters. Any thread may call this. */
FIG_API fig_status fig_ffi_read_counts(fig_ffi_counts *counts);

#ifdef __cplusplus
}
#endif
#endif

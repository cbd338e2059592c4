/* fake_cuda.h: a CUDA driver without a GPU, to stand behind the table of engine/cuda_api.h.
 *
 * Its memory is memory and its kernels are the twins, so what runs on it computes; a launch runs at
 * once, to its end. It keeps the driver's rules: what needs a current context is refused without
 * one, a broken capture takes its graph along, an edge that came with others takes the kind of the
 * first, what is unsafe while something is captured is to be declared. It counts calls and what is
 * held, and any call can be told to fail.
 *
 * Invariant: what frees frees even where it is told to fail, so what is held in the end was
 * forgotten. */
#ifndef FIG_TESTS_SUPPORT_FAKE_CUDA_H
#define FIG_TESTS_SUPPORT_FAKE_CUDA_H

#include "engine/cuda/cuda_api.h"

/* As which cuDeviceGetAttribute counts where it is asked for the NUMA node, which is a guess that
 * may fail without harm; likewise the call after it. */
#define FIG_FAKE_NODE_QUESTION "cuDeviceGetAttribute of the node"
int fig_fake_cuda_is_guess(const char *call);

typedef struct fig_fake_cuda {
    /* The machine, as the test wants it: */
    int device_count, capability, shared_bytes;
    int unreached;         /* the GPU that no other reaches; 0: each reaches each */
    int is_slow;           /* 1: peers are beside each other on PCIe alone */
    const char *name;      /* of the GPU */
    int no_images;         /* 1: built without nvcc */
    fig_cu_result init;    /* what cuInit returns */
    uint64_t memory_bytes; /* of the GPU in all */
    int node;              /* beside the GPU; -1: unknown */
    int no_node_attribute; /* 1: the driver does not know of nodes */
    const char *bus;       /* where on it the GPU is */
    int static_bytes;      /* of shared memory in every kernel */
    size_t params_excess;  /* bytes that every kernel takes beyond its params */
    int params_count;      /* of every kernel; 1 */
    int loses_edges;       /* 1: programmatic edges become full */
    int keeps_edges;       /* 1: edges that are added together keep each its kind */
    int enqueues_kernels;  /* 1: what callers enqueue are kernels, else copies */
    int takes_execs;       /* 1: one can be launched into a capture */
    int busy_looks;        /* how often a stream is found busy after a launch; below 0: for ever */
    fig_cu_result work_ends; /* what every call returns once something was launched */
    int64_t fail_at;         /* the n-th call fails; 0: none */
    const char *fail_name;   /* or every call of that name, "cuMemAlloc" */
    fig_cu_result fail_with;

    /* What it has seen: */
    int64_t calls; /* but those that name errors */
    int64_t launches;
    int64_t orders;       /* waits of one stream for what another holds */
    int64_t unsafe;       /* calls that a real driver would not have survived */
    const char *last;     /* call */
    const char *failed;   /* the n-th call, where it came to that */
    int64_t held;         /* contexts, streams, libraries, graphs, execs, objects and blocks, those
                             included that were registered */
    int64_t registered;   /* blocks, so far */
    uint64_t memory_used; /* of the GPU */
    int64_t edges, programmatic_edges, empty_nodes, attributes_set; /* made so far */
    int64_t children, instantiated;                                 /* the same */
    int64_t captures;  /* that run, but those begun as relaxed: what is unsafe breaks them */
    unsigned int mode; /* the thread's, of captures */
    int64_t maps, uploads, launched_cold; /* tensor maps made, execs uploaded, and launches of execs
                                               that were not */
    int64_t stream_launches, early_launches; /* of kernels on streams; those of them that may begin
                                                before the one before them has ended */
    const char *ran[FIG_OP_KERNEL_COUNT];    /* entry that ran last of the operation */
    fig_image_path path;                     /* of the last image asked for */
    int64_t foreign_images;                  /* loaded, that are not of the table */
    fig_cu_context current;                  /* NULL: none */
} fig_fake_cuda;

/* Puts it into the process's table, as a machine with one GPU of 9.0 on which all goes well;
 * remove gives the table what it had. */
fig_fake_cuda *fig_fake_cuda_install(void);
void fig_fake_cuda_remove(void);

/* The GPU's context, and another library's, made current by a test. */
extern struct CUctx_st fig_fake_cuda_primary;
fig_cu_context fig_fake_cuda_foreign(void);
/* What a caller does outside of the seam: none is counted. */
void fig_fake_cuda_push(fig_cu_context context);
void fig_fake_cuda_pop(void);
fig_cu_stream fig_fake_cuda_stream_create(fig_cu_context context);
void fig_fake_cuda_stream_destroy(fig_cu_stream stream);

/* A caller's capture in the driver's default mode, 0 where there is no memory for one; and its end:
 * an exec of what was captured, NULL where it broke or there is none for that. None is counted. The
 * graph lives as long as the exec. */
int fig_fake_cuda_capture(fig_cu_stream stream);
fig_cu_exec fig_fake_cuda_end(fig_cu_stream stream);
void fig_fake_cuda_launch(fig_cu_exec exec, fig_cu_stream stream);
void fig_fake_cuda_drop(fig_cu_exec exec); /* NULL is nothing */

/* What a callback does with the stream that it is given, or a caller with one that captures: work
 * in order, or what no capture survives. */
void fig_fake_cuda_enqueue(fig_cu_stream stream, void (*work)(void *user), void *user);
void fig_fake_cuda_break(fig_cu_stream stream);

/* cuGetProcAddress_v2: of this table, each in its version alone. */
fig_cu_result fig_fake_cuda_lookup(const char *name, void **entry, int version, uint64_t flags,
                                   unsigned int *status);

#endif

/* fake_cuda.h: a CUDA driver without a GPU, which replaces the table of engine/driver/cuda_api.h.
 *
 * Device memory is host memory, and kernels are the reference kernels, so programs compute real
 * results. A launch runs to its end before it returns. The fake enforces the driver's rules. A call
 * that needs a current context fails without one. A broken capture destroys its graph. Edges that
 * are added in one call all get the kind of the first one. A call that is unsafe during captures
 * breaks a capture unless the thread has declared the relaxed mode. The fake counts calls and held
 * objects, and a test can make any call fail.
 *
 * Invariant: a call that frees something frees it even if the test makes the call fail. So any
 * object that is still held at the end of a test was leaked. */
#ifndef FIG_TESTS_SUPPORT_FAKE_CUDA_H
#define FIG_TESTS_SUPPORT_FAKE_CUDA_H

#include "engine/driver/cuda_api.h"

/* The name under which the fake counts the call of cuDeviceGetAttribute that asks for the NUMA
 * node. That call and the one after it are guesses, which may fail without harm. */
#define FIG_FAKE_NODE_QUESTION "cuDeviceGetAttribute of the node"
int fig_fake_cuda_is_guess(const char *call);

typedef struct fig_fake_cuda {
    /* The machine, as a test sets it up: */
    int device_count, capability, sm_count, shared_bytes;
    int unreached;         /* a GPU that no other GPU can reach; 0: all GPUs reach each other */
    int is_slow;           /* 1: GPUs are connected by PCIe only */
    const char *name;      /* the GPU's name */
    int no_images;         /* 1: the library was built without nvcc */
    int no_templates;      /* 1: only the templates are absent */
    int refuses_scores;    /* 1: the driver does not compile PTX */
    fig_cu_result init;    /* what cuInit returns */
    uint64_t memory_bytes; /* the total memory of the GPU */
    int node;              /* the NUMA node of the GPU; -1: unknown */
    int no_node_attribute; /* 1: the driver does not have the attribute for the node */
    const char *bus;       /* its PCI address */
    int static_bytes;      /* static shared memory of every kernel */
    int cluster_width;     /* blocks per cluster of every kernel; 0: kernels have no clusters */
    size_t params_excess;  /* bytes that every kernel's parameters take beyond its params */
    int params_count;      /* the number of every kernel's parameters, normally 1 */
    int loses_edges;       /* 1: programmatic edges become full edges */
    int keeps_edges;       /* 1: edges that are added in one call keep their different kinds */
    int enqueues_kernels;  /* 1: callers enqueue kernels; 0: they enqueue copies */
    int takes_execs;       /* 1: an exec can be launched into a capture */
    /* 1: launches on a stream are checked but do nothing, so addresses need not be valid */
    int skips_kernels;
    int refuses_nodes;       /* 1: no kernel can be added to a graph that is being captured */
    int refuses_edges;       /* 1: after a caller's work, no programmatic edge can be added */
    int busy_looks;          /* how many queries find a stream busy after a launch; below 0: all */
    fig_cu_result work_ends; /* the result of every call after something was launched */
    int64_t fail_at;         /* the number of the call that fails; 0: none */
    const char *fail_name;   /* every call of this name fails, "cuMemAlloc" for example */
    fig_cu_result fail_with;
    /* Called once, with `user`, while the driver compiles the next score. It may wait for other
     * threads, which use the fake one at a time. */
    void (*compiling)(void *user);
    void *user;

    /* What the fake has counted and noticed: */
    int64_t calls; /* except calls that only ask for the name of an error */
    int64_t launches;
    int64_t orders;     /* how often one stream was made to wait for another */
    int64_t unsafe;     /* calls that would have crashed a real driver */
    const char *last;   /* the name of the last call */
    const char *failed; /* the name of the call that failed at fail_at */
    /* contexts, streams, links, libraries, graphs, execs, objects and blocks, including registered
     * ones */
    int64_t held;
    int64_t registered;   /* blocks that were registered so far */
    uint64_t memory_used; /* memory of the GPU */
    int64_t edges, programmatic_edges, empty_nodes, attributes_set; /* how many were made */
    int64_t clusters_allowed;       /* kernels that are allowed clusters of over 8 blocks */
    int64_t children, instantiated; /* child graphs and execs made */
    int64_t captures;  /* running captures, without relaxed ones; unsafe calls break them */
    unsigned int mode; /* the thread's capture mode */
    /* tensor maps made, execs uploaded, and launches of execs that were not uploaded */
    int64_t maps, uploads, launched_cold;
    /* kernels launched on streams, and how many of them may begin before the preceding kernel has
     * ended */
    int64_t stream_launches, early_launches;
    const char *ran[FIG_OP_KERNEL_COUNT]; /* the entry that last ran for each operation */
    fig_image_path path;                  /* the path of the image that was requested last */
    int64_t foreign_images;               /* loaded images that are not in the table */
    int64_t images[FIG_OP_KERNEL_COUNT];  /* images loaded for each operation */
    int64_t images_in_capture;            /* images loaded while a stream was capturing */
    int64_t links;                        /* scores compiled */
    fig_cu_context current;               /* NULL: none */
} fig_fake_cuda;

/* Puts the fake into the process's table. It is a machine without faults, with one GPU of compute
 * capability 9.0. fig_fake_cuda_remove() restores the table. */
fig_fake_cuda *fig_fake_cuda_install(void);
void fig_fake_cuda_remove(void);

/* The GPU's own context, and another library's context, which tests make current. */
extern struct CUctx_st fig_fake_cuda_primary;
fig_cu_context fig_fake_cuda_foreign(void);
/* These play calls that a caller makes itself, so the fake does not count them. */
void fig_fake_cuda_push(fig_cu_context context);
void fig_fake_cuda_pop(void);
fig_cu_stream fig_fake_cuda_stream_create(fig_cu_context context);
void fig_fake_cuda_stream_destroy(fig_cu_stream stream);

/* Begin and end a caller's capture in the driver's default mode. The first returns 0 if memory ran
 * out. The second returns an exec, which owns the captured graph, or NULL if the capture broke or
 * memory ran out. The fake counts neither call. */
int fig_fake_cuda_capture(fig_cu_stream stream);
fig_cu_exec fig_fake_cuda_end(fig_cu_stream stream);
void fig_fake_cuda_launch(fig_cu_exec exec, fig_cu_stream stream);
void fig_fake_cuda_drop(fig_cu_exec exec); /* accepts NULL */

/* For callbacks, and for callers with a capturing stream. The first enqueues work in order; the
 * second does something that breaks the capture. */
void fig_fake_cuda_enqueue(fig_cu_stream stream, void (*work)(void *user), void *user);
void fig_fake_cuda_break(fig_cu_stream stream);

/* The fake's cuGetProcAddress_v2. It finds each entry of this table in one version only, the
 * entry's own. */
fig_cu_result fig_fake_cuda_lookup(const char *name, void **entry, int version, uint64_t flags,
                                   unsigned int *status);

#endif

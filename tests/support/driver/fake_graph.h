/* fake_graph.h: declarations that the parts of the fake driver share.
 *
 * fake_cuda.h declares everything that tests see. There is one fake, and only one thread uses it.
 * Handles are allocated, so asan notices the use of a freed handle. Invariant: `held` counts every
 * handle. */
#ifndef FIG_TESTS_SUPPORT_FAKE_GRAPH_H
#define FIG_TESTS_SUPPORT_FAKE_GRAPH_H

#include "tests/support/driver/fake_cuda.h"

enum {
    FIG_FAKE_NODE_LIMIT = 512,
    FIG_FAKE_EDGE_LIMIT = 4096,
    FIG_FAKE_OBJECT_LIMIT = 64,
    FIG_FAKE_PARAMS_LIMIT = 4096,
    FIG_FAKE_DEVICE = 40, /* the handle of the first device, which differs from every ordinal */
    /* the NUMA node of the GPU; no real machine has this node, so it is not chosen by chance */
    FIG_FAKE_NODE = 777,
    FIG_FAKE_ILLEGAL_STATE = 401
};

struct CUctx_st {
    int unused;
};

struct CUstream_st {
    fig_cu_context context;
    fig_cu_graph capturing; /* NULL: the stream is not capturing */
    uint64_t capture;       /* the number of the capture */
    unsigned int mode;      /* the mode of the capture */
    int broken;
    fig_cu_node tails[FIG_FAKE_NODE_LIMIT];
    size_t tail_count;
    int busy_looks;
};

struct CUuserObject_st {
    void *user;
    void (*destroy)(void *user);
    unsigned int references;
};

/* The objects that a graph or an exec holds. */
typedef struct fig_fake_objects {
    fig_cu_object of[FIG_FAKE_OBJECT_LIMIT];
    size_t count;
} fig_fake_objects;

struct CUgraphNode_st {
    fig_cu_graph graph;
    fig_cu_kernel kernel; /* NULL: the node is empty, a child graph or host work */
    fig_cu_graph child;   /* owned by the node */
    void (*work)(void *user);
    void *user;
    uint32_t grid[3];
    _Alignas(16) uint8_t params[FIG_FAKE_PARAMS_LIMIT];
};

/* A tensor map as the fake stores it. */
typedef struct fig_fake_tensor_map {
    uint64_t address, dims[FIG_TENSOR_MAP_RANK_LIMIT], strides_bytes[FIG_TENSOR_MAP_RANK_LIMIT];
    uint16_t box[FIG_TENSOR_MAP_RANK_LIMIT], type, rank, swizzle;
} fig_fake_tensor_map;
static_assert(sizeof(fig_fake_tensor_map) <= sizeof(fig_tensor_map), "it has that room");

typedef struct fig_fake_edge {
    fig_cu_node from, to;
    fig_cu_edge data;
} fig_fake_edge;

struct CUgraph_st {
    fig_cu_node nodes[FIG_FAKE_NODE_LIMIT];
    fig_fake_edge edges[FIG_FAKE_EDGE_LIMIT];
    size_t node_count, edge_count;
    fig_fake_objects objects;
    int is_captured; /* 1: nothing may be removed from the graph, and no exec may be made of it */
};

struct CUgraphExec_st {
    struct CUgraphNode_st nodes[FIG_FAKE_NODE_LIMIT]; /* copies */
    fig_cu_node origins[FIG_FAKE_NODE_LIMIT];
    size_t node_count;
    fig_fake_objects objects;
    fig_cu_graph graph; /* the captured graph if fig_fake_cuda_end() made the exec; else NULL */
    int uploaded;
};

extern fig_fake_cuda fig_fake_cuda_state;
#define fake fig_fake_cuda_state

/* Returns the stream that a handle means. NULL and 1 mean the default stream of the current
 * context. */
fig_cu_stream fig_fake_cuda_stream(fig_cu_stream handle);
/* Counts a call. Returns the error if the test wants this call to fail. */
fig_cu_result fig_fake_cuda_begin(const char *name);
/* Counts a call that would crash a real driver or have an undefined result. Returns an error. */
fig_cu_result fig_fake_cuda_unsafe(void);

/* Returns 1 if both graphs have the same kernels in the same order, and edges of the same kinds
 * between them. The comparison begins at node `first` of the captured graph. */
int fig_fake_graph_is_alike(fig_cu_graph captured, size_t first, fig_cu_graph own);

#define BEGIN(name)                                                                                \
    do {                                                                                           \
        fig_cu_result begin_ = fig_fake_cuda_begin(name);                                          \
        if (begin_ != FIG_CU_SUCCESS) return begin_;                                               \
    } while (0)
/* Begins a function that needs the current context. */
#define BEGIN_INSIDE(name)                                                                         \
    do {                                                                                           \
        BEGIN(name);                                                                               \
        if (fake.current != &fig_fake_cuda_primary) return FIG_CU_INVALID_CONTEXT;                 \
    } while (0)

/* Returns 1 if a running capture is broken by the current, unsafe call. Counts such calls. */
int fig_fake_cuda_breaks(void);
/* Begins a function that is unsafe during captures: it allocates, frees, waits, queries, loads
 * code, or makes or destroys execs. */
#define BEGIN_UNSAFE(name)                                                                         \
    do {                                                                                           \
        BEGIN(name);                                                                               \
        if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;                             \
    } while (0)

/* Fill in the table's functions: one those for graphs, kernels and execs, the other those for
 * captures and user objects. */
void fig_fake_graph_fill(fig_cuda_api *table);
void fig_fake_capture_fill(fig_cuda_api *table);
void fig_fake_link_fill(fig_cuda_api *table);

/* Returns NULL if the graph is full or memory ran out. */
fig_cu_node fig_fake_graph_node(fig_cu_graph graph);
fig_cu_result fig_fake_graph_edges(fig_cu_graph graph, const fig_cu_node *from,
                                   const fig_cu_node *to, const fig_cu_edge *data, size_t count);
void fig_fake_graph_destroy(fig_cu_graph graph);
fig_cu_exec fig_fake_graph_exec(fig_cu_graph graph); /* NULL: memory ran out */
void fig_fake_capture_let_go(fig_fake_objects *objects);

#endif

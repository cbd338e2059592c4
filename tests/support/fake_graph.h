/* fake_graph.h: what the parts of the fake driver share.
 *
 * Leaves to fake_cuda.h all that a test sees. One fake and one thread. Handles are allocated, so
 * that asan sees one that is used after it was freed. Invariant: `held` counts every handle. */
#ifndef FIG_TESTS_SUPPORT_FAKE_GRAPH_H
#define FIG_TESTS_SUPPORT_FAKE_GRAPH_H

#include "tests/support/fake_cuda.h"

enum {
    FIG_FAKE_NODE_LIMIT = 512,
    FIG_FAKE_EDGE_LIMIT = 4096,
    FIG_FAKE_OBJECT_LIMIT = 64,
    FIG_FAKE_PARAMS_LIMIT = 2048,
    FIG_FAKE_DEVICE = 40, /* the first device; no ordinal is */
    FIG_FAKE_NODE = 777,  /* beside the GPU; of no machine, so that it is none to choose */
    FIG_FAKE_ILLEGAL_STATE = 401
};

struct CUctx_st {
    int unused;
};

struct CUstream_st {
    fig_cu_context context;
    fig_cu_graph capturing; /* NULL: it is not */
    uint64_t capture;       /* its number */
    unsigned int mode;      /* it was begun in */
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

/* What a graph or an exec holds. */
typedef struct fig_fake_objects {
    fig_cu_object of[FIG_FAKE_OBJECT_LIMIT];
    size_t count;
} fig_fake_objects;

struct CUgraphNode_st {
    fig_cu_graph graph;
    fig_cu_kernel kernel; /* NULL: empty, or work of the host's */
    fig_cu_graph child;   /* the node's own */
    void (*work)(void *user);
    void *user;
    uint32_t grid[3];
    _Alignas(16) uint8_t params[FIG_FAKE_PARAMS_LIMIT];
};

/* What the fake driver makes of a tensor map. */
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
};

struct CUgraphExec_st {
    struct CUgraphNode_st nodes[FIG_FAKE_NODE_LIMIT]; /* copies */
    fig_cu_node origins[FIG_FAKE_NODE_LIMIT];
    size_t node_count;
    fig_fake_objects objects;
    fig_cu_graph graph; /* fig_fake_cuda_end's; else NULL */
    int uploaded;
};

extern fig_fake_cuda fig_fake_cuda_state;
#define fake fig_fake_cuda_state

/* The stream behind a handle, of which NULL and 1 are the default stream of the current context. */
fig_cu_stream fig_fake_cuda_stream(fig_cu_stream handle);
/* Counts a call, and says what it is to fail with. */
fig_cu_result fig_fake_cuda_begin(const char *name);
/* What a real driver would have crashed on, or answered with anything at all. */
fig_cu_result fig_fake_cuda_unsafe(void);

#define BEGIN(name)                                                                                \
    do {                                                                                           \
        fig_cu_result begin_ = fig_fake_cuda_begin(name);                                          \
        if (begin_ != FIG_CU_SUCCESS) return begin_;                                               \
    } while (0)
/* Of those that take the current context. */
#define BEGIN_INSIDE(name)                                                                         \
    do {                                                                                           \
        BEGIN(name);                                                                               \
        if (fake.current != &fig_fake_cuda_primary) return FIG_CU_INVALID_CONTEXT;                 \
    } while (0)

/* 1: the call is unsafe while something is captured, and something is; counted as such. */
int fig_fake_cuda_breaks(void);
/* Of those that are: they allocate, free, wait or look, load code, make or destroy execs. */
#define BEGIN_UNSAFE(name)                                                                         \
    do {                                                                                           \
        BEGIN(name);                                                                               \
        if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;                             \
    } while (0)

/* Set the entries of graphs, kernels and execs; of captures and what hangs on them. */
void fig_fake_graph_fill(fig_cuda_api *table);
void fig_fake_capture_fill(fig_cuda_api *table);

/* NULL: no more fits, or there is no memory. */
fig_cu_node fig_fake_graph_node(fig_cu_graph graph);
fig_cu_result fig_fake_graph_edges(fig_cu_graph graph, const fig_cu_node *from,
                                   const fig_cu_node *to, const fig_cu_edge *data, size_t count);
void fig_fake_graph_destroy(fig_cu_graph graph);
fig_cu_exec fig_fake_graph_exec(fig_cu_graph graph); /* NULL: no memory */
void fig_fake_capture_let_go(fig_fake_objects *objects);

#endif

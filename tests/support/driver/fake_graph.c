/* fake_graph.c: graphs, kernels and execs of the fake driver; captures are in fake_capture.c.
 *
 * An exec is a copy of its graph's nodes, which run in the order in which they were added.
 * Invariant: an edge leads from a node to a later node of the same graph. */
#include "tests/support/driver/fake_graph.h"

#include "kernels/table/families.h"
#include "tests/support/kernels/row_entries.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FREE_SHARED_BYTES = 48 * 1024, FREE_CLUSTER_WIDTH = 8, NOT_FOUND = 500 };

struct CUlib_st {
    fig_op op;
    uint32_t family;
    fig_cu_kernel kernels; /* a linked list */
};

struct CUkern_st {
    fig_op op;
    char name[FIG_ENTRY_BYTES];
    uint32_t dynamic_bytes;
    int has_large_clusters; /* 1: clusters of over 8 blocks are allowed */
    int is_loaded;          /* 1: fully loaded, so a launch need not load anything */
    fig_cu_kernel next;
};

/* One byte stands for each image, and its index identifies the image. */
static uint8_t images[FIG_OP_KERNEL_COUNT * FIG_FAMILY_LIMIT * FIG_IMAGE_PATH_COUNT];

/* ---- Graphs -------------------------------------------------------------------------------- */

static fig_cu_result graph_create(fig_cu_graph *graph, unsigned int flags) {
    BEGIN("cuGraphCreate");
    *graph = calloc(1, sizeof **graph);
    if (*graph == NULL || flags != 0) return FIG_CU_OUT_OF_MEMORY;
    fake.held++;
    return FIG_CU_SUCCESS;
}

static void free_clone(fig_cu_graph clone) {
    for (size_t i = 0; clone != NULL && i < clone->node_count; i++)
        free(clone->nodes[i]);
    free(clone);
}

/* A node owns its child graph. A child graph has no child graphs of its own. */
void fig_fake_graph_destroy(fig_cu_graph graph) {
    for (size_t i = 0; i < graph->node_count; i++) {
        free_clone(graph->nodes[i]->child);
        free(graph->nodes[i]);
    }
    fig_fake_capture_let_go(&graph->objects);
    free(graph);
    fake.held--;
}

static fig_cu_result graph_destroy(fig_cu_graph graph) {
    fig_fake_graph_destroy(graph);
    BEGIN("cuGraphDestroy");
    return FIG_CU_SUCCESS;
}

fig_cu_node fig_fake_graph_node(fig_cu_graph graph) {
    if (graph->node_count == FIG_FAKE_NODE_LIMIT) return NULL;
    fig_cu_node node = calloc(1, sizeof *node);
    if (node == NULL) return NULL;
    node->graph = graph;
    return graph->nodes[graph->node_count++] = node;
}

static fig_cu_result graph_destroy_node(fig_cu_node node) {
    fig_cu_graph graph = node->graph;
    if (graph->is_captured) return fig_fake_cuda_unsafe();
    size_t count = 0;
    for (size_t i = 0; i < graph->edge_count; i++)
        if (graph->edges[i].from != node && graph->edges[i].to != node)
            graph->edges[count++] = graph->edges[i];
    graph->edge_count = count;
    count = 0;
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i] != node) graph->nodes[count++] = graph->nodes[i];
    graph->node_count = count;
    free(node);
    BEGIN("cuGraphDestroyNode");
    return FIG_CU_SUCCESS;
}

static int is_kernel(fig_cu_node node) {
    return node->kernel != NULL || (node->work != NULL && fake.enqueues_kernels);
}

static fig_cu_result graph_node_get_type(fig_cu_node node, unsigned int *type) {
    BEGIN("cuGraphNodeGetType");
    *type = is_kernel(node) ? FIG_CU_NODE_KERNEL : 1; /* 1 is the type of a copy node */
    return FIG_CU_SUCCESS;
}

/* Adds edges. Like some drivers, gives every edge the data of the first one, unless a test sets
 * keeps_edges. */
fig_cu_result fig_fake_graph_edges(fig_cu_graph graph, const fig_cu_node *from,
                                   const fig_cu_node *to, const fig_cu_edge *data, size_t count) {
    static const fig_cu_edge full;
    for (size_t i = 0; i < count; i++) {
        fig_cu_edge kind = data != NULL ? data[fake.keeps_edges ? i : 0] : full;
        int programmatic = kind.type == FIG_CU_EDGE_PROGRAMMATIC;
        if (from[i]->graph != graph || to[i]->graph != graph ||
            graph->edge_count == FIG_FAKE_EDGE_LIMIT)
            return fig_fake_cuda_unsafe();
        if (programmatic != (kind.from_port == FIG_CU_EDGE_PROGRAMMATIC) || kind.to_port != 0)
            return FIG_CU_INVALID_VALUE;
        if (programmatic && (!is_kernel(from[i]) || !is_kernel(to[i])))
            return fig_fake_cuda_unsafe();
        if (programmatic && from[i]->work != NULL && fake.refuses_edges)
            return FIG_CU_INVALID_VALUE;
        if (fake.loses_edges) kind = full;
        graph->edges[graph->edge_count++] = (fig_fake_edge){from[i], to[i], kind};
        fake.edges++;
        fake.programmatic_edges += programmatic;
    }
    return FIG_CU_SUCCESS;
}

static int may_launch(fig_cu_kernel kernel) {
    return fake.cluster_width <= FREE_CLUSTER_WIDTH || kernel->has_large_clusters;
}

static fig_cu_result graph_add_kernel_node(fig_cu_node *node, fig_cu_graph graph,
                                           const fig_cu_node *from, size_t count,
                                           const fig_cu_kernel_params *params) {
    BEGIN_INSIDE("cuGraphAddKernelNode");
    fig_cu_kernel kernel = params->kernel;
    if (params->function != NULL || kernel == NULL || params->context != &fig_fake_cuda_primary)
        return fig_fake_cuda_unsafe();
    if (params->extra != NULL || from != NULL || count != 0) return fig_fake_cuda_unsafe();
    if (params->shared_bytes > kernel->dynamic_bytes || !may_launch(kernel))
        return FIG_CU_INVALID_VALUE;
    if (graph->is_captured && fake.refuses_nodes) return FIG_CU_INVALID_VALUE;
    *node = fig_fake_graph_node(graph);
    if (*node == NULL) return FIG_CU_OUT_OF_MEMORY;
    (*node)->kernel = kernel;
    memcpy((*node)->grid, params->grid, sizeof params->grid);
    memcpy((*node)->params, params->params[0], fig_kernel_table[kernel->op].params_bytes);
    return FIG_CU_SUCCESS;
}

static fig_cu_result graph_add_empty_node(fig_cu_node *node, fig_cu_graph graph,
                                          const fig_cu_node *from, size_t count) {
    fig_cu_node to[FIG_FAKE_NODE_LIMIT];
    BEGIN_INSIDE("cuGraphAddEmptyNode");
    *node = fig_fake_graph_node(graph);
    if (*node == NULL) return FIG_CU_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        to[i] = *node;
    fake.empty_nodes++;
    return fig_fake_graph_edges(graph, from, to, NULL, count);
}

static fig_cu_result graph_add_dependencies(fig_cu_graph graph, const fig_cu_node *from,
                                            const fig_cu_node *to, const fig_cu_edge *data,
                                            size_t count) {
    BEGIN_INSIDE("cuGraphAddDependencies");
    return fig_fake_graph_edges(graph, from, to, data, count);
}

static size_t index_of(fig_cu_graph graph, fig_cu_node node) {
    size_t i = 0;
    while (i < graph->node_count && graph->nodes[i] != node)
        i++;
    return i;
}

/* Edges are compared in both directions: both graphs must have the same number of edges, and each
 * captured edge must be in the other graph. */
int fig_fake_graph_is_alike(fig_cu_graph captured, size_t first, fig_cu_graph own) {
    size_t edges = 0, found = 0;
    if (captured->node_count - first != own->node_count) return 0;
    for (size_t i = 0; i < own->node_count; i++) {
        const struct CUgraphNode_st *a = captured->nodes[first + i], *b = own->nodes[i];
        if (strcmp(a->kernel->name, b->kernel->name) != 0) return 0;
        if (memcmp(a->grid, b->grid, sizeof a->grid) != 0) return 0;
    }
    for (size_t i = 0; i < captured->edge_count; i++) {
        const fig_fake_edge *edge = &captured->edges[i];
        const size_t from = index_of(captured, edge->from), to = index_of(captured, edge->to);
        if (from < first || to < first) continue;
        edges++;
        for (size_t j = 0; j < own->edge_count; j++)
            found += own->edges[j].from == own->nodes[from - first] &&
                     own->edges[j].to == own->nodes[to - first] &&
                     own->edges[j].data.type == edge->data.type &&
                     own->edges[j].data.from_port == edge->data.from_port;
    }
    return edges == own->edge_count && found == edges;
}

/* Copies a graph with its nodes. Returns NULL if memory ran out. */
static fig_cu_graph make_clone(fig_cu_graph graph) {
    fig_cu_graph clone = calloc(1, sizeof *clone);
    for (size_t i = 0; clone != NULL && i < graph->node_count; i++) {
        fig_cu_node node = fig_fake_graph_node(clone);
        if (node == NULL) {
            free_clone(clone);
            return NULL;
        }
        *node = *graph->nodes[i];
        node->graph = clone;
    }
    for (size_t i = 0; clone != NULL && i < graph->edge_count; i++) {
        const fig_fake_edge *edge = &graph->edges[i];
        clone->edges[clone->edge_count++] =
            (fig_fake_edge){clone->nodes[index_of(graph, edge->from)],
                            clone->nodes[index_of(graph, edge->to)], edge->data};
    }
    return clone;
}

static fig_cu_result graph_add_child(fig_cu_node *node, fig_cu_graph graph, const fig_cu_node *from,
                                     size_t count, fig_cu_graph child) {
    fig_cu_node to[FIG_FAKE_NODE_LIMIT];
    BEGIN("cuGraphAddChildGraphNode");
    *node = fig_fake_graph_node(graph);
    if (*node == NULL) return FIG_CU_OUT_OF_MEMORY;
    (*node)->child = make_clone(child);
    if ((*node)->child == NULL) return FIG_CU_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        to[i] = *node;
    fake.children++;
    return fig_fake_graph_edges(graph, from, to, NULL, count);
}

static fig_cu_result graph_get_edges(fig_cu_graph graph, fig_cu_node *from, fig_cu_node *to,
                                     fig_cu_edge *data, size_t *count) {
    BEGIN("cuGraphGetEdges");
    size_t most = from == NULL ? 0 : *count;
    *count = graph->edge_count;
    for (size_t i = 0; i < most && i < graph->edge_count; i++) {
        from[i] = graph->edges[i].from;
        to[i] = graph->edges[i].to;
        data[i] = graph->edges[i].data;
    }
    return FIG_CU_SUCCESS;
}

/* ---- Kernels ------------------------------------------------------------------------------- */

static fig_image image(fig_op op, uint32_t family, fig_image_path path) {
    fake.path = path;
    if (fake.no_images) return (fig_image){NULL, 0, NULL};
    return (fig_image){&images[(op * FIG_FAMILY_LIMIT + family) * FIG_IMAGE_PATH_COUNT + path], 1,
                       NULL};
}

/* Returns the number of an image. An image that is not in this table begins with its number, in two
 * bytes. */
static size_t number_of(const uint8_t *code) {
    uint16_t number;
    if (code >= images && code < images + sizeof images)
        return (size_t)(code - images) / FIG_IMAGE_PATH_COUNT;
    memcpy(&number, code, sizeof number);
    fake.foreign_images++;
    return number;
}

static fig_cu_result library_load_data(fig_cu_library *library, const void *code,
                                       unsigned int *options, void **values, unsigned int count,
                                       unsigned int *library_options, void **library_values,
                                       unsigned int library_count) {
    BEGIN_UNSAFE("cuLibraryLoadData");
    if (options != NULL || values != NULL || library_options != NULL || library_values != NULL ||
        count + library_count != 0)
        return fig_fake_cuda_unsafe();
    *library = calloc(1, sizeof **library);
    if (*library == NULL) return FIG_CU_OUT_OF_MEMORY;
    const size_t number = number_of(code);
    (*library)->op = (fig_op)(number / FIG_FAMILY_LIMIT);
    (*library)->family = (uint32_t)(number % FIG_FAMILY_LIMIT);
    fake.images[(*library)->op]++;
    fake.images_in_capture += fake.captures > 0;
    fake.held++;
    return FIG_CU_SUCCESS;
}

static fig_cu_result library_unload(fig_cu_library library) {
    while (library->kernels != NULL) {
        fig_cu_kernel kernel = library->kernels;
        library->kernels = kernel->next;
        free(kernel);
    }
    free(library);
    fake.held--;
    BEGIN_UNSAFE("cuLibraryUnload");
    return FIG_CU_SUCCESS;
}

/* Returns 1 if the name is that of an entry compiled for a score: the code holds no other one. */
static int holds_scored(fig_cu_library library, const char *name) {
    char own[FIG_ENTRY_BYTES];
    const int length = snprintf(own, sizeof own, "fig_kernel_scored_%s_",
                                fig_families_of(library->op, library->family)->name);
    return strncmp(name, own, (size_t)length) == 0;
}

/* Returns 1 if the name is that of a kernel called `of`, with `end` behind it. */
static int is_named(const char *name, const char *of, char end) {
    char own[FIG_ENTRY_BYTES];
    const int length = snprintf(own, sizeof own, "fig_kernel_%s", of);
    return strncmp(name, own, (size_t)length) == 0 && name[length] == end;
}

/* An image holds the entry that is named after the operation. If the family has entry names of its
 * own, it holds instead all entries with that name or with the family's, an underscore and a
 * suffix, or two entries (row_entries.h). */
static int holds_entry(fig_cu_library library, const char *name) {
    const fig_family *family = fig_families_of(library->op, library->family);
    const char *op = fig_kernel_table[library->op].name;
    if (family->compiles) return holds_scored(library, name);
    if (family->entry == NULL) return is_named(name, op, '\0');
    if (fig_row_entries_suffix(library->op, library->family) != NULL)
        return fig_row_entries_hold(library->op, library->family, name);
    return is_named(name, op, '_') || is_named(name, family->name, '_');
}

static fig_cu_result library_get_kernel(fig_cu_kernel *kernel, fig_cu_library library,
                                        const char *name) {
    BEGIN("cuLibraryGetKernel");
    if (!holds_entry(library, name)) return NOT_FOUND;
    *kernel = calloc(1, sizeof **kernel);
    if (*kernel == NULL) return FIG_CU_OUT_OF_MEMORY;
    (*kernel)->op = library->op;
    snprintf((*kernel)->name, sizeof(*kernel)->name, "%s", name);
    (*kernel)->dynamic_bytes = (uint32_t)(FREE_SHARED_BYTES - fake.static_bytes);
    (*kernel)->next = library->kernels;
    library->kernels = *kernel;
    return FIG_CU_SUCCESS;
}

static fig_cu_result kernel_get_param_info(fig_cu_kernel kernel, size_t index, size_t *offset,
                                           size_t *bytes) {
    BEGIN("cuKernelGetParamInfo");
    if (index >= (size_t)fake.params_count) return FIG_CU_INVALID_VALUE;
    *offset = index * fig_kernel_table[kernel->op].params_bytes;
    *bytes = fig_kernel_table[kernel->op].params_bytes + fake.params_excess;
    return FIG_CU_SUCCESS;
}

static fig_cu_result kernel_get_attribute(int *value, unsigned int attribute, fig_cu_kernel kernel,
                                          fig_cu_device device) {
    BEGIN("cuKernelGetAttribute");
    if (kernel == NULL || device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    switch (attribute) {
    case FIG_CU_KERNEL_STATIC_SHARED_BYTES: *value = fake.static_bytes; return FIG_CU_SUCCESS;
    case FIG_CU_KERNEL_CLUSTER_WIDTH: *value = fake.cluster_width; return FIG_CU_SUCCESS;
    default: return fig_fake_cuda_unsafe();
    }
}

static fig_cu_result kernel_set_attribute(unsigned int attribute, int value, fig_cu_kernel kernel,
                                          fig_cu_device device) {
    BEGIN("cuKernelSetAttribute");
    if (device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    if (attribute == FIG_CU_KERNEL_LARGE_CLUSTERS) {
        kernel->has_large_clusters = value;
        fake.clusters_allowed++;
        return FIG_CU_SUCCESS;
    }
    if (attribute != FIG_CU_KERNEL_DYNAMIC_SHARED_BYTES) return fig_fake_cuda_unsafe();
    if (value + fake.static_bytes > fake.shared_bytes) return FIG_CU_INVALID_VALUE;
    kernel->dynamic_bytes = (uint32_t)value;
    fake.attributes_set++;
    return FIG_CU_SUCCESS;
}

/* Stores the arguments in order, in the form of a fig_fake_tensor_map, which a test can compare. */
static fig_cu_result tensor_map_encode(void *map, unsigned int type, uint32_t rank, void *address,
                                       const uint64_t *dims, const uint64_t *strides,
                                       const uint32_t *box, const uint32_t *steps,
                                       unsigned int interleave, unsigned int swizzle,
                                       unsigned int promotion, unsigned int fill) {
    BEGIN("cuTensorMapEncodeTiled");
    fig_fake_tensor_map made = {.address = (uint64_t)(uintptr_t)address,
                                .type = (uint16_t)type,
                                .rank = (uint16_t)rank,
                                .swizzle = (uint16_t)swizzle};
    if (made.address % 16 != 0 || rank < 1 || rank > FIG_TENSOR_MAP_RANK_LIMIT || interleave != 0 ||
        fill != 0 || promotion > 3)
        return FIG_CU_INVALID_VALUE;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] == 0 || box[i] == 0 || box[i] > 256 || steps[i] != 1)
            return FIG_CU_INVALID_VALUE;
        if (i > 0 && strides[i - 1] % 16 != 0) return FIG_CU_INVALID_VALUE;
        made.dims[i] = dims[i];
        made.strides_bytes[i] = i > 0 ? strides[i - 1] : 0;
        made.box[i] = (uint16_t)box[i];
    }
    memcpy(map, &made, sizeof made);
    fake.maps++;
    return FIG_CU_SUCCESS;
}

/* ---- Execs --------------------------------------------------------------------------------- */

static void add_to_exec(fig_cu_exec exec, const fig_cu_node *nodes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (exec->node_count == FIG_FAKE_NODE_LIMIT) abort();
        exec->nodes[exec->node_count] = *nodes[i];
        exec->origins[exec->node_count++] = nodes[i];
    }
}

/* The nodes of a child graph replace the child's node. */
fig_cu_exec fig_fake_graph_exec(fig_cu_graph graph) {
    fig_cu_exec exec = calloc(1, sizeof *exec);
    if (exec == NULL) return NULL;
    for (size_t i = 0; i < graph->node_count; i++) {
        const fig_cu_graph child = graph->nodes[i]->child;
        if (child != NULL) add_to_exec(exec, child->nodes, child->node_count);
        if (child == NULL) add_to_exec(exec, &graph->nodes[i], 1);
    }
    exec->objects = graph->objects;
    for (size_t i = 0; i < exec->objects.count; i++)
        exec->objects.of[i]->references++;
    fake.held++;
    fake.instantiated++;
    return exec;
}

static fig_cu_result graph_instantiate(fig_cu_exec *exec, fig_cu_graph graph,
                                       fig_cu_instantiate_params *params) {
    BEGIN_INSIDE("cuGraphInstantiateWithParams");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    if (graph->is_captured) return fig_fake_cuda_unsafe();
    if (params->flags != 0 || params->upload != NULL) return fig_fake_cuda_unsafe();
    *exec = fig_fake_graph_exec(graph);
    return *exec != NULL ? FIG_CU_SUCCESS : FIG_CU_OUT_OF_MEMORY;
}

static fig_cu_result graph_exec_destroy(fig_cu_exec exec) {
    fig_fake_capture_let_go(&exec->objects);
    free(exec);
    fake.held--;
    BEGIN_UNSAFE("cuGraphExecDestroy");
    return FIG_CU_SUCCESS;
}

static fig_cu_result graph_exec_kernel_node_set_params(fig_cu_exec exec, fig_cu_node node,
                                                       const fig_cu_kernel_params *params) {
    BEGIN_INSIDE("cuGraphExecKernelNodeSetParams");
    if (node->graph == NULL || node->kernel != params->kernel) return fig_fake_cuda_unsafe();
    for (size_t i = 0; i < exec->node_count; i++) {
        struct CUgraphNode_st *held = &exec->nodes[i];
        if (exec->origins[i] != node) continue;
        if (memcmp(held->grid, params->grid, sizeof held->grid) != 0) return FIG_CU_INVALID_VALUE;
        memcpy(held->params, params->params[0], fig_kernel_table[held->kernel->op].params_bytes);
        return FIG_CU_SUCCESS;
    }
    return fig_fake_cuda_unsafe();
}

static void run_kernel(const struct CUgraphNode_st *node) {
    uint32_t block[3];
    alignas(64) uint8_t params[FIG_FAKE_PARAMS_LIMIT];
    memcpy(params, node->params, sizeof params);
    fake.ran[node->kernel->op] = node->kernel->name;
    for (block[2] = 0; block[2] < node->grid[2]; block[2]++)
        for (block[1] = 0; block[1] < node->grid[1]; block[1]++)
            for (block[0] = 0; block[0] < node->grid[0]; block[0]++)
                fig_kernel_table[node->kernel->op].reference(params, block);
}

void fig_fake_cuda_launch(fig_cu_exec exec, fig_cu_stream stream) {
    for (size_t i = 0; i < exec->node_count; i++) {
        if (exec->nodes[i].kernel != NULL) run_kernel(&exec->nodes[i]);
        if (exec->nodes[i].work != NULL) exec->nodes[i].work(exec->nodes[i].user);
    }
    stream->busy_looks = fake.busy_looks;
}

static fig_cu_result graph_upload(fig_cu_exec exec, fig_cu_stream stream) {
    BEGIN_INSIDE("cuGraphUpload");
    if (stream == NULL || stream->capturing != NULL) return fig_fake_cuda_unsafe();
    exec->uploaded = 1;
    fake.uploads++;
    return FIG_CU_SUCCESS;
}

/* The nodes' own order already respects the edges. No context need be current, since the stream has
 * one. */
static fig_cu_result graph_launch(fig_cu_exec exec, fig_cu_stream stream) {
    BEGIN("cuGraphLaunch");
    stream = fig_fake_cuda_stream(stream);
    if (stream->capturing != NULL && fake.takes_execs) return FIG_CU_SUCCESS;
    if (stream->capturing != NULL) {
        stream->broken = 1;
        return FIG_CU_CAPTURE_UNSUPPORTED;
    }
    if (stream->context != &fig_fake_cuda_primary) return fig_fake_cuda_unsafe();
    fake.launched_cold += !exec->uploaded;
    fig_fake_cuda_launch(exec, stream);
    fake.launches++;
    return FIG_CU_SUCCESS;
}

/* ---- Launches on a stream ------------------------------------------------------------------ */

/* There is only one context, so the kernel itself serves as its function. */
static fig_cu_result kernel_get_function(fig_cu_function *function, fig_cu_kernel kernel) {
    BEGIN_INSIDE("cuKernelGetFunction");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    *function = (fig_cu_function)(void *)kernel;
    return FIG_CU_SUCCESS;
}

static fig_cu_result func_load(fig_cu_function function) {
    BEGIN_INSIDE("cuFuncLoad");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    ((fig_cu_kernel)(void *)function)->is_loaded = 1;
    return FIG_CU_SUCCESS;
}

/* Adds the node after the stream's tails. An edge is programmatic if the launch asks for that and
 * the tail is a kernel. */
static fig_cu_result capture_launch(fig_cu_stream stream, const struct CUgraphNode_st *launch,
                                    int is_early) {
    fig_cu_edge edge = {0};
    fig_cu_node node = fig_fake_graph_node(stream->capturing);
    if (node == NULL) return FIG_CU_OUT_OF_MEMORY;
    node->kernel = launch->kernel;
    memcpy(node->grid, launch->grid, sizeof node->grid);
    memcpy(node->params, launch->params, sizeof node->params);
    for (size_t i = 0; i < stream->tail_count; i++) {
        const int early = is_early && stream->tails[i]->kernel != NULL;
        edge.from_port = edge.type = early ? FIG_CU_EDGE_PROGRAMMATIC : FIG_CU_EDGE_FULL;
        fig_fake_graph_edges(stream->capturing, &stream->tails[i], &node, &edge, 1);
    }
    stream->tails[0] = node;
    stream->tail_count = 1;
    return FIG_CU_SUCCESS;
}

static fig_cu_result launch_kernel_ex(const fig_cu_launch *config, fig_cu_function function,
                                      void **params, void **extra) {
    BEGIN_INSIDE("cuLaunchKernelEx");
    fig_cu_stream stream = fig_fake_cuda_stream(config->stream);
    struct CUgraphNode_st launch = {.kernel = (fig_cu_kernel)(void *)function};
    const fig_cu_launch_attribute *attribute = config->attributes;
    if (stream->context != &fig_fake_cuda_primary || extra != NULL) return fig_fake_cuda_unsafe();
    if (!launch.kernel->is_loaded) return fig_fake_cuda_unsafe();
    if (config->shared_bytes > launch.kernel->dynamic_bytes || !may_launch(launch.kernel))
        return FIG_CU_INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if (config->grid[i] == 0 || config->block[i] == 0) return FIG_CU_INVALID_VALUE;
    const int is_early = config->attribute_count > 0;
    if (is_early && (config->attribute_count > 1 || attribute->id != FIG_CU_LAUNCH_PROGRAMMATIC ||
                     attribute->value.allowed != 1))
        return fig_fake_cuda_unsafe();
    memcpy(launch.grid, config->grid, sizeof launch.grid);
    memcpy(launch.params, params[0], fig_kernel_table[launch.kernel->op].params_bytes);
    fake.stream_launches++;
    fake.early_launches += is_early;
    if (stream->capturing != NULL) return capture_launch(stream, &launch, is_early);
    if (!fake.skips_kernels) run_kernel(&launch);
    fake.launches++;
    return FIG_CU_SUCCESS;
}

/* ---- The table ----------------------------------------------------------------------------- */

void fig_fake_graph_fill(fig_cuda_api *table) {
    table->image = image;
    table->GraphAddChildGraphNode = graph_add_child;
    table->LibraryLoadData = library_load_data;
    table->LibraryUnload = library_unload;
    table->LibraryGetKernel = library_get_kernel;
    table->KernelGetParamInfo = kernel_get_param_info;
    table->KernelGetAttribute = kernel_get_attribute;
    table->KernelSetAttribute = kernel_set_attribute;
    table->KernelGetFunction = kernel_get_function;
    table->FuncLoad = func_load;
    table->LaunchKernelEx = launch_kernel_ex;
    table->GraphCreate = graph_create;
    table->GraphDestroy = graph_destroy;
    table->GraphDestroyNode = graph_destroy_node;
    table->GraphAddKernelNode = graph_add_kernel_node;
    table->GraphAddEmptyNode = graph_add_empty_node;
    table->GraphNodeGetType = graph_node_get_type;
    table->GraphAddDependencies = graph_add_dependencies;
    table->GraphGetEdges = graph_get_edges;
    table->GraphInstantiateWithParams = graph_instantiate;
    table->GraphExecDestroy = graph_exec_destroy;
    table->GraphExecKernelNodeSetParams = graph_exec_kernel_node_set_params;
    table->GraphUpload = graph_upload;
    table->GraphLaunch = graph_launch;
    table->TensorMapEncodeTiled = tensor_map_encode;
}

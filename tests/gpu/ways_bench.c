/* ways_bench.c: compares the time to prepare all execs of a file with the times of the driver's
 * own ways to make them.
 *
 *     build/release/tests/gpu/ways_bench          all ways in turn, repeatedly; CSV of least times
 *     build/release/tests/gpu/ways_bench WAY      one way; prints execs, nodes and ms
 *
 * The file is llama-3.1-8b's, with 32 layers and 198 buckets, many of which share their launches.
 * "prepare" is fig_engine_prepare: lowering, params, graphs, execs and uploads. The other ways get
 * the nodes, params and edges that "prepare" passed to the driver, and only make graphs and execs
 * and upload them: "adds" adds node by node, "clone" copies the last graph and sets the params of
 * its nodes, "capture" launches on a capturing stream, one kernel after the other. Each time is
 * measured in a separate process that has run a step, loaded all kernels and made no other exec,
 * since a driver reuses the memory of destroyed execs and is faster then. The least time of each
 * way counts, since other load can only add to it. "prepare" may take at most 1.25 times as long as
 * the fastest way. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/seam/clock.h"
#include "engine/engine.h"
#include "kernels/common/params.h"
#include "tests/support/driver/caller.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) {                                                                    \
            fprintf(stderr, "ways_bench: %s\n", fig_message());                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { BATCHES = 9, KVS = 22, BUCKETS = BATCHES * KVS, ROUNDS = 6, WAYS = 4 };
enum { GRAPH_LIMIT = 1024, NODE_LIMIT = 512, EDGE_LIMIT = 2048, PARAMS_BYTES = 4096 };
static const char *const ways[WAYS] = {"prepare", "adds", "clone", "capture"};
static const double share_limit = 1.25;

/* ---- Recorded calls to the driver ------------------------------------------------------------ */

typedef struct node {
    fig_cu_kernel_params of;
    fig_cu_function function; /* the kernel as a CUfunction, for launches on streams */
    uint8_t *params;
    void *pointer; /* the address of params, which the driver takes */
} node;

typedef struct edge {
    size_t from, to; /* indices of nodes */
    fig_cu_edge kind;
} edge;

typedef struct graph {
    node nodes[NODE_LIMIT];
    edge edges[EDGE_LIMIT];
    size_t node_count, edge_count;
} graph;

static graph *graphs[GRAPH_LIMIT];
static size_t graph_count;
static fig_cuda_api driver; /* the real driver's entries */

static void must(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "ways_bench: %s\n", what);
    exit(1);
}

static void ok(fig_cu_result result, const char *call) {
    if (result == FIG_CU_SUCCESS) return;
    fprintf(stderr, "ways_bench: %s: %u\n", call, (unsigned)result);
    exit(1);
}
#define CU(name, ...) ok(driver.name(__VA_ARGS__), "cu" #name)

/* Handles here do not come from the driver: each is the address of an element of the arrays
 * above. */
static graph *graph_of(fig_cu_graph handle) {
    return (graph *)(void *)handle;
}

static fig_cu_result keep_graph(fig_cu_graph *handle, unsigned int flags) {
    (void)flags;
    must(graph_count < GRAPH_LIMIT, "too many graphs");
    graph *made = graphs[graph_count++] = calloc(1, sizeof *made);
    must(made != NULL, "no memory");
    *handle = (fig_cu_graph)(void *)made;
    return FIG_CU_SUCCESS;
}

static fig_cu_result keep_node(fig_cu_node *handle, fig_cu_graph in, const fig_cu_node *after,
                               size_t after_count, const fig_cu_kernel_params *of) {
    graph *g = graph_of(in);
    size_t offset, bytes;
    must(after == NULL && after_count == 0 && g->node_count < NODE_LIMIT, "an unexpected node");
    node *n = &g->nodes[g->node_count++];
    CU(KernelGetParamInfo, of->kernel, 0, &offset, &bytes);
    must(bytes <= PARAMS_BYTES, "params of an unexpected size");
    n->of = *of;
    CU(KernelGetFunction, &n->function, of->kernel);
    n->params = aligned_alloc(64, PARAMS_BYTES);
    must(n->params != NULL, "no memory");
    memcpy(n->params, of->params[0], bytes);
    n->pointer = n->params;
    n->of.params = &n->pointer;
    *handle = (fig_cu_node)(void *)n;
    return FIG_CU_SUCCESS;
}

static size_t index_of(const graph *g, fig_cu_node handle) {
    return (size_t)((const node *)(const void *)handle - g->nodes);
}

static fig_cu_result keep_edges(fig_cu_graph in, const fig_cu_node *from, const fig_cu_node *to,
                                const fig_cu_edge *kinds, size_t count) {
    graph *g = graph_of(in);
    must(g->edge_count + count <= EDGE_LIMIT, "too many edges");
    for (size_t i = 0; i < count; i++)
        g->edges[g->edge_count++] = (edge){index_of(g, from[i]), index_of(g, to[i]), kinds[i]};
    return FIG_CU_SUCCESS;
}

static fig_cu_result tell_edges(fig_cu_graph of, fig_cu_node *from, fig_cu_node *to,
                                fig_cu_edge *kinds, size_t *count) {
    graph *g = graph_of(of);
    *count = g->edge_count;
    for (size_t i = 0; from != NULL && i < g->edge_count; i++) {
        from[i] = (fig_cu_node)(void *)&g->nodes[g->edges[i].from];
        to[i] = (fig_cu_node)(void *)&g->nodes[g->edges[i].to];
        kinds[i] = g->edges[i].kind;
    }
    return FIG_CU_SUCCESS;
}

static fig_cu_result make_nothing(fig_cu_exec *exec, fig_cu_graph of,
                                  fig_cu_instantiate_params *params) {
    (void)params;
    *exec = (fig_cu_exec)(void *)of;
    return FIG_CU_SUCCESS;
}

static fig_cu_result upload_nothing(fig_cu_exec exec, fig_cu_stream stream) {
    (void)exec;
    (void)stream;
    return FIG_CU_SUCCESS;
}

/* Records the graphs of all execs that do not exist yet, without making them; their kernels are
 * loaded. The process never closes the engine. */
static void keep_all(fig_engine *engine) {
    fig_cuda_api *table = fig_cuda_api_table();
    driver = *table;
    table->GraphCreate = keep_graph;
    table->GraphAddKernelNode = keep_node;
    table->GraphAddDependencies = keep_edges;
    table->GraphGetEdges = tell_edges;
    table->GraphInstantiateWithParams = make_nothing;
    table->GraphUpload = upload_nothing;
    TRY(fig_engine_prepare(engine, 0));
    *table = driver;
}

/* Makes the engine forget these execs, as if they had never been prepared. Does not free their
 * memory, so that execs made later cannot reuse it. */
static void forget_kept(fig_engine *engine, const uint8_t *is_there) {
    for (uint32_t i = 0; i < engine->graphs->exec_count; i++) {
        fig_exec *exec = &engine->execs.of[i];
        if (is_there[i]) continue;
        exec->lowered = (fig_lowered){NULL};
        exec->choices = NULL;
        exec->exec = NULL;
        exec->is_true = 0;
        exec->version = 0;
    }
}

/* ---- The driver's ways ----------------------------------------------------------------------- */

static fig_caller caller;

static void finish(fig_cu_graph made) {
    fig_cu_instantiate_params params = {.flags = 0};
    fig_cu_exec exec;
    CU(GraphInstantiateWithParams, &exec, made, &params);
    CU(GraphUpload, exec, caller.stream);
}

/* Adds all edges of a graph at once. */
static fig_cu_graph add_all(const graph *g, fig_cu_node nodes[NODE_LIMIT]) {
    static fig_cu_node from[EDGE_LIMIT], to[EDGE_LIMIT];
    static fig_cu_edge kinds[EDGE_LIMIT];
    fig_cu_graph made;
    CU(GraphCreate, &made, 0);
    for (size_t i = 0; i < g->node_count; i++)
        CU(GraphAddKernelNode, &nodes[i], made, NULL, 0, &g->nodes[i].of);
    for (size_t i = 0; i < g->edge_count; i++) {
        from[i] = nodes[g->edges[i].from];
        to[i] = nodes[g->edges[i].to];
        kinds[i] = g->edges[i].kind;
    }
    if (g->edge_count > 0) CU(GraphAddDependencies, made, from, to, kinds, g->edge_count);
    return made;
}

static void make_by_adds(void) {
    static fig_cu_node nodes[NODE_LIMIT];
    for (size_t i = 0; i < graph_count; i++)
        finish(add_all(graphs[i], nodes));
}

/* Driver entries that the library does not use. */
static fig_cu_result (*graph_clone)(fig_cu_graph *, fig_cu_graph);
static fig_cu_result (*find_in_clone)(fig_cu_node *, fig_cu_node, fig_cu_graph);
static fig_cu_result (*set_params)(fig_cu_node, const fig_cu_kernel_params *);

static void find_entries(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    must(library != NULL, "no libcuda.so.1");
    *(void **)&graph_clone = dlsym(library, "cuGraphClone");
    *(void **)&find_in_clone = dlsym(library, "cuGraphNodeFindInClone");
    *(void **)&set_params = dlsym(library, "cuGraphKernelNodeSetParams_v2");
    must(graph_clone != NULL && find_in_clone != NULL && set_params != NULL, "no cuGraphClone");
}

static int are_alike(const graph *a, const graph *b) {
    if (a->node_count != b->node_count || a->edge_count != b->edge_count) return 0;
    for (size_t i = 0; i < a->edge_count; i++)
        if (memcmp(&a->edges[i], &b->edges[i], sizeof a->edges[i]) != 0) return 0;
    return 1;
}

/* The first graph of each shape is made node by node, and cloned from then on. */
static void make_by_clones(void) {
    static fig_cu_node nodes[NODE_LIMIT];
    const graph *model = NULL;
    fig_cu_graph first = NULL;
    for (size_t i = 0; i < graph_count; i++) {
        const graph *g = graphs[i];
        fig_cu_graph clone;
        if (model == NULL || !are_alike(model, g)) {
            model = g;
            first = add_all(g, nodes);
            finish(first);
            continue;
        }
        ok(graph_clone(&clone, first), "cuGraphClone");
        for (size_t n = 0; n < g->node_count; n++) {
            fig_cu_node own;
            ok(find_in_clone(&own, nodes[n], clone), "cuGraphNodeFindInClone");
            ok(set_params(own, &g->nodes[n].of), "cuGraphKernelNodeSetParams");
        }
        finish(clone);
    }
}

static void launch(const node *n, int is_programmatic) {
    fig_cu_launch_attribute attribute = {.id = FIG_CU_LAUNCH_PROGRAMMATIC, .value.allowed = 1};
    fig_cu_launch how = {.shared_bytes = n->of.shared_bytes,
                         .stream = caller.stream,
                         .attributes = &attribute,
                         .attribute_count = (uint32_t)is_programmatic};
    memcpy(how.grid, n->of.grid, sizeof how.grid);
    memcpy(how.block, n->of.block, sizeof how.block);
    CU(LaunchKernelEx, &how, n->function, n->of.params, NULL);
}

static void make_by_captures(void) {
    for (size_t i = 0; i < graph_count; i++) {
        const graph *g = graphs[i];
        fig_cu_graph made;
        CU(StreamBeginCapture, caller.stream, FIG_CU_CAPTURE_RELAXED);
        for (size_t n = 0; n < g->node_count; n++)
            launch(&g->nodes[n], n > 0);
        CU(StreamEndCapture, caller.stream, &made);
        finish(made);
    }
}

/* ---- The file and its engine ----------------------------------------------------------------- */

static fig_graphs *capture_file(void) {
    static fig_bucket buckets[BUCKETS];
    fig_spec spec = {.size = sizeof spec};
    fig_traits traits = {.size = sizeof traits};
    fig_program *program;
    fig_graphs *made;
    for (int32_t i = 0; i < BUCKETS; i++) {
        const int32_t octave = 128 << i % KVS / 2;
        buckets[i] = (fig_bucket){1 << i / KVS, i % 2 == 0 ? octave : octave / 2 * 3};
    }
    TRY(fig_spec_preset(&spec, "llama-3.1-8b"));
    TRY(fig_traits_named(&traits, "h200"));
    spec.kv_limit = 3 << 16;
    TRY(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    TRY(fig_program_finish(program));
    const fig_lower_options options = {
        .size = sizeof options, .traits = &traits, .buckets = buckets, .bucket_count = BUCKETS};
    TRY(fig_graphs_lower(&made, program, &options));
    fig_program_destroy(program);
    return made;
}

/* Opens an engine and runs a step, so that one exec exists and the driver is ready. */
static fig_engine *open_engine(void) {
    static const int32_t one = 1;
    fig_engine *engine;
    const fig_graphs *of = capture_file();
    TRY(fig_engine_open(&engine, of, FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA)));
    TRY(fig_caller_bind_all(engine, of));
    TRY(fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &one)));
    TRY(fig_engine_wait(engine, -1));
    return engine;
}

static int run_way(const char *way) {
    static uint8_t is_there[GRAPH_LIMIT];
    fig_engine *engine = open_engine();
    must(fig_caller_open(&caller) == 0, "no GPU");
    find_entries();
    for (uint32_t i = 0; i < engine->graphs->exec_count; i++)
        is_there[i] = (uint8_t)fig_execs_ready(&engine->execs, i);
    keep_all(engine);
    forget_kept(engine, is_there);
    const int64_t begin_ns = fig_clock_ns();
    if (strcmp(way, "prepare") == 0) TRY(fig_engine_prepare(engine, 0));
    if (strcmp(way, "adds") == 0) make_by_adds();
    if (strcmp(way, "clone") == 0) make_by_clones();
    if (strcmp(way, "capture") == 0) make_by_captures();
    CU(StreamSynchronize, caller.stream);
    const double ms = (double)(fig_clock_ns() - begin_ns) / 1e6;
    printf("%d,%d,%zu,%.3f\n", (int)engine->graphs->bucket_count, (int)engine->graphs->exec_count,
           graphs[0]->node_count, ms);
    return 0;
}

/* ---- Beside each other ----------------------------------------------------------------------- */

typedef struct answer {
    int buckets, execs, nodes;
    double ms;
} answer;

static answer ask(const char *program, const char *way) {
    char command[4096];
    answer of;
    snprintf(command, sizeof command, "'%s' %s", program, way);
    FILE *other = popen(command, "r");
    must(other != NULL &&
             fscanf(other, "%d,%d,%d,%lf", &of.buckets, &of.execs, &of.nodes, &of.ms) == 4 &&
             pclose(other) == 0,
         command);
    return of;
}

static int compare_numbers(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words) {
    double ms[WAYS][ROUNDS], fastest = 1e9;
    answer of = {0};
    if (count > 1) return run_way(words[1]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < WAYS; way++) {
            of = ask(words[0], ways[way]);
            ms[way][round] = of.ms;
        }
    }
    printf("buckets,execs,nodes");
    for (int way = 0; way < WAYS; way++) {
        qsort(ms[way], ROUNDS, sizeof ms[way][0], compare_numbers);
        if (way > 0 && ms[way][0] < fastest) fastest = ms[way][0];
        printf(",%s_ms", ways[way]);
    }
    printf(",share\n%d,%d,%d", of.buckets, of.execs, of.nodes);
    for (int way = 0; way < WAYS; way++)
        printf(",%.2f", ms[way][0]);
    const double share = ms[0][0] / fastest;
    printf(",%.2f\n", share);
    return share > share_limit;
}

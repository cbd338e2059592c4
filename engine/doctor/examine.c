/* examine.c: examines the machine, and reports which parts are present or missing, with advice.
 *
 * cuda_gpu.c, cuda_probe.c, topology.c and ping.c do the checks, and programs decide how to show
 * the findings. Invariant: each missing or failing part is reported once, and only the checks that
 * depend on it are skipped. Each check closes the objects that it opened. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/cuda/cuda_probe.h"
#include "engine/seam/device.h"
#include "engine/doctor/ping.h"
#include "engine/machine/placement.h"
#include "engine/doctor/rally.h"
#include "include/figraph_unstable.h"
#include "kernels/table/families.h"
#include "planner/status.h"

enum { TEXT_LIMIT = 640, SUBJECT_LIMIT = 32, PINNED_BYTES = 1 << 20 };

typedef struct examination {
    fig_find_callback find;
    void *user;
    int32_t ordinal;
    /* the GPU with that ordinal, if it can be used */
    fig_cuda_gpu gpu;
    fig_topology *topology; /* NULL: none was found */
    fig_topology_info machine;
} examination;

/* ---- Telling ------------------------------------------------------------------------------- */

/* The fixed part of a finding: its verdict, its subject and the advice. */
typedef struct remark {
    fig_verdict verdict;
    const char *subject;
    const char *advice; /* NULL: there is nothing to do */
} remark;

__attribute__((format(printf, 3, 4))) static void tell(const examination *e, remark about,
                                                       const char *format, ...) {
    char text[TEXT_LIMIT];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const fig_finding finding = {.size = sizeof finding,
                                 .verdict = about.verdict,
                                 .subject = about.subject,
                                 .text = text,
                                 .advice = about.advice != NULL ? about.advice : ""};
    e->find(e->user, &finding);
}

/* Returns the last message without the device's name, which the finding's subject already
 * contains. */
static const char *reason(void) {
    static const char *const prefixes[] = {"cuda device: ", "topology: ", "engine: "};
    const char *sentence = fig_message();
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(sentence, prefixes[i], strlen(prefixes[i])) == 0)
            return sentence + strlen(prefixes[i]);
    return sentence;
}

/* Reports a failure in the words of the last message. Returns 1 if there was no failure. */
static int is_fine(const examination *e, fig_status status, const char *subject) {
    if (status == FIG_OK) return 1;
    tell(e, (remark){FIG_VERDICT_FAULT, subject, NULL}, "%s", reason());
    return 0;
}

static const char *plural(int32_t count) {
    return count == 1 ? "" : "s";
}

/* ---- Library and driver -------------------------------------------------------------------- */

static int count_images(void) {
    const fig_cuda_api *cu = fig_cuda_api_table();
    int count = 0;
    for (fig_op op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        for (uint32_t family = 0; fig_families_of(op, family) != NULL; family++)
            for (fig_image_path path = 0; path < FIG_IMAGE_PATH_COUNT; path++)
                count += cu->image(op, family, path).bytes != NULL;
    return count;
}

static void examine_library(const examination *e) {
    const int32_t version = fig_version();
    const int count = count_images();
    char name[SUBJECT_LIMIT];
    snprintf(name, sizeof name, "libfigraph %d.%d.%d", (int)(version / 10000),
             (int)(version / 100 % 100), (int)(version % 100));
    if (count > 0)
        tell(e, (remark){FIG_VERDICT_FINE, "library", NULL},
             "%s holds %d kernel images, for compute capability 9.0 and for 8.0 and later", name,
             count);
    else
        tell(e,
             (remark){FIG_VERDICT_ADVICE, "library",
                      "for a GPU, build it again where nvcc is found: make NVCC=path/to/nvcc"},
             "%s holds no kernel images: it was built without nvcc and runs on the host alone",
             name);
}

/* Returns the number of GPUs. */
static int examine_driver(const examination *e) {
    int count;
    const fig_status status = fig_cuda_gpu_count(&count);
    const int version = fig_cuda_api_table()->version;
    if (status == FIG_OK)
        tell(e, (remark){FIG_VERDICT_FINE, "driver", NULL},
             "it is of CUDA %d.%d (%d.%d is needed) and sees %d GPU%s", version / 1000,
             version % 1000 / 10, FIG_CU_LEAST_VERSION / 1000, FIG_CU_LEAST_VERSION % 1000 / 10,
             count, plural(count));
    else
        tell(e,
             (remark){FIG_VERDICT_ADVICE, "driver",
                      "for a GPU, install NVIDIA's driver of CUDA 12.4 or later and, in a "
                      "container, make it visible; without a driver all runs on the host"},
             "%s", reason());
    return count;
}

/* ---- GPUs ---------------------------------------------------------------------------------- */

static fig_status describe_gpu(const examination *e, int ordinal, const char *subject) {
    fig_cuda_gpu gpu;
    char name[128] = "", node[64] = "";
    size_t bytes = 0;
    FIG_TRY(fig_cuda_gpu_look(&gpu, ordinal, 0));
    CU_TRY(&gpu, DeviceGetName, name, sizeof name, gpu.device);
    CU_TRY(&gpu, DeviceTotalMem, &bytes, gpu.device);
    if (gpu.node >= 0) snprintf(node, sizeof node, ", beside NUMA node %" PRId32, gpu.node);
    const int capability = gpu.traits.compute_capability;
    const int is_old = capability < FIG_CUDA_GPU_LEAST_CAPABILITY;
    tell(e,
         (remark){is_old ? FIG_VERDICT_ADVICE : FIG_VERDICT_FINE, subject,
                  is_old ? "use another GPU: this library needs compute capability 8.0" : NULL},
         "%s, compute capability %d.%d, %" PRId32 " SMs, %.1f GiB%s%s", name, capability / 10,
         capability % 10, gpu.traits.sm_count, (double)bytes / (1 << 30), node,
         is_old                         ? ""
         : gpu.path == FIG_IMAGE_HOPPER ? "; runs the kernels made for 9.0"
                                        : "; runs the kernels made for 8.0 and later");
    return FIG_OK;
}

static void examine_gpus(const examination *e, int count) {
    for (int ordinal = 0; ordinal < count; ordinal++) {
        char subject[SUBJECT_LIMIT];
        snprintf(subject, sizeof subject, "gpu %d", ordinal);
        is_fine(e, describe_gpu(e, ordinal, subject), subject);
    }
}

/* Finds whether GPUs i and j can reach each other's memory. Sets *reach to 0 if they cannot, to 1
 * if they can, and to 2 if they can over NVLink. */
static fig_status find_reach(int i, int j, int *reach) {
    fig_cuda_gpu from, to;
    int there = 0, back = 0, is_linked = 0;
    *reach = 0;
    FIG_TRY(fig_cuda_gpu_look(&from, i, 0));
    FIG_TRY(fig_cuda_gpu_look(&to, j, 0));
    CU_TRY(&from, DeviceCanAccessPeer, &there, from.device, to.device);
    CU_TRY(&from, DeviceCanAccessPeer, &back, to.device, from.device);
    if (!there || !back) return FIG_OK;
    CU_TRY(&from, DeviceGetP2PAttribute, &is_linked, FIG_CU_P2P_NATIVE_ATOMICS, from.device,
           to.device);
    *reach = 1 + (is_linked != 0);
    return FIG_OK;
}

static void examine_peers(const examination *e, int count) {
    int least = 2;
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) {
            int reach;
            if (!is_fine(e, find_reach(i, j, &reach), "peers")) return;
            if (reach < least) least = reach;
            if (reach > 0) continue;
            tell(e,
                 (remark){FIG_VERDICT_ADVICE, "peers",
                          "run ranks on GPUs that do, or look for an IOMMU or a container that "
                          "keeps them apart"},
                 "GPUs %d and %d do not reach each other's memory, which collectives of ranks on "
                 "them would need",
                 i, j);
        }
    if (count < 2 || least == 0) return;
    tell(e, (remark){FIG_VERDICT_FINE, "peers", NULL}, "all %d GPUs reach one another's memory, %s",
         count,
         least == 2 ? "with native atomics, as over NVLink"
                    : "some without native atomics, as over PCIe");
}

/* ---- Topology ------------------------------------------------------------------------------ */

static void examine_topology(examination *e) {
    if (!is_fine(e, fig_topology_open(&e->topology, NULL), "topology")) return;
    fig_topology_read_info(e->topology, &e->machine);
    const fig_topology_info *m = &e->machine;
    tell(e, (remark){FIG_VERDICT_FINE, "topology", NULL},
         "%" PRId32 " package%s, %" PRId32 " core%s, %" PRId32 " thread%s, %" PRId32
         " NUMA node%s: %s",
         m->packages, plural(m->packages), m->cores, plural(m->cores), m->threads,
         plural(m->threads), m->nodes, plural(m->nodes), m->node_list);
}

/* Tries to place memory on the node. Sets *refusal to 0, or to the system's error number if it
 * refuses. */
static fig_status try_placing(const examination *e, int32_t node, int *refusal) {
    fig_topology_block block = {.node = node, .bytes = 1};
    FIG_TRY(fig_topology_allocate(e->topology, &block));
    *refusal = block.refusal;
    fig_topology_release(e->topology, block.address, block.bytes);
    return FIG_OK;
}

static void examine_thread(const examination *e, int32_t node, const char *list) {
    if (fig_topology_is_beside(e->topology, node))
        tell(e, (remark){FIG_VERDICT_FINE, "placement", NULL},
             "GPU %" PRId32 " is beside node %" PRId32 ", threads %s, where this thread may run",
             e->ordinal, node, list);
    else
        tell(e,
             (remark){FIG_VERDICT_ADVICE, "placement",
                      "call fig_engine_bind_thread from the thread that steps, or start the "
                      "process with numactl --cpunodebind"},
             "GPU %" PRId32 " is beside node %" PRId32
             ", threads %s, and this thread may run on none of them",
             e->ordinal, node, list);
}

static void examine_placement(const examination *e) {
    const int32_t node = e->gpu.node;
    char list[FIG_TOPOLOGY_LIST_BYTES];
    int refusal = 0;
    if (e->topology == NULL) return;
    if (e->machine.nodes == 1) {
        tell(e, (remark){FIG_VERDICT_FINE, "placement", NULL},
             "all cores and all memory are equally near to GPU %" PRId32, e->ordinal);
        return;
    }
    if (node < 0) {
        tell(e,
             (remark){FIG_VERDICT_ADVICE, "placement",
                      "if you know it, name it as numa_node when an engine is opened"},
             "the system does not tell which of %" PRId32 " NUMA nodes GPU %" PRId32 " is beside",
             e->machine.nodes, e->ordinal);
        return;
    }
    if (!fig_topology_has_node(e->topology, node)) {
        tell(e,
             (remark){FIG_VERDICT_ADVICE, "placement",
                      "let the container, or the job, have cores and memory of that node"},
             "GPU %" PRId32 " is beside node %" PRId32 ", and this process may use only %s",
             e->ordinal, node, e->machine.node_list);
        return;
    }
    fig_topology_list_threads(e->topology, node, list);
    examine_thread(e, node, list);
    if (!is_fine(e, try_placing(e, node, &refusal), "placement") || refusal == 0) return;
    tell(e,
         (remark){FIG_VERDICT_ADVICE, "placement",
                  "in a container, allow mbind: docker run --cap-add SYS_NICE"},
         "the system does not place memory on node %" PRId32 ": %s; the ring lies anywhere", node,
         strerror(refusal));
}

/* ---- Memory and NCCL ----------------------------------------------------------------------- */

/* Pins memory as an engine does for its ring. Returns 1 if the GPU can be opened. */
static int try_pinned(const examination *e, const char *gpu) {
    const fig_engine_options options = {.size = sizeof options, .ordinal = e->ordinal};
    fig_dev *dev;
    fig_block block;
    if (!is_fine(e, fig_device_cuda.open(&dev, &options), gpu)) return 0;
    const fig_status status =
        fig_device_cuda.allocate(dev, &block, FIG_MEMORY_PINNED, PINNED_BYTES);
    if (status == FIG_OK)
        tell(e, (remark){FIG_VERDICT_FINE, "pinned", NULL},
             "1 MiB of the host's memory can be pinned");
    else
        tell(e,
             (remark){FIG_VERDICT_FAULT, "pinned",
                      "check the memory limit of this process or container; "
                      "the limit of locked memory is not the cause"},
             "%s", reason());
    fig_device_cuda.release(dev, &block);
    fig_device_cuda.close(dev);
    return 1;
}

static void examine_nccl(const examination *e) {
    int (*get_version)(int *) = NULL;
    int version = 0;
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    void *entry = library != NULL ? dlsym(library, "ncclGetVersion") : NULL;
    memcpy(&get_version, &entry, sizeof entry);
    if (get_version != NULL && get_version(&version) == 0)
        tell(e, (remark){FIG_VERDICT_FINE, "nccl", NULL}, "libnccl.so.2 is of version %d.%d.%d",
             version / 10000, version / 100 % 100, version % 100);
    else
        tell(e,
             (remark){FIG_VERDICT_ADVICE, "nccl", "install NCCL 2 if you need tensor parallelism"},
             "libnccl.so.2 %s", library == NULL ? "is not there" : "does not tell its version");
    if (library != NULL) dlclose(library);
}

/* ---- Trying the driver --------------------------------------------------------------------- */

static void try_edges(const examination *e, fig_cuda_gpu *gpu) {
    int alone, together;
    if (gpu->path != FIG_IMAGE_HOPPER) return; /* on the other path, graphs have only full edges */
    if (!is_fine(e, fig_cuda_probe_edges(gpu, 0, &alone), "edges")) return;
    if (!alone) {
        tell(e, (remark){FIG_VERDICT_FAULT, "edges", "use another driver"},
             "the driver does not keep the kind of an edge: programmatic edges become full, or "
             "full ones programmatic");
        return;
    }
    if (!is_fine(e, fig_cuda_probe_edges(gpu, 1, &together), "edges")) return;
    tell(e, (remark){FIG_VERDICT_FINE, "edges", NULL}, "%s",
         together ? "the driver keeps the kind of every edge"
                  : "the driver gives all edges of one call the kind of the first, a known fault; "
                    "this library adds each by itself");
}

static void try_captures(const examination *e, fig_cuda_gpu *gpu) {
    int taken;
    if (is_fine(e, fig_cuda_probe_launch(gpu, &taken), "capture"))
        tell(e, (remark){FIG_VERDICT_FINE, "capture", NULL},
             taken ? "the driver takes the launch of a graph into a capture, which is not needed"
                   : "the driver refuses to launch a graph into a capture (error 900), as all do");
    if (is_fine(e, fig_cuda_probe_splice(gpu), "splice"))
        tell(e, (remark){FIG_VERDICT_FINE, "splice", NULL},
             "segments can be appended to a caller's capture");
}

static void try_driver(const examination *e, const char *subject) {
    fig_cuda_gpu gpu = e->gpu;
    if (is_fine(e, fig_cuda_gpu_open(&gpu), subject) &&
        is_fine(e, fig_cuda_gpu_enter(&gpu), subject)) {
        try_edges(e, &gpu);
        try_captures(e, &gpu);
        fig_cuda_gpu_leave(&gpu, FIG_OK);
    }
    fig_cuda_gpu_close(&gpu);
}

static void try_step(const examination *e, const fig_engine_options *options,
                     const fig_traits *traits) {
    fig_ping ping;
    if (!is_fine(e, fig_ping_run(options, traits, &ping), "steps")) return;
    tell(e, (remark){FIG_VERDICT_FINE, "steps", NULL},
         "%" PRId32 " steps of the tutorial on %s, %" PRId64 ".%" PRId64
         " us to plan each and %" PRId64 ".%" PRId64 " us to launch it (host time)",
         ping.steps, options->device == FIG_DEVICE_HOST ? "the host" : "the GPU",
         ping.stage_ns / 1000, ping.stage_ns / 100 % 10, ping.launch_ns / 1000,
         ping.launch_ns / 100 % 10);
}

static void try_gpu(examination *e) {
    const fig_engine_options options = {
        .size = sizeof options, .device = FIG_DEVICE_CUDA, .ordinal = e->ordinal};
    char subject[SUBJECT_LIMIT];
    snprintf(subject, sizeof subject, "gpu %" PRId32, e->ordinal);
    if (!is_fine(e, fig_cuda_gpu_find(&e->gpu, e->ordinal, 0), subject)) return;
    examine_placement(e);
    if (!try_pinned(e, subject)) return;
    try_driver(e, subject);
    try_step(e, &options, &e->gpu.traits);
}

fig_status fig_examine(int32_t ordinal, fig_find_callback find, void *user) {
    const fig_engine_options host = {.size = sizeof host, .device = FIG_DEVICE_HOST};
    if (find == NULL) return fig_fail(FIG_INVALID, "examine: find is NULL");
    examination e = {.find = find, .user = user, .ordinal = ordinal};
    examine_library(&e);
    const int count = examine_driver(&e);
    examine_gpus(&e, count);
    examine_peers(&e, count);
    examine_topology(&e);
    examine_nccl(&e);
    if (ordinal >= 0)
        try_gpu(&e);
    else
        try_step(&e, &host, NULL);
    fig_topology_close(e.topology);
    return FIG_OK;
}

fig_status fig_examine_ranks(fig_device device, int32_t count, fig_find_callback find, void *user) {
    fig_rally rally;
    if (find == NULL) return fig_fail(FIG_INVALID, "examine: find is NULL");
    if (count < 2 || count > FIG_RALLY_LIMIT)
        return fig_fail(FIG_INVALID, "examine: %" PRId32 " ranks, limits 2 to %d", count,
                        FIG_RALLY_LIMIT);
    examination e = {.find = find, .user = user};
    if (!is_fine(&e, fig_rally_run(device, count, &rally), "ranks")) return FIG_OK;
    tell(&e, (remark){FIG_VERDICT_FINE, "ranks", NULL},
         "an all-reduce over %" PRId32 " %s takes %.1f us for %d KiB and %.1f us for %d KiB, in "
         "a chain of them in one step",
         count, device == FIG_DEVICE_HOST ? "ranks of the host" : "GPUs",
         (double)rally.ns[0] / 1000, FIG_RALLY_ROW_KIB, (double)rally.ns[1] / 1000,
         FIG_RALLY_ROWS * FIG_RALLY_ROW_KIB);
    return FIG_OK;
}

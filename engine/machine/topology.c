/* topology.c: asks hwloc for cores and NUMA nodes only.
 *
 * Engines wait for this code in fig_engine_open(), so hwloc looks for no caches and no devices. Its
 * "x86" component is disabled, because it would move the thread to every core in turn and take five
 * times as long. Invariant: every function that binds checks node_count first. */
#include "engine/machine/topology.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hwloc.h>

#include "planner/size.h"
#include "planner/status.h"

struct fig_topology {
    hwloc_topology_t hwloc;
    int32_t node_count;
};

/* ---- Life ---------------------------------------------------------------------------------- */

static fig_status load(fig_topology *topology, const char *synthetic) {
    if (hwloc_topology_init(&topology->hwloc) != 0) {
        topology->hwloc = NULL;
        return fig_fail(FIG_NOMEM, "topology: hwloc has no memory");
    }
    const hwloc_topology_t hwloc = topology->hwloc;
    if (synthetic != NULL && hwloc_topology_set_synthetic(hwloc, synthetic) != 0)
        return fig_fail(FIG_INVALID, "topology: \"%s\" describes no machine", synthetic);
    /* If this version of hwloc does not know a filter, the topology holds more than is needed,
     * which does no harm. Groups must be kept: without them a node that is part of a package would
     * get all cores of the package. */
    hwloc_topology_set_all_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (hwloc_topology_load(hwloc) != 0)
        return fig_fail(FIG_UNSUPPORTED, "topology: hwloc cannot read this machine: %s",
                        strerror(errno));
    topology->node_count = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE);
    assert(topology->node_count > 0); /* a machine without NUMA has one node */
    return FIG_OK;
}

fig_status fig_topology_open(fig_topology **out, const char *synthetic) {
    *out = NULL;
    fig_topology *topology = calloc(1, sizeof *topology);
    if (topology == NULL) return fig_fail(FIG_NOMEM, "topology: %zu bytes", sizeof *topology);
    fig_status status = load(topology, synthetic);
    if (status == FIG_OK) {
        *out = topology;
        return FIG_OK;
    }
    fig_topology_close(topology);
    return status;
}

void fig_topology_close(fig_topology *topology) {
    if (topology == NULL) return;
    if (topology->hwloc != NULL) hwloc_topology_destroy(topology->hwloc);
    free(topology);
}

static void write_list(hwloc_const_bitmap_t set, char list[FIG_TOPOLOGY_LIST_BYTES]) {
    list[0] = '\0';
    if (set != NULL && !hwloc_bitmap_iszero(set))
        hwloc_bitmap_list_snprintf(list, FIG_TOPOLOGY_LIST_BYTES, set);
}

void fig_topology_read_info(const fig_topology *topology, fig_topology_info *info) {
    const hwloc_topology_t hwloc = topology->hwloc;
    *info = (fig_topology_info){
        .packages = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PACKAGE),
        .cores = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE),
        .threads = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PU),
        .nodes = topology->node_count,
    };
    if (info->cores == 0) info->cores = info->threads; /* the system does not report cores */
    write_list(hwloc_topology_get_topology_nodeset(hwloc), info->node_list);
}

/* ---- Nodes --------------------------------------------------------------------------------- */

/* Returns the node with that number, or NULL if there is none. */
static hwloc_obj_t find_node(const fig_topology *topology, int32_t node) {
    return hwloc_get_numanode_obj_by_os_index(topology->hwloc, (unsigned)node);
}

int fig_topology_has_node(const fig_topology *topology, int32_t node) {
    return find_node(topology, node) != NULL;
}

void fig_topology_list_threads(const fig_topology *topology, int32_t node,
                               char list[FIG_TOPOLOGY_LIST_BYTES]) {
    const hwloc_obj_t found = find_node(topology, node);
    write_list(found != NULL ? found->cpuset : NULL, list);
}

/* ---- Threads ------------------------------------------------------------------------------- */

/* Returns the hardware threads of a node on which the calling thread may run, or NULL if there is
 * no memory. If the system does not report them, these are all hardware threads of the node. The
 * caller frees the set with hwloc_bitmap_free(). */
static hwloc_bitmap_t common_threads(const fig_topology *topology, hwloc_obj_t node) {
    const hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) return NULL;
    if (hwloc_get_cpubind(topology->hwloc, set, HWLOC_CPUBIND_THREAD) != 0) hwloc_bitmap_fill(set);
    hwloc_bitmap_and(set, set, node->cpuset);
    return set;
}

fig_status fig_topology_bind_thread(const fig_topology *topology, int32_t node) {
    if (topology->node_count == 1) return FIG_OK;
    const hwloc_obj_t found = find_node(topology, node);
    if (found == NULL)
        return fig_fail(FIG_UNSUPPORTED, "topology: node %" PRId32 " has no cores for this process",
                        node);
    const hwloc_bitmap_t set = common_threads(topology, found);
    if (set == NULL) return fig_fail(FIG_NOMEM, "topology: hwloc has no memory");
    const int refused = hwloc_set_cpubind(
        topology->hwloc, hwloc_bitmap_iszero(set) ? found->cpuset : set, HWLOC_CPUBIND_THREAD);
    const int error = errno;
    hwloc_bitmap_free(set);
    if (refused == 0) return FIG_OK;
    return fig_fail(FIG_UNSUPPORTED,
                    "topology: the system does not bind this thread to node %" PRId32 ": %s", node,
                    strerror(error));
}

int fig_topology_is_beside(const fig_topology *topology, int32_t node) {
    const hwloc_obj_t found = find_node(topology, node);
    if (topology->node_count == 1 || found == NULL) return 1;
    const hwloc_bitmap_t set = common_threads(topology, found);
    const int beside = set == NULL || !hwloc_bitmap_iszero(set);
    hwloc_bitmap_free(set);
    return beside;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static size_t whole_pages(size_t bytes) {
    return fig_size_align(bytes > 0 ? bytes : 1, (size_t)sysconf(_SC_PAGESIZE));
}

/* The memory is placed before its first use. The placement is not strict, because with strict
 * placement a full node would end the process. */
fig_status fig_topology_allocate(const fig_topology *topology, fig_topology_block *block) {
    const hwloc_obj_t node = find_node(topology, block->node);
    assert(node != NULL);
    block->refusal = 0;
    const size_t bytes = whole_pages(block->bytes);
    block->address = bytes >= block->bytes ? hwloc_alloc(topology->hwloc, bytes) : NULL;
    if (block->address == NULL)
        return fig_fail(FIG_NOMEM, "topology: %zu bytes on node %" PRId32, block->bytes,
                        block->node);
    if (topology->node_count > 1 &&
        hwloc_set_area_membind(topology->hwloc, block->address, bytes, node->nodeset,
                               HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) != 0)
        block->refusal = errno;
    memset(block->address, 0, bytes);
    return FIG_OK;
}

void fig_topology_release(const fig_topology *topology, void *address, size_t bytes) {
    if (address != NULL) hwloc_free(topology->hwloc, address, whole_pages(bytes));
}

/* placement.c: chooses a NUMA node, if there is a choice.
 *
 * Invariant: if the caller names a node, memory is placed there or the call fails. The device's
 * node is only a hint: it is used if possible, and no call fails because of it. */
#include "engine/machine/placement.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

enum { PATH_LIMIT = 256 };

/* ---- What the system reports --------------------------------------------------------------- */

/* Small and virtual machines usually have one node; this quick check saves them from loading a
 * topology. */
static int has_several_nodes(const char *system) {
    char path[PATH_LIMIT];
    int count = 0;
    snprintf(path, sizeof path, "%s/devices/system/node", system);
    DIR *folder = opendir(path);
    if (folder == NULL) return 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        count += strncmp(entry->d_name, "node", 4) == 0 && isdigit((unsigned char)entry->d_name[4]);
    closedir(folder);
    return count > 1;
}

/* ---- Life ---------------------------------------------------------------------------------- */

static fig_status take_named(fig_placement *placement, int32_t numa_node) {
    fig_topology_info info;
    const int32_t node = numa_node - 1;
    FIG_TRY(fig_topology_open(&placement->topology, NULL));
    fig_topology_read_info(placement->topology, &info);
    if (!fig_topology_has_node(placement->topology, node))
        return fig_fail(FIG_INVALID,
                        "engine: numa_node is %" PRId32 ", which is node %" PRId32
                        ", and there are %" PRId32 ": %s",
                        numa_node, node, info.nodes, info.node_list);
    placement->thread_node = node;
    if (info.nodes > 1) placement->memory_node = node;
    return FIG_OK;
}

/* If the topology cannot be loaded, the memory may lie on any node, because the caller named
 * none. */
static void take_devices(fig_placement *placement, const fig_placement_wish *wish) {
    if (wish->device_node < 0 || !has_several_nodes(wish->system != NULL ? wish->system : "/sys"))
        return;
    if (fig_topology_open(&placement->topology, NULL) != FIG_OK) return;
    if (fig_topology_has_node(placement->topology, wish->device_node))
        placement->memory_node = wish->device_node;
}

fig_status fig_placement_open(fig_placement *placement, const fig_placement_wish *wish) {
    *placement = (fig_placement){.memory_node = -1, .thread_node = wish->device_node};
    fig_status status = FIG_OK;
    if (wish->numa_node > 0) status = take_named(placement, wish->numa_node);
    if (wish->numa_node == 0) take_devices(placement, wish);
    if (status != FIG_OK || placement->memory_node < 0) {
        fig_topology_close(placement->topology);
        placement->topology = NULL;
    }
    return status;
}

void fig_placement_close(fig_placement *placement) {
    fig_topology_close(placement->topology);
    placement->topology = NULL;
}

/* ---- Use ----------------------------------------------------------------------------------- */

/* If the system refuses to place memory, the memory can still be used but may be farther away.
 * fig_examine reports such a refusal. */
fig_status fig_placement_allocate(const fig_placement *placement, size_t bytes, void **address) {
    assert(placement->topology != NULL);
    fig_topology_block block = {.node = placement->memory_node, .bytes = bytes};
    const fig_status status = fig_topology_allocate(placement->topology, &block);
    *address = block.address;
    return status;
}

void fig_placement_release(const fig_placement *placement, void *address, size_t bytes) {
    fig_topology_release(placement->topology, address, bytes);
}

static fig_status bind_thread(const fig_topology *topology, int32_t node) {
    fig_topology_info info;
    fig_topology_read_info(topology, &info);
    if (node < 0 && info.nodes > 1)
        return fig_fail(FIG_UNSUPPORTED,
                        "engine: the system does not tell which of %" PRId32
                        " NUMA nodes, %s, the device is beside",
                        info.nodes, info.node_list);
    return fig_topology_bind_thread(topology, node);
}

fig_status fig_placement_bind_thread(const fig_placement *placement) {
    fig_topology *topology;
    if (placement->topology != NULL)
        return bind_thread(placement->topology, placement->thread_node);
    FIG_TRY(fig_topology_open(&topology, NULL));
    const fig_status status = bind_thread(topology, placement->thread_node);
    fig_topology_close(topology);
    return status;
}

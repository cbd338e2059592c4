/* launch_place.c: divides cores among ranks, by hwloc.
 *
 * Ranks whose GPUs lie beside the same cores share those cores evenly, in contiguous runs, so that
 * each rank has its own caches. Invariant: a rank without a place runs anywhere. */
#include "tools/launch/launch_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hwloc.h>

enum { NVIDIA = 0x10de, DISPLAY = 0x03, GPU_LIMIT = 256 };

typedef struct place {
    hwloc_const_cpuset_t beside; /* cores beside the rank's GPU, or all cores */
    hwloc_cpuset_t cores;        /* the rank's share of `beside`; NULL: the rank runs anywhere */
    hwloc_obj_t gpu;             /* NULL: none */
} place;

struct fig_launch_places {
    hwloc_topology_t topology;
    place *places; /* [count] */
    int32_t count;
};

/* ---- GPUs ---------------------------------------------------------------------------------- */

/* Lists the GPUs in the order of their PCI addresses. */
static int find_gpus(hwloc_topology_t topology, hwloc_obj_t gpus[GPU_LIMIT]) {
    int count = 0;
    hwloc_obj_t each = NULL;
    while (count < GPU_LIMIT && (each = hwloc_get_next_pcidev(topology, each)) != NULL) {
        const struct hwloc_pcidev_attr_s *pci = &each->attr->pcidev;
        if (pci->vendor_id == NVIDIA && pci->class_id >> 8 == DISPLAY) gpus[count++] = each;
    }
    return count;
}

/* Keeps the GPUs that CUDA_VISIBLE_DEVICES lists, in its order. Returns their number, or -1 if the
 * variable does not list numbers, so that the GPUs are unknown. */
static int keep_visible(hwloc_obj_t gpus[GPU_LIMIT], int count) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    hwloc_obj_t kept[GPU_LIMIT];
    int kept_count = 0;
    if (list == NULL) return count;
    while (*list != '\0' && kept_count < GPU_LIMIT) {
        char *end;
        const long index = strtol(list, &end, 10);
        if (end == list || (*end != ',' && *end != '\0')) return -1;
        if (index < 0 || index >= count) break; /* as in CUDA, the rest is not visible */
        kept[kept_count++] = gpus[index];
        list = *end == ',' ? end + 1 : end;
    }
    memcpy(gpus, kept, (size_t)kept_count * sizeof kept[0]);
    return kept_count;
}

static void choose_gpus(fig_launch_places *of) {
    hwloc_obj_t gpus[GPU_LIMIT];
    const int count = keep_visible(gpus, find_gpus(of->topology, gpus));
    const hwloc_const_cpuset_t all = hwloc_topology_get_allowed_cpuset(of->topology);
    for (int32_t i = 0; i < of->count; i++) {
        of->places[i].beside = all;
        /* some ranks would share a GPU, but it is unknown which */
        if (count < of->count) continue;
        of->places[i].gpu = gpus[i];
        const hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(of->topology, gpus[i]);
        if (above->cpuset != NULL && hwloc_bitmap_intersects(above->cpuset, all))
            of->places[i].beside = above->cpuset;
    }
}

/* ---- Cores --------------------------------------------------------------------------------- */

/* Returns share `index` of `count` of the cores in `beside`, in whole cores. If `beside` has fewer
 * cores than shares, returns all of `beside`. */
static hwloc_cpuset_t share(hwloc_topology_t topology, hwloc_const_cpuset_t beside, int32_t index,
                            int32_t count) {
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, beside, HWLOC_OBJ_CORE);
    hwloc_cpuset_t out = hwloc_bitmap_alloc();
    if (out == NULL) return NULL;
    if (cores < count) {
        hwloc_bitmap_copy(out, beside);
    } else {
        for (int i = cores * index / count; i < cores * (index + 1) / count; i++) {
            const hwloc_obj_t core =
                hwloc_get_obj_inside_cpuset_by_type(topology, beside, HWLOC_OBJ_CORE, (unsigned)i);
            hwloc_bitmap_or(out, out, core->cpuset);
        }
    }
    hwloc_bitmap_and(out, out, hwloc_topology_get_allowed_cpuset(topology));
    return out;
}

static void share_out(fig_launch_places *of) {
    for (int32_t i = 0; i < of->count; i++) {
        int32_t index = 0, count = 0;
        for (int32_t k = 0; k < of->count; k++) {
            if (!hwloc_bitmap_isequal(of->places[k].beside, of->places[i].beside)) continue;
            index += k < i;
            count++;
        }
        of->places[i].cores = share(of->topology, of->places[i].beside, index, count);
    }
}

fig_launch_places *fig_launch_place_open(int32_t count) {
    fig_launch_places *out = calloc(1, sizeof *out);
    if (out == NULL) return NULL;
    out->places = calloc((size_t)count, sizeof *out->places);
    if (out->places != NULL && hwloc_topology_init(&out->topology) == 0) {
        out->count = count;
        hwloc_topology_set_io_types_filter(out->topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        if (hwloc_topology_load(out->topology) == 0) {
            choose_gpus(out);
            share_out(out);
            return out;
        }
        hwloc_topology_destroy(out->topology);
    }
    free(out->places);
    free(out);
    return NULL;
}

void fig_launch_place_close(fig_launch_places *places) {
    if (places == NULL) return;
    for (int32_t i = 0; i < places->count; i++)
        hwloc_bitmap_free(places->places[i].cores);
    hwloc_topology_destroy(places->topology);
    free(places->places);
    free(places);
}

void fig_launch_place_bind(const fig_launch_places *places, int32_t rank) {
    if (places == NULL || places->places[rank].cores == NULL) return;
    (void)hwloc_set_cpubind(places->topology, places->places[rank].cores, HWLOC_CPUBIND_PROCESS);
}

void fig_launch_place_tell(const fig_launch_places *places, int32_t rank, char *text,
                           size_t bytes) {
    char list[256], gpu[64] = "";
    if (places == NULL || places->places[rank].cores == NULL) {
        snprintf(text, bytes, "anywhere");
        return;
    }
    const place *of = &places->places[rank];
    hwloc_bitmap_list_snprintf(list, sizeof list, of->cores);
    if (of->gpu != NULL) {
        const struct hwloc_pcidev_attr_s *pci = &of->gpu->attr->pcidev;
        snprintf(gpu, sizeof gpu, ", beside GPU %04x:%02x:%02x.%x", (unsigned)pci->domain,
                 (unsigned)pci->bus, (unsigned)pci->dev, (unsigned)pci->func);
    }
    snprintf(text, bytes, "threads %s%s", list, gpu);
}

/* inspect_map.c: lists the parts of the workspace and the launches of a bucket that use each part.
 *
 * workspace.c decides the places of the parts. Invariant: the parts cover the workspace without
 * a gap. */
#include "tools/figraph/inspect/inspect_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/figraph/inspect/failure.h"

static int compare_parts(const void *left, const void *right) {
    const fig_inspect_part *a = left, *b = right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The part is used from the first to the last launch of the class. */
static void live_in_class(const fig_inspection *view, uint32_t split_class,
                          fig_inspect_part *part) {
    part->first = UINT32_MAX;
    for (uint32_t l = 0; l < view->launch_count; l++) {
        if (view->launches[l].split_class != (int32_t)split_class) continue;
        if (part->first == UINT32_MAX) part->first = l;
        part->last = l;
    }
}

static void add_class(fig_inspect_map *map, const fig_inspect_bucket *bucket, uint32_t index) {
    const fig_inspect_class *of = &bucket->view->classes[index];
    const struct {
        const char *name;
        uint64_t offset;
    } kinds[] = {{"counters", of->counters}, {"partials", of->partials}, {"sums", of->sums}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        fig_inspect_part *part = &map->parts[map->count++];
        snprintf(part->name, sizeof part->name, "%s of class %" PRIu32, kinds[i].name, index + 1);
        part->offset = kinds[i].offset;
        part->stays = i == 0; /* these bytes stay zero, whichever bucket comes next */
        live_in_class(bucket->view, index, part);
    }
}

static void add_temps(fig_inspect_map *map, const fig_inspect_bucket *bucket, uint32_t *part_of) {
    const fig_inspection *view = bucket->view;
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        if (view->tensors[id - 1].role != FIG_ROLE_TEMP) continue;
        fig_inspect_part *part = &map->parts[map->count];
        part_of[id] = ++map->count;
        snprintf(part->name, sizeof part->name, "%s", view->tensors[id - 1].name);
        part->offset = view->tensors[id - 1].offset;
        part->first = UINT32_MAX;
    }
}

/* part_of: [tensor id] the number of the tensor's part, from 1; 0: the tensor has no part. */
static void find_lives(fig_inspect_map *map, const fig_inspect_bucket *bucket,
                       const uint32_t *part_of) {
    const fig_inspection *view = bucket->view;
    for (uint32_t l = 0; l < bucket->view->launch_count; l++) {
        const fig_inspect_launch *launch = &bucket->view->launches[l];
        for (uint32_t n = launch->node; n < launch->node + launch->node_count; n++) {
            const fig_inspect_node *node = &view->nodes[n];
            for (uint32_t i = 0; i < node->operand_count; i++) {
                const uint32_t part = part_of[view->operands[node->operand + i].tensor];
                if (part == 0) continue;
                if (map->parts[part - 1].first == UINT32_MAX) map->parts[part - 1].first = l;
                map->parts[part - 1].last = l;
            }
        }
    }
}

static void measure(fig_inspect_map *map, uint64_t end) {
    qsort(map->parts, map->count, sizeof *map->parts, compare_parts);
    for (uint32_t i = map->count; i > 0; i--) {
        map->parts[i - 1].bytes = end - map->parts[i - 1].offset;
        end = map->parts[i - 1].offset;
    }
}

fig_status fig_inspect_map_make(fig_inspect_map *map, const fig_inspect_bucket *bucket) {
    const fig_inspection *view = bucket->view;
    const uint32_t class_count = (uint32_t)bucket->view->class_count;
    uint32_t *part_of = calloc((size_t)view->tensor_count + 1, sizeof *part_of);
    *map =
        (fig_inspect_map){.parts = calloc((size_t)view->tensor_count + 3 * FIG_INSPECT_CLASS_LIMIT,
                                          sizeof *map->parts)};
    if (part_of == NULL || map->parts == NULL) {
        free(part_of);
        fig_inspect_map_finish(map);
        return fig_failure(FIG_NOMEM, "map: %u tensors", view->tensor_count);
    }
    for (uint32_t i = 0; i < class_count; i++)
        add_class(map, bucket, i);
    add_temps(map, bucket, part_of);
    find_lives(map, bucket, part_of);
    measure(map, bucket->view->workspace_bytes);
    free(part_of);
    return FIG_OK;
}

void fig_inspect_map_finish(fig_inspect_map *map) {
    free(map->parts);
    *map = (fig_inspect_map){0};
}

/* ---- Printing */

/* Returns the part in thousandths of the whole, but at least 3, so that the smallest part is
 * visible. */
static uint32_t share(uint64_t part, uint64_t whole) {
    const uint64_t thousandths = whole > 0 ? part * 1000 / whole : 0;
    return thousandths > 3 ? (uint32_t)thousandths : 3;
}

static void print_bar(fig_print *print, uint32_t left, uint32_t width) {
    if (left + width > 1000) left = 1000 - width;
    fig_print_text(print,
                   "<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" "
                   "aria-hidden=\"true\"><rect x=\"%" PRIu32 "\" width=\"%" PRIu32
                   "\" height=\"10\"/></svg>",
                   left, width);
}

static void print_part(fig_print *print, const fig_inspect_part *part,
                       const fig_inspect_bucket *bucket) {
    const uint64_t all = bucket->view->workspace_bytes;
    const uint32_t launches = bucket->view->launch_count;
    char bytes[FIG_PRINT_NUMBER], range[FIG_PRINT_RANGE];
    fig_print_raw(print, "<tr><th scope=\"row\">");
    fig_print_raw(print, part->name);
    fig_print_text(print, "</th><td>0x%" PRIx64 "</td><td>%s</td><td>", part->offset,
                   fig_print_bytes(bytes, part->bytes));
    print_bar(print, (uint32_t)(part->offset * 1000 / all), share(part->bytes, all));
    fig_print_raw(print, "</td><td>");
    if (part->first > part->last) {
        fig_print_raw(print, "by no launch</td><td></td></tr>\n");
        return;
    }
    fig_print_raw(print,
                  fig_print_range(range, "", (const uint32_t[]){part->first, part->last}, " to "));
    fig_print_raw(print, part->stays ? ", and zero between steps</td><td>" : "</td><td>");
    print_bar(print, (uint32_t)((uint64_t)part->first * 1000 / launches),
              share(part->last - part->first + 1, launches));
    fig_print_raw(print, "</td></tr>\n");
}

void fig_inspect_map_print(fig_print *print, const fig_inspect_map *map,
                           const fig_inspect_bucket *bucket) {
    char bytes[FIG_PRINT_NUMBER];
    fig_print_text(print,
                   "<section id=\"workspace\"><h2>Workspace</h2>\n<p>%s, shared by all buckets, "
                   "and which of this one's %" PRIu32 " launches use it.</p>\n",
                   fig_print_bytes(bytes, bucket->view->workspace_bytes),
                   bucket->view->launch_count);
    if (map->count == 0) {
        fig_print_raw(print, "<p>Nothing lies in it.</p></section>\n");
        return;
    }
    fig_print_raw(print, "<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th>part</th>"
                         "<th>at</th><th>bytes</th><th>where</th><th>launches</th>"
                         "<th>when</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < map->count; i++)
        print_part(print, &map->parts[i], bucket);
    fig_print_raw(print, "</tbody></table></div></section>\n");
}

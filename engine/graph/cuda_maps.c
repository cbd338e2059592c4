/* cuda_maps.c: fills in the parts of params that are not stored in any file.
 *
 * The driver makes the tensor maps from a family's recipes; the family fills in the rest.
 * Invariant: the arguments to the driver depend only on the recipe, so equal params get equal
 * maps. */
#include "engine/graph/cuda_maps.h"

#include <string.h>

#include "kernels/table/families.h"
#include "planner/status.h"

static unsigned int type_of(uint32_t dtype) {
    switch (dtype) {
    case FIG_F32: return FIG_CU_TENSOR_F32;
    case FIG_F16: return FIG_CU_TENSOR_F16;
    case FIG_BF16: return FIG_CU_TENSOR_BF16;
    case FIG_I32: return FIG_CU_TENSOR_I32;
    default: return FIG_CU_TENSOR_U8;
    }
}

/* The driver numbers the swizzles 0 to 3: none, 32, 64 and 128 bytes. */
static unsigned int swizzle_of(uint32_t bytes) {
    unsigned int swizzle = 0;
    for (uint32_t at = 32; at <= bytes; at *= 2)
        swizzle++;
    return swizzle;
}

static fig_status encode(fig_cuda_gpu *gpu, const fig_tensor_map_recipe *recipe,
                         fig_tensor_map *map) {
    static const uint32_t every_element[FIG_TENSOR_MAP_RANK_LIMIT] = {1, 1, 1, 1, 1};
    assert(recipe->rank >= 1 && recipe->rank <= FIG_TENSOR_MAP_RANK_LIMIT);
    CU_TRY(gpu, TensorMapEncodeTiled, map, type_of(recipe->dtype), recipe->rank,
           (void *)(uintptr_t)recipe->address, recipe->dims, recipe->strides_bytes + 1, recipe->box,
           every_element, FIG_CU_TENSOR_NOT_INTERLEAVED, swizzle_of(recipe->swizzle_bytes),
           FIG_CU_TENSOR_PROMOTE_128, FIG_CU_TENSOR_FILL_ZERO);
    return FIG_OK;
}

fig_status fig_cuda_maps_fill(fig_cuda_gpu *gpu, fig_op op, uint32_t family, uint8_t *params) {
    const fig_kernel *kernel = &fig_kernel_table[op];
    const fig_family *serving = fig_families_of(op, family);
    if (serving->finish != NULL) serving->finish(params);
    if (serving->map == NULL) return FIG_OK;
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        fig_tensor_map_recipe recipe;
        fig_tensor_map map;
        if (field->kind != FIG_FIELD_TENSOR_MAP) continue;
        memset(&recipe, 0, sizeof recipe);
        serving->map(params, field->item, &recipe);
        FIG_TRY(encode(gpu, &recipe, &map));
        memcpy(params + field->offset, &map, sizeof map);
    }
    return FIG_OK;
}

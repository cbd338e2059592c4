/* blas_few.c: divides a product of few rows among a GPU's blocks, and launches blas_few.cu.
 *
 * The driver library is opened when the program runs, as blas_cuda.c opens the runtime. Invariant:
 * a launch may begin before the previous launch on its stream has ended. */
#include "examples/blas_few.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    ROW_LIMIT = 32,
    CAPABILITY_MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    SM_COUNT = 16,         /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
    DYNAMIC_SHARED = 8,    /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    PROGRAMMATIC = 6,      /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    MAP_BF16 = 9,          /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_SWIZZLE_128 = 3,   /* CU_TENSOR_MAP_SWIZZLE_128B */
    MAP_PROMOTE_128 = 2,   /* CU_TENSOR_MAP_L2_PROMOTION_L2_128B */
    ENTRIES = 3
};

/* CUlaunchAttribute */
typedef struct attribute {
    uint32_t id, padding;
    union {
        int32_t allowed;
        uint64_t room[8];
    } value;
} attribute;

/* CUlaunchConfig */
typedef struct launch {
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
    attribute *attributes;
    uint32_t attribute_count;
} launch;

static struct {
    int (*CtxGetDevice)(int *device);
    int (*DeviceGetAttribute)(int *value, int attribute, int device);
    int (*LibraryLoadData)(void **library, const void *image, void *jit, void **jit_values,
                           unsigned jit_count, void *options, void **option_values,
                           unsigned option_count);
    int (*LibraryUnload)(void *library);
    int (*LibraryGetKernel)(void **kernel, void *library, const char *name);
    int (*KernelSetAttribute)(int attribute, int value, void *kernel, int device);
    int (*TensorMapEncodeTiled)(blas_few_map *map, int type, uint32_t rank, const void *address,
                                const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                const uint32_t *steps, int interleave, int swizzle, int promotion,
                                int fill);
    int (*LaunchKernelEx)(const launch *launch, void *kernel, void **params, void **extra);
} cu;

/* blas_few.S */
extern const uint8_t blas_few_image[];
extern const uint64_t blas_few_image_bytes;

static void *library, *kernels[ENTRIES];
static int32_t blocks;

/* ---- Dealing ------------------------------------------------------------------------------- */

static int32_t ceil_of(int32_t count, int32_t by) {
    return (count + by - 1) / by;
}

const char *blas_few_plan(const blas_product *product, int32_t block_count,
                          blas_few_params *params) {
    const int32_t x_units = product->rows <= 8 ? 1 : product->rows <= 16 ? 2 : 4;
    const int32_t sum_bytes = BLAS_FEW_PARTS * x_units * 8 * BLAS_FEW_SUM_STRIDE * 4;
    if (product->rows < 1 || product->rows > ROW_LIMIT) return "it has more than 32 rows";
    if (product->depth % 8 != 0) return "rows of its matrices do not lie at 16 bytes";
    if (product->width % BLAS_FEW_UNIT != 0) return "its width is no multiple of 8";
    if (product->y_stride % 2 != 0) return "rows of y do not lie at 4 bytes";
    const int32_t units = product->width / BLAS_FEW_UNIT;
    const int32_t blocks_used = units < block_count ? units : block_count;
    const int32_t most = ceil_of(units, blocks_used);
    const int32_t groups = ceil_of(most, BLAS_FEW_GROUP_LIMIT), group = ceil_of(most, groups);
    const int32_t slot_bytes = BLAS_FEW_PIECES * (group + x_units) * BLAS_FEW_PIECE_BYTES;
    const int32_t fitting = (BLAS_FEW_ROOM_BYTES - sum_bytes) / slot_bytes;
    *params =
        (blas_few_params){.y = product->y,
                          .rows = product->rows,
                          .y_stride = product->y_stride,
                          .blocks = blocks_used,
                          .each = units / blocks_used,
                          .more = units % blocks_used,
                          .groups = groups,
                          .group = group,
                          .steps = ceil_of(product->depth, BLAS_FEW_STEP),
                          .x_units = x_units,
                          .slots = fitting < BLAS_FEW_SLOT_LIMIT ? fitting : BLAS_FEW_SLOT_LIMIT,
                          .scale = product->scale};
    return NULL;
}

/* ---- Opening ------------------------------------------------------------------------------- */

static int find_driver(void) {
    const struct {
        const char *name;
        void *place;
    } entries[] = {{"cuCtxGetDevice", &cu.CtxGetDevice},
                   {"cuDeviceGetAttribute", &cu.DeviceGetAttribute},
                   {"cuLibraryLoadData", &cu.LibraryLoadData},
                   {"cuLibraryUnload", &cu.LibraryUnload},
                   {"cuLibraryGetKernel", &cu.LibraryGetKernel},
                   {"cuKernelSetAttribute", &cu.KernelSetAttribute},
                   {"cuTensorMapEncodeTiled", &cu.TensorMapEncodeTiled},
                   {"cuLaunchKernelEx", &cu.LaunchKernelEx}};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *found = driver != NULL ? dlsym(driver, entries[i].name) : NULL;
        if (found == NULL) return 1;
        memcpy(entries[i].place, &found, sizeof found);
    }
    return 0;
}

int blas_few_open(void) {
    int device, major, sm_count;
    if (blas_few_image_bytes == 0 || find_driver() != 0 || cu.CtxGetDevice(&device) != 0 ||
        cu.DeviceGetAttribute(&major, CAPABILITY_MAJOR, device) != 0 || major != 9 ||
        cu.DeviceGetAttribute(&sm_count, SM_COUNT, device) != 0 ||
        cu.LibraryLoadData(&library, blas_few_image, NULL, NULL, 0, NULL, NULL, 0) != 0)
        return 1;
    for (int i = 0; i < ENTRIES; i++) {
        char name[16];
        snprintf(name, sizeof name, "blas_few_%d", 1 << i);
        if (cu.LibraryGetKernel(&kernels[i], library, name) != 0 ||
            cu.KernelSetAttribute(DYNAMIC_SHARED, BLAS_FEW_ROOM_BYTES, kernels[i], device) != 0)
            return 1;
    }
    blocks = sm_count;
    return 0;
}

void blas_few_close(void) {
    if (library != NULL) cu.LibraryUnload(library);
    library = NULL;
    blocks = 0;
}

int32_t blas_few_blocks(void) {
    return blocks;
}

/* ---- Launching ----------------------------------------------------------------------------- */

/* Makes the tensor map of a matrix with rows of `depth` numbers, cut into pieces of the given
 * number of rows. Reads beyond the matrix return 0. */
static int make_map(blas_few_map *map, const uint16_t *matrix, int32_t rows, int32_t depth,
                    int32_t piece_rows) {
    const uint64_t dims[] = {(uint64_t)depth, (uint64_t)rows};
    const uint64_t strides[] = {(uint64_t)depth * sizeof *matrix};
    const uint32_t box[] = {BLAS_FEW_PIECE, (uint32_t)piece_rows}, steps[] = {1, 1};
    return cu.TensorMapEncodeTiled(map, MAP_BF16, 2, matrix, dims, strides, box, steps, 0,
                                   MAP_SWIZZLE_128, MAP_PROMOTE_128, 0);
}

int blas_few_multiply(const blas_product *product, void *stream) {
    blas_few_params p;
    void *pointer = &p;
    attribute early = {.id = PROGRAMMATIC, .value = {.allowed = 1}};
    if (blocks == 0 || blas_few_plan(product, blocks, &p) != NULL) return 1;
    int result =
        make_map(&p.w, product->w, product->width, product->depth, p.group * BLAS_FEW_UNIT);
    if (result == 0 && p.group > 1)
        result = make_map(&p.w_less, product->w, product->width, product->depth,
                          (p.group - 1) * BLAS_FEW_UNIT);
    if (result == 0)
        result =
            make_map(&p.x, product->x, product->rows, product->depth, p.x_units * BLAS_FEW_UNIT);
    if (result != 0) return result;
    const launch of = {.grid = {(uint32_t)p.blocks, 1, 1},
                       .block = {BLAS_FEW_THREADS, 1, 1},
                       .shared_bytes = BLAS_FEW_ROOM_BYTES,
                       .stream = stream,
                       .attributes = &early,
                       .attribute_count = 1};
    return cu.LaunchKernelEx(&of, kernels[p.x_units / 2], &pointer, NULL);
}

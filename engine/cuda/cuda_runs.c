/* cuda_runs.c: one GPU as the device of a runner, which launches kernels on the caller's stream.
 *
 * begin() pushes the GPU's context, and end() pops it. prepare() makes the driver compute a
 * launch's tensor maps on the host. launch() makes one driver call. Each kernel may begin before
 * the previous work on the stream has ended, whether or not that work is ours, unless its launch is
 * plain. So each kernel keeps the law of programmatic edges (kernels/common/block.cuh): it waits
 * before it writes, and before that wait it reads only memory that was written before its run
 * began. Invariant: once a fig_run_device is open, no run changes it; a run changes only copies on
 * its own thread. */
#include "engine/seam/run_device.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/cuda_maps.h"
#include "engine/graph/cuda_resident.h"
#include "graphs/scores/cache_folder.h"
#include "planner/status.h"

/* A kernel that a run may launch. */
typedef struct loaded_kernel {
    fig_op op;
    uint32_t family;
    char entry[FIG_ENTRY_BYTES];
    fig_score_code *score; /* for which it was compiled; NULL: it serves every score, or has none */
    uint32_t shared_bytes; /* the largest amount that a launch may ask for */
    fig_cu_function function;
} loaded_kernel;

struct fig_run_device {
    fig_cuda_resident *resident;
    fig_cuda_gpu gpu;       /* a copy, made when the runner was opened */
    char *folder;           /* where compiled scores are kept; NULL: in memory alone */
    loaded_kernel *kernels; /* [kernel_count] */
    uint32_t kernel_count;
};

/* ---- Open ------------------------------------------------------------------------------------ */

static void cuda_close(fig_run_device *device) {
    if (device == NULL) return;
    for (uint32_t i = 0; i < device->kernel_count; i++)
        free(device->kernels[i].score);
    free(device->folder);
    free(device->kernels);
    free(device);
}

static fig_status cuda_open(fig_run_device **out, const fig_runner_options *options) {
    fig_test_options test;
    *out = NULL;
    FIG_TRY(fig_status_take_options(&test, sizeof test, options->test, "fig_test_options"));
    fig_run_device *device = calloc(1, sizeof *device);
    if (device == NULL) return fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *device);
    fig_status status = fig_cache_folder_take(options->score_cache, &device->folder);
    if (status == FIG_OK)
        status = fig_cuda_resident_open(&device->resident, options->ordinal, test.plain_kernels);
    if (status != FIG_OK) {
        cuda_close(device);
        return status;
    }
    device->gpu = fig_cuda_resident_gpu(device->resident);
    device->gpu.plain_edges = test.plain_edges;
    *out = device;
    return FIG_OK;
}

static void cuda_read_traits(const fig_run_device *device, fig_traits *traits) {
    *traits = device->gpu.traits;
}

static void cuda_read_kernel_traits(const fig_run_device *device, fig_traits *traits) {
    *traits = device->gpu.traits;
    traits->compute_capability = fig_images_capability(device->gpu.path);
}

/* Returns the score for which a kernel is compiled, or NULL if its family compiles none. */
static const fig_score_code *score_of(fig_op op, const fig_family_choice *choice,
                                      const void *params) {
    if (!fig_families_of(op, choice->family)->compiles) return NULL;
    return &((const fig_scored_attention_params *)params)->score;
}

static loaded_kernel *find(const fig_run_device *device, fig_op op, const fig_family_choice *choice,
                           const fig_score_code *score) {
    for (uint32_t i = 0; i < device->kernel_count; i++) {
        loaded_kernel *kernel = &device->kernels[i];
        if (kernel->op == op && kernel->family == choice->family &&
            strcmp(kernel->entry, choice->entry) == 0 &&
            (score == NULL || memcmp(kernel->score, score, sizeof *score) == 0))
            return kernel;
    }
    return NULL;
}

/* Makes room for a kernel that is not known yet. */
static fig_status add(fig_run_device *device, const loaded_kernel *kernel,
                      const fig_score_code *score) {
    fig_score_code *own = NULL;
    loaded_kernel *kernels =
        realloc(device->kernels, (device->kernel_count + (size_t)1) * sizeof *kernels);
    if (kernels != NULL) device->kernels = kernels;
    if (kernels != NULL && score != NULL) own = malloc(sizeof *own);
    if (kernels == NULL || (score != NULL && own == NULL))
        return fig_fail(FIG_NOMEM, "runner: %u kernels", device->kernel_count + 1);
    if (own != NULL) *own = *score;
    kernels[device->kernel_count] = *kernel;
    kernels[device->kernel_count++].score = own;
    return FIG_OK;
}

/* Takes even a known kernel again, because this launch may need more shared memory than earlier
 * launches. */
static fig_status cuda_load(fig_run_device *device, fig_op op, const fig_family_choice *choice,
                            const void *params) {
    const fig_score_code *score = score_of(op, choice, params);
    fig_cuda_kernel_wish wish = {.op = op,
                                 .family = choice->family,
                                 .shared_bytes = choice->shape.shared_bytes,
                                 .score = score,
                                 .folder = device->folder};
    loaded_kernel kernel = {.op = op, .family = choice->family, .shared_bytes = wish.shared_bytes};
    memcpy(wish.entry, choice->entry, sizeof wish.entry);
    memcpy(kernel.entry, choice->entry, sizeof kernel.entry);
    FIG_TRY(fig_cuda_resident_take(device->resident, &wish, &kernel.function));
    loaded_kernel *known = find(device, op, choice, score);
    if (known == NULL) return add(device, &kernel, score);
    if (known->shared_bytes < wish.shared_bytes) known->shared_bytes = wish.shared_bytes;
    return FIG_OK;
}

static int cuda_compiled(const fig_run_device *device, uint32_t index, fig_image_compiled *code) {
    *code = (fig_image_compiled){.driver = 0};
    if (index >= device->kernel_count) return 0;
    const loaded_kernel *kernel = &device->kernels[index];
    fig_cuda_kernel_wish wish = {
        .op = kernel->op, .family = kernel->family, .score = kernel->score};
    const char *name = fig_families_of(kernel->op, kernel->family)->name;
    memcpy(wish.entry, kernel->entry, sizeof wish.entry);
    const fig_cuda_score_code *own = fig_cuda_resident_code(device->resident, &wish);
    if (own == NULL) return 1;
    code->compute_capability = own->compute_capability;
    code->driver = own->driver;
    code->image = (fig_image){own->bytes, own->count, NULL};
    memcpy(code->ptx, own->ptx, sizeof code->ptx);
    memcpy(code->family, name, strlen(name));
    return 1;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Records the error of one call in a copy of the GPU's struct, because other threads use the
 * original. */
static fig_status refuse(const fig_run_device *device, fig_cu_result result, const char *call) {
    fig_cuda_gpu gpu = device->gpu;
    return fig_cuda_gpu_refuse(&gpu, result, call);
}

static fig_status cuda_begin(const fig_run_device *device, void *stream) {
    const fig_cu_result result = device->gpu.cu->CtxPushCurrent(device->gpu.context);
    (void)stream;
    return result == FIG_CU_SUCCESS ? FIG_OK : refuse(device, result, "cuCtxPushCurrent");
}

/* A failed pop is ignored: its error comes from earlier work, and the next call will report that
 * error again. */
static fig_status cuda_end(const fig_run_device *device, fig_status status) {
    fig_cu_context popped;
    device->gpu.cu->CtxPopCurrent(&popped);
    return status;
}

static fig_status cuda_prepare(const fig_run_device *device, const fig_family_choice *choice,
                               fig_run_launch *launch) {
    const loaded_kernel *kernel =
        find(device, launch->op, choice, score_of(launch->op, choice, launch->params));
    fig_cuda_gpu gpu;
    const uint32_t bytes = choice->shape.shared_bytes;
    FIG_TRY_OURS(kernel != NULL && bytes <= kernel->shared_bytes,
                 "run: %s with %" PRIu32 " bytes of shared memory was not loaded when the runner "
                 "was opened",
                 choice->entry, bytes);
    launch->kernel = kernel->function;
    const fig_family *family = fig_families_of(launch->op, choice->family);
    if (family->map == NULL && family->finish == NULL) return FIG_OK;
    gpu = device->gpu;
    return fig_cuda_maps_fill(&gpu, launch->op, choice->family, launch->params);
}

static fig_status cuda_launch(const fig_run_device *device, const fig_run_launch *launch,
                              void *stream) {
    const fig_launch_shape *shape = &launch->shape;
    fig_cu_launch_attribute early = {.id = FIG_CU_LAUNCH_PROGRAMMATIC, .value = {.allowed = 1}};
    fig_cu_launch config = {
        .shared_bytes = shape->shared_bytes, .stream = stream, .attributes = &early};
    void *params[] = {launch->params};
    memcpy(config.grid, shape->grid, sizeof config.grid);
    memcpy(config.block, shape->block, sizeof config.block);
    config.attribute_count =
        device->gpu.path == FIG_IMAGE_HOPPER && !device->gpu.plain_edges && !launch->is_plain;
    const fig_cu_result result =
        device->gpu.cu->LaunchKernelEx(&config, launch->kernel, params, NULL);
    return result == FIG_CU_SUCCESS ? FIG_OK : refuse(device, result, "cuLaunchKernelEx");
}

const fig_run_device_api fig_run_device_cuda = {
    .kind = FIG_DEVICE_CUDA,
    .open = cuda_open,
    .close = cuda_close,
    .read_traits = cuda_read_traits,
    .read_kernel_traits = cuda_read_kernel_traits,
    .load = cuda_load,
    .compiled = cuda_compiled,
    .begin = cuda_begin,
    .prepare = cuda_prepare,
    .launch = cuda_launch,
    .end = cuda_end,
};

/* kept_kernels.c: replaces three driver calls in the process's table.
 *
 * Invariant: an image is loaded only once. A kernel's limit of shared memory only grows, since each
 * of the engines that share the kernel sets it. */
#include "tests/support/driver/kept_kernels.h"

#include <pthread.h>

#include "engine/driver/cuda_api.h"

enum { KEPT_LIMIT = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static fig_cuda_api driver; /* the table before it was replaced */
static struct {
    const void *image;
    fig_cu_library library;
} kept[KEPT_LIMIT];
static int kept_count;

static fig_cu_result load(fig_cu_library *library, const void *image, unsigned int *keys,
                          void **values, unsigned int count, unsigned int *library_keys,
                          void **library_values, unsigned int library_count) {
    fig_cu_result result = FIG_CU_SUCCESS;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < kept_count && kept[i].image != image)
        i++;
    if (i == KEPT_LIMIT) {
        result = FIG_CU_OUT_OF_MEMORY;
    } else if (i == kept_count) {
        result = driver.LibraryLoadData(&kept[i].library, image, keys, values, count, library_keys,
                                        library_values, library_count);
        kept[i].image = image;
        if (result == FIG_CU_SUCCESS) kept_count++;
    }
    if (result == FIG_CU_SUCCESS) *library = kept[i].library;
    pthread_mutex_unlock(&lock);
    return result;
}

static fig_cu_result unload(fig_cu_library library) {
    (void)library;
    return FIG_CU_SUCCESS;
}

static fig_cu_result set_attribute(unsigned int attribute, int value, fig_cu_kernel kernel,
                                   fig_cu_device device) {
    int held = 0;
    pthread_mutex_lock(&lock);
    fig_cu_result result = driver.KernelGetAttribute(&held, attribute, kernel, device);
    if (result == FIG_CU_SUCCESS && value > held)
        result = driver.KernelSetAttribute(attribute, value, kernel, device);
    pthread_mutex_unlock(&lock);
    return result;
}

static void start(void) {
    if (fig_cuda_api_open() != FIG_OK) return; /* an engine that opens later will report this */
    fig_cuda_api *table = fig_cuda_api_table();
    driver = *table;
    table->LibraryLoadData = load;
    table->LibraryUnload = unload;
    table->KernelSetAttribute = set_attribute;
}

void fig_kept_kernels_start(void) {
    pthread_once(&once, start);
}

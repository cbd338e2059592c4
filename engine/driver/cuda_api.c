/* cuda_api.c: opens libcuda and fills the table.
 *
 * dlsym looks up only cuDriverGetVersion and cuGetProcAddress_v2, whose signatures have never
 * changed. cuGetProcAddress_v2 looks up all other functions; dlsym would find the oldest version of
 * each. Invariant: after fig_cuda_api_open() has failed, each later call to it fails with the same
 * message. */
#include "engine/driver/cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "planner/status.h"

typedef struct cuda_entry {
    const char *name;
    int since;
    size_t offset;
} cuda_entry;

#define ENTRY(name, since, parameters) {"cu" #name, since, offsetof(fig_cuda_api, name)},
static const cuda_entry entries[] = {FIG_CUDA_API_ENTRIES(ENTRY)};
#undef ENTRY
enum { ENTRY_COUNT = sizeof entries / sizeof entries[0] };

static fig_cuda_api driver = {.image = fig_images_of, .score_template = fig_images_template};
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static char refusal[256];

/* C has no conversion from void * to a function pointer, so the bytes are copied. */
static_assert(sizeof(void *) == sizeof(fig_cuda_api_lookup), "a function's address");

static fig_status fail_version(int version) {
    return fig_fail(FIG_NO_DEVICE,
                    "cuda device: the driver is too old: it is of CUDA %d.%d, this library needs "
                    "%d.%d",
                    version / 1000, version % 1000 / 10, FIG_CU_LEAST_VERSION / 1000,
                    FIG_CU_LEAST_VERSION % 1000 / 10);
}

fig_status fig_cuda_api_resolve(fig_cuda_api *api, fig_cuda_api_lookup lookup, int version) {
    *api = (fig_cuda_api){.image = api->image, .score_template = api->score_template};
    if (version < FIG_CU_LEAST_VERSION) return fail_version(version);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        unsigned int status = 1;
        void *entry = NULL;
        fig_cu_result result =
            lookup(entries[i].name, &entry, entries[i].since, FIG_CU_LEGACY_STREAM, &status);
        if (result != FIG_CU_SUCCESS || status != 0 || entry == NULL)
            return fig_fail(FIG_NO_DEVICE,
                            "cuda device: the driver, of CUDA %d.%d, has no %s of CUDA %d.%d "
                            "(result %u, status %u)",
                            version / 1000, version % 1000 / 10, entries[i].name,
                            entries[i].since / 1000, entries[i].since % 1000 / 10, result, status);
        memcpy((char *)api + entries[i].offset, &entry, sizeof entry);
    }
    api->version = version;
    return FIG_OK;
}

fig_status fig_cuda_api_load(fig_cuda_api *api, const char *library) {
    fig_cu_result (*driver_version)(int *) = NULL;
    fig_cuda_api_lookup lookup = NULL;
    int version = 0;
    api->version = api->is_missing = 0;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        api->is_missing = 1;
        return fig_fail(FIG_NO_DEVICE, "cuda device: no driver: %s", dlerror());
    }
    void *version_entry = dlsym(handle, "cuDriverGetVersion");
    void *lookup_entry = dlsym(handle, "cuGetProcAddress_v2");
    memcpy(&driver_version, &version_entry, sizeof version_entry);
    memcpy(&lookup, &lookup_entry, sizeof lookup_entry);
    fig_status status = FIG_OK;
    if (driver_version == NULL || driver_version(&version) != FIG_CU_SUCCESS) {
        status = fig_fail(FIG_NO_DEVICE, "cuda device: %s is no CUDA driver", library);
    } else if (lookup == NULL) {
        status = fail_version(version); /* the driver is older than CUDA 12.0 */
    } else {
        status = fig_cuda_api_resolve(api, lookup, version);
    }
    /* The library of a working driver is never closed, because the driver has threads and exit
     * handlers. */
    if (status != FIG_OK) dlclose(handle);
    return status;
}

static void open_driver(void) {
    if (fig_cuda_api_load(&driver, "libcuda.so.1") == FIG_OK) return;
    snprintf(refusal, sizeof refusal, "%s", fig_message());
}

fig_cuda_api *fig_cuda_api_table(void) {
    return &driver;
}

fig_status fig_cuda_api_open(void) {
    pthread_once(&opened, open_driver);
    if (driver.version != 0) return FIG_OK;
    return fig_status_relay(FIG_NO_DEVICE, refusal);
}

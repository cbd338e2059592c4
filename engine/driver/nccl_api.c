/* nccl_api.c: opens libnccl and fills the table.
 *
 * Invariant: after fig_nccl_api_open() has failed, each later call to it fails with the same
 * message. */
#include "engine/driver/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "planner/status.h"

typedef struct nccl_entry {
    const char *name;
    size_t offset;
} nccl_entry;

#define ENTRY(name, parameters) {"nccl" #name, offsetof(fig_nccl_api, name)},
static const nccl_entry entries[] = {{"ncclGetErrorString", offsetof(fig_nccl_api, GetErrorString)},
                                     {"ncclGetLastError", offsetof(fig_nccl_api, GetLastError)},
                                     FIG_NCCL_API_ENTRIES(ENTRY)};
#undef ENTRY
enum { ENTRY_COUNT = sizeof entries / sizeof entries[0] };

static fig_nccl_api table;
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static char refusal[256];

/* C has no conversion from void * to a function pointer, so the bytes are copied. */
static_assert(sizeof(void *) == sizeof(fig_nccl_result(*)(int *)), "a function's address");

static fig_status fill(fig_nccl_api *api, void *handle, const char *library) {
    fig_nccl_result (*get_version)(int *) = NULL;
    void *entry = dlsym(handle, "ncclGetVersion");
    int version = 0;
    memcpy(&get_version, &entry, sizeof entry);
    if (get_version == NULL || get_version(&version) != FIG_NCCL_SUCCESS)
        return fig_fail(FIG_UNSUPPORTED, "nccl: %s does not tell its version", library);
    if (version < FIG_NCCL_LEAST_VERSION)
        return fig_fail(FIG_UNSUPPORTED, "nccl: %s is of version %d.%d, this library needs %d.%d",
                        library, version / 10000, version / 100 % 100,
                        FIG_NCCL_LEAST_VERSION / 10000, FIG_NCCL_LEAST_VERSION / 100 % 100);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        entry = dlsym(handle, entries[i].name);
        if (entry == NULL)
            return fig_fail(FIG_UNSUPPORTED, "nccl: %s, of version %d.%d, has no %s", library,
                            version / 10000, version / 100 % 100, entries[i].name);
        memcpy((char *)api + entries[i].offset, &entry, sizeof entry);
    }
    api->version = version;
    return FIG_OK;
}

fig_status fig_nccl_api_load(fig_nccl_api *api, const char *library) {
    *api = (fig_nccl_api){0};
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) return fig_fail(FIG_UNSUPPORTED, "nccl: %s", dlerror());
    const fig_status status = fill(api, handle, library);
    if (status == FIG_OK) return FIG_OK;
    *api = (fig_nccl_api){0};
    dlclose(handle);
    return status;
}

static void open_library(void) {
    if (table.version != 0 || fig_nccl_api_load(&table, "libnccl.so.2") == FIG_OK) return;
    snprintf(refusal, sizeof refusal, "%s", fig_message());
}

fig_nccl_api *fig_nccl_api_table(void) {
    return &table;
}

fig_status fig_nccl_api_open(void) {
    pthread_once(&opened, open_library);
    if (table.version != 0) return FIG_OK;
    return fig_status_relay(FIG_UNSUPPORTED, refusal);
}

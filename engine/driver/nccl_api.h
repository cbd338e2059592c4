/* nccl_api.h: the functions of NCCL that this library calls, in one table.
 *
 * Declares the parts of <nccl.h> that the library needs, and opens libnccl.so.2 once per process,
 * so the library builds and runs on machines without NCCL. Invariant: a table whose version is not
 * 0 has every function. */
#ifndef FIG_ENGINE_CUDA_NCCL_API_H
#define FIG_ENGINE_CUDA_NCCL_API_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/driver/cuda_api.h"

enum { FIG_NCCL_LEAST_VERSION = 21400 }; /* 2.14: the first with non-blocking communicators */

typedef int fig_nccl_result;
enum { FIG_NCCL_SUCCESS = 0, FIG_NCCL_CUDA_ERROR = 1, FIG_NCCL_IN_PROGRESS = 7 };

typedef struct fig_nccl_comm *fig_nccl_comm; /* an opaque handle */

typedef struct fig_nccl_id {
    char bytes[128];
} fig_nccl_id;
static_assert(sizeof(fig_nccl_id) == 128, "ABI");

/* The struct of NCCL 2.14. A later NCCL uses its defaults for the fields that are missing here. */
typedef struct fig_nccl_config {
    size_t size;
    uint32_t magic, version;
    int32_t blocking, reserved;
} fig_nccl_config;
static_assert(sizeof(fig_nccl_config) == 24, "ABI");
static_assert(offsetof(fig_nccl_config, blocking) == 16, "ABI");
#define FIG_NCCL_CONFIG_MAGIC 0xcafebeefu

/* The values that this library passes to NCCL. */
enum { FIG_NCCL_U8 = 1, FIG_NCCL_F16 = 6, FIG_NCCL_F32 = 7, FIG_NCCL_BF16 = 9, FIG_NCCL_SUM = 0 };

/* X(name without its "nccl", parameters); each returns a fig_nccl_result. */
#define FIG_NCCL_API_ENTRIES(X)                                                                    \
    X(GetUniqueId, (fig_nccl_id *))                                                                \
    X(CommInitRankConfig, (fig_nccl_comm *, int, fig_nccl_id, int, fig_nccl_config *))             \
    X(CommGetAsyncError, (fig_nccl_comm, fig_nccl_result *))                                       \
    X(CommFinalize, (fig_nccl_comm))                                                               \
    X(CommDestroy, (fig_nccl_comm))                                                                \
    X(CommAbort, (fig_nccl_comm))                                                                  \
    X(AllReduce, (const void *, void *, size_t, int, int, fig_nccl_comm, fig_cu_stream))           \
    X(AllGather, (const void *, void *, size_t, int, fig_nccl_comm, fig_cu_stream))

typedef struct fig_nccl_api {
    int version; /* 22803 for 2.28.3; 0: closed */
    const char *(*GetErrorString)(fig_nccl_result);
    const char *(*GetLastError)(fig_nccl_comm);
#define FIG_NCCL_API_MEMBER(name, parameters) fig_nccl_result(*name) parameters;
    FIG_NCCL_API_ENTRIES(FIG_NCCL_API_MEMBER)
#undef FIG_NCCL_API_MEMBER
} fig_nccl_api;

/* Returns the process's table. */
fig_nccl_api *fig_nccl_api_table(void);
/* Fills the table on the first call; any thread may call this. If it fails with FIG_UNSUPPORTED,
 * the message says what is missing. */
fig_status fig_nccl_api_open(void);

/* Does the work of fig_nccl_api_open() for another library and table, for tests. If it fails, it
 * leaves the table closed. */
fig_status fig_nccl_api_load(fig_nccl_api *api, const char *library);

#endif

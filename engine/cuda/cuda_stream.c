/* cuda_stream.c: waits for the engine's stream, and orders other streams before or after it by
 * events.
 *
 * Invariant: one call records the event on one stream and makes the other stream wait for it, so a
 * single event is enough for all orderings. */
#include "engine/cuda/cuda_stream.h"

#include <inttypes.h>
#include <sched.h>
#include <time.h>

#include "engine/seam/clock.h"
#include "engine/graph/cuda_splice.h"
#include "planner/status.h"

enum {
    YIELD_COUNT = 64, /* after each of the first 64 queries of a wait, the thread only yields */
    /* then it sleeps after each query, each time twice as long: a step takes 10 us to 10 ms */
    NAP_US = 20,
    NAP_LIMIT_US = 200
};

/* NULL and FIG_CU_STREAM_OF_CONTEXT both name the default stream of the current context. */
fig_cu_stream fig_cuda_stream_of(void *handle) {
    const uintptr_t number = (uintptr_t)handle;
    return number == FIG_CU_STREAM_OF_CONTEXT ? NULL : (fig_cu_stream)handle;
}

/* ---- Open ---------------------------------------------------------------------------------- */

fig_status fig_cuda_stream_open(fig_dev_stream *stream, fig_cuda_gpu *gpu, void *const *given) {
    fig_cuda_splice seen;
    if (given == FIG_STREAM_OWN) {
        CU_TRY(gpu, StreamCreate, &stream->stream, FIG_CU_STREAM_NON_BLOCKING);
        stream->ours = 1;
        return FIG_OK;
    }
    const fig_cu_stream callers = fig_cuda_stream_of(*given);
    if ((uintptr_t)callers == FIG_CU_STREAM_OF_THREAD)
        return fig_fail(FIG_INVALID,
                        "cuda device: the stream given is the per-thread default stream, which is "
                        "another one in each thread");
    FIG_TRY(fig_cuda_splice_look(gpu, callers, &seen));
    stream->stream = callers;
    return FIG_OK;
}

/* Fails if the stream is capturing. A wait would break the caller's capture; a copy would become
 * part of it, and each replay would then read memory that no longer exists. A default stream never
 * captures. */
fig_status fig_cuda_stream_check(const fig_dev_stream *stream, fig_cuda_gpu *gpu) {
    fig_cuda_splice seen;
    if (stream->ours || stream->stream == NULL) return FIG_OK;
    FIG_TRY(fig_cuda_splice_look(gpu, stream->stream, &seen));
    if (seen.capture == 0) return FIG_OK;
    return fig_fail(FIG_ORDER, "cuda device: the engine's stream is capturing: wait or copy before "
                               "the capture or after it");
}

/* ---- Waiting ------------------------------------------------------------------------------- */

/* What to wait for: a stream, or an event on that stream. */
typedef struct waited {
    fig_cu_stream stream;
    fig_cu_event event; /* NULL: wait for the stream */
} waited;

static fig_cu_result look_at(const fig_cuda_gpu *gpu, const waited *what) {
    return what->event != NULL ? gpu->cu->EventQuery(what->event)
                               : gpu->cu->StreamQuery(what->stream);
}

/* Queries at least once, even if the timeout is 0; a negative timeout means no bound. Sets no
 * message when it returns FIG_TIMEOUT. */
static fig_status watch(fig_cuda_gpu *gpu, const waited *what, int64_t timeout_us) {
    const int64_t begin_ns = fig_clock_ns();
    int64_t nap_us = NAP_US;
    for (int looks = 1;; looks++) {
        const fig_cu_result result = look_at(gpu, what);
        if (result == FIG_CU_SUCCESS) return FIG_OK;
        if (result != FIG_CU_NOT_READY)
            return fig_cuda_gpu_refuse(gpu, result,
                                       what->event != NULL ? "cuEventQuery" : "cuStreamQuery");
        if (gpu->attend != NULL) gpu->attend(gpu->attended);
        const int64_t spent_us = (fig_clock_ns() - begin_ns) / 1000;
        if (timeout_us >= 0 && spent_us >= timeout_us) return FIG_TIMEOUT;
        if (looks <= YIELD_COUNT) {
            sched_yield();
            continue;
        }
        const int64_t left_us = timeout_us < 0 ? nap_us : timeout_us - spent_us;
        const struct timespec nap = {0, (long)(nap_us < left_us ? nap_us : left_us) * 1000};
        nanosleep(&nap, NULL);
        nap_us = nap_us * 2 < NAP_LIMIT_US ? nap_us * 2 : NAP_LIMIT_US;
    }
}

/* Uses the driver's own wait, unless something must be checked meanwhile. */
static fig_status wait_for(fig_cuda_gpu *gpu, const waited *what) {
    if (gpu->attend != NULL) return watch(gpu, what, -1);
    if (what->event != NULL) {
        CU_TRY(gpu, EventSynchronize, what->event);
    } else {
        CU_TRY(gpu, StreamSynchronize, what->stream);
    }
    return FIG_OK;
}

fig_status fig_cuda_stream_end(fig_dev_stream *stream, fig_cuda_gpu *gpu) {
    const waited what = {.stream = stream->stream};
    FIG_TRY(fig_cuda_stream_check(stream, gpu));
    FIG_TRY(wait_for(gpu, &what));
    stream->pending = 0;
    return FIG_OK;
}

fig_status fig_cuda_stream_poll(fig_dev_stream *stream, fig_cuda_gpu *gpu, int64_t timeout_us) {
    const waited what = {.stream = stream->stream};
    FIG_TRY(fig_cuda_stream_check(stream, gpu));
    const fig_status status = watch(gpu, &what, timeout_us);
    if (status == FIG_TIMEOUT)
        return fig_fail(FIG_TIMEOUT,
                        "still running after %" PRId64 " us: at most %" PRId64 " step%s to end",
                        timeout_us, stream->pending, FIG_PLURAL(stream->pending));
    if (status == FIG_OK) stream->pending = 0;
    return status;
}

fig_status fig_cuda_stream_look(fig_dev_stream *stream, fig_cuda_gpu *gpu, fig_status *fault) {
    fig_cu_result result = gpu->cu->StreamQuery(stream->stream);
    if (result == FIG_CU_SUCCESS) stream->pending = 0;
    if (result == FIG_CU_SUCCESS || result == FIG_CU_NOT_READY) return FIG_OK;
    fig_status status = fig_cuda_gpu_refuse(gpu, result, "cuStreamQuery");
    if (status == FIG_LOST) *fault = FIG_LOST;
    return status;
}

/* ---- Close ----------------------------------------------------------------------------------- */

static void destroy_event(fig_cuda_gpu *gpu, fig_cu_event event) {
    if (event != NULL) gpu->cu->EventDestroy(event);
}

/* Does not wait if the context is lost, because its work will never end, or if the stream is
 * capturing, because no thread can wait for such a stream. */
void fig_cuda_stream_close(fig_dev_stream *stream, fig_cuda_gpu *gpu) {
    if (!fig_cuda_gpu_is_lost(gpu) && fig_cuda_stream_check(stream, gpu) == FIG_OK) {
        const waited what = {.stream = stream->stream};
        wait_for(gpu, &what);
    }
    destroy_event(gpu, stream->order);
    for (int i = 0; i < 2; i++) {
        destroy_event(gpu, stream->marks[i]);
        destroy_event(gpu, stream->fences[i]);
    }
    if (stream->ours) gpu->cu->StreamDestroy(stream->stream);
}

/* ---- Events -------------------------------------------------------------------------------- */

/* Creates the event at its first use, because most streams use no event. */
static fig_status need_event(fig_cuda_gpu *gpu, fig_cu_event *event, unsigned int flags) {
    fig_cu_event made;
    if (*event != NULL) return FIG_OK;
    CU_TRY(gpu, EventCreate, &made, flags);
    *event = made;
    return FIG_OK;
}

static fig_status set_event(const fig_dev_stream *stream, fig_cuda_gpu *gpu, fig_cu_event *event,
                            unsigned int flags) {
    FIG_TRY(fig_cuda_stream_check(stream, gpu));
    FIG_TRY(need_event(gpu, event, flags));
    CU_TRY(gpu, EventRecord, *event, stream->stream);
    return FIG_OK;
}

fig_status fig_cuda_stream_mark(fig_dev_stream *stream, fig_cuda_gpu *gpu, int32_t which) {
    return set_event(stream, gpu, &stream->marks[which], FIG_CU_EVENT_TIMED);
}

fig_status fig_cuda_stream_between(const fig_dev_stream *stream, fig_cuda_gpu *gpu, double *ns) {
    float ms;
    assert(stream->marks[0] != NULL && stream->marks[1] != NULL);
    CU_TRY(gpu, EventSynchronize, stream->marks[1]);
    CU_TRY(gpu, EventElapsedTime, &ms, stream->marks[0], stream->marks[1]);
    *ns = (double)ms * 1e6;
    return FIG_OK;
}

fig_status fig_cuda_stream_fence(fig_dev_stream *stream, fig_cuda_gpu *gpu, uint32_t which) {
    return set_event(stream, gpu, &stream->fences[which], FIG_CU_EVENT_UNTIMED);
}

fig_status fig_cuda_stream_pass(const fig_dev_stream *stream, fig_cuda_gpu *gpu, uint32_t which) {
    const waited what = {.event = stream->fences[which]};
    return what.event != NULL ? wait_for(gpu, &what) : FIG_OK;
}

/* ---- The caller's streams ------------------------------------------------------------------ */

/* Makes later work on `after` wait for all work that is already on `before`. */
static fig_status put_in_order(fig_cuda_gpu *gpu, fig_cu_event event, fig_cu_stream before,
                               fig_cu_stream after) {
    CU_TRY(gpu, EventRecord, event, before);
    CU_TRY(gpu, StreamWaitEvent, after, event, 0);
    return FIG_OK;
}

/* Fails if a stream is capturing: ordering a capturing stream and another stream would pull the
 * other stream into the capture. */
static fig_status check_order(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs) {
    fig_cuda_splice seen;
    FIG_TRY(fig_cuda_stream_check(own, gpu));
    FIG_TRY(fig_cuda_splice_look(gpu, theirs, &seen));
    if (seen.capture != 0)
        return fig_fail(
            FIG_ORDER, "cuda device: the stream given is capturing: order it before the capture or "
                       "after it");
    return need_event(gpu, &own->order, FIG_CU_EVENT_UNTIMED);
}

fig_status fig_cuda_stream_follow(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs) {
    if (theirs == own->stream) return FIG_OK;
    FIG_TRY(check_order(own, gpu, theirs));
    return put_in_order(gpu, own->order, theirs, own->stream);
}

fig_status fig_cuda_stream_lead(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs) {
    if (theirs == own->stream) return FIG_OK;
    FIG_TRY(check_order(own, gpu, theirs));
    return put_in_order(gpu, own->order, own->stream, theirs);
}

/* A later wait for the engine's stream also waits for this launch. If the device cannot order the
 * two streams, the host waits for the launch here. */
fig_status fig_cuda_stream_launch(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs,
                                  fig_cu_exec exec) {
    FIG_TRY(fig_cuda_stream_lead(own, gpu, theirs));
    CU_TRY(gpu, GraphLaunch, exec, theirs);
    own->pending++;
    if (theirs == own->stream) return FIG_OK;
    const fig_status status = put_in_order(gpu, own->order, theirs, own->stream);
    if (status != FIG_OK) gpu->cu->StreamSynchronize(theirs);
    return status;
}

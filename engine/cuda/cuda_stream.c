/* cuda_stream.c: wait for the engine's stream, and order others against it by events.
 *
 * Invariant: an event between two streams is recorded on the one and waited for by the other in the
 * same call, so one event serves every order. */
#include "engine/cuda/cuda_stream.h"

#include <inttypes.h>
#include <sched.h>
#include <time.h>

#include "engine/clock.h"
#include "engine/cuda/cuda_splice.h"
#include "planner/status.h"

enum {
    YIELD_COUNT = 64, /* looks at a stream between which the thread only gives way */
    NAP_US = 20,      /* then it sleeps, each time twice as long: a step takes 10 us to 10 ms */
    NAP_LIMIT_US = 200
};

/* Two handles stand for the default stream of the current context. */
fig_cu_stream fig_cuda_stream_of(void *handle) {
    const uintptr_t number = (uintptr_t)handle;
    return number == FIG_CU_STREAM_OF_CONTEXT ? NULL : (fig_cu_stream)handle;
}

/* ---- Life ---------------------------------------------------------------------------------- */

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
                        "cuda device: the stream given is the default stream of a thread, another "
                        "one in each thread");
    FIG_TRY(fig_cuda_splice_look(gpu, callers, &seen));
    stream->stream = callers;
    return FIG_OK;
}

/* A wait would break a capture of the caller's, and a copy would become part of it, to be done at
 * each replay from memory that is gone by then. A default stream never captures. */
fig_status fig_cuda_stream_check(const fig_dev_stream *stream, fig_cuda_gpu *gpu) {
    fig_cuda_splice seen;
    if (stream->ours || stream->stream == NULL) return FIG_OK;
    FIG_TRY(fig_cuda_splice_look(gpu, stream->stream, &seen));
    if (seen.capture == 0) return FIG_OK;
    return fig_fail(FIG_ORDER,
                    "cuda device: the engine's stream is capturing: what waits or copies "
                    "comes before that or after");
}

static void destroy_event(fig_cuda_gpu *gpu, fig_cu_event event) {
    if (event != NULL) gpu->cu->EventDestroy(event);
}

/* A stream of a lost context has ended what it ever will, and one that captures cannot be waited
 * for. */
void fig_cuda_stream_close(fig_dev_stream *stream, fig_cuda_gpu *gpu) {
    if (gpu->lost[0] == '\0' && fig_cuda_stream_check(stream, gpu) == FIG_OK) {
        fig_cu_result result = gpu->cu->StreamSynchronize(stream->stream);
        if (result != FIG_CU_SUCCESS) fig_cuda_gpu_refuse(gpu, result, "cuStreamSynchronize");
    }
    destroy_event(gpu, stream->order);
    for (int i = 0; i < 2; i++) {
        destroy_event(gpu, stream->marks[i]);
        destroy_event(gpu, stream->fences[i]);
    }
    if (stream->ours) gpu->cu->StreamDestroy(stream->stream);
}

/* ---- Waiting ------------------------------------------------------------------------------- */

fig_status fig_cuda_stream_end(fig_dev_stream *stream, fig_cuda_gpu *gpu) {
    FIG_TRY(fig_cuda_stream_check(stream, gpu));
    CU_TRY(gpu, StreamSynchronize, stream->stream);
    stream->pending = 0;
    return FIG_OK;
}

/* At least one look, however short the bound. */
fig_status fig_cuda_stream_poll(fig_dev_stream *stream, fig_cuda_gpu *gpu, int64_t timeout_us) {
    const int64_t begin_ns = fig_clock_ns();
    int64_t nap_us = NAP_US, spent_us = 0;
    FIG_TRY(fig_cuda_stream_check(stream, gpu));
    for (int looks = 1;; looks++) {
        fig_cu_result result = gpu->cu->StreamQuery(stream->stream);
        if (result == FIG_CU_SUCCESS) break;
        if (result != FIG_CU_NOT_READY) return fig_cuda_gpu_refuse(gpu, result, "cuStreamQuery");
        spent_us = (fig_clock_ns() - begin_ns) / 1000;
        if (spent_us >= timeout_us)
            return fig_fail(FIG_TIMEOUT,
                            "still running after %" PRId64 " us: at most %" PRId64 " step%s to end",
                            timeout_us, stream->pending, FIG_PLURAL(stream->pending));
        if (looks <= YIELD_COUNT) {
            sched_yield();
            continue;
        }
        const int64_t left_us = timeout_us - spent_us;
        struct timespec nap = {0, (long)(nap_us < left_us ? nap_us : left_us) * 1000};
        nanosleep(&nap, NULL);
        nap_us = nap_us * 2 < NAP_LIMIT_US ? nap_us * 2 : NAP_LIMIT_US;
    }
    stream->pending = 0;
    return FIG_OK;
}

fig_status fig_cuda_stream_look(fig_dev_stream *stream, fig_cuda_gpu *gpu, fig_status *fault) {
    fig_cu_result result = gpu->cu->StreamQuery(stream->stream);
    if (result == FIG_CU_SUCCESS) stream->pending = 0;
    if (result == FIG_CU_SUCCESS || result == FIG_CU_NOT_READY) return FIG_OK;
    fig_status status = fig_cuda_gpu_refuse(gpu, result, "cuStreamQuery");
    if (status == FIG_LOST) *fault = FIG_LOST;
    return status;
}

/* ---- Events -------------------------------------------------------------------------------- */

/* An event is made for its first use: most streams have none. */
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
    if (stream->fences[which] != NULL) CU_TRY(gpu, EventSynchronize, stream->fences[which]);
    return FIG_OK;
}

/* ---- The caller's streams ------------------------------------------------------------------ */

/* What is launched on `after` from here on comes after all that `before` holds. */
static fig_status put_in_order(fig_cuda_gpu *gpu, fig_cu_event event, fig_cu_stream before,
                               fig_cu_stream after) {
    CU_TRY(gpu, EventRecord, event, before);
    CU_TRY(gpu, StreamWaitEvent, after, event, 0);
    return FIG_OK;
}

/* An order between a capture and what is not of it would draw one stream into the capture of the
 * other. */
static fig_status check_order(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs) {
    fig_cuda_splice seen;
    FIG_TRY(fig_cuda_stream_check(own, gpu));
    FIG_TRY(fig_cuda_splice_look(gpu, theirs, &seen));
    if (seen.capture != 0)
        return fig_fail(FIG_ORDER,
                        "cuda device: the stream given is capturing: it is ordered before that or "
                        "after");
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

/* Who waits for the engine's stream waits for the launch; where that cannot be had from the device
 * the host waits for it here. */
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

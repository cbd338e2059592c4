/* cuda_stream.h: the stream of an engine on a GPU, and how streams of its caller's are ordered
 * against it.
 *
 * Owns what waits for it and looks at it, its events, and every order between two streams; launches
 * are device_cuda.c's. A stream of the caller's goes by its handle, and is not held. Invariant:
 * nothing here becomes part of a capture.
 *
 * All: the context is entered. */
#ifndef FIG_ENGINE_CUDA_STREAM_H
#define FIG_ENGINE_CUDA_STREAM_H

#include "engine/cuda/cuda_gpu.h"
#include "engine/device.h"

struct fig_dev_stream {
    fig_cu_stream stream;
    int ours;
    int64_t pending; /* launches since it was last seen idle */
    /* NULL: was never used. */
    fig_cu_event marks[2], fences[2];
    fig_cu_event order; /* recorded on one stream, and at once waited for on another */
};

/* The stream behind a handle: NULL is the default stream of the current context, by any name. */
fig_cu_stream fig_cuda_stream_of(void *handle);

/* Into a zeroed struct; given: as the engine's options have it. close ends what was launched, and
 * takes a half-made one. */
fig_status fig_cuda_stream_open(fig_dev_stream *stream, fig_cuda_gpu *gpu, void *const *given);
void fig_cuda_stream_close(fig_dev_stream *stream, fig_cuda_gpu *gpu);

/* FIG_ORDER: it captures, so nothing may wait for it, or copy on it. */
fig_status fig_cuda_stream_check(const fig_dev_stream *stream, fig_cuda_gpu *gpu);
/* Until it is idle: without an end; bounded, at least one look, or below 0 without a bound; one
 * look. */
fig_status fig_cuda_stream_end(fig_dev_stream *stream, fig_cuda_gpu *gpu);
fig_status fig_cuda_stream_poll(fig_dev_stream *stream, fig_cuda_gpu *gpu, int64_t timeout_us);
fig_status fig_cuda_stream_look(fig_dev_stream *stream, fig_cuda_gpu *gpu, fig_status *fault);

/* As the device's marks and fences. */
fig_status fig_cuda_stream_mark(fig_dev_stream *stream, fig_cuda_gpu *gpu, int32_t which);
fig_status fig_cuda_stream_between(const fig_dev_stream *stream, fig_cuda_gpu *gpu, double *ns);
fig_status fig_cuda_stream_fence(fig_dev_stream *stream, fig_cuda_gpu *gpu, uint32_t which);
fig_status fig_cuda_stream_pass(const fig_dev_stream *stream, fig_cuda_gpu *gpu, uint32_t which);

/* As the device's follow and lead; launch: an exec on the caller's stream, in the order of ours. */
fig_status fig_cuda_stream_follow(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs);
fig_status fig_cuda_stream_lead(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs);
fig_status fig_cuda_stream_launch(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs,
                                  fig_cu_exec exec);

#endif

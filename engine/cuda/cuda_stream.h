/* cuda_stream.h: an engine's stream on a GPU, and its order relative to the caller's streams.
 *
 * Owns the waits and queries of the stream, its events, and the ordering of streams; device_cuda.c
 * launches work. This file knows the caller's streams only by their handles, and does not own them.
 * Invariant: nothing in this file becomes part of a capture.
 *
 * The caller has entered the GPU's context for every function. */
#ifndef FIG_ENGINE_CUDA_STREAM_H
#define FIG_ENGINE_CUDA_STREAM_H

#include "engine/driver/cuda_gpu.h"
#include "engine/seam/device.h"

struct fig_dev_stream {
    fig_cu_stream stream;
    int ours;
    int64_t pending; /* launches since the stream was last seen idle */
    /* Each event is NULL until its first use. */
    fig_cu_event marks[2], fences[2];
    fig_cu_event order; /* one call records it on one stream and makes another stream wait for it */
};

/* Returns the stream that a handle names. Returns NULL for the default stream of the current
 * context, which has two handles. */
fig_cu_stream fig_cuda_stream_of(void *handle);

/* fig_cuda_stream_open() fills a zeroed struct. given: the stream in the engine's options.
 * fig_cuda_stream_close() waits for all launched work, and also accepts a half-open struct. */
fig_status fig_cuda_stream_open(fig_dev_stream *stream, fig_cuda_gpu *gpu, void *const *given);
void fig_cuda_stream_close(fig_dev_stream *stream, fig_cuda_gpu *gpu);

/* Returns FIG_ORDER if the stream is capturing: no thread may then wait for the stream or copy on
 * it. */
fig_status fig_cuda_stream_check(const fig_dev_stream *stream, fig_cuda_gpu *gpu);
/* fig_cuda_stream_end() waits until the stream is idle. fig_cuda_stream_poll() waits for at most
 * timeout_us, and forever if timeout_us is negative; it queries the stream at least once.
 * fig_cuda_stream_look() queries the stream once. */
fig_status fig_cuda_stream_end(fig_dev_stream *stream, fig_cuda_gpu *gpu);
fig_status fig_cuda_stream_poll(fig_dev_stream *stream, fig_cuda_gpu *gpu, int64_t timeout_us);
fig_status fig_cuda_stream_look(fig_dev_stream *stream, fig_cuda_gpu *gpu, fig_status *fault);

/* These functions implement the device's marks and fences (seam/device.h). */
fig_status fig_cuda_stream_mark(fig_dev_stream *stream, fig_cuda_gpu *gpu, int32_t which);
fig_status fig_cuda_stream_between(const fig_dev_stream *stream, fig_cuda_gpu *gpu, double *ns);
fig_status fig_cuda_stream_fence(fig_dev_stream *stream, fig_cuda_gpu *gpu, uint32_t which);
fig_status fig_cuda_stream_pass(const fig_dev_stream *stream, fig_cuda_gpu *gpu, uint32_t which);

/* fig_cuda_stream_follow() and fig_cuda_stream_lead() implement stream_follow and stream_lead of
 * the device. fig_cuda_stream_launch() launches an exec on the caller's stream, in order with the
 * work on the engine's stream. */
fig_status fig_cuda_stream_follow(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs);
fig_status fig_cuda_stream_lead(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs);
fig_status fig_cuda_stream_launch(fig_dev_stream *own, fig_cuda_gpu *gpu, fig_cu_stream theirs,
                                  fig_cu_exec exec);

#endif

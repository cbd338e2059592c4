/* timing.c: times a step's nodes on the device, or the reading or copying of a tensor.
 *
 * measure.c times the parts of a step separately; this file times the step's nodes as a whole. It
 * runs the step once, which leaves the plan on the device, and then replays the step's nodes
 * without a fetch. A sample is the time of several replays between two marks. The number of replays
 * is chosen so that together they last sample_us:
 *
 *     replay  MARK 0  replay replay ..  MARK 1
 *
 * The replay before mark 0 keeps the device busy while the host enqueues the other replays. This
 * file is cold. Invariant: when fig_engine_time() returns, even after a failure, no step stays
 * staged and nothing runs. */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/execs/exec_bare.h"
#include "include/figraph_unstable.h"
#include "planner/status.h"

enum {
    SAMPLES_DEFAULT = 15,
    SAMPLES_LIMIT = 1000,
    SAMPLE_US_DEFAULT = 1000,
    SAMPLE_US_LIMIT = 1000000,
    REPLAYS_LIMIT = 1000,
    BLOCKS_PER_SM = 4 /* enough to keep a GPU's memory busy */
};

static const size_t READ_LIMIT = (size_t)UINT32_MAX * 16; /* bytes that one launch can read */

typedef struct timing {
    fig_engine *engine;
    fig_timing_options options; /* with the defaults filled in */
    fig_spacer spacer;          /* zero unless options.spacer is given */
    int32_t bucket;             /* the step's bucket, from 1; 0 if a tensor is timed */
    /* the reading kernels write their result here; the host never reads it */
    fig_block folded;
    fig_dev_exec *exec; /* the exec to time; NULL: the copying of a tensor is timed */
    uint8_t *half;      /* the second half of the copied tensor */
    size_t half_bytes;
    double samples[SAMPLES_LIMIT];
} timing;

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static fig_status take_spacer(timing *t) {
    fig_spacer *ours = &t->spacer;
    if (t->options.spacer == NULL) return FIG_OK;
    FIG_TRY(fig_status_take_options(ours, sizeof *ours, t->options.spacer, "fig_spacer"));
    if (t->options.step == NULL)
        return fig_fail(FIG_INVALID, "time: spacer needs step, but tensor was given");
    if (ours->nodes < 0)
        return fig_fail(FIG_INVALID, "time: spacer: nodes is %" PRId32 ", it must not be negative",
                        ours->nodes);
    if (ours->bytes < 0 || ours->bytes % 16 != 0 || ours->bytes > ours->memory_bytes)
        return fig_fail(FIG_INVALID,
                        "time: spacer: bytes is %" PRId64 ", it must be a multiple of 16 from 0 to "
                        "memory_bytes, %" PRId64,
                        ours->bytes, ours->memory_bytes);
    return FIG_OK;
}

static fig_status take_options(timing *t, const fig_timing_options *options) {
    fig_timing_options *ours = &t->options;
    FIG_TRY(fig_status_take_options(ours, sizeof *ours, options, "fig_timing_options"));
    if ((ours->step == NULL) == (ours->tensor == NULL))
        return fig_fail(FIG_INVALID, "time: give either step or tensor; %s",
                        ours->step == NULL ? "neither was" : "both were");
    if (ours->samples < 0 || ours->samples > SAMPLES_LIMIT)
        return fig_fail(FIG_INVALID, "time: samples is %" PRId32 ", limits 0 to %d", ours->samples,
                        SAMPLES_LIMIT);
    if (ours->sample_us < 0 || ours->sample_us > SAMPLE_US_LIMIT)
        return fig_fail(FIG_INVALID, "time: sample_us is %" PRId32 ", limits 0 to %d",
                        ours->sample_us, SAMPLE_US_LIMIT);
    if (ours->replays < 0 || ours->replays > REPLAYS_LIMIT)
        return fig_fail(FIG_INVALID, "time: replays is %" PRId32 ", limits 0 to %d", ours->replays,
                        REPLAYS_LIMIT);
    if (ours->samples == 0) ours->samples = SAMPLES_DEFAULT;
    if (ours->sample_us == 0) ours->sample_us = SAMPLE_US_DEFAULT;
    return take_spacer(t);
}

static fig_status check_idle(fig_engine *engine) {
    fig_engine_catch_up(engine);
    if (engine->staged == engine->launched) return fig_engine_wait(engine, -1);
    return fig_fail(
        FIG_ORDER, "time: the engine must be idle, and has %" PRId64 " staged step%s to launch",
        engine->staged - engine->launched, FIG_PLURAL(engine->staged - engine->launched));
}

/* Prepares a reading. The caller then fills in the memory to read and the size of a piece. */
static fig_status make_reading(timing *t, fig_exec_reading *reading) {
    fig_engine *engine = t->engine;
    fig_traits traits;
    FIG_TRY(engine->api->allocate(engine->dev, &t->folded, FIG_MEMORY_DEVICE, sizeof(uint64_t)));
    engine->api->read_traits(engine->dev, &traits);
    *reading = (fig_exec_reading){.folded = t->folded.device,
                                  .blocks = BLOCKS_PER_SM * (uint32_t)traits.sm_count,
                                  .launches = 1};
    return FIG_OK;
}

static fig_status open_spaced(timing *t, fig_exec_bare *bare) {
    const fig_spacer *spacer = &t->spacer;
    fig_exec_reading reading;
    FIG_TRY(make_reading(t, &reading));
    reading.from = spacer->memory;
    reading.bytes = (size_t)spacer->memory_bytes;
    reading.piece_bytes = (size_t)spacer->bytes;
    reading.launches = spacer->nodes > 0 ? (uint32_t)spacer->nodes : UINT32_MAX;
    reading.is_plain = 1;
    bare->spacer = &reading;
    bare->spacers_only = spacer->only;
    return fig_exec_bare_nodes(&t->engine->execs, bare, &t->exec);
}

/* Runs the step once and makes the exec that replays its nodes. If the step is staged but cannot be
 * launched, fig_engine_step() takes it back. */
static fig_status open_nodes(timing *t) {
    fig_engine *engine = t->engine;
    FIG_TRY(fig_engine_step(engine, t->options.step));
    FIG_TRY(fig_engine_wait(engine, -1));
    t->bucket = (int32_t)engine->counters.last_bucket;
    fig_exec_bare bare = {.exec = fig_engine_exec_of(engine, (uint32_t)t->bucket - 1),
                          .copies = 1,
                          .serial = t->options.serial};
    return t->options.spacer != NULL ? open_spaced(t, &bare)
                                     : fig_exec_bare_nodes(&engine->execs, &bare, &t->exec);
}

static fig_status open_reading(timing *t) {
    fig_engine *engine = t->engine;
    fig_exec_reading reading;
    uint32_t tensor;
    FIG_TRY(fig_binding_find(&engine->bindings, t->options.tensor, &tensor));
    const fig_bound_place *place = &engine->bindings.tensors[tensor - 1].place;
    if (t->options.copies) {
        t->half_bytes = place->bytes / 2;
        t->half = (uint8_t *)place->address + t->half_bytes;
        return FIG_OK;
    }
    FIG_TRY(make_reading(t, &reading));
    reading.from = place->address;
    reading.bytes = place->bytes;
    reading.piece_bytes = place->bytes < READ_LIMIT ? place->bytes : READ_LIMIT;
    return fig_exec_bare_readings(&engine->execs, &reading, &t->exec);
}

static fig_status run(timing *t) {
    const fig_device_api *api = t->engine->api;
    fig_dev_stream *stream = t->engine->stream;
    if (t->exec != NULL) return api->exec_launch(t->engine->dev, t->exec, stream);
    return api->push(t->engine->dev, stream, t->half, t->half - t->half_bytes, t->half_bytes);
}

static fig_status take_sample(timing *t, int32_t replays, double *ns) {
    const fig_device_api *api = t->engine->api;
    fig_dev *dev = t->engine->dev;
    fig_dev_stream *stream = t->engine->stream;
    *ns = 0;
    FIG_TRY(run(t));
    FIG_TRY(api->stream_mark(dev, stream, 0));
    for (int32_t i = 0; i < replays; i++)
        FIG_TRY(run(t));
    FIG_TRY(api->stream_mark(dev, stream, 1));
    FIG_TRY(api->stream_between(dev, stream, ns));
    *ns /= replays;
    return fig_engine_wait(t->engine, -1);
}

/* Takes all samples. The first sample warms up the device, and its time gives the number of replays
 * in each of the other samples. */
static fig_status take_samples(timing *t) {
    double first_ns;
    FIG_TRY(take_sample(t, 1, &first_ns));
    const double replays = first_ns > 0 ? 1e3 * t->options.sample_us / first_ns : REPLAYS_LIMIT;
    int32_t count = replays < 1 ? 1 : replays > REPLAYS_LIMIT ? REPLAYS_LIMIT : (int)replays;
    if (t->options.replays > 0) count = t->options.replays;
    for (int32_t i = 0; i < t->options.samples; i++)
        FIG_TRY(take_sample(t, count, &t->samples[i]));
    return FIG_OK;
}

static void finish(timing *t) {
    fig_engine *engine = t->engine;
    if (engine->launched < engine->staged) fig_engine_take_back(engine);
    engine->api->stream_wait(engine->dev, engine->stream, -1);
    engine->api->exec_destroy(engine->dev, t->exec);
    engine->api->release(engine->dev, &t->folded);
}

static fig_status time_exec(timing *t) {
    FIG_TRY(t->options.step != NULL ? open_nodes(t) : open_reading(t));
    return take_samples(t);
}

fig_status fig_engine_time(fig_engine *engine, const fig_timing_options *options,
                           fig_timed *timed) {
    fig_timed result = {0};
    FIG_TRY(fig_status_give(timed, &result, sizeof result, "fig_timed"));
    timing *t = calloc(1, sizeof *t);
    if (t == NULL) return fig_fail(FIG_NOMEM, "time: %zu bytes", sizeof *t);
    t->engine = engine;
    fig_status status = take_options(t, options);
    if (status == FIG_OK) status = check_idle(engine);
    if (status == FIG_OK) {
        status = time_exec(t);
        finish(t);
    }
    if (status == FIG_OK) {
        const int32_t count = t->options.samples;
        qsort(t->samples, (size_t)count, sizeof *t->samples, compare);
        result.bucket = t->bucket;
        result.median_ns = t->samples[count / 2];
        result.least_ns = t->samples[0];
        result.most_ns = t->samples[count - 1];
        status = fig_status_give(timed, &result, sizeof result, "fig_timed");
    }
    free(t);
    return status;
}

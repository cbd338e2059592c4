/* test_cuda_peers.c: tests how a rank reaches the GPUs of other ranks, directly or through NCCL,
 * and what it reports after a kernel has stopped waiting. Runs over the fake driver and the fake
 * NCCL.
 *
 * Compiles cuda_peers.c and cuda_nccl.c over a group that this test plays: rank 0 is the rank under
 * test, and rank 1 answers as the test directs. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/graph/cuda_work.h"
#include "engine/ranks/group.h"
#include "planner/status.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/driver/fake_nccl.h"
#include "tests/support/files/sample.h"

/* Even on a busy machine, every operation ends within AMPLE_US. */
enum { INBOX = 1 << 20, AMPLE_US = 60000000, SHORT_US = 100000 };

/* The group, and the behaviour of its other rank. */
static struct play {
    int32_t count, local_count;
    int elsewhere, same_gpu; /* 1: the other rank is in another process; 1: it is on the same GPU */
    int no_nccl;             /* 1: the other rank has no NCCL */
    int other_nccl;          /* 1: the other rank has another version of NCCL */
    int is_lost;             /* 1: the group is lost */
    fig_status reports;      /* the status that rank 1 reports each time */
    int64_t timeout_us;      /* the group's timeout */
    int gathers, watched;
    char aborted[256];
    uint8_t inbox[64]; /* the inbox of rank 1; only its address is used */
} play;

static fig_status play_info(const fig_ranks *ranks, fig_ranks_info *info) {
    (void)ranks;
    info->count = play.count;
    info->local_count = play.local_count;
    info->timeout_us = play.timeout_us;
    return FIG_OK;
}

static void play_abort(fig_ranks *ranks, const char *reason) {
    (void)ranks;
    snprintf(play.aborted, sizeof play.aborted, "%s", reason);
}

static fig_status play_check(const fig_ranks *ranks) {
    (void)ranks;
    return play.is_lost ? fig_fail(FIG_LOST, "rank 1 is gone") : FIG_OK;
}

static fig_status play_watch(fig_ranks *ranks, volatile uint32_t *word) {
    (void)ranks;
    assert_int_equal(*word, 0);
    play.watched++;
    return FIG_OK;
}

static void play_unwatch(fig_ranks *ranks, volatile uint32_t *word) {
    (void)ranks, (void)word;
    play.watched--;
}

/* A pointer, because answer() is defined after the included files, whose types it needs. */
static fig_status (*play_gather)(fig_ranks *ranks, const void *mine, size_t bytes, void *all);

static fig_status play_agree(fig_ranks *ranks, const fig_ranks_field *fields, int32_t count) {
    (void)ranks;
    assert_int_equal(count, 1);
    return play.other_nccl ? fig_fail(FIG_INVALID, "%s differs", fields->name) : FIG_OK;
}

#define fig_ranks_read_info play_info
#define fig_ranks_agree play_agree
#define fig_ranks_all_gather play_gather
#define fig_ranks_abort play_abort
#define fig_ranks_check play_check
#define fig_group_watch play_watch
#define fig_group_unwatch play_unwatch
#define fig_cuda_peers_open open_peers
#define fig_cuda_peers_close close_peers
#define fig_cuda_peers_look look_at_peers
#define fig_cuda_peers_check judge_peers
#define fig_cuda_peers_attend attend_peers
#define fig_cuda_nccl_init init_communicator
#define fig_cuda_nccl_open open_communicator
#define fig_cuda_nccl_close close_communicator
#define fig_cuda_nccl_abort abort_communicator
#define fig_cuda_nccl_capture capture_collective
#define fig_cuda_nccl_end end_collectives
#include "engine/cuda/cuda_nccl.c"
#include "engine/cuda/cuda_peers.c"

static fig_status answer(fig_ranks *ranks, const void *mine, size_t bytes, void *all) {
    (void)ranks;
    play.gathers++;
    memcpy(all, mine, bytes);
    if (bytes == 1) {
        ((uint8_t *)all)[1] = !play.no_nccl;
    } else if (bytes == sizeof(invitation)) {
        memset((uint8_t *)all + bytes, 0, bytes);
    } else if (bytes == sizeof(report)) {
        const report theirs = {play.reports, "rank 1 has no memory"};
        memcpy((uint8_t *)all + bytes, &theirs, bytes);
    } else {
        card theirs;
        memcpy(&theirs, mine, sizeof theirs);
        if (!play.same_gpu) memcpy(theirs.bus, "0000:01:00.0", 13);
        theirs.process += (uint64_t)play.elsewhere;
        theirs.inbox = (uint64_t)(uintptr_t)play.inbox;
        memcpy(theirs.handle.bytes, &theirs.inbox, sizeof theirs.inbox);
        memcpy((uint8_t *)all + bytes, &theirs, bytes);
    }
    return FIG_OK;
}

/* A look must announce what the check returns. */
static fig_status check_peers(fig_cuda_peers *peers) {
    const fig_status announced = look_at_peers(peers);
    const fig_status status = judge_peers(peers);
    assert_int_equal(announced, status);
    return status;
}

static const uint32_t exec_buckets[] = {2, 6};

static fig_dev_met met;
static uint64_t message_bytes = INBOX;

static fig_status open_with(fig_cuda_peers *peers, fig_cuda_gpu *gpu, int32_t count) {
    fig_dev_meeting meeting = {
        .byte_limit = message_bytes, .exec_buckets = exec_buckets, .exec_count = 2};
    play.count = play.local_count = count;
    if (count > 1) meeting.ranks = (struct fig_ranks *)(void *)&play;
    return open_peers(peers, gpu, &meeting, &met);
}

static void open_gpu(fig_cuda_gpu *gpu) {
    memset(&play, 0, sizeof play);
    play.timeout_us = 5000;
    play_gather = answer;
    assert_int_equal(fig_cuda_gpu_find(gpu, 0, 0), FIG_OK);
    assert_int_equal(fig_cuda_gpu_open(gpu), FIG_OK);
    assert_int_equal(fig_cuda_gpu_enter(gpu), FIG_OK);
}

static void close_gpu(fig_cuda_gpu *gpu) {
    fig_cuda_gpu_leave(gpu, FIG_OK);
    fig_cuda_gpu_close(gpu);
    assert_int_equal(play.watched, 0);
}

/* Closes the peers, and then frees what they keep for late ranks until the process ends. */
static void close_all(fig_cuda_peers *peers, fig_cuda_gpu *gpu) {
    const fig_cu_address inbox = peers->is_told ? peers->inbox : 0;
    close_peers(peers, gpu);
    if (inbox == 0) return;
    assert_int_equal(gpu->cu->MemFree(inbox), FIG_CU_SUCCESS);
    assert_int_equal(gpu->cu->DevicePrimaryCtxRelease(gpu->device), FIG_CU_SUCCESS);
}

/* ---- Opening */

static const fig_peers *block_of(const fig_cuda_peers *peers) {
    return (const fig_peers *)(uintptr_t)peers->block; /* memory of the fake GPU is host memory */
}

static void a_single_rank_has_its_own_inbox_and_meets_nobody(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_gpu(&gpu);
    assert_int_equal(open_with(&peers, &gpu, 1), FIG_OK);
    assert_int_equal(block_of(&peers)->count, 1);
    assert_ptr_equal(block_of(&peers)->inboxes[0], (void *)(uintptr_t)peers.inbox);
    assert_int_equal(block_of(&peers)->slot_bytes, FIG_PEERS_HEAD_BYTES + 2 * INBOX);
    assert_int_equal(play.gathers, 0);
    assert_int_equal(check_peers(&peers), FIG_OK);
    close_all(&peers, &gpu);
    close_gpu(&gpu);
}

static void ranks_reach_each_other_in_one_process_and_in_several(void **state) {
    (void)state;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        fig_cuda_gpu gpu;
        fig_cuda_peers peers;
        open_gpu(&gpu);
        play.elsewhere = elsewhere;
        if (open_with(&peers, &gpu, 2) != FIG_OK) fail_msg("%s", fig_message());
        assert_int_equal(play.watched, 1);
        assert_int_equal(block_of(&peers)->count, 2);
        assert_int_equal(block_of(&peers)->timeout_ns, 5000000);
        assert_ptr_equal(block_of(&peers)->inboxes[1], play.inbox);
        assert_int_equal(peers.opened[1] != 0, elsewhere);
        close_all(&peers, &gpu);
        close_gpu(&gpu);
    }
}

static void a_group_whose_ranks_cannot_reach_each_other_is_refused(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_gpu(&gpu);
    play.no_nccl = 1;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 9), FIG_UNSUPPORTED, "9 ranks, limit 8");
    close_all(&peers, &gpu);
    play.same_gpu = 1;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_INVALID, "ranks 0 and 1 are both on GPU");
    close_all(&peers, &gpu);
    play.same_gpu = 0;
    play.reports = FIG_NOMEM;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_NOMEM, "rank 1 has no memory");
    close_all(&peers, &gpu);
    play.reports = FIG_OK;
    fig_cuda_bench_fake->fail_name = "cuCtxEnablePeerAccess";
    fig_cuda_bench_fake->fail_with = FIG_CU_UNKNOWN;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_UNSUPPORTED,
                       "rank 0 cannot reach rank 1's GPU 0000:01:00.0");
    close_all(&peers, &gpu);
    fig_cuda_bench_fake->fail_name = NULL;
    const fig_dev_meeting meeting = {.ranks = (struct fig_ranks *)(void *)&play,
                                     .byte_limit = INBOX};
    play.local_count = 1;
    FIG_SAMPLE_REFUSES(open_peers(&peers, &gpu, &meeting, &met), FIG_UNSUPPORTED,
                       "1 of 2 ranks are on this host");
    close_all(&peers, &gpu);
    close_gpu(&gpu);
}

/* Another rank may be late, and then writes into the inbox. */
static void an_inbox_that_other_ranks_know_outlives_its_rank(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    for (int count = 1; count <= 2; count++) {
        open_gpu(&gpu);
        const int64_t held = fig_cuda_bench_fake->held;
        assert_int_equal(open_with(&peers, &gpu, count), FIG_OK);
        volatile uint8_t *inbox = (volatile uint8_t *)(uintptr_t)peers.inbox;
        close_peers(&peers, &gpu);
        if (count == 2) {
            assert_int_equal(fig_cuda_bench_fake->held, held + 2); /* the inbox and the context */
            inbox[0] = 1;
            gpu.cu->MemFree((fig_cu_address)(uintptr_t)inbox);
            gpu.cu->DevicePrimaryCtxRelease(gpu.device);
        }
        assert_int_equal(fig_cuda_bench_fake->held, held);
        close_gpu(&gpu);
    }
}

/* Tests two groups. One sends only its large messages through NCCL. In the other the driver gives
 * no rank access to another, so all messages go through NCCL. */
static void each_driver_call_that_fails_is_reported(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    fig_fake_nccl *nccl = fig_fake_nccl_install();
    open_gpu(&gpu);
    play.elsewhere = 1;
    play.timeout_us = AMPLE_US;
    nccl->looks = 0;
    message_bytes = 16 * INBOX;
    for (int64_t n = 1;; n++) {
        fig_cuda_bench_fake->fail_with = FIG_CU_OUT_OF_MEMORY;
        fig_cuda_bench_fake->failed = NULL;
        fig_cuda_bench_fake->fail_at = fig_cuda_bench_fake->calls + n;
        const fig_status status = open_with(&peers, &gpu, 2);
        const int failed = fig_cuda_bench_fake->failed != NULL;
        fig_cuda_bench_fake->fail_at = 0;
        const int fell_back = status == FIG_OK && met.routes == FIG_ROUTE_NCCL;
        assert_true((status == FIG_OK) == (!failed || fell_back));
        close_all(&peers, &gpu);
        assert_int_equal(nccl->held, 0);
        if (!failed) break;
    }
    message_bytes = INBOX;
    close_gpu(&gpu);
    fig_fake_nccl_remove();
}

/* ---- NCCL */

static fig_fake_nccl *open_far(fig_cuda_gpu *gpu) {
    fig_fake_nccl *nccl = fig_fake_nccl_install();
    open_gpu(gpu);
    fig_cuda_bench_fake->fail_name = "cuCtxEnablePeerAccess";
    fig_cuda_bench_fake->fail_with = FIG_CU_UNKNOWN;
    play.timeout_us = AMPLE_US;
    return nccl;
}

/* Shortens the timeouts of open peers, so that an operation that does not end soon times out. */
static void hurry(fig_cuda_peers *peers) {
    peers->timeout_us = peers->nccl.timeout_us = SHORT_US;
}

static void close_far(fig_cuda_gpu *gpu) {
    fig_cuda_bench_fake->fail_name = NULL;
    close_gpu(gpu);
    fig_fake_nccl_remove();
}

static void nccl_carries_all_between_gpus_that_do_not_reach_each_other(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    fig_fake_nccl *nccl = open_far(&gpu);
    if (open_with(&peers, &gpu, 2) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(met.routes, FIG_ROUTE_NCCL);
    assert_int_equal(met.ranks, 2);
    assert_int_equal(nccl->held, 1);
    assert_int_equal(nccl->tried_bytes, INBOX);
    close_all(&peers, &gpu);
    assert_int_equal(nccl->held, 0);
    assert_int_equal(nccl->destroyed, 1);
    play.no_nccl = 1;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_UNSUPPORTED, "rank 0 cannot reach rank 1");
    close_all(&peers, &gpu);
    assert_int_equal(nccl->held, 0);
    close_far(&gpu);
}

static void nccl_is_started_only_where_it_carries_something(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    fig_fake_nccl *nccl = fig_fake_nccl_install();
    open_gpu(&gpu);
    play.timeout_us = AMPLE_US;
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    assert_int_equal(met.routes, FIG_ROUTE_ONE_SHOT | FIG_ROUTE_TWO_SHOT);
    assert_int_equal(nccl->eager, 0);
    close_all(&peers, &gpu);
    message_bytes = 16 * INBOX;
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    assert_int_equal(met.routes, FIG_ROUTE_ONE_SHOT | FIG_ROUTE_TWO_SHOT | FIG_ROUTE_NCCL);
    assert_int_equal(peers.slot_bytes, FIG_PEERS_HEAD_BYTES + 2 * fig_routes_own_limit(2));
    assert_int_equal(nccl->tried_bytes, 16 * INBOX);
    close_all(&peers, &gpu);
    message_bytes = INBOX;
    close_gpu(&gpu);
    fig_fake_nccl_remove();
}

static void refusals_and_hangs_of_nccl_are_reported(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    fig_fake_nccl *nccl = open_far(&gpu);
    play.other_nccl = 1;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_INVALID, "NCCL's version differs");
    close_all(&peers, &gpu);
    play.other_nccl = 0;
    nccl->fail_name = "ncclCommInitRankConfig";
    nccl->fail_with = FIG_NCCL_CUDA_ERROR;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_DRIVER,
                       "nccl: ncclCommInitRankConfig: unhandled cuda error: as the test wants it");
    close_all(&peers, &gpu);
    nccl->fail_name = NULL;
    nccl->looks = -1;
    play.timeout_us = SHORT_US;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_TIMEOUT,
                       "nccl: ncclCommInitRankConfig: not all ranks came within 100000 us");
    close_all(&peers, &gpu);
    play.is_lost = 1; /* a lost group is not waited for */
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_LOST, "rank 1 is gone");
    close_all(&peers, &gpu);
    assert_int_equal(nccl->held, 0);
    assert_int_equal(nccl->aborted, 3);
    close_far(&gpu);
}

/* Returns an all-reduce with a norm over 4 rows. */
static fig_dev_launch reduction(const fig_cuda_peers *peers, fig_all_reduce_params *params) {
    static uint16_t in[64], out[64], weight[16], residual[64];
    *params = (fig_all_reduce_params){.in = in,
                                      .out = out,
                                      .weight = weight,
                                      .residual = residual,
                                      .peers = (fig_peers *)(uintptr_t)peers->block,
                                      .rows = {4, 1},
                                      .width = 16,
                                      .dtype = FIG_BF16,
                                      .ranks = 2,
                                      .routes = FIG_ROUTE_NCCL};
    return (fig_dev_launch){.op = FIG_OP_ALL_REDUCE,
                            .family = FIG_FAMILY_ALL_REDUCE_NCCL,
                            .params = params,
                            .params_bytes = sizeof *params};
}

static fig_status capture_one(const fig_cuda_nccl_job *job, fig_cuda_work *work, uint32_t before) {
    const uint32_t last = before - 1;
    return capture_collective(job, work, (fig_dev_after){&last, before > 0});
}

static void an_nccl_collective_is_one_node_of_a_graph(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    fig_cuda_kernels kernels = {0};
    fig_cuda_work *work;
    fig_all_reduce_params params;
    fig_fake_nccl *nccl = open_far(&gpu);
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    assert_int_equal(fig_cuda_work_create(&work, &gpu), FIG_OK);
    const fig_dev_launch launch = reduction(&peers, &params);
    const fig_cuda_nccl_job job = {&peers.nccl, &gpu, &kernels, &launch};
    const int64_t kernels_before = fig_cuda_bench_fake->stream_launches;
    if (capture_one(&job, work, 0) != FIG_OK) fail_msg("%s", fig_message());
    /* one collective for the ranks' positions, one for the sum */
    assert_int_equal(nccl->captured, 2);
    assert_int_equal(fig_cuda_bench_fake->stream_launches - kernels_before, 3);
    assert_int_equal(capture_one(&job, work, 1), FIG_OK);
    assert_int_equal(nccl->captured, 3);
    assert_int_equal(fig_cuda_bench_fake->stream_launches - kernels_before, 4);
    assert_int_equal(nccl->unconnected, 0);
    assert_int_equal(work->node_count, 2);
    nccl->fail_name = "ncclAllReduce";
    nccl->fail_with = FIG_NCCL_CUDA_ERROR;
    FIG_SAMPLE_REFUSES(capture_one(&job, work, 2), FIG_DRIVER,
                       "nccl: ncclAllReduce: unhandled cuda error");
    nccl->fail_name = NULL;
    assert_int_equal(work->node_count, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(end_collectives(&job, work, peers.block), FIG_OK);
    assert_int_equal(work->node_count, 3);
    assert_int_equal(fig_cuda_work_check(work, &gpu), FIG_OK);
    fig_cuda_work_release(work, &gpu);
    fig_cuda_kernels_finish(&kernels, &gpu);
    close_all(&peers, &gpu);
    close_far(&gpu);
}

/* Writes the counters that the kernels around a collective keep: how many collectives have begun
 * and how many have ended. */
static void note_under_way(fig_cuda_peers *peers, uint32_t begun, uint32_t ended) {
    peers->words->begun = begun;
    peers->words->ended = ended;
}

static int count_aborted(const fig_fake_nccl *nccl) {
    return __atomic_load_n(&nccl->aborted, __ATOMIC_RELAXED);
}

static void an_nccl_collective_that_hangs_is_aborted_in_time(void **state) {
    (void)state;
    const struct timespec moment = {0, 1000000};
    const struct timespec longer = {0, 130000000};
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    fig_fake_nccl *nccl = open_far(&gpu);
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    hurry(&peers);
    assert_non_null(gpu.attend);
    gpu.attend(gpu.attended);
    nanosleep(&longer, NULL); /* no collective is running */
    note_under_way(&peers, 1, 0);
    gpu.attend(gpu.attended);
    nanosleep(&longer, NULL);
    note_under_way(&peers, 2, 1); /* the next collective is running */
    gpu.attend(gpu.attended);
    assert_int_equal(count_aborted(nccl), 0);
    nanosleep(&longer, NULL);
    nccl->graphs = 1; /* the abort waits until the graph of another collective is destroyed */
    gpu.attend(gpu.attended);
    while (count_aborted(nccl) == 0)
        nanosleep(&moment, NULL);
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_TIMEOUT,
                       "rank 0 waited for others in a collective for 100000 us");
    assert_string_equal(play.aborted, fig_message());
    __atomic_store_n(&nccl->graphs, 0, __ATOMIC_RELAXED);
    close_all(&peers, &gpu);
    assert_int_equal(nccl->held, 0);
    assert_null(gpu.attend);
    play.aborted[0] = '\0';
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    peers.words->lost = 1;
    gpu.attend(gpu.attended);
    play.is_lost = 1;
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_LOST, "rank 1 is gone");
    close_all(&peers, &gpu);
    assert_int_equal(nccl->aborted, 2);
    assert_int_equal(nccl->held, 0);
    close_far(&gpu);
}

static void a_communicator_that_hangs_is_abandoned_at_the_groups_timeout(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    fig_fake_nccl *nccl = open_far(&gpu);
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    hurry(&peers);
    nccl->graphs = 1;
    peers.words->lost = 1;
    gpu.attend(gpu.attended);
    const int64_t began_ns = fig_clock_ns();
    close_all(&peers, &gpu);
    assert_true(fig_clock_ns() - began_ns >= SHORT_US * 1000);
    __atomic_store_n(&nccl->graphs, 0, __ATOMIC_RELAXED);
    while (__atomic_load_n(&nccl->held, __ATOMIC_RELAXED) > 0)
        sched_yield();
    /* releases the reference that close kept for NCCL */
    gpu.cu->DevicePrimaryCtxRelease(gpu.device);
    close_far(&gpu);
}

/* ---- Errors that a kernel has reported */

/* Opens peers whose kernel has reported that the other rank is at another place. */
static void open_apart(fig_cuda_peers *peers, fig_cuda_gpu *gpu, const fig_peers_place *theirs) {
    open_gpu(gpu);
    assert_int_equal(open_with(peers, gpu, 2), FIG_OK);
    peers->words->rank = 1;
    peers->words->mine = (fig_peers_place){5, 0, 3, 4};
    peers->words->theirs = *theirs;
    peers->words->verdict = FIG_PEERS_APART;
}

static void ranks_at_different_places_are_both_named(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_apart(&peers, &gpu, &(fig_peers_place){6, 1, 3, 4});
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_INVALID,
                       "rank 0 is at step 5, bucket 3, node 3 with 4 rows, and rank 1 at step 6, "
                       "bucket 7, node 3 with 4 rows");
    assert_string_equal(play.aborted, fig_message());
    assert_int_equal(check_peers(&peers), FIG_LOST);
    close_all(&peers, &gpu);
    close_gpu(&gpu);
}

/* An aborted collective leaves stale contents in its buffers. */
static void stale_words_of_an_aborted_nccl_are_not_reported_as_a_place(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_apart(&peers, &gpu, &(fig_peers_place){0x41a04120, 0x41a04120, 0xc0e04120, 0});
    play.is_lost = 1;
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_LOST, "rank 1 is gone");
    close_all(&peers, &gpu);
    close_gpu(&gpu);
}

static void a_rank_that_is_late_or_gone_is_named(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_gpu(&gpu);
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    peers.words->rank = 1;
    peers.words->verdict = FIG_PEERS_LATE;
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_TIMEOUT,
                       "rank 1 did not come to a collective within 5000 us");
    assert_string_equal(play.aborted, fig_message());
    close_all(&peers, &gpu);
    play.aborted[0] = '\0';
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    peers.words->verdict = FIG_PEERS_LOST;
    play.is_lost = 1;
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_LOST, "rank 1 is gone");
    assert_string_equal(play.aborted, "");
    close_all(&peers, &gpu);
    close_gpu(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(a_single_rank_has_its_own_inbox_and_meets_nobody),
        FIG_CUDA_BENCH_TEST(ranks_reach_each_other_in_one_process_and_in_several),
        FIG_CUDA_BENCH_TEST(a_group_whose_ranks_cannot_reach_each_other_is_refused),
        FIG_CUDA_BENCH_TEST(an_inbox_that_other_ranks_know_outlives_its_rank),
        FIG_CUDA_BENCH_TEST(each_driver_call_that_fails_is_reported),
        FIG_CUDA_BENCH_TEST(nccl_carries_all_between_gpus_that_do_not_reach_each_other),
        FIG_CUDA_BENCH_TEST(nccl_is_started_only_where_it_carries_something),
        FIG_CUDA_BENCH_TEST(refusals_and_hangs_of_nccl_are_reported),
        FIG_CUDA_BENCH_TEST(an_nccl_collective_is_one_node_of_a_graph),
        FIG_CUDA_BENCH_TEST(an_nccl_collective_that_hangs_is_aborted_in_time),
        FIG_CUDA_BENCH_TEST(a_communicator_that_hangs_is_abandoned_at_the_groups_timeout),
        FIG_CUDA_BENCH_TEST(ranks_at_different_places_are_both_named),
        FIG_CUDA_BENCH_TEST(stale_words_of_an_aborted_nccl_are_not_reported_as_a_place),
        FIG_CUDA_BENCH_TEST(a_rank_that_is_late_or_gone_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_cuda_peers.c: how a rank reaches the GPUs of the others, and what it says when a kernel has
 * stopped waiting, over the fake driver.
 *
 * Compiles cuda_peers.c over a group that this test plays: rank 0 is the one at hand, rank 1
 * answers as the test wants it to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/ranks/group.h"
#include "planner/status.h"
#include "tests/support/cuda_bench.h"
#include "tests/support/sample.h"

enum { INBOX = 1 << 20 };

/* The group, and what its other rank does. */
static struct play {
    int32_t count, local_count;
    int elsewhere, same_gpu; /* 1: in another process; on the same GPU */
    fig_status reports;      /* of rank 1, each time it says how far it came */
    int gathers, watched;
    char aborted[256];
    uint8_t inbox[64]; /* of rank 1: an address is all that is needed of it */
} play;

static fig_status play_info(const fig_ranks *ranks, fig_ranks_info *info) {
    (void)ranks;
    info->count = play.count;
    info->local_count = play.local_count;
    info->timeout_us = 5000;
    return FIG_OK;
}

static void play_abort(fig_ranks *ranks, const char *reason) {
    (void)ranks;
    snprintf(play.aborted, sizeof play.aborted, "%s", reason);
}

static fig_status play_check(const fig_ranks *ranks) {
    (void)ranks;
    return fig_fail(FIG_LOST, "rank 1 is gone");
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

/* As the answer is: it knows what is asked, which stands below. */
static fig_status (*play_gather)(fig_ranks *ranks, const void *mine, size_t bytes, void *all);

#define fig_ranks_read_info play_info
#define fig_ranks_all_gather play_gather
#define fig_ranks_abort play_abort
#define fig_ranks_check play_check
#define fig_group_watch play_watch
#define fig_group_unwatch play_unwatch
#define fig_cuda_peers_open open_peers
#define fig_cuda_peers_close close_peers
#define fig_cuda_peers_check check_peers
#include "engine/cuda/cuda_peers.c"

static fig_status answer(fig_ranks *ranks, const void *mine, size_t bytes, void *all) {
    (void)ranks;
    play.gathers++;
    memcpy(all, mine, bytes);
    if (bytes == sizeof(report)) {
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

static const uint32_t exec_buckets[] = {2, 6};

static fig_status open_with(fig_cuda_peers *peers, fig_cuda_gpu *gpu, int32_t count) {
    fig_dev_meeting meeting = {.byte_limit = INBOX, .exec_buckets = exec_buckets};
    play.count = play.local_count = count;
    if (count > 1) meeting.ranks = (struct fig_ranks *)(void *)&play;
    return open_peers(peers, gpu, &meeting);
}

static void open_gpu(fig_cuda_gpu *gpu) {
    memset(&play, 0, sizeof play);
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

/* ---- Opening */

static const fig_peers *block_of(const fig_cuda_peers *peers) {
    return (const fig_peers *)(uintptr_t)peers->block; /* the fake's memory is the host's */
}

static void a_rank_alone_has_its_own_inbox_and_meets_nobody(void **state) {
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
    close_peers(&peers, &gpu);
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
        close_peers(&peers, &gpu);
        close_gpu(&gpu);
    }
}

static void a_group_that_cannot_reach_itself_is_refused(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_gpu(&gpu);
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 9), FIG_UNSUPPORTED, "9 ranks, limit 8");
    close_peers(&peers, &gpu);
    play.same_gpu = 1;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_INVALID, "ranks 0 and 1 are both on GPU");
    close_peers(&peers, &gpu);
    play.same_gpu = 0;
    play.reports = FIG_NOMEM;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_NOMEM, "rank 1 has no memory");
    close_peers(&peers, &gpu);
    play.reports = FIG_OK;
    fig_cuda_bench_fake->fail_name = "cuCtxEnablePeerAccess";
    fig_cuda_bench_fake->fail_with = FIG_CU_UNKNOWN;
    FIG_SAMPLE_REFUSES(open_with(&peers, &gpu, 2), FIG_UNSUPPORTED,
                       "rank 0 cannot reach rank 1's GPU 0000:01:00.0");
    close_peers(&peers, &gpu);
    fig_cuda_bench_fake->fail_name = NULL;
    const fig_dev_meeting meeting = {.ranks = (struct fig_ranks *)(void *)&play,
                                     .byte_limit = INBOX};
    play.local_count = 1;
    FIG_SAMPLE_REFUSES(open_peers(&peers, &gpu, &meeting), FIG_UNSUPPORTED,
                       "1 of 2 ranks are on this host");
    close_peers(&peers, &gpu);
    close_gpu(&gpu);
}

static void each_driver_call_that_fails_is_reported(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_gpu(&gpu);
    play.elsewhere = 1;
    for (int64_t n = 1;; n++) {
        fig_cuda_bench_fake->fail_with = FIG_CU_OUT_OF_MEMORY;
        fig_cuda_bench_fake->failed = NULL;
        fig_cuda_bench_fake->fail_at = fig_cuda_bench_fake->calls + n;
        const fig_status status = open_with(&peers, &gpu, 2);
        const int failed = fig_cuda_bench_fake->failed != NULL;
        fig_cuda_bench_fake->fail_at = 0;
        assert_true((status == FIG_OK) == !failed);
        close_peers(&peers, &gpu);
        if (!failed) break;
    }
    close_gpu(&gpu);
}

/* ---- What a kernel left */

static void ranks_that_are_apart_are_both_named(void **state) {
    (void)state;
    fig_cuda_gpu gpu;
    fig_cuda_peers peers;
    open_gpu(&gpu);
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    peers.words->rank = 1;
    peers.words->mine = (fig_peers_place){5, 0, 3, 4};
    peers.words->theirs = (fig_peers_place){6, 1, 3, 4};
    peers.words->verdict = FIG_PEERS_APART;
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_INVALID,
                       "rank 0 is at step 5, bucket 3, node 3 with 4 rows, and rank 1 at step 6, "
                       "bucket 7, node 3 with 4 rows");
    assert_string_equal(play.aborted, fig_message());
    assert_int_equal(check_peers(&peers), FIG_LOST);
    close_peers(&peers, &gpu);
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
    close_peers(&peers, &gpu);
    play.aborted[0] = '\0';
    assert_int_equal(open_with(&peers, &gpu, 2), FIG_OK);
    peers.words->verdict = FIG_PEERS_LOST;
    FIG_SAMPLE_REFUSES(check_peers(&peers), FIG_LOST, "rank 1 is gone");
    assert_string_equal(play.aborted, "");
    close_peers(&peers, &gpu);
    close_gpu(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(a_rank_alone_has_its_own_inbox_and_meets_nobody),
        FIG_CUDA_BENCH_TEST(ranks_reach_each_other_in_one_process_and_in_several),
        FIG_CUDA_BENCH_TEST(a_group_that_cannot_reach_itself_is_refused),
        FIG_CUDA_BENCH_TEST(each_driver_call_that_fails_is_reported),
        FIG_CUDA_BENCH_TEST(ranks_that_are_apart_are_both_named),
        FIG_CUDA_BENCH_TEST(a_rank_that_is_late_or_gone_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* allreduce_bench.c: all-reduce over two ranks in graph replays: ours and NCCL's, and their bits.
 *
 *     build/release/tests/gpu/allreduce_bench [--gpus 1|2] [--rounds N] [--soak GRAPHS] [--seed N]
 *
 * Two threads are two ranks, each with a GPU of its own, or with one GPU both (which times
 * nothing). Prints CSV: of each size, microseconds of one all-reduce in a chain of them in a graph,
 * of the slower rank, the median of rounds: ours, NCCL's where libnccl.so.2 is found, and ours with
 * residual and norm. Every size is also checked: the bits of both ranks are those of the twin, but
 * for the norm's last one. The soak runs graphs of random sizes back to back, where each message
 * differs from those before it and ranks are late at random, and checks every number: it fails
 * where a word is taken before it is there. Exit: 0; 1 a number was wrong or a rank did not come;
 * 2 a call failed. */
#include "engine/device.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dlfcn.h>

#include "engine/cuda/cuda_api.h"
#include "kernels/families.h"
#include "kernels/numeric.h"
#include "tests/support/random.h"

enum {
    RANKS = 2,
    CHAIN = 20, /* nodes of a graph that is timed */
    GRAPHS = 10,
    LIMIT = 1 << 20, /* bytes of a message */
    MIX = 48,        /* nodes of a graph of the soak */
    MIX_LIMIT = 1 << 16
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) {                                                                    \
            fprintf(stderr, "allreduce_bench: line %d: %s\n", __LINE__, fig_message());            \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)
#define CU(name, ...)                                                                              \
    do {                                                                                           \
        const fig_cu_result cu_result_ = cu->name(__VA_ARGS__);                                    \
        if (cu_result_ != FIG_CU_SUCCESS) {                                                        \
            fprintf(stderr, "allreduce_bench: line %d: cu" #name ": %u\n", __LINE__, cu_result_);  \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- NCCL, as far as it is asked here */
typedef struct nccl_id {
    char bytes[128];
} nccl_id;
typedef struct nccl_api {
    int (*GetUniqueId)(nccl_id *id);
    int (*CommInitRank)(void **comm, int count, nccl_id id, int rank);
    int (*AllReduce)(const void *in, void *out, size_t count, int dtype, int op, void *comm,
                     void *stream);
    int (*CommDestroy)(void *comm);
} nccl_api;
enum { NCCL_BF16 = 9, NCCL_SUM = 0 };

typedef enum kind { OURS, NCCLS, NORMED, KINDS } kind;

typedef struct rank {
    int32_t rank;
    pthread_t thread;
    fig_cu_context context;
    fig_dev *dev;
    fig_dev_stream *stream;
    fig_block in, out, residual, weight, inbox, peers, words;
    void *comm;
    uint16_t *host_in, *host_out, *host_residual; /* [LIMIT / 2] */
    double us[KINDS];
    fig_random random;
} rank;

static const fig_device_api *const api = &fig_device_cuda;
static const fig_cuda_api *cu;
static nccl_api nccl;
static nccl_id nccl_group;
static int has_nccl, gpus = 2, rounds = 15, soak;
static uint64_t seed = 1;
static rank ranks[RANKS];
static pthread_barrier_t meeting;
static int wrong; /* 1: some number was; a thread's that found it */

static const size_t sizes[] = {1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15,
                               1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void meet(void) {
    pthread_barrier_wait(&meeting);
}

static void open_nccl(void) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    *(void **)&nccl.GetUniqueId = dlsym(library, "ncclGetUniqueId");
    *(void **)&nccl.CommInitRank = dlsym(library, "ncclCommInitRank");
    *(void **)&nccl.AllReduce = dlsym(library, "ncclAllReduce");
    *(void **)&nccl.CommDestroy = dlsym(library, "ncclCommDestroy");
    has_nccl = gpus == RANKS && nccl.GetUniqueId(&nccl_group) == 0;
}

/* ---- Opening */

static void take(rank *r, fig_block *block, fig_memory kind_of, size_t bytes) {
    TRY(api->allocate(r->dev, block, kind_of, bytes));
}

static void open_rank(rank *r) {
    const fig_engine_options options = {.size = sizeof options, .ordinal = gpus == 1 ? 0 : r->rank};
    fig_cu_device device;
    TRY(api->open(&r->dev, &options));
    CU(DeviceGet, &device, options.ordinal);
    CU(DevicePrimaryCtxRetain, &r->context, device);
    TRY(api->stream_open(r->dev, &r->stream));
    take(r, &r->in, FIG_MEMORY_DEVICE, MIX * (size_t)MIX_LIMIT + LIMIT);
    take(r, &r->out, FIG_MEMORY_DEVICE, MIX * (size_t)MIX_LIMIT + LIMIT);
    take(r, &r->residual, FIG_MEMORY_DEVICE, LIMIT);
    take(r, &r->weight, FIG_MEMORY_DEVICE, LIMIT);
    take(r, &r->inbox, FIG_MEMORY_DEVICE, fig_peers_inbox_bytes(RANKS, LIMIT));
    take(r, &r->peers, FIG_MEMORY_DEVICE, sizeof(fig_peers));
    take(r, &r->words, FIG_MEMORY_PINNED, sizeof(fig_peers_words));
    r->host_in = calloc(LIMIT, 2);
    r->host_out = calloc(LIMIT, 2);
    r->host_residual = calloc(LIMIT, 2);
    r->random = fig_random_seed(seed * 2 + (uint64_t)r->rank);
}

static void copy_in(rank *r, void *to, const void *from, size_t bytes) {
    TRY(api->copy_in(r->dev, r->stream, to, from, bytes));
}

static void copy_out(rank *r, void *to, const void *from, size_t bytes) {
    TRY(api->copy_out(r->dev, r->stream, to, from, bytes));
}

static void make_peers(rank *r) {
    fig_peers peers = {.words = r->words.device,
                       .timeout_ns = UINT64_C(2000000000),
                       .slot_bytes = fig_peers_inbox_bytes(1, LIMIT) / 2,
                       .rank = r->rank,
                       .count = RANKS};
    for (int i = 0; i < RANKS; i++)
        peers.inboxes[i] = ranks[i].inbox.device;
    copy_in(r, r->peers.device, &peers, sizeof peers);
    CU(CtxPushCurrent, r->context);
    if (gpus > 1) CU(CtxEnablePeerAccess, ranks[1 - r->rank].context, 0);
    if (has_nccl && nccl.CommInitRank(&r->comm, RANKS, nccl_group, r->rank) != 0) exit(2);
    /* NCCL connects at its first call, which no capture would survive. */
    if (has_nccl)
        nccl.AllReduce(r->in.device, r->out.device, 8, NCCL_BF16, NCCL_SUM, r->comm,
                       api->stream_handle(r->stream));
    TRY(api->stream_wait(r->dev, r->stream, 10000000));
}

/* ---- Graphs */

/* One all-reduce of `bytes`, from and to so many bytes behind the beginning. */
typedef struct message {
    size_t bytes, at;
} message;

static fig_all_reduce_params params_of(const rank *r, kind of, const message *m) {
    const int32_t width = m->bytes < 8192 ? (int32_t)m->bytes / 2 : 4096;
    fig_all_reduce_params params = {.in = (uint8_t *)r->in.device + m->at,
                                    .out = (uint8_t *)r->out.device + m->at,
                                    .peers = r->peers.device,
                                    .rows = {(int32_t)(m->bytes / 2) / width, 1},
                                    .width = width,
                                    .dtype = FIG_BF16,
                                    .epsilon = 1e-5f,
                                    /* On one GPU, launches of one rank that are ahead would leave
                                       no room for those of the other that they wait for. */
                                    .haste = gpus == 1 ? 0 : FIG_HASTE_EARLY};
    if (of == NORMED) params.weight = r->weight.device;
    if (of == NORMED) params.residual = r->residual.device;
    return params;
}

static int32_t call_nccl(void *user, const fig_call_args *args) {
    const message *m = args->bytes;
    rank *r = user;
    return nccl.AllReduce((uint8_t *)r->in.device + m->at, (uint8_t *)r->out.device + m->at,
                          m->bytes / 2, NCCL_BF16, NCCL_SUM, r->comm, args->stream);
}

static void add_node(rank *r, fig_dev_graph *graph, kind of, const message *m, uint32_t node) {
    const uint32_t before = node - 1;
    const fig_dev_after after = {&before, node > 0};
    if (of == NCCLS) {
        fig_dev_call call = {.callback = call_nccl, .user = r, .name = "nccl"};
        call.args = (fig_call_args){
            .size = sizeof call.args, .bucket = {1, 1}, .bytes = m, .byte_count = sizeof *m};
        TRY(api->graph_call(r->dev, graph, &call, after));
        return;
    }
    const fig_all_reduce_params params = params_of(r, of, m);
    fig_traits traits;
    fig_family_choice choice;
    api->read_kernel_traits(r->dev, &traits);
    fig_families_choose(FIG_OP_ALL_REDUCE, &params, &traits, &choice);
    fig_dev_launch launch = {.op = FIG_OP_ALL_REDUCE,
                             .family = choice.family,
                             .shared_bytes = choice.shape.shared_bytes,
                             .params = &params,
                             .params_bytes = sizeof params};
    memcpy(launch.grid, choice.shape.grid, sizeof launch.grid);
    memcpy(launch.block, choice.shape.block, sizeof launch.block);
    TRY(api->graph_kernel(r->dev, graph, &launch, after));
}

static fig_dev_exec *make_exec(rank *r, kind of, const message *messages, int count, int apart) {
    fig_dev_graph *graph;
    fig_dev_exec *exec;
    TRY(api->graph_create(r->dev, &graph));
    for (int i = 0; i < count; i++)
        add_node(r, graph, of, &messages[i * apart], (uint32_t)i);
    TRY(api->exec_create(r->dev, &exec, graph));
    api->graph_destroy(r->dev, graph);
    return exec;
}

/* Waits for all, and says where a rank gave up. */
static void finish(rank *r) {
    TRY(api->stream_wait(r->dev, r->stream, 20000000));
    const volatile fig_peers_words *words = r->words.host;
    if (words->verdict == FIG_PEERS_FINE || wrong) return;
    fprintf(stderr, "rank %d: verdict %u on rank %u\n", r->rank, words->verdict, words->rank);
    wrong = 1;
}

/* ---- Numbers */

static void fill(rank *r, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const float x = 8.0f * fig_random_float(&r->random);
        r->host_in[i] = fig_numeric_bf16(x);
    }
}

/* What the twin makes of both ranks' numbers: out and residual are changed. */
static void run_twin(kind of, const message *m, uint16_t *out, uint16_t *residual,
                     const uint16_t *weight) {
    const void *parts[RANKS] = {ranks[0].host_in, ranks[1].host_in};
    fig_peers peers = {.parts = parts, .count = RANKS};
    fig_all_reduce_params params = params_of(&ranks[0], of, m);
    params.out = out;
    params.peers = &peers;
    if (of == NORMED) params.weight = weight;
    if (of == NORMED) params.residual = residual;
    for (uint32_t b = 0; b < FIG_PEERS_GRID; b++)
        fig_kernel_table[FIG_OP_ALL_REDUCE].twin(&params, (uint32_t[3]){b, 0, 0});
}

static void complain(const rank *r, const char *what, size_t bytes, size_t i, uint16_t got,
                     uint16_t want) {
    if (!wrong)
        fprintf(stderr, "rank %d, %zu bytes, %s[%zu]: %#x, not %#x\n", r->rank, bytes, what, i, got,
                want);
    wrong = 1;
}

/* One node on numbers of its own. Sums are the twin's bits; the norm may round the other way. */
static void check(rank *r, kind of, size_t bytes) {
    const message m = {bytes, 0};
    const size_t count = bytes / 2;
    uint16_t *out = malloc(bytes), *residual = malloc(bytes), *weight = malloc(bytes);
    fill(r, count);
    for (size_t i = 0; i < count; i++) {
        residual[i] = fig_numeric_bf16((float)(i % 37) * 0.125f);
        weight[i] = fig_numeric_bf16(1.0f + (float)(i % 5) * 0.25f);
    }
    copy_in(r, r->in.device, r->host_in, bytes);
    copy_in(r, r->residual.device, residual, bytes);
    copy_in(r, r->weight.device, weight, bytes);
    fig_dev_exec *exec = make_exec(r, of, &m, 1, 0);
    meet();
    TRY(api->exec_launch(r->dev, exec, r->stream));
    finish(r);
    copy_out(r, r->host_out, r->out.device, bytes);
    copy_out(r, r->host_residual, r->residual.device, bytes);
    run_twin(of, &m, out, residual, weight);
    meet();
    for (size_t i = 0; i < count; i++) {
        const uint16_t got = r->host_out[i], other = ranks[1 - r->rank].host_out[i];
        const int apart = abs((int)got - (int)out[i]);
        if (got != other) complain(r, "out of both ranks", bytes, i, got, other);
        if (apart > (of == NORMED)) complain(r, "out", bytes, i, got, out[i]);
        if (of == NORMED && r->host_residual[i] != residual[i])
            complain(r, "residual", bytes, i, r->host_residual[i], residual[i]);
    }
    meet();
    api->exec_destroy(r->dev, exec);
    free(out);
    free(residual);
    free(weight);
}

/* ---- Times */

static int order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(rank *r, kind of, size_t bytes) {
    const message m = {bytes, 0};
    double ns, all[64];
    fig_dev_exec *exec = make_exec(r, of, &m, CHAIN, 0);
    for (int i = 0; i < rounds && i < 64; i++) {
        meet();
        TRY(api->exec_launch(r->dev, exec, r->stream)); /* ranks meet on their devices */
        TRY(api->stream_mark(r->dev, r->stream, 0));
        for (int n = 0; n < GRAPHS; n++)
            TRY(api->exec_launch(r->dev, exec, r->stream));
        TRY(api->stream_mark(r->dev, r->stream, 1));
        TRY(api->stream_between(r->dev, r->stream, &ns));
        all[i] = ns / 1000 / (CHAIN * GRAPHS);
    }
    finish(r);
    qsort(all, (size_t)rounds, sizeof all[0], order);
    r->us[of] = all[rounds / 2];
    meet();
    api->exec_destroy(r->dev, exec);
}

static double slower(kind of) {
    return ranks[0].us[of] > ranks[1].us[of] ? ranks[0].us[of] : ranks[1].us[of];
}

static void measure_sizes(rank *r) {
    if (r->rank == 0) printf("bytes,ours_us,nccl_us,share,normed_us,norm_adds_us\n");
    for (int i = 0; i < SIZES && !wrong; i++) {
        check(r, OURS, sizes[i]);
        check(r, NORMED, sizes[i]);
        measure(r, OURS, sizes[i]);
        measure(r, NORMED, sizes[i]);
        if (has_nccl) measure(r, NCCLS, sizes[i]);
        meet();
        if (r->rank == 0)
            printf("%zu,%.2f,%.2f,%.2f,%.2f,%.2f\n", sizes[i], slower(OURS), slower(NCCLS),
                   has_nccl ? slower(OURS) / slower(NCCLS) : 0.0, slower(NORMED),
                   slower(NORMED) - slower(OURS));
        if (r->rank == 0) fflush(stdout);
        meet();
    }
}

/* ---- Soak */

/* Sizes and their order are both ranks' own: from one seed. */
static void draw_mix(message *messages, fig_random *random) {
    for (int i = 0; i < MIX; i++) {
        const int32_t most = 1 << fig_random_range(random, 0, 12);
        const size_t pieces = (size_t)fig_random_range(random, 1, most);
        messages[i] = (message){pieces * 16 > 8192 ? pieces * 16 / 8192 * 8192 : pieces * 16,
                                (size_t)i * MIX_LIMIT};
    }
}

static uint16_t number_of(int32_t of, int node, size_t i, int turn) {
    const uint32_t x = (uint32_t)(of * 7919 + node * 104729 + turn * 15485863) + (uint32_t)i;
    return fig_numeric_bf16((float)(x * 2654435761u >> 20) - 2048.0f);
}

static void check_mix(rank *r, const message *messages, int turn) {
    for (int n = 0; n < MIX && !wrong; n++) {
        const size_t bytes = messages[n].bytes;
        copy_out(r, r->host_out, (uint8_t *)r->out.device + messages[n].at, bytes);
        for (size_t i = 0; i < bytes / 2; i++) {
            const uint16_t want = fig_numeric_bf16(fig_numeric_of_bf16(number_of(0, n, i, turn)) +
                                                   fig_numeric_of_bf16(number_of(1, n, i, turn)));
            if (r->host_out[i] != want) complain(r, "soak", bytes, i, r->host_out[i], want);
        }
    }
}

static void fill_mix(rank *r, const message *messages, int turn) {
    for (int n = 0; n < MIX; n++) {
        for (size_t i = 0; i < messages[n].bytes / 2; i++)
            r->host_in[i] = number_of(r->rank, n, i, turn);
        copy_in(r, (uint8_t *)r->in.device + messages[n].at, r->host_in, messages[n].bytes);
    }
}

/* Each mix is replayed many times, with numbers of its own and then in a row; ranks begin apart. On
 * one GPU ranks share a context, where a launch that waits for room would hold up the very launch
 * of the other rank that makes it: there one replay is under way at a time. */
static void run_soak(rank *r) {
    fig_random both = fig_random_seed(seed);
    message messages[MIX];
    for (int turn = 0; turn < soak; turn++) {
        if (turn % 8 == 0) draw_mix(messages, &both);
        fill_mix(r, messages, turn);
        fig_dev_exec *exec = make_exec(r, OURS, messages, MIX, 1);
        meet();
        for (int n = 0; n < (gpus > 1 ? 1 + turn % 16 : 1); n++) {
            const struct timespec late = {0, fig_random_range(&r->random, 0, 50000)};
            if (fig_random_range(&r->random, 0, 2) == 0) nanosleep(&late, NULL);
            TRY(api->exec_launch(r->dev, exec, r->stream));
        }
        finish(r);
        check_mix(r, messages, turn);
        meet();
        api->exec_destroy(r->dev, exec);
        if (wrong) break;
    }
    if (r->rank == 0 && soak > 0)
        printf("soak: %d turns of up to 16 replays of %d messages, seed %d: %s\n", soak, MIX,
               (int)seed, wrong ? "WRONG" : "every number right");
}

static void *run_rank(void *user) {
    rank *r = user;
    open_rank(r);
    meet();
    make_peers(r);
    meet();
    if (soak == 0 || gpus > 1) measure_sizes(r);
    meet();
    run_soak(r);
    meet();
    if (r->comm != NULL) nccl.CommDestroy(r->comm);
    return NULL;
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--gpus") == 0) gpus = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--soak") == 0) soak = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--seed") == 0) seed = (uint64_t)atoll(argv[i + 1]);
    }
    TRY(fig_cuda_api_open());
    cu = fig_cuda_api_table();
    CU(Init, 0);
    open_nccl();
    pthread_barrier_init(&meeting, NULL, RANKS);
    for (int32_t i = 0; i < RANKS; i++) {
        ranks[i].rank = i;
        pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
    }
    for (int32_t i = 0; i < RANKS; i++)
        pthread_join(ranks[i].thread, NULL);
    return wrong;
}

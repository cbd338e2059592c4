/* figraph.h: plan, record, save, restore and replay the fixed-shape part of an LLM decode step.
 *
 * Five things, each made from the one before:
 *
 *     fig_spec      the fixed shape: heads, head_dim, dtype, page size, limits
 *     fig_program   the step, recorded once: tensors and nodes, no address
 *     fig_graphs    the program lowered for each bucket; what a .fig file stands for
 *     fig_engine    graphs made launchable on a device, tensors bound
 *     fig_step      what changes per token: how many rows, how long each is
 *
 * load, open, bind each tensor; then for every token step and wait. README.md has the loop.
 * Every function that can fail returns fig_status and leaves one sentence in fig_message(). Outs
 * are set on every path. close and destroy take NULL. No call prints, exits or reads the
 * environment. An address is a device pointer as void *, or a host pointer on the host device.
 *
 * Threads: one thread at a time per object; different engines may live on different threads and
 * share one fig_graphs. A callback runs inside the call that it was given to, on that thread;
 * those of fig_engine_register say for themselves. None may call into the engine that called. */
#ifndef FIGRAPH_H
#define FIGRAPH_H

#include <stddef.h>
#include <stdint.h>

/* Most structs begin with their size, which the caller sets: they may gain fields at their end. In
 * every field zero means the default, and reserved fields must be zero. A struct without a size
 * stands inside others: it has reserved fields or is closed, never to have another field. In C,
 * FIG_OPTIONS(fig_step, .rows = 1) is a pointer to such a struct, for one call. In C++, auto step =
 * fig_options<fig_step>(); is the struct, to be filled by assignments. */
#ifdef __cplusplus
template <typename type> type fig_options() {
    type options = type();
    options.size = sizeof options;
    return options;
}
extern "C" {
#else
#define FIG_OPTIONS(type, ...) (&(type){.size = sizeof(type), __VA_ARGS__})
#endif

#define FIG_API __attribute__((visibility("default")))
#define FIG_VERSION 100 /* major * 10000 + minor * 100 + patch */

/* ---- Status ---------------------------------------------------------------------------------- */
/* Tens say what to do. 10 to 19: the call itself must change. 20 to 29: it changed nothing, and the
 * same call may succeed later. 30 to 39: a file is at fault. 40 to 49: the machine is. */
typedef uint32_t fig_status;
enum {
    FIG_OK = 0,
    FIG_INVALID = 10,     /* a field is wrong; the sentence names field, value and limit */
    FIG_ORDER = 11,       /* the call is right at another moment; the sentence says at which */
    FIG_TOO_LARGE = 12,   /* larger than a limit of the spec, or than every bucket */
    FIG_UNBOUND = 13,     /* a tensor or a callback that the step needs was never given */
    FIG_UNSUPPORTED = 14, /* valid, but nothing in this library does it */
    FIG_CALLBACK = 15,    /* a callback returned other than 0 */
    FIG_BUSY = 20,        /* every slot is in flight: wait, then call again */
    FIG_TIMEOUT = 21,     /* what was waited for is still running */
    FIG_IO = 30,          /* open, read, write, fsync or rename failed */
    FIG_FORMAT = 31,      /* not a .fig file, or a damaged one */
    FIG_STALE = 32,       /* a sound file that this library must capture anew */
    FIG_NOMEM = 40,       /* host or device memory */
    FIG_NO_DEVICE = 41,   /* no driver, no such device, or a driver that is too old */
    FIG_DRIVER = 42,      /* the device refused a call; the engine is still usable */
    FIG_LOST = 43         /* the device is gone for good: the engine can only be closed */
};

/* 1 for 20 to 29, those that a newer library adds included. */
FIG_API int32_t fig_status_is_retryable(fig_status status);
FIG_API const char *fig_status_name(fig_status status); /* "FIG_BUSY" */
/* This thread's last failure, "" if none; valid until its next. */
FIG_API const char *fig_message(void);
FIG_API int32_t fig_version(void);

/* ---- Spec ------------------------------------------------------------------------------------ */
typedef uint32_t fig_dtype;
enum {
    FIG_F32 = 1,
    FIG_F16 = 2,
    FIG_BF16 = 3,
    FIG_E4M3 = 4, /* no infinity; saturates */
    FIG_E5M2 = 5,
    FIG_I32 = 8,
    FIG_I64 = 9
};

/* Pair i of a head at position p turns by p * theta^(-2i / rotary_dim) / scale. figraph_rope.h says
 * what llama3_* change, and makes any other kind a table, which stands in place of all of these. */
typedef struct fig_rope_spec {
    int32_t interleaved; /* 0: NeoX halves (i, i + d/2); 1: neighbours (2i, 2i + 1) */
    int32_t rotary_dim;  /* d: how many of head_dim turn, the first ones; 0: all */
    float theta, scale;  /* 0: 10000 and 1 */
    float llama3_factor, llama3_low, llama3_high;
    int32_t llama3_context;
    uint32_t reserved[4]; /* 0 */
} fig_rope_spec;
typedef struct fig_rope_table { /* closed */
    double frequencies[128];    /* [rotary_dim / 2] radians per position; all 0: there is none */
    double factor;              /* of every cosine and sine; 0: 1 */
} fig_rope_table;

typedef uint32_t fig_activation;
enum { FIG_SILU = 0, FIG_GELU, FIG_GELU_TANH, FIG_SWIGLU_LIMITED };
typedef uint32_t fig_kv_layout;
enum { FIG_NHD = 0, FIG_HND };

typedef struct fig_spec {
    uint32_t size;
    fig_dtype dtype;    /* of activations: FIG_F32, FIG_F16 or FIG_BF16 */
    fig_dtype kv_dtype; /* of the cache; 0: dtype; fp8 under FIG_F16 and FIG_BF16 */
    int32_t layers;     /* 0: 1 */
    int32_t q_heads, kv_heads, head_dim; /* all 0: the program works row by row, without a cache */
    int32_t ffn_width;                   /* 0: the step has no activation */
    fig_activation activation;
    int32_t page_size; /* tokens of a page; 0: dense, kv_limit tokens per sequence */
    fig_kv_layout kv_layout;
    int32_t kv_scales;             /* fp8: 0: one scale per tensor, 1: one per kv head */
    int32_t batch_limit, kv_limit; /* most rows of a step, tokens of a sequence; no heads: 0: 1 */
    int32_t sequence_limit;        /* sequences whose tokens are held at once; 0: batch_limit */
    int32_t row_tokens;            /* query tokens of each row, 1..8; they end its sequence; 0: 1 */
    float soft_cap;                /* of logits; 0: none */
    int32_t window;                /* tokens a query sees, its own included; 0: all */
    uint64_t window_layers[8]; /* bit l is set: layer l has the window; no bit: all layers have */
    float sm_scale;            /* 0: 1 / sqrt(head_dim) */
    float qk_norm_epsilon;     /* RMSNorm of each q and k head before RoPE; 0: none */
    fig_rope_spec rope;
    int32_t ffn_rows, sinks;  /* act's for each token, a mixture's experts, 0: 1; 1: sinks.N */
    uint64_t plain_layers[8]; /* bit l is set: layer l has no RoPE, q and k stay as they are */
    fig_rope_table rope_table;
    fig_rope_spec window_rope; /* of layers that have the window; it and its table all 0: as rope */
    fig_rope_table window_table;
} fig_spec;

/* Name: "tutorial", "llama-3.1-8b", ... FIG_INVALID lists what there is. */
FIG_API fig_status fig_spec_preset(fig_spec *spec, const char *name);
FIG_API const char *fig_spec_preset_name(int32_t index); /* NULL past the last */
/* Overwrites what a Hugging Face config.json says; page size, limits and all else stay as they are
 * in *spec. What is missing or unknown is refused by name. Some RoPE is chosen by kv_limit. */
FIG_API fig_status fig_spec_read_config(fig_spec *spec, const char *path);

/* ---- Program: record a step once ------------------------------------------------------------- */
/* A tensor is memory, not a value: a node may write what an earlier one wrote. Nodes run as if in
 * the order recorded; two that touch no common tensor, or only read it, may run side by side. */
typedef struct fig_program fig_program;
typedef struct fig_tensor { /* closed */
    uint32_t id;            /* 0: absent */
} fig_tensor;
typedef uint32_t fig_role;
enum {
    FIG_ROLE_TEMP = 0, /* the engine's: contents live within one step */
    FIG_ROLE_BOUND,    /* the caller's: bound by name before the first step */
    FIG_ROLE_STATE     /* the engine's unless bound; zero at first, survives steps */
};

/* dims[0] may be symbolic. Rows at and past a step's own count are readable memory with unspecified
 * contents; a node may overwrite them in what it writes, never in a KV cache. */
#define FIG_DIM_BATCH (-1) /* rows: the batch limit; one address serves every bucket */
#define FIG_DIM_PAGES (-2) /* pages: however many the bound bytes hold */
typedef struct fig_tensor_info {
    uint32_t size;
    const char *name; /* unique, of [A-Za-z0-9._-] */
    fig_role role;
    fig_dtype dtype;
    int32_t rank; /* 1..4 */
    int64_t dims[4];
    int32_t multiple;     /* a symbolic dims[0] counts so many per row or page; 0: 1 */
    fig_kv_layout layout; /* FIG_HND: dims 1 and 2 change places in memory, not in dims */
} fig_tensor_info;
FIG_API fig_status fig_program_create(fig_program **program, const fig_spec *spec);
FIG_API void fig_program_destroy(fig_program *program);
FIG_API fig_tensor fig_program_tensor(fig_program *program, const fig_tensor_info *info);
FIG_API fig_tensor fig_program_find(const fig_program *program, const char *name);
/* Labels the nodes recorded from here on; -1: none. */
FIG_API void fig_program_layer(fig_program *program, int32_t layer);
/* Nodes recorded from here to the next call are the segment of that name; NULL: of none. A name is
 * given once. See fig_engine_append. */
FIG_API void fig_program_segment(fig_program *program, const char *name);
/* Recording is sticky: the first failure is kept, later calls do nothing and return absent tensors.
 * finish returns it and freezes the program; it is called once. */
FIG_API fig_status fig_program_finish(fig_program *program);
/* Records the standard step. For each layer N, in this order:
 *
 *     act.N      the spec's activation of gate_up.N; where the spec has ffn_width
 *     q.N, k.N   in place: with qk_norm_epsilon normalised by q_norm.N and k_norm.N; then rotated
 *     k.N, v.N   appended to k_cache.N and v_cache.N; where fp8, scaled by k_scale.N and v_scale.N
 *     out.N      attention of q.N over that cache, with sinks.N where the spec has sinks
 *
 * All of these are FIG_ROLE_BOUND. Where the spec has pages, page_table is FIG_ROLE_STATE; so is
 * page_table.window, which is read where only some layers have the window, so that pages behind it
 * can be given away. The first line is the segment act.N, the others are attn.N. */
FIG_API void fig_program_decode_step(fig_program *program);
/* For steps whose lengths the host does not know. They are read from device memory, i32 [rows], and
 * the device makes the split. positions: i32 [rows]; absent: length - 1. It is recorded once,
 * before everything else. A row whose length is outside [0, kv_limit] is idle. See fig_step. */
FIG_API void fig_program_read_lengths(fig_program *program, fig_tensor lengths,
                                      fig_tensor positions);

/* out[r][c] = activation(in[r][c]) * in[r][width + c]; in is [rows][2 * width]. gelu is by erf, and
 * gelu_tanh near it. swiglu_limited is gpt-oss's: g / (1 + exp(-1.702 g)) * (u + 1), g being the
 * first of both, at most 7, and u the second, within -7 and 7. */
typedef struct fig_gated_op {
    uint32_t size;
    fig_tensor in, out;
} fig_gated_op;
FIG_API void fig_silu_and_mul(fig_program *program, const fig_gated_op *op);
FIG_API void fig_gelu_and_mul(fig_program *program, const fig_gated_op *op);
FIG_API void fig_gelu_tanh_and_mul(fig_program *program, const fig_gated_op *op);
FIG_API void fig_swiglu_limited(fig_program *program, const fig_gated_op *op);

/* out = in / sqrt(mean(in^2) + epsilon) * (weight + weight_offset); in and out are [rows][width].
 * fig_add_rms_norm first adds in to residual, and normalises that sum, rounded to the dtype. */
typedef struct fig_rms_norm_op {
    uint32_t size;
    fig_tensor in, weight, out;   /* weight: [width]; out may be in */
    fig_tensor residual;          /* fig_add_rms_norm alone; updated in place */
    float epsilon, weight_offset; /* 0: 1e-6; gemma: 1 */
} fig_rms_norm_op;
FIG_API void fig_rms_norm(fig_program *program, const fig_rms_norm_op *op);
FIG_API void fig_add_rms_norm(fig_program *program, const fig_rms_norm_op *op);

/* Where the spec's row_tokens is above 1, [rows] of q, k, v and out counts query tokens: token t of
 * row r is number r * row_tokens + t, row_tokens - 1 - t positions below the row's last. */
typedef struct fig_rope_op {
    uint32_t size;
    fig_tensor q, k;            /* [rows][heads][head_dim] */
    fig_tensor q_out, k_out;    /* absent: in place */
    fig_tensor positions;       /* [rows] i32 or i64; absent: those of fig_step */
    fig_tensor indptr, offsets; /* in place of positions, where rows are packed in segments: [n + 1]
                                   and [n], both i32 or i64. Row indptr[i] + j has position
                                   offsets[i] + j; one outside every segment is left as it is */
    fig_tensor cos_sin;         /* f32 [positions][rotary_dim]: a position's cosines, then its
                                   sines; one outside reads the nearest. absent: computed */
    fig_tensor q_norm, k_norm;  /* [head_dim]: weights of an RMSNorm of each head before it turns */
    float norm_epsilon;         /* 0: the spec's, or 1e-6 */
    const fig_rope_spec *rope;  /* NULL: the spec's, with its table */
    const fig_rope_table *rope_table; /* in place of what rope says of frequencies; NULL: none */
} fig_rope_op;
FIG_API void fig_rope(fig_program *program, const fig_rope_op *op);

/* k and v are [pages][page_size][kv_heads][head_dim], whatever their layout in memory; where K and
 * V share one pool, they are two tensors bound with strides. page_table is i32 [sequences][pages of
 * a sequence]; where it is absent the cache is dense: page s holds sequence s. A page number
 * outside the cache is read as page 0, and nothing is written to it. An fp8 value is what is stored
 * times its scale; the scales are f32 [1] or [kv_heads], and 1 where absent. */
typedef struct fig_cache {
    fig_tensor k, v, page_table;
    fig_tensor k_scale, v_scale;
    fig_tensor reserved[3]; /* absent */
} fig_cache;

/* Writes k and v of row r, [rows][kv_heads][head_dim], as the last tokens of its sequence, up to
 * token kv_length[r] - 1. A row of length 0 writes nothing. fp8 saturates. */
typedef struct fig_append_kv_op {
    uint32_t size;
    fig_tensor k, v;
    fig_cache cache;
} fig_append_kv_op;
FIG_API void fig_append_kv(fig_program *program, const fig_append_kv_op *op);

/* A query at token p of its sequence sees tokens [max(0, p + 1 - window), p]; the row's last query
 * is at kv_length - 1. A logit is q.k * sm_scale + alibi * (token - p), and with a soft cap
 * soft_cap * tanh(logit / soft_cap). A sink is one more logit that has no value: it counts in the
 * sum of the weights and in lse. A row of length 0 gets zeros, and -inf in lse. Attention does not
 * append: record fig_append_kv before it. */
typedef struct fig_attention_op {
    uint32_t size;
    fig_tensor q, out;       /* [rows][q_heads][head_dim] */
    fig_tensor lse;          /* [rows][q_heads] f32, base 2; absent: not written */
    fig_tensor sinks, alibi; /* [q_heads] f32 */
    fig_cache cache;
    int32_t window; /* 0: all tokens, whatever the spec's window: that is for the standard step */
    float soft_cap; /* 0: none, likewise */
    float sm_scale; /* 0: the spec's */
} fig_attention_op;
FIG_API void fig_attention(fig_program *program, const fig_attention_op *op);

/* fig_rope, fig_append_kv and fig_attention as one node: it costs less and leaves the same in the
 * cache and out, but q and k turned or as they were. Without out: the first two, q and k turned. */
typedef struct fig_decode_attention_op {
    uint32_t size;
    fig_tensor q, k, v, out, lse;
    fig_tensor positions, cos_sin, q_norm, k_norm, sinks, alibi;
    const fig_rope_spec *rope;
    fig_cache cache;
    int32_t window;
    float norm_epsilon, soft_cap, sm_scale;
    const fig_rope_table *rope_table;
} fig_decode_attention_op;
FIG_API void fig_decode_attention(fig_program *program, const fig_decode_attention_op *op);

/* Joins attention over two sets of tokens into attention over both: out is [rows][heads][head_dim],
 * lse, in base 2, [rows][heads]. Where lse is -inf on both sides, the result is zeros and -inf. */
typedef struct fig_merge_states_op {
    uint32_t size;
    fig_tensor out_a, lse_a, out_b, lse_b, out, lse; /* lse absent: not written */
} fig_merge_states_op;
FIG_API void fig_merge_states(fig_program *program, const fig_merge_states_op *op);

/* Foreign work, a GEMM say, done by the callback registered as `call`. What it reads and writes
 * decides when it runs; tag and bytes are stored in the file and handed to the callback. */
typedef struct fig_call_op {
    uint32_t size;
    const char *call;
    const fig_tensor *reads, *writes;
    int32_t read_count, write_count; /* <= 16 each */
    uint64_t tag;
    const void *bytes;
    int32_t byte_count; /* <= 256 */
} fig_call_op;
FIG_API void fig_call(fig_program *program, const fig_call_op *op);

/* ---- Graphs: the program lowered per bucket -------------------------------------------------- */
/* A bucket serves any step of at most `batch` rows and at most batch * kv tokens in all; one
 * sequence may be as long as the spec's kv_limit. Each is lowered in every variant worth having: a
 * variant is what one worker reads at once. Buckets are numbered from 1, in this whole header. */
typedef struct fig_bucket { /* closed */
    int32_t batch, kv;
} fig_bucket;
typedef struct fig_traits { /* the machine that graphs are lowered for */
    uint32_t size;
    char name[16];                  /* "h200", "h100", "a100", "host" */
    int32_t compute_capability;     /* 90 is 9.0; 80 at least; 0: host */
    int32_t sm_count, shared_bytes; /* the last: of one block at most */
} fig_traits;
FIG_API fig_status fig_traits_named(fig_traits *traits, const char *name);
FIG_API const char *fig_traits_name(int32_t index); /* NULL past the last */
typedef struct fig_lower_options {
    uint32_t size;
    const fig_traits *traits;            /* NULL: "host" */
    const fig_bucket *buckets;           /* NULL: powers of two up to the spec's limits */
    int32_t bucket_count, deterministic; /* the last: 1: a row's bits depend on its own length */
} fig_lower_options;

typedef struct fig_graphs fig_graphs; /* immutable; must outlive the engines that use it */
FIG_API fig_status fig_graphs_lower(fig_graphs **graphs, const fig_program *program,
                                    const fig_lower_options *options);
/* Written beside path, fsynced, renamed: path is the old file or the new one, never a part. */
FIG_API fig_status fig_graphs_save(const fig_graphs *graphs, const char *path);
FIG_API fig_status fig_graphs_load(fig_graphs **graphs, const char *path);
FIG_API fig_status fig_graphs_parse(fig_graphs **graphs, const void *bytes, size_t count);
FIG_API void fig_graphs_destroy(fig_graphs *graphs);
typedef struct fig_graphs_info {
    uint32_t size;
    const fig_spec *spec; /* the graphs' own, every default filled in */
    const fig_traits *traits;
    int32_t bucket_count, tensor_count, node_count;
    int32_t relowered_count; /* buckets whose launches differ from those of the file's maker */
    char content_id[65];     /* SHA-256 of what a file of it holds, in hex */
} fig_graphs_info;
FIG_API fig_status fig_graphs_read_info(const fig_graphs *graphs, fig_graphs_info *info);
typedef struct fig_bucket_info {
    uint32_t size;
    fig_bucket bucket;
    int32_t variant, launch_count;
    int32_t heads, tile_tokens, workers;  /* of the first attention; 0 where there is none */
    uint64_t plan_bytes, workspace_bytes; /* bounds that no step exceeds */
} fig_bucket_info;
/* FIG_INVALID: there is no bucket of that number. */
FIG_API fig_status fig_graphs_bucket(const fig_graphs *graphs, int32_t bucket,
                                     fig_bucket_info *info);
/* What an engine with so many slots (0: the default) takes of a device, before one is opened and
 * without what the caller binds. Buckets that need the same launches share an exec; all execs are
 * made once every bucket was prepared. exec_bytes is estimated from a measured figure per node. */
typedef struct fig_memory_info {
    uint32_t size;
    int32_t exec_count;
    uint64_t workspace_bytes, plan_bytes, state_bytes, pinned_bytes, exec_bytes;
    uint64_t token_bytes; /* of the KV cache, one token in all layers: what sizes the pool */
} fig_memory_info;
FIG_API fig_status fig_graphs_memory(const fig_graphs *graphs, int32_t slots,
                                     fig_memory_info *info);
/* The tensors that a caller may bind, in the order recorded; FIG_INVALID past the last. */
FIG_API fig_status fig_graphs_tensor(const fig_graphs *graphs, int32_t index,
                                     fig_tensor_info *info);

/* ---- Step ------------------------------------------------------------------------------------ */
typedef struct fig_step {
    uint32_t size;
    int32_t rows;
    const int32_t *kv_lengths; /* [rows] tokens of the row's sequence, this step's included, so at
                                  least the spec's row_tokens; 0: an idle row. NULL: the program
                                  reads lengths on the device */
    const int32_t *positions;  /* [rows] the position, for RoPE, of the row's last query; at most
                                  2^30, at the end of a horizon too. NULL: kv_length - 1 */
    const int32_t *sequences;  /* [rows] which sequence the row continues; NULL: row r sequence r */
    int64_t token_limit;       /* where lengths are on the device: most tokens in all; 0: any */
    int32_t bucket;            /* 0: the cheapest that fits. Required where a graph of the caller's
                                  launches the step: the bucket that it was captured for */
    int32_t horizon;           /* how many launches the step is for; 0: 1. From each launch to the
                                  next, rows that are not idle grow by the spec's row_tokens, on the
                                  device; the caller has given the pages for all. The split is that
                                  of the last. Lengths on the device do not grow: each reads them */
    const int32_t *row_tokens; /* [rows] how many of the row's queries are tokens, the last ones, 1
                                  to the spec's row_tokens; NULL: all. The others mean nothing: they
                                  are computed but not appended or counted. With a horizon of 1 */
} fig_step;

/* What planning a step would do; nothing runs. */
typedef struct fig_plan_report {
    uint32_t size;
    int32_t bucket, workers, tile_tokens, heads; /* the first: what the step would take */
    int64_t tiles;                               /* on the line */
    int32_t tiles_most, tiles_least, partials, partial_limit; /* the first two: of any worker */
    uint64_t plan_bytes, plan_bytes_limit;
    int32_t *worker_tiles; /* in: the caller's, may be NULL; filled up to worker_capacity */
    int32_t worker_capacity;
} fig_plan_report;
FIG_API fig_status fig_graphs_plan(const fig_graphs *graphs, const fig_step *step,
                                   fig_plan_report *report);

/* ---- Engine ---------------------------------------------------------------------------------- */
typedef uint32_t fig_device;
/* AUTO: cuda; host where there is no driver or no GPU at all, and no ordinal or stream is given. */
enum { FIG_DEVICE_AUTO = 0, FIG_DEVICE_HOST, FIG_DEVICE_CUDA };

/* A stream is given by the address of its CUstream, since 0 is a CUstream: the device's default
 * stream. It is of the primary context of the engine's GPU; the host has none but the engine's. */
#define FIG_STREAM_OWN NULL /* no address: the engine's own stream */

/* Memory that a caller lends: `bytes` of them, 256-byte aligned; pinned: mapped as well. */
typedef uint32_t fig_memory;
enum { FIG_MEMORY_DEVICE = 0, FIG_MEMORY_PINNED };
typedef struct fig_allocation {
    uint32_t size;
    fig_memory kind;
    uint64_t bytes;
    void *device, *host; /* allocate fills them in; host: of pinned memory alone */
} fig_allocation;
typedef int32_t (*fig_memory_callback)(void *user, fig_allocation *allocation);

typedef struct fig_engine_options {
    uint32_t size;
    fig_device device;
    int32_t slots;       /* depth of the plan ring, 2..64; 0: 4 */
    int32_t busy_us;     /* how long stage may wait for a slot; 0: FIG_BUSY at once */
    int32_t ordinal;     /* cuda: which GPU, as the driver counts them */
    void *const *stream; /* cuda: the stream to run on, the caller's, open longer than the engine;
                            FIG_STREAM_OWN: one that the engine opens */
    int32_t check_plans; /* 1: each plan carries a checksum, and a launch that finds another on the
                            device runs no rows, which is a fault (FIG_DRIVER) */
    int32_t numa_node;   /* where the ring lies: node numa_node - 1; 0: the GPU's; -1: any */
    fig_memory_callback allocate, release; /* all memory of the engine's, with the GPU's context
                            current; other than 0 from allocate: FIG_NOMEM. NULL: the device's */
    void *memory_user;
    struct fig_ranks *ranks; /* of figraph_ranks.h, open longer than the engine; NULL: none */
    const struct fig_trust *trust; /* in a file's kernels, figraph_archive.h; NULL: our own */
    const struct fig_test_options *test; /* for tests alone, of figraph_unstable.h; NULL: none */
} fig_engine_options;

typedef struct fig_engine fig_engine;
FIG_API fig_status fig_engine_open(fig_engine **engine, const fig_graphs *graphs,
                                   const fig_engine_options *options);
/* Waits for steps in flight, takes back what is staged, and frees all that the engine allocated. A
 * graph of the caller's that holds segments of it may live on, and even be launched: it runs no
 * rows; what it reads is kept until the process ends. FIG_LOST from any call: this process is a
 * child forked from the one that opened the engine, and nothing is freed. */
FIG_API fig_status fig_engine_close(fig_engine *engine);
/* The same if the steps end in time, as of wait; FIG_TIMEOUT: the engine is as it was. */
FIG_API fig_status fig_engine_close_within(fig_engine *engine, int64_t timeout_us);
FIG_API fig_device fig_engine_device(const fig_engine *engine); /* what AUTO became */
FIG_API fig_status fig_engine_read_traits(const fig_engine *engine, fig_traits *traits);
/* Binds the calling thread to the cores beside the device, or beside the node that numa_node names,
 * as far as it may run there. FIG_UNSUPPORTED: this system does not tell which, or forbids it. */
FIG_API fig_status fig_engine_bind_thread(const fig_engine *engine);
/* Gives a tensor its memory. Memory of the caller's stays so, and lives until close or the next
 * bind of that name; it is aligned to 16 bytes and holds every row, or whole pages. The next stage
 * is the first to use it: steps in flight keep the old address. A refusal changes nothing. */
typedef struct fig_binding {
    uint32_t size;
    const char *name;
    void *address; /* NULL: the engine allocates `bytes`, zeroed, and owns them */
    uint64_t bytes;
    int64_t strides[4]; /* in elements; all 0: row-major. The last is 1, that of a dim of 1 any */
} fig_binding;
FIG_API fig_status fig_engine_bind(fig_engine *engine, const fig_binding *binding);
/* Blocking copies between host memory and a bound tensor, after all steps launched so far. */
typedef struct fig_span {
    uint32_t size;
    const char *name;
    uint64_t offset, bytes;
} fig_span;
FIG_API fig_status fig_engine_write(fig_engine *engine, const fig_span *span, const void *from);
FIG_API fig_status fig_engine_read(fig_engine *engine, const fig_span *span, void *to);

/* Entries [first, first + count) of a sequence's row in a page table. They are read before return.
 * Every step staged after the call sees them, and no step launched before it does: a few travel
 * with the next plan, many are copied ahead of it on the engine's stream. */
typedef struct fig_pages {
    uint32_t size;
    int32_t sequence, first, count;
    const int32_t *pages; /* [count] */
    const char *table;    /* NULL: every page table of the program */
} fig_pages;
FIG_API fig_status fig_engine_set_pages(fig_engine *engine, const fig_pages *pages);

/* On the host a callback runs in every step, on the device's thread, and does the work itself: it
 * reads and writes rows [0, rows). On cuda it runs once for all buckets that need the same
 * launches, when the first is prepared, and enqueues work for all rows of `bucket`, the largest, on
 * `stream`, which is capturing; a programmatic launch begins early, so its blocks wait before they
 * end. Other than 0 fails the step, or the prepare. It may call any engine but its own. */
typedef struct fig_call_args {
    uint32_t size;
    fig_device device;
    void *stream; /* CUstream; host: NULL */
    fig_bucket bucket;
    int32_t rows;
    uint64_t tag;
    const void *bytes;
    int32_t byte_count;
    const void *const *reads; /* addresses in the order recorded */
    void *const *writes;
} fig_call_args;
typedef int32_t (*fig_callback)(void *user, const fig_call_args *args);
FIG_API fig_status fig_engine_register(fig_engine *engine, const char *call, fig_callback callback,
                                       void *user);

/* Makes a bucket launchable with what is bound; 0: every bucket. FIG_UNBOUND names what is missing.
 * FIG_INVALID: an output lies on another tensor. FIG_ORDER: a step staged before the bind still
 * waits for its launch. Where the caller did not, stage does it for the bucket that it needs and
 * takes milliseconds. Once a prepare, stage or append has followed a bind, one more thread may call
 * this while the engine's own runs steps, and nothing is bound, registered or closed meanwhile;
 * neither waits for a bucket that it does not need, unless for a callback. */
FIG_API fig_status fig_engine_prepare(fig_engine *engine, int32_t bucket);

/* stage chooses the bucket, plans and writes a slot; arrays are read before return. launch replays
 * the step that was staged longest ago. step does both or, where it fails, neither. FIG_BUSY: wait,
 * then call again. FIG_ORDER from launch: nothing is staged. */
FIG_API fig_status fig_engine_stage(fig_engine *engine, const fig_step *step);
FIG_API fig_status fig_engine_launch(fig_engine *engine);
FIG_API fig_status fig_engine_step(fig_engine *engine, const fig_step *step);
/* Takes back the step that was staged last, or the launches left of its horizon; pages that it
 * carried travel with the next step. FIG_ORDER: nothing is staged. If you launched a graph of your
 * own for it, wait for that graph before you call. */
FIG_API fig_status fig_engine_take_back(fig_engine *engine);

/* The engine's stream, a CUstream; host: NULL. All that an engine does happens in its order. */
FIG_API void *fig_engine_stream(const fig_engine *engine);
/* Orders a stream of the caller's, a CUstream by value, and the engine's; neither makes the host
 * wait. wait_for: what the engine launches later comes after all that is on `stream` now. signal:
 * what is put on `stream` later comes after all that the engine has launched. FIG_ORDER: one of the
 * two captures. On the host `stream` is NULL, the calling thread, and signal waits. */
FIG_API fig_status fig_engine_wait_for(fig_engine *engine, void *stream);
FIG_API fig_status fig_engine_signal(fig_engine *engine, void *stream);

/* For callers who capture graphs of their own. Enqueues a segment on a stream of the caller's. If
 * that stream is capturing, the segment becomes part of the graph; otherwise it runs, in the order
 * of the engine's stream. Launch such a graph on the engine's stream, or on another stream between
 * fig_engine_signal and fig_engine_wait_for: otherwise neither waits for the other. The segment
 * "fetch" is the engine's own and comes first in a graph, or in a step: it takes the plan that was
 * staged longest ago, for all segments behind it. Before each launch of the graph stage a step with
 * the graph's bucket. The graph keeps the addresses that it was captured with, so while it lives
 * its tensors cannot be bound again (FIG_ORDER). */
typedef struct fig_append {
    uint32_t size;
    const char *segment; /* NULL: "fetch" and every node */
    int32_t bucket;      /* required */
    void *const *stream; /* FIG_STREAM_OWN: the engine's */
} fig_append;
FIG_API fig_status fig_engine_append(fig_engine *engine, const fig_append *append);

/* Waits until every step launched has ended, and returns the first fault since the last wait, once.
 * FIG_TIMEOUT: some still run; a timeout below 0 has no end. poll tells the next wait's fault. */
FIG_API fig_status fig_engine_wait(fig_engine *engine, int64_t timeout_us);
typedef struct fig_progress {
    uint32_t size;
    int64_t staged, launched, completed; /* launches asked for, made and ended, since open */
    fig_status fault;
} fig_progress;
FIG_API fig_status fig_engine_poll(fig_engine *engine, fig_progress *progress);

/* ---- What it costs --------------------------------------------------------------------------- */
/* Times in ns, in bins that are an eighth of their octave wide. All zero, it is empty. */
enum { FIG_HISTOGRAM_BINS = 256 };
typedef struct fig_histogram { /* closed */
    int64_t count, sum, least, most;
    int64_t bins[FIG_HISTOGRAM_BINS];
} fig_histogram;
/* For times of the caller's own, to the first token say, that are told beside the engine's. */
FIG_API void fig_histogram_add(fig_histogram *histogram, int64_t ns);
/* The time that `percent` of all times do not exceed, to an eighth; 0 where there are none. */
FIG_API int64_t fig_histogram_percentile(const fig_histogram *histogram, double percent);
typedef struct fig_engine_stats {
    uint32_t size;
    int64_t staged, launched, taken_back; /* steps; launches; steps of those staged */
    int64_t busy, missed;               /* refused for want of a slot; launches that ran no rows */
    int64_t reused_splits;              /* steps whose split the device had */
    int64_t uploaded_bytes, page_bytes; /* in plans, with pages that they carry; pages ahead */
    int64_t prepares, patched_launches; /* bindings taken up; launches that were patched */
    int32_t exec_count, last_bucket;    /* made so far; of the step staged last, 0 before it */
    uint64_t workspace_bytes, owned_bytes, pinned_bytes, exec_bytes; /* the last: estimated */
    fig_histogram host;   /* of each step: the time in stage and launch */
    fig_histogram period; /* from a launch to the next */
} fig_engine_stats;
/* At any time and from any thread; of a step being staged some counters may be ahead of others. */
FIG_API fig_status fig_engine_read_stats(const fig_engine *engine, fig_engine_stats *stats);

#ifdef __cplusplus
}
#endif
#endif

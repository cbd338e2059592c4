/* figraph.h: plan, record, save, restore and replay the fixed-shape part of an LLM decode step.
 *
 * libfigraph runs the operations of a decode step whose shapes never change: RoPE, the append to
 * the KV cache, attention and the activation. Matrix products, weights and sampling remain the
 * caller's task. Five kinds of objects build on each other:
 *
 *     fig_spec      the fixed shape: heads, head_dim, dtype, page size, limits
 *     fig_program   the step, recorded once: tensors and nodes, without addresses
 *     fig_graphs    the program lowered for each bucket; the contents of a .fig file
 *     fig_engine    graphs made launchable on a device, with tensors bound
 *     fig_step      the numbers that change per token: how many rows, and the length of each
 *
 * Simple use: load a file, open an engine, bind each tensor; then step once per token.
 *
 *     fig_tensor_info tensor = {.size = sizeof tensor};
 *     fig_graphs_load(&graphs, "tutorial.fig");
 *     fig_engine_open(&engine, graphs, NULL); // the GPU if there is one, else the CPU
 *     for (int i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++)
 *         fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = tensor.name,
 *                                             .address = addresses[i], .bytes = bytes[i]));
 *     fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .count = 1, .pages = &page));
 *     for (length = 1; length <= 16; length++) {
 *         fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length));
 *         fig_engine_wait(engine, 1000000); // at most one second; then out.0 can be read
 *     }
 *     fig_engine_close(engine);
 *     fig_graphs_destroy(graphs);
 *
 * To make such a file, record the standard step of a spec:
 *
 *     fig_spec spec = {.size = sizeof spec};
 *     fig_spec_preset(&spec, "tutorial");
 *     fig_program_create(&program, &spec);
 *     fig_program_decode_step(program);
 *     fig_program_finish(program);
 *     fig_graphs_lower(&graphs, program, NULL); // for the host; for a GPU, set options.traits
 *     fig_graphs_save(graphs, "tutorial.fig");
 *
 * Errors: every function that can fail returns fig_status and leaves one sentence in fig_message().
 * Every output argument is set on every path. Functions named close or destroy accept NULL. No call
 * of this header prints, ends the process or reads the environment.
 *
 * Addresses: an address is a device pointer as void *. On the host device it is a host pointer.
 *
 * Threads: one thread at a time may use an object. Different engines may run on different threads
 * and share one fig_graphs. A callback runs inside the call that received it, on the same thread.
 * The callbacks of fig_engine_register are an exception: fig_callback describes when and where they
 * run. No callback may call the engine that called it. */
#ifndef FIGRAPH_H
#define FIGRAPH_H

#include <stddef.h>
#include <stdint.h>

/* Most structs begin with their size, so that later versions can add fields at the end. The caller
 * sets the size, even in structs that a call fills in. In every field zero means the default, and
 * reserved fields must be zero. Structs without a size are embedded in others. Such a struct either
 * has reserved fields, or is marked "Closed" and never gains a field.
 *
 * In C, FIG_OPTIONS(fig_step, .rows = 1) is a pointer to a struct that has its size set, for use in
 * one call. In C++, auto step = fig_options<fig_step>(); makes the same struct, and the caller
 * assigns its fields. */
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
#define FIG_VERSION 200 /* major * 10000 + minor * 100 + patch */

/* ---- Status ---------------------------------------------------------------------------------- */
/* The tens digit of a status tells the caller what to do:
 *
 *     10 to 19    change the call: an argument is wrong, or the call comes at a wrong moment
 *     20 to 29    repeat the call later: it changed nothing and may then succeed
 *     30 to 39    replace the file: it cannot be read, written or used
 *     40 to 49    look at the machine: memory, driver or device refused
 *     50 to 59    report a bug: libfigraph itself is at fault
 *
 * No status ever ends the process. */
typedef uint32_t fig_status;
enum {
    FIG_OK = 0,

    /* A field is wrong. The sentence names the field, its value and the limit. */
    FIG_INVALID = 10,
    /* The call is correct but comes at the wrong moment. The sentence says when it may be made. */
    FIG_ORDER = 11,
    /* A size exceeds a limit of the spec, or no bucket is large enough for it. */
    FIG_TOO_LARGE = 12,
    /* The step needs a tensor or a callback that the caller has not given. */
    FIG_UNBOUND = 13,
    /* The request is valid, but this library cannot serve it. */
    FIG_UNSUPPORTED = 14,
    /* A callback returned a value other than 0. */
    FIG_CALLBACK = 15,

    /* Every slot is in flight, or the next plan has no room for the changed page-table entries.
     * Launch the staged steps, or wait for one to end, then call again. */
    FIG_BUSY = 20,
    /* The work that the call waited for is still running. */
    FIG_TIMEOUT = 21,

    /* Opening, reading, writing, syncing or renaming a file failed. */
    FIG_IO = 30,
    /* The file is not a .fig file, or it is damaged. */
    FIG_FORMAT = 31,
    /* The file is sound, but this library cannot use it: make a new file with this library. */
    FIG_STALE = 32,

    /* Host or device memory ran out. */
    FIG_NOMEM = 40,
    /* There is no driver or no such device, or the driver is too old. */
    FIG_NO_DEVICE = 41,
    /* The device refused a call. The engine is still usable. */
    FIG_DRIVER = 42,
    /* The device, the group of ranks or the process that owns the engine is gone for good. The
     * engine can only be closed. */
    FIG_LOST = 43,

    /* libfigraph found one of its own invariants broken. The sentence names the invariant: please
     * report it. The call failed: close or destroy the object that it was made on. The process can
     * continue. */
    FIG_FAULT = 50
};

/* Returns 1 for any status from 20 to 29, including those that a newer library adds; else 0. */
FIG_API int32_t fig_status_is_retryable(fig_status status);
/* Returns the name of a status, such as "FIG_BUSY". The text is static. */
FIG_API const char *fig_status_name(fig_status status);
/* Returns the sentence of the calling thread's last failure, or "" if it had none. The text is
 * valid until the next failure on this thread. */
FIG_API const char *fig_message(void);
/* Returns the FIG_VERSION that the library was built with. */
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

/* RoPE rotates pair i of a head at position p by the angle p * theta^(-2i / rotary_dim) / scale.
 * figraph_rope.h describes the effect of the llama3_* fields. Its functions also turn every other
 * kind of scaling into a fig_rope_table, whose frequencies replace those of this formula. */
typedef struct fig_rope_spec {
    /* 0: pairs are NeoX halves, (i, i + d/2). 1: pairs are neighbours, (2i, 2i + 1). */
    int32_t interleaved;
    /* d: the first rotary_dim elements of each head are rotated. 0: all of head_dim. */
    int32_t rotary_dim;
    /* The base of the frequencies. 0: 10000. */
    float theta;
    /* Linear scaling: every frequency is divided by this number. 0: 1. */
    float scale;
    /* Llama 3 scaling: the frequencies of long waves are divided by this number, which is at least
     * 1. 0: no such scaling; the next three fields must then be 0 too. */
    float llama3_factor;
    /* Llama 3 scaling: a wave longer than llama3_context / llama3_low counts as long. */
    float llama3_low;
    /* Llama 3 scaling: waves shorter than llama3_context / llama3_high stay as they are. */
    float llama3_high;
    /* Llama 3 scaling: the context, in tokens, that the model was first trained with. */
    int32_t llama3_context;
    uint32_t reserved[4]; /* 0 */
} fig_rope_spec;

/* Explicit frequencies. Closed. */
typedef struct fig_rope_table {
    /* [rotary_dim / 2] Radians per position for each pair. All 0: there is no table. */
    double frequencies[128];
    /* Multiplies every cosine and sine. 0: 1. */
    double factor;
} fig_rope_table;

typedef uint32_t fig_activation;
enum {
    FIG_SILU = 0,
    FIG_GELU,
    FIG_GELU_TANH,
    FIG_SWIGLU_LIMITED /* gpt-oss; see fig_swiglu_limited */
};

/* The order of a KV cache in memory. */
typedef uint32_t fig_kv_layout;
enum {
    FIG_NHD = 0, /* [pages][page_size][kv_heads][head_dim] */
    FIG_HND      /* [pages][kv_heads][page_size][head_dim] */
};

/* The fixed shape of a step. Start from fig_spec_preset or fig_spec_read_config, or fill the fields
 * by hand; fields that stay 0 take their defaults. */
typedef struct fig_spec {
    uint32_t size; /* sizeof(fig_spec) */
    /* The dtype of activations: FIG_F32, FIG_F16 or FIG_BF16. */
    fig_dtype dtype;
    /* The dtype of the KV cache. 0: dtype. The fp8 types need FIG_F16 or FIG_BF16 activations. */
    fig_dtype kv_dtype;
    /* The number of layers. 0: 1. */
    int32_t layers;
    /* The number of query heads. If q_heads, kv_heads and head_dim are all 0, the program works row
     * by row and has no cache. */
    int32_t q_heads;
    /* The number of KV heads. */
    int32_t kv_heads;
    /* Elements of each head. */
    int32_t head_dim;
    /* Columns of the activation's output. 0: the step has no activation. */
    int32_t ffn_width;
    /* The function that is applied to the gate, before the gate is multiplied by up. */
    fig_activation activation;
    /* Tokens per page. 0: the cache is dense and holds kv_limit tokens for each sequence. */
    int32_t page_size;
    /* The order of the cache in memory. */
    fig_kv_layout kv_layout;
    /* For fp8 caches. 0: one scale per tensor. 1: one scale per KV head. */
    int32_t kv_scales;
    /* The largest number of rows in a step. A spec without heads may leave it 0, which means 1. */
    int32_t batch_limit;
    /* The largest number of tokens in a sequence. A spec without heads may leave it 0, which means
     * 1. */
    int32_t kv_limit;
    /* The largest number of sequences that the cache holds at once. 0: batch_limit. */
    int32_t sequence_limit;
    /* The number of query tokens of each row, 1 to 16. In a packed program, the largest number of
     * query tokens that a row may have, 1 to 4096. A row's query tokens are the last tokens of its
     * sequence. 0: 1. */
    int32_t row_tokens;
    /* Caps logits at soft_cap * tanh(logit / soft_cap). 0: no cap. */
    float soft_cap;
    /* The number of tokens that a query sees, including its own. 0: all. */
    int32_t window;
    /* If bit l is set, layer l has the window. If no bit is set, all layers have the window. Bit l
     * is bit l % 64 of element l / 64. */
    uint64_t window_layers[8];
    /* The factor of q.k in a logit. 0: 1 / sqrt(head_dim). */
    float sm_scale;
    /* The epsilon of an RMSNorm over each q and k head before RoPE. 0: there is no such norm. */
    float qk_norm_epsilon;
    /* The RoPE of all layers, except those that plain_layers or window_rope applies to. */
    fig_rope_spec rope;
    /* Rows of gate_up.N and act.N per token: in a mixture of experts, one per chosen expert. 0:
     * 1. */
    int32_t ffn_rows;
    /* 1: attention reads the sinks of layer N from the tensor sinks.N. 0: no sinks. */
    int32_t sinks;
    /* If bit l is set, layer l has no RoPE: its q and k stay as they are. */
    uint64_t plain_layers[8];
    /* Explicit frequencies, which replace those of `rope`. All 0: none. */
    fig_rope_table rope_table;
    /* The RoPE of the layers that have the window. If this field and window_table are all 0, those
     * layers use `rope` and rope_table. */
    fig_rope_spec window_rope;
    /* Explicit frequencies, which replace those of window_rope. All 0: none. */
    fig_rope_table window_table;
    /* Above 0, the program is packed: each row of a step has 0 to row_tokens query tokens, and
     * fig_step.query_counts gives the number for each row. This field then limits the query tokens
     * of all rows together. q, k, v, out and all other tensors of query tokens have dims[0]
     * FIG_DIM_QUERIES: the tokens of row 0 come first, directly followed by those of row 1, and so
     * on. If row_tokens is above 8, or above 16 where the device reads the lengths, a row may be a
     * chunk of a prompt. One kernel then computes attention for the rows that have more than 8
     * query tokens, and another kernel for all other rows. If latent_dim is not 0, no row is a
     * chunk. 0: every row has row_tokens query tokens. */
    int64_t query_limit;
    /* 512: attention is latent (MLA). The cache then holds one vector of head_dim values for each
     * token, and all heads share this vector. The first latent_dim values of the vector are V. RoPE
     * rotates the remaining values of the vector, and the corresponding values of each q head.
     * kv_heads must be 1, head_dim 576, q_heads a multiple of 8 up to 128, row_tokens at most 16,
     * and sm_scale must be given; soft_cap and qk_norm_epsilon must be 0. kv_dtype may be FIG_E4M3:
     * the cache then has the scales that fig_latent_decode describes, and kv_scales must be 0. 0:
     * each KV head has its own K and V. */
    int32_t latent_dim;
    /* The epsilon of an RMSNorm over the latent of each new token. 0: there is no such norm. */
    float latent_norm_epsilon;
    /* The number of layers at the front that have no experts: their gate_up.N and act.N have one
     * row for each token, of dense_width columns. 0: all layers are alike. */
    int32_t dense_layers;
    /* The ffn_width of the dense layers. 0 where dense_layers is 0. */
    int32_t dense_width;
} fig_spec;

/* Fills *spec for a model by name: "tutorial", "llama-3.1-8b" and so on. FIG_INVALID: the name is
 * unknown; the sentence lists the known ones. */
FIG_API fig_status fig_spec_preset(fig_spec *spec, const char *name);
/* Returns the name of preset `index`, from 0, or NULL past the last. The text is static. */
FIG_API const char *fig_spec_preset_name(int32_t index);

/* Overwrites every field of *spec that a Hugging Face config.json gives. All other fields keep the
 * values that they have in *spec: page size, limits and so on. If kv_limit is 0, it becomes the
 * file's max_position_embeddings, but at most 1,048,576. If you need another limit, set kv_limit
 * before this call, because the RoPE of some models depends on it. A file with
 * quantization_config.kv_cache_scheme also sets kv_dtype and kv_scales.
 *
 * A failure leaves *spec unchanged. FIG_INVALID, FIG_UNSUPPORTED: the sentence names the field that
 * is missing, unknown or not supported, or says where the file is not valid JSON. FIG_IO: the file
 * cannot be read.
 *
 * A few models need work that is not part of a step. Before the step, the caller of such a model
 * applies clip_qkv, or norms over all heads at once (olmo2, olmo3, olmoe). Beside the step, the
 * caller applies the activation of a shared expert (qwen2_moe), or an activation without a gate
 * (arcee; its ffn_width is 0). A sequence with images has fewer positions than tokens, so the
 * caller gives fig_step.positions. */
FIG_API fig_status fig_spec_read_config(fig_spec *spec, const char *path);

/* Options of fig_spec_read_config_with. */
typedef struct fig_config_options {
    uint32_t size; /* sizeof(fig_config_options) */
    /* The dtype of activations; it overrides the file's. 0: the file's dtype is used, and a file
     * without a dtype is refused. */
    fig_dtype dtype;
    /* [ignored_count] Names of fields that the library does not know. By giving a name, the caller
     * asserts that the field does not affect a step; the library then accepts files with this
     * field. A name applies to the fields of that name in all JSON objects of the file.
     * FIG_INVALID: the library does use a field of that name. */
    const char *const *ignored;
    /* The number of names in `ignored`. */
    int32_t ignored_count;
} fig_config_options;
/* Does the work of fig_spec_read_config with options, which may be NULL. */
FIG_API fig_status fig_spec_read_config_with(fig_spec *spec, const char *path,
                                             const fig_config_options *options);

/* ---- Program: record a step once ------------------------------------------------------------- */
/* A tensor is memory, not a value: a node may overwrite a tensor that an earlier node wrote. Nodes
 * run as if in recorded order. Two nodes may run side by side if they share no tensor, or only read
 * the ones that they share. */
typedef struct fig_program fig_program;

/* A tensor of a program. Closed. */
typedef struct fig_tensor {
    uint32_t id; /* 0: the tensor is absent */
} fig_tensor;

typedef uint32_t fig_role;
enum {
    /* The engine owns the memory, and the contents are valid within one step only. */
    FIG_ROLE_TEMP = 0,
    /* The caller owns the memory and binds it by name before the first step. */
    FIG_ROLE_BOUND,
    /* The engine owns the memory, unless the caller binds memory of its own. Memory that the engine
     * owns starts as zeros. The contents survive from step to step. */
    FIG_ROLE_STATE
};

/* dims[0] may be one of these symbols instead of a number. A tensor may have more rows than the
 * step. A node may read rows beyond those of the step, but no result of the step depends on such
 * rows. A node may also overwrite such rows in its outputs, but never in a KV cache. After a step,
 * the contents of such rows are unspecified. */
#define FIG_DIM_BATCH (-1) /* rows: memory for batch_limit rows serves every bucket */
#define FIG_DIM_PAGES (-2) /* pages: as many as the bound bytes hold */
/* query tokens of a packed program: memory for query_limit tokens serves every bucket */
#define FIG_DIM_QUERIES (-3)

typedef struct fig_tensor_info {
    uint32_t size; /* sizeof(fig_tensor_info) */
    /* A unique name of the characters [A-Za-z0-9._-]. */
    const char *name;
    /* Who owns the memory, and how long its contents live. */
    fig_role role;
    /* The type of the elements. */
    fig_dtype dtype;
    /* The number of dims, 1 to 4. */
    int32_t rank;
    /* [rank] The extent of each dim. dims[0] may be FIG_DIM_BATCH, FIG_DIM_PAGES or, in a packed
     * program, FIG_DIM_QUERIES. */
    int64_t dims[4];
    /* If dims[0] is a symbol, the extent is this many times the number of rows, pages or query
     * tokens that the symbol stands for. 0: 1. */
    int32_t multiple;
    /* FIG_HND: dims 1 and 2 are swapped in memory; `dims` itself stays in the order of FIG_NHD. */
    fig_kv_layout layout;
} fig_tensor_info;

/* Begins to record a program for a spec, which is copied. The caller owns *program and frees it
 * with fig_program_destroy. FIG_INVALID: a field of the spec is wrong. */
FIG_API fig_status fig_program_create(fig_program **program, const fig_spec *spec);
/* Frees a program. Graphs that were lowered from the program have their own copy of it. */
FIG_API void fig_program_destroy(fig_program *program);

/* Recording is sticky: the program keeps the first failure; after it, calls do nothing and return
 * absent tensors. So only fig_program_finish needs a check. */

/* Declares a tensor and returns it. *info and its name are copied. */
FIG_API fig_tensor fig_program_tensor(fig_program *program, const fig_tensor_info *info);
/* Returns the tensor of that name, or an absent one if there is none. */
FIG_API fig_tensor fig_program_find(const fig_program *program, const char *name);
/* Labels the nodes recorded after this call with a layer. -1: the nodes get no layer. */
FIG_API void fig_program_layer(fig_program *program, int32_t layer);
/* Begins a segment of that name. It holds all nodes that are recorded before the next call of
 * fig_program_segment. NULL: the nodes that follow belong to no segment. Each name may be used
 * once. See fig_engine_append. */
FIG_API void fig_program_segment(fig_program *program, const char *name);
/* Ends recording and freezes the program. Returns the first failure of the recording, or FIG_OK.
 * Call it once. */
FIG_API fig_status fig_program_finish(fig_program *program);

/* Records the standard step. For each layer N, in this order:
 *
 *     act.N      the spec's activation of gate_up.N; only if the spec has ffn_width
 *     q.N, k.N   in place: with qk_norm_epsilon, normalised by q_norm.N and k_norm.N; then rotated
 *     k.N, v.N   appended to k_cache.N and v_cache.N; in fp8, scaled by k_scale.N and v_scale.N
 *     out.N      attention of q.N over that cache, with sinks.N if the spec has sinks
 *
 * All of these tensors are FIG_ROLE_BOUND. If the spec has pages, the tensor page_table is
 * FIG_ROLE_STATE. If only some layers have the window, those layers read page_table.window instead,
 * also FIG_ROLE_STATE, so that the caller can reuse the pages behind the window. The activation is
 * the segment act.N; the operations of the other three lines form the segment attn.N. */
FIG_API void fig_program_decode_step(fig_program *program);
/* Does the same for a spec whose latent_dim is 512, but with q of each layer in two tensors: q.N
 * has the first 512 values of each head, and q_rope.N the last 64. FIG_INVALID, from
 * fig_program_finish: latent_dim is 0. */
FIG_API void fig_program_decode_step_parts(fig_program *program);

/* Makes steps read their lengths from device memory, for callers whose host does not know the
 * lengths. The device then also splits the work among workers. `lengths` is i32 [rows]. `positions`
 * is i32 [rows]; absent: each position is length - 1. Call this once, before any node is recorded.
 * A row whose length lies outside [0, kv_limit] is idle. See fig_step.token_limit. */
FIG_API void fig_program_read_lengths(fig_program *program, fig_tensor lengths,
                                      fig_tensor positions);
/* Does the work of fig_program_read_lengths for a packed program; the device then also reads the
 * number of each row's query tokens. `query_starts` is i32 [batch_limit + 1], like the
 * query_start_loc of serving engines: query_starts[0] is 0, and row r has the query tokens from
 * query_starts[r] up to query_starts[r + 1]. If the difference of these two entries is negative or
 * above row_tokens, the row has no query tokens. A row whose length is smaller than its number of
 * query tokens is idle. */
FIG_API void fig_program_read_queries(fig_program *program, fig_tensor lengths,
                                      fig_tensor positions, fig_tensor query_starts);

/* Each function below records one node. The options are read before the call returns. If an
 * optional tensor is absent, the operation does without that operand. */

/* out[r][c] = activation(in[r][c]) * in[r][width + c] */
typedef struct fig_gated_op {
    uint32_t size; /* sizeof(fig_gated_op) */
    /* [rows][2 * width] Each row has `width` values of the gate, then `width` values of up. */
    fig_tensor in;
    /* [rows][width] */
    fig_tensor out;
} fig_gated_op;
/* Computes silu, x / (1 + exp(-x)). */
FIG_API void fig_silu_and_mul(fig_program *program, const fig_gated_op *op);
/* Computes gelu with erf. */
FIG_API void fig_gelu_and_mul(fig_program *program, const fig_gated_op *op);
/* Computes the tanh approximation of gelu. */
FIG_API void fig_gelu_tanh_and_mul(fig_program *program, const fig_gated_op *op);
/* Computes the activation of gpt-oss, g / (1 + exp(-1.702 g)) * (u + 1). g is the gate, capped at
 * 7; u is the up value, clamped to [-7, 7]. */
FIG_API void fig_swiglu_limited(fig_program *program, const fig_gated_op *op);

/* out = in / sqrt(mean(in^2) + epsilon) * (weight + weight_offset) */
typedef struct fig_rms_norm_op {
    uint32_t size; /* sizeof(fig_rms_norm_op) */
    /* [rows][width] */
    fig_tensor in;
    /* [width] */
    fig_tensor weight;
    /* [rows][width] May be the same tensor as `in`. */
    fig_tensor out;
    /* [rows][width] For fig_add_rms_norm only, which updates it in place. */
    fig_tensor residual;
    /* 0: 1e-6. */
    float epsilon;
    /* Added to every weight: 1 for gemma. */
    float weight_offset;
} fig_rms_norm_op;
/* Normalises `in`. */
FIG_API void fig_rms_norm(fig_program *program, const fig_rms_norm_op *op);
/* Adds `in` to `residual`, rounds the sum to the dtype, and normalises the rounded sum. */
FIG_API void fig_add_rms_norm(fig_program *program, const fig_rms_norm_op *op);

/* If the spec's row_tokens is above 1, the dim [rows] of q, k, v and out counts query tokens, here
 * and in the operations below. Token t of row r has the index r * row_tokens + t. Its position is
 * the position of the row's last token minus (row_tokens - 1 - t).
 *
 * In a packed program (fig_spec.query_limit), [rows] means FIG_DIM_QUERIES instead. Row r then has
 * n = query_counts[r] tokens, which follow the tokens of all earlier rows. The position of token t
 * of the row is the position of the row's last token minus (n - 1 - t). An operation that reads no
 * positions and no cache (an activation, a norm, fig_merge_states, a collective) accepts tensors
 * with FIG_DIM_BATCH or FIG_DIM_QUERIES in dims[0]. */
typedef struct fig_rope_op {
    uint32_t size; /* sizeof(fig_rope_op) */
    /* [rows][q_heads][head_dim] */
    fig_tensor q;
    /* [rows][kv_heads][head_dim] */
    fig_tensor k;
    /* The shape of q. Absent: q is rotated in place. */
    fig_tensor q_out;
    /* The shape of k. Absent: k is rotated in place. */
    fig_tensor k_out;
    /* [rows] i32 or i64. Absent: the positions of fig_step. */
    fig_tensor positions;
    /* [n + 1] i32 or i64. If rows are packed in n segments, indptr and `offsets` replace
     * `positions`: row indptr[i] + j has position offsets[i] + j. A row outside every segment is
     * unchanged. */
    fig_tensor indptr;
    /* [n] Same dtype as indptr. The position of each segment's first row. */
    fig_tensor offsets;
    /* [positions][rotary_dim] f32. The cosines of a position, then its sines. A position outside
     * the table reads the nearest entry. Absent: cosines and sines are computed. */
    fig_tensor cos_sin;
    /* [head_dim] The weights of an RMSNorm of each q head before its rotation. Absent: no norm. */
    fig_tensor q_norm;
    /* [head_dim] The weights of the same norm for each k head. Give both norms or neither. */
    fig_tensor k_norm;
    /* The epsilon of both norms. 0: the spec's qk_norm_epsilon, or 1e-6 if that is 0. */
    float norm_epsilon;
    /* The kind of RoPE. NULL: the spec's `rope` and rope_table. */
    const fig_rope_spec *rope;
    /* Explicit frequencies, which replace those of `rope`. NULL: none. */
    const fig_rope_table *rope_table;
} fig_rope_op;
/* Rotates q and k by their positions, after the norms of their heads if there are any. */
FIG_API void fig_rope(fig_program *program, const fig_rope_op *op);

/* A KV cache, as an operand of the operations below. */
typedef struct fig_cache {
    /* [pages][page_size][kv_heads][head_dim], whatever the layout in memory. If K and V share one
     * pool, declare two tensors, and bind both to the pool with strides. */
    fig_tensor k;
    /* The shape of k. */
    fig_tensor v;
    /* [sequences][pages of a sequence] i32. If an entry's page number lies outside the cache,
     * reads through this entry use page 0 instead, and writes through it are dropped. Absent: the
     * cache is dense, and page s holds sequence s. */
    fig_tensor page_table;
    /* [1] or [kv_heads] f32. For fp8: a value is the stored number times its scale. Absent: the
     * scale is 1. */
    fig_tensor k_scale;
    /* The shape of k_scale. Absent: the scale is 1. */
    fig_tensor v_scale;
    fig_tensor reserved[3]; /* absent */
} fig_cache;

/* New tokens for a cache. */
typedef struct fig_append_kv_op {
    uint32_t size; /* sizeof(fig_append_kv_op) */
    /* [rows][kv_heads][head_dim] */
    fig_tensor k;
    /* [rows][kv_heads][head_dim] */
    fig_tensor v;
    /* The cache to write. */
    fig_cache cache;
} fig_append_kv_op;
/* Writes k and v of row r as the last tokens of its sequence, up to token kv_length[r] - 1. A row
 * of length 0 writes nothing. fp8 values saturate. */
FIG_API void fig_append_kv(fig_program *program, const fig_append_kv_op *op);

/* An expression that turns the logits of attention into scores. figraph_scores.h describes and
 * makes such expressions. */
typedef struct fig_score fig_score;
enum { FIG_SCORE_ARRAY_LIMIT = 8 }; /* arrays that a score reads */

/* A query at token p of its sequence sees tokens [max(0, p + 1 - window), p]. The row's last query
 * is at token kv_length - 1. A logit is q.k * sm_scale + alibi * (token - p); a soft cap then makes
 * it soft_cap * tanh(logit / soft_cap). A sink is one more logit, without a value: it counts in the
 * sum of the weights and in lse. */
typedef struct fig_attention_op {
    uint32_t size; /* sizeof(fig_attention_op) */
    /* [rows][q_heads][head_dim] */
    fig_tensor q;
    /* [rows][q_heads][head_dim] */
    fig_tensor out;
    /* [rows][q_heads] f32. The log-sum-exp of the logits, base 2. Absent: it is not written. */
    fig_tensor lse;
    /* [q_heads] f32. Absent: no sinks. */
    fig_tensor sinks;
    /* [q_heads] f32. The slope of each head. Absent: no ALiBi. */
    fig_tensor alibi;
    /* The cache to read. */
    fig_cache cache;
    /* The number of tokens that a query sees. 0: all; the spec's window is used only by
     * fig_program_decode_step. */
    int32_t window;
    /* 0: no cap; the spec's soft_cap is used only by fig_program_decode_step. */
    float soft_cap;
    /* 0: the spec's. */
    float sm_scale;
    /* An expression that computes the score from q.k * sm_scale. If it is given, alibi and soft_cap
     * must be absent. It may have a mask, which then decides which tokens a query sees. If there is
     * a window too, a query sees a token only if both show it. If alibi and soft_cap can express
     * the same score, the node is recorded with these two instead. NULL: there is no expression. */
    const fig_score *score;
    /* The tensors of the score's arrays, in the order of its normal form. Each is [elements] of the
     * array's dtype. If a tensor is absent, the node uses the tensor named after the array and the
     * layer, such as slope.7; if there is none, it uses the tensor that has the array's name
     * alone. */
    fig_tensor score_arrays[FIG_SCORE_ARRAY_LIMIT];
} fig_attention_op;
/* Computes attention of q over the cache. A row of length 0 gets zeros, and -inf in lse. Attention
 * does not append: record fig_append_kv before it. */
FIG_API void fig_attention(fig_program *program, const fig_attention_op *op);

/* fig_rope, fig_append_kv and fig_attention in one node. Fields mean the same as in the structs of
 * those operations. */
typedef struct fig_decode_attention_op {
    uint32_t size; /* sizeof(fig_decode_attention_op) */
    /* [rows][q_heads][head_dim] */
    fig_tensor q;
    /* [rows][kv_heads][head_dim] */
    fig_tensor k;
    /* [rows][kv_heads][head_dim] */
    fig_tensor v;
    /* [rows][q_heads][head_dim] Absent: there is no attention. */
    fig_tensor out;
    /* As in fig_attention_op. */
    fig_tensor lse;
    /* As in fig_rope_op. */
    fig_tensor positions;
    /* As in fig_rope_op. */
    fig_tensor cos_sin;
    /* As in fig_rope_op. */
    fig_tensor q_norm;
    /* As in fig_rope_op. */
    fig_tensor k_norm;
    /* As in fig_attention_op. */
    fig_tensor sinks;
    /* As in fig_attention_op. */
    fig_tensor alibi;
    /* As in fig_rope_op. */
    const fig_rope_spec *rope;
    /* The cache to append to and to read. */
    fig_cache cache;
    /* As in fig_attention_op. */
    int32_t window;
    /* As in fig_rope_op. */
    float norm_epsilon;
    /* As in fig_attention_op. */
    float soft_cap;
    /* As in fig_attention_op. */
    float sm_scale;
    /* As in fig_rope_op. */
    const fig_rope_table *rope_table;
    /* 1: q and k are not rotated, for example because the caller has rotated them already. rope,
     * rope_table, positions and cos_sin must then be absent. 0: they are rotated. */
    int32_t plain;
    /* As in fig_attention_op. If alibi and soft_cap cannot express the score, the call records up
     * to three nodes instead of one: those of fig_rope, fig_append_kv and fig_attention that are
     * needed. */
    const fig_score *score;
    /* As in fig_attention_op. */
    fig_tensor score_arrays[FIG_SCORE_ARRAY_LIMIT];
} fig_decode_attention_op;
/* Does the work of fig_rope, fig_append_kv and fig_attention in one node. This node costs less than
 * the three, and leaves the same values in the cache and in `out`. Its effect on q and k is
 * unspecified: each head may be rotated in place or be unchanged, and this may differ between
 * buckets, steps and machines. So a later node may read q or k only after another node has written
 * them. The node writes only q, k, out, lse and the cache. Without `out` the node is fig_rope and
 * fig_append_kv alone, and q and k are always rotated. If `plain` is 1, the node is fig_append_kv
 * and fig_attention in one; it may turn infinities of q and k into NaN, and -0 into 0. */
FIG_API void fig_decode_attention(fig_program *program, const fig_decode_attention_op *op);

/* ---- Latent caches (MLA: DeepSeek, Kimi) */
/* A latent cache holds one vector for each token, and all heads share this vector: 512 values of
 * the latent, then 64 values that RoPE has rotated. K is the whole vector, and V is the latent.
 * Before the step, the caller multiplies the part of q that has no RoPE by the K part of kv_b_proj;
 * the products are the first 512 values of each head of q. After the step, it multiplies `out` by
 * the V part of kv_b_proj.
 *
 * The cache is [pages][page_size][576] of q's dtype. If its dtype is FIG_E4M3, it is
 * [pages][page_size][656], and q is FIG_F16 or FIG_BF16. A token then has 656 bytes: 512 bytes of
 * codes for the latent, 16 bytes for four f32 scales, each of which serves 128 codes, and 128 bytes
 * for the other 64 values as bf16. */
typedef struct fig_latent_attention_op {
    uint32_t size; /* sizeof(fig_latent_attention_op) */
    /* [rows][q_heads][576], or [rows][q_heads][512] if there is a q_rope. q_heads is a multiple of
     * 8, at most 128. */
    fig_tensor q;
    /* [rows][q_heads][512] */
    fig_tensor out;
    /* As in fig_attention_op. */
    fig_tensor lse;
    /* As in fig_attention_op. */
    fig_tensor sinks;
    /* [pages][page_size][576], or [pages][page_size][656] of FIG_E4M3. */
    fig_tensor cache;
    /* As in fig_cache. */
    fig_tensor page_table;
    /* As in fig_attention_op. */
    int32_t window;
    /* 0: the spec's. */
    float sm_scale;
    /* [rows][q_heads][64], in q's dtype. The last 64 values of each q head, in a tensor of their
     * own. Absent: q has them. */
    fig_tensor q_rope;
} fig_latent_attention_op;
/* Computes attention of q over a latent cache; the rules of fig_attention_op hold. A row of length
 * 0 gets zeros, and -inf in lse. The node does not append to the cache. */
FIG_API void fig_latent_attention(fig_program *program, const fig_latent_attention_op *op);

/* The work of a decode step on a latent cache, in one node. Fields mean the same as in
 * fig_latent_attention_op. */
typedef struct fig_latent_decode_op {
    uint32_t size; /* sizeof(fig_latent_decode_op) */
    /* [rows][q_heads][576], or [rows][q_heads][512] if there is a q_rope. */
    fig_tensor q;
    /* [rows][576] The new token's latent and its values for RoPE, before norm and RoPE. */
    fig_tensor latent;
    /* [rows][q_heads][512] Absent: there is no attention. */
    fig_tensor out;
    /* As in fig_attention_op. */
    fig_tensor lse;
    /* As in fig_rope_op. */
    fig_tensor positions;
    /* [positions][64] f32, as in fig_rope_op. */
    fig_tensor cos_sin;
    /* [512] The weight of an RMSNorm of the latent, in q's dtype. Absent: no norm. */
    fig_tensor norm;
    /* As in fig_attention_op. */
    fig_tensor sinks;
    /* The cache to append to and to read. */
    fig_tensor cache;
    /* As in fig_cache. */
    fig_tensor page_table;
    /* The RoPE of the last 64 values; its rotary_dim is 0 or 64. NULL: the spec's. */
    const fig_rope_spec *rope;
    /* As in fig_rope_op. */
    const fig_rope_table *rope_table;
    /* As in fig_attention_op. */
    int32_t window;
    /* The epsilon of the norm. 0: 1e-6, if there is a norm. */
    float norm_epsilon;
    /* 0: the spec's. */
    float sm_scale;
    /* As in fig_latent_attention_op, before RoPE. */
    fig_tensor q_rope;
} fig_latent_decode_op;
/* Applies RoPE to the last 64 values of each q head, normalises the latent of each new token,
 * applies RoPE to the token's last 64 values, appends the token, and computes attention. Values are
 * rounded to q's dtype after the norm and after RoPE. Codes are computed from the rounded values;
 * each scale is the greatest magnitude among its 128 values, divided by 448. The effect on the last
 * 64 values of a q head is unspecified, as in fig_decode_attention. The node writes only these
 * values, out, lse and the cache. Without `out` the node rotates q and appends, and q is always
 * rotated. */
FIG_API void fig_latent_decode(fig_program *program, const fig_latent_decode_op *op);

/* The results of attention over two sets of tokens. */
typedef struct fig_merge_states_op {
    uint32_t size; /* sizeof(fig_merge_states_op) */
    /* [rows][heads][head_dim] Attention over the first set. */
    fig_tensor out_a;
    /* [rows][heads] f32, base 2. The log-sum-exp of the first set. */
    fig_tensor lse_a;
    /* The shape of out_a. Attention over the second set. */
    fig_tensor out_b;
    /* The shape of lse_a. The log-sum-exp of the second set. */
    fig_tensor lse_b;
    /* The shape of out_a. */
    fig_tensor out;
    /* The shape of lse_a. Absent: it is not written. */
    fig_tensor lse;
} fig_merge_states_op;
/* Merges the results of attention over two sets of tokens into the result over both sets. If lse is
 * -inf in both, the result is zeros and -inf. */
FIG_API void fig_merge_states(fig_program *program, const fig_merge_states_op *op);

/* Foreign work, such as a GEMM. */
typedef struct fig_call_op {
    uint32_t size; /* sizeof(fig_call_op) */
    /* The name under which fig_engine_register registers the callback. */
    const char *call;
    /* [read_count] The tensors that the work reads. */
    const fig_tensor *reads;
    /* [write_count] The tensors that the work writes. */
    const fig_tensor *writes;
    /* The number of tensors in `reads`, at most 16. */
    int32_t read_count;
    /* The number of tensors in `writes`, at most 16. */
    int32_t write_count;
    /* A number that the file keeps and the callback receives. */
    uint64_t tag;
    /* [byte_count] Bytes that the file keeps and the callback receives. */
    const void *bytes;
    /* The number of those bytes, at most 256. */
    int32_t byte_count;
} fig_call_op;
/* Records foreign work, which a registered callback does. The tensors that the work reads and
 * writes decide which other nodes must come before it or after it. */
FIG_API void fig_call(fig_program *program, const fig_call_op *op);

/* ---- Graphs: the program lowered per bucket -------------------------------------------------- */
/* A bucket serves every step of at most `batch` rows and at most batch * kv tokens in all. One
 * sequence of such a step may be as long as the spec's kv_limit. A bucket of a packed program also
 * limits the step's query tokens: see fig_lower_options.query_limits.
 *
 * Each size is lowered in one or more variants. A variant is a choice of the tile that one worker
 * reads at a time; which variant is fastest depends on the lengths of the step. So one size that
 * the caller asks for becomes several consecutive buckets, each with its own number. In this header
 * bucket numbers begin at 1, and each number stands for one size in one variant. A step that names
 * no bucket gets the smallest size that holds it, in the variant that is cheapest for its lengths.
 * A step that names a bucket gets exactly that variant, whatever it costs. fig_bucket_info tells
 * which numbers share a size; fig_plan_report tells which one is the cheapest for a step.
 * Closed. */
typedef struct fig_bucket {
    /* The largest number of rows in a step. */
    int32_t batch;
    /* The largest number of tokens in a step, divided by `batch`. */
    int32_t kv;
} fig_bucket;

/* The machine that graphs are lowered for. */
typedef struct fig_traits {
    uint32_t size; /* sizeof(fig_traits) */
    /* The chip: "h200", "h100", "a100", "host" and so on. */
    char name[16];
    /* 90 stands for 9.0. At least 80, or 0 for the host. */
    int32_t compute_capability;
    /* The number of streaming multiprocessors. */
    int32_t sm_count;
    /* The most bytes of shared memory that one block can have. */
    int32_t shared_bytes;
} fig_traits;
/* Fills *traits for a chip by name. FIG_INVALID: the name is unknown; the sentence lists the known
 * ones. */
FIG_API fig_status fig_traits_named(fig_traits *traits, const char *name);
/* Returns the name of chip `index`, from 0, or NULL past the last. The text is static. */
FIG_API const char *fig_traits_name(int32_t index);

typedef struct fig_lower_options {
    uint32_t size; /* sizeof(fig_lower_options) */
    /* The machine to lower for. NULL: "host". */
    const fig_traits *traits;
    /* [bucket_count] The sizes to lower. NULL: powers of two up to the spec's limits. */
    const fig_bucket *buckets;
    /* The number of sizes in `buckets`. */
    int32_t bucket_count;
    /* 1: other rows of the step do not affect the bits of a row's result. Only the row's own data
     * and length do. */
    int32_t deterministic;
    /* The number of limits in query_limits. */
    int32_t query_limit_count;
    /* [query_limit_count] For a packed program: limits on the query tokens of a step. Let M be the
     * most query tokens that a step of one size can have. Each size in `buckets` is lowered for M,
     * and once more for each of these limits that is below M. NULL: each size is lowered for M
     * alone; but if the spec's row_tokens is above 8, the host gives the lengths and `buckets` is
     * NULL too, the limits are 64, 512, 4096 and so on. */
    const int32_t *query_limits;
} fig_lower_options;

/* Graphs are immutable. They must outlive every engine that uses them. */
typedef struct fig_graphs fig_graphs;
/* Lowers a finished program for each bucket. The graphs have their own copy of the program. The
 * caller owns *graphs and frees them with fig_graphs_destroy. options may be NULL. FIG_ORDER: the
 * program is not finished. FIG_INVALID: a bucket or an option is wrong. FIG_UNSUPPORTED: the
 * machine is too old, or the program has too many classes of attention. */
FIG_API fig_status fig_graphs_lower(fig_graphs **graphs, const fig_program *program,
                                    const fig_lower_options *options);
/* Saves graphs as a .fig file. The file is written beside `path`, synced and renamed, so `path`
 * always holds the complete old file or the complete new one. FIG_IO: a file operation failed.
 * FIG_UNSUPPORTED: the graphs are one rank's share; save those of the whole model instead. */
FIG_API fig_status fig_graphs_save(const fig_graphs *graphs, const char *path);
/* Loads graphs from a .fig file. The caller owns *graphs. FIG_IO: the file cannot be read.
 * FIG_FORMAT: it is not a .fig file, or it is damaged. FIG_STALE: this library cannot use it;
 * make a new file with this library. */
FIG_API fig_status fig_graphs_load(fig_graphs **graphs, const char *path);
/* Loads graphs from the `count` bytes of a .fig file, which may be freed after the call. Fails as
 * fig_graphs_load does. */
FIG_API fig_status fig_graphs_parse(fig_graphs **graphs, const void *bytes, size_t count);
/* Frees graphs. Close every engine that uses them first. */
FIG_API void fig_graphs_destroy(fig_graphs *graphs);

typedef struct fig_graphs_info {
    uint32_t size; /* sizeof(fig_graphs_info) */
    /* The spec, with every default filled in. The graphs own it. */
    const fig_spec *spec;
    /* The machine that the graphs are lowered for. The graphs own it. */
    const fig_traits *traits;
    /* The number of buckets, and so the greatest bucket number. */
    int32_t bucket_count;
    /* The number of tensors of the program. */
    int32_t tensor_count;
    /* The number of nodes of the program. */
    int32_t node_count;
    /* The number of buckets for which this library's launches differ from those of the library that
     * made the file. */
    int32_t relowered_count;
    /* The SHA-256, in hex, of the contents of a file that is saved from these graphs. */
    char content_id[65];
} fig_graphs_info;
/* Describes graphs. Its pointers are valid as long as the graphs. */
FIG_API fig_status fig_graphs_read_info(const fig_graphs *graphs, fig_graphs_info *info);

/* The steps that a bucket of a packed program takes. Buckets of other programs take any step. A
 * step that names no bucket takes a bucket of the most restrictive form that admits the step,
 * because that bucket has fewer or faster launches. */
typedef uint32_t fig_bucket_form;
enum {
    /* Any step. */
    FIG_FORM_ANY = 0,
    /* Rows that are not chunks have at most one query token. */
    FIG_FORM_SINGLES,
    /* Each row has one query token. Rows behind these may be idle, with length 0. No rows share
     * pages. The launches are those of a program that is not packed, for query_limit rows. */
    FIG_FORM_ONES,
    /* Each row with query tokens is a chunk, or shares pages. */
    FIG_FORM_STRIPS,
    /* No row is a chunk, and no rows share pages. The launches are those of a program whose rows
     * may not be chunks. A step takes such a bucket if some row has several query tokens. */
    FIG_FORM_DRAFTS
};

typedef struct fig_bucket_info {
    uint32_t size; /* sizeof(fig_bucket_info) */
    /* The size of the bucket. */
    fig_bucket bucket;
    /* The number of the bucket's variant, from 0. */
    int32_t variant;
    /* The number of the bucket's launches. */
    int32_t launch_count;
    /* KV heads that one worker of the first attention reads at a time. Over a latent cache: the
     * smallest groups of query heads (fig_inspect_class.kv_heads) that a worker serves at a time.
     * 0: there is no attention. */
    int32_t heads;
    /* Tokens that one worker of the first attention reads at a time. 0: there is no attention. */
    int32_t tile_tokens;
    /* Workers of the first attention. 0: there is no attention. */
    int32_t workers;
    /* The most bytes that the plan of any step takes. */
    uint64_t plan_bytes;
    /* The most bytes of workspace that any step needs. */
    uint64_t workspace_bytes;
    /* The number of the first bucket of this size. Buckets of a size have the same batch and kv,
     * and were made for the same entry of fig_lower_options.query_limits, or for none. */
    int32_t size_first;
    /* The number of buckets of this size, one per variant. They have consecutive numbers, from
     * size_first on. */
    int32_t size_count;
    /* For a packed program: the largest number of query tokens in a step. 0: it is not packed. */
    int32_t query_limit;
    /* The most query tokens of a row that is not a chunk. In programs whose rows may be chunks, it
     * is 1 in variants for steps without drafts, which read decode rows faster. */
    int32_t row_queries;
    /* The steps that the bucket takes. */
    fig_bucket_form form;
} fig_bucket_info;
/* Describes a bucket. FIG_INVALID: no bucket has that number. */
FIG_API fig_status fig_graphs_bucket(const fig_graphs *graphs, int32_t bucket,
                                     fig_bucket_info *info);

/* The memory that an engine takes. */
typedef struct fig_memory_info {
    uint32_t size; /* sizeof(fig_memory_info) */
    /* The number of execs (instantiated CUDA graphs) once every bucket has been prepared. Buckets
     * with equal launches share an exec. */
    int32_t exec_count;
    /* Device memory for temporary tensors and partials. */
    uint64_t workspace_bytes;
    /* Device memory for the plan. */
    uint64_t plan_bytes;
    /* Device memory for tensors of FIG_ROLE_STATE, if the caller binds none of them. */
    uint64_t state_bytes;
    /* Pinned host memory: the ring, and a buffer for page tables. */
    uint64_t pinned_bytes;
    /* Device memory for all execs, estimated from a measured figure per node. */
    uint64_t exec_bytes;
    /* The bytes that one token takes in the KV caches of all layers together. It tells how many
     * tokens fit in a pool. */
    uint64_t token_bytes;
} fig_memory_info;
/* Returns the memory that an engine with `slots` slots (0: the default) takes, not counting memory
 * that the caller binds. No engine needs to be open. FIG_INVALID: slots is out of range. */
FIG_API fig_status fig_graphs_memory(const fig_graphs *graphs, int32_t slots,
                                     fig_memory_info *info);
/* Describes one of the tensors that a caller may bind. `index` counts these from 0, in recorded
 * order. The graphs own its name. FIG_INVALID: index is past the last. */
FIG_API fig_status fig_graphs_tensor(const fig_graphs *graphs, int32_t index,
                                     fig_tensor_info *info);

/* ---- Step ------------------------------------------------------------------------------------ */
/* One step, or a horizon of several. The simplest step gives only rows and kv_lengths. All arrays
 * are read before the call returns and stay the caller's. */
typedef struct fig_step {
    uint32_t size; /* sizeof(fig_step) */
    /* The number of rows. */
    int32_t rows;
    /* [rows] The number of tokens in each row's sequence, including this step's. 0: the row is
     * idle. Any other length must be at least the row's number of query tokens: its entry of
     * query_counts if that array is given, else the spec's row_tokens. Earlier steps must have
     * appended the tokens in front of a row's query tokens: a row must not read tokens that another
     * row of the same step appends. NULL: the program reads lengths on the device. */
    const int32_t *kv_lengths;
    /* [rows] The RoPE position of each row's last query. It must not exceed 2^30 in any launch of
     * a horizon. NULL: kv_length - 1. */
    const int32_t *positions;
    /* [rows] The sequence that each row continues. NULL: row r continues sequence r. */
    const int32_t *sequences;
    /* If lengths are on the device: the largest total of tokens over all rows. 0: any number. */
    int64_t token_limit;
    /* 0: the engine takes the cheapest bucket that fits. Otherwise the engine takes exactly this
     * bucket, and thus this variant. A caller whose own graph launches the step must give the
     * bucket that the graph was captured for. Such a caller captures one graph for each bucket of a
     * size. It calls fig_graphs_plan with bucket 0 to learn which of these graphs is the cheapest
     * for a step. */
    int32_t bucket;
    /* The number of times that this step is launched. 0: 1. From one launch to the next, the device
     * adds the spec's row_tokens to the length of every row that is not idle. The caller must have
     * set the pages for all launches. Every launch uses the split that the last launch of the
     * horizon needs. If the device reads the lengths, they do not grow: each launch reads them
     * again. */
    int32_t horizon;
    /* [rows] For each row, the number of its queries that are real tokens, 1 to the spec's
     * row_tokens. They are the row's last queries. The other queries are padding: they are
     * computed, but not appended, and kv_lengths does not count them. The horizon must be 1. NULL:
     * all queries are real tokens. */
    const int32_t *row_tokens;
    /* [rows] For a packed program (fig_spec.query_limit): the number of query tokens of each row, 0
     * to the spec's row_tokens. It must not exceed the row's kv_length, unless that is 0. The query
     * tokens are the last tokens of the row's sequence. A row without query tokens is idle,
     * whatever its kv_length. A row of kv_length 0 is idle, whatever its count; its query tokens
     * get the results of an idle row. NULL: every row has the spec's row_tokens. If this field is
     * given, or rows may be chunks, the horizon must be 1. If this field is given,
     * fig_step.row_tokens must be NULL. */
    const int32_t *query_counts;
} fig_step;

/* The result of planning a step without running it. Attention nodes of the same shape form a class
 * and share one split of their work. If the program has several classes, the report describes the
 * split of the first one. The caller sets size and, to receive the tiles of each worker,
 * worker_tiles and worker_capacity. */
typedef struct fig_plan_report {
    uint32_t size; /* sizeof(fig_plan_report) */
    /* The bucket that the step would take. */
    int32_t bucket;
    /* The number of workers. */
    int32_t workers;
    /* Tokens of a tile. */
    int32_t tile_tokens;
    /* KV heads that a worker reads at a time, or smallest groups as in fig_bucket_info.heads. */
    int32_t heads;
    /* Tiles of the whole step, over all rows and head groups (see `groups`). */
    int64_t tiles;
    /* Tiles of the worker that has the most. */
    int32_t tiles_most;
    /* Tiles of the worker that has the fewest. */
    int32_t tiles_least;
    /* Partials that the step leaves for merging. */
    int32_t partials;
    /* The most partials that any step of this bucket leaves. */
    int32_t partial_limit;
    /* Bytes of this step's plan. */
    uint64_t plan_bytes;
    /* The most bytes that any plan of this bucket takes. */
    uint64_t plan_bytes_limit;
    /* [worker_capacity] Input: the caller's array, which receives the tiles of each worker, up to
     * its capacity. May be NULL. */
    int32_t *worker_tiles;
    /* Input: the number of elements that worker_tiles has room for. */
    int32_t worker_capacity;
    /* The bucket that the step would take if it named none. It differs from `bucket` if the step
     * names a larger size, or a variant that costs more for this step. */
    int32_t cheapest;
    /* 1: the split gives every worker the same number of units. Units weigh tiles and rows by their
     * measured cost. 0: the split gives every worker the same number of tiles. */
    int32_t by_units;
    /* A tile costs a worker 16 units. Each row and head group that the worker begins or continues
     * costs this many units more. 0: the bucket is always split by tiles. */
    int32_t once;
    /* Units of the worker that has the most. It is filled in for both kinds of split. */
    int32_t units_most;
    /* Rows of the step that are chunks (fig_spec.query_limit). 0: there are none. Of the fields
     * above, only plan_bytes and plan_bytes_limit include these rows, and rows that share pages
     * except for their tails (see `tails`). The fields of strips below describe these rows
     * alone. */
    int32_t chunks;
    /* The number of workers that share all strips. A strip is a part of a chunk's query tokens, or
     * of those of rows that share pages, for one KV head. 0: rows of the program cannot be
     * chunks. */
    int32_t strip_workers;
    /* Tokens of a tile of a strip. */
    int32_t strip_tile_tokens;
    /* The number of strips of the step. */
    int32_t strips;
    /* The number of parts into which the strips are divided among the workers. */
    int32_t strip_pieces;
    /* Tiles of all strips. */
    int64_t strip_tiles;
    /* Tiles of the worker that has the most. */
    int32_t strip_tiles_most;
    /* Tiles of the worker that has the fewest. */
    int32_t strip_tiles_least;
    /* Partials that strips leave for merging, in query vectors. */
    int32_t strip_partials;
    /* The most partials of strips that any step of this bucket leaves, in query vectors. */
    int32_t strip_partial_limit;
    /* [strip_worker_capacity] Input: the caller's arrays, which receive the tiles and the parts of
     * strips of each worker, up to their capacity. Each may be NULL. */
    int32_t *strip_worker_tiles, *strip_worker_pieces;
    /* Input: the number of elements of each of these arrays. */
    int32_t strip_worker_capacity;
    /* The number of head groups. Each row has one segment for each head group, and a worker reads
     * one segment at a time. */
    int32_t groups;
    /* Input: the number of elements that row_tiles has room for. */
    int32_t row_capacity;
    /* [row_capacity] Input: an array of the caller, or NULL. It receives each row's number of tiles
     * in one head group. Tiles that a window or a mask hides do not count. */
    int32_t *row_tiles;
    /* The number of workers that read rows while all others process strips. Workers behind it have
     * no tiles, and as many strip workers, the last ones, have no strips. 0: rows and strips each
     * use all workers. */
    int32_t readers;
    /* [rows] Input: which rows of the step begin with the same pages, as after calls of
     * fig_engine_fork. Row r has those pages of row fork_sources[r] that the first fork_lengths[r]
     * tokens fill completely. fork_sources[r] is at most r. NULL: no rows begin with the same
     * pages. It must be NULL if the program reads lengths on the device. */
    const int32_t *fork_sources;
    /* [rows] Input: NULL if fork_sources is. fork_lengths[r] is at most the kv_length of either
     * row. 0: row r has no page of an earlier row. */
    const int32_t *fork_lengths;
    /* Input: fig_engine_options.share of the engine that would run the step. */
    int32_t share;
    /* The number of groups of rows that share pages, as in fig_engine_stats. Groups may be nested:
     * each comes after the group that encloses it. 0: each row reads all of its pages. */
    int32_t shared_groups;
    /* Rows that are in some group. */
    int32_t shared_rows;
    /* Of these rows, those whose tails are read by the workers of the split. The tail of a row is
     * its tokens behind those that its groups share. The tails of all other rows in groups are read
     * by strips. */
    int32_t tails;
    /* KV tokens that are read from shared pages, as in fig_engine_stats. */
    int64_t shared_read;
    /* KV tokens that sharing saves, as in fig_engine_stats. */
    int64_t shared_saved;
    /* The reason why no rows share pages. The text is static. NULL: some rows share pages. */
    const char *unshared;
    /* The number of those strips that read the pages of groups. */
    int32_t prefix_strips;
    /* Input: the number of elements of each of the next three arrays. */
    int32_t group_capacity;
    /* [group_capacity] Input: an array of the caller, or NULL. It receives each group's number of
     * rows. */
    int32_t *group_rows;
    /* [group_capacity] Input: likewise. It receives the first KV token that each group shares. */
    int32_t *group_firsts;
    /* [group_capacity] Input: likewise. It receives the end of the KV tokens that each group
     * shares. */
    int32_t *group_ends;
    /* [row_capacity] Input: an array of the caller, or NULL. It receives the first token of each
     * row that no group shares; 0: the row is in no group. */
    int32_t *row_firsts;
    /* Tiles of the strips that read the pages of groups. */
    int64_t prefix_tiles;
    /* [strip_worker_capacity] Input: an array of the caller, or NULL. It receives how many of each
     * worker's tiles of strips these are. */
    int32_t *strip_worker_prefix_tiles;
} fig_plan_report;
/* Plans a step as an engine would, and reports the result. No engine is needed and nothing runs.
 * Fails as fig_engine_stage does for the same step: FIG_INVALID or FIG_TOO_LARGE. FIG_INVALID: the
 * report's fork_sources, fork_lengths or share are out of range. */
FIG_API fig_status fig_graphs_plan(const fig_graphs *graphs, const fig_step *step,
                                   fig_plan_report *report);
/* Returns the reason why rows of no step of these graphs can share pages. The text is static. NULL:
 * they can, in an engine that knows its page table (fig_engine_sharing). */
FIG_API const char *fig_graphs_sharing(const fig_graphs *graphs);

/* ---- Engine ---------------------------------------------------------------------------------- */
typedef uint32_t fig_device;
enum {
    /* CUDA if there is a driver and a GPU, or if the options give an ordinal or a stream. Otherwise
     * the host. */
    FIG_DEVICE_AUTO = 0,
    FIG_DEVICE_HOST,
    FIG_DEVICE_CUDA
};

/* Options take a stream by the address of its CUstream, because 0 is itself a CUstream: the
 * device's default stream. The stream must belong to the primary context of the engine's GPU. The
 * host has only the engine's own stream. */
#define FIG_STREAM_OWN NULL /* no address: the engine's own stream */

/* A value of score_cache: the user's own folder, $XDG_CACHE_HOME/figraph/scores. If that variable
 * is not an absolute path, the folder is ~/.cache/figraph/scores. If the folder does not exist, an
 * engine makes it with mode 700. */
#define FIG_SCORE_CACHE_DEFAULT ""

typedef uint32_t fig_memory;
enum {
    FIG_MEMORY_DEVICE = 0,
    FIG_MEMORY_PINNED /* host memory that is pinned and mapped for the device */
};
/* Memory that a caller lends to an engine. */
typedef struct fig_allocation {
    uint32_t size; /* sizeof(fig_allocation) */
    /* The kind of memory that the engine asks for. */
    fig_memory kind;
    /* The number of bytes that the engine asks for. */
    uint64_t bytes;
    /* The allocate callback fills in the device's address, aligned to 256 bytes. */
    void *device;
    /* For pinned memory, the allocate callback fills in the host's address, aligned likewise. */
    void *host;
} fig_allocation;
typedef int32_t (*fig_memory_callback)(void *user, fig_allocation *allocation);

typedef struct fig_engine_options {
    uint32_t size; /* sizeof(fig_engine_options) */
    /* Where the engine runs. */
    fig_device device;
    /* The depth of the plan ring, 2 to 64. 0: 4. The host can run ahead of the device by this many
     * steps. */
    int32_t slots;
    /* How long, in microseconds, fig_engine_stage may wait for a free slot. 0: FIG_BUSY at once. */
    int32_t busy_us;
    /* CUDA: the GPU's number, as the driver counts GPUs. */
    int32_t ordinal;
    /* CUDA: the stream to run on. It stays the caller's and must outlive the engine.
     * FIG_STREAM_OWN: the engine opens a stream of its own. */
    void *const *stream;
    /* 1: every plan carries a checksum. If a launch finds a plan whose checksum does not match, it
     * runs no rows. Steps that were staged before the engine knew of this run no rows either. The
     * next wait returns FIG_DRIVER. */
    int32_t check_plans;
    /* The NUMA node that holds the plan ring. n above 0: node n - 1. 0: the GPU's node. -1: any
     * node. */
    int32_t numa_node;
    /* Allocates all of the engine's memory, with the GPU's context current. If it returns a value
     * other than 0, the call that needs the memory fails with FIG_NOMEM. NULL: the engine allocates
     * from the device. Give both callbacks or neither. */
    fig_memory_callback allocate;
    /* Frees memory that `allocate` returned. */
    fig_memory_callback release;
    /* The first argument of both callbacks. */
    void *memory_user;
    /* The group of ranks that the engine belongs to; see figraph_ranks.h. It must outlive the
     * engine. NULL: none. */
    struct fig_ranks *ranks;
    /* Which of the file's kernel images the caller trusts, by their SHA-256; see figraph_archive.h.
     * NULL: the engine uses the library's own kernels. */
    const struct fig_trust *trust;
    /* For tests only; see figraph_unstable.h. NULL: none. */
    const struct fig_test_options *test;
    /* 0: if rows of a step begin with the same pages, the engine reads these pages once for all of
     * the rows, where this saves time; fig_engine_sharing tells whether the engine can do so. -1:
     * each row reads all of its pages. 1: as 0, but also where the launches of such a step cost a
     * GPU more time than sharing saves; for measurements. */
    int32_t share;
    /* 1: a GPU compiles each score without a mask into attention on tensor cores, when a bucket is
     * first prepared. This takes about half a second for each kernel that runs the score, and up to
     * 3 seconds for long scores. FIG_UNSUPPORTED, from the call that prepares the bucket: the
     * driver does not compile it. 0: scores are interpreted on plain cores. The host always
     * interprets. */
    int32_t compile_scores;
    /* A folder that keeps compiled scores for later processes, or FIG_SCORE_CACHE_DEFAULT. Only the
     * user who runs this process may have the right to write in it, and no folder above it may let
     * everybody rename what lies in it. Otherwise opening an engine on a GPU fails with
     * FIG_INVALID. The host keeps nothing. NULL: they are kept in memory, for this process. */
    const char *score_cache;
} fig_engine_options;

typedef struct fig_engine fig_engine;
/* Opens an engine: graphs made launchable on one device. The caller owns *engine and closes it with
 * fig_engine_close. The graphs must outlive it. options may be NULL. FIG_NO_DEVICE: there is no
 * such device, its driver is too old, or this library was built without kernels for it.
 * FIG_UNSUPPORTED: options.trust or options.ranks cannot be served. FIG_NOMEM: memory ran out. */
FIG_API fig_status fig_engine_open(fig_engine **engine, const fig_graphs *graphs,
                                   const fig_engine_options *options);
/* Waits for the steps in flight, takes back the staged ones, and frees all memory that the engine
 * allocated. A caller's graph that holds segments of the engine may outlive it and may even be
 * launched, but then it runs no rows. The memory that such a graph reads is kept until the process
 * ends.
 *
 * FIG_LOST: this process is a fork of the one that opened the engine. Nothing is freed. In such a
 * fork, all other calls on the engine fail with FIG_LOST too. */
FIG_API fig_status fig_engine_close(fig_engine *engine);
/* Closes the engine if its steps end within the timeout; a negative timeout waits forever.
 * FIG_TIMEOUT: the steps did not end in time, and the engine is unchanged. */
FIG_API fig_status fig_engine_close_within(fig_engine *engine, int64_t timeout_us);
/* Returns the device that the engine runs on: under FIG_DEVICE_AUTO, the one that the engine
 * chose. */
FIG_API fig_device fig_engine_device(const fig_engine *engine);
/* Fills *traits for the engine's device. */
FIG_API fig_status fig_engine_read_traits(const fig_engine *engine, fig_traits *traits);
/* Binds the calling thread to the allowed cores that are closest to the device, or closest to the
 * NUMA node that numa_node names. FIG_UNSUPPORTED: the system does not report which cores are
 * close, or does not allow a thread to be bound. */
FIG_API fig_status fig_engine_bind_thread(const fig_engine *engine);

/* The memory of one tensor. */
typedef struct fig_binding {
    uint32_t size; /* sizeof(fig_binding) */
    /* The tensor's name. */
    const char *name;
    /* The memory, aligned to 16 bytes. NULL: the engine allocates `bytes` bytes of zeros and keeps
     * ownership of them. */
    void *address;
    /* The size of the memory: enough for every row, or a number of whole pages. */
    uint64_t bytes;
    /* [rank] In elements. All 0: row-major. The last stride must be 1. The stride of a dim of
     * extent 1 may be anything. */
    int64_t strides[4];
} fig_binding;
/* Gives a tensor its memory. The next call of fig_engine_stage is the first to use this memory.
 * fig_engine_stage fails with FIG_ORDER while a step that was staged before the bind still waits
 * for its launch.
 *
 * The caller keeps ownership of memory that it gave, and may free it after fig_engine_close. To
 * free it earlier, the caller first binds the name to other memory, and then waits until the last
 * step that uses the old memory has ended. A step keeps the addresses that it was staged with,
 * whenever it is launched. So before the caller frees the old memory, each step that was staged
 * before the bind must be taken back, or must have ended, with all launches of its horizon. A wait
 * alone is not enough while such a step is staged: its launch, after the wait, still uses the old
 * memory. If fig_engine_poll reports equal `staged` and `launched` after the bind, one
 * fig_engine_wait after that is enough. Memory that a graph captured with fig_engine_append uses
 * must live as long as that graph.
 *
 * A failure changes nothing. FIG_INVALID: there is no such tensor, it is FIG_ROLE_TEMP, or address,
 * bytes or strides are wrong. FIG_ORDER: a caller's graph uses the tensor. FIG_NOMEM: the engine
 * cannot allocate the memory. */
FIG_API fig_status fig_engine_bind(fig_engine *engine, const fig_binding *binding);

/* A part of a bound tensor. */
typedef struct fig_span {
    uint32_t size; /* sizeof(fig_span) */
    /* The tensor's name. */
    const char *name;
    /* The part begins at this byte of the tensor's memory. */
    uint64_t offset;
    /* The length of the part, in bytes. */
    uint64_t bytes;
} fig_span;
/* Copies host memory to a part of a tensor, after all steps launched so far, and returns when the
 * copy is complete. In a page table, steps that are staged already may still see older entries; no
 * step that is staged later does. FIG_UNBOUND: the tensor has no memory. FIG_INVALID: the part
 * exceeds it. FIG_ORDER: the tensor is a page table, and rows of a staged step that share pages use
 * it (fig_engine_options.share). */
FIG_API fig_status fig_engine_write(fig_engine *engine, const fig_span *span, const void *from);
/* Copies a part of a tensor to host memory. Waits and fails as fig_engine_write does. */
FIG_API fig_status fig_engine_read(fig_engine *engine, const fig_span *span, void *to);

/* Entries of one sequence in a page table. */
typedef struct fig_pages {
    uint32_t size; /* sizeof(fig_pages) */
    /* The sequence: a row of the page table. */
    int32_t sequence;
    /* The first entry to set. */
    int32_t first;
    /* The number of entries to set. */
    int32_t count;
    /* [count] The numbers of the sequence's pages in the cache. They are read before return. */
    const int32_t *pages;
    /* The name of the page table. NULL: every page table of the program. */
    const char *table;
} fig_pages;
/* Sets entries of a page table. Every step that is staged after the call sees them; no step that
 * was launched before it does. A few entries travel with the next plan; many entries are copied on
 * the engine's stream, ahead of that plan. FIG_INVALID: a sequence, entry or page number is out of
 * range. FIG_ORDER: the call changes entries of pages that rows of a staged step share
 * (fig_engine_options.share); launch that step or take it back first. */
FIG_API fig_status fig_engine_set_pages(fig_engine *engine, const fig_pages *pages);

/* A sequence that begins with the same tokens as another one. */
typedef struct fig_fork {
    uint32_t size; /* sizeof(fig_fork) */
    /* The sequence that has the pages. */
    int32_t source;
    /* The sequence that gets the same pages. Its entries behind the copied ones do not change. */
    int32_t target;
    /* The number of tokens with which both sequences begin. The entries of pages that hold only
     * these tokens are copied: length / page_size entries. */
    int32_t length;
    /* The name of the page table. NULL: every page table of the program. */
    const char *table;
} fig_fork;
/* Copies entries of a page table from one sequence to another, as fig_engine_set_pages sets them.
 * Both sequences then read the same pages of the cache. The last tokens, which do not fill a page,
 * are not copied: give `target` a page of its own behind the shared ones, and append them there.
 * `target` must not be a row of the step that appends the common tokens, only of later ones.
 * Entries that were never set, but lie before one that was, count as page 0.
 *
 * FIG_INVALID: a sequence or the length is out of range, an entry is behind the last one that was
 * set, or the call that set it failed. FIG_ORDER: a staged step still waits for a launch.
 * FIG_UNSUPPORTED: the engine does not know the entries, because the caller bound the table to
 * memory of its own, or a node of the program writes it. */
FIG_API fig_status fig_engine_fork(fig_engine *engine, const fig_fork *fork);

/* The arguments of a callback. They are valid during the call only. */
typedef struct fig_call_args {
    uint32_t size; /* sizeof(fig_call_args) */
    /* The device that the engine runs on. */
    fig_device device;
    /* CUDA: the CUstream to enqueue work on; it is capturing. Host: NULL. */
    void *stream;
    /* The bucket that the work is for. CUDA: if several buckets have equal launches, the work is
     * captured once for all of them, and this is the largest of them. */
    fig_bucket bucket;
    /* Host: the rows of the step. CUDA: the rows of `bucket`. */
    int32_t rows;
    /* The tag of fig_call_op. */
    uint64_t tag;
    /* [byte_count] The bytes of fig_call_op. */
    const void *bytes;
    /* The number of those bytes. */
    int32_t byte_count;
    /* The addresses of the tensors that the call reads, in recorded order. */
    const void *const *reads;
    /* The addresses of the tensors that the call writes, in recorded order. */
    void *const *writes;
    /* For a packed program. Host: the query tokens of the step. CUDA: the most query tokens of
     * `bucket`. 0: the program is not packed. */
    int32_t queries;
} fig_call_args;
/* Does the work of a fig_call. On the host it runs in every step, on the device's thread, and does
 * the work itself: it reads and writes rows [0, rows), and query tokens [0, queries). On CUDA it
 * runs once for all buckets that have equal launches, when the first of them is prepared, and
 * enqueues work for all rows of `bucket` on `stream`. A kernel that it launches with the
 * programmatic attribute begins early, so every block of that kernel must execute
 * griddepcontrol.wait before the block ends. A result other than 0 fails the step or the prepare
 * with FIG_CALLBACK. The callback may call every engine except its own. */
typedef int32_t (*fig_callback)(void *user, const fig_call_args *args);
/* Registers the callback of a call, or replaces it. The next call of fig_engine_stage is the first
 * to use the new callback. Steps that were staged earlier still call the replaced one when they are
 * launched; on the host, the device's thread makes that call. fig_engine_bind tells when a caller
 * may free replaced memory. Until then, a replaced callback, its `user` and all memory that the
 * captured work of a CUDA callback uses must stay valid. FIG_INVALID: the program has no such call,
 * or callback is NULL. */
FIG_API fig_status fig_engine_register(fig_engine *engine, const char *call, fig_callback callback,
                                       void *user);

/* Makes a bucket launchable with the current bindings. `bucket` 0 stands for all buckets. Without
 * this call, fig_engine_stage prepares the bucket that it needs, which takes milliseconds.
 *
 * A second thread may call fig_engine_prepare while the engine's own thread runs steps, under two
 * conditions. First, after the last bind, one call of fig_engine_prepare, fig_engine_stage or
 * fig_engine_append must already have returned: the first such call takes the new bindings into
 * use, and no other call may run beside it. Second, no thread may bind, register or close while the
 * second thread prepares. Neither thread waits for a bucket that it does not need, except while a
 * callback runs.
 *
 * FIG_UNBOUND: the caller has not given a tensor or a callback; the sentence names it. FIG_INVALID:
 * there is no such bucket, or an output overlaps another tensor. FIG_ORDER: a step that was staged
 * before the last bind still waits for its launch. */
FIG_API fig_status fig_engine_prepare(fig_engine *engine, int32_t bucket);

/* Plans a step and writes the plan to a slot. If the step names no bucket, the engine chooses one.
 * Arrays are read before return. The host can run ahead of the device by as many steps as there are
 * slots. FIG_BUSY: every slot is in use, or the changed page-table entries do not fit in the plan:
 * launch the staged steps or wait, then stage again. FIG_INVALID, FIG_TOO_LARGE: the step is wrong
 * or too large. FIG_UNBOUND, FIG_ORDER: as for fig_engine_prepare. */
FIG_API fig_status fig_engine_stage(fig_engine *engine, const fig_step *step);
/* Launches the step that was staged longest ago, or the next launch of its horizon. It does not
 * wait for the device. FIG_ORDER: nothing is staged. FIG_BUSY: on the host, 128 launches of a
 * stream are in flight; the step stays staged. */
FIG_API fig_status fig_engine_launch(fig_engine *engine);
/* Stages a step and launches it. If either fails, the step is neither staged nor launched.
 * FIG_ORDER: an earlier step, or a part of its horizon, is still to be launched; or a caller's
 * graph was launched for an earlier step and has not yet fetched its plan. Otherwise fails as
 * fig_engine_stage does. */
FIG_API fig_status fig_engine_step(fig_engine *engine, const fig_step *step);
/* Takes back the step that was staged last, or the remaining launches of its horizon. If the plan
 * had page-table entries and is taken back as a whole, the plan of the next step has them instead.
 * If the caller launched a graph of its own for the step, the caller must first wait for that
 * graph. FIG_ORDER: nothing is staged, or a caller's graph has fetched the plan. */
FIG_API fig_status fig_engine_take_back(fig_engine *engine);

/* Returns the engine's stream, a CUstream; on the host NULL. All work of an engine happens in the
 * order of this stream. */
FIG_API void *fig_engine_stream(const fig_engine *engine);
/* Makes all later work of the engine wait for all work that is on `stream` at this moment. `stream`
 * is a CUstream by value; on the host it is NULL and stands for the calling thread. The call
 * itself does not wait. FIG_ORDER: one of the two streams is capturing. */
FIG_API fig_status fig_engine_wait_for(fig_engine *engine, void *stream);
/* Makes all later work on `stream` wait for all work that the engine has launched so far. On CUDA
 * the host does not wait; on the host device the call itself waits. `stream` and FIG_ORDER: as for
 * fig_engine_wait_for. */
FIG_API fig_status fig_engine_signal(fig_engine *engine, void *stream);

/* Options of fig_engine_append. */
typedef struct fig_append {
    uint32_t size; /* sizeof(fig_append) */
    /* The name of the segment. "fetch": the engine's own segment, which takes the plan. NULL:
     * "fetch" and all nodes. */
    const char *segment;
    /* Required: the bucket whose launches are appended. */
    int32_t bucket;
    /* The stream to append to. FIG_STREAM_OWN: the engine's. */
    void *const *stream;
} fig_append;
/* Enqueues a segment on a stream of the caller, for callers that capture graphs of their own. If
 * that stream is capturing, the segment becomes part of the captured graph. If not, the segment
 * runs in the order of the engine's stream.
 *
 *     fetch first   The segment "fetch" comes first in a graph, or in a step. It takes the plan
 *                   that was staged longest ago, for all segments behind it.
 *     stage         Before each launch of the graph, stage a step with the graph's bucket.
 *     order         Launch the graph on the engine's stream, or on another stream between
 *                   fig_engine_signal and fig_engine_wait_for. Otherwise the graph and the engine
 *                   do not wait for each other.
 *     addresses     The graph keeps the addresses that it was captured with. While it lives, its
 *                   tensors cannot be bound again (FIG_ORDER).
 *     early start   A kernel that the caller launches with the programmatic attribute, behind a
 *                   segment, begins while the segment's kernels still run. It must wait
 *                   (griddepcontrol.wait) before it touches the step's data. A segment may read
 *                   weights of norms before a kernel of the caller in front of it has ended, so no
 *                   kernel of the graph may write them.
 *
 * FIG_INVALID: there is no such segment or bucket. FIG_ORDER: no "fetch" of that bucket comes
 * before the segment; or the stream is not capturing, and no step of the bucket is staged for
 * "fetch". Otherwise fails as fig_engine_prepare does. */
FIG_API fig_status fig_engine_append(fig_engine *engine, const fig_append *append);

/* Waits until every launched step has ended, and returns the first fault since the last wait. Each
 * fault is returned once. A negative timeout waits forever. FIG_TIMEOUT: some steps still run.
 * FIG_DRIVER: the device refused work, or a launch found no valid plan and ran no rows.
 * FIG_TOO_LARGE: lengths on the device exceeded the bucket. FIG_CALLBACK: a callback failed.
 * FIG_LOST: the engine can only be closed. figraph_parallel.h lists the faults of a group of
 * ranks. */
FIG_API fig_status fig_engine_wait(fig_engine *engine, int64_t timeout_us);

/* The progress of an engine, counted in launches since fig_engine_open. */
typedef struct fig_progress {
    uint32_t size; /* sizeof(fig_progress) */
    /* Launches that were staged. A step counts once for each launch of its horizon. */
    int64_t staged;
    /* Launches made. */
    int64_t launched;
    /* Launches that are known to have ended. */
    int64_t completed;
    /* The fault that the next wait will return. */
    fig_status fault;
} fig_progress;
/* Reports progress without waiting. */
FIG_API fig_status fig_engine_poll(fig_engine *engine, fig_progress *progress);

/* ---- Counters and times ---------------------------------------------------------------------- */
enum { FIG_HISTOGRAM_BINS = 256 };
/* Times in nanoseconds. Each bin is an eighth of an octave wide. All fields 0: the histogram is
 * empty. Closed. */
typedef struct fig_histogram {
    /* The number of times. */
    int64_t count;
    /* Their sum. */
    int64_t sum;
    /* The shortest. */
    int64_t least;
    /* The longest. */
    int64_t most;
    /* The number of times in each bin. */
    int64_t bins[FIG_HISTOGRAM_BINS];
} fig_histogram;
/* Adds a time to a histogram of the caller, for example the time to the first token. */
FIG_API void fig_histogram_add(fig_histogram *histogram, int64_t ns);
/* Returns the time that `percent` percent of all times do not exceed, exact to an eighth of an
 * octave. An empty histogram returns 0. */
FIG_API int64_t fig_histogram_percentile(const fig_histogram *histogram, double percent);

/* Counters of an engine since fig_engine_open. */
typedef struct fig_engine_stats {
    uint32_t size; /* sizeof(fig_engine_stats) */
    /* Launches that were staged, without those that were taken back. A step counts once for each
     * launch of its horizon. */
    int64_t staged;
    /* Launches made. */
    int64_t launched;
    /* Launches that were staged and then taken back. */
    int64_t taken_back;
    /* The number of times that fig_engine_stage returned FIG_BUSY. */
    int64_t busy;
    /* Launches that ran no rows: they found no valid plan, or lengths on the device exceeded the
     * bucket. */
    int64_t missed;
    /* Steps whose plans left the split out, because the device already had it. */
    int64_t reused_splits;
    /* Bytes of all plans, with the page-table entries that they carried. */
    int64_t uploaded_bytes;
    /* Bytes of page-table entries that were copied ahead of plans. */
    int64_t page_bytes;
    /* The number of times that the engine took changed bindings into use. */
    int64_t prepares;
    /* Launches whose parameters were patched for changed bindings. */
    int64_t patched_launches;
    /* Execs made so far. */
    int32_t exec_count;
    /* The bucket of the step that was staged last. 0: no step was staged. */
    int32_t last_bucket;
    /* Device memory for temporary tensors and partials. */
    uint64_t workspace_bytes;
    /* Device memory of the tensors that the engine allocated because the caller bound none. */
    uint64_t owned_bytes;
    /* Pinned host memory that the engine allocated. */
    uint64_t pinned_bytes;
    /* Device memory for the execs, estimated. */
    uint64_t exec_bytes;
    /* For each step, the host's time in fig_engine_stage and fig_engine_launch. */
    fig_histogram host;
    /* The time from each launch to the next. */
    fig_histogram period;
    /* Steps in which rows shared pages. This field and the next three do not count steps that were
     * taken back. */
    int64_t shared_steps;
    /* The number of groups of rows that shared pages, over all these steps. */
    int64_t shared_groups;
    /* KV tokens that were read from shared pages, counted for one layer and one KV head. */
    int64_t shared_read;
    /* KV tokens that sharing saved, counted in the same way: without sharing, the rows would have
     * read this many more. */
    int64_t shared_saved;
} fig_engine_stats;
/* Reads the counters. Any thread may call this at any time; while a step is being staged, some
 * counters may be ahead of others. */
FIG_API fig_status fig_engine_read_stats(const fig_engine *engine, fig_engine_stats *stats);
/* Returns the reason why rows of this engine's steps cannot share pages. One reason is that the
 * caller owns the page table: then the engine does not know its entries. The text is static. NULL:
 * rows share pages wherever this saves time, and fig_engine_stats counts these pages. Only the
 * engine's thread may call this. */
FIG_API const char *fig_engine_sharing(const fig_engine *engine);

#ifdef __cplusplus
}
#endif
#endif

/* fake_link.c: the fake driver's compiler of scores, and templates without nvcc.
 *
 * A template has an entry for every name that the families form. Its functions and entries have the
 * shape that nvcc gives them and compute nothing. "Compiling" checks that the text is complete. The
 * code begins with the number of the family, as fake_graph.c reads it from an image that is not in
 * its table; the text's length and checksum follow, so different texts give different code. */
#include "tests/support/driver/fake_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "kernels/table/families.h"
#include "planner/scores/score_ptx.h"

enum { FRAME_LIMIT = 1 << 16, REFUSED = 222 }; /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION */

struct CUlinkState_st {
    char *log;
    size_t log_bytes;
    uint8_t *code;
};

/* What the "code" is. */
typedef struct fake_code {
    uint16_t number, reserved;
    uint32_t length, sum;
} fake_code;

/* ---- Templates */

static void put_functions(fig_ptx_text *text) {
    static const char *const names[] = {"quotient", "remainder", "exp2", "log2",         "tanh",
                                        "sigmoid",  "sin",       "cos",  "sigmoid_logit"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fig_ptx_text_say(text, ".func  (.param .b32 func_retval0) fig_scored_functions_%s(\n",
                         names[i]);
        fig_ptx_text_say(text, "\t.param .b32 fig_scored_functions_%s_param_0\n)\n{\n", names[i]);
        fig_ptx_text_say(text, "\t.reg .f32 \t%%f<3>;\n\n\tld.param.f32 \t%%f1, ");
        fig_ptx_text_say(text, "[fig_scored_functions_%s_param_0];\n\tneg.f32 \t%%f2, %%f1;\n",
                         names[i]);
        fig_ptx_text_say(text, "\tst.param.f32 \t[func_retval0+0], %%f2;\n\tret;\n\n}\n");
    }
}

static void put_entry(fig_ptx_text *text, const char *name) {
    fig_ptx_text_say(text, ".visible .entry fig_kernel_scored_%s(\n", name);
    fig_ptx_text_say(text, "\t.param .align 64 .b8 fig_kernel_scored_%s_param_0[4032]\n)\n{\n",
                     name);
    for (int i = 0; i < 2; i++)
        fig_ptx_text_say(text, "\tmul.rn.f32 %%f1, %%f2, 0f3FB8AA3B; "
                               "// fig_score %%f1 %%f2 %%r1 %%r2 %%r3 %%r4 %%r5 %%r6\n");
    fig_ptx_text_say(text, "\tret;\n\n}\n");
}

static fig_image make_template(uint32_t family) {
    static const char *const dtypes[] = {"f16", "bf16", "e4m3", "e5m2"};
    static const int dims[] = {64, 80, 96, 128, 256}, shares[] = {1, 2, 4};
    static uint8_t frames[2][FRAME_LIMIT];
    static size_t counts[2];
    fig_ptx_text text = {0};
    char name[64];
    if (counts[family] == 0) {
        fig_ptx_text_say(&text, "//\n.version 9.0\n.target sm_80\n.address_size 64\n\n");
        put_functions(&text);
        for (int i = 0; i < 4 * 5 * 3; i++) {
            const int n = snprintf(name, sizeof name, "%s_%s_%d", family == 0 ? "bulk" : "copy",
                                   dtypes[i / 15], dims[i / 3 % 5]);
            if (family == 0) snprintf(name + n, sizeof name - (size_t)n, "_%d", shares[i % 3]);
            if (family == 0 || i % 3 == 0) put_entry(&text, name);
        }
        counts[family] = ZSTD_compress(frames[family], FRAME_LIMIT, text.bytes, text.count, 1);
        fig_ptx_text_finish(&text);
    }
    return (fig_image){frames[family], counts[family], NULL};
}

static fig_image score_template(fig_op op, uint32_t family, fig_image_path path) {
    fake.path = path;
    if (fake.no_templates || op != FIG_OP_SCORED_ATTENTION || family > 1)
        return (fig_image){NULL, 0, NULL};
    return make_template(family);
}

/* ---- Links */

static fig_cu_result link_create(unsigned int count, unsigned int *options, void **values,
                                 fig_cu_link *link) {
    BEGIN_UNSAFE("cuLinkCreate");
    *link = calloc(1, sizeof **link);
    if (*link == NULL) return FIG_CU_OUT_OF_MEMORY;
    for (unsigned int i = 0; i < count; i++) {
        if (options[i] == FIG_CU_LINK_LOG) (*link)->log = values[i];
        if (options[i] == FIG_CU_LINK_LOG_BYTES) (*link)->log_bytes = (size_t)values[i];
    }
    fake.held++;
    return FIG_CU_SUCCESS;
}

/* Returns 1 if the text has one entry, a version that old drivers know, and nothing left to
 * complete. */
static int is_complete(const char *text) {
    const char *entry = strstr(text, ".visible .entry ");
    return entry != NULL && strstr(entry + 1, ".visible .entry ") == NULL &&
           strstr(text, ".version 8.4\n") != NULL && strstr(text, "// fig_score") == NULL &&
           strstr(text, "fig_scored_functions") == NULL;
}

static fig_cu_result link_add_data(fig_cu_link link, unsigned int kind, void *data, size_t count,
                                   const char *name, unsigned int option_count,
                                   unsigned int *options, void **values) {
    BEGIN_UNSAFE("cuLinkAddData");
    const char *text = data;
    if (kind != FIG_CU_LINK_PTX || option_count != 0 || options != NULL || values != NULL ||
        name == NULL || text[count - 1] != '\0' || strlen(text) + 1 != count || !is_complete(text))
        return fig_fake_cuda_unsafe();
    if (fake.refuses_scores) {
        snprintf(link->log, link->log_bytes, "ptxas fatal: Unsupported .version\nmore");
        return REFUSED;
    }
    const uint32_t family = strstr(text, "fig_kernel_scored_bulk") != NULL ? 0 : 1;
    fake_code code = {.number = (uint16_t)(FIG_OP_SCORED_ATTENTION * FIG_FAMILY_LIMIT + family),
                      .length = (uint32_t)count};
    for (size_t i = 0; i < count; i++)
        code.sum = code.sum * 31 + (uint8_t)text[i];
    link->code = malloc(sizeof code);
    if (link->code == NULL) return FIG_CU_OUT_OF_MEMORY;
    memcpy(link->code, &code, sizeof code);
    return FIG_CU_SUCCESS;
}

static fig_cu_result link_complete(fig_cu_link link, void **code, size_t *count) {
    BEGIN_UNSAFE("cuLinkComplete");
    if (link->code == NULL) return fig_fake_cuda_unsafe();
    void (*compiling)(void *user) = fake.compiling;
    fake.compiling = NULL;
    if (compiling != NULL) compiling(fake.user);
    *code = link->code;
    *count = sizeof(fake_code);
    fake.links++;
    return FIG_CU_SUCCESS;
}

static fig_cu_result link_destroy(fig_cu_link link) {
    free(link->code);
    free(link);
    fake.held--;
    BEGIN_UNSAFE("cuLinkDestroy");
    return FIG_CU_SUCCESS;
}

void fig_fake_link_fill(fig_cuda_api *table) {
    table->score_template = score_template;
    table->LinkCreate = link_create;
    table->LinkAddData = link_add_data;
    table->LinkComplete = link_complete;
    table->LinkDestroy = link_destroy;
}

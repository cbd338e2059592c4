/* inspect_names.c: gives names for the numbers of types, roles and layouts. */
#include "tools/figraph/inspect/inspect_names.h"

const char *fig_inspect_names_dtype(uint32_t dtype) {
    switch (dtype) {
    case 0: return "none";
    case FIG_F32: return "f32";
    case FIG_F16: return "f16";
    case FIG_BF16: return "bf16";
    case FIG_E4M3: return "e4m3";
    case FIG_E5M2: return "e5m2";
    case FIG_I32: return "i32";
    case FIG_I64: return "i64";
    }
    return "unknown";
}

const char *fig_inspect_names_form(uint32_t form) {
    switch (form) {
    case FIG_FORM_ANY: return "any";
    case FIG_FORM_SINGLES: return "singles";
    case FIG_FORM_ONES: return "ones";
    case FIG_FORM_STRIPS: return "strips";
    case FIG_FORM_DRAFTS: return "drafts";
    }
    return "unknown";
}

const char *fig_inspect_names_demand(uint32_t form) {
    switch (form) {
    case FIG_FORM_SINGLES: return "; rows that are not chunks have one at most";
    case FIG_FORM_ONES: return "; each row has one, and rows share no pages";
    case FIG_FORM_STRIPS: return "; each row is a chunk or shares pages";
    case FIG_FORM_DRAFTS: return "; no row is a chunk, and rows share no pages";
    }
    return "";
}

const char *fig_inspect_names_role(uint32_t role) {
    switch (role) {
    case FIG_ROLE_TEMP: return "temp";
    case FIG_ROLE_BOUND: return "bound";
    case FIG_ROLE_STATE: return "state";
    }
    return "unknown";
}

const char *fig_inspect_names_activation(uint32_t activation) {
    switch (activation) {
    case FIG_SILU: return "silu";
    case FIG_GELU: return "gelu";
    case FIG_GELU_TANH: return "gelu_tanh";
    case FIG_SWIGLU_LIMITED: return "swiglu_limited";
    }
    return "unknown";
}

const char *fig_inspect_names_layout(uint32_t layout) {
    return layout == FIG_HND ? "hnd" : "nhd";
}

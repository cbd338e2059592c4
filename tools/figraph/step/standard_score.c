/* standard_score.c: finds the score that a step was recorded with.
 *
 * Recording turns a score that is a soft cap, ALiBi or both into fields of attention, so this file
 * turns these fields back into a score. A soft cap that equals the spec's comes from the spec and
 * is no score. */
#include "tools/figraph/step/standard_score.h"

#include <figraph_inspect.h>
#include <stdio.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

/* The logits of a launch of attention. */
typedef struct logits {
    uint32_t node;
    int is_attention;
    const char *score; /* a text; NULL: none */
    double soft_cap;   /* 0: none */
    const fig_inspect_tensor *slopes;
} logits;

static const fig_inspect_tensor *find_tensor(const fig_inspection *told, const char *name) {
    for (uint32_t i = 0; i < told->tensor_count; i++)
        if (strcmp(told->tensors[i].name, name) == 0) return &told->tensors[i];
    return NULL;
}

/* Reads launches and not nodes, because the fields of a decode_attention node do not show all of
 * its attributes. */
static logits read_logits(const fig_inspection *told, uint32_t launch) {
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    const int32_t count = fig_inspection_launch_fields(told, launch, fields);
    logits found = {.node = told->launches[launch].node};
    for (int32_t i = 0; i < count; i++) {
        const fig_inspect_field *field = &fields[i];
        if (field->kind == FIG_INSPECT_SCORE) found.score = field->word;
        if (strcmp(field->name, "alibi") == 0 && field->kind == FIG_INSPECT_ADDRESS)
            found.slopes = find_tensor(told, field->word);
        if (strcmp(field->name, "soft_cap") != 0) continue;
        found.is_attention = 1;
        found.soft_cap = (double)field->real;
    }
    return found;
}

/* Makes the score that recording turned into soft_cap and alibi. Without one, *score stays NULL. */
static fig_status make_plain(const logits *of, fig_score **score) {
    char bias[160] = "score", text[320];
    if (of->slopes == NULL && of->soft_cap == 0.0) return FIG_OK;
    if (of->slopes != NULL)
        snprintf(bias, sizeof bias, "score + %.64s[head] * (kv_pos - q_pos)", of->slopes->name);
    if (of->slopes != NULL && of->soft_cap != 0.0) {
        snprintf(text, sizeof text, "f32 %.64s[%lld]; %.9g * tanh((%s) / %.9g)", of->slopes->name,
                 (long long)of->slopes->dims[0], of->soft_cap, bias, of->soft_cap);
    } else if (of->slopes != NULL) {
        snprintf(text, sizeof text, "f32 %.64s[%lld]; %s", of->slopes->name,
                 (long long)of->slopes->dims[0], bias);
    } else {
        snprintf(text, sizeof text, "%.9g * tanh(score / %.9g)", of->soft_cap, of->soft_cap);
    }
    return fig_score_parse(score, text);
}

/* Makes the score of a launch. If the tensor of slopes has a name that no array can have, the
 * slopes come from no score; the comparison of tensors then refuses the step. */
static int make_score(const logits *of, const char *command, fig_score **score) {
    *score = NULL;
    if (of->score == NULL && of->slopes != NULL && strchr(of->slopes->name, '.') != NULL)
        return FIG_EXIT_FINE;
    const fig_status status =
        of->score != NULL ? fig_score_parse(score, of->score) : make_plain(of, score);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status(command);
}

static const char *text_of(const fig_score *score) {
    return score == NULL ? "none" : fig_score_text(score);
}

/* Compares the score of a launch with that of the first one. */
static int compare_score(const fig_score *first, const logits *of, const char *command) {
    fig_score *score;
    int code = make_score(of, command, &score);
    if (code == FIG_EXIT_FINE && strcmp(text_of(score), text_of(first)) != 0)
        code = fig_report_refuse("%s: the score of node %u is %s, that of an earlier node %s",
                                 command, of->node, text_of(score), text_of(first));
    fig_score_destroy(score);
    return code;
}

static int find_score(const fig_inspection *told, const char *command, fig_score **score) {
    const double cap = (double)told->spec->soft_cap;
    int code = FIG_EXIT_FINE, has_first = 0;
    for (uint32_t i = 0; i < told->launch_count && code == FIG_EXIT_FINE; i++) {
        logits of = read_logits(told, i);
        if (!of.is_attention) continue;
        /* A node without the spec's cap runs, and --check finds its numbers wrong. */
        if (cap != 0.0 && of.soft_cap != 0.0 && of.soft_cap != cap)
            return fig_report_refuse("%s: node %u has a soft_cap of %g, its spec one of %g",
                                     command, of.node, of.soft_cap, cap);
        if (cap != 0.0) of.soft_cap = 0.0;
        code = has_first ? compare_score(*score, &of, command) : make_score(&of, command, score);
        has_first = 1;
    }
    return code;
}

int fig_standard_score(const fig_graphs *graphs, const char *command, fig_score **score) {
    const fig_inspection *told;
    *score = NULL;
    if (fig_inspection_open(&told, graphs, 1) != FIG_OK) return fig_report_status(command);
    const int code = find_score(told, command, score);
    fig_inspection_close(told);
    return code;
}

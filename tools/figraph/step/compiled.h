/* compiled.h: reads whether engines compile scores, and where they keep the code. */
#ifndef FIG_TOOLS_COMPILED_H
#define FIG_TOOLS_COMPILED_H

#include "tools/figraph/terminal/arguments.h"

#define FIG_COMPILED_OPTIONS                                                                       \
    {"--compile-scores", NULL, "on a GPU, compile scores into attention; docs/scores.md"}, {       \
        "--score-cache", "FOLDER",                                                                 \
            "keep compiled scores in FOLDER; default stands for ~/.cache/figraph/scores"           \
    }

/* The fields of fig_engine_options with the same names. */
typedef struct fig_compiled {
    int32_t compile_scores;
    const char *score_cache;
} fig_compiled;

/* Reads both options of a command. Returns FIG_EXIT_*. */
int fig_compiled_read(const fig_arguments *arguments, fig_compiled *compiled);

#endif

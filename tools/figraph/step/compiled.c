/* compiled.c: reads whether engines compile scores, and where they keep the code. */
#include "tools/figraph/step/compiled.h"

#include <string.h>

#include <figraph.h>

#include "tools/figraph/terminal/report.h"

int fig_compiled_read(const fig_arguments *arguments, fig_compiled *compiled) {
    const char *folder = fig_arguments_text(arguments, "--score-cache");
    compiled->compile_scores = fig_arguments_text(arguments, "--compile-scores") != NULL;
    compiled->score_cache = folder;
    if (folder == NULL) return FIG_EXIT_FINE;
    if (!compiled->compile_scores)
        return fig_report_refuse("%s: --score-cache: %s: only --compile-scores keeps scores",
                                 arguments->command->name, folder);
    if (strcmp(folder, "default") == 0) compiled->score_cache = FIG_SCORE_CACHE_DEFAULT;
    return FIG_EXIT_FINE;
}

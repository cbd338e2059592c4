/* ranked.c: runs a command on several ranks, as ranked.h describes.
 *
 * figraph-launch starts the ranks and makes them all end together if one fails. The program
 * beside this one is preferred to any in PATH. */
#include "tools/figraph/step/ranked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/figraph/step/source.h"
#include "tools/figraph/terminal/report.h"

enum { PATH_BYTES = 4096, OWN_WORDS = 8 };

int fig_ranked_open(const fig_arguments *arguments, fig_ranked *ranked) {
    fig_ranks_info info = {.size = sizeof info};
    *ranked = (fig_ranked){.arguments = arguments, .count = 1};
    const int code = fig_source_read_ranks(arguments, &ranked->count);
    if (code != FIG_EXIT_FINE || ranked->count == 1) return code;
    if (fig_ranks_open(&ranked->ranks, NULL) != FIG_OK)
        return fig_report_status(arguments->command->name);
    fig_ranks_read_info(ranked->ranks, &info);
    if (info.count == 1) {
        fig_ranked_close(ranked);
        ranked->must_start = 1;
        return FIG_EXIT_FINE;
    }
    ranked->rank = info.rank;
    ranked->local_rank = info.local_rank;
    if (info.count != ranked->count)
        return fig_report_refuse("%s: --ranks: %d, but a launcher has started %d",
                                 arguments->command->name, ranked->count, info.count);
    if (ranked->rank == 0 || freopen("/dev/null", "w", stdout) != NULL) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: /dev/null: %s", arguments->command->name, strerror(errno));
}

/* Finds "/usr/bin/figraph-launch" beside "/usr/bin/figraph". */
static void find_launcher(const char *own, char launcher[PATH_BYTES]) {
    const char *name = strrchr(own, '/');
    const int folder = name != NULL ? (int)(name - own) : 0;
    snprintf(launcher, PATH_BYTES, "%.*s/figraph-launch", folder, own);
    if (access(launcher, X_OK) != 0) snprintf(launcher, PATH_BYTES, "figraph-launch");
}

int fig_ranked_start(const fig_ranked *ranked) {
    const fig_arguments *arguments = ranked->arguments;
    char own[PATH_BYTES] = "", launcher[PATH_BYTES], count[16], name[32];
    char n[] = "-n", plain[] = "--plain", end[] = "--";
    char **words = calloc((size_t)arguments->count + OWN_WORDS + 1, sizeof *words);
    int used = 0;
    if (words == NULL || readlink("/proc/self/exe", own, sizeof own - 1) < 0)
        return fig_report_refuse("%s: --ranks: %s", arguments->command->name, strerror(errno));
    find_launcher(own, launcher);
    snprintf(count, sizeof count, "%d", ranked->count);
    /* a name such as "bench step" is two words */
    snprintf(name, sizeof name, "%s", arguments->command->name);
    char *part = strchr(name, ' ');
    if (part != NULL) *part++ = '\0';
    char *const before[] = {launcher, n, count, plain, end, own, name, part};
    for (size_t i = 0; i < OWN_WORDS && before[i] != NULL; i++)
        words[used++] = before[i];
    memcpy(words + used, arguments->words, (size_t)arguments->count * sizeof *words);
    execvp(launcher, words);
    free(words);
    return fig_report_refuse("%s: --ranks: cannot start figraph-launch: %s",
                             arguments->command->name, strerror(errno));
}

int32_t fig_ranked_ordinal(const fig_ranked *ranked, fig_device device) {
    return ranked->count > 1 && device == FIG_DEVICE_CUDA ? ranked->local_rank : 0;
}

void fig_ranked_close(fig_ranked *ranked) {
    fig_ranks_close(ranked->ranks);
    ranked->ranks = NULL;
}

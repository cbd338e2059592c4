/* nearest.c: finds the known word that a misspelt one most likely stands for.
 *
 * Counts letters that are left out, added, replaced, or exchanged with a neighbour. Invariant: a
 * known word is suggested only if at most a third of the given word's letters differ. */
#include "tools/figraph/terminal/nearest.h"

#include <stdio.h>
#include <string.h>

enum { WORD_LIMIT = 40 };

static int lower(char letter) {
    return letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Compares words of fewer than WORD_LIMIT letters with the usual table of edit distances:
 * costs[i][j] turns the first i letters of a into the first j letters of b. */
static int distance(const char *a, const char *b) {
    int costs[WORD_LIMIT][WORD_LIMIT];
    const int a_length = (int)strlen(a), b_length = (int)strlen(b);
    for (int i = 0; i <= a_length; i++) {
        for (int j = 0; j <= b_length; j++) {
            if (i == 0 || j == 0) {
                costs[i][j] = i + j;
                continue;
            }
            const int differs = lower(a[i - 1]) != lower(b[j - 1]);
            int cost = least(costs[i - 1][j], costs[i][j - 1]) + 1;
            cost = least(cost, costs[i - 1][j - 1] + differs);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                cost = least(cost, costs[i - 2][j - 2] + 1);
            costs[i][j] = cost;
        }
    }
    return costs[a_length][b_length];
}

const char *fig_nearest(const char *word, fig_nearest_names names, const void *of) {
    const char *nearest = NULL, *name;
    const int length = (int)strlen(word);
    int best = length / 3 + 1;
    if (length == 0 || length >= WORD_LIMIT) return NULL;
    for (int32_t i = 0; (name = names(of, i)) != NULL; i++) {
        if (strlen(name) >= WORD_LIMIT) continue;
        const int cost = distance(word, name);
        if (cost >= best) continue;
        best = cost;
        nearest = name;
    }
    return nearest;
}

const char *fig_nearest_ask(char text[FIG_NEAREST_BYTES], const char *word, fig_nearest_names names,
                            const void *of) {
    const char *name = fig_nearest(word, names, of);
    text[0] = '\0';
    if (name != NULL) snprintf(text, FIG_NEAREST_BYTES, "; did you mean %s?", name);
    return text;
}

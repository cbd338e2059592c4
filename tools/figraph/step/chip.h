/* chip.h: reads the machine that --traits describes, by its name or by its numbers. */
#ifndef CHIP_H
#define CHIP_H

#include <figraph.h>

#include "tools/figraph/terminal/arguments.h"

/* text: "h200", or "compute_capability=89,sm_count=142,shared_bytes=101376" in any order, with an
 * optional name=, by default "chip". Returns an exit code; the library checks the numbers' limits.
 */
int fig_chip_read(const fig_arguments *arguments, const char *text, fig_traits *traits);

#endif

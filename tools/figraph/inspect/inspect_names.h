/* inspect_names.h: gives names for the numbers of types, roles and layouts. */
#ifndef FIG_TOOLS_INSPECT_NAMES_H
#define FIG_TOOLS_INSPECT_NAMES_H

#include <figraph.h>

const char *fig_inspect_names_dtype(uint32_t dtype);           /* "bf16"; "none" for 0 */
const char *fig_inspect_names_form(uint32_t form);             /* "ones" */
const char *fig_inspect_names_demand(uint32_t form);           /* "; no row is a chunk" */
const char *fig_inspect_names_role(uint32_t role);             /* "bound" */
const char *fig_inspect_names_activation(uint32_t activation); /* "gelu_tanh" */
const char *fig_inspect_names_layout(uint32_t layout);         /* "hnd" */

#endif

/* commands.h: declares every command of figraph, one constant each, defined in cmd_<name>.c. */
#ifndef FIG_TOOLS_COMMANDS_H
#define FIG_TOOLS_COMMANDS_H

#include "tools/figraph/terminal/arguments.h"

extern const fig_command fig_cmd_plan, fig_cmd_capture, fig_cmd_inspect, fig_cmd_diff, fig_cmd_fit,
    fig_cmd_verify, fig_cmd_replay, fig_cmd_serve, fig_cmd_bench, fig_cmd_memory, fig_cmd_presets,
    fig_cmd_doctor, fig_cmd_tune;

#endif

# completion.bash: words of figraph and figraph-launch for bash.
#
# Asks the programs' own help, so that the words match the installed programs. Invariant: nothing
# but help is run, and file names are offered wherever an option takes a file.

# Names that a help text lists: commands and parts, or options.
_figraph_names() {
    sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'
}
_figraph_options() {
    sed -n -e 's/^  \(--*[a-z][a-z-]*\).*/\1/p' -e 's/^  -h, \(--help\).*/\1/p'
}

# Prints the value of an option in the help: FILE, NAME, N; prints nothing for a flag.
_figraph_value() { # OPTION, help on stdin
    sed -n "s/^  $1 \([A-Z][A-Za-z=.,/]*\).*/\1/p" | head -n 1
}

_figraph() {
    local program=$1 current=$2 previous=$3 value help words
    local -a command=()
    COMPREPLY=()
    if [[ ${program##*/} == figraph-launch ]]; then
        help=$("$program" --help 2> /dev/null)
    else
        [[ $COMP_CWORD -gt 1 ]] && command=("${COMP_WORDS[1]}")
        [[ ${command[0]-} == bench && $COMP_CWORD -gt 2 ]] && command+=("${COMP_WORDS[2]}")
        help=$(COLUMNS=200 "$program" help "${command[@]}" 2> /dev/null)
    fi
    [[ $previous != -* ]] || value=$(_figraph_value "$previous" <<< "$help")
    if [[ $previous == --preset ]]; then
        words=$("$program" presets | sed -n 's/^\([a-z0-9][a-z0-9.-]*\) .*[0-9]$/\1/p')
    elif [[ $previous == --traits ]]; then
        words='h200 h100 a100 host'
    elif [[ $previous == --device ]]; then
        words='auto cuda host'
    elif [[ $previous == --format ]]; then
        words='html svg dot'
    elif [[ -n ${value-} ]]; then
        [[ $value != FILE ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
    elif [[ $current == -* ]]; then
        words=$(_figraph_options <<< "$help")
    elif [[ ${#command[@]} -eq 0 || $help == *"usage: figraph ${command[0]} PART"* ]]; then
        words=$(_figraph_names <<< "$help")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o filenames -F _figraph figraph figraph-launch

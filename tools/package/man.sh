#!/bin/sh
# man.sh: makes the manual pages of figraph and figraph-launch from their help texts.
#
# Every word comes from the help texts, which are laid out for 80 columns. Invariant: each command
# and each part that the help lists has a section.
#
# Usage: tools/package/man.sh FIGRAPH LAUNCH FOLDER
set -eu
figraph=$1
launch=$2
folder=$3
COLUMNS=80
export COLUMNS
mkdir -p "$folder"
version=$("$figraph" --version)

# Prints text literally: groff neither turns dashes into hyphens nor takes a line for a request.
literal() {
    printf '.nf\n'
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"
    printf '.fi\n'
}
head_of() { # NAME WHAT
    printf '.TH %s 1 "" "%s" "libfigraph"\n' "$(echo "$1" | tr "[:lower:]" "[:upper:]")" "$version"
    printf '.SH NAME\n%s \\- %s\n' "$(echo "$1" | sed 's/-/\\-/g')" "$2"
}
# Prints the names in a list of a help text; they begin in the third column.
listed() {
    sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'
}

{
    head_of figraph "$("$figraph" --help | sed -n '1s/^figraph: //p')"
    printf '.SH DESCRIPTION\n'
    "$figraph" --help | sed 1d | literal
    for command in $("$figraph" --help | listed); do
        printf '.SH "figraph %s"\n' "$command"
        "$figraph" help "$command" | literal
        # The listed names are parts only if the usage says PART.
        "$figraph" help "$command" | grep -q "^usage: figraph $command PART" || continue
        for part in $("$figraph" help "$command" | listed); do
            printf '.SH "figraph %s %s"\n' "$command" "$part"
            "$figraph" help "$command" "$part" | literal
        done
    done
    printf '.SH SEE ALSO\n.BR figraph\\-launch (1)\n'
} > "$folder/figraph.1"
{
    head_of figraph-launch 'start ranks of a program on this machine and wait for them'
    printf '.SH DESCRIPTION\n'
    "$launch" --help | literal
    printf '.SH SEE ALSO\n.BR figraph (1)\n'
} > "$folder/figraph-launch.1"

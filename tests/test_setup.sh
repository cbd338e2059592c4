#!/bin/sh
# test_setup.sh: what setup.sh does on machines that lack something, played by stand-ins.
#
# PATH holds only what a case gives it, so nothing is installed and no network is touched. A
# stand-in of apt-get that works "installs" a gcc that accepts every program.
set -u
root=$(pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

stand_in() { # NAME, body on stdin
    { echo '#!/bin/sh'; cat; } > "$bin/$1"
    chmod +x "$bin/$1"
}

# A machine with sh and the essential commands, no compiler, no apt-get, a user's rights.
bare_machine() {
    bin=$(mktemp -d "$scratch/bin.XXXXXX")
    for command in sh cat chmod env ln mktemp rm tail; do
        ln -s "$(command -v $command)" "$bin/$command"
    done
    echo 'echo 1000' | stand_in id
}

complete_machine() {
    for command in gcc g++ make python3; do echo 'exit 0' | stand_in $command; done
}

working_apt() {
    stand_in apt-get << END
echo "\$*" >> "$bin/apt.log"
case "\$*" in *install*)
    for command in gcc g++ make python3; do ln -s "$bin/apt-get" "$bin/\$command"; done ;;
esac
END
}

# expect CODE PATTERN [ARGUMENT]: runs setup.sh there; all it says is one match of PATTERN per line.
expect() {
    expected=$1 pattern=$2
    shift 2
    code=0
    said=$(PATH=$bin "$bin/sh" "$root/tools/setup.sh" "$@" 2>&1 < /dev/null) || code=$?
    if [ $code -ne "$expected" ] || ! printf '%s\n' "$said" | grep -qE "$pattern"; then
        failures=$((failures + 1))
        printf '%s: exit %d, not %d, having said:\n%s\n' "$case" $code "$expected" "$said"
    fi
}

case='where all is there, nothing is said or done'
bare_machine
complete_machine
echo 'exit 9' | stand_in apt-get
expect 0 '^$'

case='--check lists what is missing'
bare_machine
expect 1 '^setup: missing: gcc g\+\+ make libzstd-dev .*python3-venv$' --check

case='an unknown argument is bad usage'
expect 2 '^setup: unknown argument "--chekc": usage is' --chekc

case='without apt-get the packages are named'
expect 3 '^setup: no apt-get here: install .*libcmocka-dev'

case='without root and sudo it says what to run'
working_apt
expect 4 '^setup: not root, and no sudo: run as root: apt-get install gcc '

case='a failing apt-get is reported with its last line'
echo 'echo 0' | stand_in id
echo 'echo "E: no such mirror"; exit 100' | stand_in apt-get
expect 5 '^setup: apt-get install gcc .* failed: E: no such mirror$'

case='an apt-get that installs nothing is noticed'
echo 'exit 0' | stand_in apt-get
expect 5 '^setup: installed, yet still missing: gcc'

case='as root it installs what is missing, and the second run does nothing'
working_apt
expect 0 '^setup: installing gcc g\+\+ .*\(apt-get install\)$'
grep -q ' install --no-install-recommends gcc g++ make ' "$bin/apt.log" || {
    failures=$((failures + 1))
    echo "$case: apt-get was not asked for gcc"
}
expect 0 '^$'

case='a user installs through sudo'
bare_machine
working_apt
printf 'echo sudo >> "%s/sudo.log"\nexec "$@"\n' "$bin" | stand_in sudo
expect 0 '^setup: installing '
[ "$(grep -c sudo "$bin/sudo.log")" -eq 2 ] || {
    failures=$((failures + 1))
    echo "$case: apt-get was not run through sudo twice"
}

exit $((failures > 0))

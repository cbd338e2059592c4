#!/bin/sh
# leftovers.sh: checks whether killed ranks have left a process or shared memory behind.
#
# Source it after a script that defines `verdict` and $scratch. Every rank's command line must
# contain $scratch. Invariant: shared memory that existed before the test does not count.

# shellcheck disable=SC2062 # a name, not a pattern
is_left() { echo "$scratch" | grep -qF -f - /proc/[0-9]*/cmdline 2> /dev/null; }
shared() { find /dev/shm -iname '*fig*' 2> /dev/null; }
shared_before=$(shared)

# await COMMAND...: repeats the command until it succeeds, for about 600 s at most. Only a hang
# lasts that long, however busy the machine is.
await() {
    tries=0
    until "$@" || [ $tries -ge 30000 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
}
# Succeeds if the process has used at least this much processor time, in hundredths of a second. It
# is then doing its work, whatever the clock shows.
has_worked() { # PROCESS, HUNDREDTHS
    worked=$(awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat" 2> /dev/null)
    [ "${worked:-1000000}" -ge "$2" ]
}

nothing_left() {
    await eval '! is_left'
    ! is_left
    verdict $? 'nothing must be left running'
}
nothing_shared() {
    [ "$(shared)" = "$shared_before" ]
    verdict $? 'no shared memory must be left'
}

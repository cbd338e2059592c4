#!/bin/sh
# leftovers.sh: whether ranks that were killed have left a process or shared memory behind.
#
# Sourced behind what defines $scratch, which is in the command line of every rank, and verdict.
# Invariant: memory that was there before is nobody's here.

# shellcheck disable=SC2062 # a name, not a pattern
is_left() { echo "$scratch" | grep -qF -f - /proc/[0-9]*/cmdline 2> /dev/null; }
shared() { find /dev/shm -iname '*fig*' 2> /dev/null; }
shared_before=$(shared)

nothing_left() {
    tries=0
    while is_left && [ $tries -lt 20 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    ! is_left
    verdict $? 'nothing is to be left running'
}
nothing_shared() {
    [ "$(shared)" = "$shared_before" ]
    verdict $? 'no shared memory is to be left'
}

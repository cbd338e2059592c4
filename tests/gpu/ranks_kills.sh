#!/bin/sh
# ranks_kills.sh: many times, starts a group of ranks and kills one of them at a random moment: at
# the rendezvous, while it opens its GPU, or during steps. In every fifth run the rank is stopped
# instead of killed, so that it exists but does nothing. For each of ROUTES, one rank also exits by
# itself during steps. The other ranks must end in time, each with a message.
#
# FIG_DEVICE=host runs the ranks on the host. A survivor's call may take the group's timeout plus
# slack_ms until it fails, and closing may take slack_ms. Opening many GPUs at once takes seconds,
# and NCCL gets two seconds to shut down. Invariant: the last line is "N passed, N failed", where
# each kill counts.
#
# Usage: tests/gpu/ranks_kills.sh [KILLS]
#   RANKS    the number of ranks, default 2; JOBS: runs at the same time, default 4
#   LIMIT_S  no run begins after this time; MOMENTS_MS: the latest moment of a kill, default 3000
#   ROUTES   the --routes of ranks_step, which runs use in turn, default "0 0 4"; 4 is NCCL
set -u
LC_ALL=C
FIG_DEVICE=${FIG_DEVICE:-cuda}
FIG_SECRET=kills
export LC_ALL FIG_DEVICE FIG_SECRET
kills=${1:-200}
ranks=${RANKS:-2}
jobs=${JOBS:-4}
limit_s=${LIMIT_S:-600}
moments_ms=${MOMENTS_MS:-3000}
rank=${BUILD:-build}/release/tests/gpu/ranks_step
timeout_ms=3000
slack_ms=1000
[ "$FIG_DEVICE" = host ] || slack_ms=3000
first_port=$((20000 + $$ % 10000)) # the first of the ports, below those that the system assigns
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0

verdict() { # 0 if the check passed, MESSAGE
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $2"
    fi
}
# shellcheck source=tests/support/ranks/leftovers.sh
. "$(dirname "$0")/../support/ranks/leftovers.sh"

now_ms() { echo $(($(date +%s%N) / 1000000)); }
random() { # LIMIT
    echo $(($(od -An -N4 -tu4 /dev/urandom) % $1))
}
# shellcheck disable=SC2086 # a list of routes
route() { # N: returns the route of run N
    set -- "$1" ${ROUTES:-0 0 4}
    shift $((1 + $1 % ($# - 1)))
    echo "$1"
}
start() { # N RANK OPTION...: replaces this process by the rank
    n=$1 r=$2
    shift 2
    RANK=$r WORLD_SIZE=$ranks LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$((first_port + n)) exec "$rank" --steps 100000000 \
        --timeout-ms $timeout_ms --routes "$(route "$n")" --of "$scratch" "$@" \
        > "$scratch/said.$n.$r" 2>&1
}
start_all() { # N OPTION...: sets $pids to the process ids
    n=$1 pids=''
    shift
    for r in $(seq 0 $((ranks - 1))); do
        start "$n" "$r" "$@" &
        pids="$pids $!"
    done
}
# Succeeds if the process exists and is not a zombie, that is, ended but not waited for.
is_running() { grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status" 2> /dev/null; }

# For a line that ends with "after 1.234 s", prints 1234; for any other line, 999999.
ms_of() {
    echo "$1" | awk '{ print / after [0-9.]+ s$/ ? int($(NF - 1) * 1000) : 999999 }'
}
judge() { # N RANK PID BEGAN_MS
    while is_running "$3" && [ $(($(now_ms) - $4)) -lt 20000 ]; do sleep 0.02; done
    took=$(($(now_ms) - $4)) code=0
    kill -KILL "$3" 2> /dev/null # in case it hangs
    wait "$3" || code=$?
    said=$(head -n 1 "$scratch/said.$1.$2")
    call=$(ms_of "$said") close=$(ms_of "$(sed -n 2p "$scratch/said.$1.$2")")
    [ $code -eq 2 ] && [ "$call" -le $((timeout_ms + slack_ms)) ] && [ "$close" -le $slack_ms ]
    echo "$? $call $(route "$1") kill $1: rank $2 ended by $code after $took ms: $said; closed" \
        "after $close ms"
}
judge_others() { # N VICTIM, an index into $pids
    began=$(now_ms) r=0
    for pid in $pids; do
        [ $r -eq "$2" ] || judge "$1" $r "$pid" "$began"
        r=$((r + 1))
    done
}
# Run N: starts the ranks, kills one, and checks the others.
one() {
    n=$1 victim=$((($1 / 3) % ranks))
    start_all "$n"
    sleep "$(random "$moments_ms").0e-3"
    fallen=$(echo "$pids" | awk -v n=$victim '{ print $(n + 1) }')
    if [ $((n % 5)) -eq 4 ]; then kill -STOP "$fallen"; else kill -KILL "$fallen"; fi
    judge_others "$n" $victim
    kill -KILL "$fallen" 2> /dev/null
    wait "$fallen" 2> /dev/null # hides the shell's message about the killed process
}
# Run N: the last rank exits by itself after 20 steps.
leave() {
    start_all "$1" --leave 20
    judge_others "$1" $((ranks - 1))
    wait
}
worker() { # FIRST: does runs FIRST, FIRST + jobs, FIRST + 2 jobs and so on
    n=$1
    while [ "$n" -lt "$kills" ] && [ $(($(now_ms) - started)) -lt $((limit_s * 1000)) ]; do
        one "$n" >> "$scratch/ended.$1"
        n=$((n + jobs))
    done
}

started=$(now_ms)
# shellcheck disable=SC2086 # a list of routes
for n in $(seq "$kills" $((kills + $(set -- ${ROUTES:-0 0 4}; echo $#) - 1))); do
    leave "$n" >> "$scratch/ended.leaves"
done
workers=''
for w in $(seq 0 $((jobs - 1))); do
    worker "$w" &
    workers="$workers $!"
done
# shellcheck disable=SC2086 # a list of processes
wait $workers
sort -n -k 2 "$scratch"/ended.* > "$scratch/ended"
while read -r holds took of sentence; do
    verdict "$holds" "$sentence (route $of, $took ms)"
done < "$scratch/ended"
awk '{ ms[NR] = $2 } END {
    printf "%d survivors, told after %d ms in the middle, %d at most\n", NR, ms[int((NR + 1) / 2)],
        ms[NR] }' "$scratch/ended"
nothing_left
nothing_shared
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

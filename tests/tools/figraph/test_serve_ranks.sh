#!/bin/sh
# test_serve_ranks.sh: tests figraph serve and bench step on several ranks: all ranks do the same,
# whichever launcher started them; if they cannot work together, each prints the reason in one
# sentence and ends.
#
# FIG_KILLS is the number of ranks that are killed. Invariant: the last line is "N passed, N
# failed".
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT FIG_SECRET FIG_PORT FIG_TIMEOUT_MS
launch=${BUILD:-build}/figraph-launch
kills=${FIG_KILLS:-6}
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"
# shellcheck source=tests/support/ranks/leftovers.sh
. "$(dirname "$0")/../../support/ranks/leftovers.sh"
export FIG_DEVICE=host

fine() {
    ends 0
    quiet
}
has() { # TEXT, on stderr
    grep -qF -e "$1" "$scratch/err"
    verdict $? "stderr must hold \"$1\""
}
says_all() {
    prints '"passed": true'
    prints "\"ranks\": $1"
    prints '"done": 24'
}

# ---- Started by figraph, and by a launcher -------------------------------------------------------
made='--preset tutorial --requests 24'
# shellcheck disable=SC2086 # words, here and below
{
    for ranks in 2 4; do
        run serve $made --ranks $ranks --check --json
        fine
        says_all $ranks
    done
    # In this run, requests arrive while others run, wait for pages and are preempted, and plans are
    # taken back.
    run serve $made --ranks 2 --rate 300 --kv-pages 50 --horizon 8 --check --json
    fine
    says_all 2
    run serve $made --ranks 2 --rate 20 --fast --horizon 64 --check --json
    fine
    says_all 2
    run serve $made --ranks 2 --chunk 50 --check --json
    fine
    says_all 2
    prints '"chunk": 50'
    run serve $made --ranks 2 --check
    fine
    prints 'tutorial on host, 2 ranks'
    prints 'and all ranks did the same'
    words='serve (under figraph-launch)' code=0
    "$launch" -n 2 -- "$figraph" serve $made --ranks 2 --check --json > "$scratch/out" \
        2> "$scratch/err" || code=$?
    fine
    says_all 2
    ! grep -qF '[1]' "$scratch/out"
    verdict $? 'only rank 0 may print'
    run capture --preset tutorial -o "$scratch/model.fig"
    run serve "$scratch/model.fig" --requests 24 --ranks 2 --check --json
    fine
    says_all 2
    run serve $made --ranks 2 --save-trace "$scratch/trace.csv"
    fine
    run serve --preset tutorial --trace "$scratch/trace.csv" --ranks 2 --check --json
    fine
    says_all 2

    for ranks in 2 4; do
        run bench step --heads 8/4 --ffn-width 64 --ranks $ranks --json
        fine
        prints "\"heads\": \"$((8 / ranks))/$((4 / ranks))\""
        prints "\"ranks\": $ranks,"
    done
    run bench step --ranks 3
    refused '--ranks' 'q_heads is 4, it must be a multiple of ranks, 3'

    # ---- Mistakes that one process can see are reported once -------------------------------------
    run serve $made --ranks 3
    refused '--ranks' 'q_heads is 16, it must be a multiple of ranks, 3'
    run serve $made --ranks 0
    refused '--ranks' '0 is outside 1..256'
    run serve $made --ranks 2 --horizon 0
    refused '--horizon'
    words='serve --ranks, without a launcher' code=0
    mkdir "$scratch/bin"
    cp "$figraph" "$scratch/bin/figraph"
    PATH=$scratch/bin "$scratch/bin/figraph" serve $made --ranks 2 > "$scratch/out" \
        2> "$scratch/err" || code=$?
    refused 'cannot start figraph-launch: No such file or directory'
    words='serve (on 4 of 2 ranks)' code=0
    "$launch" -n 2 -- "$figraph" serve $made --ranks 4 > "$scratch/out" 2> "$scratch/err" || code=$?
    ends 2
    has '[0] figraph: serve: --ranks: 4, but a launcher has started 2'
}

# ---- Without a launcher, each rank ends by itself ------------------------------------------------
port=$((20000 + $$ % 10000))
# Starts one rank of `size`, without a launcher. Writes its stderr to err.RANK and its exit code to
# code.RANK.
rank() { # RANK, then the arguments of serve
    rank=$1
    shift
    code=0
    RANK=$rank WORLD_SIZE=${size:-2} LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 FIG_PORT=$port \
        FIG_SECRET=${secret:-ours} FIG_TIMEOUT_MS=${timeout:-3600000} \
        timeout 600 "$figraph" serve "$@" > "$scratch/out.$rank" 2> "$scratch/err.$rank" || code=$?
    echo $code > "$scratch/code.$rank"
}
told() { # RANK CODE TEXT
    code=$(cat "$scratch/code.$1")
    cp "$scratch/err.$1" "$scratch/err"
    ends "$2"
    [ $# -eq 2 ] || has "$3"
}
next() {
    words="serve ($1)"
    port=$((port + 1))
}
# With $met, ranks exchange messages in every turn, because requests are still arriving and because
# the preset sums over ranks. With $apart, they exchange none, so only the group can tell them that
# a rank is gone.
met='--preset tutorial --requests 100000 --rate 100000 --ranks 2 --kv-pages 64'
apart="$scratch/model.fig --requests 5000 --ranks 2"
# shellcheck disable=SC2086
{
    next 'a rank that never comes'
    timeout=400 rank 0 --preset tutorial --ranks 2
    told 0 2 'rank 1'
    next 'a world of two sizes'
    (size=3 timeout=2000 rank 1 --preset tutorial --ranks 3) &
    timeout=2000 rank 0 --preset tutorial --ranks 2
    wait
    told 0 2 'rank 1'
    told 1 2 '3'
    next 'a port in use'
    python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen()
open(sys.argv[2], "w").close(); time.sleep(1000)' $port "$scratch/listens" &
    holder=$!
    await test -e "$scratch/listens"
    timeout=400 rank 0 --preset tutorial --ranks 2
    kill $holder
    wait
    told 0 2 'in use'
    next 'two files'
    run capture --preset tutorial --kv-limit 256 -o "$scratch/other.fig"
    words='serve (two files)'
    rank 1 "$scratch/other.fig" --ranks 2 &
    rank 0 "$scratch/model.fig" --ranks 2
    wait
    told 0 2 'spec differs between rank 0 and rank 1'
    told 1 2 'spec differs between rank 0 and rank 1'
    next 'strangers on the port'
    (await test -e "$scratch/called" && rank 1 --preset tutorial --requests 24 --ranks 2 --check) &
    python3 -c 'import socket, sys, time
def call():
    for _ in range(30000):
        try:
            return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        except OSError:
            time.sleep(0.01)
silent, loud = call(), call()
loud.sendall(b"GET / HTTP/1.0\r\n\r\n" * 100)
open(sys.argv[2], "w").close()
time.sleep(1000)' $port "$scratch/called" &
    stranger=$!
    rank 0 --preset tutorial --requests 24 --ranks 2 --check
    kill $stranger
    wait
    told 0 0
    told 1 0
    # If a rank dies at work, the other rank ends in time and names it.
    for victim in 0 1; do
        long=$met
        [ $victim = 0 ] || long=$apart
        next "rank $victim is killed"
        rank $((1 - victim)) $long &
        RANK=$victim WORLD_SIZE=2 LOCAL_RANK=$victim MASTER_ADDR=127.0.0.1 FIG_PORT=$port \
            FIG_SECRET=ours FIG_TIMEOUT_MS=3600000 "$figraph" serve $long > "$scratch/out" 2>&1 &
        fallen=$!
        await has_worked $fallen 40
        kill -KILL $fallen
        wait # hangs if the other rank was not told
        told $((1 - victim)) 1 "rank $victim is gone"
    done
}

# ---- Killed at random moments --------------------------------------------------------------------
round=0
while [ $round -lt "$kills" ]; do
    words="serve --ranks 4, of which one is killed"
    # shellcheck disable=SC2086
    FIG_TIMEOUT_MS=3600000 "$figraph" serve --preset tutorial --requests 100000 --rate 100000 \
        --ranks 4 --save-trace "$scratch/trace.csv" > "$scratch/out" 2> "$scratch/err" &
    launcher=$!
    await eval "[ \"\$(pgrep -c -x -P $launcher figraph)\" -ge 4 ]"
    sleep "0.$(printf '%03d' $(($(od -An -N2 -tu2 /dev/urandom) % 500)))"
    victim=$(pgrep -x -P $launcher figraph | sed -n "$((1 + round % 4))p")
    kill -KILL "${victim:-$launcher}"
    code=0
    wait $launcher || code=$?
    ends 137
    has 'was ended by signal 9 (Killed)'
    round=$((round + 1))
done
nothing_left
nothing_shared

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

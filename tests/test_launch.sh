#!/bin/sh
# test_launch.sh: what figraph-launch promises: each rank's environment and place, its output behind
# its number, and that all end together, whoever dies, with nothing left running or in memory.
#
# Ranks of the second half are a program that meets over the library's public header and exchanges
# bytes by shared memory. FIG_KILLS says how many of them are killed. Invariant: the last line is
# "N passed, N failed".
set -u
LC_ALL=C
export LC_ALL
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT FIG_SECRET FIG_PORT CUDA_VISIBLE_DEVICES
launch=${BUILD:-build}/figraph-launch
kills=${FIG_KILLS:-24}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
words=
code=0

verdict() { # 0: it holds; what was to hold
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAILED: figraph-launch $words"
    echo "    $2; exit code $code, stdout and stderr:"
    head -c 2000 "$scratch/out" | sed 's/^/    | /'
    head -c 600 "$scratch/err" | sed 's/^/    ! /'
}
run() {
    words=$*
    code=0
    timeout 60 "$launch" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
}
ends() {
    [ "$code" -eq "$1" ]
    verdict $? "the exit code is to be $1"
}
prints() {
    grep -qE -e "$1" "$scratch/out"
    verdict $? "stdout is to have a line like $1"
}
prints_lines() {
    [ "$(wc -l < "$scratch/out")" -eq "$1" ]
    verdict $? "stdout is to have $1 lines"
}
says() { # the launcher's one line
    [ "$(grep -c '^figraph-launch: ' "$scratch/err")" -eq 1 ] && grep -qF -e "$1" "$scratch/err"
    verdict $? "stderr is to have one line of the launcher's, with \"$1\""
}
quiet() {
    [ ! -s "$scratch/err" ]
    verdict $? 'stderr is to be empty'
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# Processes that have a word of this test's in their command line, as all of its ranks do.
is_left() { echo "$scratch/" | grep -qF -f - /proc/[0-9]*/cmdline 2> /dev/null; }
nothing_left() {
    tries=0
    while is_left && [ $tries -lt 20 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    ! is_left
    verdict $? 'nothing is to be left running'
}
await_file() {
    tries=0
    while [ ! -s "$1" ] && [ $tries -lt 1000 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    [ -s "$1" ]
    verdict $? "$1 is to be there in time"
}

# ---- Words ---------------------------------------------------------------------------------------
run --help
ends 0
quiet
prints '^usage: figraph-launch -n N '
prints '^example:$'
awk 'length > 80 { long = 1 } END { exit long }' "$scratch/out"
verdict $? 'no line is to be longer than 80 columns'
refused() { # WORDS, then the command line
    sentence=$1
    shift
    run "$@"
    ends 2
    prints_lines 0
    says "$sentence"
}
refused '-n N is required'
refused '-n N is required' -- true
refused 'no program was given' -n 2
refused 'no program was given' -n 2 --
refused '-n 0: it is a number from 1 to 256' -n 0 true
refused '-n two: it is a number' -n two true
refused '-n 257: it is a number' -n257 true
refused '-n : it is a number' -n
refused '--timeout 0: it is a number' -n 2 --timeout 0 true
refused '--timeout 1s: it is a number' -n 2 --timeout=1s true
refused 'unknown option --np' --np 2 true
refused 'across machines use torchrun, mpirun or srun' -n 2 --hosts a,b true
refused 'across machines use torchrun, mpirun or srun' --hosts=a,b -n 2 true
MASTER_PORT=70000
export MASTER_PORT
refused 'MASTER_PORT is 70000' -n 2 true
unset MASTER_PORT

# ---- Environment and output ----------------------------------------------------------------------
# shellcheck disable=SC2016 # the ranks expand these
run -n 3 -- sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $1"
    echo "$MASTER_PORT" > "$2/port.$RANK"; echo "$FIG_SECRET" > "$2/secret.$RANK"
    cat; echo to stderr >&2; printf unfinished' rank 'a word' "$scratch"
ends 0
prints_lines 6
for rank in 0 1 2; do
    prints "^\[$rank\] $rank $rank 3 3 127\.0\.0\.1 a word\$"
    prints "^\[$rank\] unfinished\$"
    grep -qxF "[$rank] to stderr" "$scratch/err"
    verdict $? 'a line on stderr is to be on stderr'
done
sort -u "$scratch"/port.* > "$scratch/ports"
sort -u "$scratch"/secret.* > "$scratch/secrets"
[ "$(wc -l < "$scratch/ports")" -eq 1 ] && grep -qxE '[0-9]{5}' "$scratch/ports"
verdict $? 'all ranks are to have one port'
[ "$(wc -l < "$scratch/secrets")" -eq 1 ] && grep -qxE '[0-9a-f]{32}' "$scratch/secrets"
verdict $? 'all ranks are to have one secret'
FIG_SECRET=mine MASTER_PORT=23456
export FIG_SECRET MASTER_PORT
# shellcheck disable=SC2016
run -n1 sh -c 'echo $FIG_SECRET $MASTER_PORT'
prints '^\[0\] mine 23456$'
unset FIG_SECRET MASTER_PORT

# shellcheck disable=SC2016
run -n 12 sh -c 'seq 20000 | sed "s/^/$RANK:/"; head -c 9000 /dev/zero | tr "\0" x'
ends 0
prints_lines $((12 * 20002)) # the long line is told in two pieces
prints '^\[ 3\] 3:20000$'
prints '^\[11\] 11:20000$'
awk -F '[] :[]+' '/:/ { if ($2 != $3 || $4 != ++seen[$2]) bad = 1 } END { exit bad }' "$scratch/out"
verdict $? 'lines are to be whole and in their order'

words='... | head -n 1'
{
    timeout 60 "$launch" -n 2 -- sh -c "while echo y; do :; done; : $scratch/"
    echo $? > "$scratch/code"
} 2> "$scratch/err" | head -n 1 > "$scratch/out"
code=$(cat "$scratch/code")
ends 141
prints '^\[[01]\] y$'
says 'nobody reads stdout'
nothing_left

# ---- Places --------------------------------------------------------------------------------------
HWLOC_SYNTHETIC='pack:2 [numa] core:4 pu:2'
export HWLOC_SYNTHETIC
run -n 2 --dry-run ./serve
ends 0
quiet
prints '^  WORLD_SIZE=2$'
prints '^  MASTER_PORT=[0-9]+$'
prints '^  FIG_SECRET=\(drawn for each run\)$'
prints '^  RANK=0 +LOCAL_RANK=0 +threads 0-7$'
prints '^  RANK=1 +LOCAL_RANK=1 +threads 8-15$'
run -n 3 --dry-run ./serve
prints 'RANK=0 .* threads 0-3$'
prints 'RANK=1 .* threads 4-9$'
prints 'RANK=2 .* threads 10-15$'
run -n 9 --dry-run ./serve
prints 'RANK=8 .* threads 0-15$'
unset HWLOC_SYNTHETIC
# Two packages of two cores; three GPUs, two beside the second package, and a NIC that is none.
gpu() { # INDEX BUS CLASS VENDOR
    echo "<object type='PCIDev' gp_index='$1' pci_busid='0000:$2:00.0' pci_type='$3 [$4:2330]" \
        "[$4:0000] a1' pci_link_speed='0.0'/>"
}
package() { # INDEX, then devices on stdin
    set=$(printf '0x%08x' $((3 << (2 * $1))))
    sets="cpuset='$set' complete_cpuset='$set' nodeset='0x00000001' complete_nodeset='0x00000001'"
    echo "<object type='Package' os_index='$1' $sets gp_index='1$1'>"
    for core in 0 1; do
        thread=$((2 * $1 + core))
        set=$(printf '0x%08x' $((1 << thread)))
        sets="cpuset='$set' complete_cpuset='$set' nodeset='0x00000001'"
        sets="$sets complete_nodeset='0x00000001'"
        echo "<object type='Core' os_index='$thread' $sets gp_index='2$thread'>" \
            "<object type='PU' os_index='$thread' $sets gp_index='3$thread'/></object>"
    done
    echo "<object type='Bridge' gp_index='4$1' bridge_type='0-1' depth='0'" \
        "bridge_pci='0000:[$((1 + 4 * $1))0-$((1 + 4 * $1))f]'>"
    cat
    echo '</object></object>'
}
{
    sets="cpuset='0x0000000f' complete_cpuset='0x0000000f' nodeset='0x00000001'"
    sets="$sets complete_nodeset='0x00000001'"
    echo "<?xml version='1.0' encoding='UTF-8'?>"
    echo "<!DOCTYPE topology SYSTEM 'hwloc2.dtd'>"
    echo "<topology version='2.0'>"
    echo "<object type='Machine' os_index='0' $sets allowed_cpuset='0x0000000f'" \
        "allowed_nodeset='0x00000001' gp_index='1'>"
    echo "<object type='NUMANode' os_index='0' $sets gp_index='2' local_memory='1000000000'/>"
    { gpu 51 11 0302 10de; gpu 52 12 0200 10de; } | package 0
    { gpu 53 51 0302 10de; gpu 54 52 0300 10de; } | package 1
    echo '</object></topology>'
} | tr "'" '"' > "$scratch/machine.xml"
HWLOC_XMLFILE=$scratch/machine.xml
export HWLOC_XMLFILE
run -n 3 --dry-run ./serve
prints 'RANK=0 .* threads 0-1, beside GPU 0000:11:00\.0$'
prints 'RANK=1 .* threads 2, beside GPU 0000:51:00\.0$'
prints 'RANK=2 .* threads 3, beside GPU 0000:52:00\.0$'
run -n 4 --dry-run ./serve
prints 'RANK=3 .* threads 3$' # fewer GPUs than ranks
CUDA_VISIBLE_DEVICES=2,0
export CUDA_VISIBLE_DEVICES
run -n 2 --dry-run ./serve
prints 'RANK=0 .* threads 2-3, beside GPU 0000:52:00\.0$'
prints 'RANK=1 .* threads 0-1, beside GPU 0000:11:00\.0$'
CUDA_VISIBLE_DEVICES=GPU-8932f937
run -n 1 --dry-run ./serve
prints 'RANK=0 .* threads 0-3$'
unset CUDA_VISIBLE_DEVICES HWLOC_XMLFILE

# ---- Ends ----------------------------------------------------------------------------------------
before=$(now_ms)
# shellcheck disable=SC2016
run -n 4 sh -c 'case $RANK in 2) exit 7 ;; 1) trap "" TERM ;; esac
    while :; do sleep 0.1; done; : $0' "$scratch/"
ends 7
says 'rank 2 ended with 7; the others are ended'
[ $(($(now_ms) - before)) -lt 4000 ]
verdict $? 'a rank that does not listen is to be killed within 2 s'
nothing_left
# shellcheck disable=SC2016
run -n 2 sh -c '[ $RANK = 0 ] || kill -SEGV $$; sleep 100'
ends 139
says 'rank 1 was ended by signal 11 (Segmentation fault)'
# shellcheck disable=SC2016
run -n 3 sh -c '[ $RANK != 1 ] || exit 0; sleep 0.3; echo late' # one that ends well ends none
ends 0
prints_lines 2
run -n 2 --timeout 1 sh -c "sleep 100; : $scratch/"
ends 124
says '1 s are over; the ranks are ended'
nothing_left
run -n 2 "$scratch/none"
ends 127
says 'none: No such file or directory'
run -n 2 sh -c 'sh -c "sleep 100; : $0" & exit 0' "$scratch/"
ends 0
nothing_left # a rank's own children too

in_background() {
    words=$*
    : > "$scratch/ready"
    "$launch" "$@" > "$scratch/out" 2> "$scratch/err" &
    launcher=$!
    await_file "$scratch/ready"
}
await_end() {
    code=0
    wait "$launcher" || code=$?
}
# shellcheck disable=SC2016
in_background -n 2 sh -c 'trap "echo told; exit 0" USR1
    [ $RANK = 0 ] || echo x > $0/ready; while :; do sleep 0.05; done' "$scratch"
sleep 0.2
kill -USR1 "$launcher"
await_end
ends 0
prints '^\[0\] told$'
prints '^\[1\] told$'
# shellcheck disable=SC2016
in_background -n 2 sh -c '[ $RANK = 0 ] || echo x > $0/ready; sleep 100' "$scratch"
kill -TERM "$launcher"
await_end
ends 143
says 'signal 15 (Terminated) was passed on to the ranks'
nothing_left
# shellcheck disable=SC2016
in_background -n 2 sh -c 'trap "" TERM INT; [ $RANK = 0 ] || echo x > $0/ready
    while :; do sleep 0.05; done' "$scratch"
sleep 0.2
kill -TERM "$launcher"
sleep 0.2
kill -INT "$launcher"
await_end
ends 130
says 'asked twice'
nothing_left
# shellcheck disable=SC2016
in_background -n 2 sh -c '[ $RANK = 0 ] || echo x > $0/ready; sleep 1000' "$scratch"
kill -KILL "$launcher"
await_end
ends 137
tries=0
while is_left && [ $tries -lt 20 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
! is_left
verdict $? 'ranks of a launcher that was killed are to die'

# ---- Ranks that meet -----------------------------------------------------------------------------
cat > "$scratch/rank.c" << 'END_OF_C'
#include <figraph_ranks.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/ranks/carrier.h"

/* rank FOLDER COUNT: so many exchanges between barriers; it leaves its process's number. */
int main(int count, char **words) {
    fig_ranks *ranks = NULL;
    fig_carrier *carrier = NULL;
    fig_ranks_info info = {.size = sizeof info};
    const void *parts[FIG_RANKS_LIMIT];
    char path[400];
    const char *rank = getenv("RANK");
    snprintf(path, sizeof path, "%s/process.%s", words[count - 2], rank ? rank : "0");
    FILE *file = fopen(path, "w");
    if (file != NULL) fprintf(file, "%d\n", (int)getpid());
    if (file != NULL) fclose(file);
    fig_status status = fig_ranks_open(&ranks, NULL);
    if (status == FIG_OK) status = fig_ranks_read_info(ranks, &info);
    if (status == FIG_OK) status = fig_carrier_open(&carrier, ranks, 64);
    for (int32_t i = 0; i < atoi(words[count - 1]) && status == FIG_OK; i++) {
        const fig_carrier_call call = {i, 0, 0, &info.rank, sizeof info.rank};
        status = fig_carrier_exchange(carrier, &call, parts);
        for (int32_t r = 0; r < info.count && status == FIG_OK; r++)
            if (*(const int32_t *)parts[r] != r) return 9;
        if (status == FIG_OK) status = fig_ranks_barrier(ranks);
    }
    if (status == FIG_OK)
        printf("rank %d of %d, %d of %d here\n", (int)info.rank, (int)info.count,
               (int)info.local_rank, (int)info.local_count);
    else
        fprintf(stderr, "%s\n", fig_message());
    fig_carrier_close(carrier);
    fig_ranks_close(ranks);
    return status == FIG_OK ? 0 : 3;
}
END_OF_C
${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -iquote . -Iinclude "$scratch/rank.c" \
    "${BUILD:-build}/libfigraph.a" -lzstd -ljansson -lhwloc -lm -lpthread -o "$scratch/rank" || {
    echo 'the program of the ranks was not built'
    exit 1
}
shared() { ls -A /dev/shm /tmp 2> /dev/null | grep -v "^${scratch##*/}\$" | grep -i fig; }
shared_before=$(shared)

run -n 4 "$scratch/rank" "$scratch" 100
ends 0
quiet
for rank in 0 1 2 3; do
    prints "^\[$rank\] rank $rank of 4, $rank of 4 here\$"
done

random() { # LIMIT
    echo $(($(od -An -N2 -tu2 /dev/urandom) % $1))
}
round=0
while [ $round -lt "$kills" ]; do
    victim=$((round % 4))
    rm -f "$scratch"/process.*
    words="-n 4 rank, of which rank $victim is killed"
    "$launch" -n 4 "$scratch/rank" "$scratch" 100000000 > "$scratch/out" 2> "$scratch/err" &
    launcher=$!
    while [ ! -s "$scratch/process.$victim" ]; do sleep 0.005; done
    sleep "0.$(printf '%03d' "$(random 80)")" # at the rendezvous, and at work
    before=$(now_ms)
    kill -KILL "$(cat "$scratch/process.$victim")"
    await_end
    ends 137
    says "rank $victim was ended by signal 9 (Killed)"
    [ $(($(now_ms) - before)) -lt 4000 ]
    verdict $? 'all are to have ended within 2 s'
    round=$((round + 1))
done
nothing_left
[ "$(shared)" = "$shared_before" ]
verdict $? 'no shared memory is to be left'

# ---- Other launchers -----------------------------------------------------------------------------
met() {
    ends 0
    for rank in 0 1 2 3; do
        prints "rank $rank of 4, $rank of 4 here"
    done
}
if command -v mpirun > /dev/null; then
    words='(mpirun)'
    code=0
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 \
        mpirun -n 4 --oversubscribe "$scratch/rank" "$scratch" 20 \
        > "$scratch/out" 2> "$scratch/err" || code=$?
    met
else
    echo 'skipped: mpirun was not found'
fi
if command -v torchrun > /dev/null; then
    words='(torchrun)'
    code=0
    timeout 60 torchrun --standalone --nproc-per-node 4 --no-python "$scratch/rank" "$scratch" 20 \
        > "$scratch/out" 2> "$scratch/err" || code=$?
    met
else
    echo 'skipped: torchrun was not found'
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

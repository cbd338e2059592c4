#!/bin/sh
# test_launch.sh: tests figraph-launch: each rank's environment and cores; its output, which is
# prefixed by its number; and that all ranks end if any one dies, and leave no process and no shared
# memory.
#
# In the second half, the ranks run a program that uses the public headers and sums over all ranks
# on the host device. FIG_KILLS is the number of ranks that are killed. Invariant: the last line is
# "N passed, N failed".
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT FIG_SECRET FIG_PORT CUDA_VISIBLE_DEVICES
FIGRAPH=${BUILD:-build}/figraph-launch
kills=${FIG_KILLS:-24}
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../support/cli.sh"
# shellcheck source=tests/support/ranks/leftovers.sh
. "$(dirname "$0")/../support/ranks/leftovers.sh"

like() { # PATTERN
    grep -qE -e "$1" "$scratch/out"
    verdict $? "stdout must have a line like $1"
}
lines() {
    [ "$(wc -l < "$scratch/out")" -eq "$1" ]
    verdict $? "stdout must have $1 lines"
}
tells() { # TEXT, which the launcher's only line on stderr must contain
    [ "$(grep -c '^figraph-launch: ' "$scratch/err")" -eq 1 ] && grep -qF -e "$1" "$scratch/err"
    verdict $? "stderr must have one line of the launcher's, with \"$1\""
}

# ---- Words ---------------------------------------------------------------------------------------
run --help
ends 0
quiet
like '^usage: figraph-launch -n N '
like '^example:$'
fits 80
denied() { # MESSAGE ARGUMENT...
    sentence=$1
    shift
    run "$@"
    refused "$sentence"
}
denied '-n N is required'
denied '-n N is required' -- true
denied 'no program was given' -n 2
denied 'no program was given' -n 2 --
denied '-n 0: it is a number from 1 to 256' -n 0 true
denied '-n two: it is a number' -n two true
denied '-n 257: it is a number' -n257 true
denied '-n needs a value, a number from 1 to 256' -n
denied '--timeout 0: it is a number' -n 2 --timeout 0 true
denied '--timeout 1s: it is a number' -n 2 --timeout=1s true
denied 'unknown option --np' --np 2 true
denied 'across machines use torchrun, mpirun or srun' -n 2 --hosts a,b true
denied 'across machines use torchrun, mpirun or srun' --hosts=a,b -n 2 true
MASTER_PORT=70000
export MASTER_PORT
denied 'MASTER_PORT is 70000' -n 2 true
unset MASTER_PORT

# ---- Environment and output ----------------------------------------------------------------------
# shellcheck disable=SC2016 # the ranks expand these
run -n 3 -- sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $1"
    echo "$MASTER_PORT" > "$2/port.$RANK"; echo "$FIG_SECRET" > "$2/secret.$RANK"
    cat; echo to stderr >&2; printf unfinished' rank 'a word' "$scratch"
ends 0
lines 6
for rank in 0 1 2; do
    like "^\[$rank\] $rank $rank 3 3 127\.0\.0\.1 a word\$"
    like "^\[$rank\] unfinished\$"
    grep -qxF "[$rank] to stderr" "$scratch/err"
    verdict $? 'a line on stderr must be on stderr'
done
sort -u "$scratch"/port.* > "$scratch/ports"
sort -u "$scratch"/secret.* > "$scratch/secrets"
[ "$(wc -l < "$scratch/ports")" -eq 1 ] && grep -qxE '[0-9]{5}' "$scratch/ports"
verdict $? 'all ranks must have one port'
[ "$(wc -l < "$scratch/secrets")" -eq 1 ] && grep -qxE '[0-9a-f]{32}' "$scratch/secrets"
verdict $? 'all ranks must have one secret'
FIG_SECRET=mine MASTER_PORT=23456
export FIG_SECRET MASTER_PORT
# shellcheck disable=SC2016
run -n1 sh -c 'echo $FIG_SECRET $MASTER_PORT'
like '^\[0\] mine 23456$'
unset FIG_SECRET MASTER_PORT

# shellcheck disable=SC2016
run -n 2 --plain -- sh -c 'echo "as it is"; echo said >&2'
ends 0
lines 2
like '^as it is$'
[ "$(sort "$scratch/err")" = "$(printf '[0] said\n[1] said')" ]
verdict $? 'with --plain stdout alone must have no numbers'
# shellcheck disable=SC2016
run -n 12 sh -c 'seq 20000 | sed "s/^/$RANK:/"; head -c 9000 /dev/zero | tr "\0" x'
ends 0
lines $((12 * 20002)) # each long line is printed in two pieces
like '^\[ 3\] 3:20000$'
like '^\[11\] 11:20000$'
awk -F '[] :[]+' '/:/ { if ($2 != $3 || $4 != ++seen[$2]) bad = 1 } END { exit bad }' "$scratch/out"
verdict $? 'lines must be whole and in their order'

words='... | head -n 1'
{
    timeout 600 "$figraph" -n 2 -- sh -c "while echo y; do :; done; : $scratch/"
    echo $? > "$scratch/code"
} 2> "$scratch/err" | head -n 1 > "$scratch/out"
code=$(cat "$scratch/code")
ends 141
like '^\[[01]\] y$'
tells 'nobody reads stdout'
nothing_left

# A full disk.
if [ -w /dev/full ]; then
    for words in '--help' '-n 2 --dry-run true' '-n 2 -- echo y'; do
        code=0
        # shellcheck disable=SC2086 # they are words
        timeout 600 "$figraph" $words > /dev/full 2> "$scratch/err" || code=$?
        ends 2
        tells 'stdout: No space left on device'
    done
    nothing_left
else
    echo 'skipped: there is no /dev/full to be a full disk'
fi

# ---- Places --------------------------------------------------------------------------------------
HWLOC_SYNTHETIC='pack:2 [numa] core:4 pu:2'
export HWLOC_SYNTHETIC
run -n 2 --dry-run ./serve
ends 0
quiet
like '^  WORLD_SIZE=2$'
like '^  MASTER_PORT=[0-9]+$'
like '^  FIG_SECRET=\(drawn for each run\)$'
like '^  RANK=0 +LOCAL_RANK=0 +threads 0-7$'
like '^  RANK=1 +LOCAL_RANK=1 +threads 8-15$'
run -n 3 --dry-run ./serve
like 'RANK=0 .* threads 0-3$'
like 'RANK=1 .* threads 4-9$'
like 'RANK=2 .* threads 10-15$'
run -n 9 --dry-run ./serve
like 'RANK=8 .* threads 0-15$'
unset HWLOC_SYNTHETIC
# The machine has two packages of two cores each, three GPUs, two of which are near the second
# package, and a NIC, which must not count as a GPU.
gpu() { # INDEX BUS CLASS VENDOR
    echo "<object type='PCIDev' gp_index='$1' pci_busid='0000:$2:00.0' pci_type='$3 [$4:2330]" \
        "[$4:0000] a1' pci_link_speed='0.0'/>"
}
package() { # INDEX, with the devices on stdin
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
like 'RANK=0 .* threads 0-1, beside GPU 0000:11:00\.0$'
like 'RANK=1 .* threads 2, beside GPU 0000:51:00\.0$'
like 'RANK=2 .* threads 3, beside GPU 0000:52:00\.0$'
run -n 4 --dry-run ./serve
like 'RANK=3 .* threads 3$' # with fewer GPUs than ranks, ranks are placed without regard to GPUs
CUDA_VISIBLE_DEVICES=2,0
export CUDA_VISIBLE_DEVICES
run -n 2 --dry-run ./serve
like 'RANK=0 .* threads 2-3, beside GPU 0000:52:00\.0$'
like 'RANK=1 .* threads 0-1, beside GPU 0000:11:00\.0$'
CUDA_VISIBLE_DEVICES=GPU-8932f937
run -n 1 --dry-run ./serve
like 'RANK=0 .* threads 0-3$'
unset CUDA_VISIBLE_DEVICES HWLOC_XMLFILE

# ---- How ranks end -------------------------------------------------------------------------------
# shellcheck disable=SC2016
run -n 4 sh -c 'case $RANK in 2) exit 7 ;; 1) trap "" TERM ;; esac
    while :; do sleep 0.1; done; : $0' "$scratch/"
ends 7
tells 'rank 2 ended with 7; the others are ended' # by SIGKILL if they ignore SIGTERM
nothing_left
# shellcheck disable=SC2016
run -n 2 sh -c '[ $RANK = 0 ] || kill -SEGV $$; sleep 100'
ends 139
tells 'rank 1 was ended by signal 11 (Segmentation fault)'
# If a rank ends without a failure, the others go on.
# shellcheck disable=SC2016
run -n 3 sh -c 'if [ $RANK = 1 ]; then echo $$ > $0/well.new && mv $0/well.new $0/well; exit 0; fi
    until [ -s $0/well ]; do sleep 0.01; done
    while grep -q "^State:.[RSD]" "/proc/$(cat $0/well)/status" 2> /dev/null; do sleep 0.01; done
    echo late' "$scratch"
ends 0
lines 2
# A rank that fails because another one failed is not reported as the cause, even if the launcher
# sees it first. On a busy machine the other rank may end after the time that the launcher waits for
# it, so one round of ten is enough.
for round in 1 2 3 4 5 6 7 8 9 10; do
    rm -f "$scratch/falling"
    # shellcheck disable=SC2016
    run -n 2 sh -c 'n=0; while [ $RANK = 0 ] && [ ! -e $0 ]; do :; done; [ $RANK = 1 ] || exit 3
        : > $0; while [ $n -lt 3000 ]; do n=$((n + 1)); done; kill -KILL $$' "$scratch/falling"
    [ "$code" -ne 137 ] || break
done
ends 137
tells 'rank 1 was ended by signal 9 (Killed)'
run -n 2 --timeout 1 sh -c "sleep 100; : $scratch/"
ends 124
tells 'the time limit of 1 s is over; the ranks are ended'
nothing_left
run -n 2 "$scratch/none"
ends 127
tells 'none: No such file or directory'
# shellcheck disable=SC2016
run -n 2 sh -c 'sh -c "sleep 100; : $0" & exit 0' "$scratch/"
ends 0
nothing_left # the children of a rank are ended too

in_background() {
    words=$*
    : > "$scratch/ready"
    "$figraph" "$@" > "$scratch/out" 2> "$scratch/err" &
    launcher=$!
    await_ready 2
}
await_ready() { # LINES, which the ranks write to $scratch/ready
    await eval "[ \"\$(wc -l < "$scratch/ready")\" -ge $1 ]"
    [ "$(wc -l < "$scratch/ready")" -ge "$1" ]
    verdict $? "the ranks must have written $1 lines in time"
}
await_end() {
    code=0
    wait "$launcher" || code=$?
}
# shellcheck disable=SC2016
in_background -n 2 sh -c 'trap "echo told; exit 0" USR1
    echo x >> $0/ready; while :; do sleep 0.05; done' "$scratch"
kill -USR1 "$launcher"
await_end
ends 0
like '^\[0\] told$'
like '^\[1\] told$'
# shellcheck disable=SC2016
in_background -n 2 sh -c 'echo x >> $0/ready; sleep 100' "$scratch"
kill -TERM "$launcher"
await_end
ends 143
tells 'signal 15 (Terminated) was passed on to the ranks'
nothing_left
# shellcheck disable=SC2016
in_background -n 2 sh -c 'trap "" INT; trap "echo x >> $0/ready" TERM; echo x >> $0/ready
    while :; do sleep 0.05; done' "$scratch"
kill -TERM "$launcher"
await_ready 4 # the ranks received SIGTERM and go on
kill -INT "$launcher"
await_end
ends 130
tells 'asked twice'
nothing_left
# shellcheck disable=SC2016
in_background -n 2 sh -c 'echo x >> $0/ready; sleep 1000' "$scratch"
kill -KILL "$launcher"
await_end
ends 137
nothing_left # if the launcher is killed, its ranks die
# shellcheck disable=SC2016
in_background -n 2 sh -c 'sh -c "echo x >> \$0/ready; sleep 1000" "$0"; exit 0' "$scratch"
kill -KILL "$launcher"
await_end
ends 137
nothing_left # and the processes that ranks have started die too
# shellcheck disable=SC2016
in_background -n 2 sh -c 'echo $$ >> $0/ready; kill -STOP $$; sleep 1000' "$scratch"
while read -r process; do
    tries=0
    while ! grep -q '^State:.T' "/proc/$process/status" && [ $tries -lt 1000 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
done < "$scratch/ready"
kill -TERM "$launcher"
tries=0
# `wait` alone could hang if the launcher did not end
while kill -0 "$launcher" 2> /dev/null && [ $tries -lt 1000 ]; do
    tries=$((tries + 1))
    sleep 0.02
done
[ $tries -lt 1000 ] || kill -KILL "$launcher"
await_end
ends 143
tells 'signal 15 (Terminated) was passed on to the ranks'
nothing_left

# ---- Ranks that communicate ----------------------------------------------------------------------
cat > "$scratch/rank.c" << 'END_OF_C'
#include <figraph_parallel.h>
#include <figraph_ranks.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WIDTH = 4 };

static fig_graphs *lower(void) {
    static const fig_bucket any = {1, 1};
    fig_program *program;
    fig_graphs *graphs = NULL;
    fig_all_reduce_op op = {.size = sizeof op};
    fig_program_create(&program, FIG_OPTIONS(fig_spec, .dtype = FIG_F32));
    op.in = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "in", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F32, .rank = 2, .dims = {FIG_DIM_BATCH, WIDTH}));
    op.out = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "out", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F32, .rank = 2, .dims = {FIG_DIM_BATCH, WIDTH}));
    fig_all_reduce(program, &op);
    if (fig_program_finish(program) == FIG_OK)
        fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = &any, .bucket_count = 1));
    fig_program_destroy(program);
    return graphs;
}

/* Steps, each a sum over all ranks of what is n + 1 on rank n; 9: a sum is wrong. */
static int add_up(fig_engine *engine, const fig_ranks_info *info, int32_t steps) {
    const int32_t one = 1;
    const float own = (float)(info->rank + 1), right = (float)(info->count * (info->count + 1) / 2);
    float in[WIDTH] = {own, own, own, own}, out[WIDTH];
    fig_status status = fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "in",
                                                            .address = in, .bytes = sizeof in));
    if (status == FIG_OK)
        status = fig_engine_bind(
            engine, FIG_OPTIONS(fig_binding, .name = "out", .address = out, .bytes = sizeof out));
    for (int32_t i = 0; i < steps && status == FIG_OK; i++) {
        for (int k = 0; k < WIDTH; k++)
            out[k] = 0;
        status = fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &one));
        if (status == FIG_OK) status = fig_engine_wait(engine, 60000000);
        if (status == FIG_OK && (out[0] != right || out[WIDTH - 1] != right)) return 9;
    }
    return status == FIG_OK ? 0 : 3;
}

/* Without an engine, which the host has none of over several of them. */
static int meet(fig_ranks *ranks) {
    fig_status status = FIG_OK;
    for (int i = 0; i < 100 && status == FIG_OK; i++)
        status = fig_ranks_barrier(ranks);
    return status == FIG_OK ? 0 : 3;
}

/* rank FOLDER STEPS: it leaves its process's number in the folder. 0 steps: the ranks only meet. */
int main(int count, char **words) {
    fig_ranks *ranks = NULL;
    fig_engine *engine = NULL;
    fig_ranks_info info = {.size = sizeof info};
    fig_graphs *graphs = lower();
    const char *rank = getenv("RANK");
    char path[400];
    const int32_t steps = atoi(words[count - 1]);
    int code = 3;
    snprintf(path, sizeof path, "%s/process.%s", words[count - 2], rank != NULL ? rank : "0");
    FILE *file = fopen(path, "w");
    if (file != NULL) fprintf(file, "%d\n", (int)getpid());
    if (file != NULL) fclose(file);
    if (graphs == NULL || fig_ranks_open(&ranks, NULL) != FIG_OK ||
        fig_ranks_read_info(ranks, &info) != FIG_OK)
        code = 3;
    else if (steps == 0)
        code = meet(ranks);
    else if (fig_engine_open(&engine, graphs,
                             FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST,
                                         .ranks = ranks)) == FIG_OK)
        code = add_up(engine, &info, steps);
    if (code == 0)
        printf("rank %d of %d, %d of %d here\n", (int)info.rank, (int)info.count,
               (int)info.local_rank, (int)info.local_count);
    else
        fprintf(stderr, "%s\n", fig_message());
    fig_engine_close(engine);
    fig_ranks_close(ranks);
    fig_graphs_destroy(graphs);
    return code;
}
END_OF_C
${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -Iinclude "$scratch/rank.c" \
    "${BUILD:-build}/libfigraph.a" -lzstd -ljansson -lhwloc -lm -lpthread -o "$scratch/rank" || {
    echo 'the program of the ranks was not built'
    exit 1
}

run -n 4 "$scratch/rank" "$scratch" 100
ends 0
quiet
for rank in 0 1 2 3; do
    like "^\[$rank\] rank $rank of 4, $rank of 4 here\$"
done

random() { # LIMIT
    echo $(($(od -An -N2 -tu2 /dev/urandom) % $1))
}
# The timeout is so long that each rank must be told of a death, or the test hangs.
export FIG_TIMEOUT_MS=3600000
round=0
while [ $round -lt "$kills" ]; do
    victim=$((round % 4))
    rm -f "$scratch"/process.*
    words="-n 4 rank, of which rank $victim is killed"
    "$figraph" -n 4 "$scratch/rank" "$scratch" 100000000 > "$scratch/out" 2> "$scratch/err" &
    launcher=$!
    while [ ! -s "$scratch/process.$victim" ]; do sleep 0.005; done
    sleep "0.$(printf '%03d' "$(random 80)")" # some ranks die at the rendezvous, some at work
    kill -KILL "$(cat "$scratch/process.$victim")"
    await_end
    ends 137
    tells "rank $victim was ended by signal 9 (Killed)"
    round=$((round + 1))
done
unset FIG_TIMEOUT_MS
nothing_left
nothing_shared

# ---- Other launchers -----------------------------------------------------------------------------
met() {
    ends 0
    for rank in 0 1 2 3; do
        like "rank $rank of 4, $rank of 4 here"
    done
}
over_mpi() { # PROGRAM ARGUMENT...
    words="(mpirun $*)"
    code=0
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 600 \
        mpirun -n 4 --oversubscribe "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
}
if command -v mpirun > /dev/null; then
    over_mpi "$scratch/rank" "$scratch" 20
    met
    over_mpi "${BUILD:-build}/figraph" serve --preset tutorial --requests 8 --device host --ranks 4
    ends 0
    like '^tutorial on host, 4 ranks$'
else
    echo 'skipped: mpirun was not found'
fi
if command -v torchrun > /dev/null; then
    torchrun() { command torchrun "$@"; }
else
    # Imitates torchrun --standalone of torch 2: sets the variables that it gives to its workers,
    # and opens its store, which occupies the port. The system assigns neither this port nor the
    # next one, on which our rank 0 listens.
    torchrun() { # --standalone --nproc-per-node N --no-python PROGRAM [ARGUMENT...]
        python3 - "$@" << 'END'
import os, random, socket, subprocess, sys, uuid
count, program = int(sys.argv[3]), sys.argv[5:]
store = None
while store is None:
    try:
        store = socket.create_server(("", random.randrange(20000, 31998)))
        socket.create_server(("", store.getsockname()[1] + 1)).close()
    except OSError:
        store = None
shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "ROLE_WORLD_SIZE": count,
          "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "ROLE_NAME": "default",
          "MASTER_ADDR": "localhost", "MASTER_PORT": store.getsockname()[1],
          "TORCHELASTIC_RUN_ID": uuid.uuid4(), "TORCHELASTIC_USE_AGENT_STORE": True,
          "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
          "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1, "OMP_NUM_THREADS": 1}
def start(rank):
    own = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank}
    return subprocess.Popen(program, env=dict(os.environ, **{
        name: str(value) for name, value in {**shared, **own}.items()}))
sys.exit(max([worker.wait() for worker in [start(rank) for rank in range(count)]]))
END
    }
fi
words='(torchrun)'
code=0
torchrun --standalone --nproc-per-node 4 --no-python "$scratch/rank" "$scratch" 20 \
    > "$scratch/out" 2> "$scratch/err" || code=$?
met

# ---- Several hosts, simulated by network namespaces ----------------------------------------------
# Runs two ranks, each on a host of its own; their output is in $scratch/out.
apart() { # STEPS
    words="(rank $1, on two hosts)" code=0
    for rank in 0 1; do
        RANK=$rank ip netns exec "figraph-$$-$rank" timeout 600 env WORLD_SIZE=2 LOCAL_RANK=0 \
            MASTER_ADDR=10.99.0.1 MASTER_PORT=4000 FIG_SECRET="$secret" FIG_TIMEOUT_MS=10000 \
            "$scratch/rank" "$scratch" "$1" > "$scratch/out.$rank" 2>&1 &
    done
    wait
    cat "$scratch/out.0" "$scratch/out.1" > "$scratch/out"
}
play_hosts() {
    ip netns add "figraph-$$-0" && ip netns add "figraph-$$-1" &&
        ip link add name eth0 netns "figraph-$$-0" type veth peer name eth0 netns "figraph-$$-1" &&
        for host in 0 1; do
            ip -n "figraph-$$-$host" addr add "10.99.0.$((1 + host))/24" dev eth0 &&
                ip -n "figraph-$$-$host" link set eth0 up || return 1
        done
}
if play_hosts > "$scratch/log" 2>&1; then
    : > "$scratch/err"
    secret=ours
    apart 0
    like '^rank 0 of 2, 0 of 1 here$'
    like '^rank 1 of 2, 0 of 1 here$'
    apart 1
    like 'ranks: 1 of 2 are on this host, and host ranks share its memory'
    secret=
    apart 0
    like 'FIG_SECRET is not set, and ranks on more than one host need one'
else
    echo 'skipped: this system makes no network namespaces for this test'
fi
for host in 0 1; do ip netns del "figraph-$$-$host"; done > "$scratch/log" 2>&1

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

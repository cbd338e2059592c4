#!/bin/sh
# test_layers_ranks.sh: tests the example's whole layers on several ranks of the host: they give the
# same numbers as one rank, or a message if the ranks cannot run together.
#
# test_layers.c compares the numbers of one rank with float64. Invariant: the last line is "N
# passed, N failed".
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT FIG_SECRET FIG_PORT FIG_TIMEOUT_MS
FIGRAPH=${BUILD:-build}/layers
launch=${BUILD:-build}/figraph-launch
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../support/cli.sh"

over() { # RANKS, then the arguments of layers
    ranks=$1
    shift
    words="$* on $ranks ranks"
    code=0
    timeout 600 "$launch" -n "$ranks" -- "$figraph" "$@" > "$scratch/out" 2> "$scratch/err" ||
        code=$?
}
tells() {
    grep -qF -e "$1" "$scratch/err"
    verdict $? "stderr must hold \"$1\""
}

cat > "$scratch/config.json" << 'END'
{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
 "max_position_embeddings": 512, "rope_theta": 10000.0, "torch_dtype": "bfloat16"}
END
small="--config $scratch/config.json --hidden 256 --traits host --kv-limit 512"
# shellcheck disable=SC2086 # words, here and below
{
    run record $small --batch-limit 4 -o "$scratch/model.fig"
    ends 0
    quiet
    run record $small --batch-limit 4 --layers 1 -o "$scratch/other.fig"
    ends 0
}

run --help
ends 0
quiet
prints 'usage: layers record'
for option in layers hidden batch-limit kv-limit traits kv steps check first-way device; do
    prints "  --$option "
done
run run --help
ends 0
prints 'usage: layers record'
run record $small -o -
refused '"-" names no file'

run run "$scratch/model.fig" --device host --kv 3x40 --steps 4
ends 0
prints '2 layers, 3 rows of 40 tokens, 1 rank, host'
# stderr announces each long operation before it begins; the first announcement is about memory.
head -n 1 "$scratch/err" |
    grep -q '^layers: 0\.[0-9]* GB for weights of 2 layers and .* 3 rows of 40'
verdict $? 'the first line of stderr must tell how much memory is taken'
for phase in 'trying how each product' 'taking the first step' 'taking 7 steps more'; do
    tells "$phase"
done
prints 'from the file to the end of the first step'
for ranks in 2 4 8; do # with 8 ranks, two ranks share each kv head
    over $ranks run "$scratch/model.fig" --device host --kv 3x40 --steps 4 --check
    ends 0
    tells "on each of $ranks ranks"
    # one line each for the ranks' shares, for one share by itself, and for the whole step
    [ "$(grep -c 'taking the first step' "$scratch/err")" -eq 3 ]
    verdict $? 'only one rank may tell what is done'
    prints "3 rows of 40 tokens, $ranks ranks, host"
    prints '% of a step is communication'
    prints 'a step on one rank: here it was'
    prints '; right: '
done

over 2 run "$scratch/model.fig" --device host --kv 3x40 --steps 4 --first-way --check
ends 0
prints '; right: '

over 3 run "$scratch/model.fig" --device host
ends 2
tells 'q_heads is 8, it must be a multiple of ranks, 3'
over 2 run "$scratch/none.fig" --device host
ends 2
tells 'No such file'
over 2 run "$scratch/model.fig" --device host --kv 5x40
ends 2
tells '--kv: 5 rows of 40 tokens, which grow by 64, but the file is for 4 rows of 512'
over 2 run "$scratch/model.fig" --device host --kv 3x449
ends 2
tells '3 rows of 449 tokens'
# shellcheck disable=SC2016 # the ranks expand these
words='(two files)' code=0
"$launch" -n 2 -- sh -c 'f=model; [ $RANK = 0 ] || f=other
    exec $0 run $1/$f.fig --kv 3x40 --device host' "$figraph" "$scratch" \
    > "$scratch/out" 2> "$scratch/err" || code=$?
ends 2
tells 'ranks: spec differs between rank 0 and rank 1'
denied() { # MESSAGE ARGUMENT...
    sentence=$1
    shift
    run "$@"
    refused "$sentence"
}
denied 'record or run is missing; see layers --help'
denied 'unknown command walk' walk
denied 'run: FILE is required' run
denied '--kv: 3 is not ROWSxTOKENS with 1 to 256 rows' run "$scratch/model.fig" --kv 3
denied '--kv: 0x3 is not ROWSxTOKENS' run "$scratch/model.fig" --kv 0x3
denied '--kv needs a value' run "$scratch/model.fig" --kv
denied '--steps: x is no whole number from 1 on' run "$scratch/model.fig" --steps x
denied 'unknown option --first' run "$scratch/model.fig" --first
denied 'unknown option --first-way' record $small --first-way
denied '-o FILE is required' record $small
denied 'one of --preset and --config is required' record -o "$scratch/none.fig"
if [ -w /dev/full ]; then
    for words in '--help' "run $scratch/model.fig --kv 1x1 --device host"; do
        code=0
        "$figraph" $words > /dev/full 2> "$scratch/err" || code=$?
        ends 2
        tells 'stdout: No space left on device'
    done
else
    echo 'skipped: there is no /dev/full to be a full disk'
fi
run record --preset gemma-2-9b -o "$scratch/none.fig"
ends 2
tells 'layers like llama'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/bin/sh
# run.sh: makes every CSV of a GPU's results by figraph bench, in one call.
#
# Files are named <chip>_<what>.csv; stamp.sh adds driver, date and commit. Shapes other than 32/8
# heads of 128 have about the bytes of 8x4096, so that their shares can be compared. Invariant: if a
# part fails, the others still run, and the exit code is 1.
#
# Usage: tools/bench/run.sh [--only SET] [DIRECTORY [OPTION...]]   FIGRAPH is the program
#   SET         uniform, ragged, fp8, shapes, drafts, latent, step, replay, chunks, ops or tune;
#               without it all of these; allreduce or layers, which need two GPUs or four: RANKS
#               says how many
#   DIRECTORY   tools/bench/results; OPTION   of every call: --quick, --device host
cd "$(dirname "$0")/../.." || exit 1
figraph=${FIGRAPH:-build/figraph}
only=
if [ "$1" = --only ]; then
    only=$2
    case $only in
    uniform | ragged | fp8 | shapes | drafts | latent | step | replay | chunks | ops | tune | \
        allreduce | layers) shift 2 ;;
    *)
        sets="uniform, ragged, fp8, shapes, drafts, latent, step, replay, chunks, ops, tune"
        sets="$sets, allreduce, layers"
        echo "run.sh: --only: \"$only\" is none of $sets" >&2
        exit 2
        ;;
    esac
fi
results=${1:-tools/bench/results}
[ $# -eq 0 ] || shift
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$results" || exit 1
code=0
# Captures a file for the measured device.
device=
case " $* " in *' --device host '*) device='--traits host' ;; esac

is_asked() { # SET, or the set and what follows "_"
    [ -z "$only" ] || [ "$only" = "${1%%_*}" ]
}
# Takes the name of the chip from the file itself.
keep() { # WHAT
    chip=$(awk -F , 'NR == 2 { print $2 }' "$scratch/t.csv")
    mv "$scratch/t.csv" "$results/${chip:-unknown}_$1.csv"
    tools/bench/stamp.sh "$results/${chip:-unknown}_$1.csv"
    echo "$results/${chip:-unknown}_$1.csv"
}
bench() { # WHAT PART OPTION...
    what=$1
    shift
    is_asked "$what" || return 0
    if "$figraph" bench "$@" --csv "$scratch/t.csv" > "$scratch/out"; then
        tail -n 1 "$scratch/out"
        keep "$what"
    else
        code=1
    fi
}
# Writes the results of several calls into one file.
calls() { # WHAT PART OPTION...: options of all calls; stdin has a line of further options per call
    what=$1 part=$2
    shift 2
    is_asked "$what" || return 0
    : > "$scratch/all.csv"
    while read -r rest; do
        # shellcheck disable=SC2086
        if "$figraph" bench "$part" $rest "$@" --csv "$scratch/t.csv" > "$scratch/out"; then
            sed "$([ -s "$scratch/all.csv" ] && echo 1d)" "$scratch/t.csv" >> "$scratch/all.csv"
        else
            code=1
        fi
    done
    mv "$scratch/all.csv" "$scratch/t.csv"
    keep "$what"
}

# Prints what rows of drafts take beside rows of one query token.
ratios() { # CSV
    awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["of_plain"] != "" {
            printf "%s: of_plain %.3f, of_ones %.3f, worst_ulp %s\n", $at["cell"],
                $at["of_plain"], $at["chain_us"] / $at["ones_us"], $at["worst_ulp"]
        }' "$1"
}

# Times every variant, over bf16 and e4m3 caches; costs.sh makes the library's table from the times.
tune() { # OPTION...
    is_asked tune || return 0
    : > "$scratch/all.csv"
    for dtype in bf16 e4m3; do
        kv=
        [ "$dtype" = bf16 ] || kv="--kv-dtype $dtype"
        # shellcheck disable=SC2086
        if "$figraph" capture --preset llama-3.1-8b --layers 1 $kv $device -o "$scratch/t.fig" \
            > "$scratch/out" &&
            "$figraph" tune "$scratch/t.fig" --csv "$scratch/t.csv" "$@" > "$scratch/out"; then
            grep '^over' "$scratch/out"
            sed "$([ -s "$scratch/all.csv" ] && echo 1d)" "$scratch/t.csv" >> "$scratch/all.csv"
        else
            code=1
        fi
    done
    chip=$(awk -F , 'NR == 2 { print $1 }' "$scratch/all.csv")
    mv "$scratch/all.csv" "$results/${chip:-unknown}_tune.csv"
    tools/bench/stamp.sh "$results/${chip:-unknown}_tune.csv"
    echo "$results/${chip:-unknown}_tune.csv"
}

bench uniform attention --heads 32/8,64/8 --uniform "$@"
bench ragged attention --ragged --random 6 "$@"
bench fp8 attention --fp8 "$@"
calls shapes attention "$@" << 'END'
--kv 8x512 --kv 8x4096 --kv 32x2048
--heads 40/8 --kv 8x4096
--heads 28/4 --kv 8x8192
--heads 16/1 --kv 8x32768
--heads 14/2 --page 5 --kv 8x16384
--heads 12/1 --page 1 --kv 8x32768
--heads 32/8 --head-dim 64 --kv 8x8192
--heads 32/8 --head-dim 80 --kv 8x6554
--heads 32/8 --head-dim 96 --kv 8x5461
--heads 16/4 --head-dim 256 --kv 8x4096
--layout hnd --kv 8x4096
--page 1 --kv 8x4096
--page 5 --kv 8x4096
--window 4096 --kv 8x8192
--kv-dtype e4m3 --kv 8x8192 --kv 64x2048 --kv 32x4096
--kv-dtype e5m2 --kv 8x8192 --kv 64x2048 --kv 32x4096
--kv-dtype e4m3 --kv-scales head --kv 8x8192 --kv 64x2048 --kv 32x4096
--heads 16/4 --head-dim 64 --dtype f16 --kv 1x512
END
# Draws of 2 to 16 query tokens a row. Prints the times as multiples of those of the same rows with
# one query token: of_plain, and of_ones in the same graph.
drafts='--kv 3x70:2-16'
latents='--preset deepseek-v3 --heads 8/1 --kv 2x40'
[ -n "$device" ] || {
    drafts=$(for seed in 0 1 2 3 4; do echo "--kv 32x4096:2-16 --seed $seed"; done)
    latents='--preset deepseek-v3 --heads 16/1,32/1,64/1,128/1 --page 64'
    latents="$latents --kv 1x2048 --kv 16x2048 --kv 16x8192 --kv 64x8192"
}
calls drafts attention "$@" << END
$drafts
END
! is_asked drafts || ratios "$results/${chip:-unknown}_drafts.csv"
# Over latent caches, also standing alone. tests/gpu/attention/latent_bench.c has more chains.
calls latent_alone attention "$@" << END
$latents
END
bench step step "$@"
# Times a step of the tutorial's shape beside an empty graph; whole models only on GPUs.
replays='--preset tutorial --rows 1 --kv 500'
[ -n "$device" ] || replays="$replays
--preset llama-3.1-8b --rows 1,8,32,64 --steps 100
--preset llama-3.1-8b-layer --rows 1,8,32,64 --steps 2000"
calls replay replay "$@" << END
$replays
END
# Whole steps of a program whose rows may be chunks of prompts, with chunks and without, and the
# latter in a program that is not packed. replay compares a step's first row with float64, so that
# row is short.
chunks='--preset tutorial --layers 1 --batch-limit 3 --kv-limit 80 --row-tokens 20 --query-limit 24'
chunks="$chunks --rows 2 --kv 1:1+60:20"
[ -n "$device" ] || {
    of='--preset llama-3.1-8b --layers 4 --batch-limit 129 --kv-limit 16384 --steps 100'
    packed='--row-tokens 4096 --query-limit 4224'
    chunks=$(for step in '2 --kv 1:1+8192:512' '2 --kv 1:1+8192:2048' \
        '3 --kv 1:1+2048:62+2048:500' '129 --kv 128x1024:1+8192:512' '1 --kv 512:1' \
        '8 --kv 8x2048:1' '64 --kv 64x2048:1'; do echo "$of $packed --rows $step"; done
        for step in '1 --kv 512' '8 --kv 8x2048' '64 --kv 64x2048'; do
            echo "$of --rows $step"
        done)
}
calls chunks replay "$@" << END
$chunks
END
bench ops ops "$@"
tune "$@"
[ "$only" != allreduce ] || calls "allreduce_${RANKS:-2}" allreduce "$@" << END
--ranks ${RANKS:-2} --width 512 --rows 1,2,4
--ranks ${RANKS:-2}
--ranks ${RANKS:-2} --width 8192
END
if [ "$only" = layers ]; then
    if tools/bench/layers.sh "$scratch/t.csv" "$@"; then keep "layers_${RANKS:-2}"; else code=1; fi
fi
exit $code

#!/bin/sh
# test_bench_compare.sh: tests when figraph bench compare reports a time as slower.
#
# It uses made-up figures, so that each verdict is known. Invariant: the last line is "N passed, N
# failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

# Writes a file of bench attention with one line per cell. CHAIN_1 and CHAIN_2 are the chain times
# of the two cells, SPREAD the spread of both.
write_run() { # FILE CHAIN_1 CHAIN_2 [SPREAD]
    {
        echo 'chip,set,cell,heads,rows,chain_us,alone_us,spread'
        echo "h200,kv,1x512,32/8,1,$2,9.00,${4:-0.001}"
        echo "h200,kv,8x512,32/8,8,$3,8.00,${4:-0.001}"
    } > "$scratch/$1.csv"
}
compare() { # OLD,... NEW OPTION...: OLD and NEW are names given to write_run
    old= new=$2
    for file in $(echo "$1" | tr , " "); do
        old=${old:+$old,}$scratch/$file.csv
    done
    shift 2
    run bench compare --old "$old" "$scratch/$new.csv" "$@"
}

write_run before 4.00 6.00
write_run again 4.12 6.00
write_run same 4.04 5.95
compare before same
ends 0
quiet
prints 'chain_us: new takes 1.001 of old, geometric mean of 2; 0 slower; scatter 0.1%'
prints 'alone_us: new takes 1.000 of old'
grep -q 1x512 "$scratch/out"
verdict $((1 - $?)) 'what is within the margin must not be shown'

# The worst loss comes first, and a cell's name contains what distinguishes the cell from the
# others.
write_run slow 4.13 6.60
compare before slow
ends 1
prints '1.100'
awk '/^ *8x512 +chain_us/ { first = NR } /^ *1x512 +chain_us/ { second = NR }
     END { exit !(first && second && first < second) }' "$scratch/out"
verdict $? 'the worst cell must come first'
says '2 of 4 times are slower'

# A time is slower only if it exceeds the greatest time of all old runs by more than the margin.
write_run worse 4.15 6.00
compare before,again worse
ends 0
prints 'scatter 1.5%'
compare before worse
ends 1
compare before worse --margin 5
ends 0
# A difference within the spread of the cell's samples is not slower either. The spread counts only
# up to a limit, so that a single outlier hides no large difference.
write_run shaky 4.15 6.00 0.019
compare before shaky
ends 0
write_run astray 4.00 6.60 0.9
compare before astray --margin 6
ends 0
write_run astray 4.00 6.80 0.9
compare before astray --margin 6
ends 1

# If old runs of one commit differ by more than the margin, there is no verdict.
write_run noisy 4.40 6.60
compare before,noisy same
ends 1
says 'too noisy to say'
compare before astray
ends 1
says 'too noisy to say'

# Cells that one of the files lacks are left out. The same cell on another chip or with other heads
# is another cell.
sed 's/^h200,kv,8x512/h100,kv,8x512/' "$scratch/same.csv" > "$scratch/other.csv"
compare before other
ends 0
prints '2 times that no old run has'
sed 's/kv,/uniform,/' "$scratch/same.csv" > "$scratch/uniform.csv"
compare before uniform
ends 0
prints 'geometric mean of 2'
sed 's,32/8,64/8,' "$scratch/same.csv" > "$scratch/heads.csv"
compare before heads
refused 'no time of a cell in common'

compare before slow --json --csv "$scratch/t.csv"
ends 1
python3 -c "import csv, json
j = json.load(open('$scratch/out'))
t = list(csv.DictReader(open('$scratch/t.csv')))
assert [(x['cell'], x['time'], x['slower']) for x in j][:2] == [
    ('8x512', 'chain_us', 1), ('1x512', 'chain_us', 1)] and len(j) == len(t) == 4
assert abs(float(t[0]['ratio']) - 1.1) < 1e-3"
verdict $? 'CSV and JSON must have all times, the worst first'

# compare reads the files that all parts of bench write, including quoted fields.
run bench replay --preset tutorial --rows 2 --kv 9,30 --steps 5 --device host \
    --csv "$scratch/replay.csv"
compare replay replay
ends 0
prints 'step_ns: new takes 1.000 of old, geometric mean of 1'
printf 'chip,cell,chain_us\r\nh200,"1x7",2\r\n' > "$scratch/return.csv"
compare return return
ends 0

run bench compare "$scratch/same.csv"
refused '--old'
run bench compare "$scratch/same.csv" --old "$scratch/same.csv,,"
refused '--old: the name of file 2 has 0 bytes, limits 1 to 4095'
run bench compare "$scratch/same.csv" --old "$(printf '%04096d' 0)"
refused '--old: the name of file 1 has 4096 bytes'
compare before none
refused "$scratch/none.csv"
compare none same
refused "$scratch/none.csv"
compare before same --margin 101
refused '--margin' '0..100'
printf 'chip,cell,chain_us\nh200,1x7\n' > "$scratch/short.csv"
compare before short
refused "$scratch/short.csv:2" '2 fields' '3'
: > "$scratch/empty.csv"
compare before empty
refused 'no time of a cell in common'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/bin/sh
# stamp.sh: adds to a CSV of the bench the driver, date and commit of its measurement.
#
# Appends those of the columns driver, date and commit that the file lacks. COMMIT gives the commit
# if git cannot. Invariant: a stamped file stays as it is.
#
# Usage: tools/bench/stamp.sh FILE.csv...
commit=${COMMIT:-$(git -C "$(dirname "$0")" rev-parse --short HEAD 2> /dev/null || echo unknown)}
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2> /dev/null | head -n 1)
scratch=$(mktemp) || exit 1
trap 'rm -f "$scratch"' EXIT

for file; do
    awk -v driver="${driver:-none}" -v date="$(date -u +%F)" -v commit="$commit" '
        NR == 1 {
            all = "driver,date,commit"
            count = split(all, names, ",")
            for (i = 1; i <= count; i++) if (("," $0 ",") !~ "," names[i] ",") lacks[names[i]] = 1
            value["driver"] = driver; value["date"] = date; value["commit"] = commit
        }
        {
            line = $0
            for (i = 1; i <= count; i++)
                if (names[i] in lacks) line = line "," (NR == 1 ? names[i] : value[names[i]])
            print line
        }' "$file" > "$scratch" && cat "$scratch" > "$file" || exit 1
done

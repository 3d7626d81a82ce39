#!/bin/bash
# What took longest: `times.sh LOG [TIMES]` reads the log of a run of tests, and the times of those on clusters.
set -eu -o pipefail
# Here nothing reads only the first lines of what another writes: the writer would die of it, and with it a green run.
log=$1 clusters=${2:-/dev/null}
[ -r "$clusters" ] || clusters=/dev/null
most=${MOST:-20}

printf '\n== time by stage\n%9s  %s\n' seconds stage
awk -v now="$(printf '%(%T)T' -1)" '
    function seconds(time, part) { split(time, part, ":"); return part[1] * 3600 + part[2] * 60 + part[3] }
    function row(until) { printf "%9d  %s\n", (until - begin + 86400) % 86400, stage }
    /^== .* \([0-9][0-9]:[0-9][0-9]:[0-9][0-9]\)$/ {
        time = seconds(substr($NF, 2, 8))
        if (stage != "") row(time)
        begin = time; stage = $0; sub(/^== /, "", stage); sub(/ \([0-9:]*\)$/, "", stage)
    }
    END { if (stage != "") row(seconds(now)) }
' "$log"

printf '\n== time by test: the longest without clusters\n%9s  %s\n' seconds test
sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' "$log" | sort -rn |
    awk -v most="$most" 'NR <= most { printf "%9.1f  %s\n", $1, $2 }'

[ "$clusters" != /dev/null ] || exit 0
printf '\n== time by test: the longest on real clusters\n%9s  %9s  %-10s  %s\n' seconds "waited" on test
sort -t "$(printf '\t')" -k4,4rn "$clusters" |
    awk -F '\t' -v most="$most" 'NR <= most { printf "%9.1f  %9.1f  %-10s  %s%s\n", $4, $3, $2, $1, $5 == "passed" ? "" : ": " $5 }'

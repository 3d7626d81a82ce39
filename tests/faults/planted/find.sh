#!/bin/bash
# Plants each of the bugs beside this file into a copy of the checkout, and has the drawn schedules look for it there, then all
# other tests: every one must be found. With names as arguments, only these are planted.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# What the copy builds is kept apart from what the checkout builds, but from one run to the next.
export CARGO_TARGET_DIR=${PLANTED_TARGET_DIR:-$root/target/planted}
operations=${KOSMOS_CSI_FAULTED_OPERATIONS:-50000}
# `dev` builds in a tenth of the time, and plays at a third of the speed.
profile=${PLANTED_PROFILE:-faults}
# A schedule has so many.
each=200
log=$CARGO_TARGET_DIR/planted.log
mkdir -p "$CARGO_TARGET_DIR"
failed=0

# Has schedules look for the bug, more and more of them; says which one found it.
drawn() {
    local seed=1 count=5 done=0
    while [ "$done" -lt "$operations" ]; do
        if ! (cd "$copy" && KOSMOS_CSI_SEED=$seed KOSMOS_CSI_FAULTED_OPERATIONS=$((count * each)) \
            cargo test --quiet --profile "$profile" --test faults every_promise) >"$log" 2>&1; then
            local first
            first=$(grep -o -E '^seed [0-9]+' "$log" | grep -o -E '[0-9]+' | sort -n | head -n 1 || true)
            # Nobody has found anything where the program could not run.
            [ -n "$first" ] || return 1
            echo "found by seed $first, after $((first * each)) operations:" \
                "$(sed -n "/^seed $first:/,/^seed /p" "$log" | grep -m1 -o -E 'I[0-9]+: .{0,140}')"
            return 0
        fi
        seed=$((seed + count)) done=$((done + count * each)) count=$((count * 2))
    done
    return 1
}

# As new files: cargo goes by their times, and what an earlier run has built must not be taken for them.
(cd "$root" && tar -cf - --exclude=./target --exclude=./.git .) | tar -xmf - -C "$copy"
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
        continue
    fi
    if ! (cd "$copy" && git apply "$patch"); then
        echo "$name: it no longer fits the code: write it anew"
        failed=1
        continue
    fi
    build=0
    (cd "$copy" && cargo test --quiet --profile "$profile" --test faults --no-run) >"$log" 2>&1 || build=$?
    if [ $build -ne 0 ]; then
        tail -n 40 "$log"
        echo "$name: it does not build"
        failed=1
    elif found=$(drawn); then
        echo "$name: $found"
    elif (cd "$copy" && cargo test --quiet --profile "$profile" --test faults) >"$log" 2>&1; then
        echo "$name: NOT FOUND"
        failed=1
    elif by=$(grep -m1 -o -E '^    [a-z_:]+' "$log"); then
        echo "$name: not by $operations operations of the schedules, but by ${by// /}"
    else
        tail -n 40 "$log"
        echo "$name: the tests could not be run"
        failed=1
    fi
    # Which writes the files anew: one that had its former time again would stay as it was built.
    (cd "$copy" && git apply --reverse "$patch")
done
exit $failed

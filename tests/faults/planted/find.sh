#!/bin/bash
# Plants each of the bugs beside this file into a copy of the checkout, and runs the bench there: every one must be found.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# What the copy builds is kept apart from what the checkout builds, but from one run to the next.
export CARGO_TARGET_DIR=${PLANTED_TARGET_DIR:-$root/target/planted}
export KOSMOS_CSI_FAULTED_OPERATIONS=${KOSMOS_CSI_FAULTED_OPERATIONS:-5000}
log=$CARGO_TARGET_DIR/planted.log
mkdir -p "$CARGO_TARGET_DIR"
failed=0
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    rm -rf "$copy"/*
    (cd "$root" && tar -cf - --exclude=./target --exclude=./.git .) | tar -xf - -C "$copy"
    if ! patch --quiet --directory="$copy" --strip=1 --input="$patch"; then
        echo "$name: it no longer fits the code: write it anew"
        failed=1
        continue
    fi
    build=0
    (cd "$copy" && cargo test --quiet --profile faults --test faults --no-run) >"$log" 2>&1 || build=$?
    if [ $build -ne 0 ]; then
        tail -n 40 "$log"
        echo "$name: it does not build"
        failed=1
    elif (cd "$copy" && cargo test --quiet --profile faults --test faults) >"$log" 2>&1; then
        echo "$name: NOT FOUND"
        failed=1
    else
        echo "$name: found, $(grep -o -m1 -E 'I[0-9]+: .{0,160}' "$log" || echo 'by a test of its own')"
    fi
done
exit $failed

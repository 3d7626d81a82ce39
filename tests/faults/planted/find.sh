#!/bin/bash
# Plants each of the bugs beside this file into a copy of the checkout, and has the drawn schedules look for it there, and all
# other tests: every one must be found. No schedule moves a volume, so bugs of moves (`move-…`) are looked for by the tests of moves.
# With names as arguments, only these are planted.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
# What the copy builds is kept apart from what the checkout builds, but from one run to the next.
export CARGO_TARGET_DIR=${PLANTED_TARGET_DIR:-$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/planted}
copy=$CARGO_TARGET_DIR/checkout
# Operations of the schedules: most bugs are found by the first few, some by another test at once, some by neither for long.
few=7000 most=50000
# A schedule has so many.
each=200
log=$CARGO_TARGET_DIR/planted.log
# The copy may lie in the checkout, and git is not to take one for the other.
export GIT_CEILING_DIRECTORIES=$CARGO_TARGET_DIR
failed=0
# What was asked of the checkout is not asked of the copy.
unset KOSMOS_CSI_THOROUGH KOSMOS_CSI_FAULTED_OPERATIONS KOSMOS_CSI_SEED
# Nobody debugs what is built here, and most of the time is that of building.
export CARGO_PROFILE_DEV_DEBUG=none

# Which tests are built and run.
target=(--test faults)

# An ordinary build: a bug takes more time to be built than to be found.
in_copy() {
    (cd "$copy" && cargo test --quiet "${target[@]}" "$@") >"$log" 2>&1
}

# Schedules from seed $1 on, more and more of them up to $2 operations; says which one found something.
schedules() {
    local seed=$1 until=$2 count=5
    while [ $(((seed - 1) * each)) -lt "$until" ]; do
        if ! KOSMOS_CSI_SEED=$seed KOSMOS_CSI_FAULTED_OPERATIONS=$((count * each)) in_copy every_promise_holds_when_the_faults; then
            local found
            found=$(grep -o -E '^seed [0-9]+:' "$log" | grep -o -E '[0-9]+' | sort -n | head -n 1 || true)
            # Nobody has found anything where the program could not run.
            [ -n "$found" ] || return 2
            echo "found by seed $found, after $((found * each)) operations:" \
                "$(sed -n "/^seed $found:/,/^seed /p" "$log" | grep -m1 -o -E 'I[0-9]+: .{0,140}' || echo "in that schedule")"
            return 0
        fi
        seed=$((seed + count)) count=$((count * 2))
    done
    # Where to go on.
    echo "$seed" >"$CARGO_TARGET_DIR/seed"
    return 1
}

# Says which of these tests failed, if that finds nothing without the bug.
other_tests() {
    local patch=$1 test
    shift
    if in_copy -- "$@"; then
        return 1
    fi
    test=$(awk '/^failures:$/ { name = "" } /^    [a-z_0-9:]+$/ { if (name == "") name = $1 } END { print name }' "$log")
    [ -n "$test" ] || return 2
    cp "$log" "$log.found"
    git -C "$copy" apply --reverse "$patch" || return 2
    if ! in_copy "$test" -- --exact || ! grep -q '^test result: ok. 1 passed' "$log"; then
        echo "$test fails also without the bug" >>"$log"
        return 2
    fi
    git -C "$copy" apply "$patch" || return 2
    echo "$test"
}

# On simulated clusters, at all moments; all courses of the plan; and what carries files. A patch whose first line is `Target: …` can be
# found in that one alone.
tests_of_moves() {
    local patch=$1 only one test code=1
    local -a target
    only=$(sed -n '1s/^Target: //p' "$patch")
    for one in "--test faults" "--package kosmos-csi-domain --lib" "--test mover"; do
        [ $code -eq 1 ] || break
        if [ -n "$only" ] && [ "$only" != "$one" ]; then
            continue
        fi
        read -r -a target <<<"$one"
        code=0
        case $one in
            # All pairs of kills take longer than all else, and none of these bugs needs two.
            "--test faults") test=$(KOSMOS_CSI_THOROUGH=1 other_tests "$patch" moves:: --skip killed_twice) || code=$? ;;
            "--test mover") test=$(other_tests "$patch") || code=$? ;;
            *) test=$(other_tests "$patch" moving::) || code=$? ;;
        esac
        [ $code -ne 0 ] || echo "found by $test of $one"
    done
    return $code
}

find_it() {
    local patch=$1 code=0 test
    if [[ $(basename "$patch") == move-* ]]; then
        tests_of_moves "$patch"
        return
    fi
    in_copy --no-run || return 2
    schedules 1 "$few" || code=$?
    [ $code -eq 1 ] || return $code
    code=0
    test=$(other_tests "$patch" --skip every_promise_holds_when_the_faults) || code=$?
    if [ $code -eq 0 ]; then
        echo "not found in $few operations of the schedules, but by $test"
        return
    fi
    [ $code -eq 1 ] || return $code
    schedules "$(cat "$CARGO_TARGET_DIR/seed")" "$most"
}

mkdir -p "$copy"
exec 9>"$CARGO_TARGET_DIR/lock"
if ! flock --nonblock 9; then
    echo "waiting for another find.sh, which has $copy"
    flock 9
fi
planted=0
for patch in "$here"/*.patch; do
    name=$(basename "$patch" .patch)
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
        continue
    fi
    planted=$((planted + 1))
    # By content, as new files: cargo goes by their times, and what was built with a bug must not be taken for what is without.
    rsync --recursive --links --perms --checksum --delete --exclude /target --exclude /.git "$root/" "$copy/"
    if ! git -C "$copy" apply "$patch"; then
        echo "$name: it no longer fits the code: write it again"
        failed=1
        continue
    fi
    code=0
    found=$(find_it "$patch") || code=$?
    case $code in
        0) echo "$name: $found" ;;
        1) echo "$name: NOT FOUND" && failed=1 ;;
        *)
            tail -n 40 "$log"
            echo "$name: the tests could not be built or run with it, or fail without it"
            failed=1
            ;;
    esac
done
if [ $planted -eq 0 ]; then
    echo "there is no such bug: $*"
    failed=1
fi
exit $failed

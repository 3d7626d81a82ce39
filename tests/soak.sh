#!/bin/bash
# What takes hours of computing, in parts of some minutes, two at a time: `soak.sh [--list] [PART...]`. What has passed is not played
# again on the same files with the same settings: ended at any moment, it goes on where it was. --list shows how far it is.
set -eu -o pipefail
cd "$(dirname "$0")/.."
# Pages, and tests that no part plays.
besides=(':(exclude,glob)**/*.md' ':(exclude)tests/e2e' ':(exclude)tests/bench' ':(exclude)tests/goals.sh' ':(exclude)tests/faults-real.sh')
. tests/parts.sh
operations=${KOSMOS_CSI_FAULTED_OPERATIONS:-1000000}
first=${KOSMOS_CSI_SEED:-1}
# Of schedules, which have two hundred operations each.
at_once=50000 each=200
export KOSMOS_CSI_THOROUGH=1

folder=$target/soak/${played:0:12}-from-$first-of-$operations

# One worker begins at the front and one at the back, where there is what has only one place to play in.
parts() {
    echo pairs-of-crashes
    local tenth
    for tenth in {0..9}; do
        echo "pairs-of-requests-$tenth"
    done
    echo crash-points
    local done=0
    while [ $done -lt "$operations" ]; do
        echo "schedules-from-$((first + done / each))"
        done=$((done + at_once))
    done
    echo restored-members
    echo restored-hosts
    for patch in tests/faults/planted/*.patch; do
        echo "planted-$(basename "$patch" .patch)"
    done
    echo build-of-the-flood
    echo courses-of-a-move
    echo copies
    echo agents-one-at-a-time
    echo agents-take-over
    echo flood
}

# It compares how much is done in a second with a flood and without.
is_alone() {
    [ "$1" = flood ]
}

faults() {
    KOSMOS_CSI_SEED=$seed KOSMOS_CSI_FAULTED_OPERATIONS=$count $cargo test --profile faults --test faults -- --nocapture --test-threads=1 "$@"
}

# How many operations a part has whose first schedule is so far from the first of all.
count() {
    local left=$((operations - ($1 - first) * each))
    echo $((left < at_once ? left : at_once))
}

play() {
    local seed=$first count=$operations
    case $1 in
        pairs-of-crashes) faults killed_twice --skip before_any_request ;;
        # Of the first points; each with all second ones.
        pairs-of-requests-*) KOSMOS_CSI_TENTH=${1##*-} faults killed_twice_before_any_request ;;
        crash-points) faults --skip killed_twice --skip every_promise ;;
        restored-members) faults every_promise_holds_when_a_member ;;
        restored-hosts) faults every_promise_holds_when_the_host ;;
        schedules-from-*)
            seed=${1##*-} count=$(count "${1##*-}")
            faults every_promise_holds_when_the_faults
            ;;
        planted-*) tests/faults/planted/find.sh "${1#planted-}" ;;
        copies) $cargo test --workspace --test mover -- --nocapture --test-threads=1 ;;
        courses-of-a-move) $cargo test --profile faults --package kosmos-csi-domain --lib moving -- --nocapture ;;
        build-of-the-flood) $cargo test --release --test floods --no-run ;;
        flood) $cargo test --release --test floods among_ten -- --nocapture ;;
        agents-one-at-a-time) KOSMOS_CSI_SEEDS=1000 $cargo test --profile faults --test fleet one_agents_at_a_time -- --nocapture ;;
        agents-take-over) KOSMOS_CSI_MEMBERS=1000 $cargo test --profile faults --test fleet agent -- --nocapture --test-threads=1 ;;
        *) echo "there is no part $1: --list shows them all" >&2 && return 2 ;;
    esac
}

# Whether something was.
is_played() {
    case $1 in
        planted-* | build-*) true ;;
        *) [ "$(passed "$1")" -gt 0 ] ;;
    esac
}

is_left() {
    false
}

# What is worth a look of a part that passed.
said() {
    case $1 in
        planted-*) sed -n 's/^[a-z-]*: /: /p' "$folder/$1.log" ;;
        flood) sed -n 's/^\(.* without a flood.*\)/: \1/p' "$folder/$1.log" ;;
        *) echo ": $(passed "$1") tests" ;;
    esac
}

# Plays what the other worker has not taken, one after the other.
work() {
    local part
    for part in "$@"; do
        if mkdir "$folder/$part.taken" 2>/dev/null; then
            play_and_tell "$part"
        fi
    done
}

ask "$@"
alone_in "$target/soak"
rm -rf "$folder"/*.taken
mapfile -t left < <(left_of "${asked[@]}")
together=() by_itself=()
for part in "${left[@]}"; do
    if is_alone "$part"; then by_itself+=("$part"); else together+=("$part"); fi
done
echo "${#left[@]} of ${#asked[@]} parts are left, two at a time but for the flood; what each says is in $folder"

# Each worker is a group, so that all it began ends with it.
workers=()
trap 'for worker in "${workers[@]}"; do kill -- "-$worker" 2>/dev/null || true; done' EXIT
trap exit INT TERM HUP
set -m
work "${together[@]}" 9>&- &
workers+=($!)
backwards=()
for part in "${together[@]}"; do backwards=("$part" "${backwards[@]}"); done
work "${backwards[@]}" 9>&- &
workers+=($!)
set +m
wait
for part in "${by_itself[@]}"; do play_and_tell "$part" 9>&-; done
all_have_passed "${asked[@]}"

#!/bin/bash
# What is to hold with a thousand members, and fails where it does not, in parts, one at a time, as they tell how long things take:
# `goals.sh [--list] [PART...]`. What has passed is not played again on the same files: ended at any moment, it goes on where it was.
# --list shows how far it is.
set -eu -o pipefail
cd "$(dirname "$0")/.."
# Pages, that of `make bench-page` among them: no part reads one.
besides=(':(exclude,glob)**/*.md')
. tests/parts.sh
folder=$target/goals/${played:0:12}

parts() {
    echo build
    echo idle-among-a-thousand
    echo rate-among-a-thousand
    echo beside-one-of-a-thousand
    echo ready-with-100000-volumes
    echo instructions-among-a-thousand
    echo start-among-a-thousand
    echo files-of-a-thousand
    echo takeover-among-a-thousand
    echo agent-of-a-hundred
    echo agent-of-a-thousand
}

# As the Makefile has it: built otherwise, its dependencies have other features and are built again.
build() {
    $cargo build --release --workspace --bins --example bench --example clusters
}

# `make bench-page` reads what was seen.
bench() {
    build && "$target/release/examples/bench" --strict --json "$target/$1.json" "${@:2}"
}

play() {
    case $1 in
        build) build ;;
        idle-among-a-thousand) bench "$1" --members 1000 --volumes 100 --ask idle ;;
        rate-among-a-thousand) bench "$1" --members 1000 --volumes 100 --ask rate ;;
        beside-one-of-a-thousand) bench "$1" --members 1000 --ask beside --rounds 3 ;;
        ready-with-100000-volumes) bench "$1" --members 1 --volumes 100000 --ask ready --rounds 3 ;;
        # Also whether it is known in a release build as well what is the driver's.
        instructions-among-a-thousand)
            $cargo test --release --workspace --test instructions -- --include-ignored --nocapture --test-threads=1 \
                among_a_thousand what_the_clusters_do
            ;;
        start-among-a-thousand) bench "$1" --members 1000 --ask start --rounds 3 ;;
        files-of-a-thousand) bench "$1" --members 1000 --ask files --rounds 3 ;;
        takeover-among-a-thousand) bench "$1" --members 1000 --volumes 100 --ask takeover --rounds 3 ;;
        agent-of-a-hundred) bench "$1" --members 100 --ask agent ;;
        agent-of-a-thousand) bench "$1" --members 1000 --ask agent ;;
        *) echo "there is no part $1: --list shows them all" >&2 && return 2 ;;
    esac
}

is_played() {
    case $1 in
        instructions-*) [ "$(passed "$1")" -gt 0 ] ;;
        *) true ;;
    esac
}

is_left() {
    false
}

# The goals.
said() {
    sed -n -e 's/^\(.*  reached\)$/\n    \1/p' -e 's/^\(CreateVolume takes .*\)/\n    \1/p' "$folder/$1.log"
}

ask "$@"
alone_in "$target/goals"
mapfile -t left < <(left_of "${asked[@]}")
echo "${#left[@]} of ${#asked[@]} parts are left; what each says is in $folder"
for part in "${left[@]}"; do play_and_tell "$part" 9>&-; done
all_have_passed "${asked[@]}"

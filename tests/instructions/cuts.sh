#!/bin/bash
# What cuts were worth: `cuts.sh COMMIT...` counts the instructions of a CreateVolume and of a DeleteVolume before and after each of these
# commits, of the tests' build, and prints a table. What was counted of a commit is kept in target/cuts: ended at any moment, it goes on
# where it was.
set -eu -o pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/../.."
kept=$(realpath -m "${CARGO_TARGET_DIR:-target}")/cuts
tree=$kept/tree
mkdir -p "$kept"
if [ $# -eq 0 ]; then
    echo "usage: cuts.sh COMMIT..." >&2
    exit 64
fi

# Of one commit: both, in one line.
count() {
    local commit figures
    if ! commit=$(git rev-parse --verify --quiet "$1^{commit}"); then
        echo "there is no commit $1" >&2
        return 1
    fi
    figures=$kept/$commit.txt
    if ! [ -e "$figures" ]; then
        echo "counting $1" >&2
        git worktree prune
        [ -e "$tree/.git" ] || git worktree add --quiet --force --detach "$tree" "$commit" >&2
        git -C "$tree" checkout --quiet --force --detach "$commit"
        rm -f "$tree/tests/instructions/figures.txt"
        (cd "$tree" && CARGO_TARGET_DIR=$kept/target KOSMOS_CSI_WRITE_FIGURES=1 \
            "${CARGO:-cargo}" test --quiet --workspace --test instructions -- volume_takes_as_many) >&2
        awk '{ print $2 }' "$tree/tests/instructions/figures.txt" | paste -s -d ' ' >"$figures.unfinished"
        mv "$figures.unfinished" "$figures"
    fi
    cat "$figures"
}

rows=()
for commit in "$@"; do
    before=$(count "$commit~")
    after=$(count "$commit")
    read -r create_before delete_before <<<"$before"
    read -r create_after delete_after <<<"$after"
    rows+=("| $(git log -1 --format='%h %s' "$commit") | $create_before | $create_after | $delete_before | $delete_after |")
done
echo "| Cut | CreateVolume before | after | DeleteVolume before | after |"
echo "|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"

#!/bin/bash
# Faults on real clusters, in parts, one at a time, as they tell how long things take: `faults-real.sh [--list] [PART...]`. What has
# passed is not played again on the same files with the same seed, and a part that was ended goes on after the last fault that it has
# seen the end of. SEED=<number> draws the order of the faults; without it the last run of these files goes on. --list shows how far it is.
set -eu -o pipefail
cd "$(dirname "$0")/.."
. tests/parts.sh
kept=$target/faults-real/${played:0:12}
seed=${SEED:-$(cat "$kept/seed" 2>/dev/null || od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
if ! [[ $seed =~ ^[0-9]+$ ]]; then
    echo "SEED=$seed is no number" >&2
    exit 2
fi
folder=$kept/from-$seed
report=$folder/report
export KOSMOS_CSI_ORDER=$seed KOSMOS_CSI_FAULTS_FOLDER=$report

# Each part, and what the names of its tests begin with or contain. The parts of the matrix are called as their reports are.
parts_and_tests() {
    cat <<'PARTS'
faults-of-answers       answers_that_are_lost_or_of_somebody_on_the_way
faults-of-streams       bodies_and_watches_that_break
faults-of-ways          ways_that_lead_elsewhere_or_are_slow
faults-to-the-host      faults_between_driver_sidecars_and_host
faults-of-the-agent     faults_between_agent_and_member
faults-of-links         links_of_which_one_direction_is_cut
faults-of-the-host      processes_of_the_host_that
faults-of-a-member      processes_and_links_of_a_member_that
faults-of-ours          processes_of_ours_that
faults-of-a-node        processes_of_a_real_node_that
faults-of-disks         disks_of_a_member_that_are_full
faults-of-backups       member_that_goes_back_to_a_backup
upgrade                 upgraded_and_rolled_back
killed-provisioner      killed_provisioner
tokens                  token_of_ten_minutes
replacements            replaced_200_times
users-of-moves          move_names_whoever
storage-without-owners  storage_without_owners
lost-host               cluster_is_lost
outages-in-moves        api_server_of_a_member_goes_away
kills-in-moves          volume_moves_to_another
PARTS
}

parts() {
    parts_and_tests | awk '{ print $1 }'
}

tests_of() {
    parts_and_tests | awk -v part="$1" '$1 == part { print $2 }'
}

# Each fault is told as soon as it is over.
play() {
    local tests which=--ignored
    tests=$(tests_of "$1")
    if [ -z "$tests" ]; then
        echo "there is no part $1: --list shows them all" >&2
        return 2
    fi
    case $1 in *-in-moves) which=--include-ignored && export KOSMOS_CSI_THOROUGH=1 ;; esac
    $cargo test --workspace --test e2e -- "$which" --nocapture "$tests" 2>&1 | tee >(grep --line-buffered "^$1: " >&8)
}

is_played() {
    [ "$(passed "$1")" -gt 0 ]
}

said() {
    :
}

mapfile -t asked < <(if [ $# -gt 0 ] && [ "$1" != --list ]; then printf '%s\n' "$@"; else parts; fi)
if [ "${1-}" = --list ]; then
    echo "seed $seed"
    list "${asked[@]}"
    exit
fi
alone_in "$target/faults-real"
mkdir -p "$report"
echo "$seed" >"$kept/seed"
exec 8>&1
left=()
for part in "${asked[@]}"; do
    has_passed "$part" || left+=("$part")
done
echo "SEED=$seed: ${#left[@]} of ${#asked[@]} parts are left; what each says is in $folder"
for part in "${left[@]}"; do
    play_and_tell "$part" 9>&-
done
if [ -e "$report/matrix.md" ]; then
    cat "$report/matrix.md"
    echo "the matrix is in $report: matrix.md and matrix.json"
fi
all_have_passed "${asked[@]}"

#!/bin/bash
# Faults on real clusters, in parts, one at a time, as they tell how long things take: `faults-real.sh [--list] [PART...]`. What has
# passed is not played again on the same files with the same seed, and a part that was ended goes on after the last fault that it has
# seen the end of. SEED=<number> draws the order of the faults; without it the last run of these files goes on. --list shows how far it is.
#
# MINUTES=<number> begins nothing that does not end within them where nothing is wrong. ROWS=<names> plays of the matrix the faults alone whose names contain one
# of these, which have commas between them, and fails where one of these was broken. ROUNDS=<number> plays each fault so often on the same
# clusters, whose processes live as much longer; it is a run of its own. Pages make no difference to what was played.
set -eu -o pipefail
cd "$(dirname "$0")/.."
besides=(':(exclude,glob)**/*.md' ':(exclude)tests/e2e/faults_real/seen.jsonl')
. tests/parts.sh
kept=$target/faults-real/${played:0:12}
seed=${SEED:-$(cat "$kept/seed" 2>/dev/null || od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
minutes=${MINUTES:-}
rounds=${ROUNDS:-1}
for number in "$seed" "${minutes:-0}" "$rounds"; do
    if ! [[ $number =~ ^[0-9]+$ ]]; then
        echo "SEED=$seed, MINUTES=$minutes or ROUNDS=$rounds is no number" >&2
        exit 2
    fi
done
folder=$kept/from-$seed
[ "$rounds" -eq 1 ] || folder=$folder-$rounds-rounds
report=$folder/report
# Of all runs, whatever files they were of.
history=$target/faults-real/rows.jsonl
export KOSMOS_CSI_ORDER=$seed KOSMOS_CSI_FAULTS_FOLDER=$report KOSMOS_CSI_FAULTS_HISTORY=$history
export KOSMOS_CSI_FAULTS_SINCE=$EPOCHSECONDS KOSMOS_CSI_FAULTS_ROWS=${ROWS:-} KOSMOS_CSI_FAULTS_ROUNDS=$rounds
export KOSMOS_CSI_FAULTS_UNTIL=${minutes:+$((EPOCHSECONDS + 60 * minutes))}

# Each part, what the names of its tests begin with or contain, and how many minutes it takes: of the matrix, for its clusters and a
# first fault. The parts of the matrix are called as their reports are.
parts_and_tests() {
    cat <<'PARTS'
faults-of-answers       answers_that_are_lost_or_of_somebody_on_the_way   8
faults-of-streams       bodies_and_watches_that_break                     8
faults-of-ways          ways_that_lead_elsewhere_or_are_slow              9
faults-of-credentials   certificates_and_tokens_that_are_replaced         8
faults-of-moves         movers_and_their_lines_that                       9
faults-to-the-host      faults_between_driver_sidecars_and_host           10
faults-of-the-agent     faults_between_agent_and_member                   9
faults-of-links         links_of_which_one_direction_is_cut               10
faults-of-the-host      processes_of_the_host_that                        11
faults-of-a-member      processes_and_links_of_a_member_that              11
faults-of-an-older-host host_that_is_a_minor_version_behind               40
faults-of-ours          processes_of_ours_that                            10
faults-of-upgrades      driver_and_agent_that_are_rolled_back             30
faults-of-clocks        clocks_of_ours_that_are_set                       9
faults-of-a-node        processes_of_a_real_node_that                     10
faults-of-a-nodes-power real_node_without_power                           12
faults-of-power         node_of_a_member_without_power                    12
faults-of-disks         disks_of_a_member_that_are_full                   12
faults-of-backups       cluster_that_goes_back_to_a_backup                15
upgrade                 upgraded_and_rolled_back                          15
killed-provisioner      killed_provisioner                                25
tokens                  token_of_ten_minutes                              60
replacements            replaced_200_times                                20
users-of-moves          move_names_whoever                                15
storage-without-owners  storage_without_owners                            15
drivers-of-moves        storage_of_two_drivers                            15
reclaim-of-moves        moved_volumes_go_or_stay                          15
gone-members-of-moves   member_that_is_gone_for_good                      15
lost-host               cluster_is_lost                                   15
outages-in-moves        api_server_of_a_member_goes_away                  15
kills-in-moves          volume_moves_to_another                           40
suites-of-pods          asks_of_pods_holds                                20
suites-of-probes        asks_of_probes_holds                              20
suites-of-mounts        asks_of_what_pods_mount_holds                     20
suites-of-storage       asks_of_a_storage_driver_holds_on_a_virtual_node  20
suites-of-slow-storage  what_takes_long_of_a_storage_driver_holds         20
suites-of-real-storage  asks_of_a_storage_driver_holds_on_a_real_node     20
PARTS
}

parts() {
    parts_and_tests | awk '{ print $1 }'
}

# Those of the matrix that have a fault which is named: what others need is not even built.
parts_with_rows() {
    $cargo test --workspace --test e2e -- --ignored --nocapture parts_are_told_of_which_faults_are_asked_for |
        sed -n 's/^.*asked for: //p'
}

# A column of a part.
of() {
    parts_and_tests | awk -v part="$1" -v column="$2" '$1 == part { print $column }'
}

# That of the last tag or, where there is none, of before the last change of the program: the commit before may have the same one.
before() {
    git describe --tags --abbrev=0 HEAD^ 2>/dev/null ||
        git log -1 --format=%h^ -- Cargo.lock crates proto src ':(exclude)crates/dev' ':(exclude)crates/simulate'
}

# The program of a version before, as images have it.
build_before() {
    local commit folder=$target/before
    commit=$(git rev-parse --verify "${BEFORE:-$(before)}^{commit}") || return
    export KOSMOS_CSI_BEFORE=$folder/kosmos-csi-$commit
    echo "the version before is $(git log -1 --format='%h, %s' "$commit")"
    if git diff --quiet "$commit" -- Cargo.lock crates proto src ':(exclude)crates/dev' ':(exclude)crates/simulate'; then
        echo "no version before: the program of $commit is the one of now" >&2
        return 1
    fi
    if ! [ -e "$KOSMOS_CSI_BEFORE" ]; then
        rm -rf "$folder/source" && mkdir -p "$folder/source" && git archive "$commit" | tar -x -C "$folder/source" &&
            (cd "$folder/source" && CARGO_TARGET_DIR=$folder/target $cargo build --bin kosmos-csi --no-default-features) &&
            ln -f "$folder/target/debug/kosmos-csi" "$KOSMOS_CSI_BEFORE"
    fi
}

# Each fault is told when it begins and as soon as it is over.
play() {
    local tests which=--ignored
    tests=$(of "$1" 2)
    if [ -z "$tests" ]; then
        echo "there is no part $1: --list shows them all" >&2
        return 2
    fi
    case $1 in
        faults-of-an-older-host) "$target/debug/examples/clusters" build --older || return ;;
        faults-of-upgrades) build_before || return ;;
        suites-of-*) "$target/debug/examples/clusters" build --suites || return ;;
    esac
    case $1 in *-in-moves) which=--include-ignored && export KOSMOS_CSI_THOROUGH=1 ;; esac
    $cargo test --workspace --test e2e -- "$which" --nocapture "$tests" 2>&1 | tee >(grep --line-buffered "^$1: " >&8)
}

is_played() {
    [ "$(passed "$1")" -gt 0 ]
}

has_some_left() {
    grep -q 'faults are left$' "$folder/$1.log"
}

# There was no time, or others were asked for.
is_left() {
    has_some_left "$1" && ! grep -q ': not so: ' "$folder/$1.log"
}

said() {
    :
}

fits() {
    local takes
    takes=$(of "$1" 3)
    [ -z "$minutes" ] || [ $((EPOCHSECONDS + 60 * ${takes:-0})) -le "$KOSMOS_CSI_FAULTS_UNTIL" ]
}

rows() {
    if [ -e "$history" ]; then wc -l <"$history"; else echo 0; fi
}

# One that fails has its other faults played on clusters of their own, as long as there is one more each time.
play_on() {
    local part=$1 before
    while fits "$part"; do
        before=$(rows)
        play_and_tell "$part" 9>&-
        if has_passed "$part" || is_left "$part" || ! has_some_left "$part" || [ "$(rows)" -eq "$before" ]; then
            return
        fi
        mv "$folder/$part.log" "$folder/$part-$before.log"
    done
    printf '%(%T)T  %s is left for another time\n' -1 "$part"
}

# The other faults of their parts are left, which is nothing wrong.
those_that_are_named_are_well() {
    local part code=0
    for part in "$@"; do
        has_passed "$part" || is_left "$part" || { echo "$part has not passed" && code=1; }
    done
    return $code
}

if [ "${1-}" = --list ]; then
    echo "seed $seed"
elif [ $# -eq 0 ] && [ -n "${ROWS:-}" ]; then
    mapfile -t asked < <(parts_with_rows)
    if [ ${#asked[@]} -eq 0 ]; then
        echo "there is no fault whose name contains one of ROWS=$ROWS, or what knows them was not built: docs/game-day.md has them all" >&2
        exit 2
    fi
    set -- "${asked[@]}"
fi
ask "$@"
alone_in "$target/faults-real"
mkdir -p "$report"
echo "$seed" >"$kept/seed"
exec 8>&1
mapfile -t left < <(left_of "${asked[@]}")
echo "SEED=$seed: ${#left[@]} of ${#asked[@]} parts are left; what each says is in $folder"
for part in "${left[@]}"; do
    play_on "$part"
done
if [ -e "$report/matrix.md" ]; then
    cat "$report/matrix.md"
    echo "the matrix is in $report: matrix.md and matrix.json; all that was ever played is in $history: make game-day"
fi
# Where the time is limited, some that are named may be left as well.
if [ -n "${ROWS:-}" ] && [ -z "$minutes" ]; then
    those_that_are_named_are_well "${asked[@]}"
else
    all_have_passed "${asked[@]}"
fi

# What takes hours, in parts: what has passed is not played again on the same files with the same settings, so it may be ended at any
# moment, and goes on where it was. Sourced by who says which `parts` there are, how to `play` one, whether something of it `is_played`,
# whether one that did not pass `is_left` with nothing wrong, and what is worth a look of one that passed (`said`); `folder` is where all
# of it is kept, and `besides` names the files that make no difference.
target=${CARGO_TARGET_DIR:-$PWD/target}
cargo=${CARGO:-cargo}

# The files as they are, whether they were committed or not: nothing of them is written into the repository.
files() {
    local scratch known code=0
    scratch=$(mktemp -d)
    known=$(git rev-parse --path-format=absolute --git-path objects) &&
        export GIT_INDEX_FILE=$scratch/index GIT_OBJECT_DIRECTORY=$scratch GIT_ALTERNATE_OBJECT_DIRECTORIES=$known &&
        git add --all -- . "${besides[@]}" && git write-tree || code=$?
    rm -rf "$scratch"
    return $code
}
played=$(files)
if ! [[ $played =~ ^[0-9a-f]{40,64}$ ]]; then
    echo "git cannot say which files are here, and so not whether they were played before" >&2
    exit 2
fi

# Plays one part, and keeps what it said and that it passed.
play_and_tell() {
    local part=$1 began=$SECONDS
    printf '%(%T)T  %s begins\n' -1 "$part"
    if (play "$part") >"$folder/$part.log" 2>&1 </dev/null && is_played "$part" && [ "$(files)" = "$played" ]; then
        echo $((SECONDS - began)) >"$folder/$part.passed"
        printf '%(%T)T  %s passed after %d s%s\n' -1 "$part" $((SECONDS - began)) "$(said "$part")"
    elif is_left "$part" && [ "$(files)" = "$played" ]; then
        printf '%(%T)T  %s ends after %d s, and goes on another time\n' -1 "$part" $((SECONDS - began))
    else
        printf '%(%T)T  %s FAILED after %d s, or the files have changed meanwhile: %s\n' -1 "$part" $((SECONDS - began)) "$folder/$part.log"
        tail -n 20 "$folder/$part.log"
    fi
}

# How many tests of a part have passed: one that has another name by now passes as well.
passed() {
    awk '/^test result:/ { passed += $4 } END { print passed + 0 }' "$folder/$1.log"
}

has_passed() {
    [ -e "$folder/$1.passed" ]
}

# How far it is, and how long that took in sum.
list() {
    local part took count=0 seconds=0
    for part in "$@"; do
        took=$(cat "$folder/$part.passed" 2>/dev/null || true)
        printf '%-60s %s\n' "$part" "${took:+passed after $took s}"
        if [ -n "$took" ]; then
            count=$((count + 1)) seconds=$((seconds + took))
        fi
    done
    echo "$count of $# parts have passed, in $((seconds / 3600)) h $((seconds / 60 % 60)) min $((seconds % 60)) s"
}

# Those of these that have not passed.
left_of() {
    local part
    for part in "$@"; do
        has_passed "$part" || echo "$part"
    done
}

# The parts that are `asked` for: those that are named, or all. With --list it is said how far they are, and nothing is played.
ask() {
    mapfile -t asked < <(if [ $# -gt 0 ] && [ "$1" != --list ]; then printf '%s\n' "$@"; else parts; fi)
    if [ "${1-}" = --list ]; then
        list "${asked[@]}"
        exit
    fi
}

# Nobody else plays beside it.
alone_in() {
    mkdir -p "$1" "$folder"
    exec 9>"$1/lock"
    if ! flock --nonblock 9; then
        echo "another one plays in $1: end that, or give this one a CARGO_TARGET_DIR of its own" >&2
        exit 2
    fi
}

# Fails with those that have not passed.
all_have_passed() {
    local part code=0
    for part in "$@"; do
        has_passed "$part" || { echo "$part has not passed" && code=1; }
    done
    return $code
}

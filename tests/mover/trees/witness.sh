# Prints all of a tree, with nothing of what judges it: $1 is its root. Names end with a zero byte.
set -euo pipefail
cd -- "$1"

named() { find . -path ./lost+found -prune -o "$@" -print0 | sort -z; }

echo "mode, owner, group, time of modification"
named | xargs -0r stat --printf '%n\0%f %u %g %.9Y\n' --
echo "device"
named '(' -type b -o -type c ')' | xargs -0r stat --printf '%n\0%t %T\n' --
echo "size"
named -type f | xargs -0r stat --printf '%n\0%s\n' --
echo "target"
find . -type l -printf '%p\0%l\0' | sort -z
find . -type l -printf '%l\0%p\0' | sort -z
echo "other names"
declare -A first
while IFS= read -r -d '' path; do
    IFS= read -r -d '' inode
    printf '%s\0%s\0' "$path" "${first[$inode]:=$path}"
done < <(named ! -type d | xargs -0r stat --printf '%n\0%i\0' --)
echo "content"
named -type f | xargs -0r sha256sum --zero --
echo "access"
named ! -type l | xargs -0r getfacl --numeric --absolute-names --
echo "attributes"
# A filesystem has an order of its own.
named | xargs -0r getfattr --no-dereference --dump --match='^(user\.|security\.capability$)' --encoding=hex -- |
    awk '/^# file: / { file = $0 } { print file "\t" $0 }' | sort

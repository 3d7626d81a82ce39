#!/usr/bin/env bash
# Lays out the root folder of an image from what this machine has: the driver's program, the programs that its flavour calls, and the
# libraries that the loader names for them. `make image` packs what it makes, and so does the Dockerfile, which is why both have the same.
set -euo pipefail
umask 022

usage="usage: $0 small|node|mover <program> <folder to make>"
flavour=${1?$usage} program=${2?$usage} root=${3?$usage}

# What a node calls, and the Debian package that has it.
node_programs=(blkid:util-linux blockdev:util-linux mkfs.ext4:e2fsprogs e2fsck:e2fsprogs resize2fs:e2fsprogs mkfs.xfs:xfsprogs xfs_growfs:xfsprogs)
# The mover refuses an older one.
oldest_rsync=3.5
# What these programs and the libraries read, where it is there.
settings=(/etc/mke2fs.conf /etc/netconfig /etc/protocols)

# A person's PATH often lacks where the programs of the administrator are.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

programs=("$program")

# take <name> <package> <folder in the image>
take() {
    local found
    if ! found=$(type -P "$1"); then
        echo "there is no $1 on this machine: install $2" >&2
        return 1
    fi
    install -m 755 "$found" "$root$3/$1"
    programs+=("$found")
}

# Fails where the mover would refuse this machine's rsync.
check_rsync() {
    local found
    found=$(rsync --version | sed -n '1s/^rsync *version \([0-9][0-9.]*\).*/\1/p')
    if ! printf '%s\n' "$oldest_rsync" "$found" | sort --version-sort --check=quiet; then
        echo "rsync is too old: ${found:-it says no version}, and $oldest_rsync is needed" >&2
        return 1
    fi
}

# What the loader would load for a program, and the loader itself.
libraries() {
    local printed
    if ! printed=$(LC_ALL=C ldd "$1" 2>&1) && [[ $printed != *"not a dynamic executable"* ]]; then
        echo "ldd $1: $printed" >&2
        return 1
    fi
    if [[ $printed == *"not found"* ]]; then
        printf '%s lacks libraries:\n%s\n' "$1" "$printed" >&2
        return 1
    fi
    sed -n -e 's/^.*=> //' -e 's/^[[:space:]]*//' -e 's/[[:space:]].*$//' -e '/^\//p' <<<"$printed"
}

mkdir "$root"
mkdir -p "$root"/{etc,usr/sbin,usr/bin,proc,dev,run}
mkdir "$root/tmp"
chmod 1777 "$root/tmp"
install -m 755 "$program" "$root/kosmos-csi"
printf '%s\n' root:x:0:0:root:/:/none nobody:x:65532:65532:nobody:/:/none >"$root/etc/passwd"
printf '%s\n' root:x:0: nobody:x:65532: >"$root/etc/group"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"

case $flavour in
small) ;;
node)
    for row in "${node_programs[@]}"; do
        take "${row%%:*}" "${row##*:}" /usr/sbin
    done
    # for volumes of NFS alone
    if type -P mount.nfs >/dev/null; then
        take mount.nfs nfs-common /usr/sbin
    fi
    for setting in "${settings[@]}"; do
        if [[ -e $setting ]]; then
            install -m 644 "$setting" "$root$setting"
        fi
    done
    ln -s /proc/self/mounts "$root/etc/mtab"
    ;;
mover)
    take rsync rsync /usr/bin
    check_rsync
    ;;
*)
    echo "$usage" >&2
    exit 64
    ;;
esac

for each in "${programs[@]}"; do
    libraries "$each"
done | sort -u | while IFS= read -r library; do
    install -D -m 755 "$library" "$root$library"
done

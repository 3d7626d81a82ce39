//! Differences that are planted into a copy, and what is to be said of each.

use std::{
    fs::{self, File, FileType, Metadata, OpenOptions},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, lchown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use fastrand::Rng;
use mover::entry::shown;
use rustix::fs::{FileType as Node, lgetxattr, llistxattr, lremovexattr, major, minor};

use super::{
    dress::{ACCESS, CAPABILITY, DEFAULT, permit, set, set_times},
    ground::run,
    make::node,
    names,
    tree::entries,
};

/// Where it is, and the sentence that tells it without the place; nothing where the tree has no place for it.
pub type Planted = Option<(PathBuf, String)>;
type Plant = fn(&Path, &mut Rng) -> Planted;

pub const ALL: [(&str, Plant); 14] = [
    ("byte", byte),
    ("truncation", truncation),
    ("too much", too_much),
    ("missing", missing),
    ("permissions", permissions),
    ("owner", owner),
    ("group", group),
    ("time", time),
    ("attribute", attribute),
    ("access list", access_list),
    ("target", target),
    ("hard link", hard_link),
    ("device", device),
    ("kind", kind),
];

fn find(tree: &Path, rng: &mut Rng, fits: impl Fn(&Path, &Metadata) -> bool) -> Option<(PathBuf, Metadata)> {
    let mut all = entries(tree);
    rng.shuffle(&mut all);
    all.into_iter().map(|path| (path.clone(), path.symlink_metadata().unwrap())).find(|(path, has)| fits(path, has))
}

/// With no other name, of which it would be said as well.
fn is_alone(has: &Metadata) -> bool {
    has.is_dir() || has.nlink() == 1
}

fn attributes(path: &Path) -> Vec<Vec<u8>> {
    let mut names = vec![0_u8; 64 << 10];
    let length = llistxattr(path, &mut names[..]).unwrap();
    names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

fn has_attribute(path: &Path, name: &str) -> bool {
    attributes(path).iter().any(|has| has == name.as_bytes())
}

fn value(path: &Path, name: &[u8]) -> Vec<u8> {
    let mut value = vec![0_u8; 64 << 10];
    let length = lgetxattr(path, name, &mut value[..]).unwrap();
    value.truncate(length);
    value
}

fn modified(has: &Metadata) -> (i64, i64) {
    (has.mtime(), has.mtime_nsec())
}

/// Does something in a folder which the folder's own time does not tell.
fn unnoticed<T>(path: &Path, act: impl FnOnce() -> T) -> T {
    let folder = path.parent().unwrap();
    let time = modified(&folder.metadata().unwrap());
    let done = act();
    set_times(folder, time);
    done
}

fn byte(tree: &Path, rng: &mut Rng) -> Planted {
    // A capability does not outlive a write.
    let fits = |path: &Path, has: &Metadata| {
        has.is_file() && is_alone(has) && has.len() > 0 && !has_attribute(path, CAPABILITY)
    };
    let (path, has) = find(tree, rng, fits)?;
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (position, mut byte) = (rng.u64(..has.len()), [0]);
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << rng.u8(..8))], position).unwrap();
    set_times(&path, modified(&has));
    let now = path.metadata().unwrap();
    assert_eq!((now.len(), now.mode(), modified(&now)), (has.len(), has.mode(), modified(&has)));
    Some((path, "has other content".to_owned()))
}

fn truncation(tree: &Path, rng: &mut Rng) -> Planted {
    let fits = |path: &Path, has: &Metadata| {
        has.is_file() && is_alone(has) && has.len() > 0 && !has_attribute(path, CAPABILITY)
    };
    let (path, has) = find(tree, rng, fits)?;
    let size = has.len() - 1;
    OpenOptions::new().write(true).open(&path).unwrap().set_len(size).unwrap();
    set_times(&path, modified(&has));
    Some((path, format!("has size {size}, and had {}", has.len())))
}

fn too_much(tree: &Path, rng: &mut Rng) -> Planted {
    let (folder, _) = find(tree, rng, |_, has| has.is_dir())?;
    let path = names::path(rng, &folder);
    unnoticed(&path, || File::create_new(&path)).ok()?;
    Some((path, "is there and not in the source".to_owned()))
}

fn missing(tree: &Path, rng: &mut Rng) -> Planted {
    let (path, _) = find(tree, rng, |_, has| !has.is_dir() && is_alone(has))?;
    unnoticed(&path, || fs::remove_file(&path).unwrap());
    Some((path, "is missing".to_owned()))
}

/// Nothing but what is planted changes with it: permissions are part of an access list, and a new owner takes setuid away.
fn is_plain(path: &Path, has: &Metadata) -> bool {
    is_alone(has) && has.mode() & 0o6000 == 0 && attributes(path).is_empty()
}

fn permissions(tree: &Path, rng: &mut Rng) -> Planted {
    let (path, has) = find(tree, rng, |path, has| !has.is_symlink() && is_plain(path, has))?;
    let was = has.mode() & 0o7777;
    let is = was ^ (1 << rng.u8(..12));
    permit(&path, is);
    Some((path, format!("has permissions {is:04o}, and had {was:04o}")))
}

fn owner(tree: &Path, rng: &mut Rng) -> Planted {
    let (path, has) = find(tree, rng, is_plain)?;
    lchown(&path, Some(has.uid() ^ 1), None).unwrap();
    Some((path, format!("has owner {}, and had {}", has.uid() ^ 1, has.uid())))
}

fn group(tree: &Path, rng: &mut Rng) -> Planted {
    let (path, has) = find(tree, rng, is_plain)?;
    lchown(&path, None, Some(has.gid() ^ 1)).unwrap();
    Some((path, format!("has group {}, and had {}", has.gid() ^ 1, has.gid())))
}

fn time(tree: &Path, rng: &mut Rng) -> Planted {
    let (path, has) = find(tree, rng, |_, has| is_alone(has))?;
    let (seconds, was) = modified(&has);
    let is = was ^ 1;
    set_times(&path, (seconds, is));
    Some((path, format!("has time of modification {seconds}.{is:09}, and had {seconds}.{was:09}")))
}

fn attribute(tree: &Path, rng: &mut Rng) -> Planted {
    let is_users = |name: &Vec<u8>| name.starts_with(b"user.") || name == CAPABILITY.as_bytes();
    let (path, _) = find(tree, rng, |path, has| is_alone(has) && attributes(path).iter().any(is_users))?;
    let named: Vec<_> = attributes(&path).into_iter().filter(is_users).collect();
    let name = rng.choice(&named).unwrap();
    let mut value = value(&path, name);
    match rng.u8(..3) {
        0 => lremovexattr(&path, &name[..]).unwrap(),
        _ if name == CAPABILITY.as_bytes() => {
            value[4] ^= 1;
            set(&path, name, &value);
        }
        1 if !value.is_empty() => {
            value[0] ^= 1;
            set(&path, name, &value);
        }
        _ => set(&path, name, &[&value[..], b"\0"].concat()),
    }
    Some((path, format!("has another attribute {}", shown(name))))
}

/// One permission of the first one who is named, whose permissions are none of the file's own.
fn access_list(tree: &Path, rng: &mut Rng) -> Planted {
    const NAMED: usize = 4 + 8;
    let list = *rng.choice(&[ACCESS, DEFAULT]).unwrap();
    let fits = |path: &Path, has: &Metadata| {
        is_alone(has) && has_attribute(path, list) && value(path, list.as_bytes())[NAMED] == 0x02
    };
    let (path, _) = find(tree, rng, fits)?;
    let mut entries = value(&path, list.as_bytes());
    entries[NAMED + 2] ^= 1 << rng.u8(..3);
    set(&path, list.as_bytes(), &entries);
    Some((path, format!("has another attribute {list:?}")))
}

/// Another in its place, with the same owner and time.
fn replace(path: &Path, has: &Metadata, make: impl FnOnce()) {
    unnoticed(path, || {
        if has.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
        make();
    });
    lchown(path, Some(has.uid()), Some(has.gid())).unwrap();
    if has_attribute(path, ACCESS) {
        // From its folder, which has one for all that is new in it.
        lremovexattr(path, ACCESS).unwrap();
    }
    if !has.is_symlink() && !path.is_symlink() {
        permit(path, has.mode() & 0o7777);
    }
    set_times(path, modified(has));
}

fn target(tree: &Path, rng: &mut Rng) -> Planted {
    let (path, has) = find(tree, rng, |_, has| has.is_symlink() && is_alone(has))?;
    let was = fs::read_link(&path).unwrap();
    let is = was.join("x");
    replace(&path, &has, || symlink(&is, &path).unwrap());
    let [is, was] = [is, was].map(|target| shown(target.as_os_str().as_encoded_bytes()));
    Some((path, format!("has target {is}, and had {was}")))
}

/// The last name becomes a file of its own, which is the same in all else.
fn hard_link(tree: &Path, rng: &mut Rng) -> Planted {
    let (_, has) = find(tree, rng, |_, has| !has.is_dir() && has.nlink() > 1)?;
    let all = entries(tree).into_iter().filter(|path| path.symlink_metadata().unwrap().ino() == has.ino());
    let names: Vec<_> = all.collect();
    let ([first, .., last], aside) = (&names[..], tree.join("aside")) else { return None };
    unnoticed(&aside, || {
        unnoticed(last, || {
            let archive = ["--archive", "--no-preserve=links", "--no-target-directory", "--"];
            run(Command::new("cp").args(archive).args([last, &aside]));
            fs::rename(&aside, last).unwrap();
        });
    });
    let first = shown(first.strip_prefix(tree).unwrap().as_os_str().as_encoded_bytes());
    Some((last.clone(), format!("has as first name no other, and had {first}")))
}

fn device(tree: &Path, rng: &mut Rng) -> Planted {
    let is_device = |has: &Metadata| has.file_type().is_block_device() || has.file_type().is_char_device();
    let (path, has) = find(tree, rng, |path, has| is_device(has) && is_alone(has) && attributes(path).is_empty())?;
    let kind = if has.file_type().is_block_device() { Node::BlockDevice } else { Node::CharacterDevice };
    replace(&path, &has, || node(&path, kind, (major(has.rdev()), minor(has.rdev()) ^ 1)));
    let is = path.symlink_metadata().unwrap().rdev();
    Some((path, format!("has device number {is}, and had {}", has.rdev())))
}

fn kind(tree: &Path, rng: &mut Rng) -> Planted {
    let is_empty = |path: &Path| fs::read_dir(path).unwrap().next().is_none();
    let fits = |path: &Path, has: &Metadata| path != tree && is_alone(has) && (!has.is_dir() || is_empty(path));
    let (path, has) = find(tree, rng, fits)?;
    let was = name_of(has.file_type());
    let others: Vec<_> = ["file", "folder", "pipe", "symbolic link"].into_iter().filter(|name| *name != was).collect();
    let is = *rng.choice(&others).unwrap();
    replace(&path, &has, || match is {
        "file" => drop(File::create_new(&path).unwrap()),
        "folder" => fs::create_dir(&path).unwrap(),
        "pipe" => node(&path, Node::Fifo, (0, 0)),
        _ => symlink("elsewhere", &path).unwrap(),
    });
    Some((path, format!("is a {is}, and was a {was}")))
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "folder",
        kind if kind.is_symlink() => "symbolic link",
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        kind if kind.is_block_device() => "block device",
        _ => "character device",
    }
}

//! What a staging path or a target may be, and how a failed call at a path is told. Pure.

use std::path::{Component, Path};

use super::kernel::Failure;
use domain::error::{Error, Result};

/// A path of a request: absolute, plain, and not the root. What it leads through is for the kernel to see.
pub fn check(field: &str, path: &Path) -> Result<()> {
    let Some(text) = path.to_str() else {
        return Err(Error::Invalid(format!("{field} {} is not UTF-8: use another name", path.display())));
    };
    let refuse = |reason: &str| Err(Error::Invalid(format!("{field} {text:?} {reason}: give a whole, plain path")));
    match () {
        () if text.is_empty() => Err(Error::Invalid(format!("{field} is missing: the request must have it"))),
        () if !path.is_absolute() => refuse("does not begin with a slash"),
        () if text.chars().any(char::is_control) => refuse("holds a control character"),
        () if text.split('/').any(|part| part == "..") => refuse("holds \"..\""),
        () if text == "/" => refuse("is the root of all files"),
        () if plain(path) != text => refuse("holds \".\" or an empty part"),
        () => Ok(()),
    }
}

fn plain(path: &Path) -> String {
    path.components().collect::<std::path::PathBuf>().to_string_lossy().into_owned()
}

/// Whether the path of a Local volume is one that may be shown to pods.
pub fn may_be_shown(path: &Path, kubelet_dir: &Path) -> bool {
    let first = path.components().find_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let system = first.is_none_or(|first| SYSTEM.contains(&first) || first.starts_with("lib"));
    !system && !path.starts_with(kubelet_dir) && !kubelet_dir.starts_with(path)
}

/// Folders of the root that belong to the machine.
const SYSTEM: &[&str] = &["bin", "boot", "dev", "etc", "proc", "root", "run", "sbin", "sys", "usr"];

/// The outcome of a call that failed for a reason on which nothing is decided. It may pass, so the caller keeps calling.
pub fn failed(what: &str, path: &Path) -> impl FnOnce(Failure) -> Error {
    let at = format!("{what} {}", path.display());
    move |failure| match failure {
        Failure::Link => Error::Refused(format!("{at}: a part of this path is a link, and links are not followed")),
        Failure::Missing => Error::Refused(format!("{at}: there is no such file or folder on this node")),
        Failure::Exists => Error::InProgress(format!("{at}: it has appeared meanwhile")),
        Failure::NotEmpty => Error::Refused(format!("{at}: it holds data and is left untouched; move the data away")),
        Failure::Busy => Error::InProgress(format!("{at}: a process still uses it")),
        Failure::Elsewhere => Error::Refused(format!("{at}: it is on another filesystem")),
        Failure::Dead => Error::InProgress(format!("{at}: what is mounted there no longer answers")),
        Failure::Silent => Error::InProgress(format!(
            "{at}: what is mounted there does not answer; check that its server runs and that this node reaches it"
        )),
        Failure::Unfit => Error::Refused(format!("{at}: the kernel refuses it as invalid")),
        Failure::Broken => Error::InProgress(format!(
            "{at}: the filesystem there is damaged; the log of this node's kernel (dmesg) says more"
        )),
        Failure::Other(reason) => Error::InProgress(format!("{at}: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn path_of_a_request_is_whole_and_plain() {
        for good in ["/a", "/a/b c", "/a/..b", "/kubelet/pods/é"] {
            assert_eq!(check("target_path", Path::new(good)), Ok(()), "{good}");
        }
        for (bad, word) in [
            ("", "missing"),
            ("a/b", "slash"),
            ("/", "root"),
            ("//", "empty part"),
            ("/a/../b", "\"..\""),
            ("/..", "\"..\""),
            ("/a/./b", "empty part"),
            ("/a//b", "empty part"),
            ("/a/", "empty part"),
            ("/a\0b", "control"),
        ] {
            let error = check("target_path", Path::new(bad)).unwrap_err();
            assert!(
                matches!(&error, Error::Invalid(message) if message.contains(word) && message.contains("target_path")),
                "{bad:?}: {error}"
            );
        }
    }

    #[test]
    fn folders_of_the_machine_are_none_of_a_volume() {
        let kubelet = Path::new("/var/lib/kubelet");
        for bad in [
            "/",
            "/etc",
            "/etc/x",
            "/lib64/x",
            "/library",
            "/var",
            "/var/lib",
            "/var/lib/kubelet",
            "/var/lib/kubelet/pods/x",
        ] {
            assert!(!may_be_shown(Path::new(bad), kubelet), "{bad}");
        }
        for good in ["/mnt/disks/a", "/var/lib/kubelets", "/var/local-path/x", "/opt/local-path-provisioner/x", "/srv"]
        {
            assert!(may_be_shown(Path::new(good), kubelet), "{good}");
        }
    }

    proptest! {
        #[test]
        fn what_passes_stays_below_the_root(path in "[/.a-c]{0,12}") {
            if check("target_path", Path::new(&path)).is_ok() {
                let plain = Path::new(&path).components().skip(1).all(|part| matches!(part, Component::Normal(_)));
                prop_assert!(plain && path.starts_with('/') && !path.ends_with('/'));
            }
        }
    }
}

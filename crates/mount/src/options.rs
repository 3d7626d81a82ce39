//! Mount options: which are flags of the kernel, which are the filesystem's own, and which are refused because they would
//! let a volume reach out of itself. Pure.

use std::collections::BTreeSet;

use domain::error::{Error, Result};

/// What the kernel takes as a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flag {
    ReadOnly,
    NoSuid,
    NoDev,
    NoExec,
    NoAtime,
    NoDirAtime,
    RelAtime,
    StrictAtime,
    Sync,
    DirSync,
    LazyTime,
}

pub type Flags = BTreeSet<Flag>;

/// The flags that a mount has for itself; the others are its filesystem's, and hold from the first mount on.
pub const OF_A_MOUNT: [Flag; 6] =
    [Flag::ReadOnly, Flag::NoSuid, Flag::NoDev, Flag::NoExec, Flag::NoAtime, Flag::NoDirAtime];

const FLAGS: &[(&str, Flag)] = &[
    ("ro", Flag::ReadOnly),
    ("nosuid", Flag::NoSuid),
    ("nodev", Flag::NoDev),
    ("noexec", Flag::NoExec),
    ("noatime", Flag::NoAtime),
    ("nodiratime", Flag::NoDirAtime),
    ("relatime", Flag::RelAtime),
    ("strictatime", Flag::StrictAtime),
    ("sync", Flag::Sync),
    ("dirsync", Flag::DirSync),
    ("lazytime", Flag::LazyTime),
];

/// On every mount: what a volume holds was written by somebody else, who is not to become root of this node by it.
const ALWAYS: [Flag; 2] = [Flag::NoSuid, Flag::NoDev];

/// What holds without being said, and what only programs that read a file of mounts know.
const NOTHING: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "defaults",
    "diratime",
    "exec",
    "fg",
    "noauto",
    "nofail",
    "nolazytime",
    "nostrictatime",
    "nouser",
    "rw",
];

/// What would change another mount, bring in a device, a file, a program or a server that nobody checked, have a helper go on
/// by itself after it has answered, or for days before it does, or end what others use.
const REFUSED: &[&str] = &[
    "abort",
    "addr",
    "bg",
    "bind",
    "clientaddr",
    "dev",
    "encryption",
    "group",
    "helper",
    "journal_dev",
    "journal_path",
    "logdev",
    "loop",
    "mountaddr",
    "mounthost",
    "move",
    "offset",
    "owner",
    "private",
    "rbind",
    "remount",
    "retry",
    "rprivate",
    "rshared",
    "rslave",
    "rtdev",
    "runbindable",
    "shared",
    "sizelimit",
    "slave",
    "suid",
    "uhelper",
    "unbindable",
    "user",
    "users",
];

/// The kernel takes a page of them.
const LONGEST: usize = 4000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub flags: Flags,
    pub data: Vec<String>,
}

impl Options {
    /// An option may hold several, with commas between. Once something says read-only, it stays so; programs and devices in a
    /// volume never have power over the node.
    pub fn parse<'a>(options: impl IntoIterator<Item = &'a String>) -> Result<Self> {
        let mut parsed = Self { flags: Flags::from(ALWAYS), data: Vec::new() };
        for option in options.into_iter().flat_map(|options| options.split(',')).filter(|option| !option.is_empty()) {
            let lower = option.to_ascii_lowercase();
            let (name, value) = lower.split_once('=').unwrap_or((&lower, ""));
            if REFUSED.contains(&name) || name.starts_with("x-") || value == "panic" {
                return Err(Error::Invalid(format!(
                    "mount option {option:?} is not for a volume: remove it from the class or the volume"
                )));
            }
            if option.chars().any(char::is_control) {
                return Err(Error::Invalid(format!("mount option {option:?} holds a control character: leave it out")));
            }
            match FLAGS.iter().find(|(name, _)| *name == option) {
                Some((_, flag)) => drop(parsed.flags.insert(*flag)),
                None if NOTHING.contains(&option) => {}
                None if !parsed.data.iter().any(|there| there == option) => parsed.data.push(option.to_owned()),
                None => {}
            }
        }
        if parsed.data().len() > LONGEST {
            return Err(Error::Invalid(format!("the mount options have more than {LONGEST} bytes: use fewer")));
        }
        Ok(parsed)
    }

    pub fn data(&self) -> String {
        self.data.join(",")
    }

    /// The value of an option, if it has one of these names.
    pub fn value(&self, names: &[&str]) -> Option<&str> {
        let mut pairs = self.data.iter().filter_map(|option| option.split_once('='));
        pairs.rfind(|(name, _)| names.contains(name)).map(|(_, value)| value)
    }
}

/// The flags among the options that the kernel tells of a mount.
pub fn flags_of(told: &[String]) -> Flags {
    FLAGS.iter().filter(|(name, _)| told.iter().any(|option| option == name)).map(|(_, flag)| *flag).collect()
}

pub fn name_of(flag: Flag) -> &'static str {
    FLAGS.iter().find(|(_, known)| *known == flag).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Result<Options> {
        Options::parse(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_flags_or_the_filesystems_own() {
        use Flag::{NoAtime, NoDev, NoExec, NoSuid, ReadOnly};
        let table: [(&[&str], &[Flag], &str); 7] = [
            (&[], &[], ""),
            (&["rw", "defaults", "_netdev"], &[], ""),
            (&["noatime,noexec,nodev", "discard"], &[NoExec, NoAtime], "discard"),
            (&["commit=5", "", "data=ordered", "commit=5"], &[], "commit=5,data=ordered"),
            (&["ro", "rw"], &[ReadOnly], ""),
            (&["ro=1"], &[], "ro=1"),
            (&["fg", "soft", "errors=remount-ro"], &[], "soft,errors=remount-ro"),
        ];
        for (options, flags, data) in table {
            let parsed = parse(options).unwrap();
            let always = Flags::from([NoSuid, NoDev]);
            let expected: Flags = flags.iter().copied().chain(always).collect();
            assert_eq!((parsed.flags.clone(), parsed.data().as_str()), (expected, data), "{options:?}");
        }
    }

    #[test]
    fn what_reaches_out_of_a_volume_is_refused_by_name() {
        for name in REFUSED.iter().copied().chain(["bg", "retry", "x-systemd.requires", "X-mount.mkdir"]) {
            assert!(parse(&["errors=panic"]).is_err() && parse(&["fatal_errors=Panic"]).is_err());
            for option in [name.to_owned(), format!("{name}=a"), format!("noatime,{}", name.to_uppercase())] {
                let written = option.rsplit(',').next().unwrap().to_owned();
                let error = parse(&[&option]).unwrap_err();
                assert!(matches!(&error, Error::Invalid(message) if message.contains(&written)), "{option}: {error}");
            }
        }
        assert!(parse(&["a\nb"]).is_err() && parse(&[&"long,".repeat(10), &"x".repeat(LONGEST)]).is_err());
    }

    #[test]
    fn last_value_of_an_option_counts() {
        let options = parse(&["vers=3,hard", "vers=4.1"]).unwrap();
        assert_eq!((options.value(&["nfsvers", "vers"]), options.value(&["hard"])), (Some("4.1"), None));
    }

    #[test]
    fn every_flag_has_a_name_and_is_read_back() {
        for (name, flag) in FLAGS {
            assert_eq!((name_of(*flag), flags_of(&[(*name).to_owned()])), (*name, Flags::from([*flag])));
        }
    }
}

//! What may be done to a disk, from what was found on it. Only a blank one is formatted, and blank means that nobody
//! recognises anything on it and that it begins with zeros. Pure.

use super::kernel::Ended;
use domain::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    Ext4,
    Xfs,
}

impl Filesystem {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// What it is mounted with, unless somebody has said it otherwise.
    pub fn option_of_ours(self, said: &[String]) -> Option<&'static str> {
        let (ours, name) = match self {
            // Its superblock says what an error does, and whoever has written that may want it to stop the machine.
            Self::Ext4 => ("errors=remount-ro", "errors="),
            // A volume and its copy carry the same identity, and xfs would refuse to mount both.
            Self::Xfs => ("nouuid", "nouuid"),
        };
        Some(ours).filter(|_| !said.iter().any(|option| option.starts_with(name)))
    }

    pub fn known(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs].into_iter().find(|known| known.as_str() == name)
    }

    /// The one that is wanted: what the leaf volume says, else what the request says, else whichever is there.
    pub fn wanted(leaf: &str, request: &str) -> Result<Option<Self>> {
        let name = if leaf.is_empty() { request } else { leaf };
        if name.is_empty() {
            return Ok(None);
        }
        let unknown = || {
            Error::Invalid(format!("this driver makes and mounts no filesystem {name:?} on a disk: use ext4 or xfs"))
        };
        Self::known(name).map(Some).ok_or_else(unknown)
    }
}

/// What a probe says of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskContent {
    Nothing,
    Signature(String),
    Partitions(String),
}

/// Reads the answer of `blkid --probe --output export`.
pub fn found(device: &str, ended: &Ended) -> Result<DiskContent> {
    let value = |key: &str| {
        let lines = ended.stdout.lines().filter_map(|line| line.split_once('='));
        lines.filter(|(name, value)| *name == key && !value.is_empty()).map(|(_, value)| value.to_owned()).next()
    };
    match ended.code {
        Some(0) => Ok(match (value("PTTYPE"), value("TYPE")) {
            (Some(table), _) => DiskContent::Partitions(table),
            (None, Some(signature)) => DiskContent::Signature(signature),
            (None, None) => DiskContent::Signature("something that has no name".to_owned()),
        }),
        // It says 2 as well when it could not read.
        Some(2) if ended.stderr.trim().is_empty() => Ok(DiskContent::Nothing),
        Some(8) => Err(Error::Refused(format!(
            "disk {device} has the signatures of several filesystems and is left untouched: remove the wrong ones by hand"
        ))),
        _ => Err(ended_badly("blkid", device, ended)),
    }
}

/// What a disk says that it is, without the head of the page in which SCSI has it. Nothing, where it leaves that blank.
pub fn id_in(told: &[u8]) -> String {
    let id = if let [_, 0x80, _, _, id @ ..] = told { id } else { told };
    String::from_utf8_lossy(id).trim_matches(['\0', ' ', '\n']).to_owned()
}

/// Whether a disk may have this name, by what it says that it is: the name ends with that. One that says nothing is believed.
pub fn may_be_named(name: &str, ids: &[String]) -> bool {
    let own = name.rsplit(['_', '-']).next().unwrap_or(name).to_ascii_lowercase();
    let own = own.trim_start_matches("0x");
    ids.is_empty() || ids.iter().any(|id| id.to_ascii_lowercase().ends_with(own))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Use(Filesystem),
    Format(Filesystem),
}

/// What to do with a disk. `zeros`: it begins with nothing else; `unfinished`: its format was begun while it was blank,
/// and nothing has used it here since.
pub fn plan(
    device: &str,
    found: &DiskContent,
    wanted: Option<Filesystem>,
    zeros: bool,
    unfinished: bool,
) -> Result<Plan> {
    let refuse = |what: &str| {
        let fix = "it is left untouched; use another volume, or empty this one by hand";
        Err(Error::Refused(format!("disk {device} holds {what}, and {fix}")))
    };
    match found {
        DiskContent::Nothing if zeros || unfinished => Ok(Plan::Format(wanted.unwrap_or(Filesystem::Ext4))),
        DiskContent::Nothing => refuse("data that is no filesystem (a blank one begins with 1 MiB of zeros)"),
        DiskContent::Partitions(table) => refuse(&format!("a partition table ({table})")),
        DiskContent::Signature(there) => match (Filesystem::known(there), wanted) {
            (Some(there), None) => Ok(Plan::Use(there)),
            (Some(there), Some(wanted)) if there == wanted => Ok(Plan::Use(there)),
            (_, Some(wanted)) => refuse(&format!("{there}, not the {} that is asked for", wanted.as_str())),
            (None, None) => refuse(&format!("{there}, which is neither ext4 nor xfs")),
        },
    }
}

/// The size that an ext4 filesystem has, by its superblock.
pub fn size_of_ext4(head: &[u8]) -> Option<u64> {
    let block = head.get(1024..2048)?;
    let number = |at: usize| Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?));
    let magic = block.get(56..58)? == [0x53, 0xef];
    let wide = number(0x60)? & 0x80 != 0;
    let high = if wide { number(0x150)? } else { 0 };
    let blocks = (u64::from(high) << 32) | u64::from(number(4)?);
    let unit = 1024_u64.checked_shl(number(24)?).filter(|_| magic)?;
    blocks.checked_mul(unit)
}

/// When an ext4 was last mounted to be written, by its superblock.
pub fn last_mount(head: &[u8]) -> Option<u32> {
    let block = head.get(1024..2048)?;
    let magic = block.get(56..58)? == [0x53, 0xef];
    let time = u32::from_le_bytes(block.get(44..48)?.try_into().ok()?);
    Some(time).filter(|_| magic)
}

/// Whether it shows by itself that the format of a disk has not ended: xfs has its name there from the beginning.
pub fn is_half_made(head: &[u8]) -> bool {
    head.starts_with(b"XFSB") && head.get(126).is_some_and(|in_progress| *in_progress != 0)
}

/// Whether somebody may have used a filesystem since it was made, on whichever machine: ext4 says when it was last mounted to be written. Of xfs
/// it is told only whether it is whole.
pub fn may_be_used(filesystem: Filesystem, head: &[u8]) -> bool {
    match filesystem {
        Filesystem::Ext4 => {
            head.get(1024 + 44..1024 + 48).is_none_or(|mounted_at| mounted_at.iter().any(|byte| *byte != 0))
        }
        Filesystem::Xfs => !is_half_made(head),
    }
}

/// A filesystem cannot always use the very end of its disk; less than this is not worth a long check.
const WORTH_GROWING: u64 = 8 << 20;

pub fn should_grow(filesystem: u64, disk: u64) -> bool {
    disk.saturating_sub(filesystem) >= WORTH_GROWING
}

/// Whether e2fsck left a filesystem that can be used.
pub fn checked(device: &str, ended: &Ended) -> Result<()> {
    match ended.code {
        // 1 and 2 say that something was repaired.
        Some(0..=2) => Ok(()),
        Some(code) if code & 4 != 0 => Err(Error::Refused(format!(
            "the filesystem on disk {device} has errors that are not repaired automatically: run e2fsck on it by hand ({})",
            brief(ended)
        ))),
        _ => Err(ended_badly("e2fsck", device, ended)),
    }
}

/// Whether e2fsck, which was only to look, has looked at all, and could read that.
pub fn looked(device: &str, ended: &Ended) -> Result<()> {
    let unread = ended.stdout.lines().find(|line| line.contains("Error reading block"));
    match (ended.code, unread) {
        (None, _) => Err(ended_badly("e2fsck", device, ended)),
        (Some(code), None) if code & 8 == 0 => Ok(()),
        (Some(_), _) => Err(Error::Refused(format!(
            "e2fsck could not read all of the filesystem on disk {device}, so it is not repaired: see to the disk's storage first ({})",
            unread.map_or_else(|| brief(ended), |line| line.trim().to_owned())
        ))),
    }
}

/// What came of the growth of a mounted filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    Done,
    /// This machine lets nothing grow while it is mounted, or not this filesystem.
    Denied,
}

/// Whether a mounted filesystem grew.
pub fn grown(device: &str, program: &str, ended: &Ended) -> Result<Growth> {
    let words =
        ["Permission denied", "Operation not permitted", "Operation not supported", "not support online resizing"];
    let denied = words.iter().any(|words| ended.stderr.contains(words));
    match ended.code {
        Some(0) => Ok(Growth::Done),
        _ if denied => Ok(Growth::Denied),
        _ => Err(ended_badly(program, device, ended)),
    }
}

/// One that was killed, as where the memory was full, says nothing of the disk.
pub fn ended_badly(program: &str, device: &str, ended: &Ended) -> Error {
    match ended.code {
        Some(code) => Error::Refused(format!("{program} on {device} ended with {code}: {}", brief(ended))),
        None => Error::InProgress(format!("{program} on {device} was killed, and is run again: {}", brief(ended))),
    }
}

/// The end of what a program said. e2fsck tells what it has found in the one place, and that it gives up, or its version, in the other.
fn brief(ended: &Ended) -> String {
    let lines = ended.stdout.lines().chain(ended.stderr.lines());
    let text: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = text.join("; ");
    let start = text.ceil_char_boundary(text.len().saturating_sub(400));
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Ended {
        Ended { code: Some(code), stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    #[test]
    fn probe_is_read_and_what_it_could_not_read_is_never_blank() {
        let found = |code, stdout, stderr| found("/dev/x", &ended(code, stdout, stderr));
        assert_eq!(found(2, "", "").unwrap(), DiskContent::Nothing);
        assert_eq!(
            found(0, "DEVNAME=/dev/x\nTYPE=ext4\nUSAGE=filesystem\n", "").unwrap(),
            DiskContent::Signature("ext4".into())
        );
        assert_eq!(found(0, "TYPE=vfat\nPTTYPE=dos\n", "").unwrap(), DiskContent::Partitions("dos".into()));
        assert!(matches!(found(0, "USAGE=other\n", "").unwrap(), DiskContent::Signature(_)));
        for (code, stderr) in [(2, "error: /dev/x: Input/output error"), (8, ""), (4, "usage"), (1, "")] {
            assert!(matches!(found(code, "", stderr), Err(Error::Refused(_))), "{code}");
        }
        let killed = Ended { code: None, ..Ended::default() };
        assert!(matches!(super::found("/dev/x", &killed), Err(Error::InProgress(_))));
    }

    /// Else one with a blank number would be refused for ever by whatever name.
    #[test]
    fn page_without_a_number_says_nothing() {
        for (told, id) in [
            (b"\0\x80\0\x12 0123456789abcdef\0".as_slice(), "0123456789abcdef"),
            (b"\0\x80\0\x04    ".as_slice(), ""),
            (b"naa.6000c29a98d0\n".as_slice(), "naa.6000c29a98d0"),
            (b"\n".as_slice(), ""),
        ] {
            assert_eq!(id_in(told), id, "{told:?}");
        }
    }

    #[test]
    fn disk_has_the_name_that_it_says_itself() {
        for (name, ids, may) in [
            ("scsi-0QEMU_QEMU_HARDDISK_0123456789abcdef", vec!["0123456789abcdef"], true),
            ("scsi-0QEMU_QEMU_HARDDISK_0123456789abcdef", vec!["fedcba9876543210", "naa.5000"], false),
            ("virtio-0123456789abcdef", vec!["0123456789abcdef"], true),
            ("wwn-0x6000c29a98d0", vec!["6000C29a98d0", "naa.6000c29a98d0"], true),
            ("wwn-0x6000c29a98d0", vec!["naa.6000c29a98d1"], false),
            ("wwn-0x6000c29a98d0", vec![], true),
        ] {
            let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
            assert_eq!(may_be_named(name, &ids), may, "{name} {ids:?}");
        }
    }

    #[test]
    fn only_a_blank_disk_is_formatted() {
        let (ext4, xfs) = (Filesystem::Ext4, Filesystem::Xfs);
        let signature = |name: &str| DiskContent::Signature(name.to_owned());
        let table = [
            (DiskContent::Nothing, None, true, false, Ok(Plan::Format(ext4))),
            (DiskContent::Nothing, Some(xfs), true, false, Ok(Plan::Format(xfs))),
            (DiskContent::Nothing, Some(xfs), false, true, Ok(Plan::Format(xfs))),
            (DiskContent::Nothing, None, false, false, Err("begins with 1 MiB of zeros")),
            (signature("ext4"), None, false, false, Ok(Plan::Use(ext4))),
            (signature("xfs"), None, false, false, Ok(Plan::Use(xfs))),
            (signature("xfs"), Some(xfs), false, true, Ok(Plan::Use(xfs))),
            (signature("xfs"), Some(ext4), false, false, Err("holds xfs, not the ext4")),
            (signature("ext3"), None, false, false, Err("ext3, which is neither")),
            (signature("LVM2_member"), Some(ext4), true, true, Err("LVM2_member")),
            (DiskContent::Partitions("gpt".into()), Some(ext4), true, true, Err("partition table (gpt)")),
        ];
        for (there, wanted, zeros, unfinished, expected) in table {
            match (plan("/dev/x", &there, wanted, zeros, unfinished), expected) {
                (Ok(planned), Ok(expected)) => assert_eq!(planned, expected, "{there:?}"),
                (Err(Error::Refused(message)), Err(word)) => assert!(message.contains(word), "{message}"),
                (planned, expected) => panic!("{there:?} {wanted:?}: {planned:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn filesystem_is_the_leafs_then_the_requests() {
        assert_eq!(Filesystem::wanted("xfs", "ext4").unwrap(), Some(Filesystem::Xfs));
        assert_eq!(Filesystem::wanted("", "ext4").unwrap(), Some(Filesystem::Ext4));
        assert_eq!(Filesystem::wanted("", "").unwrap(), None);
        assert!(matches!(Filesystem::wanted("", "btrfs"), Err(Error::Invalid(message)) if message.contains("btrfs")));
    }

    #[test]
    fn no_filesystem_decides_by_itself_that_an_error_stops_the_machine() {
        let said = |option: &str| vec!["discard".to_owned(), option.to_owned()];
        assert_eq!(Filesystem::Ext4.option_of_ours(&said("noload")), Some("errors=remount-ro"));
        assert_eq!(Filesystem::Ext4.option_of_ours(&said("errors=continue")), None);
        assert_eq!(Filesystem::Xfs.option_of_ours(&said("logbufs=8")), Some("nouuid"));
        assert_eq!(Filesystem::Xfs.option_of_ours(&said("nouuid")), None);
    }

    #[test]
    fn size_of_a_filesystem_is_in_its_superblock() {
        let mut head = vec![0; 4096];
        assert_eq!((size_of_ext4(&head), size_of_ext4(&head[..100])), (None, None));
        head[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        head[1024 + 4..1024 + 8].copy_from_slice(&16384_u32.to_le_bytes());
        head[1024 + 24] = 2;
        assert_eq!(size_of_ext4(&head), Some(64 << 20));
        head[1024 + 0x150] = 1;
        assert_eq!(size_of_ext4(&head), Some(64 << 20), "the high half counts only where the filesystem says so");
        head[1024 + 0x60] = 0x80;
        assert_eq!(size_of_ext4(&head), Some((64 << 20) + (1 << 44)));
        head[1024 + 24] = 200;
        assert_eq!(size_of_ext4(&head), None);
    }

    #[test]
    fn last_mount_is_in_the_superblock_of_an_ext4() {
        let mut head = vec![0; 4096];
        head[1024 + 44..1024 + 48].copy_from_slice(&1_700_000_000_u32.to_le_bytes());
        assert_eq!((last_mount(&head), last_mount(&head[..100])), (None, None));
        head[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        assert_eq!(last_mount(&head), Some(1_700_000_000));
    }

    #[test]
    fn half_made_xfs_says_so() {
        let mut head = b"XFSB".to_vec();
        head.resize(512, 0);
        assert!(!is_half_made(&head) && !is_half_made(&[1; 512]) && !is_half_made(b"XFSB"));
        head[126] = 1;
        assert!(is_half_made(&head));
    }

    #[test]
    fn filesystem_is_unused_only_where_it_shows_that() {
        let mut ext4 = vec![0; 4096];
        assert!(!may_be_used(Filesystem::Ext4, &ext4) && may_be_used(Filesystem::Ext4, &ext4[..1024]));
        ext4[1024 + 44..1024 + 48].copy_from_slice(&1_700_000_000_u32.to_le_bytes());
        assert!(may_be_used(Filesystem::Ext4, &ext4));
        let mut xfs = b"XFSB".to_vec();
        xfs.resize(512, 0);
        assert!(may_be_used(Filesystem::Xfs, &xfs));
        xfs[126] = 1;
        assert!(!may_be_used(Filesystem::Xfs, &xfs));
    }

    #[test]
    fn ends_of_programs_are_told_apart() {
        let outcome = |result: Result<()>| result.map_err(|error| error.to_string());
        for code in 0..=2 {
            assert_eq!(outcome(checked("/dev/x", &ended(code, "", ""))), Ok(()));
        }
        assert!(outcome(checked("/dev/x", &ended(4, "UNEXPECTED", ""))).unwrap_err().contains("errors that are not"));
        assert!(outcome(checked("/dev/x", &ended(8, "", "in use"))).unwrap_err().contains("in use"));
        let found = ended(4, "x: Resize inode not valid.  ", "\n\nx: UNEXPECTED INCONSISTENCY\n");
        assert!(outcome(checked("/dev/x", &found)).unwrap_err().contains("Resize inode not valid.; x: UNEXPECTED"));
        assert_eq!(outcome(looked("/dev/x", &ended(4, "Resize inode not valid.  Recreate? no", ""))), Ok(()));
        let unread = "Pass 1\nError reading block 275 (Input/output error).  Ignore error? no\n";
        for (code, out, err, told) in [(4, unread, "e2fsck 1.47", "(Error reading"), (8, "", "in use", "in use")] {
            assert!(outcome(looked("/dev/x", &ended(code, out, err))).unwrap_err().contains(told), "{told}");
        }
        let grown = |err: &str| grown("/dev/x", "xfs_growfs", &ended(1, "", err));
        for err in [
            "Permission denied to resize filesystem",
            "Operation not supported While checking for on-line resizing support",
            "Filesystem does not support online resizing",
        ] {
            assert_eq!(grown(err), Ok(Growth::Denied), "{err}");
        }
        assert!(grown("bad").unwrap_err().to_string().contains("ended with 1: bad"));
    }
}

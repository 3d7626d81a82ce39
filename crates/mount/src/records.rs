//! What is kept of each volume on this node: one file, written before the first thing is done and removed after the last
//! is undone. It names what to look for; what is there, the kernel's mounts say. Requests that undo carry an id and a path
//! and nothing else, so the rest has to come from here.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    kernel::{Failure, Kernel},
    paths::failed,
    volume_use::VolumeUse,
};
use domain::{
    error::{Error, Result},
    volume::backing::{Attached, Backing},
};

/// A volume on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub attached: Attached,
    /// Where and how it is staged, or is about to be.
    pub staging: PathBuf,
    pub way: VolumeUse,
    /// A format of its disk was begun, and its end is not known: until then nothing was ever on it. Another machine may have had the disk since.
    pub formatting: bool,
    /// A growth of its ext4 was begun while that was not mounted, and its end is not known: when it was last mounted before. One that was
    /// mounted since has been somebody else's.
    pub growing: Option<u32>,
    pub targets: BTreeMap<PathBuf, Target>,
}

/// How a volume is published at one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub way: VolumeUse,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
}

impl Record {
    pub fn new(attached: &Attached, staging: &Path, way: &VolumeUse) -> Self {
        Self {
            attached: attached.clone(),
            staging: staging.to_owned(),
            way: way.clone(),
            formatting: false,
            growing: None,
            targets: BTreeMap::new(),
        }
    }

    pub fn volume(&self) -> &str {
        &self.attached.volume
    }

    /// The folder of this machine that it is. Such a volume is not mounted where it is staged.
    pub fn folder(&self) -> Option<&Path> {
        match &self.attached.backing {
            Backing::Local { path } if !self.way.mode.is_block() => Some(Path::new(path)),
            _ => None,
        }
    }

    /// Whether something was begun with its disk of which the end is not known.
    pub fn is_begun(&self) -> bool {
        self.formatting || self.growing.is_some()
    }

    /// Whether nothing may be written through it.
    pub fn only_reads(&self) -> bool {
        self.attached.readonly || self.way.access.only_reads()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    volume: String,
    attached: BTreeMap<String, String>,
    staging: PathBuf,
    way: VolumeUse,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    formatting: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growing: Option<u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    targets: BTreeMap<PathBuf, Target>,
}

fn print(record: &Record) -> Result<String> {
    let wire = Wire {
        volume: record.volume().to_owned(),
        attached: record.attached.context()?,
        staging: record.staging.clone(),
        way: record.way.clone(),
        formatting: record.formatting,
        growing: record.growing,
        targets: record.targets.clone(),
    };
    serde_json::to_string(&wire)
        .map_err(|error| Error::Refused(format!("volume {} cannot be recorded: {error}", record.volume())))
}

fn parse(text: &str, file: &Path) -> Result<Record> {
    let damaged = |reason: String| {
        Error::Refused(format!(
            "the record {} is damaged ({reason}): unmount what this volume has on the node by hand, then remove the file",
            file.display()
        ))
    };
    let wire: Wire = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    let attached = Attached::parse(&wire.attached, &wire.volume).map_err(|error| damaged(error.to_string()))?;
    if file.file_name().is_none_or(|name| name != file_name(&wire.volume).as_str()) {
        return Err(damaged(format!("it speaks of volume {:?}", wire.volume)));
    }
    let Wire { staging, way, formatting, growing, targets, .. } = wire;
    Ok(Record { attached, staging, way, formatting, growing, targets })
}

/// An id may hold anything; its digest is a file's name.
fn file_name(volume: &str) -> String {
    format!("{:x}.json", Sha256::digest(volume))
}

/// The folder of the records.
#[derive(Debug)]
pub struct Records {
    folder: PathBuf,
}

impl Records {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn file(&self, volume: &str) -> PathBuf {
        self.folder.join(file_name(volume))
    }

    pub fn find(&self, kernel: &impl Kernel, volume: &str) -> Result<Option<Record>> {
        read(kernel, &self.file(volume))
    }

    pub fn all(&self, kernel: &impl Kernel) -> Result<Vec<Record>> {
        let files = match kernel.list(&self.folder) {
            Err(Failure::Missing) => Vec::new(),
            listed => listed.map_err(failed("reading", &self.folder))?,
        };
        let records = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "json"));
        records.filter_map(|file| read(kernel, file).transpose()).collect()
    }

    pub fn keep(&self, kernel: &impl Kernel, record: &Record) -> Result<()> {
        let file = self.file(record.volume());
        kernel.write(&file, &print(record)?).map_err(failed("writing", &file))
    }

    pub fn forget(&self, kernel: &impl Kernel, volume: &str) -> Result<()> {
        let file = self.file(volume);
        match kernel.erase(&file) {
            Err(Failure::Missing) => Ok(()),
            erased => erased.map_err(failed("removing", &file)),
        }
    }
}

fn read(kernel: &impl Kernel, file: &Path) -> Result<Option<Record>> {
    match kernel.read(file) {
        Err(Failure::Missing) => Ok(None),
        text => parse(&text.map_err(failed("reading", file))?, file).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_use::Access;
    use domain::volume::{VolumeMode, backing::AttachMode};

    const VOLUME: &str = "cluster38/shop/data/0123456789abcdef";

    fn record() -> Record {
        let attached = Attached {
            volume: VOLUME.to_owned(),
            mode: AttachMode::VirtualMachine,
            backing: Backing::Device { names: vec!["wwn-1".to_owned()], filesystem: "xfs".to_owned() },
            options: vec!["noatime".to_owned()],
            readonly: true,
        };
        let way = VolumeUse {
            access: Access::SingleNodeMultiWriter,
            mode: VolumeMode::Filesystem,
            filesystem: "xfs".to_owned(),
            flags: vec!["nodev".to_owned()],
            group: Some(7),
        };
        let mut record = Record::new(&attached, Path::new("/stage"), &way);
        record.formatting = true;
        record.growing = Some(1_700_000_000);
        record.targets.insert("/pods/é b".into(), Target { way, readonly: true });
        record
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let file = Path::new("/state").join(file_name(VOLUME));
        assert_eq!(parse(&print(&record()).unwrap(), &file).unwrap(), record());
    }

    /// That refuses a record with names that it does not know.
    #[test]
    fn former_version_can_read_a_record_unless_something_was_begun_with_its_disk() {
        let text = print(&Record { formatting: false, growing: None, ..record() }).unwrap();
        assert!(!text.contains("formatting") && !text.contains("growing"), "{text}");
    }

    #[test]
    fn record_that_is_not_whole_or_speaks_of_another_volume_is_refused_with_its_path() {
        let text = print(&record()).unwrap();
        let file = Path::new("/state").join(file_name(VOLUME));
        let another = Path::new("/state").join(file_name("another"));
        let more = text.replacen('{', "{\"more\":1,", 1);
        let moved = text.replacen(VOLUME, "cluster38/shop/moved/0123456789abcdef", 1);
        for (text, file) in
            [("", &file), (&text[..text.len() / 2], &file), (&more, &file), (&moved, &file), (&text, &another)]
        {
            let error = parse(text, file).unwrap_err();
            assert!(matches!(&error, Error::Refused(message) if message.contains(file.to_str().unwrap())), "{error}");
        }
    }

    #[test]
    fn no_id_leads_out_of_the_folder() {
        for id in ["../../etc/passwd", "/", "", "a/b", &"x".repeat(128)] {
            let name = file_name(id);
            assert!(
                name.len() == 69 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'),
                "{name}"
            );
        }
    }
}

//! The bytes of volumes and snapshots: a sparse file or a folder each, named by id. The records say which of them count;
//! what no record names is left from a crash.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::command::copy;
use crate::error::Error;
use crate::parameters::Kind;

#[derive(Debug)]
pub(crate) struct Data(PathBuf);

impl Data {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        folder.canonicalize().map(Self)
    }

    pub(crate) fn path(&self, id: &str) -> PathBuf {
        self.0.join(id)
    }

    pub(crate) fn create(&self, id: &str, kind: Kind, bytes: u64) -> Result<(), Error> {
        let path = self.path(id);
        let made = match kind {
            Kind::Loop => File::create(&path).and_then(|file| file.set_len(bytes)),
            // Which users share the folder is the pods' affair.
            Kind::Shared => {
                fs::create_dir(&path).and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o777)))
            }
        };
        made.map_err(Error::during(format!("making {}", path.display())))
    }

    /// Copies the data of `source`, which nobody changes meanwhile, and lets the copy have `bytes`.
    pub(crate) async fn copy(&self, source: &str, id: &str, kind: Kind, bytes: u64) -> Result<(), Error> {
        let (from, to) = (self.path(source), self.path(id));
        match kind {
            Kind::Loop => {
                copy(&["--sparse=always".as_ref(), "--reflink=auto".as_ref(), from.as_ref(), to.as_ref()]).await?;
                self.grow(id, bytes)
            }
            Kind::Shared => {
                copy(&[
                    "--archive".as_ref(),
                    "--reflink=auto".as_ref(),
                    "--no-target-directory".as_ref(),
                    from.as_ref(),
                    to.as_ref(),
                ])
                .await
            }
        }
    }

    /// Lets the file of a loop volume have `bytes`; it never shrinks.
    pub(crate) fn grow(&self, id: &str, bytes: u64) -> Result<(), Error> {
        let path = self.path(id);
        let grow = || {
            let file = File::options().write(true).open(&path)?;
            if file.metadata()?.len() < bytes { file.set_len(bytes) } else { Ok(()) }
        };
        grow().map_err(Error::during(format!("growing {}", path.display())))
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), Error> {
        remove(&self.path(id)).map_err(Error::during(format!("removing the data of {id}")))
    }

    /// Whether the data can be reached at all.
    pub(crate) fn check(&self) -> io::Result<()> {
        fs::read_dir(&self.0).map(drop)
    }

    /// Removes what none of these ids names.
    pub(crate) fn keep_only(&self, ids: &BTreeSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| ids.contains(name)) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    #[tokio::test]
    async fn a_copy_has_the_data_and_its_own_size() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        data.create("one", Kind::Loop, MEBIBYTE).unwrap();
        fs::write(data.path("one"), "content").unwrap();
        data.copy("one", "two", Kind::Loop, 2 * MEBIBYTE).await.unwrap();
        data.grow("two", MEBIBYTE).unwrap();
        let copied = fs::read(data.path("two")).unwrap();
        assert!(copied.starts_with(b"content"));
        assert_eq!(copied.len() as u64, 2 * MEBIBYTE);
    }

    #[tokio::test]
    async fn a_folder_is_copied_whole() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        data.create("one", Kind::Shared, 0).unwrap();
        fs::create_dir(data.path("one").join("sub")).unwrap();
        fs::write(data.path("one").join("sub/file"), "content").unwrap();
        data.copy("one", "two", Kind::Shared, 0).await.unwrap();
        assert_eq!(fs::read(data.path("two").join("sub/file")).unwrap(), b"content");
    }

    #[test]
    fn what_no_record_names_goes() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        data.create("kept", Kind::Loop, 1).unwrap();
        data.create("file", Kind::Loop, 1).unwrap();
        data.create("folder", Kind::Shared, 1).unwrap();
        data.keep_only(&BTreeSet::from(["kept".to_owned()])).unwrap();
        data.remove("folder").unwrap();
        assert!(data.path("kept").exists() && !data.path("file").exists() && !data.path("folder").exists());
    }
}
